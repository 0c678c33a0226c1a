/* bf16 copies of the parameters, for the products. Parameters stay fp32; copies are refreshed
 * when they may have changed. */
#include "ops/cuda/cuda.cuh"

static __global__ void refresh(const mr_cuda_shadow *list)
{
    const mr_cuda_shadow s = list[blockIdx.y];
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < s.n; i += (size_t)gridDim.x * blockDim.x)
        store(s.to + i, s.from[i]);
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

void mr_cuda_freshen(mr_cuda *c)
{
    if (c->shadows_stale && c->shadow_count) {
        refresh<<<dim3(64, (unsigned)c->shadow_count), 256, 0, c->stream>>>(c->shadow_table);
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
