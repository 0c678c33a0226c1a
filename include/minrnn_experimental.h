/* minrnn, the part that may still change: everything here works and is tested, but names and structs may differ in
 * the next version. Include it after reading minrnn.h, whose rules hold here too. Nothing of minrnn is declared
 * stable for ever before 1.0. */
#ifndef MINRNN_EXPERIMENTAL_H
#define MINRNN_EXPERIMENTAL_H

#include "minrnn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- What is built in, and what keys there are ----------------------------------------------------------------- */

MR_API const char *const *
mr_cpu_isas(void);                        /* instruction sets that this machine can run, best first, NULL-terminated */
MR_API const char *mr_cuda_version(void); /* "13.0", or "no" in a build without CUDA */
MR_API int mr_uses_cblas(void);           /* 1: matrix products of the CPU by a CBLAS */

typedef enum mr_key_type {
    MR_KEY_INT,    /* a whole number */
    MR_KEY_REAL,   /* a number */
    MR_KEY_BOOL,   /* yes, no */
    MR_KEY_CHOICE, /* one of choices */
    MR_KEY_PAIR,   /* two numbers, "0.9,0.99" */
    MR_KEY_TEXT
} mr_key_type;

enum {
    MR_KEY_DERIVED = 1,    /* follows from the data: input, inputs, head, loss, outputs, ... */
    MR_KEY_MAY_CHANGE = 2, /* may differ when a training continues */
    MR_KEY_SPARSE = 8,     /* in a file only where it is not the default */
    MR_KEY_LEARN = 16      /* how it trains (mr_net_set, decay-set aside); the others are what a file holds */
};

/* One key of mr_net_create. Owned by the library. */
typedef struct mr_key {
    const char *name;
    mr_key_type type;
    const char *fallback;       /* the default, as text */
    double min, max;            /* inclusive; numbers */
    const char *const *choices; /* NULL-terminated, or NULL */
    const char *help;
    unsigned flags;
} mr_key;

MR_API const mr_key *mr_key_at(int index);           /* all but vocab and horizon: 0, 1, ...; NULL: no more */
MR_API const mr_key *mr_key_find(const char *name);  /* NULL: no such key */
MR_API const char *mr_key_nearest(const char *name); /* the key that a mistyped one may mean, or NULL */

/* Settings as for mr_net_create, checked without making a net; *parameters is how many it would have. No memory for
 * weights is taken. parameters may be NULL. */
MR_API int mr_settings_check(const char *const *settings, int64_t *parameters, mr_error *err);

/* ---- Vocabularies: which token stands for which piece of text -------------------------------------------------- */

typedef struct mr_vocab mr_vocab;
typedef enum mr_vocab_kind { MR_VOCAB_CHARS, MR_VOCAB_BYTES } mr_vocab_kind;

/* The distinct characters of a UTF-8 text in ascending order (an error gives line and byte), or all 256 bytes. */
MR_API int mr_vocab_build(mr_vocab_kind kind, const char *text, size_t size, mr_vocab **out, mr_error *err);
/* From and to the text of the key `vocab`: "bytes", or a JSON array of one-character strings. print: *needed is the
 * bytes of the text with its zero byte, also where capacity is less (MR_EINVAL). */
MR_API int mr_vocab_parse(const char *text, mr_vocab **out, mr_error *err);
MR_API int mr_vocab_print(const mr_vocab *vocab, char *text, size_t capacity, size_t *needed, mr_error *err);
MR_API void mr_vocab_free(mr_vocab *vocab);
MR_API int mr_vocab_size(const mr_vocab *vocab);
MR_API int mr_vocab_is_bytes(const mr_vocab *vocab); /* 0: characters */
/* A piece of a text that may end in the middle of a character, unless it is the `last`. tokens has room for
 * `capacity`; *count and *used say how far it came, also after an error, which begins "byte N: ", counted from 1 and
 * from `offset`, the piece's place in the whole text. */
MR_API int mr_vocab_encode(const mr_vocab *vocab, const char *text, size_t size, int last, uint64_t offset,
                           int32_t *tokens, size_t capacity, size_t *count, size_t *used, mr_error *err);
/* The bytes of one token, at most 4; returns how many, 0 for what is no token. */
MR_API int mr_vocab_decode(const mr_vocab *vocab, int32_t token, char bytes[4]);
MR_API const mr_vocab *mr_net_vocab(const mr_net *net); /* NULL: the net does not read text */

/* ---- Nets: metadata, tensors, 8 bits, the scaler --------------------------------------------------------------- */

/* Metadata that is saved with the model, such as "mine.author". What the library writes itself (format, version, step,
 * vocab, model....) cannot be set. The text is the net's, until the key is set again. */
MR_API const char *mr_net_meta(const mr_net *net, const char *key); /* NULL: there is none */
MR_API const char *mr_net_meta_key(const mr_net *net, int index);   /* 0, 1, ...; NULL: no more */
MR_API int mr_net_set_meta(mr_net *net, const char *key, const char *value, mr_error *err);
/* One metadata value of any safetensors file; *needed as in mr_vocab_print, 0 where the file has no such key. */
MR_API int mr_file_meta(const char *path, const char *key, char *text, size_t capacity, size_t *needed, mr_error *err);

typedef enum mr_vector { MR_WEIGHTS, MR_GRADS, MR_MOMENT1, MR_MOMENT2, MR_BEST, MR_VECTORS } mr_vector;

typedef struct mr_tensor {
    size_t size;
    const char *name;  /* "blocks.0.mixer.linear_z.weight"; the net's */
    const char *dtype; /* in the file: "F32", "I8" */
    int ndim;
    int64_t shape[4];
    size_t count; /* elements */
} mr_tensor;
#define MR_TENSOR MR_SIZED(mr_tensor)

MR_API int mr_net_tensors(const mr_net *net); /* how many */
MR_API int mr_net_tensor(const mr_net *net, int index, mr_tensor *out, mr_error *err);
/* Copies of a tensor's elements, of the weights, of their gradients in the last step, of the optimiser's moments, of
 * the best weights. Matrices in 8 bits are returned as the numbers they stand for; setting those is refused. */
MR_API int mr_net_get(mr_net *net, mr_vector which, const char *name, float *to, size_t capacity, mr_error *err);
MR_API int mr_net_put(mr_net *net, mr_vector which, const char *name, const float *from, size_t count, mr_error *err);

/* Writes the model with its matrices in 8 bits: a quarter of the file, to be run and not trained. */
MR_API int mr_net_save_int8(mr_net *net, const char *path, mr_error *err);

/* The scaler: mean and scale of each input (input = reals) and each target (loss = mse), saved with the model. The
 * net then works on (value - mean) / scale, and scores come back in the caller's units, so raw sensor values train.
 * fit takes mean and deviation of a batch's values and targets (of many: the batch with everything in it); set takes
 * them from the caller (a pair that is NULL stays off). Before the first step of training. */
MR_API int mr_net_fit_scaler(mr_net *net, const mr_batch *batch, mr_error *err);
MR_API int mr_net_set_scaler(mr_net *net, const double *input_mean, const double *input_scale,
                             const double *target_mean, const double *target_scale, mr_error *err);
/* What it is. Returns 0, or the sum of 1 (there are means and scales of inputs) and 2 (of targets). Arrays have room
 * for `inputs` and `outputs` numbers; those that are NULL are not wanted. */
MR_API int mr_net_scaler(const mr_net *net, double *input_mean, double *input_scale, size_t inputs, double *target_mean,
                         double *target_scale, size_t outputs, mr_error *err);

/* ---- Training, in parts ---------------------------------------------------------------------------------------- */

typedef struct mr_shape {
    int B, T;
} mr_shape;

/* Memory for batches up to these shapes, once and ahead: for training and for scoring; either may be NULL. No more
 * than the larger of both needs. Without it, memory grows with the largest batch so far. */
MR_API int mr_net_reserve(mr_net *net, const mr_shape *train, const mr_shape *score, mr_error *err);
MR_API int mr_net_reserve_streams(mr_net *net, int count, mr_error *err);

/* Looks a batch through, targets too, and sets batch->counted: calls then take it as it is. For a thread that prepares
 * batches while another one trains. */
MR_API int mr_net_check(const mr_net *net, mr_batch *batch, mr_error *err);

/* A part of a step. micro of micros: gradients are added up from the first and the weights updated after the last,
 * which alone returns a result. scale: what the sum of row losses is multiplied with; 0: one over the rows that
 * count, and over micros. carry: rows continue from where the last batch with carry left them (truncated
 * backpropagation; the same B). progress: a schedule that decays is taken to be at least this far, from 0 to 1, so
 * that it can end when time does and not only after `steps`; the same for all parts of a step. */
typedef struct mr_learn_options {
    size_t size;
    int micro, micros;
    double scale;
    int carry;
    double progress;
} mr_learn_options;
#define MR_LEARN_OPTIONS MR_SIZED(mr_learn_options)
MR_API int mr_net_learn(mr_net *net, const mr_batch *batch, const mr_learn_options *options, mr_result *result,
                        mr_error *err);
MR_API void mr_net_forget_carry(mr_net *net); /* the next batch with carry starts afresh */

/* The means over many batches. next(user, &batch) sets a batch and returns 1, 0 after the last one, or a negative
 * status, which ends it. It must not call into this net. */
typedef int mr_next_batch(void *user, const mr_batch **batch);
MR_API int mr_net_evaluate_all(mr_net *net, mr_next_batch *next, void *user, mr_result *result, mr_error *err);

/* The loss of each row; 0 for rows that do not count. */
MR_API int mr_net_losses(mr_net *net, const mr_batch *batch, float *losses, size_t capacity, mr_error *err);

/* A loss of your own. forward gives scores (dropout on, targets not read); you give the gradient of your loss by the
 * scores, in their units; backward adds to the gradients; after one or several of them, update clips and steps. A
 * kept forward holds the net until its backward or drop, which any thread may call: until then calls that run,
 * train, read or write the weights wait, and those of the thread that keeps it are refused. Between backward and
 * update nothing is held; mr_net_train is refused there, because it would throw the gradients away. Where there is a
 * scaler of targets, scores have the caller's units: a squared error, and with it every gradient, is scale² times
 * that of mr_net_train, an absolute error scale times. Divide your loss by that (mr_net_scaler gives the scale), and
 * clip means the same. */
MR_API int mr_net_keep_forward(mr_net *net, const mr_batch *batch, const mr_learn_options *options, float *scores,
                               size_t capacity, mr_error *err);
MR_API int mr_net_backward(mr_net *net, const float *dscores, size_t count, mr_error *err);
MR_API void mr_net_drop(mr_net *net);           /* the kept forward; nothing was added. Without one it does nothing */
MR_API void mr_net_drop_gradients(mr_net *net); /* of backwards that no update followed */
MR_API int mr_net_update(mr_net *net, mr_result *result, mr_error *err);

/* After MR_ENONFINITE, or a loss that is NaN: where it began, as "blocks.1.mixer (output)" or "head.weight (weights)".
 * Returns 0 and leaves the text empty where every number is finite. */
MR_API int mr_net_find_nonfinite(mr_net *net, char *where, size_t capacity);

/* ---- Streams, scored ------------------------------------------------------------------------------------------- */

/* n tokens in, and the loss in nats of each one's target: the log-probability of a text in pieces, whatever its
 * length. */
MR_API int mr_stream_score(mr_stream *stream, const int32_t *tokens, const int32_t *targets, size_t n, float *losses,
                           size_t capacity, mr_error *err);

/* ---- The scan and the cells alone, on your own buffers --------------------------------------------------------------
 *
 * For programs that have their own framework. Pointers are memory of the context's device: host memory, or for "cuda"
 * memory of that GPU (reset, length, saved and workspace too). Channels are contiguous. Arrays have the sizes that B,
 * T, D and H say; saved and workspace have theirs besides, which must be at least what …_saved() and …_workspace() give
 * for the same dtype, shape and kind of cell (multiples of 64), and are aligned to 64 bytes. A workspace belongs to one
 * call at a time, and holds nothing after it.
 *
 * dtype, of each call by itself, whatever the context's bf16 says:
 *   MR_F32   all arrays of numbers are float
 *   MR_BF16  activations and their gradients (void * below) are bf16; states, weights, biases and their gradients
 *            (mr_wide * below) are float, and so are sums in between; matrix products are in bf16. Rounded to the
 *            nearest, ties to even
 *   MR_F64   all are double; contexts with device = "ref" alone
 *
 * On a GPU a call only puts work into `stream` and returns, with an error if that was refused. NULL is the context's
 * own stream, whose work mr_context_wait waits for; CUDA's default stream, whose handle is also NULL, is
 * cudaStreamLegacy. Work in a stream of yours is yours to wait for. The first call of a dtype, shape and kind of cell
 * (the warm-up, in any stream) may load kernels and allocate host memory; later ones allocate nothing and wait for
 * nothing, use no memory but what they are given, and may be captured in a CUDA graph, which is good as long as those
 * arrays and the context are. Weights are read at each call. On a CPU the same holds, once for each call that runs at
 * the same time; calls return when they are done. */

typedef enum mr_dtype { MR_F32, MR_BF16, MR_F64 } mr_dtype;
typedef void mr_wide; /* float with MR_F32 and MR_BF16, double with MR_F64 */

/* Until all work in the context's own stream is done; its first error since the last wait. */
MR_API int mr_context_wait(mr_context *ctx, mr_error *err);

/* h[t] = a[t]·h[t−1] + b[t]. A reset before t makes h[t−1] zero there. Tokens at and beyond length do not exist: their
 * h and their gradients are 0, and h_out is the state after the real ones. */
typedef struct mr_scan_args {
    size_t size;
    mr_dtype dtype;
    int B, T, H;
    void *stream;          /* a cudaStream_t, or NULL; NULL but for "cuda" */
    const void *a, *b;     /* [B, T, H] */
    const mr_wide *h_in;   /* [B, H] or NULL: zero */
    const uint8_t *reset;  /* [B, T] or NULL */
    const int32_t *length; /* [B] or NULL */
    void *h;               /* [B, T, H] written by the forward, read by the backward */
    mr_wide *h_out;        /* [B, H] or NULL; may be h_in */
    void *workspace;
    size_t workspace_size;
    /* the backward alone */
    const void *dh;        /* [B, T, H] gradient of h */
    const mr_wide *dh_out; /* [B, H] gradient of h_out, or NULL: zero */
    void *da, *db;         /* [B, T, H] =; da may be a, db may be dh */
    mr_wide *dh_in;        /* [B, H] = or NULL; zero where h_in is NULL */
} mr_scan_args;
#define MR_SCAN_ARGS MR_SIZED(mr_scan_args)

MR_API size_t mr_scan_workspace(mr_context *ctx, const mr_scan_args *args); /* 0 for what mr_scan_forward refuses */
MR_API int mr_scan_forward(mr_context *ctx, const mr_scan_args *args, mr_error *err);
MR_API int mr_scan_backward(mr_context *ctx, const mr_scan_args *args, mr_error *err);
MR_API int mr_scan_step(mr_context *ctx, const mr_scan_args *args, mr_error *err); /* T = 1: h is the new state */

typedef enum mr_cell_kind { MR_MINGRU, MR_MINLSTM } mr_cell_kind;
typedef enum mr_candidate { MR_POSITIVE, MR_LINEAR, MR_TANH } mr_candidate;
typedef enum mr_scan { MR_SCAN_LINEAR, MR_SCAN_LOG } mr_scan;

/* Pre-activations of G·H channels: minGRU (G = 2) k | v, minLSTM (G = 3) p | k | v.
 *   minGRU   a = σ(−k), b = σ(k)·c          minLSTM  a = σ(p), b = σ(k)·c, or, normalised, both gates over their sum
 *   c = cand(v): positive: v + 0.5 for v ≥ 0, σ(v) otherwise; linear: v; tanh: tanh(v)
 * scan = log computes the same the paper's way (positive only).
 * With W, pre = x Wᵀ + bias is computed here. What the backward needs of it is kept in `saved`, as the forward left it;
 * the backward destroys it. Without W, pre is the caller's. */
typedef struct mr_cell_args {
    size_t size;
    mr_dtype dtype;
    mr_cell_kind kind;
    mr_candidate candidate;
    mr_scan scan;
    int normalize;         /* minLSTM */
    int B, T, D, H;        /* D: with W */
    void *stream;          /* a cudaStream_t, or NULL; NULL but for "cuda" */
    const void *x;         /* [B, T, D] aligned to 16 bytes in bf16 on a GPU */
    const mr_wide *W;      /* [G·H, D] or NULL */
    const mr_wide *bias;   /* [G·H] with W */
    const void *pre;       /* [B, T, G·H] without W */
    const mr_wide *h_in;   /* [B, H] or NULL: a sequence starts at token 0 */
    const mr_wide *h_init; /* [H] or NULL: sequences start from cand(h_init), or from 0 */
    const uint8_t *reset;  /* [B, T] or NULL */
    const int32_t *length; /* [B] or NULL */
    void *h;               /* [B, T, H] */
    mr_wide *h_out;        /* [B, H] or NULL; may be h_in */
    void *saved;           /* from the forward to its backward; NULL where mr_cell_saved gives 0 */
    size_t saved_size;
    void *workspace;
    size_t workspace_size;
    /* the backward alone */
    const void *dh;        /* [B, T, H] */
    const mr_wide *dh_out; /* [B, H] or NULL: zero */
    void *dx;              /* [B, T, D] = with W */
    mr_wide *dW, *dbias;   /* [G·H, D], [G·H] += with W */
    void *dpre;            /* [B, T, G·H] = without W; may be pre, which saves a copy */
    mr_wide *dh_in;        /* [B, H] = or NULL */
    mr_wide *dh_init;      /* [H] += or NULL; with h_init */
} mr_cell_args;
#define MR_CELL_ARGS MR_SIZED(mr_cell_args)

MR_API size_t mr_cell_saved(mr_context *ctx, const mr_cell_args *args);     /* 0 too where nothing need be kept */
MR_API size_t mr_cell_workspace(mr_context *ctx, const mr_cell_args *args); /* 0 for what mr_cell_forward refuses */
MR_API int mr_cell_forward(mr_context *ctx, const mr_cell_args *args, mr_error *err);
MR_API int mr_cell_backward(mr_context *ctx, const mr_cell_args *args, mr_error *err);
MR_API int mr_cell_step(mr_context *ctx, const mr_cell_args *args, mr_error *err); /* T = 1: h is the new state */

#ifdef __cplusplus
}
#endif
#endif
