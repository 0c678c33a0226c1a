/* What the forward and both parts of the backward of attention share: tiles of 64 × 64, four
 * warps with sixteen rows each.
 *
 * Products read operands from shared memory and leave their sums in registers, in the layout of mma.sync m16n8: of
 * every eight columns, a thread (g = lane / 4, q = lane % 4) has columns 2q and 2q + 1 of rows g and g + 8. So one
 * thread holds both channels of a rotary pair. */
#ifndef MR_OPS_CUDA_ATTN_CUH
#define MR_OPS_CUDA_ATTN_CUH

#include "ops/cuda/cuda.cuh"

#include <limits.h>

extern "C" {
#include "ops/attn.h"
}

enum { BF16, TF32, FP32 }; /* how products are computed */
enum { TILE = 64, ATTN_WARPS = 4, ATTN_THREADS = 32 * ATTN_WARPS };
enum { ATTN_Q, ATTN_K, ATTN_V };

struct attn_args {
    mr_attn g;
    int D;
    float scale;
    const void *qkv;
    const float *cache;
    const mr_attn_stream *streams; /* [B] */
    const int *count, *first;      /* [B]; [B, T] the first row that each token sees */
    const float2 *turns;           /* [rows, size/2] rotary cos, sin by position; or NULL */
    void *y;
    float *lse;
    const float *mean; /* backward: [B, heads, T] Σ dy·y */
    const void *dy;
    void *dq; /* [B, T, D] */
    void *dqkv;
    const float *dcache_out;
    float *dcache_in;
};

template <int KIND> struct element {
    typedef float type;
};
template <> struct element<BF16> {
    typedef bf16 type;
};

/* Rows in shared memory are padded so that they begin in different banks, on multiples of 16 bytes. */
template <int KIND, int WIDTH> struct tile_row {
    static const int value = WIDTH + 16 / (int)sizeof(typename element<KIND>::type);
};

template <int KIND> __device__ __forceinline__ typename element<KIND>::type narrow(float v);
template <> __device__ __forceinline__ bf16 narrow<BF16>(float v) { return __float2bfloat16(v); }
template <> __device__ __forceinline__ float narrow<FP32>(float v) { return v; }
template <> __device__ __forceinline__ float narrow<TF32>(float v)
{
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(v));
    return __uint_as_float(bits);
}

/* ---- products of a warp: sums[16, 8·NT] += A[16, K]·B. A is contiguous along k; B is stored as [n,
 * k], or (KN) as [k, n]. ---- */

__device__ __forceinline__ uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

template <bool TURNED> __device__ __forceinline__ void load_matrices(uint32_t (&r)[4], const bf16 *p)
{
    if (TURNED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(shared_address(p)));
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(shared_address(p)));
}

template <int KIND> struct product;

template <> struct product<BF16> {
    static __device__ __forceinline__ void step(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
    {
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, "
                     "%9}, {%0, %1, %2, %3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }

    template <bool KN, int K, int NT>
    static __device__ __forceinline__ void add(float (&sums)[NT][4], const bf16 *A, int a_row, const bf16 *B, int b_row)
    {
        const int lane = threadIdx.x & 31;
#pragma unroll
        for (int k = 0; k < K; k += 16) {
            uint32_t a[4], b[4];
            load_matrices<false>(a, A + (lane & 15) * a_row + k + (lane >> 4) * 8);
#pragma unroll
            for (int n = 0; n < NT; n += 2) {
                if (KN) load_matrices<true>(b, B + (k + (lane & 15)) * b_row + n * 8 + (lane >> 4) * 8);
                else
                    load_matrices<false>(b, B + (n * 8 + (lane & 7) + (lane >> 4) * 8) * b_row + k +
                                                ((lane >> 3) & 1) * 8);
                step(sums[n], a, b[0], b[1]);
                step(sums[n + 1], a, b[2], b[3]);
            }
        }
    }
};

template <> struct product<TF32> {
    static __device__ __forceinline__ void step(float (&c)[4], const float (&a)[4], float b0, float b1)
    {
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                     "{%0, %1, %2, %3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
                       "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b0)), "r"(__float_as_uint(b1)));
    }

    template <bool KN, int K, int NT>
    static __device__ __forceinline__ void add(float (&sums)[NT][4], const float *A, int a_row, const float *B,
                                               int b_row)
    {
        const int g = (threadIdx.x & 31) >> 2, q = threadIdx.x & 3;
#pragma unroll 4
        for (int k = q; k < K; k += 8) {
            const float a[4] = {A[g * a_row + k], A[(g + 8) * a_row + k], A[g * a_row + k + 4],
                                A[(g + 8) * a_row + k + 4]};
#pragma unroll
            for (int n = 0; n < NT; n++) {
                const int column = n * 8 + g;
                const float b0 = KN ? B[k * b_row + column] : B[column * b_row + k],
                            b1 = KN ? B[(k + 4) * b_row + column] : B[column * b_row + k + 4];
                step(sums[n], a, b0, b1);
            }
        }
    }
};

template <> struct product<FP32> {
    template <bool KN, int K, int NT>
    static __device__ __forceinline__ void add(float (&sums)[NT][4], const float *A, int a_row, const float *B,
                                               int b_row)
    {
        const int g = (threadIdx.x & 31) >> 2, q = threadIdx.x & 3;
#pragma unroll 4
        for (int k = 0; k < K; k++) {
            const float a0 = A[g * a_row + k], a1 = A[(g + 8) * a_row + k];
#pragma unroll
            for (int n = 0; n < NT; n++) {
                const int column = n * 8 + 2 * q;
                const float b0 = KN ? B[k * b_row + column] : B[column * b_row + k],
                            b1 = KN ? B[k * b_row + column + 1] : B[(column + 1) * b_row + k];
                sums[n][0] = fmaf(a0, b0, sums[n][0]), sums[n][1] = fmaf(a0, b1, sums[n][1]);
                sums[n][2] = fmaf(a1, b0, sums[n][2]), sums[n][3] = fmaf(a1, b1, sums[n][3]);
            }
        }
    }
};

/* ---- rows into shared memory ---- */

/* Loads channels c … c + 7 of a vector of `size`, at any alignment. */
template <class S> __device__ __forceinline__ void load_eight(const S *from, int c, int size, float *v)
{
    if (c + 8 <= size && (uintptr_t)(from + c) % (4 * sizeof(S)) == 0) {
        quad<S>::load(from + c, v);
        quad<S>::load(from + c + 4, v + 4);
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = c + i < size ? load(from + c + i) : 0.0f;
}

template <int KIND> __device__ __forceinline__ void store_eight(typename element<KIND>::type *to, const float *v)
{
    typedef quad<typename element<KIND>::type> four;
    float out[8];
#pragma unroll
    for (int i = 0; i < 8; i++) out[i] = KIND == TF32 ? (float)narrow<KIND>(v[i]) : v[i];
    four::store(to, out);
    four::store(to + 4, out + 4);
}

__device__ __forceinline__ void turn_pair(float &x, float &y, float2 turn, float sign)
{
    const float s = sign * turn.y, u = x * turn.x - y * s;
    y = x * s + y * turn.x;
    x = u;
}

/* Loads rows row … row + 63 of q, k or v of one head; rows from `end` on and channels beyond the head's are 0. */
template <int KIND, int HP, class A>
__device__ __forceinline__ void load_rows(const attn_args &a, const mr_attn_stream &s, int b, int head, int which,
                                          int row, int end, typename element<KIND>::type *to)
{
    const int size = a.g.size, groups = HP / 8, at = head * size;
    const A *tokens = (const A *)a.qkv + ((size_t)b * a.g.T * 3 + which) * a.D + at;
    const float *cached = a.cache + ((size_t)b * a.g.window * 2 + which - 1) * a.D + at;
    for (int i = threadIdx.x; i < TILE * groups; i += ATTN_THREADS) {
        const int r = row + i / groups, c = i % groups * 8, t = r - s.carried;
        float v[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        if (r < end && c < size) {
            if (t >= 0) load_eight(tokens + (size_t)t * 3 * a.D, c, size, v);
            else load_eight(cached + (size_t)mr_attn_slot_in(&s, a.count[b], r) * 2 * a.D, c, size, v);
            if (a.turns && which != ATTN_V)
#pragma unroll
                for (int k = 0; k < 8; k += 2)
                    if (c + k < size) turn_pair(v[k], v[k + 1], a.turns[(size_t)r * (size / 2) + (c + k) / 2], 1.0f);
        }
        store_eight<KIND>(to + (i / groups) * tile_row<KIND, HP>::value + c, v);
    }
}

/* Loads tokens t … t + 63 of y or dy of one head. */
template <int KIND, int HP, class A>
__device__ __forceinline__ void load_tokens(const attn_args &a, const void *from, int b, int head, int t, int end,
                                            typename element<KIND>::type *to)
{
    const int groups = HP / 8;
    const A *rows = (const A *)from + (size_t)b * a.g.T * a.D + head * a.g.size;
    for (int i = threadIdx.x; i < TILE * groups; i += ATTN_THREADS) {
        const int row = t + i / groups, c = i % groups * 8;
        float v[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        if (row < end && c < a.g.size) load_eight(rows + (size_t)row * a.D, c, a.g.size, v);
        store_eight<KIND>(to + (i / groups) * tile_row<KIND, HP>::value + c, v);
    }
}

/* Stores a warp's sums [16, 64] as an operand of the next product. */
template <int KIND>
__device__ __forceinline__ void store_sums(const float (&sums)[TILE / 8][4], typename element<KIND>::type *to)
{
    const int g = (threadIdx.x & 31) >> 2, q = threadIdx.x & 3, row = tile_row<KIND, TILE>::value;
#pragma unroll
    for (int n = 0; n < TILE / 8; n++)
#pragma unroll
        for (int j = 0; j < 4; j++) to[(g + (j >> 1) * 8) * row + n * 8 + 2 * q + (j & 1)] = narrow<KIND>(sums[n][j]);
}

#define LOG2_E 1.4426950408889634f

/* ---- on the host ---- */

/* Computes what follows from shapes, resets and counts, on the device, into scratch. Returns `more` bytes of scratch
 * for the caller, or NULL when out of memory. */
void *mr_cuda_attn_prepare(mr_cuda *c, const mr_attn *shape, const float *cache, const float *counts,
                           const uint8_t *reset, const int32_t *length, size_t more, attn_args *args);

/* Calls FN<KIND, HP, A>::run(…) for the device's precision and for heads padded to HP = 32, 64 or 128 channels. */
template <template <int, int, class> class FN, int KIND, class A, class... ARGS>
static void attn_by_size(int size, ARGS... args)
{
    if (size <= 32) FN<KIND, 32, A>::run(args...);
    else if (size <= 64) FN<KIND, 64, A>::run(args...);
    else FN<KIND, 128, A>::run(args...);
}

template <template <int, int, class> class FN, class... ARGS>
static void attn_dispatch(mr_cuda *c, int size, ARGS... args)
{
    if (c->bf16) attn_by_size<FN, BF16, bf16>(size, args...);
    else if (c->exact) attn_by_size<FN, FP32, float>(size, args...);
    else attn_by_size<FN, TF32, float>(size, args...);
}

/* Launches a kernel that may need more than the default shared memory. */
template <class KERNEL>
static void attn_launch(mr_cuda *c, KERNEL kernel, const char *name, dim3 grid, size_t bytes, const attn_args &args)
{
    CHECK(c, mr_cuda_allow_shared((const void *)kernel, bytes));
    kernel<<<grid, ATTN_THREADS, bytes, c->stream>>>(args);
    LAUNCHED(c, name);
}

void mr_cuda_attn_bwd(mr_dev *dev, const mr_attn_bwd_args *args);
void mr_cuda_position_fwd(mr_dev *dev, const mr_position_fwd_args *args);

#endif
