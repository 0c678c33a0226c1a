/* The runs of one experiment while they are carried out: what reproduce.c, run_cell.c and run_row.c share. */
#ifndef MR_APP_PAPER_REPRODUCE_JOB_H
#define MR_APP_PAPER_REPRODUCE_JOB_H

#include "paper/data_identity.h"
#include "paper/result_folder.h"
#include "tasks/test_set.h"
#include "train/train.h"

#include <stdatomic.h>

enum { MR_WORKERS = 64 };

typedef struct mr_job {
    const mr_experiment *e;
    mr_result_folder results;
    mr_planned *runs;
    size_t count, next;
    mr_reproduce_result *result;
    atomic_int failure; /* the first error that stops all runs */
    atomic_int over;    /* the time is up: no other run is started */
    /* for each worker: is it in a run, and the most runs at once during that run */
    int busy[MR_WORKERS], beside[MR_WORKERS];
    mr_data_cache data;
    mr_error error;
} mr_job;

/* One run in progress. */
typedef struct mr_cell_run {
    mr_job *job;
    int worker;
    const mr_planned *run;
    char *dir;
    mr_train_watch watch;             /* the caller's */
    mr_stop stop;                     /* what mr_train polls: a signal, the deadline, or a failure elsewhere */
    double began, last, spent, noted; /* spent: seconds before this call */
    double parameters;
    int opened;         /* its data could be read */
    mr_score test;      /* of the model that was chosen, where the run has a test; otherwise its rows are 0 */
    mr_score last_test; /* the same of the last model */
    mr_play play;       /* of the model, where the score is its return; otherwise its episodes are 0 */
    mr_test_set set;    /* what the score is of */
    mr_data_sums sums;  /* of what it is made from */
    int started_over;   /* what it was begun from has changed, so it was started over */
} mr_cell_run;

/* The recipe of a run, with --dtype and --tf32. */
int mr_cell_recipe(const mr_reproduce_options *options, const mr_planned *run, mr_recipe *recipe, mr_error *err);
const char *mr_recipe_dtype(const mr_recipe *recipe);

/* The folder of a run, a name that no other run has; freed by mr_free. NULL: no memory. */
char *mr_cell_folder(const mr_job *job, const mr_planned *run, const char *dtype);
/* Removes all of it but the best model, where that is kept. What cannot be removed stays. */
void mr_cell_folder_clear(const char *dir, int keep_model);

/* Carries out one run and keeps its row. Returns only errors that stop all other runs too: results that cannot be
 * written. */
int mr_cell_run_once(mr_job *job, int worker, const mr_planned *run, mr_error *stopper);

/* Fills the fields of a row that say which run it is, and how it is scored. */
void mr_cell_row_start(const mr_job *job, const mr_planned *run, const mr_recipe *recipe, mr_row *row);
/* The row of a finished run; diverged: why it has no score, or NULL. */
int mr_cell_row(const mr_cell_run *cell, const mr_recipe *recipe, const mr_train_result *r, const mr_error *diverged,
                mr_row *row, mr_error *err);

#endif
