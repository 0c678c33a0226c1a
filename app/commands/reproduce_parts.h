/* The parts of `minrnn reproduce`: running experiments, merging files of results, printing what is there. */
#ifndef MR_APP_COMMANDS_REPRODUCE_PARTS_H
#define MR_APP_COMMANDS_REPRODUCE_PARTS_H

#include "bench/experiments.h"
#include "commands/args.h"

typedef struct mr_reproduce_settings {
    mr_common common;
    char out[MR_TEXT_MAX], only[MR_TEXT_MAX], budget[MR_TEXT_MAX];
    int64_t seeds, side_by_side, steps;
    double cell_seconds;
    int quick, as_paper, search, again, keep, merge, list;
} mr_reproduce_settings;

/* The experiments that measure instead of training; ends with NULL. */
extern const mr_measured *const mr_measured_experiments[];
const mr_measured *mr_measured_find(const char *name); /* or NULL */

/* The profile that --as-paper, --quick or --search ask for. */
mr_profile mr_reproduce_profile(const mr_reproduce_settings *set);
/* The section that the experiment's file lacks for that profile; NULL: it can be run. */
const char *mr_reproduce_lacks(const mr_reproduce_settings *set, const mr_experiment *e);

/* Runs the experiments that the arguments name and prints their results. budget: seconds; 0: no limit. Returns the exit
 * status. */
int mr_reproduce_run(const mr_reproduce_settings *set, const mr_args *args, double budget);

/* Adds the rows of the files among the arguments to those in --out. Returns the exit status. */
int mr_reproduce_merge_files(const mr_reproduce_settings *set, const mr_args *args);

/* Prints the results of these experiments, as tables or as JSON; a name that is NULL is skipped. */
int mr_reproduce_print(const mr_reproduce_settings *set, const char *const *names, size_t n, mr_error *err);

#endif
