/* A task: what a model is trained on. Each task is one small file with a table of functions,
 * and one line in tasks.def. */
#ifndef MR_APP_TASKS_TASK_H
#define MR_APP_TASKS_TASK_H

#include "core/batch.h"
#include "core/options.h"
#include "core/sha256.h"
#include "core/status.h"
#include "core/stop.h"
#include "tasks/encode.h"

typedef struct mr_task_type mr_task_type;

/* What came of letting a model act. */
typedef struct mr_play {
    double score;      /* in the unit of the paper's table */
    double mean, std;  /* of the sums of rewards */
    int data_made;     /* 1: the data is like D4RL's, made by minrnn */
    double data_score; /* the score of those that the model learned from */
    int64_t episodes, steps;
    double seconds;
} mr_play;

/* Called now and then: so much of it is done. */
typedef void mr_task_tick(void *user, int done, int all);

typedef struct mr_task {
    const mr_task_type *type;
    void *settings;         /* the type's option struct, filled by its options */
    uint64_t seed;          /* of training batches */
    int batch, context;     /* rows per batch; longest sequence in tokens where the user chooses it (text), else 0 */
    const mr_vocab *given;  /* the vocabulary of a model that exists already, or NULL: the task makes its own */
    const mr_stop *stop;    /* once it is set, opening ends with MR_ESTOPPED where it can; NULL: nobody stops it */
    mr_interface interface; /* set by open: what the model must look like */
    int max_T;              /* set by open: longest sequence of any batch */
    /* set by open: longest sequence that is trained on, most rows of a batch that is scored; 0: max_T, batch */
    int train_T, eval_rows;
    int eval_batches;                 /* set by open: batches of the test set */
    int64_t test_tokens;              /* set by open: tokens of the test set that are predicted; 0: not counted */
    const mr_vocab *vocab;            /* set by open: how tokens read as text, or NULL */
    char data_sha256[MR_SHA256_TEXT]; /* set by open: of the data it read; empty where there is none */
    char note[MR_ENCODE_NOTE];        /* set by open: what the user should know about the data, or empty */
    /* set by open, the task's own: the mean and the scale of each input, for the model's scaler; NULL: it has none */
    const double *input_mean, *input_scale;
    void *data; /* the task's own */
} mr_task;

struct mr_task_type {
    const char *name, *summary;
    const mr_option *options; /* rows of [task]; their struct has settings_size bytes */
    size_t settings_size;
    int best_by_accuracy; /* which checkpoint is the best: highest accuracy, else lowest loss */
    int best_is_last;     /* the last one, whatever its loss: a policy is not judged by that */
    const char *scored;   /* what its scores are of, where it has no key `split`; NULL: "test" */
    int (*open)(mr_task *task, mr_error *err);
    void (*close)(mr_task *task); /* frees task->data, also what a failed open left (or NULL); may be NULL */
    /* Pure functions of the task and the numbers given, safe to call from another thread: so that a resumed run sees
     * the same data. They fill a batch of mr_batch_new (B, T, arrays, counted). */
    void (*train_batch)(const mr_task *task, uint32_t step, uint32_t micro, mr_batch *batch);
    void (*eval_batch)(const mr_task *task, int index, mr_batch *batch);
    /* The group of a test batch: a score is the mean over groups, which follow one another. NULL: there is one. */
    int (*eval_group)(const mr_task *task, int index);
    /* Scores a net by letting it act, where a task is about that; else NULL. threads: 0: all. */
    int (*play)(const mr_task *task, mr_net *net, int threads, mr_task_tick *tick, void *user, mr_play *play,
                mr_error *err);
    /* What `play` depends on besides the net, as 16 hexadecimal digits, and its episodes; with `play`. */
    int (*play_identity)(const mr_task *task, char identity[17], int64_t *episodes, mr_error *err);
};

/* Training that grows in `stages` equal shares of grow_steps: the stage of a step (steps count from 1), `stages`
 * once they are over. */
int64_t mr_task_stage(uint32_t step, int stages, int64_t grow_steps);

/* The largest batches: of training (`shapes[0]`) and of scoring. */
void mr_task_shapes(const mr_task *task, mr_shape shapes[2]);

/* What its scores are of: "validation" or "test", as its key `split` says; without one, as its type does, or "test". */
const char *mr_task_scored(const mr_task *task);

/* The list, from tasks.def. */
const mr_task_type *const *mr_task_types(void);          /* NULL-terminated */
const mr_task_type *mr_task_type_find(const char *name); /* or NULL */

/* Allocates the settings with their defaults; then the caller parses options into task->settings and calls open. */
int mr_task_new(const mr_task_type *type, mr_task **out, mr_error *err);
int mr_task_open(mr_task *task, mr_error *err);
void mr_task_free(mr_task *task); /* closes; NULL is fine */

#endif
