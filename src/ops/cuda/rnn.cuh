/* GRU and LSTM on a GPU: what the kernels share.
 *
 * One launch computes all tokens. A block owns some units (columns of the recurrent product) of some rows of the
 * batch and keeps its slice of W_hh in shared memory. What a token's product reads (the state, or in the
 * backward the gradients of the gates) is exchanged between blocks through the L2 cache, and the blocks of the
 * same rows wait for each other once per product. Sums have a fixed order: warps take equal slices of k, and
 * their parts are added in turn. */
#ifndef MR_OPS_CUDA_RNN_CUH
#define MR_OPS_CUDA_RNN_CUH

#include "ops/cuda/cuda.cuh"

/* CHUNK and STAGE_ROW in float4 */
enum { TILE = 16, LANES = 8, WARPS = 8, THREADS = 32 * WARPS, CHUNK = 16, STAGE_ROW = CHUNK + 1 };
enum { BACK = 2 }; /* columns per lane in the backward: a group is 16 units there, 8 in the forward */

/* W_hh packed for a product with `columns` sums per lane: groups of units, each [k4][columns][8] of float4 along k. */
struct rnn_matrix {
    const float4 *packed;
    int k4; /* float4 of k for each warp; zeros beyond K */
    int groups;
};

struct rnn_work {
    int B, T, H;
    int gates;
    const uint8_t *reset;
    const int32_t *length;
    void *pre, *extra;        /* acts [B, T, G·H], [B, T, H]: gates; r·h' (gru before), s_n (gru after) or c (lstm) */
    const float *bias;        /* [G·H] b_hh */
    const float *fresh;       /* [2·width] h and c that a sequence starts from, zeros beyond H */
    int starts_fresh;         /* 1: a sequence starts before token 0 */
    rnn_matrix first, second; /* second: gru before, the product within a token */
    int width, second_width;  /* floats per row of what is exchanged for each */
    float *round, *second_round; /* [2, B, width], [B, second_width] */
    float *c;                    /* [B, H] the cell state, or its gradient */
    unsigned *arrived;           /* one counter for all blocks of the same rows */
    int tiles, groups;           /* of a block */
    int resident;                /* 1: W_hh is in shared memory */
    void *h;                     /* acts [B, T, H] */
    /* backward */
    const void *dh;
    const float *h_in;       /* [B, S] or NULL */
    float *carry, *to_start; /* [B, H]; [B, S] or NULL */
    /* acts: gradients of the sums, [B, T, 3·H] (after) or [B, T, 2·H] and then [B, T, H] (before) */
    void *ds;
    int state; /* S */
};

/* Shared memory of a block: every warp's rows of A, the warps' parts of the sums, W_hh. */
static inline size_t rnn_shared_bytes(int columns, int float4s_of_w)
{
    return ((size_t)WARPS * TILE * STAGE_ROW + (size_t)WARPS * TILE * columns * LANES / 4 + (size_t)float4s_of_w) *
           sizeof(float4);
}

/* A barrier: waits until every block of these rows has arrived as often as this one. */
static __device__ __forceinline__ void wait_for_rows(unsigned *arrived, unsigned *turn)
{
    *turn += gridDim.x;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(arrived, 1u);
        while (*(volatile unsigned *)arrived < *turn) continue;
        __threadfence();
    }
    __syncthreads();
}

/* Bits of the tile's rows in which a new sequence starts before token t. */
static __device__ __forceinline__ unsigned fresh_rows(const rnn_work &w, int row0, int t)
{
    const int b = row0 + (threadIdx.x & 31);
    const bool fresh = w.reset && (threadIdx.x & 31) < TILE && b < w.B && w.reset[(size_t)b * w.T + t];
    return __ballot_sync(0xffffffffu, fresh);
}

/* The warp's part of the sum over k for a tile's rows, loaded piece by piece through its own shared memory. */
template <int COLUMNS>
static __device__ __forceinline__ void warp_sums(const rnn_matrix &m, const float4 *packed, const float *from,
                                                 int width, int rows, unsigned fresh, const float *start, float4 *stage,
                                                 float sum[4][COLUMNS])
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, unit = lane & 7, quarter = lane >> 3;
    for (int c0 = 0; c0 < m.k4; c0 += CHUNK) {
        const int n = min((int)CHUNK, m.k4 - c0), k0 = warp * m.k4 + c0;
        for (int i = lane; i < TILE * n; i += 32) {
            const int row = i / n, k = i - row * n;
            float4 v = make_float4(0, 0, 0, 0);
            if (row < rows)
                v = fresh >> row & 1 ? ((const float4 *)start)[k0 + k]
                                     : __ldcg((const float4 *)(from + (size_t)row * width) + k0 + k);
            stage[row * STAGE_ROW + k] = v;
        }
        __syncwarp();
        for (int k = 0; k < n; k++) {
            float4 u[COLUMNS];
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) u[c] = packed[((size_t)(k0 + k) * COLUMNS + c) * LANES + unit];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float4 x = stage[(quarter + 4 * i) * STAGE_ROW + k];
#pragma unroll
                for (int c = 0; c < COLUMNS; c++)
                    sum[i][c] = fmaf(x.w, u[c].w, fmaf(x.z, u[c].z, fmaf(x.y, u[c].y, fmaf(x.x, u[c].x, sum[i][c]))));
            }
        }
        __syncwarp();
    }
}

/* For thread p < 128, out[c] is the sum of row p / 8 for column c of unit p % 8. The whole block must call it. */
template <int COLUMNS>
static __device__ void tile_sums(const rnn_matrix &m, const float4 *packed, const float *from, int width, int rows,
                                 unsigned fresh, const float *start, float4 *shared, float out[COLUMNS])
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, unit = lane & 7, quarter = lane >> 3;
    float sum[4][COLUMNS] = {}, *part = (float *)(shared + WARPS * TILE * STAGE_ROW);
    warp_sums<COLUMNS>(m, packed, from, width, rows, fresh, start, shared + warp * TILE * STAGE_ROW, sum);
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int c = 0; c < COLUMNS; c++)
            part[((warp * TILE + quarter + 4 * i) * COLUMNS + c) * LANES + unit] = sum[i][c];
    __syncthreads();
    if (threadIdx.x < TILE * LANES) {
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
            float total = 0;
#pragma unroll
            for (int k = 0; k < WARPS; k++)
                total += part[((k * TILE + (int)threadIdx.x / LANES) * COLUMNS + c) * LANES + (threadIdx.x & 7)];
            out[c] = total;
        }
    }
    __syncthreads();
}

/* W_hh of the block's groups: a copy in shared memory, or the original. */
static __device__ __forceinline__ const float4 *own_matrix(const rnn_work &w, const rnn_matrix &m, int columns,
                                                           float4 *shared)
{
    const int slice = WARPS * m.k4 * columns * LANES, first = blockIdx.x * w.groups,
              count = min(w.groups, m.groups - first) * slice;
    const float4 *from = m.packed + (size_t)first * slice;
    if (!w.resident) return from;
    for (int i = threadIdx.x; i < count; i += THREADS) shared[i] = from[i];
    return shared;
}

void mr_cuda_rnn_fwd(mr_dev *dev, const mr_rnn_fwd_args *a);
void mr_cuda_rnn_bwd(mr_dev *dev, const mr_rnn_bwd_args *a);

/* The shape of a product over K with groups of `units`, and the size of its matrix. */
rnn_matrix mr_cuda_rnn_matrix(int H, int K, int units);
size_t mr_cuda_rnn_matrix_bytes(const rnn_matrix *m, int columns);
/* Fills packed: see rnn_matrix. down: sums over K rows of W_hh from first·H on; otherwise over the state,
 * for gates from `first` on. */
void mr_cuda_rnn_pack(mr_cuda *c, const float *W, int H, int first, int K, int columns, int down, const rnn_matrix *m,
                      float4 *packed);
/* Launches `kernel` on as many blocks as can be resident at once. columns: the most of any product; slice:
 * float4 of W_hh per group. */
void mr_cuda_rnn_launch(mr_cuda *c, const void *kernel, rnn_work *w, int columns, int slice, const char *name);
/* Takes the next `bytes` of an arena that begins at base. base NULL: only counts. */
void *mr_cuda_rnn_take(char *base, size_t *used, size_t bytes);

#endif
