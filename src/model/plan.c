/* The memory of a model: its size is computed for the planned shapes, allocated once, and divided into buffers. */
#include "model/network.h"

#include <string.h>

int mr_model_fits(const mr_model *m, int B, int T, int train)
{
    if (!m->step || train > m->train) return 0;
    for (int i = 0; i < m->shape_count; i++)
        if (B <= m->shapes[i].B && T <= m->shapes[i].T) return 1;
    return 0;
}

size_t mr_model_planned_bytes(const mr_model *m) { return m->planned; }

size_t mr_model_memory(const mr_model *m)
{
    size_t vectors = m->grads ? 2 : 1, moments = m->shard ? mr_shard_reals(m) : m->params.total;
    for (int i = 0; i < MR_NODES; i++) vectors += m->tree.kept[i] != NULL;
    const size_t reals = vectors * m->params.total + (m->grads ? 2 * moments : 0);
    return m->planned + reals * m->dev->real_size + m->quants.bytes;
}

static void release_training(mr_model *m)
{
    m->dev->release(m->dev, m->grads);
    m->dev->release(m->dev, m->moment1);
    m->dev->release(m->dev, m->moment2);
    m->grads = m->moment1 = m->moment2 = NULL;
}

static void plan_gradients(mr_model *m, mr_arena *arena, size_t N)
{
    const mr_config *c = &m->config;
    size_t act = m->dev->act_size, row = N * (size_t)c->dim * act;
    m->scratch.d = m->normed; /* the head's backward is the last to read m->normed */
    m->scratch.branch = c->dropout > 0 || c->conv ? mr_arena_take(arena, row) : NULL;
    m->scratch.inner = mr_arena_take(arena, row);
    m->scratch.dh = mr_arena_take(arena, N * (size_t)mr_mixer_at(c->mixer)->width(c) * act);
    m->scratch.wide = mr_arena_take(arena, N * (size_t)mr_config_mlp(c) * act);
    mr_head_plan_gradients(m, arena);
    m->start_state = mr_arena_take(arena, (size_t)m->shape.B * mr_model_state_reals(m) * m->dev->real_size);
}

/* Blocks whose forward runs again before their backward keep their inputs, and share the memory of all else. */
static void plan_inputs(mr_model *m, mr_arena *arena, size_t row)
{
    const int layers = (int)m->config.layers;
    size_t shared = 0;
    for (int i = 0; i < layers; i++) m->blocks[i].x = mr_arena_take(arena, row);
    mr_act *top = mr_arena_take(arena, row);
    for (int i = 0; i < layers; i++) {
        const size_t start = arena->used;
        mr_block_plan(&m->blocks[i], &m->config, m->dev, arena, m->shape.B, m->shape.T, 1, 0);
        mr_block_put_output(&m->blocks[i], &m->config, i + 1 < layers ? m->blocks[i + 1].x : top);
        shared = arena->used - start;
        arena->used = start;
    }
    arena->used += shared;
}

static void plan_blocks(mr_model *m, mr_arena *arena, size_t N)
{
    const mr_config *c = &m->config;
    size_t row = N * (size_t)c->dim * m->dev->act_size, shared = 0;
    if (m->recompute.how == MR_RECOMPUTE_BLOCKS) {
        plan_inputs(m, arena, row);
        return;
    }
    mr_act *x = mr_arena_take(arena, row);
    for (int i = 0; i < c->layers; i++) {
        size_t start = arena->used;
        m->blocks[i].x = x;
        mr_block_plan(&m->blocks[i], c, m->dev, arena, m->shape.B, m->shape.T, m->train, 1);
        x = m->blocks[i].out;
        if (m->train) continue;
        /* without training all blocks use the same memory */
        shared = arena->used - start;
        arena->used = start;
    }
    arena->used += shared;
}

/* Takes every buffer from the arena; with base NULL it only counts. */
static void plan_all(mr_model *m, mr_arena *arena)
{
    const mr_config *c = &m->config;
    mr_dev *dev = m->dev;
    size_t B = (size_t)m->shape.B, N = B * (size_t)m->shape.T, act = dev->act_size, real = dev->real_size;
    size_t rows = mr_head_rows(m->interface.head, B, (size_t)m->shape.T);
    m->step = mr_arena_take(arena, sizeof *m->step);
    m->stats = mr_arena_take(arena, MR_STATS * sizeof *m->stats);
    m->sumsq = mr_arena_take(arena, sizeof *m->sumsq);
    m->scale = mr_arena_take(arena, sizeof *m->scale);
    m->sampling = mr_arena_take(arena, sizeof *m->sampling);
    m->position = mr_arena_take(arena, sizeof *m->position);
    m->drawn = mr_arena_take(arena, MR_DRAWN * B * sizeof *m->drawn);
    m->ids = c->input == MR_INPUT_TOKENS ? mr_arena_take(arena, N * sizeof *m->ids) : NULL;
    m->values = c->input == MR_INPUT_REALS ? mr_arena_take(arena, N * (size_t)c->inputs * act) : NULL;
    m->target = mr_arena_take(arena, rows * sizeof *m->target);
    m->target_values = c->loss == MR_LOSS_MSE ? mr_arena_take(arena, rows * (size_t)c->outputs * real) : NULL;
    m->mask = mr_arena_take(arena, rows);
    m->reset = mr_arena_take(arena, N);
    m->length = mr_arena_take(arena, B * sizeof *m->length);
    m->row_loss = mr_arena_take(arena, rows * real);
    plan_blocks(m, arena, N);
    if (m->group) mr_sequence_plan(m->group, arena, m->shape.B);
    mr_head_plan(m, arena);
    if (m->train) plan_gradients(m, arena, N);
}

/* Allocates the parameter vector, and for training the gradients and moments. */
static int plan_vectors(mr_model *m, int train, mr_error *err)
{
    size_t bytes = m->params.total * m->dev->real_size;
    if (!m->weights) m->weights = m->dev->alloc(m->dev, bytes);
    if (m->quants.at && !m->bytes) m->bytes = m->dev->alloc(m->dev, m->quants.bytes);
    if (!m->weights || (m->quants.at && !m->bytes))
        return mr_no_memory(err, "the parameters; lower layers, dim or expansion");
    if (train && (m->quants.at || m->shares))
        return mr_fail(err, MR_ECONFIG,
                       "a model with 8-bit weights cannot be trained; train the one that it was made from");
    if (!train || m->grads) return 0;
    m->grads = m->dev->alloc(m->dev, bytes);
    const size_t moments = m->shard ? mr_shard_reals(m) * m->dev->real_size : bytes;
    m->moment1 = m->dev->alloc(m->dev, moments);
    m->moment2 = m->dev->alloc(m->dev, moments);
    if (m->grads && m->moment1 && m->moment2) return 0;
    release_training(m);
    return mr_no_memory(err, "gradients and moments; lower layers, dim or expansion");
}

/* Refuses plans that cannot fit before anything is allocated (see mr_memory_total). Besides the device's vectors, a
 * training run keeps four in its checkpoint, and a model is in memory twice while it is loaded. */
static int check_memory(const mr_model *m, double activations, mr_error *err)
{
    const mr_shape whole = m->shapes[m->shape_count - 1];
    double vectors =
        (m->train ? 8.0 : 2.0) * ((double)m->params.total * (double)m->dev->real_size + (double)m->quants.bytes);
    if (!m->dev->memory || vectors + activations <= (double)m->dev->memory) return 0;
    return mr_fail(
        err, MR_ENOMEM,
        "%.4g GB of memory are needed and this machine has %.4g: %.4g GB for %.3g parameters, %.4g GB for a batch of "
        "%d × %d tokens; lower %s",
        (vectors + activations) / 1e9, (double)m->dev->memory / 1e9, vectors / 1e9, (double)mr_model_count(m),
        activations / 1e9, whole.B, whole.T,
        vectors > activations ? "dim, layers, expansion or mlp" : "batch or the length (context)");
}

static size_t tokens(mr_shape shape) { return (size_t)shape.B * (size_t)shape.T; }

static void lay_out(mr_model *m, mr_arena *arena, mr_shape whole)
{
    m->shape = mr_chunk_shape(m, whole);
    plan_all(m, arena);
    mr_chunks_plan(m, arena, whole);
}

/* Divides `base` into the plan's buffers, or with NULL counts bytes. Leaves m->shape at the largest shape. sizes: of
 * the pieces; NULL for one shape. */
static size_t plan_over(mr_model *m, char *base, size_t *sizes)
{
    size_t used = 0;
    for (int i = 0; i < m->shape_count; i++) { /* in the last round every piece has its full size */
        mr_arena arena = {.base = base, .largest = sizes};
        lay_out(m, &arena, m->shapes[i]);
        used = arena.used;
    }
    return used;
}

/* Allocates a number for each piece of the plan, whatever is computed again. */
static int new_sizes(mr_model *m, mr_plan_sizes *sizes)
{
    for (int how = MR_RECOMPUTE_NONE; how <= MR_RECOMPUTE_CHUNKS; how++) {
        mr_arena arena = {0};
        m->recompute = (mr_recomputing){.how = (mr_recompute)how, .chunk = how == MR_RECOMPUTE_CHUNKS};
        lay_out(m, &arena, m->shapes[0]);
        if (arena.pieces > sizes->count) sizes->count = arena.pieces;
    }
    sizes->list = mr_alloc_with(m->dev->allocator, sizes->count, sizeof *sizes->list);
    return sizes->list ? 0 : MR_ENOMEM;
}

static size_t count_bytes(mr_model *m, mr_plan_sizes *sizes)
{
    if (sizes->list) memset(sizes->list, 0, sizes->count * sizeof *sizes->list);
    return plan_over(m, NULL, sizes->list);
}

int mr_plan_check(mr_model *m, mr_plan_sizes *sizes, mr_error *err)
{
    return check_memory(m, (double)count_bytes(m, sizes), err);
}

int mr_plan_make(mr_model *m, mr_plan_sizes *sizes, mr_error *err)
{
    const mr_shape whole = m->shapes[m->shape_count - 1];
    const size_t bytes = count_bytes(m, sizes);
    int status = check_memory(m, (double)bytes, err);
    if (!status) status = plan_vectors(m, m->train, err);
    if (!status && (mr_upload_plan(m) || mr_chunks_plan_host(m)))
        status = mr_no_memory(err, "values in the network's units");
    if (status) return status;
    m->dev->release(m->dev, m->memory);
    m->planned = bytes;
    m->memory = m->dev->alloc(m->dev, bytes);
    if (!m->memory)
        return mr_fail(err, MR_ENOMEM,
                       "out of memory: %.1f GB of activations for batch %d × %d tokens; lower batch or context",
                       (double)bytes / 1e9, whole.B, whole.T);
    plan_over(m, m->memory, sizes->list);
    return 0;
}

int mr_model_plan_shapes(mr_model *m, const mr_shape *shapes, int count, int train, mr_error *err)
{
    for (int i = 0; i < count; i++) {
        const double N = (double)shapes[i].B * shapes[i].T;
        if (N * (double)m->config.dim > 1e11 || N > 2e9)
            return mr_fail(err, MR_ECONFIG, "batch = %d, context = %d: too large; lower one of them", shapes[i].B,
                           shapes[i].T);
    }
    /* the largest last, because error messages name it */
    const int swapped = count > 1 && tokens(shapes[0]) > tokens(shapes[1]);
    for (int i = 0; i < count; i++) m->shapes[i] = shapes[swapped ? count - 1 - i : i];
    m->shape_count = count;
    m->train = train;
    mr_plan_sizes sizes = {0};
    /* for one shape, every piece has the size asked for */
    int status = count > 1 && new_sizes(m, &sizes) ? mr_no_memory(err, "the plan") : mr_recompute_plan(m, &sizes, err);
    mr_free_with(m->dev->allocator, sizes.list);
    return status;
}

int mr_model_plan_more(mr_model *m, int B, int T, mr_error *err)
{
    mr_shape shapes[MR_SHAPES] = {{B, T}};
    int count = 1;
    /* keep the latest shape that does not fit into the new one */
    for (int i = m->step ? m->shape_count - 1 : -1; i >= 0 && count == 1; i--)
        if (m->shapes[i].B > B || m->shapes[i].T > T) shapes[count++] = m->shapes[i];
    return mr_model_plan_shapes(m, shapes, count, 0, err);
}

int mr_model_plan(mr_model *m, int B, int T, int train, mr_error *err)
{
    return mr_model_plan_shapes(m, &(mr_shape){B, T}, 1, train, err);
}
