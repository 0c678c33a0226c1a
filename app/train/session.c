/* Model files opened for commands: the net, its task and the settings in the file's metadata. */
#include "train/session.h"

#include "core/file.h"
#include "core/mem.h"
#include "train/run_folder.h"

#include <string.h>
#include <sys/stat.h>

/* ---- opening ---- */

/* The task's settings, and those of [train] that the file has: "task.length", "train.context". */
static int read_settings(mr_session *s, const char *path, mr_error *err)
{
    mr_error inner;
    const char *key;
    for (int i = 0; (key = mr_net_meta_key(s->net, i)); i++) {
        const int section = !strncmp(key, "task.", 5)    ? MR_SECTION_TASK
                            : !strncmp(key, "train.", 6) ? MR_SECTION_TRAIN
                                                         : -1;
        if (section < 0 || !strcmp(key, "task.name")) continue;
        const mr_option *o = mr_option_find(mr_recipe_table(&s->recipe, section), strchr(key, '.') + 1);
        if (!o) return mr_fail(err, MR_EFORMAT, "%s: unknown metadata key \"%.200s\"", path, key);
        if (mr_option_parse(o, mr_recipe_settings(&s->recipe, section), mr_net_meta(s->net, key), &inner))
            return mr_fail(err, MR_EFORMAT, "%s: %.900s", path, inner.text);
    }
    return 0;
}

static int read_task(mr_session *s, const char *path, mr_error *err)
{
    const char *task = mr_net_meta(s->net, "task.name");
    mr_error inner;
    if (!task) return 0;
    if (mr_recipe_new(&s->recipe, task, &inner))
        return mr_fail(err, MR_EFORMAT, "%s: was made for a task that this minrnn does not know (%.60s)", path, task);
    return read_settings(s, path, err);
}

int mr_model_path(const char *given, char **path, mr_error *err)
{
    struct stat st;
    const int folder = !stat(given, &st) && S_ISDIR(st.st_mode);
    *path = folder ? mr_path_join(given, "model.safetensors") : mr_strdup(given);
    if (!*path) return mr_no_memory(err, "a name");
    if (!folder || mr_path_exists(*path)) return 0;
    mr_free(*path);
    *path = NULL;
    return mr_fail(err, MR_EIO,
                   "%s: a folder without model.safetensors; give a model file, or the folder of a run that has been "
                   "evaluated at least once",
                   given);
}

int mr_session_open(mr_session *s, const char *given, mr_context *ctx, mr_error *err)
{
    memset(s, 0, sizeof *s);
    int status = mr_model_path(given, &s->path, err);
    if (!status) status = mr_net_open(ctx, s->path, &s->net, err);
    if (!status) status = read_task(s, s->path, err);
    if (status) mr_session_close(s);
    return status;
}

void mr_session_close(mr_session *s)
{
    mr_net_free(s->net);
    mr_recipe_free(&s->recipe);
    mr_free(s->path);
    memset(s, 0, sizeof *s);
}

int mr_session_need_task(const mr_session *s, const char *path, mr_error *err)
{
    if (s->recipe.task) return 0;
    return mr_fail(err, MR_EINVAL, "%s: names no task, as models made by other programs do; name one with --task",
                   path);
}

int mr_session_need_text(const mr_session *s, const char *path, mr_error *err)
{
    if (mr_net_vocab(s->net)) return 0;
    if (!s->recipe.task) return mr_fail(err, MR_EINVAL, "%s: does not read text; it has no vocabulary", path);
    return mr_fail(err, MR_EINVAL, "%s: was made for the task %s and does not read text; try `minrnn eval`", path,
                   s->recipe.task->type->name);
}

/* ---- the task ---- */

/* Where the path points now: the copy moves with its run's folder. */
static void follow_copy(char value[MR_TEXT_MAX], const char *dir)
{
    char *copy = NULL;
    if (!mr_run_find_copy(value, dir, &copy, NULL) && copy && strlen(copy) < MR_TEXT_MAX) strcpy(value, copy);
    mr_free(copy);
}

/* Fills the paths that the session's task lacks. *data: that of its data. */
static void take_paths(mr_session *s, const mr_recipe *from, const char *dir, char const **data)
{
    char value[MR_TEXT_MAX];
    for (const mr_option *o = s->recipe.task->type->options; o->key; o++) {
        if (!(o->flags & MR_OPT_PATH) || *mr_option_print(o, s->recipe.task->settings, value)) continue;
        if (!*mr_option_print(o, from->task->settings, value)) continue;
        follow_copy(value, dir);
        mr_option_parse(o, s->recipe.task->settings, value, NULL);
        if (!strcmp(o->key, "data")) *data = (const char *)s->recipe.task->settings + o->offset;
    }
}

/* The SHA-256 of the data of the run whose folder this is, if it has a state. */
static void take_sha256(mr_session *s, const char *dir)
{
    char *state = mr_path_join(dir, "state.safetensors");
    size_t needed;
    if (!state || !mr_path_exists(state) ||
        mr_file_meta(state, "state.data-sha256", s->run_sha256, sizeof s->run_sha256, &needed, NULL))
        s->run_sha256[0] = 0;
    mr_free(state);
}

const char *mr_session_find_data(mr_session *s, const char *model)
{
    mr_recipe run = {0};
    const char *data = NULL;
    char *file = NULL, *dir = mr_model_path(model, &file, NULL) ? NULL : mr_path_folder(file);
    char *path = dir ? mr_path_join(dir, "recipe.ini") : NULL;
    if (path && mr_path_exists(path) && !mr_recipe_load(&run, path, NULL) && run.task->type == s->recipe.task->type)
        take_paths(s, &run, dir, &data);
    if (data) take_sha256(s, dir);
    mr_recipe_free(&run);
    mr_free(path);
    mr_free(dir);
    mr_free(file);
    return data;
}

int mr_session_other_data(const mr_session *s)
{
    return s->run_sha256[0] && strcmp(s->run_sha256, s->recipe.task->data_sha256);
}

int mr_session_open_task(mr_session *s, mr_error *err)
{
    int status = mr_recipe_open_task(&s->recipe, err);
    return status ? status : mr_recipe_suits(&s->recipe, s->net, err);
}

int mr_session_evaluate(mr_session *s, mr_batch *batch, mr_eval_tick *tick, void *user, const mr_stop *stop,
                        mr_score *score, mr_error *err)
{
    mr_shape shapes[2];
    mr_task *task = s->recipe.task;
    mr_task_shapes(task, shapes);
    int status = mr_net_reserve(s->net, NULL, &shapes[1], err);
    if (!status && mr_batch_new(batch, &task->interface, shapes[1].B, shapes[1].T))
        status = mr_no_memory(err, "batches; lower --batch");
    const mr_eval_options options = {.tick = tick, .user = user, .stop = stop};
    return status ? status : mr_evaluate(s->net, task, batch, &options, score, err);
}
