/* Losses: one warp per row, one thread per row for few classes, one block per row for many. And tanh, for scores
 * within ±1. */
#include "ops/cuda/cuda.cuh"

enum { ROW_WARPS = 8 };

static inline unsigned row_blocks(int M) { return (unsigned)div_up((size_t)M, ROW_WARPS); }

/* ---- statistics: of each block, then their sum in order ---- */

/* One block per statistic. */
static __global__ void add_stats(int blocks, const double *partial, double *stats)
{
    __shared__ double shared[32];
    double sum = 0;
    for (int i = threadIdx.x; i < blocks; i += blockDim.x) sum += partial[(size_t)i * MR_STATS + blockIdx.x];
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0) stats[blockIdx.x] += sum;
}

/* Sums over a block's rows; lane 0 of each warp holds its row's values. */
static __device__ void block_stats(double loss, double correct, double count, double *partial)
{
    __shared__ double rows[ROW_WARPS][MR_STATS];
    if (threadIdx.x == 0) {
        rows[threadIdx.y][MR_STAT_LOSS] = loss;
        rows[threadIdx.y][MR_STAT_CORRECT] = correct;
        rows[threadIdx.y][MR_STAT_COUNT] = count;
    }
    __syncthreads();
    if (threadIdx.y || threadIdx.x >= MR_STATS) return;
    double sum = 0;
    for (int i = 0; i < ROW_WARPS; i++) sum += rows[i][threadIdx.x];
    partial[(size_t)blockIdx.x * MR_STATS + threadIdx.x] = sum;
}

template <class A>
static __global__ void xent_rows(int R, int C, size_t row, const A *logits, const int32_t *target, const double *scale,
                                 A *dlogits, float *row_loss, double *partial)
{
    const int r = blockIdx.x * ROW_WARPS + threadIdx.y, lane = threadIdx.x;
    double loss = 0, correct = 0, count = 0;
    if (r < R) {
        const A *x = logits + (size_t)r * row;
        const int want = target[r];
        float top = -INFINITY, poison = 0;
        int best = C;
        for (int i = lane; i < C; i += 32) {
            float v = load(x + i);
            if (v > top) top = v, best = i;
            poison += v - v; /* NaN when a logit is not finite */
        }
        for (int k = 16; k; k >>= 1) {
            float other = __shfl_xor_sync(0xffffffffu, top, k);
            int where = __shfl_xor_sync(0xffffffffu, best, k);
            if (other > top || (other == top && where < best)) top = other, best = where;
        }
        top += warp_sum(poison);
        float sum = 0, own = want >= 0 ? load(x + want) : 0;
        for (int i = lane; i < C; i += 32) sum += expf(load(x + i) - top);
        sum = warp_sum(sum);
        if (want >= 0) loss = (double)(logf(sum) + (top - own)), correct = best == want, count = 1;
        if (lane == 0) row_loss[r] = (float)loss;
        if (dlogits) {
            const float factor = want >= 0 ? (float)*scale : 0, each = factor / sum;
            for (int i = lane; i < C; i += 32)
                store(dlogits + (size_t)r * row + i,
                      want < 0 ? 0 : expf(load(x + i) - top) * each - (i == want ? factor : 0));
        }
    }
    block_stats(loss, correct, count, partial);
}

/* Few classes: one thread per row. */
enum { FEW_CLASSES = 64, THREAD_ROWS = 256 };

template <class A>
static __global__ void xent_threads(int R, int C, size_t row, const A *logits, const int32_t *target,
                                    const double *scale, A *dlogits, float *row_loss, double *partial)
{
    __shared__ double shared[32];
    const int r = blockIdx.x * THREAD_ROWS + threadIdx.x, want = r < R ? target[r] : -1;
    double loss = 0;
    int best = 0;
    if (r < R) {
        const A *x = logits + (size_t)r * row;
        float top = load(x), poison = 0, sum = 0;
        for (int i = 0; i < C; i++) {
            const float v = load(x + i);
            if (v > top) top = v, best = i;
            poison += v - v; /* NaN when a logit is not finite */
        }
        top += poison;
        for (int i = 0; i < C; i++) sum += expf(load(x + i) - top);
        if (want >= 0) loss = (double)(logf(sum) + (top - load(x + want)));
        row_loss[r] = (float)loss;
        const float factor = dlogits && want >= 0 ? (float)*scale : 0, each = factor / sum;
        for (int i = 0; dlogits && i < C; i++)
            store(dlogits + (size_t)r * row + i,
                  want < 0 ? 0 : expf(load(x + i) - top) * each - (i == want ? factor : 0));
    }
    const double sums[MR_STATS] = {block_sum(loss, shared), block_sum(want >= 0 && best == want ? 1.0 : 0.0, shared),
                                   block_sum(want >= 0 ? 1.0 : 0.0, shared)};
    for (int i = 0; threadIdx.x == 0 && i < MR_STATS; i++) partial[(size_t)blockIdx.x * MR_STATS + i] = sums[i];
}

/* Many classes: one block per row, which is read twice and written once. */
enum { MANY_CLASSES = 4096, WIDE = 512 };

template <class A, int W> static __device__ __forceinline__ void fetch(const A *p, float *v)
{
    if (W == 4) quad<A>::load(p, v);
    else v[0] = load(p);
}

/* A thread's part of a row: its largest logit, the first place that has it, and Σ exp(logit − largest). */
struct peak {
    float top, sum, poison; /* poison: NaN when a logit is not finite */
    int best;
};

/* The sum is rescaled whenever a larger logit is met, so one pass is enough. A quad may reach beyond the row's C
 * elements, but never beyond `row`. */
template <class A, int W> static __device__ __forceinline__ peak peak_of(int C, const A *x)
{
    peak p = {-INFINITY, 0, 0, C};
    for (int i = W * threadIdx.x; i < C; i += W * WIDE) {
        float v[W], most = p.top;
        fetch<A, W>(x + i, v);
#pragma unroll
        for (int k = 0; k < W; k++) {
            if (i + k >= C) continue;
            p.poison += v[k] - v[k];
            if (v[k] > most) most = v[k], p.best = i + k;
        }
        p.sum *= expf(p.top - most);
        p.top = most;
#pragma unroll
        for (int k = 0; k < W; k++)
            if (i + k < C) p.sum += expf(v[k] - most);
    }
    return p;
}

/* Joins the parts of all threads; the result is the same in all of them. */
static __device__ __forceinline__ peak join_peaks(peak p)
{
    __shared__ float tops[WIDE / 32], shared[32], total[2];
    __shared__ int bests[WIDE / 32];
    const float own = p.top;
    for (int k = 16; k; k >>= 1) {
        const float other = __shfl_xor_sync(0xffffffffu, p.top, k);
        const int where = __shfl_xor_sync(0xffffffffu, p.best, k);
        if (other > p.top || (other == p.top && where < p.best)) p.top = other, p.best = where;
    }
    if (threadIdx.x % 32 == 0) tops[threadIdx.x / 32] = p.top, bests[threadIdx.x / 32] = p.best;
    __syncthreads();
    for (int w = 0; w < WIDE / 32; w++)
        if (tops[w] > p.top || (tops[w] == p.top && bests[w] < p.best)) p.top = tops[w], p.best = bests[w];
    const float sum = block_sum(own > -INFINITY ? p.sum * expf(own - p.top) : 0.0f, shared);
    const float poison = block_sum(p.poison, shared);
    if (threadIdx.x == 0) total[0] = sum, total[1] = poison;
    __syncthreads();
    p.sum = total[0];
    p.poison = total[1];
    return p;
}

template <class A, int W>
static __global__ void xent_wide(int C, size_t row, const A *logits, const int32_t *target, const double *scale,
                                 A *dlogits, float *row_loss, double *partial)
{
    const size_t r = blockIdx.x;
    const A *x = logits + r * row;
    const int want = target[r];
    const float own = want >= 0 ? load(x + want) : 0; /* before the gradient takes its place: join_peaks waits */
    const peak p = join_peaks(peak_of<A, W>(C, x));
    const float top = p.top + p.poison, factor = dlogits && want >= 0 ? (float)*scale : 0, each = factor / p.sum;
    if (threadIdx.x == 0) {
        const double loss = want >= 0 ? (double)(logf(p.sum) + (top - own)) : 0;
        row_loss[r] = (float)loss;
        partial[r * MR_STATS + MR_STAT_LOSS] = loss;
        partial[r * MR_STATS + MR_STAT_CORRECT] = p.best == want;
        partial[r * MR_STATS + MR_STAT_COUNT] = want >= 0;
    }
    for (int i = W * threadIdx.x; dlogits && i < C; i += W * WIDE) {
        A *d = dlogits + r * row + i;
        float v[W];
        fetch<A, W>(x + i, v);
#pragma unroll
        for (int k = 0; k < W; k++) v[k] = want < 0 ? 0 : expf(v[k] - top) * each - (i + k == want ? factor : 0);
        if (W == 4 && i + W <= C) quad<A>::store(d, v);
        else
            for (int k = 0; k < W && i + k < C; k++) store(d + k, v[k]);
    }
}

template <class A> static void launch_wide(mr_cuda *c, const mr_xent_args *a, size_t row, double *partial)
{
    const bool quads = row % 4 == 0 && ((uintptr_t)a->logits | (uintptr_t)a->dlogits) % (4 * sizeof(A)) == 0;
    void (*kernel)(int, size_t, const A *, const int32_t *, const double *, A *, float *, double *) =
        quads ? xent_wide<A, 4> : xent_wide<A, 1>;
    kernel<<<(unsigned)a->R, WIDE, 0, c->stream>>>(a->C, row, (const A *)a->logits, a->target, a->scale,
                                                   (A *)a->dlogits, (float *)a->row_loss, partial);
}

template <class A> static void xent_launch(mr_cuda *c, const mr_xent_args *a)
{
    const size_t row = mr_row_step(a->row, a->C);
    const int few = a->C <= FEW_CLASSES, many = a->C >= MANY_CLASSES;
    const unsigned blocks = few    ? (unsigned)div_up((size_t)a->R, THREAD_ROWS)
                            : many ? (unsigned)a->R
                                   : row_blocks(a->R);
    double *partial = (double *)mr_cuda_scratch(c, (size_t)blocks * MR_STATS * sizeof(double));
    if (!partial) return;
    if (few)
        xent_threads<A><<<blocks, THREAD_ROWS, 0, c->stream>>>(
            a->R, a->C, row, (const A *)a->logits, a->target, a->scale, (A *)a->dlogits, (float *)a->row_loss, partial);
    else if (many) launch_wide<A>(c, a, row, partial);
    else
        xent_rows<A><<<blocks, dim3(32, ROW_WARPS), 0, c->stream>>>(
            a->R, a->C, row, (const A *)a->logits, a->target, a->scale, (A *)a->dlogits, (float *)a->row_loss, partial);
    add_stats<<<MR_STATS, 1024, 0, c->stream>>>((int)blocks, partial, a->stats);
    LAUNCHED(c, "xent");
}

static void xent(mr_dev *dev, const mr_xent_args *a) { BY_ACT(cuda_of(dev), xent_launch, cuda_of(dev), a); }

template <class A>
static __global__ void mse_rows(int R, int C, int squash, const A *pred, const float *target, const uint8_t *mask,
                                const double *scale, A *dpred, float *row_loss, double *partial)
{
    const int r = blockIdx.x * ROW_WARPS + threadIdx.y, lane = threadIdx.x;
    const int counts = r < R && (!mask || mask[r]);
    float sum = 0;
    if (r < R) {
        const float factor = dpred ? (float)(*scale * 2 / C) : 0;
        for (int i = lane; i < C; i += 32) {
            size_t at = (size_t)r * C + i;
            const float x = load(pred + at), y = squash ? tanhf(x) : x, slope = squash ? 1 - y * y : 1;
            const float off = counts ? y - target[at] : 0;
            sum += off * off;
            if (dpred) store(dpred + at, counts ? factor * off * slope : 0);
        }
        sum = warp_sum(sum) / C;
        if (lane == 0) row_loss[r] = sum;
    }
    block_stats(sum, 0, counts, partial);
}

template <class A> static void mse_launch(mr_cuda *c, const mr_mse_args *a)
{
    const unsigned blocks = row_blocks(a->R);
    double *partial = (double *)mr_cuda_scratch(c, (size_t)blocks * MR_STATS * sizeof(double));
    if (!partial) return;
    mse_rows<A><<<blocks, dim3(32, ROW_WARPS), 0, c->stream>>>(a->R, a->C, a->tanh, (const A *)a->pred,
                                                               (const float *)a->target, a->mask, a->scale,
                                                               (A *)a->dpred, (float *)a->row_loss, partial);
    add_stats<<<MR_STATS, 1024, 0, c->stream>>>((int)blocks, partial, a->stats);
    LAUNCHED(c, "mse_rows");
}

static void mse(mr_dev *dev, const mr_mse_args *a) { BY_ACT(cuda_of(dev), mse_launch, cuda_of(dev), a); }

template <class A> static __global__ void tanh_each(size_t n, const A *x, float *y)
{
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = tanhf(load(x + i));
}

template <class A> static __global__ void tanh_bwd_each(size_t n, const A *x, const float *dy, A *dx)
{
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float y = tanhf(load(x + i));
    store(dx + i, dy[i] * (1 - y * y));
}

template <class A> static void tanh_launch(mr_cuda *c, const mr_tanh_fwd_args *a)
{
    tanh_each<A><<<(unsigned)div_up(a->n, 256), 256, 0, c->stream>>>(a->n, (const A *)a->x, (float *)a->y);
    LAUNCHED(c, "tanh_each");
}

template <class A> static void tanh_bwd_launch(mr_cuda *c, const mr_tanh_bwd_args *a)
{
    tanh_bwd_each<A>
        <<<(unsigned)div_up(a->n, 256), 256, 0, c->stream>>>(a->n, (const A *)a->x, (const float *)a->dy, (A *)a->dx);
    LAUNCHED(c, "tanh_bwd_each");
}

static void tanh_fwd(mr_dev *dev, const mr_tanh_fwd_args *a) { BY_ACT(cuda_of(dev), tanh_launch, cuda_of(dev), a); }
static void tanh_bwd(mr_dev *dev, const mr_tanh_bwd_args *a) { BY_ACT(cuda_of(dev), tanh_bwd_launch, cuda_of(dev), a); }

void mr_cuda_loss_ops(mr_ops *ops)
{
    ops->xent = xent;
    ops->mse = mse;
    ops->tanh_fwd = tanh_fwd;
    ops->tanh_bwd = tanh_bwd;
}
