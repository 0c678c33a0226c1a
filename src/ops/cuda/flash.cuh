/* Attention for the usual case on tensor cores: bf16, heads of 64 channels, no cache. Other cases are attn.cu's.
 *
 * Tiles of 64 rows are fetched asynchronously, two stages deep. What a warp multiplies from the left stays in its
 * registers, and so do scores: the sums of one product, rounded to bf16, are laid out as the left operand of the next.
 * Queries and keys are rotated by a pass of their own before. A tile's row is 128 bytes, without padding: chunk c of
 * 16 bytes lies at c ^ (row & 7), so that ldmatrix meets every bank once. */
#ifndef MR_OPS_CUDA_FLASH_CUH
#define MR_OPS_CUDA_FLASH_CUH

#include "ops/cuda/attn.cuh"

enum { FLASH_SIZE = 64, FLASH_CHUNKS = FLASH_SIZE / 8, FLASH_TILE = TILE * FLASH_SIZE };

/* Addresses are those of token 0 of head 0; …_row: elements from one token to the next. */
struct flash_args {
    int B, T, heads, D;
    float scale;
    const bf16 *q, *k, *v, *dy;
    size_t q_row, k_row, v_row;
    const mr_attn_stream *streams;
    const int *first;
    const float2 *turns;
    bf16 *y; /* [B, T, D] */
    float *lse;
    const float *mean;  /* backward: [B, heads, T] Σ dy·y */
    bf16 *dq, *dk, *dv; /* rows as v's */
};

__device__ __forceinline__ bf16 *chunk_at(bf16 *tile, int row, int chunk)
{
    return tile + row * FLASH_SIZE + ((chunk ^ (row & 7)) << 3);
}

/* ---- fetching */

__device__ __forceinline__ void fetch_chunk(bf16 *to, const bf16 *from, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(there ? 16 : 0)
                 : "memory");
}

__device__ __forceinline__ void close_fetch() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/* Waits until at most `LEFT` of the latest groups are on their way. */
template <int LEFT> __device__ __forceinline__ void await_fetch()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

/* Rows row … of one head; those from `end` on are 0. */
template <int ROWS, int THREADS>
__device__ __forceinline__ void fetch_rows(bf16 *tile, const bf16 *from, size_t step, int row, int end)
{
#pragma unroll
    for (int i = threadIdx.x; i < ROWS * FLASH_CHUNKS; i += THREADS) {
        const int r = i / FLASH_CHUNKS, chunk = i % FLASH_CHUNKS, there = row + r < end;
        fetch_chunk(chunk_at(tile, r, chunk), from + (size_t)(there ? row + r : 0) * step + chunk * 8, there);
    }
}

/* ---- operands of m16n8k16 */

/* Left: 16 rows of a tile, 16 columns from 16·k on. */
__device__ __forceinline__ void left_operand(uint32_t (&a)[4], bf16 *tile, int row, int k)
{
    const int lane = threadIdx.x & 31;
    load_matrices<false>(a, chunk_at(tile, row + (lane & 15), 2 * k + (lane >> 4)));
}

/* Right, 16 columns of the result: rows n … n + 15 of a tile stored as [n, k]. */
__device__ __forceinline__ void right_operand(uint32_t (&b)[4], bf16 *tile, int n, int k)
{
    const int lane = threadIdx.x & 31;
    load_matrices<false>(b, chunk_at(tile, n + (lane & 7) + (lane >> 4) * 8, 2 * k + ((lane >> 3) & 1)));
}

/* The same where the tile is stored as [k, n]: its rows row … row + 15, columns from 16·n on. */
__device__ __forceinline__ void right_operand_turned(uint32_t (&b)[4], bf16 *tile, int row, int n)
{
    const int lane = threadIdx.x & 31;
    load_matrices<true>(b, chunk_at(tile, row + (lane & 15), 2 * n + (lane >> 4)));
}

__device__ __forceinline__ uint32_t packed(float x, float y)
{
    const __nv_bfloat162 both = __floats2bfloat162_rn(x, y);
    return *(const uint32_t *)&both;
}

/* Sums of 16 columns as a left operand. */
__device__ __forceinline__ void as_left(uint32_t (&a)[4], const float (&low)[4], const float (&high)[4])
{
    a[0] = packed(low[0], low[1]), a[1] = packed(low[2], low[3]);
    a[2] = packed(high[0], high[1]), a[3] = packed(high[2], high[3]);
}

/* Without denormal results, which exp2f would take two more instructions for. */
__device__ __forceinline__ float power_of_two(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* ---- results */

/* Writes a warp's 16 rows of 64 sums by way of `rows`, 16 rows of shared memory that only this warp uses. Rows from
 * `end` on are left out. */
__device__ __forceinline__ void write_sums(const float (&sums)[FLASH_CHUNKS][4], bf16 *rows, bf16 *to, size_t step,
                                           int row, int end)
{
    const int lane = threadIdx.x & 31, g = lane >> 2, q = lane & 3;
    __syncwarp();
#pragma unroll
    for (int n = 0; n < FLASH_CHUNKS; n++)
#pragma unroll
        for (int i = 0; i < 2; i++)
            *(uint32_t *)(chunk_at(rows, g + 8 * i, n) + 2 * q) = packed(sums[n][2 * i], sums[n][2 * i + 1]);
    __syncwarp();
#pragma unroll
    for (int i = lane; i < 16 * FLASH_CHUNKS; i += 32) {
        const int r = i / FLASH_CHUNKS, chunk = i % FLASH_CHUNKS;
        if (row + r < end) *(uint4 *)(to + (size_t)(row + r) * step + chunk * 8) = *(uint4 *)chunk_at(rows, r, chunk);
    }
}

/* ---- on the host */

/* Whether a call is one for these kernels. one, other: the addresses that are read or written 16 bytes at a time. */
static inline bool flash_fits(const mr_cuda *c, const mr_attn *g, const void *cache, const void *dcache,
                              const void *one, const void *other)
{
    return c->bf16 && g->size == FLASH_SIZE && !cache && !dcache && g->T > 1 &&
           ((uintptr_t)one | (uintptr_t)other) % 16 == 0;
}

/* Bytes of scratch for rotated queries and keys. */
static inline size_t flash_room(const mr_attn *g)
{
    return (size_t)g->B * (size_t)g->T * 2 * (size_t)g->heads * FLASH_SIZE * sizeof(bf16);
}

/* room: flash_room bytes, or NULL where queries and keys are neither rotated nor overwritten before their last use. */
flash_args mr_cuda_flash_prepare(mr_cuda *c, const attn_args *args, void *room);
void mr_cuda_flash_fwd(mr_cuda *c, const attn_args *args, void *room);
/* Replaces qkv by its gradient. After room: B·T·heads floats. */
void mr_cuda_flash_bwd(mr_cuda *c, const attn_args *args, char *room);

#endif
