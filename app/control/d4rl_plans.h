/* Who acts in the data sets that mr_d4rl_make makes. */
#ifndef MR_APP_CONTROL_D4RL_PLANS_H
#define MR_APP_CONTROL_D4RL_PLANS_H

#include <stddef.h>

/* A share of a part's steps, by one policy with its own noise times `own` and normal noise of deviation `added`. */
typedef struct mr_d4rl_stage {
    double share;
    const char *algorithm;
    double own, added;
} mr_d4rl_stage;

enum { MR_D4RL_MOST_STAGES = 8 };

/* What D4RL's set has (v2: steps; mean and deviation of the returns of its episodes), and how ours comes near. */
typedef struct mr_d4rl_plan {
    size_t steps;
    double mean, deviation;
    mr_d4rl_stage stages[MR_D4RL_MOST_STAGES]; /* in the order of the file; a share of 0 ends them */
} mr_d4rl_plan;

typedef struct mr_d4rl_plans {
    mr_d4rl_plan medium, replay, expert;
} mr_d4rl_plans;

extern const mr_d4rl_plans mr_d4rl_all_plans[]; /* in the order of mr_env_types */

#endif
