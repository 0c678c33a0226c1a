/* Linear layers with weights in 8 bits: each row of x is rounded to 8 bits, the products are sums of integers and
 * therefore the same on every instruction set, and the scales are applied at the end. */
#ifndef MR_OPS_CPU_QUANT_H
#define MR_OPS_CPU_QUANT_H

#include "ops/cpu/cpu.h"

/* Rows of x in 8 bits are padded with zeros to a multiple of this, so that kernels need no mask. */
enum { MR_QUANT_PAD = 64 };

/* So many terms of ±127·±255 fit into 32 bits. */
enum { MR_QUANT_DEPTH = 65536 };

typedef struct mr_quant_kernels {
    /* q[k] = round(x[k]·127/max|x|), zeros from K up to the padding. Returns the step max|x|/127, or NaN
     * when a value is not finite. */
    float (*round_row)(int K, const float *x, int8_t *q);
    /* sums[i, j] = Σ_k x[i, k]·w[j, k] for m padded rows of x and n rows of w; K ≤ MR_QUANT_DEPTH. */
    void (*dots)(int K, const int8_t *x, size_t x_row, int m, const int8_t *w, size_t w_row, int n, int32_t *sums,
                 size_t sums_row);
} mr_quant_kernels;

/* The best kernels of this machine for an instruction set of cpu.c. */
const mr_quant_kernels *mr_quant_choose(const char *isa);

void mr_cpu_linear_q_fwd(mr_dev *dev, const mr_linear_q_fwd_args *args);

#endif
