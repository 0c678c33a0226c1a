/* A model: configuration, parameters on a device, and the network's forward and backward over a planned memory. */
#ifndef MR_MODEL_MODEL_H
#define MR_MODEL_MODEL_H

#include "core/batch.h"
#include "model/config.h"
#include "model/params.h"
#include "model/scaler.h"
#include "ops/device.h"

typedef struct mr_model mr_model;

/* The table of parameters only; memory comes with mr_model_plan. */
int mr_model_new(const mr_config *config, mr_dev *dev, mr_decay_set set, mr_model **out, mr_error *err);
void mr_model_free(mr_model *model);
/* A second model over the weights of `owner`, which is planned and outlives it: with memory of its own, to be run
 * and not trained, on another device of the same kind at the same time. */
int mr_model_share(const mr_model *owner, mr_dev *dev, mr_model **out, mr_error *err);
/* From now on it computes on this device, of the same kind and allocator as the one it was made for. */
void mr_model_use(mr_model *model, mr_dev *dev);
const mr_config *mr_model_config(const mr_model *model);
const mr_params *mr_model_params(const mr_model *model);
/* Initial weights, as the config's gate-init has it, into host memory of params->total floats. horizon: the longest
 * sequence of the task. */
void mr_model_start(const mr_model *model, uint64_t seed, double horizon, float *weights);
mr_dev *mr_model_dev(const mr_model *model);
int64_t mr_model_count(const mr_model *model); /* parameters, padding aside */

/* Parameters, gradients and the optimiser's two moments (mr_vector), as host vectors of params->total floats. After the
 * plan. */
void mr_model_put(mr_model *model, mr_vector which, const float *from);
void mr_model_get(mr_model *model, mr_vector which, float *to);
/* Elements offset … offset + count − 1 of it. */
void mr_model_put_part(mr_model *model, mr_vector which, size_t offset, size_t count, const float *from);
void mr_model_get_part(mr_model *model, mr_vector which, size_t offset, size_t count, float *to);

/* Models with weights = int8 have a vector of bytes besides, of mr_model_quants(…)->bytes; NULL for all others. */
const struct mr_quants *mr_model_quants(const mr_model *model);
const char *mr_model_dtype(const mr_model *model, int row); /* of a parameter, as in the file: "F32" or "I8" */
void mr_model_put_bytes(mr_model *model, const int8_t *from);
void mr_model_get_bytes(mr_model *model, int row, int8_t *to); /* of one matrix */

/* The caller's units (model/scaler.h): from now on values go in, targets are compared and scores come out in them. A
 * pair that is NULL is off, as both are at first; inputs only where input = reals, targets only where loss = mse.
 * Losses stay those of the scaled numbers: row losses, stats and what is minimised. Host memory alone: before or
 * after the plan, but not while the model, or one that shares its weights, runs. One that shares them has the
 * owner's. */
int mr_model_set_scaler(mr_model *model, const double *input_mean, const double *input_scale, const double *target_mean,
                        const double *target_scale, mr_error *err);
const mr_scaler *mr_model_scaler(const mr_model *model); /* never NULL; its pairs may be */

/* Memory for batches up to B × T, once. train: also gradients and moments. May be called again for larger shapes. */
int mr_model_plan(mr_model *model, int B, int T, int train, mr_error *err);
/* The same for up to MR_SHAPES shapes, each of which may be the larger one in its own way; no more memory than they
 * need. */
#define MR_SHAPES 2
int mr_model_plan_shapes(mr_model *model, const mr_shape *shapes, int count, int train, mr_error *err);
/* Beside what it is planned for: the shape before this one is kept, so that two kinds of calls in turn plan once. */
int mr_model_plan_more(mr_model *model, int B, int T, mr_error *err);
int mr_model_fits(const mr_model *model, int B, int T, int train); /* is it planned for such a batch? */
size_t mr_model_planned_bytes(const mr_model *model);

/* State of B streams: conv tails and hidden states of every block. */
size_t mr_model_state_reals(const mr_model *model); /* of one stream */
typedef struct mr_state {
    mr_model *model;
    int B, under_way; /* under_way: the next token continues a sequence */
    mr_real *reals;   /* device: for each block, tails [B, 3, D] then the mixer's [B, …] */
} mr_state;
int mr_state_new(mr_model *model, int B, mr_state **out, mr_error *err);
void mr_state_free(mr_state *state);
void mr_state_reset(mr_state *state);                /* a new sequence starts at the next token */
int mr_state_under_way(const mr_state *state);       /* 0: a new sequence starts at the next token */
void mr_state_resume(mr_state *state);               /* the next token goes on from what lies in it */
void mr_state_use(mr_state *state, mr_model *model); /* from now on with a model that shares the weights */
/* mr_state_free by another device, when the model may be gone or busy */
void mr_state_release(mr_state *state, mr_dev *dev);
/* Between rows of a pool (each slot one stream's state) and the state of several streams: slot [B] lies on the
 * device. */
void mr_state_gather(mr_state *many, const int32_t *slot, mr_real *pool);
void mr_state_scatter(const mr_state *many, const int32_t *slot, mr_real *pool);
/* A state as floats: mr_model_state_reals(model)·B + 1 of them, the first one 1 when a sequence is under way. */
void mr_state_get(mr_state *state, float *to);
void mr_state_put(mr_state *state, const float *from);

/* One micro-batch of training: upload, forward, loss, backward; zeroes gradients and stats before the `first` of a
 * step and updates the weights after the `last`. scale: what the sum of row losses is multiplied with. state: as for
 * mr_model_forward, or NULL; no gradient goes back through it. To a device it is one piece of work that repeats. */
void mr_model_learn(mr_model *model, const mr_batch *batch, mr_state *state, const mr_step *step, double scale,
                    int first, int last);

/* The same in parts.
 *
 * Forward over a batch. state NULL: every sequence starts at token 0. Otherwise it goes on from the state, and the
 * state afterwards is that behind the batch. With train, dropout is on and activations are kept for the backward. */
void mr_model_forward(mr_model *model, const mr_batch *batch, mr_state *state, int train);

/* Generation, one stream: set how and from which position, then draw `count` tokens (1 … MR_DRAWN) a call. With
 * `fresh` the first one follows the batch just forwarded with that state; every other one follows the token before
 * it, which the device feeds to itself. −1: a logit was not finite. Waits once. */
void mr_model_draw_from(mr_model *model, const mr_sampling *how, uint64_t position);
void mr_model_draw(mr_model *model, mr_state *state, int fresh, int count, int32_t *tokens);
/* The same for the last row of every stream of a batch of one token each, which were just forwarded: one token a
 * stream. */
void mr_model_draw_rows(mr_model *model, int B, const mr_sampling *how, const uint64_t *position, int32_t *tokens);

/* Loss of the batch just forwarded: added to the stats; with scale ≠ 0 also the gradient of scale·(sum over rows),
 * written over the logits. */
void mr_model_loss(mr_model *model, const mr_batch *batch, double scale);
/* Adds to the gradients. dstate_out: gradient of the state behind the batch (NULL: zero); dstate_in: where that of
 * the state before it goes (NULL: not wanted). */
void mr_model_backward(mr_model *model, const mr_batch *batch, const mr_state *dstate_out, mr_state *dstate_in);

void mr_model_zero_grads(mr_model *model);
void mr_model_zero_stats(mr_model *model);
void mr_model_stats(mr_model *model, double stats[MR_STATS]); /* waits */
void mr_model_set_step(mr_model *model, const mr_step *step); /* before a step's forward, and for each micro-batch */
/* clip and Adam; skipped on the device when not finite */
void mr_model_update(mr_model *model);
double mr_model_grad_norm(mr_model *model); /* of the last update; waits */

/* rows of [rows, outputs], in the caller's units */
void mr_model_logits(mr_model *model, float *to, size_t first_row, size_t rows);
/* A loss of the caller's own, between forward and backward and in place of mr_model_loss: its gradient by the scores
 * that mr_model_logits gave (read before), for all rows; 0 in those that do not count. */
void mr_model_put_dlogits(mr_model *model, const float *dscores, size_t rows);
void mr_model_row_loss(mr_model *model, float *to, size_t rows);

/* After a step that was not finite: the first place in the order of the network, as "blocks.1.mixer (output)". 0:
 * all that can be looked at is finite, and `out` is left alone. */
int mr_model_find_nonfinite(mr_model *model, const mr_batch *batch, char *out, size_t size);
/* "NAME (what)", as such a place is written. */
void mr_model_name_place(char *out, size_t size, const char *name, const char *what);

#endif
