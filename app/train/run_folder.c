/* The folder of a run: what may be written there, and what is somebody else's. */
#include "train/run_folder.h"

#include "core/file.h"
#include "core/mem.h"
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

int mr_run_check_model(const char *dir, mr_error *err)
{
    if (mr_run_has_state(dir) || !has_model(dir)) return 0;
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
    if (resume && mr_run_has_state(dir)) return 0;
    int status = mr_run_check_model(dir, err);
    if (status) return status;
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

int mr_run_find_copy(const char *names, const char *dir, char **path, mr_error *err)
{
    *path = NULL;
    if (strcmp(mr_path_name(names), "data.txt") || mr_path_exists(names)) return 0;
    *path = mr_path_join(dir, "data.txt");
    if (!*path) return mr_no_memory(err, dir);
    if (mr_path_exists(*path)) return 0;
    mr_free(*path);
    *path = NULL;
    return 0;
}
