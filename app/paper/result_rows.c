/* Rows in memory: their fields, which of them are the same run, tables of them. */
#include "paper/result_rows.h"

#include "core/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static mr_field *find(const mr_row *row, const char *key)
{
    for (int i = 0; i < row->count; i++)
        if (!strcmp(row->fields[i].key, key)) return (mr_field *)&row->fields[i];
    return NULL;
}

static mr_field *find_or_add(mr_row *row, const char *key)
{
    mr_field *field = find(row, key);
    if (field) return field;
    if (row->count == MR_ROW_FIELDS || strlen(key) >= MR_ROW_KEY) return row->failed = 1, NULL;
    field = &row->fields[row->count++];
    snprintf(field->key, sizeof field->key, "%s", key);
    return field;
}

void mr_row_set_text(mr_row *row, const char *key, const char *text)
{
    mr_field *field = find_or_add(row, key);
    if (!field) return;
    mr_free(field->text);
    field->text = mr_strdup(text);
    if (!field->text) row->failed = 1;
}

static void take_away(mr_row *row, const char *key)
{
    mr_field *field = find(row, key);
    if (!field) return;
    mr_free(field->text);
    memmove(field, field + 1, (size_t)(row->fields + row->count - field - 1) * sizeof *field);
    memset(&row->fields[--row->count], 0, sizeof *field);
}

void mr_row_set(mr_row *row, const char *key, double number)
{
    if (!isfinite(number)) {
        take_away(row, key);
        return;
    }
    mr_field *field = find_or_add(row, key);
    if (!field) return;
    mr_free(field->text);
    field->text = NULL;
    field->number = number;
}

const char *mr_row_text(const mr_row *row, const char *key)
{
    const mr_field *field = find(row, key);
    return field && field->text ? field->text : "";
}

double mr_row_number(const mr_row *row, const char *key)
{
    const mr_field *field = find(row, key);
    return field && !field->text ? field->number : NAN;
}

int mr_row_outdated(const mr_row *row) { return mr_row_number(row, "outdated") == 1; }

int mr_row_on_like_data(const mr_row *row) { return mr_row_number(row, "data_made") == 1; }

int mr_row_comparable(const mr_row *row)
{
    return strcmp(mr_row_text(row, "comparable"), "no") && strcmp(mr_row_text(row, "profile"), "quick");
}

void mr_row_free(mr_row *row)
{
    for (int i = 0; i < row->count; i++) mr_free(row->fields[i].text);
    mr_free(row->curve);
    memset(row, 0, sizeof *row);
}

static const char *const texts[] = {"experiment", "row", "column", "settings", "kind", "dtype"};

/* FNV-1a over what mr_row_same compares. */
static uint64_t mark_of(const mr_row *row)
{
    const double seed = mr_row_number(row, "seed");
    uint64_t mark = 14695981039346656037u ^ (uint64_t)(isnan(seed) ? -1 : (int64_t)seed);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const char *c = mr_row_text(row, texts[i]);
        do mark = (mark ^ (unsigned char)*c) * 1099511628211u;
        while (*c++);
    }
    return mark;
}

static int same_number(const mr_row *a, const mr_row *b, const char *key)
{
    const double left = mr_row_number(a, key), right = mr_row_number(b, key);
    return left == right || (isnan(left) && isnan(right));
}

int mr_row_same(const mr_row *a, const mr_row *b)
{
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strcmp(mr_row_text(a, texts[i]), mr_row_text(b, texts[i]))) return 0;
    return same_number(a, b, "seed");
}

int mr_row_same_measure(const mr_row *a, const mr_row *b)
{
    if (!mr_row_text(a, "measure")[0] || !mr_row_text(b, "measure")[0]) return 1;
    return !strcmp(mr_row_text(a, "measure"), mr_row_text(b, "measure")) &&
           !strcmp(mr_row_text(a, "test"), mr_row_text(b, "test")) && same_number(a, b, "scale") &&
           same_number(a, b, "target_loss");
}

int mr_row_same_data(const mr_row *a, const mr_row *b)
{
    const char *left = mr_row_text(a, "data"), *right = mr_row_text(b, "data");
    return (!*left || !*right || !strcmp(left, right)) &&
           !strcmp(mr_row_text(a, "test_set"), mr_row_text(b, "test_set"));
}

mr_row *mr_rows_find(const mr_rows *rows, const mr_row *row)
{
    const uint64_t mark = mark_of(row);
    for (size_t i = 0; i < rows->count; i++)
        if (rows->list[i].mark == mark && mr_row_same(&rows->list[i], row)) return &rows->list[i];
    return NULL;
}

int mr_rows_have(const mr_rows *rows, const char *experiment)
{
    for (size_t i = 0; i < rows->count; i++)
        if (!strcmp(mr_row_text(&rows->list[i], "experiment"), experiment)) return 1;
    return 0;
}

static int make_room(mr_rows *rows)
{
    if (rows->count < rows->room) return 1;
    size_t room = rows->room ? 2 * rows->room : 16;
    mr_row *list = mr_alloc(room, sizeof *list);
    if (!list) return 0;
    if (rows->count) memcpy(list, rows->list, rows->count * sizeof *list);
    mr_free(rows->list);
    rows->list = list;
    rows->room = room;
    return 1;
}

int mr_rows_put(mr_rows *rows, mr_row *row, mr_error *err)
{
    mr_row *old = mr_rows_find(rows, row);
    if (row->failed || (!old && !make_room(rows))) {
        mr_row_free(row);
        return mr_no_memory(err, "the results");
    }
    if (old) mr_row_free(old);
    else old = &rows->list[rows->count++];
    *old = *row;
    old->mark = mark_of(old);
    memset(row, 0, sizeof *row);
    return 0;
}

void mr_rows_free(mr_rows *rows)
{
    for (size_t i = 0; i < rows->count; i++) mr_row_free(&rows->list[i]);
    mr_free(rows->list);
    memset(rows, 0, sizeof *rows);
}
