/* minrnn, the part that may still change. Everything here works and is tested, but names and structs may differ in the
 * next version. Read minrnn.h first: its rules hold here too. */
#ifndef MINRNN_EXPERIMENTAL_H
#define MINRNN_EXPERIMENTAL_H

#include "minrnn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- What this build can do, and the settings it knows --------------------------------------------------------- */

MR_API const char *const *mr_cpu_isas(void); /* instruction sets this machine can run, best first, NULL-terminated */
MR_API const char *mr_cuda_version(void);    /* "13.0"; "no" in a build without CUDA */
MR_API int mr_cuda_count(void);              /* GPUs that this build can see */
MR_API int mr_processors_allowed(void);      /* processors that this process may run on */
MR_API int mr_uses_cblas(void);              /* 1: the CPU computes matrix products with a CBLAS library */

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
    MR_KEY_MAY_CHANGE = 2, /* may differ when training is resumed */
    MR_KEY_SPARSE = 8,     /* written to a file only if it differs from the default */
    MR_KEY_LEARN = 16      /* a training setting (for mr_net_set, except decay-set); all others are stored in files */
};

/* One key of mr_net_create. The library owns it. */
typedef struct mr_key {
    const char *name;
    mr_key_type type;
    const char *fallback;       /* the default, as text */
    double min, max;            /* of numbers, inclusive */
    const char *const *choices; /* NULL-terminated, or NULL */
    const char *help;
    unsigned flags;
} mr_key;

MR_API const mr_key *mr_key_at(int index);           /* all keys but vocab and horizon: 0, 1, ...; NULL: no more */
MR_API const mr_key *mr_key_find(const char *name);  /* NULL: no such key */
MR_API const char *mr_key_nearest(const char *name); /* the most similar key to a mistyped one; NULL: none is similar */

/* Checks settings for mr_net_create without allocating the weights. *parameters is set to the number of parameters that
 * the net would have; it may be NULL. */
MR_API int mr_settings_check(const char *const *settings, int64_t *parameters, mr_error *err);

/* ---- Vocabularies: text to tokens and back --------------------------------------------------------------------- */

typedef struct mr_vocab mr_vocab;
typedef enum mr_vocab_kind { MR_VOCAB_CHARS, MR_VOCAB_BYTES } mr_vocab_kind;

/* Builds a vocabulary: the distinct characters of a UTF-8 text in ascending order (errors name line and byte), or all
 * 256 bytes. */
MR_API int mr_vocab_build(mr_vocab_kind kind, const char *text, size_t size, mr_vocab **out, mr_error *err);
/* Reads and prints a vocabulary as the key `vocab` has it: "bytes", or a JSON array of one-character strings. print
 * sets *needed to the size of the text with its zero byte, even if capacity is smaller (MR_EINVAL). */
MR_API int mr_vocab_parse(const char *text, mr_vocab **out, mr_error *err);
MR_API int mr_vocab_print(const mr_vocab *vocab, char *text, size_t capacity, size_t *needed, mr_error *err);
MR_API void mr_vocab_free(mr_vocab *vocab);
MR_API int mr_vocab_size(const mr_vocab *vocab);
MR_API int mr_vocab_is_bytes(const mr_vocab *vocab); /* 0: characters */
/* Encodes one piece of a longer text into at most `capacity` tokens. Only the `last` piece must end at the end of a
 * character. *count and *used are set to the tokens written and the bytes they cover, after an error too. Errors begin
 * with "byte N: ", where the whole text's first byte is number 1 and this piece starts at `offset`. */
MR_API int mr_vocab_encode(const mr_vocab *vocab, const char *text, size_t size, int last, uint64_t offset,
                           int32_t *tokens, size_t capacity, size_t *count, size_t *used, mr_error *err);
/* Writes the bytes of one token and returns how many there are, 1 ... 4; 0: no such token. */
MR_API int mr_vocab_decode(const mr_vocab *vocab, int32_t token, char bytes[4]);
MR_API const mr_vocab *mr_net_vocab(const mr_net *net); /* the net's own; NULL: not a text model */

/* ---- Nets: metadata, tensors, 8 bits, the scaler --------------------------------------------------------------- */

/* Metadata saved with the model, such as "mine.author". Keys that the library writes itself (format, version, step,
 * vocab, model....) cannot be set. The net owns the returned strings, until the key is set again. */
MR_API const char *mr_net_meta(const mr_net *net, const char *key); /* NULL: there is none */
MR_API const char *mr_net_meta_key(const mr_net *net, int index);   /* 0, 1, ...; NULL: no more */
MR_API int mr_net_set_meta(mr_net *net, const char *key, const char *value, mr_error *err);
/* Reads one metadata value of any safetensors file. *needed as for mr_vocab_print; 0: the file has no such key. */
MR_API int mr_file_meta(const char *path, const char *key, char *text, size_t capacity, size_t *needed, mr_error *err);

typedef enum mr_vector { MR_WEIGHTS, MR_GRADS, MR_MOMENT1, MR_MOMENT2, MR_BEST, MR_VECTORS } mr_vector;

typedef struct mr_tensor {
    size_t size;
    const char *name;  /* "blocks.0.mixer.linear_z.weight"; owned by the net */
    const char *dtype; /* in the file: "F32", "I8" */
    int ndim;
    int64_t shape[4];
    size_t count; /* elements */
} mr_tensor;
#define MR_TENSOR MR_SIZED(mr_tensor)

MR_API int mr_net_tensors(const mr_net *net); /* how many */
MR_API int mr_net_tensor(const mr_net *net, int index, mr_tensor *out, mr_error *err);
/* Copies a tensor's elements out of or into one of the vectors: the weights, their gradients in the last step, the
 * optimiser's moments, the best weights. 8-bit matrices are converted to float when read and cannot be set. */
MR_API int mr_net_get(mr_net *net, mr_vector which, const char *name, float *to, size_t capacity, mr_error *err);
MR_API int mr_net_put(mr_net *net, mr_vector which, const char *name, const float *from, size_t count, mr_error *err);

/* Points to a tensor's elements in place, where the device's memory is the host's (cpu), until the net is freed. Do not
 * write while a call uses the net. What is written is not checked, but a net with NaN or infinity is not saved. Not for
 * MR_BEST and 8-bit matrices. MR_EDEVICE: another device. */
MR_API int mr_net_view(mr_net *net, mr_vector which, const char *name, float **out, mr_error *err);

/* Writes the model with 8-bit matrices: a quarter of the size. Such a model runs but cannot be trained. */
MR_API int mr_net_save_int8(mr_net *net, const char *path, mr_error *err);

/* The scaler: a mean and scale for each input (input = reals) and each target (loss = mse), saved with the model. The
 * net then works on (value - mean) / scale and returns scores in the caller's units, so it can train on raw sensor
 * values. fit takes mean and deviation from the values and targets of one batch, so put all data into it. set takes
 * them from the caller; a pair that is NULL stays off. With output = tanh targets are not scaled: fit leaves them
 * alone, set refuses them. Call either before the first training step. */
MR_API int mr_net_fit_scaler(mr_net *net, const mr_batch *batch, mr_error *err);
MR_API int mr_net_set_scaler(mr_net *net, const double *input_mean, const double *input_scale,
                             const double *target_mean, const double *target_scale, mr_error *err);
/* Reads the scaler. Returns the sum of 1 (inputs are scaled) and 2 (targets are scaled), or a negative status. The
 * arrays have room for `inputs` and `outputs` numbers; each may be NULL. */
MR_API int mr_net_scaler(const mr_net *net, double *input_mean, double *input_scale, size_t inputs, double *target_mean,
                         double *target_scale, size_t outputs, mr_error *err);

/* ---- Training in parts: micro-batches, carried state, your own loss -------------------------------------------- */

typedef struct mr_shape {
    int B, T;
} mr_shape;

/* Allocates memory for batches up to these shapes in advance: for training and for scoring; either may be NULL. Both
 * share memory, so it takes only as much as the larger one. Without this call memory grows with the largest batch. */
MR_API int mr_net_reserve(mr_net *net, const mr_shape *train, const mr_shape *score, mr_error *err);
MR_API int mr_net_reserve_streams(mr_net *net, int count, mr_error *err);
/* Bytes of the device that this net has taken: parameters and, once it trains, gradients, moments and the activations
 * of its largest batch. Calls that only score, and streams, may have taken more, as has the device's own scratch. */
MR_API size_t mr_net_memory(mr_net *net);

/* Checks a batch and its targets and sets batch->counted; later calls then skip the check. Meant for a thread that
 * prepares batches while another one trains. */
MR_API int mr_net_check(const mr_net *net, mr_batch *batch, mr_error *err);

/* One micro-batch of a training step. */
typedef struct mr_learn_options {
    size_t size;
    int micro, micros; /* micro-batch 0 ... micros-1 of this step: gradients add up, and the last one updates */
    double scale;      /* factor on the sum of row losses; 0: 1 / (rows that count * micros) */
    int carry;         /* 1: rows continue from the state that the last batch with carry left; B must be the same */
    double progress;   /* 0 ... 1: how far a decaying schedule must be at least, so that it can end when time does and
                          not only after `steps`; the same for all micro-batches of a step */
} mr_learn_options;
#define MR_LEARN_OPTIONS MR_SIZED(mr_learn_options)
/* Trains on one micro-batch. Only the last one of a step writes *result. */
MR_API int mr_net_learn(mr_net *net, const mr_batch *batch, const mr_learn_options *options, mr_result *result,
                        mr_error *err);
MR_API void mr_net_forget_carry(mr_net *net); /* the next batch with carry starts from the initial state */

/* Evaluates many batches and returns the means. next(user, &batch) returns 1 and sets a batch, 0 after the last one, or
 * a negative status to stop. It must not use this net. */
typedef int mr_next_batch(void *user, const mr_batch **batch);
MR_API int mr_net_evaluate_all(mr_net *net, mr_next_batch *next, void *user, mr_result *result, mr_error *err);

/* The same in parts, for evaluations that several processes share: the sums of one batch (loss, correct rows, rows that
 * count), and what sums over batches mean. Batches must be added up in one order for the same bits. */
enum { MR_SUMS = 3 };
/* Of ranks that share sequences each has the sums of its part; add them up in the order of ranks. */
MR_API int mr_net_evaluate_sums(mr_net *net, const mr_batch *batch, double sums[MR_SUMS], mr_error *err);
MR_API int mr_net_sums_result(const mr_net *net, const double sums[MR_SUMS], mr_result *result, mr_error *err);

/* Computes the loss of each row; 0 for rows that do not count. */
MR_API int mr_net_losses(mr_net *net, const mr_batch *batch, float *losses, size_t capacity, mr_error *err);

/* Training with your own loss, in three calls:
 *   1. mr_net_keep_forward computes scores (with dropout; targets are not read) and keeps the activations.
 *   2. You compute your loss's gradient with respect to the scores; mr_net_backward adds to the weights' gradients.
 *   3. After one or more of these pairs, mr_net_update clips the gradients and updates the weights.
 * A kept forward locks the net until its backward or drop, which any thread may call. Until then, calls that run,
 * train, read or write the weights wait; from the thread that kept the forward they are refused, because they would
 * wait for ever. Between backward and update the net is not locked, but mr_net_train is refused, because it would
 * discard the gradients.
 * With output = tanh, scores and your gradient are those after the tanh.
 * With a scaler of targets, scores are in the caller's units: a squared error and its gradients are scale² times those
 * of mr_net_train, an absolute error's scale times. Divide your loss by that factor (mr_net_scaler returns the scale),
 * so that `clip` means the same. MR_ECONFIG: sequences are trained in chunks (recompute). */
MR_API int mr_net_keep_forward(mr_net *net, const mr_batch *batch, const mr_learn_options *options, float *scores,
                               size_t capacity, mr_error *err);
MR_API int mr_net_backward(mr_net *net, const float *dscores, size_t count, mr_error *err);
MR_API void mr_net_drop(mr_net *net);           /* discards a kept forward, if there is one */
MR_API void mr_net_drop_gradients(mr_net *net); /* discards the gradients added since the last update */
MR_API int mr_net_update(mr_net *net, mr_result *result, mr_error *err);

/* Finds where numbers became NaN or infinite, for use after MR_ENONFINITE or a NaN loss: "blocks.1.mixer (output)",
 * "head.weight (weights)". Returns 0 and an empty string if every number is finite. */
MR_API int mr_net_find_nonfinite(mr_net *net, char *where, size_t capacity);

/* ---- Training on several processes ------------------------------------------------------------------------------
 *
 * mpirun, srun --mpi=pmix or torchrun starts the same program several times; each process, a rank, opens a context of
 * the same kind of device, joins, and makes the same net. A step is `micros` micro-batches, however many ranks there
 * are. Each rank calls mr_net_learn for its own ones (mr_rank_micros), in order; the last call exchanges gradients,
 * updates, and writes the same result everywhere. Sums are made in an order that does not depend on the number of
 * ranks: the weights have the same bits for any. Only mr_net_learn with several micro-batches trains;
 * mr_net_save… write on rank 0 and do nothing on others. */

MR_API int mr_ranks_launched(int *rank); /* how many a launcher started; 0: there is none. rank may be NULL */
/* How many of them run on this machine, as far as the launcher tells, and which one of these this process is. */
MR_API void mr_ranks_here(int *place, int *count);
typedef struct mr_join_options {
    size_t size;
    const char
        *engine; /* "mpi" (CPU and GPU), "nccl" (GPU), or NULL or "auto": NCCL for a GPU, where it is installed */
    /* 1: each rank keeps a part of the optimiser's moments, with the same result. mr_net_save_training must then be
     * called on every rank, and mr_net_get and mr_net_put do not reach the moments. */
    int shard;
    /* 0 or 1: each rank has whole sequences. Otherwise as many ranks share each sequence, one after another in
     * time: they learn the same micro-batches and are given the same whole batches, of which each computes its
     * part. Not for attention, gru and lstm. The numbers agree with those of whole sequences as sums in another
     * order do. */
    int sequence_ranks;
} mr_join_options;
#define MR_JOIN_OPTIONS MR_SIZED(mr_join_options)
/* Joins them; waits until all have. options NULL: the defaults. MR_EDEVICE: the engine is not installed, or no launcher
 * started this process. Join before the first net is made, and once. */
MR_API int mr_context_join(mr_context *ctx, const mr_join_options *options, mr_error *err);
MR_API int mr_context_rank(const mr_context *ctx);           /* 0 ... ranks-1 */
MR_API int mr_context_ranks(const mr_context *ctx);          /* 1: this process alone */
MR_API const char *mr_context_engine(const mr_context *ctx); /* "mpi: Open MPI v4.1.4"; "": not joined */
/* The micro-batches of this rank: *first ... *end-1. None are left for a rank where micros < ranks. */
MR_API void mr_rank_micros(const mr_context *ctx, int micros, int *first, int *end);
/* Copies `bytes` of every rank to all of them: all has room for ranks * bytes. Every rank must call it. */
MR_API int mr_context_gather(mr_context *ctx, const void *mine, void *all, size_t bytes, mr_error *err);
/* Sets a function that is called about ten times a second while another rank keeps this one waiting, in any thread. It
 * returns 1 to give up: the call that waits then fails with MR_ESTOPPED. NULL: wait for ever. With MPI only. */
typedef int mr_rank_waiting(void *user, int rank, double seconds);
MR_API void mr_context_while_waiting(mr_context *ctx, mr_rank_waiting *waiting, void *user);
MR_API void mr_context_abort(mr_context *ctx); /* ends all ranks at once, with status 1; does not return if joined */

/* ---- Scoring with streams -------------------------------------------------------------------------------------- */

/* Feeds n tokens and returns the loss of each one's target in nats. With it the log-probability of a text of any length
 * can be computed piece by piece. */
MR_API int mr_stream_score(mr_stream *stream, const int32_t *tokens, const int32_t *targets, size_t n, float *losses,
                           size_t capacity, mr_error *err);

/* ---- The scan and the cells alone, on your own buffers --------------------------------------------------------------
 *
 * For programs that have their own framework. All pointers are memory of the context's device: host memory, or for
 * "cuda" memory of that GPU (reset, length, saved and workspace too). Channels are contiguous. B, T, D and H determine
 * the sizes of the arrays. saved and workspace must have at least the bytes that …_saved() and …_workspace() return for
 * the same dtype, shape and kind of cell (multiples of 64), and be aligned to 64 bytes. Only one call at a time may use
 * a workspace; its content is not needed between calls.
 *
 * dtype is set per call and does not depend on the context's bf16:
 *   MR_F32   all arrays of numbers are float
 *   MR_BF16  activations and their gradients (void * below) are bf16; states, weights, biases and their gradients
 *            (mr_wide * below) are float, and so are sums in between; matrix products are in bf16. Rounded to the
 *            nearest, ties to even
 *   MR_F64   all are double; only with device = "ref"
 *
 * On a GPU a call only launches work in `stream` and returns; errors of the launch are reported. stream NULL means the
 * context's own stream, which mr_context_wait waits for. For CUDA's default stream, whose handle is also NULL, pass
 * cudaStreamLegacy. Wait for your own streams yourself. The first call with a dtype, shape and kind of cell (the
 * warm-up, in any stream) may load kernels and allocate host memory. Later calls allocate nothing, wait for nothing and
 * use only the memory they are given. They can be captured in a CUDA graph, which stays valid as long as those arrays
 * and the context exist. Weights are read at each call. On a CPU calls return when they are done, and as many warm-ups
 * are needed as calls run at once. */

typedef enum mr_dtype { MR_F32, MR_BF16, MR_F64 } mr_dtype;
typedef void mr_wide; /* float with MR_F32 and MR_BF16, double with MR_F64 */

/* Waits until all work in the context's own stream is done. Returns the first error since the last wait. */
MR_API int mr_context_wait(mr_context *ctx, mr_error *err);

/* The scan: h[t] = a[t]·h[t−1] + b[t]. A reset at t makes h[t−1] zero there. Tokens from length on are padding: their h
 * and gradients are 0, and h_out is the state after the last real token. */
typedef struct mr_scan_args {
    size_t size;
    mr_dtype dtype;
    int B, T, H;
    void *stream;          /* a cudaStream_t, or NULL; only with "cuda" */
    const void *a, *b;     /* [B, T, H] */
    const mr_wide *h_in;   /* [B, H] or NULL: zero */
    const uint8_t *reset;  /* [B, T] or NULL */
    const int32_t *length; /* [B] or NULL */
    void *h;               /* [B, T, H] the forward writes it, the backward reads it */
    mr_wide *h_out;        /* [B, H] or NULL; may be h_in */
    void *workspace;
    size_t workspace_size;
    /* backward only; "=" is overwritten, "+=" is added to */
    const void *dh;        /* [B, T, H] gradient of h */
    const mr_wide *dh_out; /* [B, H] gradient of h_out, or NULL: zero */
    void *da, *db;         /* [B, T, H] =; da may be a, db may be dh */
    mr_wide *dh_in;        /* [B, H] = or NULL; zero where h_in is NULL */
} mr_scan_args;
#define MR_SCAN_ARGS MR_SIZED(mr_scan_args)

MR_API size_t mr_scan_workspace(mr_context *ctx, const mr_scan_args *args); /* bytes; 0: mr_scan_forward refuses args */
MR_API int mr_scan_forward(mr_context *ctx, const mr_scan_args *args, mr_error *err);
MR_API int mr_scan_backward(mr_context *ctx, const mr_scan_args *args, mr_error *err);
MR_API int mr_scan_step(mr_context *ctx, const mr_scan_args *args, mr_error *err); /* T = 1: h is the new state */

typedef enum mr_cell_kind { MR_MINGRU, MR_MINLSTM } mr_cell_kind;
typedef enum mr_candidate { MR_POSITIVE, MR_LINEAR, MR_TANH } mr_candidate;
typedef enum mr_scan { MR_SCAN_LINEAR, MR_SCAN_LOG } mr_scan;
typedef enum mr_transition { MR_TRANSITION_POSITIVE, MR_TRANSITION_SIGNED } mr_transition;

/* Pre-activations of G·H channels: minGRU (G = 2) k | v, minLSTM (G = 3) p | k | v.
 *   minGRU   a = σ(−k), b = σ(k)·c
 *   minLSTM  a = σ(p), b = σ(k)·c; with normalize, both gates are divided by their sum
 * transition = signed, for states that can count modulo two: a may be negative, and exactly 1 or −1.
 *   minGRU   a = clamp(1.2·tanh(k), −1, 1), b = (1 − |a|)·c
 *   minLSTM  a = clamp(1.2·tanh(p), −1, 1), b = σ(k)·c; with normalize, b = (1 − |a|)·σ(k)·c
 *   c = cand(v): positive: v + 0.5 for v ≥ 0, σ(v) otherwise; linear: v; tanh: tanh(v)
 * scan = log computes the same as the paper does, in logarithms (candidate and transition positive only).
 * With W the call computes pre = x Wᵀ + bias itself. The forward leaves in `saved` what the backward needs; pass it
 * unchanged, the backward destroys it. Without W the caller gives pre. */
typedef struct mr_cell_args {
    size_t size;
    mr_dtype dtype;
    mr_cell_kind kind;
    mr_candidate candidate;
    mr_scan scan;
    int normalize;         /* minLSTM */
    int B, T, D, H;        /* D: only with W */
    void *stream;          /* a cudaStream_t, or NULL; only with "cuda" */
    const void *x;         /* [B, T, D] with W; 16-byte aligned in bf16 on a GPU */
    const mr_wide *W;      /* [G·H, D] or NULL */
    const mr_wide *bias;   /* [G·H] with W, or NULL: none */
    const void *pre;       /* [B, T, G·H] without W */
    const mr_wide *h_in;   /* [B, H] or NULL: a sequence starts at token 0 */
    const mr_wide *h_init; /* [H] or NULL: sequences start from cand(h_init), or from 0 */
    const uint8_t *reset;  /* [B, T] or NULL */
    const int32_t *length; /* [B] or NULL */
    void *h;               /* [B, T, H] */
    mr_wide *h_out;        /* [B, H] or NULL; may be h_in */
    void *saved;           /* from the forward to its backward; NULL if mr_cell_saved returns 0 */
    size_t saved_size;
    void *workspace;
    size_t workspace_size;
    /* backward only; "=" is overwritten, "+=" is added to */
    const void *dh;        /* [B, T, H] */
    const mr_wide *dh_out; /* [B, H] or NULL: zero */
    void *dx;              /* [B, T, D] = with W, or NULL: nobody needs it, which saves its time */
    mr_wide *dW, *dbias;   /* [G·H, D], [G·H] += with W, and with bias */
    void *dpre;            /* [B, T, G·H] = without W; may be pre, which saves a copy */
    mr_wide *dh_in;        /* [B, H] = or NULL */
    mr_wide *dh_init;      /* [H] += or NULL; with h_init */
    mr_transition transition;
    int fresh; /* backward: 1: dW, dbias and dh_init are overwritten, not added to */
} mr_cell_args;
#define MR_CELL_ARGS MR_SIZED(mr_cell_args)

MR_API size_t mr_cell_saved(mr_context *ctx, const mr_cell_args *args);     /* bytes; 0: nothing to keep, or refused */
MR_API size_t mr_cell_workspace(mr_context *ctx, const mr_cell_args *args); /* bytes; 0: mr_cell_forward refuses args */
/* The same for one call with just these arrays, which often needs much less. Ask with the arrays that you will pass:
 * the alignment of x, h and dh counts (NULL counts as aligned), and whether dx is there. */
MR_API size_t mr_cell_forward_workspace(mr_context *ctx, const mr_cell_args *args); /* of a step, too */
MR_API size_t mr_cell_backward_workspace(mr_context *ctx, const mr_cell_args *args);
MR_API int mr_cell_forward(mr_context *ctx, const mr_cell_args *args, mr_error *err);
MR_API int mr_cell_backward(mr_context *ctx, const mr_cell_args *args, mr_error *err);
MR_API int mr_cell_step(mr_context *ctx, const mr_cell_args *args, mr_error *err); /* T = 1: h is the new state */

#ifdef __cplusplus
}
#endif
#endif
