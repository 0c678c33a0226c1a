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

/* ---- A context: the device that does the work, and the last error. One thread at a time. ---- */

typedef struct mr_context mr_context;

/* device: "auto", "cpu", "ref". threads 0: as many as the process may use. *out is NULL on failure, which has then no context
 * to hold its sentence: mr_status_message tells the kind. */
MR_API int mr_context_new(const char *device, int threads, mr_context **out);
MR_API void mr_context_free(mr_context *ctx);               /* after everything made with it; NULL is fine */
MR_API const char *mr_context_error(const mr_context *ctx); /* what the last failure was about; "" when there was none */

/* ---- A model from a file. Belongs to its context. ---- */

typedef struct mr_net mr_net;

/* Reads and checks the whole file. On failure *out is NULL. */
MR_API int mr_net_open(mr_context *ctx, const char *path, mr_net **out);
MR_API void mr_net_free(mr_net *net);                /* after its streams; NULL is fine */
MR_API int mr_net_inputs(const mr_net *net);         /* size of the vocabulary, or values a step */
MR_API int mr_net_outputs(const mr_net *net);        /* scores a step */
MR_API int64_t mr_net_parameters(const mr_net *net);

/* Text models: the token of a text's first character (its bytes in *used), and the bytes of a token (at most 4; returns how
 * many). Negative when there is none. */
MR_API int mr_net_encode(const mr_net *net, const char *text, size_t size, size_t *used);
MR_API int mr_net_decode(const mr_net *net, int token, char bytes[4]);

/* ---- A stream: one sequence on its way through a model. Its whole state is a small array of floats. ---- */

typedef struct mr_stream mr_stream;

MR_API int mr_stream_new(mr_net *net, mr_stream **out);
MR_API void mr_stream_free(mr_stream *stream);
MR_API void mr_stream_reset(mr_stream *stream);                                  /* a new sequence starts */
/* One token in, mr_net_outputs() scores (logits) out; MR_EINVAL for a token outside the vocabulary. */
MR_API int mr_stream_step(mr_stream *stream, int token, float *scores);
/* The same for models that take real values: mr_net_inputs() of them. */
MR_API int mr_stream_step_values(mr_stream *stream, const float *values, float *scores);

MR_API size_t mr_stream_state_size(const mr_stream *stream);                     /* in floats */
MR_API void mr_stream_save(const mr_stream *stream, float *state);
MR_API void mr_stream_load(mr_stream *stream, const float *state);

#ifdef __cplusplus
}
#endif
#endif
