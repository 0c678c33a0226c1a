/* One run of an experiment: its folder, its training and test, and what becomes of it. */
#include "paper/reproduce_job.h"

#include "core/clock.h"
#include "core/file.h"
#include "core/mem.h"
#include "core/pool.h"
#include "core/sha256.h"
#include "train/begin.h"
#include "train/run_folder.h"
#include "train/session.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NOTE_SECONDS 5 /* between notes of the time that a run has taken so far */

const char *mr_recipe_dtype(const mr_recipe *recipe) { return recipe->train.dtype ? "bf16" : "f32"; }

/* ---- folders ---- */

char *mr_cell_folder(const mr_job *j, const mr_planned *run, const char *dtype)
{
    char name[160], key[1280], sha[MR_SHA256_TEXT];
    int size =
        snprintf(key, sizeof key, "%s|%s|%s|%s|%s", run->row, run->column, run->settings, j->results.kind, dtype);
    mr_sha256_of(key, (size_t)size, sha);
    snprintf(name, sizeof name, "%s-%s-%lld-%.8s", run->row, run->column, (long long)run->seed, sha);
    for (char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '-') *c = '_';
    return mr_path_join(j->results.runs, name);
}

void mr_cell_folder_clear(const char *dir, int keep_model)
{
    if (!dir) return;
    DIR *folder = opendir(dir);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        if (entry->d_name[0] == '.' && strcmp(entry->d_name, ".lock")) continue;
        if (keep_model && !strcmp(entry->d_name, "model.safetensors")) continue;
        char *path = mr_path_join(dir, entry->d_name);
        if (path) unlink(path);
        mr_free(path);
    }
    if (folder) closedir(folder);
    rmdir(dir);
}

/* Seconds of a run so far, in a file beside its state: a run may take many calls. */
static void read_spent(mr_cell_run *t)
{
    char *path = mr_path_join(t->dir, "spent"), *text = NULL;
    size_t size;
    if (path && mr_run_has_state(t->dir) && !mr_file_read(path, 256, &text, &size, NULL) &&
        !mr_real_read(text, &t->spent))
        t->spent = 0;
    mr_free(text);
    mr_free(path);
}

static void write_spent(const mr_cell_run *t)
{
    char seconds[MR_REAL_MAX], *path = mr_path_join(t->dir, "spent");
    mr_real_print(seconds, t->spent + mr_seconds() - t->began, 0);
    if (path) mr_file_replace(path, seconds, strlen(seconds), NULL);
    mr_free(path);
}

/* ---- what a run is made from ---- */

/* Sums of data and model as they were when an unfinished run began, in a file beside its state. A model that cannot be
 * read now is taken for the same: a run that has a state does not need it. */
static int same_origin(mr_cell_run *t, int model_is_known)
{
    char *path = mr_path_join(t->dir, "origin"), *text = NULL, train[MR_SHA256_TEXT], init[MR_SHA256_TEXT];
    size_t size;
    int same = 1;
    if (path && !mr_file_read(path, 256, &text, &size, NULL) && sscanf(text, "%64s %64s", train, init) == 2) {
        if (!model_is_known) snprintf(t->sums.init, sizeof t->sums.init, "%s", init);
        same = !strcmp(train, t->sums.train[0] ? t->sums.train : "-") &&
               !strcmp(init, t->sums.init[0] ? t->sums.init : "-");
    }
    mr_free(text);
    mr_free(path);
    return same;
}

static int write_origin(const mr_cell_run *t, mr_error *err)
{
    char text[2 * MR_SHA256_TEXT + 8], *path = mr_path_join(t->dir, "origin");
    const int size = snprintf(text, sizeof text, "%s %s\n", t->sums.train[0] ? t->sums.train : "-",
                              t->sums.init[0] ? t->sums.init : "-");
    int status = path ? mr_make_directory(t->dir, err) : mr_no_memory(err, "a run");
    if (!status) status = mr_file_replace(path, text, (size_t)size, err);
    mr_free(path);
    return status;
}

/* Opens the run's recipe, and notes what it is made from. */
static int open_recipe(mr_cell_run *t, mr_recipe *recipe, int *same, mr_error *err)
{
    int status = mr_run_begin(recipe, t->dir, 1, err);
    if (status) return status;
    memcpy(t->sums.train, recipe->task->data_sha256, sizeof t->sums.train);
    memcpy(t->sums.test, recipe->task->data_sha256, sizeof t->sums.test);
    const int known = mr_data_sum_init(recipe, t->sums.init);
    *same = !mr_run_has_state(t->dir) || same_origin(t, known);
    return 0;
}

/* An unfinished run whose data has changed cannot be resumed: it starts over, and so does what has no state. */
static int begin(mr_cell_run *t, mr_recipe *recipe, mr_error *err)
{
    int same = 1;
    if (!mr_run_has_state(t->dir)) mr_cell_folder_clear(t->dir, 0);
    int status = open_recipe(t, recipe, &same, err);
    t->started_over = !same;
    if (t->started_over) {
        mr_cell_folder_clear(t->dir, 0);
        mr_recipe_free(recipe);
        status = mr_cell_recipe(t->job->results.options, t->run, recipe, err);
        if (!status) status = open_recipe(t, recipe, &same, err);
    }
    return status || mr_run_has_state(t->dir) ? status : write_origin(t, err);
}

/* ---- what happens in a run ---- */

/* Looks at the clock after each step, and assumes that the next one takes as long. */
static void look_at_clock(mr_cell_run *t)
{
    double now = mr_seconds();
    if (mr_reproduce_time_is_up(t->job->results.options, now - t->last)) atomic_store(&t->job->over, 1);
    if (atomic_load(&t->job->failure) || atomic_load(&t->job->over)) t->stop = 1;
    if (now - t->noted > NOTE_SECONDS) t->noted = now, write_spent(t);
    t->last = now;
}

static void on_started(void *user, const mr_net *net, const mr_checkpoint *from, double deadline)
{
    mr_cell_run *t = user;
    t->parameters = (double)mr_net_parameters(net);
    t->last = mr_seconds();
    look_at_clock(t); /* reading the data may have used up the time */
    if (t->watch.started) t->watch.started(t->watch.user, net, from, deadline);
}

static void on_stepped(void *user, int64_t step, int64_t tokens, double loss)
{
    mr_cell_run *t = user;
    look_at_clock(t);
    if (t->watch.stepped) t->watch.stepped(t->watch.user, step, tokens, loss);
}

static void on_evaluating(void *user, int done, int batches)
{
    mr_cell_run *t = user;
    look_at_clock(t);
    if (t->watch.evaluating) t->watch.evaluating(t->watch.user, done, batches);
}

static void on_evaluated(void *user, int64_t step, const mr_score *score, int best)
{
    mr_cell_run *t = user;
    if (t->watch.evaluated) t->watch.evaluated(t->watch.user, step, score, best);
}

static void on_notice(void *user, const char *line)
{
    mr_cell_run *t = user;
    if (t->watch.notice) t->watch.notice(t->watch.user, line);
}

static int keep_row(mr_cell_run *t, mr_row *row, mr_error *err)
{
    mr_job *j = t->job;
    const mr_reproduce_watch *watch = j->results.options->watch;
    pthread_mutex_lock(&j->results.mutex);
    mr_row_set(row, "side_by_side", j->beside[t->worker]);
    if (watch->finished) watch->finished(watch->user, t->worker, t->run, row);
    int status = mr_result_folder_put(&j->results, row, err);
    if (!status) j->result->done++;
    pthread_mutex_unlock(&j->results.mutex);
    if (!status) mr_cell_folder_clear(t->dir, j->results.options->keep);
    return status;
}

int mr_cell_recipe(const mr_reproduce_options *o, const mr_planned *run, mr_recipe *recipe, mr_error *err)
{
    int status = mr_planned_recipe(run, recipe, err);
    if (status) return status;
    if (o->dtype >= 0) recipe->train.dtype = o->dtype;
    if (o->tf32 >= 0) recipe->train.tf32 = o->tf32;
    return 0;
}

/* On the CPU the runs share its threads; how many a run gets changes no number. */
static int threads_each(const mr_reproduce_options *o)
{
    const int all = o->threads ? o->threads : mr_processors();
    if (o->side_by_side < 2) return o->threads;
    return all / o->side_by_side > 1 ? all / o->side_by_side : 1;
}

/* Scores one model of the run on data that it was not chosen by. */
static int score_model(mr_cell_run *t, mr_context *ctx, const char *name, mr_score *score, mr_error *err)
{
    mr_session session;
    mr_batch batch = {0};
    char *path = mr_path_join(t->dir, name);
    int status = path ? mr_session_open(&session, path, ctx, err) : mr_no_memory(err, "the test");
    if (!status) {
        status = mr_settings_apply(&session.recipe, t->run->test, err);
        if (!status) status = mr_session_open_task(&session, err);
        if (!status) status = mr_session_evaluate(&session, &batch, on_evaluating, t, &t->stop, score, err);
        if (!status) memcpy(t->sums.test, session.recipe.task->data_sha256, sizeof t->sums.test);
        if (!status && !t->set.identity[0]) status = mr_test_set_of(session.recipe.task, &t->set, err);
        mr_batch_free(&batch);
        mr_session_close(&session);
    }
    mr_free(path);
    return status;
}

/* The model that was chosen and the last one, which may be the same, once each. */
static int score_test(mr_cell_run *t, mr_context *ctx, const mr_train_result *r, mr_error *err)
{
    int status = score_model(t, ctx, "model.safetensors", &t->test, err);
    if (!status && r->best_step == r->step) t->last_test = t->test;
    else if (!status) status = score_model(t, ctx, "last.safetensors", &t->last_test, err);
    return status;
}

/* Lets the model act. */
static int play_model(mr_cell_run *t, mr_context *ctx, mr_task *task, mr_error *err)
{
    mr_net *net = NULL;
    char *path = mr_path_join(t->dir, "model.safetensors");
    int status = path ? mr_net_open(ctx, path, &net, err) : mr_no_memory(err, "the test");
    task->stop = &t->stop;
    if (!status)
        status = task->type->play(task, net, threads_each(t->job->results.options), on_evaluating, t, &t->play, err);
    mr_net_free(net);
    mr_free(path);
    return status;
}

/* What is scored at the end, on data that nothing was chosen by. */
static int score_end(mr_cell_run *t, mr_context *ctx, const mr_recipe *recipe, const mr_train_result *r, mr_error *err)
{
    if (t->job->e->measure == MR_BY_RETURN) return play_model(t, ctx, recipe->task, err);
    return t->run->test[0] ? score_test(t, ctx, r, err) : mr_test_set_of(recipe->task, &t->set, err);
}

static int carry_out(mr_cell_run *t, mr_recipe *recipe, mr_train_result *r, mr_error *err)
{
    mr_job *j = t->job;
    const mr_reproduce_options *o = j->results.options;
    mr_context *ctx = NULL;
    mr_context_options options = MR_CONTEXT_OPTIONS;
    options.device = o->device;
    options.threads = threads_each(o);
    options.bf16 = recipe->train.dtype == 1;
    options.exact = !recipe->train.tf32;
    mr_train_watch watch = {.user = t,
                            .started = on_started,
                            .stepped = on_stepped,
                            .evaluating = on_evaluating,
                            .evaluated = on_evaluated,
                            .notice = on_notice};
    int status = begin(t, recipe, err);
    /* what a policy acts in is looked for before the training, which may take hours */
    if (!status && j->e->measure == MR_BY_RETURN) status = mr_test_set_of(recipe->task, &t->set, err);
    t->opened = !status;
    if (!status) status = mr_context_new(&options, &ctx, err);
    if (!status && o->watch->starts) o->watch->starts(o->watch->user, t->worker, t->run, recipe, &t->watch);
    if (!status && t->started_over)
        on_notice(t, "its data or the model of init has changed: the unfinished run starts over");
    watch.save_requests = t->watch.save_requests;
    if (!status) read_spent(t);
    t->began = t->last = t->noted = mr_seconds();
    if (!status) status = mr_train(recipe, ctx, t->dir, 1, &t->stop, &watch, r, err);
    if (!status && r->end != MR_END_STOPPED) status = score_end(t, ctx, recipe, r, err);
    if (status == MR_ESTOPPED) status = 0, r->end = MR_END_STOPPED;
    mr_context_free(ctx);
    return status;
}

static void left_unfinished(mr_cell_run *t)
{
    mr_job *j = t->job;
    const mr_reproduce_watch *watch = j->results.options->watch;
    write_spent(t);
    pthread_mutex_lock(&j->results.mutex);
    j->result->left++;
    if (watch->finished) watch->finished(watch->user, t->worker, t->run, NULL);
    pthread_mutex_unlock(&j->results.mutex);
}

static void run_failed(mr_cell_run *t, const mr_error *err)
{
    mr_job *j = t->job;
    const mr_reproduce_watch *watch = j->results.options->watch;
    pthread_mutex_lock(&j->results.mutex);
    *(err->status == MR_ENODATA ? &j->result->no_data : &j->result->failed) += 1;
    if (watch->failed) watch->failed(watch->user, t->worker, t->run, err);
    pthread_mutex_unlock(&j->results.mutex);
}

/* What to do about a folder whose state cannot be resumed. */
static const mr_error *with_hint(mr_error *err, const char *dir)
{
    const mr_error was = *err;
    mr_error_set(err, was.status, "%.300s; remove %.200s to start this run afresh", was.text, dir);
    return err;
}

int mr_cell_run_once(mr_job *j, int worker, const mr_planned *run, mr_error *stopper)
{
    mr_cell_run t = {.job = j, .worker = worker, .run = run};
    mr_recipe recipe;
    mr_train_result r = {0};
    mr_row row = {0};
    mr_error err;
    int status = mr_cell_recipe(j->results.options, run, &recipe, &err), kept = 0;
    t.dir = status ? NULL : mr_cell_folder(j, run, mr_recipe_dtype(&recipe));
    if (!status && !t.dir) status = mr_no_memory(&err, "a run");
    if (!status) status = carry_out(&t, &recipe, &r, &err);
    if (!status && r.end == MR_END_STOPPED) left_unfinished(&t);
    else if (!status || status == MR_ENONFINITE) {
        kept = mr_cell_row(&t, &recipe, &r, status ? &err : NULL, &row, stopper);
        if (!kept) kept = keep_row(&t, &row, stopper);
        mr_row_free(&row);
    } else run_failed(&t, t.opened && (status == MR_EFORMAT || status == MR_EDATA) ? with_hint(&err, t.dir) : &err);
    mr_recipe_free(&recipe);
    mr_free(t.dir);
    return kept;
}
