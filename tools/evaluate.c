#include "tools/evaluate.h"

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
    if (name[0] && strcmp(name, s->recipe.task->type->name)) {
        mr_recipe other;
        mr_error err;
        if (mr_recipe_new(&other, name, &err)) return mr_report(args->command, &err);
        other.config = s->recipe.config;
        other.train = s->recipe.train;
        mr_recipe_free(&s->recipe);
        s->recipe = other;
    }
    const mr_option *const tables[] = {s->recipe.task->type->options, NULL};
    void *const settings_of[] = {s->recipe.task->settings};
    if (batch) s->recipe.train.batch = batch;
    s->recipe.task->given = s->vocab.size ? &s->vocab : NULL;
    return mr_args_take_pairs(args, tables, settings_of);
}

static int same_interface(const mr_interface *a, const mr_interface *b)
{
    return a->input == b->input && a->inputs == b->inputs && a->head == b->head && a->loss == b->loss && a->outputs == b->outputs;
}

static int open_task(mr_session *s, mr_error *err)
{
    mr_interface have = mr_config_interface(&s->recipe.config);
    int status = mr_recipe_open(&s->recipe, err);
    if (status) return status;
    if (!same_interface(&have, &s->recipe.task->face))
        return mr_fail(err, MR_ECONFIG, "task %s needs a model with %d inputs and %d outputs; this one has %d and %d",
                       s->recipe.task->type->name, s->recipe.task->face.inputs, s->recipe.task->face.outputs, have.inputs, have.outputs);
    return 0;
}

int mr_eval_score(mr_session *s, int quiet, mr_batch *batch, mr_score *score, mr_error *err)
{
    int status = open_task(s, err);
    if (status) return status;
    mr_task *task = s->recipe.task;
    status = mr_model_plan(s->model, task->batch, task->max_T, 0, err);
    if (!status && mr_batch_new(batch, &task->face, task->batch, task->max_T)) status = mr_no_memory(err, "batches; lower --batch");
    int shown = !quiet && isatty(STDERR_FILENO);
    if (!status) status = mr_evaluate(s->model, task, batch, shown ? on_tick : NULL, NULL, mr_stop_flag(), score, err);
    return status;
}
