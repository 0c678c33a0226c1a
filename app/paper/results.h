/* The results of one experiment in their folder, open for more: what runs and measurements share. */
#ifndef MR_APP_PAPER_RESULTS_H
#define MR_APP_PAPER_RESULTS_H

#include "paper/reproduce.h"

#include <pthread.h>

/* Writes DIR/NAME.md and DIR/NAME.svg from all rows. */
typedef int mr_results_report(const void *experiment, const mr_table *rows, const char *dir, mr_error *err);

typedef struct mr_results {
    const char *name;
    const mr_reproduce_options *options;
    mr_results_report *report;
    const void *experiment;
    char *path, *runs; /* DIR/NAME.json, DIR/runs/NAME */
    mr_table rows;
    char kind[16], device[192];
    int lock;
    pthread_mutex_t mutex; /* of rows and files, and of the watch */
} mr_results;

/* Makes the folder, locks the experiment's part of it, reads the rows. mr_results_close also after a failure. */
int mr_results_open(mr_results *r, const char *name, const mr_reproduce_options *options, mr_results_report *report,
                    const void *experiment, mr_error *err);
void mr_results_close(mr_results *r);

/* What a row has in any case. */
void mr_results_stamp(const mr_results *r, mr_row *row, const char *label, const char *column, const char *settings,
                      const char *dtype);

/* Takes the row over and writes the files. The caller holds the mutex. */
int mr_results_put(mr_results *r, mr_row *row, mr_error *err);

/* Is there time for `seconds` more, and no signal? */
int mr_results_over(const mr_reproduce_options *options, double seconds);

#endif
