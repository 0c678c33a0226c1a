/* The runs of an experiment: which are missing, carried out one by one or side by side, each kept as a row. */
#include "paper/reproduce.h"

#include "core/mem.h"
#include "paper/report.h"
#include "paper/reproduce_job.h"
#include "paper/result_review.h"

#include <stdio.h>
#include <string.h>

typedef struct worker {
    mr_job *job;
    int number;
} worker;

/* The next run for an idle worker; NULL: none. */
static const mr_planned *take_run(mr_job *j, int number)
{
    int running = 0;
    pthread_mutex_lock(&j->results.mutex);
    if (mr_reproduce_time_is_up(j->results.options, 0)) atomic_store(&j->over, 1);
    const mr_planned *run =
        j->next < j->count && !atomic_load(&j->failure) && !atomic_load(&j->over) ? &j->runs[j->next++] : NULL;
    j->busy[number] = run != NULL;
    j->beside[number] = 0;
    for (int i = 0; i < MR_WORKERS; i++) running += j->busy[i];
    for (int i = 0; i < MR_WORKERS; i++)
        if (j->busy[i] && j->beside[i] < running) j->beside[i] = running;
    pthread_mutex_unlock(&j->results.mutex);
    return run;
}

static void *work(void *arg)
{
    worker *w = arg;
    mr_job *j = w->job;
    mr_error err;
    for (const mr_planned *run; (run = take_run(j, w->number));) {
        if (!mr_cell_run_once(j, w->number, run, &err)) continue;
        pthread_mutex_lock(&j->results.mutex);
        if (!atomic_load(&j->failure)) j->error = err;
        atomic_store(&j->failure, j->error.status);
        pthread_mutex_unlock(&j->results.mutex);
    }
    return NULL;
}

static void run_all(mr_job *j)
{
    worker workers[MR_WORKERS];
    pthread_t threads[MR_WORKERS];
    int want = j->results.options->side_by_side, started = 1;
    if (want > MR_WORKERS) want = MR_WORKERS;
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
    int status = mr_cell_recipe(o, run, &recipe, err);
    if (status) return status;
    status = mr_recipe_check_model(&recipe, err);
    if (!status) status = mr_settings_apply(&recipe, run->test, err);
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

/* Every recipe is read before anything is run, so that a mistake does not show up after hours: also those of other
 * rows, of --as-paper and of --quick, where the file has something for them. */
static int check_all(const mr_experiment *e, const mr_reproduce_options *o, const char *name, mr_error *err)
{
    static const char *const flags[MR_PROFILES] = {"", " with --as-paper", " with --quick", " with --search"};
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

/* Is the run's result there? A row that must be replaced is marked as outdated until then. */
static int has_result(mr_job *j, const mr_planned *run, const mr_recipe *recipe, int *outdated)
{
    mr_row row = {0};
    mr_cell_row_start(j, run, recipe, &row);
    mr_row *old = mr_rows_find(&j->results.rows, &row);
    int found = old && !mr_row_outdated(old) && !j->results.options->again;
    if (found && !mr_row_is_current(&j->data, run, recipe, &row, old)) found = 0, j->result->other_data++;
    *outdated = old && !found && !mr_row_outdated(old);
    if (*outdated) mr_row_set(old, "outdated", 1);
    mr_row_free(&row);
    return found;
}

/* Leaves in the list the runs that have no result yet. */
static int choose_runs(mr_job *j, mr_error *err)
{
    const mr_reproduce_options *o = j->results.options;
    size_t kept = 0;
    int changed = 0;
    for (size_t i = 0; i < j->count; i++) {
        mr_recipe recipe;
        int outdated, status = mr_cell_recipe(o, &j->runs[i], &recipe, err);
        if (status) return status;
        char *dir = mr_cell_folder(j, &j->runs[i], mr_recipe_dtype(&recipe));
        const int found = has_result(j, &j->runs[i], &recipe, &outdated);
        mr_recipe_free(&recipe);
        /* what a killed run left behind; models that were kept stay */
        if (dir && (o->again || found || outdated)) mr_cell_folder_clear(dir, found);
        changed |= outdated;
        if (found) j->result->found++;
        else j->runs[kept++] = j->runs[i];
        mr_free(dir);
    }
    j->count = kept;
    return changed ? mr_rows_write(&j->results.rows, j->results.path, j->results.name, err) : 0;
}

int mr_reproduce(const char *name, const mr_reproduce_options *o, mr_reproduce_result *result, mr_error *err)
{
    mr_experiment e;
    mr_job j = {.e = &e, .result = result};
    memset(result, 0, sizeof *result);
    int status = mr_experiment_load(&e, name, err);
    if (status) return status;
    status = mr_experiment_plan(&e, &o->plan, &j.runs, &j.count, err);
    if (!status) status = check_all(&e, o, name, err);
    if (!status && j.count) {
        status = mr_result_folder_open(&j.results, e.name, o, mr_report_write, &e, err);
        if (!status) status = choose_runs(&j, err);
        if (!status) run_all(&j);
        if (!status && atomic_load(&j.failure)) *err = j.error, status = j.error.status;
        if (!status && j.results.rows.count) status = mr_report_write(&e, &j.results.rows, o->out, err);
        mr_result_folder_close(&j.results);
    }
    if (!status && o->stop && *o->stop) status = mr_fail(err, MR_ESTOPPED, "stopped");
    mr_free(j.runs);
    mr_experiment_free(&e);
    return status;
}
