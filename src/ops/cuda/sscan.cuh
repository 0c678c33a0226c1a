/* What the kernels of Mamba's selective scan share.
 *
 * A block owns 32 channels of one sequence, or of one span of its time, and goes through it in chunks of MR_SSCAN_CHUNK
 * tokens. A chunk takes three steps with barriers between them, and a thread has another role in each:
 *   staging: a thread has one channel (its lane) and a few tokens (its warp); it reads them, coalesced, and leaves what
 *            depends only on channel and token, such as the step size, in shared memory: computed once, whatever the
 *            number of states.
 *   walking: a thread has SSCAN_STATES states of a channel, its neighbours have the others; their sums over states
 *            are folded, four tokens at a time.
 *   storing: roles as in staging; writes results from shared memory.
 * Where there are too few sequences and channels to fill the chip, time is split into spans. The effect of a span on a
 * state is h → exp(A·ΣΔ)·h + (its end state from h = 0), so a first pass computes ΣΔ and that end state of each span,
 * and the second starts each span from the given state passed through the effects of the spans before it (backward:
 * after it). NP is the number of states rounded up; the extra ones have B = C = 0 and stay 0. */
#ifndef MR_OPS_CUDA_SSCAN_CUH
#define MR_OPS_CUDA_SSCAN_CUH

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
    /* of each span: ΣΔ, or infinity where a sequence starts in it, [B, spans, E], and the end state, [B, spans + 1,
     * N, E]; forward: span k's at k + 1, and at 0 the state before token 0 */
    float *effect_step, *effect_h;
    /* backward */
    const void *dy;
    const float *dh_out;
    void *du, *ddelta, *dz;
    float *dh_in;
    float *dbc_parts; /* [⌈E/32⌉, B, T, 2·NP] sums over a block's channels */
    float *dA_parts;  /* [B, spans, E, N] gradient of A_log */
    float *dD_parts;  /* [B, spans, E] */
};

enum {
    SSCAN_CHANNELS = 32, /* of a block */
    SSCAN_STATES = 4,    /* of a walking thread */
    SSCAN_GROUP = 4,     /* tokens whose sums over states are folded together */
    /* of a channel's tokens in shared memory: rows begin in different banks, at 16 bytes */
    SSCAN_ROW = MR_SSCAN_CHUNK + 4,
    SSCAN_ARRAY = SSCAN_CHANNELS * SSCAN_ROW
};

template <int NP> struct sscan_shape {
    static const int LANES = NP / SSCAN_STATES; /* of a channel; also the warps of a block */
    static const int THREADS = 32 * LANES;
    static const int CHANNELS = 32 / LANES;           /* of a warp */
    static const int TOKENS = MR_SSCAN_CHUNK / LANES; /* that a thread stages */
    static const int QUADS = 2 * NP / 4;              /* of a token's B and C; a chunk has one for each thread */
};

/* ---- mathematics: powers of two and reciprocals are one instruction, within 2 ulp ---- */

static __device__ __forceinline__ float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

static __device__ __forceinline__ float one_over(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

static __device__ __forceinline__ float exp_fast(float x) { return exp2_fast(1.44269504088896341f * x); }
static __device__ __forceinline__ float sigmoid_fast(float x) { return one_over(1.0f + exp_fast(-x)); }

/* log(1 + x) for x from 0 to 1, within 3 ulp: x times the polynomial that is nearest to log(1 + x)/x in relative
 * error. */
static __device__ __forceinline__ float log1p_fast(float x)
{
    float y = 0.00523266895f;
    y = fmaf(y, x, -0.0295051374f);
    y = fmaf(y, x, 0.078225784f);
    y = fmaf(y, x, -0.136632323f);
    y = fmaf(y, x, 0.191060007f);
    y = fmaf(y, x, -0.248429805f);
    y = fmaf(y, x, 0.333190978f);
    y = fmaf(y, x, -0.499994934f);
    y = fmaf(y, x, 0.99999994f);
    return x * y;
}

/* softplus, and its slope σ(x) */
static __device__ __forceinline__ float step_size(float x, float *slope)
{
    const float e = exp_fast(-fabsf(x));
    *slope = (x < 0 ? e : 1.0f) * one_over(1.0f + e);
    return fmaxf(x, 0.0f) + log1p_fast(e);
}

static __device__ __forceinline__ float step_size(float x)
{
    float slope;
    return step_size(x, &slope);
}

/* ---- places ---- */

/* A block's tokens are [first, last); those from `end` on are padding. */
struct sscan_place {
    int b, span, first, last, end;
};

static __device__ __forceinline__ sscan_place sscan_place_of(const sscan_args &g)
{
    sscan_place p;
    p.b = blockIdx.y;
    p.span = blockIdx.z;
    p.first = p.span * g.span;
    p.last = min(g.T, p.first + g.span);
    p.end = g.length ? min(p.last, g.length[p.b]) : p.last;
    return p;
}

/* A thread's role in staging and storing: channel e, tokens from `token` on of the chunk; slot: offset of the first in
 * an array [SSCAN_CHANNELS, SSCAN_ROW]; at: its offset in [B, T, E] for the chunk that begins with token 0. */
struct sscan_stager {
    size_t at;
    int e, token, slot;
    bool on; /* the channel exists */
};

template <int NP>
static __device__ __forceinline__ sscan_stager sscan_stager_of(const sscan_args &g, const sscan_place &p)
{
    sscan_stager s;
    const int lane = threadIdx.x % 32;
    s.e = blockIdx.x * SSCAN_CHANNELS + lane;
    s.token = threadIdx.x / 32 * sscan_shape<NP>::TOKENS;
    s.slot = lane * SSCAN_ROW + s.token;
    s.at = ((size_t)p.b * g.T + s.token) * g.E + s.e;
    s.on = s.e < g.E;
    return s;
}

/* A stager's share of a chunk: offset of its first token in [B, T, E], how many of its tokens are real,
 * how many belong to the span. */
struct sscan_share {
    size_t at;
    int there, room;
};

static __device__ __forceinline__ sscan_share sscan_share_of(const sscan_args &g, const sscan_place &p,
                                                             const sscan_stager &s, int first)
{
    const bool any = s.on && first >= p.first;
    sscan_share c;
    c.at = s.at + (int64_t)first * g.E;
    c.there = any ? p.end - first - s.token : 0;
    c.room = any ? p.last - first - s.token : 0;
    return c;
}

/* A thread's role in walking: states 4·part + (j ^ turn) of channel e, whose tokens begin at `row`.
 * `turn` differs between the channels of a warp, so that sums over channels can be folded without
 * selecting which values to exchange. */
struct sscan_walker {
    int e, part, turn, row;
    bool on;
};

template <int NP> static __device__ __forceinline__ sscan_walker sscan_walker_of(const sscan_args &g, bool turned)
{
    typedef sscan_shape<NP> S;
    sscan_walker w;
    const int lane = threadIdx.x % 32, own = lane / S::LANES, channel = threadIdx.x / 32 * S::CHANNELS + own;
    w.e = blockIdx.x * SSCAN_CHANNELS + channel;
    w.part = lane % S::LANES;
    w.turn = turned ? own % SSCAN_STATES : 0;
    w.row = channel * SSCAN_ROW;
    w.on = w.e < g.E;
    return w;
}

static __device__ __forceinline__ int sscan_state(const sscan_walker &w, int j)
{
    return w.part * SSCAN_STATES + (j ^ w.turn);
}

/* Row of token t's chunk in [B, chunks, N, E]. */
static __device__ __forceinline__ int chunk_row(const sscan_args &g, const sscan_place &p, int t)
{
    return p.b * ((g.T + MR_SSCAN_CHUNK - 1) / MR_SSCAN_CHUNK) + t / MR_SSCAN_CHUNK;
}

/* ---- states of a walker ---- */

/* Reads a row of [rows, N, E]; from NULL: zeros. */
static __device__ __forceinline__ void read_states(const float *from, int row, const sscan_args &g,
                                                   const sscan_walker &w, float *h)
{
#pragma unroll
    for (int j = 0; j < SSCAN_STATES; j++) {
        const int n = sscan_state(w, j);
        h[j] = from && w.on && n < g.N ? (from + (int64_t)row * (g.N * g.E))[n * g.E + w.e] : 0.0f;
    }
}

static __device__ __forceinline__ void write_states(float *to, int row, const sscan_args &g, const sscan_walker &w,
                                                    const float *h)
{
#pragma unroll
    for (int j = 0; j < SSCAN_STATES; j++) {
        const int n = sscan_state(w, j);
        if (w.on && n < g.N) (to + (int64_t)row * (g.N * g.E))[n * g.E + w.e] = h[j];
    }
}

/* −exp(A_log)/log 2, so that a decay is a power of two. */
static __device__ __forceinline__ void read_rates(const sscan_args &g, const sscan_walker &w, float *rate)
{
#pragma unroll
    for (int j = 0; j < SSCAN_STATES; j++) {
        const int n = sscan_state(w, j);
        rate[j] = w.on && n < g.N ? -1.44269504088896341f * expf(g.A_log[(size_t)w.e * g.N + n]) : 0.0f;
    }
}

/* Passes h through the effect of one span. */
static __device__ __forceinline__ void pass_span(const sscan_args &g, const sscan_place &p, const sscan_walker &w,
                                                 int span, int row, const float *rate, float *h)
{
    float own[SSCAN_STATES];
    read_states(g.effect_h, p.b * (g.spans + 1) + row, g, w, own);
    const float step = w.on ? g.effect_step[((size_t)p.b * g.spans + span) * g.E + w.e] : 0.0f;
#pragma unroll
    for (int j = 0; j < SSCAN_STATES; j++) h[j] = isinf(step) ? own[j] : exp2_fast(step * rate[j]) * h[j] + own[j];
}

/* Σ over a channel's stagers of `mine`, in order; the result is valid in the first warp. free: an unused array. */
template <int NP> static __device__ __forceinline__ float sum_of_stagers(float mine, float *free)
{
    __syncthreads();
    free[threadIdx.x] = mine;
    __syncthreads();
    float sum = 0;
    for (int i = threadIdx.x % 32; i < sscan_shape<NP>::THREADS; i += 32) sum += free[i];
    return sum;
}

/* Writes the effect of a span; step: ΣΔ of this stager's tokens, cut: a sequence starts in the span. */
template <int NP>
static __device__ __forceinline__ void write_effect(const sscan_args &g, const sscan_place &p, const sscan_stager &s,
                                                    const sscan_walker &w, int row, float step, bool cut,
                                                    const float *h, float *free)
{
    const float total = sum_of_stagers<NP>(step, free);
    if (threadIdx.x < 32 && s.on) g.effect_step[((size_t)p.b * g.spans + p.span) * g.E + s.e] = cut ? INFINITY : total;
    write_states(g.effect_h, p.b * (g.spans + 1) + row, g, w, h);
}

/* ---- staging: a chunk's inputs in registers, unconverted, so that nothing waits for the
 * loads until they are used ---- */

template <class ACT, int NP> struct staged {
    ACT value[sscan_shape<NP>::TOKENS];

    __device__ __forceinline__ void fetch(const void *from, const sscan_args &g, const sscan_share &c)
    {
        const ACT *at = (const ACT *)from + c.at;
#pragma unroll
        for (int i = 0; i < sscan_shape<NP>::TOKENS; i++) value[i] = i < c.there ? at[(size_t)i * g.E] : ACT(0.0f);
    }

    __device__ __forceinline__ float operator[](int i) const { return load(value + i); }
};

/* A thread's quad of B or C, and the resets: a bit for each token of the chunk. */
template <class ACT, int NP> struct staged_bc {
    ACT value[4];
    bool start;

    __device__ __forceinline__ void fetch(const sscan_args &g, const sscan_place &p, int first)
    {
        typedef sscan_shape<NP> S;
        const int t = first + threadIdx.x / S::QUADS, half = threadIdx.x % S::QUADS / (NP / 4),
                  n = threadIdx.x % (NP / 4) * 4;
        const int there = first >= p.first && t < p.end ? g.N - n : 0, flagged = first + threadIdx.x % MR_SSCAN_CHUNK;
        const ACT *at = (const ACT *)g.bc + ((size_t)p.b * g.T + t) * (2 * g.N) + half * g.N + n;
#pragma unroll
        for (int j = 0; j < 4; j++) value[j] = j < there ? at[j] : ACT(0.0f);
        start = g.reset && first >= p.first && flagged < p.end && g.reset[(size_t)p.b * g.T + flagged];
    }

    __device__ __forceinline__ unsigned resets() const
    {
        return __ballot_sync(0xffffffffu, start) & ((1u << MR_SSCAN_CHUNK) - 1);
    }

    /* Stores into tile [MR_SSCAN_CHUNK, 2, TURNS, NP]: one copy for each turn. */
    template <int TURNS> __device__ __forceinline__ void put(float *tile) const
    {
        typedef sscan_shape<NP> S;
        float4 *to = (float4 *)tile + threadIdx.x / (NP / 4) * TURNS * (NP / 4) + threadIdx.x % (NP / 4);
        static_assert(S::QUADS == 2 * (NP / 4), "a quad is of B or of C");
#pragma unroll
        for (int k = 0; k < TURNS; k++)
            to[k * (NP / 4)] =
                make_float4(load(value + (0 ^ k)), load(value + (1 ^ k)), load(value + (2 ^ k)), load(value + (3 ^ k)));
    }
};

static __device__ __forceinline__ void spread(const float4 &from, float *to)
{
    to[0] = from.x, to[1] = from.y, to[2] = from.z, to[3] = from.w;
}

/* Reads a walker's B (half 0) or C (half 1) of the chunk's token k. */
template <int NP, int TURNS>
static __device__ __forceinline__ void read_bc(const float *tile, const sscan_walker &w, int k, int half, float *to)
{
    spread(*(const float4 *)(tile + ((k * 2 + half) * TURNS + w.turn) * NP + w.part * SSCAN_STATES), to);
}

/* Reads four tokens of a walker's channel; `from` is a multiple of four. */
static __device__ __forceinline__ void read_group(const float *array, const sscan_walker &w, int from, float *to)
{
    spread(*(const float4 *)(array + w.row + from), to);
}

/* Stores a stager's tokens in shared memory. */
template <int TOKENS> static __device__ __forceinline__ void put_tokens(float *to, const float *v)
{
    static_assert(TOKENS == 2 || TOKENS == 4, "two or four at once");
    if (TOKENS == 4) *(float4 *)to = make_float4(v[0], v[1], v[TOKENS - 2], v[TOKENS - 1]);
    else *(float2 *)to = make_float2(v[0], v[1]);
}

template <int TOKENS> static __device__ __forceinline__ void get_tokens(const float *from, float *v)
{
#pragma unroll
    for (int i = 0; i < TOKENS; i += 2) {
        const float2 two = *(const float2 *)(from + i);
        v[i] = two.x, v[i + 1] = two.y;
    }
}

/* ---- sums over neighbouring lanes ---- */

/* Sums over a pair of lanes: the lane without the bit gets Σ a, the one with it Σ b. */
static __device__ __forceinline__ float fold_two(float a, float b, int bit)
{
    const bool upper = threadIdx.x & bit;
    return (upper ? b : a) + __shfl_xor_sync(0xffffffffu, upper ? a : b, bit);
}

/* Sums over the LANES lanes of a channel: each gets the sum of token part % 4. */
template <int LANES> static __device__ __forceinline__ float fold_group(const float *v)
{
    float sum = fold_two(fold_two(v[0], v[1], 1), fold_two(v[2], v[3], 1), 2);
#pragma unroll
    for (int bit = 4; bit < LANES; bit <<= 1) sum += __shfl_xor_sync(0xffffffffu, sum, bit);
    return sum;
}

#endif
