/* Arguments of ops that carry a state from token to token: convolution, minGRU and minLSTM, the scan alone, GRU and
 * LSTM, attention, the selective scan, states of streams. ops.h says what all of them have in common. */
#ifndef MR_OPS_ARGS_TIME_H
#define MR_OPS_ARGS_TIME_H

#include "ops/types.h"

/* y[t] = b + Σ_j w[j]·x[t − K + 1 + j], j = 0 … K − 1, with K = taps. Inputs before the sequence are zero; tail_in
 * holds the last K − 1 inputs before this chunk, oldest first. A reset before t makes everything before t zero.
 * Tokens at and beyond length[b] do not exist: their y is 0, they pass no gradient, and tail_out comes from the
 * real tokens. */
#define MR_TAPS_MOST 16

typedef struct mr_conv_fwd_args {
    int B, T, D, taps;      /* taps: 1 … MR_TAPS_MOST */
    const mr_act *x;        /* [B, T, D] */
    const mr_real *w;       /* [D, K] */
    const mr_real *b;       /* [D] */
    const mr_real *tail_in; /* [B, K − 1, D] or NULL: zero */
    const uint8_t *reset;   /* [B, T] or NULL */
    const int32_t *length;  /* [B] or NULL: all T */
    mr_act *y;              /* [B, T, D] */
    mr_real *tail_out;      /* [B, K − 1, D] or NULL; may be tail_in itself. A reset zeroes the inputs before it */
} mr_conv_fwd_args;

typedef struct mr_conv_bwd_args {
    int B, T, D, taps;
    const mr_act *x;          /* [B, T, D] */
    const mr_real *w;         /* [D, K] */
    const mr_real *tail_in;   /* [B, K − 1, D] or NULL */
    const uint8_t *reset;     /* [B, T] or NULL */
    const int32_t *length;    /* [B] or NULL */
    const mr_act *dy;         /* [B, T, D] */
    const mr_real *dtail_out; /* [B, K − 1, D] or NULL: zero */
    int accumulate;           /* 1: dx += */
    mr_act *dx;               /* [B, T, D] */
    mr_real *dw;              /* [D, K] += */
    mr_real *db;              /* [D] += */
    mr_real *dtail_in;        /* [B, K − 1, D] or NULL; zero when tail_in is NULL */
} mr_conv_bwd_args;

/* The recurrence h_t = a_t·h_{t−1} + b_t of one layer, computed from the layer's input.
 *   pre = x Wᵀ + bias, of G·H channels: minGRU (G = 2) k | v, minLSTM (G = 3) p | k | v
 *   minGRU   a = σ(−k), b = σ(k)·c          minLSTM  a = σ(p), b = σ(k)·c, or, normalised, with
 *   c = cand(v):                                     a = σ(d), b = σ(−d)·c, d = softplus(−k) − softplus(−p)
 *     positive: v + 0.5 for v ≥ 0, σ(v) otherwise;  linear: v;  tanh: tanh(v)
 * With transition = signed, a is clamp(MR_SIGNED_REACH·tanh(q), −1, 1), q = k in minGRU and p in minLSTM, and
 *   minGRU   b = (1 − |a|)·c                minLSTM  b = σ(k)·c, or, normalised, b = (1 − |a|)·σ(k)·c
 * A sequence starts from cand(h_init) (h_init NULL: from 0): before token 0 when h_in is NULL, and before every token
 * with reset = 1. Otherwise it continues from h_in. W NULL computes gates and scan alone: `saved` then begins with pre,
 * [B, T, G·H] acts, the backward replaces it by its gradient, and D, x, b, dx, dW, db are ignored. Tokens at and beyond
 * length[b] do not exist: their h is 0, they pass no gradient, and h_out is the state after the real ones. scan = log
 * computes the same function the paper's way (candidate and transition positive only). */
#define MR_SIGNED_REACH 1.2 /* more than 1, so that a can be exactly ±1 and stay there: smooth gates do not */

typedef struct mr_cell {
    mr_cell_kind kind;
    mr_candidate candidate;
    mr_scan scan;
    int normalize; /* minLSTM */
    mr_transition transition;
} mr_cell;

static inline int mr_cell_gates(const mr_cell *cell) { return cell->kind == MR_MINGRU ? 2 : 3; }

typedef struct mr_minrnn_fwd_args {
    mr_cell cell;
    int B, T, D, H;
    const mr_act *x;       /* [B, T, D] */
    const mr_real *W;      /* [G·H, D] */
    const mr_real *b;      /* [G·H] or NULL: no bias */
    const mr_real *h_in;   /* [B, H] or NULL */
    const mr_real *h_init; /* [H] or NULL */
    const uint8_t *reset;  /* [B, T] or NULL */
    const int32_t *length; /* [B] or NULL */
    /* mr_dev.minrnn_saved(…) bytes: what this backend keeps for its backward, or uses as scratch */
    void *saved;
    mr_act *h;      /* [B, T, H] */
    mr_real *h_out; /* [B, H] or NULL; may be h_in itself */
    void *work;     /* mr_dev.scan_work(…) bytes for this call; NULL: the device's own scratch */
} mr_minrnn_fwd_args;

typedef struct mr_minrnn_bwd_args {
    mr_cell cell;
    int B, T, D, H;
    const mr_act *x; /* as in the forward */
    const mr_real *W;
    const mr_real *b;
    const mr_real *h_in;
    const mr_real *h_init;
    const uint8_t *reset;
    const int32_t *length;
    void *saved;           /* of the forward; destroyed */
    const mr_act *h;       /* [B, T, H] of the forward */
    const mr_act *dh;      /* [B, T, H] */
    const mr_real *dh_out; /* [B, H] or NULL: zero */
    int accumulate;        /* 1: dx += */
    int fresh;             /* 1: dW =, db = and dh_init =, instead of += */
    mr_act *dx;            /* [B, T, D] or NULL: nobody needs it */
    mr_real *dW;           /* [G·H, D] += */
    mr_real *db;           /* [G·H] += or NULL */
    mr_real *dh_in;        /* [B, H] or NULL; zero where a sequence started before token 0 */
    mr_real *dh_init;      /* [H] += or NULL */
    void *work;            /* as in the forward */
} mr_minrnn_bwd_args;

/* The recurrence alone: h[t] = a[t]·h[t−1] + b[t], with a and b given. A sequence starts from 0 where h_in is NULL and
 * at resets; lengths as above. */
typedef struct mr_scan_fwd_args {
    int B, T, H;
    const mr_act *a, *b;   /* [B, T, H] */
    const mr_real *h_in;   /* [B, H] or NULL */
    const uint8_t *reset;  /* [B, T] or NULL */
    const int32_t *length; /* [B] or NULL */
    mr_act *h;             /* [B, T, H] */
    mr_real *h_out;        /* [B, H] or NULL; may be h_in itself */
    void *work;            /* mr_dev.scan_work(…) bytes for this call; NULL: the device's own scratch */
} mr_scan_fwd_args;

typedef struct mr_scan_bwd_args {
    int B, T, H;
    const mr_act *a; /* as in the forward */
    const mr_real *h_in;
    const uint8_t *reset;
    const int32_t *length;
    const mr_act *h;       /* [B, T, H] of the forward */
    const mr_act *dh;      /* [B, T, H] */
    const mr_real *dh_out; /* [B, H] or NULL: zero */
    mr_act *da, *db;       /* [B, T, H]; da may be a itself, db may be dh */
    mr_real *dh_in;        /* [B, H] or NULL; zero where a sequence started before token 0 */
    void *work;            /* as in the forward */
} mr_scan_bwd_args;

/* GRU and LSTM. Their gates read the previous state, so tokens must be computed one after the other. With i = x W_ihᵀ +
 * b_ih and s = h' W_hhᵀ + b_hh, h' being h of the previous token:
 *   gru (rows r, z, n)       r = σ(i_r + s_r), z = σ(i_z + s_z), h = (1 − z)·n + z·h'
 *     after  (PyTorch's)     n = tanh(i_n + r·s_n)
 *     before (the paper's)   n = tanh(i_n + s_n) with r·h' in place of h' in s_n
 *   lstm (rows i, f, g, o)   c = σ(i_f + s_f)·c' + σ(i_i + s_i)·tanh(i_g + s_g), h = σ(i_o + s_o)·tanh(c)
 * A state is h [H], or h and then c [2·H] (S numbers). A sequence starts from h_init (NULL: from 0), before token 0
 * when h_in is NULL, and before every token with reset = 1. W_ih NULL: `saved` already begins with i, [B, T, G·H] acts,
 * the backward replaces it by its gradient, and D, x, b_ih, dx, dW_ih, db_ih are ignored. Tokens at and beyond
 * length[b] do not exist: their h is 0, they pass no gradient, and h_out is the state after the real ones. */
typedef enum mr_rnn { MR_GRU_BEFORE, MR_GRU_AFTER, MR_LSTM } mr_rnn;

static inline int mr_rnn_gates(mr_rnn kind) { return kind == MR_LSTM ? 4 : 3; }
static inline int mr_rnn_state(mr_rnn kind, int H) { return kind == MR_LSTM ? 2 * H : H; }

typedef struct mr_rnn_fwd_args {
    mr_rnn kind;
    int B, T, D, H;
    const mr_act *x;       /* [B, T, D] */
    const mr_real *W_ih;   /* [G·H, D] */
    const mr_real *b_ih;   /* [G·H] */
    const mr_real *W_hh;   /* [G·H, H] */
    const mr_real *b_hh;   /* [G·H] */
    const mr_real *h_in;   /* [B, S] or NULL */
    const mr_real *h_init; /* [S] or NULL */
    const uint8_t *reset;  /* [B, T] or NULL */
    const int32_t *length; /* [B] or NULL */
    void *saved;           /* mr_dev.rnn_saved(…) bytes, as in minrnn_fwd */
    mr_act *h;             /* [B, T, H] */
    mr_real *h_out;        /* [B, S] or NULL; may be h_in itself */
} mr_rnn_fwd_args;

typedef struct mr_rnn_bwd_args {
    mr_rnn kind;
    int B, T, D, H;
    const mr_act *x; /* as in the forward */
    const mr_real *W_ih;
    const mr_real *W_hh;
    const mr_real *h_in;
    const mr_real *h_init;
    const uint8_t *reset;
    const int32_t *length;
    void *saved;           /* of the forward; destroyed */
    const mr_act *h;       /* [B, T, H] of the forward */
    const mr_act *dh;      /* [B, T, H] */
    const mr_real *dh_out; /* [B, S] or NULL: zero */
    int accumulate;        /* 1: dx += */
    mr_act *dx;            /* [B, T, D] */
    mr_real *dW_ih;        /* [G·H, D] += */
    mr_real *db_ih;        /* [G·H] += */
    mr_real *dW_hh;        /* [G·H, H] += */
    mr_real *db_hh;        /* [G·H] += */
    mr_real *dh_in;        /* [B, S] or NULL; zero where a sequence started before token 0 */
    mr_real *dh_init;      /* [S] += or NULL */
} mr_rnn_bwd_args;

/* Causal attention of one layer, head by head; D = heads·size. A token sees itself and the window − 1 tokens of its own
 * sequence before it: s[t, j] = q_t·k_j/√size, y_t = Σ_j softmax_j(s[t, ·])·v_j. rotary: first, channels 2i and 2i + 1
 * of every q and k of a head are rotated, as a point in the plane, by the angle position·10000^(−2i/size). Only
 * differences of positions matter. The state of a stream is the keys and values of its last `window` tokens, not
 * rotated: token n of a sequence (from 0) lies in row n mod window; unused rows are 0. count is the number of tokens so
 * far, reduced by a multiple of window so that it stays below 2·window. It is a whole number and has no gradient.
 * Without cache_in, and at every reset, a new sequence starts. Tokens at and beyond length[b] do not exist: their y and
 * lse are 0, and they pass no gradient. */
typedef struct mr_attn {
    int B, T, heads, size, window, rotary; /* size ≤ MR_ATTN_SIZE, even with rotary */
} mr_attn;

#define MR_ROTARY_BASE 10000.0
#define MR_ATTN_SIZE 128 /* the largest head */

typedef struct mr_attn_fwd_args {
    mr_attn shape;
    const mr_act *qkv;                  /* [B, T, 3, D]: q | k | v */
    const mr_real *cache_in, *count_in; /* [B, window, 2, D] k | v, and [B]; or both NULL */
    const uint8_t *reset;               /* [B, T] or NULL */
    const int32_t *length;              /* [B] or NULL */
    mr_act *y;                          /* [B, T, D] */
    mr_real *lse;                       /* [B, heads, T] log Σ_j exp(s[t, j]), for the backward */
    mr_real *cache_out, *count_out;     /* as …_in, or both NULL; may be …_in themselves */
} mr_attn_fwd_args;

typedef struct mr_attn_bwd_args {
    mr_attn shape;
    mr_act *qkv; /* of the forward; replaced by its gradient */
    const mr_real *cache_in, *count_in;
    const uint8_t *reset;
    const int32_t *length;
    const mr_act *y; /* of the forward */
    const mr_real *lse;
    const mr_act *dy;          /* [B, T, D] */
    const mr_real *dcache_out; /* [B, window, 2, D] or NULL: zero */
    mr_real *dcache_in;        /* [B, window, 2, D] or NULL; zero when cache_in is NULL */
    mr_real *dcount_in;        /* [B] or NULL: becomes 0 */
} mr_attn_bwd_args;

/* Learned positions: adds a row of a table to every token, chosen by its position in its sequence modulo window. The
 * backward is embed_bwd with these ids. */
typedef struct mr_position_fwd_args {
    int B, T, D, window;
    const mr_act *x;         /* [B, T, D] */
    const mr_real *table;    /* [window, D] */
    const mr_real *count_in; /* [B] as in attention, or NULL: sequences start at token 0 */
    const uint8_t *reset;    /* [B, T] or NULL */
    int32_t *ids;            /* [B, T]: which rows were added */
    mr_act *y;               /* [B, T, D] */
} mr_position_fwd_args;

/* The selective scan (S6) of E channels with N states each. For one token and channel, with B and C the token's N
 * values each in bc:
 *   Δ = softplus(delta + dt_bias), h[n] = exp(−Δ·exp(A_log[n]))·h[n] + Δ·B[n]·u, y = silu(z)·(Σ_n C[n]·h[n] + D·u)
 * A sequence starts from h = 0: before token 0 when h_in is NULL, and before every token with reset = 1. Tokens at and
 * beyond length[b] do not exist: their y is 0, they pass no gradient, and h_out is the state after the real ones. The
 * backward recomputes the states of a chunk from the state before it, which the forward leaves in `states`. */
#define MR_SSCAN_CHUNK 16
#define MR_SSCAN_STATES 32 /* N at most */

static inline size_t mr_sscan_chunks(int T) { return ((size_t)T + MR_SSCAN_CHUNK - 1) / MR_SSCAN_CHUNK; }

typedef struct mr_sscan_fwd_args {
    int B, T, E, N;
    const mr_act *u, *delta, *z; /* [B, T, E] */
    const mr_act *bc;            /* [B, T, 2·N]: B, then C */
    const mr_real *A_log;        /* [E, N] */
    const mr_real *D, *dt_bias;  /* [E] */
    const mr_real *h_in;         /* [B, N, E] or NULL */
    const uint8_t *reset;        /* [B, T] or NULL */
    const int32_t *length;       /* [B] or NULL */
    mr_act *y;                   /* [B, T, E] */
    mr_real *h_out;              /* [B, N, E] or NULL; may be h_in itself */
    /* [B, mr_sscan_chunks(T), N, E] or NULL: h before each chunk's first token, before any reset there */
    mr_real *states;
} mr_sscan_fwd_args;

typedef struct mr_sscan_bwd_args {
    int B, T, E, N;
    const mr_act *u, *delta, *z; /* as in the forward */
    const mr_act *bc;
    const mr_real *A_log;
    const mr_real *D, *dt_bias;
    const mr_real *h_in;
    const uint8_t *reset;
    const int32_t *length;
    const mr_real *states; /* of the forward */
    const mr_act *dy;      /* [B, T, E] */
    const mr_real *dh_out; /* [B, N, E] or NULL: zero */
    mr_act *du;            /* [B, T, E] */
    mr_act *ddelta;        /* [B, T, E]; may be delta itself. Summed over tokens it is the gradient of dt_bias */
    mr_act *dz;            /* [B, T, E]; may be z itself */
    mr_act *dbc;           /* [B, T, 2·N]; may be bc itself */
    mr_real *dA_log;       /* [E, N] += */
    mr_real *dD;           /* [E] += */
    mr_real *dh_in;        /* [B, N, E] or NULL; zero where a sequence started before token 0 */
} mr_sscan_bwd_args;

/* Moves states of streams between a pool and a batch. A pool holds one contiguous state in each slot: for every block
 * the tail of its convolution, the mixer's state, and the rest of that state (empty for most mixers). A state of B
 * streams (model/state.c) holds for every block first all tails, then all mixers' states, then all rests. Row b of
 * `many` and slot[b] of the pool are the same stream; data moves from the pool into `many`, or back with scatter. */
typedef struct mr_state_rows_args {
    int B, layers;
    int tail, mixer, rest; /* reals for each block and stream */
    int scatter;
    const int32_t *slot; /* [B]; all different with scatter */
    mr_real *pool;       /* [slots, layers, tail + mixer + rest]; slots not listed stay as they are */
    mr_real *many;       /* [layers]: tails [B, tail], mixers' [B, mixer], rests [B, rest] */
} mr_state_rows_args;

#endif
