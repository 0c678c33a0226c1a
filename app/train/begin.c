/* The beginning of a run: data that must be kept, the model that it starts from, the task. */
#include "train/begin.h"

#include "core/file.h"
#include "core/mem.h"
#include "tasks/source.h"
#include "train/init.h"
#include "train/train.h"

#include <stdio.h>
#include <string.h>

/* ---- data that can be read only once ---- */

/* Makes `path` the recipe's only data. */
static int use_copy(mr_recipe *r, const mr_option *data, const char *path, mr_error *err)
{
    return mr_option_parse(data, r->task->settings, path, err);
}

/* recipe.ini is written later than the rest. What it cannot hold is refused before anything is written. */
static int check_recipe(const mr_recipe *r, mr_error *err)
{
    mr_strbuf text = {0};
    int status = mr_recipe_print(r, &text, err);
    mr_strbuf_free(&text);
    return status;
}

static int copy_data(mr_recipe *r, const mr_option *data, const char *names, const char *dir, const char *path,
                     mr_error *err)
{
    int lock = -1, status = use_copy(r, data, path, err);
    if (!status) status = check_recipe(r, err);
    if (!status) status = mr_make_directory(dir, err);
    if (!status) status = mr_lock_directory(dir, &lock, err);
    if (!status) status = mr_source_copy(names, path, r->task->stop, err);
    mr_unlock(lock);
    return status;
}

/* Where the run has a copy already, that is its data: it is there because there is nothing else to read again. A
 * folder that was moved has its copy elsewhere than the recipe says. */
static int keep_data(mr_recipe *r, const char *dir, int resume, mr_error *err)
{
    char names[MR_TEXT_MAX];
    const mr_option *data = mr_option_find(r->task->type->options, "data");
    if (!data || !(data->flags & MR_OPT_MANY) || !mr_option_print(data, r->task->settings, names)[0]) return 0;
    int status = mr_source_check(names, err);
    if (status) return status;
    char *path = mr_path_join(dir, "data.txt");
    if (!path) return mr_no_memory(err, dir);
    const int begun = resume && mr_run_exists(dir) && mr_path_exists(path), lasting = mr_source_is_lasting(names);
    const int moved = lasting && !mr_path_exists(names) && !strcmp(mr_path_name(names), "data.txt");
    if (begun && (moved || !lasting)) {
        snprintf(r->note, sizeof r->note, "the data is %.150s, the copy made when the run began", path);
        status = use_copy(r, data, path, err);
    } else if (!lasting) {
        status = mr_run_check_free(dir, resume, err);
        if (!status) status = copy_data(r, data, names, dir, path, err);
    }
    mr_free(path);
    return status;
}

/* ---- all of it ---- */

static int open_all(mr_recipe *r, const char *state, mr_error *err)
{
    int status = mr_init_open(r, state, err);
    if (!status) status = mr_recipe_open(r, err);
    return status ? status : mr_init_check(r, err);
}

int mr_run_begin(mr_recipe *r, const char *dir, int resume, mr_error *err)
{
    int status = keep_data(r, dir, resume, err);
    if (!status) status = check_recipe(r, err);
    if (status) return status;
    char *state = mr_path_join(dir, "state.safetensors");
    if (!state) return mr_no_memory(err, dir);
    status = open_all(r, resume && mr_path_exists(state) ? state : NULL, err);
    mr_free(state);
    if (!status && r->init_net)
        snprintf(r->note, sizeof r->note, "starts from the weights of %.150s (step %lld)", r->train.init,
                 (long long)mr_net_steps(r->init_net));
    return status;
}
