/* A model on its task's test data, for the commands that say how good one is. */
#ifndef MR_APP_COMMANDS_EVALUATE_H
#define MR_APP_COMMANDS_EVALUATE_H

#include "train/evaluate.h"
#include "train/session.h"
#include "commands/args.h"

/* What --help says of the tasks' keys. */
void mr_eval_help(FILE *to);

/* The task to score on: the file's own with its settings, or a named one (""); flags of args on top; batch 0: as in
 * training. Returns −1 to go on, otherwise the exit status. */
int mr_eval_choose(mr_session *session, const char *task, int64_t batch, const mr_args *args);

/* Opens the task, plans the model for it and scores it; quiet 0: with progress on a terminal. `batch` is empty, and
 * due to mr_batch_free either way. */
int mr_eval_score(mr_session *session, int quiet, mr_batch *batch, mr_score *score, mr_error *err);

#endif
