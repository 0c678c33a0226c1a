/* Numbers as text whatever the locale, and text that grows. */
#ifndef MR_CORE_TEXT_H
#define MR_CORE_TEXT_H

#include "core/status.h"

#include <stddef.h>

#define MR_REAL_MAX 32

/* A finite value with at most `digits` significant digits; 0: the fewest that read back as the same double. The decimal
 * point is a point in every locale. Returns `out`. */
char *mr_real_print(char out[MR_REAL_MAX], double value, int digits);

/* A count for people: 950, 12.3k, 1.05M. */
char *mr_count_print(char out[MR_REAL_MAX], double value, int digits);

/* For people, and narrow: 1e-4, not 0.0001 or 1e-04; 20k, not 20000. */
char *mr_brief_print(char out[MR_REAL_MAX], double value, int digits);

/* Zero-initialised, it is empty. Out of memory leaves `failed` set and the rest unsaid, so that one check at the end is
 * enough. */
typedef struct mr_text {
    char *data; /* ends in a zero byte; NULL while empty */
    size_t size, room;
    int failed;
} mr_text;

void mr_text_add(mr_text *text, const char *s);
/* As printf; reals go through %s and mr_real_print. */
void mr_text_format(mr_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A JSON string literal. Bytes that are not UTF-8 become U+FFFD. */
void mr_text_json(mr_text *text, const char *s, size_t size);

/* One character of it, for who has no memory to ask for; returns how many bytes of s it stands for. */
enum { MR_JSON_PIECE = 16 };
size_t mr_json_piece(char out[MR_JSON_PIECE], const char *s, size_t size);
void mr_text_free(mr_text *text);

/* Text into a caller's buffer, with its zero byte: *needed (or NULL) is set to what it takes; MR_EINVAL when that is
 * more. */
int mr_text_give(const char *from, char *to, size_t capacity, size_t *needed, mr_error *err);

#endif
