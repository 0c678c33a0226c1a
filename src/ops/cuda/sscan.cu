/* The ops of Mamba: the selective scan by the kernels of sscan_fwd.cuh and sscan_bwd.cuh, and SiLU. */
#include "ops/cuda/sscan_bwd.cuh"
#include "ops/cuda/sscan_fwd.cuh"

/* Blocks that should fit on a multiprocessor; tokens whose states the backward holds in registers at once. */
enum { FORWARD_BLOCKS = 5, BACKWARD_BLOCKS = 4, BACKWARD_KEPT = 4 };

/* Splits time into spans; depends only on the shape. Splitting costs another pass, so time is split only where half of
 * the chip would be idle, and then to fill it. */
static void cut_time(sscan_args *g)
{
    const size_t few = 132, enough = 528, least = 128, blocks = (size_t)g->B * div_up((size_t)g->E, SSCAN_CHANNELS);
    size_t spans = blocks <= few ? enough / blocks : 1;
    size_t span = div_up(div_up((size_t)g->T, spans), MR_SSCAN_CHUNK) * MR_SSCAN_CHUNK;
    if (span < least) span = least;
    g->span = (int)span;
    g->spans = (int)div_up((size_t)g->T, span);
}

static dim3 grid_of(const sscan_args &g, int first_spans)
{
    return dim3((unsigned)div_up((size_t)g.E, SSCAN_CHANNELS), (unsigned)g.B, (unsigned)first_spans);
}

/* Takes scratch for the effects of spans, where they are needed, and, for the backward, parts of gradients. */
static int take_scratch(mr_cuda *c, sscan_args *g, int NP, bool effects, bool backward)
{
    const size_t E = (size_t)g->E, N = (size_t)g->N, rows = (size_t)g->B * (size_t)g->spans;
    const size_t steps = effects ? rows * E : 0, ends = effects ? (rows + (size_t)g->B) * N * E : 0;
    const size_t dA = backward ? rows * E * N : 0, dD = backward ? rows * E : 0;
    const size_t dbc = backward ? div_up(E, SSCAN_CHANNELS) * (size_t)g->B * (size_t)g->T * 2 * (size_t)NP : 0;
    float *at = (float *)mr_cuda_scratch(c, (steps + ends + dA + dD + dbc + 1) * sizeof(float));
    if (!at) return 0;
    g->dbc_parts = at; /* first: it is written 16 bytes at a time */
    g->effect_step = at + dbc;
    g->effect_h = g->effect_step + steps;
    g->dA_parts = g->effect_h + ends;
    g->dD_parts = g->dA_parts + dA;
    return 1;
}

/* The effect of all spans together. */
static __global__ void join_spans(sscan_args g, bool down, float *A, float *C)
{
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x, states = (size_t)g.N * g.E;
    const int b = (int)(i / states), n = (int)(i % states / g.E), e = (int)(i % g.E);
    if (b >= g.B) return;
    const float rate = -1.44269504088896341f * expf(g.A_log[(size_t)e * g.N + n]);
    float whole = 1, state = 0;
    for (int k = 0; k < g.spans; k++) {
        const int span = down ? g.spans - 1 - k : k;
        const float step = g.effect_step[((size_t)b * g.spans + span) * g.E + e], decay = exp2_fast(step * rate);
        const float own = g.effect_h[((size_t)b * (g.spans + 1) + span + !down) * states + (size_t)n * g.E + e];
        state = isinf(step) ? own : decay * state + own;
        whole = isinf(step) ? 0 : decay * whole;
    }
    A[i] = whole;
    C[i] = state;
}

template <class ACT, int NP> struct sscans {
    static const int THREADS = sscan_shape<NP>::THREADS;

    static void forward(mr_cuda *c, sscan_args g)
    {
        if (!take_scratch(c, &g, NP, g.spans > 1, false)) return;
        if (g.spans > 1)
            sscan_forward<ACT, NP, 1, FORWARD_BLOCKS><<<grid_of(g, g.spans - 1), THREADS, 0, c->stream>>>(g);
        sscan_forward<ACT, NP, 0, FORWARD_BLOCKS><<<grid_of(g, g.spans), THREADS, 0, c->stream>>>(g);
        LAUNCHED(c, "sscan_forward");
    }

    static void backward(mr_cuda *c, sscan_args g, const mr_sscan_bwd_args *a)
    {
        const size_t bytes = sizeof(backward_shared<NP, BACKWARD_KEPT>), E = (size_t)g.E,
                     parts = div_up(E, SSCAN_CHANNELS);
        const size_t tokens = (size_t)g.B * (size_t)g.T, rows = (size_t)g.B * (size_t)g.spans, values = tokens * 2 * NP;
        auto kernel = sscan_backward<ACT, NP, BACKWARD_KEPT, BACKWARD_BLOCKS>;
        if (!take_scratch(c, &g, NP, g.spans > 1, true)) return;
        CHECK(c, mr_cuda_allow_shared((const void *)kernel, bytes));
        if (g.spans > 1) sscan_backward_effect<ACT, NP><<<grid_of(g, g.spans), THREADS, 0, c->stream>>>(g);
        kernel<<<grid_of(g, g.spans), THREADS, bytes, c->stream>>>(g);
        LAUNCHED(c, "sscan_backward");
        add_bc_parts<ACT, NP>
            <<<(unsigned)div_up(values, 256), 256, 0, c->stream>>>(tokens, g.N, (int)parts, g.dbc_parts, (ACT *)a->dbc);
        LAUNCHED(c, "add_bc_parts");
        mr_cuda_reduce(c, g.dA_parts, rows, E * (size_t)g.N, E * (size_t)g.N, 0, (float *)a->dA_log);
        mr_cuda_reduce(c, g.dD_parts, rows, E, E, 0, (float *)a->dD);
    }

    static void effect(mr_cuda *c, sscan_args g, const mr_sscan_effect_args *a)
    {
        const dim3 grid = grid_of(g, g.spans);
        if (!take_scratch(c, &g, NP, true, false)) return;
        if (a->dy) sscan_backward_effect<ACT, NP><<<grid, THREADS, 0, c->stream>>>(g);
        else sscan_forward<ACT, NP, 1, FORWARD_BLOCKS><<<grid, THREADS, 0, c->stream>>>(g);
        LAUNCHED(c, "sscan_effect");
        join_spans<<<(unsigned)div_up((size_t)g.B * (size_t)g.N * (size_t)g.E, 128), 128, 0, c->stream>>>(
            g, a->dy != NULL, (float *)a->A, (float *)a->C);
        LAUNCHED(c, "join_spans");
    }
};

template <class ACT> static void launch_forward(mr_cuda *c, const sscan_args &g)
{
    if (g.N <= 16) sscans<ACT, 16>::forward(c, g);
    else sscans<ACT, 32>::forward(c, g);
}

template <class ACT> static void launch_backward(mr_cuda *c, const sscan_args &g, const mr_sscan_bwd_args *a)
{
    if (g.N <= 16) sscans<ACT, 16>::backward(c, g, a);
    else sscans<ACT, 32>::backward(c, g, a);
}

template <class ACT> static void launch_effect(mr_cuda *c, const sscan_args &g, const mr_sscan_effect_args *a)
{
    if (g.N <= 16) sscans<ACT, 16>::effect(c, g, a);
    else sscans<ACT, 32>::effect(c, g, a);
}

/* Arguments that forward and backward share. */
template <class ARGS> static sscan_args shared_args(const ARGS *a)
{
    sscan_args g = {};
    g.B = a->B, g.T = a->T, g.E = a->E, g.N = a->N, g.u = a->u, g.delta = a->delta, g.z = a->z, g.bc = a->bc;
    g.A_log = (const float *)a->A_log, g.D = (const float *)a->D, g.dt_bias = (const float *)a->dt_bias,
    g.h_in = (const float *)a->h_in;
    g.reset = a->reset, g.length = a->length, g.states = (float *)a->states;
    cut_time(&g);
    return g;
}

static void sscan_fwd(mr_dev *dev, const mr_sscan_fwd_args *a)
{
    sscan_args g = shared_args(a);
    g.y = a->y, g.h_out = (float *)a->h_out;
    BY_ACT(cuda_of(dev), launch_forward, cuda_of(dev), g);
}

static void sscan_bwd(mr_dev *dev, const mr_sscan_bwd_args *a)
{
    sscan_args g = shared_args(a);
    g.dy = a->dy, g.dh_out = (const float *)a->dh_out, g.du = a->du, g.ddelta = a->ddelta, g.dz = a->dz,
    g.dh_in = (float *)a->dh_in;
    BY_ACT(cuda_of(dev), launch_backward, cuda_of(dev), g, a);
}

static void sscan_effect(mr_dev *dev, const mr_sscan_effect_args *a)
{
    sscan_args g = {};
    g.B = a->B, g.T = a->T, g.E = a->E, g.N = a->N, g.u = a->u, g.delta = a->delta, g.z = a->z, g.bc = a->bc;
    g.A_log = (const float *)a->A_log, g.dt_bias = (const float *)a->dt_bias;
    g.reset = a->reset, g.length = a->length, g.dy = a->dy;
    cut_time(&g);
    BY_ACT(cuda_of(dev), launch_effect, cuda_of(dev), g, a);
}

void mr_cuda_sscan_ops(mr_ops *ops)
{
    ops->sscan_effect = sscan_effect;
    ops->sscan_fwd = sscan_fwd;
    ops->sscan_bwd = sscan_bwd;
}
