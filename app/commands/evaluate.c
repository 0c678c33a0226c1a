/* Scoring a model on its task's test data, for eval and quantize. */
#include "commands/evaluate.h"

#include <string.h>
#include <unistd.h>

void mr_eval_help(FILE *to, const char *topic)
{
    const int all = topic && !strcmp(topic, "all");
    int found = 0;
    for (const mr_task_type *const *t = mr_task_types(); *t; t++) {
        if (!all && (!topic || strcmp(topic, (*t)->name))) continue;
        if (!found++) fprintf(to, "\nkeys of tasks, as flags:\n");
        fprintf(to, "[task] %s: %s\n", (*t)->name, (*t)->summary);
        mr_args_print_options(to, (*t)->options, MR_OPT_DERIVED);
    }
    if (found) return;
    fprintf(
        to,
        "\nThe keys of the model's task are flags as well. `--help TASK` lists them, `--help all` those of all:\n ");
    for (const mr_task_type *const *t = mr_task_types(); *t; t++) fprintf(to, " %s", (*t)->name);
    fprintf(to, "\n");
}

static void on_tick(void *user, int done, int batches)
{
    (void)user;
    fprintf(stderr, "\rbatch %d of %d\033[K", done, batches);
    if (done == batches) fprintf(stderr, "\r\033[K");
    fflush(stderr);
}

static int unknown_task(const char *name, const mr_args *args)
{
    enum { MOST = 64 };
    const char *names[MOST + 1] = {NULL};
    for (int i = 0; mr_task_types()[i] && i < MOST; i++) names[i] = mr_task_types()[i]->name;
    return mr_unknown_name(args->command, "task", name, names);
}

/* Returns −1 to continue, otherwise the exit status. */
static int change_task(mr_session *s, const char *name, const mr_args *args)
{
    mr_recipe other;
    mr_error err;
    if (!name[0] || (s->recipe.task && !strcmp(name, s->recipe.task->type->name))) return -1;
    if (!mr_task_type_find(name)) return unknown_task(name, args);
    if (mr_recipe_new(&other, name, &err)) return mr_report(args->command, &err);
    if (s->recipe.task) other.train = s->recipe.train;
    mr_recipe_free(&s->recipe);
    s->recipe = other;
    return -1;
}

int mr_eval_choose(mr_session *s, const char *name, int64_t batch, int quiet, const mr_args *args)
{
    mr_error err;
    int code = change_task(s, name, args);
    if (code >= 0) return code;
    if (mr_session_need_task(s, args->given[0], &err)) return mr_report(args->command, &err);
    const mr_option *const tables[] = {s->recipe.task->type->options, NULL};
    void *const settings_of[] = {s->recipe.task->settings};
    if (batch) s->recipe.train.batch = batch;
    s->recipe.task->given = mr_net_vocab(s->net);
    s->recipe.task->stop = mr_stop_flag();
    code = mr_args_take_pairs(args, tables, settings_of);
    const char *data = code < 0 ? mr_session_find_data(s, args->given[0]) : NULL;
    if (quiet) s->run_sha256[0] = 0; /* so that nothing is printed about it */
    if (data && !quiet) {
        const size_t first = strcspn(data, "\n");
        fprintf(stderr, "minrnn %s: data: %.*s%s, as in the run's recipe.ini\n", args->command, (int)first, data,
                data[first] ? " and more" : "");
    }
    return code;
}

int mr_eval_score(mr_session *s, int quiet, mr_batch *batch, mr_score *score, mr_error *err)
{
    int shown = !quiet && isatty(STDERR_FILENO);
    if (!quiet && mr_session_other_data(s)) {
        fprintf(stderr,
                "minrnn: the data has changed since the run was trained on it: its SHA-256 is %.12s…, then %.12s…\n",
                s->recipe.task->data_sha256, s->run_sha256);
        s->run_sha256[0] = 0; /* said once */
    }
    return mr_session_evaluate(s, batch, shown ? on_tick : NULL, NULL, mr_stop_flag(), score, err);
}
