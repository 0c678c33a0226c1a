/* Embedding: looks up rows of a table; the backward sums gradients by token id. */
#include "ops/cuda/chain.cuh"

template <class A> static __global__ void embed_rows(size_t n, int D, const int32_t *ids, const float *table, A *y)
{
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    early_start();
    if (i < n) store(y + i, table[(size_t)ids[i / D] * D + i % D]);
}

/* A thread copies four channels of one token. */
template <class A> static __global__ void embed_quads(int N, int quads, const int32_t *ids, const float *table, A *y)
{
    const int n = blockIdx.x * blockDim.y + threadIdx.y;
    early_start();
    if (n >= N) return;
    for (int i = threadIdx.x; i < quads; i += blockDim.x) {
        const float4 v = ((const float4 *)table)[(size_t)ids[n] * quads + i];
        const float x[4] = {v.x, v.y, v.z, v.w};
        quad<A>::store(y + ((size_t)n * quads + i) * 4, x);
    }
}

template <class A> static void embed_launch(mr_cuda *c, const mr_embed_fwd_args *a)
{
    size_t n = (size_t)a->N * (size_t)a->D;
    if (a->D % 4 == 0 && (uintptr_t)a->table % 16 == 0 && (uintptr_t)a->y % (4 * sizeof(A)) == 0)
        embed_quads<A><<<(unsigned)div_up((size_t)a->N, 16), dim3(16, 16), 0, c->stream>>>(
            a->N, a->D / 4, a->ids, (const float *)a->table, (A *)a->y);
    else
        embed_rows<A>
            <<<(unsigned)div_up(n, 256), 256, 0, c->stream>>>(n, a->D, a->ids, (const float *)a->table, (A *)a->y);
    LAUNCHED(c, "embed_rows");
}

static void embed_fwd(mr_dev *dev, const mr_embed_fwd_args *a) { BY_ACT(cuda_of(dev), embed_launch, cuda_of(dev), a); }

/* A block sums the rows of one token id within one chunk of the batch: partial [chunks, vocab, D]. No atomics: the
 * order of the sums depends only on the data. */
template <class A>
static __global__ void embed_sums(int N, int D, int chunk, const int32_t *ids, const A *dy, float *partial)
{
    __shared__ float tile[8][32];
    const int d = blockIdx.x * 32 + threadIdx.x, id = blockIdx.y, first = blockIdx.z * chunk,
              last = min(N, first + chunk);
    float sum = 0;
    /* each warp looks at 32 tokens at once, then reads only the rows of its id */
    for (int base = first + threadIdx.y * 32; base < last; base += 8 * 32) {
        const int n = base + threadIdx.x;
        unsigned hits = __ballot_sync(0xffffffffu, n < last && ids[n] == id);
        while (hits) { /* several loads in flight: one id may be nearly all of a batch */
            float row[8];
#pragma unroll
            for (int i = 0; i < 8; i++, hits &= hits - 1)
                row[i] = hits && d < D ? load(dy + (size_t)(base + __ffs(hits) - 1) * D + d) : 0;
#pragma unroll
            for (int i = 0; i < 8; i++) sum += row[i];
        }
    }
    tile[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || d >= D) return;
    for (int i = 1; i < 8; i++) sum += tile[i][threadIdx.x];
    partial[((size_t)blockIdx.z * gridDim.y + id) * D + d] = sum;
}

/* Large vocabularies: a block takes the ids of one bucket (id modulo BUCKETS) and 32·W channels. It lists the bucket's
 * tokens in order and, whenever the list is nearly full and at the end, adds up the rows of each id in it. */
enum { MANY_IDS = 4096, BUCKETS = 512, LISTED = 2048, LIST_THREADS = 256, LIST_WARPS = LIST_THREADS / 32, AHEAD = 4 };

template <class A, int W> static __device__ __forceinline__ void fetch(const A *p, float *v)
{
    if (W == 4) quad<A>::load(p, v);
    else v[0] = load(p);
}

/* A warp takes an id at its first place in the list. */
template <class A, int W>
static __device__ void add_listed(const int *tokens, const int *names, int count, int D, const A *dy, float *dtable)
{
    const int lane = threadIdx.x % 32, d = (blockIdx.y * 32 + lane) * W;
    for (int place = threadIdx.x / 32; place < count; place += LIST_WARPS) {
        const int id = names[place];
        float sum[W] = {};
        bool first = true;
        for (int base = 0; base < count; base += 32) {
            unsigned hits = __ballot_sync(0xffffffffu, base + lane < count && names[base + lane] == id);
            if (hits && first && base + __ffs(hits) - 1 != place) break;
            if (hits) first = false;
            while (hits) { /* several loads in flight: one id may be nearly all of a batch */
                float row[8][W] = {};
#pragma unroll
                for (int i = 0; i < 8; i++, hits &= hits - 1)
                    if (hits && d < D) fetch<A, W>(dy + (size_t)tokens[base + __ffs(hits) - 1] * D + d, row[i]);
#pragma unroll
                for (int i = 0; i < 8 * W; i++) sum[i % W] += row[i / W][i % W];
            }
        }
        float *to = dtable + (size_t)id * D + d;
        for (int k = 0; !first && d < D && k < W; k++) to[k] += sum[k];
    }
}

template <class A, int W>
static __global__ void embed_listed(int N, int D, const int32_t *ids, const A *dy, float *dtable)
{
    __shared__ int tokens[LISTED], names[LISTED], found[AHEAD * LIST_WARPS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int count = 0; /* the same in all threads */
    for (int base = 0; base < N; base += AHEAD * LIST_THREADS) {
        int id[AHEAD];
        unsigned hits[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const int n = base + k * LIST_THREADS + threadIdx.x;
            id[k] = n < N ? ids[n] : -1;
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            hits[k] = __ballot_sync(0xffffffffu, id[k] >= 0 && id[k] % BUCKETS == (int)blockIdx.x);
            if (lane == 0) found[k * LIST_WARPS + warp] = __popc(hits[k]);
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            for (int w = 0; w < LIST_WARPS; count += found[k * LIST_WARPS + w], w++) {
                if (w != warp || !(hits[k] >> lane & 1)) continue;
                const int place = count + __popc(hits[k] & ((1u << lane) - 1));
                tokens[place] = base + k * LIST_THREADS + threadIdx.x;
                names[place] = id[k];
            }
        __syncthreads();
        if (count <= LISTED - AHEAD * LIST_THREADS) continue;
        add_listed<A, W>(tokens, names, count, D, dy, dtable);
        __syncthreads();
        count = 0;
    }
    add_listed<A, W>(tokens, names, count, D, dy, dtable);
}

template <class A> static void embed_bwd_listed(mr_cuda *c, const mr_embed_bwd_args *a)
{
    const bool quads = a->D % 4 == 0 && (uintptr_t)a->dy % (4 * sizeof(A)) == 0;
    const dim3 grid(BUCKETS, (unsigned)div_up((size_t)a->D, quads ? 128 : 32));
    void (*kernel)(int, int, const int32_t *, const A *, float *) = quads ? embed_listed<A, 4> : embed_listed<A, 1>;
    kernel<<<grid, LIST_THREADS, 0, c->stream>>>(a->N, a->D, a->ids, (const A *)a->dy, (float *)a->dtable);
    LAUNCHED(c, "embed_listed");
}

enum { PARTIAL_FLOATS = 16 << 20, CHUNK = 2048 };

template <class A> static void embed_bwd_launch(mr_cuda *c, const mr_embed_bwd_args *a)
{
    const size_t table = (size_t)a->vocab * (size_t)a->D;
    size_t chunks = div_up((size_t)a->N, CHUNK);
    while (chunks > 1 && chunks * table > PARTIAL_FLOATS) chunks = (chunks + 1) / 2;
    const int chunk = (int)(div_up(div_up((size_t)a->N, chunks), 32) * 32);
    chunks = div_up((size_t)a->N, (size_t)chunk);
    float *partial = (float *)mr_cuda_scratch(c, chunks * table * sizeof(float));
    if (!partial) return;
    dim3 grid((unsigned)div_up((size_t)a->D, 32), (unsigned)a->vocab, (unsigned)chunks);
    embed_sums<A><<<grid, dim3(32, 8), 0, c->stream>>>(a->N, a->D, chunk, a->ids, (const A *)a->dy, partial);
    LAUNCHED(c, "embed_sums");
    mr_cuda_reduce(c, partial, chunks, table, table, 0, (float *)a->dtable);
}

static void embed_bwd(mr_dev *dev, const mr_embed_bwd_args *a)
{
    if (a->vocab >= MANY_IDS) BY_ACT(cuda_of(dev), embed_bwd_listed, cuda_of(dev), a);
    else BY_ACT(cuda_of(dev), embed_bwd_launch, cuda_of(dev), a);
}

void mr_cuda_token_ops(mr_ops *ops)
{
    ops->embed_fwd = embed_fwd;
    ops->embed_bwd = embed_bwd;
}
