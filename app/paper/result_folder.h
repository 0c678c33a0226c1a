/* The results of one experiment, open for more rows: what runs and measurements share. */
#ifndef MR_APP_PAPER_RESULT_FOLDER_H
#define MR_APP_PAPER_RESULT_FOLDER_H

#include "paper/reproduce.h"

#include <pthread.h>

typedef struct mr_result_folder {
    const char *name;
    const mr_reproduce_options *options;
    mr_report_writer *report;
    const void *experiment;
    char *path, *runs; /* DIR/NAME.json, DIR/runs/NAME */
    mr_rows rows;
    char kind[16], device[192];
    int lock;
    pthread_mutex_t mutex; /* guards the rows, the files and the watch */
} mr_result_folder;

/* Makes the folder, locks the experiment's part of it, reads the rows. Call
 * mr_result_folder_close after a failure too. */
int mr_result_folder_open(mr_result_folder *r, const char *name, const mr_reproduce_options *options,
                          mr_report_writer *report, const void *experiment, mr_error *err);
void mr_result_folder_close(mr_result_folder *r);

/* DIR/NAME.json, freed by mr_free; NULL: no memory. */
char *mr_result_path(const char *dir, const char *name);
/* Locks DIR/runs/NAME, whose name is *runs, freed by mr_free: only the holder writes DIR/NAME.json. */
int mr_result_folder_lock(const char *dir, const char *name, char **runs, int *lock, mr_error *err);

/* Fills the fields that every row has. */
void mr_result_folder_stamp(const mr_result_folder *r, mr_row *row, const char *label, const char *column,
                            const char *settings, const char *dtype);

/* Takes the row and writes the files. The caller holds the mutex. */
int mr_result_folder_put(mr_result_folder *r, mr_row *row, mr_error *err);

/* Is there no time for `seconds` more, or was a signal caught? */
int mr_reproduce_time_is_up(const mr_reproduce_options *options, double seconds);

#endif
