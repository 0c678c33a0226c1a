#include "train/session.h"

#include "core/mem.h"
#include "model/file.h"
#include "model/quantize.h"
#include "train/checkpoint.h"

#include <stdlib.h>
#include <string.h>

/* The task's settings, and of [train] what is there: "task.length", "train.context". */
static int read_settings(mr_session *s, const mr_st *st, const char *path, mr_error *err)
{
    mr_error inner;
    for (int i = 0; i < mr_st_meta_count(st); i++) {
        const char *key, *value;
        mr_st_meta_at(st, i, &key, &value);
        if (!strcmp(key, "task.name")) continue;
        int section = !strncmp(key, "task.", 5) ? MR_SECTION_TASK : !strncmp(key, "train.", 6) ? MR_SECTION_TRAIN : -1;
        if (section < 0) continue;
        const mr_option *o = mr_option_find(mr_recipe_table(&s->recipe, section), strchr(key, '.') + 1);
        if (!o) return mr_fail(err, MR_EFORMAT, "%s: unknown metadata key \"%.200s\"", path, key);
        if (mr_option_parse(o, mr_recipe_settings(&s->recipe, section), value, &inner))
            return mr_fail(err, MR_EFORMAT, "%s: %.900s", path, inner.text);
    }
    return 0;
}

static int read_meta(mr_session *s, const mr_st *st, const char *path, mr_error *err)
{
    const char *task = mr_st_meta(st, "task.name");
    mr_error inner;
    mr_config config;
    if (mr_st_meta(st, "state.step"))
        return mr_fail(err, MR_EFORMAT, "%s: is the state of a run; its models are model.safetensors and last.safetensors beside it", path);
    int status = mr_model_read_config(st, path, mr_model_meta_keys, &config, err);
    if (status) return status;
    if (!task || mr_recipe_new(&s->recipe, task, &inner))
        return mr_fail(err, MR_EFORMAT, "%s: made for a task that this minrnn does not know (%.60s)", path, task ? task : "none named");
    s->recipe.config = config;
    status = mr_model_read_step(&s->step, st, path, err);
    if (!status) status = read_settings(s, st, path, err);
    return status ? status : mr_model_read_vocab(&s->vocab, &s->recipe.config, st, path, err);
}

int mr_session_open(mr_session *s, const char *path, mr_dev *dev, int plan_B, int plan_T, mr_error *err)
{
    mr_st *st = NULL;
    memset(s, 0, sizeof *s);
    int status = mr_st_open(path, &st, err);
    if (!status) status = read_meta(s, st, path, err);
    if (!status) status = mr_model_new(&s->recipe.config, dev, MR_DECAY_ALL, &s->model, err);
    if (!status) status = mr_model_read_weights(s->model, st, path, plan_B, plan_T, err);
    mr_st_close(st);
    if (status) mr_session_close(s);
    return status;
}

void mr_session_close(mr_session *s)
{
    mr_model_free(s->model);
    mr_vocab_free(&s->vocab);
    mr_recipe_free(&s->recipe);
    memset(s, 0, sizeof *s);
}

int mr_session_need_text(const mr_session *s, const char *path, mr_error *err)
{
    if (s->vocab.size) return 0;
    return mr_fail(err, MR_EINVAL, "%s: made for the task %s, it does not read text; try `minrnn eval`", path, s->recipe.task->type->name);
}

/* ---- in 8 bits ---- */

typedef struct vectors {
    float *reals;
    int8_t *bytes;
} vectors;

static int write_int8(const mr_session *s, const mr_model *small, const mr_st *st, const char *path, mr_error *err)
{
    const mr_params *params = mr_model_params(s->model), *layout = mr_model_params(small);
    const mr_quants *quants = mr_model_quants(small);
    vectors v = {mr_alloc(layout->total, sizeof *v.reals), mr_alloc(quants->bytes, 1)};
    float *weights = mr_alloc(params->total, sizeof *weights);
    int status = v.reals && v.bytes && weights ? 0 : mr_no_memory(err, path);
    if (!status) {
        mr_model_get(s->model, MR_WEIGHTS, weights);
        mr_quantize_vector(params, weights, layout, quants, v.reals, v.bytes);
        status = mr_quants_save(path, st, layout, quants, v.reals, v.bytes, err);
    }
    mr_free(v.reals);
    mr_free(v.bytes);
    mr_free(weights);
    return status;
}

int mr_session_save_int8(const mr_session *s, const char *from, const char *path, mr_error *err)
{
    mr_config config = s->recipe.config;
    mr_model *small = NULL;
    mr_st *st = NULL;
    if (config.weights != MR_WEIGHTS_F32) return mr_fail(err, MR_EINVAL, "%s: its weights are in 8 bits already", from);
    config.weights = MR_WEIGHTS_INT8;
    int status = mr_model_new(&config, mr_model_dev(s->model), MR_DECAY_ALL, &small, err);
    if (!status) status = mr_st_open(from, &st, err);
    if (!status) status = write_int8(s, small, st, path, err);
    mr_st_close(st);
    mr_model_free(small);
    return status;
}

/* ---- scoring ---- */

static int same_interface(const mr_interface *a, const mr_interface *b)
{
    return a->input == b->input && a->inputs == b->inputs && a->head == b->head && a->loss == b->loss && a->outputs == b->outputs;
}

static int open_task(mr_session *s, mr_error *err)
{
    mr_interface have = mr_config_interface(&s->recipe.config);
    int status = mr_recipe_open(&s->recipe, err);
    if (status) return status;
    if (!same_interface(&have, &s->recipe.task->face))
        return mr_fail(err, MR_ECONFIG, "task %s needs a model with %d inputs and %d outputs; this one has %d and %d",
                       s->recipe.task->type->name, s->recipe.task->face.inputs, s->recipe.task->face.outputs, have.inputs, have.outputs);
    return 0;
}

int mr_session_evaluate(mr_session *s, mr_batch *batch, mr_eval_tick *tick, void *user, const mr_stop *stop, mr_score *score, mr_error *err)
{
    int status = open_task(s, err);
    if (status) return status;
    mr_task *task = s->recipe.task;
    mr_shape shapes[2];
    mr_task_shapes(task, shapes);
    status = mr_model_plan_shapes(s->model, shapes + 1, 1, 0, err);
    if (!status && mr_batch_new(batch, &task->face, shapes[1].B, shapes[1].T)) status = mr_no_memory(err, "batches; lower --batch");
    return status ? status : mr_evaluate(s->model, task, batch, tick, user, stop, score, err);
}
