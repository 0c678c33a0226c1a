/* Whole sequences through a net: forward, evaluation, training and its state. */
#include "api/api.h"
#include "api/schedule.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the caller's data, checked, as a batch ---- */

typedef struct given {
    mr_batch batch;
    uint8_t *mask; /* made here where the caller gave none; freed by the net's allocator */
} given;

static int check_shape(const mr_net *net, const mr_sequences *d, mr_error *err)
{
    if (d->B < 1 || d->T < 1 || d->T > INT_MAX / d->B)
        return mr_fail(err, MR_EINVAL, "B = %d, T = %d: both must be 1 or more, and their product an int", d->B, d->T);
    if (mr_head_pairs(net->face.head) && d->B % 2)
        return mr_fail(err, MR_EINVAL, "B = %d: this model takes pairs of sequences; B must be even", d->B);
    if (net->face.input == MR_INPUT_TOKENS && !d->ids) return mr_fail(err, MR_EINVAL, "ids is NULL: this model takes tokens");
    if (net->face.input == MR_INPUT_REALS && !d->values) return mr_fail(err, MR_EINVAL, "values is NULL: this model takes values");
    for (int b = 0; d->length && b < d->B; b++)
        if (d->length[b] < 1 || d->length[b] > d->T)
            return mr_fail(err, MR_EINVAL, "length[%d] = %d: must be 1 … T, which is %d", b, (int)d->length[b], d->T);
    return 0;
}

static int check_ids(const mr_net *net, const mr_sequences *d, mr_error *err)
{
    const size_t N = (size_t)d->B * (size_t)d->T;
    for (size_t i = 0; net->face.input == MR_INPUT_TOKENS && i < N; i++)
        if (d->ids[i] < 0 || d->ids[i] >= net->face.inputs)
            return mr_fail(err, MR_EINVAL, "ids[%zu] = %d: outside 0 … %d", i, (int)d->ids[i], net->face.inputs - 1);
    return 0;
}

static size_t rows_of(const mr_net *net, const mr_sequences *d)
{
    return mr_head_rows(net->face.head, (size_t)d->B, (size_t)d->T);
}

/* Is this row a token beyond its sequence's length? */
static int beyond(const mr_net *net, const mr_sequences *d, size_t row)
{
    if (!d->length || net->face.head != MR_HEAD_TOKEN) return 0;
    return (int)(row % (size_t)d->T) >= d->length[row / (size_t)d->T];
}

static int take_classes(given *g, const mr_net *net, const mr_sequences *d, mr_error *err)
{
    if (!d->target) return mr_fail(err, MR_EINVAL, "target is NULL: this model's loss is xent");
    for (size_t r = 0; r < rows_of(net, d); r++) {
        if (d->target[r] < -1 || d->target[r] >= net->face.outputs)
            return mr_fail(err, MR_EINVAL, "target[%zu] = %d: outside −1 … %d", r, (int)d->target[r], net->face.outputs - 1);
        if (d->target[r] >= 0 && beyond(net, d, r))
            return mr_fail(err, MR_EINVAL, "target[%zu] = %d: lies beyond its sequence's length and must be −1", r, (int)d->target[r]);
        g->batch.counted += d->target[r] >= 0;
    }
    g->batch.target = (int32_t *)d->target;
    return 0;
}

static int take_values(given *g, const mr_net *net, const mr_sequences *d, mr_error *err)
{
    const size_t rows = rows_of(net, d);
    if (!d->target_values) return mr_fail(err, MR_EINVAL, "target_values is NULL: this model's loss is mse");
    g->mask = mr_alloc_by(&net->ctx->allocator, rows, 1);
    if (!g->mask) return mr_no_memory(err, "a mask");
    for (size_t r = 0; r < rows; r++) {
        const int counts = !d->mask || d->mask[r];
        if (counts && d->mask && beyond(net, d, r)) return mr_fail(err, MR_EINVAL, "mask[%zu] lies beyond its sequence's length and must be 0", r);
        g->mask[r] = (uint8_t)(counts && !beyond(net, d, r));
        g->batch.counted += g->mask[r];
    }
    g->batch.target_values = (float *)d->target_values;
    g->batch.mask = g->mask;
    return 0;
}

/* The batch borrows the caller's arrays, which nobody writes to. */
static int take_data(given *g, const mr_net *net, const mr_sequences *data, int targets, mr_error *err)
{
    mr_sequences d;
    *g = (given){0};
    int status = mr_sized_take(&d, sizeof d, data, "mr_sequences", err);
    if (!status) status = check_shape(net, &d, err);
    if (!status) status = check_ids(net, &d, err);
    if (status) return status;
    g->batch = (mr_batch){.B = d.B, .T = d.T, .ids = (int32_t *)d.ids, .values = (float *)d.values, .reset = (uint8_t *)d.reset,
                          .length = (int32_t *)d.length, .has_reset = d.reset != NULL, .has_length = d.length != NULL};
    if (!targets) return 0;
    status = net->face.loss == MR_LOSS_XENT ? take_classes(g, net, &d, err) : take_values(g, net, &d, err);
    if (!status && !g->batch.counted) status = mr_fail(err, MR_EINVAL, "no row counts: there is nothing to learn or to score");
    return status;
}

static void drop_data(given *g, const mr_net *net) { mr_free_by(&net->ctx->allocator, g->mask); }

/* ---- running ---- */

int mr_net_forward(mr_net *net, const mr_sequences *data, float *scores, mr_error *err)
{
    given g;
    mr_turn turn;
    int status = take_data(&g, net, data, 0, err);
    if (!status) status = mr_turn_begin(&turn, net, g.batch.B, g.batch.T, err);
    if (status) return status;
    mr_model_forward(turn.runner->model, &g.batch, NULL, 0);
    mr_model_logits(turn.runner->model, scores, 0, mr_batch_rows(&g.batch, net->face.head));
    return mr_turn_end(&turn, 0, err);
}

/* Writes as much of a result as the caller's header knows. */
static int give_result(mr_result *to, const mr_net *net, const double stats[MR_STATS], double norm, mr_error *err)
{
    mr_result r = MR_RESULT;
    if (!to) return 0;
    if (to->size < sizeof to->size) return mr_fail(err, MR_EINVAL, "mr_result: its size is not set; begin with MR_RESULT");
    r.loss = stats[MR_STAT_LOSS] / stats[MR_STAT_COUNT];
    r.accuracy = net->face.loss == MR_LOSS_XENT ? stats[MR_STAT_CORRECT] / stats[MR_STAT_COUNT] : NAN;
    r.grad_norm = norm;
    r.rows = (int64_t)stats[MR_STAT_COUNT];
    r.step = net->steps;
    r.size = to->size;
    memcpy(to, &r, to->size < sizeof r ? to->size : sizeof r);
    return 0;
}

int mr_net_evaluate(mr_net *net, const mr_sequences *data, mr_result *result, mr_error *err)
{
    given g;
    mr_turn turn;
    double stats[MR_STATS];
    int status = take_data(&g, net, data, 1, err);
    if (!status) status = mr_turn_begin(&turn, net, g.batch.B, g.batch.T, err);
    if (!status) {
        mr_model *model = turn.runner->model;
        mr_model_zero_stats(model);
        mr_model_forward(model, &g.batch, NULL, 0);
        mr_model_loss(model, &g.batch, 0);
        mr_model_stats(model, stats);
        status = give_result(result, net, stats, 0, err);
        status = mr_turn_end(&turn, status, err);
    }
    drop_data(&g, net);
    return status;
}

/* ---- training ---- */

static int train(mr_net *net, const mr_batch *batch, mr_result *result, mr_error *err)
{
    mr_model *model = net->owner;
    double stats[MR_STATS];
    int status = 0;
    if (!mr_model_fits(model, batch->B, batch->T, 1)) status = mr_model_plan(model, batch->B, batch->T, 1, err);
    if (status) return status;
    const mr_step step = mr_step_values(&net->train, net->steps + 1);
    mr_model_learn(model, batch, &step, 1 / (double)batch->counted, 1, 1);
    mr_model_stats(model, stats);
    const double norm = mr_model_grad_norm(model);
    status = mr_model_dev(model)->sync(mr_model_dev(model), err);
    if (!status && (!isfinite(stats[MR_STAT_LOSS]) || !isfinite(norm)))
        status = mr_fail(err, MR_ENONFINITE, "step %lld: the %s became NaN or infinite; nothing was updated; lower lr or clip",
                         (long long)net->steps + 1, isfinite(stats[MR_STAT_LOSS]) ? "gradient" : "loss");
    if (status) return status;
    pthread_mutex_lock(&net->lock);
    net->steps++;
    pthread_mutex_unlock(&net->lock);
    return give_result(result, net, stats, norm, err);
}

int mr_net_train(mr_net *net, const mr_sequences *data, mr_result *result, mr_error *err)
{
    given g;
    mr_turn turn;
    int status = take_data(&g, net, data, 1, err);
    if (!status) {
        mr_turn_begin_alone(&turn, net);
        status = mr_turn_end(&turn, train(net, &g.batch, result, err), err);
    }
    drop_data(&g, net);
    return status;
}

int mr_net_set(mr_net *net, const char *key, const char *value, mr_error *err)
{
    static const char *const keys[] = {"lr", "schedule", "warmup", "steps", "optimizer", "betas", "eps", "weight-decay", "clip", "seed", NULL};
    mr_turn turn;
    for (int i = 0; keys[i]; i++) {
        if (strcmp(key, keys[i])) continue;
        mr_turn_begin_alone(&turn, net);
        return mr_turn_end(&turn, mr_option_parse(mr_option_find(mr_learn_options, key), &net->train, value, err), err);
    }
    return mr_fail(err, MR_EINVAL, "%.100s: not a key that changes how a net trains; minrnn.h lists them at mr_net_set", key);
}

/* ---- the state of a training ---- */

static const char *const prefixes[] = {"weights.", "moment1.", "moment2.", NULL};
static const mr_vector vectors[] = {MR_WEIGHTS, MR_MOMENT1, MR_MOMENT2};
enum { VECTORS = 3 };

/* Gradients and moments exist once there is a plan for training. */
static int have_moments(mr_net *net, mr_error *err)
{
    return mr_model_fits(net->owner, 1, 1, 1) ? 0 : mr_model_plan(net->owner, 1, 1, 1, err);
}

static int write_training(mr_net *net, float *room, const char *path, mr_error *err)
{
    const mr_params *params = mr_model_params(net->owner);
    char step[32];
    mr_st_writer *w = mr_st_writer_new();
    int status = w ? mr_model_add_config(w, mr_model_config(net->owner)) : MR_ENOMEM;
    snprintf(step, sizeof step, "%" PRId64, net->steps);
    if (!status) status = mr_st_add_meta(w, "state.step", step);
    for (int i = 0; !status && i < VECTORS; i++) {
        mr_model_get(net->owner, vectors[i], room + (size_t)i * params->total);
        status = mr_model_add_vector(w, prefixes[i], params, room + (size_t)i * params->total);
    }
    status = status ? mr_no_memory(err, path) : mr_st_write(w, path, err);
    mr_st_writer_free(w);
    return status;
}

static int same_config(const mr_config *a, const mr_config *b, const char *path, mr_error *err)
{
    char left[MR_TEXT_MAX], right[MR_TEXT_MAX];
    for (const mr_option *o = mr_config_options; o->key; o++)
        if (strcmp(mr_option_print(o, a, left), mr_option_print(o, b, right)))
            return mr_fail(err, MR_EINVAL, "%s: is of a model with %s = %.100s, not %.100s", path, o->key, left, right);
    return 0;
}

static int read_training(mr_net *net, const mr_st *st, float *room, const char *path, mr_error *err)
{
    static const char *const known[] = {"state.step", NULL};
    const mr_params *params = mr_model_params(net->owner);
    const char *text = mr_st_meta(st, "state.step");
    char *end = NULL;
    mr_config config;
    int status = mr_model_read_config(st, path, known, &config, err);
    if (!status) status = same_config(&config, mr_model_config(net->owner), path, err);
    const int64_t steps = text ? strtoll(text, &end, 10) : -1;
    if (!status && (steps < 0 || end == text || *end)) status = mr_fail(err, MR_EFORMAT, "%s: its metadata lacks a sound state.step", path);
    if (!status) status = mr_model_check_tensors(st, path, prefixes, params, err);
    for (int i = 0; !status && i < VECTORS; i++)
        status = mr_model_read_vector(st, path, prefixes[i], params, room + (size_t)i * params->total, err);
    if (status) return status;
    for (int i = 0; i < VECTORS; i++) mr_model_put(net->owner, vectors[i], room + (size_t)i * params->total);
    pthread_mutex_lock(&net->lock);
    net->steps = steps;
    pthread_mutex_unlock(&net->lock);
    return 0;
}

static int with_training(mr_net *net, const mr_st *from, const char *path, mr_error *err)
{
    mr_turn turn;
    const size_t total = mr_model_params(net->owner)->total;
    float *room = mr_alloc_by(&net->ctx->allocator, total, VECTORS * sizeof *room);
    if (!room) return mr_no_memory(err, path);
    mr_turn_begin_alone(&turn, net);
    int status = have_moments(net, err);
    if (!status) status = from ? read_training(net, from, room, path, err) : write_training(net, room, path, err);
    status = mr_turn_end(&turn, status, err);
    mr_free_by(&net->ctx->allocator, room);
    return status;
}

int mr_net_save_training(mr_net *net, const char *path, mr_error *err) { return with_training(net, NULL, path, err); }

int mr_net_load_training(mr_net *net, const char *path, mr_error *err)
{
    mr_st *st;
    int status = mr_st_open(path, &st, err);
    if (!status) status = with_training(net, st, path, err);
    mr_st_close(st);
    return status;
}
