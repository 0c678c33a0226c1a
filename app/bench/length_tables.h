/* Reports of measurements: numbers of every model against the length T, as Markdown tables and charts. */
#ifndef MR_APP_BENCH_LENGTH_TABLES_H
#define MR_APP_BENCH_LENGTH_TABLES_H

#include "bench/experiment_cells.h"
#include "core/strbuf.h"

/* ---- reading rows */

/* The rows of one kind of device and dtype: a report has a part for each. */
typedef struct mr_device_rows {
    const mr_rows *rows;
    const char *kind, *dtype;
} mr_device_rows;

int mr_device_rows_next(const mr_rows *rows,
                        mr_device_rows *view); /* the one after `view`, which starts zeroed; 0: no more */
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
double mr_length_table_number(const mr_length_table *t, const char *label, double T,
                              const char *key); /* NaN: not measured */
/* Does the peer's label, say "PyTorch GRU loop", name this model? */
int mr_length_table_same_model(const char *peer, const char *label);

/* ---- writing a report: rows of a Markdown table; a row without a single number is left out */

/* "## chip, f32", when and with which version it was measured. */
void mr_length_table_heading(mr_strbuf *md, const mr_device_rows *view);
void mr_length_table_cell(mr_strbuf *md, double value, int digits, const char *unit); /* "| 12.3 ms "; NaN: "| – " */
void mr_length_table_start(mr_strbuf *md, const mr_length_table *t, const char *corner);
void mr_length_table_numbers(mr_strbuf *md, const mr_length_table *t, const char *label, const char *key, double per);
/* The number of `other` for each of `label`: how many times as long it takes. */
void mr_length_table_ratios(mr_strbuf *md, const mr_length_table *t, const char *label, const char *other);
/* What the paper prints in its table for "LABEL T". */
void mr_length_table_paper(mr_strbuf *md, const mr_length_table *t, const char *paper_table, const char *label,
                           const char *column, const char *unit);
/* Which cells were not measured, and why. */
void mr_length_table_notes(mr_strbuf *md, const mr_length_table *t);

/* The numbers as a chart DIR/NAME.svg, with the view's kind and dtype in the name of all but the first. */
typedef struct mr_length_chart {
    const char *name, *title, *y_label, *key;
    double per; /* what the numbers are divided by */
    /* the paper's numbers are those of this column of its table of this name, under "LABEL T", where paper_name is set:
     * what the legend calls them */
    const char *paper_name, *paper_table, *paper_column;
} mr_length_chart;
int mr_length_table_draw(mr_strbuf *md, const mr_length_table *t, const mr_length_chart *chart, const char *dir,
                         int first, mr_error *err);
int mr_measured_report_save(const char *dir, const char *name, mr_strbuf *md,
                            mr_error *err); /* DIR/NAME.md; frees the text */

#endif
