/* minrnn reproduce: the paper's experiments, one command each. */
#include "core/clock.h"
#include "core/file.h"
#include "core/mem.h"
#include "bench/experiments.h"
#include "train/recipes.h"
#include "paper/report.h"
#include "commands/args.h"
#include "commands/commands.h"
#include "commands/run_view.h"

#include <math.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

typedef struct settings {
    mr_common common;
    char out[MR_TEXT_MAX], only[MR_TEXT_MAX], budget[MR_TEXT_MAX];
    int64_t seeds, side_by_side, steps;
    double cell_seconds;
    int quick, as_paper, again, keep, merge, list;
} settings;

#define FIELD(name) offsetof(settings, name)

static const mr_option flags[] = {
    MR_COMMON_FLAGS,
    {"out", MR_OPT_TEXT, FIELD(out), "reproduce", 0, 0, NULL, "the folder of results", MR_OPT_PATH},
    {"seeds", MR_OPT_INT, FIELD(seeds), "1", 1, 1000, NULL, "runs of each cell, with seeds from --seed on", 0},
    {"budget", MR_OPT_TEXT, FIELD(budget), "", 0, 0, NULL,
     "stop after so long (90s, 25m, 3h); what is unfinished is gone on with next time", 0},
    {"side-by-side", MR_OPT_INT, FIELD(side_by_side), "1", 1, 64, NULL, "runs at once on the device", 0},
    {"only", MR_OPT_TEXT, FIELD(only), "", 0, 0, NULL,
     "cells whose ROW/COLUMN contains this, fits it as a pattern (* and ?), or is it (=ROW/COLUMN)", 0},
    {"steps", MR_OPT_INT, FIELD(steps), "0", 0, 1e12, NULL, "training steps; 0: as the experiment says", 0},
    {"as-paper", MR_OPT_BOOL, FIELD(as_paper), "no", 0, 0, NULL, "the paper's own settings where ours differ", 0},
    {"quick", MR_OPT_BOOL, FIELD(quick), "no", 0, 0, NULL, "small versions, in seconds: to see that everything works",
     0},
    {"again", MR_OPT_BOOL, FIELD(again), "no", 0, 0, NULL, "forget the results that are there, and run anew", 0},
    {"keep", MR_OPT_BOOL, FIELD(keep), "no", 0, 0, NULL, "keep the models, in DIR/runs", 0},
    {"cell-seconds", MR_OPT_REAL, FIELD(cell_seconds), "20", 0, 1e6, NULL,
     "measurements: the longest that one may take", 0},
    {"merge", MR_OPT_BOOL, FIELD(merge), "no", 0, 0, NULL,
     "the arguments are files of results, to be added to those in --out", 0},
    {"list", MR_OPT_BOOL, FIELD(list), "no", 0, 0, NULL, "list the experiments", 0},
    {0}};

/* Experiments that measure instead of training. */
static const mr_measured *const measured[] = {&mr_efficiency, &mr_inference, &mr_parameters, NULL};

static const mr_measured *find_measured(const char *name)
{
    for (int i = 0; measured[i]; i++)
        if (!strcmp(measured[i]->name, name)) return measured[i];
    return NULL;
}

/* A file that says nothing of --quick or --as-paper would be run as something that it is not. */
static const char *profile_missing(const settings *set, const mr_experiment *e)
{
    const mr_profile wanted = set->quick ? MR_PROFILE_QUICK : set->as_paper ? MR_PROFILE_PAPER : MR_PROFILE_OURS;
    return wanted == MR_PROFILE_OURS || mr_experiment_has_profile(e, wanted) ? NULL : mr_profile_names[wanted];
}

/* Can it be carried out? A file is read to see, so that a bad one stops everything before the first run. */
static int is_experiment(const settings *set, const char *name, mr_error *err)
{
    mr_experiment e;
    if (find_measured(name)) return 1;
    if (mr_experiment_load(&e, name, err)) return 0;
    const int own = mr_ini_is_name(name), taken = own && find_measured(e.name);
    const char *missing = own ? profile_missing(set, &e) : NULL;
    if (taken)
        mr_error_set(err, MR_EINVAL, "%.200s: there is an experiment %s already; give the file another name", name,
                     e.name);
    else if (missing) mr_error_set(err, MR_EINVAL, "%.200s: has no section [%s]", name, missing);
    mr_experiment_free(&e);
    return !taken && !missing;
}

/* ---- what the user sees ---- */

enum { MOST = 64 };

typedef struct show {
    const settings *set;
    mr_run_view views[MOST];
    char last_failure[1024];
} show;

static void starts(void *user, int worker, const mr_planned *run, const mr_recipe *recipe, mr_train_watch *watch)
{
    show *s = user;
    char label[128];
    snprintf(label, sizeof label, "%s/%s, seed %lld", run->row, run->column, (long long)run->seed);
    *watch = mr_run_view_start(&s->views[worker], recipe, label, s->set->side_by_side == 1, s->set->common.quiet);
}

static void finished(void *user, int worker, const mr_planned *run, const mr_row *row)
{
    show *s = user;
    char paper[64], ours[64], time[32];
    mr_run_view_clear(&s->views[worker]);
    if (s->set->common.quiet) return;
    if (!row) {
        fprintf(stderr, "%s/%s, seed %lld: stopped and saved\n", run->row, run->column, (long long)run->seed);
        return;
    }
    mr_report_number(paper, run->paper.value, run->paper.std, 4);
    if (mr_row_text(row, "failed")[0]) snprintf(ours, sizeof ours, "diverged");
    else mr_report_number(ours, mr_row_number(row, "score"), NAN, 4);
    fprintf(stderr, "%s/%s, seed %lld: %s (paper: %s) in %s\n", run->row, run->column, (long long)run->seed, ours,
            paper[0] ? paper : "none", mr_report_time(time, mr_row_number(row, "seconds")));
}

/* The same sentence (missing data, say) once. */
static void failed(void *user, int worker, const mr_planned *run, const mr_error *err)
{
    show *s = user;
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
    const show *s = user;
    const double ms = mr_row_number(row, "ms"), percent = mr_row_number(row, "percent");
    if (s->set->common.quiet) return;
    fprintf(stderr, "%s/%s: ", mr_row_text(row, "row"), mr_row_text(row, "column"));
    if (isfinite(ms)) fprintf(stderr, "%.4g ms\n", ms);
    else if (isfinite(percent)) fprintf(stderr, "%.3g %%\n", percent);
    else fprintf(stderr, "not run, %s\n", mr_row_text(row, "note"));
}

/* ---- results ---- */

static void print_json_number(const char *key, double value)
{
    if (isfinite(value)) printf(", \"%s\": %.9g", key, value);
}

static void print_json_text(const char *key, const char *value)
{
    printf(", \"%s\": ", key);
    mr_print_json_string(stdout, value, strlen(value));
}

static void print_group_json(const mr_group *g, const char *name, int first)
{
    printf("%s  {\"experiment\": \"%s\"", first ? "" : ",\n", name);
    static const char *const texts[] = {"row", "column", "profile", "settings", "kind", "dtype", "device"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        print_json_text(texts[i], mr_row_text(g->first, texts[i]));
    print_json_number("paper", mr_row_number(g->first, "paper"));
    print_json_number("paper_std", mr_row_number(g->first, "paper_std"));
    print_json_number("mean", g->mean);
    print_json_number("std", g->std);
    printf(", \"seeds\": %d, \"diverged\": %d", g->seeds, g->failed);
    print_json_number("steps", g->steps);
    print_json_number("best_step", g->best_step);
    print_json_number("target_step", g->target_step);
    print_json_number("seconds", g->seconds);
    printf("}");
}

static void print_group(const mr_group *g)
{
    char paper[64], ours[64], time[32], steps[64], label[128];
    const mr_row *row = g->first;
    snprintf(label, sizeof label, "%s/%s", mr_row_text(row, "row"), mr_row_text(row, "column"));
    mr_report_number(paper, mr_row_number(row, "paper"), mr_row_number(row, "paper_std"), 4);
    if (g->failed == g->seeds) snprintf(ours, sizeof ours, "diverged");
    else mr_report_number(ours, g->mean, g->std, 4);
    mr_report_number(steps, g->steps, NAN, 9);
    printf("  %-36s paper %-12s ours %-16s %d seed%s, %s steps, %s, %s %s, %s%s\n", label, paper[0] ? paper : "-", ours,
           g->seeds, g->seeds > 1 ? "s" : "", steps, mr_report_time(time, g->seconds), mr_row_text(row, "device"),
           mr_row_text(row, "dtype"), mr_row_text(row, "profile"), mr_row_outdated(row) ? ", outdated" : "");
}

static int print_results(const settings *set, const char *name, int *first, mr_error *err)
{
    mr_experiment e;
    mr_table rows;
    mr_group *groups = NULL;
    size_t n = 0;
    int status = mr_experiment_load(&e, name, err);
    if (status) return status;
    status = mr_reproduce_rows(set->out, e.name, &rows, err);
    if (!status) {
        status = mr_report_groups(&e, &rows, &groups, &n, err);
        if (!status && !set->common.json && n) printf("%s: %s\n", e.name, e.summary);
        for (size_t i = 0; !status && i < n; i++) {
            if (set->common.json) print_group_json(&groups[i], e.name, *first);
            else print_group(&groups[i]);
            *first = 0;
        }
        if (!status && !set->common.json && n) printf("  %s/%s.md\n", set->out, e.name);
        mr_free(groups);
        mr_table_free(&rows);
    }
    mr_experiment_free(&e);
    return status;
}

static void print_row_json(const mr_row *row, int first)
{
    printf("%s  {", first ? "" : ",\n");
    for (int i = 0; i < row->count; i++) {
        const mr_field *f = &row->fields[i];
        printf("%s\"%s\": ", i ? ", " : "", f->key);
        if (f->text) mr_print_json_string(stdout, f->text, strlen(f->text));
        else printf("%.9g", f->number);
    }
    printf("}");
}

/* Measurements: the page that was written, or the rows. */
static int print_measured(const settings *set, const char *name, int *first, mr_error *err)
{
    mr_table rows;
    char *page = NULL, path[MR_TEXT_MAX + 64];
    size_t size;
    int status = mr_reproduce_rows(set->out, name, &rows, err);
    if (status) return status;
    for (size_t i = 0; set->common.json && i < rows.count; i++, *first = 0) print_row_json(&rows.list[i], *first);
    snprintf(path, sizeof path, "%s/%s.md", set->out, name);
    if (!set->common.json && rows.count) status = mr_file_read(path, 1 << 24, &page, &size, err);
    if (page) printf("%s", page);
    mr_free(page);
    mr_table_free(&rows);
    return status;
}

/* ---- the parts of the command ---- */

static int print_list(void)
{
    mr_error err;
    for (int i = 0; measured[i]; i++) printf("%-16s %s\n", measured[i]->name, measured[i]->summary);
    for (int i = 0; mr_experiment_names[i]; i++) {
        mr_experiment e;
        if (mr_experiment_load(&e, mr_experiment_names[i], &err)) return mr_report("reproduce", &err);
        printf("%-16s %s\n", e.name, e.summary);
        mr_experiment_free(&e);
    }
    return MR_EXIT_DONE;
}

/* "25m" in seconds; 0 where it is no time. */
static double read_budget(const char *text)
{
    char number[32];
    size_t n = strspn(text, "0123456789.");
    const char *unit = text + n;
    double value, seconds = !strcmp(unit, "h") ? 3600 : !strcmp(unit, "m") ? 60 : !strcmp(unit, "s") || !*unit ? 1 : 0;
    snprintf(number, sizeof number, "%.*s", (int)(n < 31 ? n : 31), text);
    return mr_real_read(number, &value) && value < 1e9 ? value * seconds : 0;
}

static int merge_measured(const settings *set, const mr_table *rows, const mr_measured *m, size_t *total, mr_error *err)
{
    size_t added;
    mr_table all;
    int status = mr_reproduce_merge(set->out, m->name, rows, &added, err);
    *total += added;
    if (status || !added) return status;
    status = mr_reproduce_rows(set->out, m->name, &all, err);
    if (status) return status;
    status = m->report(&all, set->out, err);
    mr_table_free(&all);
    return status;
}

/* name: of an experiment that is built in, or of a FILE.ini. */
static int merge_runs(const settings *set, const mr_table *rows, const char *name, size_t *total, mr_error *err)
{
    size_t added;
    mr_experiment e;
    mr_table all;
    int status = mr_experiment_load(&e, name, err);
    if (status) return status;
    status = mr_reproduce_merge(set->out, e.name, rows, &added, err);
    *total += added;
    if (!status && added) {
        status = mr_reproduce_rows(set->out, e.name, &all, err);
        if (!status) status = mr_report_write(&e, &all, set->out, err);
        mr_table_free(&all);
    }
    mr_experiment_free(&e);
    return status;
}

/* Of an experiment that is built in, or whose FILE.ini is among the arguments? */
static int is_known(const mr_row *row, const mr_args *args)
{
    const char *name = mr_row_text(row, "experiment");
    if (find_measured(name)) return 1;
    int known = mr_experiment_built_in(name) >= 0;
    for (int i = 0; !known && i < args->count; i++) {
        const char *file = mr_path_name(args->given[i]);
        known = mr_ini_is_name(file) && strlen(file) == strlen(name) + 4 && !strncmp(file, name, strlen(name));
    }
    return known && isfinite(mr_row_number(row, "seed"));
}

static int read_merged(const mr_args *args, mr_table *rows, mr_error *err)
{
    int status = 0;
    for (int i = 0; !status && i < args->count; i++)
        if (!mr_ini_is_name(args->given[i])) status = mr_table_read(rows, args->given[i], err);
    for (size_t i = 0; !status && i < rows->count; i++)
        if (!is_known(&rows->list[i], args))
            status = mr_fail(err, MR_EDATA,
                             "row %zu is of an experiment that this minrnn does not know (%.60s); where it is your "
                             "own, give its FILE.ini too",
                             i + 1, mr_row_text(&rows->list[i], "experiment"));
    return status;
}

static int merge(const settings *set, const mr_args *args)
{
    mr_table rows = {0};
    mr_error err;
    size_t added = 0;
    int status = read_merged(args, &rows, &err);
    for (int i = 0; !status && mr_experiment_names[i]; i++)
        status = merge_runs(set, &rows, mr_experiment_names[i], &added, &err);
    for (int i = 0; !status && i < args->count; i++)
        if (mr_ini_is_name(args->given[i])) status = merge_runs(set, &rows, args->given[i], &added, &err);
    for (int i = 0; !status && measured[i]; i++) status = merge_measured(set, &rows, measured[i], &added, &err);
    if (!status) printf("%zu rows read, %zu new in %s\n", rows.count, added, set->out);
    mr_table_free(&rows);
    return status ? mr_report("reproduce", &err) : MR_EXIT_DONE;
}

static void add_up(mr_reproduce_result *total, const mr_reproduce_result *r)
{
    total->done += r->done, total->found += r->found, total->left += r->left, total->failed += r->failed,
        total->no_data += r->no_data, total->cut |= r->cut;
}

static int reproduce_one(const char *name, const mr_reproduce_options *o, mr_reproduce_result *r, mr_error *err)
{
    const mr_measured *m = find_measured(name);
    return m ? mr_reproduce_measured(m, o, r, err) : mr_reproduce(name, o, r, err);
}

/* The names given, or all of them, those that only measure first. */
static size_t choose_names(const mr_args *args, const char **names)
{
    size_t n = 0;
    if (args->count != 1 || strcmp(args->given[0], "all")) {
        for (int i = 0; i < args->count; i++) names[n++] = args->given[i];
        return n;
    }
    for (int i = 0; measured[i] && n < MOST; i++) names[n++] = measured[i]->name;
    for (int i = 0; mr_experiment_names[i] && n < MOST; i++) names[n++] = mr_experiment_names[i];
    return n;
}

/* names: NULL where there is nothing to print. */
static int print_all(const settings *set, const char *const *names, size_t n, mr_error *err)
{
    int status = 0, first = 1;
    if (set->common.json) printf("[\n");
    for (size_t i = 0; !status && i < n; i++)
        if (names[i]) status = (find_measured(names[i]) ? print_measured : print_results)(set, names[i], &first, err);
    if (set->common.json) printf("\n]\n");
    return status;
}

/* What to type to go on: --again would begin anew. */
static const char *the_same(const settings *set)
{
    return set->again ? "the same command without --again" : "the same command";
}

static void say_how_it_went(const settings *set, const mr_reproduce_result *r)
{
    if (set->common.quiet) return;
    fprintf(stderr, "%d done, %d were there", r->done, r->found);
    const char *command = the_same(set);
    if (r->left) fprintf(stderr, ", %d left: %s goes on with them", r->left, command);
    if (r->cut) fprintf(stderr, ", not all measured: %s goes on", command);
    if (r->no_data) fprintf(stderr, ", %d without their data", r->no_data);
    if (r->failed) fprintf(stderr, ", %d failed", r->failed);
    fprintf(stderr, "\n");
}

/* One after the other. What is wrong with one of several is told, and keeps nobody else from being run; its name
 * becomes NULL. */
static int run_names(mr_reproduce_options *o, const char **names, size_t n, int quiet, mr_reproduce_result *total,
                     mr_error *err)
{
    for (size_t i = 0; i < n; i++) {
        mr_reproduce_result r;
        if (n > 1 && !quiet) fprintf(stderr, "%s\n", names[i]);
        const int status = reproduce_one(names[i], o, &r, err);
        add_up(total, &r);
        if (r.over) o->deadline = mr_seconds(); /* what is left is too little for a step */
        if (status && (status == MR_ESTOPPED || n == 1)) return status;
        if (!status) continue;
        mr_report("reproduce", err);
        names[i] = NULL;
        total->failed++;
    }
    return 0;
}

static int reproduce(const settings *set, const mr_args *args, double budget)
{
    const char *names[MOST];
    size_t n = choose_names(args, names);
    show s = {.set = set};
    mr_reproduce_watch watch = {&s, starts, finished, failed, measured_row};
    mr_reproduce_result total = {0};
    mr_error err;
    const int all = !strcmp(args->given[0], "all");
    mr_reproduce_options o = {.plan = {set->quick      ? MR_PROFILE_QUICK
                                       : set->as_paper ? MR_PROFILE_PAPER
                                                       : MR_PROFILE_OURS,
                                       set->seeds, set->common.seed, set->steps, set->only},
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
    int status = run_names(&o, names, n, set->common.quiet, &total, &err);
    if (status == MR_ESTOPPED) {
        fprintf(stderr, "stopped, saved; %s goes on\n", the_same(set));
        return 128 + (int)*mr_stop_flag();
    }
    if (!status && set->only[0] && !(total.done + total.found + total.left + total.failed + total.no_data + total.cut))
        status = mr_fail(
            &err, MR_EINVAL,
            "--only %.80s: fits no cell; they are called ROW/COLUMN, as in the tables of --out (pattern: * and ?)",
            set->only);
    if (!status) status = print_all(set, names, n, &err);
    if (status) return mr_report("reproduce", &err);
    say_how_it_went(set, &total);
    return total.failed || (total.no_data && !all) ? MR_EXIT_FAILED : MR_EXIT_DONE;
}

/* The exit status of what is wrong with the names, or -1. */
static int check_names(const settings *set, const mr_args *args)
{
    mr_error err;
    if (args->count == 1 && !strcmp(args->given[0], "all")) return -1;
    for (int i = 0; i < args->count; i++) {
        const char *name = args->given[i];
        if (!strcmp(name, "all")) return mr_misused("reproduce", "all stands alone");
        for (int k = 0; k < i; k++)
            if (!strcmp(mr_path_name(args->given[k]), mr_path_name(name)))
                return mr_misused("reproduce", "%.100s is there twice", mr_path_name(name));
        if (is_experiment(set, name, &err)) continue;
        return mr_ini_is_name(name)
                   ? mr_report("reproduce", &err)
                   : mr_misused("reproduce", "unknown experiment %.60s; `minrnn reproduce --list` lists them", name);
    }
    return -1;
}

int mr_cmd_reproduce(int argc, char **argv)
{
    settings set = {0};
    mr_args args = {
        .command = "reproduce",
        .flags = flags,
        .settings = &set,
        .max = MR_ARGS_MAX,
        .usage =
            "usage: minrnn reproduce NAME…|FILE.ini…|all [--seeds N] [--budget 25m] [--side-by-side K] [--out DIR]\n"
            "       minrnn reproduce --list\n"
            "       minrnn reproduce --merge FILE.json… [FILE.ini…] [--out DIR]\n\n"
            "Carries out experiments of the paper and prints its numbers beside ours. DIR gets NAME.json (a row for "
            "each\n"
            "finished run), NAME.md and NAME.svg. Runs that are in NAME.json already are not run again, and a run that "
            "was\n"
            "stopped is gone on with: a long table can be filled piece by piece, on several machines.\n"
            "FILE.ini is an experiment of your own: rows and columns with keys of a recipe (docs/reproduce.md).\n",
        .examples = "  minrnn reproduce selective-copy --quick                      does it work here?\n"
                    "  minrnn reproduce shakespeare --seeds 3 --side-by-side 4\n"
                    "  minrnn reproduce chomsky --only minLSTM/\n"
                    "  minrnn reproduce all --budget 25m\n"
                    "  minrnn reproduce --merge other/chomsky.json\n"};
    int code = mr_args_parse(&args, argc, argv);
    if (code >= 0) return code;
    if (set.list) return print_list();
    if (!args.count)
        return mr_misused("reproduce", set.merge ? "say which files to merge"
                                                 : "say which experiment; `minrnn reproduce --list` lists them");
    if (!set.out[0]) return mr_misused("reproduce", "--out: say which folder the results go into");
    if (set.merge) return merge(&set, &args);
    if (set.quick && set.as_paper) return mr_misused("reproduce", "--quick and --as-paper exclude each other");
    double budget = set.budget[0] ? read_budget(set.budget) : -1;
    if (budget == 0)
        return mr_misused("reproduce", "--budget %.40s: must be a time such as 90s, 25m or 3h", set.budget);
    code = check_names(&set, &args);
    if (code >= 0) return code;
    mr_catch_signals();
    return reproduce(&set, &args, budget);
}
