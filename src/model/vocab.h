/* The struct behind mr_vocab (minrnn_experimental.h): characters in ascending order, or bytes. */
#ifndef MR_MODEL_VOCAB_H
#define MR_MODEL_VOCAB_H

#include "core/status.h"
#include "minrnn_experimental.h"

struct mr_vocab {
    mr_vocab_kind kind;
    int size;
    uint32_t *codepoints;          /* [size] ascending, MR_VOCAB_CHARS only */
    const mr_allocator *allocator; /* of this struct and codepoints; NULL: the C library's */
};

/* A copy in memory of another allocator; NULL: out of memory. */
mr_vocab *mr_vocab_copy(const mr_vocab *vocab, const mr_allocator *allocator);

/* The text of the metadata key "vocab". Free with mr_free. NULL: out of memory. */
char *mr_vocab_text(const mr_vocab *vocab);

#endif
