/* minrnn reproduce: experiments are run one after another, with progress on stderr. */
#include "core/clock.h"
#include "core/file.h"
#include "core/mem.h"
#include "core/strbuf.h"
#include "commands/commands.h"
#include "commands/reproduce_parts.h"
#include "commands/run_view.h"
#include "paper/report.h"
#include "train/recipes.h"

#include <math.h>
#include <string.h>

enum { MOST = 64 };

typedef struct progress {
    const mr_reproduce_settings *set;
    mr_run_view views[MOST];
    char last_failure[1024];
} progress;

static void starts(void *user, int worker, const mr_planned *run, const mr_recipe *recipe, mr_train_watch *watch)
{
    progress *s = user;
    char label[128];
    snprintf(label, sizeof label, "%s/%s, seed %lld", run->row, run->column, (long long)run->seed);
    *watch = mr_run_view_start(&s->views[worker], recipe, label, s->set->side_by_side == 1, s->set->common.quiet);
}

static void finished(void *user, int worker, const mr_planned *run, const mr_row *row)
{
    progress *s = user;
    char paper[64], ours[64], time[32];
    mr_run_view_clear(&s->views[worker]);
    if (s->set->common.quiet) return;
    if (!row) {
        fprintf(stderr, "%s/%s, seed %lld: stopped and saved\n", run->row, run->column, (long long)run->seed);
        return;
    }
    mr_report_paper(paper, run->paper.value, run->paper.std);
    if (mr_row_text(row, "failed")[0]) snprintf(ours, sizeof ours, "diverged");
    else mr_report_number(ours, mr_row_number(row, "score"), NAN, 4);
    fprintf(stderr, "%s/%s, seed %lld: %s", run->row, run->column, (long long)run->seed, ours);
    if (mr_row_comparable(row)) fprintf(stderr, " (paper: %s)", paper[0] ? paper : "none");
    fprintf(stderr, " in %s\n", mr_report_time(time, mr_row_number(row, "seconds")));
}

/* A sentence that repeats itself (missing data, say) is printed once. */
static void failed(void *user, int worker, const mr_planned *run, const mr_error *err)
{
    progress *s = user;
    mr_error named = *err;
    mr_run_view_clear(&s->views[worker]);
    if (err->status != MR_EDATA && err->status != MR_ENODATA)
        mr_error_set(&named, err->status, "%s/%s, seed %lld: %s", run->row, run->column, (long long)run->seed,
                     err->text);
    if (strcmp(s->last_failure, named.text)) mr_report("reproduce", &named);
    snprintf(s->last_failure, sizeof s->last_failure, "%s", named.text);
}

static void measured_row(void *user, const mr_row *row)
{
    const progress *s = user;
    const double ms = mr_row_number(row, "ms"), percent = mr_row_number(row, "percent");
    if (s->set->common.quiet) return;
    fprintf(stderr, "%s/%s: ", mr_row_text(row, "row"), mr_row_text(row, "column"));
    if (isfinite(ms)) fprintf(stderr, "%.4g ms\n", ms);
    else if (isfinite(percent)) fprintf(stderr, "%.3g %%\n", percent);
    else fprintf(stderr, "not run, %s\n", mr_row_text(row, "note"));
}

static void add_up(mr_reproduce_result *total, const mr_reproduce_result *r)
{
    total->done += r->done, total->found += r->found, total->left += r->left, total->failed += r->failed,
        total->no_data += r->no_data, total->other_data += r->other_data, total->cut |= r->cut;
}

static int reproduce_one(const char *name, const mr_reproduce_options *o, mr_reproduce_result *r, mr_error *err)
{
    const mr_measured *m = mr_measured_find(name);
    return m ? mr_reproduce_measured(m, o, r, err) : mr_reproduce(name, o, r, err);
}

static int can_be_run(const mr_reproduce_settings *set, const char *name)
{
    mr_experiment e;
    if (mr_experiment_load(&e, name, NULL)) return 1; /* which says why it cannot */
    const int can = !mr_reproduce_lacks(set, &e);
    mr_experiment_free(&e);
    return can;
}

/* The names that were given, or all that can be run in this way, measurements first. */
static size_t choose_names(const mr_reproduce_settings *set, const mr_args *args, const char **names)
{
    size_t n = 0;
    if (args->count != 1 || strcmp(args->given[0], "all")) {
        for (int i = 0; i < args->count; i++) names[n++] = args->given[i];
        return n;
    }
    for (int i = 0; mr_measured_experiments[i] && n < MOST; i++) names[n++] = mr_measured_experiments[i]->name;
    for (int i = 0; mr_experiment_names[i] && n < MOST; i++)
        if (can_be_run(set, mr_experiment_names[i])) names[n++] = mr_experiment_names[i];
    return n;
}

/* What to type to continue: --again would start over. */
static const char *how_to_continue(const mr_reproduce_settings *set)
{
    return set->again ? "the same command without --again" : "the same command";
}

static void print_summary(const mr_reproduce_settings *set, const mr_reproduce_result *r)
{
    if (set->common.quiet) return;
    fprintf(stderr, "%d done, %d were there", r->done, r->found);
    if (r->other_data)
        fprintf(stderr,
                ", %d outdated because the data, the model of init, the test set or the way of scoring has changed",
                r->other_data);
    const char *command = how_to_continue(set);
    if (r->left) fprintf(stderr, ", %d left: %s resumes them", r->left, command);
    if (r->cut) fprintf(stderr, ", not all measured: %s continues", command);
    if (r->no_data) fprintf(stderr, ", %d without their data", r->no_data);
    if (r->failed) fprintf(stderr, ", %d failed", r->failed);
    fprintf(stderr, "\n");
}

/* Files of somebody else are refused before anything is run. */
static int check_files(const mr_reproduce_settings *set, const char *const *names, size_t n, mr_error *err)
{
    int status = 0;
    for (size_t i = 0; !status && i < n; i++) {
        const int measured = mr_measured_find(names[i]) != NULL;
        const char *name = mr_path_name(names[i]);
        char alone[64];
        snprintf(alone, sizeof alone, "%.*s", (int)(strlen(name) - (mr_ini_is_name(name) ? 4 : 0)), name);
        status = mr_reproduce_check_files(set->out, alone, measured, err);
    }
    return status;
}

/* One after another. An error in one of several is reported, and the rest are run; its name becomes NULL. */
static int run_names(mr_reproduce_options *o, const char **names, size_t n, int quiet, mr_reproduce_result *total,
                     mr_error *err)
{
    for (size_t i = 0; i < n; i++) {
        mr_reproduce_result r;
        if (n > 1 && !quiet) fprintf(stderr, "%s\n", names[i]);
        const int status = reproduce_one(names[i], o, &r, err);
        add_up(total, &r);
        if (r.over) o->deadline = mr_seconds(); /* too little time is left for another step */
        if (status && (status == MR_ESTOPPED || n == 1)) return status;
        if (!status) continue;
        mr_report("reproduce", err);
        names[i] = NULL;
        total->failed++;
    }
    return 0;
}

/* Adds the first cells of an experiment, "minGRU/accuracy, …". */
static void add_cells(mr_strbuf *to, const char *name, const mr_reproduce_settings *set)
{
    enum { SHOWN = 4 };
    const mr_plan_options every = {.profile = mr_reproduce_profile(set), .seeds = 1, .first_seed = 1};
    mr_experiment e;
    mr_planned *runs = NULL;
    size_t count = 0;
    if (mr_measured_find(name) || mr_experiment_load(&e, name, NULL)) return;
    if (mr_experiment_plan(&e, &every, &runs, &count, NULL)) count = 0;
    for (size_t i = 0; i < count && i < SHOWN; i++)
        mr_strbuf_format(to, "%s%s/%s", i ? ", " : "", runs[i].row, runs[i].column);
    if (count > SHOWN) mr_strbuf_format(to, " and %zu more", count - SHOWN);
    mr_free(runs);
    mr_experiment_free(&e);
}

static int no_cell(const mr_reproduce_settings *set, const char *name, mr_error *err)
{
    mr_strbuf cells = {0};
    add_cells(&cells, name, set);
    const int status =
        mr_fail(err, MR_EINVAL, "--only %.80s: matches no cell; cells are named ROW/COLUMN (* and ? are wildcards)%s%s",
                set->only, cells.size ? ": " : "", cells.size && !cells.failed ? cells.data : "");
    mr_strbuf_free(&cells);
    return status;
}

int mr_reproduce_run(const mr_reproduce_settings *set, const mr_args *args, double budget)
{
    const char *names[MOST] = {NULL};
    size_t n = choose_names(set, args, names);
    progress s = {.set = set};
    mr_reproduce_watch watch = {&s, starts, finished, failed, measured_row};
    mr_reproduce_result total = {0};
    mr_error err;
    const int all = !strcmp(args->given[0], "all");
    mr_reproduce_options o = {.plan = {mr_reproduce_profile(set), set->seeds, set->common.seed, set->steps, set->only},
                              .out = set->out,
                              .deadline = budget > 0 ? mr_seconds() + budget : 0,
                              .side_by_side = (int)set->side_by_side,
                              .again = set->again,
                              .keep = set->keep,
                              .device = set->common.device,
                              .warn = set->common.quiet ? NULL : mr_print_notice,
                              .threads = (int)set->common.threads,
                              .cell_seconds = set->cell_seconds,
                              .dtype = mr_args_was_set(args, "dtype") ? set->common.dtype : -1,
                              .tf32 = mr_args_was_set(args, "tf32") ? set->common.tf32 : -1,
                              .stop = mr_stop_flag(),
                              .watch = &watch};
    int status = check_files(set, names, n, &err);
    if (!status) status = run_names(&o, names, n, set->common.quiet, &total, &err);
    if (status == MR_ESTOPPED) {
        fprintf(stderr, "stopped, saved; %s continues\n", how_to_continue(set));
        return 128 + (int)*mr_stop_flag();
    }
    if (!status && set->only[0] && !(total.done + total.found + total.left + total.failed + total.no_data + total.cut))
        status = no_cell(set, names[0], &err);
    if (!status) status = mr_reproduce_print(set, names, n, &err);
    if (status) return mr_report("reproduce", &err);
    print_summary(set, &total);
    return total.failed || (total.no_data && !all) ? MR_EXIT_FAILED : MR_EXIT_DONE;
}
