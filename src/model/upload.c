/* Transfers between host and device: batches in, scores and losses out. They also convert between the caller's units
 * and the network's, because a device's recorded steps cannot contain work of the host. */
#include "model/network.h"

#include <math.h>

/* How many numbers are converted at a time: enough that each upload's overhead is small. */
enum { PIECE = 1 << 17 };

/* ---- the scaler ---- */

int mr_model_set_scaler(mr_model *m, const double *input_mean, const double *input_scale, const double *target_mean,
                        const double *target_scale, mr_error *err)
{
    mr_config config = m->config;
    if (m->shares)
        return mr_fail(err, MR_EINVAL, "scaler: belongs to the model whose weights this one shares; set it there");
    config.scaler =
        (input_mean || input_scale ? MR_SCALER_INPUT : 0) | (target_mean || target_scale ? MR_SCALER_TARGET : 0);
    int status = mr_config_check(&config, err);
    if (!status)
        status =
            mr_scaler_set(&m->own_scaler, m->dev->allocator, input_mean, input_scale, target_mean, target_scale, err);
    if (!status) m->config.scaler = config.scaler;
    return status;
}

const mr_scaler *mr_model_scaler(const mr_model *m) { return m->scaler; }

int mr_upload_plan(mr_model *m)
{
    size_t most = 1;
    for (int i = 0; i < m->shape_count; i++) {
        const size_t B = (size_t)m->shapes[i].B, T = (size_t)m->shapes[i].T;
        const size_t values = m->interface.input == MR_INPUT_REALS ? B * T * (size_t)m->config.inputs : 0;
        const size_t targets =
            m->interface.loss == MR_LOSS_MSE ? mr_head_rows(m->interface.head, B, T) * (size_t)m->config.outputs : 0;
        if (values > most) most = values;
        if (targets > most) most = targets;
    }
    if (most > PIECE) most = PIECE;
    if (most <= m->staging_size) return 0;
    float *piece = mr_alloc_with(m->dev->allocator, most, sizeof *piece);
    if (!piece) return MR_ENOMEM;
    mr_free_with(m->dev->allocator, m->staging);
    m->staging = piece;
    m->staging_size = most;
    return 0;
}

/* Uploads n numbers of rows with `channels` channels to `act` or, where that is NULL, to `real`. mean NULL: not
 * converted. */
static void put_scaled(mr_model *m, mr_scaling *how, size_t channels, const double *mean, const double *scale,
                       const float *from, size_t n, mr_act *act, mr_real *real)
{
    mr_dev *dev = m->dev;
    for (size_t at = 0, count; at < n; at += count) {
        count = !mean || n - at < m->staging_size ? n - at : m->staging_size;
        if (mean) how(count, at % channels, channels, mean, scale, from + at, m->staging);
        const float *piece = mean ? m->staging : from;
        if (act) dev->put_act(dev, mr_act_at(dev, act, at), piece, count);
        else dev->put(dev, mr_real_at(dev, real, at), piece, count);
    }
}

/* ---- in ---- */

void mr_upload_inputs(mr_model *m, const mr_batch *batch)
{
    mr_dev *dev = m->dev;
    size_t N = (size_t)batch->B * (size_t)batch->T, inputs = (size_t)m->config.inputs;
    if (m->ids) dev->upload(dev, m->ids, batch->ids, N * sizeof *m->ids);
    else
        put_scaled(m, mr_scale_in, inputs, m->scaler->input_mean, m->scaler->input_scale, batch->values, N * inputs,
                   m->values, NULL);
    if (batch->reset) dev->upload(dev, m->reset, batch->reset, N);
    if (batch->length) dev->upload(dev, m->length, batch->length, (size_t)batch->B * sizeof *m->length);
    if (m->sequence) mr_sequence_lengths(m->sequence, batch);
}

void mr_upload_targets(mr_model *m, const mr_batch *batch, double scale)
{
    size_t rows = mr_model_rows(m, batch), outputs = (size_t)m->interface.outputs;
    mr_dev *dev = m->dev;
    dev->upload(dev, m->scale, &scale, sizeof scale);
    if (m->interface.loss == MR_LOSS_XENT) {
        dev->upload(dev, m->target, batch->target, rows * sizeof *m->target);
        return;
    }
    put_scaled(m, mr_scale_in, outputs, m->scaler->target_mean, m->scaler->target_scale, batch->target_values,
               rows * outputs, NULL, m->target_values);
    dev->upload(dev, m->mask, batch->mask, rows);
}

void mr_model_put_dlogits(mr_model *m, const float *dscores, size_t rows)
{
    const size_t outputs = (size_t)m->interface.outputs;
    if (mr_in_slices(m, rows)) {
        mr_scores_put_gradient(m, dscores, rows);
        return;
    }
    if (m->scores) {
        m->dev->put(m->dev, m->scores, dscores, rows * outputs);
        m->dev->ops.tanh_bwd(
            m->dev, &(mr_tanh_bwd_args){.n = rows * outputs, .x = m->logits, .dy = m->scores, .dx = m->logits});
        return;
    }
    put_scaled(m, mr_scale_gradient, outputs, m->scaler->target_mean, m->scaler->target_scale, dscores, rows * outputs,
               m->logits, NULL);
}

/* ---- out ---- */

void mr_model_logits(mr_model *m, float *to, size_t first_row, size_t rows)
{
    const mr_scaler *s = m->scaler;
    const size_t outputs = (size_t)m->interface.outputs, first = first_row * outputs, n = rows * outputs;
    if (mr_in_slices(m, m->rows)) mr_scores_get(m, to, first_row, rows);
    else if (m->scores) m->dev->get(m->dev, to, mr_real_at(m->dev, m->scores, first), n);
    else m->dev->get_act(m->dev, to, mr_act_at(m->dev, m->logits, first), n);
    if (s->target_mean) mr_scale_out(n, 0, outputs, s->target_mean, s->target_scale, to, to);
}

void mr_model_row_loss(mr_model *m, float *to, size_t rows) { m->dev->get(m->dev, to, m->row_loss, rows); }
void mr_model_stats(mr_model *m, double stats[MR_STATS])
{
    m->dev->download(m->dev, stats, m->stats, MR_STATS * sizeof(double));
}

double mr_model_grad_norm(mr_model *m)
{
    double sumsq;
    m->dev->download(m->dev, &sumsq, m->sumsq, sizeof sumsq);
    return sqrt(sumsq);
}
