/* Attention for heads of 64 channels in bf16, forward (flash.cuh): a block has 128 queries, a warp 32 of them. */
#include "ops/cuda/flash.cuh"

/* ---- rotation */

/* Copies queries and keys to [B, T, 2, D], rotated by their positions. A thread has eight channels. */
static __global__ void flash_turn(size_t n, int T, int D, const bf16 *qkv, const float2 *turns, bf16 *to)
{
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x, each = 2 * (size_t)D / 8;
    if (i >= n) return;
    const size_t token = i / each;
    const int c = (int)(i % each) * 8;
    float v[8];
    quad<bf16>::load(qkv + token * 3 * D + c, v);
    quad<bf16>::load(qkv + token * 3 * D + c + 4, v + 4);
    if (turns) {
        const float4 *turn =
            (const float4 *)(turns + token % T * (FLASH_SIZE / 2) + c % FLASH_SIZE / 2); /* two pairs in each */
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const float4 two = turn[k];
            turn_pair(v[4 * k], v[4 * k + 1], make_float2(two.x, two.y), 1.0f);
            turn_pair(v[4 * k + 2], v[4 * k + 3], make_float2(two.z, two.w), 1.0f);
        }
    }
    quad<bf16>::store(to + token * 2 * D + c, v);
    quad<bf16>::store(to + token * 2 * D + c + 4, v + 4);
}

flash_args mr_cuda_flash_prepare(mr_cuda *c, const attn_args *args, void *room)
{
    flash_args a = {};
    a.B = args->g.B, a.T = args->g.T, a.heads = args->g.heads, a.D = args->D, a.scale = args->scale;
    a.streams = args->streams, a.first = args->first, a.turns = args->turns;
    a.y = (bf16 *)args->y, a.lse = args->lse, a.dy = (const bf16 *)args->dy;
    const size_t D = (size_t)a.D, n = (size_t)a.B * (size_t)a.T * 2 * D / 8;
    const bf16 *qkv = (const bf16 *)args->qkv, *from = room ? (const bf16 *)room : qkv;
    a.v = qkv + 2 * D, a.v_row = 3 * D;
    a.q = from, a.k = from + D, a.q_row = a.k_row = room ? 2 * D : 3 * D;
    if (room) {
        flash_turn<<<(unsigned)div_up(n, 256), 256, 0, c->stream>>>(n, a.T, a.D, qkv, a.turns, (bf16 *)room);
        LAUNCHED(c, "flash_turn");
    }
    return a;
}

/* ---- forward */

enum { WARP_TILES = 2, BLOCK_ROWS = ATTN_WARPS * WARP_TILES * 16 };
typedef float scores[WARP_TILES][FLASH_CHUNKS][4];

/* The rows of a thread: two of each tile of 16. */
struct softmax {
    float top[2 * WARP_TILES], sum[2 * WARP_TILES];
};

/* out = q·kᵀ, for 64 keys. */
static __device__ __forceinline__ void multiply_keys(scores &out, const uint32_t (&q)[WARP_TILES][4][4], bf16 *k)
{
#pragma unroll
    for (int m = 0; m < WARP_TILES; m++)
#pragma unroll
        for (int n = 0; n < FLASH_CHUNKS; n++)
#pragma unroll
            for (int j = 0; j < 4; j++) out[m][n][j] = 0;
#pragma unroll
    for (int n = 0; n < FLASH_CHUNKS; n += 2)
#pragma unroll
        for (int step = 0; step < 4; step++) {
            uint32_t b[4];
            right_operand(b, k, 8 * n, step);
#pragma unroll
            for (int m = 0; m < WARP_TILES; m++) {
                product<BF16>::step(out[m][n], q[m][step], b[0], b[1]);
                product<BF16>::step(out[m][n + 1], q[m][step], b[2], b[3]);
            }
        }
}

/* o += p·v */
static __device__ __forceinline__ void add_values(scores &o, const scores &p, bf16 *v)
{
#pragma unroll
    for (int step = 0; step < 4; step++) {
        uint32_t a[WARP_TILES][4];
#pragma unroll
        for (int m = 0; m < WARP_TILES; m++) as_left(a[m], p[m][2 * step], p[m][2 * step + 1]);
#pragma unroll
        for (int n = 0; n < FLASH_CHUNKS; n += 2) {
            uint32_t b[4];
            right_operand_turned(b, v, 16 * step, n / 2);
#pragma unroll
            for (int m = 0; m < WARP_TILES; m++) {
                product<BF16>::step(o[m][n], a[m], b[0], b[1]);
                product<BF16>::step(o[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* Query t of a thread's row i, where the warp's first query is t0. */
static __device__ __forceinline__ int query_of(int t0, int i)
{
    return t0 + (i >> 1) * 16 + (i & 1) * 8 + ((threadIdx.x & 31) >> 2);
}

/* Scores of keys from `row` on that a query does not see become −∞. */
static __device__ __forceinline__ void hide(scores &w, const int *first, int t0, int real, int row)
{
#pragma unroll
    for (int i = 0; i < 2 * WARP_TILES; i++) {
        const int t = query_of(t0, i), from = t < real ? first[t] : INT_MAX;
#pragma unroll
        for (int n = 0; n < FLASH_CHUNKS; n++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const int r = row + n * 8 + 2 * (threadIdx.x & 3) + j;
                if (r < from || r > t) w[i >> 1][n][2 * (i & 1) + j] = -INFINITY;
            }
    }
}

/* Replaces scores by 2^(unit·score − top), and rescales sums that used the old top. */
static __device__ __forceinline__ void soften(scores &w, scores &o, softmax &s, float unit)
{
#pragma unroll
    for (int i = 0; i < 2 * WARP_TILES; i++) {
        float most = -INFINITY;
#pragma unroll
        for (int n = 0; n < FLASH_CHUNKS; n++)
#pragma unroll
            for (int j = 0; j < 2; j++) most = fmaxf(most, w[i >> 1][n][2 * (i & 1) + j]);
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
        const float top = fmaxf(s.top[i], most * unit), base = top == -INFINITY ? 0 : top,
                    shrink = power_of_two(s.top[i] - base);
        float sum = 0;
#pragma unroll
        for (int n = 0; n < FLASH_CHUNKS; n++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                float &v = w[i >> 1][n][2 * (i & 1) + j];
                sum += v = power_of_two(fmaf(v, unit, -base));
                o[i >> 1][n][2 * (i & 1) + j] *= shrink;
            }
        s.top[i] = top;
        s.sum[i] = s.sum[i] * shrink + sum;
    }
}

/* Divides by the sums, and writes y and lse. */
static __device__ __forceinline__ void finish(const flash_args &a, scores &o, const softmax &s, bf16 *rows, int b,
                                              int head, int t0, int real)
{
#pragma unroll
    for (int i = 0; i < 2 * WARP_TILES; i++) {
        float total = s.sum[i];
        total += __shfl_xor_sync(0xffffffffu, total, 1);
        total += __shfl_xor_sync(0xffffffffu, total, 2);
        const int t = query_of(t0, i), there = t < real;
#pragma unroll
        for (int n = 0; n < FLASH_CHUNKS; n++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                float &v = o[i >> 1][n][2 * (i & 1) + j];
                v = there ? v / total : 0;
            }
        if (t < a.T && (threadIdx.x & 3) == 0)
            a.lse[((size_t)b * a.heads + head) * a.T + t] = there ? (s.top[i] + log2f(total)) / LOG2_E : 0;
    }
#pragma unroll
    for (int m = 0; m < WARP_TILES; m++)
        write_sums(o[m], rows + m * 16 * FLASH_SIZE, a.y + (size_t)b * a.T * a.D + head * FLASH_SIZE, a.D, t0 + m * 16,
                   a.T);
}

/* The last queries see the most keys, so their blocks start first. */
static __global__ void __launch_bounds__(ATTN_THREADS, 2) flash_forward(flash_args a)
{
    extern __shared__ __align__(128) unsigned char memory[];
    bf16 *own = (bf16 *)memory, *keys = own + BLOCK_ROWS * FLASH_SIZE, *values = keys + 2 * FLASH_TILE;
    const int warp = threadIdx.x >> 5, b = blockIdx.z, head = blockIdx.y;
    const int block = (gridDim.x - 1 - blockIdx.x) * BLOCK_ROWS, t0 = block + warp * WARP_TILES * 16;
    const int real = a.streams[b].real, *first = a.first + (size_t)b * a.T, end = min(block + BLOCK_ROWS, real);
    const size_t at = (size_t)b * a.T;
    const bf16 *q = a.q + at * a.q_row + head * FLASH_SIZE, *k = a.k + at * a.k_row + head * FLASH_SIZE,
               *v = a.v + at * a.v_row + head * FLASH_SIZE;
    const int begin = block < real ? first[block] / TILE * TILE : end, last = min(t0 + WARP_TILES * 16, real) - 1;
    uint32_t left[WARP_TILES][4][4];
    scores o = {};
    softmax s;
    for (int i = 0; i < 2 * WARP_TILES; i++) s.top[i] = -INFINITY, s.sum[i] = 0;
    fetch_rows<BLOCK_ROWS, ATTN_THREADS>(own, q, a.q_row, block, real);
    if (begin < end) fetch_rows<TILE, ATTN_THREADS>(keys, k, a.k_row, begin, end);
    close_fetch();
    if (begin < end) fetch_rows<TILE, ATTN_THREADS>(values, v, a.v_row, begin, end);
    close_fetch();
    await_fetch<1>();
    __syncthreads();
#pragma unroll
    for (int m = 0; m < WARP_TILES; m++)
#pragma unroll
        for (int i = 0; i < 4; i++) left_operand(left[m][i], own, (warp * WARP_TILES + m) * 16, i);
    for (int row = begin, stage = 0; row < end; row += TILE, stage ^= 1) {
        scores w;
        const bool seen = t0 < real && row <= last;
        await_fetch<1>();
        __syncthreads();
        if (row + TILE < end)
            fetch_rows<TILE, ATTN_THREADS>(keys + (stage ^ 1) * FLASH_TILE, k, a.k_row, row + TILE, end);
        close_fetch();
        if (seen) {
            multiply_keys(w, left, keys + stage * FLASH_TILE);
            if (row + TILE - 1 > t0 || row < first[last]) hide(w, first, t0, real, row);
            soften(w, o, s, a.scale * LOG2_E);
        }
        await_fetch<1>();
        __syncthreads();
        if (row + TILE < end)
            fetch_rows<TILE, ATTN_THREADS>(values + (stage ^ 1) * FLASH_TILE, v, a.v_row, row + TILE, end);
        close_fetch();
        if (seen) add_values(o, w, values + stage * FLASH_TILE);
    }
    await_fetch<0>();
    finish(a, o, s, own + warp * WARP_TILES * 16 * FLASH_SIZE, b, head, t0, real);
}

void mr_cuda_flash_fwd(mr_cuda *c, const attn_args *args, void *room)
{
    const flash_args a = mr_cuda_flash_prepare(c, args, room);
    const size_t bytes = (BLOCK_ROWS * FLASH_SIZE + 4 * FLASH_TILE) * sizeof(bf16);
    const dim3 grid((unsigned)div_up((size_t)a.T, BLOCK_ROWS), (unsigned)a.heads, (unsigned)a.B);
    CHECK(c, mr_cuda_allow_shared((const void *)flash_forward, bytes));
    flash_forward<<<grid, ATTN_THREADS, bytes, c->stream>>>(a);
    LAUNCHED(c, "flash_forward");
}
