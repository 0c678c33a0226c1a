/* The scaler in files: models, models in 8 bits and states keep it bit for bit; invalid scalers are refused in one
 * line; and the second reader, which was written only from docs/format.md, computes the same scores. */
#include "support.h"
#include "scratch.h"

#include "model/file.h"
#include "skip_because.h"

enum { INPUTS = 3, OUTPUTS = 2, B = 4, T = 11 };

static const double input_mean[INPUTS] = {1e6 + 1.0 / 3, -3, 0.5}, input_scale[INPUTS] = {10, 0.25, 1e-3};
static const double target_mean[OUTPUTS] = {-2e5, 7}, target_scale[OUTPUTS] = {40, 0.01};

static mr_config config_for(mr_head head)
{
    const mr_interface interface = {MR_INPUT_REALS, INPUTS, head, MR_LOSS_MSE, OUTPUTS};
    mr_config c = config_with("mingru", &interface);
    c.layers = 2;
    c.dim = 8;
    c.head_bias = 1;
    return c;
}

static void set_scaler(mr_model *m, int sides)
{
    const int input = sides & MR_SCALER_INPUT, target = sides & MR_SCALER_TARGET;
    assert_int_equal(mr_model_set_scaler(m, input ? input_mean : NULL, input ? input_scale : NULL,
                                         target ? target_mean : NULL, target ? target_scale : NULL, NULL),
                     0);
}

static mr_model *model_with(mr_dev *dev, mr_head head, int sides, mr_output output)
{
    mr_config config = config_for(head);
    config.output = output;
    mr_model *m = make_model(&config, dev, B, T, 0);
    set_scaler(m, sides);
    return m;
}

static mr_model *model_for(mr_dev *dev, mr_head head, int sides)
{
    return model_with(dev, head, sides, MR_OUTPUT_LINEAR);
}

static float *weights_of(mr_model *m)
{
    float *weights = mr_alloc(mr_model_params(m)->total, sizeof *weights);
    assert_non_null(weights);
    mr_model_get(m, MR_WEIGHTS, weights);
    return weights;
}

static void write_model(mr_model *m, const char *path)
{
    float *weights = weights_of(m);
    mr_st_writer *w = mr_st_writer_new();
    assert_int_equal(mr_model_add_config(w, mr_model_config(m)), 0);
    assert_int_equal(mr_model_add_vector(w, "", mr_model_params(m), weights), 0);
    assert_int_equal(mr_model_add_scaler(w, m), 0);
    assert_int_equal(mr_st_write(w, path, NULL), 0);
    mr_st_writer_free(w);
    mr_free(weights);
}

/* A model as a program opens it. */
static int open_model(const char *path, mr_dev *dev, mr_model **out, mr_error *err)
{
    mr_config config;
    mr_st *st;
    *out = NULL;
    int status = mr_st_open(path, &st, err);
    if (!status) status = mr_model_read_config(st, path, &config, err);
    if (!status) status = mr_model_new(&config, dev, MR_DECAY_MATRICES, out, err);
    if (!status) status = mr_model_read_weights(*out, st, path, B, T, err);
    mr_st_close(st);
    if (status) mr_model_free(*out);
    return status;
}

static void same_file(const char *a, const char *b)
{
    char *left, *right;
    size_t n, m;
    assert_int_equal(mr_file_read(a, 1 << 24, &left, &n, NULL), 0);
    assert_int_equal(mr_file_read(b, 1 << 24, &right, &m, NULL), 0);
    assert_int_equal(n, m);
    assert_memory_equal(left, right, n);
    mr_free(left);
    mr_free(right);
}

static void same_pair(const double *got, const double *want, size_t n)
{
    if (!want) assert_null(got);
    else assert_memory_equal(got, want, n * sizeof *want);
}

static void same_scaler(const mr_model *got, const mr_model *want)
{
    const mr_scaler *a = mr_model_scaler(got), *b = mr_model_scaler(want);
    same_pair(a->input_mean, b->input_mean, INPUTS);
    same_pair(a->input_scale, b->input_scale, INPUTS);
    same_pair(a->target_mean, b->target_mean, OUTPUTS);
    same_pair(a->target_scale, b->target_scale, OUTPUTS);
    assert_int_equal(mr_model_config(got)->scaler, mr_model_config(want)->scaler);
}

static void models_keep_their_scaler(void **state)
{
    (void)state;
    mr_dev *dev = open_device("cpu", 1, NULL);
    char first[MR_TEXT_MAX], second[MR_TEXT_MAX];
    in_folder("first.safetensors", first);
    in_folder("second.safetensors", second);
    for (int sides = MR_SCALER_NONE; sides <= MR_SCALER_BOTH; sides++) {
        mr_model *m = model_for(dev, MR_HEAD_TOKEN, sides), *again;
        mr_error err = {0};
        mr_st *st;
        write_model(m, first);
        if (open_model(first, dev, &again, &err)) fail_msg("%s", err.text);
        same_scaler(again, m);
        write_model(again, second);
        same_file(first, second);
        assert_int_equal(mr_st_open(first, &st, NULL), 0);
        assert_int_equal(mr_st_meta(st, "model.scaler") != NULL, sides != MR_SCALER_NONE);
        assert_int_equal(mr_st_find(st, "scaler.input.mean") != NULL, (sides & MR_SCALER_INPUT) != 0);
        assert_int_equal(mr_st_find(st, "scaler.target.scale") != NULL, (sides & MR_SCALER_TARGET) != 0);
        mr_st_close(st);
        mr_model_free(again);
        mr_model_free(m);
    }
    mr_dev_close(dev);
}

/* ---- the state of a training: vectors with prefixes, and one scaler */

static const char *const prefixes[] = {"weights.", "moment1.", NULL};

static void write_state(mr_model *m, const char *path)
{
    float *weights = weights_of(m);
    mr_st_writer *w = mr_st_writer_new();
    assert_int_equal(mr_model_add_config(w, mr_model_config(m)), 0);
    for (int i = 0; prefixes[i]; i++)
        assert_int_equal(mr_model_add_vector(w, prefixes[i], mr_model_params(m), weights), 0);
    assert_int_equal(mr_model_add_scaler(w, m), 0);
    assert_int_equal(mr_st_write(w, path, NULL), 0);
    mr_st_writer_free(w);
    mr_free(weights);
}

static void states_keep_the_scaler(void **state)
{
    (void)state;
    mr_dev *dev = open_device("cpu", 1, NULL);
    char path[MR_TEXT_MAX];
    in_folder("state.safetensors", path);
    for (int sides = MR_SCALER_NONE; sides <= MR_SCALER_BOTH; sides++) {
        mr_model *m = model_for(dev, MR_HEAD_LAST, sides),
                 *other = model_for(dev, MR_HEAD_LAST, MR_SCALER_BOTH - sides);
        mr_st *st;
        mr_error err = {0};
        write_state(m, path);
        assert_int_equal(mr_st_open(path, &st, NULL), 0);
        if (mr_model_check_tensors(st, path, prefixes, mr_model_params(other), &err)) fail_msg("%s", err.text);
        if (mr_model_read_scaler(st, path, other, &err)) fail_msg("%s", err.text);
        same_scaler(other, m); /* whatever it had before */
        mr_st_close(st);
        mr_model_free(other);
        mr_model_free(m);
    }
    mr_dev_close(dev);
}

/* ---- in 8 bits */

/* Writes `plain` in 8 bits. */
static void write_int8(mr_model *plain, mr_dev *dev, const char *path)
{
    mr_config c = *mr_model_config(plain);
    const mr_scaler *s = mr_model_scaler(plain);
    mr_model *small;
    c.weights = MR_WEIGHTS_INT8;
    assert_int_equal(mr_model_new(&c, dev, MR_DECAY_ALL, &small, NULL), 0);
    assert_int_equal(mr_model_set_scaler(small, s->input_mean, s->input_scale, s->target_mean, s->target_scale, NULL),
                     0);
    const mr_params *to = mr_model_params(small);
    const mr_quants *quants = mr_model_quants(small);
    float *weights = weights_of(plain), *reals = mr_alloc(to->total, sizeof *reals);
    int8_t *bytes = mr_alloc(quants->bytes, 1);
    mr_st_writer *w = mr_st_writer_new();
    mr_quantize_vector(mr_model_params(plain), weights, to, quants, reals, bytes);
    assert_int_equal(mr_model_add_config(w, mr_model_config(small)), 0);
    assert_int_equal(mr_quants_add(w, to, quants, reals, bytes), 0);
    assert_int_equal(mr_model_add_scaler(w, small), 0);
    assert_int_equal(mr_st_write(w, path, NULL), 0);
    mr_st_writer_free(w);
    mr_free(weights);
    mr_free(reals);
    mr_free(bytes);
    mr_model_free(small);
}

/* Values near their means, so that scaled values are about 1. */
static mr_batch values_for(const mr_interface *interface, int scaled)
{
    mr_batch batch = make_batch(interface, B, T, 0, 0, 9);
    for (int i = 0; scaled && i < B * T * INPUTS; i++)
        batch.values[i] = (float)(batch.values[i] * input_scale[i % INPUTS] + input_mean[i % INPUTS]);
    return batch;
}

static size_t scores_of(mr_model *m, float scores[B * T * OUTPUTS])
{
    mr_batch batch = values_for(&m->interface, mr_model_scaler(m)->input_mean != NULL);
    const size_t rows = mr_batch_rows(&batch, m->interface.head);
    mr_model_forward(m, &batch, NULL, 0);
    mr_model_logits(m, scores, 0, rows);
    mr_batch_free(&batch);
    return rows * OUTPUTS;
}

static void int8_models_keep_the_scaler(void **state)
{
    (void)state;
    mr_dev *dev = open_device("cpu", 1, NULL);
    char path[MR_TEXT_MAX];
    float want[B * T * OUTPUTS], got[B * T * OUTPUTS];
    in_folder("int8.safetensors", path);
    for (int sides = MR_SCALER_NONE; sides <= MR_SCALER_BOTH; sides++) {
        mr_model *plain = model_for(dev, MR_HEAD_TOKEN, sides), *small;
        mr_error err = {0};
        write_int8(plain, dev, path);
        if (open_model(path, dev, &small, &err)) fail_msg("%s", err.text);
        assert_non_null(mr_model_quants(small));
        same_scaler(small, plain);
        size_t n = scores_of(plain, want);
        scores_of(small, got);
        for (size_t i = 0; i < n; i++) {
            const double unit = sides & MR_SCALER_TARGET ? target_scale[i % OUTPUTS] : 1;
            if (!(fabs((double)got[i] - want[i]) <= 0.1 * unit))
                fail_msg("scaler %d: score %zu is %g, wanted %g", sides, i, (double)got[i], (double)want[i]);
        }
        mr_model_free(small);
        mr_model_free(plain);
    }
    mr_dev_close(dev);
}

/* ---- refused */

typedef struct scaler_file {
    const char *says;   /* what the message must say; NULL: the file is read */
    mr_scaler_kind key; /* what the metadata says */
    int tensors;        /* how many of the four tensors there are, in the order of their names below */
    double mean, scale; /* of the first input */
    int64_t channels;   /* of the inputs' tensors */
    mr_st_dtype dtype;  /* of the inputs' mean */
} scaler_file;

static void write_odd(mr_model *m, const scaler_file *f, const char *path)
{
    static const char *const names[] = {"scaler.input.mean", "scaler.input.scale", "scaler.target.mean",
                                        "scaler.target.scale", "scaler.more"};
    const double mean[INPUTS + 1] = {f->mean, 1, 1, 1}, scale[INPUTS + 1] = {f->scale, 1, 1, 1};
    const int64_t outputs = OUTPUTS;
    mr_config config = *mr_model_config(m);
    float *weights = weights_of(m);
    mr_st_writer *w = mr_st_writer_new();
    config.scaler = f->key;
    assert_int_equal(mr_model_add_config(w, &config), 0);
    assert_int_equal(mr_model_add_vector(w, "", mr_model_params(m), weights), 0);
    for (int i = 0; i < f->tensors; i++)
        assert_int_equal(
            mr_st_add(w, names[i], i ? MR_ST_F64 : f->dtype, 1, i < 2 ? &f->channels : &outputs, i % 2 ? scale : mean),
            0);
    assert_int_equal(mr_st_write(w, path, NULL), 0);
    mr_st_writer_free(w);
    mr_free(weights);
}

static void unsound_scalers_are_refused(void **state)
{
    (void)state;
    const scaler_file files[] = {
        {NULL, MR_SCALER_BOTH, 4, 1, 1, INPUTS, MR_ST_F64},
        {"scaler: the input scale of channel 0 is 0;", MR_SCALER_BOTH, 4, 1, 0, INPUTS, MR_ST_F64},
        {"scaler: the input scale of channel 0 is -2;", MR_SCALER_INPUT, 2, 1, -2, INPUTS, MR_ST_F64},
        {"scaler: the input scale of channel 0 is inf;", MR_SCALER_INPUT, 2, 1, INFINITY, INPUTS, MR_ST_F64},
        {"scaler: the input mean of channel 0 is nan;", MR_SCALER_INPUT, 2, NAN, 1, INPUTS, MR_ST_F64},
        {"tensor scaler.input.mean does not have the shape", MR_SCALER_BOTH, 4, 1, 1, INPUTS + 1, MR_ST_F64},
        {"tensor scaler.input.mean is F32; minrnn reads F64", MR_SCALER_BOTH, 4, 1, 1, INPUTS, MR_ST_F32},
        {"has no tensor scaler.input.scale", MR_SCALER_INPUT, 1, 1, 1, INPUTS, MR_ST_F64},
        {"has no tensor scaler.target.mean", MR_SCALER_BOTH, 2, 1, 1, INPUTS, MR_ST_F64},
        {"has no tensor scaler.input.mean", MR_SCALER_INPUT, 0, 1, 1, INPUTS, MR_ST_F64},
        {"has 23 tensors, but its configuration needs 21", MR_SCALER_INPUT, 4, 1, 1, INPUTS, MR_ST_F64},
        {"has 21 tensors, but its configuration needs 19", MR_SCALER_NONE, 2, 1, 1, INPUTS, MR_ST_F64},
        {"has 24 tensors, but its configuration needs 23", MR_SCALER_BOTH, 5, 1, 1, INPUTS, MR_ST_F64},
    };
    mr_dev *dev = open_device("cpu", 1, NULL);
    mr_model *m = model_for(dev, MR_HEAD_LAST, MR_SCALER_NONE), *read;
    char path[MR_TEXT_MAX];
    in_folder("odd.safetensors", path);
    for (int i = 0; i < COUNT(files); i++) {
        mr_error err = {0};
        write_odd(m, &files[i], path);
        int status = open_model(path, dev, &read, &err);
        if (!files[i].says) {
            assert_int_equal(status, 0);
            mr_model_free(read);
            continue;
        }
        if (status != MR_EFORMAT) fail_msg("file %d: %d, not refused: it should say %s", i, status, files[i].says);
        assert_says(&err, path);
        assert_says(&err, files[i].says);
        assert_null(strchr(err.text, '\n'));
    }
    mr_model_free(m);
    mr_dev_close(dev);
}

/* Tokens, classes and values of tanh cannot be scaled: a file that claims otherwise is refused before its tensors are
 * read. */
static void scalers_without_values_are_refused(void **state)
{
    (void)state;
    static const struct {
        mr_interface interface;
        mr_output output;
        mr_scaler_kind key;
        const char *says;
    } cases[] = {{{MR_INPUT_TOKENS, 5, MR_HEAD_LAST, MR_LOSS_MSE, 2},
                  MR_OUTPUT_LINEAR,
                  MR_SCALER_BOTH,
                  "scaler = both: tokens cannot be scaled"},
                 {{MR_INPUT_REALS, 5, MR_HEAD_LAST, MR_LOSS_XENT, 2},
                  MR_OUTPUT_LINEAR,
                  MR_SCALER_TARGET,
                  "scaler = target: classes cannot be scaled"},
                 {{MR_INPUT_REALS, 5, MR_HEAD_LAST, MR_LOSS_MSE, 2},
                  MR_OUTPUT_TANH,
                  MR_SCALER_BOTH,
                  "scaler = both: output = tanh predicts between -1 and 1"}};
    mr_dev *dev = open_device("cpu", 1, NULL);
    char path[MR_TEXT_MAX];
    in_folder("nothing.safetensors", path);
    for (int i = 0; i < COUNT(cases); i++) {
        mr_error err = {0};
        mr_config config = config_with("mingru", &cases[i].interface);
        mr_model *read;
        mr_st_writer *w = mr_st_writer_new();
        config.scaler = cases[i].key;
        config.output = cases[i].output;
        assert_int_equal(mr_model_add_config(w, &config), 0);
        assert_int_equal(mr_st_write(w, path, NULL), 0);
        mr_st_writer_free(w);
        assert_int_equal(open_model(path, dev, &read, &err), MR_EFORMAT);
        assert_says(&err, cases[i].says);
        assert_int_equal(mr_model_new(&config, dev, MR_DECAY_ALL, &read, &err), MR_ECONFIG);
    }
    mr_dev_close(dev);
}

/* ---- the second reader */

static const char *python(void)
{
    static const char *const names[] = {"python3", "/usr/bin/python3"};
    for (int i = 0; i < COUNT(names); i++) {
        char command[128];
        snprintf(command, sizeof command, "%s -c 'import numpy' 2>/dev/null", names[i]);
        if (system(command) == 0) return names[i];
    }
    return NULL;
}

static void write_values(const mr_batch *batch, const char *path)
{
    FILE *to = fopen(path, "w");
    assert_non_null(to);
    for (int i = 0; i < B * T * INPUTS; i++) {
        const char *before = i == 0 ? "[[[" : i % (T * INPUTS) == 0 ? "]],[[" : i % INPUTS == 0 ? "],[" : ",";
        fprintf(to, "%s%.9g", before, (double)batch->values[i]);
    }
    fprintf(to, "]]]");
    assert_int_equal(fclose(to), 0);
}

/* Runs the reader, which prints one number per line. */
static void read_scores(const char *with, const char *model, const char *values, double *scores, size_t n)
{
    char command[4 * MR_TEXT_MAX], line[128];
    snprintf(command, sizeof command, "%s '%s/tests/reader.py' '%s' --values '%s'", with, MINRNN_SOURCE_DIR, model,
             values);
    FILE *from = popen(command, "r");
    size_t count = 0;
    assert_non_null(from);
    while (count < n && fgets(line, sizeof line, from)) scores[count++] = strtod(line, NULL);
    assert_null(fgets(line, sizeof line, from));
    assert_int_equal(pclose(from), 0);
    assert_int_equal(count, n);
}

static void check_reader(const char *with, mr_model *m, const char *model, const char *values, double tolerance)
{
    mr_batch batch = values_for(&m->interface, mr_model_scaler(m)->input_mean != NULL);
    float got[B * T * OUTPUTS];
    double want[B * T * OUTPUTS];
    const size_t n = scores_of(m, got);
    const double *scale = mr_model_scaler(m)->target_scale, *mean = mr_model_scaler(m)->target_mean;
    write_values(&batch, values);
    read_scores(with, model, values, want, n);
    for (size_t i = 0; i < n; i++) {
        const double unit = scale ? scale[i % OUTPUTS] : 1, ulp = mean ? fabs(mean[i % OUTPUTS]) * 0x1p-23 : 0;
        if (!(fabs(got[i] - want[i]) <= tolerance * unit + ulp))
            fail_msg("head %d, scaler %d, score %zu: %.9g, and %.9g by the page", m->interface.head, m->config.scaler,
                     i, (double)got[i], want[i]);
    }
    mr_batch_free(&batch);
}

static void the_second_reader_computes_the_same(void **state)
{
    (void)state;
    const char *with = python();
    if (!with) {
        skip_because("no python3 with numpy here; docs/format.md WAS NOT TESTED");
    }
    mr_dev *dev = open_device("ref", 1, NULL); /* ref does not round activations to 8 bits */
    char plain[MR_TEXT_MAX], small[MR_TEXT_MAX], values[MR_TEXT_MAX];
    in_folder("read.safetensors", plain);
    in_folder("read8.safetensors", small);
    in_folder("values.json", values);
    for (int i = 0; i < 5; i++) {
        const int sides = i == 4 ? MR_SCALER_BOTH : MR_SCALER_BOTH - i;
        const mr_output output = sides & MR_SCALER_TARGET ? MR_OUTPUT_LINEAR : MR_OUTPUT_TANH;
        mr_model *m = model_with(dev, (mr_head)i, sides, output), *eight;
        mr_error err = {0};
        write_model(m, plain);
        write_int8(m, dev, small);
        check_reader(with, m, plain, values, 2e-5);
        if (open_model(small, dev, &eight, &err)) fail_msg("%s", err.text);
        check_reader(with, eight, small, values, 2e-5);
        mr_model_free(eight);
        mr_model_free(m);
    }
    mr_dev_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_keep_their_scaler),           cmocka_unit_test(states_keep_the_scaler),
        cmocka_unit_test(int8_models_keep_the_scaler),        cmocka_unit_test(unsound_scalers_are_refused),
        cmocka_unit_test(scalers_without_values_are_refused), cmocka_unit_test(the_second_reader_computes_the_same)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
