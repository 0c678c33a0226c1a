#include "train/generate.h"

#include "core/mem.h"

#include <string.h>

typedef struct writer {
    mr_session *session;
    const mr_generation *want;
    mr_state *state;
    mr_batch batch;
    int plan_T;
    mr_piece_fn *piece;
    void *user;
    char *held; /* text that may turn out to be the beginning of stop_text */
    size_t held_size;
} writer;

static int feed(writer *w, const int32_t *tokens, size_t count, mr_error *err)
{
    mr_model *model = w->session->model;
    while (count) {
        size_t T = count < (size_t)w->plan_T ? count : (size_t)w->plan_T;
        w->batch.B = 1;
        w->batch.T = (int)T;
        memcpy(w->batch.ids, tokens, T * sizeof *tokens);
        mr_model_forward(model, &w->batch, w->state, 0);
        tokens += T;
        count -= T;
    }
    return mr_model_dev(model)->sync(mr_model_dev(model), err);
}

static int feed_prompt(writer *w, mr_error *err)
{
    const char *prompt = w->want->prompt && *w->want->prompt ? w->want->prompt : "\n";
    size_t size = strlen(prompt), count, used;
    int32_t *tokens = mr_alloc(size, sizeof *tokens);
    mr_error inner;
    if (!tokens) return mr_no_memory(err, "the prompt");
    int status = mr_vocab_encode(&w->session->vocab, prompt, size, 1, 0, tokens, &count, &used, &inner);
    if (status && (!w->want->prompt || !*w->want->prompt)) {
        tokens[0] = 0; /* a model that knows no line break */
        count = 1;
        status = 0;
    } else if (status)
        mr_fail(err, status, "--prompt: %.900s", inner.text);
    if (!status) status = feed(w, tokens, count, err);
    mr_free(tokens);
    return status;
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

/* Tokens come from the device in groups; those behind the end are not looked at. */
static int write_group(writer *w, const int32_t *tokens, int count, int64_t before, int *over, mr_error *err)
{
    for (int i = 0; i < count && !*over; i++) {
        char bytes[4];
        if (tokens[i] < 0)
            return mr_fail(err, MR_ENONFINITE, "the model's output is NaN or infinite after %lld tokens", (long long)(before + i));
        int size = mr_vocab_decode(&w->session->vocab, tokens[i], bytes);
        *over = give_out(w, bytes, (size_t)size);
    }
    return 0;
}

static int write_tokens(writer *w, mr_error *err)
{
    const mr_generation *want = w->want;
    mr_model *model = w->session->model;
    mr_dev *dev = mr_model_dev(model);
    int over = 0;
    mr_model_draw_from(model, &want->how);
    for (int64_t i = 0; i < want->tokens; i += dev->ahead) {
        int32_t tokens[MR_DRAWN];
        int count = want->tokens - i < dev->ahead ? (int)(want->tokens - i) : dev->ahead;
        if (want->stop && *want->stop) return MR_ESTOPPED;
        mr_model_draw(model, w->state, count, tokens);
        int status = dev->sync(dev, err);
        if (!status) status = write_group(w, tokens, count, i, &over, err);
        if (status || over) return status;
    }
    if (w->held_size) w->piece(w->user, w->held, w->held_size);
    return 0;
}

int mr_generate(mr_session *session, int plan_T, const mr_generation *want, mr_piece_fn *piece, void *user, mr_error *err)
{
    writer w = {.session = session, .want = want, .plan_T = plan_T, .piece = piece, .user = user};
    mr_interface face = mr_config_interface(mr_model_config(session->model));
    w.held = mr_alloc(want->stop_text ? strlen(want->stop_text) + 1 : 1, 1);
    int status = w.held && !mr_batch_new(&w.batch, &face, 1, plan_T) ? 0 : mr_no_memory(err, "a generation");
    if (!status) status = mr_state_new(session->model, 1, &w.state, err);
    if (!status) status = feed_prompt(&w, err);
    if (!status) status = write_tokens(&w, err);
    mr_state_free(w.state);
    mr_batch_free(&w.batch);
    mr_free(w.held);
    return status;
}
