#include "run/generate.h"

#include "core/mem.h"
#include "core/rng.h"

#include <math.h>
#include <string.h>

/* ---- sampling ---- */

/* A heap of tokens, likeliest on top; of equal ones the smaller token. */
static int before(const float *logits, int a, int b) { return logits[a] > logits[b] || (logits[a] == logits[b] && a < b); }

static void sift_down(const float *logits, int *heap, int n, int at)
{
    for (int child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && before(logits, heap[child + 1], heap[child])) child++;
        if (!before(logits, heap[child], heap[at])) return;
        int swap = heap[at];
        heap[at] = heap[child];
        heap[child] = swap;
    }
}

/* Takes the best token off the heap of n and returns it. */
static int pop(const float *logits, int *heap, int n)
{
    int best = heap[0];
    heap[0] = heap[n - 1];
    heap[n - 1] = best;
    sift_down(logits, heap, n - 1, 0);
    return best;
}

int mr_sample(const float *logits, int n, const mr_sampling *how, double u, int *order)
{
    for (int i = 0; i < n; i++) order[i] = i;
    for (int i = n / 2 - 1; i >= 0; i--) sift_down(logits, order, n, i);
    if (how->temperature <= 0) return order[0];
    double top = logits[order[0]], all = 0, kept = 0;
    int limit = how->top_k > 0 && how->top_k < n ? how->top_k : n, count = 0;
    for (int i = 0; i < n; i++) all += exp((logits[i] - top) / how->temperature);
    /* popped tokens gather at the end of order[], likeliest last: the shortest list that holds top_p */
    while (count < limit && (count == 0 || kept < how->top_p * all)) {
        kept += exp((logits[pop(logits, order, n - count)] - top) / how->temperature);
        count++;
    }
    double target = u * kept, sum = 0;
    for (int i = 0; i < count; i++) {
        int token = order[n - 1 - i];
        sum += exp((logits[token] - top) / how->temperature);
        if (target < sum) return token;
    }
    return order[n - count];
}

/* ---- generation ---- */

typedef struct writer {
    mr_session *session;
    const mr_generation *want;
    mr_state *state;
    mr_batch batch;
    float *logits;
    int *order;
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
        if (!count) mr_model_logits(model, w->logits, T - 1, 1);
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

static int write_tokens(writer *w, mr_error *err)
{
    const mr_generation *want = w->want;
    int n = (int)mr_model_config(w->session->model)->outputs;
    for (int64_t i = 0; i < want->tokens; i++) {
        if (want->stop && *want->stop) return MR_ESTOPPED;
        for (int k = 0; k < n; k++)
            if (!isfinite(w->logits[k])) return mr_fail(err, MR_ENONFINITE, "the model's output is NaN or infinite after %lld tokens", (long long)i);
        mr_rng rng = mr_rng_at(want->seed, MR_STREAM_SAMPLE, (uint32_t)i, (uint32_t)(i >> 32));
        int32_t token = mr_sample(w->logits, n, &want->how, mr_rng_uniform(&rng), w->order);
        char bytes[4];
        int size = mr_vocab_decode(&w->session->vocab, token, bytes);
        if (give_out(w, bytes, (size_t)size)) return 0;
        int status = i + 1 < want->tokens ? feed(w, &token, 1, err) : 0;
        if (status) return status;
    }
    if (w->held_size) w->piece(w->user, w->held, w->held_size);
    return 0;
}

int mr_generate(mr_session *session, int plan_T, const mr_generation *want, mr_piece_fn *piece, void *user, mr_error *err)
{
    writer w = {.session = session, .want = want, .plan_T = plan_T, .piece = piece, .user = user};
    mr_interface face = mr_config_interface(mr_model_config(session->model));
    w.logits = mr_alloc((size_t)face.outputs, sizeof *w.logits);
    w.order = mr_alloc((size_t)face.outputs, sizeof *w.order);
    w.held = mr_alloc(want->stop_text ? strlen(want->stop_text) + 1 : 1, 1);
    int status = w.logits && w.order && w.held && !mr_batch_new(&w.batch, &face, 1, plan_T) ? 0 : mr_no_memory(err, "a generation");
    if (!status) status = mr_state_new(session->model, 1, &w.state, err);
    if (!status) status = feed_prompt(&w, err);
    if (!status) status = write_tokens(&w, err);
    mr_state_free(w.state);
    mr_batch_free(&w.batch);
    mr_free(w.logits);
    mr_free(w.order);
    mr_free(w.held);
    return status;
}
