/* What the tests of tasks share: creating tasks and batches, and checks that hold for all of them. */
#ifndef MR_TESTS_TASK_SUPPORT_H
#define MR_TESTS_TASK_SUPPORT_H

#include "scratch.h"

#include "core/mem.h"
#include "tasks/task.h"

#include <pthread.h>

typedef struct setting {
    const char *key, *value;
} setting;

/* A task that is not open yet; `settings` ends with a NULL key. */
static inline mr_task *new_task(const char *name, int batch, int context, const setting *settings)
{
    mr_task *task;
    mr_error err = {0};
    const mr_task_type *type = mr_task_type_find(name);
    assert_non_null(type);
    assert_int_equal(mr_task_new(type, &task, &err), 0);
    task->batch = batch;
    task->context = context;
    task->seed = 1;
    for (; settings->key; settings++) {
        const mr_option *option = mr_option_find(type->options, settings->key);
        assert_non_null(option);
        if (mr_option_parse(option, task->settings, settings->value, &err)) fail_msg("%s", err.text);
    }
    return task;
}

static inline mr_task *open_task(const char *name, int batch, int context, const setting *settings)
{
    mr_task *task = new_task(name, batch, context, settings);
    mr_error err = {0};
    if (mr_task_open(task, &err)) fail_msg("%s", err.text);
    return task;
}

static inline void refused(mr_task *task, int status, const char *part)
{
    mr_error err = {0};
    assert_int_equal(mr_task_open(task, &err), status);
    assert_says(&err, part);
    mr_task_free(task);
}

static inline mr_batch new_batch(const mr_task *task)
{
    mr_batch batch;
    assert_int_equal(mr_batch_new(&batch, &task->interface, task->batch, task->max_T), 0);
    memset(batch.ids, 0x5A, (size_t)task->batch * (size_t)task->max_T * sizeof *batch.ids);
    memset(batch.target, 0x5A, (size_t)task->batch * (size_t)task->max_T * sizeof *batch.target);
    return batch;
}

static inline int same(const mr_batch *a, const mr_batch *b)
{
    size_t bytes = (size_t)a->B * (size_t)a->T * sizeof *a->ids;
    return a->B == b->B && a->T == b->T && a->counted == b->counted && !memcmp(a->ids, b->ids, bytes) &&
           !memcmp(a->target, b->target, bytes);
}

static inline double chi_square(const int *counts, int cells, double expected)
{
    double sum = 0;
    for (int i = 0; i < cells; i++) sum += (counts[i] - expected) * (counts[i] - expected) / expected;
    return sum;
}

/* ---- the same numbers every time */

typedef struct maker {
    const mr_task *task;
    mr_batch batch;
    int differs;
} maker;

static inline void *make_many(void *arg)
{
    maker *m = arg;
    mr_batch again = new_batch(m->task);
    for (uint32_t i = 0; i < 200; i++) {
        m->task->type->train_batch(m->task, i, 0, &again);
        m->task->type->train_batch(m->task, 5, 1, &again);
        m->differs |= !same(&again, &m->batch);
    }
    mr_batch_free(&again);
    return NULL;
}

static inline void check_two_threads(const mr_task *task)
{
    pthread_t threads[2];
    maker makers[2];
    for (int i = 0; i < 2; i++) {
        makers[i] = (maker){.task = task, .batch = new_batch(task)};
        task->type->train_batch(task, 5, 1, &makers[i].batch);
        assert_int_equal(pthread_create(&threads[i], NULL, make_many, &makers[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(makers[i].differs, 0);
        mr_batch_free(&makers[i].batch);
    }
}

/* Only step, micro, row and seed change the draw. */
static inline void check_places(mr_task *task)
{
    mr_batch a = new_batch(task), b = new_batch(task);
    uint64_t seed = task->seed;
    task->type->train_batch(task, 5, 1, &a);
    assert_int_not_equal(memcmp(a.ids, a.ids + a.T, (size_t)a.T * sizeof *a.ids), 0);
    task->type->train_batch(task, 5, 1, &b);
    assert_true(same(&a, &b));
    task->type->train_batch(task, 6, 1, &b);
    assert_false(same(&a, &b));
    task->type->train_batch(task, 5, 0, &b);
    assert_false(same(&a, &b));
    task->seed = seed + 1;
    task->type->train_batch(task, 5, 1, &b);
    assert_false(same(&a, &b));
    task->type->eval_batch(task, 0, &b);
    task->seed = seed;
    task->type->eval_batch(task, 0, &a);
    assert_true(same(&a, &b));
    assert_that(task->eval_batches, >, 1);
    task->type->eval_batch(task, 1, &b);
    assert_false(same(&a, &b));
    mr_batch_free(&a);
    mr_batch_free(&b);
}

#endif
