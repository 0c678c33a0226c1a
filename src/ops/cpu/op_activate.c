/* Activations by themselves. Without a gate all elements are alike, so the array is cut anywhere; with one, a task is a
 * span of rows. */
#include "ops/cpu/cpu.h"

enum { SPAN = 16384 };

typedef struct activate_job {
    mr_cpu *cpu;
    size_t rows, F; /* without a gate: one row of all elements */
    int gated, backward;
    mr_activation kind;
    const float *x, *dy;
    float *to; /* y, or dx */
    size_t span;
} activate_job;

static void run_row(const activate_job *job, size_t m, size_t first, size_t n)
{
    const size_t wide = job->gated ? 2 * job->F : job->F, x_at = m * wide + first, y_at = m * job->F + first;
    mr_activate_row row = {.n = n, .kind = job->kind, .x = job->x + x_at};
    if (job->gated) row.up = row.x + job->F;
    if (!job->backward) {
        row.y = job->to + y_at;
        job->cpu->kernels.activate(&row);
        return;
    }
    row.dy = job->dy + y_at;
    row.dx = job->to + x_at;
    row.dup = row.dx + job->F;
    job->cpu->kernels.activate_bwd(&row);
}

static void task(void *arg, int task, int slot)
{
    (void)slot;
    const activate_job *job = arg;
    const size_t all = job->gated ? job->rows : job->F, first = (size_t)task * job->span,
                 n = all - first < job->span ? all - first : job->span;
    if (!job->gated) run_row(job, 0, first, n);
    for (size_t m = first; job->gated && m < first + n; m++) run_row(job, m, 0, job->F);
}

static void run(activate_job job, size_t M, size_t F)
{
    if (!M || !F) return;
    job.rows = job.gated ? M : 1;
    job.F = job.gated ? F : M * F;
    job.span = job.gated ? SPAN / F + 1 : SPAN;
    mr_cpu_run(job.cpu, task, &job, (int)mr_ceil_div(job.gated ? M : job.F, job.span));
}

static void activate_fwd(mr_dev *dev, const mr_activate_fwd_args *a)
{
    run(
        (activate_job){
            .cpu = mr_cpu_of(dev), .gated = a->gated, .kind = a->kind, .x = (const float *)a->x, .to = (float *)a->y},
        a->M, a->F);
}

static void activate_bwd(mr_dev *dev, const mr_activate_bwd_args *a)
{
    run((activate_job){.cpu = mr_cpu_of(dev),
                       .gated = a->gated,
                       .backward = 1,
                       .kind = a->kind,
                       .x = (const float *)a->x,
                       .dy = (const float *)a->dy,
                       .to = (float *)a->dx},
        a->M, a->F);
}

void mr_cpu_activate_ops(mr_ops *ops)
{
    ops->activate_fwd = activate_fwd;
    ops->activate_bwd = activate_bwd;
}
