/* A session: a model file opened for use. */
#ifndef MR_APP_TRAIN_SESSION_H
#define MR_APP_TRAIN_SESSION_H

#include "core/safetensors.h"
#include "model/model.h"
#include "train/evaluate.h"
#include "train/recipe.h"

typedef struct mr_session {
    mr_model *model;
    mr_recipe recipe;  /* task (not open), its settings as the file has them, batch and context */
    mr_vocab vocab;    /* size 0: the model does not read text */
    int64_t step;      /* the training step that the weights are from */
} mr_session;

/* Reads and checks everything in the file. plan_B · plan_T 0: no memory for a forward yet (info). */
int mr_session_open(mr_session *session, const char *path, mr_dev *dev, int plan_B, int plan_T, mr_error *err);
void mr_session_close(mr_session *session);

/* The vocabulary, or an error that says that this model does not read text. */
int mr_session_need_text(const mr_session *session, const char *path, mr_error *err);

/* Opens the session's task, whose settings may have been changed, plans the model for it and scores it. `batch` is empty, and due to
 * mr_batch_free either way; see mr_evaluate for the rest. */
int mr_session_evaluate(mr_session *session, mr_batch *batch, mr_eval_tick *tick, void *user, const mr_stop *stop, mr_score *score,
                        mr_error *err);

/* A planned model with its matrices in 8 bits (model/quantize.h), as a file with the metadata of `from`, which it was read
 * from. Refuses one that has them in 8 bits already. */
int mr_session_save_int8(const mr_session *session, const char *from, const char *path, mr_error *err);

#endif
