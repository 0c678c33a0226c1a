/* Attention for heads of 64 channels in bf16, backward (flash.cuh), in two passes without atomics: first the gradients
 * of queries, a warp with 16 of them, then those of keys and values, a warp with 16 of those. Both compute the softmax
 * again. A tile of 64 rows is taken in halves, so that all sums stay in registers. */
#include "ops/cuda/flash.cuh"

enum { HALF = TILE / 2, HALF_STEPS = HALF / 16, HALF_COLUMNS = HALF / 8 };
enum { Q_WARPS = 8, Q_ROWS = 16 * Q_WARPS, KV_WARPS = 4, KV_ROWS = 16 * KV_WARPS };

typedef uint32_t operand[4][4]; /* 16 rows, 64 columns */
typedef float half_sums[HALF_COLUMNS][4];
typedef float row_sums[FLASH_CHUNKS][4];

static __device__ __forceinline__ void take_left(operand &to, bf16 *tile, int row)
{
#pragma unroll
    for (int k = 0; k < 4; k++) left_operand(to[k], tile, row, k);
}

/* out = left·rightᵀ, right: 32 rows of a tile from `row` on */
static __device__ __forceinline__ void multiply_half(half_sums &out, const operand &left, bf16 *right, int row)
{
#pragma unroll
    for (int n = 0; n < HALF_COLUMNS; n++)
#pragma unroll
        for (int j = 0; j < 4; j++) out[n][j] = 0;
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int n = 0; n < HALF_COLUMNS; n += 2) {
            uint32_t b[4];
            right_operand(b, right, row + 8 * n, k);
            product<BF16>::step(out[n], left[k], b[0], b[1]);
            product<BF16>::step(out[n + 1], left[k], b[2], b[3]);
        }
}

/* sums += part·right, part: [16, 32], right: the same 32 rows of a tile */
static __device__ __forceinline__ void add_half(row_sums &sums, const half_sums &part, bf16 *right, int row)
{
#pragma unroll
    for (int k = 0; k < HALF_STEPS; k++) {
        uint32_t a[4];
        as_left(a, part[2 * k], part[2 * k + 1]);
#pragma unroll
        for (int n = 0; n < FLASH_CHUNKS; n += 2) {
            uint32_t b[4];
            right_operand_turned(b, right, row + 16 * k, n / 2);
            product<BF16>::step(sums[n], a, b[0], b[1]);
            product<BF16>::step(sums[n + 1], a, b[2], b[3]);
        }
    }
}

/* Scales sums, rotates them back by the positions of their rows, and writes them. */
static __device__ __forceinline__ void write_turned(const flash_args &a, row_sums &sums, bf16 *rows, bf16 *to, int row,
                                                    int end)
{
    const int g = (threadIdx.x & 31) >> 2, q = threadIdx.x & 3;
#pragma unroll
    for (int n = 0; n < FLASH_CHUNKS; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float &x = sums[n][2 * i], &y = sums[n][2 * i + 1];
            x *= a.scale, y *= a.scale;
            if (a.turns && row + g + 8 * i < end)
                turn_pair(x, y, a.turns[(size_t)(row + g + 8 * i) * (FLASH_SIZE / 2) + 4 * n + q], -1.0f);
        }
    write_sums(sums, rows, to, a.v_row, row, end);
}

/* ---- Σ dy·y: eight lanes for each token and head */

static __global__ void flash_means(int n, int T, int heads, const bf16 *y, const bf16 *dy, float *mean)
{
    const int i = (blockIdx.x * blockDim.x + threadIdx.x) / FLASH_CHUNKS, chunk = threadIdx.x % FLASH_CHUNKS;
    const size_t at = (size_t)min(i, n - 1) * FLASH_SIZE + chunk * 8;
    float v[8], d[8], sum = 0;
    quad<bf16>::load(y + at, v), quad<bf16>::load(y + at + 4, v + 4);
    quad<bf16>::load(dy + at, d), quad<bf16>::load(dy + at + 4, d + 4);
#pragma unroll
    for (int k = 0; k < 8; k++) sum += v[k] * d[k];
#pragma unroll
    for (int k = 1; k < FLASH_CHUNKS; k <<= 1) sum += __shfl_xor_sync(0xffffffffu, sum, k);
    if (i < n && chunk == 0) mean[((size_t)(i / heads / T) * heads + i % heads) * T + i / heads % T] = sum;
}

/* ---- queries */

/* Facts about a thread's two queries; lse in powers of two. */
struct two_queries {
    int t, first[2];
    float lse[2], mean[2];
};

static __device__ __forceinline__ two_queries facts_of(const flash_args &a, int b, int head, int t0, int real)
{
    two_queries mine;
    mine.t = t0 + ((threadIdx.x & 31) >> 2);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int t = mine.t + 8 * i, there = t < real;
        const size_t at = ((size_t)b * a.heads + head) * a.T + t;
        mine.first[i] = there ? a.first[(size_t)b * a.T + t] : INT_MAX;
        mine.lse[i] = there ? a.lse[at] * LOG2_E : 0;
        mine.mean[i] = there ? a.mean[at] : 0;
    }
    return mine;
}

/* Replaces d, the gradient of the softmax, by that of the scores, short of its scale. */
template <bool HIDES>
static __device__ __forceinline__ void soften_rows(const half_sums &w, half_sums &d, const two_queries &mine, int row,
                                                   float unit)
{
#pragma unroll
    for (int n = 0; n < HALF_COLUMNS; n++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int r = row + n * 8 + 2 * (threadIdx.x & 3) + (j & 1), i = j >> 1;
            const float p = power_of_two(fmaf(w[n][j], unit, -mine.lse[i]));
            d[n][j] = p * (d[n][j] - mine.mean[i]);
            if (HIDES && (r < mine.first[i] || r > mine.t + 8 * i)) d[n][j] = 0;
        }
}

static __global__ void __launch_bounds__(32 * Q_WARPS, 2) flash_backward_q(flash_args a)
{
    extern __shared__ __align__(128) unsigned char memory[];
    enum { THREADS = 32 * Q_WARPS };
    bf16 *own = (bf16 *)memory, *stages = own + Q_ROWS * FLASH_SIZE; /* a stage: keys, values */
    const int warp = threadIdx.x >> 5, b = blockIdx.z, head = blockIdx.y;
    const int block = (gridDim.x - 1 - blockIdx.x) * Q_ROWS, t0 = block + warp * 16;
    const int real = a.streams[b].real, *first = a.first + (size_t)b * a.T, end = min(block + Q_ROWS, real);
    const size_t at = (size_t)b * a.T, channel = head * FLASH_SIZE;
    const bf16 *k = a.k + at * a.k_row + channel, *v = a.v + at * a.v_row + channel;
    const int begin = block < real ? first[block] / TILE * TILE : end, last = min(t0 + 16, real) - 1;
    const two_queries mine = facts_of(a, b, head, t0, real);
    const float unit = a.scale * LOG2_E;
    operand q, dy;
    row_sums dq = {};
    /* dy first passes through the stages */
    fetch_rows<Q_ROWS, THREADS>(own, a.q + at * a.q_row + channel, a.q_row, block, real);
    fetch_rows<Q_ROWS, THREADS>(stages + 2 * FLASH_TILE, a.dy + at * a.D + channel, a.D, block, real);
    close_fetch();
    fetch_rows<TILE, THREADS>(stages, k, a.k_row, begin, end);
    fetch_rows<TILE, THREADS>(stages + FLASH_TILE, v, a.v_row, begin, end);
    close_fetch();
    await_fetch<1>();
    __syncthreads();
    take_left(q, own, warp * 16);
    take_left(dy, stages + 2 * FLASH_TILE, warp * 16);
    for (int row = begin, stage = 0; row < end; row += TILE, stage ^= 1) {
        bf16 *keys = stages + stage * 2 * FLASH_TILE, *values = keys + FLASH_TILE,
             *next = stages + (stage ^ 1) * 2 * FLASH_TILE;
        await_fetch<0>();
        __syncthreads();
        if (row + TILE < end) {
            fetch_rows<TILE, THREADS>(next, k, a.k_row, row + TILE, end);
            fetch_rows<TILE, THREADS>(next + FLASH_TILE, v, a.v_row, row + TILE, end);
        }
        close_fetch();
        if (t0 >= real || row > last) continue;
        const bool hides = row + TILE - 1 > t0 || row < first[last];
#pragma unroll 1
        for (int half = 0; half < TILE; half += HALF) {
            half_sums w, d;
            multiply_half(w, q, keys, half);
            multiply_half(d, dy, values, half);
            if (hides) soften_rows<true>(w, d, mine, row + half, unit);
            else soften_rows<false>(w, d, mine, row + half, unit);
            add_half(dq, d, keys, half);
        }
    }
    await_fetch<0>();
    write_turned(a, dq, own + warp * 16 * FLASH_SIZE, a.dq + at * a.v_row + channel, t0, a.T);
}

/* ---- keys and values */

/* Facts about the 64 queries of a stage. */
struct queries {
    int first[TILE];
    float lse[TILE], mean[TILE];
};

static __device__ __forceinline__ void load_queries(const flash_args &a, int b, int head, int t0, int real, queries *to)
{
    for (int i = threadIdx.x; i < TILE; i += 32 * KV_WARPS) {
        const int t = t0 + i, there = t < real;
        const size_t at = ((size_t)b * a.heads + head) * a.T + t;
        to->first[i] = there ? a.first[(size_t)b * a.T + t] : INT_MAX;
        to->lse[i] = there ? a.lse[at] * LOG2_E : 0;
        to->mean[i] = there ? a.mean[at] : 0;
    }
}

/* The same for scores of keys by queries: w becomes the softmax. */
template <bool HIDES>
static __device__ __forceinline__ void soften_columns(half_sums &w, half_sums &d, const queries &many, int row, int t0,
                                                      int half, float unit)
{
    const int mine = row + ((threadIdx.x & 31) >> 2);
#pragma unroll
    for (int n = 0; n < HALF_COLUMNS; n++) {
        const int column = half + n * 8 + 2 * (threadIdx.x & 3);
        const float2 lse = *(const float2 *)&many.lse[column], mean = *(const float2 *)&many.mean[column];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int r = mine + 8 * (j >> 1), t = t0 + column + (j & 1);
            w[n][j] = power_of_two(fmaf(w[n][j], unit, j & 1 ? -lse.y : -lse.x));
            if (HIDES && (r < many.first[column + (j & 1)] || r > t)) w[n][j] = 0;
            d[n][j] = w[n][j] * (d[n][j] - (j & 1 ? mean.y : mean.x));
        }
    }
}

static __global__ void __launch_bounds__(32 * KV_WARPS, 3) flash_backward_kv(flash_args a)
{
    extern __shared__ __align__(128) unsigned char memory[];
    enum { THREADS = 32 * KV_WARPS };
    bf16 *own = (bf16 *)memory, *stages = own + 2 * KV_ROWS * FLASH_SIZE; /* a stage: queries, dy */
    queries *many = (queries *)(stages + 4 * FLASH_TILE);                 /* of each stage */
    const int warp = threadIdx.x >> 5, b = blockIdx.z, head = blockIdx.y, row = blockIdx.x * KV_ROWS,
              r0 = row + warp * 16;
    const int real = a.streams[b].real, *first = a.first + (size_t)b * a.T;
    const size_t at = (size_t)b * a.T, channel = head * FLASH_SIZE;
    const bf16 *q = a.q + at * a.q_row + channel, *dys = a.dy + at * a.D + channel;
    const float unit = a.scale * LOG2_E;
    operand k, v;
    row_sums dk = {}, dv = {};
    fetch_rows<KV_ROWS, THREADS>(own, a.k + at * a.k_row + channel, a.k_row, row, real);
    fetch_rows<KV_ROWS, THREADS>(own + KV_ROWS * FLASH_SIZE, a.v + at * a.v_row + channel, a.v_row, row, real);
    close_fetch();
    fetch_rows<TILE, THREADS>(stages, q, a.q_row, row, real);
    fetch_rows<TILE, THREADS>(stages + FLASH_TILE, dys, a.D, row, real);
    close_fetch();
    load_queries(a, b, head, row, real, &many[0]);
    await_fetch<1>();
    __syncthreads();
    take_left(k, own, warp * 16);
    take_left(v, own + KV_ROWS * FLASH_SIZE, warp * 16);
    for (int t0 = row, stage = 0; t0 < real && first[t0] < row + KV_ROWS; t0 += TILE, stage ^= 1) {
        bf16 *queries_of = stages + stage * 2 * FLASH_TILE, *dy = queries_of + FLASH_TILE,
             *next = stages + (stage ^ 1) * 2 * FLASH_TILE;
        await_fetch<0>();
        __syncthreads();
        if (t0 + TILE < real) {
            fetch_rows<TILE, THREADS>(next, q, a.q_row, t0 + TILE, real);
            fetch_rows<TILE, THREADS>(next + FLASH_TILE, dys, a.D, t0 + TILE, real);
            load_queries(a, b, head, t0 + TILE, real, &many[stage ^ 1]);
        }
        close_fetch();
        const bool hides = t0 < r0 + 15 || first[min(t0 + TILE, real) - 1] > r0;
#pragma unroll 1
        for (int half = 0; half < TILE; half += HALF) {
            half_sums w, d;
            if (t0 + half + HALF <= r0) continue; /* queries before all of the warp's keys */
            multiply_half(w, k, queries_of, half);
            multiply_half(d, v, dy, half);
            if (hides) soften_columns<true>(w, d, many[stage], r0, t0, half, unit);
            else soften_columns<false>(w, d, many[stage], r0, t0, half, unit);
            add_half(dv, w, dy, half);
            add_half(dk, d, queries_of, half);
        }
    }
    await_fetch<0>();
    bf16 *rows = own + warp * 16 * FLASH_SIZE;
    write_turned(a, dk, rows, a.dk + at * a.v_row + channel, r0, a.T);
    write_sums(dv, rows, a.dv + at * a.v_row + channel, a.v_row, r0, a.T);
}

/* ---- launches */

void mr_cuda_flash_bwd(mr_cuda *c, const attn_args *args, char *room)
{
    flash_args a = mr_cuda_flash_prepare(c, args, room);
    float *mean = (float *)(room + flash_room(&args->g));
    const size_t T = (size_t)a.T, n = (size_t)a.B * T * (size_t)a.heads;
    const size_t q_bytes = (Q_ROWS * FLASH_SIZE + 4 * FLASH_TILE) * sizeof(bf16),
                 kv_bytes = (2 * KV_ROWS * FLASH_SIZE + 4 * FLASH_TILE) * sizeof(bf16) + 2 * sizeof(queries);
    a.mean = mean, a.dq = (bf16 *)args->dqkv, a.dk = a.dq + a.D, a.dv = a.dk + a.D;
    flash_means<<<(unsigned)div_up(n * FLASH_CHUNKS, 256), 256, 0, c->stream>>>((int)n, a.T, a.heads,
                                                                                (const bf16 *)args->y, a.dy, mean);
    LAUNCHED(c, "flash_means");
    CHECK(c, mr_cuda_allow_shared((const void *)flash_backward_q, q_bytes));
    flash_backward_q<<<dim3((unsigned)div_up(T, Q_ROWS), (unsigned)a.heads, (unsigned)a.B), 32 * Q_WARPS, q_bytes,
                       c->stream>>>(a);
    LAUNCHED(c, "flash_backward_q");
    CHECK(c, mr_cuda_allow_shared((const void *)flash_backward_kv, kv_bytes));
    flash_backward_kv<<<dim3((unsigned)div_up(T, KV_ROWS), (unsigned)a.heads, (unsigned)a.B), 32 * KV_WARPS, kv_bytes,
                        c->stream>>>(a);
    LAUNCHED(c, "flash_backward_kv");
}
