/* A model: its configuration, its parameters on a device, and forward, backward and update in planned memory. */
#ifndef MR_MODEL_MODEL_H
#define MR_MODEL_MODEL_H

#include "comm/courier.h"
#include "core/batch.h"
#include "model/config.h"
#include "model/params.h"
#include "model/recompute.h"
#include "model/scaler.h"
#include "ops/device.h"

typedef struct mr_model mr_model;

/* Makes a model with only its table of parameters. mr_model_plan allocates memory. */
int mr_model_new(const mr_config *config, mr_dev *dev, mr_decay_set set, mr_model **out, mr_error *err);
void mr_model_free(mr_model *model);
/* Makes a second model that uses the weights of `owner`, which must be planned and live longer. It has its own memory,
 * runs but cannot train, and may run on another device of the same kind at the same time. */
int mr_model_share(const mr_model *owner, mr_dev *dev, mr_model **out, mr_error *err);
/* Moves the model to another device, with the same kind and allocator as the one it was made for. */
void mr_model_use(mr_model *model, mr_dev *dev);
const mr_config *mr_model_config(const mr_model *model);
const mr_params *mr_model_params(const mr_model *model);
/* Writes initial weights into host memory of params->total floats. horizon: the longest sequence of the task, for
 * gate-init. */
void mr_model_init_weights(const mr_model *model, uint64_t seed, double horizon, float *weights);
mr_dev *mr_model_dev(const mr_model *model);
int64_t mr_model_count(const mr_model *model); /* of parameters, without padding */

/* Copy the parameters, gradients or one of the optimiser's moments (mr_vector) from or to a host vector of
 * params->total floats. Only after the plan. */
void mr_model_put(mr_model *model, mr_vector which, const float *from);
void mr_model_get(mr_model *model, mr_vector which, float *to);
/* The same for elements offset … offset + count − 1. */
void mr_model_put_part(mr_model *model, mr_vector which, size_t offset, size_t count, const float *from);
/* The same in place; NULL: the host cannot see this device's memory as floats. */
float *mr_model_host_part(mr_model *model, mr_vector which, size_t offset);
void mr_model_get_part(mr_model *model, mr_vector which, size_t offset, size_t count, float *to);

/* 8-bit models also have a vector of mr_model_quants(…)->bytes bytes. NULL for all others. */
const struct mr_quants *mr_model_quants(const mr_model *model);
const char *mr_model_dtype(const mr_model *model, int row); /* of a parameter, as in the file: "F32" or "I8" */
void mr_model_put_bytes(mr_model *model, const int8_t *from);
void mr_model_get_bytes(mr_model *model, int row, int8_t *to); /* of one matrix */

/* Sets the scaler (model/scaler.h): from now on values, targets and scores are in the caller's units. A pair that is
 * NULL is off, as both are at first. Inputs need input = reals, targets loss = mse and output = linear. Losses are
 * still those of the scaled numbers. May be called before or after the plan, but not while the model, or one that
 * shares its weights, runs; such models use their owner's scaler. */
int mr_model_set_scaler(mr_model *model, const double *input_mean, const double *input_scale, const double *target_mean,
                        const double *target_scale, mr_error *err);
const mr_scaler *mr_model_scaler(const mr_model *model); /* never NULL, but its pairs may be */

/* From now on every pass is over this rank's part of sequences that the group shares (model/sequence.h); NULL: whole
 * sequences again, say for streams. A group that is new to the model needs a new plan, and must live as long as the
 * model. */
struct mr_sequence;
void mr_model_cut(mr_model *model, struct mr_sequence *sequence);

/* Allocates memory for batches up to B × T. train: also for gradients and moments. May be called again for larger
 * shapes. */
int mr_model_plan(mr_model *model, int B, int T, int train, mr_error *err);
/* The same for up to MR_SHAPES shapes, of which none need contain the other. They share memory. */
#define MR_SHAPES 2
int mr_model_plan_shapes(mr_model *model, const mr_shape *shapes, int count, int train, mr_error *err);
/* Plans for another shape and keeps the previous one, so that two alternating kinds of calls plan only once. */
int mr_model_plan_more(mr_model *model, int B, int T, mr_error *err);
int mr_model_fits(const mr_model *model, int B, int T, int train); /* is it planned for such a batch? */
size_t mr_model_planned_bytes(const mr_model *model);
/* The same with the vectors of parameters, gradients (also those of micro-batches that wait for others) and moments. */
size_t mr_model_memory(const mr_model *model);

/* What the next plan computes again; at first, nothing. A plan without training looks at chunks alone: with them
 * mr_model_score walks through a batch by chunks, and mr_model_forward is not to be called. */
void mr_model_set_recompute(mr_model *model, mr_recomputing asked);
mr_recomputing mr_model_recompute(const mr_model *model); /* what the plan does; chunk 0: sequences are whole */

/* The state of B streams: convolution tails and hidden states of every block. */
size_t mr_model_state_reals(const mr_model *model); /* of one stream */
typedef struct mr_state {
    mr_model *model;
    int B, under_way; /* under_way: the next token continues a sequence */
    mr_real *reals;   /* device: for each block tails [B, 3, D], then the mixer's state [B, …] */
} mr_state;
int mr_state_new(mr_model *model, int B, mr_state **out, mr_error *err);
void mr_state_free(mr_state *state);
void mr_state_reset(mr_state *state);  /* the next token starts a new sequence */
void mr_state_resume(mr_state *state); /* the next token continues from this state */
/* Copy states between a pool, where each slot has one stream's state, and the state of several streams. slot [B] is in
 * device memory. */
void mr_state_gather(mr_state *many, const int32_t *slot, mr_real *pool);
void mr_state_scatter(const mr_state *many, const int32_t *slot, mr_real *pool);
/* Copy a state as mr_model_state_reals(model)·B + 1 floats; the first one is 1 when a sequence is under way. */
void mr_state_get(mr_state *state, float *to);
void mr_state_put(mr_state *state, const float *from);

/* Trains on one micro-batch: upload, forward, loss, backward. Zeroes gradients and stats before the `first` one of a
 * step and updates the weights after the `last`. scale: factor on the sum of row losses. state: as for
 * mr_model_forward, or NULL; no gradient flows through it. A device may record all this and replay it. */
void mr_model_learn(mr_model *model, const mr_batch *batch, mr_state *state, const mr_step *step, double scale,
                    int first, int last);

/* Which micro-batch of a step it is, of those that this process has (first … end − 1) and of all. */
typedef struct mr_micro {
    int micro, first, end, micros;
} mr_micro;

/* The same for a step of several micro-batches, added up in a tree (model/tree.h), so that the sum has the same bits
 * for any number of ranks. They come in order; with the last one of this process gradients are exchanged and the
 * weights are updated. */
int mr_model_learn_micro(mr_model *model, const mr_batch *batch, mr_state *state, const mr_step *step, double scale,
                         const mr_micro *which, mr_error *err);
/* From now on the model is trained together with the models of these ranks; courier may be NULL. Both must live longer
 * than the model. shard: each rank has the moments of the elements that it adds up. cut: ranks that share a sequence
 * (mr_model_cut). Before the first plan. */
int mr_model_join(mr_model *model, mr_comm *comm, mr_courier *courier, int shard, int cut, mr_error *err);
/* mr_model_get, also for moments that ranks share: then all ranks must call it, and gradients are lost. */
int mr_model_gather(mr_model *model, mr_vector which, float *to, mr_error *err);
/* Can mr_model_get and the like reach this vector? */
int mr_model_has_whole(const mr_model *model, mr_vector which);

/* The same in parts.
 *
 * Forward over a batch. state NULL: every sequence starts at token 0. Otherwise sequences continue from the state,
 * which afterwards is the state after the batch. With train, dropout is on and activations are kept for the
 * backward. */
void mr_model_forward(mr_model *model, const mr_batch *batch, mr_state *state, int train);

/* Generation, one stream: first set the sampling options and the position, then draw 1 … MR_DRAWN tokens per call. With
 * `fresh` the first one is drawn from the logits of the last forward with that state. Each other one is drawn after
 * feeding the one before it, which happens on the device. −1: a logit was not finite. Waits once. */
void mr_model_draw_from(mr_model *model, const mr_sampling *how, uint64_t position);
void mr_model_draw(mr_model *model, mr_state *state, int fresh, int count, int32_t *tokens);
/* Generation, B streams: draws one token for each, after a forward of one token for each. */
void mr_model_draw_rows(mr_model *model, int B, const mr_sampling *how, const uint64_t *position, int32_t *tokens);

/* Adds the loss of the last forward to the stats. With scale ≠ 0 it also replaces the logits by the gradient of
 * scale·(sum of row losses), or where they go in slices (loss.c) adds to the head's gradients, which must have been
 * zeroed before. The backward needs it then. */
void mr_model_loss(mr_model *model, const mr_batch *batch, double scale);
/* Adds to the gradients. dstate_out: gradient of the state after the batch (NULL: zero). dstate_in: receives the
 * gradient of the state before it (NULL: not needed). */
void mr_model_backward(mr_model *model, const mr_batch *batch, const mr_state *dstate_out, mr_state *dstate_in);

/* Forward without state, and loss without gradient. */
void mr_model_score(mr_model *model, const mr_batch *batch);

void mr_model_zero_grads(mr_model *model);
void mr_model_zero_stats(mr_model *model);
void mr_model_stats(mr_model *model, double stats[MR_STATS]); /* waits */
void mr_model_set_step(mr_model *model, const mr_step *step); /* before the forward of each micro-batch */
/* Clips the gradients and updates the weights. The device skips the update when the gradient is not finite. */
void mr_model_update(mr_model *model);
double mr_model_grad_norm(mr_model *model); /* of the last update; waits */

/* Copies rows of the scores [rows, outputs] of the last forward: the logits, with output = tanh their tanh, in the
 * caller's units. */
void mr_model_logits(mr_model *model, float *to, size_t first_row, size_t rows);
/* For the caller's own loss, instead of mr_model_loss between forward and backward: sets its gradient with respect to
 * the scores of mr_model_logits, for all rows; 0 for rows that do not count. In slices it adds to the head's
 * gradients, too. */
void mr_model_put_dlogits(mr_model *model, const float *dscores, size_t rows);
void mr_model_row_loss(mr_model *model, float *to, size_t rows);

/* After a step that was not finite: writes the first place, in the order of the network, where a number is not
 * finite, such as "blocks.1.mixer (output)". Returns 0 and leaves `out` unchanged when all numbers still in memory
 * are finite. */
int mr_model_find_nonfinite(mr_model *model, const mr_batch *batch, char *out, size_t size);
/* Writes such a place: "NAME (what)". */
void mr_model_name_place(char *out, size_t size, const char *name, const char *what);

#endif
