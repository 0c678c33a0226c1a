/* A run that several processes train together: what they agree on, and what they do when one of them is late or gone.
 * A process alone is a crew of one, for which all of this costs nothing. */
#ifndef MR_APP_TRAIN_RANKS_H
#define MR_APP_TRAIN_RANKS_H

#include "core/stop.h"
#include "train/recipe.h"

/* Where a rank runs. */
typedef struct mr_rank_place {
    char host[64];
    int64_t process;
} mr_rank_place;

typedef struct mr_crew {
    mr_context *ctx;
    int rank, size;
    int cut;               /* ranks that share a sequence (--sequence-ranks) */
    const char *flags;     /* lines "name = value" of what else must be the same on all ranks; or NULL */
    mr_rank_place *places; /* [size]; NULL: alone */
    const mr_stop *stop;
    void (*tell)(void *user, const char *line); /* of a rank that keeps the others waiting; or NULL */
    void *tell_user;
    int patient;       /* 1: rank 0 may take its time */
    int lost;          /* a rank that has ended or does not answer, or −1 */
    int cut_off;       /* an exchange has failed: the others do not know of anything that happens here */
    double waited;     /* seconds, at the last call while waiting */
    double next_line;  /* at which of them the next line is due */
    double stop_began; /* of mr_seconds(): when *stop was seen while waiting; 0: not yet */
} mr_crew;

/* The crew of a context, which has joined its ranks or is alone. stop: given up waiting 10 s after it is set. */
int mr_crew_begin(mr_crew *crew, mr_context *ctx, int cut, const mr_stop *stop, mr_error *err);
void mr_crew_end(mr_crew *crew);

/* Waits for all ranks. Fails everywhere where one has failed, with the sentence of the lowest that did: "rank 2: …"
 * unless that is rank 0. */
int mr_crew_agree(mr_crew *crew, int status, mr_error *err);

/* Do all ranks have the same version, device, settings and data? Fails on all of them, naming the first that
 * differs. */
int mr_crew_same_run(mr_crew *crew, const mr_recipe *recipe, mr_error *err);
/* Have they the same weights, moments and step? dir: of the run. */
int mr_crew_same_net(mr_crew *crew, mr_net *net, const char *dir, mr_error *err);

/* Every rank's `bytes` to all, which has room for them; NULL: there was no memory for it. Every exchange of a crew
 * goes through this. */
int mr_crew_gather(mr_crew *crew, const void *mine, void *all, size_t bytes, mr_error *err);
/* The sum of a number over all ranks. */
int mr_crew_sum(mr_crew *crew, int64_t *value, mr_error *err);
/* Everybody's `bytes` become rank 0's; any[0 … flags − 1]: 1 where it is not 0 on any rank. */
int mr_crew_follow(mr_crew *crew, void *orders, size_t bytes, int *any, int flags, mr_error *err);

/* After a call failed with MR_ESTOPPED: was it because of a rank that is gone? Then says so in *err and returns 1.
 * step, saved: of the run; step −1: it has not begun. */
int mr_crew_lost(const mr_crew *crew, int64_t step, int64_t saved, const char *dir, mr_error *err);
/* Should this rank speak for all about that one? */
int mr_crew_speaks(const mr_crew *crew, int about);

#endif
