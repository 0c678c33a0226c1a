/* Makes training batches ahead of time, in a thread of its own, while the step before runs. */
#ifndef MR_APP_TRAIN_PREFETCH_H
#define MR_APP_TRAIN_PREFETCH_H

#include "tasks/task.h"

typedef struct mr_prefetch mr_prefetch;

/* Batches of steps step, step+1, …, of each the micro-batches first … end − 1, in that order, checked for `net`. */
int mr_prefetch_new(const mr_task *task, const mr_net *net, int64_t step, int first, int end, mr_prefetch **out,
                    mr_error *err);
/* Valid until the next call; NULL: the task made a batch that the net cannot use. */
const mr_batch *mr_prefetch_next(mr_prefetch *batches, mr_error *err);
void mr_prefetch_free(mr_prefetch *batches);

#endif
