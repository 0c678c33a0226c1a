/* The thread pool: workers spin briefly for the next job, then sleep; idle threads take tasks from busy ones. */
#if defined(__linux__)
#define _GNU_SOURCE /* sched_getaffinity */
#include <sched.h>
#endif

#include "core/pool.h"

#include "core/mem.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

#if defined(__x86_64__) || defined(__i386__)
#define RELAX() __builtin_ia32_pause()
#else
#define RELAX() ((void)0)
#endif

int mr_processors(void)
{
#if defined(__linux__)
    cpu_set_t set;
    if (!sched_getaffinity(0, sizeof set, &set) && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
#endif
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

/* How often a worker looks for the next job before it sleeps. A training step is hundreds of jobs, microseconds
 * apart. */
enum { SPINS = 4000 };

/* The tasks begin … end−1 of one slot that have not been started, packed into one word. A slot takes its own tasks from
 * the front, and when it has none left, those of others from the back. So a thread that loses its core to another
 * process delays one task, not its whole share. */
typedef struct range {
    _Alignas(64) atomic_uint_least64_t tasks; /* begin << 32 | end */
} range;

typedef struct worker {
    mr_pool *pool;
    pthread_t thread;
    int slot;
} worker;

struct mr_pool {
    int threads, started;
    unsigned forks; /* of this process when the threads were started */
    const mr_allocator *allocator;
    worker *workers; /* slots 1 … threads−1; slot 0 is the caller */
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    atomic_uint job; /* number of the current run */
    atomic_int left; /* unfinished tasks */
    atomic_int quit;
    range *ranges;  /* [threads] */
    mr_pool_fn *fn; /* fn and arg are read only while a task is unfinished, and do not change until all are done */
    void *arg;
};

/* A child process has a copy of a pool, but none of its threads. So each fork is counted in the child, and a pool that
 * is older starts its threads anew. */
static atomic_uint forks;

static void count_fork(void) { atomic_fetch_add(&forks, 1); }
static void watch_forks(void) { pthread_atfork(NULL, NULL, count_fork); }

static uint64_t as_range(uint64_t begin, uint64_t end) { return begin << 32 | end; }

/* Takes a task of a slot; −1: none left. */
static int take(range *from, int front)
{
    uint64_t seen = atomic_load_explicit(&from->tasks, memory_order_acquire);
    for (;;) {
        const uint64_t begin = seen >> 32, end = seen & 0xffffffffu;
        if (begin >= end) return -1;
        const uint64_t rest = front ? as_range(begin + 1, end) : as_range(begin, end - 1);
        if (atomic_compare_exchange_weak_explicit(&from->tasks, &seen, rest, memory_order_acq_rel,
                                                  memory_order_acquire))
            return (int)(front ? begin : end - 1);
    }
}

/* Runs tasks until none is left. The thread that finishes the last one wakes the caller. */
static void run_tasks(mr_pool *pool, int slot)
{
    int finished = 0;
    for (int i = 0; i < pool->threads; i++) {
        range *from = &pool->ranges[(slot + i) % pool->threads];
        for (int task; (task = take(from, i == 0)) >= 0; finished++) pool->fn(pool->arg, task, slot);
    }
    if (!finished || atomic_fetch_sub_explicit(&pool->left, finished, memory_order_acq_rel) != finished || !slot)
        return;
    pthread_mutex_lock(&pool->lock);
    pthread_cond_signal(&pool->done);
    pthread_mutex_unlock(&pool->lock);
}

static unsigned wait_for_job(mr_pool *pool, unsigned seen)
{
    for (int i = 0; i < SPINS; i++) {
        unsigned job = atomic_load_explicit(&pool->job, memory_order_acquire);
        if (job != seen) return job;
        RELAX();
    }
    pthread_mutex_lock(&pool->lock);
    while (atomic_load(&pool->job) == seen) pthread_cond_wait(&pool->wake, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
    return atomic_load_explicit(&pool->job, memory_order_acquire);
}

static void *work(void *arg)
{
    worker *w = arg;
    mr_pool *pool = w->pool;
    for (unsigned seen = 0;;) {
        seen = wait_for_job(pool, seen);
        if (atomic_load(&pool->quit)) return NULL;
        run_tasks(pool, w->slot);
    }
}

static void announce(mr_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add_explicit(&pool->job, 1, memory_order_release);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
}

static void start_threads(mr_pool *pool)
{
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->done, NULL);
    pool->forks = atomic_load(&forks);
    pool->started = 1;
    atomic_store(&pool->job, 0);
    for (int slot = 0; pool->ranges && slot < pool->threads; slot++) atomic_store(&pool->ranges[slot].tasks, 0);
    for (int slot = 1; pool->workers && pool->ranges && slot < pool->threads; slot++) {
        pool->workers[slot] = (worker){.pool = pool, .slot = slot};
        if (pthread_create(&pool->workers[slot].thread, NULL, work, &pool->workers[slot])) break;
        pool->started++;
    }
}

mr_pool *mr_pool_new(int threads, const mr_allocator *allocator)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    mr_pool *pool = mr_alloc_with(allocator, 1, sizeof *pool);
    if (!pool) return NULL;
    pool->allocator = allocator;
    pool->threads = threads < 1 ? 1 : threads;
    pool->workers = mr_alloc_with(allocator, (size_t)pool->threads, sizeof *pool->workers);
    pool->ranges = mr_alloc_with(allocator, (size_t)pool->threads, sizeof *pool->ranges);
    start_threads(pool);
    if (pool->workers && pool->ranges && pool->started == pool->threads) return pool;
    mr_pool_free(pool);
    return NULL;
}

void mr_pool_free(mr_pool *pool)
{
    if (!pool) return;
    if (pool->forks == atomic_load(&forks)) {
        atomic_store(&pool->quit, 1);
        announce(pool);
        for (int slot = 1; slot < pool->started; slot++) pthread_join(pool->workers[slot].thread, NULL);
        pthread_cond_destroy(&pool->wake);
        pthread_cond_destroy(&pool->done);
        pthread_mutex_destroy(&pool->lock);
    }
    mr_free_with(pool->allocator, pool->ranges);
    mr_free_with(pool->allocator, pool->workers);
    mr_free_with(pool->allocator, pool);
}

void mr_pool_run(mr_pool *pool, mr_pool_fn *fn, void *arg, int tasks)
{
    if (pool->threads == 1 || tasks <= 1) {
        for (int task = 0; task < tasks; task++) fn(arg, task, 0);
        return;
    }
    if (pool->forks != atomic_load_explicit(&forks, memory_order_relaxed)) start_threads(pool);
    pool->fn = fn;
    pool->arg = arg;
    atomic_store_explicit(&pool->left, tasks, memory_order_relaxed);
    for (int slot = 0; slot < pool->threads; slot++) {
        const uint64_t begin = (uint64_t)tasks * (uint64_t)slot / (uint64_t)pool->threads;
        const uint64_t end = (uint64_t)tasks * (uint64_t)(slot + 1) / (uint64_t)pool->threads;
        atomic_store_explicit(&pool->ranges[slot].tasks, as_range(begin, end), memory_order_release);
    }
    announce(pool);
    run_tasks(pool, 0);
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&pool->left, memory_order_acquire) == 0) return;
        RELAX();
    }
    pthread_mutex_lock(&pool->lock);
    while (atomic_load_explicit(&pool->left, memory_order_acquire)) pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}
