/* Generation: draws tokens and passes on their text, except what may be the start of a text to stop at. */
#include "train/generate.h"

#include "core/mem.h"
#include "core/status.h"

#include <string.h>

int mr_prompt_encode(const mr_net *net, const char *text, size_t size, mr_unknown unknown, mr_prompt *out,
                     mr_error *err)
{
    mr_encoder encoder = {.vocab = mr_net_vocab(net), .unknown = unknown};
    size_t used;
    *out = (mr_prompt){.tokens = mr_alloc(size + 1, sizeof *out->tokens)};
    if (!out->tokens) return mr_no_memory(err, "the prompt");
    int status = size ? mr_encode_text(&encoder, text, size, 1, out->tokens, size, &out->count, &used, err) : 0;
    if (status) {
        mr_free(out->tokens);
        *out = (mr_prompt){0};
        return status;
    }
    out->changed = encoder.changed;
    if (out->count) return 0;
    if (mr_net_encode(net, "\n", 1, out->tokens, 1, &out->count, NULL, NULL)) out->tokens[0] = 0;
    out->count = 1;
    return 0;
}

typedef struct writer {
    mr_net *net;
    mr_stream *stream;
    const mr_generation *want;
    mr_piece_fn *piece;
    void *user;
    char *held; /* text that may turn out to be the start of a stop text; room for the longest of those */
    size_t held_size;
} writer;

static size_t longest_stop(const char *const *texts)
{
    size_t longest = 0;
    for (int i = 0; texts[i]; i++)
        if (strlen(texts[i]) > longest) longest = strlen(texts[i]);
    return longest;
}

/* How many bytes at the end of the held text are a whole stop text (the longest such); 0: none. */
static size_t stop_at_end(const writer *w)
{
    size_t longest = 0;
    for (const char *const *stop = w->want->stop_texts; *stop; stop++) {
        const size_t size = strlen(*stop);
        if (size > longest && size <= w->held_size && !memcmp(w->held + w->held_size - size, *stop, size))
            longest = size;
    }
    return longest;
}

/* May the held text, from `from` to its end, be the start of a stop text? */
static int may_become_stop(const writer *w, size_t from)
{
    const size_t size = w->held_size - from;
    for (const char *const *stop = w->want->stop_texts; *stop; stop++)
        if (strlen(*stop) > size && !memcmp(w->held + from, *stop, size)) return 1;
    return 0;
}

/* Passes on the first `size` bytes of the held text. Returns 1 when the generation is over. */
static int release(writer *w, size_t size)
{
    if (size && w->piece(w->user, w->held, size)) return 1;
    w->held_size -= size;
    memmove(w->held, w->held + size, w->held_size);
    return 0;
}

/* Passes on what can no longer be the start of a stop text. Returns 1 when the generation is over. */
static int give_out(writer *w, const char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        w->held[w->held_size++] = bytes[i];
        const size_t stop = stop_at_end(w);
        if (stop) {
            release(w, w->held_size - stop);
            return w->held_size = 0, 1;
        }
        size_t from = 0;
        while (from < w->held_size && !may_become_stop(w, from)) from++;
        if (from && release(w, from)) return 1;
    }
    return 0;
}

/* Tokens after the end are ignored. */
static int write_group(writer *w, const int32_t *tokens, size_t count, int *over, mr_error *err)
{
    const int plain = !longest_stop(w->want->stop_texts);
    for (size_t i = 0; i < count && !*over; i++) {
        char bytes[4];
        size_t size;
        int status = mr_net_decode(w->net, &tokens[i], 1, bytes, sizeof bytes, &size, err);
        if (status) return status;
        *over = plain ? w->piece(w->user, bytes, size) : give_out(w, bytes, size);
    }
    return 0;
}

/* Each call feeds what came before (the prompt, then the last token that was drawn) and draws a group. */
static int write_tokens(writer *w, mr_error *err)
{
    const mr_generation *want = w->want;
    const int32_t *before = want->prompt->tokens;
    size_t count = want->prompt->count;
    mr_sample_options how = want->how;
    int32_t drawn[MR_GROUP_MAX];
    int over = 0;
    for (int64_t left = want->tokens; left > 0 && !over;) {
        const size_t group = left < want->group ? (size_t)left : (size_t)want->group;
        if (want->stop && *want->stop) return MR_ESTOPPED;
        int status = mr_stream_sample(w->stream, before, count, &how, drawn, group, err);
        if (!status) status = write_group(w, drawn, group, &over, err);
        if (status) return status;
        how.position += group;
        left -= (int64_t)group;
        before = &drawn[group - 1];
        count = 1;
    }
    if (!over) release(w, w->held_size);
    return 0;
}

int mr_generate(mr_net *net, const mr_generation *want, mr_piece_fn *piece, void *user, mr_error *err)
{
    writer w = {.net = net, .want = want, .piece = piece, .user = user};
    w.held = mr_alloc(longest_stop(want->stop_texts) + 1, 1);
    int status = w.held ? mr_stream_new(net, &w.stream, err) : mr_no_memory(err, "a generation");
    if (!status) status = write_tokens(&w, err);
    mr_stream_free(w.stream);
    mr_free(w.held);
    return status;
}
