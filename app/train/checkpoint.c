/* Checkpoints: what a run writes into its folder, and the checks before it is continued from there. */
#include "train/checkpoint.h"

#include "core/file.h"
#include "core/mem.h"
#include "core/safetensors.h"
#include "train/later_model.h"
#include "train/run_folder.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

mr_checkpoint mr_checkpoint_start(void) { return (mr_checkpoint){.best_loss = NAN, .best_accuracy = NAN}; }

/* ---- writing ---- */

/* Of [train] a state has every key but paths and those that are written only when they differ from the default; batch
 * and context are in the net's own metadata already. */
static void add_train(mr_key_list *l, const mr_recipe *r)
{
    char key[64], value[MR_TEXT_MAX];
    for (const mr_option *o = mr_train_table(); o->key; o++) {
        if (!strcmp(o->key, "batch") || !strcmp(o->key, "context") || (o->flags & MR_OPT_PATH)) continue;
        snprintf(key, sizeof key, "train.%s", o->key);
        mr_option_print(o, &r->train, value);
        if (!(o->flags & MR_OPT_SPARSE) || strcmp(value, o->fallback)) mr_key_list_add(l, key, value);
    }
}

static void add_count(mr_key_list *l, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    mr_key_list_add(l, key, text);
}

static void add_number(mr_key_list *l, const char *key, double value)
{
    char text[MR_REAL_MAX] = "nan";
    mr_key_list_add(l, key, isfinite(value) ? mr_real_print(text, value, 0) : text);
}

/* state.step and state.best-step are the library's. */
static int write_state(const mr_checkpoint *cp, const mr_recipe *r, mr_net *net, const char *path, mr_error *err)
{
    mr_key_list l = {0};
    add_train(&l, r);
    add_count(&l, "state.evaluated", cp->evaluated);
    add_count(&l, "state.stale", cp->stale);
    add_count(&l, "state.tokens", cp->tokens);
    add_count(&l, "state.log-offset", (int64_t)cp->log_offset);
    add_number(&l, "state.seconds", cp->seconds);
    add_number(&l, "state.setup-seconds", cp->setup_seconds);
    add_number(&l, "state.best-loss", cp->best_loss);
    add_number(&l, "state.best-accuracy", cp->best_accuracy);
    if (r->task->data_sha256[0]) mr_key_list_add(&l, "state.data-sha256", r->task->data_sha256);
    int status = l.failed ? mr_no_memory(err, path) : mr_net_save_training(net, path, (const char *const *)l.list, err);
    mr_key_list_free(&l);
    return status;
}

typedef int save_model(mr_net *net, const char *path, mr_error *err);

static int write_model(save_model *save, mr_net *net, const char *dir, const char *name, mr_error *err)
{
    char *path = mr_path_join(dir, name);
    int status = path ? save(net, path, err) : mr_no_memory(err, name);
    mr_free(path);
    return status;
}

int mr_checkpoint_save(const mr_checkpoint *cp, const char *dir, const mr_recipe *r, mr_net *net, mr_error *err)
{
    char *path = mr_path_join(dir, "state.safetensors");
    int status = path ? write_state(cp, r, net, path, err) : mr_no_memory(err, dir);
    mr_free(path);
    if (!status && cp->best_step) status = mr_checkpoint_save_best(cp, dir, net, err);
    return status ? status : write_model(mr_net_save, net, dir, "last.safetensors", err);
}

int mr_checkpoint_keeps_later(const mr_checkpoint *cp) { return cp->step < cp->later_model; }

int mr_checkpoint_save_best(const mr_checkpoint *cp, const char *dir, mr_net *net, mr_error *err)
{
    if (mr_checkpoint_keeps_later(cp)) return 0;
    if (!cp->best_step) return mr_fail(err, MR_EINVAL, "%s: there is no best model yet", dir);
    return write_model(mr_net_save_best, net, dir, "model.safetensors", err);
}

/* ---- reading ---- */

/* A key that may change has changed: noted, for as long as there is room. */
static void note_change(mr_checkpoint *cp, const char *key, const char *was, const char *value)
{
    const size_t used = strlen(cp->changed);
    const int more = snprintf(cp->changed + used, sizeof cp->changed - used, "%s%s = %.60s (was %.60s)",
                              used ? ", " : "", key, value, was);
    if (more < 0 || (size_t)more >= sizeof cp->changed - used) cp->changed[used] = 0;
}

/* The value of a key in a run whose state is older than the key; NULL: every state has it. */
static const char *older_value(const mr_option *o)
{
    if (!strcmp(o->key, "recompute")) return "none";
    if (o->flags & MR_OPT_SPARSE) return o->fallback;
    if (!strcmp(o->key, "gradient-sum")) return "order"; /* up to 0.2 there was no other */
    return strcmp(o->key, "eval-tokens") ? NULL : "0";   /* runs of 0.1 scored the whole test set */
}

/* A run without its recipe.ini has the values of the recipe that was named: flags that it began with are missing. */
static int other_value(const char *path, const char *key, const char *was, const char *now, mr_error *err)
{
    if (!mr_run_has_recipe(path))
        return mr_fail(err, MR_ECONFIG,
                       "%s: the run has %s = %.100s, not %.100s, and its recipe.ini is missing; add "
                       "--%s %.100s",
                       path, key, was, now, key, was);
    return mr_fail(err, MR_ECONFIG,
                   "%s: the run has %s = %.100s, which cannot become %.100s now; leave --%s out, or "
                   "choose another --out",
                   path, key, was, now, key);
}

/* One key of the state against the recipe's. */
static int compare_key(mr_checkpoint *cp, const mr_st *st, const char *path, const mr_recipe *r, int section,
                       const mr_option *o, mr_error *err)
{
    char key[64], value[MR_TEXT_MAX];
    snprintf(key, sizeof key, "%s.%s", mr_section_names[section], o->key);
    const char *was = mr_st_meta(st, key);
    if (!was) was = older_value(o);
    mr_option_print(o, mr_recipe_settings(r, section), value);
    if (!was && (o->flags & MR_OPT_MAY_CHANGE)) return 0; /* a key that is newer than the state */
    if (!was) return mr_fail(err, MR_EFORMAT, "%s: its metadata lacks %s", path, key);
    if (!strcmp(was, value)) return 0;
    if (o->flags & MR_OPT_MAY_CHANGE) return note_change(cp, o->key, was, value), 0;
    return other_value(path, o->key, was, value, err);
}

static int same_recipe(mr_checkpoint *cp, const mr_st *st, const char *path, const mr_recipe *r, mr_error *err)
{
    int status = 0;
    const char *task = mr_st_meta(st, "task.name");
    if (!task || strcmp(task, r->task->type->name))
        return mr_fail(err, MR_ECONFIG, "%s: is a run of task %.60s, not %s; choose another --out", path,
                       task ? task : "?", r->task->type->name);
    /* derived keys follow from the task's keys and the vocabulary, which name the difference better */
    for (int section = 0; section < MR_SECTIONS; section++)
        for (const mr_option *o = mr_recipe_table(r, section); !status && o->key; o++)
            if (!(o->flags & (MR_OPT_PATH | MR_OPT_DERIVED))) status = compare_key(cp, st, path, r, section, o, err);
    return status;
}

/* The vocabulary of the task as a state has it; NULL: none, or out of memory. */
static char *vocab_text(const mr_task *task)
{
    size_t needed = 0;
    if (!task->vocab) return NULL;
    mr_vocab_print(task->vocab, NULL, 0, &needed, NULL);
    char *text = needed ? mr_alloc(needed, 1) : NULL;
    if (text) mr_vocab_print(task->vocab, text, needed, NULL, NULL);
    return text;
}

static int same_data(const mr_st *st, const char *path, const mr_recipe *r, mr_error *err)
{
    const char *was = mr_st_meta(st, "vocab"), *sha256 = mr_st_meta(st, "state.data-sha256");
    char *now = vocab_text(r->task);
    int same = was && now ? !strcmp(was, now) : !was && !r->task->vocab;
    mr_free(now);
    if (!same)
        return mr_fail(err, MR_EDATA,
                       "%s: the run was started on other data (its characters differ); give the same --data", path);
    if (sha256 && strcmp(sha256, r->task->data_sha256))
        return mr_fail(err, MR_EDATA,
                       "%s: the run was started on other data (SHA-256 %.64s, not %s); give the same --data", path,
                       sha256, r->task->data_sha256);
    return 0;
}

static int read_count(const mr_st *st, const char *path, const char *key, int64_t *value, mr_error *err)
{
    const char *text = mr_st_meta(st, key);
    char *end;
    *value = text ? strtoll(text, &end, 10) : -1;
    if (text && end != text && !*end && *value >= 0) return 0;
    return mr_fail(err, MR_EFORMAT, "%s: its metadata has no valid %s", path, key);
}

static double read_number(const mr_st *st, const char *key)
{
    const char *text = mr_st_meta(st, key);
    double value;
    return text && mr_real_read(text, &value) ? value : NAN;
}

/* Keys that came later: 0 where they are missing, or make no sense. */
static double read_seconds(const mr_st *st, const char *key)
{
    const double seconds = read_number(st, key);
    return seconds > 0 ? seconds : 0;
}

static int read_state(mr_checkpoint *cp, const mr_st *st, const char *path, mr_error *err)
{
    int64_t offset = 0;
    int status = read_count(st, path, "state.step", &cp->step, err);
    if (!status) status = read_count(st, path, "state.evaluated", &cp->evaluated, err);
    /* missing until a best model was marked */
    if (!status && mr_st_meta(st, "state.best-step"))
        status = read_count(st, path, "state.best-step", &cp->best_step, err);
    if (!status) status = read_count(st, path, "state.stale", &cp->stale, err);
    if (!status && mr_st_meta(st, "state.tokens"))
        status = read_count(st, path, "state.tokens", &cp->tokens, err); /* a key that came later */
    if (!status) status = read_count(st, path, "state.log-offset", &offset, err);
    cp->log_offset = (uint64_t)offset;
    cp->seconds = read_seconds(st, "state.seconds");
    cp->setup_seconds = read_seconds(st, "state.setup-seconds");
    cp->best_loss = read_number(st, "state.best-loss");
    cp->best_accuracy = read_number(st, "state.best-accuracy");
    return status;
}

/* If the last call wrote event files, they hold every step: a call that starts writing them adds the earlier steps
 * first. */
static int64_t steps_in_events(const mr_st *st, int64_t step)
{
    const char *log = mr_st_meta(st, "train.log");
    return log && strstr(log, "tensorboard") ? step : 0;
}

static int check_state(mr_checkpoint *cp, const char *path, const mr_recipe *r, mr_error *err)
{
    mr_st *st = NULL;
    int status = mr_st_open(path, &st, err);
    const char *format = status ? NULL : mr_st_meta(st, "format"),
               *weights = status ? NULL : mr_st_meta(st, "model.weights");
    if (!status && (!format || strcmp(format, "minrnn")))
        status = mr_fail(err, MR_EFORMAT, "%s: not a minrnn model (its metadata has no format = minrnn)", path);
    if (!status && weights && strcmp(weights, "f32"))
        status = mr_fail(err, MR_EFORMAT, "%s: its weights are in 8 bits, which are not trained", path);
    if (!status) status = same_recipe(cp, st, path, r, err);
    if (!status) status = same_data(st, path, r, err);
    if (!status) status = read_state(cp, st, path, err);
    if (!status) cp->event_steps = steps_in_events(st, cp->step);
    mr_st_close(st);
    return status;
}

int mr_checkpoint_load(mr_checkpoint *cp, const char *dir, const mr_recipe *r, mr_net *net, mr_error *err)
{
    char *path = mr_path_join(dir, "state.safetensors");
    if (!path) return mr_no_memory(err, dir);
    int status = check_state(cp, path, r, err);
    if (!status) status = mr_later_model(dir, path, cp->step, &cp->later_model, err);
    if (!status) status = mr_net_load_training(net, path, err);
    mr_free(path);
    return status;
}
