/* Models through the public header: created, trained, saved, opened. */
#include "api_support.h"
#include "scratch.h"

#include <stdio.h>

static void the_version_is_that_of_the_header(void **state)
{
    (void)state;
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", MR_VERSION_MAJOR, MR_VERSION_MINOR, MR_VERSION_PATCH);
    assert_string_equal(text, MR_VERSION);
    assert_string_equal(mr_version(), MR_VERSION);
    assert_int_equal(mr_version_number(), MR_VERSION_NUMBER);
    assert_int_equal(MR_VERSION_NUMBER, MR_VERSION_MAJOR * 10000 + MR_VERSION_MINOR * 100 + MR_VERSION_PATCH);
    assert_string_equal(mr_status_name(MR_EIO), "MR_EIO");
    assert_string_equal(mr_status_message(MR_EIO), "input/output error");
}

static void training_lowers_the_loss(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, tiny);
    mr_result before = MR_RESULT, after = MR_RESULT;
    lesson l;
    make_lesson(&l, 99);
    OK(mr_net_evaluate(net, &l.data, &before, &err));
    assert_that(before.loss, >, 1.5);
    assert_that(before.loss, <, 4);
    assert_int_equal(before.rows, BATCH * TIME);
    assert_int_equal(mr_net_steps(net), 0);
    train(net, 0, 60);
    OK(mr_net_evaluate(net, &l.data, &after, &err));
    assert_that(after.loss, <, 0.2 * before.loss);
    assert_that(after.accuracy, >, 0.9);
    assert_int_equal(mr_net_steps(net), 60);
    assert_int_equal(after.step, 60);
    OK(mr_net_set(net, "lr", "0", &err));
    train(net, 60, 61);
    mr_result still = MR_RESULT;
    OK(mr_net_evaluate(net, &l.data, &still, &err));
    assert_that(still.loss, ==, after.loss); /* lr 0 changes nothing */
    mr_net_free(net);
    mr_context_free(ctx);
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

static void nets_survive_files_and_memory(void **state)
{
    (void)state;
    char path[MR_TEXT_MAX];
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, tiny), *from_file, *from_memory, *none = net;
    float *want = room(sizeof *want * SCORES), *got = room(sizeof *got * SCORES);
    size_t size;
    train(net, 0, 3);
    forward_scores(net, want);
    in_folder("net.safetensors", path);
    OK(mr_net_save(net, path, &err));
    OK(mr_net_open(ctx, path, &from_file, &err));
    forward_scores(from_file, got);
    near_floats("from the file", got, want, SCORES, 0);
    assert_int_equal(mr_net_steps(from_file), 3);
    assert_int_equal(mr_net_parameters(from_file), mr_net_parameters(net));
    char *data = read_all(path, &size);
    OK(mr_net_open_memory(ctx, data, size, &from_memory, &err));
    memset(data, 0xff, size); /* the net no longer needs this memory */
    forward_scores(from_memory, got);
    near_floats("from memory", got, want, SCORES, 0);
    FAILS(MR_EFORMAT, "in memory", mr_net_open_memory(ctx, data, size, &none, &err));
    assert_null(none);
    FAILS(MR_EIO, "nowhere", mr_net_open(ctx, "/nowhere/at/all", &none, &err));
    FAILS(MR_EIO, "nowhere", mr_net_save(net, "/nowhere/at/all", &err));
    free(data), free(want), free(got);
    mr_net_free(net), mr_net_free(from_file), mr_net_free(from_memory);
    mr_context_free(ctx);
}

/* A training that is saved and resumed in another net ends in the same bits. */
static void resumed_training_ends_in_the_same_bits(void **state)
{
    (void)state;
    char path[MR_TEXT_MAX];
    mr_context *ctx = context_on("cpu");
    mr_net *whole = net_of(ctx, tiny), *half = net_of(ctx, tiny), *rest = net_of(ctx, tiny);
    mr_net *other = net_of(ctx, tiny_lstm), *none;
    float *want = room(sizeof *want * SCORES), *got = room(sizeof *got * SCORES);
    train(whole, 0, 10);
    train(half, 0, 6);
    in_folder("training.safetensors", path);
    OK(mr_net_save_training(half, path, NULL, &err));
    OK(mr_net_load_training(rest, path, &err));
    assert_int_equal(mr_net_steps(rest), 6);
    train(rest, 6, 10);
    forward_scores(whole, want);
    forward_scores(rest, got);
    near_floats("continued", got, want, SCORES, 0);
    FAILS(MR_EINVAL, "mixer", mr_net_load_training(other, path, &err));
    FAILS(MR_EFORMAT, "mr_net_load_training", mr_net_open(ctx, path, &none, &err));
    OK(mr_net_save(half, path, &err));
    FAILS(MR_EFORMAT, "training.safetensors", mr_net_load_training(half, path, &err));
    free(want), free(got);
    mr_net_free(whole), mr_net_free(half), mr_net_free(rest), mr_net_free(other);
    mr_context_free(ctx);
}

static void nets_of_values_train_and_stream(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, tiny_values);
    mr_stream *stream = stream_on(net);
    mr_result first = MR_RESULT, last = MR_RESULT;
    float values[2 * 5 * 3], target[4] = {1, -1, 0.5f, 2}, scores[4], got[2], want[4];
    uint32_t seed = 1;
    for (int i = 0; i < 30; i++) values[i] = random_float(&seed);
    mr_batch data = MR_BATCH;
    data.B = 2, data.T = 5, data.values = values, data.target_values = target, data.length = (int32_t[]){5, 3};
    assert_that(mr_net_input(net), ==, MR_INPUT_REALS);
    assert_that(mr_net_rows(net, 2, 5), ==, 2);
    OK(mr_net_forward(net, &data, want, 4, &err));
    for (int t = 0; t < 5; t++) OK(mr_stream_step_values(stream, values + 3 * t, got, 2, &err));
    near_floats("the last value's scores", got, want, 2, 1e-5);
    OK(mr_net_evaluate(net, &data, &first, &err));
    for (int i = 0; i < 50; i++) OK(mr_net_train(net, &data, &last, &err));
    assert_that(last.loss, <, 0.5 * first.loss);
    assert_true(isnan(last.accuracy));
    assert_that(last.rows, ==, 2);
    data.mask = (uint8_t[]){1, 0};
    OK(mr_net_evaluate(net, &data, &last, &err));
    assert_int_equal(last.rows, 1);
    FAILS(MR_EINVAL, "takes values", mr_stream_step(stream, 0, scores, VOCAB, &err));
    data.values = NULL;
    FAILS(MR_EINVAL, "values is NULL", mr_net_forward(net, &data, scores, 4, &err));
    mr_stream_free(stream);
    mr_net_free(net);
    mr_context_free(ctx);
}

/* A step that is not finite leaves the weights unchanged, and so does a refused number. */
static void a_step_that_fails_changes_nothing(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, tiny_values);
    float values[3] = {1, NAN, 2}, good[3] = {1, 2, 3}, target[2] = {1, 2}, huge[2] = {3e38f, -3e38f}, before[2],
          after[2];
    mr_batch data = MR_BATCH;
    data.B = 1, data.T = 1, data.values = good, data.target_values = target;
    OK(mr_net_forward(net, &data, before, 2, &err));
    data.values = values;
    FAILS(MR_EINVAL, "values[1] is NaN", mr_net_train(net, &data, NULL, &err));
    data.values = good, data.target_values = huge;
    FAILS(MR_ENONFINITE, "step 1", mr_net_train(net, &data, NULL, &err));
    assert_int_equal(mr_net_steps(net), 0);
    data.target_values = target;
    OK(mr_net_forward(net, &data, after, 2, &err));
    near_floats("the weights", after, before, 2, 0);
    OK(mr_net_train(net, &data, NULL, &err)); /* it can still be trained */
    mr_net_free(net);
    mr_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_version_is_that_of_the_header), cmocka_unit_test(training_lowers_the_loss),
        cmocka_unit_test(nets_survive_files_and_memory),     cmocka_unit_test(resumed_training_ends_in_the_same_bits),
        cmocka_unit_test(nets_of_values_train_and_stream),   cmocka_unit_test(a_step_that_fails_changes_nothing),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
