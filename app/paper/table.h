/* Rows: what an experiment found. One row is one finished run or measurement: named texts and numbers, and a
 * learning curve. A file of rows is JSON, {"experiment": NAME, "rows": [{…}, …]}, a row a line, so that files from
 * several machines are merged by reading them one after the other. */
#ifndef MR_APP_PAPER_TABLE_H
#define MR_APP_PAPER_TABLE_H

#include "core/status.h"
#include "plot/curve.h"

enum { MR_ROW_FIELDS = 40, MR_ROW_KEY = 32 };

typedef struct mr_field {
    char key[MR_ROW_KEY];
    char *text; /* NULL: a number */
    double number;
} mr_field;

/* Zero-initialised, it is empty. Out of memory, or of fields, leaves `failed` set; mr_table_put then refuses the
 * row. */
typedef struct mr_row {
    mr_field fields[MR_ROW_FIELDS];
    int count, failed;
    uint64_t mark; /* of what makes it the same run as another, where a table holds it */
    mr_curve_point *curve;
    size_t points;
} mr_row;

typedef struct mr_table {
    mr_row *list;
    size_t count, room;
} mr_table;

/* Adds the field, or gives it another value. A number that is not finite takes the field away. */
void mr_row_set_text(mr_row *row, const char *key, const char *text);
void mr_row_set(mr_row *row, const char *key, double number);
const char *mr_row_text(const mr_row *row, const char *key); /* "" where there is none */
double mr_row_number(const mr_row *row, const char *key);    /* NaN where there is none */
int mr_row_outdated(const mr_row *row);                      /* to be run anew, and there until then */
void mr_row_free(mr_row *row);

/* The same run: equal in experiment, row, column, seed, settings, kind (of the device) and dtype. */
int mr_row_same(const mr_row *a, const mr_row *b);
/* Scored in the same way: equal in measure, scale, test and target_loss. Rows of older versions do not say, and
 * pass. */
int mr_row_same_measure(const mr_row *a, const mr_row *b);

/* The row that is the same run as `row`, or NULL. */
mr_row *mr_table_find(const mr_table *rows, const mr_row *row);
/* Takes the row over, in the place of the one that is the same run; it is empty afterwards, whether that succeeded
 * or not. */
int mr_table_put(mr_table *rows, mr_row *row, mr_error *err);
void mr_table_free(mr_table *rows);

/* Adds the rows of a file. MR_EIO where there is none, MR_EFORMAT where it is something else. */
int mr_table_read(mr_table *rows, const char *path, mr_error *err);
/* Replaces the file in one step. */
int mr_table_write(const mr_table *rows, const char *path, const char *experiment, mr_error *err);

#endif
