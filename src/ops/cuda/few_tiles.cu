/* From some ten rows on: tensor cores (mma.sync), bf16 on a bf16 device and TF32 on an fp32 one. A block makes a tile of TM tokens × TN
 * outputs. K goes through shared memory in chunks of 256 bytes a row, several in flight; where a norm comes first, its rows of x lie
 * there whole. Warps share a chunk's K among them where the tile is small, and add up in a fixed order. */
#include "ops/cuda/few.cuh"

enum { THREADS = 256, CHUNK = 256, STEP = 32, PITCH = CHUNK + 16, MOST_SHARED = 227 << 10 }; /* bytes; PITCH: without bank conflicts */

/* TM × TN outputs by WM × WN × WK warps, WK of them at different K. */
template <int TM_, int TN_, int WM_, int WN_, int WK_, int STAGES_> struct tile_of {
    static const int TM = TM_, TN = TN_, WM = WM_, WN = WN_, WK = WK_, STAGES = STAGES_;
    static const int MT = TM / WM / 16, NT = TN / WN / 8; /* a warp's tiles of 16 × 8 */
};

typedef tile_of<64, 192, 2, 4, 1, 3> huge_tile;
typedef tile_of<64, 192, 2, 4, 1, 2> huge_tile_normed; /* x takes the room of the third stage */
typedef tile_of<64, 48, 2, 1, 4, 4> large_tile;
typedef tile_of<16, 48, 1, 1, 8, 6> flat_tile;
typedef tile_of<16, 16, 1, 1, 8, 6> small_tile;

/* ---- instructions ---- */

#if __CUDA_ARCH__ >= 800 || !defined(__CUDA_ARCH__)
static __device__ __forceinline__ void copy_16(void *to, const void *from, bool there)
{
    const unsigned at = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(there ? 16 : 0) : "memory");
}

static __device__ __forceinline__ void copies_end(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> static __device__ __forceinline__ void copies_wait(void) { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

static __device__ __forceinline__ void load_fragment(unsigned *r, const void *from)
{
    const unsigned at = (unsigned)__cvta_generic_to_shared(from);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}

/* 32 bytes of K of 16 rows of x and 8 rows of W. */
static __device__ __forceinline__ void multiply(float *c, const unsigned *a, const unsigned *b, bf16)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

static __device__ __forceinline__ void multiply(float *c, const unsigned *a, const unsigned *b, float)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* fp32 is rounded to TF32; the unit itself would cut it off. */
static __device__ __forceinline__ void round_fragment(unsigned *, bf16) {}
static __device__ __forceinline__ void round_fragment(unsigned *r, float)
{
#pragma unroll
    for (int i = 0; i < 4; i++) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r[i]) : "f"(__uint_as_float(r[i])));
}

/* ---- parts of the kernel ---- */

/* The row of W that is column j of this block's tile, or −1. Gates lie side by side in a tile: p | k | v of the same channels. */
template <class T> static __device__ __forceinline__ int weight_row(const few_args &g, int j)
{
    if (!g.G) {
        const int n = blockIdx.x * T::TN + j;
        return n < g.N ? n : -1;
    }
    const int share = T::TN / g.G, ch = blockIdx.x * share + j % share;
    return ch < g.H ? j / share * g.H + ch : -1;
}

template <class A, class T> static __device__ __forceinline__ void fetch_weights(const few_args &g, int chunk, char *stage)
{
    const size_t bytes = (size_t)g.K * sizeof(A);
    for (int i = threadIdx.x; i < T::TN * (CHUNK / 16); i += THREADS) {
        const int j = i / (CHUNK / 16), at = i % (CHUNK / 16) * 16, row = weight_row<T>(g, j);
        const size_t byte = (size_t)chunk * CHUNK + at;
        const bool there = row >= 0 && byte < bytes;
        copy_16(stage + j * PITCH + at, (const char *)g.W + (there ? (size_t)row * bytes + byte : 0), there);
    }
}

template <class A, class T> static __device__ __forceinline__ void fetch_inputs(const few_args &g, int chunk, char *stage, int pitch)
{
    const size_t bytes = (size_t)g.K * sizeof(A);
    for (int i = threadIdx.x; i < T::TM * (CHUNK / 16); i += THREADS) {
        const int r = i / (CHUNK / 16), at = i % (CHUNK / 16) * 16, m = blockIdx.y * T::TM + r;
        const size_t byte = (size_t)chunk * CHUNK + at;
        const bool there = m < g.M && byte < bytes;
        copy_16(stage + r * pitch + at, (const char *)g.x + (there ? (size_t)m * bytes + byte : 0), there);
    }
}

template <class A, class T>
static __device__ __forceinline__ void multiply_chunk(const char *x, int x_pitch, const char *w, float (*sum)[T::NT][4])
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, wk = warp % T::WK, wn = warp / T::WK % T::WN, wm = warp / T::WK / T::WN;
    const char *a_at = x + (wm * (T::TM / T::WM) + lane % 16) * x_pitch + lane / 16 * 16;
    const char *b_at = w + (wn * (T::TN / T::WN) + lane % 8 + lane / 16 * 8) * PITCH + lane / 8 % 2 * 16;
#pragma unroll
    for (int s = 0; s < CHUNK / STEP / T::WK; s++) {
        const int byte = (s * T::WK + wk) * STEP;
        unsigned a[T::MT][4], b[T::NT / 2][4];
#pragma unroll
        for (int i = 0; i < T::MT; i++) load_fragment(a[i], a_at + i * 16 * x_pitch + byte), round_fragment(a[i], A());
#pragma unroll
        for (int i = 0; i < T::NT / 2; i++) load_fragment(b[i], b_at + i * 16 * PITCH + byte), round_fragment(b[i], A());
#pragma unroll
        for (int i = 0; i < T::MT; i++)
#pragma unroll
            for (int j = 0; j < T::NT; j++) multiply(sum[i][j], a[i], b[j / 2] + j % 2 * 2, A());
    }
}

/* Sums of the warps side by side in shared memory: [WK, TM, TN + 4]. */
template <class T> static __device__ __forceinline__ void lay_out(const float (*sum)[T::NT][4], float *tile)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, wk = warp % T::WK, wn = warp / T::WK % T::WN, wm = warp / T::WK / T::WN;
#pragma unroll
    for (int i = 0; i < T::MT; i++)
#pragma unroll
        for (int j = 0; j < T::NT; j++) {
            const int row = wm * (T::TM / T::WM) + i * 16 + lane / 4, column = wn * (T::TN / T::WN) + j * 8 + lane % 4 * 2;
            float *at = tile + (wk * T::TM + row) * (T::TN + 4) + column;
            *(float2 *)at = make_float2(sum[i][j][0], sum[i][j][1]);
            *(float2 *)(at + 8 * (T::TN + 4)) = make_float2(sum[i][j][2], sum[i][j][3]);
        }
}

template <class T> static __device__ __forceinline__ float sum_at(const float *tile, int r, int j)
{
    float v = 0;
#pragma unroll
    for (int k = 0; k < T::WK; k++) v += tile[(k * T::TM + r) * (T::TN + 4) + j];
    return v;
}

template <class A, class T> static __device__ __forceinline__ void finish_tile(const few_args &g, const float *tile)
{
    const int share = g.G ? T::TN / g.G : T::TN, first = blockIdx.x * share, columns = min(share, (g.G ? g.H : g.N) - first);
#pragma unroll 4
    for (int i = threadIdx.x; i < T::TM * share; i += THREADS) {
        const int r = i / share, j = i % share, m = blockIdx.y * T::TM + r, n = first + j;
        if (m >= g.M || j >= columns) continue;
        if (g.G) {
            float q[3];
#pragma unroll
            for (int k = 0; k < 3; k++) q[k] = k < g.G ? sum_at<T>(tile, r, k * share + j) + g.b[k * g.H + n] : 0.0f;
            finish_gates<A>(g, m, n, q, state_before(g, m, n));
        } else {
            const float before = g.residual ? load((const A *)g.residual + (size_t)m * g.N + n) : 0.0f;
            finish_linear<A>(g, m, n, sum_at<T>(tile, r, j) + (g.b ? g.b[n] : 0.0f), before);
        }
    }
}

/* All of K of the block's rows, normed where they lie. */
template <class A, class T> static __device__ __forceinline__ void norm_inputs(const few_args &g, char *x, int pitch, int chunks, const float *weights)
{
    for (int chunk = 0; chunk < chunks; chunk++) fetch_inputs<A, T>(g, chunk, x + chunk * CHUNK, pitch);
    copies_end();
    copies_wait<0>();
    __syncthreads();
#pragma unroll 2
    for (int r = threadIdx.x / 32; r < T::TM; r += THREADS / 32) {
        const int m = blockIdx.y * T::TM + r;
        if (m < g.M) norm_row<A>(g, m, (A *)(x + r * pitch), weights, blockIdx.x == 0);
    }
    __syncthreads();
}
#endif

/* Shared memory: x (whole rows or stages), stages of W, the norm's weights; the sums at the end lie over all of it. */
template <class A, class T, int NORM> static __global__ __launch_bounds__(THREADS) void few_tiles(few_args g)
{
#if __CUDA_ARCH__ >= 800 || !defined(__CUDA_ARCH__)
    extern __shared__ char shared[];
    const int chunks = (g.K * (int)sizeof(A) + CHUNK - 1) / CHUNK, x_pitch = NORM ? chunks * CHUNK + 16 : PITCH, ahead = T::STAGES - 1;
    char *x = shared, *w = shared + (NORM ? T::TM * x_pitch : T::STAGES * T::TM * PITCH);
    float *norm_weights = (float *)(w + T::STAGES * T::TN * PITCH);
    float sum[T::MT][T::NT][4] = {};
    early_start();
    for (int i = 0; i < ahead; i++) {
        if (i < chunks) fetch_weights<A, T>(g, i, w + i * T::TN * PITCH);
        if (NORM) copies_end(); /* otherwise a stage is its part of x too */
    }
    if (NORM) fetch_norm(g, norm_weights);
    wait_for_results();
    if (NORM) norm_inputs<A, T>(g, x, x_pitch, chunks, norm_weights);
    else
        for (int i = 0; i < ahead; i++) {
            if (i < chunks) fetch_inputs<A, T>(g, i, x + i * T::TM * PITCH, PITCH);
            copies_end();
        }
    for (int chunk = 0; chunk < chunks; chunk++) {
        const int stage = chunk % T::STAGES, next = chunk + ahead;
        copies_wait<T::STAGES - 2>();
        __syncthreads();
        if (next < chunks) {
            fetch_weights<A, T>(g, next, w + next % T::STAGES * T::TN * PITCH);
            if (!NORM) fetch_inputs<A, T>(g, next, x + next % T::STAGES * T::TM * PITCH, PITCH);
        }
        copies_end();
        multiply_chunk<A, T>(NORM ? x + chunk * CHUNK : x + stage * T::TM * PITCH, x_pitch, w + stage * T::TN * PITCH, sum);
    }
    copies_wait<0>();
    __syncthreads();
    lay_out<T>(sum, (float *)shared);
    __syncthreads();
    finish_tile<A, T>(g, (const float *)shared);
#endif
}

/* ---- launches ---- */

template <class A, class T, int NORM> static int launch_tiles(mr_cuda *c, const few_args *g)
{
    const size_t chunks = div_up((size_t)g->K * sizeof(A), CHUNK), share = (size_t)(g->G ? T::TN / g->G : T::TN);
    const size_t x = NORM ? T::TM * (chunks * CHUNK + 16) : (size_t)T::STAGES * T::TM * PITCH;
    const size_t shared = x + (size_t)T::STAGES * T::TN * PITCH + (NORM ? 2 * (size_t)g->K * sizeof(float) : 0);
    const size_t sums = (size_t)T::WK * T::TM * (T::TN + 4) * sizeof(float), most = shared > sums ? shared : sums;
    if (most > MOST_SHARED) return 0;
    const dim3 grid((unsigned)div_up((size_t)(g->G ? g->H : g->N), share), (unsigned)div_up((size_t)g->M, T::TM));
    chain(c, "few_tiles", few_tiles<A, T, NORM>, grid, THREADS, most, *g);
    return 1;
}

template <class A, class T> static int with_norm(mr_cuda *c, const few_args *g)
{
    return g->norm ? launch_tiles<A, T, 1>(c, g) : launch_tiles<A, T, 0>(c, g);
}

/* The largest tiles of which there are enough for a chip of about a hundred multiprocessors: by shape alone. */
template <class A> static int by_tile(mr_cuda *c, const few_args *g)
{
    const size_t enough = 96, M = (size_t)g->M, N = (size_t)g->N;
    if (div_up(M, 64) * div_up(N, 192) >= enough) return g->norm ? launch_tiles<A, huge_tile_normed, 1>(c, g) : launch_tiles<A, huge_tile, 0>(c, g);
    if (div_up(M, 64) * div_up(N, 48) >= enough) return with_norm<A, large_tile>(c, g);
    if (div_up(M, 16) * div_up(N, 48) >= enough || g->G == 3) return with_norm<A, flat_tile>(c, g);
    return with_norm<A, small_tile>(c, g);
}

int mr_cuda_few_tiles(mr_cuda *c, const few_args *g)
{
    const uintptr_t all = (uintptr_t)g->x | (uintptr_t)g->W | (uintptr_t)g->norm_y;
    const int odd = c->bf16 ? g->K % 8 : g->K % 4, large = (size_t)g->N * (size_t)g->K > 1 << 20 || g->M > 1024;
    if (c->capability < 80 || (c->exact && !c->bf16) || odd || large || all % 16) return 0;
    return c->bf16 ? by_tile<bf16>(c, g) : by_tile<float>(c, g);
}
