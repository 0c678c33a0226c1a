/* What the tests of formal languages share: batches split into questions and answers, and second definitions of the
 * tasks that both protocols have. */
#ifndef MR_TESTS_CHOMSKY_SUPPORT_H
#define MR_TESTS_CHOMSKY_SUPPORT_H

#include "task_support.h"

#include <math.h>

/* One row: `n` symbols and `m` answers to them. */
typedef struct question {
    int n, m;
    const int32_t *ids, *answer;
} question;

static inline mr_task *open_language(const char *protocol, const char *name, int batch, const setting *more)
{
    setting all[12] = {{"protocol", protocol}, {"task", name}};
    int n = 2;
    while (more && more->key) all[n++] = *more++;
    return open_task("chomsky", batch, 0, all);
}

/* Splits a row at its first empty token, and checks what holds for every task: symbols before it, only empty tokens
 * after it, answers there without a gap, then no targets. */
static inline question question_of(const mr_task *task, const mr_batch *batch, int row)
{
    question q = {.ids = batch->ids + row * batch->T};
    const int32_t *target = batch->target + row * batch->T;
    int empty = task->interface.inputs - 1;
    while (q.n < batch->T && q.ids[q.n] != empty) q.n++;
    while (q.n + q.m < batch->T && target[q.n + q.m] != -1) q.m++;
    q.answer = target + q.n;
    for (int t = 0; t < batch->T; t++) {
        int asked = t >= q.n && t < q.n + q.m;
        if (t < q.n ? q.ids[t] < 0 || q.ids[t] >= empty : q.ids[t] != empty)
            fail_msg("token %d of row %d is %d", t, row, (int)q.ids[t]);
        if (asked ? target[t] < 0 || target[t] >= task->interface.outputs : target[t] != -1)
            fail_msg("target %d of row %d is %d", t, row, (int)target[t]);
    }
    return q;
}

typedef void checker(const question *q);

/* Checks the batch as a whole, and each of its rows with `check`; scored: a batch of the test set; cut: answers may
 * be shorter than their room. */
static inline void check_batch(const mr_task *task, const mr_batch *batch, int scored, int cut, checker *check)
{
    int64_t counted = 0;
    int n = question_of(task, batch, 0).n, longest = 0, multiple = scored ? 32 : 16;
    mr_shape shapes[2];
    mr_task_shapes(task, shapes);
    assert_that(batch->B, >=, 1);
    assert_that(batch->B, <=, shapes[scored].B);
    assert_that(batch->T, <=, shapes[scored].T);
    assert_int_equal(batch->T % multiple, 0);
    assert_null(batch->reset);
    assert_null(batch->length);
    for (int row = 0; row < batch->B; row++) {
        question q = question_of(task, batch, row);
        assert_int_equal(q.n, n);
        assert_that(q.n, >=, 1);
        assert_that(q.m, >=, 1);
        if (check) check(&q);
        counted += q.m;
        if (q.n + q.m > longest) longest = q.n + q.m;
    }
    assert_int_equal(batch->counted, counted);
    assert_true(cut || longest > batch->T - multiple);
}

/* Checks every row of 200 training batches and of the whole test set. */
static inline void check_language(const char *protocol, const char *name, checker *train, checker *eval)
{
    mr_task *task = open_language(protocol, name, 16, (setting[]){{"eval-lengths", "12"}, {"eval-samples", "20"}, {0}});
    mr_batch batch = new_batch(task);
    for (uint32_t step = 1; step <= 200; step++) {
        task->type->train_batch(task, step, 0, &batch);
        check_batch(task, &batch, 0, 0, train);
        assert_int_equal(batch.B, 16);
    }
    for (int i = 0; i < task->eval_batches; i++) {
        task->type->eval_batch(task, i, &batch);
        check_batch(task, &batch, 1, eval != train, eval);
        assert_int_equal(batch.B, i % 2 ? 4 : 16);
    }
    mr_batch_free(&batch);
    mr_task_free(task);
}

/* The limit is six standard deviations above the mean of chi-square: a wrong sampler exceeds it by far. */
static inline void assert_uniform(const int *counts, int cells, const char *what)
{
    double total = 0;
    for (int i = 0; i < cells; i++) total += counts[i];
    assert_that(total, >=, 20 * cells);
    double x = chi_square(counts, cells, total / cells);
    if (!(x <= cells - 1 + 6 * sqrt(2.0 * (cells - 1))))
        fail_msg("%s: not uniform, chi-square %g for %d cells", what, x, cells);
}

/* ---- tasks of both protocols */

/* Answer k is the symbol with at most k smaller symbols, and more than k that are not larger. */
static inline void check_sorted(const question *q)
{
    assert_int_equal(q->m, q->n);
    for (int k = 0; k < q->m; k++) {
        int smaller = 0, not_larger = 0;
        for (int i = 0; i < q->n; i++) {
            smaller += q->ids[i] < q->answer[k];
            not_larger += q->ids[i] <= q->answer[k];
        }
        assert_that(smaller, <=, k);
        assert_that(k, <, not_larger);
    }
}

static inline void check_walk(const question *q)
{
    static const int back[] = {4, 0, 1, 2, 3}, ahead[] = {1, 2, 3, 4, 0};
    int at = 0;
    for (int i = 0; i < q->n; i++) at = q->ids[i] == 0 ? back[at] : q->ids[i] == 2 ? ahead[at] : at;
    assert_int_equal(q->m, 1);
    assert_int_equal(q->answer[0], at);
}

/* The number of changes is even where a string ends as it began. */
static inline void check_pairs(const question *q)
{
    assert_int_equal(q->m, 1);
    assert_int_equal(q->answer[0], q->ids[0] != q->ids[q->n - 1]);
}

static inline void check_parity(const question *q)
{
    int ones = 0;
    for (int i = 0; i < q->n; i++) ones += q->ids[i] == 1;
    assert_int_equal(q->m, 1);
    assert_int_equal(q->answer[0], ones % 2);
}

#endif
