/* How a Mamba layer starts, and that its rates are not treated as matrices: neither decayed nor rounded to 8 bits. Its
 * other laws are in test_gradients.c, test_model_laws.c and test_golden.c. */
#include "support.h"

static const mr_interface text = {MR_INPUT_TOKENS, 11, MR_HEAD_TOKEN, MR_LOSS_XENT, 11};

static mr_model *mamba_model(mr_dev *dev, mr_decay_set set)
{
    mr_error err = {0};
    mr_model *model;
    mr_config c = config_with("mamba", &text);
    c.layers = 1;
    c.dim = 40;
    c.states = 7;
    if (mr_model_new(&c, dev, set, &model, &err)) fail_msg("%s", err.text);
    return model;
}

static const mr_param *param_of(const mr_model *model, const char *name)
{
    const mr_params *params = mr_model_params(model);
    char full[64];
    snprintf(full, sizeof full, "blocks.0.mixer.%s", name);
    int row = mr_params_find(params, full);
    if (row < 0) fail_msg("no parameter %s", full);
    return &params->list[row];
}

static void layers_start_as_published(void **state)
{
    (void)state;
    mr_dev *dev = open_device("ref", 1, NULL);
    mr_model *model = mamba_model(dev, MR_DECAY_MATRICES);
    const mr_params *params = mr_model_params(model);
    float *start = mr_alloc(params->total, sizeof *start);
    assert_non_null(start);
    mr_params_init(params, 3, 100, 1, start);
    const float *A_log = start + param_of(model, "A_log")->offset, *D = start + param_of(model, "D")->offset;
    const mr_param *bias = param_of(model, "dt_proj.bias"), *weight = param_of(model, "dt_proj.weight");
    int in_decade[2] = {0, 0};
    assert_int_equal(weight->shape[1], 3); /* 40 channels of the stream, rank 40/16 rounded up */
    for (size_t e = 0; e < 80; e++) {
        for (int n = 0; n < 7; n++) assert_true(near(A_log[e * 7 + (size_t)n], log(n + 1), 1e-6));
        double step = log1p(exp(start[bias->offset + e]));
        assert_that(D[e], ==, 1);
        assert_that(step, >=, 0.00099);
        assert_that(step, <=, 0.1001);
        in_decade[step > 0.01]++;
    }
    assert_that(in_decade[0], >, 20);
    assert_that(in_decade[1], >, 20);
    double most = 0;
    for (size_t i = 0; i < weight->count; i++) most = fmax(most, fabs(start[weight->offset + i]));
    assert_that(most, >, 0.5);
    assert_that(most, <=, 1 / sqrt(3) + 1e-6);
    mr_free(start);
    mr_model_free(model);
    mr_dev_close(dev);
}

static void rates_are_neither_decayed_nor_rounded(void **state)
{
    (void)state;
    mr_dev *dev = open_device("ref", 1, NULL);
    for (int set = MR_DECAY_MATRICES; set <= MR_DECAY_ALL; set++) {
        mr_model *model = mamba_model(dev, (mr_decay_set)set);
        assert_int_equal(param_of(model, "A_log")->decay, 0);
        assert_int_equal(param_of(model, "D")->decay, 0);
        assert_int_equal(param_of(model, "in_proj.weight")->decay, 1);
        assert_int_equal(mr_param_quantizes(param_of(model, "A_log")), 0);
        assert_int_equal(mr_param_quantizes(param_of(model, "x_proj.weight")), 1);
        mr_model_free(model);
    }
    mr_dev_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(layers_start_as_published),
                                       cmocka_unit_test(rates_are_neither_decayed_nor_rounded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
