/* Ops on whole tokens and sequences: embedding, pooling, pairs. */
#include "ops/cpu/cpu.h"

#include <string.h>

/* ---- embedding */

typedef struct embed_job {
    mr_cpu *cpu;
    const mr_embed_fwd_args *forward;
    const mr_embed_bwd_args *backward;
    int span;  /* tokens per task */
    int width; /* channels per task, backward */
    int blocks;
    float *partial; /* [parts, vocab, D], or NULL: add to dtable directly */
} embed_job;

static void embed_fwd_task(void *arg, int task, int slot)
{
    (void)slot;
    const embed_job *job = arg;
    const mr_embed_fwd_args *a = job->forward;
    const size_t row = (size_t)a->D;
    const int first = task * job->span, end = mr_min_int(a->N, first + job->span);
    for (int n = first; n < end; n++)
        memcpy((float *)a->y + (size_t)n * row, (const float *)a->table + (size_t)a->ids[n] * row, row * sizeof(float));
}

static void embed_fwd(mr_dev *dev, const mr_embed_fwd_args *a)
{
    embed_job job = {.cpu = mr_cpu_of(dev), .forward = a, .span = mr_cpu_grain(a->D)};
    mr_cpu_run(job.cpu, embed_fwd_task, &job, (int)mr_ceil_div((size_t)a->N, (size_t)job.span));
}

static void embed_bwd_task(void *arg, int task, int slot)
{
    (void)slot;
    const embed_job *job = arg;
    const mr_embed_bwd_args *a = job->backward;
    const size_t row = (size_t)a->D, entries = (size_t)a->vocab * row;
    const int part = task / job->blocks, col = task % job->blocks * job->width;
    const int first = part * job->span, end = mr_min_int(a->N, first + job->span);
    const size_t n = (size_t)mr_min_int(job->width, a->D - col);
    float *table = (job->partial ? job->partial + (size_t)part * entries : (float *)a->dtable) + col;
    const float *dy = (const float *)a->dy + col;
    for (size_t i = 0; job->partial && i < (size_t)a->vocab; i++) memset(table + i * row, 0, n * sizeof *table);
    for (int i = first; i < end; i++) job->cpu->kernels.add(n, table + (size_t)a->ids[i] * row, dy + (size_t)i * row);
}

/* Each span of tokens sums into its own table, and the tables are added in order, as long as they are small compared
 * with dy; this also keeps long sums for a frequent token accurate. Splitting channels gives the rest of the tasks. */
static void embed_bwd(mr_dev *dev, const mr_embed_bwd_args *a)
{
    enum { MOST_PARTS = 32, LEAST_SPAN = 1024, CHANNELS = 64 };
    embed_job job = {.cpu = mr_cpu_of(dev), .backward = a};
    const int most = mr_min_int(MOST_PARTS, a->N / mr_max_int(LEAST_SPAN, 4 * mr_min_int(a->vocab, 1 << 24)));
    job.span = (int)mr_ceil_div((size_t)a->N, (size_t)mr_max_int(1, most));
    const int parts = (int)mr_ceil_div((size_t)a->N, (size_t)job.span);
    job.blocks = parts >= MOST_PARTS / 2 ? 1 : (int)mr_ceil_div((size_t)a->D, CHANNELS);
    job.width = job.blocks == 1 ? a->D : CHANNELS;
    const size_t entries = (size_t)a->vocab * (size_t)a->D;
    if (parts > 1 && !(job.partial = mr_cpu_scratch(job.cpu, MR_SCRATCH_PARTIAL, entries * (size_t)parts))) return;
    mr_cpu_run(job.cpu, embed_bwd_task, &job, parts * job.blocks);
    if (parts > 1) mr_cpu_reduce(job.cpu, entries, job.partial, entries, parts, (float *)a->dtable);
}

/* ---- pooling over time */

static int length_at(const int32_t *length, int b, int T)
{
    return length ? mr_max_int(0, mr_min_int(T, length[b])) : T;
}

static float weight_at(const mr_real *weight, int b) { return weight ? ((const float *)weight)[b] : 1.0f; }

typedef struct pool_job {
    mr_cpu *cpu;
    const mr_pool_fwd_args *forward;
    const mr_pool_bwd_args *backward;
} pool_job;

static void pool_fwd_task(void *arg, int b, int slot)
{
    (void)slot;
    const pool_job *job = arg;
    const mr_pool_fwd_args *a = job->forward;
    const size_t row = (size_t)a->D;
    const float *x = (const float *)a->x + (size_t)b * (size_t)a->T * row;
    float *y = (float *)a->y + (size_t)b * row;
    const int length = length_at(a->length, b, a->T);
    const float weight = weight_at(a->weight, b);
    memset(y, 0, row * sizeof *y);
    if (!length || weight == 0) return;
    if (a->kind == MR_POOL_LAST) memcpy(y, x + (size_t)(length - 1) * row, row * sizeof *y);
    for (int t = 0; a->kind == MR_POOL_MEAN && t < length; t++) job->cpu->kernels.add(row, y, x + (size_t)t * row);
    if (a->kind == MR_POOL_MEAN) job->cpu->kernels.scale(row, weight / (float)length, y, y);
    else if (weight != 1) job->cpu->kernels.scale(row, weight, y, y);
}

static void pool_fwd(mr_dev *dev, const mr_pool_fwd_args *a)
{
    pool_job job = {.cpu = mr_cpu_of(dev), .forward = a};
    mr_cpu_run(job.cpu, pool_fwd_task, &job, a->B);
}

static void pool_bwd_task(void *arg, int b, int slot)
{
    (void)slot;
    const pool_job *job = arg;
    const mr_pool_bwd_args *a = job->backward;
    const size_t row = (size_t)a->D;
    const float *dy = (const float *)a->dy + (size_t)b * row;
    float *dx = (float *)a->dx + (size_t)b * (size_t)a->T * row;
    const int length = length_at(a->length, b, a->T), mean = a->kind == MR_POOL_MEAN;
    const float weight = weight_at(a->weight, b), factor = mean ? weight / (float)length : weight;
    memset(dx, 0, (size_t)a->T * row * sizeof *dx);
    if (!length || weight == 0) return;
    if (!mean && weight == 1) memcpy(dx + (size_t)(length - 1) * row, dy, row * sizeof *dx);
    else
        for (int t = mean ? 0 : length - 1; t < length; t++)
            job->cpu->kernels.scale(row, factor, dy, dx + (size_t)t * row);
}

static void pool_bwd(mr_dev *dev, const mr_pool_bwd_args *a)
{
    pool_job job = {.cpu = mr_cpu_of(dev), .backward = a};
    mr_cpu_run(job.cpu, pool_bwd_task, &job, a->B);
}

/* ---- pairs */

static void pair_fwd_task(void *arg, int p, int slot)
{
    (void)slot;
    const mr_pair_fwd_args *args = arg;
    const size_t D = (size_t)args->D;
    const float *a = (const float *)args->x + 2 * (size_t)p * D, *b = a + D;
    float *y = (float *)args->y + 4 * (size_t)p * D;
    memcpy(y, a, 2 * D * sizeof *y);
    for (size_t d = 0; d < D; d++) {
        y[2 * D + d] = a[d] * b[d];
        y[3 * D + d] = a[d] - b[d];
    }
}

static void pair_fwd(mr_dev *dev, const mr_pair_fwd_args *a)
{
    mr_cpu_run(mr_cpu_of(dev), pair_fwd_task, (void *)a, a->P);
}

static void pair_bwd_task(void *arg, int p, int slot)
{
    (void)slot;
    const mr_pair_bwd_args *args = arg;
    const size_t D = (size_t)args->D;
    const float *a = (const float *)args->x + 2 * (size_t)p * D, *b = a + D,
                *dy = (const float *)args->dy + 4 * (size_t)p * D;
    float *da = (float *)args->dx + 2 * (size_t)p * D, *db = da + D;
    for (size_t d = 0; d < D; d++) {
        const float product = dy[2 * D + d], difference = dy[3 * D + d];
        da[d] = dy[d] + product * b[d] + difference;
        db[d] = dy[D + d] + product * a[d] - difference;
    }
}

static void pair_bwd(mr_dev *dev, const mr_pair_bwd_args *a)
{
    mr_cpu_run(mr_cpu_of(dev), pair_bwd_task, (void *)a, a->P);
}

void mr_cpu_token_ops(mr_ops *ops)
{
    ops->embed_fwd = embed_fwd;
    ops->embed_bwd = embed_bwd;
    ops->pool_fwd = pool_fwd;
    ops->pool_bwd = pool_bwd;
    ops->pair_fwd = pair_fwd;
    ops->pair_bwd = pair_bwd;
}
