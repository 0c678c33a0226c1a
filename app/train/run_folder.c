/* The folder of a run: what may be written there, and what is somebody else's. */
#include "train/run_folder.h"

#include "core/file.h"
#include "core/mem.h"
#include "core/safetensors.h"
#include "tasks/source.h"
#include "train/ini.h"

#include <string.h>
#include <unistd.h>

static int in_folder(const char *dir, const char *name)
{
    char *path = mr_path_join(dir, name);
    int there = path && mr_path_exists(path);
    mr_free(path);
    return there;
}

int mr_run_has_state(const char *dir) { return in_folder(dir, "state.safetensors"); }

static int has_model(const char *dir)
{
    return in_folder(dir, "model.safetensors") || in_folder(dir, "last.safetensors");
}

int mr_run_exists(const char *dir) { return mr_run_has_state(dir) || in_folder(dir, "recipe.ini") || has_model(dir); }

/* A state that is no safetensors file. Whatever else may be wrong with it is found when it is loaded. */
static int check_state(const char *dir, mr_error *err)
{
    mr_error inner = {0};
    mr_st *st = NULL;
    char *path = mr_path_join(dir, "state.safetensors");
    const int status = path ? mr_st_open(path, &st, &inner) : mr_no_memory(&inner, dir);
    mr_st_close(st);
    mr_free(path);
    if (!status) return 0;
    if (status != MR_EFORMAT && status != MR_EDATA) return mr_fail(err, status, "%s", inner.text);
    if (!has_model(dir)) return mr_fail(err, status, "%.600s; the run is lost: remove %.300s", inner.text, dir);
    return mr_fail(err, status, "%.500s; train further from its model with --init %.200s --out ANOTHER", inner.text,
                   dir);
}

int mr_run_check_model(const char *dir, mr_error *err)
{
    if (mr_run_has_state(dir)) return check_state(dir, err);
    if (!has_model(dir)) return 0;
    return mr_fail(err, MR_EDATA,
                   "%.300s: has a model but no state to resume from; train further from it with --init %.300s --out "
                   "ANOTHER, or remove it to start over",
                   dir, dir);
}

/* ---- files of others ---- */

/* A run's recipe.ini has every key. One that lacks these was written by hand. */
static int is_complete(const char *path)
{
    static const char *const keys[][2] = {
        {"task", "name"}, {"model", "dim"}, {"train", "batch"}, {"train", "steps"}, {"train", "seed"}};
    mr_ini lines = {0};
    char *text = NULL;
    size_t size;
    int complete = !mr_file_read(path, 1 << 16, &text, &size, NULL) && !mr_ini_read(&lines, path, text, NULL);
    for (size_t i = 0; complete && i < sizeof keys / sizeof *keys; i++)
        complete = mr_ini_find(&lines, keys[i][0], keys[i][1]) != NULL;
    mr_ini_free(&lines);
    mr_free(text);
    return complete;
}

static int check_file(const char *dir, const char *name, mr_error *err)
{
    if (!in_folder(dir, name)) return 0;
    return mr_fail(err, MR_EDATA,
                   "%.300s: has a file %s that no run wrote, and this run would overwrite it; give another --out, or "
                   "move the file",
                   dir, name);
}

static int check_files(const mr_recipe *r, const char *dir, int copies, mr_error *err)
{
    int status = check_file(dir, "log.jsonl", err);
    if (!status) status = check_file(dir, "curve.svg", err);
    if (!status && r->train.log & MR_LOG_CSV) status = check_file(dir, "log.csv", err);
    if (!status && copies) status = check_file(dir, "data.txt", err);
    return status;
}

int mr_run_check_free(const mr_recipe *r, const char *dir, int copies, int resume, mr_error *err)
{
    int status = mr_run_check_model(dir, err);
    if (status || (resume && mr_run_has_state(dir))) return status;
    char *recipe = mr_path_join(dir, "recipe.ini");
    if (!recipe) return mr_no_memory(err, dir);
    const int there = mr_path_exists(recipe), complete = there && is_complete(recipe);
    mr_free(recipe);
    if (there && !complete && !mr_run_has_state(dir)) return check_file(dir, "recipe.ini", err);
    if (complete && resume) return 0;
    if (there || mr_run_has_state(dir))
        return mr_fail(err, MR_EDATA, "%s: holds a run already; add --resume to continue it, or choose another --out",
                       dir);
    return check_files(r, dir, copies, err);
}

/* ---- the run's own files ---- */

int mr_run_write_recipe(const mr_recipe *r, const char *dir, mr_error *err)
{
    mr_strbuf text = {0};
    char *path = mr_path_join(dir, "recipe.ini");
    int status = path ? mr_recipe_print(r, &text, err) : mr_no_memory(err, "the recipe");
    if (!status) status = mr_file_replace(path, text.data, text.size, err);
    mr_strbuf_free(&text);
    mr_free(path);
    return status;
}

void mr_run_take_back(const mr_recipe *r, const char *dir)
{
    static const char *const names[] = {"data.txt", "recipe.ini"}; /* so that a kill in between leaves no lone copy */
    for (int i = 0; r->begun && i < 2; i++) {
        char *path = mr_path_join(dir, names[i]);
        if (path) unlink(path);
        mr_free(path);
    }
}

/* ---- the copy of the data ---- */

static int is_copy_name(const char *names) { return !strchr(names, '\n') && !strcmp(mr_path_name(names), "data.txt"); }

int mr_run_has_recipe(const char *file)
{
    char *dir = mr_path_folder(file);
    const int there = dir && in_folder(dir, "recipe.ini");
    mr_free(dir);
    return there;
}

int mr_run_find_copy(const char *names, const char *dir, char **path, mr_error *err)
{
    *path = NULL;
    if (!is_copy_name(names) || (mr_path_exists(names) && !mr_run_has_recipe(names))) return 0;
    *path = mr_path_join(dir, "data.txt");
    if (!*path) return mr_no_memory(err, dir);
    if (mr_path_exists(*path) && !mr_source_has_file(names, *path)) return 0;
    mr_free(*path);
    *path = NULL;
    return 0;
}

int mr_run_names_copy(const char *dir, char data[MR_TEXT_MAX])
{
    mr_recipe run = {0};
    char *path = mr_path_join(dir, "recipe.ini");
    const int there = path && mr_path_exists(path) && !mr_recipe_load_run(&run, path, NULL);
    const mr_option *o = there ? mr_option_find(run.task->type->options, "data") : NULL;
    data[0] = 0;
    if (o) mr_option_print(o, run.task->settings, data);
    mr_recipe_free(&run);
    mr_free(path);
    return !there || is_copy_name(data);
}
