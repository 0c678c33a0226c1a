/* Files of a net: models, the best model, 8-bit models, and the state of a training run. */
#include "api/api.h"

#include "model/quantize.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The vectors that the state of a training run holds; `best.` only if a best model was marked. */
static const struct vector {
    const char *prefix, *what;
    mr_vector which;
} vectors[] = {{"weights.", "weights", MR_WEIGHTS},
               {"moment1.", "first moment", MR_MOMENT1},
               {"moment2.", "second moment", MR_MOMENT2},
               {"best.", "best weights", MR_BEST}};
enum { SETS = 4, BEST = 3 };

static float *new_vector(const mr_net *net)
{
    return mr_alloc_with(&net->ctx->allocator, mr_model_params(net->owner)->total, sizeof(float));
}

static void free_vector(const mr_net *net, float *vector) { mr_free_with(&net->ctx->allocator, vector); }

/* The one check that keeps a NaN out of every file. */
static int check_finite(const mr_net *net, const float *vector, const char *what, mr_error *err)
{
    const char *name;
    if (!mr_params_first_nonfinite(mr_model_params(net->owner), vector, &name)) return 0;
    return mr_fail(err, MR_ENONFINITE,
                   "step %lld: %s (%s) has become NaN or infinite and was not saved; lower lr or clip",
                   (long long)net->steps, name, what);
}

/* ---- models ---- */

static int add_count(mr_st_writer *w, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    return mr_st_add_meta(w, key, text);
}

static int add_meta(mr_st_writer *w, const mr_net *net)
{
    mr_net *mutable_net = (mr_net *)net; /* for the lock: mr_net_set_meta takes no lease */
    int status = 0;
    pthread_mutex_lock(&mutable_net->lock);
    for (int i = 0; !status && i < net->meta_count; i++)
        status = mr_st_add_meta(w, net->meta[i].key, net->meta[i].value);
    pthread_mutex_unlock(&mutable_net->lock);
    char *vocab = net->vocab && !status ? mr_vocab_text(net->vocab) : NULL;
    if (net->vocab && !status) status = vocab ? mr_st_add_meta(w, "vocab", vocab) : MR_ENOMEM;
    mr_free(vocab);
    return status;
}

static int write_model(const mr_net *net, const float *weights, int64_t step, const char *path, mr_error *err)
{
    int status = check_finite(net, weights, "weights", err);
    if (status) return status;
    mr_st_writer *w = mr_st_writer_new();
    status = w ? mr_model_add_config(w, mr_model_config(net->owner)) : MR_ENOMEM;
    if (!status) status = mr_model_add_vector(w, "", mr_model_params(net->owner), weights);
    if (!status) status = mr_model_add_scaler(w, net->owner);
    if (!status) status = add_meta(w, net);
    if (!status) status = add_count(w, "step", step);
    status = status ? mr_no_memory(err, path) : mr_st_write(w, path, err);
    mr_st_writer_free(w);
    return status;
}

int mr_net_save(mr_net *net, const char *path, mr_error *err)
{
    mr_lease lease;
    if (mr_model_quants(net->owner))
        return mr_fail(err, MR_ECONFIG, "%s: 8-bit weights cannot be saved again; copy the file that they came from",
                       path);
    if (!mr_writes(net)) return 0;
    float *weights = new_vector(net);
    if (!weights) return mr_no_memory(err, path);
    int status = mr_lease_begin_exclusive(&lease, net, err);
    if (!status) {
        mr_model_get(net->owner, MR_WEIGHTS, weights);
        status = mr_lease_end(&lease, write_model(net, weights, net->steps, path, err), err);
    }
    free_vector(net, weights);
    return status;
}

int mr_net_mark_best(mr_net *net, mr_error *err)
{
    mr_lease lease;
    if (mr_model_quants(net->owner)) return mr_fail(err, MR_ECONFIG, "8-bit weights cannot be trained");
    int status = mr_lease_begin_exclusive(&lease, net, err);
    if (status) return status;
    if (!net->best && mr_writes(net)) net->best = new_vector(net);
    if (net->best) mr_model_get(net->owner, MR_WEIGHTS, net->best);
    net->best_step = net->steps;
    return mr_lease_end(&lease, net->best || !mr_writes(net) ? 0 : mr_no_memory(err, "the best weights"), err);
}

int mr_net_save_best(mr_net *net, const char *path, mr_error *err)
{
    mr_lease lease;
    if (!mr_writes(net)) return 0;
    int status = mr_lease_begin_exclusive(&lease, net, err);
    if (status) return status;
    if (!net->best)
        status = mr_fail(err, MR_EINVAL, "%s: there are no best weights: call mr_net_mark_best first", path);
    return mr_lease_end(&lease, status ? status : write_model(net, net->best, net->best_step, path, err), err);
}

/* ---- 8-bit models ---- */

/* The metadata comes from the owner, because `small` has no scaler. */
static int write_int8(const mr_net *net, const mr_model *small, const float *weights, const char *path, mr_error *err)
{
    mr_config config = *mr_model_config(net->owner);
    const mr_params *params = mr_model_params(net->owner), *layout = mr_model_params(small);
    const mr_quants *quants = mr_model_quants(small);
    float *reals = mr_alloc(layout->total, sizeof *reals);
    int8_t *bytes = mr_alloc(quants->bytes, 1);
    mr_st_writer *w = mr_st_writer_new();
    config.weights = MR_WEIGHTS_INT8;
    int status = reals && bytes && w ? mr_model_add_config(w, &config) : MR_ENOMEM;
    if (!status) status = add_meta(w, net);
    if (!status) status = add_count(w, "step", net->steps);
    if (!status) {
        mr_quantize_vector(params, weights, layout, quants, reals, bytes);
        status = mr_quants_add(w, layout, quants, reals, bytes);
    }
    if (!status) status = mr_model_add_scaler(w, net->owner);
    status = status ? mr_no_memory(err, path) : mr_st_write(w, path, err);
    mr_st_writer_free(w);
    mr_free(reals);
    mr_free(bytes);
    return status;
}

int mr_net_save_int8(mr_net *net, const char *path, mr_error *err)
{
    mr_lease lease;
    mr_config config = *mr_model_config(net->owner);
    mr_model *small = NULL;
    if (config.weights != MR_WEIGHTS_F32) return mr_fail(err, MR_EINVAL, "%s: the weights already have 8 bits", path);
    if (!mr_writes(net)) return 0;
    config.weights = MR_WEIGHTS_INT8;
    float *weights = new_vector(net);
    if (!weights) return mr_no_memory(err, path);
    int status = mr_lease_begin_exclusive(&lease, net, err);
    if (!status) {
        mr_model_get(net->owner, MR_WEIGHTS, weights);
        status = check_finite(net, weights, "weights", err);
        if (!status) status = mr_model_new(&config, lease.dev, MR_DECAY_ALL, &small, err);
        if (!status) status = write_int8(net, small, weights, path, err);
        mr_model_free(small);
        status = mr_lease_end(&lease, status, err);
    }
    free_vector(net, weights);
    return status;
}

/* ---- the state of a training run ---- */

/* Gradients and moments exist only after a plan for training. */
static int have_moments(mr_net *net, mr_error *err)
{
    if (mr_model_fits(net->owner, 1, 1, 1)) return 0;
    net->last_batch.B = 0;
    return mr_model_plan(net->owner, 1, 1, 1, err);
}

/* The caller's own keys must not collide with those that the library writes. */
static int check_extra(const char *const *extra, const char *path, mr_error *err)
{
    for (; extra && *extra; extra += 2) {
        if (!extra[1]) return mr_fail(err, MR_EINVAL, "%s: %.100s: the list ends before its value", path, *extra);
        if (!strchr(*extra, '.') || !strncmp(*extra, "model.", 6) || !strcmp(*extra, "state.step") ||
            !strcmp(*extra, "state.best-step"))
            return mr_fail(err, MR_EINVAL,
                           "%s: %.100s: your own keys need a dot, and must not begin with model., as in "
                           "\"mine.epoch\"",
                           path, *extra);
    }
    return 0;
}

static int add_extra(mr_st_writer *w, const char *const *extra)
{
    int status = 0;
    for (; !status && extra && *extra; extra += 2) status = mr_st_add_meta(w, *extra, extra[1]);
    return status;
}

/* With a sharded optimiser every rank sends its part. */
static int get_vectors(mr_net *net, float *room, mr_error *err)
{
    int status = 0;
    for (int i = 0; !status && i < BEST; i++)
        status =
            mr_model_gather(net->owner, vectors[i].which, room + (size_t)i * mr_model_params(net->owner)->total, err);
    return status;
}

static int write_training(mr_net *net, float *room, const char *const *extra, const char *path, mr_error *err)
{
    const mr_params *params = mr_model_params(net->owner);
    const int sets = net->best ? SETS : SETS - 1;
    mr_st_writer *w = mr_st_writer_new();
    int status = w ? mr_model_add_config(w, mr_model_config(net->owner)) : MR_ENOMEM, finite = 0;
    if (!status) status = add_meta(w, net);
    if (!status) status = add_extra(w, extra);
    if (!status) status = mr_model_add_scaler(w, net->owner);
    if (!status) status = add_count(w, "state.step", net->steps);
    if (!status && net->best) status = add_count(w, "state.best-step", net->best_step);
    for (int i = 0; !status && !finite && i < sets; i++) {
        float *vector = i == BEST ? net->best : room + (size_t)i * params->total;
        finite = check_finite(net, vector, vectors[i].what, err);
        status = mr_model_add_vector(w, vectors[i].prefix, params, vector);
    }
    if (finite) status = finite;
    else status = status ? mr_no_memory(err, path) : mr_st_write(w, path, err);
    mr_st_writer_free(w);
    return status;
}

static int same_config(const mr_config *a, const mr_config *b, const char *path, mr_error *err)
{
    char left[MR_TEXT_MAX], right[MR_TEXT_MAX];
    for (const mr_option *o = mr_config_options; o->key; o++)
        if (strcmp(o->key, "scaler") && strcmp(mr_option_print(o, a, left), mr_option_print(o, b, right)))
            return mr_fail(err, MR_EINVAL, "%s: belongs to a model with %s = %.100s, not %.100s", path, o->key, left,
                           right);
    return 0;
}

static int read_count(const mr_st *st, const char *path, const char *key, int64_t *value, mr_error *err)
{
    const char *text = mr_st_meta(st, key);
    char *end = NULL;
    *value = text ? strtoll(text, &end, 10) : -1;
    if (text && end != text && !*end && *value >= 0) return 0;
    return mr_fail(err, MR_EFORMAT, "%s: its metadata has no valid %s", path, key);
}

/* A state has `best.` if a best model was marked. States written by the command before 0.2 always have it: until a best
 * model was found, it is all zero and state.best-step is 0. */
static int read_vectors(mr_net *net, const mr_st *st, float *room, int sets, const char *path, mr_error *err)
{
    const char *prefixes[SETS + 1] = {NULL};
    const mr_params *params = mr_model_params(net->owner);
    for (int i = 0; i < sets; i++) prefixes[i] = vectors[i].prefix;
    int status = mr_model_check_tensors(st, path, prefixes, params, err);
    for (int i = 0; !status && i < sets; i++)
        status = mr_model_read_vector(st, path, prefixes[i], params, room + (size_t)i * params->total, err);
    return status;
}

/* Whether a file's `best.` is a model. One that was marked before the first step has best-step 0, too. */
static int is_marked(const float *best, size_t count, int64_t step)
{
    size_t zeros = 0;
    while (!step && zeros < count && best[zeros] == 0) zeros++;
    return zeros < count;
}

static int read_training(mr_net *net, const mr_st *st, float *room, const char *path, mr_error *err)
{
    const size_t total = mr_model_params(net->owner)->total;
    char name[128];
    int64_t steps = 0, best_step = 0;
    mr_config config;
    int status = mr_model_read_config(st, path, &config, err);
    if (!status) status = same_config(&config, mr_model_config(net->owner), path, err);
    if (!status) status = read_count(st, path, "state.step", &steps, err);
    snprintf(name, sizeof name, "best.%s", mr_model_params(net->owner)->list[0].name);
    int best = mr_st_find(st, name) != NULL;
    if (!status && mr_st_meta(st, "state.best-step")) status = read_count(st, path, "state.best-step", &best_step, err);
    if (!status) status = read_vectors(net, st, room, best ? SETS : SETS - 1, path, err);
    best = !status && best && is_marked(room + BEST * total, total, best_step);
    if (best && !net->best && !(net->best = new_vector(net))) status = mr_no_memory(err, path);
    pthread_mutex_lock(&net->lock);                                        /* mr_net_setting takes no lease */
    if (!status) status = mr_model_read_scaler(st, path, net->owner, err); /* last: nothing after this fails */
    pthread_mutex_unlock(&net->lock);
    if (status) return status;
    for (int i = 0; i < BEST; i++) mr_model_put(net->owner, vectors[i].which, room + (size_t)i * total);
    if (best) memcpy(net->best, room + BEST * total, total * sizeof *room);
    else free_vector(net, net->best), net->best = NULL;
    net->best_step = best_step;
    net->fresh_grads = 1;
    net->next_micro = 0;
    net->carried.under_way = 0;
    pthread_mutex_lock(&net->lock);
    net->steps = steps;
    pthread_mutex_unlock(&net->lock);
    return 0;
}

/* Loads the state from a file, or writes it where `from` is NULL. */
static int transfer_training(mr_net *net, const mr_st *from, const char *const *extra, const char *path, mr_error *err)
{
    mr_lease lease;
    if (mr_model_quants(net->owner)) return mr_fail(err, MR_ECONFIG, "%s: 8-bit weights cannot be trained", path);
    if (!from && !mr_writes(net) && !net->ctx->shard) return 0;
    const size_t total = mr_model_params(net->owner)->total;
    float *room = mr_alloc_with(&net->ctx->allocator, total, SETS * sizeof *room);
    if (!room) return mr_no_memory(err, path);
    int status = mr_lease_begin_exclusive(&lease, net, err);
    if (!status) {
        status = have_moments(net, err);
        if (!status && from) status = read_training(net, from, room, path, err);
        else if (!status) {
            status = get_vectors(net, room, err);
            if (!status && mr_writes(net)) status = write_training(net, room, extra, path, err);
        }
        status = mr_lease_end(&lease, status, err);
    }
    mr_free_with(&net->ctx->allocator, room);
    return status;
}

int mr_net_save_training(mr_net *net, const char *path, const char *const *extra, mr_error *err)
{
    int status = check_extra(extra, path, err);
    return status ? status : transfer_training(net, NULL, extra, path, err);
}

int mr_net_load_training(mr_net *net, const char *path, mr_error *err)
{
    mr_st *st;
    int status = mr_st_open(path, &st, err);
    if (!status) status = transfer_training(net, st, NULL, path, err);
    mr_st_close(st);
    return status;
}
