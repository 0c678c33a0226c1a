/* Losses, row by row; the sums over rows are made in double, in order, after all rows are done. */
#include "ops/cpu/cpu.h"

#include <math.h>
#include <string.h>

typedef struct loss_job {
    mr_cpu *cpu;
    const mr_xent_args *xent;
    const mr_mse_args *mse;
    int span;
    uint8_t *correct; /* [R] */
} loss_job;

static int first_largest(const float *x, int target, float max)
{
    if (!(x[target] == max)) return 0;
    for (int c = 0; c < target; c++)
        if (x[c] == max) return 0;
    return 1;
}

static void xent_row(const loss_job *job, int r)
{
    const mr_xent_args *a = job->xent;
    const mr_cpu_kernels *k = &job->cpu->kernels;
    const size_t at = (size_t)r * (size_t)a->C;
    const float *x = (const float *)a->logits + at;
    float *d = a->dlogits ? (float *)a->dlogits + at : NULL;
    const int target = a->target[r];
    job->correct[r] = 0;
    if (target < 0) {
        ((float *)a->row_loss)[r] = 0.0f;
        if (d) memset(d, 0, (size_t)a->C * sizeof *d);
        return;
    }
    const float max = k->max(a->C, x), own = x[target];
    job->correct[r] = (uint8_t)first_largest(x, target, max);
    const double sum = (double)k->exp_sum(a->C, x, max, d);
    ((float *)a->row_loss)[r] = (float)(log(sum) + ((double)max - (double)own));
    if (!d) return;
    k->scale((size_t)a->C, (float)(*a->scale / sum), d, d);
    d[target] -= (float)*a->scale;
}

static void xent_task(void *arg, int task, int slot)
{
    (void)slot;
    const loss_job *job = arg;
    const int first = task * job->span, end = mr_min_int(job->xent->R, first + job->span);
    for (int r = first; r < end; r++) xent_row(job, r);
}

static void xent(mr_dev *dev, const mr_xent_args *a)
{
    loss_job job = {.cpu = mr_cpu_of(dev), .xent = a, .span = mr_cpu_grain(8 * a->C)};
    job.correct = (uint8_t *)mr_cpu_scratch(job.cpu, MR_SCRATCH_PARTIAL, mr_ceil_div((size_t)a->R, sizeof(float)));
    if (!job.correct) return;
    mr_cpu_run(job.cpu, xent_task, &job, (int)mr_ceil_div((size_t)a->R, (size_t)job.span));
    double loss = 0.0, correct = 0.0, count = 0.0;
    for (int r = 0; r < a->R; r++) {
        if (a->target[r] < 0) continue;
        loss += (double)((const float *)a->row_loss)[r];
        correct += job.correct[r];
        count += 1.0;
    }
    a->stats[MR_STAT_LOSS] += loss;
    a->stats[MR_STAT_CORRECT] += correct;
    a->stats[MR_STAT_COUNT] += count;
}

static void mse_row(const mr_mse_args *a, int r)
{
    const size_t at = (size_t)r * (size_t)a->C;
    const float *pred = (const float *)a->pred + at, *target = (const float *)a->target + at;
    float *d = a->dpred ? (float *)a->dpred + at : NULL;
    const int counts = !a->mask || a->mask[r];
    const float factor = d ? (float)(*a->scale * 2.0 / a->C) : 0.0f;
    double sum = 0.0;
    for (int c = 0; c < a->C; c++) {
        const float gap = counts ? pred[c] - target[c] : 0.0f;
        sum += (double)gap * (double)gap;
        if (d) d[c] = factor * gap;
    }
    ((float *)a->row_loss)[r] = (float)(sum / a->C);
}

static void mse_task(void *arg, int task, int slot)
{
    (void)slot;
    const loss_job *job = arg;
    const int first = task * job->span, end = mr_min_int(job->mse->R, first + job->span);
    for (int r = first; r < end; r++) mse_row(job->mse, r);
}

static void mse(mr_dev *dev, const mr_mse_args *a)
{
    loss_job job = {.cpu = mr_cpu_of(dev), .mse = a, .span = mr_cpu_grain(a->C)};
    mr_cpu_run(job.cpu, mse_task, &job, (int)mr_ceil_div((size_t)a->R, (size_t)job.span));
    double loss = 0.0, count = 0.0;
    for (int r = 0; r < a->R; r++) {
        if (a->mask && !a->mask[r]) continue;
        loss += (double)((const float *)a->row_loss)[r];
        count += 1.0;
    }
    a->stats[MR_STAT_LOSS] += loss;
    a->stats[MR_STAT_COUNT] += count;
}

void mr_cpu_loss_ops(mr_ops *ops)
{
    ops->xent = xent;
    ops->mse = mse;
}
