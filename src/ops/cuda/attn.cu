/* Attention, forward: a thread block has 64 queries of one head and loops over the rows that they see, 64 at a time. A
 * single token with a cache reads the cache directly, and the usual case of training is flash.cu's. */
#include "ops/cuda/flash.cuh"

/* The two queries of a thread: each sees rows first … own. */
struct two_rows {
    int first[2], own[2];
};

static __device__ __forceinline__ float sum_of_four(float v)
{
    v += __shfl_xor_sync(0xffffffffu, v, 1);
    return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

static __device__ __forceinline__ float max_of_four(float v)
{
    v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
    return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}

/* Replaces the scores of rows from `row` on by 2^(score − top), and rescales sums that used the old top. */
template <int NT>
static __device__ __forceinline__ void soften(float (&w)[TILE / 8][4], const two_rows &mine, int row, float scale,
                                              float (&top)[2], float (&sum)[2], float (&o)[NT][4])
{
    const int quarter = threadIdx.x & 3;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float most = top[i];
#pragma unroll
        for (int n = 0; n < TILE / 8; n++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const int r = row + n * 8 + 2 * quarter + j;
                float &score = w[n][2 * i + j];
                score = r >= mine.first[i] && r <= mine.own[i] ? score * scale : -INFINITY;
                most = fmaxf(most, score);
            }
        most = max_of_four(most);
        const float base = most == -INFINITY ? 0 : most, shrink = exp2f(top[i] - base);
        top[i] = most;
        sum[i] *= shrink;
#pragma unroll
        for (int n = 0; n < TILE / 8; n++)
#pragma unroll
            for (int j = 0; j < 2; j++) sum[i] += w[n][2 * i + j] = exp2f(w[n][2 * i + j] - base);
#pragma unroll
        for (int n = 0; n < NT; n++) o[n][2 * i] *= shrink, o[n][2 * i + 1] *= shrink;
    }
}

template <int HP, class A>
static __device__ __forceinline__ void write_rows(const attn_args &a, const mr_attn_stream &s, int b, int head, int t0,
                                                  const float (&o)[HP / 8][4], const float (&top)[2],
                                                  const float (&sum)[2])
{
    const int g = (threadIdx.x & 31) >> 2, quarter = threadIdx.x & 3;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int t = t0 + (threadIdx.x >> 5) * 16 + g + i * 8;
        const float total = sum_of_four(sum[i]);
        if (t >= a.g.T) continue;
        A *y = (A *)a.y + ((size_t)b * a.g.T + t) * a.D + head * a.g.size;
#pragma unroll
        for (int n = 0; n < HP / 8; n++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const int c = n * 8 + 2 * quarter + j;
                if (c < a.g.size) store(y + c, t < s.real ? o[n][2 * i + j] / total : 0.0f);
            }
        if (quarter == 0)
            a.lse[((size_t)b * a.g.heads + head) * a.g.T + t] = t < s.real ? (top[i] + log2f(total)) / LOG2_E : 0.0f;
    }
}

/* The last queries see the most rows, so their blocks start first. */
template <int KIND, int HP, class A> static __global__ void __launch_bounds__(ATTN_THREADS) attn_forward(attn_args a)
{
    typedef typename element<KIND>::type E;
    extern __shared__ __align__(16) unsigned char memory[];
    const int LD = tile_row<KIND, HP>::value, LP = tile_row<KIND, TILE>::value, warp = threadIdx.x >> 5;
    E *q = (E *)memory, *k = q + TILE * LD, *v = k + TILE * LD, *p = v + TILE * LD + warp * 16 * LP;
    const int b = blockIdx.z, head = blockIdx.y, t0 = (gridDim.x - 1 - blockIdx.x) * TILE;
    const mr_attn_stream s = a.streams[b];
    const int *first = a.first + (size_t)b * a.g.T, end = s.carried + min(t0 + TILE, s.real);
    two_rows mine;
    float o[HP / 8][4] = {}, top[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        const int t = t0 + warp * 16 + ((threadIdx.x & 31) >> 2) + i * 8;
        mine.first[i] = t < s.real ? first[t] : INT_MAX;
        mine.own[i] = s.carried + t;
    }
    if (t0 < s.real) load_rows<KIND, HP, A>(a, s, b, head, ATTN_Q, s.carried + t0, end, q);
    for (int row = t0 < s.real ? first[t0] : end; row < end; row += TILE) {
        float w[TILE / 8][4] = {};
        __syncthreads();
        load_rows<KIND, HP, A>(a, s, b, head, ATTN_K, row, end, k);
        load_rows<KIND, HP, A>(a, s, b, head, ATTN_V, row, end, v);
        __syncthreads();
        product<KIND>::template add<false, HP>(w, q + warp * 16 * LD, LD, k, LD);
        soften(w, mine, row, a.scale * LOG2_E, top, sum, o);
        store_sums<KIND>(w, p);
        __syncwarp();
        product<KIND>::template add<true, TILE>(o, p, LP, v, LD);
    }
    write_rows<HP, A>(a, s, b, head, t0, o, top, sum);
}

template <int KIND, int HP, class A> struct forward_pass {
    static void run(mr_cuda *c, const attn_args *a)
    {
        const size_t bytes = (3 * TILE * tile_row<KIND, HP>::value + TILE * tile_row<KIND, TILE>::value) *
                             sizeof(typename element<KIND>::type);
        attn_launch(c, attn_forward<KIND, HP, A>, "attn_forward",
                    dim3((unsigned)div_up((size_t)a->g.T, TILE), (unsigned)a->g.heads, (unsigned)a->g.B), bytes, *a);
    }
};

/* ---- one token ---- */

/* ONE_LANES: lanes per row; ONE_MOST: rows whose scores fit into shared memory */
enum { ONE_THREADS = 256, ONE_LANES = 8, ONE_MOST = 40000 };

/* k of row r times q rotated by their distance; eight lanes share a row. Only distances matter, so
 * the cache stays unrotated. */
template <class A>
static __device__ __forceinline__ float score_of(const attn_args &a, const float *q, const A *own, const float *cached,
                                                 int distance, int lane)
{
    float sum = 0;
    for (int i = lane; i < a.g.size && !a.turns; i += ONE_LANES) sum += q[i] * (distance ? cached[i] : load(own + i));
    for (int i = 2 * lane; i < a.g.size && a.turns; i += 2 * ONE_LANES) {
        const float x = distance ? cached[i] : load(own + i), y = distance ? cached[i + 1] : load(own + i + 1);
        const float2 turn = a.turns[(size_t)distance * (a.g.size / 2) + i / 2];
        sum += turn.x * (q[i] * x + q[i + 1] * y) + turn.y * (q[i] * y - q[i + 1] * x);
    }
    for (int k = 1; k < ONE_LANES; k <<= 1) sum += __shfl_xor_sync(0xffffffffu, sum, k);
    return sum;
}

/* The maximum or the sum of all threads' values, returned to every thread. */
template <bool MAX> static __device__ __forceinline__ float of_all(float v, float *shared)
{
    for (int k = 16; k; k >>= 1) {
        const float other = __shfl_xor_sync(0xffffffffu, v, k);
        v = MAX ? fmaxf(v, other) : v + other;
    }
    __syncthreads();
    if ((threadIdx.x & 31) == 0) shared[threadIdx.x >> 5] = v;
    __syncthreads();
    v = shared[0];
    for (int i = 1; i < ONE_THREADS / 32; i++) v = MAX ? fmaxf(v, shared[i]) : v + shared[i];
    return v;
}

template <class A> static __global__ void __launch_bounds__(ONE_THREADS) attn_one(attn_args a)
{
    extern __shared__ float scores[];
    __shared__ float q[MR_ATTN_SIZE], shared[ONE_THREADS / 32], parts[ONE_THREADS];
    const int head = blockIdx.x, b = blockIdx.y, size = a.g.size;
    const mr_attn_stream s = a.streams[b];
    const int first = a.first[b], rows = s.carried + 1 - first, count = a.count[b];
    const A *qkv = (const A *)a.qkv + (size_t)b * 3 * a.D + head * size;
    const float *cache = a.cache + (size_t)b * a.g.window * 2 * a.D + head * size;
    for (int i = threadIdx.x; i < size; i += ONE_THREADS) q[i] = load(qkv + i) * a.scale;
    __syncthreads();
    float top = -INFINITY, sum = 0, y = 0;
    for (int base = 0; base < rows; base += ONE_THREADS / ONE_LANES) {
        const int i = base + (int)threadIdx.x / ONE_LANES, r = first + min(i, rows - 1);
        const float score = score_of(a, q, qkv + a.D, cache + (size_t)mr_attn_slot_in(&s, count, r) * 2 * a.D,
                                     s.carried - r, threadIdx.x % ONE_LANES);
        if (i < rows && threadIdx.x % ONE_LANES == 0) scores[i] = score;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < rows; i += ONE_THREADS) top = fmaxf(top, scores[i]);
    top = of_all<true>(top, shared);
    for (int i = threadIdx.x; i < rows; i += ONE_THREADS) sum += scores[i] = expf(scores[i] - top);
    sum = of_all<false>(sum, shared);
    const int width = size <= 32   ? 32
                      : size <= 64 ? 64
                                   : 128,
              channel = threadIdx.x % width, groups = ONE_THREADS / width;
    for (int i = threadIdx.x / width; channel < size && i < rows; i += groups) {
        const int r = first + i;
        y += scores[i] * (r < s.carried ? cache[((size_t)mr_attn_slot_in(&s, count, r) * 2 + 1) * a.D + channel]
                                        : load(qkv + 2 * a.D + channel));
    }
    parts[threadIdx.x] = y;
    __syncthreads();
    if (threadIdx.x == 0) a.lse[(size_t)b * a.g.heads + head] = top + logf(sum);
    if (threadIdx.x >= size) return;
    for (int i = 1; i < groups; i++) y += parts[threadIdx.x + i * width];
    store((A *)a.y + (size_t)b * a.D + head * size + threadIdx.x, y / sum);
}

template <class A> static void launch_one(mr_cuda *c, const attn_args *a)
{
    const size_t bytes = ((size_t)a->g.window + 1) * sizeof(float);
    CHECK(c, mr_cuda_allow_shared((const void *)attn_one<A>, bytes));
    attn_one<A><<<dim3((unsigned)a->g.heads, (unsigned)a->g.B), ONE_THREADS, bytes, c->stream>>>(*a);
    LAUNCHED(c, "attn_one");
}

/* ---- the cache after the call ---- */

/* One block per row of the cache. cache_out may be cache_in: rows that stay are then left alone. */
template <class A> static __global__ void attn_keep(attn_args a, float *cache_out, float *count_out)
{
    const int b = blockIdx.y, slot = blockIdx.x;
    const mr_attn_stream s = a.streams[b];
    const int source = mr_attn_source(&s, slot);
    const size_t at = ((size_t)b * a.g.window + slot) * 2 * a.D;
    if (slot == 0 && threadIdx.x == 0) count_out[b] = (float)mr_attn_count_out(&s);
    if (source == MR_ATTN_KEPT && cache_out == a.cache) return;
    const A *token = (const A *)a.qkv + (((size_t)b * a.g.T + max(source, 0)) * 3 + 1) * a.D;
    for (int i = threadIdx.x; i < 2 * a.D; i += blockDim.x)
        cache_out[at + i] = source >= 0 ? load(token + i) : source == MR_ATTN_KEPT ? a.cache[at + i] : 0.0f;
}

template <class A> static void launch_keep(mr_cuda *c, const attn_args *a, float *cache_out, float *count_out)
{
    attn_keep<A><<<dim3((unsigned)a->g.window, (unsigned)a->g.B), 128, 0, c->stream>>>(*a, cache_out, count_out);
    LAUNCHED(c, "attn_keep");
}

static void attn_fwd(mr_dev *dev, const mr_attn_fwd_args *args)
{
    mr_cuda *c = cuda_of(dev);
    const mr_attn *g = &args->shape;
    const bool flash = flash_fits(c, g, args->cache_in, NULL, args->qkv, args->y), turned = flash && g->rotary;
    attn_args a = {};
    void *room = mr_cuda_attn_prepare(c, g, (const float *)args->cache_in, (const float *)args->count_in, args->reset,
                                      args->length, turned ? flash_room(g) : 0, &a);
    if (!room) return;
    a.qkv = args->qkv, a.y = args->y, a.lse = (float *)args->lse;
    if (flash) mr_cuda_flash_fwd(c, &a, turned ? room : NULL);
    else if (g->T == 1 && args->cache_in && !args->length && g->window < ONE_MOST) BY_ACT(c, launch_one, c, &a);
    else attn_dispatch<forward_pass>(c, g->size, c, (const attn_args *)&a);
    if (args->cache_out) BY_ACT(c, launch_keep, c, &a, (float *)args->cache_out, (float *)args->count_out);
}

void mr_cuda_attn_ops(mr_ops *ops)
{
    ops->attn_fwd = attn_fwd;
    ops->attn_bwd = mr_cuda_attn_bwd;
    ops->position_fwd = mr_cuda_position_fwd;
}
