/* Measures a language model's training step through the public API: random tokens, a new batch each step. The rate of
 * one large product, by the library's own op for it, is measured on the same device before and after. */
#include "bench/lm.h"

#include "bench/bench.h"
#include "bench/timed_model.h"
#include "core/clock.h"
#include "core/mem.h"
#include "core/rng.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { VOCAB = 50257 }; /* GPT-2's */

const mr_lm_size mr_lm_sizes[] = {{"tiny", 2, 64, 2, 64, 512},
                                  {"124m", 12, 768, 32, 1024, VOCAB},
                                  {"350m", 24, 1024, 16, 1024, VOCAB},
                                  {"1b", 16, 2048, 16, 1024, VOCAB},
                                  {NULL, 0, 0, 0, 0, 0}};

double mr_lm_tokens_rate(const mr_lm_job *job, const mr_lm_result *r)
{
    return (double)job->size.batch * job->size.context / r->seconds;
}

double mr_lm_flops_rate(const mr_lm_job *job, const mr_lm_result *r)
{
    return 6 * (double)r->multiplied * mr_lm_tokens_rate(job, r);
}

static void tell(const mr_lm_job *job, const char *what, int done, int of)
{
    if (job->watch) job->watch(job->arg, what, done, of);
}

/* ---- the rate of matrix products */

typedef struct square {
    mr_dev *dev;
    mr_linear_fwd_args product;
} square;

static void multiply(void *arg)
{
    const square *s = arg;
    s->dev->ops.linear_fwd(s->dev, &s->product);
}

static int measure_product(const mr_lm_job *job, mr_lm_result *r, mr_error *err)
{
    const mr_dev_options options = {.threads = job->threads, .bf16 = job->bf16, .exact = job->exact};
    square s;
    mr_timing timing;
    int status = mr_dev_open(job->device, &options, &s.dev, err);
    if (status < 0) return status;
    const int n = r->product = !strcmp(s.dev->kind, "cuda") ? 8192 : !strcmp(s.dev->kind, "cpu") ? 1536 : 64;
    const size_t all = (size_t)n * (size_t)n;
    mr_act *x = mr_bench_acts(s.dev, all, 1), *y = mr_bench_acts(s.dev, all, 0);
    mr_real *W = mr_bench_reals(s.dev, all, 0.05);
    s.product = (mr_linear_fwd_args){.M = n, .N = n, .K = n, .x = x, .W = W, .y = y};
    status = x && y && W ? mr_time(s.dev, multiply, &s, 0.4, &timing, err) : mr_no_memory(err, "a matrix product");
    const double rate = status < 0 ? 0 : 2.0 * n * n * n / timing.best;
    if (rate > r->matrix) r->matrix = rate;
    if (x) s.dev->release(s.dev, x);
    if (y) s.dev->release(s.dev, y);
    if (W) s.dev->release(s.dev, W);
    mr_dev_close(s.dev);
    return status;
}

/* ---- the net */

static int open_net(const mr_lm_job *job, mr_context *ctx, mr_net **net, mr_error *err)
{
    char numbers[4][24];
    const int values[] = {job->size.vocab, job->size.layers, job->size.dim, job->size.context};
    for (int i = 0; i < 4; i++) snprintf(numbers[i], sizeof numbers[i], "%d", values[i]);
    const char *const settings[] = {"inputs",
                                    numbers[0],
                                    "outputs",
                                    numbers[0],
                                    "layers",
                                    numbers[1],
                                    "dim",
                                    numbers[2],
                                    "horizon",
                                    numbers[3],
                                    "mixer",
                                    job->mixer,
                                    "expansion",
                                    "2",
                                    "conv",
                                    "4",
                                    "mlp",
                                    "4",
                                    "recompute",
                                    job->recompute,
                                    "tie-embeddings",
                                    job->tied ? "yes" : "no",
                                    "lr",
                                    "1e-4",
                                    "clip",
                                    "1",
                                    NULL};
    return mr_net_create(ctx, settings, net, err);
}

/* The embedding's table is read, not multiplied, unless it is the head's matrix, too. */
static void count_parameters(const mr_lm_job *job, const mr_net *net, mr_lm_result *r)
{
    r->parameters = r->multiplied = mr_net_parameters(net);
    if (!job->tied) r->multiplied -= (int64_t)job->size.vocab * job->size.dim;
}

/* ---- the steps */

/* Each token's target is the next one. */
static void draw_batch(const mr_lm_job *job, int step, mr_batch *batch)
{
    const int N = batch->B * batch->T, V = job->size.vocab;
    mr_rng rng = mr_rng_at(job->seed, MR_STREAM_SAMPLE, (uint32_t)step, 0);
    for (int i = 0; i < N; i++) batch->ids[i] = (int32_t)mr_rng_below(&rng, (uint32_t)V);
    for (int i = 0; i < N; i++) batch->target[i] = batch->ids[(i + 1) % N];
}

static int step_once(mr_net *net, const mr_batch *batch, mr_lm_result *r, double *seconds, mr_error *err)
{
    mr_result result = MR_RESULT;
    const double start = mr_seconds();
    int status = mr_net_train(net, batch, &result, err);
    *seconds = mr_seconds() - start;
    r->loss = result.loss;
    if (status || isfinite(result.loss)) return status;
    return mr_fail(err, MR_ENONFINITE, "the loss is not a finite number after %lld steps", (long long)result.step);
}

/* A GPU records a step in its second run and replays it from the third on. */
static int measure_steps(const mr_lm_job *job, mr_net *net, int warm, mr_batch *batch, double *times, mr_lm_result *r,
                         mr_error *err)
{
    double unused;
    int status = 0;
    for (int i = 0; !status && i < warm + job->steps; i++) {
        tell(job, i < warm ? "warming up" : "step", i < warm ? i + 1 : i - warm + 1, i < warm ? warm : job->steps);
        draw_batch(job, i, batch);
        status = step_once(net, batch, r, i < warm ? &unused : &times[i - warm], err);
    }
    if (status) return status;
    r->seconds = mr_median(times, job->steps);
    r->best = times[0]; /* sorted now */
    r->memory = (double)mr_net_memory(net);
    status = mr_net_setting(net, "recompute", r->recompute, sizeof r->recompute, err);
    return status ? status : mr_net_setting(net, "recompute-chunk", r->chunk, sizeof r->chunk, err);
}

static int train(const mr_lm_job *job, mr_context *ctx, mr_lm_result *r, mr_error *err)
{
    const mr_interface interface = {MR_INPUT_TOKENS, job->size.vocab, MR_HEAD_TOKEN, MR_LOSS_XENT, job->size.vocab};
    const int warm = !strncmp(mr_context_device(ctx), "cuda", 4) ? 3 : 1;
    mr_net *net = NULL;
    mr_batch batch = {0};
    double *times = mr_alloc((size_t)job->steps, sizeof *times);
    tell(job, "making the net", 0, 0);
    int status = times ? open_net(job, ctx, &net, err) : mr_no_memory(err, "the times");
    if (!status && mr_batch_new(&batch, &interface, job->size.batch, job->size.context))
        status = mr_no_memory(err, "a batch");
    batch.B = job->size.batch;
    batch.T = job->size.context;
    if (!status) count_parameters(job, net, r);
    if (!status) status = measure_steps(job, net, warm, &batch, times, r, err);
    mr_batch_free(&batch);
    mr_net_free(net);
    mr_free(times);
    return status;
}

int mr_lm_run(const mr_lm_job *job, mr_lm_result *r, mr_error *err)
{
    mr_context_options options = MR_CONTEXT_OPTIONS;
    mr_context *ctx;
    *r = (mr_lm_result){0};
    if ((double)job->size.batch * job->size.context > 1e9)
        return mr_fail(err, MR_EINVAL, "batch = %d, context = %d: too large; lower one of them", job->size.batch,
                       job->size.context);
    options.device = job->device;
    options.threads = job->threads;
    options.bf16 = job->bf16;
    options.exact = job->exact;
    tell(job, "a large product", 0, 0);
    int status = measure_product(job, r, err);
    if (status) return status;
    status = mr_context_new(&options, &ctx, err);
    if (status) return status;
    snprintf(r->device, sizeof r->device, "%s", mr_context_device(ctx));
    snprintf(r->chip, sizeof r->chip, "%s", mr_context_chip(ctx));
    snprintf(r->dtype, sizeof r->dtype, "%s", job->bf16 ? "bf16" : "f32");
    r->threads = mr_context_threads(ctx);
    status = train(job, ctx, r, err);
    mr_context_free(ctx);
    tell(job, "a large product", 0, 0);
    return status ? status : measure_product(job, r, err);
}
