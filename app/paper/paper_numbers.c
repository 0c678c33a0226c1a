/* Looks up a number in the paper's tables, which are JSON text inside the command. */
#include "paper/paper_numbers.h"

#include "core/json.h"
#include "core/mem.h"
#include "core/options.h"
#include "train/recipes.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CELLS = 16, CELL_MAX = 64 };

typedef struct line {
    char text[CELLS][CELL_MAX];
    int count;
} line;

/* A text or a number as its text; null is "". */
static int read_cell(mr_json *json, char out[CELL_MAX])
{
    size_t size;
    const char *text;
    out[0] = 0;
    if (mr_json_peek(json) == '"') {
        text = mr_json_string(json, &size);
        if (text) snprintf(out, CELL_MAX, "%s", text);
        return text != NULL;
    }
    size = mr_json_number(json, &text);
    if (size) snprintf(out, CELL_MAX, "%.*s", (int)size, text);
    return size || mr_json_word(json, "null");
}

static int read_line(mr_json *json, line *l)
{
    l->count = 0;
    if (!mr_json_enter(json, '[')) return 0;
    while (mr_json_item(json, ']'))
        if (l->count == CELLS || !read_cell(json, l->text[l->count++])) return 0;
    return !json->wrong;
}

/* Is `row` the first cells, joined by blanks? */
static int is_row(const line *l, const char *row)
{
    for (int i = 0; i < l->count; i++) {
        size_t n = strlen(l->text[i]);
        if (strncmp(row, l->text[i], n)) return 0;
        if (!row[n]) return 1;
        if (row[n] != ' ') return 0;
        row += n + 1;
    }
    return 0;
}

static int column_of(const line *columns, const char *name)
{
    char number[16];
    for (int i = 0; i < CELLS; i++) {
        snprintf(number, sizeof number, "%d", i);
        if (!strcmp(columns->count ? columns->text[i] : number, name)) return i;
    }
    return -1;
}

static double number_at(const line *l, int column)
{
    double value;
    return column >= 0 && column < l->count && mr_real_read(l->text[column], &value) ? value : NAN;
}

static void take(const line *columns, const line *l, const char *column, mr_paper_cell *cell)
{
    char with_std[CELL_MAX + 8];
    snprintf(with_std, sizeof with_std, "%s_std", column);
    cell->value = number_at(l, column_of(columns, column));
    int beside = columns->count ? column_of(columns, with_std) : -1;
    if (beside < 0 && columns->count) beside = column_of(columns, "std");
    cell->std = number_at(l, beside);
}

/* Reads one table, and skips it unless it is the wanted one; its columns come before its rows. */
static void walk_table(mr_json *json, int wanted, const char *row, const char *column, mr_paper_cell *cell)
{
    line columns = {.count = 0}, l;
    char note[CELL_MAX];
    size_t size;
    int found = 0;
    if (!mr_json_enter(json, '{')) return;
    while (mr_json_item(json, '}')) {
        const char *key = mr_json_key(json, &size);
        if (!key) return;
        if (!strcmp(key, "columns")) read_line(json, &columns);
        else if (strcmp(key, "rows")) read_cell(json, note);
        else if (mr_json_enter(json, '['))
            while (mr_json_item(json, ']') && read_line(json, &l))
                if (wanted && !found && is_row(&l, row)) found = 1, take(&columns, &l, column, cell);
    }
}

int mr_paper_find(const char *table, const char *row, const char *column, mr_paper_cell *cell)
{
    const char *text = mr_paper_texts[0];
    mr_json json;
    size_t size;
    char *room = mr_alloc(strlen(text) + 1, 1);
    *cell = (mr_paper_cell){NAN, NAN};
    if (!room) return 0;
    mr_json_start(&json, text, strlen(text), room);
    if (mr_json_enter(&json, '{'))
        while (mr_json_item(&json, '}')) {
            const char *name = mr_json_key(&json, &size);
            if (!name || json.wrong) break;
            walk_table(&json, !strcmp(name, table), row, column, cell);
        }
    mr_free(room);
    return isfinite(cell->value);
}
