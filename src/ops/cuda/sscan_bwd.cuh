/* The backward kernels of Mamba's selective scan. Going down, the gradient dh of the state behind token t is carry + dsum·C, where dsum is the
 * gradient of Σ C·h, and the carry becomes decay·dh.
 *
 * A chunk's states are made anew from the one that the forward left before it: first up to the start of each KEPT tokens, then, from the last
 * of these runs to the first, within it. States and decays of one run are in registers. */
#ifndef MR_OPS_CUDA_SSCAN_BWD_CUH
#define MR_OPS_CUDA_SSCAN_BWD_CUH

#include "ops/cuda/sscan.cuh"

enum { SSCAN_TURNS = SSCAN_STATES };

static __device__ __forceinline__ int last_chunk(const sscan_place &p) { return p.first + (p.last - 1 - p.first) / MR_SSCAN_CHUNK * MR_SSCAN_CHUNK; }

/* ---- what a span makes of the carry behind it ---- */

template <int NP> struct effect_shared {
    float step[SSCAN_ARRAY], dsum[SSCAN_ARRAY];
    float tile[MR_SSCAN_CHUNK * 2 * NP];
};

template <int NP> static __device__ __forceinline__ void walk_effect(const sscan_walker &w, const float *rate, unsigned cuts, const effect_shared<NP> &shared, float *carry)
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

template <class ACT, int NP> static __global__ void __launch_bounds__(sscan_shape<NP>::THREADS) sscan_backward_effect(sscan_args g)
{
    const int TOKENS = sscan_shape<NP>::TOKENS;
    __shared__ __align__(16) effect_shared<NP> shared;
    const sscan_place p = sscan_place_of(g);
    const sscan_stager s = sscan_stager_of<NP>(g);
    const sscan_walker w = sscan_walker_of<NP>(g, false);
    float carry[SSCAN_STATES] = {}, rate[SSCAN_STATES], total = 0;
    unsigned any_cut = 0;
    staged<ACT, NP> delta, z, dy;
    staged_bc<ACT, NP> bc;
    read_rates(g, w, rate);
    const float bias = s.on ? g.dt_bias[s.e] : 0.0f;
    for (int first = last_chunk(p); first >= p.first; first -= MR_SSCAN_CHUNK) {
        const sscan_share c = sscan_share_of(g, p, s, first);
        delta.fetch(g.delta, g, c);
        z.fetch(g.z, g, c);
        dy.fetch(g.dy, g, c);
        bc.fetch(g, p, first);
        float step[TOKENS], dsum[TOKENS];
#pragma unroll
        for (int i = 0; i < TOKENS; i++) {
            step[i] = i < c.there ? step_size(delta[i] + bias) : 0.0f;
            dsum[i] = dy[i] * z[i] * sigmoid_fast(z[i]);
            total += step[i];
        }
        __syncthreads(); /* behind the walk of the chunk before */
        put_tokens<TOKENS>(shared.step + s.slot, step);
        put_tokens<TOKENS>(shared.dsum + s.slot, dsum);
        bc.template put<1>(shared.tile);
        const unsigned cuts = bc.resets();
        any_cut |= cuts;
        __syncthreads();
        walk_effect<NP>(w, rate, cuts, shared, carry);
    }
    write_effect<NP>(g, p, s, w, p.span, total, any_cut != 0, carry, shared.dsum);
}

/* ---- the gradients ---- */

template <int NP, int KEPT> struct backward_shared {
    float4 start[MR_SSCAN_CHUNK / KEPT - 1][sscan_shape<NP>::THREADS]; /* a walker's states before each run but the last */
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

    __device__ __forceinline__ void fetch(const sscan_args &g, const sscan_place &p, const sscan_stager &s, const sscan_walker &w, int first)
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

/* A chunk's rows are called into the cache long before they are fetched, when there are no registers for them: a thread a row. */
template <class ACT> static __device__ __forceinline__ void call_chunk(const sscan_args &g, const sscan_place &p, int first)
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
static __device__ __forceinline__ float stage_backward(const sscan_stager &s, const sscan_share &c, const backward_inputs<ACT, NP> &in, float bias,
                                                       backward_shared<NP, KEPT> &to)
{
    const int TOKENS = sscan_shape<NP>::TOKENS;
    float step[TOKENS], u[TOKENS], dsum[TOKENS], dz[TOKENS], ddelta[TOKENS], dD = 0;
#pragma unroll
    for (int i = 0; i < TOKENS; i++) {
        const float z = in.z[i], gate = sigmoid_fast(z), dy = in.dy[i], any_step = step_size(in.delta[i] + bias, ddelta + i);
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

/* A walker's own through all of its time. */
struct backward_state {
    float rate[SSCAN_STATES], carry[SSCAN_STATES], dA[SSCAN_STATES], skip;
};

/* KEPT tokens and the states before and behind each. */
template <int KEPT> struct backward_run {
    float before[KEPT][SSCAN_STATES], decay[KEPT][SSCAN_STATES], last[SSCAN_STATES];
};

/* h through the tokens from … of the chunk; with `run`, states and decays are kept. */
template <int NP, int KEPT, int CUTS>
static __device__ __forceinline__ void walk_run(const sscan_walker &w, const backward_state &s, unsigned cuts, int from, const backward_shared<NP, KEPT> &shared,
                                                float *h, backward_run<KEPT> *run)
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
    for (int j = 0; run && j < SSCAN_STATES; j++) run->last[j] = h[j];
}

/* Σ over the channels of a warp of gradients of B and C: at each step a lane hands over half of its values, to where their turn is the lower. */
template <int NP> static __device__ __forceinline__ void fold_channels(const sscan_walker &w, float *dB, float *dC, float *to)
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

/* One token of the chunk, the k-th of its run; sums: Σ C·h, Σ dh·B and Σ dh·decay·before·rate over this walker's states. */
template <int NP, int KEPT, int CUTS>
static __device__ __forceinline__ void token_backward(const sscan_walker &w, backward_state &s, bool cut, int token, int k, const backward_run<KEPT> &run, float step,
                                                      float drive, float dsum, backward_shared<NP, KEPT> &shared, float &sum, float &through_B,
                                                      float &through_rate)
{
    float B[SSCAN_STATES], C[SSCAN_STATES], dB[SSCAN_STATES], dC[SSCAN_STATES];
    read_bc<NP, SSCAN_TURNS>(shared.tile, w, token, 0, B);
    read_bc<NP, SSCAN_TURNS>(shared.tile, w, token, 1, C);
    sum = through_B = through_rate = 0;
#pragma unroll
    for (int j = 0; j < SSCAN_STATES; j++) {
        const float kept = run.decay[k][j] * run.before[k][j], next = k + 1 < KEPT ? run.before[k + 1 < KEPT ? k + 1 : 0][j] : run.last[j];
        const float behind = CUTS ? kept + drive * B[j] : next; /* where a sequence starts, the state before is not the one behind */
        const float dh = s.carry[j] + dsum * C[j], dkept = dh * kept;
        sum += C[j] * behind;
        through_B += dh * B[j];
        through_rate += dkept * s.rate[j];
        s.dA[j] += dkept * step;
        dB[j] = dh * drive;
        dC[j] = dsum * behind;
        s.carry[j] = CUTS && cut ? 0.0f : run.decay[k][j] * dh;
    }
    fold_channels<NP>(w, dB, dC, shared.dbc[threadIdx.x / 32] + token * 2 * NP);
}

/* The k-th … tokens of a run, SSCAN_GROUP of them. */
template <int NP, int KEPT, int CUTS>
static __device__ __forceinline__ void group_backward(const sscan_walker &w, backward_state &s, unsigned cuts, int from, int k, const backward_run<KEPT> &run,
                                                      backward_shared<NP, KEPT> &shared)
{
    const int LANES = sscan_shape<NP>::LANES;
    float step[SSCAN_GROUP], u[SSCAN_GROUP], dsum[SSCAN_GROUP];
    float sum[SSCAN_GROUP], through_B[SSCAN_GROUP], through_rate[SSCAN_GROUP];
    read_group(shared.step, w, from + k, step);
    read_group(shared.u, w, from + k, u);
    read_group(shared.dsum, w, from + k, dsum);
#pragma unroll
    for (int i = SSCAN_GROUP - 1; i >= 0; i--)
        token_backward<NP, KEPT, CUTS>(w, s, cuts >> (from + k + i) & 1, from + k + i, k + i, run, step[i], step[i] * u[i], dsum[i], shared, sum[i], through_B[i],
                                       through_rate[i]);
    const float own_sum = fold_group<LANES>(sum), own_B = fold_group<LANES>(through_B), own_rate = fold_group<LANES>(through_rate);
    const int at = w.row + from + k + w.part;
    __syncwarp(); /* everyone has read dsum */
    if (w.part >= SSCAN_GROUP) return;
    const float own_u = shared.u[at];
    shared.dz[at] *= own_sum + s.skip * own_u;
    shared.ddelta[at] *= 0.693147180559945f * own_rate + own_u * own_B;
    shared.dsum[at] = shared.dsum[at] * s.skip + shared.step[at] * own_B;
}

template <int NP, int KEPT, int CUTS>
static __device__ __forceinline__ void walk_backward(const sscan_walker &w, backward_state &s, unsigned cuts, backward_shared<NP, KEPT> &shared, float *h)
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
        for (int k = KEPT - SSCAN_GROUP; k >= 0; k -= SSCAN_GROUP) group_backward<NP, KEPT, CUTS>(w, s, cuts, i * KEPT, k, run, shared);
    }
}

template <class ACT, int NP, int KEPT>
static __device__ __forceinline__ void store_backward(const sscan_args &g, const sscan_place &p, const sscan_stager &s, const sscan_share &c,
                                                      int first, const backward_shared<NP, KEPT> &shared)
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

/* Tokens that do not exist pass nothing on. */
template <class ACT, int NP> static __device__ __forceinline__ void clear_beyond(const sscan_args &g, const sscan_place &p, const sscan_stager &s)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int t = max(p.first, p.end) + warp; t < p.last; t += sscan_shape<NP>::LANES) {
        const size_t token = (size_t)p.b * g.T + t, at = token * g.E + s.e;
        if (s.on) store((ACT *)g.du + at, 0), store((ACT *)g.ddelta + at, 0), store((ACT *)g.dz + at, 0);
        for (int i = lane; i < 2 * NP; i += 32) g.dbc_parts[((size_t)blockIdx.x * g.B * g.T + token) * 2 * NP + i] = 0;
    }
}

static __device__ __forceinline__ void finish_backward(const sscan_args &g, const sscan_place &p, const sscan_walker &w, backward_state &s)
{
    const size_t at = ((size_t)p.b * g.spans + p.span) * g.E + w.e;
#pragma unroll
    for (int j = 0; j < SSCAN_STATES; j++) {
        const int n = sscan_state(w, j);
        if (w.on && n < g.N) g.dA_parts[at * g.N + n] = s.dA[j] * s.rate[j] * 0.693147180559945f;
    }
    if (!g.dh_in || p.span) return;
    if (!g.h_in) read_states(NULL, 0, g, w, s.carry);
    write_states(g.dh_in, (size_t)p.b, g, w, s.carry);
}

/* BLOCKS: of 16 states a channel, on a multiprocessor at once. */
template <class ACT, int NP, int KEPT, int BLOCKS>
static __global__ void __launch_bounds__(sscan_shape<NP>::THREADS, BLOCKS * 16 / NP) sscan_backward(sscan_args g)
{
    extern __shared__ float4 shared_memory[];
    backward_shared<NP, KEPT> &shared = *(backward_shared<NP, KEPT> *)shared_memory;
    const sscan_place p = sscan_place_of(g);
    const sscan_stager s = sscan_stager_of<NP>(g);
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
    read_states(g.dh_out, (size_t)p.b, g, w, state.carry);
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

/* dbc from the sums of each block of channels, in order. */
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
