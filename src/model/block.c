/* One block: its parameters, its memory, its forward and backward. */
#include "model/block.h"

#include <stdio.h>

static int has_mlp(const mr_config *c) { return c->mlp > 0; }
static int conv_inside(const mr_config *c) { return c->conv && c->conv_place == MR_CONV_INSIDE; }
static int conv_residual(const mr_config *c) { return c->conv && c->conv_place == MR_CONV_RESIDUAL; }

/* A depthwise convolution in PyTorch's Conv1d form: [D, 1, 4], bound 1/√4. */
static int add_conv(mr_params *params, const mr_config *c, const char *prefix)
{
    int row = mr_params_add(params, prefix, "conv.weight", 0, MR_INIT_UNIFORM, 0.5, 3, (int64_t[]){c->dim, 1, MR_CONV});
    mr_params_add(params, prefix, "conv.bias", 0, MR_INIT_UNIFORM, 0.5, 1, &c->dim);
    return row;
}

void mr_block_state_parts(const mr_config *c, size_t parts[MR_STATE_PARTS])
{
    const mr_mixer *mixer = mr_mixer_at(c->mixer);
    parts[0] = c->conv ? MR_TAIL * (size_t)c->dim : 0;
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
    b->mixer = mr_alloc_with(params->allocator, 1, mixer->layer_size);
    if (!b->mixer) return MR_ENOMEM;
    if (conv_residual(c)) {
        b->conv = add_conv(params, c, prefix);
        b->point = mr_add_linear(params, prefix, "conv.point", c->dim, c->dim, 1);
    }
    b->norm1 = mr_add_norm(params, c, prefix, "norm1");
    if (conv_inside(c)) b->conv = add_conv(params, c, prefix);
    mixer->params(b->mixer, c, index, inner, params);
    b->down = mr_add_linear(params, inner, "down", c->dim, mixer->width(c), 1);
    if (has_mlp(c)) {
        b->norm2 = mr_add_norm(params, c, prefix, "norm2");
        b->up = mr_add_linear(params, prefix, "mlp.up", c->mlp * c->dim, c->dim, 1);
        b->mlp = mr_add_linear(params, prefix, "mlp.down", c->dim, c->mlp * c->dim, 1);
    }
    b->tail_at = (size_t)index * mr_block_state_reals(c);
    b->mixer_at = b->tail_at + (c->conv ? MR_TAIL * (size_t)c->dim : 0);
    return 0;
}

void mr_block_free(mr_block *block, const mr_allocator *allocator) { mr_free_with(allocator, block->mixer); }

void mr_block_plan(mr_block *b, const mr_config *c, mr_dev *dev, mr_arena *arena, int B, int T, int keep)
{
    const mr_mixer *mixer = mr_mixer_at(c->mixer);
    size_t N = (size_t)B * (size_t)T, act = dev->act_size;
    size_t row = N * (size_t)c->dim * act, wide = N * (size_t)(c->mlp * c->dim) * act, stat = 2 * N * dev->real_size;
    if (c->conv) b->conv_y = mr_arena_take(arena, row);
    b->x1 = keep && conv_residual(c) ? mr_arena_take(arena, row) : b->x;
    b->u = mr_arena_take(arena, row);
    b->stat1 = keep ? mr_arena_take(arena, stat) : NULL;
    mixer->plan(b->mixer, c, dev, arena, B, T);
    b->h = mr_arena_take(arena, N * (size_t)mixer->width(c) * act);
    b->x2 = keep ? mr_arena_take(arena, row) : b->x;
    b->out = b->x2;
    if (!has_mlp(c)) return;
    b->v = mr_arena_take(arena, row);
    b->stat2 = keep ? mr_arena_take(arena, stat) : NULL;
    b->act = mr_arena_take(arena, wide);
    b->pre = keep ? mr_arena_take(arena, wide) : NULL;
    b->out = keep ? mr_arena_take(arena, row) : b->x;
}

/* ---- forward ---- */

static void conv(const mr_block *b, const mr_pass *p, const mr_act *x, const mr_block_state *s)
{
    p->dev->ops.conv_fwd(p->dev, &(mr_conv_fwd_args){.B = p->B,
                                                     .T = p->T,
                                                     .D = (int)p->config->dim,
                                                     .x = x,
                                                     .w = mr_weight(p, b->conv),
                                                     .b = mr_weight(p, b->conv + 1),
                                                     .tail_in = s->tail_in,
                                                     .reset = p->reset,
                                                     .length = p->length,
                                                     .y = b->conv_y,
                                                     .tail_out = s->tail_out});
}

static mr_dropout drop_at(const mr_block *b, const mr_pass *p, int place)
{
    float share = p->train ? (float)p->config->dropout : 0;
    return (mr_dropout){.p = share, .site = (uint32_t)(2 * b->index + place), .step = p->step};
}

void mr_block_forward(mr_block *b, const mr_pass *p, const mr_block_state *s)
{
    const mr_config *c = p->config;
    const mr_mixer *mixer = mr_mixer_at(c->mixer);
    int N = p->B * p->T, D = (int)c->dim, F = (int)(c->mlp * c->dim);
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
    mr_linear(p, b->down,
              (mr_linear_fwd_args){.M = N,
                                   .N = D,
                                   .K = mixer->width(c),
                                   .x = b->h,
                                   .b = mr_weight(p, b->down + 1),
                                   .drop = drop_at(b, p, 0),
                                   .residual = b->x1,
                                   .y = b->x2});
    if (!has_mlp(c)) return;
    mr_norm_layer(p, b->norm2, b->x2, b->v, b->stat2);
    mr_linear(
        p, b->up,
        (mr_linear_fwd_args){
            .M = N, .N = F, .K = D, .x = b->v, .b = mr_weight(p, b->up + 1), .gelu = 1, .pre = b->pre, .y = b->act});
    mr_linear(p, b->mlp,
              (mr_linear_fwd_args){.M = N,
                                   .N = D,
                                   .K = F,
                                   .x = b->act,
                                   .b = mr_weight(p, b->mlp + 1),
                                   .drop = drop_at(b, p, 1),
                                   .residual = b->x2,
                                   .y = b->out});
}

/* ---- backward: the forward's lines in reverse ---- */

static void conv_bwd(const mr_block *b, const mr_pass *p, const mr_act *x, const mr_act *dy, mr_act *dx, int accumulate,
                     const mr_block_state *s, const mr_block_state_grad *g)
{
    p->dev->ops.conv_bwd(p->dev, &(mr_conv_bwd_args){.B = p->B,
                                                     .T = p->T,
                                                     .D = (int)p->config->dim,
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
static void linear_bwd(const mr_pass *p, int row, int out, int in, const mr_act *dy, const mr_act *x, const mr_act *pre,
                       mr_act *dx)
{
    mr_linear_bwd(
        p, row,
        (mr_linear_bwd_w_args){.M = p->B * p->T, .N = out, .K = in, .dy = dy, .x = x, .db = mr_grad(p, row + 1)}, pre,
        dx);
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

void mr_block_backward(mr_block *b, const mr_pass *p, const mr_scratch *w, const mr_block_state *s,
                       const mr_block_state_grad *g)
{
    const mr_config *c = p->config;
    const mr_mixer *mixer = mr_mixer_at(c->mixer);
    int D = (int)c->dim, F = (int)(c->mlp * c->dim);
    if (has_mlp(c)) {
        linear_bwd(p, b->mlp, D, F, branch_grad(b, p, w, 1), b->act, b->pre, w->wide);
        linear_bwd(p, b->up, F, D, w->wide, b->v, NULL, w->inner);
        mr_norm_layer_bwd(p, b->norm2, b->x2, b->stat2, w->inner, 1, w->d);
    }
    linear_bwd(p, b->down, D, mixer->width(c), branch_grad(b, p, w, 0), b->h, NULL, w->dh);
    mixer->backward(b->mixer, p, conv_inside(c) ? b->conv_y : b->u, b->h, w->dh, w->inner, s->mixer_in, g->mixer_out,
                    g->mixer_in);
    if (conv_inside(c)) conv_bwd(b, p, b->u, w->inner, w->branch, 0, s, g);
    mr_norm_layer_bwd(p, b->norm1, b->x1, b->stat1, conv_inside(c) ? w->branch : w->inner, 1, w->d);
    if (conv_residual(c)) {
        linear_bwd(p, b->point, D, D, w->d, b->conv_y, NULL, w->inner);
        conv_bwd(b, p, b->x, w->inner, w->d, 1, s, g);
    }
}
