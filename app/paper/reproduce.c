/* The runs of an experiment: which are missing, carried out one by one or side by side, each kept as a row. */
#include "paper/reproduce.h"

#include "core/clock.h"
#include "core/file.h"
#include "core/mem.h"
#include "core/pool.h"
#include "core/sha256.h"
#include "paper/report.h"
#include "paper/results.h"
#include "train/runlog.h"
#include "train/session.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { CURVE_HALF = 100, WORKERS = 64 }; /* points of a row's curve: so many of training, as many of evaluation */
#define NOTE_SECONDS 5

typedef struct job {
    const mr_experiment *e;
    mr_results results;
    mr_planned *runs;
    size_t count, next;
    mr_reproduce_result *result;
    atomic_int failure; /* the first of what stops all */
    atomic_int over;    /* the time is up: no run begins any more */
    /* of each worker: is it in a run, and how many ran at once at most, during it */
    int busy[WORKERS], beside[WORKERS];
    mr_error error;
} job;

/* One run while it is carried out. */
typedef struct turn {
    job *job;
    int worker;
    const mr_planned *run;
    char *dir;
    mr_train_watch told;              /* the caller's */
    mr_stop stop;                     /* what mr_train looks at: a signal, the deadline, or a failure elsewhere */
    double began, last, spent, noted; /* spent: seconds before this call */
    double parameters;
    int opened;    /* it had its data */
    mr_score test; /* of the best model, where the run has a test; otherwise its rows are 0 */
} turn;

static const char *dtype_of(const mr_recipe *recipe) { return recipe->train.dtype ? "bf16" : "f32"; }

/* ---- folders ---- */

/* A name for files that is the run's alone. */
static char *run_folder(const job *j, const mr_planned *run, const char *dtype)
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

/* Everything but the best model, where that is kept. What cannot be removed is left. */
static void clear_folder(const char *dir, int keep_model)
{
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
static void read_spent(turn *t)
{
    char *path = mr_path_join(t->dir, "spent"), *text = NULL;
    size_t size;
    if (path && mr_run_has_state(t->dir) && !mr_file_read(path, 256, &text, &size, NULL) &&
        !mr_real_read(text, &t->spent))
        t->spent = 0;
    mr_free(text);
    mr_free(path);
}

static void write_spent(const turn *t)
{
    char seconds[MR_REAL_MAX], *path = mr_path_join(t->dir, "spent");
    mr_real_print(seconds, t->spent + mr_seconds() - t->began, 0);
    if (path) mr_file_replace(path, seconds, strlen(seconds), NULL);
    mr_free(path);
}

/* ---- what happens in a run ---- */

/* Looks at the clock after each step: the next one takes as long as this one did. */
static void look_at_clock(turn *t)
{
    double now = mr_seconds();
    if (mr_results_over(t->job->results.options, now - t->last)) atomic_store(&t->job->over, 1);
    if (atomic_load(&t->job->failure) || atomic_load(&t->job->over)) t->stop = 1;
    if (now - t->noted > NOTE_SECONDS) t->noted = now, write_spent(t);
    t->last = now;
}

static void on_started(void *user, const mr_net *net, int64_t step, double deadline)
{
    turn *t = user;
    t->parameters = (double)mr_net_parameters(net);
    t->last = mr_seconds();
    look_at_clock(t); /* reading the data may have taken all there was */
    if (t->told.started) t->told.started(t->told.user, net, step, deadline);
}

static void on_stepped(void *user, int64_t step, int64_t tokens, double loss)
{
    turn *t = user;
    look_at_clock(t);
    if (t->told.stepped) t->told.stepped(t->told.user, step, tokens, loss);
}

static void on_evaluating(void *user, int done, int batches)
{
    turn *t = user;
    look_at_clock(t);
    if (t->told.evaluating) t->told.evaluating(t->told.user, done, batches);
}

static void on_evaluated(void *user, int64_t step, const mr_score *score, int best)
{
    turn *t = user;
    if (t->told.evaluated) t->told.evaluated(t->told.user, step, score, best);
}

static void on_notice(void *user, const char *line)
{
    turn *t = user;
    if (t->told.notice) t->told.notice(t->told.user, line);
}

/* ---- a finished run as a row ---- */

/* Training losses as means over equal spans, evaluations thinned out, the best one always among them. */
static size_t thin_curve(const mr_curve_point *all, size_t n, int64_t best_step, mr_curve_point *out)
{
    size_t steps = 0, evals = 0, kept = 0, seen = 0;
    for (size_t i = 0; i < n; i++) *(isnan(all[i].train_loss) ? &evals : &steps) += 1;
    size_t span = steps / CURVE_HALF + 1, every = evals / (CURVE_HALF - 1) + 1, in_span = 0;
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        if (isnan(all[i].train_loss)) {
            if (seen++ % every == 0 || seen == evals || all[i].step == best_step) out[kept++] = all[i];
            continue;
        }
        sum += all[i].train_loss;
        if (++in_span < span) continue;
        out[kept++] = (mr_curve_point){all[i].step, sum / (double)in_span, NAN, NAN};
        sum = 0, in_span = 0;
    }
    return kept;
}

static int take_curve(const turn *t, mr_row *row, int64_t best_step, mr_error *err)
{
    mr_curve_point *all = NULL;
    size_t n = 0;
    char *path = mr_path_join(t->dir, "log.jsonl");
    int status = path ? mr_runlog_read(path, &all, &n, err) : mr_no_memory(err, "the curve");
    if (!status) row->curve = mr_alloc(2 * CURVE_HALF + 4, sizeof *row->curve);
    if (!status && !row->curve) status = mr_no_memory(err, "the curve");
    if (!status) row->points = thin_curve(all, n, best_step, row->curve);
    for (size_t i = 0; !status && i < n; i++)
        if (all[i].test_loss <= t->run->target_loss) {
            mr_row_set(row, "target_step", (double)all[i].step);
            break;
        }
    mr_free(all);
    mr_free(path);
    return status;
}

/* Which run it is, and how it is scored. */
static void stamp(const job *j, const mr_planned *run, const mr_recipe *recipe, mr_row *row)
{
    mr_results_stamp(&j->results, row, run->row, run->column, run->settings, dtype_of(recipe));
    mr_row_set(row, "seed", (double)run->seed);
    mr_row_set(row, "target_loss", run->target_loss);
    mr_row_set_text(row, "measure", j->e->by_loss ? "loss" : "accuracy");
    mr_row_set(row, "scale", j->e->scale);
    if (run->test[0]) mr_row_set_text(row, "test", run->test);
}

static int make_row(const turn *t, const mr_recipe *recipe, const mr_train_result *r, const mr_error *diverged,
                    mr_row *row, mr_error *err)
{
    const job *j = t->job;
    stamp(j, t->run, recipe, row);
    if (t->run->paper_cell[0]) mr_row_set_text(row, "paper_cell", t->run->paper_cell);
    mr_row_set(row, "paper", t->run->paper.value);
    mr_row_set(row, "paper_std", t->run->paper.std);
    mr_row_set(row, "parameters", t->parameters);
    mr_row_set(row, "seconds", t->spent + mr_seconds() - t->began);
    mr_row_set(row, "tokens", (double)r->tokens);
    if (j->results.options->plan.steps) mr_row_set(row, "asked_steps", (double)j->results.options->plan.steps);
    if (diverged) {
        mr_row_set_text(row, "failed", diverged->text);
        return 0;
    }
    const double loss = t->test.rows ? t->test.loss : r->best_loss,
                 accuracy = t->test.rows ? t->test.accuracy : r->best_accuracy;
    mr_row_set(row, "score", j->e->scale * (j->e->by_loss ? loss : accuracy));
    mr_row_set(row, "loss", loss);
    mr_row_set(row, "accuracy", accuracy);
    if (t->test.rows) mr_row_set(row, "valid_loss", r->best_loss);
    if (t->test.rows) mr_row_set(row, "valid_accuracy", r->best_accuracy);
    mr_row_set(row, "steps", (double)r->step);
    mr_row_set(row, "best_step", (double)r->best_step);
    return take_curve(t, row, r->best_step, err);
}

static int keep_row(turn *t, mr_row *row, mr_error *err)
{
    job *j = t->job;
    const mr_reproduce_watch *watch = j->results.options->watch;
    pthread_mutex_lock(&j->results.mutex);
    mr_row_set(row, "side_by_side", j->beside[t->worker]);
    if (watch->finished) watch->finished(watch->user, t->worker, t->run, row);
    int status = mr_results_put(&j->results, row, err);
    if (!status) j->result->done++;
    pthread_mutex_unlock(&j->results.mutex);
    if (!status) clear_folder(t->dir, j->results.options->keep);
    return status;
}

/* ---- carrying it out ---- */

static int apply_options(const mr_reproduce_options *o, const mr_planned *run, mr_recipe *recipe, mr_error *err)
{
    int status = mr_planned_recipe(run, recipe, err);
    if (status) return status;
    if (o->dtype >= 0) recipe->train.dtype = o->dtype;
    if (o->tf32 >= 0) recipe->train.tf32 = o->tf32;
    return 0;
}

/* On the CPU the runs share its threads; which run has how many changes no number. */
static int threads_each(const mr_reproduce_options *o)
{
    const int all = o->threads ? o->threads : mr_processors();
    if (o->side_by_side < 2) return o->threads;
    return all / o->side_by_side > 1 ? all / o->side_by_side : 1;
}

/* The best model on what it was not chosen by. */
static int score_test(turn *t, mr_context *ctx, mr_error *err)
{
    mr_session session;
    mr_batch batch = {0};
    char key[sizeof t->run->test], *path = mr_path_join(t->dir, "model.safetensors");
    snprintf(key, sizeof key, "%s", t->run->test);
    char *value = mr_setting_value(key);
    int status = path ? mr_session_open(&session, path, ctx, err) : mr_no_memory(err, "the test");
    if (!status) {
        status = mr_recipe_set(&session.recipe, key, value, err);
        if (!status) status = mr_session_evaluate(&session, &batch, on_evaluating, t, &t->stop, &t->test, err);
        mr_batch_free(&batch);
        mr_session_close(&session);
    }
    mr_free(path);
    return status;
}

static int carry_out(turn *t, mr_recipe *recipe, mr_train_result *r, mr_error *err)
{
    job *j = t->job;
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
    int status = mr_recipe_open(recipe, err);
    t->opened = !status;
    if (!status) status = mr_context_new(&options, &ctx, err);
    if (!status && o->watch->starts) o->watch->starts(o->watch->user, t->worker, t->run, recipe, &t->told);
    watch.save_requests = t->told.save_requests;
    if (!status) read_spent(t);
    t->began = t->last = t->noted = mr_seconds();
    if (!status) status = mr_train(recipe, ctx, t->dir, 1, &t->stop, &watch, r, err);
    if (!status && r->end != MR_END_STOPPED && t->run->test[0]) status = score_test(t, ctx, err);
    if (status == MR_ESTOPPED) status = 0, r->end = MR_END_STOPPED;
    mr_context_free(ctx);
    return status;
}

static void left_unfinished(turn *t)
{
    job *j = t->job;
    const mr_reproduce_watch *watch = j->results.options->watch;
    write_spent(t);
    pthread_mutex_lock(&j->results.mutex);
    j->result->left++;
    if (watch->finished) watch->finished(watch->user, t->worker, t->run, NULL);
    pthread_mutex_unlock(&j->results.mutex);
}

static void run_failed(turn *t, const mr_error *err)
{
    job *j = t->job;
    const mr_reproduce_watch *watch = j->results.options->watch;
    pthread_mutex_lock(&j->results.mutex);
    *(err->status == MR_ENODATA ? &j->result->no_data : &j->result->failed) += 1;
    if (watch->failed) watch->failed(watch->user, t->worker, t->run, err);
    pthread_mutex_unlock(&j->results.mutex);
}

/* A state that cannot be read is no reason to be stuck for ever. */
static const mr_error *with_hint(mr_error *err, const char *dir)
{
    const mr_error was = *err;
    mr_error_set(err, was.status, "%.300s; remove %.200s to start this run anew", was.text, dir);
    return err;
}

/* Returns what stops all other runs too: results that cannot be written. */
static int run_one(job *j, int worker, const mr_planned *run, mr_error *stopper)
{
    turn t = {.job = j, .worker = worker, .run = run};
    mr_recipe recipe;
    mr_train_result r = {0};
    mr_row row = {0};
    mr_error err;
    int status = apply_options(j->results.options, run, &recipe, &err), kept = 0;
    t.dir = status ? NULL : run_folder(j, run, dtype_of(&recipe));
    if (!status && !t.dir) status = mr_no_memory(&err, "a run");
    if (!status) status = carry_out(&t, &recipe, &r, &err);
    if (!status && r.end == MR_END_STOPPED) left_unfinished(&t);
    else if (!status || status == MR_ENONFINITE) {
        kept = make_row(&t, &recipe, &r, status ? &err : NULL, &row, stopper);
        if (!kept) kept = keep_row(&t, &row, stopper);
        mr_row_free(&row);
    } else run_failed(&t, t.opened && (status == MR_EFORMAT || status == MR_EDATA) ? with_hint(&err, t.dir) : &err);
    mr_recipe_free(&recipe);
    mr_free(t.dir);
    return kept;
}

typedef struct worker {
    job *job;
    int number;
} worker;

/* The next run for a worker, which is free, or NULL. */
static const mr_planned *take_run(job *j, int number)
{
    int running = 0;
    pthread_mutex_lock(&j->results.mutex);
    if (mr_results_over(j->results.options, 0)) atomic_store(&j->over, 1);
    const mr_planned *run =
        j->next < j->count && !atomic_load(&j->failure) && !atomic_load(&j->over) ? &j->runs[j->next++] : NULL;
    j->busy[number] = run != NULL;
    j->beside[number] = 0;
    for (int i = 0; i < WORKERS; i++) running += j->busy[i];
    for (int i = 0; i < WORKERS; i++)
        if (j->busy[i] && j->beside[i] < running) j->beside[i] = running;
    pthread_mutex_unlock(&j->results.mutex);
    return run;
}

static void *work(void *arg)
{
    worker *w = arg;
    job *j = w->job;
    mr_error err;
    for (const mr_planned *run; (run = take_run(j, w->number));) {
        if (!run_one(j, w->number, run, &err)) continue;
        pthread_mutex_lock(&j->results.mutex);
        if (!atomic_load(&j->failure)) j->error = err;
        atomic_store(&j->failure, j->error.status);
        pthread_mutex_unlock(&j->results.mutex);
    }
    return NULL;
}

static void run_all(job *j)
{
    worker workers[WORKERS];
    pthread_t threads[WORKERS];
    int want = j->results.options->side_by_side, started = 1;
    if (want > WORKERS) want = WORKERS;
    if ((size_t)want > j->count) want = (int)j->count;
    if (want < 1) want = 1;
    for (int i = 0; i < want; i++) workers[i] = (worker){j, i};
    while (started < want && !pthread_create(&threads[started], NULL, work, &workers[started])) started++;
    work(&workers[0]);
    for (int i = 1; i < started; i++) pthread_join(threads[i], NULL);
    j->result->left += (int)(j->count - j->next);
    j->result->over = atomic_load(&j->over);
}

static int check_run(const mr_reproduce_options *o, const mr_planned *run, mr_error *err)
{
    mr_recipe recipe;
    char key[sizeof run->test];
    int status = apply_options(o, run, &recipe, err);
    if (status) return status;
    snprintf(key, sizeof key, "%s", run->test);
    const char *value = mr_setting_value(key);
    status = mr_recipe_check_model(&recipe, err);
    if (!status && key[0]) status = mr_recipe_set(&recipe, key, value, err);
    mr_recipe_free(&recipe);
    return status;
}

static int check_runs(const mr_planned *runs, size_t count, const mr_reproduce_options *o, const char *name,
                      const char *flag, mr_error *err)
{
    mr_error wrong;
    for (size_t i = 0; i < count; i++)
        if (check_run(o, &runs[i], &wrong))
            return mr_fail(err, wrong.status, "%s: %s/%s%s: %s", name, runs[i].row, runs[i].column, flag, wrong.text);
    return 0;
}

/* Every recipe is read before anything else, so that a mistake is known before hours have gone: also those of other
 * rows, of --as-paper and of --quick, where the file has something for them. */
static int check_all(const mr_experiment *e, const mr_reproduce_options *o, const char *name, mr_error *err)
{
    static const char *const flags[MR_PROFILES] = {"", " with --as-paper", " with --quick"};
    int status = 0;
    for (int i = 0; !status && i < MR_PROFILES; i++) {
        const mr_plan_options all = {.profile = (mr_profile)i, .seeds = 1, .first_seed = 1, .steps = o->plan.steps};
        mr_planned *runs = NULL;
        size_t count;
        if (all.profile != o->plan.profile && !mr_experiment_has_profile(e, all.profile)) continue;
        status = mr_experiment_plan(e, &all, &runs, &count, err);
        if (!status) status = check_runs(runs, count, o, name, flags[i], err);
        mr_free(runs);
    }
    return status;
}

/* Leaves in the list what is to be run. */
static int choose_runs(job *j, mr_error *err)
{
    const mr_reproduce_options *o = j->results.options;
    size_t kept = 0;
    for (size_t i = 0; i < j->count; i++) {
        mr_recipe recipe;
        mr_row row = {0};
        int status = apply_options(o, &j->runs[i], &recipe, err);
        if (status) return status;
        char *dir = run_folder(j, &j->runs[i], dtype_of(&recipe));
        stamp(j, &j->runs[i], &recipe, &row);
        mr_recipe_free(&recipe);
        mr_row *old = mr_table_find(&j->results.rows, &row);
        if (o->again && old) mr_row_set(old, "outdated", 1);
        /* rows of --again are outdated until they are replaced */
        int found = old && !mr_row_outdated(old) && mr_row_same_measure(old, &row);
        if (dir && (o->again || found)) clear_folder(dir, found); /* what a kill left; models that were kept stay */
        if (found) j->result->found++;
        else j->runs[kept++] = j->runs[i];
        mr_row_free(&row);
        mr_free(dir);
    }
    j->count = kept;
    return o->again && j->results.rows.count ? mr_table_write(&j->results.rows, j->results.path, j->results.name, err)
                                             : 0;
}

int mr_reproduce(const char *name, const mr_reproduce_options *o, mr_reproduce_result *result, mr_error *err)
{
    mr_experiment e;
    job j = {.e = &e, .result = result};
    memset(result, 0, sizeof *result);
    int status = mr_experiment_load(&e, name, err);
    if (status) return status;
    status = mr_experiment_plan(&e, &o->plan, &j.runs, &j.count, err);
    if (!status) status = check_all(&e, o, name, err);
    if (!status && j.count) {
        status = mr_results_open(&j.results, e.name, o, mr_report_write, &e, err);
        if (!status) status = choose_runs(&j, err);
        if (!status) run_all(&j);
        if (!status && atomic_load(&j.failure)) *err = j.error, status = j.error.status;
        if (!status && j.results.rows.count) status = mr_report_write(&e, &j.results.rows, o->out, err);
        mr_results_close(&j.results);
    }
    if (!status && o->stop && *o->stop) status = mr_fail(err, MR_ESTOPPED, "stopped");
    mr_free(j.runs);
    mr_experiment_free(&e);
    return status;
}
