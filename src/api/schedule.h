/* How a net learns: the [train] keys that the library reads, and the optimiser's values at each step. */
#ifndef MR_API_SCHEDULE_H
#define MR_API_SCHEDULE_H

#include "core/options.h"
#include "model/params.h"
#include "model/recompute.h"

typedef enum mr_optimizer { MR_ADAMW, MR_ADAM } mr_optimizer;
typedef enum mr_schedule { MR_SCHEDULE_CONSTANT, MR_SCHEDULE_LINEAR, MR_SCHEDULE_COSINE } mr_schedule;

typedef enum mr_gradient_sum { MR_SUM_TREE, MR_SUM_ORDER } mr_gradient_sum;

typedef struct mr_learn_settings {
    int64_t steps, warmup, seed;
    double lr, weight_decay, clip, eps, betas[2];
    mr_optimizer optimizer;
    mr_schedule schedule;
    mr_decay_set decay_set;
    mr_recompute recompute;
    int64_t recompute_chunk;
    mr_gradient_sum gradient_sum;
} mr_learn_settings;

extern const mr_option mr_learn_table[];

/* The position of a step (1, 2, …) in the schedule, counted in steps. progress, 0 … 1, is how far a decaying schedule
 * must be at least, for example because of a time limit. */
double mr_schedule_position(const mr_learn_settings *settings, int64_t step, double progress);

/* The learning rate at a position: a rise from 0 over the warm-up, then constant, or decaying to 0 at steps + 1. */
double mr_learning_rate(const mr_learn_settings *settings, double position);

/* What the ops need to know about a step. */
mr_step mr_step_values(const mr_learn_settings *settings, int64_t step, double progress);

#endif
