/* What the files of GRU and LSTM on the CPU share: a call, its groups of rows, and products with W_hh. */
#ifndef MR_OPS_CPU_RNN_H
#define MR_OPS_CPU_RNN_H

#include "ops/cpu/gemm.h"

enum { MR_RNN_MATRICES = 2 };

/* B[K, N] of a product C[rows, N] = bias + A[rows, K]·B: some rows of W_hh, transposed in the forward, as
 * they are in the backward. */
typedef struct mr_rnn_matrix {
    int N, K;
    const float *from, *bias;
    size_t row, column; /* strides of B in W_hh */
    float *plain;       /* few rows: Bᵀ [N, K] */
    char *packed;       /* many rows: pieces of k, each of them in panels */
    int depth, pieces, panels;
    size_t panel; /* bytes */
} mr_rnn_matrix;

typedef struct mr_rnn_job {
    mr_cpu *cpu;
    mr_rnn kind;
    int B, T, H, G, S;
    int few, group_rows;
    float *gates, *extra; /* [B, T, G·H], [B, T, H] */
    const float *h_in, *h_init, *zeros;
    const uint8_t *reset;
    const int32_t *length;
    float *h, *h_out;
    const float *dh, *dh_out;
    float *dh_in, *start_grad;               /* start_grad: [B, S] gradient that reached h_init */
    mr_rnn_matrix matrices[MR_RNN_MATRICES]; /* gru before: for r and z, and for n; otherwise one for all gates */
} mr_rnn_job;

/* A group: rows first … first+rows−1 of the batch, which go through time together, and buffers for them. */
typedef struct mr_rnn_group {
    const mr_rnn_job *j;
    int first, rows;
    float *tile;                   /* packed rows of A */
    float *h, *c, *rh;             /* [rows, H] */
    float *sums, *more;            /* [rows, G·H], or for gru before [rows, 2·H] and [rows, H] */
    float *carry, *carry_c, *back; /* [rows, H] */
} mr_rnn_group;

/* Fills j->matrices from W_hh; down: for the backward. Returns 0 when out of memory. */
int mr_rnn_make_matrices(mr_rnn_job *j, const float *W, const float *bias, int down);

/* c[rows, N] = bias + a[rows, K]·B for the rows of a group. */
void mr_rnn_multiply(const mr_rnn_group *g, const mr_rnn_matrix *m, const float *a, float *c);

#endif
