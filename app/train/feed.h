/* The feed: makes the next batch in a thread of its own while the step before runs. */
#ifndef MR_APP_TRAIN_FEED_H
#define MR_APP_TRAIN_FEED_H

#include "tasks/task.h"

typedef struct mr_feed mr_feed;

/* Batches of steps first, first+1, …, `accumulate` micro-batches each, in that order, looked through for `net`. */
int mr_feed_new(const mr_task *task, const mr_net *net, int64_t first, int accumulate, mr_feed **out, mr_error *err);
/* Valid until the next call; NULL: the task made a batch that the net cannot take. */
const mr_batch *mr_feed_next(mr_feed *feed, mr_error *err);
void mr_feed_free(mr_feed *feed);

#endif
