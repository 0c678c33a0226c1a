/* Whole sequences without training: scores, losses, evaluations over many batches. */
#include "api/api.h"

#include <math.h>
#include <string.h>

int mr_net_forward(mr_net *net, const mr_batch *batch, float *scores, size_t capacity, mr_error *err)
{
    mr_checked_batch checked;
    mr_lease lease;
    int status = mr_checked_batch_take(&checked, net, batch, 0, err);
    const size_t rows = status ? 0 : mr_batch_rows(&checked.batch, net->interface.head);
    if (!status) status = mr_check_capacity(scores, capacity, rows * (size_t)net->interface.outputs, "scores", err);
    if (!status) status = mr_lease_begin(&lease, net, checked.batch.B, checked.batch.T, err);
    if (status) return status;
    mr_model_forward(lease.runner->model, &checked.batch, NULL, 0);
    mr_model_logits(lease.runner->model, scores, 0, rows);
    return mr_lease_end(&lease, 0, err);
}

int mr_net_losses(mr_net *net, const mr_batch *batch, float *losses, size_t capacity, mr_error *err)
{
    mr_checked_batch checked;
    mr_lease lease;
    int status = mr_checked_batch_take(&checked, net, batch, 1, err);
    const size_t rows = status ? 0 : mr_batch_rows(&checked.batch, net->interface.head);
    if (!status) status = mr_check_capacity(losses, capacity, rows, "losses", err);
    if (!status) status = mr_lease_begin(&lease, net, checked.batch.B, checked.batch.T, err);
    if (!status) {
        mr_model_forward(lease.runner->model, &checked.batch, NULL, 0);
        mr_model_loss(lease.runner->model, &checked.batch, 0);
        mr_model_row_loss(lease.runner->model, losses, rows);
        status = mr_lease_end(&lease, 0, err);
    }
    mr_checked_batch_free(&checked, net);
    return status;
}

/* ---- evaluation ---- */

/* An evaluation in progress. Its sums are on the device, in the memory of the model that runs it. */
typedef struct evaluation {
    mr_net *net;
    mr_lease lease;
    mr_model *model;
    double sums[MR_STATS]; /* over the batches before that memory last grew */
} evaluation;

/* If memory was reserved for scoring, it is the owner's, which training uses too: there may be no room for both. */
static int begin(evaluation *e, mr_net *net, const mr_batch *first, mr_error *err)
{
    *e = (evaluation){.net = net};
    pthread_mutex_lock(&net->lock);
    const int exclusive = net->reserved || net->sequence; /* a runner has whole sequences */
    pthread_mutex_unlock(&net->lock);
    int status = exclusive ? mr_lease_begin_exclusive(&e->lease, net, err)
                           : mr_lease_begin(&e->lease, net, first->B, first->T, err);
    if (status) return status;
    e->model = exclusive ? net->owner : e->lease.runner->model;
    if (mr_model_fits(e->model, first->B, first->T, 0)) mr_model_zero_stats(e->model);
    return 0;
}

static void take_sums(evaluation *e)
{
    double stats[MR_STATS];
    mr_model_stats(e->model, stats);
    for (int i = 0; i < MR_STATS; i++) e->sums[i] += stats[i];
}

/* Makes room for a batch that is larger than all before it. */
static int grow(evaluation *e, const mr_batch *batch, int first, mr_error *err)
{
    if (mr_model_fits(e->model, batch->B, batch->T, 0)) return 0;
    if (!first) take_sums(e);
    int status = mr_model_plan(e->model, batch->B, batch->T, 0, err);
    if (!status) mr_model_zero_stats(e->model);
    return status;
}

static int add(evaluation *e, const mr_batch *batch, int first, mr_error *err)
{
    int status = grow(e, batch, first, err);
    if (status) return status;
    mr_model_score(e->model, batch);
    if (e->model == e->net->owner) e->net->last_batch = *batch;
    return 0;
}

/* A batch that is being scored, and this rank's part of it. */
typedef struct taken {
    mr_checked_batch whole;
    mr_batch part;
} taken;

static void give_back(taken *t, const mr_net *net)
{
    mr_cut_batch_free(net, &t->part);
    mr_checked_batch_free(&t->whole, net);
    *t = (taken){.part = {0}};
}

/* Returns 1 with the next batch, 0 when there is none, or a negative status. */
static int take_next(taken *t, const mr_net *net, mr_next_batch *next, void *user, mr_error *err)
{
    const mr_batch *batch = NULL;
    int more = next(user, &batch);
    *t = (taken){.part = {0}};
    if (more < 0) return mr_fail(err, more, "the caller stopped the evaluation");
    if (!more) return 0;
    int status = mr_checked_batch_take(&t->whole, net, batch, 1, err);
    if (!status) status = mr_cut_batch(net, &t->whole.batch, &t->part, err);
    return status ? status : 1;
}

static int sum_all(mr_net *net, mr_next_batch *next, void *user, double sums[MR_STATS], mr_error *err)
{
    taken t;
    evaluation e;
    int more = take_next(&t, net, next, user, err);
    if (more == 0) return mr_fail(err, MR_EINVAL, "there is no batch to evaluate");
    int status = more < 0 ? more : begin(&e, net, &t.part, err);
    if (status) return give_back(&t, net), status;
    for (int first = 1; !status && more > 0; first = 0) {
        status = add(&e, &t.part, first, err);
        give_back(&t, net);
        if (!status) more = take_next(&t, net, next, user, err);
        if (more < 0) status = more;
    }
    if (!status) take_sums(&e);
    if (!status) status = mr_cut_status(net, err);
    give_back(&t, net);
    memcpy(sums, e.sums, sizeof e.sums);
    return mr_lease_end(&e.lease, status, err);
}

int mr_net_evaluate_all(mr_net *net, mr_next_batch *next, void *user, mr_result *result, mr_error *err)
{
    double sums[MR_STATS];
    int status = mr_result_check(result, err);
    if (!status) status = mr_check_whole(net, "mr_net_evaluate_all", err);
    if (!status) status = sum_all(net, next, user, sums, err);
    return status ? status : mr_net_sums_result(net, sums, result, err);
}

static int give_one(void *user, const mr_batch **batch)
{
    const mr_batch **left = user;
    *batch = *left;
    *left = NULL;
    return *batch != NULL;
}

_Static_assert((int)MR_SUMS == (int)MR_STATS, "the sums are the device's");

int mr_net_evaluate_sums(mr_net *net, const mr_batch *batch, double sums[MR_SUMS], mr_error *err)
{
    return sum_all(net, give_one, &batch, sums, err);
}

int mr_net_sums_result(const mr_net *net, const double sums[MR_SUMS], mr_result *result, mr_error *err)
{
    return mr_result_write(result, net, sums, mr_net_steps(net), 0, 0, err); /* others may be training */
}

int mr_net_evaluate(mr_net *net, const mr_batch *batch, mr_result *result, mr_error *err)
{
    return mr_net_evaluate_all(net, give_one, &batch, result, err);
}
