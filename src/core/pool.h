/* A small thread pool: each thread has its slice and helps with the others' when it is through; the caller works
 * too. Which thread runs a task never changes a result, because work is cut by shape alone. */
#ifndef MR_CORE_POOL_H
#define MR_CORE_POOL_H

#include "minrnn.h"

typedef struct mr_pool mr_pool;

/* task runs in 0 … tasks−1; slot in 0 … threads−1 names the thread, for scratch memory of its own. */
typedef void mr_pool_fn(void *arg, int task, int slot);

int mr_processors(void); /* how many threads can run at once: the processors that this process may use */

mr_pool *mr_pool_new(int threads, const mr_allocator *by); /* NULL when threads or memory are not to be had */
void mr_pool_free(mr_pool *pool);
int mr_pool_threads(const mr_pool *pool);
void mr_pool_run(mr_pool *pool, mr_pool_fn *fn, void *arg, int tasks);

#endif
