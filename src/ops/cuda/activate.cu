/* Activations by themselves, plain and gated: four elements a thread where addresses allow it. */
#include "ops/cuda/cuda.cuh"

struct activate_args {
    size_t count, F, wide; /* elements of y; of a row of y, and of x */
    const void *x, *dy;    /* dy NULL: forward */
    void *to;              /* y or dx */
};

/* act(x) in [0] and, if asked for, its slope in [1]. */
template <int KIND, bool SLOPE> static __device__ __forceinline__ void activation(float x, float *v)
{
    if (KIND == MR_SILU) {
        const float s = sigmoid(x);
        v[0] = x * s;
        if (SLOPE) v[1] = s * (1 + x * (1 - s));
    } else if (KIND == MR_GELU_TANH) {
        v[0] = gelu(x);
        if (SLOPE) v[1] = gelu_slope(x);
    } else {
        const float below = normcdff(x);
        v[0] = x * below;
        if (SLOPE) v[1] = below + x * 0.3989422804f * expf(-0.5f * x * x);
    }
}

/* From x (and u, where gated) and dy to y, or to dx and du. */
template <int KIND, bool GATED, bool DOWN>
static __device__ __forceinline__ void one(float x, float u, float dy, float *first, float *second)
{
    float v[2];
    activation<KIND, DOWN>(x, v);
    if (!GATED) u = 1;
    *first = DOWN ? dy * u * v[1] : v[0] * u;
    if (DOWN && GATED) *second = dy * v[0];
}

/* N neighbours a thread, 4 or 1. A thread reads all that it needs before it writes, so results may replace inputs. */
template <class A, int KIND, bool GATED, bool DOWN, int N> static __global__ void activate(activate_args g)
{
    const size_t i = N * (blockIdx.x * (size_t)blockDim.x + threadIdx.x);
    if (i >= g.count) return;
    const size_t at = GATED ? i / g.F * g.wide + i % g.F : i;
    const A *x = (const A *)g.x + at, *dy = (const A *)g.dy + i;
    A *to = (A *)g.to + (DOWN ? at : i);
    float v[N], u[N], d[N], first[N], second[N];
    if (N == 4) {
        quad<A>::load(x, v);
        if (GATED) quad<A>::load(x + g.F, u);
        if (DOWN) quad<A>::load(dy, d);
    } else {
        v[0] = load(x);
        if (GATED) u[0] = load(x + g.F);
        if (DOWN) d[0] = load(dy);
    }
#pragma unroll
    for (int k = 0; k < N; k++) one<KIND, GATED, DOWN>(v[k], GATED ? u[k] : 1, DOWN ? d[k] : 0, &first[k], &second[k]);
    if (N == 4) {
        quad<A>::store(to, first);
        if (DOWN && GATED) quad<A>::store(to + g.F, second);
    } else {
        store(to, first[0]);
        if (DOWN && GATED) store(to + g.F, second[0]);
    }
}

template <class A, int KIND, bool GATED, bool DOWN> static void launch(mr_cuda *c, const activate_args &g)
{
    const uintptr_t all = (uintptr_t)g.x | (uintptr_t)g.dy | (uintptr_t)g.to;
    if (!g.count) return;
    if (g.F % 4 == 0 && all % (4 * sizeof(A)) == 0)
        activate<A, KIND, GATED, DOWN, 4><<<(unsigned)div_up(g.count / 4, 256), 256, 0, c->stream>>>(g);
    else activate<A, KIND, GATED, DOWN, 1><<<(unsigned)div_up(g.count, 256), 256, 0, c->stream>>>(g);
    LAUNCHED(c, "activate");
}

template <class A, int KIND> static void by_shape(mr_cuda *c, int gated, const activate_args &g)
{
    if (gated && g.dy) launch<A, KIND, true, true>(c, g);
    else if (gated) launch<A, KIND, true, false>(c, g);
    else if (g.dy) launch<A, KIND, false, true>(c, g);
    else launch<A, KIND, false, false>(c, g);
}

template <class A> static void by_kind(mr_cuda *c, mr_activation kind, int gated, const activate_args &g)
{
    if (kind == MR_SILU) by_shape<A, MR_SILU>(c, gated, g);
    else if (kind == MR_GELU_TANH) by_shape<A, MR_GELU_TANH>(c, gated, g);
    else by_shape<A, MR_GELU_ERF>(c, gated, g);
}

/* Without a gate all elements are one row. */
static activate_args args_of(size_t M, size_t F, int gated, const void *x, const void *dy, void *to)
{
    const size_t row = gated ? F : M * F;
    const activate_args g = {M * F, row, gated ? 2 * row : row, x, dy, to};
    return g;
}

static void activate_fwd(mr_dev *dev, const mr_activate_fwd_args *a)
{
    const activate_args g = args_of(a->M, a->F, a->gated, a->x, NULL, a->y);
    BY_ACT(cuda_of(dev), by_kind, cuda_of(dev), a->kind, a->gated, g);
}

static void activate_bwd(mr_dev *dev, const mr_activate_bwd_args *a)
{
    const activate_args g = args_of(a->M, a->F, a->gated, a->x, a->dy, a->dx);
    BY_ACT(cuda_of(dev), by_kind, cuda_of(dev), a->kind, a->gated, g);
}

void mr_cuda_activate_ops(mr_ops *ops)
{
    ops->activate_fwd = activate_fwd;
    ops->activate_bwd = activate_bwd;
}
