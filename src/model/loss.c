/* The head's last product and the loss. Where there are many scores, both and the product's backward go in slices of
 * rows, so that no buffer ever holds the scores of all rows: with a vocabulary of 50,000 tokens it would be larger than
 * all activations together. */
#include "model/network.h"

enum { FEW_SCORES = 1 << 24 }; /* 64 MiB in fp32: what is not worth slicing */

/* 4·dim rows: their scores are as many numbers as the head's weights with gradient and moments, so they cost no more
 * than the head itself; and reading and writing the gradient once a slice moves a sixth of what the scores move. */
size_t mr_slice_rows(const mr_model *m)
{
    const size_t wide = 4 * (size_t)m->config.dim, few = FEW_SCORES / (size_t)m->interface.outputs;
    if (m->slice) return m->slice;
    return wide > few ? wide : few;
}

/* Squared errors have as many targets as scores in memory anyway. */
int mr_in_slices(const mr_model *m, size_t rows)
{
    return m->interface.loss == MR_LOSS_XENT && rows > mr_slice_rows(m);
}

/* Scores from one row of a slice to the next: a GPU multiplies matrices several times as fast whose rows begin at
 * multiples of 16 bytes, and 50,257 tokens, for one, are an odd number of them. */
static size_t slice_row(const mr_model *m)
{
    const size_t C = (size_t)m->interface.outputs;
    return C % 8 && !m->quants.at ? (C + 63) / 64 * 64 : C; /* linear_q_fwd leaves no room between rows */
}

size_t mr_scores_kept(const mr_model *m, size_t rows)
{
    return mr_in_slices(m, rows) ? mr_slice_rows(m) * slice_row(m) : rows * (size_t)m->interface.outputs;
}

/* ---- the product */

/* `rows` rows of an array of `dim` columns. */
static mr_act *rows_from(const mr_model *m, mr_act *array, size_t first)
{
    return array ? mr_act_at(m->dev, array, first * (size_t)m->config.dim) : NULL;
}

/* What the last product reads. */
static mr_act *head_input(const mr_model *m, size_t first)
{
    return rows_from(m, mr_head_pairs(m->interface.head) ? m->paired : m->pooled, first);
}

static void product(mr_model *m, const mr_pass *p, size_t first, size_t rows, size_t row)
{
    mr_linear(p, m->head,
              (mr_linear_fwd_args){.M = (int)rows,
                                   .N = m->interface.outputs,
                                   .K = (int)m->config.dim,
                                   .x = head_input(m, first),
                                   .b = mr_weight(p, m->head_bias),
                                   .y = m->logits,
                                   .row = (int)row});
}

static void product_bwd(mr_model *m, const mr_pass *p, size_t first, size_t rows, size_t row)
{
    const int pairs = mr_head_pairs(m->interface.head), token = m->interface.head == MR_HEAD_TOKEN;
    mr_act *to = pairs ? m->dpaired : token ? m->scratch.inner : m->dpooled;
    mr_linear_bwd(p, m->head,
                  (mr_linear_bwd_w_args){.M = (int)rows,
                                         .N = m->interface.outputs,
                                         .K = (int)m->config.dim,
                                         .dy = m->logits,
                                         .x = head_input(m, first),
                                         .db = mr_grad(p, m->head_bias),
                                         .row = (int)row},
                  pairs && m->config.gelu == MR_GELU_IS_TANH ? rows_from(m, m->pair_pre, first) : NULL,
                  rows_from(m, to, first));
}

void mr_head_product(mr_model *m, const mr_pass *p, size_t first, size_t rows)
{
    product(m, p, first, rows, (size_t)m->interface.outputs);
}

void mr_head_product_bwd(mr_model *m, const mr_pass *p, size_t first, size_t rows)
{
    product_bwd(m, p, first, rows, (size_t)m->interface.outputs);
}

/* ---- the loss */

static void xent(mr_model *m, size_t first, size_t rows, size_t row, int gradient)
{
    m->dev->ops.xent(m->dev, &(mr_xent_args){.R = (int)rows,
                                             .C = m->interface.outputs,
                                             .logits = m->logits,
                                             .target = m->target + first,
                                             .scale = m->scale,
                                             .dlogits = gradient ? m->logits : NULL,
                                             .row_loss = mr_real_at(m->dev, m->row_loss, first),
                                             .stats = m->stats,
                                             .row = (int)row});
}

static void mse(mr_model *m, size_t rows, int gradient)
{
    m->dev->ops.mse(m->dev, &(mr_mse_args){.R = (int)rows,
                                           .C = m->interface.outputs,
                                           .tanh = m->config.output == MR_OUTPUT_TANH,
                                           .pred = m->logits,
                                           .target = m->target_values,
                                           .mask = m->mask,
                                           .scale = m->scale,
                                           .dpred = gradient ? m->logits : NULL,
                                           .row_loss = m->row_loss,
                                           .stats = m->stats});
}

void mr_run_loss(mr_model *m, const mr_pass *p, size_t rows, int gradient)
{
    const size_t slice = mr_slice_rows(m), row = slice_row(m);
    if (m->interface.loss == MR_LOSS_MSE) mse(m, rows, gradient);
    else if (!mr_in_slices(m, rows)) xent(m, 0, rows, (size_t)m->interface.outputs, gradient);
    else
        for (size_t first = 0; first < rows; first += slice) {
            const size_t n = rows - first < slice ? rows - first : slice;
            product(m, p, first, n, row);
            xent(m, first, n, row, gradient);
            if (gradient) product_bwd(m, p, first, n, row);
        }
}

void mr_model_loss(mr_model *m, const mr_batch *batch, double scale)
{
    const mr_pass pass = mr_pass_over(m, batch, scale != 0);
    mr_upload_targets(m, batch, scale);
    mr_run_loss(m, &pass, mr_model_rows(m, batch), scale != 0);
}

/* ---- scores in and out */

void mr_scores_get(mr_model *m, float *to, size_t first, size_t rows)
{
    const mr_pass pass = mr_pass_over(m, &(mr_batch){0}, 0);
    const size_t slice = mr_slice_rows(m), C = (size_t)m->interface.outputs;
    for (size_t done = 0; done < rows; done += slice) {
        const size_t n = rows - done < slice ? rows - done : slice;
        mr_head_product(m, &pass, first + done, n);
        m->dev->get_act(m->dev, to + done * C, m->logits, n * C);
    }
}

void mr_scores_put_gradient(mr_model *m, const float *dscores, size_t rows)
{
    const mr_pass pass = mr_pass_over(m, &(mr_batch){0}, 1);
    const size_t slice = mr_slice_rows(m), C = (size_t)m->interface.outputs;
    for (size_t first = 0; first < rows; first += slice) {
        const size_t n = rows - first < slice ? rows - first : slice;
        m->dev->put_act(m->dev, m->logits, dscores + first * C, n * C);
        mr_head_product_bwd(m, &pass, first, n);
    }
    m->dev->zero(m->dev, m->row_loss, rows * m->dev->real_size); /* there is none; what was there is of another batch */
}
