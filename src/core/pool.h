/* A small thread pool. Each thread has its share of the tasks and helps the others when it has finished; the calling
 * thread works too. Which thread runs a task never changes a result, because work is divided by shape alone. */
#ifndef MR_CORE_POOL_H
#define MR_CORE_POOL_H

#include "minrnn.h"

typedef struct mr_pool mr_pool;

/* task is 0 … tasks−1; slot is 0 … threads−1, the thread that runs it, which may have scratch memory by slot. */
typedef void mr_pool_fn(void *arg, int task, int slot);

int mr_processors(void); /* the processors that this process may use */

/* NULL: threads could not be started, or no memory. */
mr_pool *mr_pool_new(int threads, const mr_allocator *allocator);
void mr_pool_free(mr_pool *pool);
/* Runs fn for every task and returns when all are done. */
void mr_pool_run(mr_pool *pool, mr_pool_fn *fn, void *arg, int tasks);

#endif
