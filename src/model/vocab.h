/* A vocabulary: which token stands for which piece of text. Bytes (256 tokens) or the characters (Unicode code
 * points) of a text, in ascending order. */
#ifndef MR_MODEL_VOCAB_H
#define MR_MODEL_VOCAB_H

#include "core/status.h"

#include <stddef.h>
#include <stdint.h>

typedef enum mr_vocab_kind { MR_VOCAB_CHARS, MR_VOCAB_BYTES } mr_vocab_kind;

typedef struct mr_vocab {
    mr_vocab_kind kind;
    int size;
    uint32_t *codepoints; /* [size] ascending, MR_VOCAB_CHARS only */
} mr_vocab;

/* From a text: its distinct characters (the text must be UTF-8; the error gives line and byte), or all 256 bytes. */
int mr_vocab_build(mr_vocab *vocab, mr_vocab_kind kind, const char *text, size_t size, mr_error *err);
void mr_vocab_free(mr_vocab *vocab);

/* To and from the metadata value "vocab": "bytes", or a JSON array of one-character strings in token order. The
 * printed text is freed by mr_free; NULL: out of memory. */
char *mr_vocab_print(const mr_vocab *vocab);
int mr_vocab_parse(mr_vocab *vocab, const char *text, mr_error *err);

/* Encodes a piece of text that may end in the middle of a character. Tokens go to out (room for size tokens);
 * *used is how many bytes were consumed, so the caller puts the rest before its next piece. `last`: nothing
 * follows, an unfinished character is an error. `offset` is the position of text in the whole input, for errors,
 * which begin "byte N: " (N counts from 1). Also on an error *count and *used say how far it came: text[*used] is
 * where it stopped. */
int mr_vocab_encode(const mr_vocab *vocab, const char *text, size_t size, int last, uint64_t offset,
                    int32_t *out, size_t *count, size_t *used, mr_error *err);

/* The bytes of one token (at most 4, no terminator); returns how many, 0 for what is no token of this vocabulary. */
int mr_vocab_decode(const mr_vocab *vocab, int32_t token, char out[4]);

#endif
