/* Ops on rows: a warp a row. Norms and losses. */
#include "ops/cuda/cuda.cuh"

enum { ROW_WARPS = 8 };

static inline unsigned row_blocks(int M) { return (unsigned)div_up((size_t)M, ROW_WARPS); }

/* ---- norms ---- */

template <class A> static __global__ void norm_rows(int M, int D, int layer, const A *x, const float *w, const float *b, A *y, float *stat)
{
    const int m = blockIdx.x * ROW_WARPS + threadIdx.y, lane = threadIdx.x;
    if (m >= M) return;
    x += (size_t)m * D;
    y += (size_t)m * D;
    float mean = 0, square = 0;
    if (layer) {
        for (int d = lane; d < D; d += 32) mean += load(x + d);
        mean = warp_sum(mean) / D;
    }
    for (int d = lane; d < D; d += 32) {
        float v = load(x + d) - mean;
        square += v * v;
    }
    const float rstd = rsqrtf(warp_sum(square) / D + (float)(layer ? MR_LAYER_EPS : MR_RMS_EPS));
    for (int d = lane; d < D; d += 32) store(y + d, (load(x + d) - mean) * rstd * w[d] + (b ? b[d] : 0));
    if (stat && lane == 0) stat[2 * (size_t)m] = mean, stat[2 * (size_t)m + 1] = rstd;
}

template <class A> static void norm_launch(mr_cuda *c, const mr_norm_fwd_args *a)
{
    norm_rows<A><<<row_blocks(a->M), dim3(32, ROW_WARPS), 0, c->stream>>>(a->M, a->D, a->kind == MR_NORM_LAYER, (const A *)a->x, (const float *)a->w,
                                                                         (const float *)a->b, (A *)a->y, (float *)a->stat);
    LAUNCHED(c, "norm_rows");
}

static void norm_fwd(mr_dev *dev, const mr_norm_fwd_args *a) { BY_ACT(cuda_of(dev), norm_launch, cuda_of(dev), a); }

template <class A>
static __global__ void norm_rows_bwd(int M, int D, int layer, int accumulate, const A *x, const float *w, const float *stat, const A *dy, A *dx)
{
    const int m = blockIdx.x * ROW_WARPS + threadIdx.y, lane = threadIdx.x;
    if (m >= M) return;
    x += (size_t)m * D, dy += (size_t)m * D, dx += (size_t)m * D;
    const float mean = stat[2 * (size_t)m], rstd = stat[2 * (size_t)m + 1];
    float sum_u = 0, sum_ux = 0;
    for (int d = lane; d < D; d += 32) {
        float u = load(dy + d) * w[d];
        sum_u += u;
        sum_ux += u * (load(x + d) - mean) * rstd;
    }
    sum_u = layer ? warp_sum(sum_u) / D : 0;
    sum_ux = warp_sum(sum_ux) / D;
    for (int d = lane; d < D; d += 32) {
        float v = rstd * (load(dy + d) * w[d] - sum_u - (load(x + d) - mean) * rstd * sum_ux);
        store(dx + d, accumulate ? v + load(dx + d) : v);
    }
}

/* Column sums of dy·x̂ and dy over blocks of rows: partial [blocks, 2, D]. */
enum { NORM_ROWS = 256 };

template <class A> static __global__ void norm_columns(int M, int D, const A *x, const float *stat, const A *dy, float *partial)
{
    __shared__ float tile[2][8][33];
    const int d = blockIdx.x * 32 + threadIdx.x, first = blockIdx.y * NORM_ROWS, last = min(M, first + NORM_ROWS);
    float dw = 0, db = 0;
    if (d < D)
        for (int m = first + threadIdx.y; m < last; m += 8) {
            float g = load(dy + (size_t)m * D + d);
            dw += g * (load(x + (size_t)m * D + d) - stat[2 * (size_t)m]) * stat[2 * (size_t)m + 1];
            db += g;
        }
    tile[0][threadIdx.y][threadIdx.x] = dw;
    tile[1][threadIdx.y][threadIdx.x] = db;
    __syncthreads();
    if (threadIdx.y > 1 || d >= D) return;
    float sum = 0;
    for (int i = 0; i < 8; i++) sum += tile[threadIdx.y][i][threadIdx.x];
    partial[((size_t)blockIdx.y * 2 + threadIdx.y) * D + d] = sum;
}

static __global__ void add_norm_grads(int blocks, int D, const float *partial, float *dw, float *db)
{
    int d = blockIdx.x * blockDim.x + threadIdx.x;
    if (d >= D) return;
    float w = 0, b = 0;
    for (int r = 0; r < blocks; r++) w += partial[(size_t)r * 2 * D + d], b += partial[((size_t)r * 2 + 1) * D + d];
    dw[d] += w;
    if (db) db[d] += b;
}

/* The columns come first: dx may be the place where x's own gradient runs, but never x itself. */
template <class A> static void norm_bwd_launch(mr_cuda *c, const mr_norm_bwd_args *a)
{
    const unsigned blocks = (unsigned)div_up((size_t)a->M, NORM_ROWS);
    float *partial = (float *)mr_cuda_scratch(c, (size_t)blocks * 2 * (size_t)a->D * sizeof(float));
    if (!partial) return;
    norm_columns<A><<<dim3((unsigned)div_up((size_t)a->D, 32), blocks), dim3(32, 8), 0, c->stream>>>(a->M, a->D, (const A *)a->x, (const float *)a->stat,
                                                                                                  (const A *)a->dy, partial);
    add_norm_grads<<<(unsigned)div_up((size_t)a->D, 64), 64, 0, c->stream>>>((int)blocks, a->D, partial, (float *)a->dw, (float *)a->db);
    norm_rows_bwd<A><<<row_blocks(a->M), dim3(32, ROW_WARPS), 0, c->stream>>>(a->M, a->D, a->kind == MR_NORM_LAYER, a->accumulate, (const A *)a->x,
                                                                             (const float *)a->w, (const float *)a->stat, (const A *)a->dy, (A *)a->dx);
    LAUNCHED(c, "norm_bwd");
}

static void norm_bwd(mr_dev *dev, const mr_norm_bwd_args *a) { BY_ACT(cuda_of(dev), norm_bwd_launch, cuda_of(dev), a); }

/* ---- losses: stats of each block, then their sum in order ---- */

static __global__ void add_stats(int blocks, const double *partial, double *stats)
{
    const int which = threadIdx.x;
    double sum = 0;
    for (int i = 0; i < blocks; i++) sum += partial[(size_t)i * MR_STATS + which];
    stats[which] += sum;
}

/* Sums of a block's rows: warps' lanes 0 hold them. */
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
static __global__ void xent_rows(int R, int C, const A *logits, const int32_t *target, const double *scale, A *dlogits, float *row_loss, double *partial)
{
    const int r = blockIdx.x * ROW_WARPS + threadIdx.y, lane = threadIdx.x;
    double loss = 0, correct = 0, count = 0;
    if (r < R) {
        const A *x = logits + (size_t)r * C;
        const int want = target[r];
        float top = -INFINITY, poison = 0;
        int best = C;
        for (int i = lane; i < C; i += 32) {
            float v = load(x + i);
            if (v > top) top = v, best = i;
            poison += v - v; /* NaN as soon as one logit is not finite */
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
                store(dlogits + (size_t)r * C + i, want < 0 ? 0 : expf(load(x + i) - top) * each - (i == want ? factor : 0));
        }
    }
    block_stats(loss, correct, count, partial);
}

template <class A> static void xent_launch(mr_cuda *c, const mr_xent_args *a)
{
    const unsigned blocks = row_blocks(a->R);
    double *partial = (double *)mr_cuda_scratch(c, (size_t)blocks * MR_STATS * sizeof(double));
    if (!partial) return;
    xent_rows<A><<<blocks, dim3(32, ROW_WARPS), 0, c->stream>>>(a->R, a->C, (const A *)a->logits, a->target, a->scale, (A *)a->dlogits,
                                                               (float *)a->row_loss, partial);
    add_stats<<<1, MR_STATS, 0, c->stream>>>((int)blocks, partial, a->stats);
    LAUNCHED(c, "xent_rows");
}

static void xent(mr_dev *dev, const mr_xent_args *a) { BY_ACT(cuda_of(dev), xent_launch, cuda_of(dev), a); }

template <class A>
static __global__ void mse_rows(int R, int C, const A *pred, const float *target, const uint8_t *mask, const double *scale, A *dpred, float *row_loss, double *partial)
{
    const int r = blockIdx.x * ROW_WARPS + threadIdx.y, lane = threadIdx.x;
    const int counts = r < R && (!mask || mask[r]);
    float sum = 0;
    if (r < R) {
        const float factor = dpred ? (float)(*scale * 2 / C) : 0;
        for (int i = lane; i < C; i += 32) {
            size_t at = (size_t)r * C + i;
            float off = counts ? load(pred + at) - target[at] : 0;
            sum += off * off;
            if (dpred) store(dpred + at, factor * off);
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
    mse_rows<A><<<blocks, dim3(32, ROW_WARPS), 0, c->stream>>>(a->R, a->C, (const A *)a->pred, (const float *)a->target, a->mask, a->scale, (A *)a->dpred,
                                                              (float *)a->row_loss, partial);
    add_stats<<<1, MR_STATS, 0, c->stream>>>((int)blocks, partial, a->stats);
    LAUNCHED(c, "mse_rows");
}

static void mse(mr_dev *dev, const mr_mse_args *a) { BY_ACT(cuda_of(dev), mse_launch, cuda_of(dev), a); }

void mr_cuda_row_ops(mr_ops *ops)
{
    ops->norm_fwd = norm_fwd;
    ops->norm_bwd = norm_bwd;
    ops->xent = xent;
    ops->mse = mse;
}
