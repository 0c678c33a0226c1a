/* RMS norm, layer norm or none, row by row. Gradients of the weights are partial sums over fixed spans of rows. */
#include "ops/cpu/cpu.h"

#include <string.h>

typedef struct forward_job {
    mr_cpu *cpu;
    const mr_norm_fwd_args *args;
    int span;
} forward_job;

static void forward_task(void *arg, int task, int slot)
{
    (void)slot;
    const forward_job *job = arg;
    const mr_norm_fwd_args *a = job->args;
    const int first = task * job->span, end = mr_min_int(a->M, first + job->span);
    float *stat = (float *)a->stat;
    mr_norm_row row = {.n = a->D, .kind = a->kind, .eps = a->eps, .w = (const float *)a->w, .b = (const float *)a->b};
    for (int i = first; i < end; i++) {
        row.x = (const float *)a->x + (size_t)i * (size_t)a->D;
        row.y = (float *)a->y + (size_t)i * (size_t)a->D;
        job->cpu->kernels.norm_fwd(&row);
        if (stat) stat[2 * (size_t)i] = row.mean, stat[2 * (size_t)i + 1] = row.rstd;
    }
}

static void norm_fwd(mr_dev *dev, const mr_norm_fwd_args *a)
{
    forward_job job = {mr_cpu_of(dev), a, mr_cpu_grain(a->D)};
    mr_cpu_run(job.cpu, forward_task, &job, (int)mr_ceil_div((size_t)a->M, (size_t)job.span));
}

typedef struct backward_job {
    mr_cpu *cpu;
    const mr_norm_bwd_args *args;
    int span, parts;
    size_t stride;
    float *partial; /* [parts, 2·D rounded up] dw, db */
} backward_job;

static void backward_task(void *arg, int task, int slot)
{
    (void)slot;
    const backward_job *job = arg;
    const mr_norm_bwd_args *a = job->args;
    const int first = task * job->span, end = mr_min_int(a->M, first + job->span);
    const float *stat = (const float *)a->stat;
    float *sums = job->partial + (size_t)task * job->stride;
    memset(sums, 0, job->stride * sizeof *sums);
    mr_norm_row row = {
        .n = a->D,
        .kind = a->kind,
        .w = (const float *)a->w,
        .accumulate = a->accumulate,
        .dw = sums,
        .db = a->db ? sums + job->stride / 2 : NULL,
    };
    for (int i = first; i < end; i++) {
        const size_t at = (size_t)i * (size_t)a->D;
        row.x = (const float *)a->x + at;
        row.dy = (const float *)a->dy + at;
        row.dx = (float *)a->dx + at;
        row.mean = stat[2 * (size_t)i];
        row.rstd = stat[2 * (size_t)i + 1];
        job->cpu->kernels.norm_bwd(&row);
    }
}

static void norm_bwd(mr_dev *dev, const mr_norm_bwd_args *a)
{
    enum { MOST_PARTS = 64 };
    backward_job job = {.cpu = mr_cpu_of(dev), .args = a};
    job.span = mr_max_int(mr_cpu_grain(a->D), (int)mr_ceil_div((size_t)a->M, MOST_PARTS));
    job.parts = (int)mr_ceil_div((size_t)a->M, (size_t)job.span);
    job.stride = 2 * mr_round_up((size_t)a->D, 16);
    job.partial = mr_cpu_scratch(job.cpu, MR_SCRATCH_PARTIAL, job.stride * (size_t)job.parts);
    if (!job.partial) return;
    mr_cpu_run(job.cpu, backward_task, &job, job.parts);
    mr_cpu_reduce(job.cpu, (size_t)a->D, job.partial, job.stride, job.parts, (float *)a->dw);
    const float *partial_db = job.partial + job.stride / 2;
    if (a->db) mr_cpu_reduce(job.cpu, (size_t)a->D, partial_db, job.stride, job.parts, (float *)a->db);
}

void mr_cpu_norm_ops(mr_ops *ops)
{
    ops->norm_fwd = norm_fwd;
    ops->norm_bwd = norm_bwd;
}
