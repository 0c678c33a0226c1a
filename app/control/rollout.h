/* Lets a policy act: many episodes at once, all simulations on the processor's cores, all streams of the net in one
 * batched step. */
#ifndef MR_APP_CONTROL_ROLLOUT_H
#define MR_APP_CONTROL_ROLLOUT_H

#include "control/tokens.h"
#include "core/stop.h"

enum { MR_ROLLOUT_AT_ONCE = 128 }; /* episodes side by side; more follow in waves of so many */

typedef struct mr_rollout_options {
    int episodes;        /* 1 … */
    uint64_t seed;       /* of the first states */
    double target;       /* the return that is asked for at the start; what was earned is taken off on the way */
    int threads;         /* for the simulations; 0: all */
    const mr_stop *stop; /* MR_ESTOPPED once it is set; may be NULL */
    void (*tick)(void *user, int done, int all); /* after each step of the episodes of a wave; may be NULL */
    void *user;
    /* called for each step of episode 0, before its action; may be NULL */
    void (*film)(void *user, const mr_env *env, int step);
    void *film_user;
} mr_rollout_options;

typedef struct mr_rollout {
    double *rewards;  /* [episodes] the sum of each */
    int *lengths;     /* [episodes] in steps */
    double mean, std; /* of the rewards; std (n − 1) is 0 for one episode */
    int64_t steps;    /* of all episodes */
    double seconds;
} mr_rollout;

int mr_rollout_run(mr_net *net, const mr_env_model *model, const mr_rollout_options *options, mr_rollout *out,
                   mr_error *err);
void mr_rollout_free(mr_rollout *rollout);

#endif
