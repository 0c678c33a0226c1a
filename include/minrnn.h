/* minrnn: train and run minGRU and minLSTM ("Were RNNs All We Needed?", Feng et al.).
 *
 * Stream a model: one token in, the scores of the next one out. The state is small and constant, however long the
 * stream.
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
 * This header goes from the simple to the advanced: contexts, nets, text, streams, batches and training.
 * minrnn_experimental.h goes on from there: tensors by name, losses of your own, micro-batches, vocabularies, raw
 * scans. docs/api.md teaches both with whole programs.
 *
 * Rules that hold throughout
 *   - A function that can fail returns 0 or a negative MR_E... status, and leaves one sentence in *err (err may be
 *     NULL).
 *   - What a function makes is returned through `out`, which is NULL after a failure; the caller frees it. Freeing
 *     NULL is fine. Free in reverse order: streams, then their net, then its context.
 *   - A buffer that the library writes comes with its capacity, in elements; MR_EINVAL says how many are needed.
 *   - Pointers given to a call are borrowed for that call alone, unless it says otherwise. Arrays that a call reads
 *     are never written, also where their pointer is not const. NULL is allowed only where it says so.
 *   - The library has no globals, never prints, never exits. Different contexts share nothing. Everything made with
 *     one context may be used from many threads at once, with one exception: a stream belongs to one call at a time.
 *     An mr_error belongs to the thread that passes it.
 *   - Structs that may grow begin with their own size, which the MR_... initialisers set: a program built against an
 *     older header runs with a newer library. Set what you need; the rest is the default.
 *   - Before version 1.0 nothing is promised for ever. What is in this header changes only with the minor version
 *     and a note in CHANGELOG.md; what is in minrnn_experimental.h may change at any time. */
#ifndef MINRNN_H
#define MINRNN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
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
#define MR_SIZED(type) {sizeof(type)}
#else
#define MR_SIZED(type) {.size = sizeof(type)}
#endif
/* clang-format on */

/* ---- Status and versions --------------------------------------------------------------------------------------- */

/* The one list of everything that can go wrong: it makes the enum, the names and the messages. */
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

/* What went wrong: written when a function fails, left alone when it does not. This struct does not grow. */
typedef struct mr_error {
    int status;
    char text[1024]; /* one sentence that names the file, key or argument */
} mr_error;

MR_API const char *mr_version(void);              /* of the library that runs; MR_VERSION is that of the header */
MR_API int mr_version_number(void);               /* the same as a number: 200 for 0.2.0, 10203 for 1.2.3 */
MR_API const char *mr_status_name(int status);    /* "MR_EIO" */
MR_API const char *mr_status_message(int status); /* "input/output error" */

/* ---- Contexts: where the work is done -------------------------------------------------------------------------- */

typedef struct mr_context mr_context;

/* Memory of your own. Both functions or neither; called from any thread, at the same time. alloc returns NULL when
 * there is no more; any alignment will do. It serves all host memory that outlives the call it was asked for in, and
 * all that grows with a model. Not what a call needs for itself while it reads or writes a file, nor a GPU's memory. */
typedef struct mr_allocator {
    size_t size;
    void *(*alloc)(void *user, size_t bytes);
    void (*release)(void *user, void *p);
    void *user;
} mr_allocator;
#define MR_ALLOCATOR MR_SIZED(mr_allocator)

typedef struct mr_context_options {
    size_t size;
    const char
        *device; /* "auto" (NULL too): a GPU where there is one, else "cpu"; "cuda" or "cuda:1"; "ref": slow, exact */
    int threads; /* CPU threads that one call may use; 0: all. Say 1 when you call from many threads yourself */
    int bf16;    /* 1: matrix products in bf16 */
    int exact;   /* 1: GPU products in fp32 without TF32 */
    const mr_allocator *allocator; /* copied; NULL: the C library's */
    /* Each may be NULL; called from any thread, and must not call back. log: what is opened and made. warn: what a user
     * should know, such as a GPU that is there and cannot be used. */
    void (*log)(void *user, const char *line);
    void (*warn)(void *user, const char *line);
    void *log_user;
    void *cuda_stream; /* a cudaStream_t to work in, kept by the caller while the context lives; NULL: one of its own */
} mr_context_options;
#define MR_CONTEXT_OPTIONS MR_SIZED(mr_context_options)

/* options NULL: all defaults. MR_EDEVICE, MR_EINVAL, MR_ENOMEM. */
MR_API int mr_context_new(const mr_context_options *options, mr_context **out, mr_error *err);
MR_API void mr_context_free(mr_context *ctx); /* last of all */

MR_API const char *mr_context_device(const mr_context *ctx); /* "cpu avx512", "cuda" */
MR_API const char *mr_context_chip(const mr_context *ctx);   /* the GPU's name; "" for the others */
MR_API int mr_context_threads(const mr_context *ctx);        /* CPU threads that one call may use */

/* ---- Nets: a model's weights and what belongs to them ---------------------------------------------------------- */

typedef struct mr_net mr_net;

/* Reads and checks the whole file. MR_EIO, MR_EFORMAT, MR_ENOMEM. */
MR_API int mr_net_open(mr_context *ctx, const char *path, mr_net **out, mr_error *err);
/* The same from the bytes of a file, which are not needed afterwards. */
MR_API int mr_net_open_memory(mr_context *ctx, const void *data, size_t size, mr_net **out, mr_error *err);

/* A new model with random weights. settings: key, value, key, value, ..., NULL. The keys are those of a recipe's
 * [model] ("mixer", "layers", "dim", ...; `minrnn train --help` and mr_key_at list them), those of mr_net_set below,
 * and
 *   vocab    bytes, or a JSON array of one-character strings: a model of text, whose inputs and outputs follow from it
 *   input    tokens, reals        inputs   size of the vocabulary, or values a step
 *   head     token (an output a token), last, mean (one a sequence), pair-last, pair-mean (one for sequences 2i and
 *            2i+1)
 *   outputs  classes, or values predicted
 *   loss     xent (cross-entropy of classes), mse (squared error of values)
 *   horizon  the longest sequence in tokens (256): attention's window, and the range of gate-init = timescales
 * MR_EINVAL, MR_ECONFIG. */
MR_API int mr_net_create(mr_context *ctx, const char *const *settings, mr_net **out, mr_error *err);
MR_API void mr_net_free(mr_net *net); /* after its streams */

/* Writes a model file, atomically: until it succeeds, what was there stays. Any net of the same version reads it;
 * with a vocabulary, so does the command. MR_ENONFINITE: a weight is NaN or infinite; nothing was written. */
MR_API int mr_net_save(mr_net *net, const char *path, mr_error *err);

typedef enum mr_input { MR_INPUT_TOKENS, MR_INPUT_REALS } mr_input;
/* PAIR: sequences 2i and 2i+1 of a batch belong together, and there is one answer for both. */
typedef enum mr_head { MR_HEAD_TOKEN, MR_HEAD_LAST, MR_HEAD_MEAN, MR_HEAD_PAIR_LAST, MR_HEAD_PAIR_MEAN } mr_head;
typedef enum mr_loss { MR_LOSS_XENT, MR_LOSS_MSE } mr_loss;

MR_API mr_input mr_net_input(const mr_net *net);
MR_API int mr_net_inputs(const mr_net *net); /* size of the vocabulary, or values a step */
MR_API mr_head mr_net_head(const mr_net *net);
MR_API mr_loss mr_net_loss(const mr_net *net);
MR_API int mr_net_outputs(const mr_net *net); /* scores of one row */
/* Rows of scores and targets of a batch of B sequences of T tokens: B*T with head = token, else B, or B/2 for pairs. */
MR_API size_t mr_net_rows(const mr_net *net, int B, int T);
MR_API int64_t mr_net_parameters(const mr_net *net);
MR_API size_t mr_net_state_bytes(const mr_net *net); /* of one stream: what it remembers, as floats */
MR_API int64_t mr_net_steps(const mr_net *net);      /* training steps that the weights have seen */
/* The value of a key of mr_net_create as text, "mixer" say; horizon is not kept. MR_EINVAL: no such key, or too little
 * room. */
MR_API int mr_net_setting(const mr_net *net, const char *key, char *text, size_t capacity, mr_error *err);

/* Text models. Encodes text (UTF-8, or any bytes for a vocabulary of bytes) into tokens: as many as there is room
 * for; *count says how many, *used how many bytes they stand for. A character that is cut off at the end is left for
 * the next call, unless used is NULL: then all of the text must fit. tokens NULL: only counts. MR_EDATA: a character
 * that is not in the vocabulary; *count and *used say how far it came. */
MR_API int mr_net_encode(const mr_net *net, const char *text, size_t size, int32_t *tokens, size_t capacity,
                         size_t *count, size_t *used, mr_error *err);
/* Tokens into bytes, without a zero byte after them; *size says how many. 4 bytes a token are always enough room. */
MR_API int mr_net_decode(const mr_net *net, const int32_t *tokens, size_t n, char *text, size_t capacity, size_t *size,
                         mr_error *err);

/* ---- Streams: sequences on their way through a net ------------------------------------------------------------- */

/* Cheap: only a state of its own, in memory that the net keeps for its streams. Thousands on one net are fine,
 * stepped from as many threads as you like. Not for head = mean or pair-...: use mr_net_forward there. */
typedef struct mr_stream mr_stream;

MR_API int mr_stream_new(mr_net *net, mr_stream **out, mr_error *err);
MR_API int mr_stream_clone(const mr_stream *stream, mr_stream **out, mr_error *err); /* continues from the same state */
MR_API void mr_stream_free(mr_stream *stream);
MR_API void mr_stream_reset(mr_stream *stream); /* a new sequence starts */

/* One token in, mr_net_outputs() scores (logits, or predicted values) out. scores NULL: not wanted. MR_EINVAL for a
 * token outside the vocabulary. */
MR_API int mr_stream_step(mr_stream *stream, int32_t token, float *scores, size_t capacity, mr_error *err);
/* The same for nets that take values: mr_net_inputs() of them. */
MR_API int mr_stream_step_values(mr_stream *stream, const float *values, float *scores, size_t capacity, mr_error *err);
/* n >= 1 tokens in one call, as for a prompt, or n times mr_net_inputs() values; the scores after the last one. The
 * same numbers as step by step, to rounding. */
MR_API int mr_stream_feed(mr_stream *stream, const int32_t *tokens, size_t n, float *scores, size_t capacity,
                          mr_error *err);
MR_API int mr_stream_feed_values(mr_stream *stream, const float *values, size_t n, float *scores, size_t capacity,
                                 mr_error *err);

/* One token (or inputs() values; the other one is NULL) for each of n different streams of one net, together: faster
 * than one by one, because the weights are read once. Any streams in any order; scores [n, outputs] or NULL. */
MR_API int mr_stream_step_many(mr_stream *const *streams, int n, const int32_t *tokens, const float *values,
                               float *scores, size_t capacity, mr_error *err);

/* How tokens are drawn. The random number of a draw follows from seed and position alone, so that the same text
 * comes out however it is cut into calls, alone or beside other streams. */
typedef struct mr_sample_options {
    size_t size;
    double temperature; /* 0: always the likeliest; 1: as the model says */
    double top_p;       /* only the likeliest that together have this probability; 1: all */
    int top_k;          /* only the K likeliest; 0: all */
    uint64_t seed;
    uint64_t position; /* how many tokens were drawn before this call */
} mr_sample_options;
/* clang-format off */
#define MR_SAMPLE_OPTIONS {sizeof(mr_sample_options), 1, 1, 0, 1, 0}
/* clang-format on */

/* Feeds n >= 1 tokens, then draws `count` tokens, each of which is fed before the next one is drawn; the last one is
 * not: give it to the next call. Many at once are faster than one a call. MR_ENONFINITE: a score was NaN or
 * infinite. */
MR_API int mr_stream_sample(mr_stream *stream, const int32_t *tokens, size_t n, const mr_sample_options *how,
                            int32_t *drawn, size_t count, mr_error *err);
/* One token in and one drawn for each of n streams, how [n]. */
MR_API int mr_stream_sample_many(mr_stream *const *streams, int n, const int32_t *tokens, const mr_sample_options *how,
                                 int32_t *drawn, mr_error *err);

/* The whole state as bytes: store it, send it, continue from it elsewhere, on another device too. save needs room
 * for mr_stream_state_size() bytes. load refuses what is no state (MR_EFORMAT) or one of a model of another shape
 * (MR_EINVAL), and then changes nothing. */
MR_API size_t mr_stream_state_size(const mr_stream *stream);
MR_API int mr_stream_save(const mr_stream *stream, void *blob, size_t capacity, mr_error *err);
MR_API int mr_stream_load(mr_stream *stream, const void *blob, size_t size, mr_error *err);

/* ---- Batches: whole sequences, and training -------------------------------------------------------------------- */

/* B sequences of T tokens, in host memory. A row of scores or targets is a token, a sequence or a pair (mr_net_rows).
 * What does not apply to the net is NULL. A NaN or infinity in the arrays is refused by name and index. */
typedef struct mr_batch {
    size_t size;
    int B, T;
    int32_t *ids;         /* [B, T] input = tokens */
    float *values;        /* [B, T, inputs] input = reals */
    uint8_t *reset;       /* [B, T] 1: a new sequence starts before this token; or NULL */
    int32_t *length;      /* [B] tokens that are real, 1 ... T; or NULL: all */
    int32_t *target;      /* [rows] the right class, -1: does not count (tokens beyond length must not); loss = xent */
    float *target_values; /* [rows, outputs] loss = mse */
    uint8_t *mask;        /* [rows] 1: counts; or NULL: all within length do; loss = mse */
    int64_t counted;      /* 0; mr_net_check (minrnn_experimental.h) sets it, so that a batch is looked through once */
} mr_batch;
#define MR_BATCH MR_SIZED(mr_batch)

typedef struct mr_result {
    size_t size;
    double loss;     /* mean over rows that count: nats, or squared error (of scaled values, where there is a scaler) */
    double accuracy; /* share of rows whose highest score is the target; NaN for mse */
    double grad_norm; /* before clipping; 0 when nothing was trained */
    double lr;        /* the learning rate of the step; 0 when nothing was trained */
    int64_t rows;     /* that counted */
    int64_t step;     /* training steps done */
} mr_result;
#define MR_RESULT MR_SIZED(mr_result)

/* scores [rows, outputs]. Targets are not read. */
MR_API int mr_net_forward(mr_net *net, const mr_batch *batch, float *scores, size_t capacity, mr_error *err);
/* The loss on this batch; nothing is trained. */
MR_API int mr_net_evaluate(mr_net *net, const mr_batch *batch, mr_result *result, mr_error *err);
/* One step of training: forward, loss, backward, update. Waits until other calls on this net are done, and they for
 * it. MR_ENONFINITE: the weights stay as they were, and the sentence says where it began. MR_ECONFIG: weights in 8
 * bits are not trained. result may be NULL. */
MR_API int mr_net_train(mr_net *net, const mr_batch *batch, mr_result *result, mr_error *err);

/* Changes how the next steps train: lr, schedule, warmup, steps, optimizer, betas, eps, weight-decay, clip, seed. */
MR_API int mr_net_set(mr_net *net, const char *key, const char *value, mr_error *err);

/* Remembers the weights as they are now as the best so far; mr_net_save_best writes them as a model file. */
MR_API int mr_net_mark_best(mr_net *net, mr_error *err);
MR_API int mr_net_save_best(mr_net *net, const char *path, mr_error *err);

/* Everything that training needs to continue exactly where it was: weights, the best ones, the optimiser's moments,
 * the step. Written atomically. load expects a net of the same configuration, and changes nothing where it fails.
 * Settings of mr_net_set are the caller's to repeat. extra: metadata of your own (key, value, ..., NULL; keys with a
 * dot in them, such as "mine.epoch"), or NULL; mr_file_meta reads it back. */
MR_API int mr_net_save_training(mr_net *net, const char *path, const char *const *extra, mr_error *err);
MR_API int mr_net_load_training(mr_net *net, const char *path, mr_error *err);

#ifdef __cplusplus
}
#endif
#endif
