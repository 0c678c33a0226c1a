/* Walks over the batches of a test set, or over some of them, and takes the mean of their scores. */
#include "train/evaluate.h"

#include "core/clock.h"
#include "core/mem.h"

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

/* Adds the result of a group. */
static void add_group(mr_score *score, const mr_result *result)
{
    score->rows += result->rows;
    score->loss += result->loss;
    score->accuracy += result->accuracy;
}

static void finish(mr_score *score, const walk *w, int groups)
{
    score->loss /= groups;
    score->accuracy /= groups;
    score->batches = w->next;
    score->out_of_time = w->out_of_time;
}

/* ---- by several ranks: each group scores one batch of a round, and the sums are added in the order of the batches and
 * of a group's ranks ---- */

typedef struct round_result {
    double sums[MR_SUMS];
    int stop, out_of_time;
} round_result;

static int score_one(mr_net *net, const walk *w, int k, round_result *mine, mr_error *err)
{
    if (k >= w->count) return 0;
    w->task->type->eval_batch(w->task, place(w, k), w->batch);
    w->batch->counted = 0;
    return mr_net_evaluate_sums(net, w->batch, mine->sums, err);
}

/* The batches from w->next on, one for each rank. */
static int run_round(mr_net *net, walk *w, round_result *all, mr_error *err)
{
    const mr_eval_options *o = w->options;
    mr_crew *crew = o->crew;
    round_result mine = {.stop = 0};
    if (o->tick) o->tick(o->user, w->next, w->count);
    int status = mr_crew_agree(crew, score_one(net, w, w->next + crew->rank / crew->cut, &mine, err), err);
    if (status) return status;
    mine.stop = o->stop && *o->stop;
    mine.out_of_time = o->deadline > 0 && mr_seconds() >= o->deadline;
    status = mr_crew_gather(crew, &mine, all, sizeof mine, err);
    for (int q = 0; !status && q < crew->size; q++)
        if (all[q].stop) status = mr_fail(err, MR_ESTOPPED, "stopped");
    return status;
}

typedef struct group_sums {
    double sums[MR_SUMS]; /* of the group that is being added up */
    int group, count;     /* which it is; how many were added up before */
} group_sums;

static int end_group(group_sums *g, const mr_net *net, mr_score *score, mr_error *err)
{
    mr_result result = MR_RESULT;
    int status = mr_net_sums_result(net, g->sums, &result, err);
    if (status) return status;
    add_group(score, &result);
    *g = (group_sums){.count = g->count + 1};
    return 0;
}

static int add_batch(group_sums *g, const mr_net *net, const walk *w, int k, const round_result *parts, mr_score *score,
                     mr_error *err)
{
    const int cut = w->options->crew->cut;
    const int group = group_of(w->task, place(w, k));
    int status = k && group != g->group ? end_group(g, net, score, err) : 0;
    g->group = group;
    for (int q = 0; q < cut; q++)
        for (int i = 0; i < MR_SUMS; i++) g->sums[i] += parts[q].sums[i];
    return status;
}

static int evaluate_together(mr_net *net, walk *w, mr_score *score, mr_error *err)
{
    const int ranks = w->options->crew->size, cut = w->options->crew->cut;
    group_sums g = {.count = 0};
    round_result *all = mr_alloc((size_t)ranks, sizeof *all);
    int status = all ? 0 : mr_no_memory(err, "an evaluation");
    while (!status && w->next < w->count && !w->out_of_time) {
        status = run_round(net, w, all, err);
        for (int q = 0; !status && q < ranks && w->next < w->count; q += cut, w->next++)
            status = add_batch(&g, net, w, w->next, &all[q], score, err);
        w->out_of_time = !status && w->next < w->count && all[0].out_of_time;
    }
    if (!status) status = end_group(&g, net, score, err);
    if (!status) finish(score, w, g.count);
    mr_free(all);
    return status;
}

int mr_evaluate(mr_net *net, const mr_task *task, mr_batch *batch, const mr_eval_options *options, mr_score *score,
                mr_error *err)
{
    walk w = {.task = task, .options = options, .batch = batch, .count = mr_eval_batches(task, options->tokens)};
    int groups = 0;
    *score = (mr_score){0};
    if (options->crew && options->crew->size > 1) return evaluate_together(net, &w, score, err);
    for (; w.next < w.count && !w.out_of_time; groups++) {
        mr_result result = MR_RESULT;
        w.group = group_of(task, place(&w, w.next));
        w.in_group = 0;
        int status = mr_net_evaluate_all(net, next_batch, &w, &result, err);
        if (status) return status;
        add_group(score, &result);
    }
    finish(score, &w, groups);
    return 0;
}
