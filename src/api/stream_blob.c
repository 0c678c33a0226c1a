/* The state of a stream as bytes. Loading checks everything, because the bytes may come from anywhere. */
#include "api/stream.h"

#include "model/mixer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Little-endian, like all machines that this is built for. The state follows as fp32 numbers. */
typedef struct blob_header {
    char magic[8];
    uint32_t version;
    uint32_t under_way;
    char mixer[16];
    uint32_t layers, dim, expansion, conv;
    uint64_t reals;
} blob_header;

static blob_header header_of(const mr_stream *stream)
{
    const mr_config *c = mr_model_config(stream->net->owner);
    blob_header h = {.magic = "mrstate",
                     .version = 1,
                     .under_way = (uint32_t)stream->under_way,
                     .layers = (uint32_t)c->layers,
                     .dim = (uint32_t)c->dim,
                     .expansion = (uint32_t)c->expansion,
                     .conv = (uint32_t)c->conv,
                     .reals = stream->net->state_reals};
    snprintf(h.mixer, sizeof h.mixer, "%s", mr_mixer_names[c->mixer]);
    return h;
}

size_t mr_stream_state_size(const mr_stream *stream)
{
    return sizeof(blob_header) + stream->net->state_reals * sizeof(float);
}

/* Copies the state to or from aligned host memory; the caller's blob may have any alignment. */
static int exchange(const mr_stream *stream, float *reals, int load, mr_error *err)
{
    mr_lease lease;
    int status = mr_lease_begin(&lease, stream->net, 1, 1, err);
    if (status) return status;
    mr_real *there = mr_stream_reals(stream, lease.dev);
    if (load) lease.dev->put(lease.dev, there, reals, stream->net->state_reals);
    else lease.dev->get(lease.dev, reals, there, stream->net->state_reals);
    return mr_lease_end(&lease, 0, err);
}

int mr_stream_save(const mr_stream *stream, void *blob, size_t capacity, mr_error *err)
{
    const blob_header header = header_of(stream);
    const size_t bytes = (size_t)header.reals * sizeof(float);
    const mr_allocator *allocator = &stream->net->ctx->allocator;
    int status = mr_check_capacity(blob, capacity, mr_stream_state_size(stream), "blob", err);
    if (status) return status;
    float *reals = mr_alloc_with(allocator, (size_t)header.reals + 1, sizeof *reals);
    if (!reals) return mr_no_memory(err, "a state");
    status = exchange(stream, reals, 0, err);
    if (!status) memcpy(blob, &header, sizeof header);
    if (!status && header.under_way) memcpy((char *)blob + sizeof header, reals, bytes);
    else if (!status) memset((char *)blob + sizeof header, 0, bytes);
    mr_free_with(allocator, reals);
    return status;
}

static int check_blob(const mr_stream *stream, const blob_header *got, size_t size, mr_error *err)
{
    const blob_header want = header_of(stream);
    if (size < sizeof *got || memcmp(got->magic, want.magic, sizeof got->magic))
        return mr_fail(err, MR_EFORMAT, "these bytes are not the state of a stream");
    if (got->version != want.version)
        return mr_fail(err, MR_EFORMAT, "the stream's state has version %u; this library reads version %u",
                       (unsigned)got->version, (unsigned)want.version);
    if (memcmp(got->mixer, want.mixer, sizeof got->mixer) || got->layers != want.layers || got->dim != want.dim ||
        got->expansion != want.expansion || got->conv != want.conv || got->reals != want.reals)
        return mr_fail(err, MR_EINVAL,
                       "the state of another model: %.15s, %u layers of %u × %u, conv %u; this one is %s, %u layers of "
                       "%u × %u, conv %u",
                       got->mixer, (unsigned)got->layers, (unsigned)got->dim, (unsigned)got->expansion,
                       (unsigned)got->conv, want.mixer, (unsigned)want.layers, (unsigned)want.dim,
                       (unsigned)want.expansion, (unsigned)want.conv);
    if (size != mr_stream_state_size(stream) || got->under_way > 1)
        return mr_fail(err, MR_EFORMAT, "the stream's state is damaged: it has %zu bytes instead of %zu", size,
                       mr_stream_state_size(stream));
    return 0;
}

int mr_stream_load(mr_stream *stream, const void *blob, size_t size, mr_error *err)
{
    blob_header header;
    const mr_allocator *allocator = &stream->net->ctx->allocator;
    memset(&header, 0, sizeof header);
    if (blob && size) memcpy(&header, blob, size < sizeof header ? size : sizeof header);
    int status = check_blob(stream, &header, size, err);
    if (status || !blob) return status;
    float *reals = mr_alloc_with(allocator, (size_t)header.reals + 1, sizeof *reals);
    if (!reals) return mr_no_memory(err, "a state");
    memcpy(reals, (const char *)blob + sizeof header, size - sizeof header);
    for (uint64_t i = 0; !status && i < header.reals; i++)
        if (!isfinite(reals[i]))
            status = mr_fail(err, MR_EFORMAT, "the stream's state is damaged: number %llu is not finite",
                             (unsigned long long)i);
    if (!status) status = exchange(stream, reals, 1, err);
    if (!status) stream->under_way = (int)header.under_way;
    mr_free_with(allocator, reals);
    return status;
}
