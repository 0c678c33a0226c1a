/* The choices of tasks that classify whole sequences. */
#include "tasks/split.h"

const char *const mr_split_choices[] = {"validation", "test", NULL};
const char *const mr_pool_choices[] = {"last", "mean", NULL};
const mr_head mr_pool_heads[] = {MR_HEAD_LAST, MR_HEAD_MEAN};
