/* The pictures of an experiment: the table as bars where it has several columns, and the learning curves of each
 * column. */
#ifndef MR_APP_PAPER_EXPERIMENT_CHARTS_H
#define MR_APP_PAPER_EXPERIMENT_CHARTS_H

#include "paper/report.h"

/* Writes DIR/NAME.svg; with several columns that is the bars, and DIR/NAME-COLUMN.svg are the curves. Draws
 * the first profile that has groups. *names gets the names of the files, one per line; free it with mr_strbuf_free. */
int mr_experiment_charts_write(const mr_experiment *e, const mr_rows *rows, const mr_group *groups, size_t count,
                               const char *dir, mr_strbuf *names, mr_error *err);

/* A letter of a column's name as written in the name of its picture. */
char mr_chart_file_letter(char c);

#endif
