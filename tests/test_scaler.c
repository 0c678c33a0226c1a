/* The caller's units: means and scales of values and targets; the network computes as if it had been given the scaled
 * numbers; and what a fit finds. test_scaler_files.c is about files. */
#include "support.h"

/* ---- a model with and without a scaler */

enum { INPUTS = 3, OUTPUTS = 2 };

static const double input_mean[INPUTS] = {1e6, -3, 0.5}, input_scale[INPUTS] = {10, 0.25, 1e-3};
static const double target_mean[OUTPUTS] = {-2e5, 7}, target_scale[OUTPUTS] = {40, 0.01};

static mr_config config_for(int form, mr_head head)
{
    const mr_interface interface = {MR_INPUT_REALS, INPUTS, head, MR_LOSS_MSE, OUTPUTS};
    mr_config c = model_config(form, &interface);
    c.layers = 2;
    c.dim = 8;
    c.conv = form % 2 ? 4 : 0;
    c.mlp = form % 3 ? 2 : 0;
    c.head_bias = 1;
    return c;
}

static void set_scaler(mr_model *m)
{
    mr_error err = {0};
    if (mr_model_set_scaler(m, input_mean, input_scale, target_mean, target_scale, &err)) fail_msg("%s", err.text);
}

/* The same batch in the caller's units. */
static mr_batch in_units(const mr_interface *interface, int B, int T, int resets, int ragged, uint32_t seed)
{
    mr_batch b = make_batch(interface, B, T, resets, ragged, seed);
    size_t n = (size_t)B * (size_t)T * INPUTS, rows = mr_batch_rows(&b, interface->head) * OUTPUTS;
    for (size_t i = 0; i < n; i++)
        b.values[i] = (float)(b.values[i] * input_scale[i % INPUTS] + input_mean[i % INPUTS]);
    for (size_t i = 0; i < rows; i++)
        b.target_values[i] = (float)(b.target_values[i] * target_scale[i % OUTPUTS] + target_mean[i % OUTPUTS]);
    return b;
}

/* Scales that batch by the formula of docs/format.md. */
static void scale_by_hand(mr_batch *b, const mr_interface *interface)
{
    size_t n = (size_t)b->B * (size_t)b->T * INPUTS, rows = mr_batch_rows(b, interface->head) * OUTPUTS;
    for (size_t i = 0; i < n; i++)
        b->values[i] = (float)(((double)b->values[i] - input_mean[i % INPUTS]) / input_scale[i % INPUTS]);
    for (size_t i = 0; i < rows; i++)
        b->target_values[i] =
            (float)(((double)b->target_values[i] - target_mean[i % OUTPUTS]) / target_scale[i % OUTPUTS]);
}

static void step_at(mr_step *step, int t)
{
    *step = (mr_step){.seed = 5,
                      .step = (uint32_t)t,
                      .lr = 1e-2,
                      .beta1 = 0.9,
                      .beta2 = 0.99,
                      .eps = 1e-8,
                      .clip = 1,
                      .bias1 = 1 - pow(0.9, t),
                      .bias2 = 1 - pow(0.99, t),
                      .decoupled = 1};
}

static void check_scores(mr_model *a, mr_model *b, size_t rows)
{
    size_t n = rows * OUTPUTS;
    float *scores = mr_alloc(n, sizeof *scores), *want = mr_alloc(n, sizeof *want);
    mr_model_logits(a, scores, 0, rows);
    mr_model_logits(b, want, 0, rows);
    for (size_t i = 0; i < n; i++) want[i] = (float)(want[i] * target_scale[i % OUTPUTS] + target_mean[i % OUTPUTS]);
    assert_memory_equal(scores, want, n * sizeof *scores);
    mr_model_logits(a, scores, rows - 1, 1); /* a single row starts at channel 0 */
    assert_memory_equal(scores, want + n - OUTPUTS, OUTPUTS * sizeof *scores);
    mr_free(scores);
    mr_free(want);
}

/* Bit for bit the same as a model without a scaler on numbers scaled by hand: scores, losses, and
 * weights after some steps. */
static void check_as_by_hand(mr_dev *dev, int form, mr_head head, int B, int T)
{
    bag own = {.dev = dev};
    mr_config config = config_for(form, head);
    mr_interface interface = mr_config_interface(&config);
    mr_model *scaled = make_model(&config, dev, B, T, 1), *plain = make_model(&config, dev, B, T, 1);
    const size_t total = mr_model_params(plain)->total;
    set_scaler(scaled);
    for (int t = 1; t <= 3; t++) {
        mr_batch raw = in_units(&interface, B, T, 1, T > 1, (uint32_t)t),
                 by_hand = in_units(&interface, B, T, 1, T > 1, (uint32_t)t);
        mr_step step;
        double stats[2][MR_STATS];
        const size_t rows = mr_batch_rows(&raw, head);
        scale_by_hand(&by_hand, &interface);
        step_at(&step, t);
        mr_model_learn(scaled, &raw, NULL, &step, 1 / (double)raw.counted, 1, 1);
        mr_model_learn(plain, &by_hand, NULL, &step, 1 / (double)raw.counted, 1, 1);
        mr_model_stats(scaled, stats[0]);
        mr_model_stats(plain, stats[1]);
        assert_memory_equal(stats[0], stats[1], sizeof stats[0]);
        mr_model_forward(scaled, &raw, NULL, 0);
        mr_model_forward(plain, &by_hand, NULL, 0);
        check_scores(scaled, plain, rows);
        mr_model_loss(scaled, &raw, 0);
        mr_model_loss(plain, &by_hand, 0);
        assert_memory_equal(bag_get(&own, scaled->row_loss, rows), bag_get(&own, plain->row_loss, rows),
                            rows * sizeof(double));
        mr_batch_free(&raw);
        mr_batch_free(&by_hand);
    }
    assert_memory_equal(bag_get(&own, scaled->weights, total), bag_get(&own, plain->weights, total),
                        total * sizeof(double));
    mr_model_free(scaled);
    mr_model_free(plain);
    bag_empty(&own);
}

static void as_by_hand(mr_dev *dev)
{
    for (int i = 0; i < MODEL_FORMS; i += REDUCED ? 5 : 1) check_as_by_hand(dev, i, (mr_head)(i % 5), 4, 9);
    check_as_by_hand(dev, 0, MR_HEAD_TOKEN, 4,
                     2111); /* more numbers than one piece, and pieces that end within a row */
    check_as_by_hand(dev, 0, MR_HEAD_TOKEN, 1, 1);
}

ON_DEVICES_BF16(a_scaler_equals_scaling_by_hand, as_by_hand)

/* ---- laws: at once ≡ token by token ≡ in chunks, with resets, through a model that shares the weights */

static float *scores_in(mr_model *m, const mr_batch *batch, int length)
{
    const size_t B = (size_t)batch->B, T = (size_t)batch->T;
    const mr_interface interface = m->interface;
    float *scores = mr_alloc(B * T * OUTPUTS, sizeof *scores), *part = mr_alloc(B * T * OUTPUTS, sizeof *part);
    mr_state *state = make_state(m, batch->B);
    for (size_t at = 0, n; at < T; at += n) {
        n = (size_t)length < T - at ? (size_t)length : T - at;
        mr_batch piece = make_batch(&interface, batch->B, (int)n, 1, 0, 1);
        for (size_t b = 0; b < B; b++) {
            memcpy(piece.values + b * n * INPUTS, batch->values + (b * T + at) * INPUTS, n * INPUTS * sizeof(float));
            memcpy(piece.reset + b * n, batch->reset + b * T + at, n);
        }
        mr_model_forward(m, &piece, state, 0);
        mr_model_logits(m, part, 0, B * n);
        for (size_t b = 0; b < B; b++)
            memcpy(scores + (b * T + at) * OUTPUTS, part + b * n * OUTPUTS, n * OUTPUTS * sizeof(float));
        mr_batch_free(&piece);
    }
    mr_state_free(state);
    mr_free(part);
    return scores;
}

static void check_units(const mr_dev *dev, int form, const float *got, const float *want, size_t n)
{
    double tolerance = is_bf16(dev) ? 16 * BF16 : is_cell(form) && forms[form].cell.scan == MR_SCAN_LOG ? 2e-3 : 1e-4;
    for (size_t i = 0; i < n; i++) {
        const double scale = target_scale[i % OUTPUTS], mean = target_mean[i % OUTPUTS];
        const double ulp = fabs(mean) * 0x1p-23 / scale; /* rounding of a score to float in the caller's units */
        if (!near((got[i] - mean) / scale, (want[i] - mean) / scale, tolerance + ulp))
            fail_msg("%s: score %zu is %.9g, wanted %.9g", model_name(form), i, (double)got[i], (double)want[i]);
    }
}

static void cuts(mr_dev *dev)
{
    enum { B = 2, T = 40 };
    static const int lengths[] = {1, 7, 39};
    for (int form = 0; form < MODEL_FORMS; form += REDUCED ? 5 : 1) {
        mr_config config = config_for(form, MR_HEAD_TOKEN);
        mr_interface interface = mr_config_interface(&config);
        mr_model *owner = make_model(&config, dev, B, T, 0), *model;
        mr_batch batch = in_units(&interface, B, T, 1, 0, 3);
        assert_int_equal(mr_model_share(owner, dev, &model, NULL), 0);
        assert_int_equal(mr_model_plan(model, B, T, 0, NULL), 0);
        set_scaler(owner); /* after both plans: applies to the other model too */
        float *whole = scores_in(owner, &batch, T);
        assert_that(fabsf(whole[0] - (float)target_mean[0]), <, 100 * (float)target_scale[0]);
        for (int i = 0; i < COUNT(lengths); i++) {
            float *pieces = scores_in(model, &batch, lengths[i]);
            check_units(dev, form, pieces, whole, B * T * OUTPUTS);
            mr_free(pieces);
        }
        mr_free(whole);
        mr_batch_free(&batch);
        mr_model_free(model);
        mr_model_free(owner);
    }
}

ON_DEVICES_BF16(at_once_equals_steps_equals_chunks, cuts)

/* ---- the caller's own loss */

static void backward_by(mr_model *m, const mr_batch *batch, int own_loss)
{
    const size_t rows = mr_batch_rows(batch, m->interface.head), n = rows * OUTPUTS;
    mr_model_zero_grads(m);
    mr_model_forward(m, batch, NULL, 1);
    if (!own_loss) mr_model_loss(m, batch, 1 / (double)batch->counted);
    else {
        /* mse in the caller's units, each channel measured by its scale */
        const double *scale = mr_model_scaler(m)->target_scale;
        float *scores = mr_alloc(n, sizeof *scores);
        mr_model_logits(m, scores, 0, rows);
        for (size_t i = 0; i < n; i++) {
            const double unit = scale ? scale[i % OUTPUTS] : 1;
            const double off = (double)scores[i] - batch->target_values[i];
            scores[i] =
                (float)(batch->mask[i / OUTPUTS] ? 2.0 / OUTPUTS * off / (unit * unit) / (double)batch->counted : 0);
        }
        mr_model_put_dlogits(m, scores, rows);
        mr_free(scores);
    }
    mr_model_backward(m, batch, NULL, NULL);
}

static void own_loss(mr_dev *dev)
{
    for (int i = 0; i < 10; i++) {
        const int with_scaler = i / 5;
        bag own = {.dev = dev};
        mr_config config = config_for(i % MODEL_FORMS, (mr_head)(i % 5));
        mr_interface interface = mr_config_interface(&config);
        const int T = i % 5 == 0 ? 2111 : 9; /* once: more than one piece */
        mr_model *m = make_model(&config, dev, 4, T, 1);
        mr_batch batch = make_batch(&interface, 4, T, 1, 1, (uint32_t)i);
        /* small means, so that the gradient is compared and not the rounding of scores */
        static const double mean[OUTPUTS] = {1, -2}, scale[OUTPUTS] = {40, 0.1};
        if (with_scaler) assert_int_equal(mr_model_set_scaler(m, NULL, NULL, mean, scale, NULL), 0);
        backward_by(m, &batch, 0);
        const size_t total = mr_model_params(m)->total;
        double *want = bag_get(&own, m->grads, total);
        backward_by(m, &batch, 1);
        double *got = bag_get(&own, m->grads, total);
        check_norm("gradients of the caller's loss", got, want, total, is_bf16(dev) ? 4 * BF16 : 2e-5, 0);
        assert_that(norm_of(want, total), >, 1e-3);
        mr_batch_free(&batch);
        mr_model_free(m);
        bag_empty(&own);
    }
}

ON_DEVICES_BF16(own_losses_use_the_callers_units, own_loss)

/* ---- refusals, and numbers that are not finite */

static void wrong_scalers_are_refused(void **state)
{
    (void)state;
    static const double good[INPUTS] = {1, 2, 3};
    const double zero[INPUTS] = {1, 0, 1}, minus[INPUTS] = {1, 1, -1}, nan[INPUTS] = {1, NAN, 1},
                 inf[INPUTS] = {INFINITY, 1, 1};
    const struct {
        const double *im, *is, *tm, *ts;
        const char *says;
    } cases[] = {{good, zero, NULL, NULL, "input scale of channel 1 is 0;"},
                 {good, minus, NULL, NULL, "input scale of channel 2 is -1;"},
                 {good, nan, NULL, NULL, "input scale of channel 1 is nan"},
                 {good, inf, NULL, NULL, "input scale of channel 0 is inf"},
                 {nan, good, NULL, NULL, "input mean of channel 1 is nan"},
                 {inf, good, NULL, NULL, "input mean of channel 0 is inf"},
                 {NULL, NULL, good, zero, "target scale of channel 1 is 0"},
                 {NULL, NULL, inf, good, "target mean of channel 0 is inf"},
                 {good, NULL, NULL, NULL, "input has only a mean or only a scale"},
                 {NULL, NULL, NULL, good, "target has only a mean or only a scale"}};
    mr_dev *dev = open_device("cpu", 1, NULL);
    mr_config config = config_for(0, MR_HEAD_LAST), tokens = config;
    mr_model *m = make_model(&config, dev, 1, 1, 0), *shared, *classes;
    mr_error err;
    set_scaler(m);
    for (int i = 0; i < COUNT(cases); i++) {
        assert_int_equal(mr_model_set_scaler(m, cases[i].im, cases[i].is, cases[i].tm, cases[i].ts, &err), MR_EINVAL);
        if (!strstr(err.text, cases[i].says)) fail_msg("\"%s\" does not say \"%s\"", err.text, cases[i].says);
        assert_null(strchr(err.text, '\n'));
        assert_memory_equal(mr_model_scaler(m)->input_scale, input_scale, sizeof input_scale); /* as it was */
        assert_int_equal(mr_model_config(m)->scaler, MR_SCALER_BOTH);
    }
    assert_int_equal(mr_model_share(m, dev, &shared, &err), 0);
    assert_int_equal(mr_model_set_scaler(shared, good, good, NULL, NULL, &err), MR_EINVAL);
    tokens.input = MR_INPUT_TOKENS;
    tokens.loss = MR_LOSS_XENT;
    assert_int_equal(mr_model_new(&tokens, dev, MR_DECAY_ALL, &classes, &err), 0);
    assert_int_equal(mr_model_set_scaler(classes, good, good, NULL, NULL, &err), MR_ECONFIG);
    assert_int_equal(mr_model_set_scaler(classes, NULL, NULL, good, good, &err), MR_ECONFIG);
    assert_int_equal(mr_model_set_scaler(m, NULL, NULL, NULL, NULL, &err), 0);
    assert_true(!mr_model_scaler(m)->input_mean);
    assert_true(!mr_model_scaler(shared)->target_mean);
    assert_that(mr_model_config(m)->scaler, ==, MR_SCALER_NONE);
    mr_model_free(classes);
    mr_model_free(shared);
    mr_model_free(m);
    mr_dev_close(dev);
}

static void nan_inputs_show_in_scores(void **state)
{
    (void)state;
    mr_dev *dev = open_device("cpu", 1, NULL);
    mr_config config = config_for(0, MR_HEAD_LAST);
    mr_interface interface = mr_config_interface(&config);
    mr_model *m = make_model(&config, dev, 2, 3, 0);
    mr_batch batch = in_units(&interface, 2, 3, 0, 0, 1);
    float scores[2 * OUTPUTS];
    double stats[MR_STATS];
    set_scaler(m);
    batch.mask[0] = batch.mask[1] = 1;
    batch.values[0] = NAN;
    mr_model_forward(m, &batch, NULL, 0);
    mr_model_logits(m, scores, 0, 2);
    assert_true(isnan(scores[0]));
    assert_true(isfinite(scores[OUTPUTS]));
    batch.values[0] = 0;
    batch.target_values[0] = NAN;
    mr_model_zero_stats(m);
    mr_model_forward(m, &batch, NULL, 0);
    mr_model_loss(m, &batch, 0);
    mr_model_stats(m, stats);
    assert_true(isnan(stats[MR_STAT_LOSS]));
    mr_batch_free(&batch);
    mr_model_free(m);
    mr_dev_close(dev);
}

/* ---- a fit */

static void a_fit_finds_mean_and_deviation(void **state)
{
    (void)state;
    const mr_interface interface = {MR_INPUT_REALS, 2, MR_HEAD_TOKEN, MR_LOSS_MSE, 1};
    mr_scaler_fit *fit;
    mr_error err = {0};
    mr_batch batch = make_batch(&interface, 2, 3, 0, 1, 1);
    static const float values[] = {1000001, 5, 1000003, 5, NAN, INFINITY, 1000005, 5, 1000007, 5, 1000009, 5};
    static const float targets[] = {1, 2, NAN, 3, NAN, 6};
    static const uint8_t mask[] = {1, 1, 1, 1, 0, 1};
    static const int32_t length[] = {2, 3};
    batch.length = mr_batch_lengths(&batch);
    memcpy(batch.values, values, sizeof values);
    memcpy(batch.target_values, targets, sizeof targets);
    memcpy(batch.mask, mask, sizeof mask);
    memcpy(batch.length, length, sizeof length);
    assert_int_equal(mr_scaler_fit_new(&interface, NULL, &fit, &err), 0);
    mr_scaler s = mr_scaler_fit_result(fit);
    /* nothing seen yet */
    assert_true(!s.input_mean);
    assert_true(!s.target_mean);
    assert_int_equal(mr_scaler_fit_add(fit, &batch, &err), 0);
    batch.B = 1; /* then part of it again, as another batch */
    assert_int_equal(mr_scaler_fit_add(fit, &batch, &err), 0);
    s = mr_scaler_fit_result(fit);
    /* 1, 3, 5, 7, 9, 1, 3: mean 29/7, squares 175/7 */
    assert_that(fabs(s.input_mean[0] - (1e6 + 29.0 / 7)), <, 1e-9);
    assert_that(fabs(s.input_scale[0] - sqrt(175.0 / 7 - 29.0 * 29 / 49)), <, 1e-9);
    assert_that(s.input_mean[1], ==, 5);
    assert_that(s.input_scale[1], ==, 1);
    /* 1, 2, 3, 6, 1, 2: mean 15/6, squares 55/6 */
    assert_that(fabs(s.target_mean[0] - 2.5), <, 1e-12);
    assert_that(fabs(s.target_scale[0] - sqrt(55.0 / 6 - 6.25)), <, 1e-12);
    batch.length[0] = 3;
    assert_int_equal(mr_scaler_fit_add(fit, &batch, &err), MR_EINVAL);
    assert_non_null(strstr(err.text, "values[4] is nan"));
    batch.values[4] = batch.values[5] = 0;
    assert_int_equal(mr_scaler_fit_add(fit, &batch, &err), MR_EINVAL);
    assert_non_null(strstr(err.text, "target_values[2] is nan"));
    assert_that(mr_scaler_fit_result(fit).input_mean[0], ==, s.input_mean[0]); /* the refused batch added nothing */
    mr_scaler_fit_free(fit);
    mr_batch_free(&batch);
}

/* ---- memory: a step allocates none, however many numbers are converted */

static int taken;

static void *count_alloc(void *user, size_t size)
{
    void *p = malloc(size);
    (void)user;
    taken++;
    return p;
}

static void count_free(void *user, void *p)
{
    (void)user;
    free(p);
}

static void steps_take_no_memory(void **state)
{
    (void)state;
    const mr_allocator by = {.alloc = count_alloc, .release = count_free};
    mr_config config = config_for(0, MR_HEAD_TOKEN);
    mr_interface interface = mr_config_interface(&config);
    mr_dev *dev;
    mr_step step;
    assert_int_equal(mr_dev_open("cpu", &(mr_dev_options){.threads = 1, .allocator = &by}, &dev, NULL), 0);
    mr_model *m = make_model(&config, dev, 4, 2111, 1);
    mr_batch batch = in_units(&interface, 4, 2111, 0, 0, 1);
    set_scaler(m);
    for (int t = 1, before = 0; t <= 3; t++) {
        step_at(&step, t);
        mr_model_learn(m, &batch, NULL, &step, 1 / (double)batch.counted, 1, 1);
        if (t > 1) assert_int_equal(taken, before); /* the first step may allocate the device's scratch */
        before = taken;
    }
    assert_that(taken, >, 0);
    mr_batch_free(&batch);
    mr_model_free(m);
    mr_dev_close(dev);
}

/* ---- the use case: a sensor of 10⁶ ± 10 */

static double error_after(int with_scaler, int steps)
{
    enum { B = 16, T = 6 };
    const mr_interface interface = {MR_INPUT_REALS, 1, MR_HEAD_TOKEN, MR_LOSS_MSE, 1};
    mr_dev *dev = open_device("cpu", 1, NULL);
    mr_config config = config_with("mingru", &interface);
    config.dim = 16;
    config.layers = 1;
    mr_model *m = make_model(&config, dev, B, T, 1);
    mr_batch batch = make_batch(&interface, B, T, 0, 0, 1);
    mr_scaler_fit *fit;
    float scores[B * T];
    double sum = 0;
    for (int i = 0; i < B * T; i++) { /* half of this value, and half of the previous one */
        batch.values[i] = (float)(1e6 + 10 * (double)batch.values[i]);
        batch.target_values[i] = i % T ? (batch.values[i] + batch.values[i - 1]) / 2 : batch.values[i];
        batch.mask[i] = 1;
    }
    batch.counted = B * T;
    assert_int_equal(mr_scaler_fit_new(&interface, NULL, &fit, NULL), 0);
    assert_int_equal(mr_scaler_fit_add(fit, &batch, NULL), 0);
    const mr_scaler s = mr_scaler_fit_result(fit);
    if (with_scaler)
        assert_int_equal(mr_model_set_scaler(m, s.input_mean, s.input_scale, s.target_mean, s.target_scale, NULL), 0);
    for (int t = 1; t <= steps; t++) {
        mr_step step;
        step_at(&step, t);
        mr_model_learn(m, &batch, NULL, &step, 1.0 / (B * T), 1, 1);
    }
    mr_model_forward(m, &batch, NULL, 0);
    mr_model_logits(m, scores, 0, B * T);
    for (int i = 0; i < B * T; i++) sum += pow((double)scores[i] - batch.target_values[i], 2);
    mr_scaler_fit_free(fit);
    mr_batch_free(&batch);
    mr_model_free(m);
    mr_dev_close(dev);
    return sqrt(sum / (B * T));
}

static void a_scaler_lets_a_sensor_be_learned(void **state)
{
    (void)state;
    const double with = error_after(1, 600), without = error_after(0, 600);
    print_message("values of 1e6 +- 10: off by %.3g with a scaler, by %.3g without\n", with, without);
    assert_that(with, <, 1);
    assert_that(without, >, 100); /* ten times the error of always predicting the mean */
}

int main(void)
{
    const struct CMUnitTest tests[] = {DEVICE_TESTS_BF16(a_scaler_equals_scaling_by_hand),
                                       DEVICE_TESTS_BF16(at_once_equals_steps_equals_chunks),
                                       DEVICE_TESTS_BF16(own_losses_use_the_callers_units),
                                       cmocka_unit_test(wrong_scalers_are_refused),
                                       cmocka_unit_test(nan_inputs_show_in_scores),
                                       cmocka_unit_test(a_fit_finds_mean_and_deviation),
                                       cmocka_unit_test(steps_take_no_memory),
                                       cmocka_unit_test(a_scaler_lets_a_sensor_be_learned)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
