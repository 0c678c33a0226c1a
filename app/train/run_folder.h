/* What a folder holds before a run begins in it: a run, parts of one, or files of somebody else. */
#ifndef MR_APP_TRAIN_RUN_FOLDER_H
#define MR_APP_TRAIN_RUN_FOLDER_H

#include "train/recipe.h"

/* Does the folder hold a run (a recipe, a state or a model)? A state to continue from? */
int mr_run_exists(const char *dir);
int mr_run_has_state(const char *dir);
int mr_run_has_recipe(const char *file); /* is there a recipe.ini beside the file? */

/* Refuses a folder that has a model and no state, or one that cannot be read: training there would overwrite the
 * model. */
int mr_run_check_model(const char *dir, mr_error *err);

/* May a run of this recipe begin in the folder, or with `resume` continue there? Refuses a run that is not to be
 * resumed, a model without a state, and any file that the run would overwrite and that no run wrote; copies: it will
 * write data.txt as well. A run writes recipe.ini first, so that what a killed one left is known as its own. */
int mr_run_check_free(const mr_recipe *recipe, const char *dir, int copies, int resume, mr_error *err);

/* Writes recipe.ini, which makes the folder that of a run. */
int mr_run_write_recipe(const mr_recipe *recipe, const char *dir, mr_error *err);

/* Removes what mr_run_begin wrote for a run that failed before its first step: the next try is a new run. */
void mr_run_take_back(const mr_recipe *recipe, const char *dir);

/* A run that keeps a copy of its data names it from the root. Was the folder moved since, so that `names` is missing,
 * or the copy of another run, and the copy is in `dir`? Then *path is that copy, freed by mr_free; otherwise NULL. */
int mr_run_find_copy(const char *names, const char *dir, char **path, mr_error *err);

/* May DIR/data.txt be the run's copy: does its recipe.ini name one, or is that missing? `data`: what it names, "". */
int mr_run_names_copy(const char *dir, char data[MR_TEXT_MAX]);

#endif
