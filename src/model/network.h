/* What a model is made of. Only for the files that implement model.h (model.c, plan.c, forward.c, learn.c, loss.c,
 * step.c, replay.c, upload.c, head.c, state.c, recompute.c, chunks.c, nonfinite.c) and for tests. */
#ifndef MR_MODEL_NETWORK_H
#define MR_MODEL_NETWORK_H

#include "model/block.h"
#include "model/model.h"
#include "model/quantize.h"
#include "model/recompute.h"
#include "model/ranks.h"
#include "model/scaler.h"
#include "model/sequence.h"

struct mr_model {
    mr_config config;
    mr_interface interface;
    mr_params params;
    mr_dev *dev;
    mr_decay_set decay_set;
    mr_sequence *group, *sequence;          /* the last one set, whose memory is planned; the one in use, or NULL */
    int shares;                             /* weights and bytes belong to another model */
    int embed, norm, pair, head, head_bias; /* rows of the parameter table; head_bias −1: none */
    mr_block *blocks;
    /* the parameter vector and what belongs to it; grads and moments only for training */
    mr_real *weights, *grads, *moment1, *moment2;
    /* 8-bit models: where matrices begin in the vector of bytes, and that vector */
    mr_quants quants;
    int8_t *bytes;
    /* the scaler, its own or that of the model whose weights it shares, and host memory for converting numbers */
    mr_scaler own_scaler;
    const mr_scaler *scaler;
    float *staging;
    size_t staging_size;
    /* the plan */
    mr_shape shapes[MR_SHAPES], shape; /* what the plan is for, and the shape that is being laid out */
    int shape_count, train;
    void *memory;
    size_t planned;
    int32_t *ids, *target, *length;
    uint8_t *reset, *mask;
    mr_act *values;
    mr_real *target_values, *row_loss, *stat;
    /* what is computed again (recompute.c): as asked for, and as the plan does it (chunk 0: sequences are whole) */
    mr_recomputing asked, recompute;
    mr_chunks chunks;
    mr_real *start_state; /* the state that the last training forward started from, if `carried` */
    int carried;
    mr_act *normed, *pooled, *logits, *dpooled;
    size_t slice;    /* rows whose scores are in memory at a time, for tests; 0: as loss.c has it */
    mr_real *scores; /* output = tanh: tanh of the logits, or a caller's gradient of it; otherwise NULL */
    /* a head of pairs: the features [P, 4·D], the layer over them [P, D] before and after gelu, and their gradients */
    mr_act *features, *pair_pre, *paired, *dfeatures, *dpaired;
    mr_scratch scratch;
    /* several micro-batches a step: the tree of their gradients, the ranks that have others, and the parts of the
     * norm */
    mr_tree tree;
    mr_ranks *ranks; /* NULL: this process trains alone */
    int sending;     /* the backward under way tells `ranks` what is complete */
    int shard;       /* moments lie as in mr_shard_at */
    double *parts;
    mr_step *step;
    double *stats, *sumsq, *scale;
    /* drawing: the options, the next position (device and host), drawn tokens, and how many rows the logits have */
    mr_sampling *sampling;
    double *position, next_position;
    int32_t *drawn;
    size_t rows;
};

/* The last block's output: what the final norm reads. */
mr_act *mr_model_top(const mr_model *model);
size_t mr_model_rows(const mr_model *model, const mr_batch *batch);

/* Forward (forward.c). What the layers need to know of a pass over this batch. */
mr_pass mr_pass_over(const mr_model *model, const mr_batch *batch, int train);
/* A block's part of the states of B streams; in and out may be NULL. */
mr_block_state mr_block_state_of(const mr_model *model, const mr_block *block, mr_real *in, mr_real *out, int B);
/* From the uploaded batch to the logits. in, out: reals of a state, or NULL. */
void mr_run_forward(mr_model *model, const mr_pass *pass, mr_real *in, mr_real *out, size_t rows);
/* The same, but only to the state after the batch. */
void mr_run_states(mr_model *model, const mr_pass *pass, mr_real *in, mr_real *out);
/* Copies the state that a training forward starts from, for its backward. NULL: it starts from the beginning. */
mr_real *mr_keep_state(mr_model *model, const mr_batch *batch, const mr_state *state);

/* The backward (learn.c) of the forward and loss that ran last. in: as in the forward. dout, din: gradients of the
 * states after and before the batch, or NULL. */
void mr_run_backward(mr_model *model, const mr_pass *pass, size_t rows, mr_real *in, mr_real *dout, mr_real *din);

/* The plan (plan.c) for model->shapes, with what model->recompute says. check: has the device as much memory as that
 * needs? It is 0 where the device does not say. make: allocates it. */
typedef struct mr_plan_sizes {
    size_t *list; /* the largest of each piece; NULL: there is one shape alone */
    size_t count;
} mr_plan_sizes;
int mr_plan_check(mr_model *model, mr_plan_sizes *sizes, mr_error *err);
int mr_plan_make(mr_model *model, mr_plan_sizes *sizes, mr_error *err);

/* What is computed again (recompute.c). Makes the plan with what was asked for. */
int mr_recompute_plan(mr_model *model, mr_plan_sizes *sizes, mr_error *err);

/* Chunks of time (chunks.c). A micro-batch's number and a chunk's share one word of mr_step. */
enum { MR_CHUNKS_MOST = 1 << 16, MR_MICROS_MOST = 1 << 16 };
int mr_chunks_of(int T, int chunk); /* how many there are in T tokens */
/* The shape of activations for such a batch: that of a chunk, or of the whole. */
mr_shape mr_chunk_shape(const mr_model *model, mr_shape batch);
void mr_chunks_plan(mr_model *model, mr_arena *arena, mr_shape batch);
int mr_chunks_plan_host(mr_model *model); /* 0 or MR_ENOMEM */
int mr_in_chunks(const mr_model *model, const mr_batch *batch);
/* mr_model_learn, by chunks. */
void mr_learn_chunks(mr_model *model, const mr_batch *batch, mr_state *state, const mr_step *step, double scale,
                     int first, int last);

/* Keys of work that repeats (replay.c): one token per stream with the state at `state`, a micro-batch of training, and
 * a chunk of one; carried: it continues from the state in start_state. */
mr_replay_key mr_step_key(const void *model, const void *state, const mr_batch *batch, int draw);
mr_replay_key mr_learn_key(const void *model, const mr_batch *batch, const mr_state *state, int first, int last);
mr_replay_key mr_chunk_key(const void *model, mr_replay_work work, const mr_batch *chunk, int carried);
/* Runs work, which the device may record and replay unless it exchanges messages. */
void mr_run_replayed(mr_model *model, const mr_replay_key *key, void (*work)(void *arg), void *arg);
/* The stages of a backward, in order: the head is 0, the last block 1, …; the first layer comes last. */
int mr_model_stage_of_row(const mr_model *model, int row);
static inline size_t mr_model_norm_parts(const mr_model *m)
{
    return (m->params.total + MR_SUM_PART - 1) / MR_SUM_PART;
}
/* Clips and updates with the norm that lies in m->sumsq: for elements first … of all vectors, moments from `moment`. */
void mr_model_adam(mr_model *model, mr_span span, size_t moment);

/* Moments of ranks that share them (shard.c): how many this one has, and its update after mr_ranks_add_up. */
size_t mr_shard_reals(const mr_model *model);
int mr_shard_update(mr_model *model, mr_error *err);
void mr_shard_put(mr_model *model, mr_vector which, const float *from);

/* Between host and device (upload.c). plan allocates memory for converting numbers, enough for all of m->shapes; 0 or
 * MR_ENOMEM. */
int mr_upload_plan(mr_model *model);
void mr_upload_inputs(mr_model *model, const mr_batch *batch);
void mr_upload_targets(mr_model *model, const mr_batch *batch, double scale);

/* The head (head.c): final norm, pooling, pairs, the last product. */
void mr_head_params(mr_model *model);
void mr_head_plan(mr_model *model, mr_arena *arena);
void mr_head_plan_gradients(mr_model *model, mr_arena *arena);
void mr_head_forward(mr_model *model, const mr_pass *pass, size_t rows);
/* What a caller sees of the logits, where that is not the logits themselves. Training needs it only for the caller's
 * own loss: `mse` computes the tanh itself. */
void mr_head_scores(mr_model *model, size_t rows);
/* From the gradient of the logits, or in slices from that of the last product's input, to that of the last block's
 * output, in scratch.d. */
void mr_head_backward(mr_model *model, const mr_pass *pass, size_t rows);

/* The last product and the loss (loss.c). A batch with many scores goes in slices: the forward then ends before the
 * last product, and m->logits has room for a slice only. */
size_t mr_slice_rows(const mr_model *model);
int mr_in_slices(const mr_model *model, size_t rows);
size_t mr_scores_kept(const mr_model *model, size_t rows); /* how many numbers m->logits has room for */
/* The last product, for rows first … first + rows − 1, whose logits are put at the start of m->logits; and from their
 * gradient there to those of the weights and of the product's input. */
void mr_head_product(mr_model *model, const mr_pass *pass, size_t first, size_t rows);
void mr_head_product_bwd(mr_model *model, const mr_pass *pass, size_t first, size_t rows);
/* After the targets' upload: adds to the stats. With `gradient` the logits become their gradient, or in slices the
 * backward of the last product is done as well. */
void mr_run_loss(mr_model *model, const mr_pass *pass, size_t rows, int gradient);
/* Where a batch goes in slices: scores for the host, and the gradient of a caller's own loss. */
void mr_scores_get(mr_model *model, float *to, size_t first, size_t rows);
void mr_scores_put_gradient(mr_model *model, const float *dscores, size_t rows);

#endif
