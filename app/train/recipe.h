/* A recipe: a short text that names the task, the model and how it is trained. Keys under [task], [model] and [train];
 * the same keys are flags. */
#ifndef MR_APP_TRAIN_RECIPE_H
#define MR_APP_TRAIN_RECIPE_H

#include "core/strbuf.h"
#include "tasks/task.h"
#include "train/keys.h"

enum { MR_RECIPE_NOTES = 3 };

typedef struct mr_recipe {
    mr_task *task; /* made, its settings filled; opened by mr_recipe_open */
    mr_model_settings model;
    mr_train_settings train;
    /* of a run that starts from a model (train/init.h): the model until its weights were copied, and its vocabulary */
    mr_net *init_net;
    mr_context *init_ctx;
    mr_vocab *vocab;
    /* by mr_run_begin: notes on where data and weights come from, printed when the run starts; may be empty */
    char notes[MR_RECIPE_NOTES][256];
    int begun; /* mr_run_begin wrote recipe.ini into a folder that had no run */
} mr_recipe;

/* `name`: a built-in recipe, or the path of an INI file (anything with a '/' or ending in ".ini"). */
int mr_recipe_load(mr_recipe *recipe, const char *name, mr_error *err);
int mr_recipe_is_path(const char *name);
int mr_recipe_is_known(const char *name); /* built in */
/* The recipe.ini of a run folder. Keys that it lacks because it is older than they are mean what the run did then. */
int mr_recipe_load_run(mr_recipe *recipe, const char *path, mr_error *err);
/* The defaults of every key, for one task. */
int mr_recipe_new(mr_recipe *recipe, const char *task, mr_error *err);
void mr_recipe_free(mr_recipe *recipe);

/* One key, in whichever section it belongs to. */
int mr_recipe_set(mr_recipe *recipe, const char *key, const char *value, mr_error *err);

/* Could a model be made of it, whatever the task? What it finds is known without any data. */
int mr_recipe_check_model(const mr_recipe *recipe, mr_error *err);

/* Opens the task with the batch, context and seed of the recipe. */
int mr_recipe_open_task(mr_recipe *recipe, mr_error *err);
/* The same, and checks that a model can be made for it. */
int mr_recipe_open(mr_recipe *recipe, mr_error *err);

/* The net of an opened recipe, new, with the metadata about task and training that its files will have. Keys that the
 * library settles (heads and window of attention) are then in the recipe too. */
int mr_recipe_net(mr_recipe *recipe, mr_context *ctx, mr_net **out, mr_error *err);

/* Does a net have the inputs, head, outputs and loss that the recipe's task, which is open, needs? */
int mr_recipe_suits(const mr_recipe *recipe, const mr_net *net, mr_error *err);

/* Takes [model] from a net. */
int mr_recipe_take_model(mr_recipe *recipe, const mr_net *net, mr_error *err);

/* Frees the model that the run starts from. */
void mr_recipe_drop_init(mr_recipe *recipe);

/* One key of [model] as text. */
const char *mr_recipe_model_key(const mr_recipe *recipe, const char *key, char out[MR_TEXT_MAX]);

/* The complete recipe as INI text. An error when it would not be read back as it is (a path that is long or has " ;" in
 * it). */
int mr_recipe_print(const mr_recipe *recipe, mr_strbuf *out, mr_error *err);

/* The key whose paths mr_recipe_print leaves relative because absolute ones would not fit a line or the key; NULL:
 * none. */
const char *mr_recipe_relative(const mr_recipe *recipe);

/* The sections: names, tables and settings. */
enum { MR_SECTION_TASK, MR_SECTION_MODEL, MR_SECTION_TRAIN, MR_SECTIONS };
extern const char *const mr_section_names[MR_SECTIONS];
const mr_option *mr_recipe_table(const mr_recipe *recipe, int section);
void *mr_recipe_settings(const mr_recipe *recipe, int section);

#endif
