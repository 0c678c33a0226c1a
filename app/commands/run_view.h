/* What the user sees of a run while it trains: a line that is drawn again on a terminal, now and then a line
 * elsewhere. */
#ifndef MR_APP_COMMANDS_RUN_VIEW_H
#define MR_APP_COMMANDS_RUN_VIEW_H

#include "train/progress.h"
#include "train/train.h"

typedef struct mr_run_view {
    mr_progress progress;
    const mr_recipe *recipe;
    /* "minGRU/3 layers, seed 1: " before each line; "": the only run, every evaluation of it gets a line */
    char label[128];
    int quiet, terminal;
    double last_line, next_eval_line; /* of mr_seconds() */
    int64_t best_step;                /* as far as this call has seen it; 0: not yet */
} mr_run_view;

/* label "": none. alone 0: others run beside it, so that there is no line to draw again. */
mr_train_watch mr_run_view_start(mr_run_view *view, const mr_recipe *recipe, const char *label, int alone, int quiet);
/* Takes the line off the terminal, before something else is printed. */
void mr_run_view_clear(const mr_run_view *view);
/* Before a task is opened: says so on stderr where its text is so large that reading it takes seconds. */
void mr_view_reading(const mr_recipe *recipe, int quiet);

#endif
