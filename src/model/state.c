/* The state of streams: what a model remembers between two calls. */
#include "model/network.h"

size_t mr_model_state_reals(const mr_model *m) { return (size_t)m->config.layers * mr_block_state_reals(&m->config); }

static size_t reals_of(const mr_state *s) { return (size_t)s->B * mr_model_state_reals(s->model); }

int mr_state_new(mr_model *model, int B, mr_state **out, mr_error *err)
{
    mr_state *s = mr_alloc_with(model->dev->allocator, 1, sizeof *s);
    *out = NULL;
    if (!s) return mr_no_memory(err, "a state");
    *s = (mr_state){.model = model, .B = B};
    s->reals = model->dev->alloc(model->dev, reals_of(s) * model->dev->real_size);
    if (!s->reals) {
        mr_free_with(model->dev->allocator, s);
        return mr_no_memory(err, "a state");
    }
    *out = s;
    return 0;
}

void mr_state_free(mr_state *s)
{
    if (!s) return;
    mr_dev *dev = s->model->dev;
    dev->release(dev, s->reals);
    mr_free_with(dev->allocator, s);
}

void mr_state_reset(mr_state *s) { s->under_way = 0; }
void mr_state_resume(mr_state *s) { s->under_way = 1; }

/* A state has one block's tails of all streams, then its mixer's states, and so on. In a pool each stream's state is
 * contiguous. */
static void move_rows(const mr_state *many, const int32_t *slot, mr_real *pool, int scatter)
{
    const mr_model *m = many->model;
    size_t parts[MR_STATE_PARTS];
    mr_block_state_parts(&m->config, parts);
    m->dev->ops.state_rows(m->dev, &(mr_state_rows_args){.B = many->B,
                                                         .layers = (int)m->config.layers,
                                                         .tail = (int)parts[0],
                                                         .mixer = (int)parts[1],
                                                         .rest = (int)parts[2],
                                                         .slot = slot,
                                                         .pool = pool,
                                                         .many = many->reals,
                                                         .scatter = scatter});
}

void mr_state_gather(mr_state *many, const int32_t *slot, mr_real *pool) { move_rows(many, slot, pool, 0); }

void mr_state_scatter(const mr_state *many, const int32_t *slot, mr_real *pool) { move_rows(many, slot, pool, 1); }

void mr_state_get(mr_state *s, float *to)
{
    to[0] = (float)s->under_way;
    s->model->dev->get(s->model->dev, to + 1, s->reals, reals_of(s));
}

void mr_state_put(mr_state *s, const float *from)
{
    s->under_way = from[0] != 0;
    s->model->dev->put(s->model->dev, s->reals, from + 1, reals_of(s));
}
