/* The check of an experiment's file: a section or key that would be silently ignored is an error. */
#include "paper/experiment.h"
#include "paper/experiment_charts.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static int among(const char *word, const char *const *list)
{
    for (; *list; list++)
        if (!strcmp(word, *list)) return 1;
    return 0;
}

int mr_experiment_own_key(const char *key)
{
    static const char *const own[] = {"recipe", "paper",  "test", "target-loss", "name", "columns",
                                      "search", "budget", "use",  "own-budget",  NULL};
    return among(key, own);
}

static int has_label(const mr_experiment *e, const char *prefix, const char *label, size_t n)
{
    int from = 0;
    for (const char *found; (found = mr_experiment_label(e, prefix, &from));)
        if (strlen(found) == n && !strncmp(found, label, n)) return 1;
    return 0;
}

static int has_column(const mr_experiment *e, const char *label, size_t n)
{
    int from = 0;
    const char *alone = mr_experiment_column(e);
    if (mr_experiment_label(e, MR_COLUMN_PREFIX, &from)) return has_label(e, MR_COLUMN_PREFIX, label, n);
    return strlen(alone) == n && !strncmp(alone, label, n);
}

/* ROW or ROW/COLUMN of the table? A row may have a / in its name. */
static int is_part(const mr_experiment *e, const char *label)
{
    if (has_label(e, MR_ROW_PREFIX, label, strlen(label))) return 1;
    if (*label == '/') return has_column(e, label + 1, strlen(label + 1));
    for (const char *slash = label; (slash = strchr(slash, '/')); slash++)
        if (has_label(e, MR_ROW_PREFIX, label, (size_t)(slash - label)) && has_column(e, slash + 1, strlen(slash + 1)))
            return 1;
    return 0;
}

/* The text after "ours " or "as-paper ", or NULL. */
static const char *part_of_profile(const char *section)
{
    for (int i = 0; i < MR_PROFILE_QUICK; i++) {
        const size_t n = strlen(mr_profile_names[i]);
        if (!strncmp(section, mr_profile_names[i], n) && section[n] == ' ') return section + n + 1;
    }
    return NULL;
}

int mr_experiment_has_profile(const mr_experiment *e, mr_profile profile)
{
    int from = 0;
    if (profile == MR_PROFILE_SEARCH) return mr_experiment_label(e, MR_TRY_PREFIX, &from) != NULL;
    const size_t n = strlen(mr_profile_names[profile]);
    for (int i = 0; i < e->lines.headers; i++)
        if (!strncmp(e->lines.sections[i], mr_profile_names[profile], n) && strchr(" ", e->lines.sections[i][n]))
            return 1;
    return 0;
}

static int is_table(const char *section)
{
    return !strncmp(section, MR_ROW_PREFIX, strlen(MR_ROW_PREFIX)) ||
           !strncmp(section, MR_COLUMN_PREFIX, strlen(MR_COLUMN_PREFIX));
}

static int is_try(const char *section) { return !strncmp(section, MR_TRY_PREFIX, strlen(MR_TRY_PREFIX)); }

static int check_name(const char *source, const char *section, mr_error *err)
{
    const char *name = section + strcspn(section, " ") + 1;
    int plain = *name && *name != ' ' && name[strlen(name) - 1] != ' ';
    for (const char *c = name; *c; c++) plain &= !iscntrl((unsigned char)*c);
    return plain ? 0 : mr_fail(err, MR_EINVAL, "%s: [%s]: needs a name, without blanks around it", source, section);
}

/* "try ROW: NAME" or "try ROW/COLUMN: NAME" of a row and column of the table. */
static int check_try(const mr_experiment *e, const char *source, const char *section, mr_error *err)
{
    char part[128];
    const char *label = section + strlen(MR_TRY_PREFIX), *colon = strstr(label, ": ");
    snprintf(part, sizeof part, "%.*s", colon ? (int)(colon - label) : 0, label);
    if (!colon || *label == '/' || !colon[2] || strchr(colon + 2, ' ') ||
        strlen(colon + 2) >= sizeof((mr_planned *)0)->setting)
        return mr_fail(err, MR_EINVAL, "%s: [%s]: must be [try ROW: NAME] or [try ROW/COLUMN: NAME], NAME one word",
                       source, section);
    return is_part(e, part) ? 0 : mr_fail(err, MR_EINVAL, "%s: [%s]: there is no such row or cell", source, section);
}

static int check_section(const mr_experiment *e, const char *source, int at, mr_error *err)
{
    static const char *const plain[] = {"experiment", "ours", "as-paper", "quick", NULL};
    const char *section = e->lines.sections[at], *part = part_of_profile(section);
    for (int i = 0; i < at; i++)
        if (!strcmp(e->lines.sections[i], section))
            return mr_fail(err, MR_EINVAL, "%s: there are two sections [%s]", source, section);
    if (among(section, plain)) return 0;
    if (is_table(section)) return check_name(source, section, err);
    if (is_try(section)) return check_try(e, source, section, err);
    if (!part)
        return mr_fail(err, MR_EINVAL,
                       "%s: unknown section [%s]; there are experiment, ours, as-paper, quick, row NAME, column NAME, "
                       "ours ROW, ours ROW/COLUMN, ours /COLUMN and try ROW: NAME",
                       source, section);
    return is_part(e, part) ? 0 : mr_fail(err, MR_EINVAL, "%s: [%s]: there is no such row or cell", source, section);
}

/* Columns whose charts would be the same file. */
static int check_chart_files(const mr_experiment *e, const char *source, mr_error *err)
{
    int from = 0;
    for (const char *a; (a = mr_experiment_label(e, MR_COLUMN_PREFIX, &from));) {
        int other = from;
        for (const char *b; (b = mr_experiment_label(e, MR_COLUMN_PREFIX, &other));) {
            size_t i = 0;
            while (a[i] && mr_chart_file_letter(a[i]) == mr_chart_file_letter(b[i])) i++;
            if (!a[i] && !b[i])
                return mr_fail(err, MR_EINVAL, "%s: columns \"%s\" and \"%s\" would have the same chart; rename one",
                               source, a, b);
        }
    }
    return 0;
}

static int check_columns(const mr_experiment *e, const char *source, const mr_ini_line *l, mr_error *err)
{
    const char *list = l->value;
    size_t n;
    for (const char *word; (word = mr_list_word(&list, &n));)
        if (!has_column(e, word, n))
            return mr_fail(err, MR_EINVAL, "%s: [%s] columns: there is no column \"%.*s\"", source, l->section, (int)n,
                           word);
    return 0;
}

/* Which of our own keys a section may have; keys of recipes are checked with the recipe. */
static int check_key(const mr_experiment *e, const char *source, const mr_ini_line *l, mr_error *err)
{
    static const char *const heads[] = {"summary",     "score",  "scale",  "recipe", "paper", "test",
                                        "target-loss", "search", "budget", "note",   NULL};
    static const char *const of_part[] = {"use", "own-budget", NULL};
    const int in_table = is_table(l->section), of_row = !strncmp(l->section, MR_ROW_PREFIX, strlen(MR_ROW_PREFIX));
    int wrong;
    if (!strcmp(l->section, "experiment")) wrong = !among(l->key, heads);
    else if (!strcmp(l->key, "name")) wrong = !in_table;
    else if (!strcmp(l->key, "columns")) wrong = !of_row;
    else if (among(l->key, of_part)) wrong = !part_of_profile(l->section);
    else if (!strcmp(l->key, "budget")) wrong = 1;
    else wrong = mr_experiment_own_key(l->key) && (part_of_profile(l->section) || is_try(l->section));
    if (wrong) return mr_fail(err, MR_EINVAL, "%s: [%s] %s: not a key of this section", source, l->section, l->key);
    if (!strcmp(l->key, "own-budget") && !l->value[0])
        return mr_fail(err, MR_EINVAL, "%s: [%s] own-budget: say why", source, l->section);
    if (!strcmp(l->key, "seed"))
        return mr_fail(err, MR_EINVAL, "%s: [%s] seed: seeds are given by --seed and --seeds", source, l->section);
    if (!strcmp(l->key, "data") && !strcmp(l->value, "-"))
        return mr_fail(err, MR_EINVAL,
                       "%s: [%s] data = -: standard input can be read once, and every run reads its data; name a file",
                       source, l->section);
    return of_row && !strcmp(l->key, "columns") ? check_columns(e, source, l, err) : 0;
}

/* Sections of single rows may not set what is the same for all, unless the row says why. Keys of the table itself hold
 * for every profile, and are no exception. */
static int check_budget(const mr_experiment *e, const char *source, const mr_ini_line *l, mr_error *err)
{
    const char *list = mr_ini_find(&e->lines, "experiment", "budget"), *part = part_of_profile(l->section);
    const int of_row = !strncmp(l->section, MR_ROW_PREFIX, strlen(MR_ROW_PREFIX));
    const int of_part = part && strncmp(l->section, "as-paper ", 9) && *part != '/';
    size_t n;
    if (!of_row && !of_part && !is_try(l->section)) return 0;
    if (of_part && mr_ini_find(&e->lines, l->section, "own-budget")) return 0;
    for (const char *word; (word = mr_list_word(&list, &n));)
        if (strlen(l->key) == n && !strncmp(l->key, word, n))
            return mr_fail(err, MR_EINVAL,
                           "%s: [%s] %s: the budget is the same for all rows; set it in [ours] or [ours /COLUMN], or "
                           "say why with `own-budget = WHY` in an [ours ROW]",
                           source, l->section, l->key);
    return 0;
}

/* Is it a key of some recipe? */
static int is_recipe_key(const char *key, size_t n)
{
    char word[64];
    snprintf(word, sizeof word, "%.*s", n < 63 ? (int)n : 63, key);
    int found = mr_option_find(mr_model_table(), word) || mr_option_find(mr_train_table(), word);
    for (int i = 0; mr_task_types()[i]; i++) found |= mr_option_find(mr_task_types()[i]->options, word) != NULL;
    return found;
}

/* A word that is no key would leave the budget open. */
static int check_budget_keys(const mr_experiment *e, const char *source, mr_error *err)
{
    const char *list = mr_ini_find(&e->lines, "experiment", "budget");
    size_t n;
    for (const char *word; (word = mr_list_word(&list, &n));)
        if (!is_recipe_key(word, n))
            return mr_fail(err, MR_EINVAL,
                           "%s: budget: \"%.*s\" is not a key of a recipe; give keys with commas between", source,
                           (int)n, word);
    return 0;
}

static int check_tried(const mr_experiment *e, const char *source, const char *row, const char *column, mr_error *err)
{
    int from = 0, count = 0;
    const char *names[2 * MR_MOST_TRIED], *name;
    for (const char *label; (label = mr_experiment_label(e, MR_TRY_PREFIX, &from));) {
        if (!(name = mr_experiment_tried(label, row, column))) continue;
        for (int i = 0; i < count && i < 2 * MR_MOST_TRIED; i++)
            if (!strcmp(names[i], name))
                return mr_fail(err, MR_EINVAL, "%s: %s/%s has two settings to try that are called %s", source, row,
                               column, name);
        if (count < 2 * MR_MOST_TRIED) names[count] = name;
        count++;
    }
    if (count <= MR_MOST_TRIED) return 0;
    return mr_fail(err, MR_EINVAL, "%s: %s/%s has %d settings to try; at most %d are allowed, for every model", source,
                   row, column, count, MR_MOST_TRIED);
}

static int check_all_tried(const mr_experiment *e, const char *source, mr_error *err)
{
    int at_row = 0, status = 0;
    for (const char *row; !status && (row = mr_experiment_label(e, MR_ROW_PREFIX, &at_row));) {
        int at_column = 0;
        const char *column = mr_experiment_label(e, MR_COLUMN_PREFIX, &at_column);
        if (!column) status = check_tried(e, source, row, mr_experiment_column(e), err);
        for (; !status && column; column = mr_experiment_label(e, MR_COLUMN_PREFIX, &at_column))
            status = check_tried(e, source, row, column, err);
    }
    return status;
}

int mr_experiment_check(const mr_experiment *e, const char *source, mr_error *err)
{
    int status = 0, from = 0;
    for (int i = 0; !status && i < e->lines.headers; i++) status = check_section(e, source, i, err);
    for (int i = 0; !status && i < e->lines.count; i++) status = check_key(e, source, &e->lines.list[i], err);
    for (int i = 0; !status && i < e->lines.count; i++) status = check_budget(e, source, &e->lines.list[i], err);
    if (!status) status = check_budget_keys(e, source, err);
    if (!status) status = check_all_tried(e, source, err);
    if (!status && !mr_experiment_label(e, MR_ROW_PREFIX, &from))
        status = mr_fail(err, MR_EINVAL, "%s: has no [row NAME]: rows are what is run", source);
    return status ? status : check_chart_files(e, source, err);
}
