/* One block: its parameters, its memory, its forward and backward. */
#include "model/block.h"

#include "model/sequence.h"

#include <math.h>
#include <stdio.h>

static int has_mlp(const mr_config *c) { return mr_config_mlp(c) > 0; }
static int gated(const mr_config *c) { return c->mlp_gate != MR_MLP_PLAIN; }
/* Only gelu in its tanh form is a part of the linear layer before it. */
static int activates_apart(const mr_config *c) { return gated(c) || c->gelu == MR_GELU_IS_ERF; }
/* Rows of the MLP's first matrix: the gate's, then those of `up`. */
static int hidden_rows(const mr_config *c) { return (gated(c) ? 2 : 1) * mr_config_mlp(c); }
static int conv_inside(const mr_config *c) { return c->conv && c->conv_place == MR_CONV_INSIDE; }
static int conv_residual(const mr_config *c) { return c->conv && c->conv_place == MR_CONV_RESIDUAL; }

/* The MLP's first matrix: `up`, after the gate if there is one, then their biases in the same order. */
static int add_hidden(mr_params *params, const mr_config *c, const char *prefix)
{
    const int64_t shape[] = {mr_config_mlp(c), c->dim};
    const double bound = 1 / sqrt((double)c->dim);
    if (!gated(c)) return mr_add_linear(params, prefix, "mlp.up", shape[0], shape[1], c->mlp_bias);
    int row = mr_params_add(params, prefix, "mlp.gate.weight", 0, MR_INIT_UNIFORM, bound, 2, shape);
    mr_params_add(params, prefix, "mlp.up.weight", 1, MR_INIT_UNIFORM, bound, 2, shape);
    if (!c->mlp_bias) return row;
    mr_params_add(params, prefix, "mlp.gate.bias", 0, MR_INIT_UNIFORM, bound, 1, shape);
    mr_params_add(params, prefix, "mlp.up.bias", 1, MR_INIT_UNIFORM, bound, 1, shape);
    return row;
}

void mr_block_state_parts(const mr_config *c, size_t parts[MR_STATE_PARTS])
{
    const mr_mixer *mixer = mr_mixer_at(c->mixer);
    parts[0] = mr_config_tail(c) * (size_t)c->dim;
    parts[2] = mixer->state_rest ? mixer->state_rest(c) : 0;
    parts[1] = mixer->state_reals(c) - parts[2];
}

size_t mr_block_state_reals(const mr_config *c)
{
    size_t parts[MR_STATE_PARTS];
    mr_block_state_parts(c, parts);
    return parts[0] + parts[1] + parts[2];
}

int mr_block_init(mr_block *b, int index, const mr_config *c, mr_params *params)
{
    const mr_mixer *mixer = mr_mixer_at(c->mixer);
    char prefix[32], inner[48];
    snprintf(prefix, sizeof prefix, "blocks.%d.", index);
    snprintf(inner, sizeof inner, "%smixer.", prefix);
    *b = (mr_block){.index = index, .conv = -1, .point = -1, .norm1 = -1, .down = -1, .norm2 = -1, .up = -1, .mlp = -1};
    b->down_bias = b->up_bias = b->mlp_bias = -1;
    b->mixer = mr_alloc_with(params->allocator, 1, mixer->layer_size);
    if (!b->mixer) return MR_ENOMEM;
    if (conv_residual(c)) {
        b->conv = mr_add_conv(params, prefix, "conv", c->dim, (int)c->conv);
        b->point = mr_add_linear(params, prefix, "conv.point", c->dim, c->dim, 1);
    }
    b->norm1 = mr_add_norm(params, c, prefix, "norm1");
    if (conv_inside(c)) b->conv = mr_add_conv(params, prefix, "conv", c->dim, (int)c->conv);
    mixer->params(b->mixer, c, index, inner, params);
    b->down = mr_add_linear(params, inner, "down", c->dim, mixer->width(c), c->mixer_bias);
    if (c->mixer_bias) b->down_bias = b->down + 1;
    if (has_mlp(c)) {
        b->norm2 = mr_add_norm(params, c, prefix, "norm2");
        b->up = add_hidden(params, c, prefix);
        b->mlp = mr_add_linear(params, prefix, "mlp.down", c->dim, mr_config_mlp(c), c->mlp_bias);
        if (c->mlp_bias) b->up_bias = b->up + (gated(c) ? 2 : 1), b->mlp_bias = b->mlp + 1;
    }
    b->tail_at = (size_t)index * mr_block_state_reals(c);
    b->mixer_at = b->tail_at + mr_config_tail(c) * (size_t)c->dim;
    return 0;
}

void mr_block_free(mr_block *block, const mr_allocator *allocator) { mr_free_with(allocator, block->mixer); }

void mr_block_plan(mr_block *b, const mr_config *c, mr_dev *dev, mr_arena *arena, int B, int T, int keep,
                   int own_output)
{
    const mr_mixer *mixer = mr_mixer_at(c->mixer);
    size_t N = (size_t)B * (size_t)T, act = dev->act_size;
    size_t row = N * (size_t)c->dim * act, wide = N * (size_t)mr_config_mlp(c) * act, stat = 2 * N * dev->real_size;
    if (c->conv) b->conv_y = mr_arena_take(arena, row);
    b->x1 = keep && conv_residual(c) ? mr_arena_take(arena, row) : b->x;
    b->u = mr_arena_take(arena, row);
    b->stat1 = keep ? mr_arena_take(arena, stat) : NULL;
    mixer->plan(b->mixer, c, dev, arena, B, T);
    b->h = mr_arena_take(arena, N * (size_t)mixer->width(c) * act);
    b->x2 = keep && (own_output || has_mlp(c)) ? mr_arena_take(arena, row) : b->x;
    b->out = b->x2;
    if (!has_mlp(c)) return;
    b->v = mr_arena_take(arena, row);
    b->stat2 = keep ? mr_arena_take(arena, stat) : NULL;
    b->act = mr_arena_take(arena, wide);
    b->pre = keep || activates_apart(c) ? mr_arena_take(arena, N * (size_t)hidden_rows(c) * act) : NULL;
    b->out = keep && own_output ? mr_arena_take(arena, row) : b->x;
}

void mr_block_put_output(mr_block *b, const mr_config *c, mr_act *output)
{
    b->out = output;
    if (!has_mlp(c)) b->x2 = output;
}

/* ---- forward ---- */

static void conv(const mr_block *b, const mr_pass *p, const mr_act *x, const mr_block_state *s)
{
    mr_sequence_conv_fwd(p, MR_CONV_OF_BLOCK,
                         (mr_conv_fwd_args){.B = p->B,
                                            .T = p->T,
                                            .D = (int)p->config->dim,
                                            .taps = (int)p->config->conv,
                                            .x = x,
                                            .w = mr_weight(p, b->conv),
                                            .b = mr_weight(p, b->conv + 1),
                                            .tail_in = s->tail_in,
                                            .reset = p->reset,
                                            .length = p->length,
                                            .y = b->conv_y,
                                            .tail_out = s->tail_out});
}

/* Ranks that share a sequence drop different elements. */
static mr_dropout drop_at(const mr_block *b, const mr_pass *p, int place)
{
    float share = p->train ? (float)p->config->dropout : 0;
    int block = b->index + mr_sequence_rank(p->sequence) * (int)p->config->layers;
    return (mr_dropout){.p = share, .site = (uint32_t)(2 * block + place), .step = p->step};
}

static mr_activation activation_of(const mr_config *c)
{
    if (c->mlp_gate == MR_MLP_SWIGLU) return MR_SILU;
    return c->gelu == MR_GELU_IS_ERF ? MR_GELU_ERF : MR_GELU_TANH;
}

/* From b->x2 to b->act. */
static void mlp_hidden(mr_block *b, const mr_pass *p)
{
    const mr_config *c = p->config;
    const int N = p->B * p->T, D = (int)c->dim, F = mr_config_mlp(c), apart = activates_apart(c);
    mr_norm_layer(p, b->norm2, b->x2, b->v, b->stat2);
    mr_linear(p, b->up,
              (mr_linear_fwd_args){.M = N,
                                   .N = hidden_rows(c),
                                   .K = D,
                                   .x = b->v,
                                   .b = mr_weight(p, b->up_bias),
                                   .gelu = !apart,
                                   .pre = apart ? NULL : b->pre,
                                   .y = apart ? b->pre : b->act});
    if (apart)
        p->dev->ops.activate_fwd(
            p->dev,
            &(mr_activate_fwd_args){
                .M = (size_t)N, .F = (size_t)F, .kind = activation_of(c), .gated = gated(c), .x = b->pre, .y = b->act});
}

/* From b->act to b->out. */
static void mlp_down(mr_block *b, const mr_pass *p)
{
    mr_linear(p, b->mlp,
              (mr_linear_fwd_args){.M = p->B * p->T,
                                   .N = (int)p->config->dim,
                                   .K = mr_config_mlp(p->config),
                                   .x = b->act,
                                   .b = mr_weight(p, b->mlp_bias),
                                   .drop = drop_at(b, p, 1),
                                   .residual = b->x2,
                                   .y = b->out});
}

void mr_block_forward_to(mr_block *b, const mr_pass *p, const mr_block_state *s, mr_block_end end)
{
    const mr_config *c = p->config;
    const mr_mixer *mixer = mr_mixer_at(c->mixer);
    int N = p->B * p->T, D = (int)c->dim;
    mr_sequence_enter(p, b->index);
    if (conv_residual(c)) {
        conv(b, p, b->x, s);
        mr_linear(
            p, b->point,
            (mr_linear_fwd_args){
                .M = N, .N = D, .K = D, .x = b->conv_y, .b = mr_weight(p, b->point + 1), .residual = b->x, .y = b->x1});
    }
    mr_norm_layer(p, b->norm1, b->x1, b->u, b->stat1);
    if (conv_inside(c)) conv(b, p, b->u, s);
    mixer->forward(b->mixer, p, conv_inside(c) ? b->conv_y : b->u, b->h, s->mixer_in, s->mixer_out);
    if (end == MR_BLOCK_STATE || (end == MR_BLOCK_KEPT && !has_mlp(c))) return;
    mr_linear(p, b->down,
              (mr_linear_fwd_args){.M = N,
                                   .N = D,
                                   .K = mixer->width(c),
                                   .x = b->h,
                                   .b = mr_weight(p, b->down_bias),
                                   .drop = drop_at(b, p, 0),
                                   .residual = b->x1,
                                   .y = b->x2});
    if (!has_mlp(c)) return;
    mlp_hidden(b, p);
    if (end == MR_BLOCK_OUTPUT) mlp_down(b, p);
}

void mr_block_forward(mr_block *b, const mr_pass *p, const mr_block_state *s)
{
    mr_block_forward_to(b, p, s, MR_BLOCK_OUTPUT);
}

/* ---- backward: the forward's lines in reverse ---- */

static void conv_bwd(const mr_block *b, const mr_pass *p, const mr_act *x, const mr_act *dy, mr_act *dx, int accumulate,
                     const mr_block_state *s, const mr_block_state_grad *g)
{
    mr_sequence_conv_bwd(p, MR_CONV_OF_BLOCK,
                         (mr_conv_bwd_args){.B = p->B,
                                            .T = p->T,
                                            .D = (int)p->config->dim,
                                            .taps = (int)p->config->conv,
                                            .x = x,
                                            .w = mr_weight(p, b->conv),
                                            .tail_in = s->tail_in,
                                            .reset = p->reset,
                                            .length = p->length,
                                            .dy = dy,
                                            .dtail_out = g->tail_out,
                                            .accumulate = accumulate,
                                            .dx = dx,
                                            .dw = mr_grad(p, b->conv),
                                            .db = mr_grad(p, b->conv + 1),
                                            .dtail_in = g->tail_in});
}

/* The backward of a linear layer over all tokens, with its bias. */
static void linear_bwd(const mr_pass *p, int row, int bias, int out, int in, const mr_act *dy, const mr_act *x,
                       const mr_act *pre, mr_act *dx)
{
    mr_linear_bwd(p, row,
                  (mr_linear_bwd_w_args){.M = p->B * p->T, .N = out, .K = in, .dy = dy, .x = x, .db = mr_grad(p, bias)},
                  pre, dx);
}

/* The gradient of a branch's output: the residual stream's gradient through the branch's dropout. */
static const mr_act *branch_grad(const mr_block *b, const mr_pass *p, const mr_scratch *w, int place)
{
    mr_dropout drop = drop_at(b, p, place);
    if (drop.p <= 0) return w->d;
    p->dev->ops.dropout_bwd(p->dev, &(mr_dropout_bwd_args){.n = (size_t)p->B * (size_t)p->T * (size_t)p->config->dim,
                                                           .drop = drop,
                                                           .dy = w->d,
                                                           .dx = w->branch});
    return w->branch;
}

static void mlp_backward(mr_block *b, const mr_pass *p, const mr_scratch *w)
{
    const mr_config *c = p->config;
    const int D = (int)c->dim, F = mr_config_mlp(c), apart = activates_apart(c);
    linear_bwd(p, b->mlp, b->mlp_bias, D, F, branch_grad(b, p, w, 1), b->act, apart ? NULL : b->pre, w->wide);
    if (apart) /* pre becomes its own gradient */
        p->dev->ops.activate_bwd(p->dev, &(mr_activate_bwd_args){.M = (size_t)p->B * (size_t)p->T,
                                                                 .F = (size_t)F,
                                                                 .kind = activation_of(c),
                                                                 .gated = gated(c),
                                                                 .x = b->pre,
                                                                 .dy = w->wide,
                                                                 .dx = b->pre});
    linear_bwd(p, b->up, b->up_bias, hidden_rows(c), D, apart ? b->pre : w->wide, b->v, NULL, w->inner);
    mr_norm_layer_bwd(p, b->norm2, b->x2, b->stat2, w->inner, 1, w->d);
}

void mr_block_backward(mr_block *b, const mr_pass *p, const mr_scratch *w, const mr_block_state *s,
                       const mr_block_state_grad *g)
{
    const mr_config *c = p->config;
    const mr_mixer *mixer = mr_mixer_at(c->mixer);
    const int D = (int)c->dim;
    mr_sequence_enter(p, b->index);
    if (has_mlp(c)) mlp_backward(b, p, w);
    linear_bwd(p, b->down, b->down_bias, D, mixer->width(c), branch_grad(b, p, w, 0), b->h, NULL, w->dh);
    mixer->backward(b->mixer, p, conv_inside(c) ? b->conv_y : b->u, b->h, w->dh, w->inner, s->mixer_in, g->mixer_out,
                    g->mixer_in);
    if (conv_inside(c)) conv_bwd(b, p, b->u, w->inner, w->branch, 0, s, g);
    mr_norm_layer_bwd(p, b->norm1, b->x1, b->stat1, conv_inside(c) ? w->branch : w->inner, 1, w->d);
    if (conv_residual(c)) {
        linear_bwd(p, b->point, b->point + 1, D, D, w->d, b->conv_y, NULL, w->inner);
        conv_bwd(b, p, b->x, w->inner, w->d, 1, s, g);
    }
}
