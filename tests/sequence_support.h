/* What the tests of tasks with one answer per sequence (or pair) share. */
#ifndef MR_TESTS_SEQUENCE_SUPPORT_H
#define MR_TESTS_SEQUENCE_SUPPORT_H

#include "task_support.h"

/* A batch filled with garbage, so that whatever a task does not set is noticed. */
static inline mr_batch fresh_batch(const mr_task *task)
{
    mr_batch batch;
    const size_t N = (size_t)task->batch * (size_t)task->max_T;
    assert_int_equal(mr_batch_new(&batch, &task->interface, task->batch, task->max_T), 0);
    if (batch.ids) memset(batch.ids, 0x5A, N * sizeof *batch.ids);
    if (batch.values) memset(batch.values, 0x5A, N * (size_t)task->interface.inputs * sizeof *batch.values);
    memset(batch.target, 0x5A, mr_head_rows(task->interface.head, (size_t)task->batch, 1) * sizeof *batch.target);
    memset(mr_batch_lengths(&batch), 0x5A, (size_t)task->batch * sizeof(int32_t));
    return batch;
}

static inline int equal(const mr_task *task, const mr_batch *a, const mr_batch *b)
{
    const size_t N = (size_t)a->B * (size_t)a->T, B = (size_t)a->B;
    return a->B == b->B && a->T == b->T && a->counted == b->counted && !a->length == !b->length &&
           (!a->ids || !memcmp(a->ids, b->ids, N * sizeof *a->ids)) &&
           (!a->values || !memcmp(a->values, b->values, N * sizeof *a->values)) &&
           (!a->length || !memcmp(a->length, b->length, B * sizeof *a->length)) &&
           !memcmp(a->target, b->target, mr_head_rows(task->interface.head, B, 1) * sizeof *a->target);
}

/* Only step, micro-batch and seed change a training batch; test batches depend on none of them. */
static inline void check_sequence_places(mr_task *task)
{
    mr_batch a = fresh_batch(task), b = fresh_batch(task), other = fresh_batch(task);
    const uint64_t seed = task->seed;
    task->type->train_batch(task, 5, 1, &a);
    task->type->train_batch(task, 77, 0, &b);
    task->type->train_batch(task, 5, 1, &b);
    assert_true(equal(task, &a, &b));
    task->type->train_batch(task, 6, 1, &other);
    assert_false(equal(task, &a, &other));
    task->type->train_batch(task, 5, 0, &other);
    assert_false(equal(task, &a, &other));
    task->seed = seed + 1;
    task->type->train_batch(task, 5, 1, &other);
    assert_false(equal(task, &a, &other));
    task->type->eval_batch(task, 0, &b);
    task->seed = seed;
    task->type->eval_batch(task, 0, &a);
    assert_true(equal(task, &a, &b));
    mr_batch_free(&a);
    mr_batch_free(&b);
    mr_batch_free(&other);
}

#endif
