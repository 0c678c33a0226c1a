/* The state of streams: what a model remembers between two calls. */
#include "model/network.h"

size_t mr_model_state_reals(const mr_model *m) { return (size_t)m->config.layers * mr_block_state_reals(&m->config); }

static size_t reals_of(const mr_state *s) { return (size_t)s->B * mr_model_state_reals(s->model); }

int mr_state_new(mr_model *model, int B, mr_state **out, mr_error *err)
{
    mr_state *s = mr_alloc(1, sizeof *s);
    *out = NULL;
    if (!s) return mr_no_memory(err, "a state");
    *s = (mr_state){.model = model, .B = B};
    s->reals = model->dev->alloc(model->dev, reals_of(s) * model->dev->real_size);
    if (!s->reals) {
        mr_free(s);
        return mr_no_memory(err, "a state");
    }
    *out = s;
    return 0;
}

void mr_state_free(mr_state *s)
{
    if (!s) return;
    s->model->dev->release(s->model->dev, s->reals);
    mr_free(s);
}

void mr_state_reset(mr_state *s) { s->under_way = 0; }

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
