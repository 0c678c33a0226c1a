/* The parameters of a model: where they lie in their vector; and the head's bias, how it is stored and starts. */
#include "support.h"
#include "scratch.h"

#include "model/file.h"

static const mr_interface text = {MR_INPUT_TOKENS, 7, MR_HEAD_TOKEN, MR_LOSS_XENT, 7};

static mr_model *model_with(int bias, mr_decay_set set, mr_dev *dev)
{
    mr_config c = config_with("minlstm", &text);
    mr_error err = {0};
    mr_model *model;
    c.dim = 6;
    c.layers = 2;
    c.h0_learned = 1;
    c.head_bias = bias;
    strcpy(c.gate_init, "timescales");
    if (mr_model_new(&c, dev, set, &model, &err)) fail_msg("%s", err.text);
    return model;
}

static float *start_of(const mr_model *model)
{
    float *weights = mr_alloc(mr_model_params(model)->total, sizeof *weights);
    assert_non_null(weights);
    mr_model_init_weights(model, 3, 100, weights);
    return weights;
}

/* Every other parameter starts with the same bits and, in the usual decay set, keeps its offset. */
static void other_parameters_start_the_same(void **state)
{
    (void)state;
    mr_dev *dev = open_device("cpu", 1, NULL);
    for (int set = MR_DECAY_MATRICES; set <= MR_DECAY_ALL; set++) {
        mr_model *without = model_with(0, (mr_decay_set)set, dev), *with = model_with(1, (mr_decay_set)set, dev);
        const mr_params *old = mr_model_params(without), *new = mr_model_params(with);
        float *before = start_of(without), *after = start_of(with);
        assert_int_equal(mr_params_find(old, "head.bias"), -1);
        assert_int_equal(new->count, old->count + 1);
        for (int i = 0; i < old->count; i++) {
            const mr_param *a = &old->list[i], *b = &new->list[i];
            assert_string_equal(a->name, b->name);
            assert_memory_equal(before + a->offset, after + b->offset, a->count * sizeof *before);
            if (set == MR_DECAY_MATRICES) assert_int_equal(a->offset, b->offset);
        }
        const mr_param *bias = &new->list[new->count - 1];
        assert_string_equal(bias->name, "head.bias");
        assert_that(bias->ndim, ==, 1);
        assert_that(bias->shape[0], ==, text.outputs);
        assert_int_equal(bias->decay, set != MR_DECAY_MATRICES);
        for (size_t i = 0; i < bias->count; i++) assert_that(after[bias->offset + i], ==, 0);
        mr_free(before);
        mr_free(after);
        mr_model_free(without);
        mr_model_free(with);
    }
    mr_dev_close(dev);
}

/* The key is written only with a bias, and read back; a file with the key but no bias, or the reverse, is refused. */
static void files_keep_the_bias(void **state)
{
    (void)state;
    mr_dev *dev = open_device("cpu", 1, NULL);
    mr_error err = {0};
    for (int bias = 0; bias < 2; bias++) {
        mr_model *model = model_with(bias, MR_DECAY_MATRICES, dev), *other = model_with(!bias, MR_DECAY_MATRICES, dev);
        float *weights = start_of(model);
        char path[MR_TEXT_MAX];
        mr_st *st;
        mr_config config;
        in_folder("model.safetensors", path);
        mr_st_writer *w = mr_st_writer_new();
        assert_int_equal(mr_model_add_config(w, mr_model_config(model)), 0);
        assert_int_equal(mr_model_add_vector(w, "", mr_model_params(model), weights), 0);
        assert_int_equal(mr_st_write(w, path, &err), 0);
        mr_st_writer_free(w);
        assert_int_equal(mr_st_open(path, &st, &err), 0);
        assert_int_equal(mr_st_meta(st, "model.head-bias") != NULL, bias);
        assert_int_equal(mr_st_find(st, "head.bias") != NULL, bias);
        assert_int_equal(mr_model_read_config(st, path, &config, &err), 0);
        assert_int_equal(config.head_bias, bias);
        assert_int_equal(mr_model_read_weights(model, st, path, 1, 1, &err), 0);
        assert_int_equal(mr_model_read_weights(other, st, path, 1, 1, &err), MR_EFORMAT);
        mr_st_close(st);
        mr_free(weights);
        mr_model_free(model);
        mr_model_free(other);
    }
    mr_dev_close(dev);
}

static void int8_keeps_the_bias_in_fp32(void **state)
{
    (void)state;
    mr_dev *dev = open_device("cpu", 1, NULL);
    mr_model *plain = model_with(1, MR_DECAY_MATRICES, dev), *model;
    mr_config config = *mr_model_config(plain);
    config.weights = MR_WEIGHTS_INT8;
    assert_int_equal(mr_model_new(&config, dev, MR_DECAY_MATRICES, &model, NULL), 0);
    assert_string_equal(mr_model_dtype(model, mr_params_find(mr_model_params(model), "head.bias")), "F32");
    assert_string_equal(mr_model_dtype(model, mr_params_find(mr_model_params(model), "head.weight")), "I8");
    mr_model_free(model);
    mr_model_free(plain);
    mr_dev_close(dev);
}

/* Each parameter begins a cache line, or directly follows another; nothing overlaps, and no line is left out. */
static void parameters_lie_close_together(void **state)
{
    (void)state;
    const size_t line = MR_ALIGN / sizeof(float);
    mr_dev *dev = open_device("cpu", 1, NULL);
    for (int set = MR_DECAY_MATRICES; set <= MR_DECAY_ALL; set++) {
        mr_model *model = model_with(1, (mr_decay_set)set, dev);
        const mr_params *params = mr_model_params(model);
        size_t lines = 0, used[4096] = {0};
        assert_that(params->total, <=, 4096 * line);
        assert_int_equal(params->total % line + params->decayed % line, 0);
        for (int i = 0; i < params->count; i++) {
            const mr_param *p = &params->list[i], *before = p - 1;
            if (p->follows) assert_int_equal(p->offset, before->offset + before->count);
            else assert_int_equal(p->offset % line, 0);
            assert_int_equal(p->decay, p->offset < params->decayed);
            for (size_t at = p->offset; at < p->offset + p->count; at++) used[at / line]++;
        }
        for (size_t at = 0; at < params->total / line; at++) {
            assert_that(used[at], <=, line);
            lines += used[at] > 0;
        }
        assert_int_equal(lines * line, params->total);
        mr_model_free(model);
    }
    mr_dev_close(dev);
}

static void a_wrong_configuration_makes_no_model(void **state)
{
    (void)state;
    mr_error err = {0};
    mr_dev *dev = open_device("cpu", 1, NULL);
    mr_model *plain = model_with(1, MR_DECAY_MATRICES, dev), *model = plain;
    mr_config config = *mr_model_config(plain);
    config.conv = 17;
    assert_int_equal(mr_model_new(&config, dev, MR_DECAY_MATRICES, &model, &err), MR_ECONFIG);
    assert_null(model);
    assert_non_null(strstr(err.text, "conv = 17"));
    mr_model_free(plain);
    mr_dev_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_parameters_start_the_same), cmocka_unit_test(a_wrong_configuration_makes_no_model),
        cmocka_unit_test(parameters_lie_close_together), cmocka_unit_test(files_keep_the_bias),
        cmocka_unit_test(int8_keeps_the_bias_in_fp32)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
