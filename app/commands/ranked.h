/* A command that mpirun, srun or torchrun started several times: the processes join, rank 0 speaks for all. */
#ifndef MR_APP_COMMANDS_RANKED_H
#define MR_APP_COMMANDS_RANKED_H

#include "commands/args.h"
#include "train/ranks.h"

extern const char *const mr_rank_engines[]; /* auto, mpi, nccl, off */

typedef struct mr_ranked {
    mr_context *ctx;
    mr_crew crew;
} mr_ranked;

/* What the ranks have in common is said once: until it has joined, every other rank than 0 is silent. If it ends
 * before, what it had to say comes three seconds later, unless the launcher has ended it because rank 0 failed, too. */
void mr_rank_mute(void);

/* The device and the threads of this rank, where it shares a machine with others. */
mr_common mr_rank_share_machine(const mr_common *common);

/* Opens the context, of a GPU the one that is this rank's, and joins the other ranks if there are any. */
int mr_ranked_begin(mr_ranked *ranked, const mr_common *common, const mr_join_options *options, mr_error *err);
/* Can the ranks train this: are there enough micro-batches, and in a fresh run, are gradients added in a tree? */
int mr_rank_check_recipe(const mr_crew *crew, const mr_recipe *recipe, int fresh, mr_error *err);
/* Prints an error: shared ones on rank 0, others where they happened. */
void mr_ranked_report(const mr_ranked *ranked, const char *command, int shared, const mr_error *err);
/* abort: ends this process and all others, which do not know that there is anything wrong. */
void mr_ranked_end(mr_ranked *ranked, int abort);

#endif
