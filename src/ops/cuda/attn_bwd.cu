/* Attention, backward, without atomics. First the gradients of queries: a block has 64 of them and loops over rows.
 * Then those of keys and values: a block has 64 rows and loops over queries. Both recompute the softmax. Sums over rows
 * or queries have a fixed order. */
#include "ops/cuda/flash.cuh"

/* mean[b, head, t] = Σ dy·y; one warp per element. */
template <class A>
static __global__ void attn_means(int n, int T, int heads, int size, const A *y, const A *dy, float *mean)
{
    const int i = blockIdx.x * blockDim.y + threadIdx.y;
    if (i >= n) return;
    const int t = i % T, head = i / T % heads, b = i / T / heads;
    const size_t at = (((size_t)b * T + t) * heads + head) * size;
    float sum = 0;
    for (int k = threadIdx.x; k < size; k += 32) sum += load(y + at + k) * load(dy + at + k);
    sum = warp_sum(sum);
    if (threadIdx.x == 0) mean[i] = sum;
}

/* Two neighbouring channels of a row, rotated back by the row's position. */
static __device__ __forceinline__ float2 turned_back(const attn_args &a, int row, int c, float x, float y)
{
    if (a.turns && c < a.g.size) turn_pair(x, y, a.turns[(size_t)row * (a.g.size / 2) + c / 2], -1.0f);
    return make_float2(x, y);
}

/* One element: replaces the score w by its softmax, and d, the gradient of the softmax, by that of the score. */
static __device__ __forceinline__ void soften_bwd(float &w, float &d, bool sees, float scale, float lse, float mean)
{
    w = sees ? exp2f((w * scale - lse) * LOG2_E) : 0;
    d = w * (d - mean) * scale;
}

/* ---- queries ---- */

template <int KIND, int HP, class A> static __global__ void __launch_bounds__(ATTN_THREADS) attn_backward_q(attn_args a)
{
    typedef typename element<KIND>::type E;
    extern __shared__ __align__(16) unsigned char memory[];
    const int LD = tile_row<KIND, HP>::value, LP = tile_row<KIND, TILE>::value, warp = threadIdx.x >> 5,
              g = (threadIdx.x & 31) >> 2, quarter = threadIdx.x & 3;
    E *q = (E *)memory, *dy = q + TILE * LD, *k = dy + TILE * LD, *v = k + TILE * LD,
      *p = v + TILE * LD + warp * 16 * LP;
    const int b = blockIdx.z, head = blockIdx.y, t0 = (gridDim.x - 1 - blockIdx.x) * TILE;
    const mr_attn_stream s = a.streams[b];
    const int *first = a.first + (size_t)b * a.g.T, end = s.carried + min(t0 + TILE, s.real);
    const size_t rows = ((size_t)b * a.g.heads + head) * a.g.T;
    int from[2], own[2];
    float lse[2], mean[2], dq[HP / 8][4] = {};
    for (int i = 0; i < 2; i++) {
        const int t = t0 + warp * 16 + g + i * 8;
        from[i] = t < s.real ? first[t] : INT_MAX;
        own[i] = s.carried + t;
        lse[i] = t < s.real ? a.lse[rows + t] : 0;
        mean[i] = t < s.real ? a.mean[rows + t] : 0;
    }
    if (t0 < s.real) {
        load_rows<KIND, HP, A>(a, s, b, head, ATTN_Q, s.carried + t0, end, q);
        load_tokens<KIND, HP, A>(a, a.dy, b, head, t0, s.real, dy);
    }
    for (int row = t0 < s.real ? first[t0] : end; row < end; row += TILE) {
        float w[TILE / 8][4] = {}, d[TILE / 8][4] = {};
        __syncthreads();
        load_rows<KIND, HP, A>(a, s, b, head, ATTN_K, row, end, k);
        load_rows<KIND, HP, A>(a, s, b, head, ATTN_V, row, end, v);
        __syncthreads();
        product<KIND>::template add<false, HP>(w, q + warp * 16 * LD, LD, k, LD);
        product<KIND>::template add<false, HP>(d, dy + warp * 16 * LD, LD, v, LD);
#pragma unroll
        for (int n = 0; n < TILE / 8; n++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int r = row + n * 8 + 2 * quarter + (j & 1), i = j >> 1;
                soften_bwd(w[n][j], d[n][j], r >= from[i] && r <= own[i], a.scale, lse[i], mean[i]);
            }
        store_sums<KIND>(d, p);
        __syncwarp();
        product<KIND>::template add<true, TILE>(dq, p, LP, k, LD);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int t = t0 + warp * 16 + g + i * 8;
        if (t >= a.g.T) continue;
        A *to = (A *)a.dq + ((size_t)b * a.g.T + t) * a.D + head * a.g.size;
#pragma unroll
        for (int n = 0; n < HP / 8; n++) {
            const int c = n * 8 + 2 * quarter;
            const float2 value = turned_back(a, own[i], c, dq[n][2 * i], dq[n][2 * i + 1]);
            if (c < a.g.size) store(to + c, value.x);
            if (c + 1 < a.g.size) store(to + c + 1, value.y);
        }
    }
}

/* ---- keys and values ---- */

/* Where the gradients of one row are written, and what dcache_out adds to them. */
template <class A> struct row_outputs {
    A *token;          /* gradient of k (v: D further on), or NULL */
    float *cached;     /* the same in dcache_in, or NULL */
    const float *more; /* the same in dcache_out, or NULL */
};

template <class A>
static __device__ __forceinline__ row_outputs<A> outputs_of(const attn_args &a, const mr_attn_stream &s, int b,
                                                            int head, int row)
{
    row_outputs<A> out = {NULL, NULL, NULL};
    const int t = row - s.carried, at = head * a.g.size;
    if (t >= a.g.T) return out;
    int slot;
    if (t >= 0) {
        out.token = (A *)a.dqkv + (((size_t)b * a.g.T + t) * 3 + 1) * a.D + at;
        slot = mr_attn_slot_out(&s, t);
    } else {
        slot = mr_attn_slot_in(&s, a.count[b], row);
        out.cached = a.dcache_in ? a.dcache_in + ((size_t)b * a.g.window + slot) * 2 * a.D + at : NULL;
        if (mr_attn_source(&s, slot) != MR_ATTN_KEPT) slot = -1;
    }
    if (a.dcache_out && slot >= 0) out.more = a.dcache_out + ((size_t)b * a.g.window + slot) * 2 * a.D + at;
    return out;
}

template <class A>
static __device__ __forceinline__ void put(const attn_args &a, const row_outputs<A> &out, int which, int c, float value)
{
    if (c >= a.g.size) return;
    const int at = which * a.D + c;
    if (out.more) value += out.more[at];
    if (out.token) store(out.token + at, value);
    else if (out.cached) out.cached[at] = value;
}

template <int HP, class A>
static __device__ __forceinline__ void write_rows(const attn_args &a, const mr_attn_stream &s, int b, int head, int row,
                                                  const float (&dk)[HP / 8][4], const float (&dv)[HP / 8][4])
{
    const int g = (threadIdx.x & 31) >> 2, quarter = threadIdx.x & 3;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int r = row + (threadIdx.x >> 5) * 16 + g + i * 8;
        if (r >= s.carried + a.g.T) continue;
        const row_outputs<A> out = outputs_of<A>(a, s, b, head, r);
#pragma unroll
        for (int n = 0; n < HP / 8; n++) {
            const int c = n * 8 + 2 * quarter;
            const float2 key = turned_back(a, r, c, dk[n][2 * i], dk[n][2 * i + 1]);
            put(a, out, 0, c, key.x), put(a, out, 0, c + 1, key.y);
            put(a, out, 1, c, dv[n][2 * i]), put(a, out, 1, c + 1, dv[n][2 * i + 1]);
        }
    }
}

/* Facts about the 64 queries of this step. */
struct queries {
    int first[TILE];
    float lse[TILE], mean[TILE];
};

static __device__ __forceinline__ void load_queries(const attn_args &a, const mr_attn_stream &s, int b, int head,
                                                    int t0, queries *to)
{
    const size_t rows = ((size_t)b * a.g.heads + head) * a.g.T;
    for (int i = threadIdx.x; i < TILE; i += ATTN_THREADS) {
        const int t = t0 + i, there = t < s.real;
        to->first[i] = there ? a.first[(size_t)b * a.g.T + t] : INT_MAX;
        to->lse[i] = there ? a.lse[rows + t] : 0;
        to->mean[i] = there ? a.mean[rows + t] : 0;
    }
}

template <int KIND, int HP, class A>
static __global__ void __launch_bounds__(ATTN_THREADS) attn_backward_kv(attn_args a)
{
    typedef typename element<KIND>::type E;
    extern __shared__ __align__(16) unsigned char memory[];
    __shared__ queries many;
    const int LD = tile_row<KIND, HP>::value, LP = tile_row<KIND, TILE>::value, warp = threadIdx.x >> 5,
              g = (threadIdx.x & 31) >> 2, quarter = threadIdx.x & 3;
    E *k = (E *)memory, *v = k + TILE * LD, *q = v + TILE * LD, *dy = q + TILE * LD,
      *p = dy + TILE * LD + warp * 16 * LP, *ds = p + TILE * LP;
    const int b = blockIdx.z, head = blockIdx.y, row = blockIdx.x * TILE;
    const mr_attn_stream s = a.streams[b];
    const int *first = a.first + (size_t)b * a.g.T, end = s.carried + s.real;
    if (row + TILE <= s.carried && !a.dcache_in) return;
    float dk[HP / 8][4] = {}, dv[HP / 8][4] = {};
    if (row < end) {
        load_rows<KIND, HP, A>(a, s, b, head, ATTN_K, row, end, k);
        load_rows<KIND, HP, A>(a, s, b, head, ATTN_V, row, end, v);
    }
    for (int t0 = max(0, row - s.carried); row < end && t0 < s.real && first[t0] < row + TILE; t0 += TILE) {
        float w[TILE / 8][4] = {}, d[TILE / 8][4] = {};
        __syncthreads();
        load_rows<KIND, HP, A>(a, s, b, head, ATTN_Q, s.carried + t0, end, q);
        load_tokens<KIND, HP, A>(a, a.dy, b, head, t0, s.real, dy);
        load_queries(a, s, b, head, t0, &many);
        __syncthreads();
        product<KIND>::template add<false, HP>(w, k + warp * 16 * LD, LD, q, LD);
        product<KIND>::template add<false, HP>(d, v + warp * 16 * LD, LD, dy, LD);
#pragma unroll
        for (int n = 0; n < TILE / 8; n++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int i = n * 8 + 2 * quarter + (j & 1), r = row + warp * 16 + g + (j >> 1) * 8;
                soften_bwd(w[n][j], d[n][j], r >= many.first[i] && r <= s.carried + t0 + i, a.scale, many.lse[i],
                           many.mean[i]);
            }
        store_sums<KIND>(w, p);
        store_sums<KIND>(d, ds);
        __syncwarp();
        product<KIND>::template add<true, TILE>(dv, p, LP, dy, LD);
        product<KIND>::template add<true, TILE>(dk, ds, LP, q, LD);
    }
    write_rows<HP, A>(a, s, b, head, row, dk, dv);
}

/* ---- launches ---- */

template <int KIND, int HP, class A> struct backward_pass {
    static void run(mr_cuda *c, const attn_args *a)
    {
        const size_t size = sizeof(typename element<KIND>::type), tile = TILE * tile_row<KIND, HP>::value * size,
                     square = TILE * tile_row<KIND, TILE>::value * size;
        const size_t T = (size_t)a->g.T, rows = T + (a->cache ? (size_t)a->g.window : 0),
                     n = (size_t)a->g.B * (size_t)a->g.heads * T;
        attn_means<A><<<(unsigned)div_up(n, 8), dim3(32, 8), 0, c->stream>>>(
            (int)n, a->g.T, a->g.heads, a->g.size, (const A *)a->y, (const A *)a->dy, (float *)a->mean);
        LAUNCHED(c, "attn_means");
        attn_launch(c, attn_backward_q<KIND, HP, A>, "attn_backward_q",
                    dim3((unsigned)div_up(T, TILE), (unsigned)a->g.heads, (unsigned)a->g.B), 4 * tile + square, *a);
        attn_launch(c, attn_backward_kv<KIND, HP, A>, "attn_backward_kv",
                    dim3((unsigned)div_up(rows, TILE), (unsigned)a->g.heads, (unsigned)a->g.B), 4 * tile + 2 * square,
                    *a);
    }
};

/* The gradient of q stays in scratch until q is no longer read. */
static void backward(mr_cuda *c, attn_args *a, char *room, size_t q_bytes)
{
    const size_t act = c->dev.act_size, D = (size_t)a->D * act;
    a->dq = room, a->mean = (const float *)(room + q_bytes);
    attn_dispatch<backward_pass>(c, a->g.size, c, (const attn_args *)a);
    CHECK(c, cudaMemcpy2DAsync(a->dqkv, 3 * D, a->dq, D, D, (size_t)a->g.B * (size_t)a->g.T, cudaMemcpyDeviceToDevice,
                               c->stream));
}

void mr_cuda_attn_bwd(mr_dev *dev, const mr_attn_bwd_args *args)
{
    mr_cuda *c = cuda_of(dev);
    const mr_attn *g = &args->shape;
    const bool flash = flash_fits(c, g, args->cache_in, args->dcache_out, args->qkv, args->dy);
    const size_t N = (size_t)g->B * (size_t)g->T, D = (size_t)g->heads * (size_t)g->size,
                 rows = flash ? flash_room(g) : div_up(N * D * dev->act_size, 256) * 256;
    attn_args a = {};
    char *room =
        (char *)mr_cuda_attn_prepare(c, g, (const float *)args->cache_in, (const float *)args->count_in, args->reset,
                                     args->length, rows + N * (size_t)g->heads * sizeof(float), &a);
    if (!room) return;
    a.qkv = a.dqkv = args->qkv, a.y = (void *)args->y, a.lse = (float *)args->lse, a.dy = args->dy;
    a.dcache_out = (const float *)args->dcache_out, a.dcache_in = (float *)args->dcache_in;
    if (flash) mr_cuda_flash_bwd(c, &a, room);
    else backward(c, &a, room, rows);
    if (a.dcache_in && !a.cache)
        CHECK(c, cudaMemsetAsync(a.dcache_in, 0, (size_t)g->B * (size_t)g->window * 2 * D * sizeof(float), c->stream));
    if (args->dcount_in) CHECK(c, cudaMemsetAsync(args->dcount_in, 0, (size_t)g->B * sizeof(float), c->stream));
}
