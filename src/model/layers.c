/* Linear layers and norms: their rows in the parameter table, and their ops with the pass's weights and gradients. */
#include "model/layers.h"

#include "model/quantize.h"

#include <math.h>
#include <stdio.h>

/* ---- linear layers */

int mr_add_linear(mr_params *params, const char *prefix, const char *name, int64_t out, int64_t in, int bias)
{
    char full[64];
    double bound = 1 / sqrt((double)in);
    snprintf(full, sizeof full, "%s.weight", name);
    int row = mr_params_add(params, prefix, full, 0, MR_INIT_UNIFORM, bound, 2, (int64_t[]){out, in});
    snprintf(full, sizeof full, "%s.bias", name);
    if (bias) mr_params_add(params, prefix, full, 0, MR_INIT_UNIFORM, bound, 1, (int64_t[]){out});
    return row;
}

int mr_add_conv(mr_params *params, const char *prefix, const char *name, int64_t channels, int taps)
{
    char full[64];
    const double bound = 1 / sqrt((double)taps);
    snprintf(full, sizeof full, "%s.weight", name);
    int row = mr_params_add(params, prefix, full, 0, MR_INIT_UNIFORM, bound, 3, (int64_t[]){channels, 1, taps});
    snprintf(full, sizeof full, "%s.bias", name);
    mr_params_add(params, prefix, full, 0, MR_INIT_UNIFORM, bound, 1, &channels);
    return row;
}

void mr_linear(const mr_pass *p, int row, mr_linear_fwd_args a) { mr_linear_part(p, row, 0, a); }

void mr_linear_part(const mr_pass *p, int row, int first, mr_linear_fwd_args a)
{
    /* elements of the matrix before row `first` */
    const size_t offset = p->params->list[row].offset, before = (size_t)first * (size_t)a.K;
    const int small = p->bytes && mr_param_quantizes(&p->params->list[row]);
    a.W = mr_real_at(p->dev, p->weights, offset + (small ? (size_t)first : before));
    if (small)
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

/* `at`: the offset of the matrix's first element in the parameter vector. */
static void linear_bwd(const mr_pass *p, size_t at, mr_linear_bwd_w_args a, const mr_act *pre, int accumulate,
                       mr_act *dx)
{
    a.dW = mr_real_at(p->dev, p->grads, at);
    p->dev->ops.linear_bwd_w(p->dev, &a);
    p->dev->ops.linear_bwd_x(p->dev, &(mr_linear_bwd_x_args){.M = a.M,
                                                             .N = a.N,
                                                             .K = a.K,
                                                             .dy = a.dy,
                                                             .W = mr_real_at(p->dev, p->weights, at),
                                                             .pre = pre,
                                                             .accumulate = accumulate,
                                                             .dx = dx,
                                                             .row = a.row});
}

void mr_linear_bwd(const mr_pass *p, int row, mr_linear_bwd_w_args a, const mr_act *pre, mr_act *dx)
{
    linear_bwd(p, p->params->list[row].offset, a, pre, 0, dx);
}

void mr_linear_part_bwd(const mr_pass *p, int row, int first, mr_linear_bwd_w_args a, int accumulate, mr_act *dx)
{
    linear_bwd(p, p->params->list[row].offset + (size_t)first * (size_t)a.K, a, NULL, accumulate, dx);
}

/* ---- norms */

int mr_add_norm(mr_params *params, const mr_config *c, const char *prefix, const char *name)
{
    char full[32];
    snprintf(full, sizeof full, "%s.weight", name);
    int row = mr_params_add(params, prefix, full, 0, MR_INIT_CONSTANT, 1, 1, &c->dim);
    snprintf(full, sizeof full, "%s.bias", name);
    if (c->norm == MR_NORM_LAYER) mr_params_add(params, prefix, full, 0, MR_INIT_CONSTANT, 0, 1, &c->dim);
    return row;
}

/* Only a layer norm has a bias, in the row after its weight. */
static int bias_row(const mr_pass *p, int row) { return p->config->norm == MR_NORM_LAYER ? row + 1 : -1; }

static double eps_of(const mr_config *c)
{
    if (c->norm_eps > 0) return c->norm_eps;
    return c->norm == MR_NORM_LAYER ? MR_LAYER_EPS : MR_RMS_EPS;
}

void mr_norm_layer(const mr_pass *p, int row, const mr_act *x, mr_act *y, mr_real *stat)
{
    p->dev->ops.norm_fwd(p->dev, &(mr_norm_fwd_args){.M = p->B * p->T,
                                                     .D = (int)p->config->dim,
                                                     .kind = p->config->norm,
                                                     .eps = eps_of(p->config),
                                                     .x = x,
                                                     .w = mr_weight(p, row),
                                                     .b = mr_weight(p, bias_row(p, row)),
                                                     .y = y,
                                                     .stat = stat});
}

void mr_norm_layer_bwd(const mr_pass *p, int row, const mr_act *x, const mr_real *stat, const mr_act *dy,
                       int accumulate, mr_act *dx)
{
    p->dev->ops.norm_bwd(p->dev, &(mr_norm_bwd_args){.M = p->B * p->T,
                                                     .D = (int)p->config->dim,
                                                     .kind = p->config->norm,
                                                     .x = x,
                                                     .w = mr_weight(p, row),
                                                     .stat = stat,
                                                     .dy = dy,
                                                     .accumulate = accumulate,
                                                     .dx = dx,
                                                     .dw = mr_grad(p, row),
                                                     .db = mr_grad(p, bias_row(p, row))});
}
