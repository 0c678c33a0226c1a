/* The ops scan_fwd and scan_bwd: the recurrence with a and b given.
 *
 * A thread owns a channel of one sequence, or of one chunk of it, and keeps AHEAD tokens in flight. Where time is
 * split, a first pass computes each chunk's effect on the state (h → A·h + B); each chunk then starts from the state
 * that the effects of the chunks before it give. */
#include "ops/cuda/scan_kernels.cuh"

enum { THREADS = 64, AHEAD = 8, LEAST_SPAN = 128, ENOUGH_BLOCKS = 2112 };

struct given_args {
    int B, T, H, chunks, span;
    const void *a, *b, *dh;
    void *h, *da, *db;
    const float *h_in, *dh_out;
    float *h_out, *dh_in;
    const uint8_t *reset;
    const int32_t *length;
    float *effect_A, *effect_B; /* [B, chunks, H] */
    /* [B, H] h_out is written here first: it may be h_in, which a chunk may still read */
    float *last;
};

/* The token that a thread works on. */
struct place {
    int b, ch, chunk, first, last, real;
};

static __device__ __forceinline__ place my_place(const given_args &g)
{
    place p;
    p.ch = blockIdx.x * THREADS + threadIdx.x;
    p.b = blockIdx.y;
    p.chunk = blockIdx.z;
    p.first = p.chunk * g.span;
    p.last = min(g.T, p.first + g.span);
    p.real = g.length ? min(g.T, g.length[p.b]) : g.T;
    return p;
}

static __device__ __forceinline__ bool restarts(const given_args &g, const place &p, int t)
{
    return g.reset && g.reset[(size_t)p.b * g.T + t];
}
static __device__ __forceinline__ size_t at(const given_args &g, const place &p, int t)
{
    return ((size_t)p.b * g.T + t) * g.H + p.ch;
}
static __device__ __forceinline__ size_t effect_at(const given_args &g, const place &p, int chunk)
{
    return ((size_t)p.b * g.chunks + chunk) * g.H + p.ch;
}

/* Passes the state through the effects of the chunks before this one, or, in the backward, after it. */
static __device__ __forceinline__ float pass(const given_args &g, const place &p, int from, int to, float state)
{
    const int step = from < to ? 1 : -1;
    for (int k = from; k != to; k += step)
        state = apply<1>(g.effect_A[effect_at(g, p, k)], g.effect_B[effect_at(g, p, k)], state);
    return state;
}

template <class ACT, int EFFECT> static __global__ void given_forward(given_args g)
{
    const place p = my_place(g);
    if (p.ch >= g.H) return;
    const ACT *a = (const ACT *)g.a, *b = (const ACT *)g.b;
    float state = 0, A = 1;
    if (!EFFECT) state = pass(g, p, 0, p.chunk, g.h_in ? g.h_in[(size_t)p.b * g.H + p.ch] : 0);
    for (int tile = p.first; tile < p.last; tile += AHEAD) {
        float x[AHEAD], y[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const bool here = tile + k < p.last && tile + k < p.real;
            x[k] = here ? load(a + at(g, p, tile + k)) : 1;
            y[k] = here ? load(b + at(g, p, tile + k)) : 0;
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const int t = tile + k;
            if (t >= p.last) break;
            const bool here = t < p.real;
            if (here && restarts(g, p, t)) state = 0, A = FORGETS;
            if (here) state = x[k] * state + y[k], A = join<1>(A, x[k]);
            if (!EFFECT) store((ACT *)g.h + at(g, p, t), here ? state : 0.0f);
        }
    }
    if (EFFECT) g.effect_A[effect_at(g, p, p.chunk)] = A, g.effect_B[effect_at(g, p, p.chunk)] = state;
    else if (g.h_out && p.chunk == g.chunks - 1) (g.last ? g.last : g.h_out)[(size_t)p.b * g.H + p.ch] = state;
}

/* The backward, from the last token: g_t = dh_t + c, then c = a_t·g_t for the previous token. */
template <class ACT, int EFFECT> static __global__ void given_backward(given_args g)
{
    const place p = my_place(g);
    if (p.ch >= g.H) return;
    const ACT *a = (const ACT *)g.a, *h = (const ACT *)g.h, *dh = (const ACT *)g.dh;
    const float first = g.h_in ? g.h_in[(size_t)p.b * g.H + p.ch] : 0;
    float carry = 0, A = 1;
    if (!EFFECT) carry = pass(g, p, g.chunks - 1, p.chunk, g.dh_out ? g.dh_out[(size_t)p.b * g.H + p.ch] : 0);
    for (int tile = p.last - 1; tile >= p.first; tile -= AHEAD) {
        float x[AHEAD], d[AHEAD], before[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const int t = tile - k;
            const bool here = t >= p.first && t < p.real;
            x[k] = here ? load(a + at(g, p, t)) : 0;
            d[k] = here ? load(dh + at(g, p, t)) : 0;
            before[k] = EFFECT || !here ? 0 : t > 0 ? load(h + at(g, p, t - 1)) : first;
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const int t = tile - k;
            if (t < p.first) break;
            const bool here = t < p.real, starting = here && restarts(g, p, t);
            const float grad = d[k] + carry;
            if (!EFFECT) {
                store((ACT *)g.da + at(g, p, t), here && !starting ? grad * before[k] : 0.0f);
                store((ACT *)g.db + at(g, p, t), here ? grad : 0.0f);
            }
            if (here) carry = starting ? 0 : x[k] * grad, A = starting ? FORGETS : join<1>(A, x[k]);
        }
    }
    if (EFFECT) g.effect_A[effect_at(g, p, p.chunk)] = A, g.effect_B[effect_at(g, p, p.chunk)] = carry;
    else if (g.dh_in && p.chunk == 0) g.dh_in[(size_t)p.b * g.H + p.ch] = g.h_in ? carry : 0;
}

/* Splits time into chunks until there are enough blocks for the chip; depends only on the shape. */
static void cut_time(given_args *g)
{
    const size_t blocks = (size_t)g->B * div_up((size_t)g->H, THREADS), chunks = div_up(ENOUGH_BLOCKS, blocks);
    size_t span = div_up((size_t)g->T, chunks);
    if (span < LEAST_SPAN) span = LEAST_SPAN;
    g->span = (int)span;
    g->chunks = (int)div_up((size_t)g->T, span);
}

size_t mr_cuda_given_work(int B, int T, int H)
{
    given_args g = {};
    g.B = B, g.T = T, g.H = H;
    cut_time(&g);
    return (2 * (size_t)g.chunks + 1) * (size_t)B * (size_t)H * sizeof(float);
}

static int take_work(mr_cuda *c, given_args *g, void *work)
{
    cut_time(g);
    if (g->chunks == 1) return 1;
    float *room = (float *)(work ? work : mr_cuda_scratch(c, mr_cuda_given_work(g->B, g->T, g->H)));
    const size_t n = (size_t)g->B * (size_t)g->H;
    if (!room) return 0;
    g->effect_A = room;
    g->effect_B = room + n * (size_t)g->chunks;
    g->last = room + 2 * n * (size_t)g->chunks;
    return 1;
}

template <class ACT> static void run(mr_cuda *c, const given_args &g, int down)
{
    const dim3 grid((unsigned)div_up((size_t)g.H, THREADS), (unsigned)g.B, (unsigned)g.chunks);
    if (!down && g.chunks > 1) given_forward<ACT, 1><<<grid, THREADS, 0, c->stream>>>(g);
    if (!down) given_forward<ACT, 0><<<grid, THREADS, 0, c->stream>>>(g);
    if (down && g.chunks > 1) given_backward<ACT, 1><<<grid, THREADS, 0, c->stream>>>(g);
    if (down) given_backward<ACT, 0><<<grid, THREADS, 0, c->stream>>>(g);
    LAUNCHED(c, "the scan");
}

static void scan_fwd(mr_dev *dev, const mr_scan_fwd_args *a)
{
    mr_cuda *c = cuda_of(dev);
    given_args g = {};
    g.B = a->B, g.T = a->T, g.H = a->H, g.a = a->a, g.b = a->b, g.h = a->h, g.h_in = (const float *)a->h_in,
    g.h_out = (float *)a->h_out;
    g.reset = a->reset, g.length = a->length;
    if (!take_work(c, &g, a->work)) return;
    BY_ACT(c, run, c, g, 0);
    if (g.last && g.h_out)
        CHECK(c, cudaMemcpyAsync(g.h_out, g.last, (size_t)g.B * (size_t)g.H * sizeof(float), cudaMemcpyDeviceToDevice,
                                 c->stream));
}

static void scan_bwd(mr_dev *dev, const mr_scan_bwd_args *a)
{
    mr_cuda *c = cuda_of(dev);
    given_args g = {};
    g.B = a->B, g.T = a->T, g.H = a->H, g.a = a->a, g.h = (void *)a->h, g.dh = a->dh, g.da = a->da, g.db = a->db;
    g.h_in = (const float *)a->h_in, g.dh_out = (const float *)a->dh_out, g.dh_in = (float *)a->dh_in,
    g.reset = a->reset, g.length = a->length;
    if (take_work(c, &g, a->work)) BY_ACT(c, run, c, g, 1);
}

void mr_cuda_scan_ops(mr_ops *ops)
{
    ops->scan_fwd = scan_fwd;
    ops->scan_bwd = scan_bwd;
}
