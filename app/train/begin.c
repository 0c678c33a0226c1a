/* The beginning of a run: data that must be kept, the model that it starts from, the task. */
#include "train/begin.h"

#include "core/file.h"
#include "core/mem.h"
#include "tasks/source.h"
#include "train/init.h"
#include "train/run_folder.h"

#include <stdio.h>
#include <string.h>

static char *free_note(mr_recipe *r)
{
    int i = 0;
    while (i < MR_RECIPE_NOTES - 1 && r->notes[i][0]) i++;
    return r->notes[i];
}

/* ---- data that can be read only once ---- */

/* What recipe.ini cannot hold is refused before anything is written. */
static int check_recipe(const mr_recipe *r, mr_error *err)
{
    mr_strbuf text = {0};
    int status = mr_recipe_print(r, &text, err);
    mr_strbuf_free(&text);
    return status;
}

static int use_copy(mr_recipe *r, const mr_option *data, const char *path, mr_error *err)
{
    return mr_option_parse(data, r->task->settings, path, err);
}

/* recipe.ini is written before the copy, so that the copy is recognised as a run's however early it is killed. */
static int write_copy(mr_recipe *r, const char *names, const char *dir, const char *path, int resume, mr_error *err)
{
    int status = mr_run_check_free(r, dir, 1, resume, err);
    if (status) return status;
    r->begun = !mr_run_exists(dir);
    status = mr_run_write_recipe(r, dir, err);
    return status ? status : mr_source_copy(names, path, r->task->stop, err);
}

static int copy_data(mr_recipe *r, const mr_option *data, const char *names, const char *dir, const char *path,
                     int resume, mr_error *err)
{
    int lock = -1, status = mr_run_check_free(r, dir, 1, resume, err);
    if (!status) status = use_copy(r, data, path, err);
    if (!status) status = check_recipe(r, err);
    if (!status) status = mr_make_directory(dir, err);
    if (!status) status = mr_lock_directory(dir, &lock, err);
    if (!status) status = write_copy(r, names, dir, path, resume, err);
    mr_unlock(lock);
    return status;
}

/* Does the recipe name a copy that was never made? */
static int is_unfinished(const char *names, const char *path, const char *dir, int resume)
{
    char *whole = mr_path_absolute(path);
    const int named = whole && !strcmp(names, whole);
    mr_free(whole);
    return named && resume && !mr_path_exists(path) && mr_run_exists(dir) && !mr_run_has_state(dir);
}

/* A run that began from a file has no copy: a data.txt in its folder is somebody else's. */
static int check_copy(const char *path, const char *dir, mr_error *err)
{
    char data[MR_TEXT_MAX];
    if (mr_run_names_copy(dir, data)) return 0;
    data[strcspn(data, "\n")] = 0;
    return mr_fail(err, MR_EDATA, "%.300s: is not this run's: it began with --data %.300s; leave --data out", path,
                   data);
}

/* Where the run has a copy already, that is its data: it exists because the source could be read only once. A
 * folder that was moved has its copy elsewhere than the recipe says. */
static int keep_data(mr_recipe *r, const char *dir, int resume, mr_error *err)
{
    char names[MR_TEXT_MAX], *moved = NULL;
    const mr_option *data = mr_option_find(r->task->type->options, "data");
    if (!data || !(data->flags & MR_OPT_MANY) || !mr_option_print(data, r->task->settings, names)[0]) return 0;
    int status = mr_source_check(names, err);
    if (status) return status;
    char *path = mr_path_join(dir, "data.txt");
    if (!path) return mr_no_memory(err, dir);
    const int begun = resume && mr_run_exists(dir) && mr_path_exists(path), lasting = mr_source_is_lasting(names);
    if (begun && !lasting) status = check_copy(path, dir, err);
    if (begun && lasting) status = mr_run_find_copy(names, dir, &moved, err);
    if (!status && begun && (moved || !lasting)) {
        snprintf(free_note(r), sizeof *r->notes, "the data is %.150s, the copy made when the run began", path);
        status = use_copy(r, data, path, err);
    } else if (!status && is_unfinished(names, path, dir, resume))
        status = mr_fail(err, MR_EDATA, "%s: the run was ended before its data was copied; start it again with --data",
                         path);
    else if (!status && !lasting) status = copy_data(r, data, names, dir, path, resume, err);
    mr_free(moved);
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

/* Before anything is read or written. Where a run may be using the folder, that is told first. */
static int check_folder(const mr_recipe *r, const char *dir, int resume, mr_error *err)
{
    int lock = -1;
    if (!mr_run_exists(dir)) return mr_run_check_free(r, dir, 0, resume, err);
    if (resume) return 0;
    int status = mr_lock_directory(dir, &lock, err);
    if (!status) status = mr_run_check_free(r, dir, 0, resume, err);
    mr_unlock(lock);
    return status;
}

static int begin(mr_recipe *r, const char *dir, int resume, mr_error *err)
{
    int status = check_folder(r, dir, resume, err);
    if (!status) status = keep_data(r, dir, resume, err);
    if (!status) status = check_recipe(r, err);
    if (status) return status;
    char *state = mr_path_join(dir, "state.safetensors");
    if (!state) return mr_no_memory(err, dir);
    status = open_all(r, resume && mr_path_exists(state) ? state : NULL, err);
    mr_free(state);
    return status;
}

/* Rank 0 has begun the run, and made the copy of data that can be read only once. */
static int find_data(mr_recipe *r, const char *dir, mr_error *err)
{
    char names[MR_TEXT_MAX];
    const mr_option *data = mr_option_find(r->task->type->options, "data");
    if (!data || !(data->flags & MR_OPT_MANY) || !mr_option_print(data, r->task->settings, names)[0]) return 0;
    char *path = mr_path_join(dir, "data.txt");
    if (!path) return mr_no_memory(err, dir);
    int status = 0;
    if (!mr_source_is_lasting(names) || (!mr_path_exists(names) && mr_path_exists(path)))
        status = use_copy(r, data, path, err);
    mr_free(path);
    return status;
}

int mr_run_follow(mr_recipe *r, const char *dir, int resume, mr_error *err)
{
    int status = find_data(r, dir, err);
    char *state = mr_path_join(dir, "state.safetensors");
    if (!state) return mr_no_memory(err, dir);
    if (!status) status = open_all(r, resume && mr_path_exists(state) ? state : NULL, err);
    mr_free(state);
    return status;
}

int mr_run_begin(mr_recipe *r, const char *dir, int resume, mr_error *err)
{
    const int status = begin(r, dir, resume, err);
    if (status) mr_run_take_back(r, dir);
    if (status) return status;
    const char *relative = mr_recipe_relative(r);
    if (r->init_net)
        snprintf(free_note(r), sizeof *r->notes, "starts from the weights of %.150s (step %lld)", r->train.init,
                 (long long)mr_net_steps(r->init_net));
    if (relative)
        snprintf(free_note(r), sizeof *r->notes,
                 "%s stays relative in recipe.ini, which has no room for names from the root; resume from this folder",
                 relative);
    return 0;
}
