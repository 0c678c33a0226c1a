/* minrnn reproduce: the paper's experiments, one command each. */
#include "core/file.h"
#include "commands/commands.h"
#include "commands/reproduce_parts.h"
#include "train/recipes.h"

#include <stddef.h>
#include <string.h>

#define FIELD(name) offsetof(mr_reproduce_settings, name)

static const mr_option flags[] = {
    MR_COMMON_FLAGS,
    {"out", MR_OPT_TEXT, FIELD(out), "reproduce", 0, 0, NULL, "the folder of results", MR_OPT_PATH},
    {"seeds", MR_OPT_INT, FIELD(seeds), "1", 1, 1000, NULL, "runs of each cell, with seeds from --seed on", 0},
    {"budget", MR_OPT_TEXT, FIELD(budget), "", 0, 0, NULL,
     "stop after this time (90s, 25m, 3h); the next call resumes what is unfinished", 0},
    {"side-by-side", MR_OPT_INT, FIELD(side_by_side), "1", 1, 64, NULL, "runs at once on the device", 0},
    {"only", MR_OPT_TEXT, FIELD(only), "", 0, 0, NULL,
     "cells whose ROW/COLUMN contains this, matches it (wildcards * and ?), or equals it (=ROW/COLUMN)", 0},
    {"steps", MR_OPT_INT, FIELD(steps), "0", 0, 1e12, NULL, "training steps; 0: as the experiment says", 0},
    {"as-paper", MR_OPT_BOOL, FIELD(as_paper), "no", 0, 0, NULL, "the paper's own settings where ours differ", 0},
    {"quick", MR_OPT_BOOL, FIELD(quick), "no", 0, 0, NULL,
     "small versions that take seconds, to see that everything works; not comparable with the paper", 0},
    {"search", MR_OPT_BOOL, FIELD(search), "no", 0, 0, NULL,
     "the settings that each model may choose from ([try …] of the file), scored on validation", 0},
    {"again", MR_OPT_BOOL, FIELD(again), "no", 0, 0, NULL, "run again what has a result; the old one stays until then",
     0},
    {"keep", MR_OPT_BOOL, FIELD(keep), "no", 0, 0, NULL, "keep the models, in DIR/runs", 0},
    {"cell-seconds", MR_OPT_REAL, FIELD(cell_seconds), "20", 0, 1e6, NULL,
     "measurements: the most time that one may take", 0},
    {"merge", MR_OPT_BOOL, FIELD(merge), "no", 0, 0, NULL,
     "the arguments are files of results, to be added to those in --out", 0},
    {"list", MR_OPT_BOOL, FIELD(list), "no", 0, 0, NULL, "list the experiments", 0},
    {0}};

const mr_measured *const mr_measured_experiments[] = {&mr_efficiency, &mr_inference, &mr_parameters, NULL};

const mr_measured *mr_measured_find(const char *name)
{
    for (int i = 0; mr_measured_experiments[i]; i++)
        if (!strcmp(mr_measured_experiments[i]->name, name)) return mr_measured_experiments[i];
    return NULL;
}

mr_profile mr_reproduce_profile(const mr_reproduce_settings *set)
{
    return set->search     ? MR_PROFILE_SEARCH
           : set->quick    ? MR_PROFILE_QUICK
           : set->as_paper ? MR_PROFILE_PAPER
                           : MR_PROFILE_OURS;
}

/* A file without a section for --quick or --as-paper would be run with the usual settings under a wrong name. */
const char *mr_reproduce_lacks(const mr_reproduce_settings *set, const mr_experiment *e)
{
    const mr_profile wanted = mr_reproduce_profile(set);
    if (wanted == MR_PROFILE_OURS || mr_experiment_has_profile(e, wanted)) return NULL;
    return wanted == MR_PROFILE_SEARCH ? "try ROW: NAME" : mr_profile_names[wanted];
}

/* Can it be run? A file is read to find out, so that a bad one stops the command before the first run. */
static int is_experiment(const mr_reproduce_settings *set, const char *name, mr_error *err)
{
    mr_experiment e;
    if (mr_measured_find(name)) return 1;
    if (mr_experiment_load(&e, name, err)) return 0;
    const int own = mr_ini_is_name(name), taken = own && mr_measured_find(e.name);
    const char *missing = mr_reproduce_lacks(set, &e);
    if (taken)
        mr_error_set(err, MR_EINVAL, "%.200s: there is an experiment %s already; give the file another name", name,
                     e.name);
    else if (missing) mr_error_set(err, MR_EINVAL, "%.200s: has no section [%s]", name, missing);
    mr_experiment_free(&e);
    return !taken && !missing;
}

static int print_list(void)
{
    mr_error err;
    for (int i = 0; mr_measured_experiments[i]; i++)
        printf("%-16s %s\n", mr_measured_experiments[i]->name, mr_measured_experiments[i]->summary);
    for (int i = 0; mr_experiment_names[i]; i++) {
        mr_experiment e;
        if (mr_experiment_load(&e, mr_experiment_names[i], &err)) return mr_report("reproduce", &err);
        printf("%-16s %s\n", e.name, e.summary);
        mr_experiment_free(&e);
    }
    return MR_EXIT_DONE;
}

/* "25m" in seconds; 0 where the text is not a time. */
static double read_budget(const char *text)
{
    char number[32];
    size_t n = strspn(text, "0123456789.");
    const char *unit = text + n;
    double value, seconds = !strcmp(unit, "h") ? 3600 : !strcmp(unit, "m") ? 60 : !strcmp(unit, "s") || !*unit ? 1 : 0;
    snprintf(number, sizeof number, "%.*s", (int)(n < 31 ? n : 31), text);
    return mr_real_read(number, &value) && value < 1e9 ? value * seconds : 0;
}

static int unknown_experiment(const char *name)
{
    enum { MOST = 64 };
    const char *names[MOST + 1] = {NULL};
    size_t n = 0;
    for (int i = 0; mr_measured_experiments[i] && n < MOST; i++) names[n++] = mr_measured_experiments[i]->name;
    for (int i = 0; mr_experiment_names[i] && n < MOST; i++) names[n++] = mr_experiment_names[i];
    return mr_unknown_name("reproduce", "experiment", name, names);
}

/* The exit status if something is wrong with the names, or -1. */
static int check_names(const mr_reproduce_settings *set, const mr_args *args)
{
    mr_error err;
    if (args->count == 1 && !strcmp(args->given[0], "all")) return -1;
    for (int i = 0; i < args->count; i++) {
        const char *name = args->given[i];
        if (!strcmp(name, "all")) return mr_misused("reproduce", "`all` cannot be combined with other names");
        for (int k = 0; k < i; k++)
            if (!strcmp(mr_path_name(args->given[k]), mr_path_name(name)))
                return mr_misused("reproduce", "%.100s was given twice", mr_path_name(name));
        if (is_experiment(set, name, &err)) continue;
        return mr_ini_is_name(name) || mr_experiment_built_in(name) >= 0 ? mr_report("reproduce", &err)
                                                                         : unknown_experiment(name);
    }
    return -1;
}

int mr_cmd_reproduce(int argc, char **argv)
{
    mr_reproduce_settings set = {0};
    mr_args args = {
        .command = "reproduce",
        .flags = flags,
        .settings = &set,
        .max = MR_ARGS_MAX,
        .usage =
            "usage: minrnn reproduce NAME…|FILE.ini…|all [--seeds N] [--budget 25m] [--side-by-side K] [--out DIR]\n"
            "       minrnn reproduce --list\n"
            "       minrnn reproduce --merge FILE.json… [FILE.ini…] [--out DIR]\n\n"
            "Runs experiments of the paper and prints its numbers beside ours. DIR gets NAME.json (a row for each\n"
            "finished run), NAME.md and NAME.svg. Runs that have a row are not run again, unless their data has "
            "changed,\n"
            "and a run that was stopped is resumed: a long table can be filled piece by piece, on several machines.\n"
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
    if (set.merge) return mr_reproduce_merge_files(&set, &args);
    if (set.quick + set.as_paper + set.search > 1)
        return mr_misused("reproduce", "--quick, --as-paper and --search exclude each other");
    double budget = set.budget[0] ? read_budget(set.budget) : -1;
    if (budget == 0)
        return mr_misused("reproduce", "--budget %.40s: must be a time such as 90s, 25m or 3h", set.budget);
    code = check_names(&set, &args);
    if (code >= 0) return code;
    mr_catch_signals();
    mr_catch_broken_pipe();
    return mr_reproduce_run(&set, &args, budget);
}
