#include "paper/experiment_charts.h"

#include "core/file.h"
#include "core/mem.h"
#include "plot/chart.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SERIES = 24, COLUMNS = 24, POINTS = 256 }; /* more cannot be told apart, and are not drawn */

typedef struct curves {
    double x[SERIES][POINTS], y[SERIES][POINTS], spread[SERIES][POINTS];
    char names[SERIES][96];
    mr_chart_series series[SERIES];
    size_t count;
} curves;

static const char *column_of(const mr_group *g) { return mr_row_text(g->first, "column"); }

static int is_drawn(const mr_group *g, const mr_group *groups)
{
    return !strcmp(mr_row_text(g->first, "profile"), mr_row_text(groups->first, "profile"));
}

/* The columns among the groups that are drawn, in their order. */
static size_t list_columns(const mr_group *groups, size_t n, const char *columns[COLUMNS])
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        if (!is_drawn(&groups[i], groups)) continue;
        while (k < count && strcmp(columns[k], column_of(&groups[i]))) k++;
        if (k == count && count < COLUMNS) columns[count++] = column_of(&groups[i]);
    }
    return count;
}

/* The row, and what else tells the group from the first one. */
static void name_of(const mr_group *g, const mr_group *groups, char out[96])
{
    const char *dtype = mr_row_text(g->first, "dtype"), *kind = mr_row_text(g->first, "kind");
    const int same_dtype = !strcmp(dtype, mr_row_text(groups->first, "dtype")),
              same_kind = !strcmp(kind, mr_row_text(groups->first, "kind"));
    snprintf(out, 96, "%.40s%s%.16s%s%.16s", mr_row_text(g->first, "row"), same_dtype ? "" : " ",
             same_dtype ? "" : dtype, same_kind ? "" : " ", same_kind ? "" : kind);
}

static int write_chart(const mr_chart *chart, const char *dir, const char *file, mr_text *names, mr_error *err)
{
    char *path = mr_path_join(dir, file);
    int status = path ? mr_chart_write(path, chart, err) : mr_no_memory(err, "a picture");
    mr_free(path);
    mr_text_format(names, "%s\n", file);
    return status;
}

/* Of accuracies all of it, so that pictures can be compared. */
static mr_chart_axis score_axis(const mr_experiment *e)
{
    if (e->by_loss) return (mr_chart_axis){.label = "test loss (nats)"};
    return (mr_chart_axis){.label = e->scale == 100 ? "accuracy (%)" : "accuracy", .high = e->scale};
}

static int draw_curves(const mr_experiment *e, const mr_rows *rows, const mr_group *groups, size_t n,
                       const char *column, const char *title, const char *dir, const char *file, mr_text *names,
                       mr_error *err)
{
    curves *c = mr_alloc(1, sizeof *c);
    if (!c) return mr_no_memory(err, "a picture");
    for (size_t i = 0; i < n && c->count < SERIES; i++) {
        const size_t k = c->count;
        if (!is_drawn(&groups[i], groups) || strcmp(column_of(&groups[i]), column)) continue;
        const size_t points = mr_report_curve(e, rows, &groups[i], c->x[k], c->y[k], c->spread[k], POINTS);
        if (!points) continue;
        name_of(&groups[i], groups, c->names[k]);
        c->series[c->count++] = (mr_chart_series){
            .name = c->names[k], .n = points, .x = c->x[k], .y = c->y[k], .spread = c->spread[k], .band = 1};
    }
    const mr_chart chart = {
        .title = title, .x = {.label = "steps"}, .y = score_axis(e), .series = c->series, .count = c->count};
    int status = write_chart(&chart, dir, file, names, err);
    mr_free(c);
    return status;
}

static int draw_bars(const mr_experiment *e, const mr_group *groups, size_t n, const char *const *columns,
                     size_t column_count, const char *dir, const char *file, mr_text *names, mr_error *err)
{
    curves *c = mr_alloc(1, sizeof *c);
    if (!c) return mr_no_memory(err, "a picture");
    for (size_t i = 0; i < n; i++) {
        char name[96];
        size_t k = 0, at = 0;
        if (!is_drawn(&groups[i], groups)) continue;
        name_of(&groups[i], groups, name);
        while (k < c->count && strcmp(c->names[k], name)) k++;
        while (at < column_count && strcmp(columns[at], column_of(&groups[i]))) at++;
        if (k == SERIES || at == column_count) continue;
        if (k == c->count) {
            snprintf(c->names[k], sizeof c->names[k], "%s", name);
            for (size_t j = 0; j < column_count; j++) c->y[k][j] = c->spread[k][j] = NAN;
            c->series[c->count++] =
                (mr_chart_series){.name = c->names[k], .n = column_count, .y = c->y[k], .spread = c->spread[k]};
        }
        c->y[k][at] = groups[i].mean;
        c->spread[k][at] = groups[i].std;
    }
    const mr_chart chart = {.title = e->summary,
                            .y = score_axis(e),
                            .series = c->series,
                            .count = c->count,
                            .groups = columns,
                            .group_count = column_count};
    int status = write_chart(&chart, dir, file, names, err);
    mr_free(c);
    return status;
}

char mr_chart_file_letter(char c) { return (char)(isalnum((unsigned char)c) || c == '_' || !c ? c : '-'); }

int mr_experiment_charts_write(const mr_experiment *e, const mr_rows *rows, const mr_group *groups, size_t n,
                               const char *dir, mr_text *names, mr_error *err)
{
    const char *columns[COLUMNS];
    char file[160], title[160];
    size_t count = list_columns(groups, n, columns);
    snprintf(file, sizeof file, "%s.svg", e->name);
    if (count < 2) return draw_curves(e, rows, groups, n, count ? columns[0] : "", e->summary, dir, file, names, err);
    int status = draw_bars(e, groups, n, columns, count, dir, file, names, err);
    for (size_t i = 0; !status && i < count; i++) {
        snprintf(file, sizeof file, "%s-%.60s", e->name, columns[i]);
        for (char *c = file; *c; c++) *c = mr_chart_file_letter(*c);
        strcat(file, ".svg");
        snprintf(title, sizeof title, "%s: %.60s", e->name, columns[i]);
        status = draw_curves(e, rows, groups, n, columns[i], title, dir, file, names, err);
    }
    return status;
}
