/* Fuzzes model files, states of training runs and states of streams. Bytes must be refused with a message, or every
 * tensor must be inside them; a model that passes all checks is run. */
#include "core/safetensors.h"
#include "input.h"
#include "train/score.h"
#include "train/session.h"

#include <string.h>

enum { PIECE = 8, LARGEST = 1 << 16 };

static void check_container(const uint8_t *data, size_t size)
{
    mr_st *st = NULL;
    mr_error err = {0};
    static char copy[LARGEST];
    int rc = mr_st_open_memory(data, size, "input", &st, &err);
    must((rc == 0) == (st != NULL), "a handle or an error");
    must(!rc || (rc == err.status && err.text[0]), "an error says why");
    uint64_t end = 0;
    for (int i = 0; !rc && i < mr_st_count(st); i++) {
        const mr_st_tensor *t = mr_st_at(st, i);
        must(t->offset == end, "tensors follow each other without gaps");
        must(t->bytes <= size && mr_st_find(st, t->name) == t, "a tensor is found by its name and is inside the file");
        must(!mr_st_read(st, "input", t, copy, &err), "a tensor can be read");
        end += t->bytes;
    }
    mr_st_close(st);
}

typedef struct source {
    const char *next;
} source;

static long read_source(void *user, char *buffer, size_t size)
{
    source *s = user;
    size_t left = strlen(s->next), take = left < size ? left : size;
    memcpy(buffer, s->next, take);
    s->next += take;
    return (long)take;
}

static mr_context *the_context(void)
{
    static mr_context *ctx;
    mr_context_options options = MR_CONTEXT_OPTIONS;
    mr_error err;
    options.device = "cpu";
    options.threads = 1;
    if (!ctx) must(!mr_context_new(&options, &ctx, &err), "there is a CPU");
    return ctx;
}

/* Loading any bytes must leave a net and a stream usable. */
static void check_states(const uint8_t *data, size_t size)
{
    static const char *const settings[] = {"vocab", "[\"a\",\"b\"]", "dim", "2", "layers", "1", NULL};
    static mr_net *net;
    static mr_stream *stream;
    float scores[2];
    mr_error err = {0};
    if (!net) must(!mr_net_create(the_context(), settings, &net, &err) && !mr_stream_new(net, &stream, &err), "a net");
    must(!mr_net_load_training(net, as_file(data, size), &err) || err.text[0], "a state, or a sentence");
    err.text[0] = 0;
    must(!mr_stream_load(stream, data, size, &err) || err.text[0], "a stream's state, or a sentence");
    must(!mr_stream_step(stream, 1, scores, 2, &err), "it can still be stepped");
}

static void check_session(const uint8_t *data, size_t size)
{
    mr_session session;
    mr_error err = {0};
    mr_text_score score;
    source text = {"ab ab"};
    if (mr_session_open(&session, as_file(data, size), the_context(), &err)) {
        must(err.text[0] != 0, "an error says why");
        return;
    }
    if (mr_net_vocab(session.net)) {
        const mr_score_options how = {.chunk = PIECE, .name = "text", .read = read_source, .user = &text};
        mr_score_text(session.net, &how, &score, &err);
    }
    mr_session_close(&session);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > LARGEST) return 0;
    check_container(data, size);
    check_session(data, size);
    check_states(data, size);
    return 0;
}
