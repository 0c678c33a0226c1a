/* Losses and scores computed in slices of rows agree with those computed at once, for every head, with and without a
 * bias, tied embeddings, resets, rows that do not count, a caller's own loss and tokens drawn; and never need a buffer
 * for the scores of all rows. */
#include "support.h"

enum { VOCAB = 37, DIM = 12, B = 4, T = 7, MOST_ROWS = B * T };

typedef struct variant {
    mr_head head;
    int bias, tied, resets, ragged, erf;
} variant;

static const variant variants[] = {
    {.head = MR_HEAD_TOKEN},
    {.head = MR_HEAD_TOKEN, .bias = 1, .resets = 1},
    {.head = MR_HEAD_TOKEN, .tied = 1, .ragged = 1},
    {.head = MR_HEAD_TOKEN, .tied = 1, .bias = 1, .resets = 1, .ragged = 1},
    {.head = MR_HEAD_LAST, .bias = 1, .ragged = 1},
    {.head = MR_HEAD_MEAN, .resets = 1},
    {.head = MR_HEAD_PAIR_LAST, .bias = 1},
    {.head = MR_HEAD_PAIR_MEAN, .erf = 1, .ragged = 1},
};

static const mr_step step = {.seed = 5,
                             .step = 3,
                             .micro = 1,
                             .lr = 1e-2,
                             .beta1 = 0.9,
                             .beta2 = 0.99,
                             .eps = 1e-8,
                             .clip = 1,
                             .bias1 = 0.1,
                             .bias2 = 0.01,
                             .decoupled = 1};

static mr_config config_for(const variant *v)
{
    const mr_interface interface = {MR_INPUT_TOKENS, VOCAB, v->head, MR_LOSS_XENT, VOCAB};
    mr_config c = config_of(&forms[0].cell, &interface);
    c.dim = DIM;
    c.layers = 2;
    c.head_bias = v->bias;
    c.tied = v->tied;
    c.gelu = v->erf ? MR_GELU_IS_ERF : MR_GELU_IS_TANH;
    return c;
}

static mr_batch batch_for(const variant *v, uint32_t seed)
{
    const mr_interface interface = {MR_INPUT_TOKENS, VOCAB, v->head, MR_LOSS_XENT, VOCAB};
    return make_batch(&interface, B, T, v->resets, v->ragged, seed);
}

/* slice 0: all rows at once. */
static mr_model *model_for(const variant *v, mr_dev *dev, size_t slice)
{
    mr_error err = {0};
    const mr_config config = config_for(v);
    mr_model *model = make_model(&config, dev, B, T, 1);
    model->slice = slice;
    if (mr_model_plan(model, B, T, 1, &err)) fail_msg("%s", err.text);
    mr_model_set_step(model, &step);
    return model;
}

static double tolerance_for(const mr_dev *dev) { return is_bf16(dev) ? 8 * BF16 : 1e-5; }

/* ---- what a pass leaves behind */

typedef struct outcome {
    double stats[MR_STATS], *losses, *grads, *scores;
    size_t rows, total;
} outcome;

static double *scores_of(bag *own, mr_model *model, size_t rows)
{
    double *scores = bag_host(own, rows * VOCAB);
    float *at_once = mr_alloc(rows * VOCAB, sizeof *at_once);
    assert_non_null(at_once);
    mr_model_logits(model, at_once, 0, rows);
    for (size_t i = 0; i < rows * VOCAB; i++) scores[i] = at_once[i];
    mr_free(at_once);
    return scores;
}

/* own_loss: the gradient of the scores, from the host; NULL: that of the loss. */
static outcome pass_over(bag *own, mr_model *model, const mr_batch *batch, const float *own_loss)
{
    outcome o = {.rows = mr_model_rows(model, batch), .total = mr_model_params(model)->total};
    mr_model_zero_grads(model);
    mr_model_zero_stats(model);
    mr_model_forward(model, batch, NULL, 1);
    o.scores = scores_of(own, model, o.rows);
    if (own_loss) mr_model_put_dlogits(model, own_loss, o.rows);
    else mr_model_loss(model, batch, 1.0 / (double)batch->counted);
    mr_model_backward(model, batch, NULL, NULL);
    mr_model_stats(model, o.stats);
    o.losses = bag_get(own, model->row_loss, o.rows);
    o.grads = bag_get(own, model->grads, o.total);
    return o;
}

static void check_same(const char *what, mr_dev *dev, const outcome *got, const outcome *want)
{
    const double tolerance = tolerance_for(dev);
    char label[128];
    snprintf(label, sizeof label, "%s on %s %s", what, dev->kind, dev->isa);
    check_near(label, got->scores, want->scores, want->rows * VOCAB, tolerance);
    check_near(label, got->losses, want->losses, want->rows, tolerance);
    check_near(label, got->stats, want->stats, MR_STATS, tolerance);
    check_norm(label, got->grads, want->grads, want->total, tolerance, 0);
    assert_that(norm_of(want->grads, want->total), >, 1e-3);
}

static void check_slices(mr_dev *dev)
{
    for (int i = 0; i < COUNT(variants); i++) {
        const variant *v = &variants[i];
        bag own = {.dev = dev};
        mr_batch batch = batch_for(v, 3);
        mr_model *whole = model_for(v, dev, MOST_ROWS);
        const size_t rows = mr_model_rows(whole, &batch);
        const outcome want = pass_over(&own, whole, &batch, NULL);
        assert_false(mr_in_slices(whole, rows));
        for (size_t slice = 1; slice < rows; slice += slice < 5 ? 1 : 11) {
            mr_model *model = model_for(v, dev, slice);
            char what[64];
            snprintf(what, sizeof what, "variant %d in slices of %zu rows", i, slice);
            assert_true(mr_in_slices(model, rows));
            const outcome got = pass_over(&own, model, &batch, NULL);
            check_same(what, dev, &got, &want);
            mr_model_free(model);
        }
        mr_model_free(whole);
        mr_batch_free(&batch);
        bag_empty(&own);
    }
}

ON_DEVICES_BF16(slices_agree_with_the_whole, check_slices)

static void check_own_loss(mr_dev *dev)
{
    float dscores[MOST_ROWS * VOCAB];
    mr_rng rng = mr_rng_at(11, MR_STREAM_SAMPLE, 0, 0);
    for (int i = 0; i < COUNT(dscores); i++) dscores[i] = (float)(0.1 * mr_rng_normal(&rng));
    for (int i = 0; i < COUNT(variants); i++) {
        const variant *v = &variants[i];
        bag own = {.dev = dev};
        mr_batch batch = batch_for(v, 3);
        const size_t rows = mr_batch_rows(&batch, v->head);
        mr_model *whole = model_for(v, dev, MOST_ROWS), *model = model_for(v, dev, rows < 3 ? 1 : 2);
        pass_over(&own, model, &batch, NULL); /* leaves row losses, which are none of the next pass's */
        pass_over(&own, whole, &batch, NULL);
        outcome want = pass_over(&own, whole, &batch, dscores), got = pass_over(&own, model, &batch, dscores);
        assert_that(norm_of(got.losses, got.rows), ==, 0);
        memcpy(got.losses, want.losses, want.rows * sizeof *want.losses); /* without slices they stay */
        check_same("own loss", dev, &got, &want);
        mr_model_free(model);
        mr_model_free(whole);
        mr_batch_free(&batch);
        bag_empty(&own);
    }
}

ON_DEVICES_BF16(a_callers_own_loss_agrees, check_own_loss)

/* ---- whole steps */

/* Two steps of two micro-batches, the state carried; the second batch is shorter. */
static double *train(bag *own, mr_model *model, const variant *v, double stats[MR_STATS])
{
    mr_batch long_one = batch_for(v, 3), short_one = batch_for(v, 4);
    mr_state *state = make_state(model, B);
    short_one.T = T - 2;
    for (int i = 0; i < 2; i++) {
        mr_model_learn(model, &long_one, state, &step, 0.01, 1, 0);
        mr_model_learn(model, &short_one, state, &step, 0.02, 0, 1);
    }
    mr_model_stats(model, stats);
    mr_state_free(state);
    mr_batch_free(&long_one);
    mr_batch_free(&short_one);
    return bag_get(own, model->weights, mr_model_params(model)->total);
}

static void check_training(mr_dev *dev)
{
    for (int i = 0; i < 4; i++) {
        bag own = {.dev = dev};
        mr_model *whole = model_for(&variants[i], dev, MOST_ROWS), *model = model_for(&variants[i], dev, 5),
                 *again = model_for(&variants[i], dev, 5);
        const size_t total = mr_model_params(whole)->total;
        double a[MR_STATS], b[MR_STATS], c[MR_STATS];
        const double *want = train(&own, whole, &variants[i], a), *got = train(&own, model, &variants[i], b);
        const double *repeated = train(&own, again, &variants[i], c);
        assert_memory_equal(got, repeated, total * sizeof *got);
        assert_memory_equal(b, c, sizeof b);
        if (!is_bf16(dev))
            check_near("weights after two steps", got, want, total, 1e-3); /* Adam divides by gradients */
        check_near("sums over both micro-batches", b, a, MR_STATS, 10 * tolerance_for(dev));
        mr_model_free(whole);
        mr_model_free(model);
        mr_model_free(again);
        bag_empty(&own);
    }
}

ON_DEVICES_BF16(steps_agree_and_repeat, check_training)

static void threads_change_nothing(void **state)
{
    (void)state;
    double stats[2][MR_STATS], *weights[2];
    size_t total = 0;
    bag own[2];
    for (int i = 0; i < 2; i++) {
        own[i] = (bag){.dev = open_device("cpu", 1 + 2 * i, NULL)};
        mr_model *model = model_for(&variants[3], own[i].dev, 6);
        total = mr_model_params(model)->total;
        weights[i] = train(&own[i], model, &variants[3], stats[i]);
        mr_model_free(model);
    }
    assert_memory_equal(weights[0], weights[1], total * sizeof **weights);
    assert_memory_equal(stats[0], stats[1], sizeof stats[0]);
    for (int i = 0; i < 2; i++) {
        bag_empty(&own[i]);
        mr_dev_close(own[i].dev);
    }
}

/* ---- scores, drawn tokens, models in 8 bits */

/* Rows from the middle, more and fewer than a slice, in any order. */
static void check_parts(mr_dev *dev)
{
    bag own = {.dev = dev};
    mr_batch batch = batch_for(&variants[1], 3);
    mr_model *model = model_for(&variants[1], dev, 5);
    float part[MOST_ROWS * VOCAB];
    mr_model_forward(model, &batch, NULL, 0);
    const double *all = scores_of(&own, model, MOST_ROWS);
    static const struct {
        size_t first, rows;
    } parts[] = {{20, 8}, {3, 1}, {0, 5}, {9, 11}, {27, 1}};
    for (int i = 0; i < COUNT(parts); i++) {
        mr_model_logits(model, part, parts[i].first, parts[i].rows);
        for (size_t k = 0; k < parts[i].rows * VOCAB; k++)
            if (!near(part[k], all[parts[i].first * VOCAB + k], tolerance_for(dev)))
                fail_msg("part %d, number %zu: %g, wanted %g", i, k, part[k], all[parts[i].first * VOCAB + k]);
    }
    mr_model_free(model);
    mr_batch_free(&batch);
    bag_empty(&own);
}

ON_DEVICES_BF16(parts_of_the_scores, check_parts)

static void check_draws(mr_dev *dev)
{
    const mr_sampling how = {.seed = 3, .temperature = 1, .top_p = 1}, three[3] = {how, how, how};
    static const uint64_t places[3] = {4, 5, 6};
    int32_t drawn[2][3 + 3];
    for (int i = 0; i < 2; i++) {
        mr_model *model = model_for(&variants[1], dev, i ? 2 : MOST_ROWS);
        mr_batch batch = batch_for(&variants[1], 3), many = batch;
        mr_state *one = make_state(model, 1), *all = make_state(model, 3);
        batch.B = 1;
        mr_model_forward(model, &batch, one, 0);
        mr_model_draw_from(model, &how, 0);
        for (int k = 0; k < 3; k++) mr_model_draw(model, one, !k, 1, drawn[i] + k);
        many.B = 3;
        many.T = 1;
        mr_model_forward(model, &many, all, 0);
        mr_model_forward(model, &many, all, 0); /* as a recorded step */
        mr_model_draw_rows(model, 3, three, places, drawn[i] + 3);
        mr_state_free(one);
        mr_state_free(all);
        mr_batch_free(&batch);
        mr_model_free(model);
    }
    assert_memory_equal(drawn[0], drawn[1], sizeof drawn[0]);
}

ON_DEVICES(drawn_tokens_are_the_same, check_draws)

static void check_int8(mr_dev *dev)
{
    bag own = {.dev = dev};
    mr_config config = config_for(&variants[0]);
    mr_batch batch = batch_for(&variants[0], 3);
    const mr_quants *quants;
    double stats[2][MR_STATS];
    config.weights = MR_WEIGHTS_INT8;
    for (int i = 0; i < 2; i++) {
        mr_model *model;
        assert_int_equal(mr_model_new(&config, dev, MR_DECAY_MATRICES, &model, NULL), 0);
        model->slice = i ? 5 : MOST_ROWS;
        assert_int_equal(mr_model_plan(model, B, T, 0, NULL), 0);
        quants = mr_model_quants(model);
        const size_t total = mr_model_params(model)->total;
        float *reals = mr_alloc(total, sizeof *reals);
        int8_t *bytes = mr_alloc(quants->bytes, 1);
        assert_true(reals && bytes);
        for (size_t k = 0; k < total; k++) reals[k] = 0.01F + 0.0001F * (float)(k % 100);
        for (size_t k = 0; k < quants->bytes; k++) bytes[k] = (int8_t)(k * 37 % 255 - 127);
        mr_model_put(model, MR_WEIGHTS, reals);
        mr_model_put_bytes(model, bytes);
        mr_model_zero_stats(model);
        mr_model_forward(model, &batch, NULL, 0);
        mr_model_loss(model, &batch, 0);
        mr_model_stats(model, stats[i]);
        mr_free(reals);
        mr_free(bytes);
        mr_model_free(model);
    }
    check_near("a model in 8 bits", stats[1], stats[0], MR_STATS, 1e-5);
    mr_batch_free(&batch);
    bag_empty(&own);
}

ON_DEVICES(models_in_8_bits, check_int8)

/* ---- NaN and infinity */

/* A loss that overflows while all gradients are finite. */
static void an_infinite_loss_is_found(void **state)
{
    (void)state;
    mr_dev *dev = open_device("cpu", 1, NULL);
    const variant v = {.head = MR_HEAD_TOKEN, .bias = 1};
    mr_model *model = model_for(&v, dev, 4);
    const mr_params *params = mr_model_params(model);
    const mr_param *bias = &params->list[mr_params_find(params, "head.bias")];
    bag own = {.dev = dev};
    mr_batch batch = batch_for(&v, 3);
    char where[128] = "";
    for (int i = 0; i < MOST_ROWS; i++) batch.target[i] = 0; /* the last slice is finite */
    batch.target[2] = 1;
    pass_over(&own, model, &batch, NULL);
    assert_int_equal(mr_model_find_nonfinite(model, &batch, where, sizeof where), 0);
    mr_model_put_part(model, MR_WEIGHTS, bias->offset, 2, (float[]){3e38F, -3e38F});
    outcome o = pass_over(&own, model, &batch, NULL);
    assert_true(isinf(o.losses[2]));
    assert_true(isfinite(norm_of(o.grads, o.total)));
    assert_true(mr_model_find_nonfinite(model, &batch, where, sizeof where));
    assert_string_equal(where, "head (loss)");
    mr_model_put_part(model, MR_WEIGHTS, bias->offset, 2, (float[]){NAN, 0});
    pass_over(&own, model, &batch, NULL);
    assert_true(mr_model_find_nonfinite(model, &batch, where, sizeof where));
    assert_string_equal(where, "head.bias (gradient)");
    mr_model_free(model);
    mr_batch_free(&batch);
    bag_empty(&own);
    mr_dev_close(dev);
}

/* ---- memory */

static size_t planned(mr_dev *dev, int vocab, int dim, int rows, int train)
{
    const mr_interface interface = {MR_INPUT_TOKENS, vocab, MR_HEAD_TOKEN, MR_LOSS_XENT, vocab};
    mr_config c = config_of(&forms[0].cell, &interface);
    mr_model *model;
    c.dim = dim;
    c.layers = 1;
    assert_int_equal(mr_model_new(&c, dev, MR_DECAY_MATRICES, &model, NULL), 0);
    assert_int_equal(mr_model_plan(model, 1, rows, train, NULL), 0);
    const size_t bytes = mr_model_planned_bytes(model);
    assert_that(mr_slice_rows(model), ==, 4 * dim > (1 << 24) / vocab ? 4 * dim : (1 << 24) / vocab);
    mr_model_free(model);
    return bytes;
}

/* From 2²⁴ scores on, more rows take hardly more memory; below that a plan has room for all of them. */
static void memory_stops_growing(void **state)
{
    (void)state;
    mr_dev *dev = open_device("cpu", 1, NULL);
    const size_t full = (size_t)256 * 65536 * sizeof(float);
    for (int train = 0; train < 2; train++) {
        const size_t some = planned(dev, 65536, 8, 256, train), many = planned(dev, 65536, 8, 2560, train);
        assert_that(some, >, full);
        assert_that(many, <, full + full / 10);
        assert_that(planned(dev, 65536, 80, 2560, train), <, 320 * 65536 * sizeof(float) + full / 5); /* 4·dim rows */
        assert_that(planned(dev, 65536, 80, 256, train), <, full + full / 10);
    }
    assert_that(planned(dev, 256, 8, 65536, 0), >, full); /* bytes, B = 64, T = 1024: not sliced */
    mr_dev_close(dev);
}

/* Squared errors are not sliced. */
static void only_classes_are_sliced(void **state)
{
    (void)state;
    mr_dev *dev = open_device("cpu", 1, NULL);
    const mr_interface interface = {MR_INPUT_TOKENS, VOCAB, MR_HEAD_TOKEN, MR_LOSS_MSE, VOCAB};
    mr_config c = config_of(&forms[0].cell, &interface);
    mr_model *model = make_model(&c, dev, B, T, 1), *shared;
    model->slice = 2;
    assert_false(mr_in_slices(model, MOST_ROWS));
    assert_int_equal(mr_model_share(model, dev, &shared, NULL), 0);
    assert_int_equal(mr_slice_rows(shared), 2);
    mr_model_free(shared);
    mr_model_free(model);
    mr_dev_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DEVICE_TESTS_BF16(slices_agree_with_the_whole),
        DEVICE_TESTS_BF16(a_callers_own_loss_agrees),
        DEVICE_TESTS_BF16(steps_agree_and_repeat),
        cmocka_unit_test(threads_change_nothing),
        DEVICE_TESTS_BF16(parts_of_the_scores),
        DEVICE_TESTS(drawn_tokens_are_the_same),
        DEVICE_TESTS(models_in_8_bits),
        cmocka_unit_test(an_infinite_loss_is_found),
        cmocka_unit_test(memory_stops_growing),
        cmocka_unit_test(only_classes_are_sliced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
