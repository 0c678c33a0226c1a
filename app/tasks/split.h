/* Options shared by tasks that classify whole sequences: which part of the data is scored, and what the answer is read
 * from. */
#ifndef MR_APP_TASKS_SPLIT_H
#define MR_APP_TASKS_SPLIT_H

#include "tasks/task.h"

typedef enum mr_split { MR_SPLIT_VALIDATION, MR_SPLIT_TEST } mr_split;

extern const char *const mr_split_choices[]; /* in the order of mr_split */
extern const char *const mr_pool_choices[];  /* "last", "mean", … */
extern const mr_head mr_pool_heads[];        /* … and the heads they stand for */

#define MR_OPTION_SPLIT_WITH(field, more)                                                                              \
    {                                                                                                                  \
        .key = "split", .type = MR_OPT_CHOICE, .offset = (field), .fallback = "validation",                            \
        .choices = mr_split_choices, .flags = (more),                                                                  \
        .help = "what is scored: the best checkpoint is chosen by validation; test is for `minrnn eval` at the end"    \
    }
#define MR_OPTION_SPLIT(field) MR_OPTION_SPLIT_WITH(field, 0)
#define MR_OPTION_POOL(field, usual)                                                                                   \
    {                                                                                                                  \
        .key = "pool", .type = MR_OPT_CHOICE, .offset = (field), .fallback = (usual), .choices = mr_pool_choices,      \
        .help = "what the answer is read from: the last position, or the mean over all"                                \
    }

#endif
