/* From the last block to the logits: norm, pooling where there is one answer a sequence, and for pairs a layer over
 * what the two codes have in common and what tells them apart. */
#include "model/network.h"

void mr_head_params(mr_model *m)
{
    const mr_config *c = &m->config;
    m->norm = mr_params_add(&m->params, "", "norm.weight", 0, MR_INIT_CONSTANT, 1, 1, &c->dim);
    if (c->norm == MR_NORM_LAYER) mr_params_add(&m->params, "", "norm.bias", 0, MR_INIT_CONSTANT, 0, 1, &c->dim);
    if (mr_head_pairs(m->face.head)) m->pair = mr_params_linear(&m->params, "", "pair", c->dim, 4 * c->dim, 1);
    m->head = mr_params_linear(&m->params, "", "head", c->outputs, c->dim, 0);
    /* the last row, since rows are drawn by their number: every other parameter starts as it does without one */
    m->head_bias =
        c->head_bias ? mr_params_add(&m->params, "", "head.bias", 0, MR_INIT_CONSTANT, 0, 1, &c->outputs) : -1;
}

void mr_head_plan(mr_model *m, mr_arena *arena)
{
    const size_t B = (size_t)m->shape.B, T = (size_t)m->shape.T, row = (size_t)m->config.dim * m->dev->act_size;
    const size_t rows = mr_head_rows(m->face.head, B, T);
    m->normed = mr_arena_take(arena, B * T * row);
    m->stat = mr_arena_take(arena, 2 * B * T * m->dev->real_size);
    /* whole pairs */
    m->pooled = m->face.head == MR_HEAD_TOKEN ? m->normed : mr_arena_take(arena, 2 * ((B + 1) / 2) * row);
    m->logits = mr_arena_take(arena, rows * (size_t)m->config.outputs * m->dev->act_size);
    if (!mr_head_pairs(m->face.head)) return;
    m->features = mr_arena_take(arena, rows * 4 * row);
    m->paired = mr_arena_take(arena, rows * row);
    m->pair_pre = m->train ? mr_arena_take(arena, rows * row) : NULL;
}

void mr_head_plan_gradients(mr_model *m, mr_arena *arena)
{
    const size_t B = (size_t)m->shape.B, pairs = (B + 1) / 2, row = (size_t)m->config.dim * m->dev->act_size;
    m->dpooled = mr_arena_take(arena, 2 * pairs * row);
    if (!mr_head_pairs(m->face.head)) return;
    m->dfeatures = mr_arena_take(arena, pairs * 4 * row);
    m->dpaired = mr_arena_take(arena, pairs * row);
}

static mr_pooling pooling_of(const mr_model *m)
{
    return m->face.head == MR_HEAD_MEAN || m->face.head == MR_HEAD_PAIR_MEAN ? MR_POOL_MEAN : MR_POOL_LAST;
}

static void forward_pairs(mr_model *m, const mr_pass *p, size_t rows)
{
    const int D = (int)m->config.dim, P = (int)rows;
    m->dev->ops.pair_fwd(m->dev, &(mr_pair_fwd_args){.P = P, .D = D, .x = m->pooled, .y = m->features});
    mr_linear(p, m->pair,
              (mr_linear_fwd_args){.M = P,
                                   .N = D,
                                   .K = 4 * D,
                                   .x = m->features,
                                   .b = mr_weight(p, m->pair + 1),
                                   .gelu = 1,
                                   .pre = m->pair_pre,
                                   .y = m->paired});
}

void mr_head_forward(mr_model *m, const mr_pass *p, size_t rows)
{
    const int D = (int)m->config.dim, layer = m->config.norm == MR_NORM_LAYER, pairs = mr_head_pairs(m->face.head);
    m->dev->ops.norm_fwd(m->dev, &(mr_norm_fwd_args){.M = p->B * p->T,
                                                     .D = D,
                                                     .kind = (mr_norm)m->config.norm,
                                                     .x = mr_model_top(m),
                                                     .w = mr_weight(p, m->norm),
                                                     .b = layer ? mr_weight(p, m->norm + 1) : NULL,
                                                     .y = m->normed,
                                                     .stat = m->stat});
    if (m->face.head != MR_HEAD_TOKEN)
        m->dev->ops.pool_fwd(m->dev, &(mr_pool_fwd_args){.B = p->B,
                                                         .T = p->T,
                                                         .D = D,
                                                         .kind = pooling_of(m),
                                                         .length = p->length,
                                                         .x = m->normed,
                                                         .y = m->pooled});
    if (pairs) forward_pairs(m, p, rows);
    mr_linear(p, m->head,
              (mr_linear_fwd_args){.M = (int)rows,
                                   .N = m->face.outputs,
                                   .K = D,
                                   .x = pairs ? m->paired : m->pooled,
                                   .b = mr_weight(p, m->head_bias),
                                   .y = m->logits});
}

/* From the gradient of m->paired, before its gelu, to that of the pooled codes. */
static void backward_pairs(mr_model *m, const mr_pass *p, size_t rows)
{
    const int D = (int)m->config.dim, P = (int)rows;
    m->dev->ops.linear_bwd_w(m->dev, &(mr_linear_bwd_w_args){.M = P,
                                                             .N = D,
                                                             .K = 4 * D,
                                                             .dy = m->dpaired,
                                                             .x = m->features,
                                                             .dW = mr_grad(p, m->pair),
                                                             .db = mr_grad(p, m->pair + 1)});
    m->dev->ops.linear_bwd_x(
        m->dev, &(mr_linear_bwd_x_args){
                    .M = P, .N = D, .K = 4 * D, .dy = m->dpaired, .W = mr_weight(p, m->pair), .dx = m->dfeatures});
    m->dev->ops.pair_bwd(m->dev,
                         &(mr_pair_bwd_args){.P = P, .D = D, .x = m->pooled, .dy = m->dfeatures, .dx = m->dpooled});
}

void mr_head_backward(mr_model *m, const mr_pass *p, size_t rows)
{
    mr_dev *dev = m->dev;
    const int D = (int)m->config.dim, layer = m->config.norm == MR_NORM_LAYER;
    const int pooled = m->face.head != MR_HEAD_TOKEN, pairs = mr_head_pairs(m->face.head);
    mr_act *dnormed = m->scratch.inner;
    dev->ops.linear_bwd_w(dev, &(mr_linear_bwd_w_args){.M = (int)rows,
                                                       .N = m->face.outputs,
                                                       .K = D,
                                                       .dy = m->logits,
                                                       .x = pairs ? m->paired : m->pooled,
                                                       .dW = mr_grad(p, m->head),
                                                       .db = mr_grad(p, m->head_bias)});
    dev->ops.linear_bwd_x(dev, &(mr_linear_bwd_x_args){.M = (int)rows,
                                                       .N = m->face.outputs,
                                                       .K = D,
                                                       .dy = m->logits,
                                                       .W = mr_weight(p, m->head),
                                                       .pre = pairs ? m->pair_pre : NULL,
                                                       .dx = pairs    ? m->dpaired
                                                             : pooled ? m->dpooled
                                                                      : dnormed});
    if (pairs) backward_pairs(m, p, rows);
    if (pooled)
        dev->ops.pool_bwd(dev, &(mr_pool_bwd_args){.B = p->B,
                                                   .T = p->T,
                                                   .D = D,
                                                   .kind = pooling_of(m),
                                                   .length = p->length,
                                                   .dy = m->dpooled,
                                                   .dx = dnormed});
    dev->ops.norm_bwd(dev, &(mr_norm_bwd_args){.M = p->B * p->T,
                                               .D = D,
                                               .kind = (mr_norm)m->config.norm,
                                               .x = mr_model_top(m),
                                               .w = mr_weight(p, m->norm),
                                               .stat = m->stat,
                                               .dy = dnormed,
                                               .dx = m->scratch.d,
                                               .dw = mr_grad(p, m->norm),
                                               .db = layer ? mr_grad(p, m->norm + 1) : NULL});
}
