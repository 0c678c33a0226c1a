/* Numbers printed the same in every locale, and a string buffer that grows. */
#include "core/strbuf.h"

#include "core/mem.h"
#include "core/utf8.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Replaces the locale's decimal point, which may be several bytes, with '.'. */
static void use_decimal_point(char *number)
{
    char *to = number;
    for (const char *from = number; *from;) {
        if (isdigit((unsigned char)*from) || strchr("+-e", *from)) {
            *to++ = *from++;
            continue;
        }
        *to++ = '.';
        while (*from && !isdigit((unsigned char)*from) && !strchr("+-e", *from)) from++;
    }
    *to = 0;
}

char *mr_real_print(char out[MR_REAL_MAX], double value, int digits)
{
    if (digits) {
        snprintf(out, MR_REAL_MAX, "%.*g", digits, value);
    } else {
        /* %.15g drops trailing zeros, so it is the shortest whenever 15 digits are enough. Some doubles need 16 or
         * 17. */
        for (digits = 15; digits <= 17; digits++) {
            snprintf(out, MR_REAL_MAX, "%.*g", digits, value);
            if (strtod(out, NULL) == value) break;
        }
    }
    use_decimal_point(out);
    return out;
}

char *mr_count_print(char out[MR_REAL_MAX], double value, int digits)
{
    static const char *const suffix[] = {"", "k", "M", "G", "T"};
    size_t power = 0;
    double rounding = 1 - 0.5 * pow(10, -digits); /* a value that would print as 1000 gets the next suffix */
    while (power + 1 < sizeof suffix / sizeof *suffix && fabs(value) >= 1000 * rounding) {
        value /= 1000;
        power++;
    }
    mr_real_print(out, value, digits);
    strcat(out, suffix[power]);
    return out;
}

char *mr_brief_print(char out[MR_REAL_MAX], double value, int digits)
{
    int power = value == 0 ? 0 : (int)floor(log10(fabs(value)) + 1e-9);
    if (power >= 4 && power < 15) return mr_count_print(out, value, digits);
    if (power >= -3 && power < 4) return mr_real_print(out, value, digits);
    char lead[MR_REAL_MAX];
    snprintf(out, MR_REAL_MAX, "%.20se%d", mr_real_print(lead, value / pow(10, power), digits), power);
    return out;
}

static int make_room(mr_strbuf *text, size_t more)
{
    if (text->failed) return 0;
    if (text->room - text->size > more) return 1;
    size_t room = 2 * text->room + more + 4096;
    char *data = mr_alloc(room, 1);
    if (!data) {
        text->failed = 1;
        return 0;
    }
    if (text->size) memcpy(data, text->data, text->size);
    mr_free(text->data);
    text->data = data;
    text->room = room;
    return 1;
}

void mr_strbuf_add(mr_strbuf *text, const char *s)
{
    size_t size = strlen(s);
    if (!make_room(text, size)) return;
    memcpy(text->data + text->size, s, size + 1);
    text->size += size;
}

void mr_strbuf_format(mr_strbuf *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int size = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (size < 0 || !make_room(text, (size_t)size)) {
        text->failed = 1;
        return;
    }
    va_start(args, format);
    vsnprintf(text->data + text->size, (size_t)size + 1, format, args);
    va_end(args);
    text->size += (size_t)size;
}

/* The letter after the backslash. Model files hold vocabularies in this form and compare them as text, so it must not
 * change. */
static char short_escape(char c)
{
    switch (c) {
    case '\b': return 'b';
    case '\f': return 'f';
    case '\n': return 'n';
    case '\r': return 'r';
    case '\t': return 't';
    default: return c;
    }
}

/* The first character of s as written in a JSON string. Returns how many bytes of s it takes. */
enum { JSON_PIECE = 16 };
static size_t json_piece(char out[JSON_PIECE], const char *s, size_t size)
{
    uint32_t c;
    const int n = mr_utf8_read(s, size, &c);
    if (n <= 0) snprintf(out, JSON_PIECE, "\\ufffd");
    else if (c && c < 0x80 && strchr("\"\\\b\f\n\r\t", (int)c))
        snprintf(out, JSON_PIECE, "\\%c", short_escape((char)c));
    else if (c < 0x20) snprintf(out, JSON_PIECE, "\\u%04X", (unsigned)c);
    else snprintf(out, JSON_PIECE, "%.*s", n, s);
    return n > 0 ? (size_t)n : 1;
}

void mr_strbuf_json(mr_strbuf *text, const char *s, size_t size)
{
    char piece[JSON_PIECE];
    mr_strbuf_add(text, "\"");
    for (size_t at = 0; at < size;) {
        at += json_piece(piece, s + at, size - at);
        mr_strbuf_add(text, piece);
    }
    mr_strbuf_add(text, "\"");
}

void mr_strbuf_free(mr_strbuf *text)
{
    mr_free(text->data);
    *text = (mr_strbuf){0};
}

int mr_copy_text(const char *from, char *to, size_t capacity, size_t *needed, mr_error *err)
{
    const size_t size = strlen(from) + 1;
    if (needed) *needed = size;
    if (size > capacity || !to)
        return mr_fail(err, MR_EINVAL, "room for %zu bytes where %zu are needed", to ? capacity : 0, size);
    memcpy(to, from, size);
    return 0;
}
