/* Runs experiments: results that are missing are made, and each is saved as soon as it is there.
 *
 *     DIR/NAME.json    rows, replaced after every run; rows that are there already are not run again
 *     DIR/NAME.md, DIR/NAME.svg   the same as a table and a picture
 *     DIR/runs/NAME/…  folders of unfinished runs: the next call resumes them */
#ifndef MR_APP_PAPER_REPRODUCE_H
#define MR_APP_PAPER_REPRODUCE_H

#include "paper/experiment.h"
#include "paper/result_rows.h"
#include "train/train.h"

/* Called when something happens, `worker` counting from 0. Calls do not overlap, except those of `starts`. */
typedef struct mr_reproduce_watch {
    void *user;
    /* Fills `watch`, which is then called in the thread of the run. */
    void (*starts)(void *user, int worker, const mr_planned *run, const mr_recipe *recipe, mr_train_watch *watch);
    /* row NULL: left to be resumed */
    void (*finished)(void *user, int worker, const mr_planned *run, const mr_row *row);
    void (*failed)(void *user, int worker, const mr_planned *run, const mr_error *err); /* the others continue */
    void (*measured)(void *user, const mr_row *row);
} mr_reproduce_watch;

typedef struct mr_reproduce_options {
    mr_plan_options plan;
    const char *out;                              /* the folder DIR */
    double deadline;                              /* of mr_seconds; 0: none */
    int side_by_side;                             /* runs at once */
    int again;                                    /* runs again what has a row */
    int keep;                                     /* keeps DIR/runs/NAME/…/model.safetensors */
    const char *device;                           /* as for mr_context_new */
    void (*warn)(void *unused, const char *line); /* as in mr_context_options, once for an experiment; or NULL */
    int threads;                                  /* of the CPU, for all runs together; 0: all */
    int dtype, tf32;                              /* −1: as the recipe has it */
    double cell_seconds;                          /* measurements: the most time for one */
    const mr_stop *stop;
    const mr_reproduce_watch *watch;
} mr_reproduce_options;

typedef struct mr_reproduce_result {
    /* runs: done now, there already, not finished, failed, without their data */
    int done, found, left, failed, no_data;
    int other_data; /* rows that do not count: data, test set or the way of scoring has changed since */
    int cut;        /* measurements: the time was up before the last one */
    int over;       /* the time was up, or too little of it was left for another step */
} mr_reproduce_result;

/* Runs one experiment of recipes/experiments. Failures of single runs are counted and reported, and are not errors.
 * MR_ESTOPPED: *stop was set; everything is saved. */
int mr_reproduce(const char *name, const mr_reproduce_options *options, mr_reproduce_result *result, mr_error *err);

/* Writes DIR/NAME.md and the charts from all rows; `experiment` is the writer's own. */
typedef int mr_report_writer(const void *experiment, const mr_rows *rows, const char *dir, mr_error *err);

/* What the pages of all experiments have, followed by their name. */
#define MR_MADE_BY_REPRODUCE "Made by `minrnn reproduce "

/* Refuses DIR/NAME.md, DIR/NAME.svg and DIR/NAME-*.svg that minrnn did not make: they would be overwritten. measured:
 * the experiment measures, and its pages of 0.1 are known by other marks. */
int mr_reproduce_check_files(const char *dir, const char *name, int measured, mr_error *err);

/* The rows of DIR/NAME.json; none where there is no such file. */
int mr_reproduce_rows(const char *dir, const char *name, mr_rows *rows, mr_error *err);
/* Adds the rows of an experiment among `rows` to DIR/NAME.json; those that are there stay as they are, unless they are
 * outdated. Then all of them are reviewed (paper/result_review.h), where `e` is the experiment; NULL: it measures.
 * *added: how many are new. */
int mr_reproduce_merge(const char *dir, const char *name, const mr_rows *rows, const mr_experiment *e, size_t *added,
                       mr_error *err);

#endif
