/* The thread pool: every task runs once, on a thread of the pool, and is done when the call returns. */
#include "core/pool.h"
#include "skip_because.h"
#include "support.h"

#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TASKS = 1000 };

typedef struct job {
    atomic_int runs[TASKS], started, finished;
    int threads;
} job;

static void count(void *arg, int task, int slot)
{
    job *j = arg;
    if (slot >= 0 && slot < j->threads) atomic_fetch_add(&j->runs[task], 1);
}

static void every_task_runs_once(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 5; threads++) {
        mr_pool *pool = mr_pool_new(threads, NULL);
        assert_non_null(pool);
        for (int tasks = 0; tasks <= TASKS; tasks = tasks < 8 ? tasks + 1 : 5 * tasks) {
            job j = {.threads = threads};
            mr_pool_run(pool, count, &j, tasks);
            for (int i = 0; i < TASKS; i++) assert_int_equal(j.runs[i], i < tasks);
        }
        mr_pool_free(pool);
    }
}

/* Waits until all tasks have started, so that each has its own thread; those of the others then take longer. */
static void meet(void *arg, int task, int slot)
{
    job *j = arg;
    (void)task;
    atomic_fetch_add(&j->started, 1);
    while (atomic_load(&j->started) < j->threads) nanosleep(&(struct timespec){.tv_nsec = 10000}, NULL);
    if (slot) nanosleep(&(struct timespec){.tv_nsec = 20000000 * (long)slot}, NULL);
    atomic_fetch_add(&j->finished, 1);
}

static void a_call_returns_when_all_is_done(void **state)
{
    (void)state;
    for (int threads = 2; threads <= 3; threads++) {
        mr_pool *pool = mr_pool_new(threads, NULL);
        job j = {.threads = threads};
        assert_non_null(pool);
        mr_pool_run(pool, meet, &j, threads);
        assert_int_equal(j.finished, threads);
        mr_pool_free(pool);
    }
}

static void fewer_than_one_thread_is_one(void **state)
{
    (void)state;
    mr_pool *pool = mr_pool_new(0, NULL);
    job j = {.threads = 1};
    assert_non_null(pool);
    mr_pool_run(pool, count, &j, TASKS);
    for (int i = 0; i < TASKS; i++) assert_int_equal(j.runs[i], 1);
    mr_pool_free(pool);
    mr_pool_free(NULL);
}

/* A child has none of its parent's threads: its pools start their own. */
static void a_pool_works_on_after_a_fork(void **state)
{
    (void)state;
#if defined(__SANITIZE_THREAD__)
    skip_because("threads after a fork: ThreadSanitizer ends a child that starts them");
#endif
    mr_pool *pool = mr_pool_new(3, NULL);
    job before = {.threads = 3};
    mr_pool_run(pool, count, &before, TASKS);
    const pid_t child = fork();
    if (!child) {
        job own = {.threads = 3};
        alarm(60); /* tasks that wait for threads that do not exist would never end */
        mr_pool_run(pool, meet, &own, 3);
        mr_pool_free(pool);
        _exit(own.finished == 3 ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    job after = {.threads = 3};
    mr_pool_run(pool, count, &after, TASKS);
    for (int i = 0; i < TASKS; i++) assert_int_equal(after.runs[i], 1);
    mr_pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_task_runs_once), cmocka_unit_test(a_call_returns_when_all_is_done),
        cmocka_unit_test(fewer_than_one_thread_is_one), cmocka_unit_test(a_pool_works_on_after_a_fork)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
