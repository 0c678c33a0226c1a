/* The ops minrnn_fwd and minrnn_bwd. Projection by a product; then gates and recurrence in one kernel each way.
 *
 * A block owns 32 channels of one sequence (or of one chunk of it). Its warps take consecutive slices of S tokens: each loads
 * its slice into registers, finds the slice's effect on the state (h → A·h + B), the effects go through shared memory, and each
 * warp finishes its slice from the right state. So every value is read once, many loads are in flight, and the order of
 * operations depends on the shape alone. */
#include "ops/cuda/scan.cuh"

enum { WARPS = 8, FORWARD_SLICE = 8, BACKWARD_SLICE = 4 };

template <int CAND> static __device__ float start_state(const scan_args &g, int ch) { return g.h_init ? candidate<CAND>(g.h_init[ch]) : 0; }

/* Tokens of this block: [first, last), the first `real` tokens of the sequence exist. */
struct span_of {
    int b, ch, chunk, first, last, real;
};

static __device__ __forceinline__ span_of my_span(const scan_args &g)
{
    span_of s;
    s.b = blockIdx.y;
    s.chunk = blockIdx.z;
    s.ch = blockIdx.x * 32 + threadIdx.x;
    s.first = s.chunk * g.span;
    s.last = min(g.T, s.first + g.span);
    s.real = g.length ? g.length[s.b] : g.T;
    return s;
}

static __device__ __forceinline__ int starts(const scan_args &g, int b, int t)
{
    return (t == 0 && !g.h_in) || (g.reset && g.reset[(size_t)b * g.T + t]);
}

/* Effects of the slices before mine in this tile, applied to `state`; then the state behind the whole tile. */
static __device__ __forceinline__ float pass_carry(float (*A)[32], float (*B)[32], float &state, int warp)
{
    float mine = state;
    for (int w = 0; w < WARPS; w++) {
        if (w == warp) mine = state;
        state = A[w][threadIdx.x] * state + B[w][threadIdx.x];
    }
    return mine;
}

template <class ACT, int KIND, int CAND, int EFFECT_ONLY> static __global__ void __launch_bounds__(32 * WARPS) scan_forward(scan_args g)
{
    const int S = FORWARD_SLICE, G = gate_count<KIND>::value, warp = threadIdx.y;
    __shared__ float A[2][WARPS][32], B[2][WARPS][32];
    span_of s = my_span(g);
    const bool on = s.ch < g.H;
    const size_t wide = (size_t)G * g.H;
    const ACT *pre = (const ACT *)g.pre + (size_t)s.b * g.T * wide + s.ch;
    ACT *h = (ACT *)g.h + (size_t)s.b * g.T * g.H + s.ch;
    float start = on ? start_state<CAND>(g, s.ch) : 0, state = 0, whole_A = 1;
    if (!EFFECT_ONLY && on) state = g.carry ? g.carry[((size_t)s.b * g.chunks + s.chunk) * g.H + s.ch] : g.h_in ? g.h_in[(size_t)s.b * g.H + s.ch] : 0;
    int turn = 0;
    for (int tile = s.first; tile < s.last; tile += WARPS * S, turn ^= 1) {
        float a[S], x[S], PA = 1, PB = 0;
        const int from = tile + warp * S;
        float q[S][G];
#pragma unroll
        for (int k = 0; k < S; k++)
#pragma unroll
            for (int j = 0; j < G; j++) q[k][j] = on && from + k < s.last ? load(pre + (from + k) * wide + (size_t)j * g.H) : 0;
#pragma unroll
        for (int k = 0; k < S; k++) {
            const int t = from + k;
            a[k] = 1, x[k] = 0;
            if (t < s.last && t < s.real) {
                float i, c;
                gates_of<KIND, CAND>(q[k], a[k], i, c);
                x[k] = i * c;
                if (starts(g, s.b, t)) x[k] += a[k] * start, a[k] = 0;
            }
            PB = a[k] * PB + x[k];
            PA *= a[k];
        }
        A[turn][warp][threadIdx.x] = PA;
        B[turn][warp][threadIdx.x] = PB;
        __syncthreads();
        if (EFFECT_ONLY) {
            for (int w = 0; w < WARPS; w++) state = A[turn][w][threadIdx.x] * state + B[turn][w][threadIdx.x], whole_A *= A[turn][w][threadIdx.x];
            continue;
        }
        float v = pass_carry(A[turn], B[turn], state, warp);
#pragma unroll
        for (int k = 0; k < S; k++) {
            const int t = from + k;
            v = a[k] * v + x[k];
            if (on && t < s.last) store(h + (size_t)t * g.H, t < s.real ? v : 0.0f);
        }
    }
    if (!on || warp) return;
    const size_t at = ((size_t)s.b * g.chunks + s.chunk) * g.H + s.ch;
    if (EFFECT_ONLY) g.carry_A[at] = whole_A, g.carry_B[at] = state;
    else if (g.h_out && s.chunk == g.chunks - 1) g.h_out[(size_t)s.b * g.H + s.ch] = state;
}

/* Going down in time: g_t = dh_t + c_t, c_{t−1} = a_t·g_t, where c comes from behind. */
template <class ACT, int KIND, int CAND, int EFFECT_ONLY> static __global__ void __launch_bounds__(32 * WARPS) scan_backward(scan_args g)
{
    const int S = BACKWARD_SLICE, G = gate_count<KIND>::value, warp = threadIdx.y;
    __shared__ float A[2][WARPS][32], B[2][WARPS][32], sums[WARPS][32];
    span_of s = my_span(g);
    const bool on = s.ch < g.H;
    const size_t wide = (size_t)G * g.H, row = (size_t)s.b * g.T * g.H + s.ch;
    ACT *pre = (ACT *)g.pre + (size_t)s.b * g.T * wide + s.ch;
    const ACT *h = (const ACT *)g.h + row, *dh = (const ACT *)g.dh + row;
    float start = on ? start_state<CAND>(g, s.ch) : 0, state = 0, whole_A = 1, to_start = 0;
    if (!EFFECT_ONLY && on) state = g.carry ? g.carry[((size_t)s.b * g.chunks + s.chunk) * g.H + s.ch] : g.dh_out ? g.dh_out[(size_t)s.b * g.H + s.ch] : 0;
    int turn = 0;
    for (int tile = s.last; tile > s.first; tile -= WARPS * S, turn ^= 1) {
        float q[S][G], d[S], before[S], a[S], PA = 1, PB = 0;
        const int from = tile - 1 - warp * S; /* slices count downwards */
        unsigned cut = 0;
#pragma unroll
        for (int k = 0; k < S; k++) {
            const int t = from - k;
            const bool here = on && t >= s.first && t < s.real;
#pragma unroll
            for (int j = 0; j < G; j++) q[k][j] = here ? load(pre + (size_t)t * wide + (size_t)j * g.H) : 0;
            d[k] = here ? load(dh + (size_t)t * g.H) : 0;
            if (!EFFECT_ONLY) before[k] = here && t > 0 ? load(h + (size_t)(t - 1) * g.H) : here && g.h_in ? g.h_in[(size_t)s.b * g.H + s.ch] : 0;
        }
#pragma unroll
        for (int k = 0; k < S; k++) {
            const int t = from - k;
            a[k] = 1;
            if (t >= s.first && t < s.real) {
                float i, c;
                gates_of<KIND, CAND>(q[k], a[k], i, c);
                if (starts(g, s.b, t)) cut |= 1u << k;
            }
            const float through = cut >> k & 1 ? 0 : a[k];
            PB = through * (PB + d[k]);
            PA *= through;
        }
        A[turn][warp][threadIdx.x] = PA;
        B[turn][warp][threadIdx.x] = PB;
        __syncthreads();
        if (EFFECT_ONLY) {
            for (int w = 0; w < WARPS; w++) state = A[turn][w][threadIdx.x] * state + B[turn][w][threadIdx.x], whole_A *= A[turn][w][threadIdx.x];
            continue;
        }
        float v = pass_carry(A[turn], B[turn], state, warp);
#pragma unroll
        for (int k = 0; k < S; k++) {
            const int t = from - k;
            if (t < s.first) break;
            const bool starting = cut >> k & 1;
            if (t < s.real) {
                float ga, i, c, dg = d[k] + v;
                gates_of<KIND, CAND>(q[k], ga, i, c);
                gates_bwd<KIND, CAND>(q[k], ga, i, dg * (starting ? start : before[k]), dg * c, dg * i);
                v = ga * dg;
                if (starting) to_start += v, v = 0;
            }
#pragma unroll
            for (int j = 0; j < G; j++)
                if (on) store(pre + (size_t)t * wide + (size_t)j * g.H, t < s.real ? q[k][j] : 0.0f);
        }
    }
    const size_t at = ((size_t)s.b * g.chunks + s.chunk) * g.H + s.ch;
    if (EFFECT_ONLY) {
        if (on && !warp) g.carry_A[at] = whole_A, g.carry_B[at] = state;
        return;
    }
    sums[warp][threadIdx.x] = to_start;
    __syncthreads();
    if (!on || warp) return;
    for (int w = 1; w < WARPS; w++) to_start += sums[w][threadIdx.x];
    if (g.to_start) g.to_start[at] = to_start;
    if (g.dh_in && s.chunk == 0) g.dh_in[(size_t)s.b * g.H + s.ch] = state;
}

/* The paper's way, one thread a channel: s = Σ log a, L = logcumsumexp(log b − s), h = exp(s + L). */
template <class ACT, int KIND> static __global__ void scan_log_forward(scan_args g)
{
    const int G = gate_count<KIND>::value, ch = blockIdx.x * 32 + threadIdx.x, b = blockIdx.y;
    if (ch >= g.H) return;
    const ACT *pre = (const ACT *)g.pre + (size_t)b * g.T * G * g.H + ch;
    ACT *h = (ACT *)g.h + (size_t)b * g.T * g.H + ch;
    float state = g.h_in ? g.h_in[(size_t)b * g.H + ch] : 0, s = 0, L = logf(state);
    const int real = g.length ? g.length[b] : g.T;
    for (int t = 0; t < g.T; t++) {
        if (t < real) {
            float q[G], log_a, log_i;
            for (int j = 0; j < G; j++) q[j] = load(pre + ((size_t)t * G + j) * g.H);
            if (KIND == GRU) log_a = -softplus(q[0]), log_i = -softplus(-q[0]);
            if (KIND == LSTM) log_a = -softplus(-q[0]), log_i = -softplus(-q[1]);
            if (KIND == LSTM_NORM) {
                float d = softplus(-q[1]) - softplus(-q[0]);
                log_a = -softplus(-d), log_i = -softplus(d);
            }
            if (starts(g, b, t)) s = 0, L = logf(start_state<MR_POSITIVE>(g, ch));
            s += log_a;
            float x = log_i + logf(candidate<MR_POSITIVE>(q[G - 1])) - s, top = fmaxf(x, L), low = fminf(x, L);
            L = top == -INFINITY ? top : top + log1pf(expf(low - top));
            state = expf(s + L);
        }
        store(h + (size_t)t * g.H, t < real ? state : 0.0f);
    }
    if (g.h_out) g.h_out[(size_t)b * g.H + ch] = state;
}

/* Carries of the chunks in order: carry[k] is the state before chunk k (backward: the gradient behind it). */
static __global__ void chain_carries(int B, int chunks, int H, int down, const float *first, const float *A, const float *X, float *carry)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, b = i / H, ch = i % H;
    if (b >= B) return;
    float state = first ? first[i] : 0;
    for (int k = 0; k < chunks; k++) {
        size_t at = ((size_t)b * chunks + (down ? chunks - 1 - k : k)) * H + ch;
        carry[at] = state;
        state = A[at] * state + X[at];
    }
}

/* dh_init += cand'(h_init)·Σ to_start, rows in order. */
template <int CAND> static __global__ void add_start_grad(int rows, int H, const float *to_start, const float *h_init, float *dh_init)
{
    int ch = blockIdx.x * blockDim.x + threadIdx.x;
    if (ch >= H) return;
    float sum = 0;
    for (int r = 0; r < rows; r++) sum += to_start[(size_t)r * H + ch];
    dh_init[ch] += sum * candidate_slope<CAND>(h_init[ch]);
}

/* ---- launches ---- */

/* By shape alone: enough blocks for the chip, or chunks of time until there are. */
static void cut_time(scan_args *g)
{
    size_t blocks = (size_t)g->B * div_up((size_t)g->H, 32);
    g->chunks = 1;
    if (blocks < 256 && g->T > 1024) g->chunks = (int)div_up((size_t)g->T, 1024);
    while (g->chunks > 1 && blocks * (size_t)g->chunks > 1024) g->chunks = (g->chunks + 1) / 2;
    g->span = (int)(div_up(div_up((size_t)g->T, (size_t)g->chunks), 64) * 64);
    g->chunks = (int)div_up((size_t)g->T, (size_t)g->span);
}

template <class ACT, int KIND, int CAND> struct scans {
    static void forward(mr_cuda *c, scan_args g)
    {
        dim3 grid((unsigned)div_up((size_t)g.H, 32), (unsigned)g.B, (unsigned)g.chunks), block(32, WARPS);
        if (g.log_scan) scan_log_forward<ACT, KIND><<<dim3(grid.x, grid.y), 32, 0, c->stream>>>(g);
        else {
            if (g.chunks > 1) {
                scan_forward<ACT, KIND, CAND, 1><<<grid, block, 0, c->stream>>>(g);
                chain_carries<<<(unsigned)div_up((size_t)g.B * g.H, 128), 128, 0, c->stream>>>(g.B, g.chunks, g.H, 0, g.h_in, g.carry_A, g.carry_B, (float *)g.carry);
            }
            scan_forward<ACT, KIND, CAND, 0><<<grid, block, 0, c->stream>>>(g);
        }
        LAUNCHED(c, "scan_forward");
    }
    static void backward(mr_cuda *c, scan_args g, float *dh_init)
    {
        dim3 grid((unsigned)div_up((size_t)g.H, 32), (unsigned)g.B, (unsigned)g.chunks), block(32, WARPS);
        if (g.chunks > 1) {
            scan_backward<ACT, KIND, CAND, 1><<<grid, block, 0, c->stream>>>(g);
            chain_carries<<<(unsigned)div_up((size_t)g.B * g.H, 128), 128, 0, c->stream>>>(g.B, g.chunks, g.H, 1, g.dh_out, g.carry_A, g.carry_B, (float *)g.carry);
        }
        scan_backward<ACT, KIND, CAND, 0><<<grid, block, 0, c->stream>>>(g);
        if (dh_init) add_start_grad<CAND><<<(unsigned)div_up((size_t)g.H, 128), 128, 0, c->stream>>>(g.B * g.chunks, g.H, g.to_start, g.h_init, dh_init);
        LAUNCHED(c, "scan_backward");
    }
};

/* Finds the kernel for a cell: one way for both directions, so the lists cannot differ. */
template <class ACT, int KIND, int CAND> static void launch(mr_cuda *c, const scan_args &g, int down, float *dh_init)
{
    if (down) scans<ACT, KIND, CAND>::backward(c, g, dh_init);
    else scans<ACT, KIND, CAND>::forward(c, g);
}

template <class ACT, int KIND> static void by_candidate(mr_cuda *c, const mr_cell *cell, const scan_args &g, int down, float *dh_init)
{
    if (cell->candidate == MR_POSITIVE) launch<ACT, KIND, MR_POSITIVE>(c, g, down, dh_init);
    else if (cell->candidate == MR_LINEAR) launch<ACT, KIND, MR_LINEAR>(c, g, down, dh_init);
    else launch<ACT, KIND, MR_TANH>(c, g, down, dh_init);
}

template <class ACT> static void by_kind(mr_cuda *c, const mr_cell *cell, const scan_args &g, int down, float *dh_init)
{
    if (cell->kind == MR_MINGRU) by_candidate<ACT, GRU>(c, cell, g, down, dh_init);
    else if (cell->normalize) by_candidate<ACT, LSTM_NORM>(c, cell, g, down, dh_init);
    else by_candidate<ACT, LSTM>(c, cell, g, down, dh_init);
}

static size_t pre_bytes(mr_dev *dev, const mr_cell *cell, int B, int T, int H)
{
    return div_up((size_t)B * (size_t)T * (size_t)H * (size_t)mr_cell_gates(cell) * dev->act_size, 256) * 256;
}

size_t mr_cuda_minrnn_saved(mr_dev *dev, const mr_cell *cell, int B, int T, int H) { return pre_bytes(dev, cell, B, T, H); }

/* Carries of the chunks, in scratch. */
static int take_carries(mr_cuda *c, scan_args *g, int starts_wanted)
{
    size_t n = (size_t)g->B * (size_t)g->chunks * (size_t)g->H;
    if (g->chunks == 1 && !starts_wanted) return 1;
    float *room = (float *)mr_cuda_scratch(c, 4 * n * sizeof(float));
    if (!room) return 0;
    g->to_start = starts_wanted ? room + 3 * n : NULL;
    if (g->chunks == 1) return 1;
    g->carry = room;
    g->carry_A = room + n;
    g->carry_B = room + 2 * n;
    return 1;
}

static void minrnn_fwd(mr_dev *dev, const mr_minrnn_fwd_args *a)
{
    mr_cuda *c = cuda_of(dev);
    scan_args g = {};
    g.B = a->B, g.T = a->T, g.H = a->H, g.pre = a->saved, g.h = a->h, g.h_in = (const float *)a->h_in, g.h_init = (const float *)a->h_init;
    g.h_out = (float *)a->h_out, g.reset = a->reset, g.length = a->length, g.log_scan = a->cell.scan == MR_SCAN_LOG;
    cut_time(&g);
    if (g.log_scan) g.chunks = 1, g.span = g.T;
    if (a->W) mr_cuda_product_fwd(c, a->B * a->T, a->H * mr_cell_gates(&a->cell), a->D, a->x, (const float *)a->W, (const float *)a->b, 0, NULL, a->saved);
    if (!take_carries(c, &g, 0)) return;
    BY_ACT(c, by_kind, c, &a->cell, g, 0, NULL);
}

static void minrnn_bwd(mr_dev *dev, const mr_minrnn_bwd_args *a)
{
    mr_cuda *c = cuda_of(dev);
    int M = a->B * a->T, N = a->H * mr_cell_gates(&a->cell);
    scan_args g = {};
    g.B = a->B, g.T = a->T, g.H = a->H, g.pre = a->saved, g.h = (void *)a->h, g.h_in = (const float *)a->h_in, g.h_init = (const float *)a->h_init;
    g.reset = a->reset, g.length = a->length, g.dh = a->dh, g.dh_out = (const float *)a->dh_out, g.dh_in = (float *)a->dh_in;
    cut_time(&g);
    if (!take_carries(c, &g, a->dh_init != NULL)) return;
    BY_ACT(c, by_kind, c, &a->cell, g, 1, (float *)a->dh_init);
    if (!a->W) return;
    mr_cuda_product_dx(c, M, N, a->D, a->saved, (const float *)a->W, a->accumulate, a->dx);
    mr_cuda_product_dw(c, M, N, a->D, a->saved, a->x, (float *)a->dW, (float *)a->db);
}

void mr_cuda_minrnn_ops(mr_ops *ops)
{
    ops->minrnn_fwd = minrnn_fwd;
    ops->minrnn_bwd = minrnn_bwd;
}
