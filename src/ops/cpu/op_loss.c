/* Losses, row by row; the sums over rows are made in double, in order, after all rows are done. And tanh, for scores
 * within ±1. */
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
    const size_t at = (size_t)r * mr_row_step(a->row, a->C);
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

enum { PIECE = 64 }; /* predictions whose tanh is computed at a time */

static void mse_row(const loss_job *job, int r)
{
    const mr_mse_args *a = job->mse;
    const size_t at = (size_t)r * (size_t)a->C;
    const float *pred = (const float *)a->pred + at, *target = (const float *)a->target + at;
    float *d = a->dpred ? (float *)a->dpred + at : NULL, part[PIECE];
    const float factor = d ? (float)(*a->scale * 2.0 / a->C) : 0.0f;
    double sum = 0.0;
    ((float *)a->row_loss)[r] = 0.0f;
    if (a->mask && !a->mask[r]) {
        if (d) memset(d, 0, (size_t)a->C * sizeof *d);
        return;
    }
    for (int first = 0; first < a->C; first += PIECE) {
        const int n = mr_min_int(PIECE, a->C - first);
        if (a->tanh) job->cpu->kernels.tanh((size_t)n, pred + first, part);
        for (int c = 0; c < n; c++) {
            const float y = a->tanh ? part[c] : pred[first + c], gap = y - target[first + c];
            sum += (double)gap * (double)gap;
            if (d) d[first + c] = a->tanh ? factor * gap * (1.0f - y * y) : factor * gap;
        }
    }
    ((float *)a->row_loss)[r] = (float)(sum / a->C);
}

static void mse_task(void *arg, int task, int slot)
{
    (void)slot;
    const loss_job *job = arg;
    const int first = task * job->span, end = mr_min_int(job->mse->R, first + job->span);
    for (int r = first; r < end; r++) mse_row(job, r);
}

static void mse(mr_dev *dev, const mr_mse_args *a)
{
    loss_job job = {.cpu = mr_cpu_of(dev), .mse = a, .span = mr_cpu_grain(a->tanh ? 8 * a->C : a->C)};
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

/* ---- tanh */

enum { TANH_SPAN = 8192 }; /* elements of a task: by shape alone, never by the number of threads */

typedef struct tanh_job {
    mr_cpu *cpu;
    size_t n;
    const float *x, *dy; /* dy NULL: forward */
    float *to;
} tanh_job;

static void tanh_task(void *arg, int task, int slot)
{
    (void)slot;
    const tanh_job *job = arg;
    const size_t first = (size_t)task * TANH_SPAN, left = job->n - first, n = left < TANH_SPAN ? left : TANH_SPAN;
    if (job->dy) job->cpu->kernels.tanh_bwd(n, job->x + first, job->dy + first, job->to + first);
    else job->cpu->kernels.tanh(n, job->x + first, job->to + first);
}

static void tanh_fwd(mr_dev *dev, const mr_tanh_fwd_args *a)
{
    tanh_job job = {.cpu = mr_cpu_of(dev), .n = a->n, .x = (const float *)a->x, .to = (float *)a->y};
    mr_cpu_run(job.cpu, tanh_task, &job, (int)mr_ceil_div(a->n, TANH_SPAN));
}

static void tanh_bwd(mr_dev *dev, const mr_tanh_bwd_args *a)
{
    tanh_job job = {
        .cpu = mr_cpu_of(dev), .n = a->n, .x = (const float *)a->x, .dy = (const float *)a->dy, .to = (float *)a->dx};
    mr_cpu_run(job.cpu, tanh_task, &job, (int)mr_ceil_div(a->n, TANH_SPAN));
}

void mr_cpu_loss_ops(mr_ops *ops)
{
    ops->xent = xent;
    ops->mse = mse;
    ops->tanh_fwd = tanh_fwd;
    ops->tanh_bwd = tanh_bwd;
}
