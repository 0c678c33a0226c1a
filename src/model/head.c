/* The head: from the last block's output to the logits. It is a norm, pooling where there is one output per sequence,
 * for pairs a layer over features of both sequences, and the last product. The logits stay as they are until the
 * loss; with output = tanh a caller sees their tanh. */
#include "model/network.h"

/* gelu in its tanh form is a part of the product. */
static int is_fused(const mr_model *m) { return m->config.gelu == MR_GELU_IS_TANH; }

void mr_head_params(mr_model *m)
{
    const mr_config *c = &m->config;
    m->norm = mr_add_norm(&m->params, c, "", "norm");
    if (mr_head_pairs(m->interface.head)) m->pair = mr_add_linear(&m->params, "", "pair", c->dim, 4 * c->dim, 1);
    m->head = c->tied ? m->embed : mr_add_linear(&m->params, "", "head", c->outputs, c->dim, 0);
    /* The last row. Initial values depend on a row's number, so all others are the same with and without this one. */
    m->head_bias =
        c->head_bias ? mr_params_add(&m->params, "", "head.bias", 0, MR_INIT_CONSTANT, 0, 1, &c->outputs) : -1;
}

void mr_head_plan(mr_model *m, mr_arena *arena)
{
    const size_t B = (size_t)m->shape.B, T = (size_t)m->shape.T, row = (size_t)m->config.dim * m->dev->act_size;
    const size_t rows = mr_head_rows(m->interface.head, B, T);
    m->normed = mr_arena_take(arena, B * T * row);
    m->stat = mr_arena_take(arena, 2 * B * T * m->dev->real_size);
    /* room for whole pairs */
    m->pooled = m->interface.head == MR_HEAD_TOKEN ? m->normed : mr_arena_take(arena, 2 * ((B + 1) / 2) * row);
    m->logits = mr_arena_take(arena, mr_scores_kept(m, rows) * m->dev->act_size);
    m->scores = m->config.output == MR_OUTPUT_TANH
                    ? mr_arena_take(arena, rows * (size_t)m->config.outputs * m->dev->real_size)
                    : NULL;
    if (!mr_head_pairs(m->interface.head)) return;
    m->features = mr_arena_take(arena, rows * 4 * row);
    m->paired = mr_arena_take(arena, rows * row);
    m->pair_pre = m->train || !is_fused(m) ? mr_arena_take(arena, rows * row) : NULL;
}

void mr_head_plan_gradients(mr_model *m, mr_arena *arena)
{
    const size_t B = (size_t)m->shape.B, pairs = (B + 1) / 2, row = (size_t)m->config.dim * m->dev->act_size;
    m->dpooled = mr_arena_take(arena, 2 * pairs * row);
    if (!mr_head_pairs(m->interface.head)) return;
    m->dfeatures = mr_arena_take(arena, pairs * 4 * row);
    m->dpaired = mr_arena_take(arena, pairs * row);
}

static mr_pooling pooling_of(const mr_model *m)
{
    return m->interface.head == MR_HEAD_MEAN || m->interface.head == MR_HEAD_PAIR_MEAN ? MR_POOL_MEAN : MR_POOL_LAST;
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
                                   .gelu = is_fused(m),
                                   .pre = is_fused(m) ? m->pair_pre : NULL,
                                   .y = is_fused(m) ? m->paired : m->pair_pre});
    if (!is_fused(m))
        m->dev->ops.activate_fwd(
            m->dev,
            &(mr_activate_fwd_args){.M = rows, .F = (size_t)D, .kind = MR_GELU_ERF, .x = m->pair_pre, .y = m->paired});
}

void mr_head_forward(mr_model *m, const mr_pass *p, size_t rows)
{
    const int D = (int)m->config.dim, pairs = mr_head_pairs(m->interface.head);
    mr_norm_layer(p, m->norm, mr_model_top(m), m->normed, m->stat);
    if (m->interface.head != MR_HEAD_TOKEN)
        m->dev->ops.pool_fwd(m->dev, &(mr_pool_fwd_args){.B = p->B,
                                                         .T = p->T,
                                                         .D = D,
                                                         .kind = pooling_of(m),
                                                         .length = p->length,
                                                         .weight = mr_sequence_weights(p),
                                                         .x = m->normed,
                                                         .y = m->pooled});
    if (m->interface.head != MR_HEAD_TOKEN) mr_sequence_sum(p, m->pooled);
    if (pairs) forward_pairs(m, p, rows);
    if (!mr_in_slices(m, rows)) mr_head_product(m, p, 0, rows);
}

void mr_head_scores(mr_model *m, size_t rows)
{
    if (!m->scores) return;
    const size_t n = rows * (size_t)m->interface.outputs;
    m->dev->ops.tanh_fwd(m->dev, &(mr_tanh_fwd_args){.n = n, .x = m->logits, .y = m->scores});
}

/* From m->dpaired, the gradient before the gelu (after it, if that is not fused), to m->dpooled. */
static void backward_pairs(mr_model *m, const mr_pass *p, size_t rows)
{
    const int D = (int)m->config.dim, P = (int)rows;
    if (!is_fused(m))
        m->dev->ops.activate_bwd(
            m->dev,
            &(mr_activate_bwd_args){
                .M = rows, .F = (size_t)D, .kind = MR_GELU_ERF, .x = m->pair_pre, .dy = m->dpaired, .dx = m->dpaired});
    mr_linear_bwd(p, m->pair,
                  (mr_linear_bwd_w_args){
                      .M = P, .N = D, .K = 4 * D, .dy = m->dpaired, .x = m->features, .db = mr_grad(p, m->pair + 1)},
                  NULL, m->dfeatures);
    m->dev->ops.pair_bwd(m->dev,
                         &(mr_pair_bwd_args){.P = P, .D = D, .x = m->pooled, .dy = m->dfeatures, .dx = m->dpooled});
}

void mr_head_backward(mr_model *m, const mr_pass *p, size_t rows)
{
    const int D = (int)m->config.dim;
    const int pooled = m->interface.head != MR_HEAD_TOKEN, pairs = mr_head_pairs(m->interface.head);
    mr_act *dnormed = m->scratch.inner;
    if (!mr_in_slices(m, rows)) mr_head_product_bwd(m, p, 0, rows);
    if (pairs) backward_pairs(m, p, rows);
    if (pooled) mr_sequence_share(p, m->dpooled);
    if (pooled)
        m->dev->ops.pool_bwd(m->dev, &(mr_pool_bwd_args){.B = p->B,
                                                         .T = p->T,
                                                         .D = D,
                                                         .kind = pooling_of(m),
                                                         .length = p->length,
                                                         .weight = mr_sequence_weights(p),
                                                         .dy = m->dpooled,
                                                         .dx = dnormed});
    mr_norm_layer_bwd(p, m->norm, mr_model_top(m), m->stat, dnormed, 0, m->scratch.d);
}
