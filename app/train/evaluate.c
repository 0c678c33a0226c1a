/* Walks over the batches of a test set, or over some of them, and takes the mean of their scores. */
#include "train/evaluate.h"

#include "core/clock.h"

/* The batches that are scored, one group after another. */
typedef struct walk {
    const mr_task *task;
    const mr_eval_options *options;
    mr_batch *batch;
    int count;       /* of the batches to score, … */
    int next, group; /* … the next one, and the group that is being scored, … */
    int in_group;    /* batches of this group scored so far */
    int out_of_time;
} walk;

int mr_eval_batches(const mr_task *task, int64_t tokens)
{
    mr_shape shapes[2];
    mr_task_shapes(task, shapes);
    const int64_t each = (int64_t)shapes[1].B * shapes[1].T, wanted = tokens / each + (tokens % each > 0);
    return tokens > 0 && wanted < task->eval_batches ? (int)wanted : task->eval_batches;
}

/* The middles of `count` equal spans of the test set; where all are scored, one after another. */
static int place(const walk *w, int k)
{
    return (int)((2 * (int64_t)k + 1) * w->task->eval_batches / (2 * (int64_t)w->count));
}

static int group_of(const mr_task *task, int index)
{
    return task->type->eval_group ? task->type->eval_group(task, index) : 0;
}

static int next_batch(void *arg, const mr_batch **batch)
{
    walk *w = arg;
    const mr_eval_options *o = w->options;
    if (o->tick) o->tick(o->user, w->next, w->count);
    if (w->in_group && w->next < w->count && o->deadline > 0 && mr_seconds() >= o->deadline) w->out_of_time = 1;
    if (w->next == w->count || w->out_of_time || group_of(w->task, place(w, w->next)) != w->group) return 0;
    if (o->stop && *o->stop) return MR_ESTOPPED;
    w->task->type->eval_batch(w->task, place(w, w->next++), w->batch);
    w->batch->counted = 0; /* the library checks it */
    w->in_group++;
    *batch = w->batch;
    return 1;
}

int mr_evaluate(mr_net *net, const mr_task *task, mr_batch *batch, const mr_eval_options *options, mr_score *score,
                mr_error *err)
{
    walk w = {.task = task, .options = options, .batch = batch, .count = mr_eval_batches(task, options->tokens)};
    int groups = 0;
    *score = (mr_score){0};
    for (; w.next < w.count && !w.out_of_time; groups++) {
        mr_result result = MR_RESULT;
        w.group = group_of(task, place(&w, w.next));
        w.in_group = 0;
        int status = mr_net_evaluate_all(net, next_batch, &w, &result, err);
        if (status) return status;
        score->rows += result.rows;
        score->loss += result.loss;
        score->accuracy += result.accuracy;
    }
    score->loss /= groups;
    score->accuracy /= groups;
    score->batches = w.next;
    score->out_of_time = w.out_of_time;
    return 0;
}
