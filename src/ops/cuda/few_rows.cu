/* Products of up to eight rows: a warp computes one output (or the gates of one channel) for all of them, and
 * has its rows of W in registers before x is available. Sums are fp32 in a fixed order. Also the norm and
 * convolution of one token. */
#include "ops/cuda/few.cuh"

/* CHIP: multiprocessors to fill; a constant, so that results depend only on the shape */
enum { MOST_ROWS = 8, CHIP = 132 };

/* The warp's j-th row of W. CELLS 1: the gates of one channel, else R neighbouring outputs. */
template <int R, int CELLS> static __device__ __forceinline__ int weight_row(const few_args &g, int unit, int j)
{
    return CELLS ? min(unit, g.H - 1) + j * g.H : min(unit * R + j, g.N - 1);
}

template <class A, int R, int CELLS>
static __device__ __forceinline__ void finish_unit(const few_args &g, int unit, int m, const float *q,
                                                   const float *before)
{
    if (m >= g.M) return;
    if (CELLS && unit < g.H) finish_gates<A>(g, m, unit, q, before[0]);
#pragma unroll
    for (int j = 0; j < R; j++)
        if (!CELLS && unit * R + j < g.N) {
            const size_t at = (size_t)m * g.N + unit * R + j;
            if (g.pre) store((A *)g.pre + at, q[j]);
            store((A *)g.y + at, (g.gelu ? gelu(q[j]) : q[j]) + before[j]);
        }
}

/* Loads what the result needs besides the sums: residuals or the state of row m. */
template <class A, int R, int CELLS>
static __device__ __forceinline__ void fetch_before(const few_args &g, int unit, int m, float *before)
{
#pragma unroll
    for (int j = 0; j < R; j++) before[j] = 0;
    if (m >= g.M) return;
    if (CELLS) before[0] = state_before(g, m, min(unit, g.H - 1));
    else if (g.residual)
#pragma unroll
        for (int j = 0; j < R; j++)
            before[j] = load((const A *)g.residual + (size_t)m * g.N + weight_row<R, CELLS>(g, unit, j));
}

/* Loads a lane's quads of one row: lane, lane + 32, … */
template <class A, int NQ>
static __device__ __forceinline__ void fetch_row(const few_args &g, const A *row, float (*v)[4])
{
#pragma unroll
    for (int i = 0; i < NQ; i++) {
        const int k = 4 * (threadIdx.x % 32 + 32 * i);
        v[i][0] = v[i][1] = v[i][2] = v[i][3] = 0;
        if (k < g.K) quad<A>::load(row + k, v[i]);
    }
}

/* Multiplies the norm's weights into those of the product, and adds its shift to the bias. */
template <int R, int NQ>
static __device__ __forceinline__ void take_norm(const few_args &g, float (*w)[NQ][4], float *bias)
{
    float scale[NQ][4], shift[NQ][4];
    fetch_row<float, NQ>(g, g.norm_w, scale);
    if (g.norm_b) {
        fetch_row<float, NQ>(g, g.norm_b, shift);
#pragma unroll
        for (int j = 0; j < R; j++) {
            float sum = 0;
#pragma unroll
            for (int i = 0; i < 4 * NQ; i++) sum = fmaf(shift[i / 4][i % 4], w[j][i / 4][i % 4], sum);
            bias[j] += warp_sum(sum);
        }
    }
#pragma unroll
    for (int i = 0; i < 4 * NQ; i++)
#pragma unroll
        for (int j = 0; j < R; j++) w[j][i / 4][i % 4] *= scale[i / 4][i % 4];
}

/* R: rows of W per warp; NQ: quads of each per lane. Rows of x are processed one after the other, the next one loaded
 * while one is summed; lane m keeps the sums of row m. One extra block writes the outputs of the norm. */
template <class A, int R, int NQ, int CELLS> static __global__ void few_rows(few_args g)
{
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32, warp = threadIdx.x / 32,
              unit = blockIdx.x * warps + warp;
    float w[R][NQ][4], x[NQ][4], next[NQ][4], bias[R], before[R], q[3] = {};
    early_start();
    if (g.norm && blockIdx.x == gridDim.x - 1) {
        wait_for_results();
        for (int m = warp; m < g.M; m += warps)
            norm_rows<A, 1, NQ>(g, m, 0, (const A *)g.x + (size_t)m * g.K, (A *)NULL, 0, g.norm_w, g.norm_b, true);
        return;
    }
#pragma unroll
    for (int j = 0; j < R; j++) {
        const int row = weight_row<R, CELLS>(g, unit, j);
        fetch_row<A, NQ>(g, (const A *)g.W + (size_t)row * g.K, w[j]);
        bias[j] = g.b ? g.b[row] : 0.0f;
    }
    if (g.norm) take_norm<R, NQ>(g, w, bias);
    wait_for_results();
    fetch_row<A, NQ>(g, (const A *)g.x, next);
    fetch_before<A, R, CELLS>(g, unit, lane, before);
#pragma unroll 1
    for (int m = 0; m < g.M; m++) {
        float sum[R] = {}, mean = 0, square = 0;
#pragma unroll
        for (int i = 0; i < 4 * NQ; i++) x[i / 4][i % 4] = next[i / 4][i % 4];
        if (m + 1 < g.M) fetch_row<A, NQ>(g, (const A *)g.x + (size_t)(m + 1) * g.K, next);
        if (g.norm == FEW_LAYER) {
#pragma unroll
            for (int i = 0; i < 4 * NQ; i++) mean += x[i / 4][i % 4];
            mean = warp_sum(mean) * g.one_by_K;
        }
#pragma unroll
        for (int i = 0; i < 4 * NQ; i++) {
            const float v = 4 * (lane + 32 * (i / 4)) < g.K ? x[i / 4][i % 4] - mean : 0.0f;
            square = fmaf(v, v, square);
#pragma unroll
            for (int j = 0; j < R; j++) sum[j] = fmaf(v, w[j][i / 4][i % 4], sum[j]);
        }
        const float scale = g.norm ? norm_rstd(g, warp_sum(square)) : 1.0f;
#pragma unroll
        for (int j = 0; j < R; j++) {
            sum[j] = warp_sum(sum[j]) * scale + bias[j];
            if (lane == m) q[j] = sum[j];
        }
    }
    finish_unit<A, R, CELLS>(g, unit, lane, q, before);
}

template <class A, int R, int NQ, int CELLS> static void launch_rows(mr_cuda *c, const few_args *g)
{
    const size_t units = CELLS ? (size_t)g->H : div_up((size_t)g->N, R);
    size_t warps = div_up(units, CHIP);
    warps = warps < 4 ? 4 : warps > 8 ? 8 : warps;
    const dim3 grid((unsigned)div_up(units, warps) + (g->norm ? 1 : 0));
    chain(c, "few_rows", few_rows<A, R, NQ, CELLS>, grid, (unsigned)warps * 32, 0, *g);
}

template <class A, int R, int CELLS> static void by_depth(mr_cuda *c, const few_args *g)
{
    if (g->K <= 384) launch_rows<A, R, 3, CELLS>(c, g);
    else if (g->K <= 768) launch_rows<A, R, 6, CELLS>(c, g);
    else launch_rows<A, R, 12, CELLS>(c, g);
}

template <class A> static void by_outputs(mr_cuda *c, const few_args *g)
{
    if (g->G == 3) by_depth<A, 3, 1>(c, g);
    else if (g->G == 2) by_depth<A, 2, 1>(c, g);
    else if (g->N > 8 * CHIP) by_depth<A, 2, 0>(c, g);
    else by_depth<A, 1, 0>(c, g);
}

int mr_cuda_few_rows(mr_cuda *c, const few_args *g)
{
    const uintptr_t all = (uintptr_t)g->x | (uintptr_t)g->W;
    if (g->M > (c->bf16 ? MOST_ROWS / 2 : MOST_ROWS) || g->K > 1536 || g->K % 4 || all % 16) return 0;
    BY_ACT(c, by_outputs, c, g);
    return 1;
}

/* ---- norm and convolution: a block per row, four channels per thread, all loads issued at once ---- */

struct norm_conv_args {
    mr_norm_fwd_args norm;
    mr_conv_fwd_args conv;
};

template <class A> static __device__ __forceinline__ float rounded(float v)
{
    A a;
    store(&a, v);
    return load(&a);
}

/* The sum over the block, for every thread; the order is fixed. */
static __device__ __forceinline__ float sum_of_block(float v, float *shared)
{
    v = warp_sum(v);
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
    __syncthreads();
    v = 0;
    for (int i = 0; i < (int)blockDim.x / 32; i++) v += shared[i];
    return v;
}

enum { TAIL = 3 }; /* of a convolution with four taps */

/* tail_out may be tail_in: a thread reads all of its channels before it writes. */
template <class A> static __global__ void norm_conv(norm_conv_args g)
{
    __shared__ float shared[32];
    const int D = g.norm.D, d = 4 * threadIdx.x, layer = g.norm.kind == MR_NORM_LAYER;
    const bool on = d < D;
    const size_t m = blockIdx.x, at = m * D + d;
    float x[4] = {0, 0, 0, 0}, w[4], b[4] = {0, 0, 0, 0}, taps[4][4], y[4], past[TAIL][4] = {}, mean = 0, square = 0;
    early_start();
    if (on) {
        quad<float>::load((const float *)g.norm.w + d, w);
        if (g.norm.b) quad<float>::load((const float *)g.norm.b + d, b);
        for (int k = 0; k < 4; k++) quad<float>::load((const float *)g.conv.w + 4 * (d + k), taps[k]);
        quad<float>::load((const float *)g.conv.b + d, y);
    }
    wait_for_results();
    if (on) {
        quad<A>::load((const A *)g.norm.x + at, x);
        if (g.conv.tail_in && !(g.conv.reset && g.conv.reset[m]))
            for (int j = 0; j < TAIL; j++)
                quad<float>::load((const float *)g.conv.tail_in + (m * TAIL + j) * D + d, past[j]);
    }
    if (layer) mean = sum_of_block((x[0] + x[1]) + (x[2] + x[3]), shared) / D;
    for (int k = 0; on && k < 4; k++) x[k] -= mean, square += x[k] * x[k];
    square = sum_of_block(square, shared);
    const float rstd = g.norm.kind == MR_NORM_NONE ? 1 : rsqrtf(square / D + (float)g.norm.eps);
    if (!on) return;
    if (g.norm.stat && d == 0) ((float *)g.norm.stat)[2 * m] = mean, ((float *)g.norm.stat)[2 * m + 1] = rstd;
    for (int k = 0; k < 4; k++) x[k] = rounded<A>(x[k] * rstd * w[k] + b[k]); /* rounded as later tokens will see it */
    quad<A>::store((A *)g.norm.y + at, x);
    for (int k = 0; k < 4; k++)
        y[k] += taps[k][0] * past[0][k] + taps[k][1] * past[1][k] + taps[k][2] * past[2][k] + taps[k][3] * x[k];
    quad<A>::store((A *)g.conv.y + at, y);
    if (!g.conv.tail_out) return;
    float *tail = (float *)g.conv.tail_out + m * TAIL * D + d;
    quad<float>::store(tail, past[1]);
    quad<float>::store(tail + D, past[2]);
    quad<float>::store(tail + 2 * D, x);
}

template <class A> static void launch_norm_conv(mr_cuda *c, const norm_conv_args *g)
{
    chain(c, "norm_conv", norm_conv<A>, dim3((unsigned)g->norm.M), (unsigned)div_up((size_t)g->norm.D, 128) * 32, 0,
          *g);
}

void mr_cuda_norm_conv(mr_cuda *c, const mr_norm_fwd_args *norm, const mr_conv_fwd_args *conv)
{
    const norm_conv_args g = {*norm, *conv};
    BY_ACT(c, launch_norm_conv, c, &g);
}
