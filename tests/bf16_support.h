/* A device that stores activations in bf16 as a GPU does, made of ref64: every activation that an op writes is rounded,
 * to nearest and ties to even, and so are the operands of products; everything else is exact. Its difference from ref64
 * is the cost of bf16 on this model and batch, whatever the kernels.
 *
 * Kernels may choose where they round, within the rules (src/ops/check/bf16.c): `bf16_places` says where this
 * device does. Kernels also choose the order of their sums, so that some sums are rounded to the other
 * neighbour; after a few more roundings that has reached most numbers. `noise` does the same. So one model has
 * many valid gradients in bf16. */
#ifndef MR_TESTS_BF16_SUPPORT_H
#define MR_TESTS_BF16_SUPPORT_H

#include "support.h"

#include <stdint.h>

/* Errors that a test puts into the device on purpose. */
typedef enum bf16_fault {
    FAULT_NONE,
    FAULT_SCALE, /* what the op writes is too large by the share `amount` */
    FAULT_TERM,  /* the op leaves out a term: see the ops below */
} bf16_fault;

/* src/ops/cuda has between, bias and cells_of_64, with a noise of about 2⁻²⁰. */
typedef struct bf16_places {
    int between; /* products are rounded before dropout and gelu', as the GPU's are; 0: once, with all that follows */
    int gelu_of_kept; /* gelu reads its stored argument */
    int bias;         /* the bias of a product is rounded */
    int cells_of_64;  /* pre-activations of cells with 64 inputs are not stored, so not rounded */
    double noise;     /* of sums, relative */
    uint32_t seed;    /* of the noise */
    bf16_fault fault;
    const char *wrong; /* the op with the fault */
    double amount;
} bf16_places;

static mr_ops bf16_exact; /* ref64's */
static uint64_t
    bf16_turn; /* arrays rounded so far; set to 0 before a pass, so that its noise does not depend on earlier ones */

static inline const bf16_places *bf16_of(const mr_dev *dev) { return dev->impl; }

/* Rounds to 8 significant bits, ties to even; leaves what is not finite, and numbers below bf16's range,
 * which gradients never reach. */
static inline double bf16_nearest(double x)
{
    const uint64_t below = ((uint64_t)1 << 45) - 1; /* of the 53 bits of a double, all but 8 */
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits >> 52 & 0x7ff) == 0x7ff) return x;
    bits = (bits + (below >> 1) + (bits >> 45 & 1)) & ~below;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Uniform in −1 … 1, a function of (seed, i). */
static inline double bf16_shift(uint64_t seed, uint64_t i)
{
    uint64_t z = seed + (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)(int64_t)(z ^ z >> 31) * 0x1p-63;
}

static inline int bf16_faulty(const mr_dev *dev, bf16_fault fault, const char *op)
{
    const bf16_places *how = bf16_of(dev);
    return how->fault == fault && !strcmp(how->wrong, op);
}

/* Rounds the n numbers that an op stored. */
static inline void bf16_store(mr_dev *dev, const char *op, void *at, size_t n)
{
    const bf16_places *how = bf16_of(dev);
    const double scale = bf16_faulty(dev, FAULT_SCALE, op) ? 1 + how->amount : 1;
    const uint64_t seed = (uint64_t)how->seed << 40 ^ ++bf16_turn << 20;
    double *x = at;
    for (size_t i = 0; x && i < n; i++) x[i] = bf16_nearest(x[i] * scale * (1 + how->noise * bf16_shift(seed, i)));
}

static inline double *bf16_room(size_t n)
{
    double *p = mr_alloc(n, sizeof *p);
    assert_non_null(p);
    return p;
}

/* A parameter as an operand of a product. */
static inline double *bf16_operand(const mr_real *from, size_t n)
{
    if (!from) return NULL;
    double *p = bf16_room(n);
    for (size_t i = 0; i < n; i++) p[i] = bf16_nearest(((const double *)from)[i]);
    return p;
}

static inline double bf16_sigmoid(double x) { return 1 / (1 + exp(-x)); }
static inline double bf16_gelu_gate(double x) { return bf16_sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x)); }

static inline double bf16_gelu_slope(double x)
{
    const double s = bf16_gelu_gate(x);
    return s + x * s * (1 - s) * 1.5957691216057308 * (1 + 3 * 0.044715 * x * x);
}

/* ---- ops that write activations and round nothing inside */

#define BF16_WRITES(name, array, count)                                                                                \
    static inline void bf16_##name(mr_dev *dev, const mr_##name##_args *a)                                             \
    {                                                                                                                  \
        bf16_exact.name(dev, a);                                                                                       \
        bf16_store(dev, #name, a->array, (size_t)(count));                                                             \
    }
BF16_WRITES(embed_fwd, y, a->N * a->D)
BF16_WRITES(norm_fwd, y, a->M * a->D)
BF16_WRITES(conv_fwd, y, a->B * a->T * a->D)
BF16_WRITES(conv_bwd, dx, a->B * a->T * a->D)
BF16_WRITES(pool_fwd, y, a->B * a->D)
BF16_WRITES(pool_bwd, dx, a->B * a->T * a->D)
BF16_WRITES(pair_fwd, y, 4 * a->P * a->D)
BF16_WRITES(pair_bwd, dx, 2 * a->P * a->D)
BF16_WRITES(xent, dlogits, a->R * a->C)
BF16_WRITES(mse, dpred, a->R * a->C)
BF16_WRITES(tanh_bwd, dx, a->n)
BF16_WRITES(activate_fwd, y, a->M * a->F)
BF16_WRITES(activate_bwd, dx, (a->gated ? 2 : 1) * a->M * a->F)
BF16_WRITES(sscan_fwd, y, a->B * a->T * a->E)
#undef BF16_WRITES

/* The term left out by FAULT_TERM: the residual stream's gradient. */
static inline void bf16_norm_bwd(mr_dev *dev, const mr_norm_bwd_args *a)
{
    mr_norm_bwd_args own = *a;
    if (bf16_faulty(dev, FAULT_TERM, "norm_bwd")) own.accumulate = 0;
    bf16_exact.norm_bwd(dev, &own);
    bf16_store(dev, "norm_bwd", a->dx, (size_t)(a->M * a->D));
}

/* The term left out by FAULT_TERM: dropout's mask. */
static inline void bf16_dropout_bwd(mr_dev *dev, const mr_dropout_bwd_args *a)
{
    mr_dropout_bwd_args own = *a;
    if (bf16_faulty(dev, FAULT_TERM, "dropout_bwd")) own.drop.p = 0;
    bf16_exact.dropout_bwd(dev, &own);
    bf16_store(dev, "dropout_bwd", a->dx, a->n);
}

static inline void bf16_sscan_bwd(mr_dev *dev, const mr_sscan_bwd_args *a)
{
    const size_t tokens = (size_t)(a->B * a->T);
    bf16_exact.sscan_bwd(dev, a);
    bf16_store(dev, "sscan_bwd", a->du, tokens * (size_t)a->E);
    bf16_store(dev, "sscan_bwd", a->ddelta, tokens * (size_t)a->E);
    bf16_store(dev, "sscan_bwd", a->dz, tokens * (size_t)a->E);
    bf16_store(dev, "sscan_bwd", a->dbc, tokens * 2 * (size_t)a->N);
}

/* ---- products */

static inline void bf16_gelu(const double *pre, double *y, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = pre[i] * bf16_gelu_gate(pre[i]);
}

/* y = residual + dropout(v), v in y's place or another. */
static inline void bf16_drop_and_add(mr_dev *dev, const mr_linear_fwd_args *a, double *v)
{
    const size_t n = (size_t)(a->M * a->N);
    const double *residual = (const double *)a->residual;
    if (a->drop.p > 0)
        bf16_exact.dropout_bwd(dev,
                               &(mr_dropout_bwd_args){.n = n, .drop = a->drop, .dy = (mr_act *)v, .dx = (mr_act *)v});
    for (size_t i = 0; i < n; i++) ((double *)a->y)[i] = v[i] + (residual ? residual[i] : 0);
}

/* The term left out by FAULT_TERM: the bias. */
static inline void bf16_linear_fwd(mr_dev *dev, const mr_linear_fwd_args *a)
{
    const bf16_places *how = bf16_of(dev);
    const size_t n = (size_t)(a->M * a->N);
    const int even = a->N % 8 == 0 && a->K % 8 == 0; /* otherwise the bias is added by a kernel that reads it in fp32 */
    double *W = bf16_operand(a->W, (size_t)(a->N * a->K)),
           *b = how->bias && even ? bf16_operand(a->b, (size_t)a->N) : NULL, *v = bf16_room(n);
    mr_linear_fwd_args own = *a;
    own.W = (const mr_real *)W, own.y = (mr_act *)v, own.residual = NULL, own.drop.p = 0;
    if (b) own.b = (const mr_real *)b;
    if (bf16_faulty(dev, FAULT_TERM, "linear_fwd")) own.b = NULL;
    bf16_exact.linear_fwd(dev, &own);
    if (a->pre) bf16_store(dev, "linear_fwd", a->pre, n);
    if (a->pre && a->gelu && how->gelu_of_kept) bf16_gelu((const double *)a->pre, v, n);
    if (how->between && a->drop.p > 0) bf16_store(dev, "linear_fwd", v, n);
    bf16_drop_and_add(dev, a, v);
    bf16_store(dev, how->between && a->drop.p > 0 ? "" : "linear_fwd", a->y, n);
    mr_free(W);
    mr_free(b);
    mr_free(v);
}

/* The term left out by FAULT_TERM: gelu'. */
static inline void bf16_linear_bwd_x(mr_dev *dev, const mr_linear_bwd_x_args *a)
{
    const size_t n = (size_t)(a->M * a->K);
    double *W = bf16_operand(a->W, (size_t)(a->N * a->K)), *v = bf16_room(n), *dx = (double *)a->dx;
    mr_linear_bwd_x_args own = *a;
    own.W = (const mr_real *)W, own.dx = (mr_act *)v, own.pre = NULL, own.accumulate = 0;
    bf16_exact.linear_bwd_x(dev, &own);
    if (a->pre && bf16_of(dev)->between) bf16_store(dev, "", v, n);
    const int slope = a->pre && !bf16_faulty(dev, FAULT_TERM, "linear_bwd_x");
    for (size_t i = 0; i < n; i++)
        dx[i] = (slope ? bf16_gelu_slope(((const double *)a->pre)[i]) : 1) * v[i] + (a->accumulate ? dx[i] : 0);
    bf16_store(dev, "linear_bwd_x", dx, n);
    mr_free(W);
    mr_free(v);
}

/* Gradients of parameters are fp32 sums of numbers that are already rounded. */
static inline void bf16_linear_bwd_w(mr_dev *dev, const mr_linear_bwd_w_args *a) { bf16_exact.linear_bwd_w(dev, a); }
static inline void bf16_embed_bwd(mr_dev *dev, const mr_embed_bwd_args *a) { bf16_exact.embed_bwd(dev, a); }

/* ---- cells: the states in `h` are rounded, the one that is carried from token to token is not */

static inline int bf16_recomputes(const mr_dev *dev, const mr_cell *cell, int D, int H)
{
    return bf16_of(dev)->cells_of_64 && D == 64 && H % 64 == 0 && cell->scan == MR_SCAN_LINEAR;
}

static inline void bf16_minrnn_fwd(mr_dev *dev, const mr_minrnn_fwd_args *a)
{
    const int N = a->H * mr_cell_gates(&a->cell), recomputed = bf16_recomputes(dev, &a->cell, a->D, a->H);
    const size_t tokens = (size_t)(a->B * a->T);
    double *W = bf16_operand(a->W, (size_t)(N * a->D)),
           *b = bf16_of(dev)->bias && !recomputed ? bf16_operand(a->b, (size_t)N) : NULL;
    mr_minrnn_fwd_args own = *a;
    bf16_exact.linear_fwd(dev, &(mr_linear_fwd_args){.M = a->B * a->T,
                                                     .N = N,
                                                     .K = a->D,
                                                     .x = a->x,
                                                     .W = (const mr_real *)W,
                                                     .b = b ? (const mr_real *)b : a->b,
                                                     .y = a->saved});
    if (!recomputed) bf16_store(dev, "", a->saved, tokens * (size_t)N);
    own.W = NULL;
    bf16_exact.minrnn_fwd(dev, &own);
    bf16_store(dev, "minrnn_fwd", a->h, tokens * (size_t)a->H);
    mr_free(W);
    mr_free(b);
}

/* The term left out by FAULT_TERM: the gradient of the final state. The bias gets gradients before they
 * are rounded, as on the GPU. */
static inline void bf16_minrnn_bwd(mr_dev *dev, const mr_minrnn_bwd_args *a)
{
    const int M = a->B * a->T, N = a->H * mr_cell_gates(&a->cell);
    double *W = bf16_operand(a->W, (size_t)(N * a->D)), *d = a->saved;
    mr_minrnn_bwd_args own = *a;
    own.W = NULL;
    if (bf16_faulty(dev, FAULT_TERM, "minrnn_bwd")) own.dh_out = NULL;
    bf16_exact.minrnn_bwd(dev, &own);
    for (int n = 0; a->db && n < N; n++)
        for (int m = 0; m < M; m++) ((double *)a->db)[n] += d[(size_t)m * (size_t)N + (size_t)n];
    bf16_store(dev, "", d, (size_t)M * (size_t)N);
    bf16_exact.linear_bwd_w(dev,
                            &(mr_linear_bwd_w_args){.M = M, .N = N, .K = a->D, .dy = a->saved, .x = a->x, .dW = a->dW});
    bf16_exact.linear_bwd_x(dev, &(mr_linear_bwd_x_args){.M = M,
                                                         .N = N,
                                                         .K = a->D,
                                                         .dy = a->saved,
                                                         .W = (const mr_real *)W,
                                                         .accumulate = a->accumulate,
                                                         .dx = a->dx});
    bf16_store(dev, "minrnn_bwd", a->dx, (size_t)(M * a->D));
    mr_free(W);
}

/* ---- the device */

static inline void bf16_put_act(mr_dev *dev, mr_act *to, const float *from, size_t n)
{
    (void)dev;
    for (size_t i = 0; i < n; i++) ((double *)to)[i] = bf16_nearest(from[i]);
}

/* Ops that are not defined here would silently not round: they are NULL, and a test that calls one crashes. */
static inline mr_dev *open_bf16(const bf16_places *how)
{
    mr_dev *dev = open_device("ref64", 1, NULL);
    bf16_exact = dev->ops;
    dev->kind = "bf16 on ref64";
    dev->impl = (void *)how;
    dev->put_act = bf16_put_act;
#define TAKE(name) .name = bf16_##name
    dev->ops = (mr_ops){TAKE(embed_fwd),    TAKE(embed_bwd),   TAKE(linear_fwd),   TAKE(linear_bwd_x),
                        TAKE(linear_bwd_w), TAKE(dropout_bwd), TAKE(norm_fwd),     TAKE(norm_bwd),
                        TAKE(conv_fwd),     TAKE(conv_bwd),    TAKE(minrnn_fwd),   TAKE(minrnn_bwd),
                        TAKE(pool_fwd),     TAKE(pool_bwd),    TAKE(pair_fwd),     TAKE(pair_bwd),
                        TAKE(xent),         TAKE(mse),         TAKE(activate_fwd), TAKE(activate_bwd),
                        TAKE(sscan_fwd),    TAKE(sscan_bwd),   TAKE(tanh_bwd),     .tanh_fwd = bf16_exact.tanh_fwd};
#undef TAKE
    return dev;
}

#endif
