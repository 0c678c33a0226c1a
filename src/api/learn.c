/* Training: whole steps, micro-batches, state carried from one batch to the next, and the caller's own loss. */
#include "api/api.h"

#include <math.h>
#include <string.h>

/* ---- settings and memory ---- */

static int no_setting(const char *key, mr_error *err)
{
    static const mr_option *const tables[] = {mr_learn_table, NULL};
    const int known = mr_option_find(mr_learn_table, key) || mr_option_find(mr_config_options, key);
    const char *near = known ? NULL : mr_option_nearest(tables, key);
    return mr_fail(err, MR_EINVAL, "%.100s: not a training setting; %s%s%s", key,
                   near ? "did you mean " : "minrnn.h lists them at mr_net_set", near ? near : "", near ? "?" : "");
}

int mr_net_set(mr_net *net, const char *key, const char *value, mr_error *err)
{
    mr_lease lease;
    const mr_option *o = mr_option_find(mr_learn_table, key);
    if (!o || !strcmp(key, "decay-set")) /* the layout of the parameters depends on it */
        return no_setting(key, err);
    int status = mr_lease_begin_exclusive(&lease, net, err);
    if (status) return status;
    pthread_mutex_lock(&net->lock); /* mr_net_setting takes no lease */
    status = mr_option_parse(o, &net->train, value, err);
    if (!status && !strncmp(key, "recompute", 9)) net->chosen = (mr_recomputing){.how = MR_RECOMPUTE_AUTO};
    pthread_mutex_unlock(&net->lock);
    return mr_lease_end(&lease, status, err);
}

/* What a plan made. Locked, because evaluations and mr_net_setting read it without a lease of their own. */
static void note_plan(mr_net *net, int train, int reserved)
{
    pthread_mutex_lock(&net->lock);
    net->reserved = reserved;
    if (train) net->chosen = mr_model_recompute(net->owner);
    pthread_mutex_unlock(&net->lock);
}

static void ask_recompute(mr_net *net)
{
    mr_model_set_recompute(net->owner, (mr_recomputing){net->train.recompute, (int)net->train.recompute_chunk});
}

int mr_net_reserve(mr_net *net, const mr_shape *train, const mr_shape *score, mr_error *err)
{
    mr_lease lease;
    mr_shape shapes[MR_SHAPES];
    int count = 0;
    if (train) shapes[count++] = *train;
    if (score) shapes[count++] = *score;
    if (!count) return 0;
    for (int i = 0; i < count; i++)
        if (shapes[i].B < 1 || shapes[i].T < 1)
            return mr_fail(err, MR_EINVAL, "B = %d, T = %d: both must be 1 or more", shapes[i].B, shapes[i].T);
    int status = train ? mr_cut_check(net, train->T, err) : 0;
    if (status) return status;
    for (int i = 0; i < count; i++) shapes[i].T = mr_cut_longest(net, shapes[i].T);
    status = mr_lease_begin_exclusive(&lease, net, err);
    if (status) return status;
    ask_recompute(net);
    status = mr_model_plan_shapes(net->owner, shapes, count, train != NULL, err);
    net->last_batch.B = 0;
    if (!status) note_plan(net, train != NULL, score != NULL);
    return mr_lease_end(&lease, status, err);
}

size_t mr_net_memory(mr_net *net)
{
    mr_lease lease;
    if (mr_lease_begin_exclusive(&lease, net, NULL)) return 0;
    const size_t bytes = mr_model_memory(net->owner);
    mr_lease_end(&lease, 0, NULL);
    return bytes;
}

static int have_plan(mr_net *net, int B, int T, mr_error *err)
{
    const int planned = net->chosen.how != MR_RECOMPUTE_AUTO;
    if (planned && mr_model_fits(net->owner, B, T, 1)) return 0;
    net->last_batch.B = 0;
    ask_recompute(net);
    int status = mr_model_plan(net->owner, B, T, 1, err);
    if (!status) note_plan(net, 1, 0);
    return status;
}

/* ---- options of a micro-batch ---- */

static int take_options(mr_learn_options *o, const mr_learn_options *from, mr_error *err)
{
    static const mr_learn_options plain = MR_LEARN_OPTIONS;
    int status = mr_sized_copy(o, sizeof *o, from ? from : &plain, "mr_learn_options", err);
    if (status) return status;
    if (!o->micros) o->micros = 1;
    if (o->micro < 0 || o->micros < 1 || o->micro >= o->micros)
        return mr_fail(err, MR_EINVAL, "micro = %d, micros = %d: micro counts from 0 to micros − 1", o->micro,
                       o->micros);
    if (!isfinite(o->scale)) return mr_fail(err, MR_EINVAL, "scale: is not a finite number");
    if (!(o->progress >= 0 && o->progress <= 1))
        return mr_fail(err, MR_EINVAL, "progress = %g: must lie between 0 and 1", o->progress);
    return 0;
}

/* The state that rows continue from; NULL without carry. With another B than before they start from the beginning. */
static int take_carried(mr_net *net, int B, int carry, mr_state **out, mr_error *err)
{
    mr_state *s = &net->carried;
    mr_dev *dev = mr_model_dev(net->owner);
    *out = NULL;
    if (!carry) return 0;
    if (s->B != B) {
        dev->release(dev, s->reals);
        *s = (mr_state){.model = net->owner, .B = B};
        s->reals = dev->alloc(dev, (size_t)B * net->state_reals * dev->real_size);
        if (!s->reals) return s->B = 0, mr_no_memory(err, "the carried state");
    }
    s->model = net->owner;
    *out = s;
    return 0;
}

void mr_net_forget_carry(mr_net *net)
{
    mr_lease lease;
    if (mr_lease_begin_exclusive(&lease, net, NULL)) return;
    net->carried.under_way = 0;
    mr_lease_end(&lease, 0, NULL);
}

/* ---- a step ---- */

static int not_finite(mr_net *net, const mr_batch *batch, mr_error *err)
{
    char where[128] = "head (loss)";
    net->carried.under_way = 0; /* the step may have left NaN in it */
    mr_model_find_nonfinite(net->owner, batch, where, sizeof where);
    return mr_fail(err, MR_ENONFINITE,
                   "step %lld: a number became NaN or infinite in %s; nothing was updated; lower lr or clip",
                   (long long)net->steps + 1, where);
}

/* After the last micro-batch of a step. Like the device, it decides by the gradient's norm whether the update was done:
 * a loss may overflow where the gradient does not. */
static int finish_step(mr_net *net, const mr_step *step, mr_result *result, mr_error *err)
{
    mr_dev *dev = mr_model_dev(net->owner);
    const double norm = mr_model_grad_norm(net->owner);
    int status = dev->sync(dev, err);
    if (status) return status;
    if (!isfinite(norm)) return not_finite(net, &net->last_batch, err);
    pthread_mutex_lock(&net->lock);
    net->steps++;
    pthread_mutex_unlock(&net->lock);
    return mr_result_write(result, net, net->sums, net->steps, norm, step->lr, err);
}

/* Micro-batches must come in order, because gradients add up from the first one. Gradients of the caller's own loss
 * must not be discarded by a step in between. */
static int check_order(const mr_net *net, const mr_learn_options *o, const mr_micro *w, mr_error *err)
{
    if (!net->fresh_grads)
        return mr_fail(err, MR_EINVAL,
                       "mr_net_backward has added gradients: call mr_net_update or mr_net_drop_gradients first");
    if (w->micro < w->first || w->micro >= w->end)
        return mr_fail(err, MR_EINVAL, "micro = %d, micros = %d: is not one of this rank's; mr_rank_micros tells them",
                       o->micro, o->micros);
    if (w->micro == w->first || (o->micro == net->next_micro && o->micros == net->micros)) return 0;
    return mr_fail(err, MR_EINVAL, "micro = %d, micros = %d: micro = %d of the same step must come directly before it",
                   o->micro, o->micros, o->micro - 1);
}

/* The sums over earlier micro-batches are kept in the net, because a larger batch may replace the device's memory. */
static void begin_micro(mr_net *net, const mr_micro *w)
{
    if (w->micro != w->first) mr_model_zero_stats(net->owner);
    else memset(net->sums, 0, sizeof net->sums);
    net->next_micro = w->micro == w->end - 1 ? 0 : w->micro + 1;
    net->micros = w->micros;
    net->fresh_grads = 1;
}

static void end_micro(mr_net *net, const mr_micro *w)
{
    double stats[MR_STATS];
    mr_model_stats(net->owner, stats);
    if (mr_has_ranks(net)) memcpy(net->micro_sums[w->micro - w->first], stats, sizeof stats);
    else
        for (int i = 0; i < MR_STATS; i++) net->sums[i] += stats[i];
}

/* Micro-batches are added up in a tree, unless the net continues a run of before there was one. */
static int learn_micro(mr_net *net, const mr_batch *batch, mr_state *carried, const mr_step *step, double scale,
                       const mr_micro *w, mr_error *err)
{
    if (net->train.gradient_sum == MR_SUM_TREE && (w->micros > 1 || mr_has_ranks(net)))
        return mr_model_learn_micro(net->owner, batch, carried, step, scale, w, err);
    mr_model_learn(net->owner, batch, carried, step, scale, w->micro == 0, w->micro == w->micros - 1);
    return 0;
}

/* What several ranks cannot do together. */
static int check_ranks(mr_net *net, const mr_learn_options *o, mr_error *err)
{
    if (!mr_has_ranks(net)) return 0;
    const int groups = mr_context_ranks(net->ctx) / net->ctx->cut;
    if (o->micros < groups)
        return mr_fail(err, MR_EINVAL, "%d micro-batches for %d %s: there must be one for each at least", o->micros,
                       groups, net->ctx->cut > 1 ? "groups of ranks" : "ranks");
    if (net->train.gradient_sum != MR_SUM_TREE)
        return mr_fail(err, MR_ECONFIG,
                       "gradient-sum = order: adds micro-batches up one after another, which several ranks cannot");
    if (o->carry && groups > 1)
        return mr_fail(err, MR_EINVAL, "carry: rows of several ranks do not continue from each other");
    return 0;
}

static int learn_part(mr_net *net, const mr_batch *batch, const mr_learn_options *o, const mr_micro *w,
                      mr_result *result, mr_error *err)
{
    mr_state *carried;
    mr_step step = mr_step_values(&net->train, net->steps + 1, o->progress);
    int status = have_plan(net, batch->B, batch->T, err);
    if (!status) status = take_carried(net, batch->B, o->carry, &carried, err);
    if (!status) status = mr_keep_micro_sums(net, w->end - w->first, err);
    if (status) return status;
    const double scale = o->scale != 0 ? o->scale : 1 / ((double)batch->counted * (double)o->micros);
    step.micro = (uint32_t)o->micro;
    net->last_batch = *batch;
    begin_micro(net, w);
    status = learn_micro(net, batch, carried, &step, scale, w, err);
    if (!status) status = mr_cut_status(net, err);
    if (status) return status;
    end_micro(net, w);
    if (w->micro != w->end - 1) return 0;
    status = mr_gather_sums(net, o->micros, err);
    return status ? status : finish_step(net, &step, result, err);
}

static int learn(mr_net *net, const mr_batch *batch, const mr_learn_options *o, mr_result *result, mr_error *err)
{
    mr_batch part = {0};
    mr_micro w = {.micro = o->micro, .micros = o->micros};
    mr_rank_micros(net->ctx, o->micros, &w.first, &w.end);
    int status = check_ranks(net, o, err);
    if (!status) status = check_order(net, o, &w, err);
    if (!status) status = mr_cut_batch(net, batch, &part, err);
    if (status) return status;
    status = learn_part(net, &part, o, &w, result, err);
    mr_cut_batch_free(net, &part);
    return status;
}

int mr_net_learn(mr_net *net, const mr_batch *batch, const mr_learn_options *options, mr_result *result, mr_error *err)
{
    mr_checked_batch checked = {0};
    mr_lease lease;
    mr_learn_options o;
    int status = take_options(&o, options, err);
    if (!status) status = mr_result_check(result, err);
    if (!status) status = mr_checked_batch_take(&checked, net, batch, 1, err);
    if (!status) status = mr_lease_begin_exclusive(&lease, net, err);
    if (!status) status = mr_lease_end(&lease, learn(net, &checked.batch, &o, result, err), err);
    mr_checked_batch_free(&checked, net);
    return status;
}

int mr_net_train(mr_net *net, const mr_batch *batch, mr_result *result, mr_error *err)
{
    return mr_net_learn(net, batch, NULL, result, err);
}

/* ---- the caller's own loss ---- */

static int keep(mr_net *net, const mr_batch *batch, const mr_learn_options *o, float *scores, size_t rows,
                mr_error *err)
{
    mr_state *carried;
    mr_step step = mr_step_values(&net->train, net->steps + 1, 0);
    int status = have_plan(net, batch->B, batch->T, err);
    if (!status) status = take_carried(net, batch->B, o->carry, &carried, err);
    const int chunk = mr_model_recompute(net->owner).chunk;
    if (!status && chunk && batch->T > chunk)
        status = mr_fail(err, MR_ECONFIG,
                         "recompute = chunks: a loss of your own needs the scores of all tokens at once; set it to "
                         "none or blocks");
    if (status) return status;
    step.micro = (uint32_t)o->micro;
    mr_model_set_step(net->owner, &step);
    mr_model_forward(net->owner, batch, carried, 1);
    mr_model_logits(net->owner, scores, 0, rows);
    net->last_batch = net->kept.batch = *batch;
    net->kept.rows = rows;
    return 0;
}

int mr_net_keep_forward(mr_net *net, const mr_batch *batch, const mr_learn_options *options, float *scores,
                        size_t capacity, mr_error *err)
{
    mr_checked_batch checked;
    mr_lease lease;
    mr_learn_options o;
    int status = take_options(&o, options, err);
    if (!status) status = mr_check_alone(net, "mr_net_keep_forward", err);
    if (!status) status = mr_checked_batch_take(&checked, net, batch, 0, err);
    const size_t rows = status ? 0 : mr_batch_rows(&checked.batch, net->interface.head);
    if (!status) status = mr_check_capacity(scores, capacity, rows * (size_t)net->interface.outputs, "scores", err);
    if (!status) status = mr_lease_begin_exclusive(&lease, net, err);
    if (status) return status;
    return mr_lease_hold(&lease, keep(net, &checked.batch, &o, scores, rows, err), err);
}

static int is_kept(mr_net *net)
{
    pthread_mutex_lock(&net->lock);
    const int yes = net->kept.holding;
    pthread_mutex_unlock(&net->lock);
    return yes;
}

int mr_net_backward(mr_net *net, const float *dscores, size_t count, mr_error *err)
{
    mr_lease lease;
    if (mr_check_alone(net, "mr_net_backward", err)) return MR_EINVAL;
    if (!is_kept(net)) return mr_fail(err, MR_EINVAL, "no forward was kept: call mr_net_keep_forward first");
    const size_t wanted = net->kept.rows * (size_t)net->interface.outputs;
    if (count != wanted || !dscores)
        return mr_fail(err, MR_EINVAL, "dscores: has %zu elements, but the kept forward has %zu scores",
                       dscores ? count : 0, wanted);
    for (size_t i = 0; i < count; i++)
        if (!isfinite(dscores[i]))
            return mr_fail(err, MR_EINVAL, "dscores[%zu] is %s", i, isnan(dscores[i]) ? "NaN" : "infinite");
    if (!mr_lease_resume(&lease, net))
        return mr_fail(err, MR_EINVAL,
                       "another thread has already called mr_net_backward or mr_net_drop for this forward");
    if (net->fresh_grads) mr_model_zero_grads(net->owner);
    net->fresh_grads = net->next_micro = 0;
    mr_model_put_dlogits(net->owner, dscores, net->kept.rows);
    mr_model_backward(net->owner, &net->kept.batch, NULL, NULL);
    return mr_lease_end(&lease, 0, err);
}

void mr_net_drop(mr_net *net)
{
    mr_lease lease;
    if (mr_lease_resume(&lease, net)) mr_lease_end(&lease, 0, NULL);
}

void mr_net_drop_gradients(mr_net *net)
{
    mr_lease lease;
    if (mr_lease_begin_exclusive(&lease, net, NULL)) return;
    net->fresh_grads = 1;
    mr_lease_end(&lease, 0, NULL);
}

static int update(mr_net *net, mr_result *result, mr_error *err)
{
    const mr_step step = mr_step_values(&net->train, net->steps + 1, 0);
    const double stats[MR_STATS] = {0};
    if (net->fresh_grads) return mr_fail(err, MR_EINVAL, "there are no gradients: call mr_net_backward first");
    mr_model_set_step(net->owner, &step);
    mr_model_update(net->owner);
    const double norm = mr_model_grad_norm(net->owner);
    net->fresh_grads = 1;
    if (!isfinite(norm)) return not_finite(net, &net->last_batch, err);
    pthread_mutex_lock(&net->lock);
    net->steps++;
    pthread_mutex_unlock(&net->lock);
    /* the caller has loss and accuracy: NaN here */
    return mr_result_write(result, net, stats, net->steps, norm, step.lr, err);
}

int mr_net_update(mr_net *net, mr_result *result, mr_error *err)
{
    mr_lease lease;
    int status = mr_result_check(result, err);
    if (!status) status = mr_lease_begin_exclusive(&lease, net, err);
    return status ? status : mr_lease_end(&lease, update(net, result, err), err);
}

/* ---- finding NaN ---- */

static int find_in_vector(mr_net *net, mr_vector which, const char *what, float *room, char *where, size_t capacity)
{
    const char *name;
    mr_model_get(net->owner, which, room);
    if (!mr_params_first_nonfinite(mr_model_params(net->owner), room, &name)) return 0;
    mr_model_name_place(where, capacity, name, what);
    return 1;
}

int mr_net_find_nonfinite(mr_net *net, char *where, size_t capacity)
{
    mr_lease lease;
    if (!capacity) return 0;
    *where = 0;
    float *room = mr_alloc_with(&net->ctx->allocator, mr_model_params(net->owner)->total, sizeof *room);
    if (!room || mr_lease_begin_exclusive(&lease, net, NULL)) return mr_free_with(&net->ctx->allocator, room), 0;
    int found = find_in_vector(net, MR_WEIGHTS, "weights", room, where, capacity);
    const int trains = mr_model_fits(net->owner, 1, 1, 1);
    const int moments = trains && mr_model_has_whole(net->owner, MR_MOMENT1);
    if (!found && moments) found = find_in_vector(net, MR_MOMENT1, "first moment", room, where, capacity);
    if (!found && moments) found = find_in_vector(net, MR_MOMENT2, "second moment", room, where, capacity);
    if (!found && net->last_batch.B) found = mr_model_find_nonfinite(net->owner, &net->last_batch, where, capacity);
    mr_lease_end(&lease, 0, NULL);
    mr_free_with(&net->ctx->allocator, room);
    return found;
}
