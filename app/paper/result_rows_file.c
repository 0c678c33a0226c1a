/* Rows as a file of JSON. */
#include "core/file.h"
#include "core/json.h"
#include "core/json_write.h"
#include "core/mem.h"
#include "core/options.h"
#include "paper/result_rows.h"
#include "paper/settings.h"
#include "core/strbuf.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#define LARGEST (256u << 20)

/* ---- writing ---- */

static void write_curve(mr_json_writer *w, const mr_row *row)
{
    mr_json_write_key(w, "curve");
    mr_json_write_open(w, '[');
    for (size_t i = 0; i < row->points; i++) {
        const mr_curve_point *p = &row->curve[i];
        const double values[] = {(double)p->step, p->train_loss, p->test_loss, p->accuracy};
        mr_json_write_open(w, '[');
        for (int k = 0; k < 4; k++) mr_json_write_real(w, values[k], 0);
        mr_json_write_close(w, ']');
    }
    mr_json_write_close(w, ']');
}

static void write_row(mr_json_writer *w, const mr_row *row, int with_curve)
{
    mr_json_write_open(w, '{');
    for (int i = 0; i < row->count; i++) {
        const mr_field *f = &row->fields[i];
        if (f->text) mr_json_field_text(w, f->key, f->text);
        else mr_json_field_real(w, f->key, f->number, 0);
    }
    if (with_curve && row->points) write_curve(w, row);
    mr_json_write_close(w, '}');
}

void mr_row_print_json(mr_strbuf *out, const mr_row *row, int with_curve)
{
    mr_json_writer w = {.text = out, .spaced = 1};
    write_row(&w, row, with_curve);
}

int mr_rows_write(const mr_rows *rows, const char *path, const char *experiment, mr_error *err)
{
    mr_strbuf out = {0};
    mr_json_writer w = {.text = &out, .spaced = 1};
    mr_json_write_open(&w, '{');
    mr_json_field_text(&w, "experiment", experiment);
    mr_json_write_key(&w, "rows");
    mr_json_write_open(&w, '[');
    for (size_t i = 0; i < rows->count; i++) {
        mr_json_write_line(&w);
        write_row(&w, &rows->list[i], 1);
    }
    mr_strbuf_add(&out, "\n");
    mr_json_write_close(&w, ']');
    mr_json_write_close(&w, '}');
    mr_strbuf_add(&out, "\n");
    int status = out.failed ? mr_no_memory(err, "the results") : mr_file_replace(path, out.data, out.size, err);
    mr_strbuf_free(&out);
    return status;
}

/* ---- reading ---- */

/* A number; NaN for null. 0: something else comes next. */
static int read_number(mr_json *json, double *value)
{
    char copy[64];
    const char *text;
    size_t size = mr_json_number(json, &text);
    *value = NAN;
    if (!size) return mr_json_word(json, "null");
    if (size >= sizeof copy) return 0;
    memcpy(copy, text, size);
    copy[size] = 0;
    return mr_real_read(copy, value);
}

static int read_point(mr_json *json, mr_curve_point *point)
{
    double values[4];
    int n = 0;
    if (!mr_json_enter(json, '[')) return 0;
    while (mr_json_item(json, ']'))
        if (n == 4 || !read_number(json, &values[n++])) return 0;
    if (n != 4 || !(values[0] >= 0 && values[0] <= 9e15)) return 0;
    *point = (mr_curve_point){(int64_t)values[0], values[1], values[2], values[3]};
    return 1;
}

static int read_curve(mr_json *json, mr_row *row)
{
    size_t room = 0;
    if (row->curve || !mr_json_enter(json, '[')) return 0;
    while (mr_json_item(json, ']')) {
        if (row->points == room) {
            room = 2 * room + 256;
            mr_curve_point *grown = mr_alloc(room, sizeof *grown);
            if (!grown) return row->failed = 1, 0;
            if (row->points) memcpy(grown, row->curve, row->points * sizeof *grown);
            mr_free(row->curve);
            row->curve = grown;
        }
        if (!read_point(json, &row->curve[row->points])) return 0;
        row->points++;
    }
    return !json->wrong;
}

static int read_field(mr_json *json, mr_row *row)
{
    size_t size;
    double number;
    const char *key = mr_json_key(json, &size), *text;
    if (!key) return 0;
    if (!strcmp(key, "curve")) return read_curve(json, row);
    if (mr_json_peek(json) == '"') {
        text = mr_json_string(json, &size);
        if (text) mr_row_set_text(row, key, text);
        return text && !row->failed;
    }
    if (!read_number(json, &number)) return 0;
    mr_row_set(row, key, number);
    return !row->failed;
}

/* Are the fields of the protocol what they should be: numbers, texts, a count? */
static int is_sound(const mr_row *row)
{
    static const char *const numbers[] = {"tried",   "last_score", "outdated", "constant",    "chance",    "strings",
                                          "answers", "sequences",  "steps",    "target_loss", "parameters"};
    static const char *const words[] = {"settings", "setting", "own_budget", "test_set", "differs", "test", "data"};
    const double tried = mr_row_number(row, "tried");
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (mr_row_text(row, numbers[i])[0]) return 0;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (isfinite(mr_row_number(row, words[i]))) return 0;
    if (!strcmp(mr_row_text(row, "profile"), "search") && !mr_row_text(row, "setting")[0]) return 0;
    return isnan(tried) || (tried >= 1 && tried <= 1e6 && tried == floor(tried));
}

/* Does it have the fields that tell runs apart, and, if it is a run (it has a seed), a score or why there is none? */
static int is_whole(const mr_row *row)
{
    static const char *const names[] = {"experiment", "row", "column", "kind", "dtype"};
    const double seed = mr_row_number(row, "seed");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = mr_row_text(row, names[i]);
        if (!*text) return 0;
        for (; *text; text++)
            if (iscntrl((unsigned char)*text)) return 0;
    }
    if (mr_row_text(row, "seed")[0] || mr_row_text(row, "score")[0] || !is_sound(row)) return 0;
    if (isnan(seed)) return isnan(mr_row_number(row, "score")); /* a measurement */
    return seed >= 0 && seed <= 9e15 && seed == floor(seed) &&
           (isfinite(mr_row_number(row, "score")) || mr_row_text(row, "failed")[0]);
}

/* 0: this is not a row, or there is no memory for it (row->failed). */
static int read_row(mr_json *json, mr_row *row)
{
    if (!mr_json_enter(json, '{')) return 0;
    while (mr_json_item(json, '}'))
        if (!read_field(json, row)) return 0;
    for (int i = 0; i < row->count; i++)
        if (row->fields[i].text && !strcmp(row->fields[i].key, "settings")) mr_settings_tidy(row->fields[i].text);
    return !json->wrong && is_whole(row);
}

static int wrong_file(const char *path, size_t row, mr_error *err)
{
    return mr_fail(err, MR_EFORMAT,
                   "%s: row %zu is not a result of `minrnn reproduce`; remove the file or replace it with a whole one",
                   path, row + 1);
}

static int read_list(mr_json *json, mr_rows *rows, const char *path, mr_error *err)
{
    size_t n = 0;
    if (!mr_json_enter(json, '[')) return wrong_file(path, 0, err);
    for (; mr_json_item(json, ']'); n++) {
        mr_row row = {0};
        if (!read_row(json, &row)) {
            mr_row_free(&row);
            return wrong_file(path, n, err);
        }
        int status = mr_rows_put(rows, &row, err);
        if (status) return status;
    }
    return json->wrong ? wrong_file(path, n, err) : 0;
}

static int parse(mr_rows *rows, mr_json *json, const char *path, mr_error *err)
{
    size_t size;
    int status = 0, seen = 0;
    if (!mr_json_enter(json, '{'))
        return mr_fail(err, MR_EFORMAT, "%s: has no rows; give a NAME.json that `minrnn reproduce` wrote", path);
    while (!status && mr_json_item(json, '}')) {
        const char *key = mr_json_key(json, &size);
        if (key && !strcmp(key, "rows") && !seen++) status = read_list(json, rows, path, err);
        else if (!key || strcmp(key, "experiment") || !mr_json_string(json, &size)) status = wrong_file(path, 0, err);
    }
    return !status && (!mr_json_done(json) || !seen) ? wrong_file(path, rows->count, err) : status;
}

int mr_rows_read(mr_rows *rows, const char *path, mr_error *err)
{
    mr_json json;
    char *text, *room;
    size_t size;
    int status = mr_file_read(path, LARGEST, &text, &size, err);
    if (status) return status;
    room = mr_alloc(size + 1, 1);
    if (!room) status = mr_no_memory(err, path);
    if (room) mr_json_start(&json, text, size, room);
    if (room) status = parse(rows, &json, path, err);
    mr_free(room);
    mr_free(text);
    return status;
}
