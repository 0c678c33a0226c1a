#include "train/recipe.h"

#include "core/file.h"
#include "core/mem.h"
#include "train/ini.h"
#include "train/recipes.h"

#include <stddef.h>
#include <string.h>

static const char *const optimizers[] = {"adamw", "adam", NULL};
static const char *const schedules[] = {"constant", "linear", "cosine", NULL};
static const char *const dtypes[] = {"f32", "bf16", NULL};
static const char *const decay_sets[] = {"matrices", "no-gates", "all", NULL};

#define FIELD(name) offsetof(mr_train_settings, name)

const mr_option mr_train_options[] = {
    {"batch", MR_OPT_INT, FIELD(batch), "32", 1, 1 << 20, NULL, "sequences a step (or a micro-batch, see accumulate)", 0},
    {"context", MR_OPT_INT, FIELD(context), "256", 1, 1 << 24, NULL, "tokens a sequence, where the task leaves it open", 0},
    {"steps", MR_OPT_INT, FIELD(steps), "1000", 1, 1e12, NULL, "training steps", MR_OPT_MAY_CHANGE},
    {"max-seconds", MR_OPT_REAL, FIELD(max_seconds), "0", 0, 1e9, NULL, "stop after so many seconds; 0: never", MR_OPT_MAY_CHANGE},
    {"lr", MR_OPT_REAL, FIELD(lr), "0.001", 0, 10, NULL, "learning rate", 0},
    {"schedule", MR_OPT_CHOICE, FIELD(schedule), "constant", 0, 0, schedules, "of the learning rate, to 0 at the last step", 0},
    {"warmup", MR_OPT_INT, FIELD(warmup), "0", 0, 1e12, NULL, "steps over which the learning rate rises from 0", 0},
    {"optimizer", MR_OPT_CHOICE, FIELD(optimizer), "adamw", 0, 0, optimizers, "adamw, or adam (weight decay as L2)", 0},
    {"betas", MR_OPT_PAIR, FIELD(betas), "0.9,0.999", 0, 0.999999, NULL, "decay of the two moments", 0},
    {"eps", MR_OPT_REAL, FIELD(eps), "1e-8", 0, 1, NULL, "added to the root of the second moment", 0},
    {"weight-decay", MR_OPT_REAL, FIELD(weight_decay), "0", 0, 10, NULL, "weight decay", 0},
    {"decay-set", MR_OPT_CHOICE, FIELD(decay_set), "matrices", 0, 0, decay_sets, "what decays: weight matrices, all but the mixer's gates, all", 0},
    {"clip", MR_OPT_REAL, FIELD(clip), "1", 0, 1e9, NULL, "largest norm of the gradient; 0: any", 0},
    {"accumulate", MR_OPT_INT, FIELD(accumulate), "1", 1, 1 << 16, NULL, "micro-batches a step", 0},
    {"eval-every", MR_OPT_INT, FIELD(eval_every), "100", 1, 1e12, NULL, "steps between evaluations", MR_OPT_MAY_CHANGE},
    {"save-every", MR_OPT_INT, FIELD(save_every), "0", 0, 1e12, NULL, "steps between checkpoints; 0: every 15 seconds", MR_OPT_MAY_CHANGE},
    {"patience", MR_OPT_INT, FIELD(patience), "0", 0, 1e9, NULL, "stop after so many evaluations without a better one; 0: never", MR_OPT_MAY_CHANGE},
    {"dtype", MR_OPT_CHOICE, FIELD(dtype), "f32", 0, 0, dtypes, "what matrix products are computed in", MR_OPT_MAY_CHANGE},
    {"tf32", MR_OPT_BOOL, FIELD(tf32), "yes", 0, 0, NULL, "GPU: f32 products may round to TF32", MR_OPT_MAY_CHANGE},
    {"seed", MR_OPT_INT, FIELD(seed), "1", 0, 9e15, NULL, "of the initial weights, the data and dropout", 0},
    {0}};

const char *const mr_section_names[MR_SECTIONS] = {"task", "model", "train"};

const mr_option *mr_recipe_table(const mr_recipe *r, int section)
{
    const mr_option *const tables[] = {r->task->type->options, mr_config_options, mr_train_options};
    return tables[section];
}

void *mr_recipe_settings(const mr_recipe *r, int section)
{
    void *const settings[] = {r->task->settings, (void *)&r->config, (void *)&r->train};
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
    mr_options_default(mr_config_options, &r->config);
    mr_options_default(mr_train_options, &r->train);
    return 0;
}

void mr_recipe_free(mr_recipe *r)
{
    mr_task_free(r->task);
    memset(r, 0, sizeof *r);
}

/* ---- INI text ---- */

static int is_key(const mr_ini_line *l, const char *section, const char *key)
{
    return !strcmp(l->section, section) && !strcmp(l->key, key);
}

static int apply(mr_recipe *r, const char *name, const mr_ini_line *l, mr_error *err)
{
    mr_error inner;
    if (is_key(l, "", "base") || is_key(l, "task", "name")) return 0; /* done already */
    for (int section = 0; section < MR_SECTIONS; section++) {
        if (strcmp(l->section, mr_section_names[section])) continue;
        const mr_option *o = find_in(r, section, l->key);
        if (!o) {
            unknown_key(r, l->key, &inner);
            return mr_fail(err, MR_EINVAL, "%s, section [%s]: %.800s", name, l->section, inner.text);
        }
        if (mr_option_parse(o, mr_recipe_settings(r, section), l->value, &inner))
            return mr_fail(err, MR_EINVAL, "%s: %.900s", name, inner.text);
        return 0;
    }
    return mr_fail(err, MR_EINVAL, "%s: unknown section [%s]; there are [task], [model] and [train]", name, l->section);
}

static int load_builtin(mr_recipe *r, const char *name, mr_error *err); /* bases are built in and end somewhere: no circles */

/* What the lines of a recipe are set upon: its base, or the defaults of its task. */
static int start(mr_recipe *r, const char *name, const mr_ini *all, mr_error *err)
{
    mr_error inner;
    const char *base = mr_ini_find(all, "", "base"), *task = mr_ini_find(all, "task", "name");
    if (!base && !task) return mr_fail(err, MR_EINVAL, "%s: says no task; put `name = text` (or another) under [task]", name);
    if (!base) return mr_recipe_new(r, task, err);
    int status = load_builtin(r, base, &inner);
    if (status) return mr_fail(err, status, "%s: base = %.100s: %.800s", name, base, inner.text);
    if (!task || !strcmp(task, r->task->type->name)) return 0;
    status = mr_fail(err, MR_EINVAL, "%s: base = %s is a recipe of %s, not of %.100s; leave `name` out", name, base, r->task->type->name, task);
    mr_recipe_free(r);
    return status;
}

static int from_lines(mr_recipe *r, const char *name, const mr_ini *all, mr_error *err)
{
    int status = start(r, name, all, err);
    if (status) return status;
    for (int i = 0; !status && i < all->count; i++) status = apply(r, name, &all->list[i], err);
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

static int is_path(const char *name)
{
    return strchr(name, '/') || mr_ini_is_name(name);
}

static int load_builtin(mr_recipe *r, const char *name, mr_error *err)
{
    memset(r, 0, sizeof *r);
    for (int i = 0; mr_recipe_names[i]; i++)
        if (!strcmp(mr_recipe_names[i], name)) return parse(r, name, mr_recipe_texts[i], strlen(mr_recipe_texts[i]), err);
    return mr_fail(err, MR_EINVAL, "no recipe %.100s; `minrnn train --help` lists them (a file's name ends in .ini)", name);
}

int mr_recipe_load(mr_recipe *r, const char *name, mr_error *err)
{
    char *text;
    size_t size;
    memset(r, 0, sizeof *r);
    if (!is_path(name)) return load_builtin(r, name, err);
    int status = mr_file_read(name, 1 << 16, &text, &size, err);
    if (status) return status;
    status = parse(r, name, text, size, err);
    mr_free(text);
    return status;
}

int mr_recipe_check_model(const mr_recipe *r, mr_error *err)
{
    const mr_interface plain = {.input = MR_INPUT_TOKENS, .inputs = 2, .head = MR_HEAD_TOKEN, .loss = MR_LOSS_XENT, .outputs = 2};
    mr_config config = r->config;
    mr_config_take(&config, &plain);
    mr_config_settle(&config, 1);
    return mr_config_check(&config, err);
}

int mr_recipe_open(mr_recipe *r, mr_error *err)
{
    r->task->seed = (uint64_t)r->train.seed;
    r->task->batch = (int)r->train.batch;
    r->task->context = (int)r->train.context;
    int status = mr_task_open(r->task, err);
    if (status) return status;
    mr_config_take(&r->config, &r->task->face);
    mr_config_settle(&r->config, r->task->max_T);
    return mr_config_check(&r->config, err);
}

static void print_all(const mr_recipe *r, mr_text *out)
{
    char value[MR_TEXT_MAX];
    for (int section = 0; section < MR_SECTIONS; section++) {
        mr_text_format(out, "%s[%s]\n", section ? "\n" : "", mr_section_names[section]);
        if (section == MR_SECTION_TASK) mr_text_format(out, "name = %s\n", r->task->type->name);
        for (const mr_option *o = mr_recipe_table(r, section); o->key; o++) {
            if (o->flags & MR_OPT_DERIVED) continue;
            mr_option_print(o, mr_recipe_settings(r, section), value);
            if (value[0]) mr_text_format(out, "%s = %s\n", o->key, value);
        }
    }
}

static int same_values(const mr_recipe *a, const mr_recipe *b, const char **differs)
{
    char left[MR_TEXT_MAX], right[MR_TEXT_MAX];
    for (int section = 0; section < MR_SECTIONS; section++)
        for (const mr_option *o = mr_recipe_table(a, section); o->key; o++) {
            if (o->flags & MR_OPT_DERIVED) continue;
            mr_option_print(o, mr_recipe_settings(a, section), left);
            mr_option_print(o, mr_recipe_settings(b, section), right);
            *differs = o->key;
            if (strcmp(left, right)) return 0;
        }
    return 1;
}

int mr_recipe_print(const mr_recipe *r, mr_text *out, mr_error *err)
{
    mr_recipe again;
    const char *differs = NULL;
    print_all(r, out);
    if (out->failed) return mr_no_memory(err, "the recipe");
    int status = parse(&again, "recipe.ini", out->data, out->size, err);
    if (!status && !same_values(r, &again, &differs))
        status = mr_fail(err, MR_EINVAL, "recipe.ini cannot hold this value of %s; choose a plainer name (a link will do)", differs);
    mr_recipe_free(&again);
    return status;
}
