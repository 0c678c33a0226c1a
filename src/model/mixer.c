#include "model/mixer.h"

#include <math.h>
#include <stdio.h>

#define MIXER(name) extern const mr_mixer mr_mixer_##name;
#include "model/mixers.def"
#undef MIXER

const char *const mr_mixer_names[] = {
#define MIXER(name) #name,
#include "model/mixers.def"
#undef MIXER
    NULL};

const mr_mixer *mr_mixer_at(int index)
{
    static const mr_mixer *const list[] = {
#define MIXER(name) &mr_mixer_##name,
#include "model/mixers.def"
#undef MIXER
    };
    return list[index];
}

void mr_linear(const mr_pass *p, int row, mr_linear_fwd_args a) { mr_linear_part(p, row, 0, a); }

void mr_linear_part(const mr_pass *p, int row, int first, mr_linear_fwd_args a)
{
    /* elements of the matrix */
    const size_t offset = p->params->list[row].offset, before = (size_t)first * (size_t)a.K;
    a.W = mr_real_at(p->dev, p->weights, offset + (p->bytes ? (size_t)first : before));
    if (p->bytes)
        p->dev->ops.linear_q_fwd(p->dev, &(mr_linear_q_fwd_args){.M = a.M,
                                                                 .N = a.N,
                                                                 .K = a.K,
                                                                 .x = a.x,
                                                                 .Wq = p->bytes + p->bytes_at[row] + before,
                                                                 .scale = a.W,
                                                                 .b = a.b,
                                                                 .gelu = a.gelu,
                                                                 .residual = a.residual,
                                                                 .y = a.y});
    else p->dev->ops.linear_fwd(p->dev, &a);
}

void mr_linear_part_bwd(const mr_pass *p, int row, int first, mr_linear_bwd_w_args a, int accumulate, mr_act *dx)
{
    const size_t at = p->params->list[row].offset + (size_t)first * (size_t)a.K;
    a.dW = mr_real_at(p->dev, p->grads, at);
    p->dev->ops.linear_bwd_w(p->dev, &a);
    p->dev->ops.linear_bwd_x(p->dev, &(mr_linear_bwd_x_args){.M = a.M,
                                                             .N = a.N,
                                                             .K = a.K,
                                                             .dy = a.dy,
                                                             .W = mr_real_at(p->dev, p->weights, at),
                                                             .accumulate = accumulate,
                                                             .dx = dx});
}

int mr_params_linear(mr_params *params, const char *prefix, const char *name, int64_t out, int64_t in, int bias)
{
    char full[64];
    double bound = 1 / sqrt((double)in);
    snprintf(full, sizeof full, "%s.weight", name);
    int row = mr_params_add(params, prefix, full, 0, MR_INIT_UNIFORM, bound, 2, (int64_t[]){out, in});
    snprintf(full, sizeof full, "%s.bias", name);
    if (bias) mr_params_add(params, prefix, full, 0, MR_INIT_UNIFORM, bound, 1, (int64_t[]){out});
    return row;
}
