/* What a run writes into its folder, and how it is read back. state.safetensors alone is enough to continue. */
#ifndef MR_APP_TRAIN_CHECKPOINT_H
#define MR_APP_TRAIN_CHECKPOINT_H

#include "train/recipe.h"

/* The progress of a run, apart from what its net holds. */
typedef struct mr_checkpoint {
    int64_t step;                    /* steps done */
    int64_t evaluated;               /* the step of the last evaluation */
    int64_t best_step;               /* 0: no evaluation yet */
    int64_t stale;                   /* evaluations since the best one */
    int64_t tokens;                  /* trained on so far */
    double best_loss, best_accuracy; /* accuracy NaN where the task has none */
    int64_t later_model; /* a model.safetensors of this step is kept until the run comes there again; or 0 */
    uint64_t log_offset;
    int64_t event_steps; /* steps that the event files for TensorBoard have: all or none */
    double seconds,
        setup_seconds; /* of the run so far, and those of them that its calls spent before their first step */
    char changed[512]; /* after mr_checkpoint_load: keys that have another value now, "lr = 0.001 (was 0.01)" */
} mr_checkpoint;

mr_checkpoint mr_checkpoint_start(void); /* before the first step */

/* Writes state.safetensors, then, once there is a best model, model.safetensors, then last.safetensors. Each is
 * replaced in one step and the state comes first: a kill in between leaves a state from which the other two are
 * written again. */
int mr_checkpoint_save(const mr_checkpoint *cp, const char *dir, const mr_recipe *recipe, mr_net *net, mr_error *err);

/* Is a model.safetensors of a later step there (train/later_model.h)? Then it is not overwritten. */
int mr_checkpoint_keeps_later(const mr_checkpoint *cp);

/* Writes model.safetensors alone, for a disk that has no room for a state, which is four times as large. MR_EINVAL:
 * there is no best model yet. */
int mr_checkpoint_save_best(const mr_checkpoint *cp, const char *dir, mr_net *net, mr_error *err);

/* Reads DIR/state.safetensors into `cp` and the net. The recipe must be the one that the run was started with, but
 * for keys that may change; the error names the first that differs. */
int mr_checkpoint_load(mr_checkpoint *cp, const char *dir, const mr_recipe *recipe, mr_net *net, mr_error *err);

#endif
