/* Linear layers: the product, then bias, gelu, dropout and residual on each block while it is in the cache. */
#include "ops/cpu/gemm.h"

#include "ops/cpu/dropout.h"
#include "ops/cpu/quant.h"

static void finish_forward(const mr_cpu *cpu, const void *arg, const mr_block *block)
{
    const mr_linear_fwd_args *a = arg;
    mr_finish row = {.n = block->cols, .gelu = a->gelu, .drop = mr_cpu_drop(&a->drop)};
    for (int r = 0; r < block->rows; r++) {
        const size_t at = (size_t)(block->first_row + r) * (size_t)a->N + (size_t)block->first_col;
        row.value = block->value + (size_t)r * block->row;
        row.pre = a->pre ? (float *)a->pre + at : NULL;
        row.first = at;
        row.residual = a->residual ? (const float *)a->residual + at : NULL;
        row.y = (float *)a->y + at;
        cpu->kernels.finish(&row);
    }
}

static void linear_fwd(mr_dev *dev, const mr_linear_fwd_args *a)
{
    const int plain = !a->gelu && !a->pre && !a->residual && !(a->drop.p > 0);
    mr_product p = {
        .cpu = mr_cpu_of(dev),
        .M = a->M,
        .N = a->N,
        .K = a->K,
        .a = (const float *)a->x,
        .b = (const float *)a->W,
        .b_transposed = 1,
        .bias = (const float *)a->b,
        .c = (float *)a->y,
        .c_row = (size_t)a->row,
        .finish = plain ? NULL : finish_forward,
        .arg = a,
    };
    mr_product_run(&p);
}

static void finish_backward(const mr_cpu *cpu, const void *arg, const mr_block *block)
{
    const mr_linear_bwd_x_args *a = arg;
    for (int r = 0; r < block->rows; r++) {
        const size_t at = (size_t)(block->first_row + r) * (size_t)a->K + (size_t)block->first_col;
        const float *product = block->value + (size_t)r * block->row, *pre = (const float *)a->pre + at;
        cpu->kernels.gelu_bwd(block->cols, product, pre, a->accumulate, (float *)a->dx + at);
    }
}

static void linear_bwd_x(mr_dev *dev, const mr_linear_bwd_x_args *a)
{
    mr_product p = {
        .cpu = mr_cpu_of(dev),
        .M = a->M,
        .N = a->K,
        .K = a->N,
        .a = (const float *)a->dy,
        .a_row = (size_t)a->row,
        .b = (const float *)a->W,
        .accumulate = a->accumulate,
        .c = (float *)a->dx,
        .finish = a->pre ? finish_backward : NULL,
        .arg = a,
    };
    mr_product_run(&p);
}

static void linear_bwd_w(mr_dev *dev, const mr_linear_bwd_w_args *a)
{
    const float *dy = (const float *)a->dy, *x = (const float *)a->x;
    mr_product_gradient_rows(mr_cpu_of(dev), a->M, a->N, a->K, dy, mr_row_step(a->row, a->N), x, (float *)a->dW,
                             (float *)a->db);
}

/* ---- dropout alone */

typedef struct dropout_job {
    mr_cpu *cpu;
    const mr_dropout_bwd_args *args;
    mr_drop drop;
} dropout_job;

enum { DROPOUT_SPAN = 16384 };

static void dropout_task(void *arg, int task, int slot)
{
    (void)slot;
    const dropout_job *job = arg;
    const size_t first = (size_t)task * DROPOUT_SPAN, left = job->args->n - first;
    const size_t n = left < DROPOUT_SPAN ? left : DROPOUT_SPAN;
    const float *dy = (const float *)job->args->dy + first;
    float *dx = (float *)job->args->dx + first;
    if (job->drop.on) job->cpu->kernels.dropout(&job->drop, first, n, dy, dx);
    else job->cpu->kernels.scale(n, 1.0f, dy, dx);
}

static void dropout_bwd(mr_dev *dev, const mr_dropout_bwd_args *a)
{
    dropout_job job = {mr_cpu_of(dev), a, mr_cpu_drop(&a->drop)};
    mr_cpu_run(job.cpu, dropout_task, &job, (int)mr_ceil_div(a->n, DROPOUT_SPAN));
}

void mr_cpu_linear_ops(mr_ops *ops)
{
    ops->linear_fwd = linear_fwd;
    ops->linear_q_fwd = mr_cpu_linear_q_fwd;
    ops->linear_bwd_x = linear_bwd_x;
    ops->linear_bwd_w = linear_bwd_w;
    ops->dropout_bwd = dropout_bwd;
}
