/* The numbers that the paper prints (data/paper-tables.json, built in). */
#ifndef MR_APP_PAPER_PAPER_NUMBERS_H
#define MR_APP_PAPER_PAPER_NUMBERS_H

typedef struct mr_paper_cell {
    double value, std; /* NaN where there is none */
} mr_paper_cell;

/* The cell of a table. `row`: its first cell, or its first few with a blank between ("Mamba S6", "minLSTM 512").
 * `column`: its name; in a table whose columns have none its number, from 0 on. Its ± is in the column of the
 * same name with "_std", or in "std". Returns 0, and NaN, where the table has no such cell or no number in it. */
int mr_paper_find(const char *table, const char *row, const char *column, mr_paper_cell *cell);

#endif
