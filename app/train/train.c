/* The training loop: steps, evaluations and checkpoints. */
#include "train/trainer.h"

#include "core/clock.h"
#include "core/file.h"
#include "core/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Saving changes no number, so the clock may decide when. */
#define SAVE_SECONDS 15
/* Time reserved for the final evaluation, as a multiple of the latest one: on a busy machine it may take longer. */
#define EVAL_MARGIN 1.25

/* ---- one step ---- */

/* A step, an evaluation or a checkpoint that met a NaN: where it began, what is kept and what to do. */
static int not_finite(const mr_trainer *t, int64_t step, mr_error *err)
{
    char kept[64] = "nothing had been saved yet", where[160];
    if (!mr_net_find_nonfinite(t->net, where, sizeof where)) snprintf(where, sizeof where, "head (loss)");
    if (t->saved_step)
        snprintf(kept, sizeof kept, "the last good checkpoint (step %lld) is kept", (long long)t->saved_step);
    return mr_fail(err, MR_ENONFINITE,
                   "step %lld: a number became NaN or infinite in %s; %s; try a lower --lr or --clip", (long long)step,
                   where, kept);
}

int mr_trainer_writes(const mr_trainer *t) { return t->crew->rank == 0; }

double mr_trainer_seconds(const mr_trainer *t) { return mr_run_seconds(&t->clock, mr_seconds()); }

int mr_trainer_log(mr_trainer *t, const mr_log_entry *entry, mr_error *err)
{
    return mr_trainer_writes(t) ? mr_runlog_add(t->log, entry, err) : 0;
}

/* Before the others know of it. They go on to the next exchange, which is where this rank tells them what failed. */
static void log_entry(mr_trainer *t, const mr_log_entry *entry)
{
    mr_error err = {0};
    const int status = mr_trainer_log(t, entry, &err);
    if (!status || t->untold.status) return;
    t->untold = err;
    t->untold.status = status;
}

/* Seconds that an evaluation will take, from what training took so far: forward alone is less than half of a step. */
static double guess_eval(const mr_trainer *t)
{
    mr_shape shapes[2];
    mr_task_shapes(t->recipe->task, shapes);
    const double tokens =
        (double)mr_eval_batches(t->recipe->task, t->set->eval_tokens) * (double)shapes[1].B * (double)shapes[1].T;
    return 0.5 * (mr_seconds() - t->training_began) * tokens / (double)(t->cp.tokens - t->first_tokens);
}

static int train_step(mr_trainer *t, int64_t step, mr_error *err)
{
    const double began = mr_seconds();
    mr_learn_options part = MR_LEARN_OPTIONS;
    mr_result result = MR_RESULT;
    int64_t tokens = 0;
    int status = 0;
    int end;
    part.progress = t->progress = fmax(t->progress, t->orders.progress);
    part.micros = (int)t->set->accumulate;
    mr_rank_micros(t->ctx, part.micros, &part.micro, &end);
    t->by_itself = 1; /* what fails from here on, the other ranks do not know */
    for (; !status && part.micro < end; part.micro++) {
        const mr_batch *batch = mr_prefetch_next(t->batches, err);
        if (!batch) return MR_EDATA;
        status = mr_net_learn(t->net, batch, &part, &result, err);
        tokens += (int64_t)batch->B * batch->T;
    }
    t->by_itself = status && status != MR_ENONFINITE;
    /* a loss may overflow where its gradient does not: such a run cannot continue */
    if (status == MR_ENONFINITE || (!status && !isfinite(result.loss))) return not_finite(t, step, err);
    if (!status) status = mr_crew_sum(t->crew, &tokens, err);
    if (status) return status;
    t->cp.step = step;
    t->cp.tokens += tokens;
    t->clock.step_seconds = mr_seconds() - began;
    if (isnan(t->batch_seconds)) t->clock.eval_seconds = guess_eval(t);
    if (t->watch->stepped) t->watch->stepped(t->watch->user, step, tokens, result.loss);
    const mr_log_entry entry = {.kind = MR_LOG_STEP,
                                .step = step,
                                .loss = result.loss,
                                .lr = result.lr,
                                .grad_norm = result.grad_norm,
                                .tokens_per_s = (double)tokens / t->clock.step_seconds,
                                .seconds = mr_trainer_seconds(t)};
    log_entry(t, &entry);
    return 0;
}

/* ---- evaluation and checkpoints ---- */

static int is_better(const mr_trainer *t, const mr_score *score)
{
    const mr_checkpoint *cp = &t->cp;
    if (!cp->best_step || t->recipe->task->type->best_is_last) return 1;
    if (t->recipe->task->type->best_by_accuracy && score->accuracy != cp->best_accuracy)
        return score->accuracy > cp->best_accuracy;
    return score->loss < cp->best_loss;
}

int mr_trainer_score(mr_trainer *t, mr_net *net, int64_t tokens, mr_crew *crew, mr_score *score, mr_error *err)
{
    const double began = mr_seconds(), deadline = mr_run_deadline(&t->clock) - t->clock.save_seconds;
    const mr_eval_options options = {.tick = t->watch->evaluating,
                                     .user = t->watch->user,
                                     .stop = t->stop,
                                     .tokens = tokens,
                                     .crew = crew,
                                     .deadline = isfinite(deadline) ? fmax(deadline, began) : 0};
    int status = mr_evaluate(net, t->recipe->task, &t->eval_batch, &options, score, err);
    if (!status) t->batch_seconds = (mr_seconds() - began) / (double)score->batches;
    return status;
}

static int evaluate(mr_trainer *t, mr_error *err)
{
    mr_score score;
    mr_checkpoint *cp = &t->cp;
    const int64_t tokens = t->set->eval_tokens;
    int status = mr_trainer_score(t, t->net, tokens, t->crew, &score, err);
    if (status) return status;
    if (!isfinite(score.loss)) return not_finite(t, cp->step, err);
    t->clock.eval_seconds = EVAL_MARGIN * t->batch_seconds * mr_eval_batches(t->recipe->task, tokens);
    /* what was cut short is of fewer tokens than other evaluations: it only counts where there is no other */
    t->out_of_time = score.out_of_time && cp->best_step;
    if (t->out_of_time) return 0;
    int best = is_better(t, &score);
    if (best) status = mr_net_mark_best(t->net, err);
    if (status) return status;
    cp->evaluated = cp->step;
    cp->stale = best ? 0 : cp->stale + 1;
    if (best) {
        cp->best_step = cp->step;
        cp->best_loss = score.loss;
        cp->best_accuracy = score.accuracy;
        t->best_batches = score.batches;
    }
    if (t->watch->evaluated) t->watch->evaluated(t->watch->user, cp->step, &score, best);
    const mr_log_entry entry = {.kind = MR_LOG_EVAL,
                                .step = cp->step,
                                .loss = score.loss,
                                .accuracy = score.accuracy,
                                .best = best,
                                .seconds = mr_trainer_seconds(t)};
    log_entry(t, &entry);
    return 0;
}

/* Reads the whole log, so it may take up a twentieth of the time; the one at the end is always drawn. */
static int draw_curve(mr_trainer *t, int at_end, mr_error *err)
{
    mr_curve_point *points = NULL;
    size_t n = 0;
    char title[128], mixer[MR_TEXT_MAX], layers[MR_TEXT_MAX], dim[MR_TEXT_MAX];
    double began = mr_seconds();
    if (!at_end && began < t->next_curve) return 0;
    snprintf(title, sizeof title, "%s: %.40s, %.20s × %.20s", t->recipe->task->type->name,
             mr_recipe_model_key(t->recipe, "mixer", mixer), mr_recipe_model_key(t->recipe, "layers", layers),
             mr_recipe_model_key(t->recipe, "dim", dim));
    char *from = mr_path_join(t->dir, "log.jsonl"), *to = mr_path_join(t->dir, "curve.svg");
    int status = from && to ? mr_runlog_read(from, &points, &n, err) : mr_no_memory(err, "the curve");
    if (!status) status = mr_curve_write(to, points, n, t->cp.best_step, title, err);
    if (!status && at_end) t->overfit = mr_overfit_of(points, n);
    mr_free(points);
    mr_free(from);
    mr_free(to);
    t->next_curve = mr_seconds() + 20 * (mr_seconds() - began);
    return status;
}

/* What rank 0 could not write since the last exchange; the same answer on all ranks. */
static int tell_failure(mr_trainer *t, mr_error *err)
{
    const int status = t->untold.status;
    if (status) *err = t->untold;
    return mr_crew_agree(t->crew, status, err);
}

static int write_files(mr_trainer *t, int at_end, mr_error *err)
{
    const double began = mr_seconds();
    if (mr_trainer_writes(t) && !t->untold.status) t->untold.status = mr_runlog_flush(t->log, 1, &t->untold);
    int status = tell_failure(t, err); /* now: with a sharded optimiser, all ranks take part in saving */
    if (status) return status;
    if (mr_trainer_writes(t)) t->cp.log_offset = mr_runlog_offset(t->log);
    t->cp.seconds = mr_trainer_seconds(t);
    t->cp.setup_seconds = t->clock.setup;
    status = mr_checkpoint_save(&t->cp, t->dir, t->recipe, t->net, err);
    if (!status) t->saved_step = t->cp.step;
    /* a step may be finite and the weights after it not (0 / 0 with eps = 0, say): such weights are never saved */
    if (status == MR_ENONFINITE) return not_finite(t, t->cp.step, err);
    if (!status && mr_trainer_writes(t)) status = draw_curve(t, at_end, err);
    t->saved_at = mr_seconds();
    t->clock.save_seconds = t->saved_at - began;
    return status;
}

/* The other ranks wait for rank 0, which writes. */
static int save(mr_trainer *t, int at_end, mr_error *err)
{
    t->crew->patient = 1;
    int status = write_files(t, at_end, err);
    status = mr_crew_agree(t->crew, status, err);
    t->crew->patient = 0;
    return status;
}

static int save_is_due(const mr_trainer *t)
{
    if (t->set->save_every) return t->cp.step % t->set->save_every == 0;
    return mr_seconds() - t->saved_at >= SAVE_SECONDS;
}

void mr_trainer_tell(const mr_trainer *t, const char *line)
{
    if (mr_trainer_writes(t) && t->watch->notice && line[0]) t->watch->notice(t->watch->user, line);
}

/* Saves where a checkpoint is due, or where somebody asked for one since the last step. */
static int save_in_between(mr_trainer *t, mr_error *err)
{
    char line[64];
    if (!t->orders.save_asked && !t->orders.save_is_due) return 0;
    int status = save(t, 0, err);
    if (status || !t->orders.save_asked) return status;
    t->served = t->orders.save_asked;
    snprintf(line, sizeof line, "step %lld: saved as requested", (long long)t->cp.step);
    mr_trainer_tell(t, line);
    return 0;
}

/* ---- the loop ---- */

static int eval_is_due(const mr_trainer *t)
{
    const mr_checkpoint *cp = &t->cp;
    return cp->step > cp->evaluated && (cp->step % t->set->eval_every == 0 || cp->step >= mr_train_steps(t->set));
}

/* What the clock and the signals want before the next step. Several ranks do what rank 0 says, and stop when any of
 * them was told to. */
static int take_orders(mr_trainer *t, mr_error *err)
{
    const int requests = t->watch->save_requests ? *t->watch->save_requests : 0;
    const int new_step = t->cp.step != t->saved_step;
    const double now = mr_seconds();
    int any[] = {t->stop && *t->stop, t->untold.status != 0};
    /* a new run does one step at least, so that there is a model in the end */
    t->orders = (mr_orders){.time_is_up = t->cp.step && mr_run_time_is_up(&t->clock, now),
                            .save_is_due = new_step && save_is_due(t),
                            .save_asked = requests != t->served && new_step ? requests : 0,
                            .progress = mr_run_progress(&t->clock, now)};
    int status = mr_crew_follow(t->crew, &t->orders, sizeof t->orders, any, 2, err);
    t->orders.stop = any[0];
    return status || !any[1] ? status : tell_failure(t, err);
}

static int is_over(const mr_trainer *t, mr_train_end *end)
{
    if (t->orders.stop) return *end = MR_END_STOPPED, 1;
    if (t->cp.step >= mr_train_steps(t->set)) return *end = MR_END_STEPS, 1;
    if (t->set->patience && t->cp.stale >= t->set->patience) return *end = MR_END_PATIENCE, 1;
    if (t->orders.time_is_up) return *end = MR_END_SECONDS, 1;
    return 0;
}

static int loop(mr_trainer *t, mr_train_end *end, mr_error *err)
{
    int status = 0;
    for (;;) {
        /* first, so that a run stopped before or within an evaluation makes up for it when it is resumed */
        if (eval_is_due(t)) status = evaluate(t, err);
        if (status == MR_ESTOPPED) status = 0;
        if (!status) status = take_orders(t, err);
        if (status || is_over(t, end)) return status;
        status = save_in_between(t, err);
        if (!status) status = train_step(t, t->cp.step + 1, err);
        if (status) return status;
    }
}

/* ---- the end ---- */

/* The run ends before the step of a model that it keeps. */
static void tell_later(const mr_trainer *t)
{
    char line[160];
    snprintf(line, sizeof line,
             "model.safetensors is kept: it is of step %lld, where the run has not come again; more --steps resume it",
             (long long)t->cp.later_model);
    if (mr_checkpoint_keeps_later(&t->cp)) mr_trainer_tell(t, line);
}

static int run(mr_trainer *t, mr_train_result *result, mr_error *err)
{
    int status = loop(t, &result->end, err);
    if (status) return status;
    if (result->end != MR_END_STOPPED && t->cp.evaluated < t->cp.step && !t->out_of_time) {
        status = evaluate(t, err);
        if (status == MR_ESTOPPED) result->end = MR_END_STOPPED;
        else if (status) return status;
    }
    result->step = t->cp.step;
    result->best_step = t->cp.best_step;
    result->best_loss = t->cp.best_loss;
    result->best_accuracy = t->cp.best_accuracy;
    status = save(t, 1, err);
    if (!status) tell_later(t);
    result->overfit = t->overfit;
    result->unscored = t->out_of_time;
    result->seconds = mr_trainer_seconds(t);
    return status ? status : mr_trainer_score_whole(t, result, err);
}

/* From the first step to the last file. */
static int train(mr_trainer *t, mr_train_result *result, mr_error *err)
{
    t->clock.before = t->cp.seconds;
    t->clock.setup = t->cp.setup_seconds;
    t->training_began = mr_seconds();
    t->first_tokens = t->cp.tokens;
    mr_run_clock_ready(&t->clock, t->training_began);
    if (t->watch->started && mr_trainer_writes(t))
        t->watch->started(t->watch->user, t->net, &t->cp, mr_run_deadline(&t->clock));
    mr_trainer_tell_start(t);
    int status = run(t, result, err);
    if (!status || !t->by_itself) {
        t->crew->patient = 1; /* rank 0 may be scoring the best model on the whole test set */
        status = mr_crew_agree(t->crew, status, err);
    }
    if (status == MR_EIO && mr_trainer_writes(t)) status = mr_trainer_short_of_disk(t, err);
    return status;
}

int mr_train(mr_recipe *recipe, mr_context *ctx, const char *dir, int resume, const mr_stop *stop,
             const mr_train_watch *watch, mr_train_result *result, mr_error *err)
{
    mr_trainer t = {
        .recipe = recipe,
        .set = &recipe->train,
        .ctx = ctx,
        .dir = dir,
        .stop = stop,
        .watch = watch,
        .crew = watch->crew ? watch->crew : &t.alone,
        .alone = {.ctx = ctx, .size = 1, .cut = 1, .lost = -1},
        .cp = mr_checkpoint_start(),
        .batch_seconds = NAN,
        .clock = {.limit = recipe->train.max_seconds, .began = watch->began != 0 ? watch->began : mr_seconds()},
        .lock = -1};
    memset(result, 0, sizeof *result);
    t.saved_at = mr_seconds();
    int status = mr_trainer_set_up(&t, resume, err);
    if (!status) status = train(&t, result, err);
    result->tokens = t.cp.tokens;
    result->shared = t.crew->size == 1 || (!t.by_itself && !t.crew->cut_off && t.crew->lost < 0);
    if (status == MR_ESTOPPED && mr_crew_lost(t.crew, t.cp.step, t.saved_step, dir, err)) status = err->status;
    if (result->shared || !status) mr_trainer_tear_down(&t);
    return status;
}
