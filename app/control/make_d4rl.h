/* Makes data sets in D4RL's format and of its kind from trained policies. They are D4RL-like, never D4RL. */
#ifndef MR_APP_CONTROL_MAKE_D4RL_H
#define MR_APP_CONTROL_MAKE_D4RL_H

#include "control/d4rl.h"
#include "control/env.h"

/* medium: one policy of middling strength; medium-replay: several, each better than the one before; medium-expert: the
 * medium set, then as many steps of a strong policy. */
typedef enum mr_d4rl_kind { MR_D4RL_MEDIUM, MR_D4RL_REPLAY, MR_D4RL_EXPERT } mr_d4rl_kind;
extern const char *const mr_d4rl_kinds[]; /* their names; ends with NULL */

/* Steps of a set with returns of their own, and what D4RL's have. The episode that the end of the part cuts off does
 * not count. */
typedef struct mr_d4rl_part {
    const char *name; /* "expert" */
    size_t first, steps, episodes;
    double mean, deviation;
    size_t published_steps;
    double published_mean, published_deviation;
} mr_d4rl_part;

typedef struct mr_d4rl_made {
    mr_d4rl set;
    mr_d4rl_part parts[2];
    int part_count;
} mr_d4rl_made;

typedef struct mr_d4rl_job {
    const mr_env_type *type;
    mr_d4rl_kind kind;
    const char *policies; /* the file policies.h5 */
    const char *assets;   /* as for mr_env_model_load */
    size_t steps;         /* of the whole set; 0: as many as D4RL's */
    int threads;          /* 0: all that this process may use; the result does not depend on it */
    uint64_t seed;
    /* called now and then, by one thread at a time; anything but 0 stops the work (MR_ESTOPPED); or NULL */
    int (*progress)(void *arg, size_t done, size_t total);
    void *arg;
} mr_d4rl_job;

size_t mr_d4rl_usual_steps(const mr_env_type *type, mr_d4rl_kind kind);
/* The caller frees made->set with mr_d4rl_free. Its made_by is set, and its episodes are found. */
int mr_d4rl_make(const mr_d4rl_job *job, mr_d4rl_made *made, mr_error *err);

#endif
