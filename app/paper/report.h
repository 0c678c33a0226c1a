/* The rows of an experiment as a Markdown table and charts: seeds of the same run together, the paper's number
 * beside. */
#ifndef MR_APP_PAPER_REPORT_H
#define MR_APP_PAPER_REPORT_H

#include "paper/experiment.h"
#include "paper/result_rows.h"
#include "core/strbuf.h"

#define MR_NOT_COMPARABLE "not comparable with the paper"

/* Runs that differ only in the seed. Means over the seeds; NaN: not known. */
typedef struct mr_group {
    const mr_row *first;
    int seeds, failed; /* failed: seeds whose run became NaN, left out of the means */
    double mean, std;  /* of the score; std (n − 1) NaN for one seed */
    double last;       /* the mean of the last checkpoints' scores */
    double steps, best_step, seconds, target_step;
    int place;
} mr_group;

/* In the order of the experiment's file, ours before as-paper before quick; freed by mr_free. */
int mr_report_groups(const mr_experiment *e, const mr_rows *rows, mr_group **groups, size_t *count, mr_error *err);

/* "96 ± 2.8" with this many significant digits, or "" when the value is not known. */
char *mr_report_number(char out[64], double value, double std, int digits);
char *mr_report_paper(char out[64], double value, double std); /* as the paper prints it */
/* "1:02:03" */
char *mr_report_time(char out[32], double seconds);

/* The learning curve of a group: the seeds' mean at the steps of its first, loss or accuracy as the score has it.
 * Returns the points, at most `room`. */
size_t mr_report_curve(const mr_experiment *e, const mr_rows *rows, const mr_group *group, double *x, double *y,
                       double *spread, size_t room);

/* Writes DIR/NAME.md and the charts; `experiment` is an mr_experiment. */
int mr_report_write(const void *experiment, const mr_rows *rows, const char *dir, mr_error *err);

#endif
