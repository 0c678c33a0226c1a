/* Raw values: a net with a scaler computes in the caller's units exactly what a net without one computes
 * on values scaled by hand. */
#include "api_support.h"
#include "scratch.h"

enum { B = 4, T = 6, IN = 2, OUT = 2, VALUES = B * T * IN, TARGETS = B * T * OUT };

static const char *const settings[] = {"input", "reals",     "inputs", "2",   "outputs", "2",      "loss",
                                       "mse",   "head-bias", "yes",    "dim", "16",      "layers", "2",
                                       "lr",    "0.01",      "eps",    "0.1", NULL};
static const double input_mean[] = {1e6, -40}, input_scale[] = {250, 0.5}, target_mean[] = {100, 3e-4},
                    target_scale[] = {10, 1e-5};

typedef struct series {
    float raw[VALUES], raw_target[TARGETS], scaled[VALUES], scaled_target[TARGETS];
    mr_batch in_units, by_hand;
} series;

static void make_series(series *s, uint32_t seed)
{
    memset(s, 0, sizeof *s);
    for (int i = 0; i < VALUES; i++) {
        s->raw[i] = (float)(input_mean[i % IN] + input_scale[i % IN] * random_float(&seed));
        s->scaled[i] = (float)(((double)s->raw[i] - input_mean[i % IN]) / input_scale[i % IN]);
    }
    for (int i = 0; i < TARGETS; i++) {
        s->raw_target[i] = (float)(target_mean[i % OUT] + target_scale[i % OUT] * s->scaled[i / OUT * IN + i % OUT]);
        s->scaled_target[i] = (float)(((double)s->raw_target[i] - target_mean[i % OUT]) / target_scale[i % OUT]);
    }
    s->in_units = s->by_hand = (mr_batch)MR_BATCH;
    s->in_units.B = s->by_hand.B = B, s->in_units.T = s->by_hand.T = T;
    s->in_units.values = s->raw, s->in_units.target_values = s->raw_target;
    s->by_hand.values = s->scaled, s->by_hand.target_values = s->scaled_target;
}

static mr_net *scaled_net(mr_context *ctx)
{
    mr_net *net = net_of(ctx, settings);
    OK(mr_net_set_scaler(net, input_mean, input_scale, target_mean, target_scale, &err));
    return net;
}

/* Compares the scores of both, in the units of the net that was scaled by hand. */
static void same_scores(mr_net *scaled, mr_net *plain, series *s)
{
    float got[TARGETS], want[TARGETS];
    OK(mr_net_forward(scaled, &s->in_units, got, TARGETS, &err));
    OK(mr_net_forward(plain, &s->by_hand, want, TARGETS, &err));
    for (int i = 0; i < TARGETS; i++) got[i] = (float)((got[i] - target_mean[i % OUT]) / target_scale[i % OUT]);
    near_floats("scores", got, want, TARGETS, 1e-4);
}

static void a_scaler_is_what_one_would_do_by_hand(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *scaled = scaled_net(ctx), *plain = net_of(ctx, settings);
    mr_result got = MR_RESULT, want = MR_RESULT;
    series s;
    for (int step = 0; step < 5; step++) {
        make_series(&s, (uint32_t)step + 1);
        same_scores(scaled, plain, &s);
        OK(mr_net_train(scaled, &s.in_units, &got, &err));
        OK(mr_net_train(plain, &s.by_hand, &want, &err));
        assert_that(fabs(got.loss - want.loss), <, 1e-5 * want.loss); /* of scaled values */
        same_vectors("weights", scaled, plain, MR_WEIGHTS, 1e-5);
    }
    float losses[B * T], wanted[B * T];
    OK(mr_net_losses(scaled, &s.in_units, losses, B * T, &err));
    OK(mr_net_losses(plain, &s.by_hand, wanted, B * T, &err));
    near_floats("losses of rows", losses, wanted, B * T, 1e-4);
    char text[16];
    OK(mr_net_setting(scaled, "scaler", text, sizeof text, &err));
    assert_string_equal(text, "both");
    mr_net_free(scaled), mr_net_free(plain);
    mr_context_free(ctx);
}

/* The caller's gradient is with respect to the scores in the caller's units. */
static void own_losses_are_in_the_same_units(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *own = scaled_net(ctx), *plain = net_of(ctx, settings);
    float scores[TARGETS], d[TARGETS];
    series s;
    for (int step = 0; step < 3; step++) {
        make_series(&s, (uint32_t)step + 1);
        OK(mr_net_train(plain, &s.by_hand, NULL, &err));
        OK(mr_net_keep_forward(own, &s.in_units, NULL, scores, TARGETS, &err));
        for (int i = 0; i < TARGETS; i++) { /* gradient of the mean of ((score − target) / scale)² */
            const double scale = target_scale[i % OUT];
            d[i] = (float)(2 * ((double)scores[i] - s.raw_target[i]) / (scale * scale) / TARGETS);
        }
        OK(mr_net_backward(own, d, TARGETS, &err));
        OK(mr_net_update(own, NULL, &err));
        same_vectors("weights", own, plain, MR_WEIGHTS, 1e-4);
    }
    mr_net_free(own), mr_net_free(plain);
    mr_context_free(ctx);
}

/* A fit uses only values that count: no tokens beyond a length, no masked rows. */
static void a_fit_uses_only_what_counts(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *fitted = net_of(ctx, settings), *given = net_of(ctx, settings);
    double mean[2][2] = {{0}}, scale[2][2] = {{0}};
    int32_t length[B] = {6, 3, 1, 5};
    int tokens = 0, rows = 0;
    uint8_t mask[B * T] = {0};
    series s;
    make_series(&s, 9);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < B * T; i++) {
            if (i % T >= length[i / T]) continue;
            mask[i] = (uint8_t)(i % 4 != 1);
            tokens += !pass, rows += !pass && mask[i];
            for (int c = 0; c < 2; c++) {
                const double x = s.raw[i * 2 + c], y = s.raw_target[i * 2 + c];
                if (!pass) mean[0][c] += x, mean[1][c] += mask[i] ? y : 0;
                else
                    scale[0][c] += pow(x - mean[0][c] / tokens, 2),
                        scale[1][c] += mask[i] ? pow(y - mean[1][c] / rows, 2) : 0;
            }
        }
    for (int c = 0; c < 2; c++) {
        mean[0][c] /= tokens, mean[1][c] /= rows;
        scale[0][c] = sqrt(scale[0][c] / tokens), scale[1][c] = sqrt(scale[1][c] / rows);
    }
    for (int i = 0; i < B * T; i++) /* values that do not count may be anything */
        for (int c = 0; c < 2; c++) {
            if (i % T >= length[i / T]) s.raw[i * 2 + c] = 1e30f;
            if (!mask[i]) s.raw_target[i * 2 + c] = -1e30f;
        }
    s.in_units.length = length, s.in_units.mask = mask;
    OK(mr_net_fit_scaler(fitted, &s.in_units, &err));
    OK(mr_net_set_scaler(given, mean[0], scale[0], mean[1], scale[1], &err));
    float got[TARGETS], want[TARGETS];
    OK(mr_net_forward(fitted, &s.in_units, got, TARGETS, &err));
    OK(mr_net_forward(given, &s.in_units, want, TARGETS, &err));
    for (int i = 0; i < TARGETS; i++)
        if (i / OUT % T < length[i / OUT / T]) near_floats("fitted", &got[i], &want[i], 1, 1e-5);
    mr_net_free(fitted), mr_net_free(given);
    mr_context_free(ctx);
}

/* A fit needs targets only where they are values, and values only where they are the input. */
static void a_fit_takes_what_there_is_to_scale(void **state)
{
    (void)state;
    const char *const classes[] = {"input", "reals", "inputs", "2", "outputs", "2", "dim", "8", "layers", "1", NULL};
    const char *const numbers[] = {"inputs", "3", "outputs", "2", "loss", "mse", "dim", "8", "layers", "1", NULL};
    mr_context *ctx = context_on("cpu");
    mr_net *inputs = net_of(ctx, classes), *outputs = net_of(ctx, numbers);
    int32_t ids[B * T] = {0};
    series s;
    make_series(&s, 1);
    s.in_units.target_values = NULL;
    OK(mr_net_fit_scaler(inputs, &s.in_units, &err));
    assert_int_equal(mr_net_scaler(inputs, NULL, NULL, 0, NULL, NULL, 0, NULL), 1);
    s.in_units.values = NULL, s.in_units.ids = ids;
    FAILS(MR_EINVAL, "target_values is NULL", mr_net_fit_scaler(outputs, &s.in_units, &err));
    s.in_units.target_values = s.raw_target;
    OK(mr_net_fit_scaler(outputs, &s.in_units, &err));
    assert_int_equal(mr_net_scaler(outputs, NULL, NULL, 0, NULL, NULL, 0, NULL), 2);
    mr_net_free(inputs), mr_net_free(outputs);
    mr_context_free(ctx);
}

/* ---- files and streams */

static void check_streams(mr_net *net, series *s)
{
    float want[TARGETS], got[OUT], many[B * OUT], values[B * IN];
    mr_stream *alone = stream_on(net), *streams[B];
    OK(mr_net_forward(net, &s->in_units, want, TARGETS, &err));
    for (int b = 0; b < B; b++) streams[b] = stream_on(net);
    for (int t = 0; t < T; t++) {
        OK(mr_stream_step_values(alone, s->raw + t * IN, got, OUT, &err));
        near_floats("a stream", got, want + t * OUT, OUT, 1e-5);
        for (int b = 0; b < B; b++) memcpy(values + b * IN, s->raw + (b * T + t) * IN, IN * sizeof *values);
        OK(mr_stream_step_many(streams, B, NULL, values, many, B * OUT, &err));
        for (int b = 0; b < B; b++) near_floats("many streams", many + b * OUT, want + (b * T + t) * OUT, OUT, 1e-5);
    }
    for (int b = 0; b < B; b++) mr_stream_free(streams[b]);
    mr_stream_free(alone);
}

static void files_keep_the_units(void **state)
{
    (void)state;
    char path[MR_TEXT_MAX];
    mr_context *ctx = context_on("cpu");
    mr_net *net = scaled_net(ctx), *opened, *small, *rest = net_of(ctx, settings), *plain = net_of(ctx, settings);
    float want[TARGETS], got[TARGETS];
    series s;
    make_series(&s, 1);
    for (int i = 0; i < 20; i++) OK(mr_net_train(net, &s.in_units, NULL, &err));
    check_streams(net, &s);
    OK(mr_net_forward(net, &s.in_units, want, TARGETS, &err));
    in_folder("scaled.safetensors", path);
    OK(mr_net_save(net, path, &err));
    OK(mr_net_open(ctx, path, &opened, &err));
    OK(mr_net_forward(opened, &s.in_units, got, TARGETS, &err));
    near_floats("opened", got, want, TARGETS, 0);
    OK(mr_net_save_int8(net, path, &err));
    OK(mr_net_open(ctx, path, &small, &err));
    OK(mr_net_forward(small, &s.in_units, got, TARGETS, &err));
    for (int i = 0; i < TARGETS; i++) assert_that(fabs((double)got[i] - want[i]), <, 0.1 * target_scale[i % OUT]);
    check_streams(small, &s);
    OK(mr_net_save_training(net, path, NULL, &err));
    OK(mr_net_load_training(rest, path, &err)); /* a net without a scaler takes the state's */
    OK(mr_net_forward(rest, &s.in_units, got, TARGETS, &err));
    near_floats("loaded", got, want, TARGETS, 0);
    OK(mr_net_save_training(plain, path, NULL, &err));
    OK(mr_net_load_training(rest, path, &err)); /* and drops it again */
    char text[16];
    OK(mr_net_setting(rest, "scaler", text, sizeof text, &err));
    assert_string_equal(text, "none");
    mr_net_free(net), mr_net_free(opened), mr_net_free(small), mr_net_free(rest), mr_net_free(plain);
    mr_context_free(ctx);
}

/* The use case: values around a million that vary by hundreds, and targets around 100. */
static void raw_values_train(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, settings);
    series s;
    float scores[TARGETS];
    double worst[OUT] = {0};
    OK(mr_net_set(net, "eps", "1e-8", &err));
    make_series(&s, 1);
    OK(mr_net_fit_scaler(net, &s.in_units, &err));
    for (int i = 0; i < 300; i++) OK(mr_net_train(net, &s.in_units, NULL, &err));
    OK(mr_net_forward(net, &s.in_units, scores, TARGETS, &err));
    for (int i = 0; i < TARGETS; i++) worst[i % OUT] = fmax(worst[i % OUT], fabs((double)scores[i] - s.raw_target[i]));
    /* a tenth of their deviation */
    assert_that(worst[0], <, 1);
    assert_that(worst[1], <, 1e-6);
    mr_net_free(net);
    mr_context_free(ctx);
}

/* ---- the bias of the head */

static void the_heads_bias_is_optional_and_trained(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, settings);
    series s;
    float scores[TARGETS], shifted[TARGETS], grad[OUT], d[TARGETS];
    double want[OUT] = {0};
    const float bias[OUT] = {5, -7};
    make_series(&s, 1);
    OK(mr_net_forward(net, &s.by_hand, scores, TARGETS, &err));
    OK(mr_net_put(net, MR_WEIGHTS, "head.bias", bias, OUT, &err));
    OK(mr_net_forward(net, &s.by_hand, shifted, TARGETS, &err));
    for (int i = 0; i < TARGETS; i++) assert_that(fabs((double)shifted[i] - scores[i] - bias[i % OUT]), <, 1e-5);
    OK(mr_net_keep_forward(net, &s.by_hand, NULL, scores, TARGETS, &err));
    for (int i = 0; i < TARGETS; i++) want[i % OUT] += d[i] = (float)(i % 7) - 3;
    OK(mr_net_backward(net, d, TARGETS, &err));
    OK(mr_net_get(net, MR_GRADS, "head.bias", grad, OUT, &err));
    for (int c = 0; c < OUT; c++) assert_that(fabs(grad[c] - want[c]), <, 1e-4);
    mr_net_free(net);
    net = values_net_with(ctx, "mingru");
    FAILS(MR_EINVAL, "head.bias",
          mr_net_get(net, MR_WEIGHTS, "head.bias", grad, OUT, &err)); /* there is none by default */
    mr_net_free(net);
    mr_context_free(ctx);
}

static void a_scaler_can_be_read(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, settings);
    const size_t inputs = (size_t)mr_net_inputs(net), outputs = (size_t)mr_net_outputs(net);
    double mean[8], scale[8], out_mean[8], out_scale[9] = {[8] = -7};
    assert_int_equal(mr_net_scaler(net, mean, scale, 8, out_mean, out_scale, 8, NULL), 0);
    OK(mr_net_set_scaler(net, NULL, NULL, target_mean, target_scale, &err));
    assert_int_equal(mr_net_scaler(net, NULL, NULL, 0, out_mean, out_scale, outputs, NULL), 2);
    assert_memory_equal(out_mean, target_mean, outputs * sizeof *out_mean);
    assert_memory_equal(out_scale, target_scale, outputs * sizeof *out_scale);
    OK(mr_net_set_scaler(net, input_mean, input_scale, target_mean, target_scale, &err));
    assert_int_equal(mr_net_scaler(net, mean, scale, inputs, NULL, NULL, 0, NULL), 3);
    assert_memory_equal(mean, input_mean, inputs * sizeof *mean);
    assert_memory_equal(scale, input_scale, inputs * sizeof *scale);
    FAILS(MR_EINVAL, "are needed", mr_net_scaler(net, NULL, NULL, 0, NULL, out_scale, outputs - 1, &err));
    assert_that(out_scale[8], ==, -7);
    mr_net_free(net);
    mr_context_free(ctx);
}

static void wrong_scalers_are_refused(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, settings), *tokens = net_of(ctx, tiny);
    const double zero[] = {1, 0}, nan_mean[] = {NAN, 0};
    series s;
    lesson l;
    make_series(&s, 1), make_lesson(&l, 1);
    FAILS(MR_EINVAL, "without", mr_net_set_scaler(net, input_mean, NULL, NULL, NULL, &err));
    FAILS(MR_EINVAL, "without", mr_net_set_scaler(net, NULL, NULL, NULL, target_scale, &err));
    FAILS(MR_EINVAL, "scale", mr_net_set_scaler(net, input_mean, zero, NULL, NULL, &err));
    FAILS(MR_EINVAL, "mean", mr_net_set_scaler(net, NULL, NULL, nan_mean, target_scale, &err));
    FAILS(MR_EINVAL, "nothing to scale", mr_net_fit_scaler(tokens, &l.data, &err));
    s.raw[5] = NAN;
    FAILS(MR_EINVAL, "values[5] is NaN", mr_net_fit_scaler(net, &s.in_units, &err));
    s.raw[5] = 1, s.in_units.values = NULL;
    FAILS(MR_EINVAL, "values is NULL", mr_net_fit_scaler(net, &s.in_units, &err));
    s.in_units.values = s.raw, s.in_units.length = (int32_t[]){6, 6, 7, 6};
    FAILS(MR_EINVAL, "length[2] = 7", mr_net_fit_scaler(net, &s.in_units, &err));
    s.in_units.length = NULL, s.in_units.target_values = NULL;
    FAILS(MR_EINVAL, "target_values is NULL", mr_net_fit_scaler(net, &s.in_units, &err));
    s.in_units.target_values = s.raw_target, s.raw_target[3] = INFINITY;
    FAILS(MR_EINVAL, "target_values[3]", mr_net_fit_scaler(net, &s.in_units, &err));
    s.raw_target[3] = 1;
    OK(mr_net_train(net, &s.by_hand, NULL, &err));
    FAILS(MR_EINVAL, "before the first", mr_net_fit_scaler(net, &s.in_units, &err));
    FAILS(MR_EINVAL, "before the first", mr_net_set_scaler(net, input_mean, input_scale, NULL, NULL, &err));
    mr_net_free(net), mr_net_free(tokens);
    mr_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_scaler_is_what_one_would_do_by_hand),
        cmocka_unit_test(own_losses_are_in_the_same_units),
        cmocka_unit_test(a_fit_uses_only_what_counts),
        cmocka_unit_test(a_fit_takes_what_there_is_to_scale),
        cmocka_unit_test(files_keep_the_units),
        cmocka_unit_test(raw_values_train),
        cmocka_unit_test(the_heads_bias_is_optional_and_trained),
        cmocka_unit_test(a_scaler_can_be_read),
        cmocka_unit_test(wrong_scalers_are_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
