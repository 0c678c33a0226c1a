/* What a model is: the keys of a recipe's [model] section, which are also in a model file's metadata. */
#ifndef MR_MODEL_CONFIG_H
#define MR_MODEL_CONFIG_H

#include "core/batch.h"
#include "core/options.h"
#include "ops/ops.h"

typedef enum mr_conv_place { MR_CONV_INSIDE, MR_CONV_RESIDUAL } mr_conv_place;

typedef enum mr_gru_reset { MR_RESET_BEFORE, MR_RESET_AFTER } mr_gru_reset;

typedef enum mr_weight_type { MR_WEIGHTS_F32, MR_WEIGHTS_INT8 } mr_weight_type;

/* The form of gelu. */
typedef enum mr_gelu { MR_GELU_IS_TANH, MR_GELU_IS_ERF } mr_gelu;

/* What the MLP's hidden numbers are multiplied with. */
typedef enum mr_mlp_gate { MR_MLP_PLAIN, MR_MLP_GEGLU, MR_MLP_SWIGLU } mr_mlp_gate;

/* What the predicted values are of the head's products. */
typedef enum mr_output { MR_OUTPUT_LINEAR, MR_OUTPUT_TANH } mr_output;

/* A sum of bits. */
typedef enum mr_scaler_kind { MR_SCALER_NONE, MR_SCALER_INPUT, MR_SCALER_TARGET, MR_SCALER_BOTH } mr_scaler_kind;

typedef enum mr_positions { MR_POSITIONS_ROTARY, MR_POSITIONS_LEARNED, MR_POSITIONS_NONE } mr_positions;

typedef struct mr_config {
    /* derived from the task */
    mr_input input;
    mr_head head;
    mr_loss loss;
    int64_t inputs, outputs;
    /* chosen */
    int mixer; /* index for mr_mixer_at */
    mr_candidate candidate;
    mr_scan scan;
    mr_transition transition;
    int normalize_gates, h0_learned;
    mr_norm norm;
    mr_conv_place conv_place;
    int64_t layers, dim, expansion, conv, mlp;
    int64_t width, mlp_width; /* 0: dim·expansion, dim·mlp */
    mr_gelu gelu;
    mr_mlp_gate mlp_gate;
    double norm_eps; /* 0: that of the kind */
    int mixer_bias, mlp_bias, tied;
    double dropout;
    mr_weight_type weights;
    int64_t states, mixer_conv, dt_rank; /* mamba */
    char gate_init[MR_TEXT_MAX];
    mr_gru_reset gru_reset;
    int head_bias;
    mr_output output;
    mr_scaler_kind scaler; /* of a file: what it has; of a model: what is set (model/scaler.h) */
    /* attention */
    int64_t heads, window;
    mr_positions positions;
    /* not a key; of a model whose sequences may be cut between ranks (model/sequence.h): its mixers project apart from
     * their recurrence */
    int cut;
} mr_config;

extern const mr_option mr_config_options[];

/* Checks what no single key can: combinations that make no sense, sizes that fit no memory. */
int mr_config_check(const mr_config *config, mr_error *err);

/* The number of attention heads: `heads`, or by default heads of the largest even size up to 64 that divides dim. 0:
 * `heads` does not divide dim. */
int mr_config_heads(const mr_config *config);
/* Replaces attention's defaults by their values: its heads, and as its window the longest sequence. */
void mr_config_settle(mr_config *config, int64_t longest);

/* Sets and returns the keys that the task decides. */
void mr_config_set_interface(mr_config *config, const mr_interface *interface);
mr_interface mr_config_interface(const mr_config *config);

/* Width of the recurrent state. */
static inline int mr_config_width(const mr_config *config)
{
    return (int)(config->width ? config->width : config->dim * config->expansion);
}

/* Width of the MLP; 0: there is none. */
static inline int mr_config_mlp(const mr_config *config)
{
    return (int)(config->mlp_width ? config->mlp_width : config->dim * config->mlp);
}

/* Inputs that the block's convolution carries from call to call. */
static inline size_t mr_config_tail(const mr_config *config) { return config->conv ? (size_t)config->conv - 1 : 0; }

#endif
