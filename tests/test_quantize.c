/* Models in 8 bits: rounding, the layout of both vectors, and that they compute the same as
 * fp32 with the same weights. */
#include "support.h"

#include "model/quantize.h"

#include <stdlib.h>

/* ---- rounding */

static void a_matrix_is_rounded_by_rows(void **state)
{
    enum { ROWS = 5, COLUMNS = 37 };
    (void)state;
    float w[ROWS * COLUMNS], scale[ROWS];
    int8_t q[ROWS * COLUMNS];
    mr_rng rng = mr_rng_at(2, MR_STREAM_SAMPLE, 0, 0);
    for (int i = 0; i < ROWS * COLUMNS; i++) w[i] = (float)mr_rng_normal(&rng);
    for (int k = 0; k < COLUMNS; k++) {
        w[1 * COLUMNS + k] = 0;
        w[2 * COLUMNS + k] *= 1e-44f; /* smaller than a scale can be */
        w[3 * COLUMNS + k] *= 1e-42f; /* the scale itself is rounded */
    }
    mr_quantize_matrix(ROWS, COLUMNS, w, q, scale);
    assert_that(scale[1], ==, 0);
    for (int n = 0; n < ROWS; n++) {
        int top = 0;
        for (int k = 0; k < COLUMNS; k++) {
            float got = scale[n] * q[n * COLUMNS + k];
            top = abs(q[n * COLUMNS + k]) > top ? abs(q[n * COLUMNS + k]) : top;
            if (n == 0 || n == 4) assert_that(fabsf(got - w[n * COLUMNS + k]), <=, 0.5001f * scale[n]);
            else assert_that(fabsf(got - w[n * COLUMNS + k]), <=, 1e-40f);
        }
        if (n == 0 || n == 4) assert_int_equal(top, 127);
        assert_that(top, <=, 127);
        assert_true(isfinite(scale[n]));
        assert_true((scale[n] > 0 || top == 0));
    }
}

/* ---- a model in both forms */

static const mr_interface interface = {MR_INPUT_TOKENS, 11, MR_HEAD_TOKEN, MR_LOSS_XENT, 11};
static const mr_interface values = {MR_INPUT_REALS, 3, MR_HEAD_MEAN, MR_LOSS_MSE, 2};

static mr_config small_config(const mr_cell *cell, const mr_interface *of)
{
    mr_config c = config_of(cell, of);
    c.layers = 2;
    c.dim = 24;
    c.conv = 4;
    c.mlp = 3;
    c.norm = MR_NORM_LAYER;
    c.h0_learned = 1;
    c.head_bias = cell->kind == MR_MINGRU;
    c.conv_place = cell->kind == MR_MINGRU ? MR_CONV_INSIDE : MR_CONV_RESIDUAL;
    return c;
}

/* A model in 8 bits with the weights of `plain`, whose weights are then replaced by the rounded ones. */
static mr_model *make_int8(mr_model *plain, mr_dev *dev, int B, int T)
{
    mr_config c = *mr_model_config(plain);
    mr_error err = {0};
    mr_model *model;
    c.weights = MR_WEIGHTS_INT8;
    if (mr_model_new(&c, dev, MR_DECAY_MATRICES, &model, &err) || mr_model_plan(model, B, T, 0, &err))
        fail_msg("%s", err.text);
    const mr_params *from = mr_model_params(plain), *to = mr_model_params(model);
    const mr_quants *quants = mr_model_quants(model);
    float *weights = mr_alloc(from->total, 4), *reals = mr_alloc(to->total, 4);
    int8_t *bytes = mr_alloc(quants->bytes, 1);
    assert_true(weights);
    assert_true(reals);
    assert_true(bytes);
    mr_model_get(plain, MR_WEIGHTS, weights);
    mr_quantize_vector(from, weights, to, quants, reals, bytes);
    mr_model_put(model, MR_WEIGHTS, reals);
    mr_model_put_bytes(model, bytes);
    for (int i = 0; i < to->count; i++) {
        const mr_param *p = &to->list[i];
        for (size_t j = 0; mr_param_quantizes(p) && j < p->count; j++)
            weights[from->list[i].offset + j] = reals[p->offset + j / (size_t)p->shape[1]] * bytes[quants->at[i] + j];
    }
    mr_model_put(plain, MR_WEIGHTS, weights);
    mr_free(weights);
    mr_free(reals);
    mr_free(bytes);
    return model;
}

static float *logits_of(mr_model *model, const mr_batch *batch, mr_state *memory, size_t *count)
{
    size_t rows = mr_model_rows(model, batch);
    *count = rows * (size_t)model->interface.outputs;
    float *out = mr_alloc(*count, sizeof *out);
    assert_non_null(out);
    mr_model_forward(model, batch, memory, 0);
    mr_model_logits(model, out, 0, rows);
    return out;
}

static void compare(const char *what, const float *got, const float *want, size_t n, double tolerance)
{
    for (size_t i = 0; i < n; i++)
        if (!near(got[i], want[i], tolerance))
            fail_msg("%s: %g, wanted %g within %g", what, (double)got[i], (double)want[i], tolerance);
}

static void same_as_fp32(mr_dev *dev)
{
    enum { B = 3, T = 17 };
    const double tolerance = !strcmp(dev->kind, "ref") ? 1e-5 : 0.1; /* the CPU rounds activations to 8 bits too */
    for (int i = 0; i < COUNT(forms); i += REDUCED ? 5 : 1) {
        const mr_interface *of = i % 2 ? &values : &interface;
        mr_config c = small_config(&forms[i].cell, of);
        mr_model *plain = make_model(&c, dev, B, T, 0), *model = make_int8(plain, dev, B, T);
        mr_batch batch = make_batch(of, B, T, 1, 1, (uint32_t)i);
        size_t n;
        float *want = logits_of(plain, &batch, NULL, &n), *got = logits_of(model, &batch, NULL, &n);
        compare(forms[i].name, got, want, n, tolerance);
        mr_free(want);
        mr_free(got);
        mr_batch_free(&batch);
        mr_model_free(plain);
        mr_model_free(model);
    }
}

ON_DEVICES(int8_models_compute_like_fp32, same_as_fp32)

/* Token by token, each rounded by itself, gives the same as all at once. */
static void same_in_steps(mr_dev *dev)
{
    enum { T = 9 };
    mr_config c = small_config(&forms[0].cell, &interface);
    mr_model *plain = make_model(&c, dev, 1, T, 0), *model = make_int8(plain, dev, 1, T);
    mr_batch batch = make_batch(&interface, 1, T, 0, 0, 1), one = make_batch(&interface, 1, 1, 0, 0, 1);
    mr_state *memory = make_state(model, 1);
    size_t n, step;
    float *all = logits_of(model, &batch, NULL, &n);
    for (int t = 0; t < T; t++) {
        one.ids[0] = batch.ids[t];
        float *got = logits_of(model, &one, memory, &step);
        compare("a step", got, all + (size_t)t * step, step, 1e-3);
        mr_free(got);
    }
    mr_free(all);
    mr_state_free(memory);
    mr_batch_free(&batch);
    mr_batch_free(&one);
    mr_model_free(plain);
    mr_model_free(model);
}

ON_DEVICES(int8_steps_equal_the_whole, same_in_steps)

/* ---- what a model in 8 bits is */

/* The projection uses the gates' matrices as one: bytes and scales of a group are contiguous. */
static void the_layout_keeps_gates_together(void **state)
{
    (void)state;
    mr_dev *dev = open_device("cpu", 1, NULL);
    mr_config c = small_config(&forms[4].cell, &interface);
    mr_model *model;
    c.weights = MR_WEIGHTS_INT8;
    assert_int_equal(mr_model_new(&c, dev, MR_DECAY_MATRICES, &model, NULL), 0);
    const mr_params *params = mr_model_params(model);
    const mr_quants *quants = mr_model_quants(model);
    int matrices = 0, groups = 0;
    size_t bytes = 0;
    for (int i = 0; i < params->count; i++) {
        const mr_param *p = &params->list[i];
        if (!mr_param_quantizes(p)) continue;
        matrices++;
        bytes += p->count;
        assert_that(quants->at[i] + p->count, <=, quants->bytes);
        assert_that(p->offset + (size_t)p->shape[0], <=, params->total);
        if (!p->follows) continue;
        groups++;
        assert_int_equal(quants->at[i], quants->at[i - 1] + params->list[i - 1].count);
        assert_int_equal(p->offset, params->list[i - 1].offset + (size_t)params->list[i - 1].shape[0]);
    }
    assert_int_equal(matrices, 2 * 7 + 1); /* two blocks of: conv, three gates, down, up, down; and the head */
    assert_int_equal(groups, 2 * 2);
    assert_that(quants->bytes, >=, bytes);
    assert_that(quants->bytes, <, bytes + 64 * 16);
    assert_string_equal(mr_model_dtype(model, mr_params_find(params, "embed.weight")), "F32");
    assert_string_equal(mr_model_dtype(model, mr_params_find(params, "head.weight")), "I8");
    mr_model_free(model);
    mr_dev_close(dev);
}

static void int8_models_refuse_training(void **state)
{
    (void)state;
    mr_dev *dev = open_device("cpu", 1, NULL);
    mr_config c = small_config(&forms[0].cell, &interface);
    mr_error err = {0};
    mr_model *model;
    c.weights = MR_WEIGHTS_INT8;
    assert_int_equal(mr_model_new(&c, dev, MR_DECAY_MATRICES, &model, &err), 0);
    assert_int_equal(mr_model_plan(model, 1, 1, 1, &err), MR_ECONFIG);
    assert_non_null(strstr(err.text, "8-bit weights cannot be trained"));
    mr_model_free(model);
    mr_dev_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_matrix_is_rounded_by_rows), DEVICE_TESTS(int8_models_compute_like_fp32),
        DEVICE_TESTS(int8_steps_equal_the_whole), cmocka_unit_test(the_layout_keeps_gates_together),
        cmocka_unit_test(int8_models_refuse_training)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
