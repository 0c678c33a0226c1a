/* minrnn eval: a model on its task's test data. */
#include "core/mem.h"
#include "commands/commands.h"
#include "commands/evaluate.h"
#include "commands/json_out.h"
#include "commands/run_view.h"

#include <math.h>
#include <stddef.h>

typedef struct settings {
    mr_common common;
    char task[MR_TEXT_MAX];
    int64_t examples, batch;
} settings;

static const mr_option flags[] = {
    MR_COMMON_FLAGS,
    {"task", MR_OPT_TEXT, offsetof(settings, task), "", 0, 0, NULL, "score on this task instead of the model's own", 0},
    {"batch", MR_OPT_INT, offsetof(settings, batch), "0", 0, 1 << 20, NULL, "sequences at once; 0: as in training", 0},
    {"examples", MR_OPT_INT, offsetof(settings, examples), "0", 0, 1000, NULL,
     "show this many test sequences: target and prediction", 0},
    {0}};

static size_t likeliest(const float *scores, size_t count)
{
    size_t best = 0;
    for (size_t c = 1; c < count; c++)
        if (scores[c] > scores[best]) best = c;
    return best;
}

/* One line: the targets of a sequence, or with scores what the model predicted there. */
static void print_row(const mr_batch *batch, size_t first, size_t count, const float *scores, size_t outputs)
{
    printf("%s", scores ? "predicted" : "target   ");
    for (size_t row = first; row < first + count; row++)
        if (batch->target[row] >= 0)
            printf(" %d", scores ? (int)likeliest(scores + row * outputs, outputs) : (int)batch->target[row]);
    printf("\n");
}

/* Rows of the first test batch: the target and the model's choice at the positions that count. */
static int show_examples(mr_session *s, mr_batch *batch, int64_t want, mr_error *err)
{
    mr_task *task = s->recipe.task;
    const size_t outputs = (size_t)task->interface.outputs;
    task->type->eval_batch(task, 0, batch);
    const size_t rows = mr_net_rows(s->net, batch->B, batch->T);
    const size_t sequences = rows < (size_t)batch->B ? rows : (size_t)batch->B, per_row = rows / sequences;
    float *scores = mr_alloc(rows * outputs, sizeof *scores);
    int status =
        scores ? mr_net_forward(s->net, batch, scores, rows * outputs, err) : mr_no_memory(err, "the examples");
    for (size_t b = 0; !status && b < sequences && b < (size_t)want; b++) {
        print_row(batch, b * per_row, per_row, NULL, outputs);
        print_row(batch, b * per_row, per_row, scores, outputs);
    }
    mr_free(scores);
    return status;
}

static int print_score_json(const mr_session *s, const mr_score *score, mr_error *err)
{
    mr_json_out out;
    mr_json_writer *w = mr_json_out_begin(&out);
    mr_json_write_open(w, '{');
    mr_json_field_text(w, "task", s->recipe.task->type->name);
    mr_json_field_text(w, "split", mr_task_scored(s->recipe.task));
    mr_json_field_real(w, "loss", score->loss, 9);
    if (isfinite(score->accuracy)) mr_json_field_real(w, "accuracy", score->accuracy, 9);
    mr_json_field_whole(w, "rows", score->rows);
    mr_json_field_whole(w, "step", mr_net_steps(s->net));
    mr_json_write_close(w, '}');
    return mr_json_out_end(&out, "\n", err);
}

static void print_score(const mr_session *s, const mr_score *score)
{
    const mr_task *task = s->recipe.task;
    printf("%s: %s loss %.4f", task->type->name, mr_task_scored(task), score->loss);
    if (isfinite(score->accuracy)) printf(", accuracy %.2f %%", 100 * score->accuracy);
    printf(", over %lld predictions\n", (long long)score->rows);
}

static int evaluate(mr_session *s, const settings *set, mr_error *err)
{
    mr_batch batch = {0};
    mr_score score;
    mr_view_reading(&s->recipe, set->common.quiet);
    int status = mr_session_open_task(s, err);
    if (status) return status;
    if (s->recipe.task->note[0] && !set->common.quiet) fprintf(stderr, "minrnn eval: %s\n", s->recipe.task->note);
    status = mr_eval_score(s, set->common.quiet, &batch, &score, err);
    if (!status && set->common.json) status = print_score_json(s, &score, err);
    else if (!status) print_score(s, &score);
    if (!status && set->examples && s->recipe.task->interface.loss == MR_LOSS_XENT)
        status = show_examples(s, &batch, set->examples, err);
    mr_batch_free(&batch);
    return status;
}

int mr_cmd_eval(int argc, char **argv)
{
    settings set = {0};
    mr_args args = {
        .command = "eval",
        .flags = flags,
        .settings = &set,
        .open = 1,
        .operands = "MODEL",
        .min = 1,
        .max = 1,
        .more_help = mr_eval_help,
        .usage =
            "usage: minrnn eval MODEL [--task NAME] [--key value …] [--json]\n\n"
            "Scores a model on its task's test data: mean loss (nats) and accuracy over the predictions that count.\n"
            "MODEL is a model file or the folder of a run. A text comes from --data, or is the one that the run's\n"
            "recipe.ini names.\n",
        .examples = "  minrnn eval runs/copy --examples 2\n"
                    "  minrnn eval runs/copy --length 1000        longer than it was trained on\n"
                    "  minrnn eval runs/book --data book.txt --json\n"};
    mr_context *ctx = NULL;
    mr_session session;
    mr_error err;
    int code = mr_args_parse(&args, argc, argv);
    if (code >= 0) return code;
    int status = mr_open_context(&set.common, &ctx, &err);
    if (!status) status = mr_session_open(&session, args.given[0], ctx, &err);
    if (!status) {
        mr_catch_signals();
        code = mr_eval_choose(&session, set.task, set.batch, set.common.quiet, &args);
        if (code < 0) status = evaluate(&session, &set, &err);
        mr_session_close(&session);
    }
    mr_context_free(ctx);
    if (code >= 0) return code;
    if (status == MR_ESTOPPED) return 128 + (int)*mr_stop_flag();
    return status ? mr_report("eval", &err) : MR_EXIT_DONE;
}
