/* What a training step is told: learning rate and optimiser, from the settings and the number of the step. */
#ifndef MR_RUN_SCHEDULE_H
#define MR_RUN_SCHEDULE_H

#include "run/recipe.h"

/* step counts from 1. */
mr_step mr_step_values(const mr_train_settings *settings, int64_t step);

#endif
