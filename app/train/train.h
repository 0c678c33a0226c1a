/* The training loop: task → batch → forward → loss → backward → update → log, evaluation and checkpoint. */
#ifndef MR_APP_TRAIN_TRAIN_H
#define MR_APP_TRAIN_TRAIN_H

#include "core/stop.h"
#include "train/checkpoint.h"
#include "train/evaluate.h"
#include "train/overfit.h"
#include "train/ranks.h"
#include "train/recipe.h"

/* Callbacks for what happens; each may be NULL. */
typedef struct mr_train_watch {
    void *user;
    double began; /* mr_seconds() when the command began: --max-seconds counts from there; 0: when training does */
    /* from->step > 0: resumed there. deadline: of mr_seconds(), when --max-seconds ends the run; INFINITY: never */
    void (*started)(void *user, const mr_net *net, const mr_checkpoint *from, double deadline);
    void (*stepped)(void *user, int64_t step, int64_t tokens, double loss);
    void (*evaluating)(void *user, int done, int batches);
    void (*evaluated)(void *user, int64_t step, const mr_score *score, int best);
    /* of several ranks, rank 0 tells all but which rank keeps the others waiting, in any thread */
    void (*notice)(void *user, const char *line); /* what the user should know, in one line without its end */
    const mr_requests *save_requests; /* each one: save after the current step, report it, continue; or NULL */
    mr_crew *crew;                    /* the ranks of ctx, which all call mr_train; NULL: this process alone */
} mr_train_watch;

typedef enum mr_train_end { MR_END_STEPS, MR_END_PATIENCE, MR_END_SECONDS, MR_END_STOPPED } mr_train_end;

/* Evaluations may score a part of the test set (--eval-tokens). Has the best model been scored on all of it? */
typedef enum mr_whole {
    MR_WHOLE_ALWAYS,  /* yes: every evaluation does so */
    MR_WHOLE_AT_END,  /* yes: after training */
    MR_WHOLE_NO_TIME, /* no: it would have taken longer than --max-seconds */
    MR_WHOLE_STOPPED, /* no: *stop was set */
    MR_WHOLE_LATER    /* no: model.safetensors is a later one, which is kept (train/later_model.h) */
} mr_whole;

typedef struct mr_train_result {
    mr_train_end end;
    int64_t step, best_step, tokens; /* tokens: of all calls; known where training failed, too */
    double best_loss, best_accuracy; /* on the whole test set where it was scored, otherwise of the best evaluation */
    mr_whole whole;
    /* how much of the test set best_loss covers: in tokens, or in batches where the task does not count tokens */
    int64_t scored, test_size;
    int in_tokens;
    int unscored;   /* --max-seconds cut the evaluation of the last step short: it was not compared */
    double seconds; /* that the run has used, all calls together */
    int shared;     /* of several ranks: after a failure, all know of it */
    mr_overfit overfit;
} mr_train_result;

/* Trains into the folder `dir`, which it locks. The recipe must be ready (mr_run_begin). resume: continues
 * from the folder's state, or starts afresh where there is none (train/run_folder.h says what is refused).
 * *stop set (by a signal handler): saves and returns with MR_END_STOPPED. A step that is not finite: MR_ENONFINITE
 * with step and layer, and the files stay as they were. */
int mr_train(mr_recipe *recipe, mr_context *ctx, const char *dir, int resume, const mr_stop *stop,
             const mr_train_watch *watch, mr_train_result *result, mr_error *err);

#endif
