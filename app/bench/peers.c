/* Runs a script that measures another library, and finds the row of ours that did the same work. */
#include "bench/peers.h"

#include "core/json.h"
#include "core/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LINE = 4096, ARGUMENTS = 24 };

void mr_bench_keep(mr_bench_rows *rows, const mr_bench_row *row)
{
    if (rows->count < MR_PEER_ROWS) rows->list[rows->count++] = *row;
}

/* ---- which of our rows is the same work ---- */

/* "torch LSTM loop" does what our row "copy lstm d=64->384" does. */
static const char *our_model(const char *peer)
{
    static const char *const names[][2] = {{"minGRU", " d=64->384"},      {"minLSTM", " minlstm d=64->384"},
                                           {"GRU", " gru d=64->384"},     {"LSTM", " lstm d=64->384"},
                                           {"Mamba", " mamba d=64->384"}, {"attention", " attention d=64->64"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strstr(peer, names[i][0])) return names[i][1];
    return "";
}

static void our_name(char *name, size_t size, const char *bench, const char *peer, int B, int T)
{
    *name = 0;
    if (!strcmp(bench, "layer"))
        snprintf(name, size, "%s fwd+bwd B=%d T=%d 64->384", strstr(peer, "LSTM") ? "minlstm" : "mingru", B, T);
    if (!strcmp(bench, "step")) snprintf(name, size, "copy%s B=%d T=%d", our_model(peer), B, T);
    if (!strcmp(bench, "lm")) snprintf(name, size, "text d=384->768 B=%d T=%d", B, T);
    if (!strcmp(bench, "decode")) snprintf(name, size, "text no conv d=384 f32 B=%d", B);
}

static const mr_bench_row *find_ours(const mr_bench_rows *rows, const char *name)
{
    for (int i = 0; *name && i < rows->count; i++)
        if (!strcmp(rows->list[i].name, name)) return &rows->list[i];
    return NULL;
}

/* ---- one line of the script ---- */

/* The flat object that the script prints a line of: texts and numbers, whatever their order. */
typedef struct peer_line {
    char bench[32], peer[64], torch[32], error[512];
    double B, T, ms, us;
} peer_line;

static void take_text(peer_line *l, const char *key, const char *value)
{
    const struct {
        const char *key;
        char *to;
        size_t size;
    } texts[] = {{"bench", l->bench, sizeof l->bench},
                 {"peer", l->peer, sizeof l->peer},
                 {"torch", l->torch, sizeof l->torch},
                 {"error", l->error, sizeof l->error}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!strcmp(key, texts[i].key)) snprintf(texts[i].to, texts[i].size, "%s", value);
}

static void take_number(peer_line *l, const char *key, double value)
{
    const struct {
        const char *key;
        double *to;
    } numbers[] = {{"B", &l->B}, {"T", &l->T}, {"ms", &l->ms}, {"us", &l->us}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!strcmp(key, numbers[i].key)) *numbers[i].to = value;
}

/* Skips a list of texts and numbers. */
static int pass_over(mr_json *json)
{
    size_t size;
    const char *at;
    while (mr_json_item(json, ']'))
        if (!(mr_json_peek(json) == '"' ? mr_json_string(json, &size) != NULL : mr_json_number(json, &at) > 0))
            return 0;
    return !json->wrong;
}

/* One value of the object. 0: it is not one that we know. */
static int read_value(mr_json *json, const char *key, peer_line *l)
{
    size_t size;
    char number[64];
    const char *at, *text;
    double value;
    if (mr_json_peek(json) == '"') {
        text = mr_json_string(json, &size);
        if (text) take_text(l, key, text);
        return text != NULL;
    }
    size = mr_json_number(json, &at);
    if (size) {
        snprintf(number, sizeof number, "%.*s", (int)size, at);
        if (mr_real_read(number, &value)) take_number(l, key, value);
        return 1;
    }
    if (mr_json_enter(json, '[')) return pass_over(json);
    return mr_json_word(json, "true") || mr_json_word(json, "false") || mr_json_word(json, "null");
}

/* 0: the line is not such an object, and is ignored. */
static int read_line(const char *line, peer_line *l)
{
    char room[LINE];
    size_t size;
    mr_json json;
    memset(l, 0, sizeof *l);
    l->us = -1;
    mr_json_start(&json, line, strlen(line), room);
    if (!mr_json_enter(&json, '{')) return 0;
    while (mr_json_item(&json, '}')) {
        const char *key = mr_json_key(&json, &size);
        if (!key || !read_value(&json, key, l)) return 0;
    }
    return mr_json_done(&json);
}

static void report_line(const char *line, const mr_bench_rows *rows, mr_bench *b,
                        void (*on_peer)(void *arg, const mr_peer_row *row))
{
    char name[96];
    peer_line l;
    if (!read_line(line, &l) || !l.bench[0]) return;
    mr_peer_row row = {.bench = l.bench, .peer = l.peer, .error = l.error[0] ? l.error : NULL};
    if (!strcmp(l.bench, "machine")) {
        snprintf(row.shape, sizeof row.shape, "PyTorch %.20s", l.torch[0] ? l.torch : "?");
        on_peer(b->arg, &row);
    } else if (l.peer[0]) {
        const int B = (int)l.B, T = (int)l.T;
        row.ms = l.us >= 0 ? l.us / 1e3 : l.ms;
        snprintf(row.shape, sizeof row.shape, T ? "B=%d T=%d" : "B=%d", B, T);
        our_name(name, sizeof name, l.bench, l.peer, B, T);
        row.ours = find_ours(rows, name);
        on_peer(b->arg, &row);
    }
}

/* ---- running it ---- */

static void become_script(const char *script, const mr_bench *b, const char *const *benches, int out)
{
    char threads[16];
    const char *arguments[ARGUMENTS] = {"python3", script, "--device", b->dev->kind, "--threads", threads, "T=512"};
    int count = 7;
    snprintf(threads, sizeof threads, "%d", b->dev->threads);
    for (; *benches && count + 1 < ARGUMENTS; benches++) arguments[count++] = *benches;
    dup2(out, STDOUT_FILENO);
    execvp(arguments[0], (char *const *)arguments);
    _exit(127);
}

static int read_rows(int from, const mr_bench_rows *rows, mr_bench *b,
                     void (*on_peer)(void *arg, const mr_peer_row *row))
{
    char line[LINE];
    int count = 0;
    FILE *in = fdopen(from, "r");
    while (in && fgets(line, sizeof line, in)) {
        report_line(line, rows, b, on_peer);
        count++;
    }
    if (in) fclose(in);
    return count;
}

int mr_bench_peers_find(const char **script, mr_error *err)
{
    *script = getenv("MINRNN_PEERS");
    if (!*script || !**script)
        return mr_fail(err, MR_EINVAL, "--peers needs the script that measures them: set MINRNN_PEERS to its path");
    if (access(*script, R_OK)) return mr_fail(err, MR_EIO, "%s, which MINRNN_PEERS names, cannot be read", *script);
    return 0;
}

int mr_bench_peers(mr_bench *b, const char *script, const mr_bench_rows *rows, const char *const *benches,
                   void (*on_peer)(void *arg, const mr_peer_row *row), mr_error *err)
{
    int ends[2], state = 0;
    if (b->on_start) b->on_start(b->arg, "peers", script);
    if (pipe(ends)) return mr_fail(err, MR_EIO, "no pipe to the script of the peers");
    pid_t child = fork();
    if (child == 0) become_script(script, b, benches, ends[1]);
    close(ends[1]);
    int count = child < 0 ? 0 : read_rows(ends[0], rows, b, on_peer);
    if (child < 0) close(ends[0]);
    if (child < 0 || waitpid(child, &state, 0) < 0) return mr_fail(err, MR_EIO, "python3 cannot be started");
    if (WIFEXITED(state) && WEXITSTATUS(state) == 0 && count) return 0;
    return mr_fail(err, MR_EIO, "python3 %s failed; is PyTorch installed for the python3 in PATH?", script);
}
