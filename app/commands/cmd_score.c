/* minrnn score: the log-probability of texts, in constant memory. */
#include "core/clock.h"
#include "train/score.h"
#include "train/session.h"
#include "commands/args.h"
#include "commands/commands.h"
#include "commands/json_out.h"
#include "commands/text_input.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FLUSHED_AFTER = 1024 }; /* log-probabilities that wait in memory at most */

typedef struct settings {
    mr_common common;
    char mode[MR_TEXT_MAX];
    int per_token, unknown;
} settings;

static const mr_option flags[] = {MR_COMMON_FLAGS,
                                  {"mode", MR_OPT_TEXT, offsetof(settings, mode), "parallel", 0, 0, NULL,
                                   "parallel, step (one token at a time) or chunk=N; the same result", 0},
                                  {"per-token", MR_OPT_BOOL, offsetof(settings, per_token), "no", 0, 0, NULL,
                                   "the log-probability of every token", 0},
                                  MR_UNKNOWN_OPTION(offsetof(settings, unknown), 0),
                                  {0}};

static int parse_mode(const char *mode, int *chunk, mr_error *err)
{
    char *end;
    if (!strcmp(mode, "parallel")) return *chunk = MR_PARALLEL_TOKENS, 0;
    if (!strcmp(mode, "step")) return *chunk = 1, 0;
    if (!strncmp(mode, "chunk=", 6) && mode[6] >= '0' && mode[6] <= '9') {
        errno = 0;
        long n = strtol(mode + 6, &end, 10);
        if (!*end && !errno && n >= 1 && n <= 1 << 24) return *chunk = (int)n, 0;
    }
    return mr_fail(err, MR_EINVAL, "--mode %.100s: must be parallel, step or chunk=N with N from 1 to %d", mode,
                   1 << 24);
}

/* ---- reading and printing as it goes ---- */

typedef struct stream {
    mr_text_input input;
    const settings *set;
    mr_json_out *json;
    int shown; /* progress is printed */
    int64_t printed;
    double last; /* of mr_seconds(): when progress was printed */
} stream;

static long read_stream(void *user, char *buffer, size_t size)
{
    stream *s = user;
    return mr_text_input_read(&s->input, buffer, size);
}

static void on_logprob(void *user, double logprob)
{
    stream *s = user;
    const mr_text_input *in = &s->input;
    if (s->shown && mr_seconds() - s->last >= 1) {
        s->last = mr_seconds();
        if (in->total)
            fprintf(stderr, "\r%.0f %% of the text read\033[K", 100.0 * (double)in->bytes / (double)in->total);
        else fprintf(stderr, "\r%.1f MB read\033[K", (double)in->bytes / 1e6);
        fflush(stderr);
    }
    if (!s->set->per_token) return;
    if (!s->set->common.json) {
        printf("%.9g\n", logprob);
        return;
    }
    mr_json_write_real(&s->json->w, logprob, 9);
    if (++s->printed % FLUSHED_AFTER == 0) mr_json_out_flush(s->json);
}

/* What follows the log-probabilities in JSON, or all of a line. */
static void print_score(const settings *set, const mr_text_score *score, mr_json_writer *w)
{
    if (!set->common.json) {
        printf("%lld tokens, %.6f nats a token\n", (long long)score->tokens, score->nats_per_token);
        return;
    }
    mr_json_field_whole(w, "tokens", score->tokens);
    mr_json_field_real(w, "nats_per_token", score->nats_per_token, 9);
    if (set->unknown) mr_json_field_whole(w, set->unknown == MR_UNKNOWN_SKIP ? "skipped" : "replaced", score->changed);
}

static int score_input(mr_session *session, int chunk, stream *s, mr_text_score *score, mr_error *err)
{
    const settings *set = s->set;
    const mr_score_options options = {.chunk = chunk,
                                      .unknown = (mr_unknown)set->unknown,
                                      .name = s->input.name,
                                      .read = read_stream,
                                      .each = on_logprob,
                                      .user = s};
    char note[MR_ENCODE_NOTE];
    int status = mr_score_text(session->net, &options, score, err);
    if (s->shown) fprintf(stderr, "\r\033[K");
    if (!status && score->changed && !set->common.quiet)
        fprintf(stderr, "minrnn score: %s: %s\n", s->input.name,
                mr_encode_note((mr_unknown)set->unknown, score->changed, note));
    return status;
}

static void begin_object(mr_json_writer *w, const char *file)
{
    mr_json_write_open(w, '{');
    if (file) mr_json_field_text(w, "file", file);
}

/* One of several texts, or the only one. Log-probabilities are printed as they come, so JSON is closed even if the text
 * fails. */
static int score_file(mr_session *session, const char *path, int chunk, int several, const settings *set,
                      mr_json_out *json, mr_text_score *score, mr_error *err)
{
    mr_json_writer *w = &json->w;
    const int logprobs = set->common.json && set->per_token;
    stream s = {.set = set, .json = json, .shown = !set->common.quiet && isatty(STDERR_FILENO), .last = mr_seconds()};
    mr_tell_typing(path, set->common.quiet);
    int status = mr_text_input_open(&s.input, path, err);
    if (status) return status;
    if (logprobs) {
        begin_object(w, several ? path : NULL);
        mr_json_write_key(w, "logprobs");
        mr_json_write_open(w, '[');
    }
    status = score_input(session, chunk, &s, score, err);
    mr_text_input_close(&s.input);
    if (logprobs) mr_json_write_close(w, ']');
    else if (set->common.json && !status) begin_object(w, several ? path : NULL);
    else if (several && !status) printf("%s: ", path);
    if (!status) print_score(set, score, w);
    if (logprobs || (set->common.json && !status)) mr_json_write_close(w, '}');
    return status;
}

/* Several texts: each starts with a fresh state. The total is over all predictions. */
static int score_files(mr_session *session, const mr_args *args, int chunk, const settings *set, mr_json_out *json,
                       mr_error *err)
{
    const int files = args->count - 1, brackets = set->common.json && files > 1;
    mr_text_score total = {0};
    double nats = 0;
    int status = 0;
    if (brackets) {
        mr_json_write_open(&json->w, '{');
        mr_json_write_key(&json->w, "files");
        mr_json_write_open(&json->w, '[');
    }
    for (int i = 1; !status && i <= files; i++) {
        mr_text_score score = {0};
        status = score_file(session, args->given[i], chunk, files > 1, set, json, &score, err);
        total.tokens += score.tokens;
        total.changed += score.changed;
        nats += score.nats_per_token * (double)(score.tokens - 1);
    }
    total.nats_per_token = nats / (double)(total.tokens - files);
    if (brackets) mr_json_write_close(&json->w, ']');
    if (files > 1 && !status) {
        if (!set->common.json) printf("all: ");
        print_score(set, &total, &json->w);
    }
    if (brackets) mr_json_write_close(&json->w, '}');
    return status;
}

static int score(mr_session *session, const mr_args *args, int chunk, const settings *set, mr_error *err)
{
    mr_json_out json;
    mr_json_out_begin(&json);
    int status = mr_session_need_text(session, args->given[0], err);
    if (!status) status = score_files(session, args, chunk, set, &json, err);
    const int printed = json.w.needs_comma; /* as it does after every object */
    int ended = mr_json_out_end(&json, printed ? "\n" : "", status ? NULL : err);
    return status ? status : ended;
}

/* The second time there would be nothing left of it. */
static int check_names(const mr_args *args, mr_error *err)
{
    int standard = 0;
    for (int i = 1; i < args->count; i++) standard += !strcmp(args->given[i], "-");
    return standard < 2 ? 0 : mr_fail(err, MR_EINVAL, "- is given twice; standard input can be given once");
}

int mr_cmd_score(int argc, char **argv)
{
    settings set = {0};
    mr_args args = {
        .command = "score",
        .flags = flags,
        .settings = &set,
        .operands = "MODEL FILE",
        .min = 2,
        .max = MR_ARGS_MAX,
        .usage =
            "usage: minrnn score MODEL FILE|- … [--mode parallel|step|chunk=N] [--per-token] [--json]\n\n"
            "Log-probability of texts, in nats a token. MODEL is a model file or the folder of a run; - is standard\n"
            "input. The state is carried over the whole of a text, in every mode; each file is a text of its own.\n",
        .examples = "  minrnn score runs/book other.txt\n"
                    "  minrnn score runs/book - --mode step < other.txt\n"
                    "  minrnn score runs/book a.txt b.txt --unknown skip\n"
                    "  minrnn score runs/book other.txt --per-token --json\n"};
    mr_context *ctx = NULL;
    mr_session session;
    mr_error err;
    int chunk = 1, code = mr_args_parse(&args, argc, argv);
    if (code >= 0) return code;
    int status = parse_mode(set.mode, &chunk, &err);
    if (!status) status = check_names(&args, &err);
    if (!status) status = mr_open_context(&set.common, &ctx, &err);
    if (!status) status = mr_session_open(&session, args.given[0], ctx, &err);
    if (!status) {
        status = score(&session, &args, chunk, &set, &err);
        mr_session_close(&session);
    }
    mr_context_free(ctx);
    return status ? mr_report("score", &err) : MR_EXIT_DONE;
}
