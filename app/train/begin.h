/* The beginning of a run: everything that comes before its first step and after the recipe was chosen. */
#ifndef MR_APP_TRAIN_BEGIN_H
#define MR_APP_TRAIN_BEGIN_H

#include "train/recipe.h"

/* Makes the recipe ready for mr_train in the folder `dir`: keeps a copy of data that cannot be read again (standard
 * input, pipes) in DIR/data.txt, which then is the recipe's data; takes over the model that `init` names; opens the
 * task; checks that a model can be made for it. */
int mr_run_begin(mr_recipe *recipe, const char *dir, int resume, mr_error *err);

/* The same on another rank, after rank 0's mr_run_begin: reads the data and writes nothing. */
int mr_run_follow(mr_recipe *recipe, const char *dir, int resume, mr_error *err);

#endif
