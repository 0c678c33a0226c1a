/* Episodes of a policy, recorded many at a time, on all threads. One depends on the seed and its number alone. */
#ifndef MR_APP_CONTROL_RECORD_H
#define MR_APP_CONTROL_RECORD_H

#include "control/policy.h"
#include "core/pool.h"

#include <stddef.h>

/* Who acts: a policy with its own noise times a factor; then normal noise is added to the actions, which are cut to
 * ±1. */
typedef struct mr_actor {
    const mr_policy *policy;
    double own, added;
} mr_actor;

typedef struct mr_recording {
    size_t length;
    int terminal;                            /* it fell; otherwise the clock ended it */
    float *observations, *actions, *rewards; /* [length, …], in one piece that begins with observations */
} mr_recording;

/* Called now and then, by one thread at a time, with the steps done so far; anything but 0 stops the work. */
typedef int mr_record_progress(void *arg, size_t steps);

typedef struct mr_record_job {
    const mr_env_model *model;
    mr_actor actor;
    uint64_t seed, first; /* the number of the first episode */
    int count;
    mr_pool *pool;
    int threads;
    mr_record_progress *progress; /* or NULL */
    void *arg;
} mr_record_job;

/* Records episodes first … first + count − 1 into out[count], zeroed before; the caller frees them, also after a
 * failure. MR_ESTOPPED: by the progress function. */
int mr_record(const mr_record_job *job, mr_recording *out, mr_error *err);
void mr_recordings_free(mr_recording *list, int count);

#endif
