/* The experiments that measure: training steps, inference, parameters. What they share. */
#ifndef MR_APP_BENCH_EXPERIMENT_CELLS_H
#define MR_APP_BENCH_EXPERIMENT_CELLS_H

#include "bench/experiments.h"
#include "bench/timed_model.h"
#include "ops/device.h"

/* ---- the cells of an experiment ---- */

const mr_reproduce_options *mr_measuring_options(const mr_measuring *m);
/* opened as the options say; f32 if they name no dtype */
mr_dev *mr_measuring_device(const mr_measuring *m);
/* 1: the cell is wanted and has no row yet; *row then has the fields of every row (experiment, row, column, settings,
 * device, date …). Fill it and give it to mr_measuring_add, or free it. */
int mr_measuring_wants(mr_measuring *m, const char *row_label, const char *column, const char *settings, mr_row *row);
int mr_measuring_add(mr_measuring *m, mr_row *row, mr_error *err); /* takes the row, and writes everything */
int mr_measuring_over(const mr_measuring *m);                      /* the time is up, or a signal came: return 0 */

/* The models in the order of the tables, by the paper's names. */
enum { MR_MODELS = 6, MR_COLUMN = 48 };
typedef struct mr_measured_model {
    const char *label, *mixer;
    double growth; /* a training step takes T^growth */
} mr_measured_model;
extern const mr_measured_model mr_measured_models[MR_MODELS];
int mr_measured_mixer(const mr_measured_model *model); /* index into mr_mixer_names */

/* Opens a device for one cell alone, so that all the memory it takes is that of the cell. */
int mr_measured_open(const mr_measuring *m, mr_dev **dev, mr_error *err);

/* How long a cell is repeated: at most --cell-seconds, and 0.1 s in a quick run. */
double mr_measured_limit(const mr_measuring *m);

/* Records a cell that is not measured, and why; and whether one is recorded already, with the same --cell-seconds. */
int mr_measured_skip(mr_measuring *m, const char *label, const char *column, const char *why, mr_error *err);
int mr_measured_skipped(mr_measuring *m, const char *label, const char *column);

/* Fills a row with what was timed and adds it. bytes: 0 where they are not known. */
int mr_measured_add(mr_measuring *m, mr_row *row, int B, int T, const mr_timing *timing, double bytes, mr_error *err);

#endif
