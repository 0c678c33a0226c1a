/* bf16 copies of the parameters, for the products. Parameters stay fp32; copies are refreshed
 * when they may have changed. */
#include "ops/cuda/cuda.cuh"

enum { THREADS = 256 };

static __global__ void refresh(const mr_cuda_shadow *list)
{
    const mr_cuda_shadow s = list[blockIdx.y];
    const size_t first = blockIdx.x * (size_t)blockDim.x + threadIdx.x, threads = (size_t)gridDim.x * blockDim.x;
    if (s.n % 4 || (uintptr_t)s.from % 16) {
        for (size_t i = first; i < s.n; i += threads) store(s.to + i, s.from[i]);
        return;
    }
    for (size_t i = 4 * first; i < s.n; i += 4 * threads) {
        float v[4];
        quad<float>::load(s.from + i, v);
        quad<bf16>::store(s.to + i, v);
    }
}

void mr_cuda_written(mr_cuda *c, const void *to, size_t bytes)
{
    const uintptr_t first = (uintptr_t)to;
    for (int i = 0; i < c->shadow_count; i++) {
        const uintptr_t from = (uintptr_t)c->shadows[i].from;
        if (first < from + c->shadows[i].n * sizeof(float) && from < first + bytes)
            c->shadows_stale = c->weights_written = 1;
    }
}

static mr_cuda_shadow *find(mr_cuda *c, const float *from, size_t n)
{
    for (int i = 0; i < c->shadow_count; i++)
        if (c->shadows[i].from == from && c->shadows[i].n == n) return &c->shadows[i];
    return NULL;
}

/* Never called during a recording: the step ran once before and registered all that it needs. */
static mr_cuda_shadow *add(mr_cuda *c, const float *from, size_t n)
{
    mr_cuda_shadow *s = &c->shadows[c->shadow_count];
    if (c->shadow_count == MR_CUDA_SHADOWS) {
        mr_cuda_note(c, cudaErrorMemoryAllocation, "bf16 weights: too many arrays");
        return NULL;
    }
    cudaError_t error = c->shadow_table ? cudaSuccess : cudaMalloc(&c->shadow_table, sizeof c->shadows);
    if (error == cudaSuccess) error = cudaMalloc(&s->to, n * sizeof(bf16));
    if (error != cudaSuccess) {
        mr_cuda_note(c, error, "bf16 weights");
        return NULL;
    }
    s->from = from;
    s->n = n;
    c->dev.taken += n * sizeof(bf16);
    c->shadow_count++;
    c->shadows_stale = 1;
    CHECK(c, cudaMemcpyAsync(c->shadow_table, c->shadows, sizeof *s * (size_t)c->shadow_count, cudaMemcpyHostToDevice,
                             c->stream));
    return s;
}

/* Blocks for one array: enough for the largest, such as the head of a large vocabulary, where each thread then copies
 * eight quads. */
static unsigned blocks_for(const mr_cuda *c)
{
    size_t most = 0;
    for (int i = 0; i < c->shadow_count; i++)
        if (c->shadows[i].n > most) most = c->shadows[i].n;
    const size_t blocks = div_up(most, 32 * THREADS);
    return (unsigned)(blocks < 64 ? 64 : blocks < 1024 ? blocks : 1024);
}

void mr_cuda_freshen(mr_cuda *c)
{
    if (c->shadows_stale && c->shadow_count) {
        refresh<<<dim3(blocks_for(c), (unsigned)c->shadow_count), THREADS, 0, c->stream>>>(c->shadow_table);
        LAUNCHED(c, "refresh");
        c->stream_end = MR_END_PLAIN; /* kernels that read weights early must wait for this one */
    }
    c->shadows_stale = 0;
}

const bf16 *mr_cuda_shadow_of(mr_cuda *c, const float *from, size_t n)
{
    if (c->raw) return mr_cuda_raw_copy(c, from, n); /* a caller may change its weights at any time */
    mr_cuda_shadow *s = find(c, from, n);
    if (!s) s = add(c, from, n);
    if (!s) return NULL;
    mr_cuda_freshen(c);
    return s->to;
}
