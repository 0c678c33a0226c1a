/* Experiments read from their files, and the runs that they consist of. */
#include "paper/experiment.h"

#include "core/file.h"
#include "core/mem.h"
#include "train/recipes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const mr_measure_names[MR_MEASURES] = {"accuracy", "loss", "return"};
const char *const mr_profile_names[MR_PROFILES] = {"ours", "as-paper", "quick", "search"};

mr_profile mr_profile_find(const char *name)
{
    int profile = 0;
    while (profile < MR_PROFILES && strcmp(mr_profile_names[profile], name)) profile++;
    return (mr_profile)profile;
}

static const char row_prefix[] = MR_ROW_PREFIX, column_prefix[] = MR_COLUMN_PREFIX;

/* ---- the file ---- */

static int head(mr_experiment *e, mr_error *err)
{
    const char *score = mr_ini_find(&e->lines, "experiment", "score"),
               *scale = mr_ini_find(&e->lines, "experiment", "scale");
    e->summary = mr_ini_find(&e->lines, "experiment", "summary");
    e->scale = 1;
    if (!e->summary || !score)
        return mr_fail(err, MR_EINVAL, "%.200s: [experiment] needs a summary and a score", e->source);
    int by = 0;
    while (by < MR_MEASURES && strcmp(mr_measure_names[by], score)) by++;
    if (by == MR_MEASURES)
        return mr_fail(err, MR_EINVAL, "%.200s: score = %.80s: must be loss, accuracy or return", e->source, score);
    e->measure = (mr_measure)by;
    if (scale && !mr_real_read(scale, &e->scale))
        return mr_fail(err, MR_EINVAL, "%.200s: scale = %.80s: must be a number", e->source, scale);
    return 0;
}

static int load_text(mr_experiment *e, const char *source, const char *text, mr_error *err)
{
    e->source = source;
    int status = mr_ini_read(&e->lines, source, text, err);
    if (!status) status = mr_ini_check_once(&e->lines, source, err);
    if (!status) status = head(e, err);
    if (!status) status = mr_experiment_check(e, source, err);
    if (status) mr_experiment_free(e);
    return status;
}

int mr_experiment_built_in(const char *name)
{
    int i = 0;
    while (mr_experiment_names[i] && strcmp(mr_experiment_names[i], name)) i++;
    return mr_experiment_names[i] ? i : -1;
}

/* Results are named after the file, so its name must be plain, and not that of another experiment. */
static int load_file(mr_experiment *e, const char *path, mr_error *err)
{
    const char *name = mr_path_name(path);
    const size_t n = strlen(name) - 4;
    char *text;
    size_t size;
    if (n < 1 || n >= sizeof e->own ||
        strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != n)
        return mr_fail(err, MR_EINVAL, "%.200s: an experiment is named by letters, digits, - and _, at most %d of them",
                       path, (int)sizeof e->own - 1);
    memcpy(e->own, name, n);
    e->name = e->own;
    if (mr_experiment_built_in(e->own) >= 0)
        return mr_fail(err, MR_EINVAL, "%.200s: there is an experiment %s already; give the file another name", path,
                       e->own);
    int status = mr_file_read(path, 1 << 20, &text, &size, err);
    if (status) return status;
    status = load_text(e, path, text, err);
    mr_free(text);
    return status;
}

int mr_experiment_load(mr_experiment *e, const char *name, mr_error *err)
{
    memset(e, 0, sizeof *e);
    if (mr_ini_is_name(name)) return load_file(e, name, err);
    const int at = mr_experiment_built_in(name);
    if (at < 0) return mr_fail(err, MR_EINVAL, "no experiment %.100s; `minrnn reproduce --list` lists them", name);
    e->name = mr_experiment_names[at];
    return load_text(e, name, mr_experiment_texts[at], err);
}

void mr_experiment_free(mr_experiment *e) { mr_ini_free(&e->lines); }

const char *mr_experiment_label(const mr_experiment *e, const char *prefix, int *from)
{
    const size_t n = strlen(prefix);
    while (*from < e->lines.headers) {
        const char *section = e->lines.sections[(*from)++];
        if (!strncmp(section, prefix, n)) return section + n;
    }
    return NULL;
}

/* ---- one run ---- */

typedef struct cell {
    const mr_experiment *e;
    const mr_plan_options *options;
    char row[64], column[64]; /* sections */
    mr_planned run;
    int too_long;
    const char *blank; /* a key whose value has one */
} cell;

static void add_setting(cell *c, const char *key, const char *value)
{
    if (strpbrk(value, " \t")) c->blank = key;
    if (!mr_settings_add(c->run.settings, sizeof c->run.settings, key, value)) c->too_long = 1;
}

static void add_section(cell *c, const char *section)
{
    const mr_ini *lines = &c->e->lines;
    for (int i = 0; i < lines->count; i++)
        if (!strcmp(lines->list[i].section, section) && !mr_experiment_own_key(lines->list[i].key))
            add_setting(c, lines->list[i].key, lines->list[i].value);
}

/* The section that holds for all runs. */
static const char *profile_section(const cell *c)
{
    return c->options->profile == MR_PROFILE_PAPER ? "as-paper" : "ours";
}

/* The section of the profile for this column, for this row, or for this cell. */
enum { OF_COLUMN, OF_ROW, OF_CELL };
static const char *part_section(const cell *c, int part, char out[160])
{
    snprintf(out, 160, "%s %s%s%s", profile_section(c), part == OF_COLUMN ? "" : c->run.row, part == OF_ROW ? "" : "/",
             part == OF_ROW ? "" : c->run.column);
    return out;
}

/* A key that the profile has for this cell, or for its row. */
static const char *part_value(const cell *c, const char *key)
{
    char section[160];
    const char *value = mr_ini_find(&c->e->lines, part_section(c, OF_CELL, section), key);
    return value ? value : mr_ini_find(&c->e->lines, part_section(c, OF_ROW, section), key);
}

const char *mr_experiment_tried(const char *label, const char *row, const char *column)
{
    const size_t n = strlen(row), m = strlen(column);
    if (strncmp(label, row, n)) return NULL;
    label += n;
    if (*label == '/' && !strncmp(label + 1, column, m)) label += 1 + m;
    return !strncmp(label, ": ", 2) ? label + 2 : NULL;
}

/* Finds the section of one of the settings tried, and counts them. */
static int find_tried(cell *c, const char *wanted, char section[160])
{
    int from = 0, count = 0;
    section[0] = 0;
    for (const char *label; (label = mr_experiment_label(c->e, MR_TRY_PREFIX, &from));) {
        const char *name = mr_experiment_tried(label, c->run.row, c->run.column);
        if (!name) continue;
        count++;
        if (wanted && !strcmp(name, wanted)) snprintf(section, 160, MR_TRY_PREFIX "%s", label);
    }
    return count;
}

/* What is used of the settings tried, or with --search the one that is tried now. */
static int add_tried(cell *c, mr_error *err)
{
    const int searching = c->options->profile == MR_PROFILE_SEARCH;
    const char *wanted = searching ? c->run.setting : part_value(c, "use");
    char section[160];
    const int count = c->options->profile == MR_PROFILE_PAPER ? 0 : find_tried(c, wanted, section);
    c->run.tried = count ? count : 1;
    if (!count) return 0;
    if (!wanted) return mr_fail(err, MR_EINVAL, "has settings to try, and no `use = NAME` says which is used");
    if (!section[0]) return mr_fail(err, MR_EINVAL, "use = %.40s: there is no such setting to try", wanted);
    if (!searching) snprintf(c->run.setting, sizeof c->run.setting, "%s", wanted);
    else add_setting(c, "search", c->run.setting);
    add_section(c, section);
    return 0;
}

/* The value of one of our own keys in the first section that has it: quick (with --quick), the row, the column, the
 * profile, the experiment. */
static const char *own_value(const cell *c, const char *key)
{
    const char *const sections[] = {"quick", c->row, c->column, profile_section(c), "experiment"};
    const char *value = NULL;
    for (size_t i = c->options->profile != MR_PROFILE_QUICK; !value && i < sizeof sections / sizeof *sections; i++)
        value = mr_ini_find(&c->e->lines, sections[i], key);
    return value;
}

/* Copies one part of "table | $row | $column", trimmed, with the names put in. Returns the rest of the text. */
static const char *paper_part(const cell *c, const char *from, char out[64])
{
    size_t n = strcspn(from, "|");
    while (*from == ' ') from++, n--;
    const char *rest = from[n] ? from + n + 1 : from + n;
    while (n && from[n - 1] == ' ') n--;
    snprintf(out, 64, "%.*s", (int)n, from);
    const int is_row = !strcmp(out, "$row"), is_column = !strcmp(out, "$column");
    if (is_row || is_column) {
        const char *name = mr_ini_find(&c->e->lines, is_row ? c->row : c->column, "name");
        snprintf(out, 64, "%s", name ? name : is_row ? c->run.row : c->run.column);
    }
    return rest;
}

static int find_paper(cell *c, mr_error *err)
{
    const char *at = own_value(c, "paper"), *of_column = mr_ini_find(&c->e->lines, c->column, "paper");
    char part[3][64];
    c->run.paper = (mr_paper_cell){NAN, NAN};
    if (c->options->profile == MR_PROFILE_SEARCH) return 0;
    if (!at || !strcmp(at, "-") || (of_column && !strcmp(of_column, "-"))) return 0;
    for (int i = 0; i < 3; i++) at = paper_part(c, at, part[i]);
    if (*at) return mr_fail(err, MR_EINVAL, "paper: \"%.80s\" is too much; give table | row | column", at);
    snprintf(c->run.paper_cell, sizeof c->run.paper_cell, "%s | %s | %s", part[0], part[1], part[2]);
    if (mr_paper_find(part[0], part[1], part[2], &c->run.paper)) return 0;
    return mr_fail(err, MR_EINVAL, "the paper's tables have no %s", c->run.paper_cell);
}

/* `test` of a run, or `search` of one with --search, whose keys become settings of the run itself. */
static int take_split(cell *c, mr_error *err)
{
    const int searching = c->options->profile == MR_PROFILE_SEARCH;
    const char *name = searching ? "search" : "test", *split = own_value(c, name);
    const char *value = split ? strchr(split, '=') : NULL;
    char keys[sizeof c->run.test], *rest = keys;
    c->run.test[0] = 0;
    if (!split) return 0;
    if (strstr(split, searching ? "split=test" : "split=validation"))
        return mr_fail(err, MR_EINVAL, "%s = %.80s: settings are chosen on validation and scored on the test set", name,
                       split);
    if (!value || value == split || !value[1] || strlen(split) >= sizeof keys)
        return mr_fail(err, MR_EINVAL, "%s = %.80s: must be keys and values, as in split=test", name, split);
    snprintf(keys, sizeof keys, "%s", split);
    if (!searching) memcpy(c->run.test, keys, sizeof keys);
    for (char *key; searching && (key = strtok_r(NULL, " ", &rest));) {
        const char *of_key = mr_setting_value(key);
        add_setting(c, key, of_key);
    }
    return 0;
}

static int fill(cell *c, mr_error *err)
{
    const mr_plan_options *o = c->options;
    const char *recipe = own_value(c, "recipe"), *target = own_value(c, "target-loss");
    const char *own_budget = part_value(c, "own-budget");
    char steps[24], section[160];
    c->run.settings[0] = 0;
    c->run.profile = o->profile;
    c->run.target_loss = NAN;
    snprintf(c->run.own_budget, sizeof c->run.own_budget, "%s", own_budget ? own_budget : "");
    if (!recipe) return mr_fail(err, MR_EINVAL, "no recipe is named; put `recipe = NAME` under [experiment]");
    if (target && !mr_real_read(target, &c->run.target_loss))
        return mr_fail(err, MR_EINVAL, "target-loss = %.80s: must be a number", target);
    add_setting(c, "recipe", recipe);
    add_section(c, profile_section(c));
    add_section(c, c->column);
    add_section(c, part_section(c, OF_COLUMN, section));
    add_section(c, c->row);
    add_section(c, part_section(c, OF_ROW, section));
    add_section(c, part_section(c, OF_CELL, section));
    int status = add_tried(c, err);
    if (!status) status = take_split(c, err);
    if (status) return status;
    if (o->profile == MR_PROFILE_QUICK) add_section(c, "quick");
    snprintf(steps, sizeof steps, "%lld", (long long)o->steps);
    if (o->steps) add_setting(c, "steps", steps);
    if (c->blank) return mr_fail(err, MR_EINVAL, "%s: a value may not contain a blank", c->blank);
    if (c->too_long) return mr_fail(err, MR_EINVAL, "has too many settings");
    return find_paper(c, err);
}

/* ---- which cells ---- */

const char *mr_list_word(const char **list, size_t *n)
{
    const char *at = *list;
    if (!at) return NULL;
    at += strspn(at, " ");
    const size_t all = strcspn(at, ",");
    for (*n = all; *n && at[*n - 1] == ' ';) --*n;
    *list = at[all] ? at + all + 1 : NULL;
    return at;
}

static int in_list(const char *list, const char *word)
{
    size_t n;
    for (const char *one; (one = mr_list_word(&list, &n));)
        if (n == strlen(word) && !strncmp(one, word, n)) return 1;
    return 0;
}

/* Does the text match the pattern with its wildcards * and ?? Where they differ, the last * takes one character more;
 * earlier ones need not. */
static int matches(const char *pattern, const char *text)
{
    const char *star = NULL, *taken = NULL;
    while (*text) {
        if (*pattern == '*') star = ++pattern, taken = text;
        else if (*pattern && (*pattern == '?' || *pattern == *text)) pattern++, text++;
        else if (star) pattern = star, text = ++taken;
        else return 0;
    }
    while (*pattern == '*') pattern++;
    return !*pattern;
}

int mr_plan_wants(const mr_plan_options *o, const char *row, const char *column)
{
    char label[256];
    if (!o->only || !o->only[0]) return 1;
    snprintf(label, sizeof label, "%s/%s", row, column);
    if (o->only[0] == '=') return !strcmp(o->only + 1, label);
    return strpbrk(o->only, "*?") ? matches(o->only, label) : strstr(label, o->only) != NULL;
}

static int is_wanted(const cell *c)
{
    const char *columns = mr_ini_find(&c->e->lines, c->row, "columns");
    return (!columns || in_list(columns, c->run.column)) && mr_plan_wants(c->options, c->run.row, c->run.column);
}

static int place_of(const mr_experiment *e, const char *prefix, const char *label)
{
    int at = 0, place = 0;
    const char *found;
    while ((found = mr_experiment_label(e, prefix, &at)) && strcmp(found, label)) place++;
    return place;
}

int mr_experiment_place(const mr_experiment *e, const char *row, const char *column)
{
    return 1000 * place_of(e, row_prefix, row) + place_of(e, column_prefix, column);
}

const char *mr_experiment_column(const mr_experiment *e)
{
    return e->measure == MR_BY_LOSS ? "test loss" : mr_measure_names[e->measure];
}

/* The same, with file and cell in its errors. */
static int fill_named(cell *c, mr_error *err)
{
    mr_error wrong;
    const int status = fill(c, &wrong);
    if (!status) return 0;
    return mr_fail(err, status, "%.200s: %s/%s: %.600s", c->e->source, c->run.row, c->run.column, wrong.text);
}

/* Adds the run of a cell, or with --search one for each of the settings to be tried. */
static int add_runs(cell *c, mr_planned *runs, size_t *count, mr_error *err)
{
    int from = 0, status = 0;
    const int searching = c->options->profile == MR_PROFILE_SEARCH;
    for (const char *label; !status; ++*count) {
        const char *name = NULL;
        while (searching && !name && (label = mr_experiment_label(c->e, MR_TRY_PREFIX, &from)))
            name = mr_experiment_tried(label, c->run.row, c->run.column);
        if (searching && !name) break;
        if (name) snprintf(c->run.setting, sizeof c->run.setting, "%s", name);
        if (runs) status = fill_named(c, err);
        if (runs) runs[*count] = c->run;
        if (searching) continue;
        ++*count;
        break;
    }
    return status;
}

/* Walks all cells; runs NULL: only counts them. */
static int walk(const mr_experiment *e, const mr_plan_options *o, int64_t seed, mr_planned *runs, size_t *count,
                mr_error *err)
{
    int at_row = 0, status = 0;
    const char *row, *column;
    while (!status && (row = mr_experiment_label(e, row_prefix, &at_row))) {
        int at_column = 0;
        for (int first = 1; !status; first = 0) {
            column = mr_experiment_label(e, column_prefix, &at_column);
            if (!column && !first) break;
            cell c = {.e = e, .options = o, .run.seed = seed};
            snprintf(c.run.row, sizeof c.run.row, "%s", row);
            snprintf(c.run.column, sizeof c.run.column, "%s", column ? column : mr_experiment_column(e));
            snprintf(c.row, sizeof c.row, "%s%s", row_prefix, row);
            snprintf(c.column, sizeof c.column, "%s%s", column_prefix, c.run.column);
            if (!is_wanted(&c)) continue;
            status = add_runs(&c, runs, count, err);
        }
    }
    return status;
}

int mr_experiment_plan(const mr_experiment *e, const mr_plan_options *o, mr_planned **runs, size_t *count,
                       mr_error *err)
{
    size_t cells = 0;
    int status = walk(e, o, 1, NULL, &cells, err);
    *count = 0;
    *runs = mr_alloc(cells * (size_t)o->seeds + 1, sizeof **runs);
    if (!*runs) return mr_no_memory(err, "the runs");
    for (int64_t i = 0; !status && i < o->seeds; i++) status = walk(e, o, o->first_seed + i, *runs, count, err);
    if (status) mr_free(*runs), *runs = NULL;
    return status;
}

/* ---- its recipe ---- */

int mr_planned_recipe(const mr_planned *run, mr_recipe *recipe, mr_error *err)
{
    char copy[sizeof run->settings], *rest = copy;
    int status = 0, loaded = 0;
    double warmup_share = 0;
    snprintf(copy, sizeof copy, "%s", run->settings);
    for (char *key = strtok_r(copy, " ", &rest); !status && key; key = strtok_r(NULL, " ", &rest)) {
        char *value = mr_setting_value(key);
        if (!loaded) {
            status = mr_recipe_load(recipe, value, err);
            recipe->train.eval_tokens = 0; /* a row is a score on the whole test set */
        } else if (!strcmp(key, "warmup-share")) {
            if (!mr_real_read(value, &warmup_share) || !(warmup_share >= 0 && warmup_share <= 1))
                status = mr_fail(err, MR_EINVAL, "warmup-share = %.40s: must be a number from 0 to 1", value);
        } else if (strcmp(key, "search")) status = mr_recipe_set(recipe, key, value, err);
        loaded = 1;
    }
    if (!loaded) return mr_fail(err, MR_EINVAL, "the settings name no recipe");
    if (status) mr_recipe_free(recipe);
    if (status) return status;
    mr_train_set_whole(&recipe->train, "seed", run->seed);
    if (warmup_share > 0)
        mr_train_set_whole(&recipe->train, "warmup", llround(warmup_share * (double)mr_train_steps(&recipe->train)));
    return 0;
}
