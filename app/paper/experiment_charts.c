/* The charts of an experiment. A model is one series in each of them: of several results of a cell (on another device,
 * in another dtype) the one with the most seeds is drawn. */
#include "paper/experiment_charts.h"

#include "core/file.h"
#include "core/mem.h"
#include "plot/chart.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    MODELS = 12,
    SERIES = 2 * MODELS,
    COLUMNS = 24,
    POINTS = 256
}; /* more cannot be told apart, and are not drawn */

/* Of each model: its own values, and the paper's after them. */
typedef struct drawn {
    double x[MODELS][POINTS], y[MODELS][POINTS], spread[MODELS][POINTS], paper_x[MODELS], paper[MODELS][COLUMNS];
    const char *names[MODELS];
    mr_chart_series series[SERIES];
    size_t models, count;
} drawn;

/* What is drawn: the groups of the first profile that there are results of. */
typedef struct choice {
    const mr_experiment *e;
    const mr_rows *rows;
    const mr_group *groups;
    size_t n;
    int comparable;
} choice;

static const char *row_of(const mr_group *g) { return mr_row_text(g->first, "row"); }
static const char *column_of(const mr_group *g) { return mr_row_text(g->first, "column"); }

static int same_cell(const mr_group *a, const mr_group *b)
{
    return !strcmp(row_of(a), row_of(b)) && !strcmp(column_of(a), column_of(b));
}

/* Is `a` the better one to show? Whole runs before those cut short by --steps, then more seeds, then the newer. */
static int is_better(const mr_group *a, const mr_group *b)
{
    const int whole = isnan(mr_row_number(a->first, "asked_steps")) - isnan(mr_row_number(b->first, "asked_steps"));
    const int known = isfinite(a->mean) - isfinite(b->mean);
    if (whole) return whole > 0;
    if (known) return known > 0;
    if (a->seeds != b->seeds) return a->seeds > b->seeds;
    return strcmp(mr_row_text(a->first, "date"), mr_row_text(b->first, "date")) > 0;
}

static int is_drawn(const choice *c, const mr_group *g)
{
    if (mr_row_outdated(g->first)) return 0;
    if (strcmp(mr_row_text(g->first, "profile"), mr_row_text(c->groups->first, "profile"))) return 0;
    for (size_t i = 0; i < c->n; i++)
        if (&c->groups[i] != g && !mr_row_outdated(c->groups[i].first) && same_cell(&c->groups[i], g) &&
            is_better(&c->groups[i], g) &&
            !strcmp(mr_row_text(c->groups[i].first, "profile"), mr_row_text(g->first, "profile")))
            return 0;
    return 1;
}

/* The columns among the groups that are drawn, in their order. */
static size_t list_columns(const choice *c, const char *columns[COLUMNS])
{
    size_t count = 0;
    for (size_t i = 0; i < c->n; i++) {
        size_t k = 0;
        if (!is_drawn(c, &c->groups[i])) continue;
        while (k < count && strcmp(columns[k], column_of(&c->groups[i]))) k++;
        if (k == count && count < COLUMNS) columns[count++] = column_of(&c->groups[i]);
    }
    return count;
}

/* The series of a row, a new one where it has none yet; MODELS: there is no room for another. */
static size_t model_of(drawn *d, const char *name)
{
    size_t k = 0;
    while (k < d->models && strcmp(d->names[k], name)) k++;
    if (k == d->models && k < MODELS) {
        d->names[d->models++] = name;
        for (size_t i = 0; i < COLUMNS; i++) d->y[k][i] = d->spread[k][i] = d->paper[k][i] = NAN;
    }
    return k;
}

/* A model has the same colour in every chart; other names get the colours that are left, while there are any. */
static void add_colours(drawn *d)
{
    int used[MR_CHART_COLOURS + 1] = {0}, next = 2;
    for (size_t i = 0; i < d->models; i++) used[mr_model_colour(d->names[i])] = 1;
    for (size_t i = 0; i < d->count; i++) {
        mr_chart_series *s = &d->series[i];
        if (s->style == MR_CHART_PAPER) continue;
        s->colour = mr_model_colour(s->name);
        while (!s->colour && next <= MR_CHART_COLOURS && used[next]) next++;
        if (!s->colour && next <= MR_CHART_COLOURS) s->colour = next++;
    }
}

static int write_chart(const choice *c, const mr_chart *chart, const drawn *d, const char *dir, const char *file,
                       mr_strbuf *names, mr_error *err)
{
    char title[256], *path = mr_path_join(dir, file);
    snprintf(title, sizeof title, "%s%.160s", c->comparable ? "" : "(quick, " MR_NOT_COMPARABLE ") ", chart->title);
    mr_chart whole = *chart;
    whole.title = title;
    whole.series = d->series;
    whole.count = d->count;
    int status = path ? mr_chart_write(path, &whole, err) : mr_no_memory(err, "a chart");
    mr_free(path);
    mr_strbuf_format(names, "%s\n", file);
    return status;
}

/* Accuracies are drawn on the whole scale, so that charts can be compared. */
static mr_chart_axis score_axis(const mr_experiment *e)
{
    if (e->measure == MR_BY_LOSS) return (mr_chart_axis){.label = "test loss (nats)"};
    if (e->measure == MR_BY_RETURN) return (mr_chart_axis){.label = "score (0: random, 100: expert)"};
    return (mr_chart_axis){.label = e->scale == 100 ? "accuracy (%)" : "accuracy", .high = e->scale};
}

/* Some of what is drawn was learned from data like D4RL's. */
static int on_like_data(const choice *c)
{
    for (size_t i = 0; i < c->n; i++)
        if (is_drawn(c, &c->groups[i]) && mr_row_on_like_data(c->groups[i].first)) return 1;
    return 0;
}

static void add_paper_series(const choice *c, drawn *d, size_t k, size_t n, const double *x)
{
    size_t known = 0;
    for (size_t i = 0; i < n; i++) known += isfinite(d->paper[k][i]) != 0;
    if (known && c->comparable)
        d->series[d->count++] =
            (mr_chart_series){.name = "paper", .n = n, .x = x, .y = d->paper[k], .style = MR_CHART_PAPER};
}

/* Where the paper's value of a model stands: where its curve ends, and to the left of others that end there too. */
static double paper_place(const drawn *d, const size_t *points, size_t k, double last)
{
    const double end = d->x[k][points[k] - 1];
    size_t others = 0;
    for (size_t i = k + 1; i < d->models; i++) others += points[i] && d->x[i][points[i] - 1] == end;
    return end - 0.022 * last * (double)others;
}

/* Learning curves, and the paper's values at their ends. */
static int draw_curves(const choice *c, const char *column, const char *title, const char *dir, const char *file,
                       mr_strbuf *names, mr_error *err)
{
    drawn *d = mr_alloc(1, sizeof *d);
    size_t points[MODELS] = {0};
    double last = 0;
    if (!d) return mr_no_memory(err, "a chart");
    for (size_t i = 0; i < c->n && d->models < MODELS; i++) {
        const mr_group *g = &c->groups[i];
        if (!is_drawn(c, g) || strcmp(column_of(g), column)) continue;
        const size_t k = model_of(d, row_of(g));
        points[k] = mr_report_curve(c->e, c->rows, g, d->x[k], d->y[k], d->spread[k], POINTS);
        d->paper[k][0] = mr_row_number(g->first, "paper");
        if (points[k]) last = fmax(last, d->x[k][points[k] - 1]);
    }
    for (size_t k = 0; k < d->models; k++) {
        if (!points[k]) continue;
        d->series[d->count++] = (mr_chart_series){
            .name = d->names[k], .n = points[k], .x = d->x[k], .y = d->y[k], .spread = d->spread[k], .band = 1};
        d->paper_x[k] = paper_place(d, points, k, last);
        if (c->e->measure != MR_BY_RETURN) add_paper_series(c, d, k, 1, &d->paper_x[k]);
    }
    add_colours(d);
    mr_chart chart = {.title = title, .x = {.label = "training steps", .high = last}, .y = score_axis(c->e)};
    if (c->e->measure == MR_BY_RETURN) chart.y = (mr_chart_axis){.label = "squared error of actions, validation"};
    if (on_like_data(c)) chart.x.label = "training steps, on D4RL-like data";
    int status = write_chart(c, &chart, d, dir, file, names, err);
    mr_free(d);
    return status;
}

/* "bucket_sort" for people. */
static void name_column(const char *column, char out[64])
{
    snprintf(out, 64, "%s", column);
    for (char *at = out; *at; at++)
        if (*at == '_') *at = ' ';
}

static int draw_bars(const choice *c, const char *const *columns, size_t count, const char *dir, const char *file,
                     mr_strbuf *names, mr_error *err)
{
    char labels[COLUMNS][64];
    const char *groups[COLUMNS];
    drawn *d = mr_alloc(1, sizeof *d);
    if (!d) return mr_no_memory(err, "a chart");
    for (size_t i = 0; i < count; i++) name_column(columns[i], labels[i]), groups[i] = labels[i];
    for (size_t i = 0; i < c->n; i++) {
        const mr_group *g = &c->groups[i];
        size_t at = 0;
        if (!is_drawn(c, g)) continue;
        while (at < count && strcmp(columns[at], column_of(g))) at++;
        const size_t k = model_of(d, row_of(g));
        if (k == MODELS || at == count) continue;
        d->y[k][at] = g->mean;
        d->spread[k][at] = g->std;
        if (!mr_row_on_like_data(g->first)) d->paper[k][at] = mr_row_number(g->first, "paper");
    }
    for (size_t k = 0; k < d->models; k++) {
        d->series[d->count++] =
            (mr_chart_series){.name = d->names[k], .n = count, .y = d->y[k], .spread = d->spread[k]};
        add_paper_series(c, d, k, count, NULL);
    }
    add_colours(d);
    mr_chart chart = {.title = c->e->summary, .y = score_axis(c->e), .groups = groups, .group_count = count};
    if (on_like_data(c)) chart.y.label = "score (0: random, 100: expert), D4RL-like data";
    int status = write_chart(c, &chart, d, dir, file, names, err);
    mr_free(d);
    return status;
}

char mr_chart_file_letter(char c) { return (char)(isalnum((unsigned char)c) || c == '_' || !c ? c : '-'); }

/* NAME-COLUMN.svg, as far as a file may be named so. */
static char *column_file(const mr_experiment *e, const char *column, char file[160])
{
    snprintf(file, 150, "%s-%.60s", e->name, column);
    for (char *at = file; *at; at++) *at = mr_chart_file_letter(*at);
    return strcat(file, ".svg");
}

static void take_away(const char *dir, const char *file)
{
    char *path = mr_path_join(dir, file);
    if (path) unlink(path);
    mr_free(path);
}

/* Charts of results that are outdated by now. */
static void take_away_old(const mr_experiment *e, const char *const *drawn_columns, size_t count, const char *dir)
{
    char file[160];
    int from = 0;
    for (const char *column; (column = mr_experiment_label(e, MR_COLUMN_PREFIX, &from));) {
        size_t i = 0;
        while (i < count && strcmp(drawn_columns[i], column)) i++;
        if (i == count || count < 2) take_away(dir, column_file(e, column, file));
    }
    snprintf(file, sizeof file, "%s.svg", e->name);
    if (!count) take_away(dir, file);
}

int mr_experiment_charts_write(const mr_experiment *e, const mr_rows *rows, const mr_group *groups, size_t n,
                               const char *dir, mr_strbuf *names, mr_error *err)
{
    const choice c = {e, rows, groups, n, !n || mr_row_comparable(groups->first)};
    const char *columns[COLUMNS];
    char file[160], title[160], label[64];
    size_t count = list_columns(&c, columns);
    take_away_old(e, columns, count, dir);
    if (!count) return 0;
    snprintf(file, sizeof file, "%s.svg", e->name);
    if (count < 2) return draw_curves(&c, columns[0], e->summary, dir, file, names, err);
    int status = draw_bars(&c, columns, count, dir, file, names, err);
    for (size_t i = 0; !status && i < count; i++) {
        name_column(columns[i], label);
        snprintf(title, sizeof title, "%s: %s", e->name, label);
        status = draw_curves(&c, columns[i], title, dir, column_file(e, columns[i], file), names, err);
    }
    return status;
}
