/* The training loop: steps, evaluations, checkpoints, and how a run begins and ends. */
#include "train/train.h"

#include "core/clock.h"
#include "core/file.h"
#include "core/mem.h"
#include "train/checkpoint.h"
#include "train/init.h"
#include "train/prefetch.h"
#include "train/recompute.h"
#include "train/run_clock.h"
#include "train/run_folder.h"
#include "train/runlog.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Saving changes no number, so the clock may decide when. */
#define SAVE_SECONDS 15
/* Time reserved for the final evaluation, as a multiple of the latest one: on a busy machine it may take longer. */
#define EVAL_MARGIN 1.25

typedef struct trainer {
    mr_recipe *recipe;
    const mr_train_settings *set;
    mr_context *ctx;
    const char *dir;
    const mr_stop *stop;
    const mr_train_watch *watch;
    mr_net *net;
    mr_prefetch *batches;
    mr_batch eval_batch;
    mr_runlog *log;
    mr_checkpoint cp;
    mr_run_clock clock;
    double saved_at, next_curve; /* of mr_seconds(): the last checkpoint, the earliest time for the next picture */
    double training_began;       /* of mr_seconds(): when training began in this call */
    int64_t first_tokens;        /* tokens trained on before that */
    double progress;             /* of a schedule that fits --max-seconds */
    double batch_seconds;        /* of an evaluation: how long a batch takes, NaN until there was one */
    int64_t best_batches;        /* how many batches the best evaluation scored; 0: not known, as after a resume */
    int out_of_time;             /* the last evaluation was cut short, and could not be compared with others */
    mr_overfit overfit;
    int64_t saved_step;
    int log_lost; /* the log of the steps before this call is missing */
    int served;   /* requests to save that were met */
    int lock;
} trainer;

/* ---- one step ---- */

/* A step, an evaluation or a checkpoint that met a NaN: where it began, what is kept and what to do. */
static int not_finite(const trainer *t, int64_t step, mr_error *err)
{
    char kept[64] = "nothing had been saved yet", where[160];
    if (!mr_net_find_nonfinite(t->net, where, sizeof where)) snprintf(where, sizeof where, "head (loss)");
    if (t->saved_step)
        snprintf(kept, sizeof kept, "the last good checkpoint (step %lld) is kept", (long long)t->saved_step);
    return mr_fail(err, MR_ENONFINITE,
                   "step %lld: a number became NaN or infinite in %s; %s; try a lower --lr or --clip", (long long)step,
                   where, kept);
}

static double run_seconds(const trainer *t) { return mr_run_seconds(&t->clock, mr_seconds()); }

/* Seconds that an evaluation will take, from what training took so far: forward alone is less than half of a step. */
static double guess_eval(const trainer *t)
{
    mr_shape shapes[2];
    mr_task_shapes(t->recipe->task, shapes);
    const double tokens =
        (double)mr_eval_batches(t->recipe->task, t->set->eval_tokens) * (double)shapes[1].B * (double)shapes[1].T;
    return 0.5 * (mr_seconds() - t->training_began) * tokens / (double)(t->cp.tokens - t->first_tokens);
}

static int train_step(trainer *t, int64_t step, mr_error *err)
{
    const double began = mr_seconds();
    mr_learn_options part = MR_LEARN_OPTIONS;
    mr_result result = MR_RESULT;
    int64_t tokens = 0;
    int status = 0;
    part.progress = t->progress = fmax(t->progress, mr_run_progress(&t->clock, began));
    part.micros = (int)t->set->accumulate;
    for (part.micro = 0; !status && part.micro < part.micros; part.micro++) {
        const mr_batch *batch = mr_prefetch_next(t->batches, err);
        if (!batch) return MR_EDATA;
        status = mr_net_learn(t->net, batch, &part, &result, err);
        tokens += (int64_t)batch->B * batch->T;
    }
    /* a loss may overflow where its gradient does not: such a run cannot continue */
    if (status == MR_ENONFINITE || (!status && !isfinite(result.loss))) return not_finite(t, step, err);
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
                                .seconds = run_seconds(t)};
    return mr_runlog_add(t->log, &entry, err);
}

/* ---- evaluation and checkpoints ---- */

static int is_better(const trainer *t, const mr_score *score)
{
    const mr_checkpoint *cp = &t->cp;
    if (!cp->best_step || t->recipe->task->type->best_is_last) return 1;
    if (t->recipe->task->type->best_by_accuracy && score->accuracy != cp->best_accuracy)
        return score->accuracy > cp->best_accuracy;
    return score->loss < cp->best_loss;
}

/* On `tokens` test tokens, 0: all; not beyond --max-seconds. */
static int score_net(trainer *t, mr_net *net, int64_t tokens, mr_score *score, mr_error *err)
{
    const double began = mr_seconds(), deadline = mr_run_deadline(&t->clock) - t->clock.save_seconds;
    const mr_eval_options options = {.tick = t->watch->evaluating,
                                     .user = t->watch->user,
                                     .stop = t->stop,
                                     .tokens = tokens,
                                     .deadline = isfinite(deadline) ? fmax(deadline, began) : 0};
    int status = mr_evaluate(net, t->recipe->task, &t->eval_batch, &options, score, err);
    if (!status) t->batch_seconds = (mr_seconds() - began) / (double)score->batches;
    return status;
}

static int evaluate(trainer *t, mr_error *err)
{
    mr_score score;
    mr_checkpoint *cp = &t->cp;
    const int64_t tokens = t->set->eval_tokens;
    int status = score_net(t, t->net, tokens, &score, err);
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
                                .seconds = run_seconds(t)};
    return mr_runlog_add(t->log, &entry, err);
}

/* Reads the whole log, so it may take up a twentieth of the time; the one at the end is always drawn. */
static int draw_curve(trainer *t, int at_end, mr_error *err)
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

static int save(trainer *t, int at_end, mr_error *err)
{
    const double began = mr_seconds();
    int status = mr_runlog_flush(t->log, 1, err);
    if (status) return status;
    t->cp.log_offset = mr_runlog_offset(t->log);
    t->cp.seconds = run_seconds(t);
    t->cp.setup_seconds = t->clock.setup;
    status = mr_checkpoint_save(&t->cp, t->dir, t->recipe, t->net, err);
    if (!status) t->saved_step = t->cp.step;
    /* a step may be finite and the weights after it not (0 / 0 with eps = 0, say): such weights are never saved */
    if (status == MR_ENONFINITE) return not_finite(t, t->cp.step, err);
    if (!status) status = draw_curve(t, at_end, err);
    t->saved_at = mr_seconds();
    t->clock.save_seconds = t->saved_at - began;
    return status;
}

static int save_is_due(const trainer *t)
{
    if (t->cp.step == t->saved_step) return 0;
    if (t->set->save_every) return t->cp.step % t->set->save_every == 0;
    return mr_seconds() - t->saved_at >= SAVE_SECONDS;
}

static void tell(const trainer *t, const char *line)
{
    if (t->watch->notice && line[0]) t->watch->notice(t->watch->user, line);
}

/* Saves where a checkpoint is due, or where somebody asked for one since the last step. */
static int save_in_between(trainer *t, mr_error *err)
{
    char line[64];
    const int requests = t->watch->save_requests ? *t->watch->save_requests : 0;
    const int asked = requests != t->served && t->cp.step != t->saved_step;
    if (!asked && !save_is_due(t)) return 0;
    int status = save(t, 0, err);
    if (status || !asked) return status;
    t->served = requests;
    snprintf(line, sizeof line, "step %lld: saved as requested", (long long)t->cp.step);
    tell(t, line);
    return 0;
}

/* ---- the loop ---- */

static int eval_is_due(const trainer *t)
{
    const mr_checkpoint *cp = &t->cp;
    return cp->step > cp->evaluated && (cp->step % t->set->eval_every == 0 || cp->step >= mr_train_steps(t->set));
}

static int is_over(const trainer *t, mr_train_end *end)
{
    if (t->stop && *t->stop) return *end = MR_END_STOPPED, 1;
    if (t->cp.step >= mr_train_steps(t->set)) return *end = MR_END_STEPS, 1;
    if (t->set->patience && t->cp.stale >= t->set->patience) return *end = MR_END_PATIENCE, 1;
    /* a new run does one step at least, so that there is a model in the end */
    if (t->cp.step && mr_run_time_is_up(&t->clock, mr_seconds())) return *end = MR_END_SECONDS, 1;
    return 0;
}

static int loop(trainer *t, mr_train_end *end, mr_error *err)
{
    int status = 0;
    for (;;) {
        /* first, so that a run stopped before or within an evaluation makes up for it when it is resumed */
        if (eval_is_due(t)) status = evaluate(t, err);
        if (status == MR_ESTOPPED) status = 0;
        if (status || is_over(t, end)) return status;
        status = save_in_between(t, err);
        if (!status) status = train_step(t, t->cp.step + 1, err);
        if (status) return status;
    }
}

/* A file could not be written, most often because the disk is full: keeps the best model at least, which needs a
 * quarter of a state's room, and says what to do. */
static int short_of_disk(const trainer *t, mr_error *err)
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
static void count_scored(const trainer *t, mr_train_result *r)
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
static int score_best(trainer *t, mr_score *score, mr_error *err)
{
    mr_net *net = NULL;
    char *path = mr_path_join(t->dir, "model.safetensors");
    mr_prefetch_free(t->batches);
    mr_net_free(t->net);
    t->batches = NULL;
    t->net = NULL;
    int status = path ? mr_net_open(t->ctx, path, &net, err) : mr_no_memory(err, "the best model");
    if (!status) status = mr_reserve_scores(t->recipe, net, err);
    if (!status) status = score_net(t, net, 0, score, err);
    mr_net_free(net);
    mr_free(path);
    return status;
}

/* Where evaluations score a part of the test set, the best model is scored on all of it, if there is time. Everything
 * else is done and saved by then. */
static int score_whole(trainer *t, mr_train_result *r, mr_error *err)
{
    mr_score score;
    const int all = t->recipe->task->eval_batches;
    count_scored(t, r);
    if (r->scored == r->test_size || !r->best_step) return 0;
    if (mr_checkpoint_keeps_later(&t->cp)) return r->whole = MR_WHOLE_LATER, 0;
    r->whole = r->end == MR_END_STOPPED ? MR_WHOLE_STOPPED : MR_WHOLE_NO_TIME;
    if (r->end == MR_END_STOPPED || mr_seconds() + t->batch_seconds * all > mr_run_deadline(&t->clock)) return 0;
    int status = score_best(t, &score, err);
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
                                .seconds = run_seconds(t)};
    status = mr_runlog_add(t->log, &entry, err);
    return status ? status : mr_runlog_flush(t->log, 1, err);
}

/* The run ends before the step of a model that it keeps. */
static void tell_later(const trainer *t)
{
    char line[160];
    snprintf(line, sizeof line,
             "model.safetensors is kept: it is of step %lld, where the run has not come again; more --steps resume it",
             (long long)t->cp.later_model);
    if (mr_checkpoint_keeps_later(&t->cp)) tell(t, line);
}

static int run(trainer *t, mr_train_result *result, mr_error *err)
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
    result->seconds = run_seconds(t);
    return status ? status : score_whole(t, result, err);
}

/* ---- setting up ---- */

static int start_net(trainer *t, int resume, mr_error *err)
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
static void find_log(trainer *t)
{
    char *path = mr_path_join(t->dir, "log.jsonl");
    t->log_lost = t->cp.log_offset && path && !mr_path_exists(path);
    if (t->log_lost) t->cp.log_offset = 0;
    mr_free(path);
}

static int set_up(trainer *t, int resume, mr_error *err)
{
    mr_task *task = t->recipe->task;
    mr_shape shapes[2];
    mr_task_shapes(task, shapes);
    int status = mr_make_directory(t->dir, err);
    if (!status) status = mr_lock_directory(t->dir, &t->lock, err);
    if (status) return status;
    status = t->recipe->begun ? 0 : mr_run_check_free(t->recipe, t->dir, 0, resume, err);
    const int begun = resume && mr_run_has_state(t->dir);
    if (!status) status = start_net(t, resume, err);
    if (status) mr_run_take_back(t->recipe, t->dir);
    /* first, so that the files of a run killed right after this are recognised as its own */
    if (!status && !begun) status = mr_run_write_recipe(t->recipe, t->dir, err);
    if (!status) find_log(t);
    if (!status) status = mr_runlog_open(t->dir, t->set->log, t->cp.log_offset, t->cp.event_steps, &t->log, err);
    if (!status && mr_batch_new(&t->eval_batch, &task->interface, shapes[1].B, shapes[1].T))
        status = mr_no_memory(err, "batches; lower --batch or the length");
    if (!status) status = mr_prefetch_new(task, t->net, t->cp.step + 1, (int)t->set->accumulate, &t->batches, err);
    /* last, so that a resume that is refused leaves it as it was */
    return status || !begun ? status : mr_run_write_recipe(t->recipe, t->dir, err);
}

/* What the user should know before the first step. */
static void tell_start(const trainer *t)
{
    char line[sizeof t->cp.changed + 32] = "", saved[160];
    for (int i = 0; i < MR_RECIPE_NOTES; i++) tell(t, t->recipe->notes[i]);
    tell(t, t->recipe->task->note);
    mr_recompute_say(t->recipe, saved, sizeof saved);
    tell(t, saved);
    if (t->cp.changed[0]) snprintf(line, sizeof line, "from here on: %s", t->cp.changed);
    tell(t, line);
    snprintf(line, sizeof line, "log.jsonl is missing: another one begins at step %lld", (long long)t->cp.step + 1);
    if (t->log_lost) tell(t, line);
    snprintf(line, sizeof line, "the run is at step %lld already; more --steps train it further",
             (long long)t->cp.step);
    if (t->cp.step >= mr_train_steps(t->set)) tell(t, line);
}

static void tear_down(trainer *t)
{
    mr_prefetch_free(t->batches);
    mr_batch_free(&t->eval_batch);
    mr_runlog_close(t->log, NULL);
    mr_net_free(t->net);
    if (t->lock >= 0) mr_unlock(t->lock);
}

int mr_train(mr_recipe *recipe, mr_context *ctx, const char *dir, int resume, const mr_stop *stop,
             const mr_train_watch *watch, mr_train_result *result, mr_error *err)
{
    trainer t = {
        .recipe = recipe,
        .set = &recipe->train,
        .ctx = ctx,
        .dir = dir,
        .stop = stop,
        .watch = watch,
        .cp = mr_checkpoint_start(),
        .batch_seconds = NAN,
        .clock = {.limit = recipe->train.max_seconds, .began = watch->began != 0 ? watch->began : mr_seconds()},
        .lock = -1};
    memset(result, 0, sizeof *result);
    t.saved_at = mr_seconds();
    int status = set_up(&t, resume, err);
    if (!status) {
        t.clock.before = t.cp.seconds;
        t.clock.setup = t.cp.setup_seconds;
        t.training_began = mr_seconds();
        t.first_tokens = t.cp.tokens;
        mr_run_clock_ready(&t.clock, t.training_began);
        if (watch->started) watch->started(watch->user, t.net, &t.cp, mr_run_deadline(&t.clock));
        tell_start(&t);
        status = run(&t, result, err);
        if (status == MR_EIO) status = short_of_disk(&t, err);
    }
    result->tokens = t.cp.tokens;
    tear_down(&t);
    return status;
}
