/* Scoring a model on its task's test data, for eval and quantize. */
#ifndef MR_APP_COMMANDS_EVALUATE_H
#define MR_APP_COMMANDS_EVALUATE_H

#include "train/evaluate.h"
#include "train/session.h"
#include "commands/args.h"

/* What --help says about the tasks' keys: all of them where the topic is "all", those of one where it is its name. */
void mr_eval_help(FILE *to, const char *topic);

/* The task to score on: the model's own with its settings, or the one that `task` names (""); flags of args on top;
 * batch 0: as in training. If no data is given, it is taken from the recipe next to the model; unless quiet, a line
 * says so. Returns −1 to continue, otherwise the exit status. */
int mr_eval_choose(mr_session *session, const char *task, int64_t batch, int quiet, const mr_args *args);

/* Plans the model for its open task and scores it; quiet 0: with progress on a terminal. `batch` must be empty; free
 * it with mr_batch_free either way. */
int mr_eval_score(mr_session *session, int quiet, mr_batch *batch, mr_score *score, mr_error *err);

#endif
