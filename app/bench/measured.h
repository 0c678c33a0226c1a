/* The experiments that measure: training steps, inference, parameters. What they share. */
#ifndef MR_APP_BENCH_MEASURED_H
#define MR_APP_BENCH_MEASURED_H

#include "bench/experiments.h"
#include "bench/timed_model.h"
#include "core/text.h"
#include "ops/device.h"

/* ---- the cells of an experiment ---- */

const mr_reproduce_options *mr_measuring_options(const mr_measuring *m);
/* open, as the options have it; f32 where they leave the dtype open */
mr_dev *mr_measuring_device(const mr_measuring *m);
/* 1: the cell is wanted and not there yet; *row then has what every row has (experiment, row, column, settings,
 * device, date …) and is to be filled and given to mr_measuring_add, or freed. */
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

/* A device of its own for one cell, so that all that it takes is the cell's. */
int mr_measured_open(const mr_measuring *m, mr_dev **dev, mr_error *err);

/* How long a cell is repeated: --cell-seconds at most, and hardly at all in a quick run. */
double mr_measured_limit(const mr_measuring *m);

/* Says in a row why a cell was not measured; and whether one says so already, of the same limit. */
int mr_measured_skip(mr_measuring *m, const char *label, const char *column, const char *why, mr_error *err);
int mr_measured_skipped(mr_measuring *m, const char *label, const char *column);

/* Fills a row with what was timed and adds it. bytes: 0 where they are not known. */
int mr_measured_add(mr_measuring *m, mr_row *row, int B, int T, const mr_timing *timing, double bytes, mr_error *err);

/* ---- reading rows */

/* The rows of one kind of device and dtype: a report has a part for each. */
typedef struct mr_device_rows {
    const mr_rows *rows;
    const char *kind, *dtype;
} mr_device_rows;

int mr_device_rows_next(const mr_rows *rows, mr_device_rows *view); /* the next one behind `view`, which starts zeroed; 0: no more */
/* NaN: not measured */
double mr_device_rows_number(const mr_device_rows *view, const char *label, const char *column, const char *key);

/* Numbers of every model, and of PyTorch's forms where they were merged in, against the length T. Their columns are
 * named by a prefix ("B=64 T=") and T. */
enum { MR_LENGTH_TABLE_ROWS = 24, MR_LENGTH_TABLE_COLUMNS = 24 };
typedef struct mr_length_table {
    const mr_device_rows *view;
    const char *prefix;
    double T[MR_LENGTH_TABLE_COLUMNS];
    size_t lengths;
    const char *labels[MR_LENGTH_TABLE_ROWS]; /* MR_MODELS of ours, then those that begin with "PyTorch" */
    size_t count;
} mr_length_table;

mr_length_table mr_length_table_of(const mr_device_rows *view, const char *prefix);
double mr_length_table_number(const mr_length_table *t, const char *label, double T, const char *key); /* NaN: not measured */
/* Does the peer's label, say "PyTorch GRU loop", name this model? */
int mr_length_table_same_model(const char *peer, const char *label);

/* ---- writing a report: rows of a Markdown table; a row without a single number is left out */

/* "## chip, f32", when and with which version it was measured. */
void mr_length_table_heading(mr_text *md, const mr_device_rows *view);
void mr_length_table_cell(mr_text *md, double value, int digits, const char *unit); /* "| 12.3 ms "; NaN: "| – " */
void mr_length_table_start(mr_text *md, const mr_length_table *t, const char *corner);
void mr_length_table_numbers(mr_text *md, const mr_length_table *t, const char *label, const char *key, double per);
/* The number of `other` for each of `label`: how many times as long it takes. */
void mr_length_table_ratios(mr_text *md, const mr_length_table *t, const char *label, const char *other);
/* What the paper prints in its table for "LABEL T". */
void mr_length_table_paper(mr_text *md, const mr_length_table *t, const char *paper_table, const char *label, const char *column,
                   const char *unit);
/* Which cells were not measured, and why. */
void mr_length_table_notes(mr_text *md, const mr_length_table *t);

/* The numbers as a picture DIR/NAME.svg, with the view's kind and dtype in the name of all but the first. */
typedef struct mr_length_chart {
    const char *name, *title, *y_label, *key;
    double per; /* what the numbers are divided by */
} mr_length_chart;
int mr_length_table_draw(mr_text *md, const mr_length_table *t, const mr_length_chart *figure, const char *dir, int first,
                 mr_error *err);
int mr_measured_report_save(const char *dir, const char *name, mr_text *md, mr_error *err); /* DIR/NAME.md; frees the text */

#endif
