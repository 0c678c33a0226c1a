/* Whole models: a training step, decoding one token after another, and the memory that a step takes. */
#include "bench/bench.h"

#include "core/mem.h"
#include "model/model.h"
#include "model/quantize.h"

#include <stdio.h>
#include <string.h>

/* The two models of the project's targets: a character language model and the one of selective copying. */
typedef struct shape {
    const char *name;
    int dim, expansion, conv, mlp, vocab, B, T, mixer;
} shape;

static const shape shapes[] = {{"text", 384, 2, 4, 4, 65, 64, 256, 0}, {"copy", 64, 6, 0, 0, 16, 64, 512, 0},
                               /* only where there is room and speed for them */
                               {"text", 384, 2, 4, 4, 65, 64, 1024, 0}, {"copy", 64, 6, 0, 0, 16, 64, 4096, 0},
                               {"copy minlstm", 64, 6, 0, 0, 16, 64, 4096, 1}};
enum { LAYERS = 3 };

static int shape_count(const mr_bench *b) { return !strcmp(b->dev->kind, "cuda") && !b->quick ? 5 : 2; }

typedef struct subject {
    mr_model *model;
    mr_state *state;
    mr_batch batch;
    mr_step step;
} subject;

static void close_subject(subject *s)
{
    mr_state_free(s->state);
    mr_model_free(s->model);
    mr_batch_free(&s->batch);
}

/* The same weights in 8 bits for a model that wants them so. */
static int put_int8(mr_model *model, const mr_params *from, const float *weights, mr_error *err)
{
    const mr_params *params = mr_model_params(model);
    const mr_quants *quants = mr_model_quants(model);
    float *reals = mr_alloc(params->total, sizeof *reals);
    int8_t *bytes = mr_alloc(quants->bytes, 1);
    int status = reals && bytes ? 0 : mr_no_memory(err, "the weights");
    if (status == 0) {
        mr_quantize_vector(from, weights, params, quants, reals, bytes);
        mr_model_put(model, MR_WEIGHTS, reals);
        mr_model_put_bytes(model, bytes);
    }
    mr_free(reals);
    mr_free(bytes);
    return status;
}

static int put_weights(mr_model *model, mr_error *err)
{
    mr_config config = *mr_model_config(model);
    mr_model *plain; /* for the table of the fp32 weights */
    config.weights = MR_WEIGHTS_F32;
    int status = mr_model_new(&config, mr_model_dev(model), MR_DECAY_MATRICES, &plain, err);
    if (status) return status;
    const mr_params *params = mr_model_params(plain);
    float *weights = mr_alloc(params->total, sizeof *weights);
    if (!weights) status = mr_no_memory(err, "the weights");
    if (weights) mr_params_init(params, 1, 256, 1, weights);
    if (weights && mr_model_quants(model)) status = put_int8(model, params, weights, err);
    else if (weights) mr_model_put(model, MR_WEIGHTS, weights);
    mr_free(weights);
    mr_model_free(plain);
    return status;
}

static void fill_batch(mr_batch *batch, int vocab)
{
    for (int i = 0; i < batch->B * batch->T; i++) {
        batch->ids[i] = i * 7 % vocab;
        batch->target[i] = (i * 7 + 7) % vocab;
    }
    batch->counted = (int64_t)batch->B * batch->T;
}

static int open_subject(subject *s, mr_dev *dev, const shape *what, int B, int T, int train, int weights, mr_error *err)
{
    mr_interface face = {MR_INPUT_TOKENS, what->vocab, MR_HEAD_TOKEN, MR_LOSS_XENT, what->vocab};
    mr_config config;
    *s = (subject){.step = {.seed = 1, .step = 1, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8,
                            .weight_decay = 0.1, .clip = 0.25, .bias1 = 0.1, .bias2 = 0.01, .decoupled = 1}};
    mr_options_default(mr_config_options, &config);
    mr_config_take(&config, &face);
    config.mixer = what->mixer;
    config.layers = LAYERS;
    config.dim = what->dim;
    config.expansion = what->expansion;
    config.conv = what->conv;
    config.mlp = what->mlp;
    config.weights = weights;
    int status = mr_model_new(&config, dev, MR_DECAY_MATRICES, &s->model, err);
    if (status == 0) status = mr_model_plan(s->model, B, T, train, err);
    if (status == 0) status = put_weights(s->model, err);
    if (status == 0 && mr_batch_new(&s->batch, &face, B, T) < 0) status = mr_no_memory(err, "a batch");
    if (status < 0) return status;
    s->batch.B = B;
    s->batch.T = T;
    fill_batch(&s->batch, what->vocab);
    return 0;
}

/* Multiply-adds of one token's forward: every matrix once, the table of embeddings aside. */
static double products(const mr_params *params)
{
    double count = 0;
    for (const mr_param *p = params->list; p < params->list + params->count; p++)
        if (p->ndim == 2 && !strstr(p->name, "embed") && !strstr(p->name, "conv")) count += (double)p->count;
    return count;
}

static void run_step(void *arg)
{
    subject *s = arg;
    mr_model_learn(s->model, &s->batch, &s->step, 1.0 / (double)s->batch.counted, 1, 1);
}

static void run_token(void *arg)
{
    subject *s = arg;
    float logits[256];
    mr_model_forward(s->model, &s->batch, s->state, 0);
    mr_model_logits(s->model, logits, 0, 1);
}

static void name_row(char *name, size_t size, const shape *what, int B, int T)
{
    snprintf(name, size, "%s d=%d->%d B=%d T=%d", what->name, what->dim, what->dim * what->expansion, B, T);
}

/* Bytes of a step: what the plan keeps is written once and read once. */
int mr_bench_step(mr_bench *b, mr_error *err)
{
    int status = 0;
    for (int i = 0; i < shape_count(b) && status == 0; i++) {
        subject s;
        int B = b->quick ? 8 : shapes[i].B, T = shapes[i].T;
        status = open_subject(&s, b->dev, &shapes[i], B, T, 1, MR_WEIGHTS_F32, err);
        if (status == 0) {
            double tokens = (double)B * T;
            mr_bench_job job = {.bench = "step", .run = run_step, .arg = &s, .tokens = tokens,
                                .flops = 6 * tokens * products(mr_model_params(s.model)),
                                .bytes = 2.0 * (double)mr_model_planned_bytes(s.model)};
            name_row(job.name, sizeof job.name, &shapes[i], B, T);
            mr_bench_measure(b, &job);
        }
        close_subject(&s);
    }
    return status;
}

/* What a token must read at least: every parameter, the table of embeddings but for its rows. */
static double weight_bytes(const mr_model *model)
{
    double bytes = 0;
    const mr_params *params = mr_model_params(model);
    for (int i = 0; i < params->count; i++) {
        const mr_param *p = &params->list[i];
        int small = !strcmp(mr_model_dtype(model, i), "I8");
        if (!strcmp(p->name, "embed.weight")) continue;
        bytes += small ? (double)p->count + 4.0 * (double)p->shape[0] : (double)p->count * (double)mr_model_dev(model)->real_size;
    }
    return bytes;
}

static int bench_tokens(mr_bench *b, int B, int weights, double *rate, const char **place, mr_error *err)
{
    subject s;
    int status = open_subject(&s, b->dev, &shapes[0], B, 1, 0, weights, err);
    if (status == 0) status = mr_state_new(s.model, B, &s.state, err);
    if (status == 0 && B == 1) status = mr_bench_read(b, (size_t)weight_bytes(s.model), rate, place, err);
    if (status == 0) {
        mr_bench_job job = {.bench = "decode", .run = run_token, .arg = &s, .tokens = B, .read_bytes = *rate, .place = *place,
                            .flops = 2.0 * B * products(mr_model_params(s.model)), .bytes = weight_bytes(s.model)};
        snprintf(job.name, sizeof job.name, "%s d=%d %s B=%d", shapes[0].name, shapes[0].dim,
                 weights == MR_WEIGHTS_INT8 ? "int8" : "f32", B);
        /* the limit of multiply-adds is one of fp32 */
        if (weights == MR_WEIGHTS_INT8) job.flops = 0;
        mr_bench_measure(b, &job);
    }
    close_subject(&s);
    return status;
}

int mr_bench_decode(mr_bench *b, mr_error *err)
{
    static const int small[] = {1, 2, 4, 8}, large[] = {1, 8, 64, 1024};
    const int *batches = !strcmp(b->dev->kind, "cuda") ? large : small; /* what each is asked for */
    int status = 0;
    for (int weights = MR_WEIGHTS_F32; weights <= MR_WEIGHTS_INT8; weights++) {
        double rate = 0;
        const char *place = "";
        for (int i = 0; i < 4 && status == 0; i++) status = bench_tokens(b, batches[i], weights, &rate, &place, err);
    }
    return status;
}

int mr_bench_memory(mr_bench *b, mr_error *err)
{
    int status = 0;
    for (int i = 0; i < shape_count(b) && status == 0; i++) {
        subject s;
        mr_bench_row row = {.bench = "memory", .limit = ""};
        status = open_subject(&s, b->dev, &shapes[i], shapes[i].B, shapes[i].T, 1, MR_WEIGHTS_F32, err);
        if (status == 0) {
            row.bytes = (double)mr_model_planned_bytes(s.model);
            name_row(row.name, sizeof row.name, &shapes[i], shapes[i].B, shapes[i].T);
            b->on_row(b->arg, &row);
        }
        close_subject(&s);
    }
    return status;
}
