/* The products of gemm.h through a CBLAS library (replaces gemm.c with -DMINRNN_CBLAS=ON), for comparison with our
 * kernel. Results may depend on the library and its number of threads. */
#include "ops/cpu/gemm.h"

#include <cblas.h>
#include <string.h>

enum { FINISH_ROWS = 64 };

typedef struct finishing {
    const mr_product *product;
    const float *value;
} finishing;

static void finish_task(void *arg, int task, int slot)
{
    (void)slot;
    const finishing *f = arg;
    const mr_product *p = f->product;
    mr_block block = {.first_row = task * FINISH_ROWS, .cols = p->N, .row = (size_t)p->N};
    block.rows = mr_min_int(FINISH_ROWS, p->M - block.first_row);
    block.value = f->value + (size_t)block.first_row * block.row;
    p->finish(p->cpu, p->arg, &block);
}

void mr_product_run(mr_product *p)
{
    float *c = p->finish ? mr_cpu_scratch(p->cpu, MR_SCRATCH_PACK, (size_t)p->M * (size_t)p->N) : p->c;
    const size_t c_row = p->finish ? (size_t)p->N : mr_c_row(p);
    if (!c) return;
    for (int m = 0; p->bias && m < p->M; m++) {
        float *row = c + (size_t)m * c_row;
        if (p->accumulate) p->cpu->kernels.add((size_t)p->N, row, p->bias);
        else memcpy(row, p->bias, (size_t)p->N * sizeof *row);
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, p->b_transposed ? CblasTrans : CblasNoTrans, p->M, p->N, p->K, 1, p->a,
                (int)mr_a_row(p), p->b, p->b_transposed ? p->K : p->N, p->bias || p->accumulate ? 1 : 0, c, (int)c_row);
    finishing f = {p, c};
    if (p->finish) mr_cpu_run(p->cpu, finish_task, &f, (int)mr_ceil_div((size_t)p->M, FINISH_ROWS));
}

void mr_product_gradient(mr_cpu *cpu, int M, int N, int K, const float *dy, const float *x, float *dW, float *db)
{
    mr_product_gradient_rows(cpu, M, N, K, dy, (size_t)N, x, dW, db);
}

void mr_product_gradient_rows(mr_cpu *cpu, int M, int N, int K, const float *dy, size_t dy_row, const float *x,
                              float *dW, float *db)
{
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, N, K, M, 1, dy, (int)dy_row, x, K, 1, dW, K);
    for (int m = 0; db && m < M; m++) cpu->kernels.add((size_t)N, db, dy + (size_t)m * dy_row);
}
