#include "train/train.h"

#include "core/file.h"
#include "core/mem.h"
#include "model/mixer.h"
#include "train/checkpoint.h"
#include "train/feed.h"
#include "train/runlog.h"
#include "api/schedule.h"

#include <math.h>
#include <stdio.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Saving changes no number, so when it happens may follow the clock. */
#define SAVE_SECONDS 15

typedef struct trainer {
    mr_recipe *recipe;
    const mr_train_settings *set;
    mr_dev *dev;
    const char *dir;
    const mr_stop *stop;
    const mr_train_watch *watch;
    mr_model *model;
    mr_feed *feed;
    mr_batch eval_batch;
    mr_runlog *log;
    mr_checkpoint cp;
    double started, saved, next_curve; /* the clock */
    int64_t saved_step;
    int lock;
} trainer;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int in_folder(const char *dir, const char *name)
{
    char *path = mr_path_join(dir, name);
    int there = path && mr_path_exists(path);
    mr_free(path);
    return there;
}

int mr_run_has_state(const char *dir) { return in_folder(dir, "state.safetensors"); }
int mr_run_exists(const char *dir) { return mr_run_has_state(dir) || in_folder(dir, "recipe.ini") || in_folder(dir, "model.safetensors"); }

/* ---- one step ---- */

static mr_learn_settings mr_learn_of(const mr_train_settings *s)
{
    return (mr_learn_settings){.steps = s->steps, .warmup = s->warmup, .seed = s->seed, .lr = s->lr, .weight_decay = s->weight_decay,
        .clip = s->clip, .eps = s->eps, .betas = {s->betas[0], s->betas[1]}, .optimizer = s->optimizer, .schedule = s->schedule, .decay_set = s->decay_set};
}

static int not_finite(const trainer *t, const char *where, int64_t step, mr_error *err)
{
    char kept[64] = "nothing had been saved yet";
    if (t->saved_step) snprintf(kept, sizeof kept, "the last good checkpoint (step %lld) is kept", (long long)t->saved_step);
    return mr_fail(err, MR_ENONFINITE, "step %lld: a number became NaN or infinite in %s; %s; try a lower --lr or --clip",
                   (long long)step, where, kept);
}

static int step_not_finite(const trainer *t, const mr_batch *batch, int64_t step, mr_error *err)
{
    char where[128];
    mr_model_blame(t->model, batch, where, sizeof where);
    return not_finite(t, where, step, err);
}

/* A step may be finite and the weights after it not (0 / 0 with eps = 0, say): such must never reach a file. */
static int check_vector(const trainer *t, const char *what, const float *vector, mr_error *err)
{
    const mr_params *params = mr_model_params(t->model);
    char where[160];
    for (int i = 0; i < params->count; i++)
        for (size_t j = 0; j < params->list[i].count; j++) {
            if (isfinite(vector[params->list[i].offset + j])) continue;
            snprintf(where, sizeof where, "%s (%s)", params->list[i].name, what);
            return not_finite(t, where, t->cp.step, err);
        }
    return 0;
}

/* Brings the weights and the optimiser's moments back from the device. */
static int fetch(trainer *t, mr_error *err)
{
    mr_model_get(t->model, MR_WEIGHTS, t->cp.weights);
    mr_model_get(t->model, MR_MOMENT1, t->cp.moment1);
    mr_model_get(t->model, MR_MOMENT2, t->cp.moment2);
    int status = check_vector(t, "weights", t->cp.weights, err);
    if (!status) status = check_vector(t, "first moment", t->cp.moment1, err);
    return status ? status : check_vector(t, "second moment", t->cp.moment2, err);
}

static int train_step(trainer *t, int64_t step, mr_error *err)
{
    mr_learn_settings learn = mr_learn_of(t->set);
    mr_step values = mr_step_values(&learn, step);
    double stats[MR_STATS], began = now(), norm, loss;
    const mr_batch *batch = NULL;
    int64_t tokens = 0;
    for (int64_t micro = 0; micro < t->set->accumulate; micro++) {
        batch = mr_feed_next(t->feed);
        values.micro = (uint32_t)micro;
        double scale = 1 / ((double)batch->counted * (double)t->set->accumulate);
        mr_model_learn(t->model, batch, &values, scale, micro == 0, micro == t->set->accumulate - 1);
        tokens += (int64_t)batch->B * batch->T;
    }
    mr_model_stats(t->model, stats);
    norm = mr_model_grad_norm(t->model);
    loss = stats[MR_STAT_LOSS] / stats[MR_STAT_COUNT];
    int status = t->dev->sync(t->dev, err);
    if (status) return status;
    if (!isfinite(loss) || !isfinite(norm)) return step_not_finite(t, batch, step, err);
    t->cp.step = step;
    t->cp.tokens += tokens;
    if (t->watch->stepped) t->watch->stepped(t->watch->user, step, tokens, loss);
    return mr_runlog_step(t->log, step, loss, values.lr, norm, (double)tokens / (now() - began), err);
}

/* ---- evaluation and checkpoints ---- */

static int is_better(const trainer *t, const mr_score *score)
{
    const mr_checkpoint *cp = &t->cp;
    if (!cp->best_step) return 1;
    if (t->recipe->task->type->best_by_accuracy && score->accuracy != cp->best_accuracy) return score->accuracy > cp->best_accuracy;
    return score->loss < cp->best_loss;
}

static int evaluate(trainer *t, mr_error *err)
{
    mr_score score;
    mr_checkpoint *cp = &t->cp;
    int status = mr_evaluate(t->model, t->recipe->task, &t->eval_batch, t->watch->evaluating, t->watch->user, t->stop, &score, err);
    if (status) return status;
    if (!isfinite(score.loss)) {
        status = fetch(t, err);
        return status ? status : step_not_finite(t, &t->eval_batch, cp->step, err);
    }
    int best = is_better(t, &score);
    cp->evaluated = cp->step;
    cp->stale = best ? 0 : cp->stale + 1;
    if (best) {
        cp->best_step = cp->step;
        cp->best_loss = score.loss;
        cp->best_accuracy = score.accuracy;
        mr_model_get(t->model, MR_WEIGHTS, cp->best);
    }
    if (t->watch->evaluated) t->watch->evaluated(t->watch->user, cp->step, &score, best);
    return mr_runlog_eval(t->log, cp->step, score.loss, score.accuracy, best, err);
}

/* Reads the whole log, so it may take up a twentieth of the time; the one at the end is always drawn. */
static int draw_curve(trainer *t, int at_end, mr_error *err)
{
    mr_curve_point *points = NULL;
    size_t n = 0;
    char title[128];
    double began = now();
    const mr_config *c = &t->recipe->config;
    if (!at_end && began < t->next_curve) return 0;
    snprintf(title, sizeof title, "%s: %s, %lld × %lld", t->recipe->task->type->name, mr_mixer_names[c->mixer], (long long)c->layers, (long long)c->dim);
    char *from = mr_path_join(t->dir, "log.jsonl"), *to = mr_path_join(t->dir, "curve.svg");
    int status = from && to ? mr_runlog_read(from, &points, &n, err) : mr_no_memory(err, "the curve");
    if (!status) status = mr_curve_write(to, points, n, title, err);
    mr_free(points);
    mr_free(from);
    mr_free(to);
    t->next_curve = now() + 20 * (now() - began);
    return status;
}

static int save(trainer *t, int at_end, mr_error *err)
{
    int status = fetch(t, err);
    if (!status) status = mr_runlog_flush(t->log, 1, err);
    if (status) return status;
    t->cp.log_offset = mr_runlog_offset(t->log);
    status = mr_checkpoint_save(&t->cp, t->dir, t->recipe, mr_model_params(t->model), err);
    if (!status) status = draw_curve(t, at_end, err);
    t->saved = now();
    t->saved_step = t->cp.step;
    return status;
}

static int save_is_due(const trainer *t)
{
    if (t->set->save_every) return t->cp.step % t->set->save_every == 0;
    return now() - t->saved >= SAVE_SECONDS;
}

/* ---- the loop ---- */

static int eval_is_due(const trainer *t)
{
    const mr_checkpoint *cp = &t->cp;
    return cp->step > cp->evaluated && (cp->step % t->set->eval_every == 0 || cp->step >= t->set->steps);
}

static int is_over(const trainer *t, mr_train_end *end)
{
    if (t->stop && *t->stop) return *end = MR_END_STOPPED, 1;
    if (t->cp.step >= t->set->steps) return *end = MR_END_STEPS, 1;
    if (t->set->patience && t->cp.stale >= t->set->patience) return *end = MR_END_PATIENCE, 1;
    if (t->set->max_seconds > 0 && now() - t->started >= t->set->max_seconds) return *end = MR_END_SECONDS, 1;
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
        if (t->cp.step > t->saved_step && save_is_due(t)) status = save(t, 0, err);
        if (!status) status = train_step(t, t->cp.step + 1, err);
        if (status) return status;
    }
}

static int run(trainer *t, mr_train_result *result, mr_error *err)
{
    int status = loop(t, &result->end, err);
    if (status) return status;
    if (result->end != MR_END_STOPPED && t->cp.evaluated < t->cp.step) {
        status = evaluate(t, err);
        if (status == MR_ESTOPPED) result->end = MR_END_STOPPED;
        else if (status) return status;
    }
    result->step = t->cp.step;
    result->best_step = t->cp.best_step;
    result->best_loss = t->cp.best_loss;
    result->best_accuracy = t->cp.best_accuracy;
    return save(t, 1, err);
}

/* ---- setting up ---- */

static int write_recipe(const trainer *t, mr_error *err)
{
    mr_text text = {0};
    char *path = mr_path_join(t->dir, "recipe.ini");
    int status = path ? mr_recipe_print(t->recipe, &text, err) : mr_no_memory(err, "the recipe");
    if (!status) status = mr_file_replace(path, text.data, text.size, err);
    mr_text_free(&text);
    mr_free(path);
    return status;
}

static int start_weights(trainer *t, int resume, mr_error *err)
{
    const mr_params *params = mr_model_params(t->model);
    mr_checkpoint *cp = &t->cp;
    int status = mr_checkpoint_new(cp, params, err);
    if (status) return status;
    if (resume && mr_run_has_state(t->dir)) {
        status = mr_checkpoint_load(cp, t->dir, t->recipe, params, err);
        if (status) return status;
    } else {
        mr_model_start(t->model, (uint64_t)t->set->seed, t->recipe->task->max_T, cp->weights);
    }
    mr_model_put(t->model, MR_WEIGHTS, cp->weights);
    mr_model_put(t->model, MR_MOMENT1, cp->moment1);
    mr_model_put(t->model, MR_MOMENT2, cp->moment2);
    t->saved_step = cp->step;
    return 0;
}

static int open_log(trainer *t, mr_error *err)
{
    char *path = mr_path_join(t->dir, "log.jsonl");
    int status = path ? mr_runlog_open(path, t->cp.log_offset, &t->log, err) : mr_no_memory(err, "the log");
    mr_free(path);
    return status;
}

static int set_up(trainer *t, int resume, mr_error *err)
{
    mr_task *task = t->recipe->task;
    mr_shape shapes[2];
    mr_task_shapes(task, shapes);
    int status = mr_make_directory(t->dir, err);
    if (!status) status = mr_lock_directory(t->dir, &t->lock, err);
    if (status) return status;
    if (!resume && mr_run_exists(t->dir))
        return mr_fail(err, MR_EDATA, "%s: holds a run already; add --resume to go on with it, or choose another --out", t->dir);
    status = mr_model_new(&t->recipe->config, t->dev, (mr_decay_set)t->set->decay_set, &t->model, err);
    if (!status) status = mr_model_plan_shapes(t->model, shapes, 2, 1, err);
    if (!status) status = start_weights(t, resume, err);
    if (!status) status = open_log(t, err);
    if (!status && mr_batch_new(&t->eval_batch, &task->face, shapes[1].B, shapes[1].T))
        status = mr_no_memory(err, "batches; lower --batch or the length");
    if (!status) status = mr_feed_new(task, t->cp.step + 1, (int)t->set->accumulate, &t->feed, err);
    /* last, so that a resume that is refused leaves it as it was */
    return status ? status : write_recipe(t, err);
}

static void tear_down(trainer *t)
{
    mr_feed_free(t->feed);
    mr_batch_free(&t->eval_batch);
    mr_runlog_close(t->log, NULL);
    mr_checkpoint_free(&t->cp);
    mr_model_free(t->model);
    if (t->lock >= 0) mr_unlock(t->lock);
}

int mr_train(mr_recipe *recipe, mr_dev *dev, const char *dir, int resume, const mr_stop *stop,
             const mr_train_watch *watch, mr_train_result *result, mr_error *err)
{
    trainer t = {.recipe = recipe, .set = &recipe->train, .dev = dev, .dir = dir, .stop = stop, .watch = watch, .lock = -1};
    memset(result, 0, sizeof *result);
    t.started = t.saved = now();
    int status = set_up(&t, resume, err);
    if (!status && watch->started) watch->started(watch->user, t.model, t.cp.step);
    if (!status) status = run(&t, result, err);
    result->tokens = t.cp.tokens;
    tear_down(&t);
    return status;
}
