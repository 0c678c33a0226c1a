/* Models through the public header: created, trained, saved, opened, streamed; and everything that is refused. */
#include "api_support.h"
#include "scratch.h"

#include <stdio.h>

enum { VOCAB = 11, BATCH = 3, TIME = 17 };

static const char *const tiny[] = {"inputs", "11", "outputs", "11", "dim", "16", "layers", "2", "conv", "4", "mlp", "2", "lr", "0.01", "seed", "3", NULL};
static const char *const tiny_lstm[] = {"mixer", "minlstm", "inputs", "11", "outputs", "11", "dim", "16", "layers", "3", "h0", "learned", NULL};
static const char *const tiny_text[] = {"vocab", "bytes", "dim", "8", "layers", "1", NULL};
static const char *const tiny_values[] = {"input", "reals", "inputs", "3", "head", "last", "loss", "mse", "outputs", "2", "dim", "8", "layers", "2", NULL};

static mr_net *net_of(mr_context *ctx, const char *const *settings)
{
    mr_net *net;
    OK(mr_net_create(ctx, settings, &net, &err));
    return net;
}

static mr_stream *stream_on(mr_net *net)
{
    mr_stream *stream;
    OK(mr_stream_new(net, &stream, &err));
    return stream;
}

/* Sequences in which each token follows from the one before. */
typedef struct lesson {
    int32_t ids[BATCH * TIME], target[BATCH * TIME];
    mr_sequences data;
} lesson;

static void make_lesson(lesson *l, uint32_t seed)
{
    memset(l, 0, sizeof *l);
    for (int b = 0; b < BATCH; b++) {
        int32_t token = (random_below(&seed, VOCAB) + 4 * b) % VOCAB;
        for (int t = 0; t < TIME; t++) {
            l->ids[b * TIME + t] = token;
            token = (token * 3 + 1) % VOCAB;
            l->target[b * TIME + t] = token;
        }
    }
    l->data = (mr_sequences)MR_SEQUENCES;
    l->data.B = BATCH;
    l->data.T = TIME;
    l->data.ids = l->ids;
    l->data.target = l->target;
}

static void train(mr_net *net, int from, int to)
{
    lesson l;
    for (int i = from; i < to; i++) {
        make_lesson(&l, (uint32_t)i);
        OK(mr_net_train(net, &l.data, NULL, &err));
    }
}

static void test_training_lowers_the_loss(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, tiny);
    mr_result before = MR_RESULT, after = MR_RESULT;
    lesson l;
    make_lesson(&l, 99);
    OK(mr_net_evaluate(net, &l.data, &before, &err));
    assert_true(before.loss > 1.5 && before.loss < 4);
    assert_int_equal(before.rows, BATCH * TIME);
    assert_int_equal(mr_net_steps(net), 0);
    train(net, 0, 60);
    OK(mr_net_evaluate(net, &l.data, &after, &err));
    assert_true(after.loss < 0.2 * before.loss);
    assert_true(after.accuracy > 0.9);
    assert_int_equal(mr_net_steps(net), 60);
    assert_int_equal(after.step, 60);
    OK(mr_net_set(net, "lr", "0", &err));
    train(net, 60, 61);
    mr_result still = MR_RESULT;
    OK(mr_net_evaluate(net, &l.data, &still, &err));
    assert_true(still.loss == after.loss); /* lr 0 changes nothing */
    mr_net_free(net);
    mr_context_free(ctx);
}

static void forward_scores(mr_net *net, float *scores)
{
    lesson l;
    make_lesson(&l, 5);
    OK(mr_net_forward(net, &l.data, scores, &err));
}

/* Ways to take the same tokens: a batch, step by step, in one piece, many together. */
static void check_streams(mr_net *net)
{
    float *want = room(sizeof *want * BATCH * TIME * VOCAB), got[VOCAB], many[BATCH * VOCAB];
    mr_stream *steps[BATCH], *pieces[BATCH], *together[BATCH];
    lesson l;
    make_lesson(&l, 5);
    forward_scores(net, want);
    for (int b = 0; b < BATCH; b++) steps[b] = stream_on(net), pieces[b] = stream_on(net), together[b] = stream_on(net);
    for (int t = 0; t < TIME; t++) {
        int32_t tokens[BATCH];
        for (int b = 0; b < BATCH; b++) {
            tokens[b] = l.ids[b * TIME + t];
            OK(mr_stream_step(steps[b], tokens[b], got, &err));
            near_floats("step", got, want + (b * TIME + t) * VOCAB, VOCAB, 1e-4);
        }
        OK(mr_stream_step_many(together, BATCH, tokens, many, &err));
        for (int b = 0; b < BATCH; b++) near_floats("many", many + b * VOCAB, want + (b * TIME + t) * VOCAB, VOCAB, 1e-4);
    }
    for (int b = 0; b < BATCH; b++) { /* each has its own state afterwards */
        OK(mr_stream_step(together[b], 1, many, &err));
        OK(mr_stream_step(steps[b], 1, got, &err));
        near_floats("alone after many", many, got, VOCAB, 1e-4);
    }
    for (int b = 0; b < BATCH; b++) {
        OK(mr_stream_feed(pieces[b], l.ids + b * TIME, 5, got, &err));
        near_floats("first piece", got, want + (b * TIME + 4) * VOCAB, VOCAB, 1e-4);
        OK(mr_stream_feed(pieces[b], l.ids + b * TIME + 5, TIME - 5, got, &err));
        near_floats("second piece", got, want + (b * TIME + TIME - 1) * VOCAB, VOCAB, 1e-4);
        mr_stream_reset(steps[b]);
        OK(mr_stream_step(steps[b], l.ids[b * TIME], got, &err));
        near_floats("after a reset", got, want + b * TIME * VOCAB, VOCAB, 1e-4);
        mr_stream_free(steps[b]), mr_stream_free(pieces[b]), mr_stream_free(together[b]);
    }
    free(want);
}

static void test_streams_agree_with_batches(void **state)
{
    (void)state;
    const char *const devices[] = {"cpu", "ref"};
    for (int i = 0; i < 2; i++) {
        mr_context *ctx = context_on(devices[i]);
        mr_net *gru = net_of(ctx, tiny), *lstm = net_of(ctx, tiny_lstm);
        check_streams(gru);
        check_streams(lstm);
        mr_net_free(gru);
        mr_net_free(lstm);
        mr_context_free(ctx);
    }
}

/* Streams that start at different times go together: each has its own beginning. */
static void test_many_streams_may_be_of_any_age(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, tiny_lstm);
    mr_stream *old = stream_on(net), *fresh = stream_on(net), *alone = stream_on(net);
    float scores[2 * VOCAB], want[VOCAB];
    OK(mr_stream_feed(old, (int32_t[]){1, 2, 3}, 3, scores, &err));
    OK(mr_stream_step_many((mr_stream *[]){old, fresh}, 2, (int32_t[]){4, 7}, scores, &err));
    OK(mr_stream_step(alone, 7, want, &err));
    near_floats("the fresh one", scores + VOCAB, want, VOCAB, 1e-5);
    mr_stream_reset(alone);
    OK(mr_stream_feed(alone, (int32_t[]){1, 2, 3, 4}, 4, want, &err));
    near_floats("the old one", scores, want, VOCAB, 1e-5);
    FAILS(MR_EINVAL, "twice", mr_stream_step_many((mr_stream *[]){old, old}, 2, (int32_t[]){4, 7}, scores, &err));
    OK(mr_stream_step_many((mr_stream *[]){old, fresh}, 2, (int32_t[]){4, 7}, scores, &err)); /* and is taken afterwards */
    mr_stream_free(old), mr_stream_free(fresh), mr_stream_free(alone);
    mr_net_free(net);
    mr_context_free(ctx);
}

static void test_states_travel(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu"), *other = context_on("ref");
    mr_net *net = net_of(ctx, tiny), *twin = net_of(other, tiny), *lstm = net_of(ctx, tiny_lstm);
    mr_stream *a = stream_on(net), *b = stream_on(twin), *c, *wrong = stream_on(lstm);
    float want[VOCAB], got[VOCAB];
    OK(mr_stream_feed(a, (int32_t[]){1, 2, 3, 4, 5}, 5, want, &err));
    size_t size = mr_stream_state_size(a);
    char *blob = (char *)room(size + 1) + 1; /* a blob may lie anywhere */
    OK(mr_stream_save(a, blob, &err));
    OK(mr_stream_clone(a, &c, &err));
    OK(mr_stream_load(b, blob, size, &err));
    OK(mr_stream_step(a, 6, want, &err));
    OK(mr_stream_step(c, 6, got, &err));
    near_floats("the clone", got, want, VOCAB, 0);
    OK(mr_stream_step(b, 6, got, &err));
    near_floats("on another device", got, want, VOCAB, 1e-4);
    OK(mr_stream_load(a, blob, size, &err));
    OK(mr_stream_step(a, 6, got, &err));
    near_floats("turned back", got, want, VOCAB, 0);

    FAILS(MR_EINVAL, "another model", mr_stream_load(wrong, blob, size, &err));
    for (int i = 0; i < 4; i++) { /* as tiny, but for one thing */
        const char *const keys[] = {"mixer", "layers", "conv", "expansion"}, *const values[] = {"minlstm", "3", "0", "1"};
        const char *settings[] = {"inputs", "11", "outputs", "11", "dim", "16", "layers", "2", "conv", "4", keys[i], values[i], NULL};
        mr_net *near_miss = net_of(ctx, settings);
        mr_stream *there = stream_on(near_miss);
        FAILS(MR_EINVAL, values[i], mr_stream_load(there, blob, size, &err));
        mr_stream_free(there);
        mr_net_free(near_miss);
    }
    FAILS(MR_EFORMAT, "damaged", mr_stream_load(a, blob, size - 1, &err));
    FAILS(MR_EFORMAT, "not the state", mr_stream_load(a, blob, 3, &err));
    FAILS(MR_EFORMAT, "not the state", mr_stream_load(a, "and now for something completely different, in 64 bytes or more", 64, &err));
    memset(blob + size - 4, 0xff, 4);
    FAILS(MR_EFORMAT, "not finite", mr_stream_load(a, blob, size, &err));
    blob[8] = 9;
    FAILS(MR_EFORMAT, "version 9", mr_stream_load(a, blob, size, &err));
    free(blob - 1);

    mr_stream *new_one = stream_on(net); /* one that has not begun goes on as such */
    blob = room(size);
    OK(mr_stream_save(new_one, blob, &err));
    OK(mr_stream_load(a, blob, size, &err));
    OK(mr_stream_step(a, 6, got, &err));
    OK(mr_stream_step(new_one, 6, want, &err));
    near_floats("a state before the first token", got, want, VOCAB, 0);
    free(blob);
    mr_stream_free(a), mr_stream_free(b), mr_stream_free(c), mr_stream_free(wrong), mr_stream_free(new_one);
    mr_net_free(net), mr_net_free(twin), mr_net_free(lstm);
    mr_context_free(ctx), mr_context_free(other);
}

static char *read_all(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    char *data = room(*size);
    assert_int_equal(fread(data, 1, *size, file), *size);
    fclose(file);
    return data;
}

static void test_files_and_memory(void **state)
{
    (void)state;
    char path[MR_TEXT_MAX];
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, tiny), *from_file, *from_memory, *none = net;
    float *want = room(sizeof *want * BATCH * TIME * VOCAB), *got = room(sizeof *got * BATCH * TIME * VOCAB);
    size_t size;
    train(net, 0, 3);
    forward_scores(net, want);
    in_folder("net.safetensors", path);
    OK(mr_net_save(net, path, &err));
    OK(mr_net_open(ctx, path, &from_file, &err));
    forward_scores(from_file, got);
    near_floats("from the file", got, want, BATCH * TIME * VOCAB, 0);
    assert_int_equal(mr_net_steps(from_file), 3);
    assert_int_equal(mr_net_parameters(from_file), mr_net_parameters(net));
    char *data = read_all(path, &size);
    OK(mr_net_open_memory(ctx, data, size, &from_memory, &err));
    memset(data, 0xff, size); /* its memory is not needed any more */
    forward_scores(from_memory, got);
    near_floats("from memory", got, want, BATCH * TIME * VOCAB, 0);
    FAILS(MR_EFORMAT, "in memory", mr_net_open_memory(ctx, data, size, &none, &err));
    assert_null(none);
    FAILS(MR_EIO, "nowhere", mr_net_open(ctx, "/nowhere/at/all", &none, &err));
    FAILS(MR_EIO, "nowhere", mr_net_save(net, "/nowhere/at/all", &err));
    free(data), free(want), free(got);
    mr_net_free(net), mr_net_free(from_file), mr_net_free(from_memory);
    mr_context_free(ctx);
}

/* A training that is saved and gone on with elsewhere ends in the same bits. */
static void test_training_goes_on(void **state)
{
    (void)state;
    char path[MR_TEXT_MAX];
    mr_context *ctx = context_on("cpu");
    mr_net *whole = net_of(ctx, tiny), *half = net_of(ctx, tiny), *rest = net_of(ctx, tiny), *other = net_of(ctx, tiny_lstm), *none;
    float *want = room(sizeof *want * BATCH * TIME * VOCAB), *got = room(sizeof *got * BATCH * TIME * VOCAB);
    train(whole, 0, 10);
    train(half, 0, 6);
    in_folder("training.safetensors", path);
    OK(mr_net_save_training(half, path, &err));
    OK(mr_net_load_training(rest, path, &err));
    assert_int_equal(mr_net_steps(rest), 6);
    train(rest, 6, 10);
    forward_scores(whole, want);
    forward_scores(rest, got);
    near_floats("gone on with", got, want, BATCH * TIME * VOCAB, 0);
    FAILS(MR_EINVAL, "mixer", mr_net_load_training(other, path, &err));
    FAILS(MR_EFORMAT, "mr_net_load_training", mr_net_open(ctx, path, &none, &err));
    OK(mr_net_save(half, path, &err));
    FAILS(MR_EFORMAT, "training.safetensors", mr_net_load_training(half, path, &err));
    free(want), free(got);
    mr_net_free(whole), mr_net_free(half), mr_net_free(rest), mr_net_free(other);
    mr_context_free(ctx);
}

static void test_text(void **state)
{
    (void)state;
    char path[MR_TEXT_MAX], bytes[4];
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, tiny_text), *again, *chars;
    size_t used;
    in_folder("text.safetensors", path);
    OK(mr_net_save(net, path, &err));
    OK(mr_net_open(ctx, path, &again, &err));
    assert_int_equal(mr_net_encode(again, "A", 1, &used, NULL), 'A');
    assert_int_equal(mr_net_decode(again, 'z', bytes, NULL), 1);
    assert_int_equal(bytes[0], 'z');
    OK(mr_net_create(ctx, (const char *[]){"vocab", "[\"a\", \"ä\"]", "dim", "4", NULL}, &chars, &err));
    assert_int_equal(mr_net_outputs(chars), 2);
    assert_int_equal(mr_net_encode(chars, "äa", 3, &used, NULL), 1);
    assert_int_equal(used, 2);
    FAILS(MR_EDATA, "", mr_net_encode(chars, "b", 1, &used, &err));
    FAILS(MR_EINVAL, "no text", mr_net_encode(chars, "", 0, &used, &err));
    FAILS(MR_EINVAL, "token 2", mr_net_decode(chars, 2, bytes, &err));
    mr_net_free(net), mr_net_free(again), mr_net_free(chars);
    mr_context_free(ctx);
}

static void test_values(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, tiny_values);
    mr_stream *stream = stream_on(net);
    mr_result first = MR_RESULT, last = MR_RESULT;
    float values[2 * 5 * 3], target[4] = {1, -1, 0.5f, 2}, scores[4], got[2], want[4];
    uint32_t seed = 1;
    for (int i = 0; i < 30; i++) values[i] = random_float(&seed);
    mr_sequences data = MR_SEQUENCES;
    data.B = 2, data.T = 5, data.values = values, data.target_values = target, data.length = (int32_t[]){5, 3};
    assert_true(mr_net_takes_values(net) && !mr_net_row_per_token(net));
    OK(mr_net_forward(net, &data, want, &err));
    for (int t = 0; t < 5; t++) OK(mr_stream_step_values(stream, values + 3 * t, got, &err));
    near_floats("the last value's scores", got, want, 2, 1e-5);
    OK(mr_net_evaluate(net, &data, &first, &err));
    for (int i = 0; i < 50; i++) OK(mr_net_train(net, &data, &last, &err));
    assert_true(last.loss < 0.5 * first.loss);
    assert_true(isnan(last.accuracy) && last.rows == 2);
    data.mask = (uint8_t[]){1, 0};
    OK(mr_net_evaluate(net, &data, &last, &err));
    assert_int_equal(last.rows, 1);
    FAILS(MR_EINVAL, "takes values", mr_stream_step(stream, 0, scores, &err));
    data.values = NULL;
    FAILS(MR_EINVAL, "values is NULL", mr_net_forward(net, &data, scores, &err));
    mr_stream_free(stream);
    mr_net_free(net);
    mr_context_free(ctx);
}

static void test_refusals(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu"), *none = ctx;
    mr_context_options options = MR_CONTEXT_OPTIONS;
    mr_net *net = net_of(ctx, tiny), *no_net = net;
    mr_stream *stream = stream_on(net), *no_stream = stream;
    float scores[VOCAB];
    options.device = "toaster";
    FAILS(MR_EINVAL, "toaster", mr_context_new(&options, &none, &err));
    assert_null(none);
    options.size = 0;
    FAILS(MR_EINVAL, "size", mr_context_new(&options, &none, &err));
    options = (mr_context_options)MR_CONTEXT_OPTIONS;
    options.allocator.alloc = (void *(*)(void *, size_t))(void (*)(void))malloc;
    FAILS(MR_EINVAL, "both", mr_context_new(&options, &none, &err));
    FAILS(MR_EINVAL, "did you mean dim", mr_net_create(ctx, (const char *[]){"dimm", "4", NULL}, &no_net, &err));
    assert_null(no_net);
    FAILS(MR_EINVAL, "dim", mr_net_create(ctx, (const char *[]){"dim", "many", NULL}, &no_net, &err));
    FAILS(MR_EINVAL, "ends before", mr_net_create(ctx, (const char *[]){"dim", NULL}, &no_net, &err));
    FAILS(MR_EINVAL, "follows from vocab", mr_net_create(ctx, (const char *[]){"vocab", "bytes", "inputs", "4", NULL}, &no_net, &err));
    FAILS(MR_EINVAL, "first", mr_net_create(ctx, (const char *[]){"dim", "4", "recipe", "text", NULL}, &no_net, &err));
    FAILS(MR_EINVAL, "unknown key weights", mr_net_create(ctx, (const char *[]){"weights", "int8", NULL}, &no_net, &err));
    FAILS(MR_ECONFIG, "outputs", mr_net_create(ctx, NULL, &no_net, &err));
    FAILS(MR_EINVAL, "token 11", mr_stream_step(stream, 11, scores, &err));
    FAILS(MR_EINVAL, "token -1", mr_stream_step(stream, -1, scores, &err));
    FAILS(MR_EINVAL, "no tokens", mr_stream_feed(stream, NULL, 0, scores, &err));
    FAILS(MR_EINVAL, "takes tokens", mr_stream_step_values(stream, scores, scores, &err));
    FAILS(MR_EINVAL, "batch", mr_net_set(net, "batch", "3", &err));
    FAILS(MR_EINVAL, "lr", mr_net_set(net, "lr", "-1", &err));
    OK(mr_net_create(ctx, (const char *[]){"head", "mean", "outputs", "3", "inputs", "5", "dim", "4", NULL}, &no_net, &err));
    FAILS(MR_EINVAL, "mean", mr_stream_new(no_net, &no_stream, &err));
    assert_null(no_stream);
    assert_int_equal(mr_stream_step(stream, 99, scores, NULL), MR_EINVAL); /* nobody needs to listen */
    mr_stream_free(stream);
    mr_net_free(net), mr_net_free(no_net);
    mr_context_free(ctx);
    mr_stream_free(NULL), mr_net_free(NULL), mr_context_free(NULL);
}

static void test_batches_are_checked(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, tiny);
    lesson l;
    mr_result result = MR_RESULT;
#define REFUSED(word, change)                                        \
    make_lesson(&l, 1);                                              \
    change;                                                          \
    FAILS(MR_EINVAL, word, mr_net_train(net, &l.data, &result, &err))
    REFUSED("size", l.data.size = 0);
    REFUSED("B = 0", l.data.B = 0);
    REFUSED("ids is NULL", l.data.ids = NULL);
    REFUSED("target is NULL", l.data.target = NULL);
    REFUSED("ids[7]", l.ids[7] = VOCAB);
    REFUSED("target[8]", l.target[8] = -2);
    REFUSED("length[1]", l.data.length = ((int32_t[]){1, 0, 1}));
    REFUSED("beyond", l.data.length = ((int32_t[]){TIME, TIME, 3}));
    REFUSED("no row", for (int i = 0; i < BATCH * TIME; i++) l.target[i] = -1);
    assert_int_equal(mr_net_steps(net), 0);
    make_lesson(&l, 1);
    struct { mr_sequences known; size_t unknown; } newer = {l.data, 0};
    newer.known.size = sizeof newer;
    OK(mr_net_train(net, &newer.known, &result, &err)); /* a newer header whose new field is not used */
    newer.unknown = 1;
    FAILS(MR_EINVAL, "does not know", mr_net_train(net, &newer.known, &result, &err));
    mr_net_free(net);
    mr_context_free(ctx);
}

/* A step that is not finite leaves the weights as they were. */
static void test_a_step_that_fails_changes_nothing(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, tiny_values);
    float values[3] = {1, NAN, 2}, good[3] = {1, 2, 3}, target[2] = {1, 2}, before[2], after[2];
    mr_sequences data = MR_SEQUENCES;
    data.B = 1, data.T = 1, data.values = good, data.target_values = target;
    OK(mr_net_forward(net, &data, before, &err));
    data.values = values;
    FAILS(MR_ENONFINITE, "step 1", mr_net_train(net, &data, NULL, &err));
    assert_int_equal(mr_net_steps(net), 0);
    data.values = good;
    OK(mr_net_forward(net, &data, after, &err));
    near_floats("the weights", after, before, 2, 0);
    mr_net_free(net);
    mr_context_free(ctx);
}

static void test_version(void **state)
{
    (void)state;
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", MR_VERSION_MAJOR, MR_VERSION_MINOR, MR_VERSION_PATCH);
    assert_string_equal(text, MR_VERSION);
    assert_string_equal(mr_version(), MR_VERSION);
    assert_string_equal(mr_status_name(MR_EIO), "MR_EIO");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_version),
        cmocka_unit_test(test_training_lowers_the_loss),
        cmocka_unit_test(test_streams_agree_with_batches),
        cmocka_unit_test(test_many_streams_may_be_of_any_age),
        cmocka_unit_test(test_states_travel),
        cmocka_unit_test(test_files_and_memory),
        cmocka_unit_test(test_training_goes_on),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_batches_are_checked),
        cmocka_unit_test(test_a_step_that_fails_changes_nothing),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
