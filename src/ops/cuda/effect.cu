/* Rows of effects: what chunks of time make of a state, one after the other. */
#include "ops/cuda/cuda.cuh"

static __global__ void chain(mr_effect_chain_args a)
{
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    const float *A = (const float *)a.A, *C = (const float *)a.C;
    if (i >= a.n) return;
    float y = 0;
    for (int j = 0; j < a.count; j++) {
        const size_t at = (size_t)(a.down ? a.count - 1 - j : j) * a.n + i;
        y = j == 0 || A[at] == 0 ? C[at] : A[at] * y + C[at];
    }
    ((float *)a.y)[i] = y;
}

static void effect_chain(mr_dev *dev, const mr_effect_chain_args *a)
{
    mr_cuda *c = cuda_of(dev);
    chain<<<(unsigned)div_up(a->n, 128), 128, 0, c->stream>>>(*a);
    LAUNCHED(c, "effect_chain");
}

void mr_cuda_effect_ops(mr_ops *ops) { ops->effect_chain = effect_chain; }
