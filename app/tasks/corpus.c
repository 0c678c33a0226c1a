/* Texts as tokens in as few bytes as the vocabulary allows, and windows of them. */
#include "tasks/corpus.h"

#include "core/mem.h"
#include "core/rng.h"
#include "core/utf8.h"
#include "tasks/source.h"

#include <limits.h>
#include <string.h>

/* Tokens take 1, 2 or 4 bytes each, by the size of the vocabulary: a text of bytes, or of up to 256 different
 * characters, needs no more memory than its file. */
typedef struct corpus {
    mr_vocab *own; /* NULL where the task was given a vocabulary */
    void *tokens;
    int width;
    size_t count, train; /* tokens; those before `train` are training text */
} corpus;

const char *const mr_vocab_choices[] = {"chars", "bytes", NULL};

/* ---- tokens in 1, 2 or 4 bytes */

static void put_tokens(corpus *c, const int32_t *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t at = c->count + i;
        if (c->width == 1) ((uint8_t *)c->tokens)[at] = (uint8_t)from[i];
        else if (c->width == 2) ((uint16_t *)c->tokens)[at] = (uint16_t)from[i];
        else ((int32_t *)c->tokens)[at] = from[i];
    }
    c->count += n;
}

static void get_tokens(const corpus *c, size_t at, size_t n, int32_t *out)
{
    if (c->width == 1)
        for (size_t i = 0; i < n; i++) out[i] = ((const uint8_t *)c->tokens)[at + i];
    else if (c->width == 2)
        for (size_t i = 0; i < n; i++) out[i] = ((const uint16_t *)c->tokens)[at + i];
    else memcpy(out, (const int32_t *)c->tokens + at, n * sizeof *out);
}

/* ---- from bytes to tokens */

static int stopped(const mr_task *task, const mr_corpus_source *source, mr_error *err)
{
    return task->stop && *task->stop ? mr_fail(err, MR_ESTOPPED, "stopped while %s was read", source->name) : 0;
}

/* A place in the text, as a user finds it. */
typedef struct place {
    size_t at;    /* in all of the text */
    size_t file;  /* which of the sources it is in */
    size_t start; /* where that one begins */
    size_t line;  /* its own, from 1 */
} place;

/* Moves on by this many bytes, which are still in memory. */
static void advance(place *p, const mr_corpus_source *source, size_t bytes)
{
    size_t from = p->at;
    p->at += bytes;
    while (source->names && source->ends[p->file] <= p->at && source->ends[p->file] < source->size) {
        from = p->start = source->ends[p->file++];
        p->line = 1;
    }
    p->line += mr_count_lines(source->bytes + from, p->at - from);
}

/* `what` is the library's sentence, whose place counts from elsewhere: "byte 7: what is wrong". */
static int fail_at(const place *p, const mr_corpus_source *source, const mr_error *what, const char *hint,
                   mr_error *err)
{
    char name[MR_SOURCE_LABEL];
    const char *colon = strstr(what->text, ": ");
    return mr_fail(err, what->status, "%s, line %zu, byte %zu: %s%s",
                   source->names ? mr_source_name(source->names, p->file, name) : source->name, p->line,
                   p->at - p->start + 1, colon ? colon + 2 : what->text, hint);
}

/* How many characters UTF-8 text has; for text that is not UTF-8, no fewer than can be read. */
static size_t count_characters(const char *text, size_t size)
{
    size_t characters = 0;
    for (size_t i = 0; i < size; i++) characters += (text[i] & 0xC0) != 0x80;
    return characters;
}

/* A piece at a time, so that tokens of one byte can be stored in the memory of the text itself: a token never comes
 * after the bytes that it was read from. */
static int encode(const mr_task *task, corpus *c, mr_encoder *encoder, const mr_corpus_source *source, mr_error *err)
{
    enum { PIECE = 4096 };
    int32_t piece[PIECE];
    place here = {.line = 1};
    while (here.at < source->size) {
        size_t left = source->size - here.at, count, used;
        const char *text = source->bytes + here.at;
        mr_error inner;
        int status = stopped(task, source, err);
        if (status) return status;
        status = mr_encode_text(encoder, text, left <= PIECE ? left : PIECE, left <= PIECE, piece, PIECE, &count, &used,
                                &inner);
        advance(&here, source, used);
        if (status) return fail_at(&here, source, &inner, "", err);
        put_tokens(c, piece, count);
    }
    return 0;
}

static int make_tokens(const mr_task *task, corpus *c, mr_encoder *encoder, mr_corpus_source *source, mr_error *err)
{
    const mr_vocab *vocab = encoder->vocab;
    c->width = mr_vocab_size(vocab) <= 1 << 8 ? 1 : mr_vocab_size(vocab) <= 1 << 16 ? 2 : 4;
    if (c->width == 1) {
        c->tokens = source->bytes;
        int status = encode(task, c, encoder, source, err);
        source->bytes = NULL;
        return status;
    }
    c->tokens = mr_alloc(count_characters(source->bytes, source->size), (size_t)c->width);
    if (!c->tokens) return mr_no_memory(err, source->name);
    return encode(task, c, encoder, source, err);
}

/* The text is not UTF-8, as `what` says: names the place. */
static int fail_utf8(const mr_corpus_source *source, const mr_error *what, mr_error *err)
{
    size_t at = 0;
    place bad = {.line = 1};
    for (int length = 1; length > 0 && at<source->size; at += length> 0 ? (size_t)length : 0) {
        uint32_t codepoint;
        length = mr_utf8_read(source->bytes + at, source->size - at, &codepoint);
    }
    advance(&bad, source, at);
    return fail_at(&bad, source, what, "; use --vocab bytes", err);
}

static int choose_vocab(mr_task *task, corpus *c, const mr_corpus_source *source, mr_error *err)
{
    mr_error inner;
    task->vocab = task->given;
    if (task->given) return 0;
    int status = mr_vocab_build(source->kind, source->bytes, source->size, &c->own, &inner);
    task->vocab = c->own;
    if (status == MR_EDATA) return fail_utf8(source, &inner, err);
    return status ? mr_fail(err, status, "%s: %s", source->name, inner.text) : 0;
}

static int sum(mr_task *task, const mr_corpus_source *source, mr_error *err)
{
    const size_t piece = 1 << 24;
    mr_sha256 sha;
    int status = stopped(task, source, err);
    mr_sha256_begin(&sha);
    for (size_t at = 0; !status && at < source->size; at += piece) {
        mr_sha256_add(&sha, source->bytes + at, source->size - at < piece ? source->size - at : piece);
        status = stopped(task, source, err);
    }
    mr_sha256_end(&sha, task->data_sha256);
    return status;
}

/* ---- windows */

/* Every token of the test text but the first is predicted once. */
static size_t predicted(const corpus *c) { return c->count - c->train - 1; }

static size_t ceil_div(size_t a, size_t b) { return (a + b - 1) / b; }

static int split(mr_task *task, corpus *c, const mr_corpus_source *source, mr_error *err)
{
    size_t context = (size_t)task->context;
    if (source->validation) c->count = (size_t)(source->split * (double)c->count);
    c->train = (size_t)(source->split * (double)c->count);
    if (c->train < 2 || c->count - c->train < 2)
        return mr_fail(err, MR_EDATA,
                       "%s has %zu tokens, %zu to train on and %zu to test on: at least 2 of each are "
                       "needed; give a longer text or another --split",
                       source->name, c->count, c->train, c->count - c->train);
    if (c->train < context + 1)
        return mr_fail(err, MR_EDATA,
                       "%s has %zu tokens, %zu of them to train on: too few for a context of %zu; "
                       "lower --context to %zu or give a longer text",
                       source->name, c->count, c->train, context, c->train - 1);
    size_t batches = ceil_div(ceil_div(predicted(c), context), (size_t)task->batch);
    if (batches > INT_MAX)
        return mr_fail(err, MR_ECONFIG, "%s gives %zu test batches, too many: raise --context or --batch", source->name,
                       batches);
    task->eval_batches = (int)batches;
    task->test_tokens = (int64_t)predicted(c);
    return 0;
}

static int load(mr_task *task, corpus *c, mr_corpus_source *source, mr_error *err)
{
    if (task->context < 1)
        return mr_fail(err, MR_ECONFIG, "context = %d: windows of a text have at least 1 token; raise --context",
                       task->context);
    if (source->size == 0) return mr_fail(err, MR_EDATA, "%s is empty: give a text to learn from", source->name);
    int status = sum(task, source, err);
    if (status == 0) status = choose_vocab(task, c, source, err);
    mr_encoder encoder = {.vocab = task->vocab, .unknown = source->unknown};
    if (status == 0) status = make_tokens(task, c, &encoder, source, err);
    mr_encode_note(source->unknown, encoder.changed, task->note);
    if (status == 0) status = split(task, c, source, err);
    return status;
}

int mr_corpus_open(mr_task *task, mr_corpus_source source, mr_error *err)
{
    corpus *c = task->data = mr_alloc(1, sizeof *c);
    int status = c ? load(task, c, &source, err) : mr_no_memory(err, source.name);
    mr_free(source.bytes);
    if (status) return status;
    int size = mr_vocab_size(task->vocab);
    task->interface = (mr_interface){
        .input = MR_INPUT_TOKENS, .inputs = size, .head = MR_HEAD_TOKEN, .loss = MR_LOSS_XENT, .outputs = size};
    task->max_T = task->context;
    return 0;
}

void mr_corpus_close(mr_task *task)
{
    corpus *c = task->data;
    if (!c) return;
    mr_vocab_free(c->own);
    mr_free(c->tokens);
    mr_free(c);
}

/* One row: n tokens from `at` on as inputs, each with the token after it as its target; the rest of the row does
 * not count. */
static void fill_row(const corpus *c, size_t at, size_t n, mr_batch *batch, int row)
{
    size_t T = (size_t)batch->T, first = (size_t)row * T;
    get_tokens(c, at, n, batch->ids + first);
    get_tokens(c, at + 1, n, batch->target + first);
    for (size_t t = n; t < T; t++) {
        batch->ids[first + t] = 0;
        batch->target[first + t] = -1;
    }
    mr_batch_lengths(batch)[row] = (int32_t)n;
    if (n < T) batch->length = mr_batch_lengths(batch);
    batch->counted += (int64_t)n;
}

static void start_batch(int B, int T, mr_batch *batch)
{
    batch->B = B;
    batch->T = T;
    batch->length = NULL;
    batch->counted = 0;
}

void mr_corpus_train_batch(const mr_task *task, uint32_t step, uint32_t micro, mr_batch *batch)
{
    const corpus *c = task->data;
    size_t context = (size_t)task->context;
    start_batch(task->batch, task->context, batch);
    for (int row = 0; row < batch->B; row++) {
        mr_rng rng = mr_rng_at(task->seed, MR_STREAM_TRAIN + micro, step, (uint32_t)row);
        fill_row(c, mr_rng_below64(&rng, c->train - context), context, batch, row);
    }
}

void mr_corpus_eval_batch(const mr_task *task, int index, mr_batch *batch)
{
    const corpus *c = task->data;
    size_t context = (size_t)task->context, first = (size_t)index * (size_t)task->batch;
    size_t rows = ceil_div(predicted(c), context) - first;
    start_batch(rows < (size_t)task->batch ? (int)rows : task->batch, task->context, batch);
    for (int row = 0; row < batch->B; row++) {
        size_t at = (first + (size_t)row) * context, left = predicted(c) - at;
        fill_row(c, c->train + at, left < context ? left : context, batch, row);
    }
}
