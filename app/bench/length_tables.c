/* Tables and charts of what was measured. */
#include "bench/length_tables.h"

#include "core/file.h"
#include "core/mem.h"
#include "plot/chart.h"
#include "paper/paper_numbers.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- reading rows */

static int in_view(const mr_device_rows *v, const mr_row *row)
{
    return !strcmp(mr_row_text(row, "kind"), v->kind) && !strcmp(mr_row_text(row, "dtype"), v->dtype);
}

int mr_device_rows_next(const mr_rows *rows, mr_device_rows *view)
{
    const mr_device_rows before = *view;
    int after = before.kind == NULL;
    for (size_t i = 0; i < rows->count; i++) {
        const mr_row *row = &rows->list[i];
        size_t first = 0;
        *view = (mr_device_rows){rows, mr_row_text(row, "kind"), mr_row_text(row, "dtype")};
        while (!in_view(view, &rows->list[first])) first++;
        if (first == i && after) return 1;
        if (first == i && in_view(&before, row)) after = 1;
    }
    return 0;
}

static const mr_row *find(const mr_device_rows *v, const char *label, const char *column, const char *key)
{
    for (size_t i = 0; i < v->rows->count; i++) {
        const mr_row *row = &v->rows->list[i];
        if (in_view(v, row) && !strcmp(mr_row_text(row, "row"), label) && !strcmp(mr_row_text(row, "column"), column) &&
            (isfinite(mr_row_number(row, key)) || *mr_row_text(row, key)))
            return row;
    }
    return NULL;
}

double mr_device_rows_number(const mr_device_rows *v, const char *label, const char *column, const char *key)
{
    const mr_row *row = find(v, label, column, key);
    return row ? mr_row_number(row, key) : NAN;
}

static size_t insert(double *list, size_t count, size_t room, double value)
{
    size_t at = 0;
    while (at < count && list[at] < value) at++;
    if (count == room || (at < count && list[at] == value)) return count;
    memmove(list + at + 1, list + at, (count - at) * sizeof *list);
    list[at] = value;
    return count + 1;
}

static void add_label(mr_length_table *t, const char *label)
{
    for (size_t i = 0; i < t->count; i++)
        if (!strcmp(t->labels[i], label)) return;
    if (t->count < MR_LENGTH_TABLE_ROWS) t->labels[t->count++] = label;
}

mr_length_table mr_length_table_of(const mr_device_rows *v, const char *prefix)
{
    mr_length_table t = {.view = v, .prefix = prefix};
    for (int i = 0; i < MR_MODELS; i++) add_label(&t, mr_measured_models[i].label);
    for (size_t i = 0; i < v->rows->count; i++) {
        const mr_row *row = &v->rows->list[i];
        const double T = mr_row_number(row, "length");
        if (!in_view(v, row) || strncmp(mr_row_text(row, "column"), prefix, strlen(prefix)) || !(T > 0)) continue;
        t.lengths = insert(t.T, t.lengths, MR_LENGTH_TABLE_COLUMNS, T);
        if (!strncmp(mr_row_text(row, "row"), "PyTorch ", 8)) add_label(&t, mr_row_text(row, "row"));
    }
    return t;
}

static void column_of(const mr_length_table *t, double T, char column[MR_COLUMN])
{
    snprintf(column, MR_COLUMN, "%s%.0f", t->prefix, T);
}

double mr_length_table_number(const mr_length_table *t, const char *label, double T, const char *key)
{
    char column[MR_COLUMN];
    column_of(t, T, column);
    return mr_device_rows_number(t->view, label, column, key);
}

int mr_length_table_same_model(const char *peer, const char *label)
{
    const size_t n = strlen(label);
    return !strncmp(peer, "PyTorch ", 8) && !strncmp(peer + 8, label, n) && (!peer[8 + n] || peer[8 + n] == ' ');
}

/* ---- Markdown */

enum { HEADING_DAYS = 8 };

/* "minrnn 0.1.0, 2026-11-15; 0.2.0, 2026-11-16": each version and day of rows that were measured with `program`. */
static void add_days(mr_strbuf *md, const mr_device_rows *v, const char *program, const char *key, int peers)
{
    char seen[HEADING_DAYS][64];
    size_t count = 0;
    for (const mr_row *row = v->rows->list; row < v->rows->list + v->rows->count && count < HEADING_DAYS; row++) {
        size_t i = 0;
        if (!in_view(v, row) || (*mr_row_text(row, "torch") == 0) == peers) continue;
        snprintf(seen[count], sizeof seen[count], "%.40s, %.10s", mr_row_text(row, key), mr_row_text(row, "date"));
        while (strcmp(seen[i], seen[count]) != 0) i++;
        if (i < count) continue;
        mr_strbuf_format(md, "%s%s%s", count ? "; " : program, count ? "" : " ", seen[count]);
        count++;
    }
    if (count > 1) mr_strbuf_add(md, " (a comparison may have its sides from two of these)");
    if (count) mr_strbuf_add(md, "\n\n");
}

void mr_length_table_heading(mr_strbuf *md, const mr_device_rows *v)
{
    const mr_row *ours = NULL, *peer = NULL;
    for (const mr_row *row = v->rows->list; row < v->rows->list + v->rows->count; row++) {
        if (!in_view(v, row)) continue;
        if (*mr_row_text(row, "torch")) peer = row;
        else ours = row;
    }
    mr_strbuf_format(md, "## %s, %s\n\n", mr_row_text(ours ? ours : peer, "device"), v->dtype);
    if (ours && !mr_row_comparable(ours))
        mr_strbuf_add(
            md, "Small shapes of `--quick`, only to see that everything works: not comparable with the paper.\n\n");
    add_days(md, v, "minrnn", "minrnn", 0);
    add_days(md, v, "PyTorch", "torch", 1);
}

void mr_length_table_cell(mr_strbuf *md, double value, int digits, const char *unit)
{
    char number[MR_REAL_MAX];
    if (isfinite(value)) mr_strbuf_format(md, "| %s%s ", mr_brief_print(number, value, digits), unit);
    else mr_strbuf_add(md, "| – ");
}

void mr_length_table_start(mr_strbuf *md, const mr_length_table *t, const char *corner)
{
    mr_strbuf_format(md, "| %s |", corner);
    for (size_t i = 0; i < t->lengths; i++) mr_strbuf_format(md, " T=%.0f |", t->T[i]);
    mr_strbuf_add(md, "\n|---|");
    for (size_t i = 0; i < t->lengths; i++) mr_strbuf_add(md, "---:|");
    mr_strbuf_add(md, "\n");
}

/* A row of the table, where it has a number. */
static void add_row(mr_strbuf *md, const mr_length_table *t, const char *label, const double *values, int digits,
                    const char *unit)
{
    size_t known = 0;
    for (size_t i = 0; i < t->lengths; i++) known += isfinite(values[i]) != 0;
    if (!known) return;
    mr_strbuf_format(md, "| %s ", label);
    for (size_t i = 0; i < t->lengths; i++) mr_length_table_cell(md, values[i], digits, unit);
    mr_strbuf_add(md, "|\n");
}

void mr_length_table_numbers(mr_strbuf *md, const mr_length_table *t, const char *label, const char *key, double per)
{
    double values[MR_LENGTH_TABLE_COLUMNS];
    for (size_t i = 0; i < t->lengths; i++) values[i] = mr_length_table_number(t, label, t->T[i], key) / per;
    add_row(md, t, label, values, 4, "");
}

void mr_length_table_ratios(mr_strbuf *md, const mr_length_table *t, const char *label, const char *other)
{
    double values[MR_LENGTH_TABLE_COLUMNS];
    char name[128];
    for (size_t i = 0; i < t->lengths; i++)
        values[i] = mr_length_table_number(t, other, t->T[i], "ms") / mr_length_table_number(t, label, t->T[i], "ms");
    snprintf(name, sizeof name, "%.50s over %.50s", label, other);
    add_row(md, t, name, values, 3, "×");
}

void mr_length_table_paper(mr_strbuf *md, const mr_length_table *t, const char *paper_table, const char *label,
                           const char *column, const char *unit)
{
    double values[MR_LENGTH_TABLE_COLUMNS];
    char name[128];
    for (size_t i = 0; i < t->lengths; i++) {
        mr_paper_cell cell = {NAN, NAN};
        snprintf(name, sizeof name, "%.50s %.0f", label, t->T[i]);
        mr_paper_find(paper_table, name, column, &cell);
        values[i] = cell.value;
    }
    snprintf(name, sizeof name, "*the paper's %.50s*", label);
    add_row(md, t, name, values, 4, unit);
}

void mr_length_table_notes(mr_strbuf *md, const mr_length_table *t)
{
    const size_t n = strlen(t->prefix);
    mr_strbuf_add(md, "\n");
    for (size_t i = 0; i < t->view->rows->count; i++) {
        const mr_row *row = &t->view->rows->list[i];
        const char *label = mr_row_text(row, "row"), *column = mr_row_text(row, "column");
        if (!in_view(t->view, row) || strncmp(column, t->prefix, n) || !*mr_row_text(row, "note")) continue;
        if (!find(t->view, label, column, "ms"))
            mr_strbuf_format(md, "- %s, %s and longer: not run, %s\n", label, column, mr_row_text(row, "note"));
    }
    mr_strbuf_add(md, "\n");
}

/* ---- charts */

/* The model that a label names: "GRU" of "PyTorch GRU loop". */
static int colour_of(const char *label)
{
    for (int i = 0; i < MR_MODELS; i++)
        if (!strcmp(label, mr_measured_models[i].label) ||
            mr_length_table_same_model(label, mr_measured_models[i].label))
            return mr_model_colour(mr_measured_models[i].label);
    return 0;
}

static double paper_number(const mr_length_chart *f, const char *label, double T)
{
    char name[128];
    mr_paper_cell cell = {NAN, NAN};
    snprintf(name, sizeof name, "%.50s %.0f", label, T);
    if (f->paper_name) mr_paper_find(f->paper_table, name, f->paper_column, &cell);
    return cell.value / f->per;
}

typedef struct lines {
    double y[MR_LENGTH_TABLE_ROWS][MR_LENGTH_TABLE_COLUMNS], paper[MR_MODELS][MR_LENGTH_TABLE_COLUMNS];
    mr_chart_series series[MR_LENGTH_TABLE_ROWS + MR_MODELS];
    size_t count;
} lines;

static int any_known(const double *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (isfinite(values[i])) return 1;
    return 0;
}

/* Ours as lines, PyTorch's dashed, in the colour of the model; the paper's values as its marks. */
static void make_series(const mr_length_table *t, const mr_length_chart *f, lines *l)
{
    for (size_t k = 0; k < t->count; k++) {
        const int ours = k < MR_MODELS;
        for (size_t i = 0; i < t->lengths; i++) {
            l->y[k][i] = mr_length_table_number(t, t->labels[k], t->T[i], f->key) / f->per;
            if (ours) l->paper[k][i] = paper_number(f, t->labels[k], t->T[i]);
        }
        if (!any_known(l->y[k], t->lengths)) continue;
        const mr_chart_series line = {.name = t->labels[k],
                                      .n = t->lengths,
                                      .x = t->T,
                                      .y = l->y[k],
                                      .style = ours ? MR_CHART_LINE : MR_CHART_DASHED,
                                      .colour = colour_of(t->labels[k])};
        l->series[l->count++] = line;
        if (ours && any_known(l->paper[k], t->lengths))
            l->series[l->count++] = (mr_chart_series){
                .name = f->paper_name, .n = t->lengths, .x = t->T, .y = l->paper[k], .style = MR_CHART_PAPER};
    }
}

int mr_length_table_draw(mr_strbuf *md, const mr_length_table *t, const mr_length_chart *f, const char *dir, int first,
                         mr_error *err)
{
    lines l = {.count = 0};
    char file[160];
    make_series(t, f, &l);
    const mr_chart chart = {.title = f->title,
                            .x = {.label = "tokens a sequence, T", .scale = MR_SCALE_LOG2},
                            .y = {.label = f->y_label, .scale = MR_SCALE_LOG10},
                            .series = l.series,
                            .count = l.count};
    if (first) snprintf(file, sizeof file, "%s.svg", f->name);
    else snprintf(file, sizeof file, "%s-%s-%s.svg", f->name, t->view->kind, t->view->dtype);
    char *path = mr_path_join(dir, file);
    int status = path ? mr_chart_write(path, &chart, err) : mr_no_memory(err, "a path");
    mr_free(path);
    mr_strbuf_format(md, "![%s](%s)\n\n", f->title, file);
    return status;
}

int mr_measured_report_save(const char *dir, const char *name, mr_strbuf *md, mr_error *err)
{
    char file[64];
    snprintf(file, sizeof file, "%s.md", name);
    char *path = mr_path_join(dir, file);
    mr_strbuf_format(md, "\n" MR_MADE_BY_REPRODUCE "%s`.\n", name);
    int status = !path || md->failed ? mr_no_memory(err, "a report") : mr_file_replace(path, md->data, md->size, err);
    mr_free(path);
    mr_strbuf_free(md);
    return status;
}
