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
    mr_optimizer optimizer;
    mr_schedule schedule;
    mr_decay_set decay_set;
} mr_learn_settings;

extern const mr_option mr_learn_table[];

/* Where a step (from 1) stands in the schedule, counted in steps. progress, 0 … 1, is how far the schedule must have
 * come for another reason, such as a limit of time: a schedule that decays then moves on to that share of its steps. */
double mr_schedule_position(const mr_learn_settings *settings, int64_t step, double progress);

/* The learning rate at a position: a rise from 0 over the warm-up, then constant, or decaying to 0 at steps + 1. */
double mr_learning_rate(const mr_learn_settings *settings, double position);

/* What the ops are told about a step. */
mr_step mr_step_values(const mr_learn_settings *settings, int64_t step, double progress);

#endif
