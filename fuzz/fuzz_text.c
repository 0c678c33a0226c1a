/* Fuzzes texts and vocabularies: an accepted text must be encoded the same whole or in two pieces and decode to the
 * same bytes, and its vocabulary must survive printing and parsing. */
#include "core/mem.h"
#include "input.h"
#include "model/vocab.h"

#include <string.h>

enum { LARGEST = 1 << 13 };

static size_t encode(const mr_vocab *vocab, const char *text, size_t size, size_t cut, int32_t *out)
{
    size_t count, more, used, rest;
    mr_error err;
    must(!mr_vocab_encode(vocab, text, cut, cut == size, 0, out, LARGEST, &count, &used, &err),
         "the first piece is encoded");
    must(used <= cut && cut - used < 4, "at most a part of one character is left");
    if (cut == size) return count;
    must(!mr_vocab_encode(vocab, text + used, size - used, 1, used, out + count, LARGEST - count, &more, &rest, &err) &&
             used + rest == size,
         "the rest is encoded");
    return count + more;
}

static void check_tokens(const mr_vocab *vocab, const char *text, size_t size)
{
    static int32_t whole[LARGEST], parts[LARGEST];
    size_t count = encode(vocab, text, size, size, whole), at = 0;
    size_t cut = size ? (unsigned char)text[0] * size / 256 : 0;
    must(encode(vocab, text, size, cut, parts) == count && !memcmp(whole, parts, count * sizeof *whole),
         "pieces give the same");
    for (size_t i = 0; i < count; i++) {
        char bytes[4];
        size_t length = (size_t)mr_vocab_decode(vocab, whole[i], bytes);
        must(length > 0 && at + length <= size && !memcmp(bytes, text + at, length), "tokens read as the text");
        at += length;
    }
    must(at == size, "tokens read as all of the text");
}

static void check_print(const mr_vocab *vocab)
{
    mr_vocab *again = NULL;
    mr_error err;
    char *text = mr_vocab_text(vocab);
    must(text && !mr_vocab_parse(text, &again, &err) && again->size == vocab->size, "a vocabulary survives printing");
    must(vocab->kind == MR_VOCAB_BYTES ||
             !memcmp(again->codepoints, vocab->codepoints, (size_t)again->size * sizeof *again->codepoints),
         "with its characters");
    mr_vocab_free(again);
    mr_free(text);
}

static void check_text(mr_vocab_kind kind, const char *text, size_t size)
{
    mr_vocab *vocab;
    mr_error err = {0};
    if (mr_vocab_build(kind, text, size, &vocab, &err)) {
        must(err.text[0] != 0, "an error says why");
        return;
    }
    check_tokens(vocab, text, size);
    check_print(vocab);
    mr_vocab_free(vocab);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mr_vocab *vocab;
    mr_error err = {0};
    if (size > LARGEST) return 0;
    check_text(MR_VOCAB_CHARS, (const char *)data, size);
    check_text(MR_VOCAB_BYTES, (const char *)data, size);
    char *text = malloc(size + 1);
    memcpy(text, data, size);
    text[size] = 0;
    if (!mr_vocab_parse(text, &vocab, &err)) {
        check_print(vocab);
        mr_vocab_free(vocab);
    } else must(err.text[0] != 0, "an error says why");
    free(text);
    return 0;
}
