/* Rows: what an experiment found. One row is one finished run or measurement: named texts and numbers, and a
 * learning curve. A file of rows is JSON, {"experiment": NAME, "rows": [{…}, …]}, one row per line, so that files
 * from several machines are merged by reading them one after the other. */
#ifndef MR_APP_PAPER_RESULT_ROWS_H
#define MR_APP_PAPER_RESULT_ROWS_H

#include "core/status.h"
#include "core/strbuf.h"
#include "plot/curve.h"

enum { MR_ROW_FIELDS = 56, MR_ROW_KEY = 32 };

typedef struct mr_field {
    char key[MR_ROW_KEY];
    char *text; /* NULL: a number */
    double number;
} mr_field;

/* Zero-initialised, it is empty. Out of memory, or of fields, leaves `failed` set; mr_rows_put then refuses the
 * row. */
typedef struct mr_row {
    mr_field fields[MR_ROW_FIELDS];
    int count, failed;
    uint64_t mark; /* a hash of what mr_row_same compares; set by mr_rows_put */
    mr_curve_point *curve;
    size_t points;
} mr_row;

typedef struct mr_rows {
    mr_row *list;
    size_t count, room;
} mr_rows;

/* Adds the field or changes its value. A number that is not finite removes the field. */
void mr_row_set_text(mr_row *row, const char *key, const char *text);
void mr_row_set(mr_row *row, const char *key, double number);
const char *mr_row_text(const mr_row *row, const char *key); /* "" if there is none */
double mr_row_number(const mr_row *row, const char *key);    /* NaN if there is none */
int mr_row_outdated(const mr_row *row);                      /* to be replaced, and kept until then */
/* 1: learned from data that is like D4RL's, which does not compare with the paper's. */
int mr_row_on_like_data(const mr_row *row);
int mr_row_comparable(const mr_row *row); /* 0: of --quick, too small for the paper's number */
void mr_row_free(mr_row *row);

/* The same run: equal in experiment, row, column, seed, settings, kind (of the device) and dtype. */
int mr_row_same(const mr_row *a, const mr_row *b);
/* Scored in the same way: equal in measure, scale, test and target_loss. Rows of older versions do not say, and
 * pass. */
int mr_row_same_measure(const mr_row *a, const mr_row *b);

/* Of the same data, and scored on the same test set. Rows of older versions do not name it, and pass. */
int mr_row_same_data(const mr_row *a, const mr_row *b);

/* The row that is the same run as `row`, or NULL. */
mr_row *mr_rows_find(const mr_rows *rows, const mr_row *row);
/* Is one of them a row of that experiment? */
int mr_rows_have(const mr_rows *rows, const char *experiment);
/* Takes the row, in the place of the one that is the same run; it is empty afterwards, whether that succeeded
 * or not. */
int mr_rows_put(mr_rows *rows, mr_row *row, mr_error *err);
void mr_rows_free(mr_rows *rows);

/* The row as a JSON object on one line, with or without its curve. */
void mr_row_print_json(mr_strbuf *out, const mr_row *row, int with_curve);

/* Adds the rows of a file. MR_EIO if there is none, MR_EFORMAT if it is something else. */
int mr_rows_read(mr_rows *rows, const char *path, mr_error *err);
/* Replaces the file in one step. */
int mr_rows_write(const mr_rows *rows, const char *path, const char *experiment, mr_error *err);

#endif
