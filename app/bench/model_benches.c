/* Whole models: a training step, decoding one token after another, and the memory that a step takes. */
#include "bench/bench.h"

#include "model/mixer.h"
#include "bench/timed_model.h"

#include <stdio.h>
#include <string.h>

/* The two models of the project's targets, a character language model and the one of selective copying; the second
 * with every mixer. */
typedef struct shape {
    const char *name, *mixer;
    int dim, expansion, conv, mlp, vocab, B, T, large; /* large: only where there is room and speed for it */
} shape;

#define COPY(name, mixer, expansion)                                                                                   \
    {name, mixer, 64, expansion, 0, 0, 16, 64, 512, 0}, { name, mixer, 64, expansion, 0, 0, 16, 64, 4096, 1 }

static const shape shapes[] = {{"text", "mingru", 384, 2, 4, 4, 65, 64, 256, 0},
                               {"text", "mingru", 384, 2, 4, 4, 65, 64, 1024, 1},
                               COPY("copy", "mingru", 6),
                               COPY("copy minlstm", "minlstm", 6),
                               COPY("copy gru", "gru", 6),
                               COPY("copy lstm", "lstm", 6),
                               COPY("copy attention", "attention", 1),
                               COPY("copy mamba", "mamba", 6)};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static int is_wanted(const mr_bench *b, const shape *what)
{
    if (what->large && (strcmp(b->dev->kind, "cuda") || b->quick)) return 0;
    return !b->mixer || !strcmp(b->mixer, what->mixer);
}

static mr_timed_shape shape_with(const shape *what, const char *mixer, int weights)
{
    int index = 0;
    while (mr_mixer_names[index] && strcmp(mr_mixer_names[index], mixer)) index++;
    return (mr_timed_shape){.mixer = index,
                            .dim = what->dim,
                            .expansion = what->expansion,
                            .conv = what->conv,
                            .mlp = what->mlp,
                            .vocab = what->vocab,
                            .weights = weights,
                            .window = what->T};
}

/* Multiply-adds of one token's forward: every matrix once, the table of embeddings aside; attention looks at half of
 * `seen` tokens on average, twice. */
static double products(const mr_model *model, int seen)
{
    const mr_config *config = mr_model_config(model);
    const mr_params *params = mr_model_params(model);
    double count =
        strcmp(mr_mixer_names[config->mixer], "attention") ? 0 : (double)config->layers * (double)config->dim * seen;
    for (const mr_param *p = params->list; p < params->list + params->count; p++)
        if (p->ndim == 2 && !strstr(p->name, "embed") && !strstr(p->name, "conv")) count += (double)p->count;
    return count;
}

static void run_step(void *arg) { mr_timed_model_step(arg, 1); }
static void run_token(void *arg) { mr_timed_model_token(arg, 1); }

static void name_row(char *name, size_t size, const shape *what, int B, int T)
{
    snprintf(name, size, "%s d=%d->%d B=%d T=%d", what->name, what->dim, what->dim * what->expansion, B, T);
}

/* Bytes of a step: what the plan keeps is written once and read once. */
static int bench_step(mr_bench *b, const shape *what, mr_error *err)
{
    mr_timed_model s;
    const mr_timed_shape model = shape_with(what, what->mixer, MR_WEIGHTS_F32);
    const int B = b->quick ? 8 : what->B, T = what->T;
    int status = mr_timed_model_open(&s, b->dev, &model, B, T, 1, err);
    if (status == 0) {
        double tokens = (double)B * T;
        mr_bench_job job = {.bench = "step",
                            .run = run_step,
                            .arg = &s,
                            .tokens = tokens,
                            .flops = 6 * tokens * products(s.model, T),
                            .bytes = 2.0 * (double)mr_model_planned_bytes(s.model)};
        name_row(job.name, sizeof job.name, what, B, T);
        mr_bench_measure(b, &job);
    }
    mr_timed_model_close(&s);
    return status;
}

int mr_bench_step(mr_bench *b, mr_error *err)
{
    int status = 0;
    for (int i = 0; i < SHAPES && status == 0; i++)
        if (is_wanted(b, &shapes[i])) status = bench_step(b, &shapes[i], err);
    return status;
}

/* The least that a token must read: every parameter, but of the embedding table only the rows used. */
static double weight_bytes(const mr_model *model)
{
    double bytes = 0;
    const mr_params *params = mr_model_params(model);
    for (int i = 0; i < params->count; i++) {
        const mr_param *p = &params->list[i];
        int small = !strcmp(mr_model_dtype(model, i), "I8");
        if (!strcmp(p->name, "embed.weight")) continue;
        bytes += small ? (double)p->count + 4.0 * (double)p->shape[0]
                       : (double)p->count * (double)mr_model_dev(model)->real_size;
    }
    return bytes;
}

typedef struct reading {
    double rate;
    const char *place;
} reading;

static int bench_tokens(mr_bench *b, const shape *what, const char *mixer, int B, int weights, reading *from,
                        mr_error *err)
{
    mr_timed_model s;
    const mr_timed_shape model = shape_with(what, mixer, weights);
    int status = mr_timed_model_open(&s, b->dev, &model, B, 1, 0, err);
    if (status == 0) status = mr_timed_model_stream(&s, err);
    if (status == 0 && B == 1) status = mr_bench_read(b, (size_t)weight_bytes(s.model), &from->rate, &from->place, err);
    if (status == 0) {
        mr_bench_job job = {.bench = "decode",
                            .run = run_token,
                            .arg = &s,
                            .tokens = B,
                            .read_bytes = from->rate,
                            .place = from->place,
                            .flops = 2.0 * B * products(s.model, 0),
                            .bytes = weight_bytes(s.model)};
        const int ours = !strcmp(mixer, what->mixer);
        snprintf(job.name, sizeof job.name, "%s%s%s d=%d %s B=%d", what->name, ours ? "" : " ", ours ? "" : mixer,
                 what->dim, weights == MR_WEIGHTS_INT8 ? "int8" : "f32", B);
        /* the limit of multiply-adds is one of fp32 */
        if (weights == MR_WEIGHTS_INT8) job.flops = 0;
        mr_bench_measure(b, &job);
    }
    mr_timed_model_close(&s);
    return status;
}

/* Tokens per second of minGRU with fp32 and with 8-bit weights, of the other mixers with fp32 weights, and of minGRU
 * without convolution, as the programs that we compare with have it. A GPU is given larger batches than a CPU. */
int mr_bench_decode(mr_bench *b, mr_error *err)
{
    static const int small[] = {1, 2, 4, 8}, large[] = {1, 8, 64, 1024};
    static const shape without = {"text no conv", "mingru", 384, 2, 0, 4, 65, 64, 256, 0};
    const int *batches = !strcmp(b->dev->kind, "cuda") ? large : small;
    int status = 0;
    for (int mixer = 0; mr_mixer_names[mixer]; mixer++) {
        const char *name = mr_mixer_names[mixer];
        if (b->mixer && strcmp(b->mixer, name)) continue;
        for (int weights = MR_WEIGHTS_F32; weights <= (mixer ? MR_WEIGHTS_F32 : MR_WEIGHTS_INT8); weights++) {
            reading from = {0, ""};
            for (int i = 0; i < 4 && status == 0; i++)
                status = bench_tokens(b, shapes, name, batches[i], weights, &from, err);
        }
    }
    reading from = {0, ""};
    for (int i = 0; i < 4 && status == 0 && (!b->mixer || !strcmp(b->mixer, without.mixer)); i++)
        status = bench_tokens(b, &without, without.mixer, batches[i], MR_WEIGHTS_F32, &from, err);
    return status;
}

/* All that a device has taken after a step: parameters, gradients, moments, activations, and its own scratch. The
 * device has done nothing else. */
static int bench_memory(mr_bench *b, const shape *what, mr_error *err)
{
    mr_timed_model s = {0};
    mr_dev *dev;
    mr_bench_row row = {.bench = "memory", .limit = ""};
    const mr_timed_shape model = shape_with(what, what->mixer, MR_WEIGHTS_F32);
    const int B = b->quick ? 8 : what->B;
    int status = b->open(b->arg, &dev, err);
    if (status < 0) return status;
    name_row(row.name, sizeof row.name, what, B, what->T);
    if (b->on_start) b->on_start(b->arg, row.bench, row.name);
    status = mr_timed_model_open(&s, dev, &model, B, what->T, 1, err);
    if (status == 0) {
        mr_timed_model_step(&s, 1);
        status = dev->sync(dev, err);
    }
    row.bytes = (double)dev->taken;
    if (status == 0) b->on_row(b->arg, &row);
    mr_timed_model_close(&s);
    mr_dev_close(dev);
    return status;
}

int mr_bench_memory(mr_bench *b, mr_error *err)
{
    int status = 0;
    for (int i = 0; i < SHAPES && status == 0; i++)
        if (is_wanted(b, &shapes[i])) status = bench_memory(b, &shapes[i], err);
    return status;
}
