/* output = tanh through the public API: scores of nets and streams, files, 8-bit models, training that continues, and
 * what is refused. */
#include "api_support.h"
#include "scratch.h"

enum { B = 4, T = 9, IN = 3, OUT = 2, VALUES = B * T * IN, NUMBERS = B * T * OUT };

static mr_net *net_for(mr_context *ctx, const char *output)
{
    const char *const settings[] = {"input", "reals",     "inputs", "3",    "outputs", "2",      "loss",
                                    "mse",   "head-bias", "yes",    "dim",  "16",      "layers", "2",
                                    "lr",    "0.02",      "output", output, NULL};
    return net_of(ctx, settings);
}

typedef struct moves {
    float values[VALUES], target[NUMBERS];
    mr_batch data;
} moves;

/* Values wide enough for scores near ±1, and targets that include both ends. */
static void make_moves(moves *m, uint32_t seed)
{
    for (int i = 0; i < VALUES; i++) m->values[i] = 3 * random_float(&seed);
    for (int i = 0; i < NUMBERS; i++) m->target[i] = fmaxf(-1, fminf(1, m->values[i / OUT * IN + i % OUT]));
    m->data = (mr_batch)MR_BATCH;
    m->data.B = B, m->data.T = T;
    m->data.values = m->values, m->data.target_values = m->target;
}

/* Every way to run a net returns the same scores. */
static void check_every_way(mr_net *net, moves *m, const float *want)
{
    float got[NUMBERS], many[B * OUT], values[B * IN];
    mr_stream *alone = stream_on(net), *fed = stream_on(net), *streams[B];
    OK(mr_net_forward(net, &m->data, got, NUMBERS, &err));
    near_floats("forward", got, want, NUMBERS, 1e-5);
    for (int b = 0; b < B; b++) streams[b] = stream_on(net);
    for (int t = 0; t < T; t++) {
        OK(mr_stream_step_values(alone, m->values + t * IN, got, OUT, &err));
        near_floats("step", got, want + t * OUT, OUT, 1e-5);
        for (int b = 0; b < B; b++) memcpy(values + b * IN, m->values + (b * T + t) * IN, IN * sizeof *values);
        OK(mr_stream_step_many(streams, B, NULL, values, many, B * OUT, &err));
        for (int b = 0; b < B; b++) near_floats("step_many", many + b * OUT, want + (b * T + t) * OUT, OUT, 1e-5);
    }
    OK(mr_stream_feed_values(fed, m->values, T, got, OUT, &err));
    near_floats("feed", got, want + (T - 1) * OUT, OUT, 1e-5);
    OK(mr_net_keep_forward(net, &m->data, NULL, got, NUMBERS, &err));
    mr_net_drop(net);
    near_floats("keep_forward", got, want, NUMBERS, 1e-5);
    for (int b = 0; b < B; b++) mr_stream_free(streams[b]);
    mr_stream_free(alone), mr_stream_free(fed);
}

static void scores_are_tanh_of_a_linear_nets(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *linear = net_for(ctx, "linear"), *net = net_for(ctx, "tanh");
    float want[NUMBERS], losses[B * T];
    double sum = 0;
    mr_result result = MR_RESULT;
    moves m;
    make_moves(&m, 3);
    OK(mr_net_forward(linear, &m.data, want, NUMBERS, &err));
    for (int i = 0; i < NUMBERS; i++) want[i] = tanhf(want[i]);
    check_every_way(net, &m, want);
    OK(mr_net_losses(net, &m.data, losses, B * T, &err));
    for (int r = 0; r < B * T; r++) {
        float loss = 0;
        for (int c = r * OUT; c < (r + 1) * OUT; c++) loss += (want[c] - m.target[c]) * (want[c] - m.target[c]) / OUT;
        near_floats("a row's loss", &losses[r], &loss, 1, 1e-5);
        sum += loss;
    }
    OK(mr_net_evaluate(net, &m.data, &result, &err));
    assert_that(fabs(result.loss - sum / (B * T)), <, 1e-5);
    mr_net_free(linear), mr_net_free(net);
    mr_context_free(ctx);
}

static void trained_nets_keep_it_in_files(void **state)
{
    (void)state;
    char path[MR_TEXT_MAX], text[16];
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_for(ctx, "tanh"), *opened, *small, *rest = net_for(ctx, "tanh"), *linear = net_for(ctx, "linear");
    mr_result first = MR_RESULT, last = MR_RESULT;
    float want[NUMBERS], got[NUMBERS];
    moves m;
    make_moves(&m, 5);
    OK(mr_net_train(net, &m.data, &first, &err));
    for (int i = 0; i < 200; i++) OK(mr_net_train(net, &m.data, &last, &err));
    assert_that(last.loss, <, 0.05 * first.loss);
    OK(mr_net_forward(net, &m.data, want, NUMBERS, &err));
    for (int i = 0; i < NUMBERS; i++) assert_that(fabsf(want[i]), <=, 1);
    in_folder("tanh.safetensors", path);
    OK(mr_net_save(net, path, &err));
    OK(mr_net_open(ctx, path, &opened, &err));
    OK(mr_net_setting(opened, "output", text, sizeof text, &err));
    assert_string_equal(text, "tanh");
    OK(mr_net_forward(opened, &m.data, got, NUMBERS, &err));
    near_floats("opened", got, want, NUMBERS, 0);
    check_every_way(opened, &m, want);
    OK(mr_net_save_int8(net, path, &err));
    OK(mr_net_open(ctx, path, &small, &err));
    OK(mr_net_forward(small, &m.data, got, NUMBERS, &err));
    near_floats("in 8 bits", got, want, NUMBERS, 0.1);
    OK(mr_net_save_training(net, path, NULL, &err));
    FAILS(MR_EINVAL, "output = tanh, not linear", mr_net_load_training(linear, path, &err));
    OK(mr_net_load_training(rest, path, &err));
    OK(mr_net_train(rest, &m.data, NULL, &err));
    OK(mr_net_train(net, &m.data, NULL, &err));
    same_vectors("resumed", rest, net, MR_WEIGHTS, 0);
    mr_net_free(net), mr_net_free(opened), mr_net_free(small), mr_net_free(rest), mr_net_free(linear);
    mr_context_free(ctx);
}

/* Inputs may be scaled, targets may not. */
static void targets_are_not_scaled(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_for(ctx, "tanh"), *given = net_for(ctx, "tanh");
    const double one[] = {1, 1, 1};
    double mean[IN], scale[IN];
    float got[NUMBERS], want[NUMBERS];
    moves m;
    make_moves(&m, 7);
    const char *const word = "output = tanh predicts between -1 and 1, so targets cannot be scaled";
    FAILS(MR_ECONFIG, word, mr_net_set_scaler(net, NULL, NULL, one, one, &err));
    FAILS(MR_ECONFIG, word, mr_net_set_scaler(net, one, one, one, one, &err));
    assert_int_equal(mr_net_scaler(net, NULL, NULL, 0, NULL, NULL, 0, NULL), 0);
    OK(mr_net_fit_scaler(net, &m.data, &err));
    assert_int_equal(mr_net_scaler(net, mean, scale, IN, NULL, NULL, 0, NULL), 1);
    m.data.target_values = NULL; /* not needed */
    OK(mr_net_fit_scaler(net, &m.data, &err));
    OK(mr_net_set_scaler(given, mean, scale, NULL, NULL, &err));
    OK(mr_net_forward(net, &m.data, got, NUMBERS, &err));
    OK(mr_net_forward(given, &m.data, want, NUMBERS, &err));
    near_floats("scaled inputs", got, want, NUMBERS, 0);
    for (int i = 0; i < NUMBERS; i++) assert_that(fabsf(got[i]), <=, 1);
    mr_net_free(net), mr_net_free(given);
    mr_context_free(ctx);
}

static void wrong_nets_are_refused(void **state)
{
    (void)state;
    static const char *const classes[] = {"inputs", "5", "outputs", "5", "output", "tanh", NULL},
                             *const text[] = {"vocab", "bytes", "output", "tanh", NULL},
                             *const unknown[] = {"loss", "mse", "output", "relu", NULL},
                             *const tokens[] = {"inputs", "5", "outputs", "2", "loss", "mse", "output", "tanh", NULL};
    mr_context *ctx = context_on("cpu");
    mr_net *net;
    int32_t ids[B * T] = {0};
    float target[NUMBERS] = {0};
    mr_batch batch = MR_BATCH;
    batch.B = B, batch.T = T, batch.ids = ids, batch.target_values = target;
    FAILS(MR_ECONFIG, "output = tanh is for predicted values", mr_net_create(ctx, classes, &net, &err));
    FAILS(MR_ECONFIG, "output = tanh is for predicted values", mr_net_create(ctx, text, &net, &err));
    FAILS(MR_EINVAL, "output = relu", mr_net_create(ctx, unknown, &net, &err));
    OK(mr_net_create(ctx, tokens, &net, &err));
    FAILS(MR_EINVAL, "predicts values between -1 and 1: there is nothing to scale",
          mr_net_fit_scaler(net, &batch, &err));
    mr_net_free(net);
    mr_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_are_tanh_of_a_linear_nets), cmocka_unit_test(trained_nets_keep_it_in_files),
        cmocka_unit_test(targets_are_not_scaled), cmocka_unit_test(wrong_nets_are_refused)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
