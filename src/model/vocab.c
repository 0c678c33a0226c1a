/* Vocabularies: built from a text, read from and printed as metadata, text to tokens and back. */
#include "model/vocab.h"

#include "core/json.h"
#include "core/json_write.h"
#include "core/mem.h"
#include "core/utf8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- building */

static int fail_utf8(mr_error *err, int read, uint64_t position, char byte)
{
    if (read == MR_UTF8_UNFINISHED)
        return mr_fail(err, MR_EDATA, "byte %" PRIu64 ": the text ends in the middle of a character", position + 1);
    unsigned value = (unsigned char)byte;
    return mr_fail(err, MR_EDATA, "byte %" PRIu64 ": 0x%02X is not UTF-8 here", position + 1, value);
}

/* Marks the characters of a text in a bitmap. */
static int mark_characters(uint8_t *seen, const char *text, size_t size, mr_error *err)
{
    size_t line = 1;
    for (size_t at = 0; at < size;) {
        uint32_t codepoint;
        int length = mr_utf8_read(text + at, size - at, &codepoint);
        if (length <= 0) {
            mr_error inner;
            fail_utf8(&inner, length, at, text[at]);
            return mr_fail(err, inner.status, "line %zu, %s", line, inner.text);
        }
        seen[codepoint / 8] |= (uint8_t)(1u << codepoint % 8);
        line += codepoint == '\n';
        at += (size_t)length;
    }
    return 0;
}

static int collect(mr_vocab *vocab, const uint8_t *seen, mr_error *err)
{
    for (uint32_t i = 0; i < MR_CODEPOINTS / 8; i++) vocab->size += __builtin_popcount(seen[i]);
    vocab->codepoints = mr_alloc((size_t)vocab->size, sizeof *vocab->codepoints);
    if (!vocab->codepoints) return mr_no_memory(err, "the vocabulary");
    int next = 0;
    for (uint32_t i = 0; i < MR_CODEPOINTS / 8; i++)
        for (unsigned bits = seen[i]; bits; bits &= bits - 1)
            vocab->codepoints[next++] = 8 * i + (uint32_t)__builtin_ctz(bits);
    return 0;
}

static mr_vocab *new_vocab(mr_vocab_kind kind, const mr_allocator *allocator)
{
    mr_vocab *vocab = mr_alloc_with(allocator, 1, sizeof *vocab);
    if (vocab) *vocab = (mr_vocab){.kind = kind, .size = kind == MR_VOCAB_BYTES ? 256 : 0, .allocator = allocator};
    return vocab;
}

static int build_characters(mr_vocab *vocab, const char *text, size_t size, mr_error *err)
{
    if (size == 0) return mr_fail(err, MR_EDATA, "the text is empty: there are no characters for a vocabulary");
    uint8_t *seen = mr_alloc(MR_CODEPOINTS / 8, 1);
    if (!seen) return mr_no_memory(err, "the vocabulary");
    int status = mark_characters(seen, text, size, err);
    if (status == 0) status = collect(vocab, seen, err);
    mr_free(seen);
    return status;
}

int mr_vocab_build(mr_vocab_kind kind, const char *text, size_t size, mr_vocab **out, mr_error *err)
{
    mr_vocab *vocab = new_vocab(kind, NULL);
    *out = NULL;
    if (!vocab) return mr_no_memory(err, "the vocabulary");
    int status = kind == MR_VOCAB_CHARS ? build_characters(vocab, text, size, err) : 0;
    if (status) mr_vocab_free(vocab);
    else *out = vocab;
    return status;
}

mr_vocab *mr_vocab_copy(const mr_vocab *vocab, const mr_allocator *allocator)
{
    mr_vocab *copy = new_vocab(vocab->kind, allocator);
    if (!copy || !vocab->codepoints) return copy;
    copy->size = vocab->size;
    copy->codepoints = mr_alloc_with(allocator, (size_t)vocab->size, sizeof *copy->codepoints);
    if (copy->codepoints)
        return memcpy(copy->codepoints, vocab->codepoints, (size_t)vocab->size * sizeof *copy->codepoints), copy;
    mr_vocab_free(copy);
    return NULL;
}

void mr_vocab_free(mr_vocab *vocab)
{
    if (!vocab) return;
    mr_free_with(vocab->allocator, vocab->codepoints);
    mr_free_with(vocab->allocator, vocab);
}

int mr_vocab_size(const mr_vocab *vocab) { return vocab->size; }
int mr_vocab_is_bytes(const mr_vocab *vocab) { return vocab->kind == MR_VOCAB_BYTES; }

/* ---- metadata */

char *mr_vocab_text(const mr_vocab *vocab)
{
    mr_strbuf text = {0};
    if (vocab->kind == MR_VOCAB_BYTES) return mr_strdup("bytes");
    mr_json_writer json = {.text = &text};
    mr_json_write_open(&json, '[');
    for (int i = 0; i < vocab->size; i++) {
        char bytes[4];
        const int length = mr_utf8_write(vocab->codepoints[i], bytes);
        mr_json_write_string(&json, bytes, (size_t)length);
    }
    mr_json_write_close(&json, ']');
    if (!text.failed) return text.data;
    mr_strbuf_free(&text);
    return NULL;
}

/* Reads a JSON string of exactly one character. */
static int read_character(mr_json *json, uint32_t *codepoint)
{
    size_t size;
    const char *text = mr_json_string(json, &size);
    return text && size > 0 && mr_utf8_read(text, size, codepoint) == (int)size;
}

static int take_characters(mr_vocab *vocab, mr_json *json, mr_error *err)
{
    size_t i = 0;
    mr_json_enter(json, '[');
    for (; mr_json_item(json, ']'); i++) {
        uint32_t *c = &vocab->codepoints[i];
        if (!read_character(json, c))
            return mr_fail(err, MR_EFORMAT, "entry %zu of the vocabulary is not a string of one character", i);
        if (i > 0 && c[0] <= c[-1])
            return mr_fail(err, MR_EFORMAT, "entry %zu of the vocabulary is not in ascending order", i);
    }
    if (!mr_json_done(json)) return mr_fail(err, MR_EFORMAT, "the vocabulary is not JSON, after entry %zu", i);
    if (!i) return mr_fail(err, MR_EFORMAT, "the vocabulary is empty");
    vocab->size = (int)i;
    return 0;
}

/* The most entries that a list of `size` bytes can have: each takes two quotes, a character and a comma. */
static size_t most_entries(size_t size) { return size / 4 + 1 < MR_CODEPOINTS ? size / 4 + 1 : MR_CODEPOINTS; }

static int parse_characters(mr_vocab *vocab, const char *text, mr_error *err)
{
    const size_t size = strlen(text);
    mr_json json;
    if (text[0] != '[' || size < 5)
        return mr_fail(err, MR_EFORMAT, "the vocabulary is neither \"bytes\" nor a JSON array of characters");
    char *room = mr_alloc(size, 1);
    vocab->codepoints = mr_alloc(most_entries(size), sizeof *vocab->codepoints);
    int status = room && vocab->codepoints ? 0 : mr_no_memory(err, "the vocabulary");
    mr_json_start(&json, text, size, room);
    if (!status) status = take_characters(vocab, &json, err);
    mr_free(room);
    return status;
}

int mr_vocab_parse(const char *text, mr_vocab **out, mr_error *err)
{
    const int bytes = !strcmp(text, "bytes");
    mr_vocab *vocab = new_vocab(bytes ? MR_VOCAB_BYTES : MR_VOCAB_CHARS, NULL);
    *out = NULL;
    if (!vocab) return mr_no_memory(err, "the vocabulary");
    int status = bytes ? 0 : parse_characters(vocab, text, err);
    if (status) mr_vocab_free(vocab);
    else *out = vocab;
    return status;
}

int mr_vocab_print(const mr_vocab *vocab, char *text, size_t capacity, size_t *needed, mr_error *err)
{
    char *printed = mr_vocab_text(vocab);
    if (!printed) return mr_no_memory(err, "the vocabulary");
    const int status = mr_copy_text(printed, text, capacity, needed, err);
    mr_free(printed);
    return status;
}

/* ---- text to tokens and back */

static int32_t find_character(const mr_vocab *vocab, uint32_t codepoint)
{
    int low = 0, high = vocab->size;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (vocab->codepoints[middle] < codepoint) low = middle + 1;
        else high = middle;
    }
    return low < vocab->size && vocab->codepoints[low] == codepoint ? low : -1;
}

/* Most characters of most texts are ASCII, so each of those is looked up only once. */
enum { ASCII = 128, NOT_LOOKED_UP = -2 };

static int32_t token_of(const mr_vocab *vocab, uint32_t codepoint, int32_t ascii[ASCII])
{
    if (codepoint >= ASCII) return find_character(vocab, codepoint);
    if (ascii[codepoint] == NOT_LOOKED_UP) ascii[codepoint] = find_character(vocab, codepoint);
    return ascii[codepoint];
}

/* How far an encoding has come. */
typedef struct encoding {
    int32_t *tokens; /* NULL: only count */
    size_t capacity, count, used;
} encoding;

static void put_token(encoding *e, int32_t token, size_t bytes)
{
    if (e->tokens) e->tokens[e->count] = token;
    e->count++;
    e->used += bytes;
}

static int encode_characters(const mr_vocab *vocab, const char *text, size_t size, int last, uint64_t offset,
                             encoding *e, mr_error *err)
{
    int32_t ascii[ASCII];
    for (int i = 0; i < ASCII; i++) ascii[i] = NOT_LOOKED_UP;
    while (e->used < size && e->count < e->capacity) {
        uint32_t codepoint;
        int length = mr_utf8_read(text + e->used, size - e->used, &codepoint);
        if (length == MR_UTF8_UNFINISHED && !last) return 0;
        if (length <= 0) return fail_utf8(err, length, offset + e->used, text[e->used]);
        int32_t token = token_of(vocab, codepoint, ascii);
        if (token < 0)
            return mr_fail(err, MR_EDATA, "byte %" PRIu64 ": the character U+%04X is not in the vocabulary",
                           offset + e->used + 1, (unsigned)codepoint);
        put_token(e, token, (size_t)length);
    }
    return 0;
}

int mr_vocab_encode(const mr_vocab *vocab, const char *text, size_t size, int last, uint64_t offset, int32_t *tokens,
                    size_t capacity, size_t *count, size_t *used, mr_error *err)
{
    encoding e = {.tokens = tokens, .capacity = tokens ? capacity : SIZE_MAX};
    int status = 0;
    if (vocab->kind == MR_VOCAB_CHARS) status = encode_characters(vocab, text, size, last, offset, &e, err);
    else
        while (e.used < size && e.count < e.capacity) put_token(&e, (unsigned char)text[e.used], 1);
    *count = e.count;
    *used = e.used;
    return status;
}

int mr_vocab_decode(const mr_vocab *vocab, int32_t token, char out[4])
{
    if (token < 0 || token >= vocab->size) return 0;
    if (vocab->kind == MR_VOCAB_CHARS) return mr_utf8_write(vocab->codepoints[token], out);
    out[0] = (char)token;
    return 1;
}
