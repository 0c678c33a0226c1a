/* Uploads. Small pieces are only copied to pinned memory and noted; the next thing that the stream is asked for comes
 * after one kernel that fetches all of them from there. A copy each would take as long as several kernels, because it
 * switches engines, and a training step of a small model has ten of them. */
#include "ops/cuda/cuda.cuh"

#include <string.h>

enum { SMALL = 512 << 10, THREADS = 256, MOST_BLOCKS = 64 };

struct pieces {
    mr_cuda_piece list[MR_CUDA_PIECES];
};

/* A row of blocks for each piece. */
static __global__ void fetch_pieces(pieces all)
{
    const mr_cuda_piece p = all.list[blockIdx.y];
    const size_t first = blockIdx.x * (size_t)THREADS + threadIdx.x, threads = (size_t)gridDim.x * THREADS;
    if (p.narrow) {
        for (size_t i = first; i < p.bytes / sizeof(float); i += threads) store((bf16 *)p.to + i, ((float *)p.from)[i]);
        return;
    }
    const size_t words = (uintptr_t)p.to % sizeof(uint4) ? 0 : p.bytes / sizeof(uint4);
    for (size_t i = first; i < words; i += threads) ((uint4 *)p.to)[i] = ((const uint4 *)p.from)[i];
    for (size_t i = words * sizeof(uint4) + first; i < p.bytes; i += threads) ((char *)p.to)[i] = p.from[i];
}

void mr_cuda_deliver(mr_cuda *c)
{
    pieces all;
    size_t most = 1;
    if (!c->piece_count) return;
    for (int i = 0; i < c->piece_count; i++) {
        all.list[i] = c->pieces[i];
        if (all.list[i].bytes > most) most = all.list[i].bytes;
    }
    const size_t blocks = div_up(most, 16 * THREADS);
    const dim3 grid((unsigned)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS), (unsigned)c->piece_count);
    c->piece_count = 0;
    fetch_pieces<<<grid, THREADS, 0, c->stream>>>(all);
    LAUNCHED(c, "fetch_pieces");
}

static bool touches(const mr_cuda_piece *p, const void *to, size_t bytes)
{
    const size_t its = p->narrow ? p->bytes / 2 : p->bytes;
    return (uintptr_t)p->to < (uintptr_t)to + bytes && (uintptr_t)to < (uintptr_t)p->to + its;
}

/* What is noted has no order, so what overlaps must have been delivered. */
static void prepare(mr_cuda *c, const void *to, size_t bytes)
{
    if (c->has_waiting) mr_cuda_settle(c);
    for (int i = 0; i < c->piece_count; i++)
        if (touches(&c->pieces[i], to, bytes)) {
            mr_cuda_deliver(c);
            break;
        }
    c->stream_end = MR_END_PLAIN;
    mr_cuda_written(c, to, bytes);
}

/* Room for `bytes` of pinned memory, or for less if that is all there can be; waits when there is none. */
static char *stage(mr_cuda *c, size_t *bytes)
{
    size_t at = div_up(c->staged, 16) * 16;
    if (at >= MR_CUDA_STAGING) mr_cuda_wait(c), at = 0;
    if (*bytes > MR_CUDA_STAGING - at) *bytes = MR_CUDA_STAGING - at;
    c->staged = at + *bytes;
    return c->staging + at;
}

static void note(mr_cuda *c, void *to, const void *from, size_t bytes, int narrow)
{
    size_t room = bytes;
    prepare(c, to, narrow ? bytes / 2 : bytes);
    char *at = stage(c, &room);
    if (room < bytes) { /* the end of the pinned memory */
        mr_cuda_wait(c);
        at = stage(c, &bytes);
    }
    memcpy(at, from, bytes);
    mr_cuda_piece *p = &c->pieces[c->piece_count++];
    p->to = to, p->from = at, p->bytes = bytes, p->narrow = narrow;
    if (c->piece_count == MR_CUDA_PIECES) mr_cuda_deliver(c);
}

/* Through pinned memory, so that the caller may reuse its bytes at once and the copy waits for nothing. */
static void upload(mr_dev *dev, void *to, const void *from, size_t bytes)
{
    mr_cuda *c = cuda_of(dev);
    if (bytes <= SMALL) {
        if (bytes) note(c, to, from, bytes, 0);
        return;
    }
    prepare(c, to, bytes);
    for (size_t done = 0, n; done < bytes; done += n) {
        n = bytes - done;
        char *at = stage(c, &n);
        memcpy(at, (const char *)from + done, n);
        CHECK(c, cudaMemcpyAsync((char *)to + done, at, n, cudaMemcpyHostToDevice, c->stream));
    }
}

static void put(mr_dev *dev, mr_real *to, const float *from, size_t n) { upload(dev, to, from, n * sizeof(float)); }

static __global__ void to_bf16(size_t n, const float *from, bf16 *to)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        store(to + i, from[i]);
}

static void put_act(mr_dev *dev, mr_act *to, const float *from, size_t n)
{
    mr_cuda *c = cuda_of(dev);
    const size_t bytes = n * sizeof(float);
    if (!c->bf16) upload(dev, to, from, bytes);
    else if (bytes <= SMALL) {
        if (n) note(c, to, from, bytes, 1);
    } else {
        float *wide = (float *)mr_cuda_scratch(c, bytes);
        if (!wide) return;
        prepare(c, to, n * sizeof(bf16));
        upload(dev, wide, from, bytes);
        to_bf16<<<256, 256, 0, c->stream>>>(n, wide, (bf16 *)to);
        LAUNCHED(c, "to_bf16");
    }
}

void mr_cuda_upload_hooks(mr_dev *dev)
{
    dev->upload = upload;
    dev->put = put;
    dev->put_act = put_act;
}
