/* What a run computes again to save memory. The library's plan chooses it where the run begins; from then on it is part
 * of the run, because chunks of another length round in other places. */
#ifndef MR_APP_TRAIN_RECOMPUTE_H
#define MR_APP_TRAIN_RECOMPUTE_H

#include "train/ranks.h"

/* Reserves the memory of a run's net, and writes what was chosen into the recipe. */
int mr_reserve_run(mr_recipe *recipe, mr_net *net, mr_error *err);
/* Have all ranks chosen the same? */
int mr_recompute_agree(const mr_recipe *recipe, mr_crew *crew, mr_error *err);
/* Reserves a net for the run's test batches alone, with the same chunks. */
int mr_reserve_scores(const mr_recipe *recipe, mr_net *net, mr_error *err);
/* A line that says it; "" where nothing is computed again. */
void mr_recompute_say(const mr_recipe *recipe, char *line, size_t size);

#endif
