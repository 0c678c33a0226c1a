/* The innermost loops: one table of functions for each instruction set. isa_*.c compile the same *.inc.h files
 * with different flags; cpu.c chooses a table when a device is opened. A kernel runs on one thread, allocates
 * nothing, and takes any width. */
#ifndef MR_OPS_CPU_KERNELS_H
#define MR_OPS_CPU_KERNELS_H

#include "ops/ops.h"

#include <stddef.h>
#include <stdint.h>

/* A prefetch request: addresses at, at + step, …, one for every second k of a tile. */
typedef struct mr_ask {
    const char *at;
    size_t step;
} mr_ask;

/* C[rows, cols] (+)= bias + A·B with both packed. */
typedef struct mr_packed {
    int rows, cols, k;
    const void *a; /* tiles as pack_a or, with by_columns, pack_at left them */
    int by_columns;
    const void *b; /* panels as pack_b left them, b_panel bytes apart */
    size_t b_panel;
    const float *bias; /* [cols] or NULL: what the sums start from */
    int accumulate;    /* 1: C += */
    float *c;
    size_t c_row;
    const mr_ask *asks; /* [ask_count]; request i is issued during tile i of C */
    int ask_count;
} mr_packed;

/* One way to multiply: a register tile, and how operands are packed for it. depth: the most
 * of k in one packed piece. */
typedef struct mr_product_kernels {
    int tile_rows, tile_cols, depth;
    int k_step;    /* a packed panel of B is padded to a multiple of it */
    size_t a_tile; /* bytes of a packed tile of A */
    size_t b_row;  /* bytes of one k in a packed panel of B */
    void (*multiply)(const mr_packed *operands);
    /* B[k, cols] with general strides, one of them 1, into a panel. */
    void (*pack_b)(const float *b, size_t b_row, size_t b_col, int k, int cols, void *to);
    /* A[rows, k] into tiles. */
    void (*pack_a)(const float *a, size_t a_row, int k, int rows, void *to);
    /* The same from Aᵀ[k, rows]; sums[rows] += the sums over k, if not NULL. */
    void (*pack_at)(const float *a, size_t a_row, int k, int rows, void *to, float *sums);
} mr_product_kernels;

/* Dropout of consecutive elements, the first of which has the index `first` in its site's stream. */
typedef struct mr_drop {
    uint64_t seed;
    uint32_t step, micro, site, keep; /* kept when the bits are below `keep` */
    float scale;
    int on;
} mr_drop;

/* One row of linear_fwd after the product. */
typedef struct mr_finish {
    int n, gelu;
    const float *value; /* [n] x Wᵀ + b */
    float *pre;         /* [n] or NULL */
    mr_drop drop;
    uint64_t first;        /* dropout index of column 0 */
    const float *residual; /* [n] or NULL */
    float *y;              /* [n] */
} mr_finish;

/* Consecutive tokens of one sequence, of which only the first may start a sequence; n channels out of H. */
typedef struct mr_run {
    int rows, n;
    float *pre; /* gate g of row t at pre[t·pre_row + g·gate]; the backward replaces it by its gradient */
    size_t pre_row, gate;
    const float *start; /* [n] the state before row 0 */
    float *h;           /* [rows, n], written by the forward, read by the backward */
    const float *dh;    /* [rows, n] */
    size_t h_row;       /* of h and dh */
    float *carry;       /* [n] backward: a·g of the row after the run on entry, of row 0 on exit */
    const float *a, *b; /* [rows, n] with h_row, when a and b are given; pre is then unused … */
    float *da, *db;     /* … and the backward leaves their gradients here */
    float *decay; /* [n] effects: the run maps a state h to decay·h + carry; both continue from their values on entry */
} mr_run;

typedef void mr_scan_fn(const mr_run *run);

enum {
    MR_GATES_GRU,
    MR_GATES_LSTM,
    MR_GATES_LSTM_NORM,
    MR_LOG_GATES, /* those above have a scan in logarithms */
    MR_GATES_SIGNED_GRU = MR_LOG_GATES,
    MR_GATES_SIGNED_LSTM,
    MR_GATES_SIGNED_LSTM_NORM,
    MR_GATES
};
enum { MR_CANDIDATES = 3 };

/* One row of the convolution: y = bias + Σ w[j]·x[j]; x[j] points to zeros where there is no input. */
typedef struct mr_conv_row {
    int n, taps;
    const float *x[MR_TAPS_MOST], *w[MR_TAPS_MOST]; /* [n] each */
    const float *bias;                              /* [n], forward */
    float *y;                                       /* [n], forward */
    const float *dy;                                /* [n], gradient of the weights */
    float *dw[MR_TAPS_MOST], *db;                   /* [n] += */
} mr_conv_row;

/* y = act(x), times up if that is not NULL; or the gradients dx and dup. */
typedef struct mr_activate_row {
    size_t n;
    mr_activation kind;
    const float *x, *up, *dy;
    float *y, *dx, *dup;
} mr_activate_row;

typedef struct mr_norm_row {
    int n;
    mr_norm kind;
    double eps;             /* forward */
    const float *x, *w, *b; /* b may be NULL */
    float mean, rstd;       /* set by the forward, read by the backward */
    float *y;
    const float *dy;
    int accumulate;
    float *dx, *dw, *db; /* dw, db +=; db may be NULL */
} mr_norm_row;

typedef struct mr_adam_row {
    size_t n;
    float *p, *m, *v;
    const float *g;
    float clip, l2, shrink, beta1, one_beta1, beta2, one_beta2, rate, root, eps;
} mr_adam_row;

/* One row of one token of GRU or LSTM, n channels; gate g lies at gates[g·n], likewise in sums and ds. */
typedef struct mr_rnn_row {
    int n;
    /* [G·n] input projections; replaced by the gates, and in the backward by the gradients of their arguments */
    float *gates;
    /* [n] r·h' (gru before), s_n (gru after), c (lstm); the backward of `after` leaves the gradient of s_n */
    float *extra;
    /* what the state adds to the gates' arguments; in the second half of `before` only that of n */
    const float *sums;
    float *rh;    /* [n] `before`: r·h' (backward: the gradient of s_n), for the product between the halves */
    float *h, *c; /* [n] the state; replaced by the next state */
    float *out;   /* [n] h again, as output */
    const float *before, *c_before; /* [n] backward: the state before the token */
    const float *dout, *back;       /* [n] gradients of h: from the layer above, and through the next token's product */
    float *carry, *carry_c;         /* [n] the rest of the state's gradient; replaced by that of the previous state */
    float *ds;                      /* [G·n] gradients of the sums */
} mr_rnn_row;

/* `before` has two halves: within a token it multiplies with W_hh twice. */
enum { MR_RNN_LSTM, MR_RNN_AFTER, MR_RNN_BEFORE_FIRST, MR_RNN_BEFORE_SECOND, MR_RNN_PARTS };

/* A piece of a row of attention's scores: n columns, of which from … end − 1 are seen. */
typedef struct mr_soften {
    int n, from, end;
    float scale;
    float *s; /* [n] q·k; replaced by exp(scale·q·k − top) */
    /* largest score and Σ exp(score − top) of the pieces so far; in the backward, top is log Σ exp(score) */
    float top, sum;
    float *ds, mean; /* backward: [n] gradient of the softmax, replaced by that of q·k; mean: Σ softmax·gradient */
} mr_soften;

/* At most MR_SSCAN_CHUNK tokens of one sequence and n of its channels in the selective scan. Arrays of tokens have
 * rows `row` apart, arrays [states, n] rows `state_row` apart. */
typedef struct mr_sscan_run {
    int rows, n, states;
    size_t row, state_row;
    const float *u, *delta, *z;
    const float *bc;      /* [rows, 2·states] */
    const uint8_t *reset; /* [rows] or NULL */
    const float *rate;    /* [states, n] −exp(A_log)/log 2, as sscan_rates makes it, rows rate_row apart */
    size_t rate_row;
    const float *D, *dt_bias; /* [n] */
    float *h;                 /* [states, n] the state before the run; the forward replaces it by the one after it */
    float *y;                 /* forward */
    /* backward */
    const float *dy;
    float *du, *ddelta, *dz;
    float *carry;   /* [states, n] gradient of the state after the run; replaced by that of the state before it */
    float *dA, *dD; /* [states, n], [n] += ; dA: of −exp(A_log) */
    float *dbc;     /* [rows, 2·states] sums over these channels */
    float *work;    /* MR_SSCAN_WORK(states) floats */
    /* effects: the run maps a state h (with dy: a carry) to kept·h + carry; both continue from their values on entry */
    float *kept; /* [states, n] */
} mr_sscan_run;

#define MR_SSCAN_WORK(states) ((size_t)MR_SSCAN_CHUNK * (4 * (size_t)(states) + 4) * 16)

typedef struct mr_cpu_kernels {
    const char *name;

    mr_product_kernels product, product_bf16; /* bf16: operands rounded to it, sums in fp32 */
    /* c[m, n] = bias[n] + Σ_k x[m, k]·w[n, k] for a few rows, w read once. */
    void (*dots)(const float *x, int m, int k, const float *w, const float *bias, int n, float *c, size_t c_row);

    /* rows */
    void (*finish)(const mr_finish *row);
    void (*gelu_bwd)(int n, const float *product, const float *pre, int accumulate, float *dx);
    void (*dropout)(const mr_drop *drop, uint64_t first, size_t n, const float *x, float *y);
    void (*add)(size_t n, float *to, const float *from);                 /* to += from */
    void (*axpy)(size_t n, float factor, const float *from, float *to);  /* to += factor·from */
    void (*scale)(size_t n, float factor, const float *from, float *to); /* to = factor·from */
    void (*affine)(int n, float *h, const float *a, const float *b);     /* h = a·h + b */
    void (*norm_fwd)(mr_norm_row *row);
    void (*norm_bwd)(const mr_norm_row *row);
    void (*conv)(const mr_conv_row *row);
    void (*conv_grad)(const mr_conv_row *row);

    /* gates and scan, indexed by MR_GATES_… and mr_candidate */
    mr_scan_fn *scan_fwd[MR_GATES][MR_CANDIDATES];
    mr_scan_fn *scan_bwd[MR_GATES][MR_CANDIDATES];
    mr_scan_fn *effect_fwd[MR_GATES][MR_CANDIDATES]; /* on the state before the run */
    mr_scan_fn *effect_bwd[MR_GATES][MR_CANDIDATES]; /* on the carry after it */
    mr_scan_fn *scan_log[MR_LOG_GATES];              /* positive candidate; carry [2n]: scratch */
    mr_scan_fn *given_fwd, *given_bwd, *given_effect_fwd, *given_effect_bwd; /* with a and b given */
    void (*candidate)(mr_candidate kind, int n, const float *v, float *c);
    void (*candidate_bwd)(mr_candidate kind, int n, const float *v, const float *dc, float *dv); /* dv += */

    /* attention; turn: a row of the rotary table or NULL, sign −1: rotate back */
    void (*turn)(int n, const float *x, const float *turn, float sign, float *to);
    float (*turned_dot)(int n, const float *q, const float *k, const float *turn);
    float (*soften)(mr_soften *row); /* returns the factor for results that used the old `top` */
    void (*soften_bwd)(const mr_soften *row);

    /* losses and optimiser */
    float (*max)(int n, const float *x);
    float (*exp_sum)(int n, const float *x, float max, float *e); /* Σ exp(x − max); e, if not NULL, gets the terms */
    void (*tanh)(size_t n, const float *x, float *y);
    void (*tanh_bwd)(size_t n, const float *x, const float *dy, float *dx);
    double (*sumsq)(size_t n, const float *x);
    void (*adam)(const mr_adam_row *row);

    void (*rnn_fwd[MR_RNN_PARTS])(const mr_rnn_row *row);
    void (*rnn_bwd[MR_RNN_PARTS])(const mr_rnn_row *row);

    void (*activate)(const mr_activate_row *row);
    void (*activate_bwd)(const mr_activate_row *row);

    /* Mamba */
    void (*sscan_rates)(int n, int states, const float *A_log, float *rate, size_t rate_row);
    void (*sscan_fwd)(const mr_sscan_run *run);
    void (*sscan_bwd)(const mr_sscan_run *run);
    void (*sscan_effect)(const mr_sscan_run *run); /* dy NULL: forward */
} mr_cpu_kernels;

extern const mr_cpu_kernels mr_cpu_kernels_scalar;
#if defined(__x86_64__)
extern const mr_cpu_kernels mr_cpu_kernels_avx2, mr_cpu_kernels_avx512;
extern const mr_product_kernels mr_cpu_product_amx; /* in isa_avx512.c; needs mr_cpu_has_amx */
#elif defined(__aarch64__)
extern const mr_cpu_kernels mr_cpu_kernels_neon;
#endif

#endif
