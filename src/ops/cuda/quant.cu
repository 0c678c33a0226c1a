/* Linear layers with 8-bit weights: exact, and fast enough for a few streams; a warp computes one output at a time. */
#include "ops/cuda/cuda.cuh"

enum { WARPS = 8 };

template <class A> static __global__ void linear_q(mr_linear_q_fwd_args a)
{
    const size_t out = blockIdx.x * (size_t)WARPS + threadIdx.x / 32, N = (size_t)a.N, K = (size_t)a.K;
    if (out >= (size_t)a.M * N) return;
    const size_t m = out / N, n = out % N;
    const A *x = (const A *)a.x + m * K;
    const int8_t *w = a.Wq + n * K;
    float sum = 0;
    for (size_t k = threadIdx.x % 32; k < K; k += 32) sum += load(x + k) * (float)w[k];
    for (int apart = 16; apart; apart /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, apart);
    if (threadIdx.x % 32) return;
    float v = sum * ((const float *)a.scale)[n] + (a.b ? ((const float *)a.b)[n] : 0.0f);
    if (a.gelu) v = gelu(v);
    if (a.residual) v += load((const A *)a.residual + out);
    store((A *)a.y + out, v);
}

template <class A> static void launch(mr_cuda *c, const mr_linear_q_fwd_args *a)
{
    const size_t outputs = (size_t)a->M * (size_t)a->N;
    linear_q<A><<<(unsigned)div_up(outputs, WARPS), WARPS * 32, 0, c->stream>>>(*a);
    LAUNCHED(c, "linear_q");
}

void mr_cuda_linear_q_fwd(mr_dev *dev, const mr_linear_q_fwd_args *a) { BY_ACT(cuda_of(dev), launch, cuda_of(dev), a); }
