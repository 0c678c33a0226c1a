/* Training in chunks of time. A chunk is a batch of its own, whose rows continue from states: a first pass keeps the
 * states at the borders, a second one goes back through time. */
#include "model/network.h"

#include <string.h>

int mr_chunks_of(int T, int chunk) { return (int)(((int64_t)T + chunk - 1) / chunk); }

/* ---- memory ---- */

mr_shape mr_chunk_shape(const mr_model *m, mr_shape batch)
{
    const int chunk = m->recompute.chunk;
    return chunk && chunk < batch.T ? (mr_shape){batch.B, chunk} : batch;
}

void mr_chunks_plan(mr_model *m, mr_arena *arena, mr_shape batch)
{
    const size_t state = (size_t)batch.B * mr_model_state_reals(m) * m->dev->real_size;
    if (!m->recompute.chunk) return;
    m->chunks.after = mr_arena_take(arena, state);
    if (!m->train) return;
    m->chunks.borders = mr_arena_take(arena, (size_t)mr_chunks_of(batch.T, m->recompute.chunk) * state);
    m->chunks.dafter = mr_arena_take(arena, state);
    m->chunks.dbefore = mr_arena_take(arena, state);
}

/* Bytes of one token of a row in a batch's arrays, at most. */
static size_t token_bytes(const mr_model *m)
{
    const size_t inputs = m->interface.input == MR_INPUT_TOKENS ? 1 : (size_t)m->interface.inputs,
                 outputs = (size_t)m->interface.outputs;
    return (inputs + (m->interface.loss == MR_LOSS_XENT ? 1 : outputs)) * 4 + 2;
}

int mr_chunks_plan_host(mr_model *m)
{
    mr_chunks *c = &m->chunks;
    size_t most = 0;
    for (int i = 0; m->recompute.chunk && i < m->shape_count; i++) {
        const mr_shape s = mr_chunk_shape(m, m->shapes[i]);
        const size_t bytes = (size_t)s.B * ((size_t)s.T * token_bytes(m) + sizeof(int32_t));
        most = bytes > most ? bytes : most;
    }
    if (most <= c->room_size) return 0;
    char *room = mr_alloc_with(m->dev->allocator, most, 1);
    if (!room) return MR_ENOMEM;
    mr_free_with(m->dev->allocator, c->room);
    c->room = room;
    c->room_size = most;
    return 0;
}

/* ---- a batch in chunks ---- */

int mr_in_chunks(const mr_model *m, const mr_batch *batch)
{
    return m->recompute.chunk && batch->T > m->recompute.chunk;
}

/* Chunks up to where the longest row ends: behind that, there is nothing to compute. */
static int chunks_in(const mr_model *m, const mr_batch *batch)
{
    int T = batch->length ? 1 : batch->T;
    for (int b = 0; batch->length && b < batch->B; b++) T = batch->length[b] > T ? batch->length[b] : T;
    return mr_chunks_of(T, m->recompute.chunk);
}

/* Tokens at … at + T − 1 of an array [B, all], `size` bytes a token: copied to *room, or where they lie. */
static void *cut(const void *from, int B, int all, int at, int T, size_t size, char **room)
{
    if (!from) return NULL;
    const char *start = (const char *)from + (size_t)at * size;
    if (B == 1) return (char *)start; /* read only */
    char *to = *room;
    for (int b = 0; b < B; b++)
        memcpy(to + (size_t)b * (size_t)T * size, start + (size_t)b * (size_t)all * size, (size_t)T * size);
    *room += (size_t)B * (size_t)T * size;
    return to;
}

static mr_batch chunk_of(const mr_model *m, const mr_batch *from, int index)
{
    const int B = from->B, all = from->T, at = index * m->recompute.chunk;
    const int T = all - at < m->recompute.chunk ? all - at : m->recompute.chunk;
    char *room = m->chunks.room;
    int32_t *length = (int32_t *)(void *)room;
    mr_batch to = {.B = B, .T = T, .length = from->length ? length : NULL};
    room += (size_t)B * sizeof *length;
    for (int b = 0; from->length && b < B; b++) {
        const int left = from->length[b] - at;
        length[b] = left < 0 ? 0 : left < T ? left : T;
    }
    const int tokens = m->interface.input == MR_INPUT_TOKENS, classes = m->interface.loss == MR_LOSS_XENT;
    to.ids = cut(tokens ? from->ids : NULL, B, all, at, T, sizeof *to.ids, &room);
    to.values =
        cut(tokens ? NULL : from->values, B, all, at, T, (size_t)m->interface.inputs * sizeof *to.values, &room);
    to.target = cut(classes ? from->target : NULL, B, all, at, T, sizeof *to.target, &room);
    to.target_values = cut(classes ? NULL : from->target_values, B, all, at, T,
                           (size_t)m->interface.outputs * sizeof *to.target_values, &room);
    to.mask = cut(classes ? NULL : from->mask, B, all, at, T, 1, &room);
    to.reset = cut(from->reset, B, all, at, T, 1, &room);
    return to;
}

/* A chunk at work on the device. */
typedef struct chunk_work {
    mr_model *model;
    mr_pass pass;
    size_t rows;
    mr_real *in; /* the state before it, or NULL */
} chunk_work;

static void run_states(void *arg)
{
    chunk_work *w = arg;
    mr_run_states(w->model, &w->pass, w->in, w->model->chunks.after);
}

static void run_learning(void *arg)
{
    chunk_work *w = arg;
    mr_chunks *c = &w->model->chunks;
    mr_run_forward(w->model, &w->pass, w->in, c->after, w->rows);
    mr_run_loss(w->model, &w->pass, w->rows, 1);
    mr_run_backward(w->model, &w->pass, w->rows, w->in, c->dafter, c->dbefore);
}

/* A micro-batch that is walked through. */
typedef struct walk {
    mr_model *m;
    const mr_batch *batch;
    const mr_step *step;
    size_t state; /* bytes of one of its states */
    int count;
} walk;

static mr_real *border(const walk *w, int index)
{
    return mr_real_at(w->m->dev, w->m->chunks.borders, (size_t)index * (w->state / w->m->dev->real_size));
}

/* Uploads a chunk and the state before it. Dropout counts the elements of a chunk, so each chunk is given a number of
 * its own instead of the micro-batch's; that of the first one is the same. */
static chunk_work start_chunk(const walk *w, int index, mr_batch *chunk)
{
    mr_model *m = w->m;
    mr_step step = *w->step;
    step.micro += (uint32_t)index * MR_MICROS_MOST;
    *chunk = chunk_of(m, w->batch, index);
    mr_model_set_step(m, &step);
    mr_upload_inputs(m, chunk);
    if (index || m->carried) m->dev->copy(m->dev, m->start_state, border(w, index), w->state);
    return (chunk_work){.model = m,
                        .pass = mr_pass_over(m, chunk, 1),
                        .rows = mr_model_rows(m, chunk),
                        .in = index || m->carried ? m->start_state : NULL};
}

static void replay(const walk *w, mr_replay_work what, const mr_batch *chunk, void (*work)(void *), chunk_work *arg)
{
    const mr_replay_key key = mr_chunk_key(w->m, what, chunk, arg->in != NULL);
    mr_run_replayed(w->m, &key, work, arg);
}

/* The first pass: the states at the borders. */
static void find_borders(const walk *w)
{
    mr_dev *dev = w->m->dev;
    if (w->m->carried) dev->copy(dev, border(w, 0), w->m->start_state, w->state);
    for (int i = 0; i + 1 < w->count; i++) {
        mr_batch chunk;
        chunk_work work = start_chunk(w, i, &chunk);
        replay(w, MR_REPLAY_CHUNK_STATES, &chunk, run_states, &work);
        dev->copy(dev, border(w, i + 1), w->m->chunks.after, w->state);
    }
}

/* The second pass: backward in time. Gradients are complete, and sent to other ranks, only with the first chunk in
 * time, the last one here. */
static void learn_backward(const walk *w, double scale, mr_state *state)
{
    mr_dev *dev = w->m->dev;
    mr_chunks *c = &w->m->chunks;
    const int sending = w->m->sending;
    dev->zero(dev, c->dafter, w->state);
    for (int i = w->count - 1; i >= 0; i--) {
        mr_batch chunk;
        chunk_work work = start_chunk(w, i, &chunk);
        mr_upload_targets(w->m, &chunk, scale);
        w->m->sending = sending && i == 0;
        replay(w, MR_REPLAY_CHUNK_LEARN, &chunk, run_learning, &work);
        if (state && i == w->count - 1) dev->copy(dev, state->reals, c->after, w->state);
        if (i) dev->copy(dev, c->dafter, c->dbefore, w->state);
    }
}

void mr_learn_chunks(mr_model *m, const mr_batch *batch, mr_state *state, const mr_step *step, double scale, int first,
                     int last)
{
    const walk w = {.m = m,
                    .batch = batch,
                    .step = step,
                    .state = (size_t)batch->B * mr_model_state_reals(m) * m->dev->real_size,
                    .count = chunks_in(m, batch)};
    mr_keep_state(m, batch, state);
    if (first) {
        mr_model_zero_grads(m);
        mr_model_zero_stats(m);
    }
    find_borders(&w);
    learn_backward(&w, scale, state);
    if (last) mr_model_update(m);
    if (state) state->under_way = 1;
}

void mr_model_score(mr_model *m, const mr_batch *batch)
{
    if (!mr_in_chunks(m, batch)) {
        mr_model_forward(m, batch, NULL, 0);
        mr_model_loss(m, batch, 0);
        return;
    }
    const int count = chunks_in(m, batch);
    for (int i = 0; i < count; i++) {
        const mr_batch chunk = chunk_of(m, batch, i);
        const mr_pass pass = mr_pass_over(m, &chunk, 0);
        const size_t rows = mr_model_rows(m, &chunk);
        mr_upload_inputs(m, &chunk);
        mr_run_forward(m, &pass, i ? m->chunks.after : NULL, m->chunks.after, rows);
        mr_model_loss(m, &chunk, 0);
    }
}
