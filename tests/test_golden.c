/* Cells, whole models and optimisers compared with PyTorch in float64 (files of golden/make_golden.py): on ref64 to the
 * last digits, on the other devices to fp32 precision. */
#include "support.h"

#include "core/safetensors.h"

static double exactness(const mr_dev *dev) { return dev->real_size == sizeof(double) ? 1e-10 : 2e-5; }

/* ---- reading */

static mr_st *open_golden(const char *name)
{
    char path[1024];
    mr_error err = {0};
    mr_st *st;
    snprintf(path, sizeof path, "%s/tests/golden/%s.safetensors", MINRNN_SOURCE_DIR, name);
    if (mr_st_open(path, &st, &err)) fail_msg("%s", err.text);
    return st;
}

static const mr_st_tensor *tensor(const mr_st *st, const char *name)
{
    const mr_st_tensor *found = mr_st_find(st, name);
    if (!found) fail_msg("no tensor %s in the golden file", name);
    return found;
}

static size_t count_of(const mr_st_tensor *t)
{
    size_t n = 1;
    for (int i = 0; i < t->ndim; i++) n *= (size_t)t->shape[i];
    return n;
}

static double *doubles(bag *own, const mr_st *st, const char *name)
{
    const mr_st_tensor *t = tensor(st, name);
    assert_int_equal(t->dtype, MR_ST_F64);
    double *values = bag_host(own, count_of(t));
    assert_int_equal(mr_st_read(st, name, t, values, NULL), 0);
    return values;
}

/* How to name a value that is off. */
typedef struct label {
    char text[256];
} label;

static label label_of(const mr_dev *dev, const char *file, const char *what)
{
    label l;
    snprintf(l.text, sizeof l.text, "%s %s: %s: %s", dev->kind, dev->isa, file, what);
    return l;
}

/* ---- cells */

typedef struct golden_cell {
    bag bag;
    mr_st *st;
    mr_cell cell;
    int B, T, D, H;
    const char *begin; /* zero, learned, given */
    int resets;
    char name[128]; /* prefix of its tensors */
} golden_cell;

static void check_output(golden_cell *c, const char *what, const void *got, size_t n)
{
    char name[192];
    snprintf(name, sizeof name, "%s.%s", c->name, what);
    const mr_st_tensor *t = tensor(c->st, name);
    assert_int_equal(count_of(t), n);
    check_near(label_of(c->bag.dev, "cells", name).text, bag_get(&c->bag, got, n), doubles(&c->bag, c->st, name), n,
               exactness(c->bag.dev));
}

static void *zeros(bag *own, size_t n) { return bag_device(own, n * own->dev->real_size); }

static void check_cell(golden_cell *c)
{
    bag *own = &c->bag;
    mr_dev *dev = own->dev;
    size_t B = (size_t)c->B, T = (size_t)c->T, D = (size_t)c->D, H = (size_t)c->H, G = (size_t)mr_cell_gates(&c->cell);
    int given = !strcmp(c->begin, "given"), learned = strcmp(c->begin, "zero") != 0;
    uint8_t *reset = c->resets ? bag_device(own, B * T) : NULL;
    if (reset) {
        void *host = bag_host(own, B * T);
        assert_int_equal(mr_st_read(c->st, "reset", tensor(c->st, "reset"), host, NULL), 0);
        dev->upload(dev, reset, host, B * T);
    }
    mr_minrnn_fwd_args f = {.cell = c->cell,
                            .B = c->B,
                            .T = c->T,
                            .D = c->D,
                            .H = c->H,
                            .x = bag_put(own, doubles(own, c->st, "x"), B * T * D),
                            .W = bag_put(own, doubles(own, c->st, "W"), G * H * D),
                            .b = bag_put(own, doubles(own, c->st, "b"), G * H),
                            .h_in = given ? bag_put(own, doubles(own, c->st, "h_in"), B * H) : NULL,
                            .h_init = learned ? bag_put(own, doubles(own, c->st, "h_init"), H) : NULL,
                            .reset = reset,
                            .saved = bag_device(own, dev->minrnn_saved(dev, &c->cell, c->B, c->T, c->D, c->H)),
                            .h = bag_poisoned(own, B * T * H),
                            .h_out = bag_poisoned(own, B * H)};
    dev->ops.minrnn_fwd(dev, &f);
    check_output(c, "h", f.h, B * T * H);
    double *h = bag_get(own, f.h, B * T * H), *h_out = bag_get(own, f.h_out, B * H);
    for (size_t b = 0; b < B; b++) check_near("h_out", h_out + b * H, h + (b * T + T - 1) * H, H, exactness(dev));
    mr_minrnn_bwd_args g = {.cell = c->cell,
                            .B = c->B,
                            .T = c->T,
                            .D = c->D,
                            .H = c->H,
                            .x = f.x,
                            .W = f.W,
                            .b = f.b,
                            .h_in = f.h_in,
                            .h_init = f.h_init,
                            .reset = reset,
                            .saved = f.saved,
                            .h = f.h,
                            .dh = bag_put(own, doubles(own, c->st, "dh"), B * T * H),
                            .dh_out = bag_put(own, doubles(own, c->st, "dh_out"), B * H),
                            .dx = bag_poisoned(own, B * T * D),
                            .dW = zeros(own, G * H * D),
                            .db = zeros(own, G * H),
                            .dh_in = given ? bag_poisoned(own, B * H) : NULL,
                            .dh_init = learned ? zeros(own, H) : NULL};
    dev->ops.minrnn_bwd(dev, &g);
    check_output(c, "dx", g.dx, B * T * D);
    check_output(c, "dW", g.dW, G * H * D);
    check_output(c, "db", g.db, G * H);
    if (given) check_output(c, "dh_in", g.dh_in, B * H);
    if (learned) check_output(c, "dh_init", g.dh_init, H);
}

/* transition: which of two files, and which of the forms. */
static void check_cells_with(mr_dev *dev, mr_transition transition)
{
    static const char *const candidates[] = {"positive", "linear", "tanh"}, *const scans[] = {"linear", "log"};
    static const struct {
        const char *begin;
        int resets;
    } begins[] = {{"zero", 0}, {"learned", 1}, {"given", 1}, {"given", 0}};
    mr_st *st = open_golden(transition == MR_TRANSITION_SIGNED ? "cells_signed" : "cells");
    const int64_t *x = tensor(st, "x")->shape, *init = tensor(st, "h_init")->shape;
    for (int i = 0; i < COUNT(forms); i++)
        for (int j = 0; j < COUNT(begins); j++) {
            mr_cell cell = forms[i].cell;
            if (cell.transition != transition) continue;
            golden_cell c = {.bag = {.dev = dev},
                             .st = st,
                             .cell = cell,
                             .B = (int)x[0],
                             .T = (int)x[1],
                             .D = (int)x[2],
                             .H = (int)init[0],
                             .begin = begins[j].begin,
                             .resets = begins[j].resets};
            snprintf(c.name, sizeof c.name, "%s%s%s.%s.%s.%s.%s", cell.kind == MR_MINGRU ? "mingru" : "minlstm",
                     cell.normalize ? "_normalised" : "", transition == MR_TRANSITION_SIGNED ? "_signed" : "",
                     candidates[cell.candidate], scans[cell.scan], c.begin, c.resets ? "resets" : "whole");
            check_cell(&c);
            bag_empty(&c.bag);
        }
    mr_st_close(st);
}

static void check_cells(mr_dev *dev)
{
    check_cells_with(dev, MR_TRANSITION_POSITIVE);
    check_cells_with(dev, MR_TRANSITION_SIGNED);
}

/* ---- models */

typedef struct golden_model {
    const char *file;
    mr_cell cell;
    mr_conv_place place;
    mr_norm norm;
    const char *mixer; /* a mixer without a cell, or NULL */
} golden_model;

static const golden_model models[] = {
    {"model_mingru_inside_rms",
     {.kind = MR_MINGRU, .candidate = MR_POSITIVE, .normalize = 0},
     MR_CONV_INSIDE,
     MR_NORM_RMS,
     NULL},
    {"model_mingru_residual_layer",
     {.kind = MR_MINGRU, .candidate = MR_LINEAR, .normalize = 0},
     MR_CONV_RESIDUAL,
     MR_NORM_LAYER,
     NULL},
    {"model_minlstm_inside_layer",
     {.kind = MR_MINLSTM, .candidate = MR_POSITIVE, .normalize = 1},
     MR_CONV_INSIDE,
     MR_NORM_LAYER,
     NULL},
    {"model_minlstm_residual_rms",
     {.kind = MR_MINLSTM, .candidate = MR_TANH, .normalize = 0},
     MR_CONV_RESIDUAL,
     MR_NORM_RMS,
     NULL},
    {"model_mamba_inside_rms", {0}, MR_CONV_INSIDE, MR_NORM_RMS, "mamba"},
};

/* The values of "weight." or "grad." plus a parameter's name. */
static double *golden_param(bag *own, const mr_st *st, const char *prefix, const mr_param *p)
{
    char name[128];
    snprintf(name, sizeof name, "%s%s", prefix, p->name);
    const mr_st_tensor *t = tensor(st, name);
    assert_int_equal(t->ndim, p->ndim);
    for (int i = 0; i < p->ndim; i++) assert_int_equal(t->shape[i], p->shape[i]);
    return doubles(own, st, name);
}

static void load_weights(bag *own, const mr_st *st, mr_model *model)
{
    const mr_params *params = mr_model_params(model);
    int in_file = 0;
    for (int i = 0; i < mr_st_count(st); i++) in_file += !strncmp(mr_st_at(st, i)->name, "weight.", 7);
    assert_int_equal(in_file, params->count);
    for (int i = 0; i < params->count; i++) {
        const mr_param *p = &params->list[i];
        put_doubles(own->dev, mr_real_at(own->dev, model->weights, p->offset), golden_param(own, st, "weight.", p),
                    p->count);
    }
}

static void check_run(bag *own, const char *file, const mr_st *st, mr_model *model, const mr_batch *batch)
{
    const mr_params *params = mr_model_params(model);
    const mr_dev *dev = own->dev;
    double stats[MR_STATS], tolerance = exactness(dev);
    size_t logits = count_of(tensor(st, "logits"));
    mr_model_zero_stats(model);
    mr_model_zero_grads(model);
    mr_model_forward(model, batch, NULL, 1);
    check_near(label_of(dev, file, "logits").text, bag_get(own, model->logits, logits), doubles(own, st, "logits"),
               logits, tolerance);
    mr_model_loss(model, batch, 1.0 / (double)batch->counted);
    mr_model_backward(model, batch, NULL, NULL);
    mr_model_stats(model, stats);
    assert_that(stats[MR_STAT_COUNT], ==, (double)batch->counted);
    check_near(label_of(dev, file, "loss").text, &(double){stats[MR_STAT_LOSS] / stats[MR_STAT_COUNT]},
               doubles(own, st, "loss"), 1, tolerance);
    for (int i = 0; i < params->count; i++) {
        const mr_param *p = &params->list[i];
        check_near(label_of(dev, file, p->name).text, bag_get(own, mr_real_at(dev, model->grads, p->offset), p->count),
                   golden_param(own, st, "grad.", p), p->count, tolerance);
    }
}

static void check_model(const golden_model *golden, mr_dev *dev)
{
    bag own = {.dev = dev};
    mr_st *st = open_golden(golden->file);
    const mr_st_tensor *ids = tensor(st, "ids"), *target = tensor(st, "target");
    int B = (int)ids->shape[0], T = (int)ids->shape[1], vocab = (int)tensor(st, "weight.embed.weight")->shape[0];
    mr_interface interface = {
        .input = MR_INPUT_TOKENS, .inputs = vocab, .head = MR_HEAD_TOKEN, .loss = MR_LOSS_XENT, .outputs = vocab};
    mr_config config = golden->mixer ? config_with(golden->mixer, &interface) : config_of(&golden->cell, &interface);
    config.layers = 2;
    config.dim = tensor(st, "weight.embed.weight")->shape[1];
    config.conv = 4;
    config.conv_place = golden->place;
    config.norm = golden->norm;
    config.mlp = 2;
    config.h0_learned = !golden->mixer;
    if (golden->mixer) config.states = tensor(st, "weight.blocks.0.mixer.A_log")->shape[1];
    mr_model *model = make_model(&config, dev, B, T, 1);
    mr_batch batch = make_batch(&interface, B, T, 0, 0, 1);
    assert_int_equal(mr_st_read(st, "ids", ids, batch.ids, NULL), 0);
    assert_int_equal(mr_st_read(st, "target", target, batch.target, NULL), 0);
    batch.counted = 0;
    for (int i = 0; i < B * T; i++) batch.counted += batch.target[i] >= 0;
    load_weights(&own, st, model);
    check_run(&own, golden->file, st, model, &batch);
    bag_empty(&own);
    mr_batch_free(&batch);
    mr_model_free(model);
    mr_st_close(st);
}

static void check_models(mr_dev *dev)
{
    for (int i = 0; i < COUNT(models); i++) check_model(&models[i], dev);
}

/* ---- optimisers: the settings are those of make_adam() in make_golden.py */

static void check_optimizer(mr_dev *dev, const mr_st *st, const char *name, int decoupled)
{
    bag own = {.dev = dev};
    size_t n = count_of(tensor(st, "start"));
    int steps = (int)tensor(st, "grads")->shape[0];
    double *grads = doubles(&own, st, "grads"), *want = doubles(&own, st, name);
    void *p = bag_put(&own, doubles(&own, st, "start"), n), *m = zeros(&own, n), *v = zeros(&own, n),
         *g = zeros(&own, n);
    mr_step *step = bag_device(&own, sizeof *step);
    double *sumsq = bag_device(&own, sizeof *sumsq);
    for (int t = 1; t <= steps; t++) {
        mr_step now = {.lr = 0.03,
                       .beta1 = 0.9,
                       .beta2 = 0.99,
                       .eps = 1e-6,
                       .weight_decay = 0.2,
                       .clip = 1,
                       .bias1 = 1 - pow(0.9, t),
                       .bias2 = 1 - pow(0.99, t),
                       .decoupled = decoupled};
        dev->upload(dev, step, &now, sizeof now);
        put_doubles(dev, g, grads + (size_t)(t - 1) * n, n);
        dev->ops.sumsq(dev, &(mr_sumsq_args){.n = n, .g = g, .out = sumsq});
        dev->ops.adam(
            dev, &(mr_adam_args){.n = n, .n_decay = 6, .p = p, .m = m, .v = v, .g = g, .step = step, .sumsq = sumsq});
        check_near(label_of(dev, "adam", name).text, bag_get(&own, p, n), want + (size_t)(t - 1) * n, n,
                   dev->real_size == sizeof(double) ? 1e-13 : 1e-6);
    }
    bag_empty(&own);
}

static void check_optimizers(mr_dev *dev)
{
    mr_st *st = open_golden("adam");
    check_optimizer(dev, st, "adam", 0);
    check_optimizer(dev, st, "adamw", 1);
    mr_st_close(st);
}

ON_DEVICES_REF64(cells_agree_with_pytorch, check_cells)
ON_DEVICES_REF64(models_agree_with_pytorch, check_models)
ON_DEVICES_REF64(optimizers_agree_with_pytorch, check_optimizers)

int main(void)
{
    const struct CMUnitTest tests[] = {
        DEVICE_TESTS(cells_agree_with_pytorch),
        DEVICE_TESTS(models_agree_with_pytorch),
        DEVICE_TESTS(optimizers_agree_with_pytorch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
