/* A mixer: the layer of a block that carries information along time. One file a mixer, one line in mixers.def. */
#ifndef MR_MODEL_MIXER_H
#define MR_MODEL_MIXER_H

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
    const int8_t *bytes;      /* of a model with weights in 8 bits, or NULL … */
    const size_t *bytes_at;   /* … and where in them the matrix of each row of the table lies */
    int B, T;
    const uint8_t *reset;  /* device memory, or NULL */
    const int32_t *length; /* device memory, or NULL */
    int train;             /* dropout is on, and a backward will follow */
} mr_pass;

static inline const mr_real *mr_weight(const mr_pass *pass, int row)
{
    return row < 0 ? NULL : mr_real_at(pass->dev, pass->weights, pass->params->list[row].offset);
}

static inline mr_real *mr_grad(const mr_pass *pass, int row)
{
    return row < 0 ? NULL : mr_real_at(pass->dev, pass->grads, pass->params->list[row].offset);
}

/* y = … + x Wᵀ for the matrix of a row of the table, in whichever form the model has it; args.W is set here. */
void mr_linear(const mr_pass *pass, int row, mr_linear_fwd_args args);

/* The same for args.N rows of the matrix, from `first` on, and backwards: adds to the gradients of these rows, and
 * gives dx (or adds to it). */
void mr_linear_part(const mr_pass *pass, int row, int first, mr_linear_fwd_args args);
void mr_linear_part_bwd(const mr_pass *pass, int row, int first, mr_linear_bwd_w_args args, int accumulate, mr_act *dx);

/* States may be NULL: state_in, a sequence starts at token 0; state_out, nobody goes on from here. state_out may be
 * state_in. */
typedef struct mr_mixer {
    const char *name;
    /* bytes of a layer's own struct, given zeroed to the rest as `layer` */
    size_t layer_size;
    int (*width)(const mr_config *config);          /* channels of its output */
    size_t (*state_reals)(const mr_config *config); /* state of one stream */
    void (*params)(void *layer, const mr_config *config, int block, const char *prefix, mr_params *params);
    void (*plan)(void *layer, const mr_config *config, mr_dev *dev, mr_arena *arena, int B, int T);
    void (*forward)(void *layer, const mr_pass *pass, const mr_act *x, mr_act *y, const mr_real *state_in,
                    mr_real *state_out);
    void (*backward)(void *layer, const mr_pass *pass, const mr_act *x, const mr_act *y, const mr_act *dy, mr_act *dx,
                     const mr_real *state_in, const mr_real *dstate_out, mr_real *dstate_in);
    /* Reals of a stream's state that lie in a second array, [B, rest] after the first of all B streams; NULL: none. */
    size_t (*state_rest)(const mr_config *config);
} mr_mixer;

extern const char *const mr_mixer_names[]; /* NULL-terminated, the choices of `mixer` */
const mr_mixer *mr_mixer_at(int index);

/* Rows of a linear layer with PyTorch's default init; returns the weight's row, the bias is the next one. */
int mr_params_linear(mr_params *params, const char *prefix, const char *name, int64_t out, int64_t in, int bias);

#endif
