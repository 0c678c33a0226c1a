/* Recipes: read from INI text, changed key by key, and printed. */
#include "train/recipe.h"

#include "core/file.h"
#include "core/mem.h"
#include "train/ini.h"
#include "train/recipes.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

const char *const mr_section_names[MR_SECTIONS] = {"task", "model", "train"};

const mr_option *mr_recipe_table(const mr_recipe *r, int section)
{
    const mr_option *const tables[] = {r->task->type->options, mr_model_table(), mr_train_table()};
    return tables[section];
}

void *mr_recipe_settings(const mr_recipe *r, int section)
{
    void *const settings[] = {r->task->settings, (void *)&r->model, (void *)&r->train};
    return settings[section];
}

/* ---- keys ---- */

static const mr_option *find_in(const mr_recipe *r, int section, const char *key)
{
    const mr_option *o = mr_option_find(mr_recipe_table(r, section), key);
    return o && !(o->flags & MR_OPT_DERIVED) ? o : NULL;
}

static int unknown_key(const mr_recipe *r, const char *key, mr_error *err)
{
    const mr_option *const tables[] = {mr_recipe_table(r, 0), mr_recipe_table(r, 1), mr_recipe_table(r, 2), NULL};
    const char *near = mr_option_nearest(tables, key);
    if (near) return mr_fail(err, MR_EINVAL, "unknown key %.100s; did you mean %s?", key, near);
    return mr_fail(err, MR_EINVAL, "unknown key %.100s; `minrnn train --help` lists them", key);
}

int mr_recipe_set(mr_recipe *r, const char *key, const char *value, mr_error *err)
{
    for (int section = 0; section < MR_SECTIONS; section++) {
        const mr_option *o = find_in(r, section, key);
        if (o) return mr_option_parse(o, mr_recipe_settings(r, section), value, err);
    }
    return unknown_key(r, key, err);
}

int mr_recipe_new(mr_recipe *r, const char *task, mr_error *err)
{
    memset(r, 0, sizeof *r);
    const mr_task_type *type = mr_task_type_find(task);
    if (!type) return mr_fail(err, MR_EINVAL, "unknown task %.100s; `minrnn train --help` lists them", task);
    int status = mr_task_new(type, &r->task, err);
    if (status) return status;
    mr_options_default(mr_model_table(), &r->model);
    mr_options_default(mr_train_table(), &r->train);
    return 0;
}

void mr_recipe_drop_init(mr_recipe *r)
{
    mr_net_free(r->init_net);
    mr_context_free(r->init_ctx);
    r->init_net = NULL;
    r->init_ctx = NULL;
}

void mr_recipe_free(mr_recipe *r)
{
    mr_task_free(r->task);
    mr_recipe_drop_init(r);
    mr_vocab_free(r->vocab);
    memset(r, 0, sizeof *r);
}

/* ---- INI text ---- */

static int is_key(const mr_ini_line *l, const char *section, const char *key)
{
    return !strcmp(l->section, section) && !strcmp(l->key, key);
}

/* `again`: the same key has come before. */
static int apply(mr_recipe *r, const char *name, const mr_ini_line *l, int again, mr_error *err)
{
    mr_error inner;
    if (is_key(l, "", "base") || is_key(l, "task", "name")) return again ? mr_ini_twice(l, name, err) : 0;
    for (int section = 0; section < MR_SECTIONS; section++) {
        if (strcmp(l->section, mr_section_names[section])) continue;
        const mr_option *o = find_in(r, section, l->key);
        if (!o) {
            unknown_key(r, l->key, &inner);
            return mr_fail(err, MR_EINVAL, "%s, section [%s]: %.800s", name, l->section, inner.text);
        }
        if (again && !(o->flags & MR_OPT_MANY)) return mr_ini_twice(l, name, err);
        if ((again ? mr_option_add : mr_option_parse)(o, mr_recipe_settings(r, section), l->value, &inner))
            return mr_fail(err, MR_EINVAL, "%s: %.900s", name, inner.text);
        return 0;
    }
    return mr_fail(err, MR_EINVAL, "%s: unknown section [%s]; the sections are [task], [model] and [train]", name,
                   l->section);
}

static int load_builtin(mr_recipe *r, const char *name,
                        mr_error *err); /* bases are built in, and none of them is circular */

/* What the lines of a recipe are applied to: its base, or the defaults of its task. */
static int start(mr_recipe *r, const char *name, const mr_ini *all, mr_error *err)
{
    mr_error inner;
    const char *base = mr_ini_find(all, "", "base"), *task = mr_ini_find(all, "task", "name");
    if (!base && !task)
        return mr_fail(err, MR_EINVAL, "%s: names no task; put `name = text` (or another) under [task]", name);
    if (!base) return mr_recipe_new(r, task, err);
    int status = load_builtin(r, base, &inner);
    if (status) return mr_fail(err, status, "%s: base = %.100s: %.800s", name, base, inner.text);
    if (!task || !strcmp(task, r->task->type->name)) return 0;
    status = mr_fail(err, MR_EINVAL, "%s: base = %s is a recipe of %s, not of %.100s; leave `name` out", name, base,
                     r->task->type->name, task);
    mr_recipe_free(r);
    return status;
}

static int from_lines(mr_recipe *r, const char *name, const mr_ini *all, mr_error *err)
{
    int status = start(r, name, all, err);
    if (status) return status;
    for (int i = 0; !status && i < all->count; i++)
        status = apply(r, name, &all->list[i], mr_ini_came_before(all, i), err);
    if (status) mr_recipe_free(r);
    return status;
}

static int parse(mr_recipe *r, const char *name, const char *text, size_t size, mr_error *err)
{
    mr_ini all;
    memset(r, 0, sizeof *r);
    if (strlen(text) != size) return mr_fail(err, MR_EINVAL, "%s: holds a zero byte; a recipe is text", name);
    int status = mr_ini_read(&all, name, text, err);
    if (!status) status = from_lines(r, name, &all, err);
    mr_ini_free(&all);
    return status;
}

int mr_recipe_is_path(const char *name) { return strchr(name, '/') || mr_ini_is_name(name); }

int mr_recipe_is_known(const char *name)
{
    for (int i = 0; mr_recipe_names[i]; i++)
        if (!strcmp(mr_recipe_names[i], name)) return 1;
    return 0;
}

static int load_builtin(mr_recipe *r, const char *name, mr_error *err)
{
    memset(r, 0, sizeof *r);
    for (int i = 0; mr_recipe_names[i]; i++)
        if (!strcmp(mr_recipe_names[i], name))
            return parse(r, name, mr_recipe_texts[i], strlen(mr_recipe_texts[i]), err);
    return mr_fail(err, MR_EINVAL, "no recipe %.100s; `minrnn train --help` lists them (a file's name ends in .ini)",
                   name);
}

int mr_recipe_load(mr_recipe *r, const char *name, mr_error *err)
{
    char *text;
    size_t size;
    memset(r, 0, sizeof *r);
    if (!mr_recipe_is_path(name)) return load_builtin(r, name, err);
    int status = mr_file_read(name, 1 << 16, &text, &size, err);
    if (status) return status;
    status = parse(r, name, text, size, err);
    mr_free(text);
    return status;
}

/* What a run did that is older than a key. */
static int take_older(mr_recipe *r, const mr_ini *lines, mr_error *err)
{
    /* runs of 0.1 scored the whole test set */
    if (!mr_ini_find(lines, "train", "eval-tokens")) r->train.eval_tokens = 0;
    /* runs up to 0.2 added micro-batches up one after another, and kept all activations */
    int status = 0;
    if (!mr_ini_find(lines, "train", "gradient-sum")) status = mr_recipe_set(r, "gradient-sum", "order", err);
    if (status || mr_ini_find(lines, "train", "recompute")) return status;
    return mr_recipe_set(r, "recompute", "none", err);
}

int mr_recipe_load_run(mr_recipe *r, const char *path, mr_error *err)
{
    mr_ini lines = {0};
    char *text;
    size_t size;
    memset(r, 0, sizeof *r);
    int status = mr_file_read(path, 1 << 16, &text, &size, err);
    if (status) return status;
    status = parse(r, path, text, size, err);
    if (!status) status = mr_ini_read(&lines, path, text, err);
    if (!status) status = take_older(r, &lines, err);
    if (status) mr_recipe_free(r);
    mr_ini_free(&lines);
    mr_free(text);
    return status;
}

/* ---- printing ---- */

/* Could a line of a recipe hold it? libinih cuts long lines and reads " ;" as the start of a comment. */
static int fits_a_line(const char *key, const char *value)
{
    return strlen(key) + strlen(" = ") + strlen(value) <= INI_MAX_LINE - 2 && !strstr(value, " ;");
}

/* Paths, one per line, as they are seen from any folder: runs may be resumed from another one. What would not fit
 * stays as it is. */
static void make_absolute(const char *key, char value[MR_TEXT_MAX])
{
    mr_strbuf all = {0};
    int fits = 1;
    for (const char *at = value; *at && fits;) {
        char name[MR_TEXT_MAX];
        const size_t n = strcspn(at, "\n");
        snprintf(name, sizeof name, "%.*s", (int)n, at);
        char *absolute = strcmp(name, "-") ? mr_path_absolute(name) : mr_strdup(name);
        fits = absolute && fits_a_line(key, absolute);
        if (fits) mr_strbuf_format(&all, "%s%s", all.size ? "\n" : "", absolute);
        mr_free(absolute);
        at += n + (at[n] == '\n');
    }
    if (fits && all.data && !all.failed && all.size < MR_TEXT_MAX) strcpy(value, all.data);
    mr_strbuf_free(&all);
}

/* A key's value as recipe.ini has it. */
static const char *print_value(const mr_recipe *r, int section, const mr_option *o, char value[MR_TEXT_MAX])
{
    mr_option_print(o, mr_recipe_settings(r, section), value);
    if (o->flags & MR_OPT_PATH) make_absolute(o->key, value);
    return value;
}

/* Is one of the paths, a name a line, relative? */
static int has_relative(const char *value)
{
    for (const char *at = value; *at; at += strcspn(at, "\n"), at += *at == '\n')
        if (*at != '/' && *at != '-') return 1;
    return 0;
}

const char *mr_recipe_relative(const mr_recipe *r)
{
    char value[MR_TEXT_MAX];
    for (int section = 0; section < MR_SECTIONS; section++)
        for (const mr_option *o = mr_recipe_table(r, section); o->key; o++)
            if ((o->flags & MR_OPT_PATH) && has_relative(print_value(r, section, o, value))) return o->key;
    return NULL;
}

static void print_key(mr_strbuf *out, const mr_option *o, const char *value)
{
    while (*value) {
        const size_t n = o->flags & MR_OPT_MANY ? strcspn(value, "\n") : strlen(value);
        mr_strbuf_format(out, "%s = %.*s\n", o->key, (int)n, value);
        value += n + (value[n] == '\n');
    }
}

static void print_all(const mr_recipe *r, mr_strbuf *out)
{
    char value[MR_TEXT_MAX];
    for (int section = 0; section < MR_SECTIONS; section++) {
        mr_strbuf_format(out, "%s[%s]\n", section ? "\n" : "", mr_section_names[section]);
        if (section == MR_SECTION_TASK) mr_strbuf_format(out, "name = %s\n", r->task->type->name);
        for (const mr_option *o = mr_recipe_table(r, section); o->key; o++) {
            if (o->flags & MR_OPT_DERIVED) continue;
            print_key(out, o, print_value(r, section, o, value));
        }
    }
}

static const char *unfit_blank(const char *line, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!strchr(" \t\r\v\f", line[i])) continue;
        if (i + 1 < n && line[i + 1] == ';') return "a blank with a semicolon after it, which starts a comment";
        if (i + 1 == n) return "a blank at the end";
        if (!i) return "a blank at the start";
    }
    return NULL;
}

/* What a line of recipe.ini would misread in a value of *n bytes. Where there are several, a line each, *value and *n
 * become those of the one that has it. */
static const char *unfit_part(const mr_option *o, const char **value, size_t *n)
{
    const char *line = *value, *what = NULL;
    if (!(o->flags & MR_OPT_MANY) && strchr(line, '\n')) return "a line break";
    for (size_t length; !what && *line; line += length + (line[length] == '\n')) {
        length = strcspn(line, "\n");
        what = unfit_blank(line, length);
        if (what) *value = line, *n = length;
    }
    return what ? what : "this value";
}

static const mr_option *find_difference(const mr_recipe *a, const mr_recipe *b, char left[MR_TEXT_MAX])
{
    char right[MR_TEXT_MAX];
    for (int section = 0; section < MR_SECTIONS; section++)
        for (const mr_option *o = mr_recipe_table(a, section); o->key; o++) {
            if (o->flags & MR_OPT_DERIVED) continue;
            print_value(a, section, o, left);
            print_value(b, section, o, right);
            if (strcmp(left, right)) return o;
        }
    return NULL;
}

int mr_recipe_print(const mr_recipe *r, mr_strbuf *out, mr_error *err)
{
    mr_recipe again;
    char value[MR_TEXT_MAX];
    print_all(r, out);
    if (out->failed) return mr_no_memory(err, "the recipe");
    int status = parse(&again, "recipe.ini", out->data, out->size, err);
    const mr_option *differs = status ? NULL : find_difference(r, &again, value);
    if (differs) {
        const char *shown = value;
        size_t n = strlen(value);
        const char *what = unfit_part(differs, &shown, &n);
        status = mr_fail(err, MR_EINVAL, "--%s %.*s: recipe.ini cannot hold %s; rename the file, or use a link",
                         differs->key, n < 300 ? (int)n : 300, shown, what);
    }
    mr_recipe_free(&again);
    return status;
}
