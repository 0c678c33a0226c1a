/* Ops along time besides the scan: the short convolution and pooling. */
#include "ops/cuda/cuda.cuh"

struct conv_args {
    int B, T, D;
    const float *w, *b, *tail_in, *dtail_out;
    const uint8_t *reset;
    const int32_t *length;
    float *tail_out, *dtail_in;
    int accumulate;
};

static __device__ __forceinline__ int real_tokens(const conv_args &g, int b) { return g.length ? g.length[b] : g.T; }

/* Can token `last` see input `source`? Negative sources lie in the tail; a reset in between cuts off what was before it. */
static __device__ __forceinline__ bool visible(const conv_args &g, int b, int source, int last)
{
    if (source < 0 && !g.tail_in) return false;
    for (int s = source < 0 ? 0 : source + 1; g.reset && s <= last; s++)
        if (g.reset[(size_t)b * g.T + s]) return false;
    return true;
}

template <class A> static __device__ __forceinline__ float input_at(const conv_args &g, const A *x, int b, int source, int d)
{
    if (source >= 0) return load(x + ((size_t)b * g.T + source) * g.D + d);
    return g.tail_in[((size_t)b * MR_TAIL + source + MR_TAIL) * g.D + d];
}

/* Thread: one channel of one token. */
template <class A> static __global__ void conv_tokens(conv_args g, const A *x, A *y)
{
    const int d = blockIdx.x * 32 + threadIdx.x, b = blockIdx.z;
    const int t = blockIdx.y * 8 + threadIdx.y;
    if (d >= g.D || t >= g.T) return;
    float v = g.b[d];
    for (int j = 0; j < MR_CONV; j++)
        if (visible(g, b, t - MR_TAIL + j, t)) v += g.w[d * MR_CONV + j] * input_at(g, x, b, t - MR_TAIL + j, d);
    store(y + ((size_t)b * g.T + t) * g.D + d, t < real_tokens(g, b) ? v : 0.0f);
}

/* Thread: one channel of one sequence; the new tail may be the old one, so all of it is read before any is written. */
template <class A> static __global__ void conv_tail(conv_args g, const A *x)
{
    const int d = blockIdx.x * 32 + threadIdx.x, b = blockIdx.y, real = real_tokens(g, b);
    float tail[MR_TAIL];
    if (d >= g.D) return;
    for (int j = 0; j < MR_TAIL; j++) {
        const int source = real - MR_TAIL + j;
        tail[j] = visible(g, b, source, real - 1) ? input_at(g, x, b, source, d) : 0;
    }
    for (int j = 0; j < MR_TAIL; j++) g.tail_out[((size_t)b * MR_TAIL + j) * g.D + d] = tail[j];
}

/* The gradient of input `source`: from the tokens that see it and from the tail behind the chunk. */
template <class A> static __device__ float source_grad(const conv_args &g, const A *dy, int b, int source, int d)
{
    const int real = real_tokens(g, b);
    float v = 0;
    for (int j = 0; j < MR_CONV; j++) {
        const int t = source + MR_TAIL - j;
        if (t >= 0 && t < real && visible(g, b, source, t)) v += g.w[d * MR_CONV + j] * load(dy + ((size_t)b * g.T + t) * g.D + d);
    }
    const int row = source - (real - MR_TAIL);
    if (g.dtail_out && row >= 0 && row < MR_TAIL && source < real && visible(g, b, source, real - 1))
        v += g.dtail_out[((size_t)b * MR_TAIL + row) * g.D + d];
    return v;
}

template <class A> static __global__ void conv_tokens_bwd(conv_args g, const A *dy, A *dx)
{
    const int d = blockIdx.x * 32 + threadIdx.x, b = blockIdx.z, t = blockIdx.y * 8 + threadIdx.y;
    if (d >= g.D || t >= g.T) return;
    const size_t at = ((size_t)b * g.T + t) * g.D + d;
    const float v = t < real_tokens(g, b) ? source_grad(g, dy, b, t, d) : 0;
    store(dx + at, g.accumulate ? v + load(dx + at) : v);
}

template <class A> static __global__ void conv_tail_bwd(conv_args g, const A *dy)
{
    const int d = blockIdx.x * 32 + threadIdx.x, b = blockIdx.y;
    if (d >= g.D) return;
    for (int j = 0; j < MR_TAIL; j++) g.dtail_in[((size_t)b * MR_TAIL + j) * g.D + d] = g.tail_in ? source_grad(g, dy, b, j - MR_TAIL, d) : 0;
}

/* Gradients of the taps: a block walks CONV_ROWS tokens of one sequence; partial [B·spans, 5, D]. */
enum { CONV_ROWS = 256 };

template <class A> static __global__ void conv_weights(conv_args g, const A *x, const A *dy, float *partial)
{
    __shared__ float tile[8][5][32];
    const int d = blockIdx.x * 32 + threadIdx.x, b = blockIdx.z, first = blockIdx.y * CONV_ROWS;
    const int last = min(real_tokens(g, b), first + CONV_ROWS);
    float sum[5] = {0, 0, 0, 0, 0};
    for (int t = first + threadIdx.y; d < g.D && t < last; t += 8) {
        const float gy = load(dy + ((size_t)b * g.T + t) * g.D + d);
        for (int j = 0; j < MR_CONV; j++)
            if (visible(g, b, t - MR_TAIL + j, t)) sum[j] += gy * input_at(g, x, b, t - MR_TAIL + j, d);
        sum[4] += gy;
    }
    for (int j = 0; j < 5; j++) tile[threadIdx.y][j][threadIdx.x] = sum[j];
    __syncthreads();
    if (threadIdx.y >= 5 || d >= g.D) return;
    float v = 0;
    for (int i = 0; i < 8; i++) v += tile[i][threadIdx.y][threadIdx.x];
    partial[(((size_t)b * gridDim.y + blockIdx.y) * 5 + threadIdx.y) * g.D + d] = v;
}

static __global__ void add_conv_grads(int rows, int D, const float *partial, float *dw, float *db)
{
    const int d = blockIdx.x * 32 + threadIdx.x, j = threadIdx.y;
    if (d >= D) return;
    float v = 0;
    for (int r = 0; r < rows; r++) v += partial[((size_t)r * 5 + j) * D + d];
    if (j < MR_CONV) dw[d * MR_CONV + j] += v;
    else db[d] += v;
}

static conv_args conv_args_of(int B, int T, int D, const mr_real *w, const mr_real *tail_in, const uint8_t *reset, const int32_t *length)
{
    conv_args g = {};
    g.B = B, g.T = T, g.D = D, g.w = (const float *)w, g.tail_in = (const float *)tail_in, g.reset = reset, g.length = length;
    return g;
}

template <class A> static void conv_launch(mr_cuda *c, const mr_conv_fwd_args *a)
{
    conv_args g = conv_args_of(a->B, a->T, a->D, a->w, a->tail_in, a->reset, a->length);
    const unsigned columns = (unsigned)div_up((size_t)a->D, 32);
    g.b = (const float *)a->b;
    g.tail_out = (float *)a->tail_out;
    conv_tokens<A><<<dim3(columns, (unsigned)div_up((size_t)a->T, 8), (unsigned)a->B), dim3(32, 8), 0, c->stream>>>(g, (const A *)a->x, (A *)a->y);
    if (a->tail_out) conv_tail<A><<<dim3(columns, (unsigned)a->B), 32, 0, c->stream>>>(g, (const A *)a->x);
    LAUNCHED(c, "conv_tokens");
}

template <class A> static void conv_bwd_launch(mr_cuda *c, const mr_conv_bwd_args *a)
{
    conv_args g = conv_args_of(a->B, a->T, a->D, a->w, a->tail_in, a->reset, a->length);
    const unsigned columns = (unsigned)div_up((size_t)a->D, 32), spans = (unsigned)div_up((size_t)a->T, CONV_ROWS);
    float *partial = (float *)mr_cuda_scratch(c, (size_t)a->B * spans * 5 * (size_t)a->D * sizeof(float));
    if (!partial) return;
    g.dtail_out = (const float *)a->dtail_out;
    g.dtail_in = (float *)a->dtail_in;
    g.accumulate = a->accumulate;
    conv_weights<A><<<dim3(columns, spans, (unsigned)a->B), dim3(32, 8), 0, c->stream>>>(g, (const A *)a->x, (const A *)a->dy, partial);
    add_conv_grads<<<columns, dim3(32, 5), 0, c->stream>>>(a->B * (int)spans, a->D, partial, (float *)a->dw, (float *)a->db);
    conv_tokens_bwd<A><<<dim3(columns, (unsigned)div_up((size_t)a->T, 8), (unsigned)a->B), dim3(32, 8), 0, c->stream>>>(g, (const A *)a->dy, (A *)a->dx);
    if (a->dtail_in) conv_tail_bwd<A><<<dim3(columns, (unsigned)a->B), 32, 0, c->stream>>>(g, (const A *)a->dy);
    LAUNCHED(c, "conv_bwd");
}

static void conv_fwd(mr_dev *dev, const mr_conv_fwd_args *a) { BY_ACT(cuda_of(dev), conv_launch, cuda_of(dev), a); }
static void conv_bwd(mr_dev *dev, const mr_conv_bwd_args *a) { BY_ACT(cuda_of(dev), conv_bwd_launch, cuda_of(dev), a); }

/* ---- pooling ---- */

template <class A> static __global__ void pool_tokens(int T, int D, int mean, const int32_t *length, const A *x, A *y)
{
    __shared__ float tile[8][32];
    const int d = blockIdx.x * 32 + threadIdx.x, b = blockIdx.y, last = length ? length[b] : T, first = mean ? 0 : last - 1;
    float sum = 0;
    for (int t = first + threadIdx.y; d < D && t < last; t += 8) sum += load(x + ((size_t)b * T + t) * D + d);
    tile[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || d >= D) return;
    for (int i = 1; i < 8; i++) sum += tile[i][threadIdx.x];
    store(y + (size_t)b * D + d, sum / (last - first));
}

template <class A> static __global__ void pool_tokens_bwd(int T, int D, int mean, const int32_t *length, const A *dy, A *dx)
{
    const int d = blockIdx.x * 32 + threadIdx.x, b = blockIdx.z, t = blockIdx.y * 8 + threadIdx.y;
    const int last = length ? length[b] : T, first = mean ? 0 : last - 1;
    if (d >= D || t >= T) return;
    store(dx + ((size_t)b * T + t) * D + d, t >= first && t < last ? load(dy + (size_t)b * D + d) / (last - first) : 0.0f);
}

template <class A> static void pool_launch(mr_cuda *c, const mr_pool_fwd_args *a)
{
    pool_tokens<A><<<dim3((unsigned)div_up((size_t)a->D, 32), (unsigned)a->B), dim3(32, 8), 0, c->stream>>>(a->T, a->D, a->kind == MR_POOL_MEAN, a->length,
                                                                                                         (const A *)a->x, (A *)a->y);
    LAUNCHED(c, "pool_tokens");
}

template <class A> static void pool_bwd_launch(mr_cuda *c, const mr_pool_bwd_args *a)
{
    dim3 grid((unsigned)div_up((size_t)a->D, 32), (unsigned)div_up((size_t)a->T, 8), (unsigned)a->B);
    pool_tokens_bwd<A><<<grid, dim3(32, 8), 0, c->stream>>>(a->T, a->D, a->kind == MR_POOL_MEAN, a->length, (const A *)a->dy, (A *)a->dx);
    LAUNCHED(c, "pool_tokens_bwd");
}

static void pool_fwd(mr_dev *dev, const mr_pool_fwd_args *a) { BY_ACT(cuda_of(dev), pool_launch, cuda_of(dev), a); }
static void pool_bwd(mr_dev *dev, const mr_pool_bwd_args *a) { BY_ACT(cuda_of(dev), pool_bwd_launch, cuda_of(dev), a); }

void mr_cuda_time_ops(mr_ops *ops)
{
    ops->conv_fwd = conv_fwd;
    ops->conv_bwd = conv_bwd;
    ops->pool_fwd = pool_fwd;
    ops->pool_bwd = pool_bwd;
}
