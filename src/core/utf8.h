/* Strict UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef MR_CORE_UTF8_H
#define MR_CORE_UTF8_H

#include <stddef.h>
#include <stdint.h>

#define MR_CODEPOINTS 0x110000u

enum { MR_UTF8_UNFINISHED = 0, MR_UTF8_INVALID = -1 };

/* Reads the character at the start of text (size ≥ 1). Returns its length in bytes, 1 … 4; MR_UTF8_UNFINISHED when the
 * text ends inside a character that is valid so far; MR_UTF8_INVALID otherwise. */
int mr_utf8_read(const char *text, size_t size, uint32_t *codepoint);

/* Writes a character and returns its length in bytes. */
int mr_utf8_write(uint32_t codepoint, char out[4]);

#endif
