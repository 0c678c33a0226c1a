/* The optimiser, and the sums that ops share. */
#include "ops/cuda/cuda.cuh"

/* A block sums 32 columns; its warps take rows in turn, and their sums are added in shared memory in order. */
enum { REDUCE_WARPS = 32 };

static __global__ void reduce_rows(const float *partial, size_t rows, size_t stride, size_t n, float *out)
{
    __shared__ float tile[REDUCE_WARPS][32];
    const size_t i = blockIdx.x * (size_t)32 + threadIdx.x;
    float sum = 0;
    for (size_t r = threadIdx.y; i < n && r < rows; r += REDUCE_WARPS) sum += partial[r * stride + i];
    tile[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || i >= n) return;
    for (int w = 1; w < REDUCE_WARPS; w++) sum += tile[w][threadIdx.x];
    out[i] += sum;
}

void mr_cuda_reduce(mr_cuda *c, const float *partial, size_t rows, size_t stride, size_t n, float *out)
{
    reduce_rows<<<(unsigned)div_up(n, 32), dim3(32, REDUCE_WARPS), 0, c->stream>>>(partial, rows, stride, n, out);
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

static __global__ void adam_elements(size_t n, size_t n_decay, float *p, float *m, float *v, const float *g,
                                     const mr_step *step, const double *sumsq)
{
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n || !isfinite(*sumsq)) return;
    const mr_step s = *step;
    const float shrink = s.clip > 0 ? (float)fmin(1.0, s.clip / (sqrt(*sumsq) + 1e-6)) : 1,
                decay = i < n_decay ? (float)s.weight_decay : 0;
    const float lr = (float)s.lr, b1 = (float)s.beta1, b2 = (float)s.beta2;
    float grad = g[i] * shrink;
    if (!s.decoupled) grad += decay * p[i];
    const float m1 = b1 * m[i] + (float)(1 - s.beta1) * grad, m2 = b2 * v[i] + (float)(1 - s.beta2) * grad * grad;
    m[i] = m1;
    v[i] = m2;
    const float kept = s.decoupled ? p[i] * (float)(1 - s.lr * decay) : p[i];
    p[i] = kept - lr * (m1 * (float)(1 / s.bias1)) / (sqrtf(m2 * (float)(1 / s.bias2)) + (float)s.eps);
}

static void adam(mr_dev *dev, const mr_adam_args *a)
{
    mr_cuda *c = cuda_of(dev);
    adam_elements<<<(unsigned)div_up(a->n, 256), 256, 0, c->stream>>>(
        a->n, a->n_decay, (float *)a->p, (float *)a->m, (float *)a->v, (const float *)a->g, a->step, a->sumsq);
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
