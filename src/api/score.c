/* Whole sequences through a net without training: scores, losses, evaluations over many batches. */
#include "api/api.h"

#include <math.h>

int mr_net_forward(mr_net *net, const mr_batch *batch, float *scores, size_t capacity, mr_error *err)
{
    mr_given g;
    mr_turn turn;
    int status = mr_given_take(&g, net, batch, 0, err);
    const size_t rows = status ? 0 : mr_batch_rows(&g.batch, net->face.head);
    if (!status) status = mr_check_room(scores, capacity, rows * (size_t)net->face.outputs, "scores", err);
    if (!status) status = mr_turn_begin(&turn, net, g.batch.B, g.batch.T, err);
    if (status) return status;
    mr_model_forward(turn.runner->model, &g.batch, NULL, 0);
    mr_model_logits(turn.runner->model, scores, 0, rows);
    return mr_turn_end(&turn, 0, err);
}

int mr_net_losses(mr_net *net, const mr_batch *batch, float *losses, size_t capacity, mr_error *err)
{
    mr_given g;
    mr_turn turn;
    int status = mr_given_take(&g, net, batch, 1, err);
    const size_t rows = status ? 0 : mr_batch_rows(&g.batch, net->face.head);
    if (!status) status = mr_check_room(losses, capacity, rows, "losses", err);
    if (!status) status = mr_turn_begin(&turn, net, g.batch.B, g.batch.T, err);
    if (!status) {
        mr_model_forward(turn.runner->model, &g.batch, NULL, 0);
        mr_model_loss(turn.runner->model, &g.batch, 0);
        mr_model_row_loss(turn.runner->model, losses, rows);
        status = mr_turn_end(&turn, 0, err);
    }
    mr_given_free(&g, net);
    return status;
}

/* ---- evaluation ---- */

/* The sums of one evaluation lie on the device, in the plan of the model that runs it. */
typedef struct evaluation {
    mr_net *net;
    mr_turn turn;
    mr_model *model;
    double sums[MR_STATS]; /* of what ran before the plan was made anew */
} evaluation;

/* Where memory was reserved for scoring, that of training is used: a run has no room for both. */
static int begin(evaluation *e, mr_net *net, const mr_batch *first, mr_error *err)
{
    *e = (evaluation){.net = net};
    pthread_mutex_lock(&net->lock);
    const int alone = net->reserved;
    pthread_mutex_unlock(&net->lock);
    int status =
        alone ? mr_turn_begin_alone(&e->turn, net, err) : mr_turn_begin(&e->turn, net, first->B, first->T, err);
    if (status) return status;
    e->model = alone ? net->owner : e->turn.runner->model;
    if (mr_model_fits(e->model, first->B, first->T, 0)) mr_model_zero_stats(e->model);
    return 0;
}

static void take_sums(evaluation *e)
{
    double stats[MR_STATS];
    mr_model_stats(e->model, stats);
    for (int i = 0; i < MR_STATS; i++) e->sums[i] += stats[i];
}

/* A batch that is larger than all before it. */
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
    mr_model_forward(e->model, batch, NULL, 0);
    mr_model_loss(e->model, batch, 0);
    if (e->model == e->net->owner) e->net->last = *batch;
    return 0;
}

/* 1: `g` has the next batch; 0: there is none; or a status. */
static int take_next(mr_given *g, const mr_net *net, mr_next_batch *next, void *user, mr_error *err)
{
    const mr_batch *batch = NULL;
    int more = next(user, &batch);
    if (more < 0) return mr_fail(err, more, "the evaluation was ended by its caller");
    if (!more) return 0;
    int status = mr_given_take(g, net, batch, 1, err);
    return status ? status : 1;
}

int mr_net_evaluate_all(mr_net *net, mr_next_batch *next, void *user, mr_result *result, mr_error *err)
{
    mr_given g = {0};
    evaluation e;
    int more = mr_result_check(result, err);
    if (more) return more;
    more = take_next(&g, net, next, user, err);
    if (more == 0) return mr_fail(err, MR_EINVAL, "there is no batch to evaluate");
    int status = more < 0 ? more : begin(&e, net, &g.batch, err);
    if (status) return mr_given_free(&g, net), status;
    for (int first = 1; !status && more > 0; first = 0) {
        status = add(&e, &g.batch, first, err);
        mr_given_free(&g, net);
        g = (mr_given){0};
        if (!status) more = take_next(&g, net, next, user, err);
        if (more < 0) status = more;
    }
    if (!status) take_sums(&e);
    mr_given_free(&g, net);
    if (!status) status = mr_result_give(result, net, e.sums, 0, 0, err);
    return mr_turn_end(&e.turn, status, err);
}

static int give_one(void *user, const mr_batch **batch)
{
    const mr_batch **left = user;
    *batch = *left;
    *left = NULL;
    return *batch != NULL;
}

int mr_net_evaluate(mr_net *net, const mr_batch *batch, mr_result *result, mr_error *err)
{
    return mr_net_evaluate_all(net, give_one, &batch, result, err);
}
