/* What a model is: the [model] keys of a recipe and the metadata of a file. */
#ifndef MR_MODEL_CONFIG_H
#define MR_MODEL_CONFIG_H

#include "core/batch.h"
#include "core/options.h"
#include "ops/ops.h"

typedef enum mr_conv_place { MR_CONV_INSIDE, MR_CONV_RESIDUAL } mr_conv_place;

typedef enum mr_gru_reset { MR_RESET_BEFORE, MR_RESET_AFTER } mr_gru_reset;

typedef enum mr_weight_type { MR_WEIGHTS_F32, MR_WEIGHTS_INT8 } mr_weight_type;

/* bits */
typedef enum mr_scaler_kind { MR_SCALER_NONE, MR_SCALER_INPUT, MR_SCALER_TARGET, MR_SCALER_BOTH } mr_scaler_kind;

typedef enum mr_positions { MR_POSITIONS_ROTARY, MR_POSITIONS_LEARNED, MR_POSITIONS_NONE } mr_positions;

typedef struct mr_config {
    /* derived from the task */
    int input, head, loss; /* mr_input, mr_head, mr_loss */
    int64_t inputs, outputs;
    /* chosen */
    int mixer; /* index into mr_mixer_at */
    int candidate, scan, normalize_gates, h0_learned, norm, conv_place;
    int64_t layers, dim, expansion, conv, mlp;
    double dropout;
    int weights; /* mr_weight_type */
    int64_t states;
    char gate_init[MR_TEXT_MAX];
    int gru_reset; /* mr_gru_reset */
    int head_bias;
    int scaler; /* mr_scaler_kind: what a file has; of a model, what is set (model/scaler.h) */
    /* attention */
    int64_t heads, window;
    int positions; /* mr_positions */
} mr_config;

extern const mr_option mr_config_options[];

/* What no single key can tell: combinations that make no sense, sizes that no memory holds. */
int mr_config_check(const mr_config *config, mr_error *err);

/* Heads of attention: as asked for, or of the largest even size up to 64 that divides dim. 0: those asked for do not
 * divide it. */
int mr_config_heads(const mr_config *config);
/* Settles what a model of attention leaves to the run: its heads, and its window from the longest sequence. */
void mr_config_settle(mr_config *config, int64_t longest);

/* The task's side of the model. */
void mr_config_take(mr_config *config, const mr_interface *face);
mr_interface mr_config_interface(const mr_config *config);

/* Width of the recurrent state, dim·expansion. */
static inline int mr_config_width(const mr_config *config) { return (int)(config->dim * config->expansion); }

#endif
