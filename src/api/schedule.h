/* How a net learns: the [train] keys that belong to the library, and what they make of a step's number. */
#ifndef MR_API_SCHEDULE_H
#define MR_API_SCHEDULE_H

#include "core/options.h"
#include "model/params.h"

typedef enum mr_optimizer { MR_ADAMW, MR_ADAM } mr_optimizer;
typedef enum mr_schedule { MR_SCHEDULE_CONSTANT, MR_SCHEDULE_LINEAR, MR_SCHEDULE_COSINE } mr_schedule;

typedef struct mr_learn_settings {
    int64_t steps, warmup, seed;
    double lr, weight_decay, clip, eps, betas[2];
    int optimizer, schedule, decay_set; /* mr_optimizer, mr_schedule, mr_decay_set */
} mr_learn_settings;

extern const mr_option mr_learn_table[];

/* What the ops are told about a step, which counts from 1. */
mr_step mr_step_values(const mr_learn_settings *settings, int64_t step);

#endif
