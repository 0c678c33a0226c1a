/* Text to tokens, with a choice of what happens to characters that a vocabulary lacks. */
#ifndef MR_APP_TASKS_ENCODE_H
#define MR_APP_TASKS_ENCODE_H

#include "core/options.h"
#include "minrnn_experimental.h"

typedef enum mr_unknown { MR_UNKNOWN_ERROR, MR_UNKNOWN_SKIP, MR_UNKNOWN_REPLACE } mr_unknown;

/* The option `unknown`: an mr_unknown at this offset of the settings. */
extern const char *const mr_unknown_choices[];
#define MR_UNKNOWN_OPTION(at, option_flags)                                                                            \
    {                                                                                                                  \
        .key = "unknown", .type = MR_OPT_CHOICE, .offset = (at), .fallback = "error", .choices = mr_unknown_choices,   \
        .help = "characters that the vocabulary lacks: refuse them, leave them out, or put U+FFFD, ? or a space",      \
        .flags = (option_flags)                                                                                        \
    }

/* A text on its way into tokens, in one piece or several. Fill in the first two fields, leave the rest zero. */
typedef struct mr_encoder {
    const mr_vocab *vocab;
    mr_unknown unknown;
    uint64_t offset;     /* bytes of the text encoded so far */
    int64_t changed;     /* characters skipped or replaced so far */
    int32_t replacement; /* internal: its token + 1; 0: not looked up yet */
} mr_encoder;

/* Encodes a piece, which may end in the middle of a character unless it is the `last`. tokens has room for `capacity`;
 * a character gives at most one token. *count and *used say how far it came, also after an error. Errors begin
 * "byte N: ", counted from 1 and from the start of the text; those about unknown characters name the first one and say
 * what to do. Bytes that are not UTF-8 are always an error (MR_EDATA), unless the vocabulary is bytes. */
int mr_encode_text(mr_encoder *encoder, const char *text, size_t size, int last, int32_t *tokens, size_t capacity,
                   size_t *count, size_t *used, mr_error *err);

/* Line breaks in a piece of text, to say in which line something is. */
size_t mr_count_lines(const char *text, size_t size);

/* "3 characters that the vocabulary lacks were skipped", for the user; "" where there were none. */
enum { MR_ENCODE_NOTE = 96 };
const char *mr_encode_note(mr_unknown unknown, int64_t changed, char out[MR_ENCODE_NOTE]);

#endif
