/* minrnn: train and run minGRU and minLSTM ("Were RNNs All We Needed?", Feng et al.).
 *
 * Ten lines of use: stream bytes through a model and ask what comes next.
 *
 *     mr_context *ctx; mr_net *net; mr_stream *stream;
 *     mr_context_new("cpu", 1, &ctx);
 *     if (mr_net_open(ctx, "model.safetensors", &net) < 0) puts(mr_context_error(ctx));
 *     mr_stream_new(net, &stream);
 *     float *scores = malloc(sizeof *scores * mr_net_outputs(net));
 *     for (size_t i = 0; i < n; i++)
 *         mr_stream_step(stream, token[i], scores);      // the state is constant, however long the stream
 *     mr_stream_free(stream); mr_net_free(net); mr_context_free(ctx);
 *
 * Every function that can fail returns 0 or a negative MR_E… code; the sentence that says what was wrong is in the
 * context. The library never prints, never exits and keeps no globals. */
#ifndef MINRNN_H
#define MINRNN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MR_VERSION_MAJOR 0
#define MR_VERSION_MINOR 1
#define MR_VERSION_PATCH 0
#define MR_VERSION "0.1.0"

#if defined(__GNUC__)
#define MR_API __attribute__((visibility("default")))
#else
#define MR_API
#endif

/* The one list of everything that can go wrong: it makes the enum, the names and the messages. */
#define MR_STATUS_MAP(X)                                        \
    X(MR_ENOMEM, -1, "out of memory")                           \
    X(MR_EINVAL, -2, "invalid argument")                        \
    X(MR_EIO, -3, "input/output error")                         \
    X(MR_EFORMAT, -4, "malformed file")                         \
    X(MR_ECONFIG, -5, "impossible configuration")               \
    X(MR_EDATA, -6, "data missing or unusable")                 \
    X(MR_EDEVICE, -7, "device error")                           \
    X(MR_ENONFINITE, -8, "a number became NaN or infinite")     \
    X(MR_EBUSY, -9, "in use by another process")                \
    X(MR_ESTOPPED, -10, "stopped on request")

typedef enum mr_status {
    MR_OK = 0,
#define MR_STATUS_ENUM(name, value, message) name = value,
    MR_STATUS_MAP(MR_STATUS_ENUM)
#undef MR_STATUS_ENUM
} mr_status;

MR_API const char *mr_version(void);
MR_API const char *mr_status_name(int status);    /* "MR_EIO" */
MR_API const char *mr_status_message(int status); /* "input/output error" */

#ifdef __cplusplus
}
#endif
#endif
