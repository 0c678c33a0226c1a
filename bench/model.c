/* Whole models: a training step, decoding one token after another, and the memory that a step takes. */
#include "bench/bench.h"

#include "core/mem.h"
#include "model/model.h"

#include <stdio.h>
#include <string.h>

/* The two models of the project's targets: a character language model and the one of selective copying. */
typedef struct shape {
    const char *name;
    int dim, expansion, conv, mlp, vocab, B, T;
} shape;

static const shape shapes[] = {{"text", 384, 2, 4, 4, 65, 64, 256}, {"copy", 64, 6, 0, 0, 16, 64, 512},
                               /* only where there is room and speed for them */
                               {"text", 384, 2, 4, 4, 65, 64, 1024}, {"copy", 64, 6, 0, 0, 16, 64, 4096}};
enum { LAYERS = 3 };

static int shape_count(const mr_bench *b) { return !strcmp(b->dev->kind, "cuda") && !b->quick ? 4 : 2; }

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

static int put_weights(mr_model *model, mr_error *err)
{
    const mr_params *params = mr_model_params(model);
    float *weights = mr_alloc(params->total, sizeof *weights);
    if (!weights) return mr_no_memory(err, "the weights");
    mr_params_init(params, 1, 256, 1, weights);
    mr_model_put(model, MR_WEIGHTS, weights);
    mr_free(weights);
    return 0;
}

static void fill_batch(mr_batch *batch, int vocab)
{
    for (int i = 0; i < batch->B * batch->T; i++) {
        batch->ids[i] = i * 7 % vocab;
        batch->target[i] = (i * 7 + 7) % vocab;
    }
    batch->counted = (int64_t)batch->B * batch->T;
}

static int open_subject(subject *s, mr_dev *dev, const shape *what, int B, int T, int train, mr_error *err)
{
    mr_interface face = {MR_INPUT_TOKENS, what->vocab, MR_HEAD_TOKEN, MR_LOSS_XENT, what->vocab};
    mr_config config;
    *s = (subject){.step = {.seed = 1, .step = 1, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8,
                            .weight_decay = 0.1, .clip = 0.25, .bias1 = 0.1, .bias2 = 0.01, .decoupled = 1}};
    mr_options_default(mr_config_options, &config);
    mr_config_take(&config, &face);
    config.layers = LAYERS;
    config.dim = what->dim;
    config.expansion = what->expansion;
    config.conv = what->conv;
    config.mlp = what->mlp;
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
        status = open_subject(&s, b->dev, &shapes[i], B, T, 1, err);
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

int mr_bench_decode(mr_bench *b, mr_error *err)
{
    subject s;
    int status = open_subject(&s, b->dev, &shapes[0], 1, 1, 0, err);
    if (status == 0) status = mr_state_new(s.model, 1, &s.state, err);
    if (status == 0) {
        mr_bench_job job = {.bench = "decode", .run = run_token, .arg = &s, .tokens = 1,
                            .flops = 2 * products(mr_model_params(s.model)),
                            .bytes = (double)mr_model_count(s.model) * (double)b->dev->real_size};
        name_row(job.name, sizeof job.name, &shapes[0], 1, 1);
        mr_bench_measure(b, &job);
    }
    close_subject(&s);
    return status;
}

int mr_bench_memory(mr_bench *b, mr_error *err)
{
    int status = 0;
    for (int i = 0; i < shape_count(b) && status == 0; i++) {
        subject s;
        mr_bench_row row = {.bench = "memory", .limit = ""};
        status = open_subject(&s, b->dev, &shapes[i], shapes[i].B, shapes[i].T, 1, err);
        if (status == 0) {
            row.bytes = (double)mr_model_planned_bytes(s.model);
            name_row(row.name, sizeof row.name, &shapes[i], shapes[i].B, shapes[i].T);
            b->on_row(b->arg, &row);
        }
        close_subject(&s);
    }
    return status;
}
