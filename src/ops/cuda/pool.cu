/* Pooling over time, and pairs of pooled rows. */
#include "ops/cuda/cuda.cuh"

/* ---- pooling ---- */

template <class A>
static __global__ void pool_tokens(int T, int D, int mean, const int32_t *length, const float *weight, const A *x, A *y)
{
    __shared__ float tile[8][32];
    const int d = blockIdx.x * 32 + threadIdx.x, b = blockIdx.y, last = length ? length[b] : T,
              first = mean ? 0 : max(0, last - 1);
    const float factor = weight ? weight[b] : 1;
    float sum = 0;
    for (int t = first + threadIdx.y; d < D && t < last; t += 8) sum += load(x + ((size_t)b * T + t) * D + d);
    tile[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || d >= D) return;
    for (int i = 1; i < 8; i++) sum += tile[i][threadIdx.x];
    store(y + (size_t)b * D + d, first < last && factor != 0 ? factor * sum / (last - first) : 0.0f);
}

template <class A>
static __global__ void pool_tokens_bwd(int T, int D, int mean, const int32_t *length, const float *weight, const A *dy,
                                       A *dx)
{
    const int d = blockIdx.x * 32 + threadIdx.x, b = blockIdx.z, t = blockIdx.y * 8 + threadIdx.y;
    const int last = length ? length[b] : T, first = mean ? 0 : last - 1;
    if (d >= D || t >= T) return;
    const float factor = weight ? weight[b] : 1;
    store(dx + ((size_t)b * T + t) * D + d,
          t >= first && t < last && factor != 0 ? factor * load(dy + (size_t)b * D + d) / (last - first) : 0.0f);
}

template <class A> static void pool_launch(mr_cuda *c, const mr_pool_fwd_args *a)
{
    pool_tokens<A><<<dim3((unsigned)div_up((size_t)a->D, 32), (unsigned)a->B), dim3(32, 8), 0, c->stream>>>(
        a->T, a->D, a->kind == MR_POOL_MEAN, a->length, (const float *)a->weight, (const A *)a->x, (A *)a->y);
    LAUNCHED(c, "pool_tokens");
}

template <class A> static void pool_bwd_launch(mr_cuda *c, const mr_pool_bwd_args *a)
{
    dim3 grid((unsigned)div_up((size_t)a->D, 32), (unsigned)div_up((size_t)a->T, 8), (unsigned)a->B);
    pool_tokens_bwd<A><<<grid, dim3(32, 8), 0, c->stream>>>(a->T, a->D, a->kind == MR_POOL_MEAN, a->length,
                                                            (const float *)a->weight, (const A *)a->dy, (A *)a->dx);
    LAUNCHED(c, "pool_tokens_bwd");
}

static void pool_fwd(mr_dev *dev, const mr_pool_fwd_args *a) { BY_ACT(cuda_of(dev), pool_launch, cuda_of(dev), a); }
static void pool_bwd(mr_dev *dev, const mr_pool_bwd_args *a) { BY_ACT(cuda_of(dev), pool_bwd_launch, cuda_of(dev), a); }

/* ---- pairs ---- */

template <class A> static __global__ void pair_rows(int D, const A *x, A *y)
{
    const int d = blockIdx.x * blockDim.x + threadIdx.x;
    if (d >= D) return;
    x += 2 * (size_t)blockIdx.y * D + d;
    y += 4 * (size_t)blockIdx.y * D + d;
    const float a = load(x), b = load(x + D);
    store(y, a);
    store(y + D, b);
    store(y + 2 * (size_t)D, a * b);
    store(y + 3 * (size_t)D, a - b);
}

template <class A> static __global__ void pair_rows_bwd(int D, const A *x, const A *dy, A *dx)
{
    const int d = blockIdx.x * blockDim.x + threadIdx.x;
    if (d >= D) return;
    x += 2 * (size_t)blockIdx.y * D + d;
    dx += 2 * (size_t)blockIdx.y * D + d;
    dy += 4 * (size_t)blockIdx.y * D + d;
    const float product = load(dy + 2 * (size_t)D), difference = load(dy + 3 * (size_t)D);
    const float a = load(x), b = load(x + D);
    store(dx, load(dy) + product * b + difference);
    store(dx + D, load(dy + D) + product * a - difference);
}

template <class A> static void pair_launch(mr_cuda *c, const mr_pair_fwd_args *a)
{
    pair_rows<A><<<dim3((unsigned)div_up((size_t)a->D, 128), (unsigned)a->P), 128, 0, c->stream>>>(
        a->D, (const A *)a->x, (A *)a->y);
    LAUNCHED(c, "pair_rows");
}

template <class A> static void pair_bwd_launch(mr_cuda *c, const mr_pair_bwd_args *a)
{
    pair_rows_bwd<A><<<dim3((unsigned)div_up((size_t)a->D, 128), (unsigned)a->P), 128, 0, c->stream>>>(
        a->D, (const A *)a->x, (const A *)a->dy, (A *)a->dx);
    LAUNCHED(c, "pair_rows_bwd");
}

static void pair_fwd(mr_dev *dev, const mr_pair_fwd_args *a) { BY_ACT(cuda_of(dev), pair_launch, cuda_of(dev), a); }
static void pair_bwd(mr_dev *dev, const mr_pair_bwd_args *a) { BY_ACT(cuda_of(dev), pair_bwd_launch, cuda_of(dev), a); }

void mr_cuda_pool_ops(mr_ops *ops)
{
    ops->pool_fwd = pool_fwd;
    ops->pool_bwd = pool_bwd;
    ops->pair_fwd = pair_fwd;
    ops->pair_bwd = pair_bwd;
}
