/* minrnn: train and run minGRU and minLSTM ("Were RNNs All We Needed?", Feng et al.).
 *
 * The smallest program opens a model and streams tokens through it: one token in, the scores of the next token out.
 * A stream's state is small and does not grow with its length.
 *
 *     mr_error err;
 *     mr_context *ctx;
 *     mr_net *net;
 *     mr_stream *stream;
 *     if (mr_context_new(NULL, &ctx, &err) || mr_net_open(ctx, "model.safetensors", &net, &err) ||
 *         mr_stream_new(net, &stream, &err)) { puts(err.text); return 1; }
 *     size_t room = (size_t)mr_net_outputs(net);
 *     float *scores = malloc(room * sizeof *scores);
 *     for (size_t i = 0; i < n; i++) mr_stream_step(stream, token[i], scores, room, &err);
 *     mr_stream_free(stream), mr_net_free(net), mr_context_free(ctx);
 *
 * This header goes from simple to advanced: contexts, nets, text, streams, batches, training. minrnn_experimental.h
 * continues with tensors by name, your own losses, micro-batches, vocabularies and raw scans. docs/api.md teaches both
 * with complete programs.
 *
 * Rules for every function
 *   - Errors: a function that can fail returns 0 or a negative MR_E... status, and writes one sentence to *err. err may
 *     be NULL.
 *   - Ownership: a new object is returned through `out`, which is set to NULL on failure. The caller frees it. Freeing
 *     NULL is fine. Free in reverse order: streams, then their net, then its context.
 *   - Buffers: an array that the library writes comes with its capacity, in elements. If it is too small the call
 *     returns MR_EINVAL and says how many elements are needed.
 *   - Arguments are borrowed for the duration of the call, unless stated otherwise. Arrays that a call reads are never
 *     written, even where their pointer is not const. NULL is allowed only where stated.
 *   - Threads: the library has no global state. Different contexts share nothing. Everything made with one context may
 *     be used from many threads at once, with one exception: only one call at a time may use a stream. Give each thread
 *     its own mr_error.
 *   - The library never prints and never exits.
 *   - Structs that may grow begin with their own size, which the MR_... initialisers set. So a program built with an
 *     older header runs with a newer library. Start from the initialiser and set only what you need.
 *   - Stability: before version 1.0 nothing is promised for ever. This header changes only with the minor version and
 *     with a note in CHANGELOG.md; minrnn_experimental.h may change at any time. */
#ifndef MINRNN_H
#define MINRNN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C++" {                            /* also where a program includes this header inside extern "C" */
template <typename T> inline T mr_sized() /* for MR_SIZED */
{
    T value = T();
    value.size = sizeof value;
    return value;
}
}
extern "C" {
#endif

#define MR_VERSION_MAJOR 0
#define MR_VERSION_MINOR 2
#define MR_VERSION_PATCH 0
#define MR_VERSION "0.2.0"
#define MR_VERSION_NUMBER (MR_VERSION_MAJOR * 10000 + MR_VERSION_MINOR * 100 + MR_VERSION_PATCH)

#if defined(__GNUC__)
#define MR_API __attribute__((visibility("default")))
#else
#define MR_API
#endif

/* clang-format off */
#ifdef __cplusplus
#define MR_SIZED(type) mr_sized<type>()
#else
#define MR_SIZED(type) {.size = sizeof(type)}
#endif
/* clang-format on */

/* ---- Status and versions --------------------------------------------------------------------------------------- */

/* All errors. This list generates the enum, the names and the messages. */
#define MR_STATUS_MAP(X)                                                                                               \
    X(MR_ENOMEM, -1, "out of memory")                                                                                  \
    X(MR_EINVAL, -2, "invalid argument")                                                                               \
    X(MR_EIO, -3, "input/output error")                                                                                \
    X(MR_EFORMAT, -4, "malformed file")                                                                                \
    X(MR_ECONFIG, -5, "impossible configuration")                                                                      \
    X(MR_EDATA, -6, "data that cannot be used")                                                                        \
    X(MR_EDEVICE, -7, "device error")                                                                                  \
    X(MR_ENONFINITE, -8, "a number became NaN or infinite")                                                            \
    X(MR_EBUSY, -9, "in use by another process")                                                                       \
    X(MR_ESTOPPED, -10, "stopped on request")                                                                          \
    X(MR_ENODATA, -11, "data that is not on this machine")

typedef enum mr_status {
    MR_OK = 0,
#define MR_STATUS_ENUM(name, value, message) name = value,
    MR_STATUS_MAP(MR_STATUS_ENUM)
#undef MR_STATUS_ENUM
} mr_status;

/* What went wrong. Written only when a function fails. This struct does not grow. */
typedef struct mr_error {
    int status;
    char text[1024]; /* one sentence that names the file, key or argument */
} mr_error;

MR_API const char *mr_version(void);              /* of the library at run time; MR_VERSION is the header's */
MR_API int mr_version_number(void);               /* the same as a number: 200 for 0.2.0, 10203 for 1.2.3 */
MR_API const char *mr_status_name(int status);    /* "MR_EIO" */
MR_API const char *mr_status_message(int status); /* "input/output error" */

/* ---- Contexts: the device and its threads ---------------------------------------------------------------------- */

typedef struct mr_context mr_context;

/* Your own memory allocator. Set both functions or neither. They are called from several threads at once. alloc returns
 * NULL when it has no memory; any alignment will do. The library uses it for all host memory that outlives a call or
 * grows with the model. It is not used for temporary memory while reading or writing a file, nor for GPU memory. */
typedef struct mr_allocator {
    size_t size;
    void *(*alloc)(void *user, size_t bytes);
    void (*release)(void *user, void *p);
    void *user;
} mr_allocator;
#define MR_ALLOCATOR MR_SIZED(mr_allocator)

typedef struct mr_context_options {
    size_t size;
    const char *device; /* "auto" or NULL: a GPU if there is one, else "cpu". "cuda", "cuda:1". "ref": slow and exact */
    int threads;        /* CPU threads per call; 0: all. Use 1 when you call from many threads yourself */
    int bf16;           /* 1: matrix products in bf16 */
    int exact;          /* 1: GPU products in fp32 without TF32 */
    const mr_allocator *allocator; /* copied; NULL: the C library's */
    /* Either may be NULL. They are called from any thread and must not call the library. log: what was opened or
     * created. warn: what a user should know, such as a GPU that cannot be used. */
    void (*log)(void *user, const char *line);
    void (*warn)(void *user, const char *line);
    void *log_user;
    void *cuda_stream; /* the cudaStream_t to use, which must outlive the context; NULL: the context makes its own */
} mr_context_options;
#define MR_CONTEXT_OPTIONS MR_SIZED(mr_context_options)

/* Opens a device. options NULL: all defaults. MR_EDEVICE, MR_EINVAL, MR_ENOMEM. */
MR_API int mr_context_new(const mr_context_options *options, mr_context **out, mr_error *err);
MR_API void mr_context_free(mr_context *ctx); /* after its nets */

MR_API const char *mr_context_device(const mr_context *ctx); /* "cpu avx512", "cuda" */
MR_API const char *mr_context_chip(const mr_context *ctx);   /* the GPU's name; "" for other devices */
MR_API int mr_context_threads(const mr_context *ctx);        /* CPU threads that one call may use */

/* ---- Nets: models with their weights, vocabulary and settings -------------------------------------------------- */

typedef struct mr_net mr_net;

/* Opens a model file. The whole file is read and checked. MR_EIO, MR_EFORMAT, MR_ENOMEM. */
MR_API int mr_net_open(mr_context *ctx, const char *path, mr_net **out, mr_error *err);
/* The same from a file's bytes, which may be freed afterwards. */
MR_API int mr_net_open_memory(mr_context *ctx, const void *data, size_t size, mr_net **out, mr_error *err);

/* Creates a model with random weights. settings is a list: key, value, key, value, ..., NULL. The keys are those of a
 * recipe's [model] section ("mixer", "layers", "dim", ...; `minrnn train --help` and mr_key_at list them), those of
 * mr_net_set below, and
 *   vocab    bytes, or a JSON array of one-character strings: makes a text model and sets its inputs and outputs
 *   input    tokens, reals
 *   inputs   size of the vocabulary, or values per token
 *   head     token (one output per token), last or mean (one per sequence), pair-last or pair-mean (one for sequences
 *            2i and 2i+1 together)
 *   outputs  number of classes, or of predicted values
 *   loss     xent (cross-entropy of classes), mse (squared error of values)
 *   output   of mse: linear (predicted values can be any numbers), tanh (they are between -1 and 1)
 *   horizon  the longest sequence in tokens (256): attention's window, and the range of gate-init = timescales
 * MR_EINVAL, MR_ECONFIG. */
MR_API int mr_net_create(mr_context *ctx, const char *const *settings, mr_net **out, mr_error *err);
MR_API void mr_net_free(mr_net *net); /* after its streams */

/* Writes a model file atomically: an existing file stays intact until the new one is complete. Every program with the
 * same minrnn version can read it; the minrnn command can too if the net has a vocabulary. MR_ENONFINITE: a weight is
 * NaN or infinite, and nothing was written. */
MR_API int mr_net_save(mr_net *net, const char *path, mr_error *err);

typedef enum mr_input { MR_INPUT_TOKENS, MR_INPUT_REALS } mr_input;
/* PAIR: sequences 2i and 2i+1 of a batch form a pair, which gets one output. */
typedef enum mr_head { MR_HEAD_TOKEN, MR_HEAD_LAST, MR_HEAD_MEAN, MR_HEAD_PAIR_LAST, MR_HEAD_PAIR_MEAN } mr_head;
typedef enum mr_loss { MR_LOSS_XENT, MR_LOSS_MSE } mr_loss;

MR_API mr_input mr_net_input(const mr_net *net);
MR_API int mr_net_inputs(const mr_net *net); /* size of the vocabulary, or values per token */
MR_API mr_head mr_net_head(const mr_net *net);
MR_API mr_loss mr_net_loss(const mr_net *net);
MR_API int mr_net_outputs(const mr_net *net); /* scores in one row */
/* Rows of scores and targets in a batch of B sequences of T tokens: B*T with head = token, else B, or B/2 for pairs. */
MR_API size_t mr_net_rows(const mr_net *net, int B, int T);
MR_API int64_t mr_net_parameters(const mr_net *net);
MR_API size_t mr_net_state_bytes(const mr_net *net); /* the state of one stream, as floats */
MR_API int64_t mr_net_steps(const mr_net *net);      /* training steps done on these weights */
/* The value of a key of mr_net_create, such as "mixer", as text. horizon is not stored. MR_EINVAL: no such key, or the
 * buffer is too small. */
MR_API int mr_net_setting(const mr_net *net, const char *key, char *text, size_t capacity, mr_error *err);

/* Text models: encodes text (UTF-8, or any bytes if the vocabulary is bytes) into at most `capacity` tokens. *count is
 * set to the number of tokens, *used to the bytes of text they cover. A character that is incomplete at the end is left
 * for the next call. If used is NULL, the whole text must fit. If tokens is NULL, tokens are only counted. MR_EDATA: a
 * character is not in the vocabulary; *count and *used tell where. */
MR_API int mr_net_encode(const mr_net *net, const char *text, size_t size, int32_t *tokens, size_t capacity,
                         size_t *count, size_t *used, mr_error *err);
/* Decodes tokens into bytes, without a terminating zero; *size is set to their number. 4 bytes per token are always
 * enough. */
MR_API int mr_net_decode(const mr_net *net, const int32_t *tokens, size_t n, char *text, size_t capacity, size_t *size,
                         mr_error *err);

/* ---- Streams: running a net token by token --------------------------------------------------------------------- */

/* One sequence and its state. Streams are cheap: a net can have thousands, used from as many threads as you like. With
 * head = mean or pair-... use mr_net_forward instead. */
typedef struct mr_stream mr_stream;

MR_API int mr_stream_new(mr_net *net, mr_stream **out, mr_error *err);
MR_API int mr_stream_clone(const mr_stream *stream, mr_stream **out, mr_error *err); /* starts from the same state */
MR_API void mr_stream_free(mr_stream *stream);
MR_API void mr_stream_reset(mr_stream *stream); /* starts a new sequence */

/* Feeds one token and returns mr_net_outputs() scores (logits, or predicted values). scores may be NULL. MR_EINVAL: the
 * token is outside the vocabulary. */
MR_API int mr_stream_step(mr_stream *stream, int32_t token, float *scores, size_t capacity, mr_error *err);
/* The same for input = reals: values has mr_net_inputs() numbers. */
MR_API int mr_stream_step_values(mr_stream *stream, const float *values, float *scores, size_t capacity, mr_error *err);
/* Feeds n >= 1 tokens (or n * mr_net_inputs() values) in one call, such as a prompt, and returns the scores after the
 * last one. The numbers equal those of single steps, up to rounding. */
MR_API int mr_stream_feed(mr_stream *stream, const int32_t *tokens, size_t n, float *scores, size_t capacity,
                          mr_error *err);
MR_API int mr_stream_feed_values(mr_stream *stream, const float *values, size_t n, float *scores, size_t capacity,
                                 mr_error *err);

/* Feeds one token to each of n different streams of one net. This is faster than n calls, because the weights are read
 * once. Give either tokens [n] or values [n, inputs], the other is NULL. scores is [n, outputs] or NULL. */
MR_API int mr_stream_step_many(mr_stream *const *streams, int n, const int32_t *tokens, const float *values,
                               float *scores, size_t capacity, mr_error *err);

/* How tokens are sampled. Each random number depends only on seed and position. So the text does not depend on how it
 * is divided into calls, nor on other streams. */
typedef struct mr_sample_options {
    size_t size;
    double temperature; /* 0: always the likeliest token; 1: the model's own probabilities */
    double top_p;       /* sample only from the likeliest tokens with this total probability; 1: all */
    int top_k;          /* sample only from the K likeliest tokens; 0: all */
    uint64_t seed;
    uint64_t position; /* tokens sampled before this call */
} mr_sample_options;
/* clang-format off */
#define MR_SAMPLE_OPTIONS {sizeof(mr_sample_options), 1, 1, 0, 1, 0}
/* clang-format on */

/* Feeds n >= 1 tokens, then samples `count` tokens, feeding each one before it samples the next. The last sampled token
 * is not fed: pass it to the next call. Many tokens per call are faster than one. MR_ENONFINITE: a score was NaN or
 * infinite. */
MR_API int mr_stream_sample(mr_stream *stream, const int32_t *tokens, size_t n, const mr_sample_options *how,
                            int32_t *drawn, size_t count, mr_error *err);
/* Feeds one token to each of n streams and samples one from each. how is [n]. */
MR_API int mr_stream_sample_many(mr_stream *const *streams, int n, const int32_t *tokens, const mr_sample_options *how,
                                 int32_t *drawn, mr_error *err);

/* Saves the state to mr_stream_state_size() bytes, and loads it again: later, in another process, on another device.
 * load refuses bytes that are not a state (MR_EFORMAT) and the state of a model with another shape (MR_EINVAL). The
 * stream is then unchanged. */
MR_API size_t mr_stream_state_size(const mr_stream *stream);
MR_API int mr_stream_save(const mr_stream *stream, void *blob, size_t capacity, mr_error *err);
MR_API int mr_stream_load(mr_stream *stream, const void *blob, size_t size, mr_error *err);

/* ---- Batches: many sequences at once, and training ------------------------------------------------------------- */

/* B sequences of T tokens, in host memory. A row of scores or targets belongs to a token, a sequence or a pair
 * (mr_net_rows). Arrays that do not apply to the net are NULL. NaN and infinity are refused; the error names the array
 * and index. */
typedef struct mr_batch {
    size_t size;
    int B, T;
    int32_t *ids;         /* [B, T] input = tokens */
    float *values;        /* [B, T, inputs] input = reals */
    uint8_t *reset;       /* [B, T] 1: a new sequence starts at this token; NULL: none does */
    int32_t *length;      /* [B] number of real tokens, 1 ... T; the rest is padding. NULL: all T */
    int32_t *target;      /* [rows] loss = xent: the right class; -1: ignore this row (required for padding) */
    float *target_values; /* [rows, outputs] loss = mse */
    uint8_t *mask;        /* [rows] loss = mse: 1: this row counts; NULL: all but padding count */
    int64_t counted;      /* leave it 0; mr_net_check (minrnn_experimental.h) sets it to check a batch only once */
} mr_batch;
#define MR_BATCH MR_SIZED(mr_batch)

typedef struct mr_result {
    size_t size;
    double loss;      /* mean over counted rows: nats, or squared error (of scaled values if there is a scaler) */
    double accuracy;  /* fraction of rows whose highest score is the target; NaN for mse */
    double grad_norm; /* before clipping; 0 without training */
    double lr;        /* learning rate of the step; 0 without training */
    int64_t rows;     /* rows that counted */
    int64_t step;     /* training steps done so far */
} mr_result;
#define MR_RESULT MR_SIZED(mr_result)

/* Computes the scores [rows, outputs] of a batch: logits, or predicted values. Targets are not read. */
MR_API int mr_net_forward(mr_net *net, const mr_batch *batch, float *scores, size_t capacity, mr_error *err);
/* Computes the loss of a batch without training. */
MR_API int mr_net_evaluate(mr_net *net, const mr_batch *batch, mr_result *result, mr_error *err);
/* One training step: forward, loss, backward, update. It has the net to itself: it waits for running calls, and later
 * calls wait for it. result may be NULL. MR_ENONFINITE: the loss or gradient was not finite; the error says where it
 * began, and the weights are unchanged. MR_ECONFIG: 8-bit weights cannot be trained. */
MR_API int mr_net_train(mr_net *net, const mr_batch *batch, mr_result *result, mr_error *err);

/* Changes a training setting from the next step on: lr, schedule, warmup, steps, optimizer, betas, eps, weight-decay,
 * clip, seed. recompute and recompute-chunk (docs/training.md) change what the next plan of memory keeps. */
MR_API int mr_net_set(mr_net *net, const char *key, const char *value, mr_error *err);

/* Keeps a copy of the current weights as the best so far. mr_net_save_best writes that copy as a model file. */
MR_API int mr_net_mark_best(mr_net *net, mr_error *err);
MR_API int mr_net_save_best(mr_net *net, const char *path, mr_error *err);

/* Saves and loads everything that training needs to continue with the same numbers: weights, best weights, the
 * optimiser's moments, the step. save is atomic. load needs a net of the same configuration, and changes nothing if it
 * fails. Settings made with mr_net_set are not saved: set them again. extra: your own metadata (key, value, ..., NULL,
 * each key with a dot in it, such as "mine.epoch"), or NULL. mr_file_meta reads it back. */
MR_API int mr_net_save_training(mr_net *net, const char *path, const char *const *extra, mr_error *err);
MR_API int mr_net_load_training(mr_net *net, const char *path, mr_error *err);

#ifdef __cplusplus
}
#endif
#endif
