/* minrnn, the part that may still change: everything here works and is tested, but names and structs may differ in the next
 * version. Nothing of minrnn is declared stable for ever before 1.0. */
#ifndef MINRNN_EXPERIMENTAL_H
#define MINRNN_EXPERIMENTAL_H

#include "minrnn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The scan and the cells alone, on your own buffers -----------------------------------------------------------------------
 *
 * For programs that have their own framework. Pointers are memory of the context's device: host memory, or for "cuda" device
 * memory (reset, length and workspace too). fp32, [B, T, H] with channels contiguous. The workspace is the caller's, at least
 * …_workspace() bytes for the same shape, aligned to 64; what it holds matters only where it says so. Nothing else is
 * allocated, but for the matrix product of cells with W, whose buffers the context keeps. On a GPU calls return at once and work in the context's stream; mr_context_wait tells how it went. The
 * bytes of a workspace belong to one call at a time. */

MR_API int mr_context_wait(mr_context *ctx, mr_error *err); /* until all of it is done; the first error since the last wait */

/* h[t] = a[t]·h[t−1] + b[t]. A reset before t makes h[t−1] zero there. Tokens at and beyond length do not exist: their h and
 * their gradients are 0, and h_out is the state after the real ones. */
typedef struct mr_scan_args {
    size_t size;
    int B, T, H;
    const float *a, *b;    /* [B, T, H] */
    const float *h_in;     /* [B, H] or NULL: zero */
    const uint8_t *reset;  /* [B, T] or NULL */
    const int32_t *length; /* [B] or NULL */
    float *h;              /* [B, T, H] written by the forward, read by the backward */
    float *h_out;          /* [B, H] or NULL; may be h_in */
    void *workspace;
    size_t workspace_size;
    /* the backward alone */
    const float *dh;       /* [B, T, H] gradient of h */
    const float *dh_out;   /* [B, H] gradient of h_out, or NULL: zero */
    float *da, *db;        /* [B, T, H] =; da may be a, db may be dh */
    float *dh_in;          /* [B, H] = or NULL; zero where h_in is NULL */
} mr_scan_args;
#define MR_SCAN_ARGS MR_SIZED(mr_scan_args)

MR_API size_t mr_scan_workspace(mr_context *ctx, const mr_scan_args *args); /* 0 for a shape that cannot be */
MR_API int mr_scan_forward(mr_context *ctx, const mr_scan_args *args, mr_error *err);
MR_API int mr_scan_backward(mr_context *ctx, const mr_scan_args *args, mr_error *err);
MR_API int mr_scan_step(mr_context *ctx, const mr_scan_args *args, mr_error *err); /* T = 1: h is the new state */

typedef enum mr_cell_kind { MR_MINGRU, MR_MINLSTM } mr_cell_kind;
typedef enum mr_candidate { MR_POSITIVE, MR_LINEAR, MR_TANH } mr_candidate;
typedef enum mr_scan { MR_SCAN_LINEAR, MR_SCAN_LOG } mr_scan;

/* Pre-activations of G·H channels: minGRU (G = 2) k | v, minLSTM (G = 3) p | k | v.
 *   minGRU   a = σ(−k), b = σ(k)·c          minLSTM  a = σ(p), b = σ(k)·c, or, normalised, both gates over their sum
 *   c = cand(v): positive: v + 0.5 for v ≥ 0, σ(v) otherwise; linear: v; tanh: tanh(v)
 * scan = log computes the same the paper's way (positive only). */
typedef struct mr_cell {
    mr_cell_kind kind;
    mr_candidate candidate;
    mr_scan scan;
    int normalize; /* minLSTM */
} mr_cell;

/* With W, pre = x Wᵀ + bias is computed here and kept in the workspace, which the backward needs as the forward left it, and
 * destroys. Without W, pre is the caller's. */
typedef struct mr_cell_args {
    size_t size;
    mr_cell cell;
    int B, T, D, H;        /* D: with W */
    const float *x;        /* [B, T, D] */
    const float *W;        /* [G·H, D] or NULL */
    const float *bias;     /* [G·H] with W */
    const float *pre;      /* [B, T, G·H] without W */
    const float *h_in;     /* [B, H] or NULL: a sequence starts at token 0 */
    const float *h_init;   /* [H] or NULL: sequences start from cand(h_init), or from 0 */
    const uint8_t *reset;  /* [B, T] or NULL */
    const int32_t *length; /* [B] or NULL */
    float *h;              /* [B, T, H] */
    float *h_out;          /* [B, H] or NULL; may be h_in */
    void *workspace;
    size_t workspace_size;
    /* the backward alone */
    const float *dh;       /* [B, T, H] */
    const float *dh_out;   /* [B, H] or NULL: zero */
    float *dx;             /* [B, T, D] = with W */
    float *dW, *dbias;     /* [G·H, D], [G·H] += with W */
    float *dpre;           /* [B, T, G·H] = without W; may be pre, which saves a copy */
    float *dh_in;          /* [B, H] = or NULL */
    float *dh_init;        /* [H] += or NULL */
} mr_cell_args;
#define MR_CELL_ARGS MR_SIZED(mr_cell_args)

MR_API size_t mr_cell_workspace(mr_context *ctx, const mr_cell_args *args); /* 0 for a shape that cannot be */
MR_API int mr_cell_forward(mr_context *ctx, const mr_cell_args *args, mr_error *err);
MR_API int mr_cell_backward(mr_context *ctx, const mr_cell_args *args, mr_error *err);
MR_API int mr_cell_step(mr_context *ctx, const mr_cell_args *args, mr_error *err); /* T = 1: h is the new state */

#ifdef __cplusplus
}
#endif
#endif
