/* output = tanh: predicted values are tanh of what a model with output = linear and the same weights predicts, at once,
 * token by token and in chunks, on every device; and so are the losses and gradients. */
#include "support.h"

enum { B = 3, T = 21, INPUTS = 4, OUTPUTS = 6, SCORES = B * T * OUTPUTS };

static const mr_interface actions = {
    .input = MR_INPUT_REALS, .inputs = INPUTS, .head = MR_HEAD_TOKEN, .loss = MR_LOSS_MSE, .outputs = OUTPUTS};

static mr_model *model_with(mr_dev *dev, mr_output output)
{
    mr_config c = config_with("mingru", &actions);
    c.layers = 2;
    c.dim = 9;
    c.conv = 4;
    c.head_bias = 1;
    c.output = output;
    return make_model(&c, dev, B, T, 1);
}

/* An op may differ by its own tolerance; what is rounded to bf16 before the tanh differs by less after it. */
static double tolerance_on(const mr_dev *dev) { return is_bf16(dev) ? 16 * BF16 : 1e-4; }

static mr_batch tokens_of(const mr_batch *batch, int at, int n)
{
    mr_batch piece = make_batch(&actions, B, n, 0, 0, 1);
    for (int b = 0; b < B; b++)
        memcpy(piece.values + (size_t)b * (size_t)n * INPUTS, batch->values + (size_t)(b * T + at) * INPUTS,
               (size_t)n * INPUTS * sizeof *piece.values);
    return piece;
}

/* In pieces of n tokens. */
static void scores_in(mr_model *m, const mr_batch *batch, int n, float *scores)
{
    mr_state *state = make_state(m, B);
    float part[SCORES];
    for (int at = 0; at < T; at += n) {
        const int now = n < T - at ? n : T - at;
        mr_batch piece = tokens_of(batch, at, now);
        mr_model_forward(m, &piece, state, 0);
        mr_model_logits(m, part, 0, (size_t)(B * now));
        for (int b = 0; b < B; b++)
            memcpy(scores + (b * T + at) * OUTPUTS, part + b * now * OUTPUTS, (size_t)(now * OUTPUTS) * sizeof *part);
        mr_batch_free(&piece);
    }
    mr_state_free(state);
}

static void check_scores(mr_dev *dev)
{
    static const int pieces[] = {T, 1, 4};
    mr_model *plain = model_with(dev, MR_OUTPUT_LINEAR), *m = model_with(dev, MR_OUTPUT_TANH);
    mr_batch batch = make_batch(&actions, B, T, 0, 0, 7);
    float linear[SCORES], got[SCORES], row[OUTPUTS];
    double largest = 0;
    mr_model_forward(plain, &batch, NULL, 0);
    mr_model_logits(plain, linear, 0, B * T);
    for (int k = 0; k <= COUNT(pieces); k++) {
        if (k < COUNT(pieces)) scores_in(m, &batch, pieces[k], got);
        else mr_model_forward(m, &batch, NULL, 0), mr_model_logits(m, got, 0, B * T);
        for (int i = 0; i < SCORES; i++) {
            const double want = tanh(linear[i]), off = fabs(got[i] - want);
            if (!within(off, tolerance_on(dev)) || !(fabs((double)got[i]) <= 1))
                fail_msg("%s %s, way %d: score %d is %.9g, wanted %.9g", dev->kind, dev->isa, k, i, (double)got[i],
                         want);
            largest = fmax(largest, fabs((double)linear[i]));
        }
    }
    assert_that(largest, >, 1.2); /* otherwise it would not show */
    mr_model_logits(m, row, 5, 1);
    assert_memory_equal(row, got + 5 * OUTPUTS, sizeof row);
    mr_batch_free(&batch);
    mr_model_free(plain);
    mr_model_free(m);
}

static double *gradients_of(bag *own, mr_model *m) { return bag_get(own, m->grads, mr_model_params(m)->total); }

/* A loss of the caller's own: through the tanh by hand in a linear model, by the library in one with output = tanh, and
 * that of the library itself. */
static void check_losses(mr_dev *dev)
{
    bag own = {.dev = dev};
    mr_model *plain = model_with(dev, MR_OUTPUT_LINEAR), *m = model_with(dev, MR_OUTPUT_TANH);
    mr_batch batch = make_batch(&actions, B, T, 1, 0, 8);
    float x[SCORES], y[SCORES], dx[SCORES], dy[SCORES], rows[B * T];
    const double count = (double)batch.counted, tolerance = is_bf16(dev) ? 8 * BF16 : 1e-5;
    double stats[MR_STATS], sum = 0;
    mr_model_forward(plain, &batch, NULL, 1), mr_model_logits(plain, x, 0, B * T);
    mr_model_forward(m, &batch, NULL, 1), mr_model_logits(m, y, 0, B * T);
    for (int i = 0; i < SCORES; i++) {
        const double off = batch.mask[i / OUTPUTS] ? tanh(x[i]) - batch.target_values[i] : 0, t = tanh(x[i]);
        sum += off * off / OUTPUTS;
        dy[i] = (float)(2 * off / OUTPUTS / count);
        dx[i] = (float)(dy[i] * (1 - t * t));
    }
    mr_model_put_dlogits(plain, dx, B * T);
    mr_model_backward(plain, &batch, NULL, NULL);
    mr_model_put_dlogits(m, dy, B * T);
    mr_model_backward(m, &batch, NULL, NULL);
    const size_t total = mr_model_params(m)->total;
    double *by_hand = gradients_of(&own, plain), *of_scores = gradients_of(&own, m);
    check_norm("a gradient of scores", of_scores, by_hand, total, tolerance, 0);
    mr_model_zero_grads(m), mr_model_zero_stats(m);
    mr_model_forward(m, &batch, NULL, 1);
    mr_model_loss(m, &batch, 1 / count);
    mr_model_backward(m, &batch, NULL, NULL);
    check_norm("the gradient of mse", gradients_of(&own, m), by_hand, total, tolerance, 0);
    mr_model_stats(m, stats), mr_model_row_loss(m, rows, B * T);
    assert_that(fabs(stats[MR_STAT_LOSS] - sum), <=, tolerance * sum);
    for (int r = 0; r < B * T; r++) sum -= rows[r];
    assert_that(fabs(sum), <=, tolerance * stats[MR_STAT_LOSS]);
    mr_batch_free(&batch);
    mr_model_free(plain);
    mr_model_free(m);
    bag_empty(&own);
}

/* A whole step, as a device may record it, several times: the weights of the same steps with a loss computed here. */
static void check_steps(mr_dev *dev)
{
    bag own = {.dev = dev};
    mr_model *whole = model_with(dev, MR_OUTPUT_TANH), *parts = model_with(dev, MR_OUTPUT_TANH);
    const size_t total = mr_model_params(whole)->total;
    mr_step step = {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.99, .eps = 0.1, .clip = 1, .bias1 = 0.1, .bias2 = 0.01};
    float y[SCORES], dy[SCORES];
    for (int k = 0; k < 5; k++) {
        mr_batch batch = make_batch(&actions, B, T, 0, 0, 20 + (uint32_t)k);
        const double count = (double)batch.counted;
        step.step = (uint32_t)k + 1;
        mr_model_learn(whole, &batch, NULL, &step, 1 / count, 1, 1);
        mr_model_set_step(parts, &step), mr_model_zero_grads(parts);
        mr_model_forward(parts, &batch, NULL, 1), mr_model_logits(parts, y, 0, B * T);
        for (int i = 0; i < SCORES; i++)
            dy[i] = batch.mask[i / OUTPUTS] ? (float)(2 * (y[i] - batch.target_values[i]) / OUTPUTS / count) : 0;
        mr_model_put_dlogits(parts, dy, B * T);
        mr_model_backward(parts, &batch, NULL, NULL);
        mr_model_update(parts);
        mr_batch_free(&batch);
    }
    check_norm("weights after steps", bag_get(&own, whole->weights, total), bag_get(&own, parts->weights, total), total,
               is_bf16(dev) ? BF16 : 1e-5, 0);
    mr_model_free(whole);
    mr_model_free(parts);
    bag_empty(&own);
}

/* A row that does not count gives neither a loss nor a gradient, whatever is in it. */
static void check_masked_rows(mr_dev *dev)
{
    bag own = {.dev = dev};
    const double pred[] = {0.5, NAN, 3, -1}, target[] = {0.2, 0.1, 0, 0};
    const uint8_t mask[] = {0, 1};
    const double scale = 1, zeros[MR_STATS] = {0};
    double *stats = bag_device(&own, sizeof zeros), *factor = bag_device(&own, sizeof scale), got[MR_STATS];
    uint8_t *counts = bag_device(&own, sizeof mask);
    mr_act *x = bag_put_as(&own, ACTS, pred, 4);
    mr_real *loss = bag_poisoned(&own, 2);
    dev->upload(dev, stats, zeros, sizeof zeros);
    dev->upload(dev, factor, &scale, sizeof scale);
    dev->upload(dev, counts, mask, sizeof mask);
    dev->ops.mse(dev, &(mr_mse_args){.R = 2,
                                     .C = 2,
                                     .tanh = 1,
                                     .pred = x,
                                     .target = bag_put(&own, target, 4),
                                     .mask = counts,
                                     .scale = factor,
                                     .dpred = x,
                                     .row_loss = loss,
                                     .stats = stats});
    const double *d = bag_get_as(&own, ACTS, x, 4), *rows = bag_get(&own, loss, 2);
    dev->download(dev, got, stats, sizeof got);
    assert_that(rows[0], ==, 0);
    assert_that(d[0], ==, 0);
    assert_that(d[1], ==, 0);
    const double y[] = {tanh(3), tanh(-1)}, want = (y[0] * y[0] + y[1] * y[1]) / 2;
    assert_that(fabs(got[MR_STAT_LOSS] - want), <, 1e-5);
    assert_that(got[MR_STAT_COUNT], ==, 1);
    for (int i = 0; i < 2; i++) assert_that(fabs(d[2 + i] - y[i] * (1 - y[i] * y[i])), <, is_bf16(dev) ? BF16 : 1e-5);
    bag_empty(&own);
}

static void what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    mr_error err = {0};
    mr_interface classes = actions;
    classes.loss = MR_LOSS_XENT;
    mr_config c = config_with("mingru", &classes);
    assert_int_equal(mr_config_check(&c, &err), 0);
    c.output = MR_OUTPUT_TANH;
    assert_int_equal(mr_config_check(&c, &err), MR_ECONFIG);
    assert_string_equal(err.text, "output = tanh is for predicted values (loss = mse), not for classes (loss = xent); "
                                  "leave it out");
    c = config_with("mingru", &actions);
    c.output = MR_OUTPUT_TANH;
    for (int sides = MR_SCALER_NONE; sides <= MR_SCALER_BOTH; sides++) {
        c.scaler = (mr_scaler_kind)sides;
        assert_int_equal(mr_config_check(&c, &err), sides & MR_SCALER_TARGET ? MR_ECONFIG : 0);
    }
}

ON_DEVICES_BF16(scores_are_tanh_of_a_linear_models, check_scores)
ON_DEVICES_BF16(losses_and_gradients_pass_through_the_tanh, check_losses)
ON_DEVICES_BF16(whole_steps_equal_steps_in_parts, check_steps)
ON_DEVICES_BF16(masked_rows_give_nothing, check_masked_rows)

int main(void)
{
    const struct CMUnitTest tests[] = {
        DEVICE_TESTS_BF16(scores_are_tanh_of_a_linear_models),
        DEVICE_TESTS_BF16(losses_and_gradients_pass_through_the_tanh),
        DEVICE_TESTS_BF16(whole_steps_equal_steps_in_parts),
        DEVICE_TESTS_BF16(masked_rows_give_nothing),
        cmocka_unit_test(what_makes_no_sense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
