/* The layers that blocks, mixers and the head share, linear and norm, and what each of them needs to know of a pass. */
#ifndef MR_MODEL_LAYERS_H
#define MR_MODEL_LAYERS_H

#include "core/mem.h"
#include "model/params.h"
#include "ops/device.h"

/* One forward or backward over a batch: what every layer needs to know of it. */
typedef struct mr_pass {
    mr_dev *dev;
    const mr_config *config;
    const mr_params *params;
    mr_real *weights, *grads; /* the parameter vector and its gradient */
    const mr_step *step;      /* device memory */
    const int8_t *bytes;      /* the matrices of an 8-bit model, else NULL */
    const size_t *bytes_at;   /* for each row of the table, where its matrix begins in bytes */
    int B, T;
    const uint8_t *reset;  /* device memory, or NULL */
    const int32_t *length; /* device memory, or NULL */
    int train;             /* dropout is on, and a backward will follow */
    /* the ranks that share the batch's sequences (model/sequence.h), or NULL */
    struct mr_sequence *sequence;
} mr_pass;

/* A parameter, or its gradient, by its row of the table; NULL for row −1. */
static inline const mr_real *mr_weight(const mr_pass *pass, int row)
{
    return row < 0 ? NULL : mr_real_at(pass->dev, pass->weights, pass->params->list[row].offset);
}

static inline mr_real *mr_grad(const mr_pass *pass, int row)
{
    return row < 0 ? NULL : mr_real_at(pass->dev, pass->grads, pass->params->list[row].offset);
}

/* ---- linear layers */

/* Adds the rows of a linear layer to the table, with PyTorch's default initialisation. Returns the weight's row; the
 * bias, if there is one, is the next row. */
int mr_add_linear(mr_params *params, const char *prefix, const char *name, int64_t out, int64_t in, int bias);

/* A depthwise convolution in PyTorch's Conv1d form: a weight [channels, 1, taps], whose row is returned, and a bias. */
int mr_add_conv(mr_params *params, const char *prefix, const char *name, int64_t channels, int taps);

/* y = x Wᵀ + …, for the matrix in `row`, whether the model has it in fp32 or in 8 bits. Sets args.W. */
void mr_linear(const mr_pass *pass, int row, mr_linear_fwd_args args);
/* Its backward: adds to the gradient of W, and of the bias where args.db is set, and writes dx, times gelu'(pre) where
 * pre is not NULL. Sets args.dW. */
void mr_linear_bwd(const mr_pass *pass, int row, mr_linear_bwd_w_args args, const mr_act *pre, mr_act *dx);

/* The same for rows first … first + args.N − 1 of the matrix. With `accumulate` the backward adds to dx. */
void mr_linear_part(const mr_pass *pass, int row, int first, mr_linear_fwd_args args);
void mr_linear_part_bwd(const mr_pass *pass, int row, int first, mr_linear_bwd_w_args args, int accumulate, mr_act *dx);

/* ---- norms, of the kind in the configuration, over all tokens of a batch */

/* Adds the rows of a norm to the table. Returns the weight's row. */
int mr_add_norm(mr_params *params, const mr_config *config, const char *prefix, const char *name);
void mr_norm_layer(const mr_pass *pass, int row, const mr_act *x, mr_act *y, mr_real *stat);
/* Adds to the gradients of the norm's parameters, and writes dx or, with `accumulate`, adds to it. */
void mr_norm_layer_bwd(const mr_pass *pass, int row, const mr_act *x, const mr_real *stat, const mr_act *dy,
                       int accumulate, mr_act *dx);

#endif
