/* How a run begins: its folder, its net, its log, its batches. Of several ranks, rank 0 has the folder. */
#include "train/trainer.h"

#include "core/file.h"
#include "core/mem.h"
#include "train/init.h"
#include "train/recompute.h"
#include "train/run_folder.h"

#include <stdio.h>

static int start_net(mr_trainer *t, int resume, mr_error *err)
{
    int status = mr_recipe_net(t->recipe, t->ctx, &t->net, err);
    if (!status) status = mr_reserve_run(t->recipe, t->net, err);
    if (!status && resume && mr_run_has_state(t->dir))
        status = mr_checkpoint_load(&t->cp, t->dir, t->recipe, t->net, err);
    else if (!status) status = mr_init_weights(t->recipe, t->net, err);
    t->saved_step = t->cp.step;
    return status;
}

/* A state alone is enough to continue: where its log is lost, another one begins. */
static void find_log(mr_trainer *t)
{
    char *path = mr_path_join(t->dir, "log.jsonl");
    t->log_lost = t->cp.log_offset && path && !mr_path_exists(path);
    if (t->log_lost) t->cp.log_offset = 0;
    mr_free(path);
}

/* The net, in a folder that is this run's. */
static int start_in_folder(mr_trainer *t, int resume, int begun, mr_error *err)
{
    int status = mr_make_directory(t->dir, err);
    if (!status) status = mr_lock_directory(t->dir, &t->lock, err);
    if (status) return status;
    status = t->recipe->begun ? 0 : mr_run_check_free(t->recipe, t->dir, 0, resume, err);
    if (!status) status = start_net(t, resume, err);
    if (status) mr_run_take_back(t->recipe, t->dir);
    /* first, so that the files of a run killed right after this are recognised as its own */
    if (!status && !begun) status = mr_run_write_recipe(t->recipe, t->dir, err);
    if (!status) find_log(t);
    return status ? status : mr_runlog_open(t->dir, t->set->log, t->cp.log_offset, t->cp.event_steps, &t->log, err);
}

static int make_batches(mr_trainer *t, mr_error *err)
{
    mr_task *task = t->recipe->task;
    mr_shape shapes[2];
    int first, end;
    mr_task_shapes(task, shapes);
    mr_rank_micros(t->ctx, (int)t->set->accumulate, &first, &end);
    if (mr_batch_new(&t->eval_batch, &task->interface, shapes[1].B, shapes[1].T))
        return mr_no_memory(err, "batches; lower --batch or the length");
    return mr_prefetch_new(task, t->net, t->cp.step + 1, first, end, &t->batches, err);
}

int mr_trainer_set_up(mr_trainer *t, int resume, mr_error *err)
{
    const int begun = resume && mr_run_has_state(t->dir);
    int status = mr_trainer_writes(t) ? start_in_folder(t, resume, begun, err) : start_net(t, resume, err);
    if (!status) status = make_batches(t, err);
    status = mr_crew_agree(t->crew, status, err);
    if (!status) status = mr_recompute_agree(t->recipe, t->crew, err);
    if (!status) status = mr_crew_same_net(t->crew, t->net, t->dir, err);
    /* last, so that a resume that is refused leaves it as it was */
    return status || !begun || !mr_trainer_writes(t) ? status : mr_run_write_recipe(t->recipe, t->dir, err);
}

/* What the user should know before the first step. */
void mr_trainer_tell_start(const mr_trainer *t)
{
    char line[sizeof t->cp.changed + 32] = "", saved[160];
    for (int i = 0; i < MR_RECIPE_NOTES; i++) mr_trainer_tell(t, t->recipe->notes[i]);
    mr_trainer_tell(t, t->recipe->task->note);
    mr_recompute_say(t->recipe, saved, sizeof saved);
    mr_trainer_tell(t, saved);
    if (t->cp.changed[0]) snprintf(line, sizeof line, "from here on: %s", t->cp.changed);
    mr_trainer_tell(t, line);
    snprintf(line, sizeof line, "log.jsonl is missing: another one begins at step %lld", (long long)t->cp.step + 1);
    if (t->log_lost) mr_trainer_tell(t, line);
    snprintf(line, sizeof line, "the run is at step %lld already; more --steps train it further",
             (long long)t->cp.step);
    if (t->cp.step >= mr_train_steps(t->set)) mr_trainer_tell(t, line);
}

void mr_trainer_tear_down(mr_trainer *t)
{
    mr_prefetch_free(t->batches);
    mr_batch_free(&t->eval_batch);
    mr_runlog_close(t->log, NULL);
    mr_net_free(t->net);
    if (t->lock >= 0) mr_unlock(t->lock);
}
