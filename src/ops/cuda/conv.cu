/* The convolution over time: a thread takes V neighbouring channels through a span of one sequence, with the past
 * inputs (or, backward, the future gradients) that it needs in registers. A reset clears them, so both directions treat
 * it alike. K is how many taps a kernel has registers for: 4, 8 or 16. One with fewer has zeros for its first weights.
 * Two channels a thread keep twice as many bytes on their way, which bf16 needs. */
#include "ops/cuda/cuda.cuh"

struct conv_args {
    int B, T, D, spans, taps;
    const float *w, *b, *tail_in, *dtail_out;
    const uint8_t *reset;
    const int32_t *length;
    float *tail_out, *dtail_in, *partial; /* partial: [B, spans, taps + 1, D] gradients of the taps and the bias */
    int accumulate;
};

enum { SPAN = 64, AHEAD = 8, SPAN_WARPS = 4 };

struct walk {
    int b, d, span, first, last, real;
};

template <int V> static __device__ __forceinline__ walk my_walk(const conv_args &g)
{
    walk s;
    s.d = (blockIdx.x * 32 + threadIdx.x) * V; /* the first of V */
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

/* The weights of a channel, after K − taps zeros. */
template <int K> static __device__ __forceinline__ void weights_of(const conv_args &g, int d, float *w)
{
#pragma unroll
    for (int j = 0; j < K; j++) w[j] = j < K - g.taps ? 0 : g.w[(size_t)d * g.taps + j - (K - g.taps)];
}

/* Where row `source` < 0 of a tail array lies. */
static __device__ __forceinline__ size_t tail_at(const conv_args &g, const walk &s, int source)
{
    return ((size_t)s.b * (g.taps - 1) + source + g.taps - 1) * g.D + s.d;
}

template <int N> static __device__ __forceinline__ void clear(float *p)
{
#pragma unroll
    for (int k = 0; k < N; k++) p[k] = 0;
}

/* The K − 1 inputs of channel s.d + v before token t, oldest first, as token t − 1 left them. */
template <class A, int K>
static __device__ __forceinline__ void past(const conv_args &g, const walk &s, int v, const A *x, int t, float *window)
{
#pragma unroll
    for (int k = 0; k < K - 1; k++) {
        const int source = t - (K - 1) + k;
        window[k] = 0;
        if (source >= 0) {
            if (resets(g, s, source)) clear<K - 1>(window);
            window[k] = load(x + (size_t)source * g.D + v);
        } else if (g.tail_in && source >= 1 - g.taps) window[k] = g.tail_in[tail_at(g, s, source) + v];
    }
}

/* bias + Σ w·inputs: the past, and the token's own. */
template <int K> static __device__ __forceinline__ float weigh(float bias, const float *w, const float *past, float own)
{
#pragma unroll
    for (int j = 0; j < K - 1; j++) bias += w[j] * past[j];
    return bias + w[K - 1] * own;
}

template <int K> static __device__ __forceinline__ void shift_in(float *past, float own)
{
#pragma unroll
    for (int j = 0; j < K - 2; j++) past[j] = past[j + 1];
    past[K - 2] = own;
}

template <class A, int K, int V>
static __global__ void conv_walk(conv_args g, const A *__restrict__ all_x, A *__restrict__ all_y)
{
    typedef lanes<A, V> pack;
    const walk s = my_walk<V>(g);
    if (s.d >= g.D || s.first >= g.T) return;
    const A *x = all_x + (size_t)s.b * g.T * g.D + s.d;
    A *y = all_y + (size_t)s.b * g.T * g.D + s.d;
    float w[V][K], p[V][K - 1], bias[V];
#pragma unroll
    for (int v = 0; v < V; v++) {
        bias[v] = g.b[s.d + v];
        weights_of<K>(g, s.d + v, w[v]);
        past<A, K>(g, s, v, x, s.first, p[v]);
    }
    for (int base = s.first; base < s.last; base += AHEAD) {
        typename pack::raw in[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (base + k < s.last) in[k] = *(const typename pack::raw *)(x + (size_t)(base + k) * g.D);
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const int t = base + k;
            if (t >= s.last) break;
            const bool cut = resets(g, s, t);
            float own[V], out[V];
            pack::expand(in[k], own);
#pragma unroll
            for (int v = 0; v < V; v++) {
                if (cut) clear<K - 1>(p[v]);
                out[v] = t < s.real ? weigh<K>(bias[v], w[v], p[v], own[v]) : 0.0f;
                shift_in<K>(p[v], own[v]);
            }
            *(typename pack::raw *)(y + (size_t)t * g.D) = pack::pack(out);
        }
    }
}

/* The last `taps` − 1 of K − 1 inputs. */
template <int K> static __device__ __forceinline__ void write_tail(const conv_args &g, const walk &s, const float *tail)
{
#pragma unroll
    for (int j = 0; j < K - 1; j++)
        if (j >= K - g.taps) g.tail_out[tail_at(g, s, j - (K - 1))] = tail[j];
}

/* tail_out may be tail_in: all of it is read before any of it is written. */
template <class A, int K> static __global__ void conv_tail(conv_args g, const A *x)
{
    walk s = {};
    s.d = blockIdx.x * 32 + threadIdx.x, s.b = blockIdx.y;
    if (s.d >= g.D) return;
    float tail[K - 1];
    past<A, K>(g, s, 0, x + (size_t)s.b * g.T * g.D + s.d, g.length ? g.length[s.b] : g.T, tail);
    write_tail<K>(g, s, tail);
}

/* One token per stream: output and new tail together; tail_out may be tail_in. */
template <class A, int K> static __global__ void conv_one(conv_args g, const A *x, A *y)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    walk s = {};
    s.b = i / g.D, s.d = i % g.D;
    if (s.b >= g.B) return;
    float w[K], p[K - 1];
    weights_of<K>(g, s.d, w);
    past<A, K>(g, s, 0, x + i, 0, p);
    if (resets(g, s, 0)) clear<K - 1>(p);
    const float own = load(x + i);
    store(y + i, weigh<K>(g.b[s.d], w, p, own));
    if (!g.tail_out) return;
    shift_in<K>(p, own);
    write_tail<K>(g, s, p);
}

/* The backward, from the last token: `next` holds dy of the K − 1 following tokens, nearest first, where they see this
 * input. */
template <int K> struct future {
    float next[K - 1];
    float sum[K + 1]; /* gradients of the taps, and of the bias */
};

/* Returns the gradient of an input with value x, and adds its share to those of the taps.
 * own: dy of the token itself. */
template <int K> static __device__ __forceinline__ float take_input(future<K> &f, const float *w, float x, float own)
{
    float dx = w[K - 1] * own;
#pragma unroll
    for (int j = 0; j < K - 1; j++) f.sum[j] += f.next[K - 2 - j] * x, dx += w[K - 2 - j] * f.next[j];
    f.sum[K - 1] += own * x;
    f.sum[K] += own;
    return dx;
}

template <int K> static __device__ __forceinline__ void step_down(future<K> &f, bool reset, float own)
{
#pragma unroll
    for (int j = K - 2; j > 0; j--) f.next[j] = reset ? 0 : f.next[j - 1];
    f.next[0] = reset ? 0 : own;
}

/* The gradient that dtail_out gives to input `source` of channel s.d + v: it is in tail_out unless a reset came in
 * between. */
static __device__ __forceinline__ float from_tail(const conv_args &g, const walk &s, int v, int source)
{
    const int past = g.taps - 1, row = source - (s.real - past);
    if (!g.dtail_out || row < 0 || row >= past) return 0;
    for (int t = max(0, source + 1); t < s.real; t++)
        if (resets(g, s, t)) return 0;
    return g.dtail_out[((size_t)s.b * past + row) * g.D + s.d + v];
}

/* Continues over the inputs before token 0: the carried tail. Not unrolled: ptxas 13.0 then leaves out the last row. */
template <int K>
static __device__ __forceinline__ void walk_tail(const conv_args &g, const walk &s, int v, future<K> &f, const float *w)
{
#pragma unroll 1
    for (int source = -1; source > -g.taps; source--) {
        const size_t at = tail_at(g, s, source) + v;
        const float dx = take_input(f, w, g.tail_in[at], 0) + from_tail(g, s, v, source);
        if (g.dtail_in) g.dtail_in[at] = dx;
        step_down(f, false, 0);
    }
}

/* One token of the backward, for V channels: their gradients go to dx. */
template <class A, int K, int V>
static __device__ __forceinline__ void token_bwd(const conv_args &g, const walk &s, int t, future<K> (&f)[V],
                                                 const float (&w)[V][K], typename lanes<A, V>::raw x,
                                                 typename lanes<A, V>::raw dy, A *dx)
{
    typedef lanes<A, V> pack;
    float in[V], own[V], out[V], old[V];
    if (t < s.real) {
        const bool cut = resets(g, s, t);
        pack::expand(x, in);
        pack::expand(dy, own);
#pragma unroll
        for (int v = 0; v < V; v++) {
            out[v] = take_input(f[v], w[v], in[v], own[v]) + from_tail(g, s, v, t);
            step_down(f[v], cut, own[v]);
        }
    } else clear<V>(out);
    if (g.accumulate) {
        pack::expand(*(const typename pack::raw *)dx, old);
#pragma unroll
        for (int v = 0; v < V; v++) out[v] += old[v];
    }
    *(typename pack::raw *)dx = pack::pack(out);
}

template <class A, int K, int V>
static __global__ void conv_walk_bwd(conv_args g, const A *__restrict__ all_x, const A *__restrict__ all_dy,
                                     A *__restrict__ all_dx)
{
    typedef typename lanes<A, V>::raw raw;
    const walk s = my_walk<V>(g);
    if (s.d >= g.D || s.first >= g.T) return;
    const size_t row = (size_t)s.b * g.T * g.D + s.d;
    const A *x = all_x + row, *dy = all_dy + row;
    A *dx = all_dx + row;
    float w[V][K];
    future<K> f[V] = {};
#pragma unroll
    for (int v = 0; v < V; v++) {
        weights_of<K>(g, s.d + v, w[v]);
        for (int t = min(s.last + g.taps - 1, s.real) - 1; t >= s.last; t--)
            step_down(f[v], resets(g, s, t), load(dy + (size_t)t * g.D + v));
    }
    for (int base = s.last - 1; base >= s.first; base -= AHEAD) {
        raw in[AHEAD] = {}, own[AHEAD] = {};
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            if (base - k < s.first || base - k >= s.real) continue;
            in[k] = *(const raw *)(x + (size_t)(base - k) * g.D);
            own[k] = *(const raw *)(dy + (size_t)(base - k) * g.D);
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (base - k >= s.first)
                token_bwd<A, K, V>(g, s, base - k, f, w, in[k], own[k], dx + (size_t)(base - k) * g.D);
    }
#pragma unroll
    for (int v = 0; v < V; v++) {
        if (s.first == 0 && g.tail_in) walk_tail(g, s, v, f[v], w[v]);
#pragma unroll
        for (int j = 0; j < K + 1; j++) {
            const int row = j - (K - g.taps);
            if (row >= 0)
                g.partial[(((size_t)s.b * g.spans + s.span) * (g.taps + 1) + row) * g.D + s.d + v] = f[v].sum[j];
        }
    }
}

/* Adds the spans' shares to dw [D, taps] and db [D], in order. */
static __global__ void add_conv_grads(int rows, int D, int taps, const float *partial, float *dw, float *db)
{
    __shared__ float tile[16][32];
    const int d = blockIdx.x * 32 + threadIdx.x, j = blockIdx.y;
    float v = 0;
    for (int r = threadIdx.y; d < D && r < rows; r += 16) v += partial[((size_t)r * (taps + 1) + j) * D + d];
    tile[threadIdx.y][threadIdx.x] = v;
    __syncthreads();
    if (threadIdx.y || d >= D) return;
    for (int i = 1; i < 16; i++) v += tile[i][threadIdx.x];
    if (j < taps) dw[(size_t)d * taps + j] += v;
    else db[d] += v;
}

static conv_args conv_args_of(int B, int T, int D, int taps, const mr_real *w, const mr_real *tail_in,
                              const uint8_t *reset, const int32_t *length)
{
    conv_args g = {};
    g.B = B, g.T = T, g.D = D, g.taps = taps, g.w = (const float *)w, g.tail_in = (const float *)tail_in,
    g.reset = reset, g.length = length;
    g.spans = (int)div_up((size_t)T, SPAN);
    return g;
}

static dim3 conv_grid(const conv_args &g, int channels)
{
    return dim3((unsigned)div_up((size_t)g.D, 32 * (size_t)channels), (unsigned)div_up((size_t)g.spans, SPAN_WARPS),
                (unsigned)g.B);
}

/* Whether a thread can take two channels: the rows of all three arrays begin at multiples of two. */
template <class A> static bool in_pairs(int D, const void *one, const void *two, const void *three)
{
    return D % 2 == 0 && ((uintptr_t)one | (uintptr_t)two | (uintptr_t)three) % (2 * sizeof(A)) == 0;
}

template <class A, int K, int V> static void walk_up(mr_cuda *c, const conv_args &g, const mr_conv_fwd_args *a)
{
    conv_walk<A, K, V><<<conv_grid(g, V), dim3(32, SPAN_WARPS), 0, c->stream>>>(g, (const A *)a->x, (A *)a->y);
}

template <class A, int K> static void forward(mr_cuda *c, const conv_args &g, const mr_conv_fwd_args *a)
{
    if (g.T == 1 && !g.length) {
        conv_one<A, K>
            <<<(unsigned)div_up((size_t)g.B * (size_t)g.D, 128), 128, 0, c->stream>>>(g, (const A *)a->x, (A *)a->y);
        LAUNCHED(c, "conv_one");
        return;
    }
    if (K == 4 && in_pairs<A>(g.D, a->x, a->y, NULL)) walk_up<A, K, K == 4 ? 2 : 1>(c, g, a);
    else walk_up<A, K, 1>(c, g, a);
    if (g.tail_out && g.taps > 1)
        conv_tail<A, K>
            <<<dim3((unsigned)div_up((size_t)g.D, 32), (unsigned)g.B), 32, 0, c->stream>>>(g, (const A *)a->x);
    LAUNCHED(c, "conv_walk");
}

template <class A> static void by_taps(mr_cuda *c, const conv_args &g, const mr_conv_fwd_args *a)
{
    if (g.taps <= 4) forward<A, 4>(c, g, a);
    else if (g.taps <= 8) forward<A, 8>(c, g, a);
    else forward<A, MR_TAPS_MOST>(c, g, a);
}

template <class A, int K, int V> static void walk_down(mr_cuda *c, const conv_args &g, const mr_conv_bwd_args *a)
{
    conv_walk_bwd<A, K, V>
        <<<conv_grid(g, V), dim3(32, SPAN_WARPS), 0, c->stream>>>(g, (const A *)a->x, (const A *)a->dy, (A *)a->dx);
}

template <class A, int K> static void backward(mr_cuda *c, const conv_args &g, const mr_conv_bwd_args *a)
{
    if (K == 4 && in_pairs<A>(g.D, a->x, a->dy, a->dx)) walk_down<A, K, K == 4 ? 2 : 1>(c, g, a);
    else walk_down<A, K, 1>(c, g, a);
}

template <class A> static void by_taps(mr_cuda *c, const conv_args &g, const mr_conv_bwd_args *a)
{
    if (g.taps <= 4) backward<A, 4>(c, g, a);
    else if (g.taps <= 8) backward<A, 8>(c, g, a);
    else backward<A, MR_TAPS_MOST>(c, g, a);
}

static void conv_fwd(mr_dev *dev, const mr_conv_fwd_args *a)
{
    conv_args g = conv_args_of(a->B, a->T, a->D, a->taps, a->w, a->tail_in, a->reset, a->length);
    g.b = (const float *)a->b;
    g.tail_out = (float *)a->tail_out;
    BY_ACT(cuda_of(dev), by_taps, cuda_of(dev), g, a);
}

static void conv_bwd(mr_dev *dev, const mr_conv_bwd_args *a)
{
    mr_cuda *c = cuda_of(dev);
    conv_args g = conv_args_of(a->B, a->T, a->D, a->taps, a->w, a->tail_in, a->reset, a->length);
    const size_t rows = (size_t)a->B * (size_t)g.spans, sums = (size_t)a->taps + 1;
    g.partial = (float *)mr_cuda_scratch(c, rows * sums * (size_t)a->D * sizeof(float));
    if (!g.partial) return;
    g.dtail_out = (const float *)a->dtail_out;
    g.accumulate = a->accumulate;
    if (a->tail_in) g.dtail_in = (float *)a->dtail_in;
    else if (a->dtail_in)
        CHECK(c, cudaMemsetAsync(a->dtail_in, 0, (size_t)a->B * (size_t)(a->taps - 1) * (size_t)a->D * sizeof(float),
                                 c->stream));
    BY_ACT(c, by_taps, c, g, a);
    add_conv_grads<<<dim3((unsigned)div_up((size_t)a->D, 32), (unsigned)sums), dim3(32, 16), 0, c->stream>>>(
        (int)rows, a->D, a->taps, g.partial, (float *)a->dw, (float *)a->db);
    LAUNCHED(c, "conv_walk_bwd");
}

/* ---- the tail alone */

template <class A, int K> static void tail_of(mr_cuda *c, const conv_args &g, const mr_act *x)
{
    conv_tail<A, K><<<dim3((unsigned)div_up((size_t)g.D, 32), (unsigned)g.B), 32, 0, c->stream>>>(g, (const A *)x);
    LAUNCHED(c, "conv_tail");
}

template <class A> static void tail_by_taps(mr_cuda *c, const conv_args &g, const mr_act *x)
{
    if (g.taps <= 4) tail_of<A, 4>(c, g, x);
    else if (g.taps <= 8) tail_of<A, 8>(c, g, x);
    else tail_of<A, MR_TAPS_MOST>(c, g, x);
}

static void conv_tail_fwd(mr_dev *dev, const mr_conv_tail_fwd_args *a)
{
    conv_args g = conv_args_of(a->B, a->T, a->D, a->taps, NULL, NULL, a->reset, a->length);
    g.tail_out = (float *)a->tail;
    if (a->taps > 1) BY_ACT(cuda_of(dev), tail_by_taps, cuda_of(dev), g, a->x);
}

template <class A> static __global__ void add_tail_gradient(conv_args g, A *dx)
{
    walk s = {};
    s.d = blockIdx.x * 32 + threadIdx.x, s.b = blockIdx.y;
    if (s.d >= g.D) return;
    s.real = g.length ? g.length[s.b] : g.T;
    for (int source = max(0, s.real - (g.taps - 1)); source < s.real; source++) {
        A *at = dx + ((size_t)s.b * g.T + source) * g.D + s.d;
        store(at, load(at) + from_tail(g, s, 0, source));
    }
}

template <class A> static void add_tail(mr_cuda *c, const conv_args &g, mr_act *dx)
{
    add_tail_gradient<A><<<dim3((unsigned)div_up((size_t)g.D, 32), (unsigned)g.B), 32, 0, c->stream>>>(g, (A *)dx);
    LAUNCHED(c, "add_tail_gradient");
}

static void conv_tail_bwd(mr_dev *dev, const mr_conv_tail_bwd_args *a)
{
    conv_args g = conv_args_of(a->B, a->T, a->D, a->taps, NULL, NULL, a->reset, a->length);
    g.dtail_out = (const float *)a->dtail;
    BY_ACT(cuda_of(dev), add_tail, cuda_of(dev), g, a->dx);
}

void mr_cuda_conv_ops(mr_ops *ops)
{
    ops->conv_tail_fwd = conv_tail_fwd;
    ops->conv_tail_bwd = conv_tail_bwd;
    ops->conv_fwd = conv_fwd;
    ops->conv_bwd = conv_bwd;
}
