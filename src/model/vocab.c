#include "model/vocab.h"

#include "core/json.h"
#include "core/mem.h"
#include "core/text.h"
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
        for (unsigned bits = seen[i]; bits; bits &= bits - 1) vocab->codepoints[next++] = 8 * i + (uint32_t)__builtin_ctz(bits);
    return 0;
}

static void become_bytes(mr_vocab *vocab) { *vocab = (mr_vocab){.kind = MR_VOCAB_BYTES, .size = 256}; }

int mr_vocab_build(mr_vocab *vocab, mr_vocab_kind kind, const char *text, size_t size, mr_error *err)
{
    if (kind == MR_VOCAB_BYTES) {
        become_bytes(vocab);
        return 0;
    }
    *vocab = (mr_vocab){.kind = MR_VOCAB_CHARS};
    if (size == 0) return mr_fail(err, MR_EDATA, "an empty text has no characters to make a vocabulary of");
    uint8_t *seen = mr_alloc(MR_CODEPOINTS / 8, 1);
    if (!seen) return mr_no_memory(err, "the vocabulary");
    int status = mark_characters(seen, text, size, err);
    if (status == 0) status = collect(vocab, seen, err);
    mr_free(seen);
    if (status) mr_vocab_free(vocab);
    return status;
}

void mr_vocab_free(mr_vocab *vocab)
{
    mr_free(vocab->codepoints);
    memset(vocab, 0, sizeof *vocab);
}

/* ---- metadata */

char *mr_vocab_print(const mr_vocab *vocab)
{
    mr_text text = {0};
    if (vocab->kind == MR_VOCAB_BYTES) return mr_strdup("bytes");
    mr_text_add(&text, "[");
    for (int i = 0; i < vocab->size; i++) {
        char bytes[4];
        const int length = mr_utf8_write(vocab->codepoints[i], bytes);
        if (i) mr_text_add(&text, ",");
        mr_text_json(&text, bytes, (size_t)length);
    }
    mr_text_add(&text, "]");
    if (!text.failed) return text.data;
    mr_text_free(&text);
    return NULL;
}

/* The one character that a JSON string must be. */
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
            return mr_fail(err, MR_EFORMAT, "entry %zu of the vocabulary is not above the one before it", i);
    }
    if (!mr_json_done(json)) return mr_fail(err, MR_EFORMAT, "the vocabulary is not JSON, after entry %zu", i);
    if (!i) return mr_fail(err, MR_EFORMAT, "the vocabulary is empty");
    vocab->size = (int)i;
    return 0;
}

/* How many entries a list can have at most that is `size` bytes long: each is two quotes, a character and a comma. */
static size_t most_entries(size_t size) { return size / 4 + 1 < MR_CODEPOINTS ? size / 4 + 1 : MR_CODEPOINTS; }

int mr_vocab_parse(mr_vocab *vocab, const char *text, mr_error *err)
{
    size_t size = strlen(text);
    mr_json json;
    if (strcmp(text, "bytes") == 0) {
        become_bytes(vocab);
        return 0;
    }
    *vocab = (mr_vocab){.kind = MR_VOCAB_CHARS};
    if (text[0] != '[' || size < 5)
        return mr_fail(err, MR_EFORMAT, "the vocabulary is neither \"bytes\" nor a JSON array of characters");
    char *room = mr_alloc(size, 1);
    vocab->codepoints = mr_alloc(most_entries(size), sizeof *vocab->codepoints);
    int status = room && vocab->codepoints ? 0 : mr_no_memory(err, "the vocabulary");
    mr_json_start(&json, text, size, room);
    if (!status) status = take_characters(vocab, &json, err);
    mr_free(room);
    if (status) mr_vocab_free(vocab);
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

static int encode_characters(const mr_vocab *vocab, const char *text, size_t size, int last, uint64_t offset,
                             int32_t *out, size_t *count, size_t *used, mr_error *err)
{
    while (*used < size) {
        uint32_t codepoint;
        int length = mr_utf8_read(text + *used, size - *used, &codepoint);
        if (length == MR_UTF8_UNFINISHED && !last) return 0;
        if (length <= 0) return fail_utf8(err, length, offset + *used, text[*used]);
        int32_t token = find_character(vocab, codepoint);
        if (token < 0)
            return mr_fail(err, MR_EDATA, "byte %" PRIu64 ": the character U+%04X is not in the vocabulary",
                           offset + *used + 1, (unsigned)codepoint);
        out[(*count)++] = token;
        *used += (size_t)length;
    }
    return 0;
}

int mr_vocab_encode(const mr_vocab *vocab, const char *text, size_t size, int last, uint64_t offset,
                    int32_t *out, size_t *count, size_t *used, mr_error *err)
{
    *count = *used = 0;
    if (vocab->kind == MR_VOCAB_CHARS) return encode_characters(vocab, text, size, last, offset, out, count, used, err);
    for (size_t i = 0; i < size; i++) out[i] = (unsigned char)text[i];
    *count = *used = size;
    return 0;
}

int mr_vocab_decode(const mr_vocab *vocab, int32_t token, char out[4])
{
    if (token < 0 || token >= vocab->size) return 0;
    if (vocab->kind == MR_VOCAB_CHARS) return mr_utf8_write(vocab->codepoints[token], out);
    out[0] = (char)token;
    return 1;
}
