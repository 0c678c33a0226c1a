/* minrnn: train and run minGRU and minLSTM ("Were RNNs All We Needed?", Feng et al.).
 *
 * Stream a model: one token in, the scores of the next one out. The state is small and constant, however long the stream.
 *
 *     mr_error err;
 *     mr_context *ctx;
 *     mr_net *net;
 *     mr_stream *stream;
 *     if (mr_context_new(NULL, &ctx, &err) || mr_net_open(ctx, "model.safetensors", &net, &err) ||
 *         mr_stream_new(net, &stream, &err)) { puts(err.text); return 1; }
 *     float *scores = malloc(sizeof *scores * mr_net_outputs(net));
 *     for (size_t i = 0; i < n; i++) mr_stream_step(stream, token[i], scores, &err);
 *     mr_stream_free(stream);
 *     mr_net_free(net);
 *     mr_context_free(ctx);
 *
 * The header goes from the simple to the advanced: contexts, models, streams, batches and training; at the end the scan and the
 * cells by themselves, on your own buffers. docs/api.md teaches both with whole programs.
 *
 * Rules that hold throughout
 *   - A function that can fail returns 0 or a negative MR_E… status, and leaves one sentence in *err (which may be NULL).
 *   - What a function makes it gives through its last-but-one argument, NULL on failure; the caller frees it. Freeing NULL is
 *     fine. Free in reverse order: streams, then their net, then its context.
 *   - Pointers given to a call are borrowed for that call alone, unless it says otherwise.
 *   - The library has no globals, never prints, never exits. Different contexts share nothing. Everything made with one context
 *     may be used from many threads at once, with one exception: a stream belongs to one call at a time. An mr_error belongs to
 *     the thread that passes it.
 *   - Structs of arguments begin with their own size, which MR_… initialisers set: a program built against an older header
 *     runs with a newer library. Set what you need; the rest is zero and means the default. */
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

#ifdef __cplusplus
#define MR_SIZED(type) {sizeof(type)}
#else
#define MR_SIZED(type) {.size = sizeof(type)}
#endif

/* ---- Status ------------------------------------------------------------------------------------------------------------ */

/* The one list of everything that can go wrong: it makes the enum, the names and the messages. */
#define MR_STATUS_MAP(X)                                        \
    X(MR_ENOMEM, -1, "out of memory")                           \
    X(MR_EINVAL, -2, "invalid argument")                        \
    X(MR_EIO, -3, "input/output error")                         \
    X(MR_EFORMAT, -4, "malformed file")                         \
    X(MR_ECONFIG, -5, "impossible configuration")               \
    X(MR_EDATA, -6, "data that cannot be used")                 \
    X(MR_EDEVICE, -7, "device error")                           \
    X(MR_ENONFINITE, -8, "a number became NaN or infinite")     \
    X(MR_EBUSY, -9, "in use by another process")                \
    X(MR_ESTOPPED, -10, "stopped on request")                   \
    X(MR_ENODATA, -11, "data that is not on this machine")

typedef enum mr_status {
    MR_OK = 0,
#define MR_STATUS_ENUM(name, value, message) name = value,
    MR_STATUS_MAP(MR_STATUS_ENUM)
#undef MR_STATUS_ENUM
} mr_status;

/* What went wrong: written when a function fails, left alone when it does not. */
typedef struct mr_error {
    int status;
    char text[1024]; /* one sentence that names the file, key or argument */
} mr_error;

MR_API const char *mr_version(void);              /* of the library that runs: MR_VERSION is that of the header */
MR_API const char *mr_status_name(int status);    /* "MR_EIO" */
MR_API const char *mr_status_message(int status); /* "input/output error" */

/* ---- Contexts: where the work is done ------------------------------------------------------------------------------------ */

typedef struct mr_context mr_context;

/* Both or neither. Called from any thread, at the same time. alloc gives NULL when there is no more; any alignment will do.
 * Serves all host memory that outlives the call it was asked for in, and all that grows with a model. Not what a call needs
 * for itself while it reads or writes a file (names, the header's JSON), nor a GPU's memory. */
typedef struct mr_allocator {
    void *(*alloc)(void *user, size_t bytes);
    void (*release)(void *user, void *p);
    void *user;
} mr_allocator;

typedef struct mr_context_options {
    size_t size;
    const char *device; /* "auto" (NULL too): a GPU where there is one, else "cpu"; "cuda" or "cuda:1"; "ref": slow, exact */
    int threads;        /* CPU threads that one call may use; 0: all. Say 1 when you call from many threads yourself */
    int bf16;           /* 1: matrix products in bf16 */
    int exact;          /* 1: GPU products in fp32 without TF32 */
    mr_allocator allocator;
    void (*log)(void *user, const char *line); /* told what is opened and made; from any thread, must not call back; or NULL */
    void *log_user;
    void *cuda_stream;  /* a cudaStream_t to work in, kept by the caller while the context lives; NULL: one of its own */
} mr_context_options;
#define MR_CONTEXT_OPTIONS MR_SIZED(mr_context_options)

/* options NULL: all defaults. MR_EDEVICE, MR_EINVAL, MR_ENOMEM. */
MR_API int mr_context_new(const mr_context_options *options, mr_context **out, mr_error *err);
MR_API void mr_context_free(mr_context *ctx); /* last of all */

MR_API const char *mr_context_device(const mr_context *ctx); /* "cpu avx512", "cuda" */

/* ---- Nets: a model's weights and what belongs to them ---------------------------------------------------------------------- */

typedef struct mr_net mr_net;

/* Reads and checks the whole file. MR_EIO, MR_EFORMAT, MR_ENOMEM. */
MR_API int mr_net_open(mr_context *ctx, const char *path, mr_net **out, mr_error *err);
/* The same from the bytes of a file, which are not needed afterwards. */
MR_API int mr_net_open_memory(mr_context *ctx, const void *data, size_t size, mr_net **out, mr_error *err);

/* A new model with random weights. settings: key, value, key, value, …, NULL, with the keys of a recipe ([model] and [train],
 * see `minrnn train --help`), and besides, what a recipe's task would decide:
 *   vocab    bytes, or a JSON array of one-character strings: a model of text, whose inputs and outputs follow from it
 *   input    tokens, reals        inputs   size of the vocabulary, or values a step
 *   head     token (an output a token), last, mean (one a sequence), pair-last, pair-mean (one for sequences 2i and 2i+1)
 *   outputs  classes, or values predicted
 *   loss     xent, mse
 *   recipe   a built-in recipe or the path of one, to start from: must come first
 * MR_EINVAL, MR_ECONFIG. */
MR_API int mr_net_create(mr_context *ctx, const char *const *settings, mr_net **out, mr_error *err);
MR_API void mr_net_free(mr_net *net); /* after its streams */

/* Writes a model file, in one step: until it succeeds, what was there stays. Any net of the same version reads it; with a
 * vocabulary, so does the command. */
MR_API int mr_net_save(mr_net *net, const char *path, mr_error *err);

MR_API int mr_net_inputs(const mr_net *net);            /* size of the vocabulary, or values a step */
MR_API int mr_net_outputs(const mr_net *net);           /* scores of one row */
MR_API int mr_net_takes_values(const mr_net *net);      /* 1: input = reals */
MR_API int mr_net_row_per_token(const mr_net *net);     /* 1: head = token; 0: one row of scores a sequence, or a pair */
MR_API int64_t mr_net_parameters(const mr_net *net);
MR_API int64_t mr_net_steps(const mr_net *net);         /* training steps behind the weights */

/* Text models. The token of a text's first character, its bytes in *used; and the bytes of a token (at most 4), how many. An
 * MR_E… status when there is none. */
MR_API int mr_net_encode(const mr_net *net, const char *text, size_t size, size_t *used, mr_error *err);
MR_API int mr_net_decode(const mr_net *net, int token, char bytes[4], mr_error *err);

/* ---- Streams: sequences on their way through a net ------------------------------------------------------------------------- */

/* Cheap: only a state of its own. Thousands on one net are fine, stepped from as many threads as you like. */
typedef struct mr_stream mr_stream;

MR_API int mr_stream_new(mr_net *net, mr_stream **out, mr_error *err);
MR_API int mr_stream_clone(const mr_stream *stream, mr_stream **out, mr_error *err); /* goes on from the same state */
MR_API void mr_stream_free(mr_stream *stream);
MR_API void mr_stream_reset(mr_stream *stream); /* a new sequence starts */

/* One token in, mr_net_outputs() scores (logits, or predicted values) out. MR_EINVAL for a token outside the vocabulary. */
MR_API int mr_stream_step(mr_stream *stream, int32_t token, float *scores, mr_error *err);
/* The same for nets that take values: mr_net_inputs() of them. */
MR_API int mr_stream_step_values(mr_stream *stream, const float *values, float *scores, mr_error *err);
/* n tokens in one go, as for a prompt; the scores after the last one. The same numbers as step by step, to rounding. */
MR_API int mr_stream_feed(mr_stream *stream, const int32_t *tokens, size_t n, float *scores, mr_error *err);
/* One token for each of n different streams of one net, together: faster than one by one. scores [n, outputs]. */
MR_API int mr_stream_step_many(mr_stream *const *streams, int n, const int32_t *tokens, float *scores, mr_error *err);

/* The whole state as a blob: store it, send it, go on from it elsewhere, on another device too. save needs room for
 * mr_stream_state_size() bytes. load refuses what is no blob (MR_EFORMAT) or one of a model of another shape (MR_EINVAL), and
 * then changes nothing. */
MR_API size_t mr_stream_state_size(const mr_stream *stream);
MR_API int mr_stream_save(const mr_stream *stream, void *blob, mr_error *err);
MR_API int mr_stream_load(mr_stream *stream, const void *blob, size_t size, mr_error *err);

/* ---- Batches: whole sequences, and training --------------------------------------------------------------------------------- */

/* B sequences of T tokens, in host memory. A row of scores or targets is a token (mr_net_row_per_token) or a sequence. */
typedef struct mr_sequences {
    size_t size;
    int B, T;
    const int32_t *ids;         /* [B, T] nets of tokens */
    const float *values;        /* [B, T, inputs] nets of values */
    const uint8_t *reset;       /* [B, T] 1: a new sequence starts before this token; or NULL */
    const int32_t *length;      /* [B] tokens that are real, 1 … T; or NULL: all */
    const int32_t *target;      /* [rows] the right class, −1: does not count; loss = xent */
    const float *target_values; /* [rows, outputs] loss = mse */
    const uint8_t *mask;        /* [rows] 1: counts; or NULL: all do. loss = mse */
} mr_sequences;
#define MR_SEQUENCES MR_SIZED(mr_sequences)

typedef struct mr_result {
    size_t size;
    double loss;      /* mean over rows that count: nats, or squared error */
    double accuracy;  /* share of rows whose highest score is the target; NaN for mse */
    double grad_norm; /* before clipping; 0 when nothing was trained */
    int64_t rows;     /* that counted */
    int64_t step;     /* the training steps done */
} mr_result;
#define MR_RESULT MR_SIZED(mr_result)

/* scores [rows, outputs]. Targets are not read. */
MR_API int mr_net_forward(mr_net *net, const mr_sequences *data, float *scores, mr_error *err);
/* The loss on this data; nothing is trained. */
MR_API int mr_net_evaluate(mr_net *net, const mr_sequences *data, mr_result *result, mr_error *err);
/* One step of training: forward, loss, backward, update. Waits until other calls on this net are done, and they for it.
 * MR_ENONFINITE: the weights stay as they were. MR_ECONFIG: weights in 8 bits are not trained. result may be NULL. */
MR_API int mr_net_train(mr_net *net, const mr_sequences *data, mr_result *result, mr_error *err);

/* Changes how the next steps train: lr, schedule, warmup, steps, optimizer, betas, eps, weight-decay, clip, seed. */
MR_API int mr_net_set(mr_net *net, const char *key, const char *value, mr_error *err);

/* Everything training needs to go on exactly where it was: weights, the optimiser's moments, the step. load expects a net of
 * the same configuration. Settings of mr_net_set are the caller's to repeat. */
MR_API int mr_net_save_training(mr_net *net, const char *path, mr_error *err);
MR_API int mr_net_load_training(mr_net *net, const char *path, mr_error *err);

#ifdef __cplusplus
}
#endif
#endif
