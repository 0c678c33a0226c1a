#include "train/evaluate.h"

#include <math.h>

/* Adds the means over the batches since the last call to the score. */
static void end_group(mr_model *model, const mr_task *task, mr_score *score)
{
    double stats[MR_STATS];
    mr_model_stats(model, stats);
    mr_model_zero_stats(model);
    score->rows += (int64_t)stats[MR_STAT_COUNT];
    score->loss += stats[MR_STAT_LOSS] / stats[MR_STAT_COUNT];
    score->accuracy += task->face.loss == MR_LOSS_XENT ? stats[MR_STAT_CORRECT] / stats[MR_STAT_COUNT] : NAN;
}

int mr_evaluate(mr_model *model, const mr_task *task, mr_batch *batch, mr_eval_tick *tick, void *user,
                const mr_stop *stop, mr_score *score, mr_error *err)
{
    int groups = 1, group = 0;
    *score = (mr_score){0};
    mr_model_zero_stats(model);
    for (int i = 0; i < task->eval_batches; i++) {
        if (stop && *stop) return mr_fail(err, MR_ESTOPPED, "stopped during an evaluation");
        task->type->eval_batch(task, i, batch);
        if (i > 0 && batch->group != group) {
            end_group(model, task, score);
            groups++;
        }
        group = batch->group;
        mr_model_forward(model, batch, NULL, 0);
        mr_model_loss(model, batch, 0);
        if (tick) tick(user, i + 1, task->eval_batches);
    }
    end_group(model, task, score);
    score->loss /= groups;
    score->accuracy /= groups;
    return mr_model_dev(model)->sync(mr_model_dev(model), err);
}
