/* Preparation for attention: which rows each token sees, and the rotary table. Also the op for learned positions. */
#include "ops/cuda/attn.cuh"

struct setup_args {
    mr_attn g;
    int rows; /* of the rotary table */
    const float *counts;
    const uint8_t *reset;
    const int32_t *length;
    mr_attn_stream *streams;
    int *count, *first;
    float2 *turns;
};

/* The running maximum over lanes, starting from `before`. */
static __device__ __forceinline__ int running_max(int v, int before)
{
    const int lane = threadIdx.x & 31;
    for (int k = 1; k < 32; k <<= 1) {
        const int other = __shfl_up_sync(0xffffffffu, v, k);
        if (lane >= k) v = max(v, other);
    }
    return max(v, before);
}

/* One warp per stream. */
static __device__ void find_stream(const setup_args &a, int b)
{
    const int lane = threadIdx.x, real = a.length ? a.length[b] : a.g.T;
    const int count = a.counts ? mr_attn_count(a.counts[b], a.g.window) : -1;
    const uint8_t *reset = a.reset ? a.reset + (size_t)b * a.g.T : NULL;
    int from = -1;
    for (int t = lane; reset && t < real; t += 32)
        if (reset[t]) from = t;
    for (int k = 16; k; k >>= 1) from = max(from, __shfl_xor_sync(0xffffffffu, from, k));
    const mr_attn_stream s = mr_attn_stream_of(a.g.window, count, real, from);
    if (lane == 0) a.streams[b] = s, a.count[b] = count;
    for (int base = 0, start = s.start; base < a.g.T; base += 32) {
        const int t = base + lane;
        start = running_max(t < a.g.T && reset && reset[t] ? s.carried + t : 0, start);
        if (t < a.g.T) a.first[(size_t)b * a.g.T + t] = mr_attn_first(&s, start, t);
        start = __shfl_sync(0xffffffffu, start, 31);
    }
}

/* The first B blocks describe the streams, the others fill the rotary table; in double, so that
 * large positions stay exact. */
static __global__ void attn_setup(setup_args a)
{
    if (blockIdx.x < a.g.B) {
        if (threadIdx.x < 32) find_stream(a, blockIdx.x);
        return;
    }
    const int half = a.g.size / 2, i = (blockIdx.x - a.g.B) * blockDim.x + threadIdx.x;
    if (i >= a.rows * half) return;
    double s, c;
    sincos(i / half * pow(MR_ROTARY_BASE, -2.0 * (i % half) / a.g.size), &s, &c);
    a.turns[i] = make_float2((float)c, (float)s);
}

void *mr_cuda_attn_prepare(mr_cuda *c, const mr_attn *g, const float *cache, const float *counts, const uint8_t *reset,
                           const int32_t *length, size_t more, attn_args *args)
{
    const size_t B = (size_t)g->B, T = (size_t)g->T, rows = T + (cache ? (size_t)g->window : 0),
                 angles = g->rotary ? rows * (size_t)(g->size / 2) : 0;
    const size_t streams = div_up(B * sizeof(mr_attn_stream), 256) * 256,
                 ints = div_up(B * (1 + T) * sizeof(int), 256) * 256;
    const size_t turns = div_up(angles * sizeof(float2), 256) * 256;
    char *room = (char *)mr_cuda_scratch(c, streams + ints + turns + more);
    if (!room) return NULL;
    setup_args a = {};
    a.g = *g, a.rows = (int)rows, a.counts = counts, a.reset = reset, a.length = length;
    a.streams = (mr_attn_stream *)room;
    a.count = (int *)(room + streams);
    a.first = a.count + B;
    a.turns = angles ? (float2 *)(room + streams + ints) : NULL;
    attn_setup<<<(unsigned)(B + div_up(angles, 128)), 128, 0, c->stream>>>(a);
    LAUNCHED(c, "attn_setup");
    args->g = *g, args->D = g->heads * g->size, args->scale = 1 / sqrtf((float)g->size), args->cache = cache;
    args->streams = a.streams, args->count = a.count, args->first = a.first, args->turns = a.turns;
    return room + streams + ints + turns;
}

/* ---- learned positions ---- */

/* One warp per stream: a token's position is its distance from the last reset, or else continues from the count. */
static __global__ void find_places(int T, int window, const float *counts, const uint8_t *reset, int32_t *ids)
{
    const int b = blockIdx.x, lane = threadIdx.x, count = counts ? mr_attn_count(counts[b], window) % window : 0;
    for (int base = 0, start = -1; base < T; base += 32) {
        const int t = base + lane;
        start = running_max(t < T && reset && reset[(size_t)b * T + t] ? t : -1, start);
        if (t < T) ids[(size_t)b * T + t] = (start >= 0 ? t - start : count + t) % window;
        start = __shfl_sync(0xffffffffu, start, 31);
    }
}

template <class A>
static __global__ void add_places(size_t n, int D, const A *x, const float *table, const int32_t *ids, A *y)
{
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) store(y + i, load(x + i) + table[(size_t)ids[i / D] * D + i % D]);
}

template <class A> static void launch_places(mr_cuda *c, const mr_position_fwd_args *a)
{
    const size_t n = (size_t)a->B * (size_t)a->T * (size_t)a->D;
    find_places<<<(unsigned)a->B, 32, 0, c->stream>>>(a->T, a->window, (const float *)a->count_in, a->reset, a->ids);
    add_places<A><<<(unsigned)div_up(n, 256), 256, 0, c->stream>>>(n, a->D, (const A *)a->x, (const float *)a->table,
                                                                   a->ids, (A *)a->y);
    LAUNCHED(c, "add_places");
}

void mr_cuda_position_fwd(mr_dev *dev, const mr_position_fwd_args *args)
{
    BY_ACT(cuda_of(dev), launch_places, cuda_of(dev), args);
}
