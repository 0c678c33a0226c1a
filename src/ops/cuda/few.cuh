/* Products of few rows (one token of each of B streams), fused with what comes before and after: the norm before; then
 * bias, gelu and residual, or the gates and one step of the recurrence. */
#ifndef MR_OPS_CUDA_FEW_CUH
#define MR_OPS_CUDA_FEW_CUH

#include "ops/cuda/chain.cuh"
#include "ops/cuda/scan.cuh"

enum { FEW_PLAIN, FEW_RMS, FEW_LAYER, FEW_SCALE }; /* what is done to a row of x first */

struct few_args {
    int M, N, K;
    const void *x, *W; /* W: fp32, or the bf16 copy on a bf16 device */
    const float *b;
    /* the norm before: x is then its input; its outputs are written too */
    int norm;
    float one_by_K, norm_eps;
    const float *norm_w, *norm_b;
    void *norm_y;
    float *stat;
    /* a linear layer */
    int gelu;
    void *pre;
    const void *residual;
    void *y;
    /* gates and one step of the recurrence (G > 0): N = G·H, pre is the op's `saved` or NULL, y its h */
    int G, H, kind, candidate;
    const float *h_in, *h_init;
    float *h_out;
    const uint8_t *reset;
};

/* Both return 0 for shapes that they do not handle. */
int mr_cuda_few_rows(mr_cuda *c, const few_args *g);  /* M ≤ 8, exact fp32 sums */
int mr_cuda_few_tiles(mr_cuda *c, const few_args *g); /* tensor cores: bf16, or TF32 */

/* Norm and convolution of one token per stream, in one pass over the rows. */
void mr_cuda_norm_conv(mr_cuda *c, const mr_norm_fwd_args *norm, const mr_conv_fwd_args *conv);

/* ---- inside the kernels ---- */

/* Such a kernel runs for a microsecond or two, and fetching its instructions takes much of that. So the code must be
 * short: loops are not unrolled, and there are no divisions. */

static __device__ __forceinline__ float norm_rstd(const few_args &g, float squares)
{
    return g.norm == FEW_SCALE ? 1 : rsqrtf(squares * g.one_by_K + g.norm_eps);
}

/* One warp normalises ROWS rows of x, `apart` rows apart, the first being row m: from `from` to `to` (if not NULL), and
 * to the norm's own output if `keep`. A lane has up to NQ quads of each row, so rows are at most 128·NQ wide. */
template <class A, int ROWS, int NQ>
static __device__ __forceinline__ void norm_rows(const few_args &g, int m, int apart, const A *from, A *to, int pitch,
                                                 const float *w, const float *b, bool keep)
{
    const int lane = threadIdx.x % 32;
    float v[ROWS][NQ][4], mean[ROWS] = {}, rstd[ROWS] = {};
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int i = 0; i < NQ; i++) {
            v[r][i][0] = v[r][i][1] = v[r][i][2] = v[r][i][3] = 0;
            if (4 * (lane + 32 * i) < g.K) quad<A>::load(from + r * pitch + 4 * (lane + 32 * i), v[r][i]);
        }
    if (g.norm == FEW_LAYER)
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
#pragma unroll
            for (int i = 0; i < NQ; i++) mean[r] += (v[r][i][0] + v[r][i][1]) + (v[r][i][2] + v[r][i][3]);
            mean[r] = warp_sum(mean[r]) * g.one_by_K;
        }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
#pragma unroll
        for (int i = 0; i < NQ; i++)
            if (4 * (lane + 32 * i) < g.K)
#pragma unroll
                for (int k = 0; k < 4; k++) v[r][i][k] -= mean[r], rstd[r] += v[r][i][k] * v[r][i][k];
        rstd[r] = norm_rstd(g, warp_sum(rstd[r]));
    }
#pragma unroll
    for (int i = 0; i < NQ; i++) {
        const int k = 4 * (lane + 32 * i);
        if (k >= g.K) break;
        float weight[4], shift[4] = {0, 0, 0, 0};
        quad<float>::load(w + k, weight);
        if (b) quad<float>::load(b + k, shift);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            for (int j = 0; j < 4; j++) v[r][i][j] = v[r][i][j] * rstd[r] * weight[j] + shift[j];
            if (to) quad<A>::store(to + r * pitch + k, v[r][i]);
            if (keep && m + r * apart < g.M) quad<A>::store((A *)g.norm_y + (size_t)(m + r * apart) * g.K + k, v[r][i]);
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        if (keep && g.stat && lane == 0 && m + r * apart < g.M)
            g.stat[2 * (m + r * apart)] = mean[r], g.stat[2 * (m + r * apart) + 1] = rstd[r];
}

/* The candidate function, chosen at run time. */
static __device__ __forceinline__ float candidate_any(int kind, float v)
{
    return kind == MR_POSITIVE ? candidate<MR_POSITIVE>(v) : kind == MR_LINEAR ? v : tanhf(v);
}

/* The state that channel ch of stream m starts from. */
static __device__ __forceinline__ float state_before(const few_args &g, int m, int ch)
{
    if (g.h_in && !(g.reset && g.reset[m])) return g.h_in[(size_t)m * g.H + ch];
    return g.h_init ? candidate_any(g.candidate, g.h_init[ch]) : 0.0f;
}

/* Computes and stores the new state from the sums q[0 … G−1], which include the biases. */
template <class A>
static __device__ __forceinline__ void finish_gates(const few_args &g, int m, int ch, const float *q, float state)
{
    float a, in;
#pragma unroll
    for (int j = 0; j < 3; j++)
        if (g.pre && j < g.G) store((A *)g.pre + ((size_t)m * g.G + j) * g.H + ch, q[j]);
    if (g.kind == GRU) sigmoids(q[0], in, a);
    else if (g.kind == LSTM) a = fast_sigmoid(q[0]), in = fast_sigmoid(q[1]);
    else shares(q[0], q[1], a, in);
    const float h = a * state + in * candidate_any(g.candidate, g.G == 2 ? q[1] : q[2]);
    store((A *)g.y + (size_t)m * g.H + ch, h);
    if (g.h_out) g.h_out[(size_t)m * g.H + ch] = h;
}

#endif
