/* Ops along time other than the scan: the short convolution, pooling, and pairs of pooled rows. */
#include "ops/cuda/cuda.cuh"

/* ---- the convolution: a thread takes one channel through a span of one sequence, with the past inputs (or, backward,
 * the future gradients) that it needs in registers. A reset clears them, so both directions treat it alike. ---- */

struct conv_args {
    int B, T, D, spans;
    const float *w, *b, *tail_in, *dtail_out;
    const uint8_t *reset;
    const int32_t *length;
    float *tail_out, *dtail_in, *partial; /* partial: [B, spans, 5, D] gradients of the taps and the bias */
    int accumulate;
};

enum { SPAN = 64, AHEAD = 8, SPAN_WARPS = 4 };

struct walk {
    int b, d, span, first, last, real;
};

static __device__ __forceinline__ walk my_walk(const conv_args &g)
{
    walk s;
    s.d = blockIdx.x * 32 + threadIdx.x;
    s.span = blockIdx.y * SPAN_WARPS + threadIdx.y;
    s.b = blockIdx.z;
    s.first = s.span * SPAN;
    s.last = min(g.T, s.first + SPAN);
    s.real = g.length ? g.length[s.b] : g.T;
    return s;
}

static __device__ __forceinline__ bool resets(const conv_args &g, const walk &s, int t)
{
    return g.reset && g.reset[(size_t)s.b * g.T + t];
}

/* The three inputs before token t, oldest first, as token t − 1 left them. */
template <class A>
static __device__ __forceinline__ void past(const conv_args &g, const walk &s, const A *x, int t, float *window)
{
    for (int k = 0; k < MR_TAIL; k++) {
        const int source = t - MR_TAIL + k;
        window[k] = 0;
        if (source >= 0) {
            if (resets(g, s, source)) window[0] = window[1] = window[2] = 0;
            window[k] = load(x + (size_t)source * g.D);
        } else if (g.tail_in) window[k] = g.tail_in[((size_t)s.b * MR_TAIL + source + MR_TAIL) * g.D + s.d];
    }
}

template <class A> static __global__ void conv_walk(conv_args g, const A *__restrict__ all_x, A *__restrict__ all_y)
{
    const walk s = my_walk(g);
    if (s.d >= g.D || s.first >= g.T) return;
    const A *x = all_x + (size_t)s.b * g.T * g.D + s.d;
    A *y = all_y + (size_t)s.b * g.T * g.D + s.d;
    const float4 w = make_float4(g.w[s.d * 4], g.w[s.d * 4 + 1], g.w[s.d * 4 + 2], g.w[s.d * 4 + 3]);
    const float bias = g.b[s.d];
    float p[MR_TAIL];
    past(g, s, x, s.first, p);
    for (int base = s.first; base < s.last; base += AHEAD) {
        float in[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) in[k] = base + k < s.last ? load(x + (size_t)(base + k) * g.D) : 0;
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const int t = base + k;
            if (t >= s.last) break;
            if (resets(g, s, t)) p[0] = p[1] = p[2] = 0;
            const float v = bias + w.x * p[0] + w.y * p[1] + w.z * p[2] + w.w * in[k];
            store(y + (size_t)t * g.D, t < s.real ? v : 0.0f);
            p[0] = p[1], p[1] = p[2], p[2] = in[k];
        }
    }
}

/* tail_out may be tail_in: all of it is read before any of it is written. */
template <class A> static __global__ void conv_tail(conv_args g, const A *x)
{
    walk s = {};
    s.d = blockIdx.x * 32 + threadIdx.x, s.b = blockIdx.y;
    if (s.d >= g.D) return;
    float tail[MR_TAIL];
    past(g, s, x + (size_t)s.b * g.T * g.D + s.d, g.length ? g.length[s.b] : g.T, tail);
    for (int j = 0; j < MR_TAIL; j++) g.tail_out[((size_t)s.b * MR_TAIL + j) * g.D + s.d] = tail[j];
}

/* One token per stream: output and new tail together; tail_out may be tail_in. */
template <class A> static __global__ void conv_one(conv_args g, const A *x, A *y)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    walk s = {};
    s.b = i / g.D, s.d = i % g.D;
    if (s.b >= g.B) return;
    float p[MR_TAIL];
    past(g, s, x + i, 0, p);
    if (resets(g, s, 0)) p[0] = p[1] = p[2] = 0;
    const float own = load(x + i);
    store(y + i,
          g.b[s.d] + g.w[s.d * 4] * p[0] + g.w[s.d * 4 + 1] * p[1] + g.w[s.d * 4 + 2] * p[2] + g.w[s.d * 4 + 3] * own);
    if (!g.tail_out) return;
    const float tail[MR_TAIL] = {p[1], p[2], own};
    for (int j = 0; j < MR_TAIL; j++) g.tail_out[((size_t)s.b * MR_TAIL + j) * g.D + s.d] = tail[j];
}

/* The backward, from the last token: `next` holds dy of the three following tokens, nearest first,
 * where they see this input. */
struct future {
    float next[MR_TAIL];
    float sum[5];
};

/* Returns the gradient of an input with value x, and adds its share to those of the taps.
 * own: dy of the token itself. */
static __device__ __forceinline__ float take_input(future &f, const float4 &w, float x, float own)
{
    f.sum[0] += f.next[2] * x;
    f.sum[1] += f.next[1] * x;
    f.sum[2] += f.next[0] * x;
    f.sum[3] += own * x;
    f.sum[4] += own;
    return w.w * own + w.z * f.next[0] + w.y * f.next[1] + w.x * f.next[2];
}

static __device__ __forceinline__ void step_down(future &f, bool reset, float own)
{
    f.next[2] = reset ? 0 : f.next[1];
    f.next[1] = reset ? 0 : f.next[0];
    f.next[0] = reset ? 0 : own;
}

/* The gradient that dtail_out gives to input `source`: it is in tail_out unless a reset came in between. */
static __device__ __forceinline__ float from_tail(const conv_args &g, const walk &s, int source)
{
    const int row = source - (s.real - MR_TAIL);
    if (!g.dtail_out || row < 0 || row >= MR_TAIL) return 0;
    for (int t = max(0, source + 1); t < s.real; t++)
        if (resets(g, s, t)) return 0;
    return g.dtail_out[((size_t)s.b * MR_TAIL + row) * g.D + s.d];
}

/* Continues over the inputs before token 0: the carried tail. */
static __device__ __forceinline__ void walk_tail(const conv_args &g, const walk &s, future &f, const float4 &w)
{
    for (int source = -1; source >= -MR_TAIL; source--) {
        const size_t at = ((size_t)s.b * MR_TAIL + source + MR_TAIL) * g.D + s.d;
        const float dx = take_input(f, w, g.tail_in ? g.tail_in[at] : 0, 0) + from_tail(g, s, source);
        if (g.dtail_in) g.dtail_in[at] = g.tail_in ? dx : 0;
        step_down(f, false, 0);
    }
}

template <class A>
static __global__ void conv_walk_bwd(conv_args g, const A *__restrict__ all_x, const A *__restrict__ all_dy,
                                     A *__restrict__ all_dx)
{
    const walk s = my_walk(g);
    if (s.d >= g.D || s.first >= g.T) return;
    const size_t row = (size_t)s.b * g.T * g.D + s.d;
    const A *x = all_x + row, *dy = all_dy + row;
    A *dx = all_dx + row;
    const float4 w = make_float4(g.w[s.d * 4], g.w[s.d * 4 + 1], g.w[s.d * 4 + 2], g.w[s.d * 4 + 3]);
    future f = {};
    for (int t = min(s.last + MR_TAIL, s.real) - 1; t >= s.last; t--)
        step_down(f, resets(g, s, t), load(dy + (size_t)t * g.D));
    for (int base = s.last - 1; base >= s.first; base -= AHEAD) {
        float in[AHEAD], own[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const bool here = base - k >= s.first && base - k < s.real;
            in[k] = here ? load(x + (size_t)(base - k) * g.D) : 0;
            own[k] = here ? load(dy + (size_t)(base - k) * g.D) : 0;
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const int t = base - k;
            if (t < s.first) break;
            float v = 0;
            if (t < s.real) {
                v = take_input(f, w, in[k], own[k]) + from_tail(g, s, t);
                step_down(f, resets(g, s, t), own[k]);
            }
            store(dx + (size_t)t * g.D, g.accumulate ? v + load(dx + (size_t)t * g.D) : v);
        }
    }
    if (s.first == 0) walk_tail(g, s, f, w);
    for (int j = 0; j < 5; j++) g.partial[(((size_t)s.b * g.spans + s.span) * 5 + j) * g.D + s.d] = f.sum[j];
}

/* Adds the spans' shares to dw [D, 4] and db [D], in order. */
static __global__ void add_conv_grads(int rows, int D, const float *partial, float *dw, float *db)
{
    __shared__ float tile[16][32];
    const int d = blockIdx.x * 32 + threadIdx.x, j = blockIdx.y;
    float v = 0;
    for (int r = threadIdx.y; d < D && r < rows; r += 16) v += partial[((size_t)r * 5 + j) * D + d];
    tile[threadIdx.y][threadIdx.x] = v;
    __syncthreads();
    if (threadIdx.y || d >= D) return;
    for (int i = 1; i < 16; i++) v += tile[i][threadIdx.x];
    if (j < MR_CONV) dw[d * MR_CONV + j] += v;
    else db[d] += v;
}

static conv_args conv_args_of(int B, int T, int D, const mr_real *w, const mr_real *tail_in, const uint8_t *reset,
                              const int32_t *length)
{
    conv_args g = {};
    g.B = B, g.T = T, g.D = D, g.w = (const float *)w, g.tail_in = (const float *)tail_in, g.reset = reset,
    g.length = length;
    g.spans = (int)div_up((size_t)T, SPAN);
    return g;
}

static dim3 conv_grid(const conv_args &g)
{
    return dim3((unsigned)div_up((size_t)g.D, 32), (unsigned)div_up((size_t)g.spans, SPAN_WARPS), (unsigned)g.B);
}

template <class A> static void conv_launch(mr_cuda *c, const mr_conv_fwd_args *a)
{
    conv_args g = conv_args_of(a->B, a->T, a->D, a->w, a->tail_in, a->reset, a->length);
    g.b = (const float *)a->b;
    g.tail_out = (float *)a->tail_out;
    if (g.T == 1) {
        conv_one<A>
            <<<(unsigned)div_up((size_t)g.B * (size_t)g.D, 128), 128, 0, c->stream>>>(g, (const A *)a->x, (A *)a->y);
        LAUNCHED(c, "conv_one");
        return;
    }
    conv_walk<A><<<conv_grid(g), dim3(32, SPAN_WARPS), 0, c->stream>>>(g, (const A *)a->x, (A *)a->y);
    if (a->tail_out)
        conv_tail<A>
            <<<dim3((unsigned)div_up((size_t)a->D, 32), (unsigned)a->B), 32, 0, c->stream>>>(g, (const A *)a->x);
    LAUNCHED(c, "conv_walk");
}

template <class A> static void conv_bwd_launch(mr_cuda *c, const mr_conv_bwd_args *a)
{
    conv_args g = conv_args_of(a->B, a->T, a->D, a->w, a->tail_in, a->reset, a->length);
    g.partial = (float *)mr_cuda_scratch(c, (size_t)a->B * (size_t)g.spans * 5 * (size_t)a->D * sizeof(float));
    if (!g.partial) return;
    g.dtail_out = (const float *)a->dtail_out;
    g.dtail_in = (float *)a->dtail_in;
    g.accumulate = a->accumulate;
    conv_walk_bwd<A>
        <<<conv_grid(g), dim3(32, SPAN_WARPS), 0, c->stream>>>(g, (const A *)a->x, (const A *)a->dy, (A *)a->dx);
    add_conv_grads<<<dim3((unsigned)div_up((size_t)a->D, 32), 5), dim3(32, 16), 0, c->stream>>>(
        a->B * g.spans, a->D, g.partial, (float *)a->dw, (float *)a->db);
    LAUNCHED(c, "conv_walk_bwd");
}

static void conv_fwd(mr_dev *dev, const mr_conv_fwd_args *a) { BY_ACT(cuda_of(dev), conv_launch, cuda_of(dev), a); }
static void conv_bwd(mr_dev *dev, const mr_conv_bwd_args *a) { BY_ACT(cuda_of(dev), conv_bwd_launch, cuda_of(dev), a); }

/* ---- pooling ---- */

template <class A> static __global__ void pool_tokens(int T, int D, int mean, const int32_t *length, const A *x, A *y)
{
    __shared__ float tile[8][32];
    const int d = blockIdx.x * 32 + threadIdx.x, b = blockIdx.y, last = length ? length[b] : T,
              first = mean ? 0 : last - 1;
    float sum = 0;
    for (int t = first + threadIdx.y; d < D && t < last; t += 8) sum += load(x + ((size_t)b * T + t) * D + d);
    tile[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || d >= D) return;
    for (int i = 1; i < 8; i++) sum += tile[i][threadIdx.x];
    store(y + (size_t)b * D + d, sum / (last - first));
}

template <class A>
static __global__ void pool_tokens_bwd(int T, int D, int mean, const int32_t *length, const A *dy, A *dx)
{
    const int d = blockIdx.x * 32 + threadIdx.x, b = blockIdx.z, t = blockIdx.y * 8 + threadIdx.y;
    const int last = length ? length[b] : T, first = mean ? 0 : last - 1;
    if (d >= D || t >= T) return;
    store(dx + ((size_t)b * T + t) * D + d,
          t >= first && t < last ? load(dy + (size_t)b * D + d) / (last - first) : 0.0f);
}

template <class A> static void pool_launch(mr_cuda *c, const mr_pool_fwd_args *a)
{
    pool_tokens<A><<<dim3((unsigned)div_up((size_t)a->D, 32), (unsigned)a->B), dim3(32, 8), 0, c->stream>>>(
        a->T, a->D, a->kind == MR_POOL_MEAN, a->length, (const A *)a->x, (A *)a->y);
    LAUNCHED(c, "pool_tokens");
}

template <class A> static void pool_bwd_launch(mr_cuda *c, const mr_pool_bwd_args *a)
{
    dim3 grid((unsigned)div_up((size_t)a->D, 32), (unsigned)div_up((size_t)a->T, 8), (unsigned)a->B);
    pool_tokens_bwd<A><<<grid, dim3(32, 8), 0, c->stream>>>(a->T, a->D, a->kind == MR_POOL_MEAN, a->length,
                                                            (const A *)a->dy, (A *)a->dx);
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

void mr_cuda_time_ops(mr_ops *ops)
{
    ops->conv_fwd = conv_fwd;
    ops->conv_bwd = conv_bwd;
    ops->pool_fwd = pool_fwd;
    ops->pool_bwd = pool_bwd;
    ops->pair_fwd = pair_fwd;
    ops->pair_bwd = pair_bwd;
}
