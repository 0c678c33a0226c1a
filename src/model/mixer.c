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

void mr_linear(const mr_pass *p, int row, mr_linear_fwd_args a)
{
    a.W = mr_weight(p, row);
    if (p->bytes)
        p->dev->ops.linear_q_fwd(p->dev, &(mr_linear_q_fwd_args){
            .M = a.M, .N = a.N, .K = a.K, .x = a.x, .Wq = p->bytes + p->bytes_at[row], .scale = a.W, .b = a.b, .gelu = a.gelu,
            .residual = a.residual, .y = a.y});
    else
        p->dev->ops.linear_fwd(p->dev, &a);
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
