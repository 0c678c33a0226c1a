#include "run/evaluate.h"

#include <math.h>

int mr_evaluate(mr_model *model, const mr_task *task, mr_batch *batch, mr_eval_tick *tick, void *user,
                const volatile sig_atomic_t *stop, mr_score *score, mr_error *err)
{
    double stats[MR_STATS];
    mr_model_zero_stats(model);
    for (int i = 0; i < task->eval_batches; i++) {
        if (stop && *stop) return mr_fail(err, MR_ESTOPPED, "stopped during an evaluation");
        task->type->eval_batch(task, i, batch);
        mr_model_forward(model, batch, NULL, 0);
        mr_model_loss(model, batch, 0);
        if (tick) tick(user, i + 1, task->eval_batches);
    }
    mr_model_stats(model, stats);
    score->rows = (int64_t)stats[MR_STAT_COUNT];
    score->loss = stats[MR_STAT_LOSS] / stats[MR_STAT_COUNT];
    score->accuracy = task->face.loss == MR_LOSS_XENT ? stats[MR_STAT_CORRECT] / stats[MR_STAT_COUNT] : NAN;
    return mr_model_dev(model)->sync(mr_model_dev(model), err);
}
