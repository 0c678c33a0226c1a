/* minrnn score: the log-probability of texts, in constant memory. */
#include "core/clock.h"
#include "train/score.h"
#include "train/session.h"
#include "commands/args.h"
#include "commands/commands.h"
#include "commands/text_input.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct settings {
    mr_common common;
    char mode[MR_TEXT_MAX];
    int per_token, unknown;
} settings;

static const mr_option flags[] = {
    MR_COMMON_FLAGS,
    {"mode", MR_OPT_TEXT, offsetof(settings, mode), "parallel", 0, 0, NULL,
     "parallel, step (one token at a time) or chunk=N; the same result", 0},
    {"per-token", MR_OPT_BOOL, offsetof(settings, per_token), "no", 0, 0, NULL, "the log-probability of every token",
     0},
    {"unknown", MR_OPT_CHOICE, offsetof(settings, unknown), "error", 0, 0, mr_unknown_choices, MR_UNKNOWN_HELP, 0},
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
    int shown;          /* progress is printed */
    const char *before; /* printed before its JSON object */
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
    if (s->set->common.json) printf("%s%.9g", s->printed ? ", " : "", logprob);
    else printf("%.9g\n", logprob);
    s->printed++;
}

/* What follows the log-probabilities in JSON, or all of a line. */
static void print_score(const settings *set, const mr_text_score *score)
{
    if (!set->common.json) {
        printf("%lld tokens, %.6f nats a token\n", (long long)score->tokens, score->nats_per_token);
        return;
    }
    printf("\"tokens\": %lld, \"nats_per_token\": %.9g", (long long)score->tokens, score->nats_per_token);
    if (set->unknown)
        printf(", \"%s\": %lld", set->unknown == MR_UNKNOWN_SKIP ? "skipped" : "replaced", (long long)score->changed);
}

/* One text. Log-probabilities are printed as they come, so JSON is closed even if the text fails. */
static int score_input(mr_session *session, int chunk, stream *s, mr_text_score *score, mr_error *err)
{
    const settings *set = s->set;
    const int logprobs = set->common.json && set->per_token;
    const mr_score_options options = {.chunk = chunk,
                                      .unknown = (mr_unknown)set->unknown,
                                      .name = s->input.name,
                                      .read = read_stream,
                                      .each = on_logprob,
                                      .user = s};
    char note[MR_ENCODE_NOTE];
    if (logprobs) printf("%s{\"logprobs\": [", s->before);
    int status = mr_score_text(session->net, &options, score, err);
    if (s->shown) fprintf(stderr, "\r\033[K");
    if (logprobs) printf(status ? "]}" : "], ");
    else if (set->common.json && !status) printf("%s{", s->before);
    if (!status && score->changed && !set->common.quiet)
        fprintf(stderr, "minrnn score: %s: %s\n", s->input.name,
                mr_encode_note((mr_unknown)set->unknown, score->changed, note));
    return status;
}

/* place: which of several files it is, from 1 on; 0: there is only this one. */
static int score_file(mr_session *session, const char *path, int chunk, int place, const settings *set,
                      mr_text_score *score, mr_error *err)
{
    stream s = {.set = set,
                .shown = !set->common.quiet && isatty(STDERR_FILENO),
                .before = place > 1 ? ",\n " : "",
                .last = mr_seconds()};
    int status = mr_text_input_open(&s.input, path, err);
    if (status) return status;
    status = score_input(session, chunk, &s, score, err);
    mr_text_input_close(&s.input);
    if (status) return status;
    if (place && set->common.json) {
        printf("\"file\": ");
        mr_print_json_string(stdout, path, strlen(path));
        printf(", ");
    } else if (place) printf("%s: ", path);
    print_score(set, score);
    if (set->common.json) printf("}");
    return 0;
}

/* Several texts: each starts with a fresh state. The total is over all predictions. */
static int score_files(mr_session *session, const mr_args *args, int chunk, const settings *set, mr_error *err)
{
    const int files = args->count - 1, json = set->common.json;
    mr_text_score total = {0};
    double nats = 0;
    int status = mr_session_need_text(session, args->given[0], err);
    if (status) return status;
    if (json && files > 1) printf("{\"files\": [");
    for (int i = 1; !status && i <= files; i++) {
        mr_text_score score = {0};
        status = score_file(session, args->given[i], chunk, files > 1 ? i : 0, set, &score, err);
        total.tokens += score.tokens;
        total.changed += score.changed;
        nats += score.nats_per_token * (double)(score.tokens - 1);
    }
    total.nats_per_token = nats / (double)(total.tokens - files);
    if (files > 1 && json) printf(status ? "]}" : "], ");
    if (files > 1 && !status) {
        if (!json) printf("all: ");
        print_score(set, &total);
        if (json) printf("}");
    }
    if (json && (!status || files > 1 || set->per_token)) printf("\n");
    return status;
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
    if (!status) status = mr_open_context(&set.common, &ctx, &err);
    if (!status) status = mr_session_open(&session, args.given[0], ctx, &err);
    if (!status) {
        status = score_files(&session, &args, chunk, &set, &err);
        mr_session_close(&session);
    }
    mr_context_free(ctx);
    return status ? mr_report("score", &err) : MR_EXIT_DONE;
}
