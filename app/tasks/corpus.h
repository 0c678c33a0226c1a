/* A text as training and test data: its tokens, the split, random windows to train on and consecutive ones to be
 * scored on. Tasks over texts differ only in where the bytes come from. */
#ifndef MR_APP_TASKS_CORPUS_H
#define MR_APP_TASKS_CORPUS_H

#include "tasks/encode.h"
#include "tasks/task.h"

typedef struct mr_corpus_source {
    const char *name; /* of the text, in errors */
    char *bytes;      /* from mr_alloc; mr_corpus_open frees it, also on failure */
    size_t size;
    const char *names;  /* where the text comes from, as in tasks/source.h; NULL: from one place, `name` */
    const size_t *ends; /* of each of `names`: where in the bytes it ends */
    mr_vocab_kind kind; /* unless the task was given a vocabulary */
    double split;       /* the share of the tokens, from the front, that is training text */
    int validation;     /* 1: the training text alone, split once more by that share; the test text is not read */
    mr_unknown unknown; /* what happens to characters that a given vocabulary lacks */
} mr_corpus_source;

/* Sets task->data, interface, max_T, eval_batches, vocab and note. Errors name the file, and its own line and byte.
 * MR_ESTOPPED: *task->stop was set. What is left after a failure is
 * freed by mr_corpus_close. */
int mr_corpus_open(mr_task *task, mr_corpus_source source, mr_error *err);

/* The same three functions serve every mr_task_type over a text. */
void mr_corpus_close(mr_task *task);
void mr_corpus_train_batch(const mr_task *task, uint32_t step, uint32_t micro, mr_batch *batch);
void mr_corpus_eval_batch(const mr_task *task, int index, mr_batch *batch);

/* The values of an option `vocab`, in the order of mr_vocab_kind. */
extern const char *const mr_vocab_choices[];

#endif
