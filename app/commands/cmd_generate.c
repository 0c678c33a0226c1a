/* minrnn generate: writes on from a prompt, token by token. */
#include "core/mem.h"
#include "train/generate.h"
#include "train/session.h"
#include "commands/args.h"
#include "commands/commands.h"

#include <stddef.h>
#include <string.h>

typedef struct settings {
    mr_common common;
    char prompt[MR_TEXT_MAX], stop[MR_TEXT_MAX];
    int64_t tokens, top_k;
    double temperature, top_p;
} settings;

static const mr_option flags[] = {
    MR_COMMON_FLAGS,
    {"prompt", MR_OPT_TEXT, offsetof(settings, prompt), "", 0, 0, NULL, "the text to write on from", 0},
    {"tokens", MR_OPT_INT, offsetof(settings, tokens), "500", 0, 1e15, NULL, "how many tokens", 0},
    {"temperature", MR_OPT_REAL, offsetof(settings, temperature), "0.8", 0, 100, NULL,
     "0: always the likeliest; 1: as the model says", 0},
    {"top-k", MR_OPT_INT, offsetof(settings, top_k), "0", 0, 1e9, NULL, "only the K likeliest; 0: all", 0},
    {"top-p", MR_OPT_REAL, offsetof(settings, top_p), "1", 0, 1, NULL,
     "only the likeliest that together have this probability", 0},
    {"stop", MR_OPT_TEXT, offsetof(settings, stop), "", 0, 0, NULL, "end before this text", 0},
    {0}};

typedef struct output {
    int json;
    char *text; /* for --json: all of it */
    size_t size, room;
    int failed; /* no memory for more of it */
} output;

static int on_piece(void *user, const char *bytes, size_t size)
{
    output *o = user;
    if (!o->json) return fwrite(bytes, 1, size, stdout) != size || fflush(stdout);
    if (o->size + size + 1 > o->room) {
        size_t room = 2 * (o->room + size + 1);
        char *grown = mr_alloc(room, 1);
        if (!grown) return o->failed = 1;
        if (o->size) memcpy(grown, o->text, o->size);
        mr_free(o->text);
        o->text = grown;
        o->room = room;
    }
    memcpy(o->text + o->size, bytes, size);
    o->size += size;
    o->text[o->size] = 0;
    return 0;
}

static int generate(mr_session *session, const char *path, int on_gpu, const settings *set, mr_error *err)
{
    output out = {.json = set->common.json};
    mr_generation want = {.prompt = set->prompt,
                          .stop_text = set->stop[0] ? set->stop : NULL,
                          .tokens = set->tokens,
                          .stop = mr_stop_flag(),
                          .group = on_gpu ? MR_GROUP_MAX : 1,
                          .how = MR_SAMPLE_OPTIONS};
    want.how.seed = (uint64_t)set->common.seed;
    want.how.temperature = set->temperature;
    want.how.top_p = set->top_p;
    want.how.top_k = (int)set->top_k;
    int status = mr_session_need_text(session, path, err);
    if (status) return status;
    mr_catch_signals();
    if (!set->common.json) fputs(set->prompt, stdout);
    status = mr_generate(session->net, &want, on_piece, &out, err);
    if (!status && out.failed) status = mr_no_memory(err, "the text; lower --tokens");
    if (set->common.json && !status) {
        printf("{\"prompt\": ");
        mr_print_json_string(stdout, set->prompt, strlen(set->prompt));
        printf(", \"text\": ");
        mr_print_json_string(stdout, out.text ? out.text : "", out.size);
        printf("}");
    }
    printf("\n");
    mr_free(out.text);
    return status;
}

int mr_cmd_generate(int argc, char **argv)
{
    settings set = {0};
    mr_args args = {.command = "generate",
                    .flags = flags,
                    .settings = &set,
                    .min = 1,
                    .max = 1,
                    .usage = "usage: minrnn generate MODEL [--prompt TEXT] [--tokens N] [--temperature X] [--top-k K] "
                             "[--top-p P] [--stop TEXT]\n\n"
                             "Writes on from a prompt. The same seed gives the same text.\n",
                    .examples = "  minrnn generate runs/book/model.safetensors --prompt \"Once upon\" --tokens 300\n"
                                "  minrnn generate runs/book/model.safetensors --temperature 0 --stop \".\"\n"};
    mr_context *ctx = NULL;
    mr_session session;
    mr_error err;
    int code = mr_args_parse(&args, argc, argv);
    if (code >= 0) return code;
    int status = mr_open_context(&set.common, &ctx, &err);
    if (!status) status = mr_session_open(&session, args.given[0], ctx, &err);
    if (!status) {
        status = generate(&session, args.given[0], !strncmp(mr_context_device(ctx), "cuda", 4), &set, &err);
        mr_session_close(&session);
    }
    mr_context_free(ctx);
    if (status == MR_ESTOPPED) return 128 + (int)*mr_stop_flag();
    return status ? mr_report("generate", &err) : MR_EXIT_DONE;
}
