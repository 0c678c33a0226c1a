/* minrnn quantize: a model with its matrices in 8 bits, and what that costs it. */
#include "commands/commands.h"
#include "commands/evaluate.h"

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
    {"bits", MR_OPT_CHOICE, offsetof(settings, bits), "8", 0, 0, bits, "bits a weight", 0},
    {"batch", MR_OPT_INT, offsetof(settings, batch), "0", 0, 1 << 20, NULL,
     "sequences at once while it is scored; 0: as in training", 0},
    {0}};

static int same_file(const char *a, const char *b)
{
    struct stat x, y;
    return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Opens a model and scores it; the session stays open when it could be. Returns −1 to go on, otherwise the exit
 * status. */
static int open_and_score(const char *path, const settings *set, const mr_args *args, mr_context *ctx, mr_session *s,
                          mr_score *score)
{
    mr_error err;
    mr_batch batch = {0};
    int status = mr_session_open(s, path, ctx, &err);
    if (status) return mr_report("quantize", &err);
    int code = mr_eval_choose(s, "", set->batch, args);
    if (code < 0) status = mr_eval_score(s, set->common.quiet, &batch, score, &err);
    mr_batch_free(&batch);
    if (code < 0 && status == MR_ESTOPPED) code = 128 + (int)*mr_stop_flag();
    else if (code < 0 && status) code = mr_report("quantize", &err);
    if (code >= 0) mr_session_close(s);
    return code;
}

static void print_result(const settings *set, const char *from, const mr_score *before, const mr_score *after)
{
    struct stat large = {0}, small = {0};
    stat(from, &large);
    stat(set->out, &small);
    if (set->common.json)
        printf("{\"bits\": 8, \"loss_before\": %.9g, \"loss_after\": %.9g, \"rows\": %lld, \"bytes_before\": %lld, "
               "\"bytes_after\": %lld}\n",
               before->loss, after->loss, (long long)after->rows, (long long)large.st_size, (long long)small.st_size);
    else
        printf("%s: %lld bytes, was %lld\nloss in nats: f32 %.4f, int8 %.4f (%+.4f), over %lld predictions\n", set->out,
               (long long)small.st_size, (long long)large.st_size, before->loss, after->loss,
               after->loss - before->loss, (long long)after->rows);
}

static int quantize(const char *path, const settings *set, const mr_args *args, mr_context *ctx)
{
    mr_session session;
    mr_score before = {0}, after = {0};
    mr_error err;
    int code = open_and_score(path, set, args, ctx, &session, &before);
    if (code >= 0) return code;
    int status = mr_net_save_int8(session.net, set->out, &err);
    mr_session_close(&session);
    if (status) return mr_report("quantize", &err);
    code = open_and_score(set->out, set, args, ctx, &session, &after);
    if (code >= 0) return code;
    mr_session_close(&session);
    print_result(set, path, &before, &after);
    return MR_EXIT_DONE;
}

int mr_cmd_quantize(int argc, char **argv)
{
    settings set = {0};
    mr_args args = {.command = "quantize",
                    .flags = flags,
                    .settings = &set,
                    .open = 1,
                    .min = 1,
                    .max = 1,
                    .more_help = mr_eval_help,
                    .usage = "usage: minrnn quantize MODEL --out FILE [--bits 8] [--data TEXT] [--json]\n\n"
                             "Writes a model whose matrices are in 8 bits, a quarter of the size: eval, score, "
                             "generate and info take it like\n"
                             "any other. Prints the loss on the task's test data before and after.\n",
                    .examples =
                        "  minrnn quantize runs/book/model.safetensors --out book8.safetensors --data book.txt\n"
                        "  minrnn generate book8.safetensors --prompt \"Once\"\n"};
    mr_context *ctx = NULL;
    mr_error err;
    int code = mr_args_parse(&args, argc, argv);
    if (code >= 0) return code;
    if (!set.out[0]) return mr_misused("quantize", "--out FILE is missing; see `minrnn quantize --help`");
    if (same_file(args.given[0], set.out)) {
        mr_fail(&err, MR_EINVAL, "--out %s is the model itself, which would be lost; name another file", set.out);
        return mr_report("quantize", &err);
    }
    if (mr_open_context(&set.common, &ctx, &err)) return mr_report("quantize", &err);
    mr_catch_signals();
    code = quantize(args.given[0], &set, &args, ctx);
    mr_context_free(ctx);
    return code;
}
