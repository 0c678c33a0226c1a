/* Sampling: first each token's rank, by counting the tokens before it; then one block per row sums along the order. */
#include "ops/cuda/cuda.cuh"

enum { TILE = 256, DRAW_THREADS = 1024 };

/* order[r, rank] = token. Each token of a row is compared with all others; with a NaN the ranks are meaningless, and
 * the draw does not read them. The position advances here, so that all rows of the draw see the same value. */
template <class A> static __global__ void order_tokens(int C, const A *logits, int *order, double *position)
{
    __shared__ float tile[TILE];
    const A *x = logits + (size_t)blockIdx.y * C;
    const int token = blockIdx.x * TILE + threadIdx.x;
    const float own = token < C ? load(x + token) : 0;
    int place = 0;
    for (int first = 0; first < C; first += TILE) {
        const int n = min(TILE, C - first);
        __syncthreads();
        if ((int)threadIdx.x < n) tile[threadIdx.x] = load(x + first + threadIdx.x);
        __syncthreads();
        for (int i = 0; i < n; i++) place += tile[i] > own || (tile[i] == own && first + i < token);
    }
    if (token < C) order[(size_t)blockIdx.y * C + place] = token;
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) *position += 1;
}

/* Σ of v over the threads before this one; all: over all threads; shared: 32 entries. */
static __device__ double sum_before(double v, double *shared, double &all)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    double up = v;
    for (int k = 1; k < 32; k <<= 1) {
        const double other = __shfl_up_sync(0xffffffffu, up, k);
        if (lane >= k) up += other;
    }
    __syncthreads();
    if (lane == 31) shared[warp] = up;
    __syncthreads();
    double before = 0;
    all = 0;
    for (int w = 0; w < DRAW_THREADS / 32; w++) {
        if (w == warp) before = all;
        all += shared[w];
    }
    const double until = __shfl_up_sync(0xffffffffu, up, 1);
    return before + (lane ? until : 0);
}

/* Thread t owns ranks first … last−1. Its sums start from `before`, so that a rank's running sum is
 * always computed the same way. */
template <class A> struct places {
    const A *x;
    const int *order;
    int first, last;
    double top, temperature, before;

    __device__ __forceinline__ double weight(int i) const
    {
        return exp(((double)load(x + order[i]) - top) / temperature);
    }
};

/* The number of kept tokens and their sum: a token is kept if the sum before it is below `least`. */
template <class A> static __device__ int keep(const places<A> &p, int limit, double least, double *shared, double &kept)
{
    int count = 0;
    double sum = p.before;
    for (int i = p.first; i < p.last && i < limit && (i == 0 || sum < least); i++, count++) sum += p.weight(i);
    double all;
    sum_before(count ? sum - p.before : 0, shared, kept);
    sum_before(count, shared, all);
    return (int)all;
}

/* The first kept rank whose running sum exceeds target, or the last kept one. */
template <class A> static __device__ int find(const places<A> &p, int count, double target, int *shared)
{
    if (threadIdx.x == 0) *shared = count - 1;
    __syncthreads();
    double sum = p.before;
    for (int i = p.first; i < p.last && i < count; i++) {
        sum += p.weight(i);
        if (target < sum) {
            atomicMin(shared, i);
            break;
        }
    }
    __syncthreads();
    return *shared;
}

template <class A>
static __global__ void __launch_bounds__(DRAW_THREADS) draw_tokens(mr_sample_args a, const int *orders)
{
    __shared__ double shared[32];
    __shared__ int found;
    const int r = blockIdx.x, C = a.C, each = (C + DRAW_THREADS - 1) / DRAW_THREADS;
    const mr_sampling how = *a.how;
    const uint64_t position = (uint64_t)(*a.position - 1);
    places<A> p = {};
    p.x = (const A *)a.logits + (size_t)r * C, p.order = orders + (size_t)r * C;
    p.first = min(C, (int)threadIdx.x * each), p.last = min(C, p.first + each);
    int finite = 1;
    for (int i = p.first; i < p.last; i++) finite &= isfinite(load(p.x + i)) != 0;
    finite = __syncthreads_and(finite);
    int token = finite ? p.order[0] : -1;
    if (finite && how.temperature > 0) {
        p.top = (double)load(p.x + token), p.temperature = how.temperature;
        double sum = 0, all, kept;
        for (int i = p.first; i < p.last; i++) sum += p.weight(i);
        p.before = sum_before(sum, shared, all);
        const int count = keep(p, how.top_k > 0 && how.top_k < C ? how.top_k : C, how.top_p * all, shared, kept);
        token = p.order[find(p, count, mr_sample_uniform(how.seed, position, (uint32_t)r) * kept, &found)];
    }
    if (threadIdx.x) return;
    a.ids[r] = max(token, 0);
    a.drawn[position % MR_DRAWN * (size_t)a.R + r] = token;
}

template <class A> static void launch(mr_cuda *c, const mr_sample_args *a)
{
    int *order = (int *)mr_cuda_scratch(c, (size_t)a->R * (size_t)a->C * sizeof *order);
    if (!order) return;
    order_tokens<A><<<dim3((unsigned)div_up((size_t)a->C, TILE), (unsigned)a->R), TILE, 0, c->stream>>>(
        a->C, (const A *)a->logits, order, a->position);
    draw_tokens<A><<<(unsigned)a->R, DRAW_THREADS, 0, c->stream>>>(*a, order);
    LAUNCHED(c, "draw_tokens");
}

static void sample(mr_dev *dev, const mr_sample_args *a) { BY_ACT(cuda_of(dev), launch, cuda_of(dev), a); }

void mr_cuda_sample_ops(mr_ops *ops) { ops->sample = sample; }
