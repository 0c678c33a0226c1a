/* Scoring a net on its task's test set, or on a fixed part of it. */
#ifndef MR_APP_TRAIN_EVALUATE_H
#define MR_APP_TRAIN_EVALUATE_H

#include "core/stop.h"
#include "tasks/task.h"
#include "train/ranks.h"

typedef struct mr_score {
    /* mean over the rows that count (of the test set's groups: over their means), in nats for cross-entropy */
    double loss;
    double accuracy; /* NaN for regression */
    int64_t rows;
    int64_t batches; /* scored, of those of the test set */
    int out_of_time; /* the deadline came before the last of the batches that were wanted */
} mr_score;

/* Called before the first batch of an evaluation (done 0) and after each. */
typedef void mr_eval_tick(void *user, int done, int batches);

typedef struct mr_eval_options {
    mr_eval_tick *tick; /* may be NULL */
    void *user;
    const mr_stop *stop; /* when it is set, the evaluation ends with MR_ESTOPPED; may be NULL */
    int64_t tokens;      /* score only about this many tokens (mr_eval_batches); 0: all */
    double deadline;     /* of mr_seconds(): no batch starts after it, except a group's first; 0: none */
    mr_crew *crew;       /* share the batches with these ranks, which all call this; or NULL */
} mr_eval_options;

/* How many batches hold `tokens` test tokens (0: all): as few whole batches as have that many, at most all. Which ones
 * follows from the numbers alone: they are spread evenly over the test set. */
int mr_eval_batches(const mr_task *task, int64_t tokens);

/* `batch` has the task's capacity. */
int mr_evaluate(mr_net *net, const mr_task *task, mr_batch *batch, const mr_eval_options *options, mr_score *score,
                mr_error *err);

#endif
