/* The network around the blocks: input, loss, update. Its memory is in plan.c, the head in head.c, what goes in and
 * out in upload.c. */
#include "model/network.h"

#include "model/gates.h"

#include <string.h>

static int build_params(mr_model *m, mr_decay_set set)
{
    const mr_config *c = &m->config;
    mr_params *params = &m->params;
    if (c->input == MR_INPUT_TOKENS)
        m->embed = mr_params_add(params, "", "embed.weight", 0, MR_INIT_NORMAL, 1, 2, (int64_t[]){c->inputs, c->dim});
    else m->embed = mr_params_linear(params, "", "embed", c->dim, c->inputs, 1);
    for (int i = 0; i < c->layers; i++)
        if (mr_block_init(&m->blocks[i], i, c, params)) return MR_ENOMEM;
    mr_head_params(m);
    int status = mr_params_layout(params, set);
    return status || c->weights == MR_WEIGHTS_F32 ? status : mr_quants_layout(&m->quants, params);
}

int mr_model_new(const mr_config *config, mr_dev *dev, mr_decay_set set, mr_model **out, mr_error *err)
{
    *out = NULL;
    int status = mr_config_check(config, err);
    if (status) return status;
    mr_model *m = mr_alloc_by(dev->by, 1, sizeof *m);
    if (!m) return mr_no_memory(err, "the model");
    m->config = *config;
    m->config.scaler = MR_SCALER_NONE; /* until one is set */
    m->own_scaler = (mr_scaler){.inputs = config->inputs, .outputs = config->outputs};
    m->scaler = &m->own_scaler;
    m->set = set;
    m->params.by = dev->by;
    m->face = mr_config_interface(config);
    m->dev = dev;
    m->blocks = mr_alloc_by(dev->by, (size_t)config->layers, sizeof *m->blocks);
    if (m->blocks && build_params(m, set) == 0) {
        *out = m;
        return 0;
    }
    mr_model_free(m);
    return mr_no_memory(err, "the table of parameters");
}

static void release(const mr_model *m, void *p)
{
    if (p) m->dev->release(m->dev, p);
}

void mr_model_free(mr_model *m)
{
    if (!m) return;
    for (int i = 0; m->blocks && i < m->config.layers; i++) mr_block_free(&m->blocks[i], m->dev->by);
    mr_free_by(m->dev->by, m->blocks);
    mr_params_free(&m->params);
    mr_quants_free(&m->quants);
    release(m, m->grads);
    release(m, m->moment1);
    release(m, m->moment2);
    if (!m->shares) release(m, m->weights);
    if (!m->shares) release(m, m->bytes);
    release(m, m->memory);
    mr_scaler_free(&m->own_scaler, m->dev->by);
    mr_free_by(m->dev->by, m->piece);
    mr_free_by(m->dev->by, m);
}

int mr_model_share(const mr_model *owner, mr_dev *dev, mr_model **out, mr_error *err)
{
    int status = mr_model_new(&owner->config, dev, owner->set, out, err);
    if (status) return status;
    (*out)->shares = 1;
    (*out)->weights = owner->weights;
    (*out)->bytes = owner->bytes;
    (*out)->scaler = owner->scaler; /* the same one, so that setting it later reaches this model too */
    return 0;
}

void mr_model_use(mr_model *m, mr_dev *dev) { m->dev = dev; }

const mr_config *mr_model_config(const mr_model *m) { return &m->config; }
const mr_params *mr_model_params(const mr_model *m) { return &m->params; }

void mr_model_start(const mr_model *m, uint64_t seed, double horizon, float *weights)
{
    mr_gates gates;
    mr_gates_read(m->config.gate_init, &gates, NULL);
    mr_params_init(&m->params, seed, mr_gates_timed(&gates) && gates.count ? gates.values[0] : horizon,
                   gates.kind != MR_GATES_TIMESCALES_UNIFORM, weights);
}

mr_dev *mr_model_dev(const mr_model *m) { return m->dev; }

int64_t mr_model_count(const mr_model *m)
{
    int64_t sum = 0;
    for (int i = 0; i < m->params.count; i++) sum += (int64_t)m->params.list[i].count;
    return sum;
}

static mr_real *vector_of(mr_model *m, mr_vector which)
{
    switch (which) {
    case MR_GRADS: return m->grads;
    case MR_MOMENT1: return m->moment1;
    case MR_MOMENT2: return m->moment2;
    default: return m->weights;
    }
}

void mr_model_put(mr_model *m, mr_vector which, const float *from)
{
    m->dev->put(m->dev, vector_of(m, which), from, m->params.total);
}
void mr_model_get(mr_model *m, mr_vector which, float *to)
{
    m->dev->get(m->dev, to, vector_of(m, which), m->params.total);
}

void mr_model_put_part(mr_model *m, mr_vector which, size_t offset, size_t count, const float *from)
{
    m->dev->put(m->dev, mr_real_at(m->dev, vector_of(m, which), offset), from, count);
}

void mr_model_get_part(mr_model *m, mr_vector which, size_t offset, size_t count, float *to)
{
    m->dev->get(m->dev, to, mr_real_at(m->dev, vector_of(m, which), offset), count);
}

const mr_quants *mr_model_quants(const mr_model *m) { return m->quants.at ? &m->quants : NULL; }
const char *mr_model_dtype(const mr_model *m, int row)
{
    return m->quants.at && mr_param_quantizes(&m->params.list[row]) ? "I8" : "F32";
}
void mr_model_get_bytes(mr_model *m, int row, int8_t *to)
{
    const int64_t *shape = m->params.list[row].shape;
    m->dev->download(m->dev, to, m->bytes + m->quants.at[row], (size_t)(shape[0] * shape[1]));
}

void mr_model_put_bytes(mr_model *m, const int8_t *from) { m->dev->upload(m->dev, m->bytes, from, m->quants.bytes); }

/* ---- forward ---- */

mr_act *mr_model_top(const mr_model *m) { return m->blocks[m->config.layers - 1].out; }
size_t mr_model_rows(const mr_model *m, const mr_batch *batch) { return mr_batch_rows(batch, m->face.head); }

static mr_pass pass_over(const mr_model *m, const mr_batch *batch, int train)
{
    return (mr_pass){.dev = m->dev,
                     .config = &m->config,
                     .params = &m->params,
                     .weights = m->weights,
                     .grads = m->grads,
                     .bytes = m->bytes,
                     .bytes_at = m->quants.at,
                     .step = m->step,
                     .B = batch->B,
                     .T = batch->T,
                     .reset = batch->reset ? m->reset : NULL,
                     .length = batch->length ? m->length : NULL,
                     .train = train};
}

/* The part of a state's reals (device) that belongs to a block. */
static mr_real *part(const mr_model *m, mr_real *reals, size_t at, int B)
{
    return reals ? mr_real_at(m->dev, reals, at * (size_t)B) : NULL;
}

static mr_block_state state_of(const mr_model *m, const mr_block *b, mr_real *in, mr_real *out, int B)
{
    return (mr_block_state){.tail_in = part(m, in, b->tail_at, B),
                            .mixer_in = part(m, in, b->mixer_at, B),
                            .tail_out = part(m, out, b->tail_at, B),
                            .mixer_out = part(m, out, b->mixer_at, B)};
}

static void forward_input(mr_model *m, const mr_pass *p)
{
    int N = p->B * p->T, D = (int)m->config.dim, inputs = (int)m->config.inputs;
    if (m->ids)
        m->dev->ops.embed_fwd(
            m->dev,
            &(mr_embed_fwd_args){
                .N = N, .D = D, .vocab = inputs, .ids = m->ids, .table = mr_weight(p, m->embed), .y = m->blocks[0].x});
    else
        m->dev->ops.linear_fwd(m->dev, &(mr_linear_fwd_args){.M = N,
                                                             .N = D,
                                                             .K = inputs,
                                                             .x = m->values,
                                                             .W = mr_weight(p, m->embed),
                                                             .b = mr_weight(p, m->embed + 1),
                                                             .y = m->blocks[0].x});
}

/* From the uploaded batch to the logits. in, out: reals of a state, or NULL. */
static void run_forward(mr_model *m, const mr_pass *pass, mr_real *in, mr_real *out, size_t rows)
{
    forward_input(m, pass);
    for (int i = 0; i < m->config.layers; i++) {
        mr_block_state s = state_of(m, &m->blocks[i], in, out, pass->B);
        mr_block_forward(&m->blocks[i], pass, &s);
    }
    mr_head_forward(m, pass, rows);
}

typedef struct stepping {
    mr_model *model;
    const mr_pass *pass;
    mr_real *state;
    int draw; /* a token behind it */
} stepping;

static void draw_once(mr_model *m, int B, size_t first_row)
{
    m->dev->ops.sample(m->dev,
                       &(mr_sample_args){.R = B,
                                         .C = m->face.outputs,
                                         .how = m->sampling,
                                         .position = m->position,
                                         .logits = mr_act_at(m->dev, m->logits, first_row * (size_t)m->face.outputs),
                                         .ids = m->ids,
                                         .drawn = m->drawn});
}

static void step_once(void *arg)
{
    stepping *s = arg;
    run_forward(s->model, s->pass, s->state, s->state, mr_head_rows(s->model->face.head, (size_t)s->pass->B, 1));
    if (s->draw) draw_once(s->model, s->pass->B, 0);
}

/* One token a stream, the state in place: the same work for every token, which a device may record. */
static void run_step(mr_model *m, const mr_batch *batch, mr_state *state, int draw)
{
    const mr_pass pass = pass_over(m, batch, 0);
    const mr_replay_key key = mr_step_key(m, state->reals, batch, draw);
    stepping s = {m, &pass, state->reals, draw};
    m->dev->replay(m->dev, &key, step_once, &s);
}

/* The state that a training forward starts from, kept for its backward; NULL: it starts afresh. */
static mr_real *keep_state(mr_model *m, const mr_batch *batch, const mr_state *state)
{
    m->carried = state && state->under_way;
    if (!m->carried) return NULL;
    m->dev->copy(m->dev, m->kept, state->reals, (size_t)batch->B * mr_model_state_reals(m) * m->dev->real_size);
    return m->kept;
}

void mr_model_forward(mr_model *m, const mr_batch *batch, mr_state *state, int train)
{
    mr_pass pass = pass_over(m, batch, train);
    mr_real *in = state && state->under_way ? state->reals : NULL, *out = state ? state->reals : NULL;
    if (train) in = keep_state(m, batch, state);
    mr_upload_inputs(m, batch);
    m->rows = mr_model_rows(m, batch);
    if (in && !train && batch->T == 1) run_step(m, batch, state, 0);
    else run_forward(m, &pass, in, out, m->rows);
    if (state) state->under_way = 1;
}

/* ---- drawing ---- */

void mr_model_draw_from(mr_model *m, const mr_sampling *how, uint64_t position)
{
    m->drawing_at = (double)position;
    m->dev->upload(m->dev, m->sampling, how, sizeof *how);
    m->dev->upload(m->dev, m->position, &m->drawing_at, sizeof m->drawing_at);
}

void mr_model_draw(mr_model *m, mr_state *state, int fresh, int count, int32_t *tokens)
{
    int32_t drawn[MR_DRAWN];
    const mr_batch one = {.B = 1, .T = 1};
    const uint64_t first = (uint64_t)m->drawing_at;
    for (int i = 0; i < count; i++, m->drawing_at++)
        if (i || !fresh) run_step(m, &one, state, 1);
        else draw_once(m, 1, m->rows - 1);
    m->dev->download(m->dev, drawn, m->drawn, sizeof drawn);
    for (int i = 0; i < count; i++) tokens[i] = drawn[(first + (uint64_t)i) % MR_DRAWN];
}

/* Row by row: each has a seed and a position of its own, so that a stream draws the same alone and beside others. */
void mr_model_draw_rows(mr_model *m, int B, const mr_sampling *how, const uint64_t *position, int32_t *tokens)
{
    for (int b = 0; b < B; b++) {
        mr_model_draw_from(m, &how[b], position[b]);
        draw_once(m, 1, (size_t)b);
        m->dev->download(m->dev, &tokens[b], m->drawn + position[b] % MR_DRAWN, sizeof *tokens);
    }
}

/* ---- loss and backward ---- */

static void run_loss(mr_model *m, size_t rows, int gradient)
{
    mr_dev *dev = m->dev;
    int R = (int)rows, C = m->face.outputs;
    mr_act *grad = gradient ? m->logits : NULL;
    if (m->face.loss == MR_LOSS_XENT)
        dev->ops.xent(dev, &(mr_xent_args){.R = R,
                                           .C = C,
                                           .logits = m->logits,
                                           .target = m->target,
                                           .scale = m->scale,
                                           .dlogits = grad,
                                           .row_loss = m->row_loss,
                                           .stats = m->stats});
    else
        dev->ops.mse(dev, &(mr_mse_args){.R = R,
                                         .C = C,
                                         .pred = m->logits,
                                         .target = m->target_values,
                                         .mask = m->mask,
                                         .scale = m->scale,
                                         .dpred = grad,
                                         .row_loss = m->row_loss,
                                         .stats = m->stats});
}

void mr_model_loss(mr_model *m, const mr_batch *batch, double scale)
{
    mr_upload_targets(m, batch, scale);
    run_loss(m, mr_model_rows(m, batch), scale != 0);
}

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

static void run_backward(mr_model *m, const mr_pass *pass, size_t rows, mr_real *in, mr_real *dout, mr_real *din)
{
    mr_head_backward(m, pass, rows);
    for (int i = (int)m->config.layers - 1; i >= 0; i--) {
        mr_block *b = &m->blocks[i];
        mr_block_state s = state_of(m, b, in, NULL, pass->B);
        mr_block_state grad = state_of(m, b, dout, din, pass->B);
        mr_block_backward(b, pass, &m->scratch, &s,
                          &(mr_block_state_grad){.tail_out = grad.tail_in,
                                                 .mixer_out = grad.mixer_in,
                                                 .tail_in = grad.tail_out,
                                                 .mixer_in = grad.mixer_out});
    }
    backward_input(m, pass);
}

void mr_model_backward(mr_model *m, const mr_batch *batch, const mr_state *dstate_out, mr_state *dstate_in)
{
    mr_pass pass = pass_over(m, batch, 1);
    run_backward(m, &pass, mr_model_rows(m, batch), m->carried ? m->kept : NULL, dstate_out ? dstate_out->reals : NULL,
                 dstate_in ? dstate_in->reals : NULL);
}

/* ---- update ---- */

void mr_model_zero_grads(mr_model *m) { m->dev->zero(m->dev, m->grads, m->params.total * m->dev->real_size); }
void mr_model_zero_stats(mr_model *m) { m->dev->zero(m->dev, m->stats, MR_STATS * sizeof(double)); }
void mr_model_set_step(mr_model *m, const mr_step *step) { m->dev->upload(m->dev, m->step, step, sizeof *step); }

void mr_model_update(mr_model *m)
{
    m->dev->ops.sumsq(m->dev, &(mr_sumsq_args){.n = m->params.total, .g = m->grads, .out = m->sumsq});
    m->dev->ops.adam(m->dev, &(mr_adam_args){.n = m->params.total,
                                             .n_decay = m->params.decayed,
                                             .p = m->weights,
                                             .m = m->moment1,
                                             .v = m->moment2,
                                             .g = m->grads,
                                             .step = m->step,
                                             .sumsq = m->sumsq});
}

typedef struct learning {
    mr_model *model;
    mr_pass pass;
    size_t rows;
    int first, last;
    mr_real *in, *out; /* the state before, as it was kept, and after; or NULL */
} learning;

static void run_learning(void *arg)
{
    learning *l = arg;
    mr_model *m = l->model;
    if (l->first) {
        mr_model_zero_grads(m);
        mr_model_zero_stats(m);
    }
    run_forward(m, &l->pass, l->in, l->out, l->rows);
    run_loss(m, l->rows, 1);
    run_backward(m, &l->pass, l->rows, l->in, NULL, NULL);
    if (l->last) mr_model_update(m);
}

void mr_model_learn(mr_model *m, const mr_batch *batch, mr_state *state, const mr_step *step, double scale, int first,
                    int last)
{
    learning l = {
        .model = m, .pass = pass_over(m, batch, 1), .rows = mr_model_rows(m, batch), .first = first, .last = last};
    const mr_replay_key key = mr_learn_key(m, batch, state, first, last);
    l.in = keep_state(m, batch, state);
    l.out = state ? state->reals : NULL;
    mr_model_set_step(m, step);
    mr_upload_inputs(m, batch);
    mr_upload_targets(m, batch, scale);
    m->dev->replay(m->dev, &key, run_learning, &l);
    if (state) state->under_way = 1;
}
