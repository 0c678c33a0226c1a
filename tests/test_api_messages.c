/* The sentences of the public header's refusals, whole, against tests/golden/messages.txt. Other tests check that calls
 * are refused, and a word of why; here the numbers and names in a sentence count, too. After a change that is meant,
 * MINRNN_GOLDEN=write writes the file again. */
#define HOST_MEMORY
#include "api_support.h"

#include <stdio.h>

#define GOLDEN MINRNN_SOURCE_DIR "/tests/golden/messages.txt"

static char got[1 << 16];
static size_t used;
static mr_context *ctx;

static void note(const char *call, int status, mr_error *err)
{
    if (!status) fail_msg("%s: was not refused", call);
    assert_int_equal(err->status, status);
    const char *device = mr_context_device(ctx);
    char *named = strstr(err->text, device);
    if (named) memmove(named + 3, named + strlen(device), strlen(named + strlen(device)) + 1); /* "cpu" is enough */
    used +=
        (size_t)snprintf(got + used, sizeof got - used, "%s\n    %s: %s\n", call, mr_status_name(status), err->text);
    assert_true(used < sizeof got);
}

#define NOTE(call)                                                                                                     \
    do {                                                                                                               \
        mr_error err = {0};                                                                                            \
        int status_ = (call);                                                                                          \
        note(#call, status_, &err);                                                                                    \
    } while (0)

static mr_net *net, *reals;
static lesson l;

/* ---- batches ---- */

#define BATCH_WITH(change)                                                                                             \
    make_lesson(&l, 1), change;                                                                                        \
    NOTE(mr_net_train(net, &l.data, NULL, &err))

static void batches(void)
{
    static int32_t lengths[BATCH] = {TIME, TIME, 3}, none[BATCH] = {1, 0, 1}, far[BATCH] = {1, 1, TIME + 1};
    float values[2 * 3] = {0}, target[2 * 2] = {0}, scores[BATCH * TIME * VOCAB];
    BATCH_WITH(l.data.B = 0);
    BATCH_WITH(l.data.T = -1);
    BATCH_WITH(l.data.ids = NULL);
    BATCH_WITH(l.data.target = NULL);
    BATCH_WITH(l.ids[7] = VOCAB);
    BATCH_WITH(l.ids[BATCH * TIME - 1] = -1);
    BATCH_WITH(l.target[8] = -2);
    BATCH_WITH(l.target[0] = VOCAB);
    BATCH_WITH(l.data.length = lengths);
    BATCH_WITH(l.data.length = none);
    BATCH_WITH(l.data.length = far);
    BATCH_WITH(memset(l.target, 0xFF, sizeof l.target)); /* −1 everywhere */
    make_lesson(&l, 1);
    NOTE(mr_net_forward(net, &l.data, scores, BATCH * TIME * VOCAB - 1, &err));
    NOTE(mr_net_forward(net, &l.data, NULL, 5, &err));
    NOTE(mr_net_losses(net, &l.data, scores, BATCH * TIME - 1, &err));
    mr_batch data = MR_BATCH;
    data.B = 2, data.T = 1, data.values = values, data.target_values = target;
    values[5] = NAN;
    NOTE(mr_net_train(reals, &data, NULL, &err));
    values[5] = 0, target[3] = -INFINITY;
    NOTE(mr_net_train(reals, &data, NULL, &err));
    data.target_values = NULL;
    NOTE(mr_net_train(reals, &data, NULL, &err));
    data.values = NULL;
    NOTE(mr_net_forward(reals, &data, scores, 4, &err));
}

/* ---- training ---- */

static int learn_with(int micro, int micros, double scale, double progress, mr_error *err)
{
    mr_learn_options o = MR_LEARN_OPTIONS;
    o.micro = micro, o.micros = micros, o.scale = scale, o.progress = progress;
    return mr_net_learn(net, &l.data, &o, NULL, err);
}

static void training(void)
{
    float scores[SCORES], some[4] = {0};
    make_lesson(&l, 1);
    NOTE(learn_with(-1, 1, 0, 0, &err));
    NOTE(learn_with(2, 2, 0, 0, &err));
    NOTE(learn_with(0, -3, 0, 0, &err));
    NOTE(learn_with(3, 5, 0, 0, &err));
    NOTE(learn_with(0, 1, INFINITY, 0, &err));
    NOTE(learn_with(0, 1, 0, 1.5, &err));
    NOTE(learn_with(0, 1, 0, NAN, &err));
    NOTE(mr_net_backward(net, some, 4, &err));
    NOTE(mr_net_update(net, NULL, &err));
    OK(mr_net_keep_forward(net, &l.data, NULL, scores, SCORES, &err));
    NOTE(mr_net_backward(net, scores, SCORES - 1, &err));
    NOTE(mr_net_train(net, &l.data, NULL, &err));
    OK(mr_net_backward(net, scores, SCORES, &err));
    NOTE(mr_net_train(net, &l.data, NULL, &err));
    mr_net_drop_gradients(net);
    NOTE(mr_net_set(net, "lr", "eleven", &err));
    NOTE(mr_net_set(net, "lr", "11", &err));
    NOTE(mr_net_set(net, "betas", "0.9", &err));
    NOTE(mr_net_set(net, "betas", "0.9,1", &err));
    NOTE(mr_net_set(net, "schedule", "cosin", &err));
    NOTE(mr_net_set(net, "dim", "8", &err));
    NOTE(mr_net_set(net, "decay-set", "all", &err));
    NOTE(mr_net_set(net, "steps", "0", &err));
    NOTE(mr_net_save_best(net, "/nonexistent/best", &err));
    NOTE(mr_net_reserve(net, &(mr_shape){0, 1}, NULL, &err));
    NOTE(mr_net_reserve(net, NULL, &(mr_shape){1, 0}, &err));
}

/* ---- streams ---- */

static void streams(void)
{
    mr_stream *one = stream_on(net), *two = stream_on(net), *values = stream_on(reals);
    int32_t token = 1, drawn[2], bad[3] = {1, 2, VOCAB};
    float scores[VOCAB], x[3] = {0, 0, INFINITY};
    mr_sample_options how = MR_SAMPLE_OPTIONS, hows[2] = {MR_SAMPLE_OPTIONS, MR_SAMPLE_OPTIONS};
    NOTE(mr_stream_step(one, VOCAB, scores, VOCAB, &err));
    NOTE(mr_stream_step(one, -1, scores, VOCAB, &err));
    NOTE(mr_stream_step(one, 1, scores, VOCAB - 1, &err));
    NOTE(mr_stream_step(values, 1, scores, VOCAB, &err));
    NOTE(mr_stream_step_values(one, x, scores, VOCAB, &err));
    NOTE(mr_stream_step_values(values, x, scores, VOCAB, &err));
    NOTE(mr_stream_feed(one, bad, 3, scores, VOCAB, &err));
    NOTE(mr_stream_feed(one, bad, 0, scores, VOCAB, &err));
    NOTE(mr_stream_step_many((mr_stream *[]){one, one}, 2, bad, NULL, NULL, 0, &err));
    NOTE(mr_stream_step_many((mr_stream *[]){one, values}, 2, bad, NULL, NULL, 0, &err));
    NOTE(mr_stream_step_many((mr_stream *[]){one, two}, 0, bad, NULL, NULL, 0, &err));
    NOTE(mr_stream_step_many((mr_stream *[]){one, two}, 2, bad + 1, NULL, NULL, 0, &err));
    NOTE(mr_stream_step_many((mr_stream *[]){one, two}, 2, bad, NULL, scores, 2 * VOCAB - 1, &err));
    how.temperature = -1;
    NOTE(mr_stream_sample(one, &token, 1, &how, drawn, 1, &err));
    how = (mr_sample_options)MR_SAMPLE_OPTIONS, how.top_p = 1.5;
    NOTE(mr_stream_sample(one, &token, 1, &how, drawn, 1, &err));
    how = (mr_sample_options)MR_SAMPLE_OPTIONS, how.top_k = -1;
    NOTE(mr_stream_sample(one, &token, 1, &how, drawn, 1, &err));
    hows[1].temperature = NAN;
    NOTE(mr_stream_sample_many((mr_stream *[]){one, two}, 2, bad, hows, drawn, &err));
    NOTE(mr_stream_save(one, scores, 3, &err));
    NOTE(mr_stream_load(one, "not a state at all, but some bytes that are long enough", 40, &err));
    NOTE(mr_stream_load(one, "x", 1, &err));
    NOTE(mr_stream_score(one, bad, bad, 3, scores, VOCAB, &err));
    mr_stream_free(one), mr_stream_free(two), mr_stream_free(values);
}

/* ---- making and asking ---- */

static int create(const char *a, const char *b, const char *c, const char *d, mr_error *err)
{
    mr_net *made = NULL;
    int status = mr_net_create(ctx, (const char *const[]){a, b, c, d, NULL}, &made, err);
    mr_net_free(made);
    return status;
}

static int classifier(const char *a, const char *b, const char *c, const char *d, mr_error *err)
{
    mr_net *made = NULL;
    int status = mr_net_create(ctx, (const char *const[]){"inputs", "3", "outputs", "3", a, b, c, d, NULL}, &made, err);
    mr_net_free(made);
    return status;
}

static void making(void)
{
    char text[4];
    float one[1];
    size_t count;
    mr_tensor tensor = MR_TENSOR;
    NOTE(create("inputs", "0", "outputs", "3", &err));
    NOTE(create("mixer", "minrgu", "inputs", "3", &err));
    NOTE(create("layers", "two", "inputs", "3", &err));
    NOTE(create("frob", "1", "inputs", "3", &err));
    NOTE(create("mixer", NULL, NULL, NULL, &err));
    NOTE(classifier("mixer", "attention", "heads", "7", &err));
    NOTE(classifier("mixer", "lstm", "scan", "log", &err));
    NOTE(classifier("mixer", "mamba", "gru-reset", "after", &err));
    NOTE(classifier("candidate", "tanh", "scan", "log", &err));
    NOTE(classifier("mixer", "attention", "dim", "15", &err));
    NOTE(classifier("head", "mean", "mlp", "-1", &err));
    NOTE(create("inputs", "3", "outputs", "1", &err));
    NOTE(create("vocab", "[\"a\", \"a\"]", "dim", "4", &err));
    NOTE(create("vocab", "[\"ab\"]", "dim", "4", &err));
    NOTE(create("vocab", "bytes", "inputs", "4", &err));
    NOTE(create("conv", "3", "inputs", "4", &err));
    NOTE(mr_net_setting(net, "mixer", text, 4, &err));
    NOTE(mr_net_setting(net, "frob", text, 4, &err));
    NOTE(mr_net_tensor(net, -1, &tensor, &err));
    NOTE(mr_net_tensor(net, 10000, &tensor, &err));
    NOTE(mr_net_get(net, MR_WEIGHTS, "no.such", one, 1, &err));
    NOTE(mr_net_get(net, MR_WEIGHTS, "head.weight", one, 1, &err));
    NOTE(mr_net_get(net, MR_BEST, "head.weight", one, 1, &err));
    NOTE(mr_net_put(net, MR_WEIGHTS, "head.weight", one, 1, &err));
    NOTE(mr_net_set_meta(net, "format", "x", &err));
    NOTE(mr_net_set_meta(net, "plain", "x", &err));
    NOTE(mr_net_encode(net, "a", 1, NULL, 0, &count, NULL, &err));
    NOTE(mr_net_set_scaler(net, (double[]){0}, (double[]){1}, NULL, NULL, &err));
    NOTE(mr_net_set_scaler(reals, (double[]){0, 0, 0}, NULL, NULL, NULL, &err));
    NOTE(mr_net_set_scaler(reals, (double[]){0, 0, 0}, (double[]){1, 0, 1}, NULL, NULL, &err));
    NOTE(mr_net_set_scaler(reals, (double[]){0, NAN, 0}, (double[]){1, 1, 1}, NULL, NULL, &err));
}

/* ---- the scan and the cells ---- */

#define SCAN_WITH(change)                                                                                              \
    s = whole, change;                                                                                                 \
    NOTE(mr_scan_forward(ctx, &s, &err))
#define CELL_WITH(change)                                                                                              \
    c = cell, change;                                                                                                  \
    NOTE(mr_cell_forward(ctx, &c, &err))

static void raw(void)
{
    static _Alignas(64) float buffer[64], space[1 << 14];

    mr_scan_args whole = MR_SCAN_ARGS, s;
    whole.B = 1, whole.T = 2, whole.H = 2, whole.a = buffer, whole.b = buffer + 8, whole.h = buffer + 16;
    whole.workspace = space, whole.workspace_size = sizeof space;
    SCAN_WITH(s.B = 0);
    SCAN_WITH(s.T = -2);
    SCAN_WITH(s.H = 0);
    SCAN_WITH(s.a = NULL);
    SCAN_WITH(s.h = NULL);
    SCAN_WITH(s.dtype = MR_F64);
    SCAN_WITH(s.stream = buffer);
    s = whole, s.T = 2;
    NOTE(mr_scan_step(ctx, &s, &err));
    s = whole;
    NOTE(mr_scan_backward(ctx, &s, &err));
    mr_cell_args cell = MR_CELL_ARGS, c;
    cell.B = 1, cell.T = 2, cell.H = 2, cell.pre = buffer, cell.h = buffer + 16;
    cell.workspace = space, cell.workspace_size = sizeof space;
    CELL_WITH(c.pre = NULL);
    CELL_WITH(c.kind = 7);
    CELL_WITH(c.candidate = 9);
    CELL_WITH((c.scan = MR_SCAN_LOG, c.candidate = MR_TANH));
    CELL_WITH((c.W = buffer, c.x = buffer, c.bias = buffer, c.D = 0));
    CELL_WITH((c.W = buffer, c.D = 2));
}

static int make_nets(void **state)
{
    (void)state;
    ctx = context_on("cpu");
    net = net_of(ctx, tiny);
    reals = net_of(ctx, tiny_values);
    return 0;
}

static int free_nets(void **state)
{
    (void)state;
    mr_net_free(net), mr_net_free(reals);
    mr_context_free(ctx);
    return 0;
}

static void sentences_are_as_recorded(void **state)
{
    (void)state;
    static char want[sizeof got];
    const char *mode = getenv("MINRNN_GOLDEN");
    batches(), training(), streams(), making(), raw();
    if (mode && !strcmp(mode, "write")) {
        FILE *to = fopen(GOLDEN, "w");
        assert_non_null(to);
        assert_int_equal(fwrite(got, 1, used, to), used);
        assert_int_equal(fclose(to), 0);
        return;
    }
    FILE *from = fopen(GOLDEN, "r");
    assert_non_null(from);
    want[fread(want, 1, sizeof want - 1, from)] = 0;
    fclose(from);
    const char *a = got, *b = want;
    while (*a && *b) {
        const int n = (int)strcspn(a, "\n"), m = (int)strcspn(b, "\n");
        if (n != m || memcmp(a, b, (size_t)n))
            fail_msg("\"%.*s\", where messages.txt has \"%.*s\" (MINRNN_GOLDEN=write if it is meant)", n, a, m, b);
        a += n + (a[n] == '\n'), b += m + (b[m] == '\n');
    }
    assert_string_equal(a, b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sentences_are_as_recorded)};
    return cmocka_run_group_tests(tests, make_nets, free_nets);
}
