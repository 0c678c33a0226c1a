/* Data for offline reinforcement learning in D4RL's format: steps one after the other, cut into episodes. */
#ifndef MR_APP_CONTROL_D4RL_H
#define MR_APP_CONTROL_D4RL_H

#include "core/sha256.h"
#include "core/status.h"

#include <stddef.h>
#include <stdint.h>

/* Steps first … first + length − 1 of a set. */
typedef struct mr_episode {
    size_t first, length;
    double reward; /* the sum of its rewards */
} mr_episode;

typedef struct mr_d4rl {
    size_t steps;
    int observed, acted;           /* numbers in an observation and in an action */
    float *observations, *actions; /* [steps, observed], [steps, acted]: seen before the step, and done in it */
    float *rewards;                /* [steps] */
    uint8_t *terminals, *timeouts; /* [steps] 1: the episode ended with this step: by failing, or by the clock */
    mr_episode *episodes;          /* in order; the last one may have been cut off */
    size_t episode_count;
    char made_by[64];            /* "D4RL-like, by minrnn 0.2.0" as written by mr_d4rl_write; "": not made here */
    char sha256[MR_SHA256_TEXT]; /* of the file; set by mr_d4rl_load */
} mr_d4rl;

/* Reads observations, actions, rewards, terminals and, where there is one, timeouts; without timeouts, an episode also
 * ends after 1,000 steps. Refuses, with the file, the array and the step: arrays that are missing, of other lengths or
 * dimensions, empty, or with NaN or infinity. Actions outside ±1 stay as they are: some files have what the policy
 * asked for, before the simulator cut it. */
int mr_d4rl_load(const char *path, mr_d4rl *out, mr_error *err);

/* Allocates arrays for so many steps, zeroed. */
int mr_d4rl_new(mr_d4rl *set, size_t steps, int observed, int acted, mr_error *err);
/* Finds the episodes from terminals and timeouts. */
int mr_d4rl_cut(mr_d4rl *set, mr_error *err);
/* Writes it, atomically, with set->made_by as the attribute "made_by" of the file. The same set gives the same
 * bytes. */
int mr_d4rl_write(const mr_d4rl *set, const char *path, mr_error *err);
void mr_d4rl_free(mr_d4rl *set); /* all zero is fine */

#endif
