/* Launches of the kernels of gates and recurrence for one kind of cell. Included by two files, so that they compile
 * side by side: minrnn.cu and minrnn_signed.cu. */
#ifndef MR_OPS_CUDA_SCAN_LAUNCH_CUH
#define MR_OPS_CUDA_SCAN_LAUNCH_CUH

#include "ops/cuda/scan_kernels.cuh"

/* Forward and backward, and their first pass alone: it leaves the effect of each chunk. */
enum scan_way { SCAN_UP, SCAN_DOWN, EFFECT_UP, EFFECT_DOWN };

/* Cells with transition = signed. */
void mr_cuda_scan_signed(mr_cuda *c, const mr_cell *cell, const scan_args &g, scan_way way);

/* For the log scan of the paper, one thread per channel: s = Σ log a, L = logcumsumexp(log b − s), h = exp(s + L). */
static __device__ __forceinline__ float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }

template <class ACT, int KIND> static __global__ void scan_log_forward(scan_args g)
{
    const int G = gate_count<KIND>::value, ch = blockIdx.x * 32 + threadIdx.x, b = blockIdx.y;
    if (ch >= g.H) return;
    const ACT *pre = (const ACT *)g.pre + (size_t)b * g.T * G * g.H + ch;
    ACT *h = (ACT *)g.h + (size_t)b * g.T * g.H + ch;
    const float start = g.h_init ? candidate<MR_POSITIVE>(g.h_init[ch]) : 0;
    float state = g.h_in ? g.h_in[(size_t)b * g.H + ch] : start, s = 0, L = logf(state);
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
            if (resets(g, b, t)) s = 0, L = logf(start);
            s += log_a;
            float x = log_i + logf(candidate<MR_POSITIVE>(q[G - 1])) - s, top = fmaxf(x, L), low = fminf(x, L);
            L = top == -INFINITY ? top : top + log1pf(expf(low - top));
            state = expf(s + L);
        }
        store(h + (size_t)t * g.H, t < real ? state : 0.0f);
    }
    if (g.h_out) g.h_out[(size_t)b * g.H + ch] = state;
}

/* One real token per stream: one thread per channel, the state updated in place. */
template <class ACT, int KIND, int CAND> static __global__ void scan_one(scan_args g)
{
    const int G = gate_count<KIND>::value, i = blockIdx.x * blockDim.x + threadIdx.x, b = i / g.H, ch = i % g.H;
    if (b >= g.B) return;
    float q[G], a, in, c;
    for (int j = 0; j < G; j++) q[j] = load((const ACT *)g.pre + ((size_t)b * G + j) * g.H + ch);
    gates_of<KIND, CAND>(q, a, in, c);
    const bool starts = !g.h_in || resets(g, b, 0);
    const float state = starts ? (g.h_init ? candidate<CAND>(g.h_init[ch]) : 0) : g.h_in[i], h = a * state + in * c;
    store((ACT *)g.h + i, h);
    if (g.h_out) g.h_out[i] = h;
}

/* ---- launches ---- */

/* Slices, warps, and blocks per multiprocessor, as measured on an H200: enough bytes in flight, one wave of blocks. */
template <class ACT, int KIND> struct tuning {
    static const int narrow = sizeof(ACT) == 2, gru = gate_count<KIND>::value == 2;
    static const int forward_slice = narrow ? 8 : 4, forward_least = narrow ? 3 : 4;
    static const int backward_slice = narrow && gru ? 4 : 2, backward_least = 3, backward_ahead = narrow || gru;
};

enum { WARPS = 8, PAIR = 2, TILE = 64 };

/* Whether every tile is full, nothing is masked, and a thread can take two channels. */
static bool is_plain(const scan_args &g, size_t act)
{
    const uintptr_t all = (uintptr_t)g.pre | (uintptr_t)g.h | (uintptr_t)g.dh;
    return !g.reset && !g.length && g.H % (32 * PAIR) == 0 && g.T % TILE == 0 && all % (PAIR * act) == 0;
}

template <class ACT, int KIND, int CAND, int MASKED, int V> struct scans {
    typedef tuning<ACT, KIND> tune;

    static dim3 grid(const scan_args &g)
    {
        return dim3((unsigned)div_up((size_t)g.H, 32 * V), (unsigned)g.B, (unsigned)g.chunks);
    }

    static void forward(mr_cuda *c, const scan_args &g)
    {
        const int S = tune::forward_slice, L = tune::forward_least;
        if (g.chunks > 1)
            scan_forward<ACT, KIND, CAND, 1, MASKED, V, S, WARPS, L><<<grid(g), dim3(32, WARPS), 0, c->stream>>>(g);
        scan_forward<ACT, KIND, CAND, 0, MASKED, V, S, WARPS, L><<<grid(g), dim3(32, WARPS), 0, c->stream>>>(g);
        LAUNCHED(c, "scan_forward");
    }

    static void backward(mr_cuda *c, const scan_args &g)
    {
        const int S = tune::backward_slice, L = tune::backward_least, A = tune::backward_ahead;
        if (g.chunks > 1)
            scan_backward<ACT, KIND, CAND, 1, MASKED, V, S, WARPS, L, A, 0>
                <<<grid(g), dim3(32, WARPS), 0, c->stream>>>(g);
        if (g.bias_sums)
            scan_backward<ACT, KIND, CAND, 0, MASKED, V, S, WARPS, L, A, 1>
                <<<grid(g), dim3(32, WARPS), 0, c->stream>>>(g);
        else
            scan_backward<ACT, KIND, CAND, 0, MASKED, V, S, WARPS, L, A, 0>
                <<<grid(g), dim3(32, WARPS), 0, c->stream>>>(g);
        LAUNCHED(c, "scan_backward");
    }

    static void effect(mr_cuda *c, const scan_args &g, bool down)
    {
        const int up_slice = tune::forward_slice, up_least = tune::forward_least;
        const int S = tune::backward_slice, L = tune::backward_least, A = tune::backward_ahead;
        if (down)
            scan_backward<ACT, KIND, CAND, 1, MASKED, V, S, WARPS, L, A, 0>
                <<<grid(g), dim3(32, WARPS), 0, c->stream>>>(g);
        else
            scan_forward<ACT, KIND, CAND, 1, MASKED, V, up_slice, WARPS, up_least>
                <<<grid(g), dim3(32, WARPS), 0, c->stream>>>(g);
        LAUNCHED(c, "scan_effect");
    }
};

template <class ACT, int KIND> static void log_forward(mr_cuda *c, const scan_args &g)
{
    scan_log_forward<ACT, KIND><<<dim3((unsigned)div_up((size_t)g.H, 32), (unsigned)g.B), 32, 0, c->stream>>>(g);
    LAUNCHED(c, "scan_log_forward");
}

/* Finds the kernels for a cell, for both directions, so that the lists cannot differ. */
template <class ACT, int KIND, int CAND>
static void launch(mr_cuda *c, const mr_cell *cell, const scan_args &g, scan_way way)
{
    const bool plain = is_plain(g, sizeof(ACT)), down = way == SCAN_DOWN || way == EFFECT_DOWN;
    if (way >= EFFECT_UP) {
        if (plain) scans<ACT, KIND, CAND, 0, PAIR>::effect(c, g, down);
        else scans<ACT, KIND, CAND, 1, 1>::effect(c, g, down);
    } else if (KIND < SIGNED_GRU && !down && cell->scan == MR_SCAN_LOG) {
        log_forward < ACT, KIND<SIGNED_GRU ? KIND : GRU>(c, g);
    } else if (!down && g.T == 1 && !g.length) {
        scan_one<ACT, KIND, CAND><<<(unsigned)div_up((size_t)g.B * (size_t)g.H, 128), 128, 0, c->stream>>>(g);
        LAUNCHED(c, "scan_one");
    } else if (!down && plain) scans<ACT, KIND, CAND, 0, PAIR>::forward(c, g);
    else if (!down) scans<ACT, KIND, CAND, 1, 1>::forward(c, g);
    else if (plain) scans<ACT, KIND, CAND, 0, PAIR>::backward(c, g);
    else scans<ACT, KIND, CAND, 1, 1>::backward(c, g);
}

template <class ACT, int KIND>
static void by_candidate(mr_cuda *c, const mr_cell *cell, const scan_args &g, scan_way way)
{
    if (cell->candidate == MR_POSITIVE) launch<ACT, KIND, MR_POSITIVE>(c, cell, g, way);
    else if (cell->candidate == MR_LINEAR) launch<ACT, KIND, MR_LINEAR>(c, cell, g, way);
    else launch<ACT, KIND, MR_TANH>(c, cell, g, way);
}

#endif
