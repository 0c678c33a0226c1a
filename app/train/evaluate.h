/* Scoring a net on its task's test set. */
#ifndef MR_APP_TRAIN_EVALUATE_H
#define MR_APP_TRAIN_EVALUATE_H

#include "core/stop.h"
#include "tasks/task.h"

typedef struct mr_score {
    /* mean over the rows that count (of the test set's groups: over their means), in nats for cross-entropy */
    double loss;
    double accuracy; /* NaN for regression */
    int64_t rows;
} mr_score;

/* Called after each batch of an evaluation. */
typedef void mr_eval_tick(void *user, int done, int batches);

/* `batch` has the task's capacity. Stops early with MR_ESTOPPED when *stop is set (stop may be NULL). */
int mr_evaluate(mr_net *net, const mr_task *task, mr_batch *batch, mr_eval_tick *tick, void *user, const mr_stop *stop,
                mr_score *score, mr_error *err);

#endif
