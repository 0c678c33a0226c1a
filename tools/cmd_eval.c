/* minrnn eval: a model on its task's test data. */
#include "core/mem.h"
#include "run/evaluate.h"
#include "run/session.h"
#include "tools/args.h"
#include "tools/commands.h"

#include <math.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

typedef struct settings {
    mr_common common;
    char task[MR_TEXT_MAX];
    int64_t examples, batch;
} settings;

static const mr_option flags[] = {
    MR_COMMON_FLAGS,
    {"task", MR_OPT_TEXT, offsetof(settings, task), "", 0, 0, NULL, "another task than the model's own", 0},
    {"batch", MR_OPT_INT, offsetof(settings, batch), "0", 0, 1 << 20, NULL, "sequences at once; 0: as in training", 0},
    {"examples", MR_OPT_INT, offsetof(settings, examples), "0", 0, 1000, NULL, "show so many test sequences: target and what the model said", 0},
    {0}};

static void help_tasks(FILE *to)
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

/* The task to score on: the file's own with its settings, or a named one; flags on top. Returns −1 to go on, otherwise the
 * exit status. */
static int choose_task(mr_session *s, const settings *set, const mr_args *args)
{
    if (set->task[0] && strcmp(set->task, s->recipe.task->type->name)) {
        mr_recipe other;
        mr_error err;
        if (mr_recipe_new(&other, set->task, &err)) return mr_report("eval", &err);
        other.config = s->recipe.config;
        other.train = s->recipe.train;
        mr_recipe_free(&s->recipe);
        s->recipe = other;
    }
    const mr_option *const tables[] = {s->recipe.task->type->options, NULL};
    void *const settings_of[] = {s->recipe.task->settings};
    if (set->batch) s->recipe.train.batch = set->batch;
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

/* Rows of the first test batch: the target and the model's choice at the positions that count. */
static void show_examples(mr_session *s, mr_batch *batch, int64_t want)
{
    mr_task *task = s->recipe.task;
    size_t C = (size_t)task->face.outputs;
    float *logits = mr_alloc(C, sizeof *logits);
    task->type->eval_batch(task, 0, batch);
    mr_model_forward(s->model, batch, NULL, 0);
    size_t per_row = mr_batch_rows(batch, task->face.head) / (size_t)batch->B;
    for (size_t b = 0; logits && b < (size_t)batch->B && b < (size_t)want; b++)
        for (int said = 0; said < 2; said++) {
            printf("%s", said ? "  said  " : "target  ");
            for (size_t i = 0; i < per_row; i++) {
                size_t row = b * per_row + i, best = 0;
                if (batch->target[row] < 0) continue;
                mr_model_logits(s->model, logits, row, 1);
                for (size_t c = 1; c < C; c++)
                    if (logits[c] > logits[best]) best = c;
                printf(" %d", said ? (int)best : (int)batch->target[row]);
            }
            printf("\n");
        }
    mr_free(logits);
}

static void print_score(const settings *set, const mr_session *s, const mr_score *score)
{
    int accuracy = isfinite(score->accuracy);
    if (set->common.json) {
        printf("{\"task\": \"%s\", \"loss\": %.9g", s->recipe.task->type->name, score->loss);
        if (accuracy) printf(", \"accuracy\": %.9g", score->accuracy);
        printf(", \"rows\": %lld, \"step\": %lld}\n", (long long)score->rows, (long long)s->step);
        return;
    }
    printf("%s: loss %.4f", s->recipe.task->type->name, score->loss);
    if (accuracy) printf(", accuracy %.2f %%", 100 * score->accuracy);
    printf(", over %lld predictions\n", (long long)score->rows);
}

static int evaluate(mr_session *s, const settings *set, mr_error *err)
{
    mr_batch batch = {0};
    mr_score score;
    int status = open_task(s, err);
    if (status) return status;
    mr_task *task = s->recipe.task;
    status = mr_model_plan(s->model, task->batch, task->max_T, 0, err);
    if (!status && mr_batch_new(&batch, &task->face, task->batch, task->max_T)) status = mr_no_memory(err, "batches; lower --batch");
    int shown = !set->common.quiet && isatty(STDERR_FILENO);
    if (!status) status = mr_evaluate(s->model, task, &batch, shown ? on_tick : NULL, NULL, mr_stop_flag(), &score, err);
    if (!status) print_score(set, s, &score);
    if (!status && set->examples && task->face.loss == MR_LOSS_XENT) show_examples(s, &batch, set->examples);
    mr_batch_free(&batch);
    return status;
}

int mr_cmd_eval(int argc, char **argv)
{
    settings set;
    mr_args args = {.command = "eval", .flags = flags, .settings = &set, .open = 1, .min = 1, .max = 1, .more_help = help_tasks,
        .usage = "usage: minrnn eval MODEL [--task NAME] [--key value …] [--json]\n\n"
                 "Scores a model on its task's test data: mean loss (nats) and accuracy over the predictions that count.\n",
        .examples = "  minrnn eval runs/copy/model.safetensors --examples 2\n"
                    "  minrnn eval runs/copy/model.safetensors --length 1000        longer than it was trained on\n"
                    "  minrnn eval runs/book/model.safetensors --data book.txt --json\n"};
    mr_dev *dev = NULL;
    mr_session session;
    mr_error err;
    int code = mr_args_parse(&args, argc, argv);
    if (code >= 0) return code;
    int status = mr_open_device(&set.common, NULL, &dev, &err);
    /* planned small first, for the weights; the task says how large it must be */
    if (!status) status = mr_session_open(&session, args.given[0], dev, 1, 1, &err);
    if (!status) {
        mr_catch_signals();
        code = choose_task(&session, &set, &args);
        if (code < 0) status = evaluate(&session, &set, &err);
        mr_session_close(&session);
    }
    mr_dev_close(dev);
    if (code >= 0) return code;
    if (status == MR_ESTOPPED) return 128 + (int)*mr_stop_flag();
    return status ? mr_report("eval", &err) : MR_EXIT_DONE;
}
