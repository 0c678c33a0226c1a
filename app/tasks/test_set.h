/* What a task is scored on, summed up: an identity, and what a model scores that always gives the same answer. */
#ifndef MR_APP_TASKS_TEST_SET_H
#define MR_APP_TASKS_TEST_SET_H

#include "tasks/task.h"

enum { MR_TEST_SET_IDENTITY = 17 };

typedef struct mr_test_set {
    /* 16 hexadecimal digits: a hash of all sequences and their answers, whatever their order and batches */
    char identity[MR_TEST_SET_IDENTITY];
    int64_t sequences, answers;
    double chance;   /* accuracy of guessing: 1 / classes; NaN for regression */
    double constant; /* accuracy of always giving the most frequent answer; NaN for regression */
} mr_test_set;

/* The task is open. MR_ESTOPPED: *task->stop was set. */
int mr_test_set_of(const mr_task *task, mr_test_set *set, mr_error *err);

#endif
