/* Normalisation over channels. Rows of common widths are read four channels at a time, short ones several per warp, and
 * wide ones by several warps; other widths are read one channel per lane. */
#include "ops/cuda/cuda.cuh"

enum { ROW_WARPS = 8, BLOCK_LANES = 32 * ROW_WARPS, NORM_MOST = 4096 };

struct norm_args {
    int M, D;
    mr_norm kind;
    int accumulate;
    float eps; /* forward */
    const float *w, *b;
    float *stat;    /* [M, 2] */
    float *partial; /* backward: [blocks, 2, D] dw, db */
};

static __device__ __forceinline__ float rstd_of(const norm_args &g, float square)
{
    return g.kind == MR_NORM_NONE ? 1 : rsqrtf(square / g.D + g.eps);
}

/* How a row is spread over a block of ROW_WARPS warps: LPR lanes per row, each with N channels: quads that are LPR·4
 * apart (WHOLE: they fill the row exactly), or single channels LPR apart, up to the width. */
template <class A, int LPR, int N, int WHOLE> struct row_of {
    static const int rows = BLOCK_LANES / LPR; /* of a block */
    static const int warps = LPR / 32;         /* of a row; 0 or 1: lanes of one warp */

    static __device__ __forceinline__ int thread() { return threadIdx.y * 32 + threadIdx.x; }
    static __device__ __forceinline__ int lane() { return thread() % LPR; }
    static __device__ __forceinline__ int row() { return thread() / LPR; }
    static __device__ __forceinline__ int channel(int i)
    {
        return WHOLE ? (i / 4 * LPR + lane()) * 4 + i % 4 : lane() + LPR * i;
    }
    static __device__ __forceinline__ bool there(int i, int D) { return WHOLE || channel(i) < D; }

    static __device__ __forceinline__ void read(const A *x, int D, float *v)
    {
        if (WHOLE)
#pragma unroll
            for (int i = 0; i < N; i += 4) quad<A>::load(x + channel(i), v + i);
        else
#pragma unroll
            for (int i = 0; i < N; i++) v[i] = there(i, D) ? load(x + channel(i)) : 0;
    }

    static __device__ __forceinline__ void write(A *x, int D, const float *v)
    {
        if (WHOLE)
#pragma unroll
            for (int i = 0; i < N; i += 4) quad<A>::store(x + channel(i), v + i);
        else
#pragma unroll
            for (int i = 0; i < N; i++)
                if (there(i, D)) store(x + channel(i), v[i]);
    }

    /* Over the row; all threads call it, and all get the result. */
    static __device__ __forceinline__ float sum(float v)
    {
#pragma unroll
        for (int k = warps > 1 ? 16 : LPR / 2; k; k >>= 1) v += __shfl_xor_sync(0xffffffffu, v, k);
        if (warps <= 1) return v;
        __shared__ float sums[ROW_WARPS];
        __syncthreads(); /* what the last call left has been read */
        if (threadIdx.x == 0) sums[threadIdx.y] = v;
        __syncthreads();
        v = 0;
#pragma unroll
        for (int w = 0; w < warps; w++) v += sums[row() * warps + w];
        return v;
    }
};

template <class A, int LPR, int N, int WHOLE> static __global__ void norm_rows(norm_args g, const A *x, A *y)
{
    typedef row_of<A, LPR, N, WHOLE> row;
    const int m = blockIdx.x * row::rows + row::row(), D = g.D;
    const bool on = m < g.M; /* lanes of rows that do not exist still take part in the sums */
    float v[N], mean = 0, square = 0;
    row::read(x + (size_t)(on ? m : 0) * D, D, v);
    if (g.kind == MR_NORM_LAYER) {
#pragma unroll
        for (int i = 0; i < N; i++) mean += v[i];
        mean = row::sum(mean) / D;
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        if (row::there(i, D)) v[i] -= mean, square += v[i] * v[i];
    const float rstd = rstd_of(g, row::sum(square));
#pragma unroll
    for (int i = 0; i < N; i++)
        if (row::there(i, D)) v[i] = v[i] * rstd * g.w[row::channel(i)] + (g.b ? g.b[row::channel(i)] : 0);
    if (!on) return;
    row::write(y + (size_t)m * D, D, v);
    if (g.stat && row::lane() == 0) g.stat[2 * (size_t)m] = mean, g.stat[2 * (size_t)m + 1] = rstd;
}

/* Adds up the block's share of dw or db, from the sums of each group of lanes. */
template <class A, int LPR, int N, int WHOLE>
static __device__ __forceinline__ void add_up(const norm_args &g, int which, const float *own, float *sums)
{
    typedef row_of<A, LPR, N, WHOLE> row;
    const int D = g.D;
    if (row::rows == 1) { /* each thread has its channels to itself */
#pragma unroll
        for (int i = 0; i < N; i++)
            if (row::there(i, D)) g.partial[((size_t)blockIdx.x * 2 + which) * D + row::channel(i)] = own[i];
        return;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < N; i++)
        if (row::there(i, D)) sums[row::row() * D + row::channel(i)] = own[i];
    __syncthreads();
    for (int d = threadIdx.y * 32 + threadIdx.x; d < D; d += 32 * ROW_WARPS) {
        float sum = 0;
        for (int i = 0; i < row::rows; i++) sum += sums[i * D + d];
        g.partial[((size_t)blockIdx.x * 2 + which) * D + d] = sum;
    }
}

/* Blocks a multiprocessor that have enough registers; DB: the norm has a bias. */
template <int N, int DB> struct fitting {
    static const int value = N <= 8 ? 4 - DB : N <= 12 ? 3 - DB : 1;
};

/* With x̂ = (x − mean)·rstd and u = dy·w:  dx = rstd·(u − [layer: mean(u)] − [rms, layer: x̂·mean(u·x̂)]). Warps loop
 * over rows; their shares of dw and db stay in registers until the block adds them up. */
template <class A, int LPR, int N, int WHOLE, int DB>
static __global__ void __launch_bounds__(BLOCK_LANES, (fitting<N, DB>::value))
    norm_rows_bwd(norm_args g, const A *x, const A *dy, A *dx)
{
    typedef row_of<A, LPR, N, WHOLE> row;
    extern __shared__ float sums[]; /* [rows, D] */
    const int D = g.D, stride = gridDim.x * row::rows;
    float dw[N], db[N];
#pragma unroll
    for (int i = 0; i < N; i++) dw[i] = db[i] = 0;
    for (int first = blockIdx.x * row::rows; first < g.M; first += stride) { /* the same for all threads of a block */
        const int m = first + row::row();
        const bool on = m < g.M;
        const size_t at = (size_t)(on ? m : 0) * D;
        float v[N], u[N], old[N], mean_u = 0, mean_ux = 0;
        row::read(x + at, D, v);
        row::read(dy + at, D, u);
        if (g.accumulate) row::read(dx + at, D, old);
        const float mean = g.stat[2 * (size_t)(on ? m : 0)], rstd = g.stat[2 * (size_t)(on ? m : 0) + 1];
#pragma unroll
        for (int i = 0; i < N; i++) {
            v[i] = (v[i] - mean) * rstd;
            if (on) dw[i] += u[i] * v[i];
            if (DB && on) db[i] += u[i];
            u[i] *= row::there(i, D) ? g.w[row::channel(i)] : 0;
            if (DB) mean_u += u[i];
            mean_ux += u[i] * v[i];
        }
        mean_u = DB ? row::sum(mean_u) / D : 0;
        mean_ux = g.kind == MR_NORM_NONE ? 0 : row::sum(mean_ux) / D;
#pragma unroll
        for (int i = 0; i < N; i++) u[i] = rstd * (u[i] - mean_u - v[i] * mean_ux) + (g.accumulate ? old[i] : 0);
        if (on) row::write(dx + at, D, u);
    }
    add_up<A, LPR, N, WHOLE>(g, 0, dw, sums);
    if (DB) add_up<A, LPR, N, WHOLE>(g, 1, db, sums);
}

/* ---- launches ---- */

template <class A, int LPR, int N, int WHOLE> static void launch(mr_cuda *c, const mr_norm_fwd_args *a)
{
    const norm_args g = {
        a->M, a->D, a->kind, 0, (float)a->eps, (const float *)a->w, (const float *)a->b, (float *)a->stat, NULL};
    const size_t blocks = div_up((size_t)a->M, row_of<A, LPR, N, WHOLE>::rows);
    norm_rows<A, LPR, N, WHOLE><<<(unsigned)blocks, dim3(32, ROW_WARPS), 0, c->stream>>>(g, (const A *)a->x, (A *)a->y);
    LAUNCHED(c, "norm_rows");
}

template <class A, int LPR, int N, int WHOLE, int DB> static void launch_bwd(mr_cuda *c, const mr_norm_bwd_args *a)
{
    typedef row_of<A, LPR, N, WHOLE> row;
    const int least = fitting<N, DB>::value;
    const size_t D = (size_t)a->D, shared = row::rows == 1 ? 0 : row::rows * D * sizeof(float),
                 all = div_up((size_t)a->M, row::rows);
    /* they fill the largest chips once, or four times in turn; depends only on the shape */
    const size_t most = 132 * (least == 1 ? 4 : least);
    const unsigned blocks = (unsigned)(all < most ? all : most);
    norm_args g = {a->M, a->D, a->kind, a->accumulate, 0, (const float *)a->w, NULL, (float *)a->stat, NULL};
    g.partial = (float *)mr_cuda_scratch(c, blocks * 2 * D * sizeof(float));
    if (!g.partial) return;
    CHECK(c, mr_cuda_allow_shared((const void *)norm_rows_bwd<A, LPR, N, WHOLE, DB>, shared));
    norm_rows_bwd<A, LPR, N, WHOLE, DB>
        <<<blocks, dim3(32, ROW_WARPS), shared, c->stream>>>(g, (const A *)a->x, (const A *)a->dy, (A *)a->dx);
    LAUNCHED(c, "norm_rows_bwd");
    mr_cuda_reduce(c, g.partial, blocks, 2 * D, D, 0, (float *)a->dw);
    if (DB) mr_cuda_reduce(c, g.partial + D, blocks, 2 * D, D, 0, (float *)a->db);
}

template <class A, int LPR, int N, int WHOLE> static void launch(mr_cuda *c, const mr_norm_bwd_args *a)
{
    if (a->db) launch_bwd<A, LPR, N, WHOLE, 1>(c, a);
    else launch_bwd<A, LPR, N, WHOLE, 0>(c, a);
}

static uintptr_t addresses(const mr_norm_fwd_args *a) { return (uintptr_t)a->x | (uintptr_t)a->y; }
static uintptr_t addresses(const mr_norm_bwd_args *a) { return (uintptr_t)a->x | (uintptr_t)a->dy | (uintptr_t)a->dx; }

/* Chooses the kernel by the width of a row: enough registers for it and no more. */
template <class A, class ARGS> static void by_width(mr_cuda *c, const ARGS *a)
{
    const int D = a->D, whole = addresses(a) % (4 * sizeof(A)) == 0;
    if (whole && D == 64) launch<A, 8, 8, 1>(c, a);
    else if (whole && D == 128) launch<A, 16, 8, 1>(c, a);
    else if (whole && D == 256) launch<A, 32, 8, 1>(c, a);
    else if (whole && D == 384) launch<A, 32, 12, 1>(c, a);
    else if (whole && D == 512) launch<A, 32, 16, 1>(c, a);
    else if (whole && D == 768) launch<A, 32, 24, 1>(c, a);
    else if (whole && D == 1024) launch<A, 32, 32, 1>(c, a);
    else if (D <= 64) launch<A, 32, 2, 0>(c, a);
    else if (D <= 256) launch<A, 32, 8, 0>(c, a);
    else if (D <= 1024) launch<A, 32, 32, 0>(c, a);
    else if (whole && D == 2048) launch<A, BLOCK_LANES, 8, 1>(c, a);
    else if (whole && D == 3072) launch<A, BLOCK_LANES, 12, 1>(c, a);
    else if (whole && D == 4096) launch<A, BLOCK_LANES, 16, 1>(c, a);
    else if (D <= 2048) launch<A, BLOCK_LANES, 8, 0>(c, a);
    else if (D <= NORM_MOST) launch<A, BLOCK_LANES, 16, 0>(c, a);
    else mr_cuda_note(c, cudaErrorNotSupported, "norms of rows wider than 4096");
}

/* The backward has more to keep, so its wide rows are spread over more lanes. */
template <class A> static void backward(mr_cuda *c, const mr_norm_bwd_args *a)
{
    const int D = a->D, whole = addresses(a) % (4 * sizeof(A)) == 0;
    if (whole && D == 512) launch<A, 64, 8, 1>(c, a);
    else if (whole && D == 768) launch<A, 64, 12, 1>(c, a);
    else if (whole && D == 1024) launch<A, 128, 8, 1>(c, a);
    else by_width<A>(c, a);
}

static void norm_fwd(mr_dev *dev, const mr_norm_fwd_args *a) { BY_ACT(cuda_of(dev), by_width, cuda_of(dev), a); }
static void norm_bwd(mr_dev *dev, const mr_norm_bwd_args *a) { BY_ACT(cuda_of(dev), backward, cuda_of(dev), a); }

void mr_cuda_norm_ops(mr_ops *ops)
{
    ops->norm_fwd = norm_fwd;
    ops->norm_bwd = norm_bwd;
}
