/* Arguments of ops that look at one token or one row at a time: embedding, linear layers, norms, pooling, SiLU, losses,
 * sampling, optimiser. ops.h says what all of them have in common. */
#ifndef MR_OPS_ARGS_LAYERS_H
#define MR_OPS_ARGS_LAYERS_H

#include "ops/types.h"

/* The distance of rows where an argument `row` says so. */
static inline size_t mr_row_step(int row, int width) { return (size_t)(row ? row : width); }

typedef struct mr_embed_fwd_args {
    int N, D, vocab;
    const int32_t *ids;   /* [N] in 0 … vocab−1 */
    const mr_real *table; /* [vocab, D] */
    mr_act *y;            /* [N, D] */
} mr_embed_fwd_args;

typedef struct mr_embed_bwd_args {
    int N, D, vocab;
    const int32_t *ids; /* [N] */
    const mr_act *dy;   /* [N, D] */
    mr_real *dtable;    /* [vocab, D] += */
} mr_embed_bwd_args;

/* gelu(x) = x·σ(2·√(2/π)·(x + 0.044715·x³)), the tanh form.
 * Order: v = x Wᵀ + b; pre = v; v = gelu(v) if gelu; v = dropout(v); y = residual + v. */
typedef struct mr_linear_fwd_args {
    int M, N, K;
    const mr_act *x;  /* [M, K] */
    const mr_real *W; /* [N, K] */
    const mr_real *b; /* [N] or NULL */
    int gelu;
    mr_act *pre; /* [M, N] or NULL: x Wᵀ + b, for the backward of gelu */
    mr_dropout drop;
    const mr_act *residual; /* [M, N] or NULL; may be y itself */
    mr_act *y;              /* [M, N] */
    /* elements from one row of y to the next; 0: N. Then without gelu, pre, dropout and residual. What lies between
     * rows is left alone. */
    int row;
} mr_linear_fwd_args;

/* The same with 8-bit weights, for inference only: W[n, k] = scale[n]·Wq[n, k]. A backend may round each row of x to 8
 * bits in steps of max|x|/127; the tolerance allows for that. A row that is not finite gives NaN. */
typedef struct mr_linear_q_fwd_args {
    int M, N, K;
    const mr_act *x;      /* [M, K] */
    const int8_t *Wq;     /* [N, K] in −127 … 127 */
    const mr_real *scale; /* [N] */
    const mr_real *b;     /* [N] or NULL */
    int gelu;
    const mr_act *residual; /* [M, N] or NULL; may be y itself */
    mr_act *y;              /* [M, N] */
} mr_linear_q_fwd_args;

typedef struct mr_linear_bwd_x_args {
    int M, N, K;
    const mr_act *dy;  /* [M, N] */
    const mr_real *W;  /* [N, K] */
    const mr_act *pre; /* [M, K] or NULL: input of the gelu before this layer */
    int accumulate;    /* 1: dx += */
    mr_act *dx;        /* [M, K] */
    int row;           /* elements from one row of dy to the next; 0: N */
} mr_linear_bwd_x_args;

typedef struct mr_linear_bwd_w_args {
    int M, N, K;
    const mr_act *dy; /* [M, N] */
    const mr_act *x;  /* [M, K] */
    mr_real *dW;      /* [N, K] += */
    mr_real *db;      /* [N] += or NULL */
    int row;          /* elements from one row of dy to the next; 0: N */
} mr_linear_bwd_w_args;

typedef struct mr_dropout_bwd_args {
    size_t n;
    mr_dropout drop;
    const mr_act *dy; /* [n] */
    mr_act *dx;       /* [n]; may be dy itself */
} mr_dropout_bwd_args;

typedef enum mr_norm { MR_NORM_RMS, MR_NORM_LAYER, MR_NORM_NONE } mr_norm;

/* rms: y = x·rstd·w with rstd = 1/√(mean(x²) + eps); layer: y = (x − mean)·rstd·w + b with rstd = 1/√(var + eps);
 * none: y = x·w (rstd = 1). */
#define MR_RMS_EPS 1e-6 /* where nothing else is asked for */
#define MR_LAYER_EPS 1e-5

typedef struct mr_norm_fwd_args {
    int M, D;
    mr_norm kind;
    double eps;
    const mr_act *x;  /* [M, D] */
    const mr_real *w; /* [D] */
    const mr_real *b; /* [D], layer only, else NULL */
    mr_act *y;        /* [M, D] */
    mr_real *stat;    /* [M, 2] mean (0 except for layer), rstd; or NULL */
} mr_norm_fwd_args;

typedef struct mr_norm_bwd_args {
    int M, D;
    mr_norm kind;
    const mr_act *x;     /* [M, D] */
    const mr_real *w;    /* [D] */
    const mr_real *stat; /* [M, 2] */
    const mr_act *dy;    /* [M, D] */
    int accumulate;      /* 1: dx += */
    mr_act *dx;          /* [M, D] */
    mr_real *dw;         /* [D] += */
    mr_real *db;         /* [D] +=, layer only, else NULL */
} mr_norm_bwd_args;

typedef enum mr_pooling { MR_POOL_LAST, MR_POOL_MEAN } mr_pooling;

/* Without a token, or with a weight of 0, y is 0 and dx, too. */
typedef struct mr_pool_fwd_args {
    int B, T, D;
    mr_pooling kind;
    const int32_t *length; /* [B] or NULL */
    const mr_real *weight; /* [B] factors of y, or NULL: 1 */
    const mr_act *x;       /* [B, T, D] */
    mr_act *y;             /* [B, D] */
} mr_pool_fwd_args;

typedef struct mr_pool_bwd_args {
    int B, T, D;
    mr_pooling kind;
    const int32_t *length; /* [B] or NULL */
    const mr_real *weight; /* [B] or NULL */
    const mr_act *dy;      /* [B, D] */
    mr_act *dx;            /* [B, T, D] */
} mr_pool_bwd_args;

/* Two rows concatenated with their product and difference: the input of a classifier of pairs. */
typedef struct mr_pair_fwd_args {
    int P, D;
    const mr_act *x; /* [2·P, D] */
    mr_act *y;       /* [P, 4·D] */
} mr_pair_fwd_args;

typedef struct mr_pair_bwd_args {
    int P, D;
    const mr_act *x;  /* [2·P, D] */
    const mr_act *dy; /* [P, 4·D] */
    mr_act *dx;       /* [2·P, D] */
} mr_pair_bwd_args;

/* silu(x) = x·σ(x). gelu in the tanh form is as above, with erf it is ½x·(1 + erf(x/√2)). */
typedef enum mr_activation { MR_SILU, MR_GELU_TANH, MR_GELU_ERF } mr_activation;

/* An activation by itself; gated: y = act(g)·u, where a row of x is [g | u]. */
typedef struct mr_activate_fwd_args {
    size_t M, F;
    mr_activation kind;
    int gated;
    const mr_act *x; /* [M, F]; gated: [M, 2·F] */
    mr_act *y;       /* [M, F]; not gated: may be x itself */
} mr_activate_fwd_args;

typedef struct mr_activate_bwd_args {
    size_t M, F;
    mr_activation kind;
    int gated;
    const mr_act *x;  /* input of the forward */
    const mr_act *dy; /* [M, F] */
    mr_act *dx;       /* of the size of x; may be x itself; not gated: may be dy itself */
} mr_activate_bwd_args;

typedef struct mr_xent_args {
    int R, C;
    const mr_act *logits;  /* [R, C] */
    const int32_t *target; /* [R] in 0 … C−1, or −1: the row does not count (loss 0, gradient 0) */
    const double *scale;   /* [1]; read when dlogits is wanted */
    mr_act *dlogits;       /* [R, C] or NULL; may be logits itself */
    mr_real *row_loss;     /* [R]: −log p(target), in nats */
    double *stats;         /* [MR_STATS] +=; correct: the first largest logit is the target */
    int row;               /* elements from one row of logits and dlogits to the next; 0: C. Others are left alone. */
} mr_xent_args;

/* With tanh, tanh(pred) takes the place of pred in the loss, and dpred is the gradient before the tanh. */
typedef struct mr_mse_args {
    int R, C, tanh;
    const mr_act *pred;    /* [R, C] */
    const mr_real *target; /* [R, C] */
    const uint8_t *mask;   /* [R] or NULL: all count */
    const double *scale;   /* [1]; read when dpred is wanted */
    mr_act *dpred;         /* [R, C] or NULL; may be pred itself */
    mr_real *row_loss;     /* [R]: mean over C of (pred − target)² */
    double *stats;         /* [MR_STATS] +=; MR_STAT_CORRECT is left alone */
} mr_mse_args;

/* tanh between what the head computes and the scores that a caller sees, which are fp32 on every device. */
typedef struct mr_tanh_fwd_args {
    size_t n;
    const mr_act *x; /* [n] */
    mr_real *y;      /* [n] */
} mr_tanh_fwd_args;

typedef struct mr_tanh_bwd_args {
    size_t n;
    const mr_act *x;   /* [n] input of the forward */
    const mr_real *dy; /* [n] */
    mr_act *dx;        /* [n]; may be x itself */
} mr_tanh_bwd_args;

/* How tokens are drawn. */
typedef struct mr_sampling {
    uint64_t seed;
    double temperature; /* 0: always the likeliest */
    double top_p;       /* 1: all */
    int32_t top_k;      /* 0: all */
    int32_t pad;
} mr_sampling;

enum { MR_DRAWN = 16 }; /* rows of `drawn`: draws that the host has not read yet */

/* Tokens are sorted by probability, likeliest first, ties by the smaller token, with e_j = exp((x_j −
 * x_0)/temperature). The shortest prefix whose sum reaches top_p·Σ e is kept, at least 1 and at most top_k tokens. The
 * first kept token whose running sum exceeds u·(sum of the kept) is drawn, with u = mr_sample_uniform(seed, position,
 * row) of core/rng.h. All of it is in double: backends may add in another order, so they draw the same token unless u
 * lies within rounding, about 1e-15, of a boundary. A row with a logit that is not finite draws nothing: its entry of
 * ids is then 0 (a valid token), that of drawn −1. */
typedef struct mr_sample_args {
    int R, C;
    const mr_act *logits;   /* [R, C] */
    const mr_sampling *how; /* [1] */
    double *position;       /* [1], a whole number; += 1 */
    int32_t *ids;           /* [R] */
    int32_t *drawn;         /* [MR_DRAWN, R]: row (position mod MR_DRAWN) is written, the others stay */
} mr_sample_args;

typedef struct mr_sumsq_args {
    size_t n;
    const mr_real *g; /* [n] */
    double *out;      /* [1] = */
} mr_sumsq_args;

/* The norm in parts, for gradients that are summed over ranks: each rank has some of the parts. */
enum { MR_SUM_PART = 16384 };
typedef struct mr_sumsq_parts_args {
    size_t n;
    const mr_real *g; /* [n] */
    double *parts;    /* [⌈n / MR_SUM_PART⌉] = */
} mr_sumsq_parts_args;

typedef struct mr_sum_parts_args {
    size_t n;
    const double *parts; /* [n] */
    double *out;         /* [1] = */
} mr_sum_parts_args;

typedef struct mr_accumulate_args {
    size_t n;
    const mr_real *x; /* [n] */
    mr_real *y;       /* [n] += */
} mr_accumulate_args;

/* g' = g·min(1, clip/(√sumsq + 1e-6)); Adam: g' += wd·p for decayed elements; m, v as usual; AdamW: p −= lr·wd·p for
 * decayed elements; p −= lr·(m/bias1)/(√(v/bias2) + eps). Elements 0 … n_decay−1 are decayed. Nothing changes when
 * sumsq is not finite. */
typedef struct mr_adam_args {
    size_t n, n_decay;
    mr_real *p, *m, *v;  /* [n] */
    const mr_real *g;    /* [n] */
    const mr_step *step; /* [1] */
    const double *sumsq; /* [1] */
} mr_adam_args;

#endif
