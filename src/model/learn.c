/* Training: backward, update, and with the loss both as one micro-batch. */
#include "model/network.h"

/* ---- backward ---- */

static void backward_input(mr_model *m, const mr_pass *p)
{
    int N = p->B * p->T, D = (int)m->config.dim, inputs = (int)m->config.inputs;
    if (m->ids)
        m->dev->ops.embed_bwd(
            m->dev,
            &(mr_embed_bwd_args){
                .N = N, .D = D, .vocab = inputs, .ids = m->ids, .dy = m->scratch.d, .dtable = mr_grad(p, m->embed)});
    else
        m->dev->ops.linear_bwd_w(m->dev, &(mr_linear_bwd_w_args){.M = N,
                                                                 .N = D,
                                                                 .K = inputs,
                                                                 .dy = m->scratch.d,
                                                                 .x = m->values,
                                                                 .dW = mr_grad(p, m->embed),
                                                                 .db = mr_grad(p, m->embed + 1)});
}

/* Gradients of this stage's parameters are complete. */
static void stage_done(mr_model *m, int stage)
{
    if (m->sending) mr_ranks_stage_done(m->ranks, m->dev, stage);
}

void mr_run_backward(mr_model *m, const mr_pass *pass, size_t rows, mr_real *in, mr_real *dout, mr_real *din)
{
    const int top = (int)m->config.layers - 1;
    mr_head_backward(m, pass, rows);
    stage_done(m, 0);
    for (int i = top; i >= 0; i--) {
        mr_block *b = &m->blocks[i];
        mr_block_state s = mr_block_state_of(m, b, in, NULL, pass->B);
        mr_block_state grad = mr_block_state_of(m, b, dout, din, pass->B);
        /* the blocks share their memory, which still has what the top one left there */
        if (m->recompute.how == MR_RECOMPUTE_BLOCKS && i < top) mr_block_forward_to(b, pass, &s, MR_BLOCK_KEPT);
        mr_block_backward(b, pass, &m->scratch, &s,
                          &(mr_block_state_grad){.tail_out = grad.tail_in,
                                                 .mixer_out = grad.mixer_in,
                                                 .tail_in = grad.tail_out,
                                                 .mixer_in = grad.mixer_out});
        stage_done(m, (int)m->config.layers - i);
    }
    backward_input(m, pass);
    stage_done(m, (int)m->config.layers + 1);
}

void mr_model_backward(mr_model *m, const mr_batch *batch, const mr_state *dstate_out, mr_state *dstate_in)
{
    mr_pass pass = mr_pass_over(m, batch, 1);
    mr_run_backward(m, &pass, mr_model_rows(m, batch), m->carried ? m->start_state : NULL,
                    dstate_out ? dstate_out->reals : NULL, dstate_in ? dstate_in->reals : NULL);
}

/* ---- update ---- */

void mr_model_zero_grads(mr_model *m) { m->dev->zero(m->dev, m->grads, m->params.total * m->dev->real_size); }
void mr_model_zero_stats(mr_model *m) { m->dev->zero(m->dev, m->stats, MR_STATS * sizeof(double)); }
void mr_model_set_step(mr_model *m, const mr_step *step) { m->dev->upload(m->dev, m->step, step, sizeof *step); }

static size_t decayed_in(const mr_model *m, mr_span span)
{
    if (m->params.decayed <= span.first) return 0;
    return m->params.decayed - span.first < span.count ? m->params.decayed - span.first : span.count;
}

void mr_model_adam(mr_model *m, mr_span span, size_t moment)
{
    m->dev->ops.adam(m->dev, &(mr_adam_args){.n = span.count,
                                             .n_decay = decayed_in(m, span),
                                             .p = mr_real_at(m->dev, m->weights, span.first),
                                             .m = mr_real_at(m->dev, m->moment1, moment),
                                             .v = mr_real_at(m->dev, m->moment2, moment),
                                             .g = mr_real_at(m->dev, m->grads, span.first),
                                             .step = m->step,
                                             .sumsq = m->sumsq});
}

void mr_model_update(mr_model *m)
{
    m->dev->ops.sumsq(m->dev, &(mr_sumsq_args){.n = m->params.total, .g = m->grads, .out = m->sumsq});
    mr_model_adam(m, (mr_span){0, m->params.total}, 0);
}

typedef struct learning {
    mr_model *model;
    mr_pass pass;
    size_t rows;
    int first, last;
    mr_real *in, *out; /* the states before (a copy) and after, or NULL */
} learning;

static void run_learning(void *arg)
{
    learning *l = arg;
    mr_model *m = l->model;
    if (l->first) {
        mr_model_zero_grads(m);
        mr_model_zero_stats(m);
    }
    mr_run_forward(m, &l->pass, l->in, l->out, l->rows);
    mr_run_loss(m, &l->pass, l->rows, 1);
    mr_run_backward(m, &l->pass, l->rows, l->in, NULL, NULL);
    if (l->last) mr_model_update(m);
}

void mr_model_learn(mr_model *m, const mr_batch *batch, mr_state *state, const mr_step *step, double scale, int first,
                    int last)
{
    if (mr_in_chunks(m, batch)) {
        mr_learn_chunks(m, batch, state, step, scale, first, last);
        return;
    }
    learning l = {
        .model = m, .pass = mr_pass_over(m, batch, 1), .rows = mr_model_rows(m, batch), .first = first, .last = last};
    const mr_replay_key key = mr_learn_key(m, batch, state, first, last);
    l.in = mr_keep_state(m, batch, state);
    l.out = state ? state->reals : NULL;
    mr_model_set_step(m, step);
    mr_upload_inputs(m, batch);
    mr_upload_targets(m, batch, scale);
    mr_run_replayed(m, &key, run_learning, &l);
    if (state) mr_sequence_carry(&l.pass, batch->length, l.out);
    if (state) state->under_way = 1;
}
