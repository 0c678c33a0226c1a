/* Steps of several micro-batches, in one process or in several. */
#include "model/network.h"

#include <stdio.h>
#include <string.h>

int mr_model_stage_of_row(const mr_model *m, int row)
{
    const int layers = (int)m->config.layers;
    int block;
    if (sscanf(m->params.list[row].name, "blocks.%d.", &block) == 1) return layers - block;
    return strncmp(m->params.list[row].name, "embed.", 6) ? 0 : layers + 1;
}

int mr_model_join(mr_model *m, mr_comm *comm, mr_courier *courier, int shard, int cut, mr_error *err)
{
    m->shard = shard;
    int *stages = mr_alloc_with(m->dev->allocator, (size_t)m->params.count, sizeof *stages);
    for (int i = 0; stages && i < m->params.count; i++) stages[i] = mr_model_stage_of_row(m, i);
    const int status = stages ? mr_ranks_new(m->dev, comm, courier, cut, &m->params, stages, &m->ranks) : MR_ENOMEM;
    mr_free_with(m->dev->allocator, stages);
    return status ? mr_no_memory(err, "the exchange of gradients") : 0;
}

static int have_parts(mr_model *m, mr_error *err)
{
    if (!m->parts) m->parts = m->dev->alloc(m->dev, mr_model_norm_parts(m) * sizeof *m->parts);
    return m->parts ? 0 : mr_no_memory(err, "the gradient's norm");
}

/* The norm as the sum of parts that any rank can compute. */
static void update(mr_model *m)
{
    m->dev->ops.sumsq_parts(m->dev, &(mr_sumsq_parts_args){.n = m->params.total, .g = m->grads, .parts = m->parts});
    m->dev->ops.sum_parts(m->dev,
                          &(mr_sum_parts_args){.n = mr_model_norm_parts(m), .parts = m->parts, .out = m->sumsq});
    mr_model_adam(m, (mr_span){0, m->params.total}, 0);
}

static int finish(mr_model *m, mr_error *err)
{
    int status = have_parts(m, err);
    if (!status && m->ranks) status = mr_ranks_add_up(m->ranks, m->dev, m->shard, err);
    else if (!status) mr_tree_finish(&m->tree, m->dev, m->grads, m->params.total);
    m->tree.count = 0;
    if (status) return status;
    if (m->shard) return mr_shard_update(m, err);
    update(m);
    return 0;
}

int mr_model_learn_micro(mr_model *m, const mr_batch *batch, mr_state *state, const mr_step *step, double scale,
                         const mr_micro *w, mr_error *err)
{
    const int last = w->micro == w->end - 1;
    if (w->micro == w->first) m->tree.count = 0;
    if (last && m->ranks) {
        int status = mr_ranks_begin(m->ranks, m->dev, w->micros, w->micro, &m->tree, m->grads, err);
        if (status) return status;
    }
    m->sending = last && m->ranks;
    mr_model_learn(m, batch, state, step, scale, 1, 0);
    m->sending = 0;
    if (last) return finish(m, err);
    if (mr_tree_keep(&m->tree, m->dev, w->micro, m->grads, m->params.total))
        return mr_no_memory(err, "gradients of micro-batches; lower layers, dim or expansion");
    return 0;
}
