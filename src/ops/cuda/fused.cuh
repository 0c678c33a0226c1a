/* Tiles for kernels that fuse projection, gates and scan: layers with 64 inputs, tensor cores in tf32 or bf16.
 *
 * A warp owns 16 channels of one sequence and goes through time in tiles of 8·NT tokens. It multiplies its rows of W
 * with the tile of x: rows of the product are channels, columns are tokens. The assignment of channels to rows, tokens
 * to columns, and the order of inputs in the sum are free as long as both operands agree. They are chosen so that
 *   - a thread gets two neighbouring channels and 2·NT consecutive tokens, for every gate: it scans in registers;
 *   - both operands are read from shared memory 16 bytes at a time without bank conflicts;
 *   - the gradients of the pre-activations are already in place as the left operand of the product that gives dW. */
#ifndef MR_OPS_CUDA_FUSED_CUH
#define MR_OPS_CUDA_FUSED_CUH

#include "ops/cuda/scan_kernels.cuh"

enum { FUSED_D = 64, FUSED_WARPS = 4, FUSED_CHANNELS = 16 * FUSED_WARPS };

struct fused_args {
    scan_args scan;    /* pre: gradients of the pre-activations, backward only, or NULL; chunks is 1 */
    const void *x;     /* [B, T, D] */
    const float *W;    /* [G·H, D] */
    const float *bias; /* [G·H] */
    int groups;        /* backward: one block sums sequences b, b + groups, … */
    float *sums;       /* backward: [groups, G·H·D + G·H] shares of dW and db */
};

/* These instructions came with compute capability 8.0; on older chips nothing here is called (mr_cuda_fusable). */
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define AMPERE(...) __VA_ARGS__
#else
#define AMPERE(...)
#endif

/* How a row of 64 elements is split into 32-bit words of an operand. */
template <class ACT> struct operand {
    static const int words = FUSED_D * sizeof(ACT) / 4, chunks = words / 4, steps = words / 8;
};

/* W is rounded to tf32, once. Everything else is truncated by the tensor cores: rounding would cost
 * three instructions each time. */
static __device__ __forceinline__ unsigned to_tf32(float x)
{
    unsigned y = 0;
    AMPERE(asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x)));
    return y;
}

static __device__ __forceinline__ unsigned pair_of(float low, float high)
{
    const float v[2] = {low, high};
    return lanes<bf16, 2>::pack(v);
}

/* One word of a row of W as an operand. */
template <class ACT> static __device__ __forceinline__ unsigned weight_word(const float *row, int word)
{
    return sizeof(ACT) == 4 ? to_tf32(row[word]) : pair_of(row[2 * word], row[2 * word + 1]);
}

/* c [16, 8] += a [16, 8 words] · b [8 words, 8] */
template <class ACT> static __device__ __forceinline__ void multiply(float *c, const uint4 &a, unsigned b0, unsigned b1)
{
    if (sizeof(ACT) == 4)
        AMPERE(asm(
            "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1)));
    else
        AMPERE(asm(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1)));
}

/* A thread's place: lane = 4·row + quarter; its channels are ch and ch + 1, its tokens of a
 * tile begin at quarter·2·NT. */
struct place {
    int warp, row, quarter, ch;
};

static __device__ __forceinline__ place my_place()
{
    const int row = threadIdx.x >> 2;
    return {(int)threadIdx.y, row, (int)threadIdx.x & 3, (int)(blockIdx.x * FUSED_WARPS + threadIdx.y) * 16 + 2 * row};
}

/* ---- the tile of x: rows of 16-byte chunks, swizzled by token so that reading several rows
 * causes no bank conflicts ---- */

template <class ACT, int NT> static __device__ __forceinline__ int chunk_at(int token, int chunk)
{
    return token * operand<ACT>::chunks + (chunk ^ (token / (2 * NT) % 4 * 2) ^ (token % 2 * 4));
}

/* What a thread copies of every tile (64 neighbouring elements per token, tokens `stride` apart): chunk threadIdx %
 * chunks of every n-th token. Addresses are computed once. */
template <class ACT, int NT> struct tile_feed {
    static const int chunks = operand<ACT>::chunks, apart = 32 * FUSED_WARPS / chunks, count = 8 * NT / apart;
    static const unsigned bytes = 8 * NT * chunks * sizeof(uint4); /* of a tile */
    unsigned to[count];                                            /* in the first tile */
    int token, stride, offset;

    __device__ __forceinline__ tile_feed(const uint4 *tiles, int apart_in_memory)
    {
        const int i = threadIdx.y * 32 + threadIdx.x;
        stride = apart_in_memory;
        token = i / chunks;
        offset = token * stride + i % chunks * (16 / (int)sizeof(ACT));
#pragma unroll
        for (int r = 0; r < count; r++)
            to[r] = (unsigned)__cvta_generic_to_shared(tiles + chunk_at<ACT, NT>(token + r * apart, i % chunks));
    }

    /* Starts to copy into tile `which`; `from` is its first token, token number `first` of the sequence. Tokens before
     * LEAST, and, if MASKED, those from `real` on, are zero. */
    template <int MASKED, int LEAST>
    __device__ __forceinline__ void fetch(int which, const ACT *from, int first, int real) const
    {
#pragma unroll
        for (int r = 0; r < count; r++) {
            const int t = first + token + r * apart;
            const bool there = (!LEAST || t >= LEAST) && (!MASKED || t < real);
            const ACT *source = from + (there ? offset + r * apart * stride : (LEAST - first) * stride);
            AMPERE(asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to[r] + which * bytes),
                                "l"(source), "r"(there ? 16 : 0)));
        }
    }
};

static __device__ __forceinline__ void asked() { AMPERE(asm volatile("cp.async.commit_group;")); }

static __device__ __forceinline__ void await_tile()
{
    AMPERE(asm volatile("cp.async.wait_group 0;" ::: "memory"));
    __syncthreads();
}

/* ---- products ---- */

/* Stores the warp's rows of W as left operands, [G, steps] per thread: every thread reads only what it wrote here. */
template <class ACT, int G>
static __device__ __forceinline__ void keep_weights(uint4 *kept, const place &at, const float *W, int H)
{
    const int steps = operand<ACT>::steps;
    for (int j = 0; j < G; j++)
        for (int s = 0; s < steps; s++) {
            const int word = 4 * (at.quarter + 4 * (s / 2)) + 2 * (s % 2);
            const float *even = W + ((size_t)j * H + at.ch) * FUSED_D, *odd = even + FUSED_D;
            kept[((j * FUSED_WARPS + at.warp) * steps + s) * 32 + threadIdx.x] =
                make_uint4(weight_word<ACT>(even, word), weight_word<ACT>(odd, word), weight_word<ACT>(even, word + 1),
                           weight_word<ACT>(odd, word + 1));
        }
}

/* Pre-activations of the thread's channels and tokens: q[j][n][2·v + e] is gate j, channel
 * ch + v, its token 2·n + e. */
template <class ACT, int G, int NT>
static __device__ __forceinline__ void project(const uint4 *kept, const uint4 *tile, const place &at,
                                               const float (*bias)[2], float (*q)[NT][4])
{
    /* the others follow 2·n tokens later, with the same swizzle */
    const int steps = operand<ACT>::steps, token = at.row / 2 * (2 * NT) + at.row % 2;
    const uint4 *half[2] = {tile + chunk_at<ACT, NT>(token, at.quarter),
                            tile + chunk_at<ACT, NT>(token, at.quarter + 4)};
    kept += at.warp * steps * 32 + threadIdx.x;
#pragma unroll
    for (int j = 0; j < G; j++)
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) q[j][n][i] = bias[j][i / 2];
#pragma unroll
    for (int s = 0; s < steps; s += 2) {
        uint4 w[G][2];
#pragma unroll
        for (int j = 0; j < G; j++)
#pragma unroll
            for (int r = 0; r < 2; r++) w[j][r] = kept[(j * FUSED_WARPS * steps + s + r) * 32];
#pragma unroll
        for (int n = 0; n < NT; n++) {
            const uint4 x = half[s / 2 % 2][2 * n * operand<ACT>::chunks + s / 4 * 8];
#pragma unroll
            for (int j = 0; j < G; j++) {
                multiply<ACT>(q[j][n], w[j][0], x.x, x.y);
                multiply<ACT>(q[j][n], w[j][1], x.z, x.w);
            }
        }
    }
}

/* dW of the thread's channels, dw[j][k][2·v + e]: += q · x over the tile's tokens. Column 2·quarter + e of product k is
 * input column·4 + k % 4 + k / 4·32 in fp32 and column·8 + k in bf16. */
template <int G, int NT>
static __device__ __forceinline__ void add_dw(const uint4 *tile, const place &at, const float (*q)[NT][4],
                                              float (*dw)[8][4], float)
{
    const int chunks = operand<float>::chunks, token = at.quarter * 2 * NT;
    const uint4 *even = tile + chunk_at<float, NT>(token, at.row), *odd = tile + chunk_at<float, NT>(token + 1, at.row);
#pragma unroll
    for (int n = 0; n < NT; n++) {
        uint4 left[G];
#pragma unroll
        for (int j = 0; j < G; j++)
            left[j] = make_uint4(__float_as_uint(q[j][n][0]), __float_as_uint(q[j][n][2]), __float_as_uint(q[j][n][1]),
                                 __float_as_uint(q[j][n][3]));
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint4 a = even[2 * n * chunks + 8 * half], b = odd[2 * n * chunks + 8 * half];
#pragma unroll
            for (int j = 0; j < G; j++) {
                multiply<float>(dw[j][4 * half], left[j], a.x, b.x);
                multiply<float>(dw[j][4 * half + 1], left[j], a.y, b.y);
                multiply<float>(dw[j][4 * half + 2], left[j], a.z, b.z);
                multiply<float>(dw[j][4 * half + 3], left[j], a.w, b.w);
            }
        }
    }
}

template <int G, int NT>
static __device__ __forceinline__ void add_dw(const uint4 *tile, const place &at, const float (*q)[NT][4],
                                              float (*dw)[8][4], bf16)
{
    const int chunks = operand<bf16>::chunks, token = at.quarter * 2 * NT;
    const uint4 *even = tile + chunk_at<bf16, NT>(token, at.row), *odd = tile + chunk_at<bf16, NT>(token + 1, at.row);
#pragma unroll
    for (int n = 0; n < NT; n += 2) {
        uint4 left[G], x[4]; /* x: the rows of the thread's tokens 2·n … 2·n + 3 */
#pragma unroll
        for (int j = 0; j < G; j++)
            left[j] = make_uint4(pair_of(q[j][n][0], q[j][n][1]), pair_of(q[j][n][2], q[j][n][3]),
                                 pair_of(q[j][n + 1][0], q[j][n + 1][1]), pair_of(q[j][n + 1][2], q[j][n + 1][3]));
#pragma unroll
        for (int i = 0; i < 4; i++) x[i] = (i % 2 ? odd : even)[2 * (n + i / 2) * chunks];
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const int pick = k % 2 ? 0x7632 : 0x5410;
            unsigned word[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                word[i] = k / 2 == 0 ? x[i].x : k / 2 == 1 ? x[i].y : k / 2 == 2 ? x[i].z : x[i].w;
#pragma unroll
            for (int j = 0; j < G; j++)
                multiply<bf16>(dw[j][k], left[j], __byte_perm(word[0], word[1], pick),
                               __byte_perm(word[2], word[3], pick));
        }
    }
}

/* Writes the thread's shares of dW and db, for the sum over groups. */
template <class ACT, int G>
static __device__ __forceinline__ void write_shares(const fused_args &f, const place &at, int group,
                                                    const float (*dw)[8][4], float (*db)[2])
{
    const size_t rows = (size_t)G * f.scan.H;
    float *to = f.sums + group * rows * (FUSED_D + 1);
#pragma unroll
    for (int j = 0; j < G; j++)
#pragma unroll
        for (int v = 0; v < 2; v++) {
            const size_t row = (size_t)j * f.scan.H + at.ch + v;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int half = i % 2, e = i / 2, column = 2 * at.quarter + e,
                          k = sizeof(ACT) == 4 ? 4 * column + 32 * half : 8 * column + 4 * half;
                float four[4];
#pragma unroll
                for (int p = 0; p < 4; p++) four[p] = dw[j][4 * half + p][2 * v + e];
                quad<float>::store(to + row * FUSED_D + k, four);
            }
            float sum = db[j][v];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            if (at.quarter == 0) to[rows * FUSED_D + row] = sum;
        }
}

/* ---- the scan over a tile ---- */

/* Passes the state through the effects of the four quarters in order (backward: from the last): returns the state that
 * reaches this thread's quarter, and leaves the one after the tile. */
template <int MASKED>
static __device__ __forceinline__ void pass_quarters(const place &at, int down, const float *A, const float *B,
                                                     float *state, float *mine)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int turn = down ? 3 - i : i;
#pragma unroll
        for (int v = 0; v < 2; v++) {
            if (at.quarter == turn) mine[v] = state[v];
            state[v] = __shfl_sync(0xffffffffu, apply<MASKED>(A[v], B[v], state[v]), turn, 4);
        }
    }
}

#endif
