/* Text to tokens: the library's encoding, resumed after each character that it stops at. */
#include "tasks/encode.h"

#include "core/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *const mr_unknown_choices[] = {"error", "skip", "replace", NULL};

/* The character in quotes where a terminal can show it: `U+00E9 ("é")`. */
static void name_character(uint32_t codepoint, char out[32])
{
    char bytes[4];
    const int length = mr_utf8_write(codepoint, bytes);
    const int shown = codepoint > ' ' && (codepoint < 0x7f || codepoint > 0xa0);
    if (shown) snprintf(out, 32, "U+%04X (\"%.*s\")", (unsigned)codepoint, length, bytes);
    else snprintf(out, 32, "U+%04X", (unsigned)codepoint);
}

/* The token that stands for unknown characters; -1 where the vocabulary has none that could. */
static int32_t find_replacement(mr_encoder *e)
{
    static const char *const candidates[] = {"\xEF\xBF\xBD", "?", " "};
    for (int i = 0; !e->replacement && i < 3; i++) {
        int32_t token;
        size_t count, used;
        if (!mr_vocab_encode(e->vocab, candidates[i], strlen(candidates[i]), 1, 0, &token, 1, &count, &used, NULL))
            e->replacement = token + 1;
    }
    return e->replacement - 1;
}

static int refuse(const mr_encoder *e, uint64_t at, uint32_t codepoint, mr_error *err)
{
    char name[32];
    name_character(codepoint, name);
    if (e->unknown == MR_UNKNOWN_REPLACE)
        return mr_fail(err, MR_EDATA,
                       "byte %" PRIu64 ": the character %s is not in the vocabulary, and neither is U+FFFD, ? or a "
                       "space to replace it with; use --unknown skip",
                       at + 1, name);
    return mr_fail(err, MR_EDATA,
                   "byte %" PRIu64 ": the character %s is not in the vocabulary; leave such characters out with "
                   "--unknown skip, or replace them with --unknown replace",
                   at + 1, name);
}

/* The encoding stopped at text[*used]: skips or replaces the unknown character there. */
static int pass_over(mr_encoder *e, const char *text, size_t size, int32_t *tokens, size_t *count, size_t *used,
                     mr_error *err)
{
    uint32_t codepoint;
    const int length = mr_utf8_read(text + *used, size - *used, &codepoint);
    if (length <= 0) return MR_EDATA; /* not UTF-8: the library's error says so */
    if (e->unknown == MR_UNKNOWN_ERROR || (e->unknown == MR_UNKNOWN_REPLACE && find_replacement(e) < 0))
        return refuse(e, e->offset + *used, codepoint, err);
    if (e->unknown == MR_UNKNOWN_REPLACE) tokens[(*count)++] = find_replacement(e);
    *used += (size_t)length;
    e->changed++;
    return 0;
}

int mr_encode_text(mr_encoder *e, const char *text, size_t size, int last, int32_t *tokens, size_t capacity,
                   size_t *count, size_t *used, mr_error *err)
{
    int status;
    *count = *used = 0;
    for (;;) {
        size_t more, taken;
        status = mr_vocab_encode(e->vocab, text + *used, size - *used, last, e->offset + *used, tokens + *count,
                                 capacity - *count, &more, &taken, err);
        *count += more;
        *used += taken;
        if (status != MR_EDATA) break;
        status = pass_over(e, text, size, tokens, count, used, err);
        if (status) break;
    }
    e->offset += *used;
    return status;
}

size_t mr_count_lines(const char *text, size_t size)
{
    size_t lines = 0;
    for (size_t i = 0; i < size; i++) lines += text[i] == '\n';
    return lines;
}

const char *mr_encode_note(mr_unknown unknown, int64_t changed, char out[MR_ENCODE_NOTE])
{
    out[0] = 0;
    if (changed)
        snprintf(out, MR_ENCODE_NOTE, "%" PRId64 " character%s that the vocabulary lacks %s %s", changed,
                 changed == 1 ? "" : "s", changed == 1 ? "was" : "were",
                 unknown == MR_UNKNOWN_SKIP ? "skipped" : "replaced");
    return out;
}
