/* A session: a model file opened for use by the commands, with the task that it was made for. */
#ifndef MR_APP_TRAIN_SESSION_H
#define MR_APP_TRAIN_SESSION_H

#include "train/evaluate.h"
#include "train/recipe.h"

typedef struct mr_session {
    char *path; /* of the model file */
    mr_net *net;
    /* task (not open) with the settings that the file has, batch and context; task NULL: none is named */
    mr_recipe recipe;
    char run_sha256[MR_SHA256_TEXT]; /* by mr_session_find_data: of the data that the run was trained on; "": unknown */
} mr_session;

/* The model file that a user names: a file, or the folder of a run, which stands for its model.safetensors. mr_free. */
int mr_model_path(const char *given, char **path, mr_error *err);

/* Reads and checks everything in the file. `given` is a model file or the folder of a run. */
int mr_session_open(mr_session *session, const char *given, mr_context *ctx, mr_error *err);
void mr_session_close(mr_session *session);

/* Fail where the model names no task, or does not read text. */
int mr_session_need_task(const mr_session *session, const char *path, mr_error *err);
int mr_session_need_text(const mr_session *session, const char *path, mr_error *err);

/* Takes the data that the task lacks from recipe.ini beside a model (or in the folder of its run), which training left
 * there; a run that keeps a copy of its data may have been moved. Returns what it names, or NULL: nothing was taken. */
const char *mr_session_find_data(mr_session *session, const char *model);

/* Opens the session's task, whose settings may have been changed, and checks that the net fits it. */
int mr_session_open_task(mr_session *session, mr_error *err);

/* Has the run's data changed since it was trained? The task is open; 0 where that is not known. */
int mr_session_other_data(const mr_session *session);

/* Scores the net on the open task. `batch` must be empty; free it with mr_batch_free, also after a failure. The rest is
 * as in mr_evaluate. */
int mr_session_evaluate(mr_session *session, mr_batch *batch, mr_eval_tick *tick, void *user, const mr_stop *stop,
                        mr_score *score, mr_error *err);

#endif
