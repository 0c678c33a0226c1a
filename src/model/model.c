/* A model's parameters and vectors: made, shared, freed, copied in and out. Its memory is planned in plan.c; forward.c
 * and learn.c compute. */
#include "model/network.h"

#include "model/gate_init.h"

#include <math.h>
#include <string.h>

/* With a head that shares it, smaller, so that logits start near 0. */
static double embedding_deviation(const mr_config *c) { return c->tied ? 1 / sqrt((double)c->dim) : 1; }

static int build_table(mr_model *m, mr_decay_set set)
{
    const mr_config *c = &m->config;
    mr_params *params = &m->params;
    if (c->input == MR_INPUT_TOKENS)
        m->embed = mr_params_add(params, "", "embed.weight", 0, MR_INIT_NORMAL, embedding_deviation(c), 2,
                                 (int64_t[]){c->inputs, c->dim});
    else m->embed = mr_add_linear(params, "", "embed", c->dim, c->inputs, 1);
    mr_params_flag(params, m->embed, MR_PARAM_F32);
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
    mr_model *m = mr_alloc_with(dev->allocator, 1, sizeof *m);
    if (!m) return mr_no_memory(err, "the model");
    m->config = *config;
    m->config.scaler = MR_SCALER_NONE; /* until one is set */
    m->config.cut = 0;                 /* until mr_model_cut */
    m->own_scaler = (mr_scaler){.inputs = config->inputs, .outputs = config->outputs};
    m->scaler = &m->own_scaler;
    m->asked = m->recompute = (mr_recomputing){.how = MR_RECOMPUTE_NONE};
    m->decay_set = set;
    m->params.allocator = dev->allocator;
    m->interface = mr_config_interface(config);
    m->dev = dev;
    m->blocks = mr_alloc_with(dev->allocator, (size_t)config->layers, sizeof *m->blocks);
    if (m->blocks && build_table(m, set) == 0) {
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
    for (int i = 0; m->blocks && i < m->config.layers; i++) mr_block_free(&m->blocks[i], m->dev->allocator);
    mr_free_with(m->dev->allocator, m->blocks);
    mr_params_free(&m->params);
    mr_quants_free(&m->quants);
    mr_ranks_free(m->ranks, m->dev);
    mr_tree_free(&m->tree, m->dev);
    release(m, m->parts);
    release(m, m->grads);
    release(m, m->moment1);
    release(m, m->moment2);
    if (!m->shares) release(m, m->weights);
    if (!m->shares) release(m, m->bytes);
    release(m, m->memory);
    mr_scaler_free(&m->own_scaler, m->dev->allocator);
    mr_free_with(m->dev->allocator, m->staging);
    mr_free_with(m->dev->allocator, m->chunks.room);
    mr_free_with(m->dev->allocator, m);
}

int mr_model_share(const mr_model *owner, mr_dev *dev, mr_model **out, mr_error *err)
{
    int status = mr_model_new(&owner->config, dev, owner->decay_set, out, err);
    if (status) return status;
    (*out)->shares = 1;
    (*out)->slice = owner->slice;
    (*out)->weights = owner->weights;
    (*out)->bytes = owner->bytes;
    (*out)->scaler = owner->scaler; /* a pointer, so that setting it later reaches this model too */
    return 0;
}

void mr_model_use(mr_model *m, mr_dev *dev) { m->dev = dev; }

void mr_model_cut(mr_model *m, mr_sequence *sequence)
{
    m->sequence = sequence;
    if (!sequence || sequence == m->group) return;
    m->group = sequence;
    m->config.cut = 1;
    m->shape_count = 0; /* no plan fits any more */
}

const mr_config *mr_model_config(const mr_model *m) { return &m->config; }
const mr_params *mr_model_params(const mr_model *m) { return &m->params; }

void mr_model_init_weights(const mr_model *m, uint64_t seed, double horizon, float *weights)
{
    mr_gate_init gates;
    mr_gate_init_read(m->config.gate_init, &gates, NULL);
    mr_params_init(&m->params, seed, mr_gate_init_timed(&gates) && gates.count ? gates.values[0] : horizon,
                   gates.kind != MR_GATE_INIT_TIMESCALES_UNIFORM, weights);
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

int mr_model_has_whole(const mr_model *m, mr_vector which)
{
    return !m->shard || (which != MR_MOMENT1 && which != MR_MOMENT2);
}

void mr_model_put(mr_model *m, mr_vector which, const float *from)
{
    if (!mr_model_has_whole(m, which)) return mr_shard_put(m, which, from);
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

float *mr_model_host_part(mr_model *m, mr_vector which, size_t offset)
{
    return m->dev->host_floats ? (float *)mr_real_at(m->dev, vector_of(m, which), offset) : NULL;
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
