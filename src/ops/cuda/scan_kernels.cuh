/* The kernels of gates and recurrence.
 *
 * A block owns 32·V channels of one sequence, or of one chunk of it. Its W warps take consecutive slices of S tokens:
 * each loads its slice into registers and computes the slice's effect on the state (h → A·h + B); the effects are
 * exchanged through shared memory, and each warp finishes its slice from the right state while the next tile is being
 * loaded. So every value is read once, many loads are in flight, and the order of operations depends only on the shape.
 *   EFFECT  1: only the chunk's effect is wanted
 *   MASKED  1: there are resets or lengths, or tokens or channels that do not fill the last tile */
#ifndef MR_OPS_CUDA_SCAN_KERNELS_CUH
#define MR_OPS_CUDA_SCAN_KERNELS_CUH

#include "ops/cuda/scan.cuh"

/* Tokens of this block: [first, last); the first `real` tokens of the sequence are not padding. */
struct span_of {
    int b, ch, chunk, first, last, real;
    bool on; /* the channels exist */
};

template <int MASKED, int V> static __device__ __forceinline__ span_of my_span(const scan_args &g)
{
    span_of s;
    s.b = blockIdx.y;
    s.chunk = blockIdx.z;
    s.ch = (blockIdx.x * 32 + threadIdx.x) * V;
    s.first = s.chunk * g.span;
    s.last = min(g.T, s.first + g.span);
    s.real = g.length ? g.length[s.b] : g.T;
    s.on = !MASKED || s.ch < g.H;
    return s;
}

static __device__ __forceinline__ bool resets(const scan_args &g, int b, int t)
{
    return g.reset && g.reset[(size_t)b * g.T + t];
}

template <int V> static __device__ __forceinline__ void read_row(const float *from, const span_of &s, int H, float *to)
{
#pragma unroll
    for (int v = 0; v < V; v++) to[v] = s.on && from ? from[(size_t)s.b * H + s.ch + v] : 0;
}

template <int CAND, int V>
static __device__ __forceinline__ void start_state(const scan_args &g, const span_of &s, float *start)
{
#pragma unroll
    for (int v = 0; v < V; v++) start[v] = s.on && g.h_init ? candidate<CAND>(g.h_init[s.ch + v]) : 0;
}

/* A slice in which a sequence starts forgets what was before it, NaN included: its A is −0. Products of gates are
 * never that: those that round to −0 (signed gates may be negative) become 0. */
#define FORGETS (-0.0f)
static __device__ __forceinline__ bool forgets(float A) { return __float_as_uint(A) == 0x80000000u; }

template <int MASKED> static __device__ __forceinline__ float apply(float A, float B, float state)
{
    return MASKED && forgets(A) ? B : A * state + B;
}

template <int MASKED> static __device__ __forceinline__ float join(float A, float before)
{
    if (!MASKED) return A * before;
    return forgets(A) || forgets(before) ? FORGETS : __fadd_rn(__fmul_rn(A, before), 0.0f);
}

/* Passes the given state through the effects of the chunks before this one (backward: after it). */
template <int MASKED, int V>
static __device__ __forceinline__ void pass_chunks(const scan_args &g, const span_of &s, int down, float *state)
{
    const int before = down ? g.chunks - 1 - s.chunk : s.chunk;
    for (int k = 0; s.on && k < before; k++) {
        const size_t at = ((size_t)s.b * g.chunks + (down ? g.chunks - 1 - k : k)) * g.H + s.ch;
#pragma unroll
        for (int v = 0; v < V; v++) state[v] = apply<MASKED>(g.effect_A[at + v], g.effect_B[at + v], state[v]);
    }
}

/* Effects of a tile's slices, double-buffered so that one barrier a tile is enough, and the state before the tile. */
template <int V, int W> struct exchange {
    float2 effect[2][W][V][32];
    float state[2][V][32];
};

/* Publishes this warp's effect; returns the state before its slice. The last warp passes the state after the
 * tile on to the next tile. */
template <int MASKED, int V, int W>
static __device__ __forceinline__ void meet(exchange<V, W> &x, int turn, const float *A, const float *B, float *mine)
{
    const int warp = threadIdx.y, lane = threadIdx.x;
#pragma unroll
    for (int v = 0; v < V; v++) x.effect[turn][warp][v][lane] = make_float2(A[v], B[v]);
    __syncthreads();
#pragma unroll
    for (int v = 0; v < V; v++) {
        float state = x.state[turn][v][lane];
#pragma unroll
        for (int w = 0; w < W - 1; w++) {
            if (w >= warp) break;
            const float2 e = x.effect[turn][w][v][lane];
            state = apply<MASKED>(e.x, e.y, state);
        }
        mine[v] = state;
        if (warp == W - 1) x.state[turn ^ 1][v][lane] = apply<MASKED>(A[v], B[v], state);
    }
}

/* Accumulates the effect of a whole chunk: like the state, and also the product of all A. Before the first tile, the
 * state is 0 and `whole` is 1. */
template <int MASKED, int V, int W>
static __device__ __forceinline__ void gather(exchange<V, W> &x, int turn, const float *A, const float *B, float *state,
                                              float *whole)
{
    const int warp = threadIdx.y, lane = threadIdx.x;
#pragma unroll
    for (int v = 0; v < V; v++) x.effect[turn][warp][v][lane] = make_float2(A[v], B[v]);
    __syncthreads();
    if (warp) return;
#pragma unroll
    for (int v = 0; v < V; v++)
        for (int w = 0; w < W; w++) {
            const float2 e = x.effect[turn][w][v][lane];
            state[v] = apply<MASKED>(e.x, e.y, state[v]);
            whole[v] = join<MASKED>(e.x, whole[v]);
        }
}

template <int V>
static __device__ __forceinline__ void write_effect(const scan_args &g, const span_of &s, const float *state,
                                                    const float *whole)
{
    if (!s.on || threadIdx.y) return;
#pragma unroll
    for (int v = 0; v < V; v++) {
        const size_t at = ((size_t)s.b * g.chunks + s.chunk) * g.H + s.ch + v;
        g.effect_A[at] = whole[v];
        g.effect_B[at] = state[v];
    }
}

/* ---- forward ---- */

template <class ACT, int G, int MASKED, int V, int S>
static __device__ __forceinline__ void fetch(const ACT *pre, const span_of &s, int H, int from,
                                             typename lanes<ACT, V>::raw (*raw)[G])
{
    typedef typename lanes<ACT, V>::raw word;
    const ACT *at = pre + (size_t)from * G * H;
    if (!MASKED && from >= s.last) return;
#pragma unroll
    for (int k = 0; k < S; k++)
#pragma unroll
        for (int j = 0; j < G; j++)
            raw[k][j] = !MASKED || (s.on && from + k < s.last) ? *(const word *)(at + (size_t)(k * G + j) * H) : word();
}

/* a and b of the recurrence for this warp's slice, and its effect. */
template <class ACT, int KIND, int CAND, int MASKED, int V, int S>
static __device__ __forceinline__ void slice_gates(const scan_args &g, const span_of &s, int from, const float *start,
                                                   const typename lanes<ACT, V>::raw (*raw)[gate_count<KIND>::value],
                                                   float (*a)[V], float (*b)[V], float *A, float *B)
{
    const int G = gate_count<KIND>::value;
#pragma unroll
    for (int v = 0; v < V; v++) A[v] = 1, B[v] = 0;
#pragma unroll
    for (int k = 0; k < S; k++) {
        const int t = from + k;
        const bool here = !MASKED || (t < s.last && t < s.real), cut = MASKED && here && resets(g, s.b, t);
        float q[G][V];
#pragma unroll
        for (int j = 0; j < G; j++) lanes<ACT, V>::expand(raw[k][j], q[j]);
#pragma unroll
        for (int v = 0; v < V; v++) {
            float p[G], i, c;
#pragma unroll
            for (int j = 0; j < G; j++) p[j] = q[j][v];
            gates_of<KIND, CAND>(p, a[k][v], i, c);
            b[k][v] = i * c;
            if (cut) b[k][v] += a[k][v] * start[v], a[k][v] = FORGETS;
            if (!here) a[k][v] = 1, b[k][v] = 0;
            B[v] = apply<MASKED>(a[k][v], b[k][v], B[v]);
            A[v] = join<MASKED>(a[k][v], A[v]);
        }
    }
}

template <class ACT, int KIND, int CAND, int EFFECT, int MASKED, int V, int S, int W, int LEAST>
static __global__ void __launch_bounds__(32 * W, LEAST) scan_forward(scan_args g)
{
    const int G = gate_count<KIND>::value, warp = threadIdx.y;
    typedef typename lanes<ACT, V>::raw word;
    __shared__ exchange<V, W> x;
    const span_of s = my_span<MASKED, V>(g);
    const ACT *pre = (const ACT *)g.pre + (size_t)s.b * g.T * G * g.H + s.ch;
    ACT *h = (ACT *)g.h + (size_t)s.b * g.T * g.H + s.ch;
    float start[V], state[V], whole[V];
    word raw[S][G];
    fetch<ACT, G, MASKED, V, S>(pre, s, g.H, s.first + warp * S, raw);
    start_state<CAND, V>(g, s, start);
    read_row<V>(g.h_in, s, g.H, state);
#pragma unroll
    for (int v = 0; v < V; v++) whole[v] = 1, state[v] = EFFECT ? 0 : g.h_in ? state[v] : start[v];
    if (!EFFECT) pass_chunks<MASKED, V>(g, s, 0, state);
#pragma unroll
    for (int v = 0; v < V; v++)
        if (warp == 0) x.state[0][v][threadIdx.x] = state[v];
    int turn = 0;
    for (int tile = s.first; tile < s.last; tile += W * S, turn ^= 1) {
        const int from = tile + warp * S;
        float a[S][V], b[S][V], A[V], B[V], y[V];
        slice_gates<ACT, KIND, CAND, MASKED, V, S>(g, s, from, start, raw, a, b, A, B);
        fetch<ACT, G, MASKED, V, S>(pre, s, g.H, from + W * S, raw);
        if (EFFECT) {
            gather<MASKED, V, W>(x, turn, A, B, state, whole);
            continue;
        }
        meet<MASKED, V, W>(x, turn, A, B, y);
#pragma unroll
        for (int k = 0; k < S; k++) {
            float out[V];
#pragma unroll
            for (int v = 0; v < V; v++) {
                y[v] = apply<MASKED>(a[k][v], b[k][v], y[v]);
                out[v] = !MASKED || from + k < s.real ? y[v] : 0;
            }
            if (!MASKED || (s.on && from + k < s.last))
                *(word *)(h + (size_t)(from + k) * g.H) = lanes<ACT, V>::pack(out);
        }
    }
    if (EFFECT) write_effect<V>(g, s, state, whole);
    else if (g.h_out && s.on && warp == W - 1 && s.chunk == g.chunks - 1)
#pragma unroll
        for (int v = 0; v < V; v++) g.h_out[(size_t)s.b * g.H + s.ch + v] = x.state[turn][v][threadIdx.x];
}

/* ---- backward, from the last token to the first: g_t = dh_t + c_t, c_{t−1} = a_t·g_t ---- */

/* A slice of pre-activations, dh and the states before the tokens; slices count downwards from token `from`. */
template <class ACT, int G, int MASKED, int V, int S> struct slice {
    typedef typename lanes<ACT, V>::raw word;
    word pre[S][G], dh[S], before[S];

    __device__ __forceinline__ void fetch(const ACT *pre_at, const ACT *dh_at, const ACT *h_at, const span_of &s, int H,
                                          int from)
    {
        if (!MASKED && from < s.first) return;
#pragma unroll
        for (int k = 0; k < S; k++) {
            const int t = from - k;
            const bool here = !MASKED || (s.on && t >= s.first && t < s.real);
#pragma unroll
            for (int j = 0; j < G; j++) pre[k][j] = here ? *(const word *)(pre_at + ((size_t)t * G + j) * H) : word();
            dh[k] = here ? *(const word *)(dh_at + (size_t)t * H) : word();
            before[k] = here && h_at && t > 0 ? *(const word *)(h_at + (size_t)(t - 1) * H) : word();
        }
    }
};

/* Gates of a slice, and its effect on the gradient; returns where sequences start in it. */
template <class ACT, int KIND, int CAND, int MASKED, int V, int S>
static __device__ __forceinline__ unsigned slice_effect(const scan_args &g, const span_of &s, int from,
                                                        const slice<ACT, gate_count<KIND>::value, MASKED, V, S> &in,
                                                        float (*a)[V], float (*i)[V], float (*c)[V], float *A, float *B)
{
    const int G = gate_count<KIND>::value;
    unsigned cut = 0;
#pragma unroll
    for (int v = 0; v < V; v++) A[v] = 1, B[v] = 0;
#pragma unroll
    for (int k = 0; k < S; k++) {
        const int t = from - k;
        const bool here = !MASKED || (t >= s.first && t < s.real);
        if (MASKED && here && resets(g, s.b, t)) cut |= 1u << k;
        float q[G][V], d[V];
#pragma unroll
        for (int j = 0; j < G; j++) lanes<ACT, V>::expand(in.pre[k][j], q[j]);
        lanes<ACT, V>::expand(in.dh[k], d);
#pragma unroll
        for (int v = 0; v < V; v++) {
            float p[G];
#pragma unroll
            for (int j = 0; j < G; j++) p[j] = q[j][v];
            gates_of<KIND, CAND>(p, a[k][v], i[k][v], c[k][v]);
            const bool starting = MASKED && cut >> k & 1;
            B[v] = starting ? 0 : here ? a[k][v] * (B[v] + d[v]) : B[v];
            A[v] = starting ? FORGETS : here ? join<MASKED>(a[k][v], A[v]) : A[v];
        }
    }
    return cut;
}

/* Replaces the pre-activations of a slice by their gradients. y is the gradient that comes from later tokens, and
 * then goes to earlier ones. */
template <class ACT, int KIND, int CAND, int MASKED, int SUMS, int V, int S>
static __device__ __forceinline__ void finish_slice(const span_of &s, int H, int from, unsigned cut,
                                                    const slice<ACT, gate_count<KIND>::value, MASKED, V, S> &in,
                                                    const float (*a)[V], const float (*i)[V], const float (*c)[V],
                                                    const float *start, const float *first, float *y, float *to_start,
                                                    float (*sums)[V], ACT *pre)
{
    const int G = gate_count<KIND>::value;
    typedef typename lanes<ACT, V>::raw word;
#pragma unroll
    for (int k = 0; k < S; k++) {
        const int t = from - k;
        const bool here = !MASKED || (t >= s.first && t < s.real), starting = MASKED && cut >> k & 1;
        float q[G][V], d[V], before[V];
#pragma unroll
        for (int j = 0; j < G; j++) lanes<ACT, V>::expand(in.pre[k][j], q[j]);
        lanes<ACT, V>::expand(in.dh[k], d);
        lanes<ACT, V>::expand(in.before[k], before);
#pragma unroll
        for (int v = 0; v < V; v++) {
            float p[G];
            const float dg = d[v] + y[v], past = starting ? start[v] : t > 0 ? before[v] : first[v];
#pragma unroll
            for (int j = 0; j < G; j++) p[j] = q[j][v];
            gates_bwd<KIND, CAND>(p, a[k][v], i[k][v], c[k][v], dg * past, dg * c[k][v], dg * i[k][v]);
#pragma unroll
            for (int j = 0; j < G; j++) {
                q[j][v] = here ? p[j] : 0;
                if (SUMS) sums[j][v] += q[j][v];
            }
            if (here) y[v] = a[k][v] * dg;
            if (starting) to_start[v] += y[v], y[v] = 0;
        }
        if (MASKED && (!s.on || t < s.first)) continue;
#pragma unroll
        for (int j = 0; j < G; j++) *(word *)(pre + ((size_t)t * G + j) * H) = lanes<ACT, V>::pack(q[j]);
    }
}

/* Sums over tokens of the pre-activations' gradients, warps in order: this chunk's share of the bias gradient. */
template <int G, int V, int W>
static __device__ __forceinline__ void write_sums(const scan_args &g, const span_of &s, exchange<V, W> &x,
                                                  float (*sums)[V])
{
    const int warp = threadIdx.y, lane = threadIdx.x;
#pragma unroll
    for (int j = 0; j < G; j++) {
        __syncthreads();
#pragma unroll
        for (int v = 0; v < V; v++) x.effect[0][warp][v][lane].x = sums[j][v];
        __syncthreads();
        if (!s.on || warp) continue;
#pragma unroll
        for (int v = 0; v < V; v++) {
            float sum = sums[j][v];
            for (int w = 1; w < W; w++) sum += x.effect[0][w][v][lane].x;
            g.bias_sums[(((size_t)s.b * g.chunks + s.chunk) * G + j) * g.H + s.ch + v] = sum;
        }
    }
}

/* Writes the gradients of the start state and of the state before token 0. */
template <int MASKED, int V, int W>
static __device__ __forceinline__ void write_front(const scan_args &g, const span_of &s, exchange<V, W> &x, int turn,
                                                   float *to_start)
{
    const int warp = threadIdx.y, lane = threadIdx.x;
    __syncthreads();
    if (MASKED) { /* shares from resets, warps in order */
#pragma unroll
        for (int v = 0; v < V; v++) x.effect[turn][warp][v][lane].x = to_start[v];
        __syncthreads();
    }
    if (!s.on || warp) return;
#pragma unroll
    for (int v = 0; v < V; v++) {
        for (int w = 1; MASKED && w < W; w++) to_start[v] += x.effect[turn][w][v][lane].x;
        const size_t at = ((size_t)s.b * g.chunks + s.chunk) * g.H + s.ch + v;
        const bool front = s.chunk == 0; /* the rest goes to the state before token 0 */
        const float left = x.state[turn][v][lane];
        if (g.to_start) g.to_start[at] = to_start[v] + (front && !g.h_in ? left : 0);
        if (g.dh_in && front) g.dh_in[(size_t)s.b * g.H + s.ch + v] = g.h_in ? left : 0;
    }
}

template <class ACT, int KIND, int CAND, int EFFECT, int MASKED, int V, int S, int W, int LEAST, int AHEAD, int SUMS>
static __global__ void __launch_bounds__(32 * W, LEAST) scan_backward(scan_args g)
{
    const int G = gate_count<KIND>::value, warp = threadIdx.y;
    __shared__ exchange<V, W> x;
    const span_of s = my_span<MASKED, V>(g);
    const size_t row = (size_t)s.b * g.T * g.H + s.ch;
    ACT *pre = (ACT *)g.pre + (size_t)s.b * g.T * G * g.H + s.ch;
    const ACT *h = EFFECT ? NULL : (const ACT *)g.h + row, *dh = (const ACT *)g.dh + row;
    float start[V], first[V], state[V], whole[V], to_start[V], sums[G][V];
    start_state<CAND, V>(g, s, start);
    read_row<V>(g.h_in, s, g.H, first);
    read_row<V>(EFFECT ? NULL : g.dh_out, s, g.H, state);
    if (!EFFECT) pass_chunks<MASKED, V>(g, s, 1, state);
#pragma unroll
    for (int v = 0; v < V; v++) {
        whole[v] = 1, to_start[v] = 0;
#pragma unroll
        for (int j = 0; j < G; j++) sums[j][v] = 0;
        if (!g.h_in) first[v] = start[v];
        if (warp == 0) x.state[0][v][threadIdx.x] = state[v];
    }
    int turn = 0;
    slice<ACT, G, MASKED, V, S> in, next; /* AHEAD: the next tile is requested before this one is finished */
    if (AHEAD) next.fetch(pre, dh, h, s, g.H, s.last - 1 - warp * S);
    for (int tile = s.last; tile > s.first; tile -= W * S, turn ^= 1) {
        const int from = tile - 1 - warp * S;
        float a[S][V], i[S][V], c[S][V], A[V], B[V], y[V];
        if (AHEAD) in = next;
        else in.fetch(pre, dh, h, s, g.H, from);
        if (AHEAD) next.fetch(pre, dh, h, s, g.H, from - W * S);
        const unsigned cut = slice_effect<ACT, KIND, CAND, MASKED, V, S>(g, s, from, in, a, i, c, A, B);
        if (EFFECT) {
            gather<MASKED, V, W>(x, turn, A, B, state, whole);
            continue;
        }
        meet<MASKED, V, W>(x, turn, A, B, y);
        finish_slice<ACT, KIND, CAND, MASKED, SUMS, V, S>(s, g.H, from, cut, in, a, i, c, start, first, y, to_start,
                                                          sums, pre);
    }
    if (EFFECT) {
        write_effect<V>(g, s, state, whole);
        return;
    }
    write_front<MASKED, V, W>(g, s, x, turn, to_start);
    if (SUMS) write_sums<G, V, W>(g, s, x, sums);
}

#endif
