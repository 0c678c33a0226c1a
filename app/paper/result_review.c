/* Rows of earlier runs against the experiment as it is now. */
#include "paper/result_review.h"

#include "core/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

int mr_row_is_current(mr_data_cache *cache, const mr_planned *run, const mr_recipe *recipe, const mr_row *wanted,
                      const mr_row *row)
{
    const char *data = mr_row_text(row, "data"), *set = mr_row_text(row, "test_set");
    if (!mr_row_same_measure(row, wanted)) return 0;
    if (mr_row_text(row, "failed")[0]) return 1; /* it has no score */
    if (!set[0]) return 0;
    const mr_data_now now = mr_data_identity_now(cache, run, recipe);
    return (!now.test_set[0] || !strcmp(now.test_set, set)) && (!now.data[0] || !data[0] || !strcmp(now.data, data));
}

void mr_row_set_measure(const mr_experiment *e, const mr_planned *run, mr_row *row)
{
    mr_row_set_text(row, "measure", mr_measure_names[e->measure]);
    mr_row_set(row, "scale", e->scale);
    mr_row_set(row, "target_loss", run->target_loss);
    if (run->test[0]) mr_row_set_text(row, "test", run->test);
}

/* ---- the run of a row ---- */

/* The first run of the row's cell with this profile; 0: the experiment has no such cell. */
static int plan_cell(const mr_experiment *e, const mr_row *row, mr_profile profile, mr_planned *run, mr_error *err)
{
    char only[128];
    mr_planned *runs = NULL;
    size_t count = 0;
    snprintf(only, sizeof only, "=%s/%s", mr_row_text(row, "row"), mr_row_text(row, "column"));
    const mr_plan_options options = {.profile = profile, .seeds = 1, .first_seed = 1, .only = only};
    const int found = !mr_experiment_plan(e, &options, &runs, &count, err) && count > 0;
    if (found) *run = runs[0];
    mr_free(runs);
    return found;
}

/* ---- what differs from the paper ---- */

/* Keys that change no model, or that every row has of its own. */
static int is_beside(const char *key)
{
    static const char *const keys[] = {"seed",    "eval-every", "eval-tokens",  "save-every", "log",
                                       "dtype",   "tf32",       "max-seconds",  "patience",   "split",
                                       "unknown", "recompute",  "eval-batches", NULL};
    for (int i = 0; keys[i]; i++)
        if (!strcmp(keys[i], key)) return 1;
    return 0;
}

static void compare(const mr_recipe *ours, const mr_recipe *papers, mr_strbuf *out)
{
    char a[MR_TEXT_MAX], b[MR_TEXT_MAX];
    for (int section = 0; section < MR_SECTIONS; section++)
        for (const mr_option *o = mr_recipe_table(ours, section); o->key; o++) {
            if ((o->flags & (MR_OPT_DERIVED | MR_OPT_PATH)) || is_beside(o->key)) continue;
            mr_option_print(o, mr_recipe_settings(ours, section), a);
            mr_option_print(o, mr_recipe_settings(papers, section), b);
            if (strcmp(a, b)) mr_strbuf_format(out, "%s%s=%s (%s)", out->size ? ", " : "", o->key, a, b);
        }
}

static int set_differs(const mr_experiment *e, const mr_recipe *ours, mr_row *row, mr_error *err)
{
    mr_planned papers;
    mr_recipe recipe;
    mr_strbuf text = {0};
    if (!mr_experiment_has_profile(e, MR_PROFILE_PAPER) || !plan_cell(e, row, MR_PROFILE_PAPER, &papers, err)) return 0;
    int status = mr_planned_recipe(&papers, &recipe, err);
    if (status) return status;
    if (recipe.task->type == ours->task->type) compare(ours, &recipe, &text);
    if (text.failed) status = mr_no_memory(err, "the results");
    else mr_row_set_text(row, "differs", text.data ? text.data : "");
    mr_strbuf_free(&text);
    mr_recipe_free(&recipe);
    return status;
}

/* ---- all of it ---- */

static int review(const mr_experiment *e, mr_row *row, mr_data_cache *cache, mr_error *err)
{
    const mr_profile found = mr_profile_find(mr_row_text(row, "profile"));
    const mr_profile profile = found < MR_PROFILES ? found : MR_PROFILE_OURS;
    mr_planned run;
    mr_recipe recipe;
    mr_row wanted = {0};
    if (profile == MR_PROFILE_QUICK || !plan_cell(e, row, profile, &run, err)) return 0;
    snprintf(run.settings, sizeof run.settings, "%s", mr_row_text(row, "settings"));
    if (mr_planned_recipe(&run, &recipe, err)) return mr_row_set(row, "outdated", 1), 0; /* keys of another version */
    mr_row_set_measure(e, &run, &wanted);
    if (!mr_row_outdated(row) && !mr_row_is_current(cache, &run, &recipe, &wanted, row)) mr_row_set(row, "outdated", 1);
    mr_row_set(row, "tried", run.tried);
    int status = set_differs(e, &recipe, row, err);
    mr_row_free(&wanted);
    mr_recipe_free(&recipe);
    return status;
}

int mr_rows_review(const mr_experiment *e, mr_rows *rows, mr_error *err)
{
    mr_data_cache cache = {0};
    int status = 0;
    for (size_t i = 0; !status && i < rows->count; i++)
        if (!strcmp(mr_row_text(&rows->list[i], "experiment"), e->name))
            status = review(e, &rows->list[i], &cache, err);
    return status;
}
