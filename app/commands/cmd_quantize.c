/* minrnn quantize: a model with its matrices in 8 bits, and its loss before and after. */
#include "core/file.h"
#include "core/mem.h"
#include "tasks/source.h"
#include "commands/commands.h"
#include "commands/evaluate.h"
#include "commands/json_out.h"
#include "commands/run_view.h"

#include <stddef.h>
#include <string.h>
#include <sys/stat.h>

static const char *const bits[] = {"8", NULL};

typedef struct settings {
    mr_common common;
    char out[MR_TEXT_MAX];
    int bits;
    int64_t batch;
} settings;

static const mr_option flags[] = {
    MR_COMMON_FLAGS,
    {"out", MR_OPT_TEXT, offsetof(settings, out), "", 0, 0, NULL, "the file to write", MR_OPT_PATH},
    {"bits", MR_OPT_CHOICE, offsetof(settings, bits), "8", 0, 0, bits, "bits per weight", 0},
    {"batch", MR_OPT_INT, offsetof(settings, batch), "0", 0, 1 << 20, NULL,
     "sequences at once while it is scored; 0: as in training", 0},
    {0}};

static int same_file(const char *a, const char *b)
{
    struct stat x, y;
    return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* The score on the test data. Where that cannot be read and no flag asked for it, scoring is left out. */
typedef struct measured {
    mr_score score;
    char left_out[MR_TEXT_MAX]; /* why; empty: it was scored */
} measured;

static int leave_out(const mr_args *args, const mr_error *err, measured *m)
{
    if (args->pair_count) return mr_report("quantize", err);
    snprintf(m->left_out, sizeof m->left_out, "%s", err->text);
    return -1;
}

/* Refuses to write over what is read. */
static int check_data(const mr_recipe *recipe, const char *out, mr_error *err)
{
    char names[MR_TEXT_MAX];
    for (const mr_option *o = recipe->task->type->options; o->key; o++)
        if ((o->flags & MR_OPT_PATH) && mr_source_has_file(mr_option_print(o, recipe->task->settings, names), out))
            return mr_fail(err, MR_EINVAL, "--out %s is also --%s, which would be lost; name another file", out,
                           o->key);
    return 0;
}

/* Refuses to write over anything but what quantize writes itself. */
static int check_out(const mr_recipe *recipe, const char *out, mr_error *err)
{
    char weights[16] = "";
    size_t needed;
    const int status = recipe->task ? check_data(recipe, out, err) : 0;
    if (status || !mr_path_exists(out)) return status;
    if (!mr_file_meta(out, "model.weights", weights, sizeof weights, &needed, NULL) && !strcmp(weights, "int8"))
        return 0;
    return mr_fail(err, MR_EINVAL, "--out %s exists and is no 8-bit model; remove it first or give another name", out);
}

/* Scores the net on the task, which is open. Returns −1 to continue, otherwise the exit status. */
static int score(mr_session *s, const settings *set, measured *m)
{
    mr_error err;
    mr_batch batch = {0};
    int status = mr_eval_score(s, set->common.quiet, &batch, &m->score, &err);
    mr_batch_free(&batch);
    if (status == MR_ESTOPPED) return 128 + (int)*mr_stop_flag();
    return status ? mr_report("quantize", &err) : -1;
}

/* Opens the task and scores the model as it is. Returns −1 to continue, otherwise the exit status. */
static int open_and_score(mr_session *s, const settings *set, const mr_args *args, measured *m)
{
    mr_error err;
    if (!s->recipe.task) {
        if (check_out(&s->recipe, set->out, &err)) return mr_report("quantize", &err);
        mr_error_set(&err, MR_EINVAL, "the model names no task");
        return leave_out(args, &err, m);
    }
    int code = mr_eval_choose(s, "", set->batch, set->common.quiet, args);
    if (code >= 0) return code;
    if (check_out(&s->recipe, set->out, &err)) return mr_report("quantize", &err);
    mr_view_reading(&s->recipe, set->common.quiet);
    int status = mr_session_open_task(s, &err);
    if (status == MR_ESTOPPED) return 128 + (int)*mr_stop_flag();
    return status ? leave_out(args, &err, m) : score(s, set, m);
}

/* Puts the net of another file in the place of the session's. Its vocabulary is the same, so an open task stays. */
static int change_net(mr_session *s, const char *path, mr_context *ctx, mr_error *err)
{
    mr_net *net;
    int status = mr_net_open(ctx, path, &net, err);
    if (status) return status;
    if (s->recipe.task && s->recipe.task->given) s->recipe.task->given = s->recipe.task->vocab = mr_net_vocab(net);
    mr_net_free(s->net);
    s->net = net;
    return 0;
}

static int print_json(const measured *before, const measured *after, int scored, const long long bytes[2])
{
    mr_json_out out;
    mr_error err;
    mr_json_writer *w = mr_json_out_begin(&out);
    mr_json_write_open(w, '{');
    mr_json_field_whole(w, "bits", 8);
    if (scored) {
        mr_json_field_real(w, "loss_before", before->score.loss, 9);
        mr_json_field_real(w, "loss_after", after->score.loss, 9);
        mr_json_field_whole(w, "rows", after->score.rows);
    }
    mr_json_field_whole(w, "bytes_before", bytes[0]);
    mr_json_field_whole(w, "bytes_after", bytes[1]);
    mr_json_write_close(w, '}');
    return mr_json_out_end(&out, "\n", &err) ? mr_report("quantize", &err) : MR_EXIT_DONE;
}

/* `what`: the kind of loss, in words. */
static int print_result(const settings *set, const char *from, const char *what, const measured *before,
                        const measured *after)
{
    struct stat large = {0}, small = {0};
    stat(from, &large);
    stat(set->out, &small);
    const long long bytes[] = {(long long)large.st_size, (long long)small.st_size};
    const double loss[] = {before->score.loss, after->score.loss};
    const int scored = !before->left_out[0];
    if (set->common.json) return print_json(before, after, scored, bytes);
    printf("%s: %lld bytes, was %lld\n", set->out, bytes[1], bytes[0]);
    if (scored)
        printf("%s: f32 %.4f, int8 %.4f (%+.4f), over %lld predictions\n", what, loss[0], loss[1], loss[1] - loss[0],
               (long long)after->score.rows);
    else printf("loss not measured: %s\n", before->left_out);
    return MR_EXIT_DONE;
}

static int save(mr_session *s, const char *out, mr_error *err)
{
    char weights[MR_TEXT_MAX];
    int status = mr_net_setting(s->net, "weights", weights, sizeof weights, err);
    if (!status && strcmp(weights, "f32"))
        status = mr_fail(err, MR_EINVAL, "%s: the weights already have 8 bits", s->path);
    return status ? status : mr_net_save_int8(s->net, out, err);
}

/* The data may be a pipe: the task is opened once, and both nets are scored on it. */
static int quantize(mr_session *s, const settings *set, const mr_args *args, mr_context *ctx)
{
    measured before = {0}, after = {0};
    mr_error err;
    int code = open_and_score(s, set, args, &before);
    if (code >= 0) return code;
    if (save(s, set->out, &err) || change_net(s, set->out, ctx, &err)) return mr_report("quantize", &err);
    if (!before.left_out[0]) code = score(s, set, &after);
    const char *what = mr_net_loss(s->net) == MR_LOSS_MSE ? "squared error" : "loss in nats";
    return code >= 0 ? code : print_result(set, s->path, what, &before, &after);
}

int mr_cmd_quantize(int argc, char **argv)
{
    settings set = {0};
    mr_args args = {.command = "quantize",
                    .flags = flags,
                    .settings = &set,
                    .open = 1,
                    .operands = "MODEL",
                    .min = 1,
                    .max = 1,
                    .more_help = mr_eval_help,
                    .usage = "usage: minrnn quantize MODEL --out FILE [--bits 8] [--data FILE] [--json]\n\n"
                             "Writes a model whose matrices are in 8 bits, a quarter of the size: eval, score, "
                             "generate and info take it like\n"
                             "any other. Prints the loss on the task's test data before and after; if there is no test "
                             "data, it still writes\n"
                             "the model. MODEL is a model file or the folder of a run. A FILE that exists is replaced "
                             "only if it is a\n"
                             "model in 8 bits.\n",
                    .examples = "  minrnn quantize runs/book --out book8.safetensors\n"
                                "  minrnn quantize runs/book/last.safetensors --out book8.safetensors --data book.txt\n"
                                "  minrnn generate book8.safetensors --prompt \"Once\"\n"};
    mr_context *ctx = NULL;
    mr_session session;
    mr_error err;
    char *path = NULL;
    int code = mr_args_parse(&args, argc, argv);
    if (code >= 0) return code;
    if (!set.out[0]) return mr_misused("quantize", "--out FILE is missing; see `minrnn quantize --help`");
    int status = mr_model_path(args.given[0], &path, &err);
    if (!status && same_file(path, set.out))
        status =
            mr_fail(&err, MR_EINVAL, "--out %s is the model itself, which would be lost; name another file", set.out);
    if (!status) status = mr_open_context(&set.common, &ctx, &err);
    mr_catch_signals();
    if (!status) status = mr_session_open(&session, path, ctx, &err);
    if (!status) {
        code = quantize(&session, &set, &args, ctx);
        mr_session_close(&session);
    }
    mr_context_free(ctx);
    mr_free(path);
    return status ? mr_report("quantize", &err) : code;
}
