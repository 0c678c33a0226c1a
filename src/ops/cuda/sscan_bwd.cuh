/* The backward kernels of Mamba's selective scan. From the last token to the first: the gradient dh of the state after
 * token t is carry + dsum·C, where dsum is the gradient of Σ C·h; the carry is then decay·dh.
 *
 * The states of a chunk are recomputed from the one that the forward saved before it: first up to the start
 * of each run of KEPT tokens, then, from the last run to the first, within the run. States and decays of
 * one run are in registers. */
#ifndef MR_OPS_CUDA_SSCAN_BWD_CUH
#define MR_OPS_CUDA_SSCAN_BWD_CUH

#include "ops/cuda/sscan.cuh"

enum { SSCAN_TURNS = SSCAN_STATES };

static __device__ __forceinline__ int last_chunk(const sscan_place &p)
{
    return p.first + (p.last - 1 - p.first) / MR_SSCAN_CHUNK * MR_SSCAN_CHUNK;
}

/* ---- the effect of a span on the carry after it ---- */

template <int NP> struct effect_shared {
    float step[SSCAN_ARRAY], dsum[SSCAN_ARRAY];
    float tile[MR_SSCAN_CHUNK * 2 * NP];
};

template <int NP>
static __device__ __forceinline__ void walk_effect(const sscan_walker &w, const float *rate, unsigned cuts,
                                                   const effect_shared<NP> &shared, float *carry)
{
#pragma unroll 1
    for (int from = MR_SSCAN_CHUNK - SSCAN_GROUP; from >= 0; from -= SSCAN_GROUP) {
        float step[SSCAN_GROUP], dsum[SSCAN_GROUP];
        read_group(shared.step, w, from, step);
        read_group(shared.dsum, w, from, dsum);
#pragma unroll
        for (int k = SSCAN_GROUP - 1; k >= 0; k--) {
            float C[SSCAN_STATES];
            read_bc<NP, 1>(shared.tile, w, from + k, 1, C);
#pragma unroll
            for (int j = 0; j < SSCAN_STATES; j++) {
                const float passed = exp2_fast(step[k] * rate[j]) * (carry[j] + dsum[k] * C[j]);
                carry[j] = cuts >> (from + k) & 1 ? 0.0f : passed;
            }
        }
    }
}

template <class ACT, int NP> struct effect_inputs {
    staged<ACT, NP> delta, z, dy;
    staged_bc<ACT, NP> bc;

    __device__ __forceinline__ void fetch(const sscan_args &g, const sscan_place &p, const sscan_stager &s, int first)
    {
        const sscan_share c = sscan_share_of(g, p, s, first);
        delta.fetch(g.delta, g, c);
        z.fetch(g.z, g, c);
        dy.fetch(g.dy, g, c);
        bc.fetch(g, p, first);
    }
};

/* Returns ΣΔ of this stager's tokens. */
template <class ACT, int NP>
static __device__ __forceinline__ float stage_effect(const sscan_stager &s, const sscan_share &c,
                                                     const effect_inputs<ACT, NP> &in, float bias,
                                                     effect_shared<NP> &to)
{
    const int TOKENS = sscan_shape<NP>::TOKENS;
    float step[TOKENS], dsum[TOKENS], total = 0;
#pragma unroll
    for (int i = 0; i < TOKENS; i++) {
        step[i] = i < c.there ? step_size(in.delta[i] + bias) : 0.0f;
        dsum[i] = in.dy[i] * in.z[i] * sigmoid_fast(in.z[i]);
        total += step[i];
    }
    put_tokens<TOKENS>(to.step + s.slot, step);
    put_tokens<TOKENS>(to.dsum + s.slot, dsum);
    in.bc.template put<1>(to.tile);
    return total;
}

template <class ACT, int NP>
static __global__ void __launch_bounds__(sscan_shape<NP>::THREADS) sscan_backward_effect(sscan_args g)
{
    __shared__ __align__(16) effect_shared<NP> shared;
    const sscan_place p = sscan_place_of(g);
    const sscan_stager s = sscan_stager_of<NP>(g, p);
    const sscan_walker w = sscan_walker_of<NP>(g, false);
    effect_inputs<ACT, NP> in;
    float carry[SSCAN_STATES] = {}, rate[SSCAN_STATES], total = 0;
    unsigned any_cut = 0;
    int first = last_chunk(p);
    in.fetch(g, p, s, first);
    const float bias = s.on ? g.dt_bias[s.e] : 0.0f;
    read_rates(g, w, rate);
    for (; first >= p.first; first -= MR_SSCAN_CHUNK) {
        total += stage_effect<ACT, NP>(s, sscan_share_of(g, p, s, first), in, bias, shared);
        const unsigned cuts = in.bc.resets();
        any_cut |= cuts;
        __syncthreads();
        in.fetch(g, p, s, first - MR_SSCAN_CHUNK);
        walk_effect<NP>(w, rate, cuts, shared, carry);
        __syncthreads();
    }
    write_effect<NP>(g, p, s, w, p.span, total, any_cut != 0, carry, shared.dsum);
}

/* ---- the gradients ---- */

template <int NP, int KEPT> struct backward_shared {
    /* a walker's states before each run except the last */
    float4 start[MR_SSCAN_CHUNK / KEPT - 1][sscan_shape<NP>::THREADS];
    float step[SSCAN_ARRAY], u[SSCAN_ARRAY];
    float dsum[SSCAN_ARRAY];   /* then du */
    float dz[SSCAN_ARRAY];     /* by Σ C·h + D·u; then dz itself */
    float ddelta[SSCAN_ARRAY]; /* by Δ; then ddelta itself */
    float tile[MR_SSCAN_CHUNK * 2 * SSCAN_TURNS * NP];
    float dbc[sscan_shape<NP>::LANES][MR_SSCAN_CHUNK * 2 * NP]; /* sums over the channels of a warp */
};

template <class ACT, int NP> struct backward_inputs {
    staged<ACT, NP> u, delta, z, dy;
    staged_bc<ACT, NP> bc;
    float h[SSCAN_STATES]; /* of the walker, before the chunk */

    __device__ __forceinline__ void fetch(const sscan_args &g, const sscan_place &p, const sscan_stager &s,
                                          const sscan_walker &w, int first)
    {
        const sscan_share c = sscan_share_of(g, p, s, first);
        u.fetch(g.u, g, c);
        delta.fetch(g.delta, g, c);
        z.fetch(g.z, g, c);
        dy.fetch(g.dy, g, c);
        bc.fetch(g, p, first);
        read_states(first >= p.first ? g.states : NULL, chunk_row(g, p, first), g, w, h);
    }
};

/* Prefetches a chunk's rows into the L2 cache, long before there are registers to load them
 * into; one thread per row. */
template <class ACT>
static __device__ __forceinline__ void call_chunk(const sscan_args &g, const sscan_place &p, int first)
{
    const int row = threadIdx.x % MR_SSCAN_CHUNK, e = blockIdx.x * SSCAN_CHANNELS;
    const size_t token = (size_t)p.b * g.T + first + row;
    const void *at;
    switch (threadIdx.x / MR_SSCAN_CHUNK) {
    case 0: at = (const ACT *)g.u + token * g.E + e; break;
    case 1: at = (const ACT *)g.delta + token * g.E + e; break;
    case 2: at = (const ACT *)g.z + token * g.E + e; break;
    case 3: at = (const ACT *)g.dy + token * g.E + e; break;
    case 4: at = (const ACT *)g.bc + token * 2 * g.N; break;
    case 5: at = g.states + (chunk_row(g, p, first) * g.N + min(row, g.N - 1)) * g.E + e; break;
    default: return;
    }
    if (first >= p.first) asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
}

/* Returns Σ dsum·u of this stager's tokens. */
template <class ACT, int NP, int KEPT>
static __device__ __forceinline__ float stage_backward(const sscan_stager &s, const sscan_share &c,
                                                       const backward_inputs<ACT, NP> &in, float bias,
                                                       backward_shared<NP, KEPT> &to)
{
    const int TOKENS = sscan_shape<NP>::TOKENS;
    float step[TOKENS], u[TOKENS], dsum[TOKENS], dz[TOKENS], ddelta[TOKENS], dD = 0;
#pragma unroll
    for (int i = 0; i < TOKENS; i++) {
        const float z = in.z[i], gate = sigmoid_fast(z), dy = in.dy[i],
                    any_step = step_size(in.delta[i] + bias, ddelta + i);
        u[i] = in.u[i];
        step[i] = i < c.there ? any_step : 0.0f;
        dsum[i] = dy * z * gate;
        dz[i] = dy * gate * (1 + z * (1 - gate));
        dD += dsum[i] * u[i];
    }
    put_tokens<TOKENS>(to.step + s.slot, step);
    put_tokens<TOKENS>(to.u + s.slot, u);
    put_tokens<TOKENS>(to.dsum + s.slot, dsum);
    put_tokens<TOKENS>(to.dz + s.slot, dz);
    put_tokens<TOKENS>(to.ddelta + s.slot, ddelta);
    in.bc.template put<SSCAN_TURNS>(to.tile);
    return dD;
}

/* What a walker keeps over all its tokens. */
struct backward_state {
    float rate[SSCAN_STATES], carry[SSCAN_STATES], dA[SSCAN_STATES], skip;
};

/* The states before each of KEPT tokens and after the last, and the decays. */
template <int KEPT> struct backward_run {
    float before[KEPT + 1][SSCAN_STATES], decay[KEPT][SSCAN_STATES];
};

/* Passes h through the chunk's tokens from `from` on; with `run`, keeps states and decays. */
template <int NP, int KEPT, int CUTS>
static __device__ __forceinline__ void walk_run(const sscan_walker &w, const backward_state &s, unsigned cuts, int from,
                                                const backward_shared<NP, KEPT> &shared, float *h,
                                                backward_run<KEPT> *run)
{
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        const float step = shared.step[w.row + from + k], drive = step * shared.u[w.row + from + k];
        float B[SSCAN_STATES];
        read_bc<NP, SSCAN_TURNS>(shared.tile, w, from + k, 0, B);
#pragma unroll
        for (int j = 0; j < SSCAN_STATES; j++) {
            const float before = CUTS && (cuts >> (from + k) & 1) ? 0.0f : h[j], decay = exp2_fast(step * s.rate[j]);
            if (run) run->before[k][j] = before, run->decay[k][j] = decay;
            h[j] = decay * before + drive * B[j];
        }
    }
#pragma unroll
    for (int j = 0; run && j < SSCAN_STATES; j++) run->before[KEPT][j] = h[j];
}

/* Σ over the channels of a warp of the gradients of B and C: at each step a lane exchanges half of its values with
 * another lane, whose `turn` puts them in the other half. */
template <int NP>
static __device__ __forceinline__ void fold_channels(const sscan_walker &w, float *dB, float *dC, float *to)
{
    typedef sscan_shape<NP> S;
    const int lane = threadIdx.x % 32, n = w.part * SSCAN_STATES + w.turn;
#pragma unroll
    for (int k = SSCAN_STATES / 2; k; k >>= 1) {
#pragma unroll
        for (int j = 0; j < k; j++) {
            dB[j] += __shfl_xor_sync(0xffffffffu, dB[j + k], k * S::LANES);
            dC[j] += __shfl_xor_sync(0xffffffffu, dC[j + k], k * S::LANES);
        }
    }
    if (S::CHANNELS > SSCAN_STATES) {
        to[(lane & 16 ? NP : 0) + n] = fold_two(dB[0], dC[0], 16);
    } else {
        to[n] = dB[0];
        to[NP + n] = dC[0];
    }
}

/* SSCAN_GROUP tokens, and their sums over this walker's states: C·h, dh·B and dh·decay·before·rate. */
struct backward_group {
    float step[SSCAN_GROUP], u[SSCAN_GROUP], dsum[SSCAN_GROUP];
    float sum[SSCAN_GROUP], through_B[SSCAN_GROUP], through_rate[SSCAN_GROUP];
};

/* Token i of the group, k of the run, `token` of the chunk. */
template <int NP, int KEPT, int CUTS>
static __device__ __forceinline__ void token_backward(const sscan_walker &w, backward_state &s, unsigned cuts,
                                                      int token, int k, int i, const backward_run<KEPT> &run,
                                                      backward_group &v, backward_shared<NP, KEPT> &shared)
{
    const float step = v.step[i], drive = step * v.u[i], dsum = v.dsum[i];
    float B[SSCAN_STATES], C[SSCAN_STATES], dB[SSCAN_STATES], dC[SSCAN_STATES];
    read_bc<NP, SSCAN_TURNS>(shared.tile, w, token, 0, B);
    read_bc<NP, SSCAN_TURNS>(shared.tile, w, token, 1, C);
    v.sum[i] = v.through_B[i] = v.through_rate[i] = 0;
#pragma unroll
    for (int j = 0; j < SSCAN_STATES; j++) {
        const float kept = run.decay[k][j] * run.before[k][j], dh = s.carry[j] + dsum * C[j], dkept = dh * kept;
        /* where a sequence starts, the state after a token is not the one before the next */
        const float after = CUTS ? kept + drive * B[j] : run.before[k + 1][j];
        v.sum[i] += C[j] * after;
        v.through_B[i] += dh * B[j];
        v.through_rate[i] += dkept * s.rate[j];
        s.dA[j] += dkept * step;
        dB[j] = dh * drive;
        dC[j] = dsum * after;
        s.carry[j] = CUTS && (cuts >> token & 1) ? 0.0f : run.decay[k][j] * dh;
    }
    fold_channels<NP>(w, dB, dC, shared.dbc[threadIdx.x / 32] + token * 2 * NP);
}

/* The group that begins with token k of the run; from: start of the run in the chunk. */
template <int NP, int KEPT, int CUTS>
static __device__ __forceinline__ void group_backward(const sscan_walker &w, backward_state &s, unsigned cuts, int from,
                                                      int k, const backward_run<KEPT> &run,
                                                      backward_shared<NP, KEPT> &shared)
{
    const int LANES = sscan_shape<NP>::LANES, at = w.row + from + k + w.part;
    backward_group v;
    read_group(shared.step, w, from + k, v.step);
    read_group(shared.u, w, from + k, v.u);
    read_group(shared.dsum, w, from + k, v.dsum);
#pragma unroll
    for (int i = SSCAN_GROUP - 1; i >= 0; i--)
        token_backward<NP, KEPT, CUTS>(w, s, cuts, from + k + i, k + i, i, run, v, shared);
    const float sum = fold_group<LANES>(v.sum), through_B = fold_group<LANES>(v.through_B),
                through_rate = fold_group<LANES>(v.through_rate);
    __syncwarp(); /* all lanes have read dsum */
    if (w.part >= SSCAN_GROUP) return;
    const float u = shared.u[at];
    shared.dz[at] *= sum + s.skip * u;
    shared.ddelta[at] *= 0.693147180559945f * through_rate + u * through_B;
    shared.dsum[at] = shared.dsum[at] * s.skip + shared.step[at] * through_B;
}

template <int NP, int KEPT, int CUTS>
static __device__ __forceinline__ void walk_backward(const sscan_walker &w, backward_state &s, unsigned cuts,
                                                     backward_shared<NP, KEPT> &shared, float *h)
{
    const int last = MR_SSCAN_CHUNK / KEPT - 1;
#pragma unroll 1
    for (int i = 0; i < last; i++) {
        shared.start[i][threadIdx.x] = make_float4(h[0], h[1], h[2], h[3]);
        walk_run<NP, KEPT, CUTS>(w, s, cuts, i * KEPT, shared, h, (backward_run<KEPT> *)NULL);
    }
#pragma unroll 1
    for (int i = last; i >= 0; i--) {
        backward_run<KEPT> run;
        if (i < last) spread(shared.start[i][threadIdx.x], h);
        walk_run<NP, KEPT, CUTS>(w, s, cuts, i * KEPT, shared, h, &run);
#pragma unroll
        for (int k = KEPT - SSCAN_GROUP; k >= 0; k -= SSCAN_GROUP)
            group_backward<NP, KEPT, CUTS>(w, s, cuts, i * KEPT, k, run, shared);
    }
}

template <class ACT, int NP, int KEPT>
static __device__ __forceinline__ void store_backward(const sscan_args &g, const sscan_place &p, const sscan_stager &s,
                                                      const sscan_share &c, int first,
                                                      const backward_shared<NP, KEPT> &shared)
{
    typedef sscan_shape<NP> S;
    ACT *to_u = (ACT *)g.du + c.at, *to_delta = (ACT *)g.ddelta + c.at, *to_z = (ACT *)g.dz + c.at;
    float du[S::TOKENS], ddelta[S::TOKENS], dz[S::TOKENS];
    get_tokens<S::TOKENS>(shared.dsum + s.slot, du);
    get_tokens<S::TOKENS>(shared.ddelta + s.slot, ddelta);
    get_tokens<S::TOKENS>(shared.dz + s.slot, dz);
#pragma unroll
    for (int i = 0; i < S::TOKENS; i++) {
        if (i >= c.there) continue;
        store(to_u + (size_t)i * g.E, du[i]);
        store(to_delta + (size_t)i * g.E, ddelta[i]);
        store(to_z + (size_t)i * g.E, dz[i]);
    }
    float dbc[4] = {};
#pragma unroll
    for (int k = 0; k < S::LANES; k++) {
        float part[4];
        spread(((const float4 *)shared.dbc[k])[threadIdx.x], part);
        for (int j = 0; j < 4; j++) dbc[j] += part[j];
    }
    const int t = first + threadIdx.x / S::QUADS;
    float4 *parts = (float4 *)(g.dbc_parts + (((size_t)blockIdx.x * g.B + p.b) * g.T + t) * 2 * NP);
    if (t < p.end) parts[threadIdx.x % S::QUADS] = make_float4(dbc[0], dbc[1], dbc[2], dbc[3]);
}

/* Sets the gradients of padding to zero. */
template <class ACT, int NP>
static __device__ __forceinline__ void clear_beyond(const sscan_args &g, const sscan_place &p, const sscan_stager &s)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int t = max(p.first, p.end) + warp; t < p.last; t += sscan_shape<NP>::LANES) {
        const size_t token = (size_t)p.b * g.T + t, at = token * g.E + s.e;
        if (s.on) store((ACT *)g.du + at, 0), store((ACT *)g.ddelta + at, 0), store((ACT *)g.dz + at, 0);
        for (int i = lane; i < 2 * NP; i += 32) g.dbc_parts[((size_t)blockIdx.x * g.B * g.T + token) * 2 * NP + i] = 0;
    }
}

static __device__ __forceinline__ void finish_backward(const sscan_args &g, const sscan_place &p, const sscan_walker &w,
                                                       backward_state &s)
{
    const size_t at = ((size_t)p.b * g.spans + p.span) * g.E + w.e;
#pragma unroll
    for (int j = 0; j < SSCAN_STATES; j++) {
        const int n = sscan_state(w, j);
        if (w.on && n < g.N) g.dA_parts[at * g.N + n] = s.dA[j] * s.rate[j] * 0.693147180559945f;
    }
    if (!g.dh_in || p.span) return;
    if (!g.h_in) read_states(NULL, 0, g, w, s.carry);
    write_states(g.dh_in, p.b, g, w, s.carry);
}

/* BLOCKS: blocks per multiprocessor at 16 states per channel. */
template <class ACT, int NP, int KEPT, int BLOCKS>
static __global__ void __launch_bounds__(sscan_shape<NP>::THREADS, BLOCKS * 16 / NP) sscan_backward(sscan_args g)
{
    extern __shared__ float4 shared_memory[];
    backward_shared<NP, KEPT> &shared = *(backward_shared<NP, KEPT> *)shared_memory;
    const sscan_place p = sscan_place_of(g);
    const sscan_stager s = sscan_stager_of<NP>(g, p);
    const sscan_walker w = sscan_walker_of<NP>(g, true);
    backward_inputs<ACT, NP> in;
    backward_state state = {};
    int first = last_chunk(p);
    while (first > p.first && first >= p.end) first -= MR_SSCAN_CHUNK; /* the last chunk with tokens */
    in.fetch(g, p, s, w, first);
    const float bias = s.on ? g.dt_bias[s.e] : 0.0f;
    float dD = 0;
    state.skip = w.on ? g.D[w.e] : 0.0f;
    read_rates(g, w, state.rate);
    read_states(g.dh_out, p.b, g, w, state.carry);
#pragma unroll 4
    for (int k = g.spans - 1; k > p.span; k--) pass_span(g, p, w, k, k, state.rate, state.carry);
    clear_beyond<ACT, NP>(g, p, s);
    for (; first >= p.first; first -= MR_SSCAN_CHUNK) {
        const sscan_share c = sscan_share_of(g, p, s, first);
        float h[SSCAN_STATES];
        dD += stage_backward<ACT, NP, KEPT>(s, c, in, bias, shared);
        for (int j = 0; j < SSCAN_STATES; j++) h[j] = in.h[j];
        const unsigned cuts = in.bc.resets();
        __syncthreads();
        call_chunk<ACT>(g, p, first - MR_SSCAN_CHUNK);
        if (cuts) walk_backward<NP, KEPT, 1>(w, state, cuts, shared, h);
        else walk_backward<NP, KEPT, 0>(w, state, cuts, shared, h);
        in.fetch(g, p, s, w, first - MR_SSCAN_CHUNK);
        __syncthreads();
        store_backward<ACT, NP, KEPT>(g, p, s, c, first, shared);
    }
    dD = sum_of_stagers<NP>(dD, shared.u);
    if (threadIdx.x < 32 && s.on) g.dD_parts[((size_t)p.b * g.spans + p.span) * g.E + s.e] = dD;
    finish_backward(g, p, w, state);
}

/* Computes dbc from the sums of each block of channels, in order. */
template <class ACT, int NP>
static __global__ void add_bc_parts(size_t tokens, int N, int parts, const float *from, ACT *dbc)
{
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x, token = i / (2 * NP);
    const int j = (int)(i % (2 * NP)), n = j % NP;
    if (token >= tokens || n >= N) return;
    float sum = 0;
    for (int k = 0; k < parts; k++) sum += from[((size_t)k * tokens + token) * 2 * NP + j];
    store(dbc + token * 2 * N + j / NP * N + n, sum);
}

#endif
