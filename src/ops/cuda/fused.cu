/* Layers with 64 inputs on tensor cores: projection, gates and scan in one kernel. Pre-activations are never stored:
 * the backward recomputes them from x and computes dW along with it; only their gradients go through memory, once, for
 * the product that gives dx. */
#include "ops/cuda/fused_kernels.cuh"

/* Tiles of 8 tokens per step, and blocks per multiprocessor, as measured on an H200: dW of three
 * gates leaves few registers. */
template <class ACT, int KIND> struct fused_tuning {
    static const int narrow = sizeof(ACT) == 2, gru = KIND == GRU;
    static const int forward_tiles = 4, forward_least = 3, backward_tiles = narrow && gru ? 4 : 2,
                     backward_least = gru || narrow ? 3 : 2;
};

template <class ACT, int KIND, int CAND, int MASKED> struct fused {
    typedef fused_tuning<ACT, KIND> tune;

    static void forward(mr_cuda *c, const fused_args &f)
    {
        const int NT = tune::forward_tiles;
        const size_t room = fused_room<ACT, gate_count<KIND>::value, NT, 1>::bytes;
        auto kernel = fused_forward<ACT, KIND, CAND, MASKED, NT, tune::forward_least>;
        CHECK(c, mr_cuda_allow_shared((const void *)kernel, room));
        kernel<<<dim3((unsigned)f.scan.H / FUSED_CHANNELS, (unsigned)f.scan.B), dim3(32, FUSED_WARPS), room,
                 c->stream>>>(f);
        LAUNCHED(c, "fused_forward");
    }

    static void backward(mr_cuda *c, const fused_args &f)
    {
        const int NT = tune::backward_tiles;
        const size_t room = fused_room<ACT, gate_count<KIND>::value, NT, 3>::bytes;
        auto kernel = fused_backward<ACT, KIND, CAND, MASKED, NT, tune::backward_least>;
        CHECK(c, mr_cuda_allow_shared((const void *)kernel, room));
        kernel<<<dim3((unsigned)f.scan.H / FUSED_CHANNELS, (unsigned)f.groups), dim3(32, FUSED_WARPS), room,
                 c->stream>>>(f);
        LAUNCHED(c, "fused_backward");
    }
};

template <class ACT, int KIND, int CAND> static void by_mask(mr_cuda *c, const fused_args &f, int down)
{
    const int whole = 32; /* tokens in the longest tile */
    const bool plain = !f.scan.reset && !f.scan.length && f.scan.T % whole == 0;
    if (plain && down) fused<ACT, KIND, CAND, 0>::backward(c, f);
    else if (plain) fused<ACT, KIND, CAND, 0>::forward(c, f);
    else if (down) fused<ACT, KIND, CAND, 1>::backward(c, f);
    else fused<ACT, KIND, CAND, 1>::forward(c, f);
}

template <class ACT, int KIND> static void by_candidate(mr_cuda *c, const mr_cell *cell, const fused_args &f, int down)
{
    if (cell->candidate == MR_POSITIVE) by_mask<ACT, KIND, MR_POSITIVE>(c, f, down);
    else if (cell->candidate == MR_LINEAR) by_mask<ACT, KIND, MR_LINEAR>(c, f, down);
    else by_mask<ACT, KIND, MR_TANH>(c, f, down);
}

template <class ACT> static void by_kind(mr_cuda *c, const mr_cell *cell, const fused_args &f, int down)
{
    if (cell->kind == MR_MINGRU) by_candidate<ACT, GRU>(c, cell, f, down);
    else if (cell->normalize) by_candidate<ACT, LSTM_NORM>(c, cell, f, down);
    else by_candidate<ACT, LSTM>(c, cell, f, down);
}

/* Adds the groups' shares to dW and, if there is a bias, db, in order; fresh: they start from 0. */
static __global__ void add_groups(int groups, size_t weights, size_t rows, const float *sums, int fresh, float *dW,
                                  float *db)
{
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x, n = weights + rows;
    if (i >= n) return;
    float sum = 0;
#pragma unroll 8
    for (int r = 0; r < groups; r++) sum += sums[r * n + i];
    float *to = i < weights ? dW + i : db ? db + (i - weights) : NULL;
    if (to) *to = fresh ? sum : *to + sum;
}

int mr_cuda_fusable(const mr_cuda *c, const mr_cell *cell, int D, int H)
{
    return c->capability >= 80 && (c->bf16 || !c->exact) && D == FUSED_D && H % FUSED_CHANNELS == 0 &&
           cell->scan == MR_SCAN_LINEAR && cell->transition == MR_TRANSITION_POSITIVE;
}

int mr_cuda_fused_fits(int B, int T, int N, int H)
{
    const size_t blocks = (size_t)B * (size_t)H / FUSED_CHANNELS;
    return T > 1 && (T <= 128 || blocks >= 132) && (size_t)T * (size_t)N < (size_t)1 << 31;
}

/* Whether the fused kernels apply: the shape fits, and addresses allow copies of 16 bytes. */
static bool fits(int B, int T, int N, int H, const void *x, const void *h, const void *dh)
{
    const uintptr_t all = (uintptr_t)x | (uintptr_t)h | (uintptr_t)dh;
    return mr_cuda_fused_fits(B, T, N, H) && all % 16 == 0;
}

int mr_cuda_fused_fwd(mr_cuda *c, const mr_minrnn_fwd_args *a)
{
    fused_args f = {};
    scan_args &g = f.scan;
    if (!fits(a->B, a->T, a->H * mr_cell_gates(&a->cell), a->H, a->x, a->h, NULL)) return 0;
    g.B = a->B, g.T = a->T, g.H = a->H, g.h = a->h, g.h_in = (const float *)a->h_in,
    g.h_init = (const float *)a->h_init;
    g.h_out = (float *)a->h_out, g.reset = a->reset, g.length = a->length;
    f.x = a->x, f.W = (const float *)a->W, f.bias = (const float *)a->b;
    BY_ACT(c, by_kind, c, &a->cell, f, 0);
    return 1;
}

/* Sequences share blocks: as many groups as one wave of blocks has room for, of equal size. */
static int groups_of(int B, int H)
{
    const size_t across = (size_t)H / FUSED_CHANNELS, most = across < 396 ? 396 / across : 1;
    return (int)div_up((size_t)B, div_up((size_t)B, most));
}

size_t mr_cuda_fused_scratch(const mr_cuda *c, const mr_cell *cell, int B, int T, int H, int dx)
{
    const size_t N = (size_t)H * (size_t)mr_cell_gates(cell), groups = (size_t)groups_of(B, H);
    /* sums and starts; gradients of pre follow */
    const size_t floats = groups * (N * FUSED_D + N) + (size_t)B * (size_t)H;
    return floats * sizeof(float) + (dx ? (size_t)B * (size_t)T * N * c->dev.act_size : 0);
}

int mr_cuda_fused_bwd(mr_cuda *c, const mr_minrnn_bwd_args *a)
{
    const int M = a->B * a->T, N = a->H * mr_cell_gates(&a->cell);
    fused_args f = {};
    scan_args &g = f.scan;
    if (!fits(a->B, a->T, N, a->H, a->x, a->h, a->dh)) return 0;
    f.groups = groups_of(a->B, a->H);
    const size_t weights = (size_t)N * FUSED_D, sums = (size_t)f.groups * (weights + (size_t)N),
                 starts = (size_t)a->B * (size_t)a->H;
    float *room = (float *)mr_cuda_scratch(c, mr_cuda_fused_scratch(c, &a->cell, a->B, a->T, a->H, a->dx != NULL));
    if (!room) return 1;
    f.sums = room, g.to_start = a->dh_init ? room + sums : NULL, g.pre = a->dx ? room + sums + starts : NULL;
    g.B = a->B, g.T = a->T, g.H = a->H, g.h = (void *)a->h, g.h_in = (const float *)a->h_in,
    g.h_init = (const float *)a->h_init;
    g.reset = a->reset, g.length = a->length, g.dh = a->dh, g.dh_out = (const float *)a->dh_out,
    g.dh_in = (float *)a->dh_in;
    f.x = a->x, f.W = (const float *)a->W, f.bias = (const float *)a->b;
    BY_ACT(c, by_kind, c, &a->cell, f, 1);
    add_groups<<<(unsigned)div_up(weights + (size_t)N, 128), 128, 0, c->stream>>>(
        f.groups, weights, (size_t)N, f.sums, a->fresh, (float *)a->dW, (float *)a->db);
    LAUNCHED(c, "add_groups");
    if (a->dh_init)
        mr_cuda_start_grad(c, a->cell.candidate, a->B, a->H, g.to_start, g.h_init, a->fresh, (float *)a->dh_init);
    if (a->dx) mr_cuda_product_dx(c, M, N, a->D, g.pre, N, (const float *)a->W, NULL, a->accumulate, a->dx);
    return 1;
}
