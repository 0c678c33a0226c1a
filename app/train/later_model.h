/* A disk that was full leaves a model that is later than the state: the best model is a quarter of a state's size, and
 * is saved where that could not be. Until the run has come to its step again, that model is worth more than those
 * before it. */
#ifndef MR_APP_TRAIN_LATER_MODEL_H
#define MR_APP_TRAIN_LATER_MODEL_H

#include "core/status.h"

#include <stdint.h>

/* *later: the step of DIR/model.safetensors, if it is a whole model of the same run as the state, and later than
 * `step`; otherwise 0. Fails only without memory. */
int mr_later_model(const char *dir, const char *state, int64_t step, int64_t *later, mr_error *err);

#endif
