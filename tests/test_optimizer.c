/* The whole training step, through the public header, against PyTorch: 20 steps of Adam and AdamW with their clipping,
 * decay and learning rates (tests/golden/make_optimizer.py); and the learning rates of longer runs against closed
 * forms. */
#include "api_support.h"
#include "core/safetensors.h"

#include <stdio.h>

#define GOLDEN MINRNN_SOURCE_DIR "/tests/golden/optimizer.safetensors"

enum { STEPS = 20, ROWS = 3, LENGTH = 8, MOST = 256 };

/* The settings of make_optimizer.py, as keys of a net. */
typedef struct setting {
    const char *name, *optimizer, *lr, *betas, *eps, *decay, *decay_set, *clip, *schedule, *warmup;
} setting;

static const setting settings[] = {
    {"plain", "adam", "0.01", "0.9,0.999", "1e-8", "0", "matrices", "0", "constant", "0"},
    {"clipped", "adam", "0.02", "0.9,0.999", "1e-6", "0", "matrices", "0.25", "constant", "0"},
    {"l2", "adam", "0.01", "0.9,0.99", "1e-6", "0.1", "matrices", "0.5", "linear", "3"},
    {"l2-all", "adam", "0.01", "0.7,0.9", "1e-4", "0.2", "all", "0", "linear", "0"},
    {"decay", "adamw", "0.02", "0.9,0.999", "1e-6", "0.1", "matrices", "1", "cosine", "4"},
    {"decay-all", "adamw", "0.01", "0.8,0.95", "1e-6", "0.5", "all", "0", "constant", "5"},
    {"decay-no-gates", "adamw", "0.02", "0.9,0.98", "1e-6", "0.5", "no-gates", "0.3", "cosine", "0"},
};

/* ---- the golden file ---- */

static const mr_st_tensor *find(const mr_st *st, const char *prefix, const char *name)
{
    char whole[160];
    snprintf(whole, sizeof whole, "%s%s%s", prefix, *prefix ? "." : "", name);
    const mr_st_tensor *t = mr_st_find(st, whole);
    if (!t) fail_msg("%s has no %s", GOLDEN, whole);
    return t;
}

static size_t read_doubles(const mr_st *st, const char *prefix, const char *name, double to[MOST])
{
    const mr_st_tensor *t = find(st, prefix, name);
    size_t n = 1;
    for (int i = 0; i < t->ndim; i++) n *= (size_t)t->shape[i];
    assert_int_equal(t->dtype, MR_ST_F64);
    assert_in_range(n, 1, MOST);
    assert_int_equal(mr_st_read(st, GOLDEN, t, to, NULL), 0);
    return n;
}

static void put_weights(const mr_st *st, mr_net *net)
{
    for (int i = 0; i < mr_net_tensors(net); i++) {
        mr_tensor t = MR_TENSOR;
        double wide[MOST];
        float narrow[MOST];
        OK(mr_net_tensor(net, i, &t, &err));
        assert_int_equal(read_doubles(st, "start", t.name, wide), t.count);
        for (size_t k = 0; k < t.count; k++) narrow[k] = (float)wide[k];
        OK(mr_net_put(net, MR_WEIGHTS, t.name, narrow, t.count, &err));
    }
}

/* ---- 20 steps ---- */

static void check_close(const char *which, const char *what, int at, double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance * fmax(1, fabs(want))))
        fail_msg("%s: %s %d is %.9g, PyTorch has %.9g", which, what, at, got, want);
}

static void check_weights(const mr_st *st, const char *which, mr_net *net)
{
    for (int i = 0; i < mr_net_tensors(net); i++) {
        mr_tensor t = MR_TENSOR;
        double want[MOST];
        float got[MOST];
        OK(mr_net_tensor(net, i, &t, &err));
        assert_int_equal(read_doubles(st, which, t.name, want), t.count);
        OK(mr_net_get(net, MR_WEIGHTS, t.name, got, t.count, &err));
        for (size_t k = 0; k < t.count; k++) check_close(which, t.name, (int)k, (double)got[k], want[k], 1e-4);
    }
}

static mr_net *make_net(mr_context *ctx, const setting *s)
{
    const char *const keys[] = {
        "mixer",        "mingru",     "inputs",    "7",          "outputs",   "7",        "dim",        "6",
        "layers",       "2",          "expansion", "2",          "conv",      "4",        "conv-place", "inside",
        "mlp",          "2",          "norm",      "rms",        "candidate", "positive", "h0",         "learned",
        "optimizer",    s->optimizer, "lr",        s->lr,        "betas",     s->betas,   "eps",        s->eps,
        "weight-decay", s->decay,     "decay-set", s->decay_set, "clip",      s->clip,    "schedule",   s->schedule,
        "warmup",       s->warmup,    "steps",     "20",         NULL};
    return net_of(ctx, keys);
}

static void check_setting(mr_context *ctx, const mr_st *st, const setting *s)
{
    int32_t ids[STEPS][ROWS * LENGTH], target[STEPS][ROWS * LENGTH];
    double loss[MOST], norm[MOST], lr[MOST];
    mr_net *net = make_net(ctx, s);
    put_weights(st, net);
    assert_int_equal(mr_st_read(st, GOLDEN, find(st, "", "ids"), ids, NULL), 0);
    assert_int_equal(mr_st_read(st, GOLDEN, find(st, "", "target"), target, NULL), 0);
    assert_int_equal(read_doubles(st, s->name, "loss", loss), STEPS);
    assert_int_equal(read_doubles(st, s->name, "norm", norm), STEPS);
    assert_int_equal(read_doubles(st, s->name, "lr", lr), STEPS);
    for (int step = 0; step < STEPS; step++) {
        mr_batch batch = MR_BATCH;
        mr_result result = MR_RESULT;
        batch.B = ROWS, batch.T = LENGTH, batch.ids = ids[step], batch.target = target[step];
        OK(mr_net_train(net, &batch, &result, &err));
        check_close(s->name, "the rate of step", step + 1, result.lr / lr[step], 1, 1e-12);
        check_close(s->name, "the loss of step", step + 1, result.loss, loss[step], 1e-4);
        check_close(s->name, "the gradient's norm of step", step + 1, result.grad_norm, norm[step], 1e-3);
    }
    check_weights(st, s->name, net);
    mr_net_free(net);
}

static void test_twenty_steps_as_pytorch(void **state)
{
    (void)state;
    mr_error err = {0};
    mr_st *st;
    if (mr_st_open(GOLDEN, &st, &err)) fail_msg("%s", err.text);
    mr_context *ctx = context_on("cpu");
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) check_setting(ctx, st, &settings[i]);
    mr_context_free(ctx);
    mr_st_close(st);
}

/* ---- learning rates ---- */

static double closed_form(const char *schedule, double lr, int steps, int warmup, int step)
{
    if (step <= warmup) return lr * step / warmup;
    double progress = (double)(step - 1 - warmup) / (steps - warmup);
    if (!strcmp(schedule, "linear")) return lr * (1 - progress);
    if (!strcmp(schedule, "cosine")) return lr * (1 + cos(acos(-1) * progress)) / 2;
    return lr;
}

static void check_schedule(mr_context *ctx, const char *schedule, int steps, int warmup)
{
    char steps_text[16], warmup_text[16];
    snprintf(steps_text, sizeof steps_text, "%d", steps);
    snprintf(warmup_text, sizeof warmup_text, "%d", warmup);
    const char *const keys[] = {"inputs", "11",       "outputs", "11",    "dim",      "4",      "layers",    "1", "lr",
                                "0.03",   "schedule", schedule,  "steps", steps_text, "warmup", warmup_text, NULL};
    mr_net *net = net_of(ctx, keys);
    lesson l;
    make_lesson(&l, 1);
    for (int step = 1; step <= steps; step++) {
        mr_result result = MR_RESULT;
        OK(mr_net_train(net, &l.data, &result, &err));
        double want = closed_form(schedule, 0.03, steps, warmup, step);
        if (!(fabs(result.lr - want) <= 1e-12))
            fail_msg("%s, %d steps, warm-up %d: the rate of step %d is %.12g, not %.12g", schedule, steps, warmup, step,
                     result.lr, want);
    }
    mr_net_free(net);
}

/* First and last step, the end of the warm-up, and all between; runs of one step and runs that only warm up, too. */
static void test_schedules_are_closed_forms(void **state)
{
    (void)state;
    static const char *const schedules[] = {"constant", "linear", "cosine"};
    static const int shapes[][2] = {{1, 0}, {2, 0}, {10, 0}, {10, 1}, {10, 3}, {10, 9}, {10, 10}, {5, 8}};
    mr_context *ctx = context_on("cpu");
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++)
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
            check_schedule(ctx, schedules[i], shapes[k][0], shapes[k][1]);
    mr_context_free(ctx);
}

/* Checked against plain numbers, not a formula: the first step of a warm-up has one share of the rate, its last step
 * the whole rate, and a decaying rate is nearly 0 at the last step. */
static void test_schedules_at_their_ends(void **state)
{
    (void)state;
    static const struct {
        const char *schedule;
        int step;
        double rate;
    } points[] = {{"constant", 1, 0.25}, {"constant", 4, 1},
                  {"constant", 12, 1},   {"linear", 4, 1},
                  {"linear", 5, 1},      {"linear", 9, 0.5},
                  {"linear", 12, 0.125}, {"cosine", 5, 1},
                  {"cosine", 9, 0.5},    {"cosine", 12, 0.03806023374435663}};
    mr_context *ctx = context_on("cpu");
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        const char *const keys[] = {"inputs", "11", "outputs", "11", "dim",      "4",
                                    "layers", "1",  "lr",      "1",  "schedule", points[i].schedule,
                                    "steps",  "12", "warmup",  "4",  NULL};
        mr_net *net = net_of(ctx, keys);
        lesson l;
        mr_result result = MR_RESULT;
        make_lesson(&l, 1);
        for (int step = 1; step <= points[i].step; step++) OK(mr_net_train(net, &l.data, &result, &err));
        if (!(fabs(result.lr - points[i].rate) <= 1e-12))
            fail_msg("%s: step %d of 12 has the rate %.12g, not %g", points[i].schedule, points[i].step, result.lr,
                     points[i].rate);
        mr_net_free(net);
    }
    mr_context_free(ctx);
}

/* A run with a time limit says how far it is: a decaying rate has decayed at least that far, a constant rate stays. */
static void test_progress_moves_a_schedule_on(void **state)
{
    (void)state;
    static const struct {
        const char *schedule, *warmup;
        double progress, rate; /* of the first step of 10 */
    } points[] = {{"constant", "0", 0.5, 1}, {"linear", "0", 0, 1},      {"linear", "0", 0.25, 0.75},
                  {"linear", "0", 1, 0},     {"cosine", "0", 0.5, 0.5},  {"cosine", "0", 1, 0},
                  {"linear", "5", 0.2, 0.6}, {"linear", "5", 0.75, 0.5}, {"constant", "5", 0.75, 0.2}};
    mr_context *ctx = context_on("cpu");
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        const char *const keys[] = {"inputs",   "11",
                                    "outputs",  "11",
                                    "dim",      "4",
                                    "layers",   "1",
                                    "lr",       "1",
                                    "steps",    "10",
                                    "warmup",   points[i].warmup,
                                    "schedule", points[i].schedule,
                                    NULL};
        mr_net *net = net_of(ctx, keys);
        mr_learn_options options = MR_LEARN_OPTIONS;
        mr_result result = MR_RESULT;
        lesson l;
        make_lesson(&l, 1);
        options.progress = points[i].progress;
        OK(mr_net_learn(net, &l.data, &options, &result, &err));
        if (!(fabs(result.lr - points[i].rate) <= 1e-12))
            fail_msg("%s, warm-up %s, progress %g: the rate is %.12g, not %g", points[i].schedule, points[i].warmup,
                     points[i].progress, result.lr, points[i].rate);
        mr_net_free(net);
    }
    mr_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_twenty_steps_as_pytorch), cmocka_unit_test(test_schedules_are_closed_forms),
        cmocka_unit_test(test_schedules_at_their_ends), cmocka_unit_test(test_progress_moves_a_schedule_on)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
