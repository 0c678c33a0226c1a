/* The kernels of Mamba's selective scan.
 *
 * A warp owns 32 channels of one sequence, or of one span of its time: a thread a channel, the states in registers, B and C of a tile
 * of tokens in shared memory, what the next tile needs on its way meanwhile. Where there are too few sequences and channels to fill the
 * chip, time is cut into spans: what a span makes of a state is h → exp(A·ΣΔ)·h + its own end state, so a first pass finds ΣΔ and
 * that end state of each span, and the second starts each span from what those before it (backward: behind it) make of the given state.
 * NP is the number of states rounded up; those that do not exist have B = C = 0 and stay 0. */
#ifndef MR_OPS_CUDA_SSCAN_KERNELS_CUH
#define MR_OPS_CUDA_SSCAN_KERNELS_CUH

#include "ops/cuda/cuda.cuh"

struct sscan_args {
    int B, T, E, N;
    int spans, span; /* span: tokens, a multiple of MR_SSCAN_CHUNK */
    const void *u, *delta, *z, *bc;
    const float *A_log, *D, *dt_bias, *h_in;
    const uint8_t *reset;
    const int32_t *length;
    void *y;
    float *h_out, *states;
    /* of each span: ΣΔ, or infinity where a sequence starts in it, [B, spans, E], and the end state, [B, spans + 1, N, E]; forward: behind
     * those of all spans before it, the first place has the state before token 0 */
    float *effect_step, *effect_h;
    /* backward */
    const void *dy;
    const float *dh_out;
    void *du, *ddelta, *dz;
    float *dh_in;
    float *dbc_parts; /* [⌈E/32⌉, B, T, 2·NP] sums over 32 channels */
    float *dA_parts;  /* [B, spans, E, N] gradient of A_log */
    float *dD_parts;  /* [B, spans, E] */
};

enum { SSCAN_TILE = 8, SSCAN_GROUP = 4 };

/* 2ˣ in one instruction, within 2 ulp. */
static __device__ __forceinline__ float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

static __device__ __forceinline__ float step_size(float x) { return fmaxf(x, 0.0f) + log1pf(__expf(-fabsf(x))); }

/* The channel of this thread and the tokens of its span: [first, last), of which those before `end` exist. */
struct sscan_place {
    int b, e, span, first, last, end;
    bool on; /* the channel exists */
};

static __device__ __forceinline__ sscan_place sscan_place_of(const sscan_args &g)
{
    sscan_place p;
    p.e = blockIdx.x * 32 + threadIdx.x;
    p.b = blockIdx.y;
    p.span = blockIdx.z;
    p.first = p.span * g.span;
    p.last = min(g.T, p.first + g.span);
    p.end = g.length ? min(p.last, g.length[p.b]) : p.last;
    p.on = p.e < g.E;
    return p;
}

static __device__ __forceinline__ bool resets(const sscan_args &g, const sscan_place &p, int t) { return g.reset && g.reset[(size_t)p.b * g.T + t]; }
static __device__ __forceinline__ size_t token_at(const sscan_args &g, const sscan_place &p, int t) { return ((size_t)p.b * g.T + t) * g.E + p.e; }

/* Of token t's chunk in [B, chunks, N, E]. */
static __device__ __forceinline__ size_t chunk_row(const sscan_args &g, const sscan_place &p, int t)
{
    return (size_t)p.b * ((g.T + MR_SSCAN_CHUNK - 1) / MR_SSCAN_CHUNK) + t / MR_SSCAN_CHUNK;
}

template <class ACT> static __device__ __forceinline__ float read_token(const void *from, const sscan_args &g, const sscan_place &p, int t)
{
    return p.on && t >= p.first && t < p.end ? load((const ACT *)from + token_at(g, p, t)) : 0.0f;
}

template <class ACT> static __device__ __forceinline__ void write_token(void *to, const sscan_args &g, const sscan_place &p, int t, float v)
{
    if (p.on) store((ACT *)to + token_at(g, p, t), v);
}

/* A row of [rows, N, E]; from NULL: zeros. */
template <int NP> static __device__ __forceinline__ void read_states(const float *from, size_t row, const sscan_args &g, const sscan_place &p, float *h)
{
#pragma unroll
    for (int n = 0; n < NP; n++) h[n] = from && p.on && n < g.N ? from[(row * g.N + n) * g.E + p.e] : 0.0f;
}

template <int NP> static __device__ __forceinline__ void write_states(float *to, size_t row, const sscan_args &g, const sscan_place &p, const float *h)
{
#pragma unroll
    for (int n = 0; n < NP; n++)
        if (p.on && n < g.N) to[(row * g.N + n) * g.E + p.e] = h[n];
}

/* −exp(A_log)/log 2, so that a decay is a power of two. */
template <int NP> static __device__ __forceinline__ void read_rates(const sscan_args &g, const sscan_place &p, float *rate)
{
#pragma unroll
    for (int n = 0; n < NP; n++) rate[n] = p.on && n < g.N ? -1.44269504088896341f * expf(g.A_log[(size_t)p.e * g.N + n]) : 0.0f;
}

/* B and C of `TOKENS` tokens from t on: into registers, every lane a share, and from there into shared memory as [TOKENS, 2·NP]. */
template <class ACT, int NP, int TOKENS> struct bc_tile {
    float value[TOKENS * 2 * NP / 32];

    __device__ __forceinline__ void fetch(const sscan_args &g, const sscan_place &p, int t)
    {
#pragma unroll
        for (int i = 0; i < TOKENS * 2 * NP / 32; i++) {
            const int at = i * 32 + threadIdx.x, token = t + at / (2 * NP), j = at % (2 * NP), n = j % NP;
            const bool there = token >= p.first && token < p.end && n < g.N;
            value[i] = there ? load((const ACT *)g.bc + ((size_t)p.b * g.T + token) * 2 * g.N + j / NP * g.N + n) : 0.0f;
        }
    }

    __device__ __forceinline__ void put(float *tile) const
    {
#pragma unroll
        for (int i = 0; i < TOKENS * 2 * NP / 32; i++) tile[i * 32 + threadIdx.x] = value[i];
    }
};

static __device__ __forceinline__ void spread(const float4 &from, float *to) { to[0] = from.x, to[1] = from.y, to[2] = from.z, to[3] = from.w; }

/* h through the effect of one span. */
template <int NP> static __device__ __forceinline__ void pass_span(const sscan_args &g, const sscan_place &p, int span, int row, const float *rate, float *h)
{
    if (!p.on) return;
    const float step = g.effect_step[((size_t)p.b * g.spans + span) * g.E + p.e];
    const size_t at = (size_t)p.b * (g.spans + 1) + row;
#pragma unroll
    for (int n = 0; n < NP; n++) {
        const float own = n < g.N ? g.effect_h[(at * g.N + n) * g.E + p.e] : 0.0f;
        h[n] = isinf(step) ? own : exp2_fast(step * rate[n]) * h[n] + own;
    }
}

template <int NP> static __device__ __forceinline__ void write_effect(const sscan_args &g, const sscan_place &p, int row, float total, const float *h)
{
    if (p.on) g.effect_step[((size_t)p.b * g.spans + p.span) * g.E + p.e] = total;
    write_states<NP>(g.effect_h, (size_t)p.b * (g.spans + 1) + row, g, p, h);
}

/* ---- forward ---- */

/* The state before the span. h_out may be h_in, so with several spans nobody reads h_in but the first pass, which keeps a copy. */
template <int NP, int EFFECT> static __device__ __forceinline__ void start_forward(const sscan_args &g, const sscan_place &p, const float *rate, float *h)
{
    const size_t row = (size_t)p.b * (g.spans + 1);
    if (EFFECT && p.span == 0) {
        read_states<NP>(g.h_in, (size_t)p.b, g, p, h);
        write_states<NP>(g.effect_h, row, g, p, h);
    }
    if (EFFECT) read_states<NP>(NULL, 0, g, p, h);
    else if (g.spans == 1) read_states<NP>(g.h_in, (size_t)p.b, g, p, h);
    else read_states<NP>(g.effect_h, row, g, p, h);
    for (int k = 0; !EFFECT && k < p.span; k++) pass_span<NP>(g, p, k, k + 1, rate, h);
}

/* One token: h behind it; returns Σ C·h. */
template <int NP, int EFFECT> static __device__ __forceinline__ float step_forward(const float *rate, const float *bc, float step, float drive, float *h)
{
    float y = 0;
#pragma unroll
    for (int q = 0; q < NP; q += 4) {
        float B[4], C[4];
        spread(*(const float4 *)(bc + q), B);
        if (!EFFECT) spread(*(const float4 *)(bc + NP + q), C);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            h[q + j] = exp2_fast(step * rate[q + j]) * h[q + j] + drive * B[j];
            if (!EFFECT) y += C[j] * h[q + j];
        }
    }
    return y;
}

template <class ACT, int EFFECT> struct forward_tokens {
    float u[SSCAN_TILE], delta[SSCAN_TILE], z[SSCAN_TILE];

    __device__ __forceinline__ void fetch(const sscan_args &g, const sscan_place &p, int t)
    {
#pragma unroll
        for (int k = 0; k < SSCAN_TILE; k++) {
            u[k] = read_token<ACT>(g.u, g, p, t + k);
            delta[k] = read_token<ACT>(g.delta, g, p, t + k);
            z[k] = EFFECT ? 0.0f : read_token<ACT>(g.z, g, p, t + k);
        }
    }
};

template <class ACT, int NP, int EFFECT> static __global__ void __launch_bounds__(32) sscan_forward(sscan_args g)
{
    __shared__ __align__(16) float tile[2][SSCAN_TILE * 2 * NP];
    const sscan_place p = sscan_place_of(g);
    float h[NP], rate[NP], total = 0;
    forward_tokens<ACT, EFFECT> now, next;
    bc_tile<ACT, NP, SSCAN_TILE> bc;
    next.fetch(g, p, p.first);
    bc.fetch(g, p, p.first);
    read_rates<NP>(g, p, rate);
    start_forward<NP, EFFECT>(g, p, rate, h);
    const float bias = p.on ? g.dt_bias[p.e] : 0.0f, skip = p.on ? g.D[p.e] : 0.0f;
    int turn = 0;
    for (int from = p.first; from < p.last; from += SSCAN_TILE, turn ^= 1) {
        bc.put(tile[turn]);
        __syncwarp(); /* two tiles in turn: nobody writes into one that another lane still reads */
        now = next;
        next.fetch(g, p, from + SSCAN_TILE);
        bc.fetch(g, p, from + SSCAN_TILE);
        if (!EFFECT && g.states && from % MR_SSCAN_CHUNK == 0)
            write_states<NP>(g.states, chunk_row(g, p, from), g, p, h);
#pragma unroll
        for (int k = 0; k < SSCAN_TILE; k++) {
            const int t = from + k;
            float y = 0;
            if (t < p.end) {
                if (resets(g, p, t)) {
                    total = INFINITY;
#pragma unroll
                    for (int n = 0; n < NP; n++) h[n] = 0;
                }
                const float step = step_size(now.delta[k] + bias);
                total += step;
                y = step_forward<NP, EFFECT>(rate, tile[turn] + k * 2 * NP, step, step * now.u[k], h);
                y = (y + skip * now.u[k]) * now.z[k] * sigmoid(now.z[k]);
            }
            if (!EFFECT && t < p.last) write_token<ACT>(g.y, g, p, t, y);
        }
    }
    if (EFFECT) write_effect<NP>(g, p, p.span + 1, total, h);
    else if (g.h_out && p.span == g.spans - 1) write_states<NP>(g.h_out, (size_t)p.b, g, p, h);
}

/* ---- backward: going down, the gradient of the state behind token t is carry + dsum·C, and carry becomes decay times that ---- */

/* What a span makes of the carry behind it. */
template <class ACT, int NP> static __global__ void __launch_bounds__(32) sscan_backward_effect(sscan_args g)
{
    __shared__ __align__(16) float tile[SSCAN_TILE * 2 * NP];
    sscan_place p = sscan_place_of(g);
    float carry[NP], rate[NP], total = 0;
    bc_tile<ACT, NP, SSCAN_TILE> bc;
    read_rates<NP>(g, p, rate);
    read_states<NP>(NULL, 0, g, p, carry);
    const float bias = p.on ? g.dt_bias[p.e] : 0.0f;
    const int top = p.first + (p.last - 1 - p.first) / SSCAN_TILE * SSCAN_TILE;
    bc.fetch(g, p, top);
    for (int from = top; from >= p.first; from -= SSCAN_TILE) {
        float delta[SSCAN_TILE], z[SSCAN_TILE], dy[SSCAN_TILE];
        __syncwarp();
        bc.put(tile);
        __syncwarp();
#pragma unroll
        for (int k = 0; k < SSCAN_TILE; k++) {
            delta[k] = read_token<ACT>(g.delta, g, p, from + k);
            z[k] = read_token<ACT>(g.z, g, p, from + k);
            dy[k] = read_token<ACT>(g.dy, g, p, from + k);
        }
        bc.fetch(g, p, from - SSCAN_TILE);
#pragma unroll
        for (int k = SSCAN_TILE - 1; k >= 0; k--) {
            const int t = from + k;
            if (t >= p.end) continue;
            const float step = step_size(delta[k] + bias), dsum = dy[k] * z[k] * sigmoid(z[k]);
            const bool cut = resets(g, p, t);
            total = cut ? INFINITY : total + step;
#pragma unroll
            for (int n = 0; n < NP; n++)
                carry[n] = cut ? 0.0f : exp2_fast(step * rate[n]) * (carry[n] + dsum * tile[(k * 2 + 1) * NP + n]);
        }
    }
    write_effect<NP>(g, p, p.span, total, carry);
}

/* Lane l gets Σ over the lanes of value[l]: half of the values are handed over at each of five steps. */
static __device__ __forceinline__ float fold(float *value)
{
#pragma unroll
    for (int k = 16; k; k >>= 1) {
        const bool upper = threadIdx.x & k;
#pragma unroll
        for (int i = 0; i < k; i++) {
            const float keep = upper ? value[i + k] : value[i], give = upper ? value[i] : value[i + k];
            value[i] = keep + __shfl_xor_sync(0xffffffffu, give, k);
        }
    }
    return value[0];
}

/* A thread's own through the whole walk. */
template <int NP> struct backward_state {
    float rate[NP], carry[NP], dA[NP], dD, bias, skip;
};

/* SSCAN_GROUP tokens from t on. */
template <class ACT> struct backward_tokens {
    float u[SSCAN_GROUP], delta[SSCAN_GROUP], z[SSCAN_GROUP], dy[SSCAN_GROUP];

    __device__ __forceinline__ void fetch(const sscan_args &g, const sscan_place &p, int t)
    {
#pragma unroll
        for (int k = 0; k < SSCAN_GROUP; k++) {
            u[k] = read_token<ACT>(g.u, g, p, t + k);
            delta[k] = read_token<ACT>(g.delta, g, p, t + k);
            z[k] = read_token<ACT>(g.z, g, p, t + k);
            dy[k] = read_token<ACT>(g.dy, g, p, t + k);
        }
    }
};

/* One token; before: its states, a float4 for every four of them, 32 apart. */
template <class ACT, int NP>
static __device__ __forceinline__ void token_backward(const sscan_args &g, const sscan_place &p, backward_state<NP> &s, const backward_tokens<ACT> &in, int k,
                                                      int t, const float4 *before, const float *bc)
{
    const float raw = in.delta[k] + s.bias, step = step_size(raw), gate = sigmoid(in.z[k]), u = in.u[k], drive = step * u;
    const float dsum = in.dy[k] * in.z[k] * gate;
    float sum = s.skip * u, through_B = 0, through_rate = 0, value[2 * NP];
#pragma unroll
    for (int q = 0; q < NP; q += 4) {
        float B[4], C[4], h[4];
        spread(*(const float4 *)(bc + q), B);
        spread(*(const float4 *)(bc + NP + q), C);
        spread(before[q / 4 * 32], h);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int n = q + j;
            const float decay = exp2_fast(step * s.rate[n]), kept = decay * h[j], behind = kept + drive * B[j];
            const float dh = s.carry[n] + dsum * C[j], dkept = dh * kept;
            sum += C[j] * behind;
            through_B += dh * B[j];
            through_rate += dkept * s.rate[n];
            s.dA[n] += dkept * step;
            value[n] = dh * drive;
            value[NP + n] = dsum * behind;
            s.carry[n] = decay * dh;
        }
    }
    if (resets(g, p, t)) {
#pragma unroll
        for (int n = 0; n < NP; n++) s.carry[n] = 0;
    }
    s.dD += dsum * u;
    write_token<ACT>(g.dz, g, p, t, in.dy[k] * sum * gate * (1 + in.z[k] * (1 - gate)));
    write_token<ACT>(g.du, g, p, t, dsum * s.skip + step * through_B);
    write_token<ACT>(g.ddelta, g, p, t, (0.693147180559945f * through_rate + u * through_B) * sigmoid(raw));
    float *parts = g.dbc_parts + (((size_t)blockIdx.x * g.B + p.b) * g.T + t) * 2 * NP;
#pragma unroll
    for (int i = 0; i < 2 * NP; i += 32) parts[i + threadIdx.x] = fold(value + i);
}

/* The states before each token of a chunk, from the one that the forward left before it. */
template <class ACT, int NP>
static __device__ __forceinline__ void chunk_states(const sscan_args &g, const sscan_place &p, const backward_state<NP> &s, int first, const float *u,
                                                    const float *delta, const float *tile, float4 *before)
{
    float h[NP];
    read_states<NP>(g.states, chunk_row(g, p, first), g, p, h);
#pragma unroll
    for (int k = 0; k < MR_SSCAN_CHUNK; k++) {
        if (first + k >= p.end) continue; /* no break: the loop must unroll, so that u and delta stay registers */
        if (resets(g, p, first + k)) {
#pragma unroll
            for (int n = 0; n < NP; n++) h[n] = 0;
        }
#pragma unroll
        for (int q = 0; q < NP; q += 4) before[(k * (NP / 4) + q / 4) * 32] = make_float4(h[q], h[q + 1], h[q + 2], h[q + 3]);
        const float step = step_size(delta[k] + s.bias);
        step_forward<NP, 1>(s.rate, tile + k * 2 * NP, step, step * u[k], h);
    }
}

template <class ACT, int NP> struct chunk_inputs {
    float u[MR_SSCAN_CHUNK], delta[MR_SSCAN_CHUNK];
    bc_tile<ACT, NP, MR_SSCAN_CHUNK> bc;

    __device__ __forceinline__ void fetch(const sscan_args &g, const sscan_place &p, int t)
    {
        bc.fetch(g, p, t);
#pragma unroll
        for (int k = 0; k < MR_SSCAN_CHUNK; k++) {
            u[k] = read_token<ACT>(g.u, g, p, t + k);
            delta[k] = read_token<ACT>(g.delta, g, p, t + k);
        }
    }
};

/* Tokens that do not exist pass nothing on. */
template <class ACT, int NP> static __device__ __forceinline__ void clear_beyond(const sscan_args &g, const sscan_place &p)
{
    for (int t = max(p.first, p.end); t < p.last; t++) {
        write_token<ACT>(g.du, g, p, t, 0);
        write_token<ACT>(g.ddelta, g, p, t, 0);
        write_token<ACT>(g.dz, g, p, t, 0);
        for (int i = threadIdx.x; i < 2 * NP; i += 32) g.dbc_parts[(((size_t)blockIdx.x * g.B + p.b) * g.T + t) * 2 * NP + i] = 0;
    }
}

template <int NP> static __device__ __forceinline__ void finish_backward(const sscan_args &g, const sscan_place &p, backward_state<NP> &s)
{
    if (!p.on) return;
    const size_t at = ((size_t)p.b * g.spans + p.span) * g.E + p.e;
    g.dD_parts[at] = s.dD;
#pragma unroll
    for (int n = 0; n < NP; n++)
        if (n < g.N) g.dA_parts[at * g.N + n] = s.dA[n] * s.rate[n] * 0.693147180559945f;
    if (!g.dh_in || p.span) return;
    if (!g.h_in) read_states<NP>(NULL, 0, g, p, s.carry);
    write_states<NP>(g.dh_in, (size_t)p.b, g, p, s.carry);
}

template <int NP> struct backward_shared {
    float4 before[MR_SSCAN_CHUNK * NP / 4 * 32];
    float tile[MR_SSCAN_CHUNK * 2 * NP];
};

template <class ACT, int NP> static __global__ void __launch_bounds__(32) sscan_backward(sscan_args g)
{
    extern __shared__ float4 shared_memory[];
    backward_shared<NP> &shared = *(backward_shared<NP> *)shared_memory;
    float4 *before = shared.before + threadIdx.x;
    const sscan_place p = sscan_place_of(g);
    backward_state<NP> s = {};
    chunk_inputs<ACT, NP> chunk;
    backward_tokens<ACT> now, next;
    int first = p.first + (p.last - 1 - p.first) / MR_SSCAN_CHUNK * MR_SSCAN_CHUNK;
    while (first > p.first && first >= p.end) first -= MR_SSCAN_CHUNK; /* the last chunk with tokens */
    chunk.fetch(g, p, first);
    read_rates<NP>(g, p, s.rate);
    s.bias = p.on ? g.dt_bias[p.e] : 0.0f;
    s.skip = p.on ? g.D[p.e] : 0.0f;
    read_states<NP>(g.dh_out, (size_t)p.b, g, p, s.carry);
    for (int k = g.spans - 1; k > p.span; k--) pass_span<NP>(g, p, k, k, s.rate, s.carry);
    clear_beyond<ACT, NP>(g, p);
    for (; first >= p.first; first -= MR_SSCAN_CHUNK) {
        next.fetch(g, p, first + MR_SSCAN_CHUNK - SSCAN_GROUP);
        __syncwarp();
        chunk.bc.put(shared.tile);
        __syncwarp();
        chunk_states<ACT, NP>(g, p, s, first, chunk.u, chunk.delta, shared.tile, before);
        chunk.fetch(g, p, first - MR_SSCAN_CHUNK);
#pragma unroll 1
        for (int from = MR_SSCAN_CHUNK - SSCAN_GROUP; from >= 0; from -= SSCAN_GROUP) {
            now = next;
            if (from) next.fetch(g, p, first + from - SSCAN_GROUP);
#pragma unroll
            for (int k = SSCAN_GROUP - 1; k >= 0; k--)
                if (first + from + k < p.end)
                    token_backward<ACT, NP>(g, p, s, now, k, first + from + k, before + (from + k) * (NP / 4) * 32, shared.tile + (from + k) * 2 * NP);
        }
    }
    finish_backward<NP>(g, p, s);
}

/* dbc from the sums of each 32 channels, in order. */
template <class ACT, int NP> static __global__ void add_bc_parts(size_t tokens, int N, int parts, const float *from, ACT *dbc)
{
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x, token = i / (2 * NP);
    const int j = (int)(i % (2 * NP)), n = j % NP;
    if (token >= tokens || n >= N) return;
    float sum = 0;
    for (int k = 0; k < parts; k++) sum += from[((size_t)k * tokens + token) * 2 * NP + j];
    store(dbc + token * 2 * N + j / NP * N + n, sum);
}

#endif
