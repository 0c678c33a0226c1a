#include "train/generate.h"

#include "core/mem.h"
#include "core/status.h"

#include <string.h>

typedef struct writer {
    mr_net *net;
    mr_stream *stream;
    const mr_generation *want;
    mr_piece_fn *piece;
    void *user;
    char *held; /* text that may turn out to be the beginning of stop_text */
    size_t held_size;
} writer;

/* The prompt as tokens; without one, a line break or, for a model that knows none, its first token. */
static int encode_prompt(const writer *w, int32_t **tokens, size_t *count, mr_error *err)
{
    const int given = w->want->prompt && *w->want->prompt;
    const char *prompt = given ? w->want->prompt : "\n";
    mr_error inner;
    *tokens = mr_alloc(strlen(prompt), sizeof **tokens);
    if (!*tokens) return mr_no_memory(err, "the prompt");
    int status = mr_net_encode(w->net, prompt, strlen(prompt), *tokens, strlen(prompt), count, NULL, &inner);
    if (!status) return 0;
    if (given) return mr_fail(err, status, "--prompt: %.900s", inner.text);
    (*tokens)[0] = 0;
    *count = 1;
    return 0;
}

/* Gives out what can no longer be the beginning of stop_text. Returns 1 when the generation is over. */
static int give_out(writer *w, const char *bytes, size_t size)
{
    const char *stop = w->want->stop_text;
    size_t stop_size = stop ? strlen(stop) : 0;
    if (!stop_size) return w->piece(w->user, bytes, size);
    for (size_t i = 0; i < size; i++) {
        w->held[w->held_size++] = bytes[i];
        while (w->held_size && memcmp(w->held, stop, w->held_size)) {
            if (w->piece(w->user, w->held, 1)) return 1;
            memmove(w->held, w->held + 1, --w->held_size);
        }
        if (w->held_size == stop_size) return w->held_size = 0, 1;
    }
    return 0;
}

/* Those after the end are not looked at. */
static int write_group(writer *w, const int32_t *tokens, size_t count, int *over, mr_error *err)
{
    for (size_t i = 0; i < count && !*over; i++) {
        char bytes[4];
        size_t size;
        int status = mr_net_decode(w->net, &tokens[i], 1, bytes, sizeof bytes, &size, err);
        if (status) return status;
        *over = give_out(w, bytes, size);
    }
    return 0;
}

/* Each call feeds what came before (the prompt, then the last token that was drawn) and draws a group. */
static int write_tokens(writer *w, const int32_t *prompt, size_t count, mr_error *err)
{
    const mr_generation *want = w->want;
    mr_sample_options how = want->how;
    int32_t drawn[MR_GROUP_MAX];
    int over = 0;
    for (int64_t left = want->tokens; left > 0 && !over;) {
        const size_t group = left < want->group ? (size_t)left : (size_t)want->group;
        if (want->stop && *want->stop) return MR_ESTOPPED;
        int status = mr_stream_sample(w->stream, prompt, count, &how, drawn, group, err);
        if (!status) status = write_group(w, drawn, group, &over, err);
        if (status) return status;
        how.position += group;
        left -= (int64_t)group;
        prompt = &drawn[group - 1];
        count = 1;
    }
    if (w->held_size && !over) w->piece(w->user, w->held, w->held_size);
    return 0;
}

int mr_generate(mr_net *net, const mr_generation *want, mr_piece_fn *piece, void *user, mr_error *err)
{
    writer w = {.net = net, .want = want, .piece = piece, .user = user};
    int32_t *prompt = NULL;
    size_t count = 0;
    w.held = mr_alloc(want->stop_text ? strlen(want->stop_text) + 1 : 1, 1);
    int status = w.held ? mr_stream_new(net, &w.stream, err) : mr_no_memory(err, "a generation");
    if (!status) status = encode_prompt(&w, &prompt, &count, err);
    if (!status) status = write_tokens(&w, prompt, count, err);
    mr_stream_free(w.stream);
    mr_free(prompt);
    mr_free(w.held);
    return status;
}
