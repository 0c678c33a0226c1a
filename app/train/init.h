/* Starting a run from the weights of a model that exists: fine-tuning (`--init`). */
#ifndef MR_APP_TRAIN_INIT_H
#define MR_APP_TRAIN_INIT_H

#include "train/recipe.h"

/* Before the recipe's task is opened, where recipe->train.init names a model (a file or a run's folder). The recipe
 * takes over its configuration, dropout and gate-init aside, and its vocabulary. `state`: the state of the run that is
 * continued, whose vocabulary is used and whose weights are not needed here; NULL: the run is new. */
int mr_init_open(mr_recipe *recipe, const char *state, mr_error *err);

/* After it was opened: does the model suit the task? */
int mr_init_check(const mr_recipe *recipe, mr_error *err);

/* Copies the model's weights into the new net, and frees the model. Without one it does nothing. */
int mr_init_weights(mr_recipe *recipe, mr_net *net, mr_error *err);

/* Is it a key that the model decides and a flag cannot? `section` as in mr_recipe_table. */
int mr_init_decides(int section, const char *key);

#endif
