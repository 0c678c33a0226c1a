/* Arguments of ops that let one sequence be cut in time: what a chunk of tokens does to the state before it, what
 * follows from a row of such effects, and the inputs that a convolution takes from the chunk before. ops.h says what
 * all ops have in common. */
#ifndef MR_OPS_ARGS_CUT_H
#define MR_OPS_ARGS_CUT_H

#include "ops/args_time.h"

/* The effect of a chunk is affine. Forward, dh NULL: the state h before it becomes A·h + C. Backward: the gradient d of
 * the state after it becomes A·d + C, C being what dh adds on the way. Both follow from pre-activations, as minrnn_fwd
 * has them with W NULL; `scan` does not matter. A reset in the chunk makes A 0, and the state continues from
 * cand(h_init). Tokens at and beyond length[b] do not exist: without any, A is 1 and C 0. */
typedef struct mr_minrnn_effect_args {
    mr_cell cell;
    int B, T, H;
    const mr_act *pre;     /* [B, T, G·H] */
    const mr_real *h_init; /* [H] or NULL */
    const uint8_t *reset;  /* [B, T] or NULL */
    const int32_t *length; /* [B] or NULL */
    const mr_act *dh;      /* [B, T, H] or NULL */
    mr_real *A, *C;        /* [B, H] */
} mr_minrnn_effect_args;

/* The same of the selective scan. */
typedef struct mr_sscan_effect_args {
    int B, T, E, N;
    const mr_act *u, *delta, *z; /* [B, T, E]; z is read backward only, u forward only */
    const mr_act *bc;            /* [B, T, 2·N] */
    const mr_real *A_log;        /* [E, N] */
    const mr_real *dt_bias;      /* [E] */
    const uint8_t *reset;        /* [B, T] or NULL */
    const int32_t *length;       /* [B] or NULL */
    const mr_act *dy;            /* [B, T, E]: backward; NULL: forward */
    mr_real *A, *C;              /* [B, N, E] */
} mr_sscan_effect_args;

/* Passes a state through a row of effects: y = C[0], then y = A[k]·y + C[k] for k = 1 … count − 1; with `down` from
 * C[count − 1] on to k = 0. Where A[k] is 0, y becomes C[k], whatever it was: a reset also stops NaN. */
typedef struct mr_effect_chain_args {
    size_t n;
    int count, down;
    const mr_real *A, *C; /* [count, n]; the A of the first is not read */
    mr_real *y;           /* [n] */
} mr_effect_chain_args;

/* The last taps − 1 inputs of a chunk as conv_fwd leaves them in tail_out when a sequence starts at token 0. */
typedef struct mr_conv_tail_fwd_args {
    int B, T, D, taps;
    const mr_act *x;       /* [B, T, D] */
    const uint8_t *reset;  /* [B, T] or NULL */
    const int32_t *length; /* [B] or NULL */
    mr_real *tail;         /* [B, K − 1, D] */
} mr_conv_tail_fwd_args;

typedef struct mr_conv_tail_bwd_args {
    int B, T, D, taps;
    const uint8_t *reset;
    const int32_t *length;
    const mr_real *dtail; /* [B, K − 1, D] */
    mr_act *dx;           /* [B, T, D] += */
} mr_conv_tail_bwd_args;

#endif
