#include "train/evaluate.h"

/* The batches of a test set, one group after another. */
typedef struct walk {
    const mr_task *task;
    mr_batch *batch;
    mr_eval_tick *tick;
    void *user;
    const mr_stop *stop;
    int next, group; /* the next batch, and the group that is being scored */
} walk;

static int group_of(const mr_task *task, int index)
{
    return task->type->eval_group ? task->type->eval_group(task, index) : 0;
}

static int next_batch(void *arg, const mr_batch **batch)
{
    walk *w = arg;
    if (w->next && w->tick) w->tick(w->user, w->next, w->task->eval_batches);
    if (w->next == w->task->eval_batches || group_of(w->task, w->next) != w->group) return 0;
    if (w->stop && *w->stop) return MR_ESTOPPED;
    w->task->type->eval_batch(w->task, w->next++, w->batch);
    w->batch->counted = 0; /* the library looks it through */
    *batch = w->batch;
    return 1;
}

int mr_evaluate(mr_net *net, const mr_task *task, mr_batch *batch, mr_eval_tick *tick, void *user, const mr_stop *stop,
                mr_score *score, mr_error *err)
{
    walk w = {.task = task, .batch = batch, .tick = tick, .user = user, .stop = stop};
    int groups = 0;
    *score = (mr_score){0};
    for (; w.next < task->eval_batches; groups++) {
        mr_result result = MR_RESULT;
        w.group = group_of(task, w.next);
        int status = mr_net_evaluate_all(net, next_batch, &w, &result, err);
        if (status) return status;
        score->rows += result.rows;
        score->loss += result.loss;
        score->accuracy += result.accuracy;
    }
    score->loss /= groups;
    score->accuracy /= groups;
    return 0;
}
