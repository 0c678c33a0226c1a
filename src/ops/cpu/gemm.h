/* Matrix products with the device's kernels (cpu->product). The order in which an element's terms are added depends
 * only on the shape and the ISA. */
#ifndef MR_OPS_CPU_GEMM_H
#define MR_OPS_CPU_GEMM_H

#include "ops/cpu/cpu.h"

/* Bytes of a packed panel of B of this depth; floats of packed rows of A. */
static inline size_t mr_panel_bytes(const mr_product_kernels *kernels, int depth)
{
    return mr_round_up((size_t)depth, (size_t)kernels->k_step) * kernels->b_row;
}
static inline size_t mr_packed_rows(const mr_product_kernels *kernels, int rows)
{
    return mr_ceil_div((size_t)rows, (size_t)kernels->tile_rows) * kernels->a_tile / sizeof(float);
}

/* A finished block of the product, passed on while it is in the cache: value[r·row + c] is element
 * (first_row + r, first_col + c). */
typedef struct mr_block {
    int first_row, rows, first_col, cols;
    const float *value;
    size_t row;
} mr_block;

/* C[M, N] = bias + A[M, K]·B[K, N]; B is W ([K, N] in memory) or Wᵀ ([N, K] in memory). */
typedef struct mr_product {
    mr_cpu *cpu;
    int M, N, K;
    const float *a;
    const float *b;
    int b_transposed;
    const float *bias;   /* [N] or NULL */
    int accumulate;      /* C += */
    float *c;            /* [M, N]; NULL when `finish` takes the blocks */
    size_t a_row, c_row; /* from one row of A or C to the next; 0: K, N */
    void (*finish)(const mr_cpu *cpu, const void *arg, const mr_block *block);
    const void *arg;
    void *packed; /* packed B; set by mr_product_run */
} mr_product;

static inline size_t mr_a_row(const mr_product *p) { return p->a_row ? p->a_row : (size_t)p->K; }
static inline size_t mr_c_row(const mr_product *p) { return p->c_row ? p->c_row : (size_t)p->N; }

/* Runs the whole product on all threads. */
void mr_product_run(mr_product *p);

/* dW[N, K] += dyᵀ x over M tokens, and db[N] += Σ dy if db is not NULL. */
void mr_product_gradient(mr_cpu *cpu, int M, int N, int K, const float *dy, const float *x, float *dW, float *db);
/* The same, with rows of dy that are dy_row floats apart. */
void mr_product_gradient_rows(mr_cpu *cpu, int M, int N, int K, const float *dy, size_t dy_row, const float *x,
                              float *dW, float *db);

#endif
