/* What `minrnn reproduce` prints on stdout: a line for each cell with the paper's number beside ours, or JSON. */
#include "core/file.h"
#include "core/mem.h"
#include "commands/reproduce_parts.h"
#include "paper/report.h"

#include <math.h>
#include <string.h>

/* A row as an item of a JSON list. */
static int print_item(const mr_row *row, int *first, mr_error *err)
{
    mr_strbuf out = {0};
    mr_row_print_json(&out, row, 0);
    int status = out.failed || row->failed ? mr_no_memory(err, "the results") : 0;
    if (!status) printf("%s  %s", *first ? "" : ",\n", out.data);
    *first = 0;
    mr_strbuf_free(&out);
    return status;
}

static void copy_fields(mr_row *to, const mr_row *from, const char *const *keys)
{
    for (; *keys; keys++)
        if (mr_row_text(from, *keys)[0]) mr_row_set_text(to, *keys, mr_row_text(from, *keys));
        else mr_row_set(to, *keys, mr_row_number(from, *keys));
}

/* The seeds of a run together: what they share, and their means. */
static int print_group_json(const mr_group *g, const char *name, int *first, mr_error *err)
{
    static const char *const shared[] = {"row",   "column", "profile", "comparable", "settings",  "kind",
                                         "dtype", "device", "data",    "paper",      "paper_std", NULL};
    mr_row row = {0};
    mr_row_set_text(&row, "experiment", name);
    copy_fields(&row, g->first, shared);
    if (!mr_row_comparable(g->first)) mr_row_set_text(&row, "comparable", "no");
    if (!mr_row_text(g->first, "data")[0]) mr_row_set_text(&row, "data", "unknown"); /* a row of an older version */
    mr_row_set(&row, "mean", g->mean);
    mr_row_set(&row, "std", g->std);
    mr_row_set(&row, "seeds", g->seeds);
    mr_row_set(&row, "diverged", g->failed);
    mr_row_set(&row, "steps", g->steps);
    mr_row_set(&row, "best_step", g->best_step);
    mr_row_set(&row, "target_step", g->target_step);
    mr_row_set(&row, "seconds", g->seconds);
    int status = print_item(&row, first, err);
    mr_row_free(&row);
    return status;
}

/* Does the experiment have other settings for this cell by now? */
static int has_other_settings(const mr_group *g, const mr_planned *runs, size_t count)
{
    int same = 1;
    if (!strcmp(mr_row_text(g->first, "profile"), mr_profile_names[MR_PROFILE_SEARCH])) return 0;
    for (size_t i = 0; i < count; i++) {
        const mr_planned *run = &runs[i];
        if (strcmp(mr_row_text(g->first, "profile"), mr_profile_names[run->profile]) ||
            strcmp(mr_row_text(g->first, "row"), run->row) || strcmp(mr_row_text(g->first, "column"), run->column))
            continue;
        same = !strcmp(mr_row_text(g->first, "settings"), run->settings);
    }
    return !same;
}

static void print_group(const mr_group *g, int other_settings)
{
    char paper[64], ours[64], time[32], steps[64], label[128];
    const mr_row *row = g->first;
    const int comparable = mr_row_comparable(row), searched = !strcmp(mr_row_text(row, "profile"), "search");
    snprintf(label, sizeof label, "%s/%s", mr_row_text(row, "row"), mr_row_text(row, "column"));
    mr_report_paper(paper, mr_row_number(row, "paper"), mr_row_number(row, "paper_std"));
    if (g->failed == g->seeds) snprintf(ours, sizeof ours, "diverged");
    else mr_report_number(ours, g->mean, g->std, 4);
    mr_report_number(steps, g->steps, NAN, 9);
    printf("  %-36s ", label);
    if (comparable) printf("paper %-12s ", paper[0] ? paper : "-");
    printf("ours %-16s %s%d seed%s, %s steps, %s, %s %s, %s%s%s%s%s\n", ours,
           mr_row_on_like_data(row) ? "D4RL-like data, " : "", g->seeds, g->seeds > 1 ? "s" : "", steps,
           mr_report_time(time, g->seconds), mr_row_text(row, "device"), mr_row_text(row, "dtype"),
           !strcmp(mr_row_text(row, "profile"), "quick") ? "quick: " MR_NOT_COMPARABLE : mr_row_text(row, "profile"),
           searched ? " on validation: " : "", searched ? mr_row_text(row, "setting") : "",
           other_settings ? ", other settings" : "", mr_row_outdated(row) ? ", outdated" : "");
}

static int print_table(const mr_reproduce_settings *set, const mr_experiment *e, const mr_group *groups, size_t n,
                       mr_error *err)
{
    const mr_plan_options plan = {
        .profile = mr_reproduce_profile(set), .seeds = 1, .first_seed = 1, .steps = set->steps};
    mr_planned *runs = NULL;
    size_t count = 0;
    int status = mr_experiment_plan(e, &plan, &runs, &count, err);
    if (!status && n) printf("%s: %s\n", e->name, e->summary);
    for (size_t i = 0; !status && i < n; i++) print_group(&groups[i], has_other_settings(&groups[i], runs, count));
    const char *note = mr_ini_find(&e->lines, "experiment", "note");
    if (!status && n && note) printf("  note: %s.\n", note);
    if (!status && n) printf("  %s/%s.md\n", set->out, e->name);
    mr_free(runs);
    return status;
}

static int print_results(const mr_reproduce_settings *set, const char *name, int *first, mr_error *err)
{
    mr_experiment e;
    mr_rows rows;
    mr_group *groups = NULL;
    size_t n = 0;
    int status = mr_experiment_load(&e, name, err);
    if (status) return status;
    status = mr_reproduce_rows(set->out, e.name, &rows, err);
    if (!status) {
        status = mr_report_groups(&e, &rows, &groups, &n, err);
        if (!status && !set->common.json) status = print_table(set, &e, groups, n, err);
        for (size_t i = 0; !status && set->common.json && i < n; i++)
            status = print_group_json(&groups[i], e.name, first, err);
        mr_free(groups);
        mr_rows_free(&rows);
    }
    mr_experiment_free(&e);
    return status;
}

/* Measurements: the page that was written, or the rows. */
static int print_measured(const mr_reproduce_settings *set, const char *name, int *first, mr_error *err)
{
    mr_rows rows;
    char *page = NULL, path[MR_TEXT_MAX + 64];
    size_t size;
    int status = mr_reproduce_rows(set->out, name, &rows, err);
    if (status) return status;
    for (size_t i = 0; !status && set->common.json && i < rows.count; i++)
        status = print_item(&rows.list[i], first, err);
    snprintf(path, sizeof path, "%s/%s.md", set->out, name);
    if (!status && !set->common.json && rows.count) status = mr_file_read(path, 1 << 24, &page, &size, err);
    if (page) printf("%s", page);
    mr_free(page);
    mr_rows_free(&rows);
    return status;
}

int mr_reproduce_print(const mr_reproduce_settings *set, const char *const *names, size_t n, mr_error *err)
{
    int status = 0, first = 1;
    if (set->common.json) printf("[\n");
    for (size_t i = 0; !status && i < n; i++)
        if (names[i])
            status = (mr_measured_find(names[i]) ? print_measured : print_results)(set, names[i], &first, err);
    if (set->common.json) printf("\n]\n");
    return status;
}
