/* The op linear_q_fwd: rounds rows of x to 8 bits, then products by the kernels of quant.h. */
#include "ops/cpu/quant.h"

/* A task is ROWS rows of x times as many rows of W as fit TASK_BYTES: small enough to share a matrix evenly among
 * threads, large enough to be worth a task. */
enum { ROWS = 128, BAND = 4, TASK_BYTES = 32768, LEAST_COLS = 16, MOST_COLS = 512 };

typedef struct job {
    mr_cpu *cpu;
    const mr_quant_kernels *kernels;
    const mr_linear_q_fwd_args *args;
    int8_t *x;   /* [M, padded] */
    float *step; /* [M] of x */
    size_t padded;
    int cols, across; /* rows of W per task, and tasks across all of W */
    int round_rows;
} job;

static void round_task(void *arg, int task, int slot)
{
    (void)slot;
    const job *j = arg;
    const mr_linear_q_fwd_args *a = j->args;
    const int end = mr_min_int(a->M, (task + 1) * j->round_rows);
    for (int m = task * j->round_rows; m < end; m++) {
        const float *x = (const float *)a->x + (size_t)m * (size_t)a->K;
        j->step[m] = j->kernels->round_row(a->K, x, j->x + (size_t)m * j->padded);
    }
}

/* Scales, bias, gelu and residual for one row of a block. */
static void finish(const job *j, int m, int first, int cols, float *value)
{
    const mr_linear_q_fwd_args *a = j->args;
    const size_t at = (size_t)m * (size_t)a->N + (size_t)first;
    const float step = j->step[m], *scale = (const float *)a->scale + first, *bias = (const float *)a->b;
    for (int i = 0; i < cols; i++) value[i] *= step * scale[i];
    for (int i = 0; bias && i < cols; i++) value[i] += bias[first + i];
    const mr_finish row = {.n = cols,
                           .gelu = a->gelu,
                           .value = value,
                           .y = (float *)a->y + at,
                           .residual = a->residual ? (const float *)a->residual + at : NULL};
    j->cpu->kernels.finish(&row);
}

/* BAND rows of x at a time; each sum is split into parts that fit 32 bits. */
static void product_task(void *arg, int task, int slot)
{
    const job *j = arg;
    const mr_linear_q_fwd_args *a = j->args;
    const int first = task % j->across * j->cols, cols = mr_min_int(j->cols, a->N - first);
    const int row = task / j->across * ROWS, end = mr_min_int(a->M, row + ROWS);
    const size_t wide = (size_t)j->cols, K = (size_t)a->K;
    float *value = mr_cpu_slot(j->cpu, slot);
    int32_t *sums = (int32_t *)(value + BAND * wide);
    for (int m = row; m < end; m += BAND) {
        const int rows = mr_min_int(BAND, end - m);
        for (int k = 0; k < a->K; k += MR_QUANT_DEPTH) {
            const int8_t *x = j->x + (size_t)m * j->padded + k, *w = a->Wq + (size_t)first * K + k;
            j->kernels->dots(mr_min_int(MR_QUANT_DEPTH, a->K - k), x, j->padded, rows, w, K, cols, sums, wide);
            for (size_t i = 0; i < (size_t)rows * wide; i++) value[i] = (k ? value[i] : 0.0f) + (float)sums[i];
        }
        for (int r = 0; r < rows; r++) finish(j, m + r, first, cols, value + (size_t)r * wide);
    }
}

void mr_cpu_linear_q_fwd(mr_dev *dev, const mr_linear_q_fwd_args *a)
{
    mr_cpu *cpu = mr_cpu_of(dev);
    job j = {.cpu = cpu, .kernels = mr_quant_choose(cpu->kernels.name), .args = a, .round_rows = mr_cpu_grain(a->K)};
    j.padded = mr_round_up((size_t)a->K, MR_QUANT_PAD);
    j.cols = (int)mr_round_up(TASK_BYTES / (size_t)mr_max_int(1, a->K), LEAST_COLS);
    j.cols = mr_max_int(LEAST_COLS, mr_min_int(MOST_COLS, j.cols));
    j.across = (int)mr_ceil_div((size_t)a->N, (size_t)j.cols);
    const size_t steps = mr_round_up((size_t)a->M, 16);
    float *scratch = mr_cpu_scratch(cpu, MR_SCRATCH_PACK, steps + (size_t)a->M * j.padded / sizeof(float));
    if (!scratch || !mr_cpu_slots(cpu, 2 * BAND * (size_t)j.cols)) return;
    j.step = scratch;
    j.x = (int8_t *)(scratch + steps);
    mr_cpu_run(cpu, round_task, &j, (int)mr_ceil_div((size_t)a->M, (size_t)j.round_rows));
    mr_cpu_run(cpu, product_task, &j, j.across * (int)mr_ceil_div((size_t)a->M, ROWS));
}
