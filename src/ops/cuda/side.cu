/* A second stream beside the device's own, for messages between GPUs that go on while it computes. */
#include "ops/cuda/cuda.cuh"

static int have_side(mr_cuda *c)
{
    if (!c->side) CHECK(c, cudaStreamCreateWithFlags(&c->side, cudaStreamNonBlocking));
    if (!c->side_event) CHECK(c, cudaEventCreateWithFlags(&c->side_event, cudaEventDisableTiming));
    return c->side && c->side_event;
}

static void *cuda_fork(mr_dev *dev)
{
    mr_cuda *c = cuda_of(dev);
    mr_cuda_settle(c);
    if (!have_side(c)) return c->stream; /* the error is noted: the next sync reports it */
    CHECK(c, cudaEventRecord(c->side_event, c->stream));
    CHECK(c, cudaStreamWaitEvent(c->side, c->side_event, 0));
    return c->side;
}

static void cuda_join(mr_dev *dev, const void *wrote, size_t bytes)
{
    mr_cuda *c = cuda_of(dev);
    mr_cuda_settle(c);
    if (!have_side(c)) return;
    CHECK(c, cudaEventRecord(c->side_event, c->side));
    CHECK(c, cudaStreamWaitEvent(c->stream, c->side_event, 0));
    c->stream_end = MR_END_PLAIN; /* a kernel that starts early must wait for the event, too */
    if (bytes) mr_cuda_written(c, wrote, bytes);
}

void mr_cuda_side_hooks(mr_dev *dev)
{
    dev->fork = cuda_fork;
    dev->join = cuda_join;
}

void mr_cuda_side_free(mr_cuda *c)
{
    if (c->side) cudaStreamDestroy(c->side);
    if (c->side_event) cudaEventDestroy(c->side_event);
}
