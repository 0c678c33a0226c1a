#include "train/checkpoint.h"

#include "core/file.h"
#include "core/mem.h"
#include "model/file.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const state_meta_keys[] = {"task.", "vocab", "train.", "state.", NULL};
static const char *const state_prefixes[] = {"weights.", "best.", "moment1.", "moment2.", NULL};

int mr_checkpoint_new(mr_checkpoint *cp, const mr_params *params, mr_error *err)
{
    memset(cp, 0, sizeof *cp);
    cp->best_loss = cp->best_accuracy = NAN;
    cp->weights = mr_alloc(params->total, sizeof(float));
    cp->best = mr_alloc(params->total, sizeof(float));
    cp->moment1 = mr_alloc(params->total, sizeof(float));
    cp->moment2 = mr_alloc(params->total, sizeof(float));
    if (cp->weights && cp->best && cp->moment1 && cp->moment2) return 0;
    mr_checkpoint_free(cp);
    return mr_no_memory(err, "a checkpoint; lower layers, dim or expansion");
}

void mr_checkpoint_free(mr_checkpoint *cp)
{
    mr_free(cp->weights);
    mr_free(cp->best);
    mr_free(cp->moment1);
    mr_free(cp->moment2);
    memset(cp, 0, sizeof *cp);
}

/* ---- writing ---- */

/* Does this key belong into the files? Paths and derived keys do not; of [train] a model keeps only what evaluation needs. */
static int written(const mr_option *o, int section, int whole)
{
    if (o->flags & (MR_OPT_PATH | MR_OPT_DERIVED)) return 0;
    if (section != MR_SECTION_TRAIN) return section == MR_SECTION_TASK;
    return whole || !strcmp(o->key, "batch") || !strcmp(o->key, "context");
}

static int add_recipe(mr_st_writer *w, const mr_recipe *r, int whole)
{
    char key[64], value[MR_TEXT_MAX];
    int status = mr_st_add_meta(w, "task.name", r->task->type->name);
    for (int section = 0; section < MR_SECTIONS; section++)
        for (const mr_option *o = mr_recipe_table(r, section); !status && o->key; o++) {
            if (!written(o, section, whole)) continue;
            snprintf(key, sizeof key, "%s.%s", mr_section_names[section], o->key);
            status = mr_st_add_meta(w, key, mr_option_print(o, mr_recipe_settings(r, section), value));
        }
    if (status || !r->task->vocab) return status;
    char *vocab = mr_vocab_print(r->task->vocab);
    status = vocab ? mr_st_add_meta(w, "vocab", vocab) : MR_ENOMEM;
    mr_free(vocab);
    return status;
}

static int add_number(mr_st_writer *w, const char *key, double value)
{
    char text[MR_REAL_MAX] = "nan";
    return mr_st_add_meta(w, key, isfinite(value) ? mr_real_print(text, value, 0) : text);
}

static int add_count(mr_st_writer *w, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    return mr_st_add_meta(w, key, text);
}

static int add_state(mr_st_writer *w, const mr_checkpoint *cp, const mr_recipe *r, const mr_params *params)
{
    const float *const vectors[] = {cp->weights, cp->best, cp->moment1, cp->moment2};
    int status = 0;
    for (int i = 0; !status && state_prefixes[i]; i++) status = mr_model_add_vector(w, state_prefixes[i], params, vectors[i]);
    if (!status) status = add_count(w, "state.step", cp->step);
    if (!status) status = add_count(w, "state.evaluated", cp->evaluated);
    if (!status) status = add_count(w, "state.best-step", cp->best_step);
    if (!status) status = add_count(w, "state.stale", cp->stale);
    if (!status) status = add_count(w, "state.tokens", cp->tokens);
    if (!status) status = add_count(w, "state.log-offset", (int64_t)cp->log_offset);
    if (!status) status = add_number(w, "state.best-loss", cp->best_loss);
    if (!status) status = add_number(w, "state.best-accuracy", cp->best_accuracy);
    if (!status && r->task->data_sha256[0]) status = mr_st_add_meta(w, "state.data-sha256", r->task->data_sha256);
    return status;
}

/* One file of the folder. weights NULL: the whole state. */
static int write_file(const mr_checkpoint *cp, const char *dir, const char *name, const mr_recipe *r, const mr_params *params,
                      const float *weights, int64_t step, mr_error *err)
{
    char *path = mr_path_join(dir, name);
    mr_st_writer *w = mr_st_writer_new();
    int status = path && w ? mr_model_add_config(w, &r->config) : MR_ENOMEM;
    if (!status) status = add_recipe(w, r, weights == NULL);
    if (!status && weights) status = mr_model_add_vector(w, "", params, weights);
    if (!status && weights) status = add_count(w, "step", step);
    if (!status && !weights) status = add_state(w, cp, r, params);
    status = status ? mr_no_memory(err, name) : mr_st_write(w, path, err);
    mr_st_writer_free(w);
    mr_free(path);
    return status;
}

int mr_checkpoint_save(const mr_checkpoint *cp, const char *dir, const mr_recipe *r, const mr_params *params, mr_error *err)
{
    int status = write_file(cp, dir, "state.safetensors", r, params, NULL, cp->step, err);
    if (!status) status = write_file(cp, dir, "last.safetensors", r, params, cp->weights, cp->step, err);
    if (!status && cp->best_step) status = write_file(cp, dir, "model.safetensors", r, params, cp->best, cp->best_step, err);
    return status;
}

/* ---- reading ---- */

static int same_recipe(const mr_st *st, const char *path, const mr_recipe *r, mr_error *err)
{
    char key[64], value[MR_TEXT_MAX];
    const char *task = mr_st_meta(st, "task.name");
    if (!task || strcmp(task, r->task->type->name))
        return mr_fail(err, MR_ECONFIG, "%s: is a run of task %.60s, not %s; choose another --out", path, task ? task : "?", r->task->type->name);
    for (int section = 0; section < MR_SECTIONS; section++)
        for (const mr_option *o = mr_recipe_table(r, section); o->key; o++) {
            /* what the task derives follows from its keys and the vocabulary, which say better what differs */
            if (o->flags & (MR_OPT_PATH | MR_OPT_MAY_CHANGE | MR_OPT_DERIVED)) continue;
            snprintf(key, sizeof key, "%s.%s", mr_section_names[section], o->key);
            const char *was = mr_st_meta(st, key);
            if (!was && (o->flags & MR_OPT_SPARSE)) was = o->fallback;
            mr_option_print(o, mr_recipe_settings(r, section), value);
            if (!was) return mr_fail(err, MR_EFORMAT, "%s: its metadata lacks %s", path, key);
            if (strcmp(was, value))
                return mr_fail(err, MR_ECONFIG, "%s: the run has %s = %.100s, not %.100s; choose another --out, or leave the flag out",
                               path, o->key, was, value);
        }
    return 0;
}

static int same_data(const mr_st *st, const char *path, const mr_recipe *r, mr_error *err)
{
    const char *was = mr_st_meta(st, "vocab"), *sha256 = mr_st_meta(st, "state.data-sha256");
    char *now = r->task->vocab ? mr_vocab_print(r->task->vocab) : NULL;
    int same = was && now ? !strcmp(was, now) : !was && !r->task->vocab;
    mr_free(now);
    if (!same)
        return mr_fail(err, MR_EDATA, "%s: the run was started on other data (its characters differ); give the same --data", path);
    if (sha256 && strcmp(sha256, r->task->data_sha256))
        return mr_fail(err, MR_EDATA, "%s: the run was started on other data (SHA-256 %.64s, not %s); give the same --data", path,
                       sha256, r->task->data_sha256);
    return 0;
}

static int read_count(const mr_st *st, const char *path, const char *key, int64_t *value, mr_error *err)
{
    const char *text = mr_st_meta(st, key);
    char *end;
    *value = text ? strtoll(text, &end, 10) : -1;
    if (text && end != text && !*end && *value >= 0) return 0;
    return mr_fail(err, MR_EFORMAT, "%s: its metadata lacks a sound %s", path, key);
}

static double read_number(const mr_st *st, const char *key)
{
    const char *text = mr_st_meta(st, key);
    double value;
    return text && mr_real_read(text, &value) ? value : NAN;
}

static int read_state(mr_checkpoint *cp, const mr_st *st, const char *path, mr_error *err)
{
    int64_t offset = 0;
    int status = read_count(st, path, "state.step", &cp->step, err);
    if (!status) status = read_count(st, path, "state.evaluated", &cp->evaluated, err);
    if (!status) status = read_count(st, path, "state.best-step", &cp->best_step, err);
    if (!status) status = read_count(st, path, "state.stale", &cp->stale, err);
    if (!status && mr_st_meta(st, "state.tokens")) status = read_count(st, path, "state.tokens", &cp->tokens, err); /* a key that came later */
    if (!status) status = read_count(st, path, "state.log-offset", &offset, err);
    cp->log_offset = (uint64_t)offset;
    cp->best_loss = read_number(st, "state.best-loss");
    cp->best_accuracy = read_number(st, "state.best-accuracy");
    return status;
}

static int load_open(mr_checkpoint *cp, const mr_st *st, const char *path, const mr_recipe *r, const mr_params *params, mr_error *err)
{
    float *const vectors[] = {cp->weights, cp->best, cp->moment1, cp->moment2};
    mr_config config;
    int status = mr_model_read_config(st, path, state_meta_keys, &config, err);
    if (!status && config.weights != MR_WEIGHTS_F32)
        status = mr_fail(err, MR_EFORMAT, "%s: its weights are in 8 bits, which are not trained", path);
    if (!status) status = same_recipe(st, path, r, err);
    if (!status) status = same_data(st, path, r, err);
    if (!status) status = mr_model_check_tensors(st, path, state_prefixes, params, err);
    for (int i = 0; !status && state_prefixes[i]; i++)
        status = mr_model_read_vector(st, path, state_prefixes[i], params, vectors[i], err);
    return status ? status : read_state(cp, st, path, err);
}

int mr_checkpoint_load(mr_checkpoint *cp, const char *dir, const mr_recipe *r, const mr_params *params, mr_error *err)
{
    mr_st *st = NULL;
    char *path = mr_path_join(dir, "state.safetensors");
    if (!path) return mr_no_memory(err, dir);
    int status = mr_st_open(path, &st, err);
    if (!status) status = load_open(cp, st, path, r, params, err);
    mr_st_close(st);
    mr_free(path);
    return status;
}
