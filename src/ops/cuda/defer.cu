/* The layer between the op table and the kernels: fuses a norm into the op that reads it, and chains launches.
 *
 * Ops of few rows have kernels of their own, which can compute the norm before them too. So norm_fwd of few rows is not
 * launched but noted:
 *
 *                norm_fwd, few rows                  few-row op that reads its result: one kernel computes both
 *     (ready) ───────────────────────▶ (norm noted) ───────────────────────────────────────────────▶ (ready)
 *                                            │       anything else: mr_cuda_settle launches the norm by itself first
 *                                            └─────────────────────────────────────────────────────▶ (ready)
 *
 * Either way every output that the ops promise is written. The other half of the state is what the stream ends with,
 * mr_cuda_end. Together, with "l" where a noted norm is launched first:
 *
 *     state             few-row op     norm_fwd, few rows   any other op or call   replay of a recording
 *     plain             chained        plain, noted         plain                  replayed
 *     chained           chained (e)    chained, noted       plain                  replayed
 *     replayed          chained        plain, noted         plain                  replayed
 *     plain, noted      chained (f)    plain, noted (l)     plain (l)              replayed (l)
 *     chained, noted    chained (e,f)  plain, noted (l)     plain (l)              replayed (l)
 *
 * (e) starts before the previous kernel is done; (f) computes the noted norm in its own kernel if it reads its result,
 * otherwise the norm is launched first and nothing starts early. embed_fwd counts as a few-row op that never starts
 * early. */
#include "ops/cuda/few.cuh"

enum { FEW = 1024, WIDEST = 4096, MOST_PRODUCT_ROWS = 128 };

void mr_cuda_settle(mr_cuda *c)
{
    c->stream_end = MR_END_PLAIN;
    mr_cuda_deliver(c); /* never together with a noted norm */
    if (!c->has_waiting) return;
    c->has_waiting = 0;
    c->direct.norm_fwd(&c->dev, &c->waiting);
}

/* By default an op launches a noted norm first, then itself, unchanged. */
#define OP(name, tolerance, what)                                                                                      \
    static void name##_now(mr_dev *dev, const mr_##name##_args *a)                                                     \
    {                                                                                                                  \
        mr_cuda_settle(cuda_of(dev));                                                                                  \
        cuda_of(dev)->direct.name(dev, a);                                                                             \
    }
#include "ops/ops.def"
#undef OP

static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    return a && b && (uintptr_t)a < (uintptr_t)b + b_bytes && (uintptr_t)b < (uintptr_t)a + a_bytes;
}

static void norm_fwd(mr_dev *dev, const mr_norm_fwd_args *a)
{
    mr_cuda *c = cuda_of(dev);
    const size_t bytes = (size_t)a->M * (size_t)a->D * dev->act_size;
    const uintptr_t all = (uintptr_t)a->x | (uintptr_t)a->y | (uintptr_t)a->w | (uintptr_t)a->b;
    if (a->M > FEW || a->D > WIDEST || a->D % 4 || all % 16 || overlap(a->x, bytes, a->y, bytes)) {
        norm_fwd_now(dev, a);
        return;
    }
    const mr_cuda_end end = c->stream_end == MR_END_CHAINED && !c->has_waiting ? MR_END_CHAINED : MR_END_PLAIN;
    mr_cuda_settle(c);
    c->stream_end = end;
    c->waiting = *a;
    c->has_waiting = 1;
}

/* Whether the noted norm computes x, an [M, D] input, and may run in the kernel that writes `out`. */
static bool takes_norm(const mr_cuda *c, const void *x, int M, int D, const void *out, size_t out_bytes)
{
    const mr_norm_fwd_args *n = &c->waiting;
    const size_t bytes = (size_t)M * (size_t)D * c->dev.act_size;
    return c->has_waiting && n->y == x && n->M == M && n->D == D && !overlap(n->x, bytes, out, out_bytes) &&
           !overlap(n->y, bytes, out, out_bytes);
}

static void conv_fwd(mr_dev *dev, const mr_conv_fwd_args *a)
{
    mr_cuda *c = cuda_of(dev);
    const size_t bytes = (size_t)a->B * (size_t)a->D * dev->act_size,
                 tail = 3 * (size_t)a->B * (size_t)a->D * sizeof(float);
    const uintptr_t all =
        (uintptr_t)a->w | (uintptr_t)a->b | (uintptr_t)a->tail_in | (uintptr_t)a->tail_out | (uintptr_t)a->y;
    if (a->T != 1 || a->taps != 4 || a->length || all % 16 || !takes_norm(c, a->x, a->B, a->D, a->y, bytes) ||
        overlap(a->tail_out, tail, c->waiting.x, bytes)) {
        conv_fwd_now(dev, a);
        return;
    }
    c->has_waiting = 0;
    mr_cuda_norm_conv(c, &c->waiting, a);
}

/* g with the noted norm in front: its x is then the input of the norm. */
static few_args with_norm(const mr_cuda *c, few_args g)
{
    const mr_norm_fwd_args *n = &c->waiting;
    g.x = n->x,
    g.norm = n->kind == MR_NORM_LAYER ? FEW_LAYER
             : n->kind == MR_NORM_RMS ? FEW_RMS
                                      : FEW_SCALE,
    g.norm_eps = (float)n->eps, g.norm_w = (const float *)n->w, g.norm_b = (const float *)n->b;
    g.norm_y = n->y, g.stat = (float *)n->stat;
    return g;
}

static int launch(mr_cuda *c, const few_args *g) { return mr_cuda_few_rows(c, g) || mr_cuda_few_tiles(c, g); }

/* Runs a product of few rows, with the noted norm if it reads it. Returns 0 when the op must be launched unchanged.
 * out_bytes: size of y. */
static int run_few(mr_cuda *c, few_args g, const float *W, size_t out_bytes)
{
    if (g.M > MOST_PRODUCT_ROWS) return 0;
    mr_cuda_deliver(c);
    g.one_by_K = 1.0f / (float)g.K;
    g.W = c->bf16 ? (const void *)mr_cuda_shadow_of(c, W, (size_t)g.N * (size_t)g.K) : W;
    if (!g.W) return 0;
    const size_t M = (size_t)g.M, act = c->dev.act_size;
    const bool clear = !overlap(g.pre, M * (size_t)g.N * act, c->waiting.x, M * (size_t)g.K * act);
    if (clear && takes_norm(c, g.x, g.M, g.K, g.y, out_bytes)) {
        const few_args normed = with_norm(c, g);
        if (launch(c, &normed)) {
            c->has_waiting = 0;
            return 1;
        }
    }
    if (c->has_waiting) mr_cuda_settle(c);
    return launch(c, &g);
}

static void linear_fwd(mr_dev *dev, const mr_linear_fwd_args *a)
{
    few_args g = {};
    g.M = a->M, g.N = a->N, g.K = a->K, g.x = a->x, g.b = (const float *)a->b, g.gelu = a->gelu, g.pre = a->pre,
    g.residual = a->residual, g.y = a->y;
    const int apart = a->row && a->row != a->N;
    if (a->drop.p > 0 || apart ||
        !run_few(cuda_of(dev), g, (const float *)a->W, (size_t)a->M * (size_t)a->N * dev->act_size))
        linear_fwd_now(dev, a);
}

static void minrnn_fwd(mr_dev *dev, const mr_minrnn_fwd_args *a)
{
    few_args g = {};
    g.G = mr_cell_gates(&a->cell), g.H = a->H, g.M = a->B, g.N = g.G * a->H, g.K = a->D, g.x = a->x,
    g.b = (const float *)a->b;
    g.kind = a->cell.kind == MR_MINGRU ? GRU : a->cell.normalize ? LSTM_NORM : LSTM, g.candidate = a->cell.candidate;
    g.h_in = (const float *)a->h_in, g.h_init = (const float *)a->h_init, g.h_out = (float *)a->h_out,
    g.reset = a->reset;
    /* a fusable layer recomputes pre in its backward */
    g.pre = mr_cuda_fusable(cuda_of(dev), &a->cell, a->D, a->H) ? NULL : a->saved;
    g.y = a->h;
    /* a length may be 0; signed gates have no such kernel */
    const bool one = a->T == 1 && a->W && !a->length && a->cell.scan == MR_SCAN_LINEAR &&
                     a->cell.transition == MR_TRANSITION_POSITIVE;
    if (!one || !run_few(cuda_of(dev), g, (const float *)a->W, (size_t)a->B * (size_t)a->H * dev->act_size))
        minrnn_fwd_now(dev, a);
}

static void embed_fwd(mr_dev *dev, const mr_embed_fwd_args *a)
{
    embed_fwd_now(dev, a);
    cuda_of(dev)->stream_end = MR_END_CHAINED; /* its kernels call early_start */
}

void mr_cuda_defer_ops(mr_cuda *c)
{
    mr_ops *ops = &c->dev.ops;
    c->direct = *ops;
#define OP(name, tolerance, what) ops->name = name##_now;
#include "ops/ops.def"
#undef OP
    ops->norm_fwd = norm_fwd;
    ops->conv_fwd = conv_fwd;
    ops->linear_fwd = linear_fwd;
    ops->minrnn_fwd = minrnn_fwd;
    ops->embed_fwd = embed_fwd;
}
