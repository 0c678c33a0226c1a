/* The feed: makes the next batch in a thread of its own while the step before runs. */
#ifndef MR_APP_TRAIN_FEED_H
#define MR_APP_TRAIN_FEED_H

#include "tasks/task.h"

typedef struct mr_feed mr_feed;

/* Batches of steps first, first+1, …, `accumulate` micro-batches each, in that order. */
int mr_feed_new(const mr_task *task, int64_t first, int accumulate, mr_feed **out, mr_error *err);
const mr_batch *mr_feed_next(mr_feed *feed); /* valid until the next call */
void mr_feed_free(mr_feed *feed);

#endif
