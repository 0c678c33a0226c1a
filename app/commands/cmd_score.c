/* minrnn score: the log-probability of a text, in constant memory. */
#include "train/score.h"
#include "train/session.h"
#include "commands/args.h"
#include "commands/commands.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef struct settings {
    mr_common common;
    char mode[MR_TEXT_MAX];
    int per_token;
} settings;

static const mr_option flags[] = {MR_COMMON_FLAGS,
                                  {"mode", MR_OPT_TEXT, offsetof(settings, mode), "parallel", 0, 0, NULL,
                                   "parallel, step (one token at a time) or chunk=N; the same result", 0},
                                  {"per-token", MR_OPT_BOOL, offsetof(settings, per_token), "no", 0, 0, NULL,
                                   "the log-probability of every token", 0},
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

enum { WRITER_WAIT_MS = 1000 };

typedef struct stream {
    int fd, per_token, json, shown; /* shown: progress is printed */
    uint64_t bytes, total;          /* total 0: not known */
    int64_t printed;
    time_t last;
} stream;

static long read_stream(void *user, char *buffer, size_t size)
{
    stream *s = user;
    ssize_t got;
    do got = read(s->fd, buffer, size);
    while (got < 0 && errno == EINTR && !*mr_stop_flag());
    if (got > 0) s->bytes += (uint64_t)got;
    return (long)got;
}

static void on_logprob(void *user, double logprob)
{
    stream *s = user;
    if (s->shown && time(NULL) != s->last) {
        s->last = time(NULL);
        if (s->total) fprintf(stderr, "\r%.0f %% of the text read\033[K", 100.0 * (double)s->bytes / (double)s->total);
        else fprintf(stderr, "\r%.1f MB read\033[K", (double)s->bytes / 1e6);
        fflush(stderr);
    }
    if (!s->per_token) return;
    if (s->json) printf("%s%.9g", s->printed ? ", " : "", logprob);
    else printf("%.9g\n", logprob);
    s->printed++;
}

/* A file or a pipe. A pipe without a writer gets a second to find one; without O_NONBLOCK opening it could wait for
 * ever. A device is either endless or a terminal, which is better read as standard input. */
static int open_text(const char *path, int *fd, mr_error *err)
{
    struct stat st;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0) return mr_fail(err, MR_EIO, "%s: cannot be opened: %s", path, strerror(errno));
    int kind = fstat(*fd, &st) ? 0 : (int)(st.st_mode & S_IFMT);
    if (kind == S_IFIFO) poll(&(struct pollfd){.fd = *fd, .events = POLLIN}, 1, WRITER_WAIT_MS);
    fcntl(*fd, F_SETFL, fcntl(*fd, F_GETFL) & ~O_NONBLOCK);
    if (kind == S_IFREG || kind == S_IFIFO) return 0;
    close(*fd);
    return mr_fail(err, MR_EIO, "%s: is %s; give a file or a pipe, or - for standard input", path,
                   kind == S_IFDIR ? "a directory" : "a device");
}

static int score(mr_session *session, const char *model, const char *text, int chunk, const settings *set,
                 mr_error *err)
{
    stream s = {.fd = STDIN_FILENO,
                .per_token = set->per_token,
                .json = set->common.json,
                .shown = !set->common.quiet && isatty(STDERR_FILENO),
                .last = time(NULL)};
    struct stat st;
    mr_text_score result;
    const char *name = strcmp(text, "-") ? text : "standard input";
    int status = mr_session_need_text(session, model, err);
    if (status) return status;
    if (strcmp(text, "-")) status = open_text(text, &s.fd, err);
    if (status) return status;
    if (!fstat(s.fd, &st) && S_ISREG(st.st_mode)) s.total = (uint64_t)st.st_size;
    if (s.json && s.per_token) printf("{\"logprobs\": [");
    status = mr_score_text(session->net, chunk, name, read_stream, on_logprob, &s, &result, err);
    if (s.fd != STDIN_FILENO) close(s.fd);
    if (s.shown) fprintf(stderr, "\r\033[K");
    if (status) {
        if (s.json && s.per_token) printf("]}\n");
        return status;
    }
    if (!s.json) printf("%lld tokens, %.6f nats a token\n", (long long)result.tokens, result.nats_per_token);
    else
        printf("%s\"tokens\": %lld, \"nats_per_token\": %.9g}\n", s.per_token ? "], " : "{", (long long)result.tokens,
               result.nats_per_token);
    return 0;
}

int mr_cmd_score(int argc, char **argv)
{
    settings set = {0};
    mr_args args = {
        .command = "score",
        .flags = flags,
        .settings = &set,
        .min = 2,
        .max = 2,
        .usage =
            "usage: minrnn score MODEL FILE|- [--mode parallel|step|chunk=N] [--per-token] [--json]\n\n"
            "Log-probability of a text, in nats a token. The state is carried over the whole text, in every mode.\n",
        .examples = "  minrnn score runs/book/model.safetensors other.txt\n"
                    "  minrnn score runs/book/model.safetensors - --mode step < other.txt\n"
                    "  minrnn score runs/book/model.safetensors other.txt --per-token --json\n"};
    mr_context *ctx = NULL;
    mr_session session;
    mr_error err;
    int chunk = 1, code = mr_args_parse(&args, argc, argv);
    if (code >= 0) return code;
    int status = parse_mode(set.mode, &chunk, &err);
    if (!status) status = mr_open_context(&set.common, &ctx, &err);
    if (!status) status = mr_session_open(&session, args.given[0], ctx, &err);
    if (!status) {
        status = score(&session, args.given[0], args.given[1], chunk, &set, &err);
        mr_session_close(&session);
    }
    mr_context_free(ctx);
    return status ? mr_report("score", &err) : MR_EXIT_DONE;
}
