/* What the training loop does last: the best model scored on the whole test set; and on a full disk. */
#include "train/trainer.h"

#include "core/clock.h"
#include "core/file.h"
#include "core/mem.h"
#include "train/recompute.h"
#include "train/run_folder.h"

#include <math.h>
#include <stdio.h>

int mr_trainer_short_of_disk(const mr_trainer *t, mr_error *err)
{
    const mr_error first = *err;
    mr_error second;
    char model[64] = "there is no best model yet";
    const int later = mr_checkpoint_keeps_later(&t->cp);
    const int saved = t->cp.best_step && !mr_checkpoint_save_best(&t->cp, t->dir, t->net, &second);
    if (later) snprintf(model, sizeof model, "the later model (step %lld) is kept", (long long)t->cp.later_model);
    else if (saved) snprintf(model, sizeof model, "the best model (step %lld) is saved", (long long)t->cp.best_step);
    else if (t->cp.best_step) snprintf(model, sizeof model, "the best model could not be saved either");
    if (saved && !mr_run_has_state(t->dir))
        return mr_fail(err, MR_EIO,
                       "%.600s; %s, but no state to resume from; once there is room, train further from it with --init "
                       "%.150s --out ANOTHER, or remove it to start over",
                       first.text, model, t->dir);
    return mr_fail(err, MR_EIO, "%.600s; %s; once it can be written, %s: minrnn train --out %.200s --resume",
                   first.text, model, mr_run_has_state(t->dir) ? "resume" : "start again (no state was saved yet)",
                   t->dir);
}

/* ---- the end ---- */

/* How much of the test set the best evaluation scored. */
static void count_scored(const mr_trainer *t, mr_train_result *r)
{
    const mr_task *task = t->recipe->task;
    mr_shape shapes[2];
    mr_task_shapes(task, shapes);
    int64_t batches = t->best_batches ? t->best_batches : mr_eval_batches(task, t->set->eval_tokens);
    const int64_t tokens = batches * shapes[1].B * shapes[1].T;
    r->in_tokens = task->test_tokens > 0;
    r->test_size = r->in_tokens ? task->test_tokens : task->eval_batches;
    r->scored = !r->in_tokens ? batches : tokens < task->test_tokens ? tokens : task->test_tokens;
}

/* The best model, read back from its file. What training used is freed before, to make room. */
static int score_best(mr_trainer *t, mr_score *score, mr_error *err)
{
    mr_net *net = NULL;
    char *path = mr_path_join(t->dir, "model.safetensors");
    mr_prefetch_free(t->batches);
    mr_net_free(t->net);
    t->batches = NULL;
    t->net = NULL;
    int status = path ? mr_net_open(t->ctx, path, &net, err) : mr_no_memory(err, "the best model");
    if (!status) status = mr_reserve_scores(t->recipe, net, err);
    if (!status) status = mr_trainer_score(t, net, 0, t->crew->cut > 1 ? t->crew : NULL, score, err);
    mr_net_free(net);
    mr_free(path);
    return status;
}

/* Rank 0 alone reads the file that it wrote, unless it takes several ranks to score a sequence. Is there time? Without
 * an evaluation before, as in a run that was complete when it was resumed, nobody knows, and it is tried. */
static int may_score(mr_trainer *t, const mr_train_result *r, int *may, mr_error *err)
{
    const double each = isnan(t->batch_seconds) ? 0 : t->batch_seconds;
    *may =
        r->end != MR_END_STOPPED && mr_seconds() + each * t->recipe->task->eval_batches <= mr_run_deadline(&t->clock);
    return t->crew->cut > 1 ? mr_crew_follow(t->crew, may, sizeof *may, NULL, 0, err) : 0;
}

int mr_trainer_score_whole(mr_trainer *t, mr_train_result *r, mr_error *err)
{
    mr_score score;
    int may = 0;
    count_scored(t, r);
    if (!mr_trainer_writes(t) && t->crew->cut == 1) return 0;
    if (r->scored == r->test_size || !r->best_step) return 0;
    if (mr_checkpoint_keeps_later(&t->cp)) return r->whole = MR_WHOLE_LATER, 0;
    r->whole = r->end == MR_END_STOPPED ? MR_WHOLE_STOPPED : MR_WHOLE_NO_TIME;
    int status = may_score(t, r, &may, err);
    if (status || !may) return status;
    status = score_best(t, &score, err);
    if (status == MR_ESTOPPED) return r->whole = MR_WHOLE_STOPPED, 0;
    if (status || score.out_of_time) return status;
    r->whole = MR_WHOLE_AT_END;
    r->scored = r->test_size;
    r->best_loss = score.loss;
    r->best_accuracy = score.accuracy;
    const mr_log_entry entry = {.kind = MR_LOG_WHOLE,
                                .step = r->best_step,
                                .loss = score.loss,
                                .accuracy = score.accuracy,
                                .seconds = mr_trainer_seconds(t)};
    status = mr_trainer_log(t, &entry, err);
    return status || !mr_trainer_writes(t) ? status : mr_runlog_flush(t->log, 1, err);
}
