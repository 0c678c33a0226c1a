/* minrnn generate: continues a prompt, token by token. */
#include "core/clock.h"
#include "core/mem.h"
#include "train/generate.h"
#include "train/session.h"
#include "commands/args.h"
#include "commands/commands.h"
#include "commands/json_out.h"
#include "commands/text_input.h"

#include <stddef.h>
#include <string.h>

#define FLUSH_SECONDS 0.03 /* a reader sees text at once, and a fast model does not write token by token */

enum { STOPS_MAX = 64, PROMPT_MAX = 64 << 20 };

typedef struct settings {
    mr_common common;
    char prompt[MR_TEXT_MAX], prompt_file[MR_TEXT_MAX], stop[MR_TEXT_MAX];
    int64_t tokens, top_k;
    double temperature, top_p;
    int unknown;
} settings;

#define FIELD(name) offsetof(settings, name)

static const mr_option flags[] = {
    MR_COMMON_FLAGS,
    {"prompt", MR_OPT_TEXT, FIELD(prompt), "", 0, 0, NULL, "the text to continue; -: standard input", 0},
    {"prompt-file", MR_OPT_TEXT, FIELD(prompt_file), "", 0, 0, NULL, "a file with the text to continue", MR_OPT_PATH},
    MR_UNKNOWN_OPTION(FIELD(unknown), 0),
    {"tokens", MR_OPT_INT, FIELD(tokens), "500", 0, 1e15, NULL, "how many tokens", 0},
    {"temperature", MR_OPT_REAL, FIELD(temperature), "0.8", 0, 100, NULL,
     "0: always the likeliest token; 1: the model's own probabilities", 0},
    {"top-k", MR_OPT_INT, FIELD(top_k), "0", 0, 1e9, NULL, "only the K likeliest; 0: all", 0},
    {"top-p", MR_OPT_REAL, FIELD(top_p), "1", 0, 1, NULL, "only the likeliest that together have this probability", 0},
    {"stop", MR_OPT_TEXT, FIELD(stop), "", 0, 0, NULL, "end before this text", MR_OPT_MANY},
    {0}};

/* ---- output ---- */

typedef struct output {
    int json;
    double flushed; /* when */
    char *text;     /* for --json: all of it, without a zero at its end */
    size_t size, room;
    int failed; /* no memory for more of it */
} output;

static int print_piece(output *o, const char *bytes, size_t size)
{
    if (fwrite(bytes, 1, size, stdout) != size) return 1;
    const double now = mr_seconds();
    if (now - o->flushed < FLUSH_SECONDS) return 0;
    o->flushed = now;
    return fflush(stdout);
}

static int on_piece(void *user, const char *bytes, size_t size)
{
    output *o = user;
    if (!o->json) return print_piece(o, bytes, size);
    if (o->size + size > o->room) {
        size_t room = 2 * (o->room + size);
        char *grown = mr_alloc(room, 1);
        if (!grown) return o->failed = 1;
        if (o->size) memcpy(grown, o->text, o->size);
        mr_free(o->text);
        o->text = grown;
        o->room = room;
    }
    memcpy(o->text + o->size, bytes, size);
    o->size += size;
    return 0;
}

/* ---- the prompt ---- */

typedef struct prompt_text {
    const char *text;
    size_t size;
    char *read;       /* what was read from a file; NULL: it is in the flag */
    const char *from; /* for errors */
} prompt_text;

static int read_prompt(const settings *set, prompt_text *p, mr_error *err)
{
    const int standard = !strcmp(set->prompt, "-"), read = standard || set->prompt_file[0];
    const char *path = standard ? "-" : set->prompt_file;
    *p = (prompt_text){.text = set->prompt, .size = strlen(set->prompt), .from = "--prompt"};
    if (!read) return 0;
    mr_tell_typing(path, set->common.quiet);
    p->from = standard ? "standard input" : set->prompt_file;
    int status = mr_text_input_all(path, PROMPT_MAX, &p->read, &p->size, err);
    p->text = p->read;
    return status;
}

/* As tokens. Reports on stderr how many characters were skipped or replaced. */
static int encode_prompt(const mr_session *session, const prompt_text *p, const settings *set, mr_prompt *prompt,
                         mr_error *err)
{
    char note[MR_ENCODE_NOTE];
    mr_error inner;
    int status = mr_prompt_encode(session->net, p->text, p->size, (mr_unknown)set->unknown, prompt, &inner);
    if (status) return mr_fail(err, status, "%s: %.900s", p->from, inner.text);
    if (prompt->changed && !set->common.quiet)
        fprintf(stderr, "minrnn generate: %s: %s\n", p->from,
                mr_encode_note((mr_unknown)set->unknown, prompt->changed, note));
    return 0;
}

/* ---- the command ---- */

static int print_json(const prompt_text *p, uint64_t seed, const output *written, mr_error *err)
{
    mr_json_out out;
    mr_json_writer *w = mr_json_out_begin(&out);
    mr_json_write_open(w, '{');
    mr_json_write_key(w, "prompt");
    mr_json_write_string(w, p->text, p->size);
    mr_json_write_key(w, "text");
    mr_json_write_string(w, written->text ? written->text : "", written->size);
    mr_json_field_whole(w, "seed", (int64_t)seed);
    mr_json_write_close(w, '}');
    return mr_json_out_end(&out, "\n", err);
}

static int write_text(mr_session *session, const prompt_text *p, const mr_generation *want, int json, mr_error *err)
{
    output out = {.json = json};
    if (!json) fwrite(p->text, 1, p->size, stdout);
    int status = mr_generate(session->net, want, on_piece, &out, err);
    if (!status && out.failed) status = mr_no_memory(err, "the text; lower --tokens");
    if (json && !status) status = print_json(p, want->how.seed, &out, err);
    if (!json) printf("\n");
    mr_free(out.text);
    return status;
}

static int has_empty_stop(const mr_args *args)
{
    int empty = 0;
    for (int i = 0; !empty && mr_args_value(args, "stop", i); i++) empty = !mr_args_value(args, "stop", i)[0];
    return empty;
}

static int generate(mr_session *session, const mr_args *args, const settings *set, int on_gpu, mr_error *err)
{
    const char *stops[STOPS_MAX + 1] = {NULL};
    prompt_text text = {0};
    mr_prompt prompt = {0};
    mr_generation want = {.prompt = &prompt,
                          .stop_texts = stops,
                          .tokens = set->tokens,
                          .stop = mr_stop_flag(),
                          .group = on_gpu ? MR_GROUP_MAX : 1,
                          .how = MR_SAMPLE_OPTIONS};
    want.how.seed = (uint64_t)set->common.seed;
    want.how.temperature = set->temperature;
    want.how.top_p = set->top_p;
    want.how.top_k = (int)set->top_k;
    for (int i = 0; i < STOPS_MAX && (stops[i] = mr_args_value(args, "stop", i)); i++) continue;
    int status = mr_session_need_text(session, args->given[0], err);
    mr_catch_signals();
    if (!status) status = read_prompt(set, &text, err);
    if (!status) status = encode_prompt(session, &text, set, &prompt, err);
    if (!status) status = write_text(session, &text, &want, set->common.json, err);
    mr_free(text.read);
    mr_free(prompt.tokens);
    return status;
}

int mr_cmd_generate(int argc, char **argv)
{
    settings set = {0};
    mr_args args = {.command = "generate",
                    .flags = flags,
                    .settings = &set,
                    .operands = "MODEL",
                    .min = 1,
                    .max = 1,
                    .usage =
                        "usage: minrnn generate MODEL [--prompt TEXT] [--tokens N] [--temperature X] [--top-k K] "
                        "[--top-p P] [--stop TEXT]\n\n"
                        "Continues a prompt. MODEL is a model file or the folder of a run. The same seed gives the "
                        "same text.\n",
                    .examples = "  minrnn generate runs/book --prompt \"Once upon\" --tokens 300\n"
                                "  minrnn generate runs/book --temperature 0 --stop . --stop !\n"
                                "  printf 'Once upon' | minrnn generate runs/book --prompt - --seed random\n"};
    mr_context *ctx = NULL;
    mr_session session;
    mr_error err;
    int code = mr_args_parse(&args, argc, argv);
    if (code >= 0) return code;
    if (set.prompt[0] && set.prompt_file[0])
        return mr_misused("generate", "--prompt and --prompt-file exclude each other; give one of them");
    if (mr_args_value(&args, "stop", STOPS_MAX))
        return mr_misused("generate", "more than %d texts to --stop at; give fewer", STOPS_MAX);
    if (has_empty_stop(&args)) return mr_misused("generate", "--stop is empty; give the text to stop before");
    int status = mr_open_context(&set.common, &ctx, &err);
    if (!status) status = mr_session_open(&session, args.given[0], ctx, &err);
    if (!status) {
        status = generate(&session, &args, &set, !strncmp(mr_context_device(ctx), "cuda", 4), &err);
        mr_session_close(&session);
    }
    mr_context_free(ctx);
    if (status == MR_ESTOPPED) return 128 + (int)*mr_stop_flag();
    return status ? mr_report("generate", &err) : MR_EXIT_DONE;
}
