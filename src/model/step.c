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

int mr_model_join(mr_model *m, mr_comm *comm, mr_courier *courier, mr_error *err)
{
    int *stages = mr_alloc_with(m->dev->allocator, (size_t)m->params.count, sizeof *stages);
    for (int i = 0; stages && i < m->params.count; i++) stages[i] = mr_model_stage_of_row(m, i);
    const int status = stages ? mr_ranks_new(m->dev, comm, courier, &m->params, stages, &m->ranks) : MR_ENOMEM;
    mr_free_with(m->dev->allocator, stages);
    return status ? mr_no_memory(err, "the exchange of gradients") : 0;
}

/* The norm as the sum of parts that any rank can compute. */
static int update(mr_model *m, mr_error *err)
{
    const size_t parts = (m->params.total + MR_SUM_PART - 1) / MR_SUM_PART;
    if (!m->parts) m->parts = m->dev->alloc(m->dev, parts * sizeof *m->parts);
    if (!m->parts) return mr_no_memory(err, "the gradient's norm");
    m->dev->ops.sumsq_parts(m->dev, &(mr_sumsq_parts_args){.n = m->params.total, .g = m->grads, .parts = m->parts});
    m->dev->ops.sum_parts(m->dev, &(mr_sum_parts_args){.n = parts, .parts = m->parts, .out = m->sumsq});
    mr_model_adam(m, (mr_span){0, m->params.total}, 0);
    return 0;
}

static int finish(mr_model *m, mr_error *err)
{
    int status = 0;
    if (m->ranks) status = mr_ranks_add_up(m->ranks, m->dev, 0, err);
    else mr_tree_finish(&m->tree, m->dev, m->grads, m->params.total);
    m->tree.count = 0;
    return status ? status : update(m, err);
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
