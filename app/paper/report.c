/* The rows of an experiment as numbers for people: seeds together, and the page with its table. */
#include "paper/report.h"

#include "core/file.h"
#include "core/mem.h"
#include "paper/experiment_charts.h"
#include "paper/reproduce.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- groups ---- */

/* Runs that differ only in the seed. */
static int same_group(const mr_row *a, const mr_row *b)
{
    static const char *const keys[] = {"row", "column", "settings", "kind", "dtype"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(mr_row_text(a, keys[i]), mr_row_text(b, keys[i]))) return 0;
    return mr_row_outdated(a) == mr_row_outdated(b) && mr_row_same_measure(a, b) && mr_row_same_data(a, b);
}

typedef struct mean {
    double sum, squares;
    int n;
} mean;

static void count_in(mean *m, double value)
{
    if (!isfinite(value)) return;
    m->sum += value;
    m->squares += value * value;
    m->n++;
}

static double mean_of(const mean *m) { return m->n ? m->sum / m->n : NAN; }

static double std_of(const mean *m)
{
    if (m->n < 2) return NAN;
    double variance = (m->squares - m->sum * m->sum / m->n) / (m->n - 1);
    return variance > 0 ? sqrt(variance) : 0;
}

static int place_of(const mr_experiment *e, const mr_row *row)
{
    return 1000000 * (int)mr_profile_find(mr_row_text(row, "profile")) +
           mr_experiment_place(e, mr_row_text(row, "row"), mr_row_text(row, "column"));
}

static mr_group make_group(const mr_experiment *e, const mr_rows *rows, const mr_row *first)
{
    mr_group g = {.first = first, .place = place_of(e, first)};
    mean score = {0}, last = {0}, steps = {0}, best = {0}, seconds = {0}, target = {0};
    for (size_t i = 0; i < rows->count; i++) {
        const mr_row *row = &rows->list[i];
        if (!same_group(first, row)) continue;
        g.seeds++;
        g.failed += mr_row_text(row, "failed")[0] != 0;
        count_in(&score, mr_row_number(row, "score"));
        count_in(&last, mr_row_number(row, "last_score"));
        count_in(&steps, mr_row_number(row, "steps"));
        count_in(&best, mr_row_number(row, "best_step"));
        count_in(&seconds, mr_row_number(row, "seconds"));
        count_in(&target, mr_row_number(row, "target_step"));
    }
    g.mean = mean_of(&score), g.std = std_of(&score), g.last = mean_of(&last);
    g.steps = mean_of(&steps), g.best_step = mean_of(&best), g.seconds = mean_of(&seconds),
    g.target_step = mean_of(&target);
    return g;
}

static int by_place(const void *a, const void *b)
{
    return ((const mr_group *)a)->place - ((const mr_group *)b)->place;
}

int mr_report_groups(const mr_experiment *e, const mr_rows *rows, mr_group **groups, size_t *count, mr_error *err)
{
    *count = 0;
    *groups = mr_alloc(rows->count + 1, sizeof **groups);
    if (!*groups) return mr_no_memory(err, "the table");
    for (size_t i = 0; i < rows->count; i++) {
        size_t before = 0;
        while (before < i && !same_group(&rows->list[before], &rows->list[i])) before++;
        if (before == i) (*groups)[(*count)++] = make_group(e, rows, &rows->list[i]);
    }
    qsort(*groups, *count, sizeof **groups, by_place);
    return 0;
}

/* ---- numbers ---- */

char *mr_report_number(char out[64], double value, double std, int digits)
{
    char a[MR_REAL_MAX], b[MR_REAL_MAX];
    out[0] = 0;
    if (std > 0 && isfinite(value) && value != 0) { /* as many digits as the error has a use for */
        const int useful = (int)(floor(log10(fabs(value))) - floor(log10(std))) + 1;
        if (useful > digits) digits = useful < 8 ? useful : 8;
    }
    if (isfinite(value))
        snprintf(out, 64, "%s%s%s", mr_real_print(a, value, digits), isfinite(std) ? " ± " : "",
                 isfinite(std) ? mr_real_print(b, std, 2) : "");
    return out;
}

char *mr_report_paper(char out[64], double value, double std)
{
    char a[MR_REAL_MAX], b[MR_REAL_MAX];
    out[0] = 0;
    if (isfinite(value))
        snprintf(out, 64, "%s%s%s", mr_real_print(a, value, 6), isfinite(std) ? " ± " : "",
                 isfinite(std) ? mr_real_print(b, std, 6) : "");
    return out;
}

char *mr_report_time(char out[32], double seconds)
{
    long s = isfinite(seconds) ? lround(fmin(fmax(seconds, 0), 1e9)) : 0;
    snprintf(out, 32, s >= 3600 ? "%ld:%02ld:%02ld" : "%.0ld%ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    return out;
}

/* ---- the curve ---- */

static double value_at(const mr_experiment *e, const mr_row *row, int64_t step)
{
    for (size_t i = 0; i < row->points; i++)
        if (row->curve[i].step == step && isfinite(row->curve[i].test_loss))
            return e->scale * (e->measure == MR_BY_ACCURACY ? row->curve[i].accuracy : row->curve[i].test_loss);
    return NAN;
}

size_t mr_report_curve(const mr_experiment *e, const mr_rows *rows, const mr_group *g, double *x, double *y,
                       double *spread, size_t room)
{
    size_t n = 0;
    for (size_t i = 0; i < g->first->points && n < room; i++) {
        const int64_t step = g->first->curve[i].step;
        mean m = {0};
        if (!isfinite(g->first->curve[i].test_loss)) continue;
        for (size_t k = 0; k < rows->count; k++)
            if (same_group(g->first, &rows->list[k])) count_in(&m, value_at(e, &rows->list[k], step));
        x[n] = (double)step, y[n] = mean_of(&m), spread[n++] = std_of(&m);
    }
    return n;
}

/* ---- Markdown ---- */

/* A bar inside a cell would end it, so it is escaped. */
static void add_cell(mr_strbuf *out, const char *text)
{
    mr_strbuf_add(out, "| ");
    for (const char *c = text; *c; c++) mr_strbuf_format(out, *c == '|' ? "\\%c" : "%c", *c);
    mr_strbuf_add(out, " ");
}

/* The columns that only some tables have. */
typedef struct columns {
    int paper, target, data;
} columns;

/* The score of the episodes that a policy learned from. Data like D4RL's is always called so. */
static void add_data(mr_strbuf *out, const mr_row *row)
{
    char text[64], score[64];
    mr_report_number(score, mr_row_number(row, "data_score"), NAN, 4);
    snprintf(text, sizeof text, "%s%.40s", mr_row_on_like_data(row) ? "D4RL-like: " : "", score);
    add_cell(out, text);
}

static void add_group(mr_strbuf *out, const mr_group *g, const columns *with)
{
    char text[64];
    const mr_row *row = g->first;
    add_cell(out, mr_row_text(row, "row"));
    add_cell(out, mr_row_text(row, "column"));
    if (with->paper) add_cell(out, mr_report_paper(text, mr_row_number(row, "paper"), mr_row_number(row, "paper_std")));
    if (with->data) add_data(out, row);
    if (g->failed == g->seeds) add_cell(out, "diverged");
    else add_cell(out, mr_report_number(text, g->mean, g->std, 4));
    add_cell(out, mr_report_number(text, g->last, NAN, 4));
    add_cell(out, mr_report_number(text, mr_row_number(row, "constant"), NAN, 4));
    mr_strbuf_format(out, "| %d ", g->seeds);
    if (g->failed && g->failed < g->seeds) mr_strbuf_format(out, "(%d diverged) ", g->failed);
    if (mr_row_outdated(row)) mr_strbuf_add(out, "(outdated) ");
    add_cell(out, mr_report_number(text, g->steps, NAN, 9));
    add_cell(out, mr_report_number(text, g->best_step, NAN, 6));
    if (with->target) add_cell(out, mr_report_number(text, g->target_step, NAN, 6));
    add_cell(out, mr_report_time(text, g->seconds));
    add_cell(out, mr_row_text(row, "device"));
    add_cell(out, mr_row_text(row, "dtype"));
    mr_strbuf_format(out, "| `%s` |\n", mr_row_text(row, "settings"));
}

static void add_head(mr_strbuf *out, mr_profile profile, const columns *with)
{
    mr_strbuf_format(out, "## %s\n\n", profile == MR_PROFILES ? "outdated" : mr_profile_names[profile]);
    if (profile == MR_PROFILES)
        mr_strbuf_add(out, "Scored in another way or on another test set than now: these do not count, and wait for "
                           "their runs.\n\n");
    if (profile == MR_PROFILE_QUICK)
        mr_strbuf_add(out, "Small versions, only to see that everything works: " MR_NOT_COMPARABLE ".\n\n");
    if (profile == MR_PROFILE_SEARCH)
        mr_strbuf_add(out, "Settings that a model could choose from, scored on validation.\n\n");
    mr_strbuf_format(out,
                     "| row | column | %s%sours | last | constant | seeds | steps | best step | %stime | device | "
                     "dtype | settings |\n",
                     with->paper ? "paper | " : "", with->data ? "data | " : "",
                     with->target ? "steps to target | " : "");
    mr_strbuf_format(out, "|---|---|%s%s---|---|---|---|---|---|%s---|---|---|---|\n", with->paper ? "---|" : "",
                     with->data ? "---|" : "", with->target ? "---|" : "");
}

/* The groups of one profile; MR_PROFILES: those that are outdated. */
static void add_table(mr_strbuf *out, const mr_group *groups, size_t n, mr_profile profile)
{
    columns with = {.paper = profile == MR_PROFILE_OURS || profile == MR_PROFILE_PAPER};
    int any = 0, outdated = profile == MR_PROFILES;
    for (size_t i = 0; i < n; i++) {
        with.target |= isfinite(mr_row_number(groups[i].first, "target_loss"));
        with.data |= isfinite(mr_row_number(groups[i].first, "data_score"));
    }
    for (size_t i = 0; i < n; i++) {
        if (mr_row_outdated(groups[i].first) != outdated) continue;
        if (!outdated && strcmp(mr_row_text(groups[i].first, "profile"), mr_profile_names[profile])) continue;
        if (!any++) add_head(out, profile, &with);
        add_group(out, &groups[i], &with);
    }
    if (any) mr_strbuf_add(out, "\n");
}

static void add_charts(mr_strbuf *out, const char *names)
{
    for (size_t n; *names; names += n + 1) {
        n = strcspn(names, "\n");
        mr_strbuf_format(out, "![%.*s](%.*s)\n", (int)n - 4, names, (int)n, names); /* without .svg */
    }
}

static int write_markdown(const mr_experiment *e, const mr_group *groups, size_t n, const mr_strbuf *charts,
                          const char *dir, mr_error *err)
{
    mr_strbuf out = {0};
    char file[128];
    snprintf(file, sizeof file, "%s.md", e->name);
    char *path = mr_path_join(dir, file);
    mr_strbuf_format(
        &out,
        "# %s\n\n%s.\n\n" MR_MADE_BY_REPRODUCE "%s%s`. A time is that of one run with its evaluations; runs "
        "at the same time share the device. `last` is the score of the last checkpoint, `constant` that of "
        "always giving the most frequent answer; outdated rows were scored in another way or on another "
        "test set, and do not count.\n\n",
        e->name, e->summary, e->name, e->own[0] ? ".ini" : "");
    const char *note = mr_ini_find(&e->lines, "experiment", "note");
    if (note) mr_strbuf_format(&out, "%s.\n\n", note);
    for (int profile = 0; profile <= MR_PROFILES; profile++) add_table(&out, groups, n, (mr_profile)profile);
    if (charts->data) add_charts(&out, charts->data);
    int status = !path || out.failed ? mr_no_memory(err, "the table") : mr_file_replace(path, out.data, out.size, err);
    mr_strbuf_free(&out);
    mr_free(path);
    return status;
}

int mr_report_write(const void *experiment, const mr_rows *rows, const char *dir, mr_error *err)
{
    const mr_experiment *e = experiment;
    mr_group *groups;
    mr_strbuf charts = {0};
    size_t n;
    int status = mr_report_groups(e, rows, &groups, &n, err);
    if (status) return status;
    status = mr_experiment_charts_write(e, rows, groups, n, dir, &charts, err);
    if (!status) status = write_markdown(e, groups, n, &charts, dir, err);
    mr_strbuf_free(&charts);
    mr_free(groups);
    return status;
}
