/* What a model is made of; shared by model.c, replay.c, upload.c, head.c, state.c, nonfinite.c and the tests alone. */
#ifndef MR_MODEL_NETWORK_H
#define MR_MODEL_NETWORK_H

#include "model/block.h"
#include "model/model.h"
#include "model/quantize.h"
#include "model/scaler.h"

struct mr_model {
    mr_config config;
    mr_interface face;
    mr_params params;
    mr_dev *dev;
    mr_decay_set set;
    int shares;                             /* weights and bytes are another model's */
    int embed, norm, pair, head, head_bias; /* rows of the parameter table; head_bias −1: none */
    mr_block *blocks;
    /* the parameter vector and what belongs to it; grads and moments only for training */
    mr_real *weights, *grads, *moment1, *moment2;
    /* weights = int8: where the matrices lie in the vector of bytes, and that vector */
    mr_quants quants;
    int8_t *bytes;
    /* the caller's units: its own, or those of the model whose weights it shares; and host memory where numbers
     * change them */
    mr_scaler own_scaler;
    const mr_scaler *scaler;
    float *piece;
    size_t piece_room;
    /* the plan */
    mr_shape shapes[MR_SHAPES], shape; /* what it is for, and the one that is being planned */
    int shape_count, train;
    void *memory;
    size_t planned;
    int32_t *ids, *target, *length;
    uint8_t *reset, *mask;
    mr_act *values;
    mr_real *target_values, *row_loss, *stat, *kept; /* kept: the state that a training forward started from */
    mr_act *normed, *pooled, *logits, *dpooled;
    /* a head of pairs: the features [P, 4·D], the layer over them [P, D] before and behind gelu, and their gradients */
    mr_act *features, *pair_pre, *paired, *dfeatures, *dpaired;
    mr_scratch scratch;
    mr_step *step;
    double *stats, *sumsq, *scale;
    int carried; /* the last training forward went on from `kept` */
    /* drawing: how, the next position (device and host), what was drawn, and how many rows the logits have */
    mr_sampling *sampling;
    double *position, drawing_at;
    int32_t *drawn;
    size_t rows;
};

/* The last block's output: what the final norm reads. */
mr_act *mr_model_top(const mr_model *model);
size_t mr_model_rows(const mr_model *model, const mr_batch *batch);

/* The keys of work that repeats (replay.c): a token a stream with its state at `state`, and a micro-batch of
 * training. */
mr_replay_key mr_step_key(const void *model, const void *state, const mr_batch *batch, int draw);
mr_replay_key mr_learn_key(const void *model, const mr_batch *batch, const mr_state *state, int first, int last);
/* Between host and device (upload.c). Room for what is scaled on its way, for all of m->shapes; 0 or MR_ENOMEM. */
int mr_upload_plan(mr_model *model);
void mr_upload_inputs(mr_model *model, const mr_batch *batch);
void mr_upload_targets(mr_model *model, const mr_batch *batch, double scale);

/* The head (head.c): final norm, pooling, pairs, the last product. */
void mr_head_params(mr_model *model);
void mr_head_plan(mr_model *model, mr_arena *arena);
void mr_head_plan_gradients(mr_model *model, mr_arena *arena);
void mr_head_forward(mr_model *model, const mr_pass *pass, size_t rows);
void mr_head_backward(mr_model *model, const mr_pass *pass, size_t rows); /* from the logits' gradient to scratch.d */

#endif
