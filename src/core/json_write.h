/* A JSON writer: the caller opens brackets and gives keys and values, the writer adds commas, colons and escapes.
 * core/json.h reads JSON.
 *
 *     mr_strbuf text = {0};
 *     mr_json_writer w = {.text = &text};
 *     mr_json_write_open(&w, '{');
 *     mr_json_write_key(&w, "step");
 *     mr_json_write_whole(&w, 7);
 *     mr_json_write_close(&w, '}');        text.data is {"step":7}
 *
 * As with mr_strbuf, check text.failed once at the end. */
#ifndef MR_CORE_JSON_WRITE_H
#define MR_CORE_JSON_WRITE_H

#include "core/strbuf.h"

#include <stdint.h>

typedef struct mr_json_writer {
    mr_strbuf *text;
    int spaced;      /* 1: a space after each comma and colon */
    int needs_comma; /* before the next key or value; the writer's own */
} mr_json_writer;

void mr_json_write_open(mr_json_writer *w, char bracket);  /* { or [ */
void mr_json_write_close(mr_json_writer *w, char bracket); /* } or ] */
void mr_json_write_key(mr_json_writer *w, const char *key);
/* Bytes that are not UTF-8 become U+FFFD. */
void mr_json_write_string(mr_json_writer *w, const char *s, size_t size);
void mr_json_write_whole(mr_json_writer *w, int64_t value);
/* With at most `digits` significant digits, 0: as mr_real_print; null where the value is NaN or infinite. */
void mr_json_write_real(mr_json_writer *w, double value, int digits);
void mr_json_write_word(mr_json_writer *w, const char *word); /* null, true or false */
/* The next key or value starts a line, indented by two spaces; a comma stays on the line before. */
void mr_json_write_line(mr_json_writer *w);

/* A key and its value. text NULL: null. */
void mr_json_field_text(mr_json_writer *w, const char *key, const char *text);
void mr_json_field_whole(mr_json_writer *w, const char *key, int64_t value);
void mr_json_field_real(mr_json_writer *w, const char *key, double value, int digits);

#endif
