/* Raw calls: work on the caller's memory, in the caller's stream.
 *
 * A device for raw calls owns nothing on the GPU. A call uses the caller's workspace as the scratch, the products'
 * workspace and the bf16 copies of weights that ops ask the device for, and lets go of it when all is launched. So
 * calls in different streams share no scratch, nothing is allocated or waited for, and a graph that captured a call
 * holds only the caller's addresses. */
#include "ops/cuda/cuda.cuh"

enum { LT_ALIGN = 256 }; /* alignment that cuBLASLt requires of its workspace */

struct raw_rooms {
    mr_cuda_room scratch, product_scratch, copies;
    void *workspace;
    size_t bytes;
};

static mr_cuda_room take(mr_arena *arena, size_t bytes)
{
    mr_cuda_room room = {};
    room.data = mr_arena_take(arena, bytes);
    room.size = bytes;
    return room;
}

static size_t padded(size_t bytes) { return div_up(bytes, MR_ARENA_ALIGN) * MR_ARENA_ALIGN; }

/* Scratch of layers that keep no pre-activations. For any call, the most that the fused kernels and the others take. */
static size_t scratch_bytes(mr_cuda *c, const mr_raw *r, int fused)
{
    if (fused && !r->backward) return 0;
    const size_t own = mr_cuda_fused_scratch(c, r->cell, r->B, r->T, r->H, fused ? r->dx : 1),
                 recompute = mr_cuda_recompute_scratch(&c->dev, r->cell, r->B, r->T, r->H);
    if (r->known) return fused ? own : recompute;
    return own > recompute ? own : recompute;
}

/* With W: the most that minrnn.cu, fused.cu, product.cu and few_*.cu take for this shape. The fused kernels need a
 * product of cuBLASLt for dx alone. */
static void lay_out_products(mr_cuda *c, const mr_raw *r, mr_arena *arena, raw_rooms *rooms)
{
    const size_t N = (size_t)r->H * (size_t)mr_cell_gates(r->cell), D = (size_t)r->D;
    const size_t tokens = (size_t)r->B * (size_t)r->T;
    const int fusable = mr_cuda_fusable(c, r->cell, r->D, r->H),
              fused = fusable && r->known && r->aligned && mr_cuda_fused_fits(r->B, r->T, (int)N, r->H);
    if (fusable) rooms->scratch = take(arena, scratch_bytes(c, r, fused));
    if (fused && !(r->backward && r->dx)) return;
    if (c->bf16 && (N % 8 || D % 8))
        rooms->product_scratch = take(arena, tokens * N * sizeof(float)); /* sums before the bias is added */
    if (c->bf16) rooms->copies = take(arena, padded(N * D * sizeof(bf16)) + padded(N * sizeof(bf16)));
    char *at = (char *)take(arena, MR_CUDA_WORKSPACE + LT_ALIGN).data;
    rooms->workspace = at ? at + (LT_ALIGN - (uintptr_t)at % LT_ALIGN) % LT_ALIGN : NULL;
}

static raw_rooms lay_out(mr_cuda *c, const mr_raw *r, void *base)
{
    raw_rooms rooms = {};
    mr_arena arena = {};
    arena.base = (char *)base;
    mr_arena_take(&arena, mr_cuda_scan_work(&c->dev, r->B, r->T, r->H)); /* `work` of the ops */
    if (r->D) lay_out_products(c, r, &arena, &rooms);
    rooms.bytes = arena.used;
    return rooms;
}

static size_t raw_work(mr_dev *dev, const mr_raw *r) { return lay_out(cuda_of(dev), r, NULL).bytes; }

static void raw_begin(mr_dev *dev, const mr_raw *r)
{
    mr_cuda *c = cuda_of(dev);
    const raw_rooms rooms = lay_out(c, r, r->work);
    c->device_before = c->index;
    CHECK(c, cudaGetDevice(&c->device_before));
    if (c->device_before != c->index) CHECK(c, cudaSetDevice(c->index));
    cudaGetLastError(); /* clears an earlier error of this thread, which is not ours */
    c->stream = r->stream ? (cudaStream_t)r->stream : c->own_stream;
    c->scratch = rooms.scratch;
    c->product_scratch = rooms.product_scratch;
    c->copies = rooms.copies;
    c->workspace = rooms.workspace;
    c->shadow_count = 0;
    c->stream_end = MR_END_PLAIN; /* the last kernel in this stream may not be ours */
}

static int raw_end(mr_dev *dev, mr_error *err)
{
    mr_cuda *c = cuda_of(dev);
    const cudaError_t error = c->error;
    const mr_cuda_room none = {};
    c->scratch = c->product_scratch = c->copies = none;
    c->workspace = NULL;
    c->shadow_count = 0;
    c->stream = c->own_stream;
    c->error = cudaSuccess;
    if (c->device_before != c->index) cudaSetDevice(c->device_before);
    if (error == cudaSuccess) return 0;
    return mr_fail(err, MR_EDEVICE, "%s: %s (%s)", c->name, cudaGetErrorString(error), c->where);
}

static __global__ void copy_narrow(size_t n, const float *from, bf16 *to)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        store(to + i, from[i]);
}

/* Made once per call and not reused by the next: its weights may differ at the same address. */
const bf16 *mr_cuda_raw_copy(mr_cuda *c, const float *from, size_t n)
{
    for (int i = 0; i < c->shadow_count; i++)
        if (c->shadows[i].from == from && c->shadows[i].n == n) return c->shadows[i].to;
    const size_t bytes = padded(n * sizeof(bf16));
    if (bytes > c->copies.size || c->shadow_count == MR_CUDA_SHADOWS) {
        mr_cuda_note(c, cudaErrorMemoryAllocation, "the caller's workspace");
        return NULL;
    }
    mr_cuda_shadow *s = &c->shadows[c->shadow_count++];
    s->from = from;
    s->n = n;
    s->to = (bf16 *)c->copies.data;
    c->copies.data = (char *)c->copies.data + bytes;
    c->copies.size -= bytes;
    const size_t blocks = div_up(n, 1024);
    copy_narrow<<<(unsigned)(blocks < 1056 ? blocks : 1056), 256, 0, c->stream>>>(n, from, s->to);
    LAUNCHED(c, "copy_narrow");
    c->stream_end = MR_END_PLAIN; /* kernels that read weights early must wait for this one */
    return s->to;
}

void mr_cuda_raw_hooks(mr_dev *dev)
{
    dev->raw_work = raw_work;
    dev->raw_begin = raw_begin;
    dev->raw_end = raw_end;
}
