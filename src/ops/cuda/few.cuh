/* Products of few rows (one token of each of B streams), with what lies around them in the same kernel: the norm before, and behind it
 * bias, gelu and residual, or the gates and one step of the recurrence. */
#ifndef MR_OPS_CUDA_FEW_CUH
#define MR_OPS_CUDA_FEW_CUH

#include "ops/cuda/scan.cuh"

enum { FEW_PLAIN, FEW_RMS, FEW_LAYER }; /* what is done to a row of x first */

struct few_args {
    int M, N, K;
    const void *x, *W; /* W: fp32, or the bf16 copy on a bf16 device */
    const float *b;
    /* the norm before: x is what it is given; its results are written too */
    int norm;
    const float *norm_w, *norm_b;
    void *norm_y;
    float *stat;
    /* a linear layer */
    int gelu;
    void *pre;
    const void *residual;
    void *y;
    /* gates and one step of the recurrence (G > 0): N = G·H, pre is the op's `saved`, y its h */
    int G, H, kind, candidate;
    const float *h_in, *h_init;
    float *h_out;
    const uint8_t *reset;
};

/* Both return 0 when the shape is not theirs. */
int mr_cuda_few_rows(mr_cuda *c, const few_args *g);  /* M ≤ 8, exact fp32 sums */
int mr_cuda_few_tiles(mr_cuda *c, const few_args *g); /* tensor cores: bf16, or TF32 */

/* One token of norm and convolution in one pass over the rows. */
void mr_cuda_norm_conv(mr_cuda *c, const mr_norm_fwd_args *norm, const mr_conv_fwd_args *conv);

/* ---- launches in a chain: the next kernel starts while this one runs, fetches its weights, and waits before it reads results ---- */

template <class... P, class... Q> static void chain(mr_cuda *c, const char *name, void (*kernel)(P...), dim3 grid, unsigned threads, size_t shared, Q... args)
{
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = grid, config.blockDim = dim3(threads), config.dynamicSmemBytes = shared, config.stream = c->stream;
    config.attrs = &early;
    config.numAttrs = c->chained && c->capability >= 90;
    if (shared > 48 << 10) CHECK(c, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    mr_cuda_note(c, cudaLaunchKernelEx(&config, kernel, args...), name);
    c->chained = 1;
}

/* ---- inside the kernels ---- */

/* The norm's weights, fetched before the row is there: [2, K] in shared memory. */
static __device__ __forceinline__ void fetch_norm(const few_args &g, float *weights)
{
    for (int k = threadIdx.x; g.norm && k < g.K; k += blockDim.x) {
        weights[k] = g.norm_w[k];
        weights[g.K + k] = g.norm_b ? g.norm_b[k] : 0.0f;
    }
}

/* Row m of x in shared memory, normed in place by one warp. S: float or the act type A; keep: this warp also writes the norm's results. */
template <class A, class S> static __device__ __forceinline__ void norm_row(const few_args &g, int m, S *row, const float *weights, bool keep)
{
    const int lane = threadIdx.x % 32, quads = g.K / 4;
    float v[4], mean = 0, square = 0;
    if (g.norm == FEW_LAYER) {
        for (int q = lane; q < quads; q += 32) {
            quad<S>::load(row + 4 * q, v);
            mean += (v[0] + v[1]) + (v[2] + v[3]);
        }
        mean = warp_sum(mean) / g.K;
    }
    for (int q = lane; q < quads; q += 32) {
        quad<S>::load(row + 4 * q, v);
        for (int k = 0; k < 4; k++) square += (v[k] - mean) * (v[k] - mean);
    }
    const float rstd = rsqrtf(warp_sum(square) / g.K + (float)(g.norm == FEW_LAYER ? MR_LAYER_EPS : MR_RMS_EPS));
    for (int q = lane; q < quads; q += 32) {
        quad<S>::load(row + 4 * q, v);
        for (int k = 0; k < 4; k++) v[k] = (v[k] - mean) * rstd * weights[4 * q + k] + weights[g.K + 4 * q + k];
        quad<S>::store(row + 4 * q, v);
        if (keep) quad<A>::store((A *)g.norm_y + (size_t)m * g.K + 4 * q, v);
    }
    if (keep && g.stat && lane == 0) g.stat[2 * (size_t)m] = mean, g.stat[2 * (size_t)m + 1] = rstd;
}

/* The state that channel ch of stream m comes from. */
static __device__ __forceinline__ float candidate_any(int kind, float v)
{
    return kind == MR_POSITIVE ? candidate<MR_POSITIVE>(v) : kind == MR_LINEAR ? v : tanhf(v);
}

static __device__ __forceinline__ float state_before(const few_args &g, int m, int ch)
{
    if (g.h_in && !(g.reset && g.reset[m])) return g.h_in[(size_t)m * g.H + ch];
    return g.h_init ? candidate_any(g.candidate, g.h_init[ch]) : 0.0f;
}

/* From the sums q[0 … G−1] with their biases to the new state. */
template <class A> static __device__ __forceinline__ void finish_gates(const few_args &g, int m, int ch, const float *q, float state)
{
    float a, in;
#pragma unroll
    for (int j = 0; j < 3; j++)
        if (j < g.G) store((A *)g.pre + ((size_t)m * g.G + j) * g.H + ch, q[j]);
    if (g.kind == GRU) sigmoids(q[0], in, a);
    else if (g.kind == LSTM) a = fast_sigmoid(q[0]), in = fast_sigmoid(q[1]);
    else shares(q[0], q[1], a, in);
    const float h = a * state + in * candidate_any(g.candidate, g.G == 2 ? q[1] : q[2]);
    store((A *)g.y + (size_t)m * g.H + ch, h);
    if (g.h_out) g.h_out[(size_t)m * g.H + ch] = h;
}

/* From a sum with its bias to the output; r: the residual or 0. */
template <class A> static __device__ __forceinline__ void finish_linear(const few_args &g, int m, int n, float v, float r)
{
    const size_t at = (size_t)m * g.N + n;
    if (g.pre) store((A *)g.pre + at, v);
    store((A *)g.y + at, (g.gelu ? gelu(v) : v) + r);
}

#endif
