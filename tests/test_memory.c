/* Every allocation of a call fails in turn. The call must say that memory ran out, and the next one must succeed. */
#define HOST_MEMORY
#include "api_support.h"
#include "core/file.h"
#include "core/mem.h"
#include "core/safetensors.h"
#include "scratch.h"

/* ---- the allocation that fails: all memory of the library comes from aligned_alloc */

static int left; /* allocations up to the one that fails; 0: none fails */

void *aligned_alloc(size_t alignment, size_t size)
{
    void *p = NULL;
    if (!size || (left > 0 && --left == 0)) return NULL; /* C allows NULL for no bytes */
    return posix_memalign(&p, alignment, size) ? NULL : p;
}

/* Calls `work` until no allocation fails; returns how many did. */
static int fail_in_turn(const char *name, int (*work)(mr_error *))
{
    for (int n = 1;; n++) {
        mr_error err = {0};
        left = n;
        int status = work(&err), failed = left == 0;
        left = 0;
        if (!failed && status) fail_msg("%s: without a failure: %d: %s", name, status, err.text);
        if (!failed) return n - 1;
        if (status != MR_ENOMEM || err.status != MR_ENOMEM || !strstr(err.text, "memory"))
            fail_msg("%s, allocation %d failed: %d, and the error is %d: %s", name, n, status, err.status, err.text);
    }
}

/* ---- calls: each frees what it made */

static mr_context *ctx;
static mr_net *net, *values_net;
static mr_stream *stream;
static mr_vocab *vocab;
static const char *const of_text[] = {
    "vocab",  "bytes", "vocab", "[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\",\"i\",\"j\",\"k\"]", "dim", "16",
    "layers", "2",     NULL};
static char model[MR_TEXT_MAX], state_file[MR_TEXT_MAX], other[MR_TEXT_MAX];
static char *bytes;
static size_t size;

static int open_file(mr_error *err)
{
    mr_st *st = NULL;
    int status = mr_st_open(model, &st, err);
    assert_int_equal(!st, status != 0);
    if (!status) mr_st_close(st);
    return status;
}

static int open_memory(mr_error *err)
{
    mr_st *st = NULL;
    int status = mr_st_open_memory(bytes, size, "memory", &st, err);
    assert_int_equal(!st, status != 0);
    if (!status) mr_st_close(st);
    return status;
}

static int read_file(mr_error *err)
{
    char *data = NULL;
    int status = mr_file_read(model, 1 << 20, &data, &(size_t){0}, err);
    free(data);
    return status;
}

static int replace_file(mr_error *err) { return mr_file_replace(other, "text", 4, err); }

static int build_vocab(mr_error *err)
{
    mr_vocab *built = NULL;
    int status = mr_vocab_build(MR_VOCAB_CHARS, "a text of characters", 20, &built, err);
    mr_vocab_free(built);
    return status;
}

static int parse_vocab(mr_error *err)
{
    mr_vocab *parsed = NULL;
    int status = mr_vocab_parse("[\"a\",\"b\",\"c\"]", &parsed, err);
    mr_vocab_free(parsed);
    return status;
}

static int print_vocab(mr_error *err)
{
    char text[64];
    return mr_vocab_print(vocab, text, sizeof text, NULL, err);
}

static int open_net(mr_error *err)
{
    mr_net *opened = NULL;
    int status = mr_net_open(ctx, model, &opened, err);
    assert_int_equal(!opened, status != 0);
    mr_net_free(opened);
    return status;
}

static int open_net_memory(mr_error *err)
{
    mr_net *opened = NULL;
    int status = mr_net_open_memory(ctx, bytes, size, &opened, err);
    assert_int_equal(!opened, status != 0);
    mr_net_free(opened);
    return status;
}

static int make_context(mr_error *err)
{
    mr_context_options options = MR_CONTEXT_OPTIONS;
    mr_context *made = NULL;
    options.device = "cpu", options.threads = 1;
    int status = mr_context_new(&options, &made, err);
    assert_int_equal(!made, status != 0);
    mr_context_free(made);
    if (status != MR_EDEVICE) return status;
    assert_says(err, "threads cannot be started"); /* which need memory too, and do not say what they lacked */
    return mr_fail(err, MR_ENOMEM, "no memory for threads");
}

static int create_net(mr_error *err)
{
    mr_net *made = NULL;
    int status = mr_net_create(ctx, of_text, &made, err);
    assert_int_equal(!made, status != 0);
    mr_net_free(made);
    return status;
}

static int make_stream(mr_error *err)
{
    mr_stream *made = NULL;
    int status = mr_stream_new(net, &made, err);
    assert_int_equal(!made, status != 0);
    mr_stream_free(made);
    return status;
}

static int clone_stream(mr_error *err)
{
    mr_stream *made = NULL;
    int status = mr_stream_clone(stream, &made, err);
    assert_int_equal(!made, status != 0);
    mr_stream_free(made);
    return status;
}

static int save_net(mr_error *err) { return mr_net_save(net, other, err); }
static int save_int8(mr_error *err) { return mr_net_save_int8(net, other, err); }
static int save_best(mr_error *err) { return mr_net_save_best(net, other, err); }
static int set_meta(mr_error *err) { return mr_net_set_meta(net, "mine.other", "value", err); }

static int save_training(mr_error *err)
{
    const char *const extra[] = {"mine.key", "value", NULL};
    return mr_net_save_training(net, other, extra, err);
}

static int load_training(mr_error *err) { return mr_net_load_training(net, state_file, err); }

static int read_meta(mr_error *err)
{
    char text[16];
    return mr_file_meta(state_file, "mine.key", text, sizeof text, NULL, err);
}

static int check_settings(mr_error *err) { return mr_settings_check(tiny, &(int64_t){0}, err); }

static int set_scaler(mr_error *err)
{
    const double mean[] = {1, 2, 3}, scale[] = {1, 2, 3};
    return mr_net_set_scaler(values_net, mean, scale, mean, scale, err);
}

static const mr_batch values_batch = {
    .size = sizeof(mr_batch), .B = 1, .T = 2, .values = (float[]){1, 2, 3, 4, 5, 6}, .target_values = (float[]){1, 2}};

static int fit_scaler(mr_error *err) { return mr_net_fit_scaler(values_net, &values_batch, err); }

static int row_losses(mr_error *err)
{
    float each[2];
    return mr_net_losses(values_net, &values_batch, each, 2, err);
}

static int give_two(void *user, const mr_batch **batch)
{
    int *given = user;
    *batch = &values_batch;
    return (*given)++ < 2;
}

static int evaluate_all(mr_error *err)
{
    int given = 0;
    return mr_net_evaluate_all(values_net, give_two, &given, &(mr_result)MR_RESULT, err);
}

/* ---- nets whose first call of a kind makes room */

static int (*first_call)(mr_net *net, const lesson *l, mr_error *err);

static int on_a_new_net(mr_error *err)
{
    const int until = left;
    lesson l;
    left = 0;
    mr_net *fresh = net_of(ctx, tiny), *untouched = net_of(ctx, tiny);
    make_lesson(&l, 1);
    left = until;
    int status = first_call(fresh, &l, err), still = left;
    left = 0;
    if (status) { /* the call did nothing: repeated, it does what it would have done */
        assert_int_equal(first_call(fresh, &l, NULL), 0);
        assert_int_equal(first_call(untouched, &l, NULL), 0);
        same_vectors("weights", fresh, untouched, MR_WEIGHTS, 0);
    }
    mr_net_free(fresh), mr_net_free(untouched);
    left = still;
    return status;
}

static int train_once(mr_net *n, const lesson *l, mr_error *err) { return mr_net_train(n, &l->data, NULL, err); }
static int mark_best(mr_net *n, const lesson *l, mr_error *err) { return (void)l, mr_net_mark_best(n, err); }

static int evaluate(mr_net *n, const lesson *l, mr_error *err)
{
    mr_result result = MR_RESULT;
    return mr_net_evaluate(n, &l->data, &result, err);
}

static int forward(mr_net *n, const lesson *l, mr_error *err)
{
    float scores[SCORES];
    return mr_net_forward(n, &l->data, scores, SCORES, err);
}

static int losses(mr_net *n, const lesson *l, mr_error *err)
{
    float each[BATCH * TIME];
    return mr_net_losses(n, &l->data, each, BATCH * TIME, err);
}

static int reserve(mr_net *n, const lesson *l, mr_error *err)
{
    (void)l;
    return mr_net_reserve_streams(n, 3, err);
}

static int feed_stream(mr_net *n, const lesson *l, mr_error *err)
{
    mr_stream *s = NULL;
    int status = mr_stream_new(n, &s, err);
    if (!status) status = mr_stream_feed(s, l->ids, TIME, NULL, 0, err);
    mr_stream_free(s);
    return status;
}

static int sample_stream(mr_net *n, const lesson *l, mr_error *err)
{
    mr_stream *s = NULL;
    mr_sample_options how = MR_SAMPLE_OPTIONS;
    int32_t drawn[4];
    int status = mr_stream_new(n, &s, err);
    if (!status) status = mr_stream_sample(s, l->ids, TIME, &how, drawn, 4, err);
    mr_stream_free(s);
    return status;
}

/* ---- */

static void every_call_says_that_memory_ran_out(void **state)
{
    (void)state;
    const struct {
        const char *name;
        int (*work)(mr_error *);
    } calls[] = {
        {"mr_st_open", open_file},
        {"mr_st_open_memory", open_memory},
        {"mr_file_read", read_file},
        {"mr_file_replace", replace_file},
        {"mr_vocab_build", build_vocab},
        {"mr_vocab_parse", parse_vocab},
        {"mr_vocab_print", print_vocab},
        {"mr_context_new", make_context},
        {"mr_net_create", create_net},
        {"mr_net_open", open_net},
        {"mr_net_open_memory", open_net_memory},
        {"mr_stream_new", make_stream},
        {"mr_stream_clone", clone_stream},
        {"mr_net_save", save_net},
        {"mr_net_save_int8", save_int8},
        {"mr_net_save_best", save_best},
        {"mr_net_set_meta", set_meta},
        {"mr_net_save_training", save_training},
        {"mr_net_load_training", load_training},
        {"mr_file_meta", read_meta},
        {"mr_settings_check", check_settings},
        {"mr_net_set_scaler", set_scaler},
        {"mr_net_fit_scaler", fit_scaler},
        {"mr_net_losses", row_losses},
        {"mr_net_evaluate_all", evaluate_all},
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (!fail_in_turn(calls[i].name, calls[i].work)) fail_msg("%s: allocates nothing", calls[i].name);
}

static void a_call_that_failed_can_be_repeated(void **state)
{
    (void)state;
    int (*const calls[])(mr_net *, const lesson *, mr_error *) = {train_once, mark_best, evaluate,    forward,
                                                                  losses,     reserve,   feed_stream, sample_stream};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        char name[32];
        first_call = calls[i];
        snprintf(name, sizeof name, "first call %zu", i);
        if (!fail_in_turn(name, on_a_new_net)) fail_msg("%s: allocates nothing", name);
    }
}

static void no_bytes_and_too_many(void **state)
{
    (void)state;
    void *none = mr_alloc(0, 8);
    assert_non_null(none);
    mr_free(none);
    assert_null(mr_alloc(SIZE_MAX, 1));
    assert_null(mr_alloc(SIZE_MAX / 2, 3));
    assert_null(mr_alloc(2, mr_memory_total()));
}

static int begin(void **state)
{
    const char *const extra[] = {"mine.key", "value", NULL};
    make_folder(state);
    in_folder("model", model), in_folder("state", state_file), in_folder("other", other);
    ctx = context_on("cpu");
    net = net_of(ctx, of_text), values_net = net_of(ctx, tiny_values);
    train(net, 0, 1);
    stream = stream_on(net);
    OK(mr_net_mark_best(net, &err));
    OK(mr_net_save(net, model, &err));
    OK(mr_net_save_training(net, state_file, extra, &err));
    OK(mr_file_read(model, 1 << 20, &bytes, &size, &err));
    OK(mr_vocab_parse("[\"a\",\"b\",\"c\"]", &vocab, &err));
    return 0;
}

static int end(void **state)
{
    free(bytes);
    mr_vocab_free(vocab);
    mr_stream_free(stream);
    mr_net_free(net), mr_net_free(values_net);
    mr_context_free(ctx);
    return remove_folder(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_says_that_memory_ran_out),
        cmocka_unit_test(a_call_that_failed_can_be_repeated),
        cmocka_unit_test(no_bytes_and_too_many),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
