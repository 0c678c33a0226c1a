/* The optimiser, and the sums that ops share. */
#include "ops/cuda/cuda.cuh"

/* A block sums 32 columns; its warps take rows in turn, and their sums are added in shared memory in order. */
enum { REDUCE_WARPS = 32 };

static __global__ void reduce_rows(const float *partial, size_t rows, size_t stride, size_t n, int fresh, float *out)
{
    __shared__ float tile[REDUCE_WARPS][32];
    const size_t i = blockIdx.x * (size_t)32 + threadIdx.x;
    float sum = 0;
    for (size_t r = threadIdx.y; i < n && r < rows; r += REDUCE_WARPS) sum += partial[r * stride + i];
    tile[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || i >= n) return;
    for (int w = 1; w < REDUCE_WARPS; w++) sum += tile[w][threadIdx.x];
    out[i] = fresh ? sum : out[i] + sum;
}

void mr_cuda_reduce(mr_cuda *c, const float *partial, size_t rows, size_t stride, size_t n, int fresh, float *out)
{
    reduce_rows<<<(unsigned)div_up(n, 32), dim3(32, REDUCE_WARPS), 0, c->stream>>>(partial, rows, stride, n, fresh,
                                                                                   out);
    LAUNCHED(c, "reduce_rows");
}

enum { SUM_BLOCKS = 512, SUM_THREADS = 256 };

static __global__ void square_sums(size_t n, const float *g, double *partial)
{
    __shared__ double shared[32];
    double sum = 0;
    for (size_t i = blockIdx.x * (size_t)SUM_THREADS + threadIdx.x; i < n; i += (size_t)SUM_BLOCKS * SUM_THREADS)
        sum += (double)g[i] * g[i];
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

static __global__ void sum_blocks(const double *partial, double *out)
{
    __shared__ double shared[32];
    double sum = block_sum(threadIdx.x < SUM_BLOCKS ? partial[threadIdx.x] : 0.0, shared);
    if (threadIdx.x == 0) *out = sum;
}

static void sumsq(mr_dev *dev, const mr_sumsq_args *a)
{
    mr_cuda *c = cuda_of(dev);
    double *partial = (double *)mr_cuda_scratch(c, SUM_BLOCKS * sizeof(double));
    if (!partial) return;
    square_sums<<<SUM_BLOCKS, SUM_THREADS, 0, c->stream>>>(a->n, (const float *)a->g, partial);
    sum_blocks<<<1, SUM_BLOCKS, 0, c->stream>>>(partial, a->out);
    LAUNCHED(c, "square_sums");
}

/* One block for each part. */
static __global__ void square_parts(size_t n, const float *g, double *parts)
{
    __shared__ double shared[32];
    const size_t first = blockIdx.x * (size_t)MR_SUM_PART, end = min(n, first + MR_SUM_PART);
    double sum = 0;
    for (size_t i = first + threadIdx.x; i < end; i += SUM_THREADS) sum += (double)g[i] * g[i];
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

static void sumsq_parts(mr_dev *dev, const mr_sumsq_parts_args *a)
{
    mr_cuda *c = cuda_of(dev);
    if (!a->n) return;
    square_parts<<<(unsigned)div_up(a->n, MR_SUM_PART), SUM_THREADS, 0, c->stream>>>(a->n, (const float *)a->g,
                                                                                     a->parts);
    LAUNCHED(c, "square_parts");
}

static __global__ void sum_all(size_t n, const double *parts, double *out)
{
    __shared__ double shared[32];
    double sum = 0;
    for (size_t i = threadIdx.x; i < n; i += SUM_BLOCKS) sum += parts[i];
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0) *out = sum;
}

static void sum_parts(mr_dev *dev, const mr_sum_parts_args *a)
{
    mr_cuda *c = cuda_of(dev);
    sum_all<<<1, SUM_BLOCKS, 0, c->stream>>>(a->n, a->parts, a->out);
    LAUNCHED(c, "sum_all");
}

static __global__ void add_elements(size_t n, const float *x, float *y)
{
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] += x[i];
}

static void accumulate(mr_dev *dev, const mr_accumulate_args *a)
{
    mr_cuda *c = cuda_of(dev);
    if (!a->n) return;
    add_elements<<<(unsigned)div_up(a->n, 256), 256, 0, c->stream>>>(a->n, (const float *)a->x, (float *)a->y);
    LAUNCHED(c, "add_elements");
}

/* What is the same for all elements. A block computes it once: doubles are slow on most cards. */
struct adam_scalars {
    float shrink, lr, beta1, one_beta1, beta2, one_beta2, bias1, bias2, eps, decay, keep;
    int decoupled, skip;
};

static __device__ adam_scalars adam_scalars_of(const mr_step &s, double sumsq)
{
    adam_scalars a = {};
    a.skip = !isfinite(sumsq);
    a.shrink = s.clip > 0 ? (float)fmin(1.0, s.clip / (sqrt(sumsq) + 1e-6)) : 1;
    a.lr = (float)s.lr, a.eps = (float)s.eps, a.decoupled = s.decoupled;
    a.beta1 = (float)s.beta1, a.one_beta1 = (float)(1 - s.beta1), a.bias1 = (float)(1 / s.bias1);
    a.beta2 = (float)s.beta2, a.one_beta2 = (float)(1 - s.beta2), a.bias2 = (float)(1 / s.bias2);
    a.decay = (float)s.weight_decay, a.keep = (float)(1 - s.lr * (double)a.decay);
    return a;
}

static __device__ __forceinline__ void adam_element(const adam_scalars &s, int decayed, float g, float *p, float *m,
                                                    float *v)
{
    float grad = g * s.shrink;
    if (!s.decoupled && decayed) grad += s.decay * *p;
    const float m1 = s.beta1 * *m + s.one_beta1 * grad, m2 = s.beta2 * *v + s.one_beta2 * grad * grad;
    *m = m1;
    *v = m2;
    const float kept = s.decoupled && decayed ? *p * s.keep : *p;
    *p = kept - s.lr * (m1 * s.bias1) / (sqrtf(m2 * s.bias2) + s.eps);
}

enum { ADAM_THREADS = 256, ADAM_BLOCKS = 2112 };

template <int W> static __device__ __forceinline__ void fetch(const float *from, float *to)
{
    if (W == 4) quad<float>::load(from, to);
    else to[0] = from[0];
}

template <int W> static __device__ __forceinline__ void put(float *to, const float *from)
{
    if (W == 4) quad<float>::store(to, from);
    else to[0] = from[0];
}

/* W elements a thread at a time; n is a multiple of W. */
template <int W>
static __global__ void adam_elements(size_t n, size_t n_decay, float *p, float *m, float *v, const float *g,
                                     const mr_step *step, const double *sumsq)
{
    __shared__ adam_scalars s;
    if (threadIdx.x == 0) s = adam_scalars_of(*step, *sumsq);
    __syncthreads();
    if (s.skip) return;
    const size_t threads = (size_t)gridDim.x * ADAM_THREADS;
    for (size_t i = W * (blockIdx.x * (size_t)ADAM_THREADS + threadIdx.x); i < n; i += W * threads) {
        float grad[W], weight[W], first[W], second[W];
        fetch<W>(g + i, grad);
        fetch<W>(p + i, weight);
        fetch<W>(m + i, first);
        fetch<W>(v + i, second);
#pragma unroll
        for (int k = 0; k < W; k++) adam_element(s, i + k < n_decay, grad[k], &weight[k], &first[k], &second[k]);
        put<W>(p + i, weight);
        put<W>(m + i, first);
        put<W>(v + i, second);
    }
}

static void adam(mr_dev *dev, const mr_adam_args *a)
{
    mr_cuda *c = cuda_of(dev);
    const uintptr_t all = (uintptr_t)a->p | (uintptr_t)a->m | (uintptr_t)a->v | (uintptr_t)a->g;
    const bool quads = a->n % 4 == 0 && all % 16 == 0;
    const size_t wanted = div_up(a->n, quads ? 4 * ADAM_THREADS : ADAM_THREADS);
    const unsigned blocks = (unsigned)(wanted < ADAM_BLOCKS ? wanted : ADAM_BLOCKS);
    void (*kernel)(size_t, size_t, float *, float *, float *, const float *, const mr_step *, const double *) =
        quads ? adam_elements<4> : adam_elements<1>;
    if (!a->n) return;
    kernel<<<blocks, ADAM_THREADS, 0, c->stream>>>(a->n, a->n_decay, (float *)a->p, (float *)a->m, (float *)a->v,
                                                   (const float *)a->g, a->step, a->sumsq);
    LAUNCHED(c, "adam_elements");
    mr_cuda_written(c, a->p, a->n * sizeof(float));
}

void mr_cuda_train_ops(mr_ops *ops)
{
    ops->sumsq = sumsq;
    ops->sumsq_parts = sumsq_parts;
    ops->sum_parts = sum_parts;
    ops->accumulate = accumulate;
    ops->adam = adam;
}
