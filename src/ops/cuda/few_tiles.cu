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

template <class T> static __device__ __forceinline__ int input_row(const few_args &g, int r)
{
    const int m = blockIdx.y * T::TM + r;
    return m < g.M ? m : -1;
}

/* What a thread fetches of each chunk: 16 bytes at the same place of every sixteenth row. */
template <int ROWS> struct feeder {
    const char *from[ROWS / 16];
    unsigned there; /* a bit a row */
    int left;       /* bytes of the row from this thread's place on */

    __device__ __forceinline__ void start(const void *base, size_t row_bytes) /* rows are added next */
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

template <class T> static __device__ __forceinline__ void sums_at(const float *tile, int r, int j, const float *b, float *v)
{
    for (int k = 0; k < 4; k++) v[k] = b ? b[k] : 0.0f;
#pragma unroll
    for (int i = 0; i < T::WK; i++) {
        const float4 x = *(const float4 *)(tile + (i * T::TM + r) * (T::TN + 4) + j);
        v[0] += x.x, v[1] += x.y, v[2] += x.z, v[3] += x.w;
    }
}

/* N need not be a multiple of four: `count` of the four are there. */
template <class A> static __device__ __forceinline__ void load_some(const A *from, int count, bool whole, float *v)
{
    if (whole) quad<A>::load(from, v);
    else
        for (int k = 0; k < 4; k++) v[k] = k < count ? load(from + k) : 0.0f;
}

template <class A> static __device__ __forceinline__ void store_some(A *to, int count, bool whole, const float *v)
{
    if (whole) quad<A>::store(to, v);
    else
        for (int k = 0; k < 4; k++)
            if (k < count) store(to + k, v[k]);
}

static __device__ __forceinline__ float quick_gelu(float x) { return x * fast_sigmoid(1.5957691216057308f * fmaf(0.044715f * x * x, x, x)); }

template <class A, class T> static __device__ __forceinline__ void finish_linear(const few_args &g, const float *tile)
{
    const int first = blockIdx.x * T::TN;
    const bool whole = g.whole;
#pragma unroll 2
    for (int i = threadIdx.x; i < T::TM * (T::TN / 4); i += THREADS) {
        const int r = i / (T::TN / 4), j = i % (T::TN / 4) * 4, m = blockIdx.y * T::TM + r, count = g.N - first - j;
        if (m >= g.M || count <= 0) continue;
        const size_t at = (size_t)m * g.N + first + j;
        float v[4], b[4] = {0, 0, 0, 0}, before[4] = {0, 0, 0, 0};
        if (g.b) load_some(g.b + first + j, count, whole, b);
        if (g.residual) load_some((const A *)g.residual + at, count, whole, before);
        sums_at<T>(tile, r, j, b, v);
        if (g.pre) store_some((A *)g.pre + at, count, whole, v);
        for (int k = 0; k < 4; k++) v[k] = (g.gelu ? quick_gelu(v[k]) : v[k]) + before[k];
        store_some((A *)g.y + at, count, whole, v);
    }
}

template <class A, class T, int G> static __device__ __forceinline__ void finish_cells(const few_args &g, const float *tile)
{
    const int share = T::TN / G, first = blockIdx.x * share;
    for (int i = threadIdx.x; i < T::TM * (share / 4); i += THREADS) {
        const int r = i / (share / 4), j = i % (share / 4) * 4, m = blockIdx.y * T::TM + r, ch = first + j;
        float q[4][3] = {}, v[4], state[4];
        if (m >= g.M || ch >= g.H) continue;
        for (int k = 0; k < 4; k++) state[k] = ch + k < g.H ? state_before(g, m, ch + k) : 0.0f;
#pragma unroll
        for (int n = 0; n < G; n++) {
            sums_at<T>(tile, r, n * share + j, NULL, v);
            for (int k = 0; k < 4; k++) q[k][n] = v[k] + (ch + k < g.H ? g.b[n * g.H + ch + k] : 0.0f);
        }
        for (int k = 0; k < 4; k++)
            if (ch + k < g.H) finish_gates<A>(g, m, ch + k, q[k], state[k]);
    }
}

/* All of K of the block's rows, normed where they lie. */
template <class A, class T> static __device__ __forceinline__ void norm_inputs(const few_args &g, feeder<T::TM> &in, char *x, int pitch, int chunks, const float *weights)
{
    const int ROWS = T::TM / 8 < 4 ? T::TM / 8 : 4, warp = threadIdx.x / 32;
    for (int chunk = 0; chunk < chunks; chunk++) in.fetch(x + chunk * CHUNK, pitch);
    copies_end();
    copies_wait<0>();
    __syncthreads();
    for (int r = warp; r < T::TM; r += 8 * ROWS) {
        A *rows = (A *)(x + r * pitch);
        const int m = blockIdx.y * T::TM + r;
        const bool keep = blockIdx.x == 0;
        if (g.K <= 512) norm_rows<A, ROWS, 4>(g, m, 8, rows, rows, pitch / sizeof(A), weights, weights + g.K, keep);
        else norm_rows<A, ROWS, 8>(g, m, 8, rows, rows, pitch / sizeof(A), weights, weights + g.K, keep);
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
    feeder<T::TM> in;
    feeder<T::TN> weights;
    const size_t row_bytes = (size_t)g.K * sizeof(A);
    early_start();
    in.start(g.x, row_bytes);
    weights.start(g.W, row_bytes);
#pragma unroll
    for (int i = 0; i < T::TM / 16; i++) in.row(i, input_row<T>(g, threadIdx.x / 16 + 16 * i), row_bytes);
#pragma unroll
    for (int i = 0; i < T::TN / 16; i++) weights.row(i, weight_row<T>(g, threadIdx.x / 16 + 16 * i), row_bytes);
    for (int i = 0; i < ahead; i++) weights.fetch(w + i * T::TN * PITCH, PITCH);
    for (int k = threadIdx.x; NORM && k < g.K; k += THREADS) norm_weights[k] = g.norm_w[k], norm_weights[g.K + k] = g.norm_b ? g.norm_b[k] : 0.0f;
    wait_for_results();
    if (NORM) norm_inputs<A, T>(g, in, x, x_pitch, chunks, norm_weights);
    for (int i = 0; i < ahead; i++) { /* the first group has all weights so far in it */
        if (!NORM) in.fetch(x + i * T::TM * PITCH, PITCH);
        copies_end();
    }
    for (int chunk = 0, stage = 0, next = ahead; chunk < chunks; chunk++) {
        copies_wait<T::STAGES - 2>();
        __syncthreads();
        if (chunk + ahead < chunks) {
            weights.fetch(w + next * T::TN * PITCH, PITCH);
            if (!NORM) in.fetch(x + next * T::TM * PITCH, PITCH);
        }
        copies_end();
        multiply_chunk<A, T>(NORM ? x + chunk * CHUNK : x + stage * T::TM * PITCH, x_pitch, w + stage * T::TN * PITCH, sum);
        stage = stage + 1 == T::STAGES ? 0 : stage + 1;
        next = next + 1 == T::STAGES ? 0 : next + 1;
    }
    copies_wait<0>();
    __syncthreads();
    lay_out<T>(sum, (float *)shared);
    __syncthreads();
    if (!g.G) finish_linear<A, T>(g, (const float *)shared);
    else if (g.G == 2) finish_cells<A, T, 2>(g, (const float *)shared);
    else if (T::TN % 12 == 0) finish_cells<A, T, 3>(g, (const float *)shared);
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
    if (g->norm && g->K > 1024) return 0;
    if (c->capability < 80 || (c->exact && !c->bf16) || odd || large || all % 16) return 0;
    few_args ready = *g;
    ready.whole = g->N % 4 == 0 && ((uintptr_t)g->b | (uintptr_t)g->residual | (uintptr_t)g->pre | (uintptr_t)g->y) % 16 == 0;
    return c->bf16 ? by_tile<bf16>(c, &ready) : by_tile<float>(c, &ready);
}
