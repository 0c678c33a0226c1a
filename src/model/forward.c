/* From a batch to scores, and from scores to drawn tokens. One token per stream is work that repeats, which a device
 * may record and replay. */
#include "model/network.h"

mr_act *mr_model_top(const mr_model *m) { return m->blocks[m->config.layers - 1].out; }
size_t mr_model_rows(const mr_model *m, const mr_batch *batch) { return mr_batch_rows(batch, m->interface.head); }

mr_pass mr_pass_over(const mr_model *m, const mr_batch *batch, int train)
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
                     .train = train,
                     .sequence = m->sequence};
}

/* A part of a state's reals (device). at: reals per stream before it. */
static mr_real *part(const mr_model *m, mr_real *reals, size_t at, int B)
{
    return reals ? mr_real_at(m->dev, reals, at * (size_t)B) : NULL;
}

mr_block_state mr_block_state_of(const mr_model *m, const mr_block *b, mr_real *in, mr_real *out, int B)
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

void mr_run_forward(mr_model *m, const mr_pass *pass, mr_real *in, mr_real *out, size_t rows)
{
    forward_input(m, pass);
    for (int i = 0; i < m->config.layers; i++) {
        mr_block_state s = mr_block_state_of(m, &m->blocks[i], in, out, pass->B);
        mr_block_forward(&m->blocks[i], pass, &s);
    }
    mr_head_forward(m, pass, rows);
}

void mr_run_states(mr_model *m, const mr_pass *pass, mr_real *in, mr_real *out)
{
    const int last = (int)m->config.layers - 1;
    forward_input(m, pass);
    for (int i = 0; i <= last; i++) {
        mr_block_state s = mr_block_state_of(m, &m->blocks[i], in, out, pass->B);
        mr_block_forward_to(&m->blocks[i], pass, &s, i < last ? MR_BLOCK_OUTPUT : MR_BLOCK_STATE);
    }
}

typedef struct stepping {
    mr_model *model;
    const mr_pass *pass;
    mr_real *state;
    int draw; /* draw a token afterwards */
} stepping;

/* rows: of the forward before it. */
static void draw_once(mr_model *m, int B, size_t first_row, size_t rows)
{
    const mr_pass pass = mr_pass_over(m, &(mr_batch){0}, 0);
    const int sliced = mr_in_slices(m, rows);
    if (sliced) mr_head_product(m, &pass, first_row, (size_t)B);
    const size_t at = sliced ? 0 : first_row * (size_t)m->interface.outputs;
    m->dev->ops.sample(m->dev, &(mr_sample_args){.R = B,
                                                 .C = m->interface.outputs,
                                                 .how = m->sampling,
                                                 .position = m->position,
                                                 .logits = mr_act_at(m->dev, m->logits, at),
                                                 .ids = m->ids,
                                                 .drawn = m->drawn});
}

static void step_once(void *arg)
{
    stepping *s = arg;
    const size_t rows = mr_head_rows(s->model->interface.head, (size_t)s->pass->B, 1);
    mr_run_forward(s->model, s->pass, s->state, s->state, rows);
    mr_head_scores(s->model, rows);
    if (s->draw) draw_once(s->model, s->pass->B, 0, rows);
}

/* One token per stream, the state updated in place: the same work for every token. */
static void run_step(mr_model *m, const mr_batch *batch, mr_state *state, int draw)
{
    const mr_pass pass = mr_pass_over(m, batch, 0);
    const mr_replay_key key = mr_step_key(m, state->reals, batch, draw);
    stepping s = {m, &pass, state->reals, draw};
    mr_run_replayed(m, &key, step_once, &s);
}

mr_real *mr_keep_state(mr_model *m, const mr_batch *batch, const mr_state *state)
{
    m->carried = state && state->under_way;
    if (!m->carried) return NULL;
    m->dev->copy(m->dev, m->start_state, state->reals, (size_t)batch->B * mr_model_state_reals(m) * m->dev->real_size);
    return m->start_state;
}

void mr_model_forward(mr_model *m, const mr_batch *batch, mr_state *state, int train)
{
    mr_pass pass = mr_pass_over(m, batch, train);
    mr_real *in = state && state->under_way ? state->reals : NULL, *out = state ? state->reals : NULL;
    if (train) in = mr_keep_state(m, batch, state);
    mr_upload_inputs(m, batch);
    m->rows = mr_model_rows(m, batch);
    if (in && !train && batch->T == 1) run_step(m, batch, state, 0);
    else {
        mr_run_forward(m, &pass, in, out, m->rows);
        mr_head_scores(m, m->rows);
    }
    if (state) mr_sequence_carry(&pass, batch->length, out);
    if (state) state->under_way = 1;
}

/* ---- drawing ---- */

void mr_model_draw_from(mr_model *m, const mr_sampling *how, uint64_t position)
{
    m->next_position = (double)position;
    m->dev->upload(m->dev, m->sampling, how, sizeof *how);
    m->dev->upload(m->dev, m->position, &m->next_position, sizeof m->next_position);
}

void mr_model_draw(mr_model *m, mr_state *state, int fresh, int count, int32_t *tokens)
{
    int32_t drawn[MR_DRAWN];
    const mr_batch one = {.B = 1, .T = 1};
    const uint64_t first = (uint64_t)m->next_position;
    for (int i = 0; i < count; i++, m->next_position++)
        if (i || !fresh) run_step(m, &one, state, 1);
        else draw_once(m, 1, m->rows - 1, m->rows);
    m->dev->download(m->dev, drawn, m->drawn, sizeof drawn);
    for (int i = 0; i < count; i++) tokens[i] = drawn[(first + (uint64_t)i) % MR_DRAWN];
}

/* Row by row: each stream has its own seed and position, so it draws the same tokens alone and with others. */
void mr_model_draw_rows(mr_model *m, int B, const mr_sampling *how, const uint64_t *position, int32_t *tokens)
{
    for (int b = 0; b < B; b++) {
        mr_model_draw_from(m, &how[b], position[b]);
        draw_once(m, 1, (size_t)b, m->rows);
        m->dev->download(m->dev, &tokens[b], m->drawn + position[b] % MR_DRAWN, sizeof *tokens);
    }
}
