/* The JSON reader: it moves through the text as the caller asks for what comes next. */
#include "core/json.h"

#include "core/utf8.h"

#include <string.h>

void mr_json_start(mr_json *j, const char *text, size_t size, char *room)
{
    *j = (mr_json){.start = text, .at = text, .end = text + size, .room = room};
}

static int refuse(mr_json *j, const char *what)
{
    if (!j->wrong) j->wrong = what;
    return 0;
}

char mr_json_peek(mr_json *j)
{
    while (j->at < j->end && (*j->at == ' ' || *j->at == '\t' || *j->at == '\n' || *j->at == '\r')) j->at++;
    return j->at < j->end && !j->wrong ? *j->at : 0;
}

/* Skips `wanted` if it comes next. */
static int pass(mr_json *j, char wanted)
{
    if (!wanted || mr_json_peek(j) != wanted) return 0;
    j->at++;
    return 1;
}

/* ---- objects and lists */

int mr_json_enter(mr_json *j, char bracket)
{
    if (!pass(j, bracket)) return 0;
    j->fresh = 1;
    return 1;
}

int mr_json_item(mr_json *j, char bracket)
{
    int fresh = j->fresh;
    j->fresh = 0;
    if (pass(j, bracket) || j->wrong) return 0;
    if (fresh || pass(j, ',')) return 1;
    return refuse(j, bracket == '}' ? "a comma or } is missing" : "a comma or ] is missing");
}

/* ---- strings */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The four hexadecimal digits after \u; −1: there are not four. */
static int32_t read_unit(mr_json *j)
{
    int32_t unit = 0;
    if (j->end - j->at < 4) return -1;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(j->at[i]);
        if (digit < 0) return -1;
        unit = unit << 4 | digit;
    }
    j->at += 4;
    return unit;
}

/* The code point of \uXXXX, or of a pair of surrogates. */
static int read_unicode(mr_json *j, uint32_t *codepoint)
{
    int32_t first = read_unit(j), second;
    if (first < 0) return refuse(j, "\\u needs four hexadecimal digits");
    *codepoint = (uint32_t)first;
    if (first < 0xD800 || first > 0xDFFF) return 1;
    if (first > 0xDBFF || j->end - j->at < 2 || j->at[0] != '\\' || j->at[1] != 'u')
        return refuse(j, "an unpaired surrogate");
    j->at += 2;
    second = read_unit(j);
    if (second < 0xDC00 || second > 0xDFFF) return refuse(j, "an unpaired surrogate");
    *codepoint = 0x10000 + (((uint32_t)first - 0xD800) << 10) + ((uint32_t)second - 0xDC00);
    return 1;
}

static int read_escape(mr_json *j, uint32_t *codepoint)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    char c = j->at < j->end ? *j->at++ : 0;
    const char *name = c ? strchr(names, c) : NULL;
    if (c == 'u') return read_unicode(j, codepoint);
    if (!name) return refuse(j, "an unknown escape in a string");
    *codepoint = (unsigned char)values[name - names];
    return 1;
}

/* One character of a string. */
static int read_character(mr_json *j, uint32_t *codepoint)
{
    if (j->at == j->end) return refuse(j, "a string does not end");
    if (*j->at == '\\') {
        j->at++;
        return read_escape(j, codepoint);
    }
    int length = mr_utf8_read(j->at, (size_t)(j->end - j->at), codepoint);
    if (length <= 0) return refuse(j, "not UTF-8");
    if (*codepoint < ' ') return refuse(j, "a control character in a string");
    j->at += length;
    return 1;
}

const char *mr_json_string(mr_json *j, size_t *size)
{
    char *begin = j->room;
    uint32_t codepoint = 0;
    if (!pass(j, '"')) return NULL;
    while (j->at == j->end || *j->at != '"') {
        if (!read_character(j, &codepoint)) return NULL;
        j->room += mr_utf8_write(codepoint, j->room);
    }
    j->at++;
    *size = (size_t)(j->room - begin);
    *j->room++ = 0;
    return begin;
}

const char *mr_json_key(mr_json *j, size_t *size)
{
    if (mr_json_peek(j) != '"') return refuse(j, "a key in quotes is missing"), NULL;
    const char *key = mr_json_string(j, size);
    if (key && !pass(j, ':')) return refuse(j, "a colon is missing"), NULL;
    return key;
}

/* ---- numbers and words */

static int is_digit(const mr_json *j, const char *at) { return at < j->end && *at >= '0' && *at <= '9'; }

size_t mr_json_number(mr_json *j, const char **text)
{
    mr_json_peek(j);
    const char *at = j->at;
    if (at < j->end && *at == '-') at++;
    if (!is_digit(j, at) || j->wrong) return 0;
    if (*at == '0' && is_digit(j, at + 1)) return 0;
    while (is_digit(j, at)) at++;
    if (at < j->end && *at == '.') {
        if (!is_digit(j, ++at)) return 0;
        while (is_digit(j, at)) at++;
    }
    if (at < j->end && (*at == 'e' || *at == 'E')) {
        at++;
        if (at < j->end && (*at == '+' || *at == '-')) at++;
        if (!is_digit(j, at)) return 0;
        while (is_digit(j, at)) at++;
    }
    *text = j->at;
    j->at = at;
    return (size_t)(at - *text);
}

int mr_json_whole(mr_json *j, int64_t *value)
{
    const char *text, *before = j->at;
    size_t size = mr_json_number(j, &text);
    *value = 0;
    for (size_t i = 0; i < size; i++) {
        int digit = text[i] - '0', whole = digit >= 0 && digit <= 9;
        if (whole && !__builtin_mul_overflow(*value, 10, value) && !__builtin_add_overflow(*value, digit, value))
            continue;
        j->at = before;
        return 0;
    }
    return size > 0;
}

int mr_json_word(mr_json *j, const char *word)
{
    size_t size = strlen(word);
    mr_json_peek(j);
    if (j->wrong || (size_t)(j->end - j->at) < size || memcmp(j->at, word, size)) return 0;
    j->at += size;
    return 1;
}

int mr_json_done(mr_json *j)
{
    if (mr_json_peek(j)) refuse(j, "something follows the end");
    return !j->wrong && j->at == j->end;
}
