#include "commands/evaluate.h"

#include <string.h>
#include <unistd.h>

void mr_eval_help(FILE *to)
{
    fprintf(to, "\nkeys of the tasks, as flags:\n");
    for (const mr_task_type *const *t = mr_task_types(); *t; t++) {
        fprintf(to, "[task] %s: %s\n", (*t)->name, (*t)->summary);
        mr_args_print_options(to, (*t)->options, MR_OPT_DERIVED);
    }
}

static void on_tick(void *user, int done, int batches)
{
    (void)user;
    fprintf(stderr, "\rbatch %d of %d\033[K", done, batches);
    if (done == batches) fprintf(stderr, "\r\033[K");
    fflush(stderr);
}

int mr_eval_choose(mr_session *s, const char *name, int64_t batch, const mr_args *args)
{
    mr_error err;
    if (name[0] && (!s->recipe.task || strcmp(name, s->recipe.task->type->name))) {
        mr_recipe other;
        if (mr_recipe_new(&other, name, &err)) return mr_report(args->command, &err);
        if (s->recipe.task) other.train = s->recipe.train;
        mr_recipe_free(&s->recipe);
        s->recipe = other;
    }
    if (mr_session_need_task(s, args->given[0], &err)) return mr_report(args->command, &err);
    const mr_option *const tables[] = {s->recipe.task->type->options, NULL};
    void *const settings_of[] = {s->recipe.task->settings};
    if (batch) s->recipe.train.batch = batch;
    s->recipe.task->given = mr_net_vocab(s->net);
    return mr_args_take_pairs(args, tables, settings_of);
}

int mr_eval_score(mr_session *s, int quiet, mr_batch *batch, mr_score *score, mr_error *err)
{
    int shown = !quiet && isatty(STDERR_FILENO);
    return mr_session_evaluate(s, batch, shown ? on_tick : NULL, NULL, mr_stop_flag(), score, err);
}
