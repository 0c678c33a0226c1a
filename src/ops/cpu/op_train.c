/* The optimiser's two passes over all parameters: the norm of the gradient, then Adam. */
#include "ops/cpu/cpu.h"

#include <math.h>

enum { SPAN = MR_SUM_PART };

typedef struct train_job {
    mr_cpu *cpu;
    const mr_sumsq_parts_args *squares;
    const mr_accumulate_args *add;
    const mr_adam_args *adam;
    mr_adam_row row;   /* the scalars */
    double l2, shrink; /* for decayed elements */
} train_job;

static size_t span_at(size_t first, size_t n) { return n - first < SPAN ? n - first : SPAN; }

static void squares_task(void *arg, int task, int slot)
{
    (void)slot;
    const train_job *job = arg;
    const mr_sumsq_parts_args *a = job->squares;
    const size_t first = (size_t)task * SPAN;
    a->parts[task] = job->cpu->kernels.sumsq(span_at(first, a->n), (const float *)a->g + first);
}

static void sumsq_parts(mr_dev *dev, const mr_sumsq_parts_args *a)
{
    train_job job = {.cpu = mr_cpu_of(dev), .squares = a};
    mr_cpu_run(job.cpu, squares_task, &job, (int)mr_ceil_div(a->n, SPAN));
}

static void sum_parts(mr_dev *dev, const mr_sum_parts_args *a)
{
    double total = 0.0;
    (void)dev;
    for (size_t i = 0; i < a->n; i++) total += a->parts[i];
    *a->out = total;
}

static void sumsq(mr_dev *dev, const mr_sumsq_args *a)
{
    const size_t spans = mr_ceil_div(a->n, SPAN);
    double *parts = (double *)mr_cpu_scratch(mr_cpu_of(dev), MR_SCRATCH_PARTIAL, 2 * spans);
    if (!parts) return;
    sumsq_parts(dev, &(mr_sumsq_parts_args){.n = a->n, .g = a->g, .parts = parts});
    sum_parts(dev, &(mr_sum_parts_args){.n = spans, .parts = parts, .out = a->out});
}

static void accumulate_task(void *arg, int task, int slot)
{
    (void)slot;
    const train_job *job = arg;
    const size_t first = (size_t)task * SPAN;
    job->cpu->kernels.add(span_at(first, job->add->n), (float *)job->add->y + first,
                          (const float *)job->add->x + first);
}

static void accumulate(mr_dev *dev, const mr_accumulate_args *a)
{
    train_job job = {.cpu = mr_cpu_of(dev), .add = a};
    mr_cpu_run(job.cpu, accumulate_task, &job, (int)mr_ceil_div(a->n, SPAN));
}

static void adam_part(const train_job *job, size_t first, size_t end, int decayed)
{
    if (first >= end) return;
    mr_adam_row row = job->row;
    row.n = end - first;
    row.p = (float *)job->adam->p + first;
    row.m = (float *)job->adam->m + first;
    row.v = (float *)job->adam->v + first;
    row.g = (const float *)job->adam->g + first;
    row.l2 = decayed ? (float)job->l2 : 0.0f;
    row.shrink = decayed ? (float)job->shrink : 0.0f;
    job->cpu->kernels.adam(&row);
}

static void adam_task(void *arg, int task, int slot)
{
    (void)slot;
    const train_job *job = arg;
    const size_t first = (size_t)task * SPAN, end = first + span_at(first, job->adam->n);
    const size_t n_decay = job->adam->n_decay, split = n_decay < first ? first : n_decay > end ? end : n_decay;
    adam_part(job, first, split, 1);
    adam_part(job, split, end, 0);
}

static void adam(mr_dev *dev, const mr_adam_args *a)
{
    const mr_step *s = a->step;
    if (!isfinite(*a->sumsq)) return;
    double clip = 1.0;
    if (s->clip > 0.0) clip = fmin(1.0, s->clip / (sqrt(*a->sumsq) + 1e-6));
    train_job job = {
        .cpu = mr_cpu_of(dev),
        .adam = a,
        .row =
            {
                .clip = (float)clip,
                .beta1 = (float)s->beta1,
                .one_beta1 = (float)(1.0 - s->beta1),
                .beta2 = (float)s->beta2,
                .one_beta2 = (float)(1.0 - s->beta2),
                .rate = (float)(s->lr / s->bias1),
                .root = (float)(1.0 / sqrt(s->bias2)),
                .eps = (float)s->eps,
            },
        .l2 = s->decoupled ? 0.0 : s->weight_decay,
        .shrink = s->decoupled ? s->lr * s->weight_decay : 0.0,
    };
    mr_cpu_run(job.cpu, adam_task, &job, (int)mr_ceil_div(a->n, SPAN));
}

void mr_cpu_train_ops(mr_ops *ops)
{
    ops->sumsq = sumsq;
    ops->sumsq_parts = sumsq_parts;
    ops->sum_parts = sum_parts;
    ops->accumulate = accumulate;
    ops->adam = adam;
}
