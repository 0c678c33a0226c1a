/* Numbers printed the same in every locale, and a string buffer that grows. */
#ifndef MR_CORE_STRBUF_H
#define MR_CORE_STRBUF_H

#include "core/status.h"

#include <stddef.h>

#define MR_REAL_MAX 32

/* Prints a finite value with at most `digits` significant digits; 0: the fewest that read back as the same double. The
 * decimal point is '.' in every locale. Returns `out`. */
char *mr_real_print(char out[MR_REAL_MAX], double value, int digits);

/* A count for people to read: 950, 12.3k, 1.05M. */
char *mr_count_print(char out[MR_REAL_MAX], double value, int digits);

/* A number for people to read, kept short: 1e-4, not 0.0001 or 1e-04; 20k, not 20000. */
char *mr_brief_print(char out[MR_REAL_MAX], double value, int digits);

/* A string buffer. Start from {0}. When memory runs out, `failed` is set and everything added later is dropped, so one
 * check at the end is enough. */
typedef struct mr_strbuf {
    char *data; /* ends in a zero byte; NULL while empty */
    size_t size, room;
    int failed;
} mr_strbuf;

void mr_strbuf_add(mr_strbuf *text, const char *s);
/* As printf. For reals use %s with mr_real_print: %g depends on the locale. */
void mr_strbuf_format(mr_strbuf *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Adds a JSON string literal. Bytes that are not UTF-8 become U+FFFD. */
void mr_strbuf_json(mr_strbuf *text, const char *s, size_t size);
void mr_strbuf_free(mr_strbuf *text);

/* Copies text and its zero byte into a caller's buffer. *needed (or NULL) is set to the bytes it takes; MR_EINVAL when
 * capacity is smaller. */
int mr_copy_text(const char *from, char *to, size_t capacity, size_t *needed, mr_error *err);

#endif
