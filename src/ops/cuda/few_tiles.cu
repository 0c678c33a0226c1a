/* Products of about ten to a hundred rows on tensor cores (mma.sync): bf16 on a bf16 device, TF32 on an fp32 one. A
 * block computes a tile of 16 tokens × TN outputs. K goes through shared memory in chunks of 256 bytes per row, with
 * several chunks in flight; weights are loaded before the rows of x are available. Where a norm comes first, shared
 * memory holds whole rows of x. The warps split the K of each chunk and add their sums in a fixed order. */
#include "ops/cuda/few.cuh"

/* CHUNK, STEP, PITCH in bytes; PITCH avoids bank conflicts */
enum { WARPS = 8, THREADS = 32 * WARPS, TM = 16, CHUNK = 256, STEP = CHUNK / WARPS, PITCH = CHUNK + 16 };
enum { MOST_SHARED = 227 << 10, NORM_WIDEST = 512 };

template <int TN_, int STAGES_> struct tile_of {
    static const int TN = TN_, STAGES = STAGES_;
};

typedef tile_of<48, 6> flat_tile;
typedef tile_of<16, 12> small_tile;

/* ---- instructions ---- */

#if __CUDA_ARCH__ >= 800 || !defined(__CUDA_ARCH__)
static __device__ __forceinline__ void copy_16(void *to, const void *from, bool there)
{
    const unsigned at = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(there ? 16 : 0) : "memory");
}

static __device__ __forceinline__ void copies_end(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> static __device__ __forceinline__ void copies_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

static __device__ __forceinline__ void load_fragment(unsigned *r, const void *from)
{
    const unsigned at = (unsigned)__cvta_generic_to_shared(from);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/* Multiplies 32 bytes of K of 16 rows of x and 8 rows of W. */
static __device__ __forceinline__ void multiply(float *c, const unsigned *a, const unsigned *b, bf16)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

static __device__ __forceinline__ void multiply(float *c, const unsigned *a, const unsigned *b, float)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Rounds fp32 to TF32; the hardware alone would truncate. */
static __device__ __forceinline__ void round_fragment(unsigned *, bf16) {}
static __device__ __forceinline__ void round_fragment(unsigned *r, float)
{
#pragma unroll
    for (int i = 0; i < 4; i++) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r[i]) : "f"(__uint_as_float(r[i])));
}

/* ---- parts of the kernel ---- */

/* The row of W for column j of this block's tile, or −1. A tile has the gates side by side: p | k
 * | v of the same channels. */
template <class T, int SHARE> static __device__ __forceinline__ int weight_row(const few_args &g, int j)
{
    if (!SHARE) {
        const int n = blockIdx.x * T::TN + j;
        return n < g.N ? n : -1;
    }
    const int gate = (j >= SHARE) + (j >= 2 * SHARE), ch = blockIdx.x * SHARE + j - gate * SHARE;
    return ch < g.H ? gate * g.H + ch : -1;
}

static __device__ __forceinline__ int input_row(const few_args &g, int r)
{
    const int m = blockIdx.y * TM + r;
    return m < g.M ? m : -1;
}

/* What a thread loads of each chunk: 16 bytes at the same offset in every sixteenth row. */
template <int ROWS> struct feeder {
    const char *from[ROWS / 16];
    unsigned there; /* one bit per row */
    int left;       /* bytes of the row from this thread's offset on */

    __device__ __forceinline__ void start(const void *base, size_t row_bytes) /* rows are added afterwards */
    {
        left = (int)row_bytes - (int)threadIdx.x % 16 * 16;
        there = 0;
#pragma unroll
        for (int i = 0; i < ROWS / 16; i++) from[i] = (const char *)base;
    }

    __device__ __forceinline__ void row(int i, int at, size_t row_bytes)
    {
        if (at < 0) return;
        from[i] += at * row_bytes + threadIdx.x % 16 * 16;
        there |= 1u << i;
    }

    __device__ __forceinline__ void fetch(char *stage, int pitch)
    {
        char *to = stage + threadIdx.x / 16 * pitch + threadIdx.x % 16 * 16;
#pragma unroll
        for (int i = 0; i < ROWS / 16; i++) {
            const bool here = left > 0 && (there >> i & 1);
            copy_16(to + i * 16 * pitch, from[i], here);
            if (here) from[i] += CHUNK;
        }
        left -= CHUNK;
    }
};

/* Multiplies the warp's 32 bytes of K of a chunk. */
template <class A, class T>
static __device__ __forceinline__ void multiply_chunk(const char *x, int x_pitch, const char *w, float (*sum)[4])
{
    const int lane = threadIdx.x % 32, byte = threadIdx.x / 32 * STEP;
    unsigned a[4], b[4];
    load_fragment(a, x + lane % 16 * x_pitch + lane / 16 * 16 + byte);
    round_fragment(a, A());
#pragma unroll
    for (int j = 0; j < T::TN / 8; j += 2) {
        load_fragment(b, w + (8 * j + lane % 8 + lane / 16 * 8) * PITCH + lane / 8 % 2 * 16 + byte);
        round_fragment(b, A());
        multiply(sum[j], a, b, A());
        multiply(sum[j + 1], a, b + 2, A());
    }
}

/* Writes the warps' sums to shared memory: [WARPS, TM, TN + 4]. */
template <class T> static __device__ __forceinline__ void lay_out(const float (*sum)[4], float *tile)
{
    const int lane = threadIdx.x % 32;
    float *at = tile + (threadIdx.x / 32 * TM + lane / 4) * (T::TN + 4) + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < T::TN / 8; j++) {
        *(float2 *)(at + 8 * j) = make_float2(sum[j][0], sum[j][1]);
        *(float2 *)(at + 8 * j + 8 * (T::TN + 4)) = make_float2(sum[j][2], sum[j][3]);
    }
}

template <class T> static __device__ __forceinline__ float sum_at(const float *tile, int r, int j)
{
    float v = 0;
#pragma unroll
    for (int i = 0; i < WARPS; i++) v += tile[(i * TM + r) * (T::TN + 4) + j];
    return v;
}

static __device__ __forceinline__ float quick_gelu(float x)
{
    return x * fast_sigmoid(1.5957691216057308f * fmaf(0.044715f * x * x, x, x));
}

/* Position of element i of a tile with `columns` outputs; false when it does not exist. */
static __device__ __forceinline__ bool place(const few_args &g, int i, int columns, int width, int *r, int *j, int *m,
                                             int *n)
{
    *r = i / columns, *j = i % columns, *m = blockIdx.y * TM + *r, *n = blockIdx.x * columns + *j;
    return *r < TM && *m < g.M && *n < width;
}

template <class A, class T>
static __device__ __forceinline__ void finish_linear(const few_args &g, const float *tile, float before, float bias)
{
    int r, j, m, n;
#pragma unroll 1
    for (int i = threadIdx.x; i < TM * T::TN; i += THREADS) {
        if (!place(g, i, T::TN, g.N, &r, &j, &m, &n)) continue;
        const size_t at = (size_t)m * g.N + n;
        if (i >= THREADS) before = g.residual ? load((const A *)g.residual + at) : 0.0f, bias = g.b ? g.b[n] : 0.0f;
        float v = bias + sum_at<T>(tile, r, j);
        if (g.pre) store((A *)g.pre + at, v);
        if (g.gelu) v = quick_gelu(v);
        store((A *)g.y + at, v + before);
    }
}

/* SHARE: channels in the tile. */
template <class A, class T, int SHARE>
static __device__ __forceinline__ void finish_cells(const few_args &g, const float *tile, float state)
{
    int r, j, m, ch;
#pragma unroll 1
    for (int i = threadIdx.x; i < TM * SHARE; i += THREADS) {
        if (!place(g, i, SHARE, g.H, &r, &j, &m, &ch)) continue;
        if (i >= THREADS) state = state_before(g, m, ch);
        float q[3] = {};
        q[0] = sum_at<T>(tile, r, j) + (g.b ? g.b[ch] : 0.0f);
        q[1] = sum_at<T>(tile, r, j + SHARE) + (g.b ? g.b[ch + g.H] : 0.0f);
        if (SHARE * 3 == T::TN) q[2] = sum_at<T>(tile, r, j + 2 * SHARE) + (g.b ? g.b[ch + 2 * g.H] : 0.0f);
        finish_gates<A>(g, m, ch, q, state);
    }
}

/* Loads what the thread's first output needs besides its sum: the residual or the state. */
template <class A, class T, int SHARE> static __device__ __forceinline__ float fetch_before(const few_args &g)
{
    int r, j, m, n;
    if (SHARE) return place(g, threadIdx.x, SHARE, g.H, &r, &j, &m, &n) ? state_before(g, m, n) : 0.0f;
    return place(g, threadIdx.x, T::TN, g.N, &r, &j, &m, &n) && g.residual
               ? load((const A *)g.residual + (size_t)m * g.N + n)
               : 0.0f;
}

template <class T> static __device__ __forceinline__ float fetch_bias(const few_args &g)
{
    int r, j, m, n;
    return place(g, threadIdx.x, T::TN, g.N, &r, &j, &m, &n) && g.b ? g.b[n] : 0.0f;
}

/* Loads the block's whole rows and normalises them in place. */
template <class A>
static __device__ __forceinline__ void norm_inputs(const few_args &g, feeder<TM> &in, char *x, int pitch, int chunks,
                                                   const float *weights)
{
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; chunk++) in.fetch(x + chunk * CHUNK, pitch);
    copies_end();
    copies_wait<0>();
    __syncthreads();
    /* a warp has rows warp and WARPS + warp */
    const int warp = threadIdx.x / 32, pair = WARPS * pitch / (int)sizeof(A);
    A *rows = (A *)(x + warp * pitch);
    norm_rows<A, TM / WARPS, NORM_WIDEST / 128>(g, blockIdx.y * TM + warp, WARPS, rows, rows, pair, weights,
                                                weights + g.K, blockIdx.x == 0);
    __syncthreads();
}
#endif

/* SHARE: channels in a tile of gates, else 0. Shared memory: x (whole rows or stages), stages of W, the norm's weights;
 * the final sums reuse all of it. */
template <class A, class T, int NORM, int SHARE> static __global__ __launch_bounds__(THREADS) void few_tiles(few_args g)
{
#if __CUDA_ARCH__ >= 800 || !defined(__CUDA_ARCH__)
    extern __shared__ char shared[];
    const int chunks = (g.K * (int)sizeof(A) + CHUNK - 1) / CHUNK, x_pitch = NORM ? chunks * CHUNK + 16 : PITCH,
              ahead = T::STAGES - 1;
    char *x = shared, *w = shared + (NORM ? TM * x_pitch : T::STAGES * TM * PITCH);
    float *norm_weights = (float *)(w + T::STAGES * T::TN * PITCH);
    float sum[T::TN / 8][4] = {};
    feeder<TM> in;
    feeder<T::TN> weights;
    const size_t row_bytes = (size_t)g.K * sizeof(A);
    early_start();
    in.start(g.x, row_bytes);
    weights.start(g.W, row_bytes);
    in.row(0, input_row(g, threadIdx.x / 16), row_bytes);
#pragma unroll
    for (int i = 0; i < T::TN / 16; i++) weights.row(i, weight_row<T, SHARE>(g, threadIdx.x / 16 + 16 * i), row_bytes);
#pragma unroll 1
    for (int i = 0; i < ahead; i++) weights.fetch(w + i * T::TN * PITCH, PITCH);
#pragma unroll 2
    for (int k = threadIdx.x; NORM && k < g.K; k += THREADS)
        norm_weights[k] = g.norm_w[k], norm_weights[g.K + k] = g.norm_b ? g.norm_b[k] : 0.0f;
    const float bias = SHARE ? 0.0f : fetch_bias<T>(g);
    wait_for_results();
    if (NORM) norm_inputs<A>(g, in, x, x_pitch, chunks, norm_weights);
#pragma unroll 1
    for (int i = 0; i < ahead; i++) { /* the first group contains all weights loaded so far */
        if (!NORM) in.fetch(x + i * TM * PITCH, PITCH);
        copies_end();
    }
    const float before = fetch_before<A, T, SHARE>(g);
#pragma unroll 1
    for (int chunk = 0, stage = 0, next = ahead; chunk < chunks; chunk++) {
        copies_wait<T::STAGES - 2>();
        __syncthreads();
        if (chunk + ahead < chunks) {
            weights.fetch(w + next * T::TN * PITCH, PITCH);
            if (!NORM) in.fetch(x + next * TM * PITCH, PITCH);
        }
        copies_end();
        multiply_chunk<A, T>(NORM ? x + chunk * CHUNK : x + stage * TM * PITCH, x_pitch, w + stage * T::TN * PITCH,
                             sum);
        stage = stage + 1 == T::STAGES ? 0 : stage + 1;
        next = next + 1 == T::STAGES ? 0 : next + 1;
    }
    copies_wait<0>();
    __syncthreads();
    lay_out<T>(sum, (float *)shared);
    __syncthreads();
    if (SHARE) finish_cells<A, T, SHARE ? SHARE : 1>(g, (const float *)shared, before);
    else finish_linear<A, T>(g, (const float *)shared, before, bias);
#endif
}

/* ---- launches ---- */

template <class A, class T, int NORM, int SHARE> static int launch_tiles(mr_cuda *c, const few_args *g)
{
    const size_t chunks = div_up((size_t)g->K * sizeof(A), CHUNK);
    const size_t x = NORM ? TM * (chunks * CHUNK + 16) : (size_t)T::STAGES * TM * PITCH;
    const size_t shared = x + (size_t)T::STAGES * T::TN * PITCH + (NORM ? 2 * (size_t)g->K * sizeof(float) : 0);
    const dim3 grid((unsigned)div_up((size_t)(SHARE ? g->H : g->N), SHARE ? SHARE : T::TN),
                    (unsigned)div_up((size_t)g->M, TM));
    if (shared > MOST_SHARED) return 0;
    chain(c, "few_tiles", few_tiles<A, T, NORM, SHARE>, grid, THREADS, shared, *g);
    return 1;
}

template <class A, class T, int NORM> static int by_gates(mr_cuda *c, const few_args *g)
{
    if (g->G == 3) return T::TN % 3 ? 0 : launch_tiles < A, T, NORM, T::TN % 3 ? 0 : T::TN / 3 > (c, g);
    return g->G ? launch_tiles<A, T, NORM, T::TN / 2>(c, g) : launch_tiles<A, T, NORM, 0>(c, g);
}

/* Takes larger tiles when there are enough of them for about a hundred multiprocessors; depends only on the shape. */
template <class A> static int by_tile(mr_cuda *c, const few_args *g)
{
    const bool flat = div_up((size_t)g->M, 16) * div_up((size_t)g->N, 48) >= 96 || g->G == 3;
    if (flat) return g->norm ? by_gates<A, flat_tile, 1>(c, g) : by_gates<A, flat_tile, 0>(c, g);
    return g->norm ? by_gates<A, small_tile, 1>(c, g) : by_gates<A, small_tile, 0>(c, g);
}

/* With more rows, tiles load the same data too often, and cuBLASLt is faster. */
enum { MOST_ROWS = 128 };

int mr_cuda_few_tiles(mr_cuda *c, const few_args *g)
{
    const uintptr_t all = (uintptr_t)g->x | (uintptr_t)g->W | (uintptr_t)g->norm_y;
    const int odd = c->bf16 ? g->K % 8 : g->K % 4, large = (size_t)g->N * (size_t)g->K > 1 << 20 || g->M > MOST_ROWS;
    if (c->capability < 80 || (c->exact && !c->bf16) || odd || large || all % 16 || (g->norm && g->K > NORM_WIDEST))
        return 0;
    return c->bf16 ? by_tile<bf16>(c, g) : by_tile<float>(c, g);
}
