/* The JSON writer. All it remembers is whether the next key or value needs a comma before it. */
#include "core/json_write.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Writes the comma, if needed, before a key or a value. */
static void separate(mr_json_writer *w)
{
    if (w->needs_comma) mr_strbuf_add(w->text, w->spaced ? ", " : ",");
    w->needs_comma = 1;
}

void mr_json_write_line(mr_json_writer *w)
{
    mr_strbuf_add(w->text, w->needs_comma ? ",\n  " : "\n  ");
    w->needs_comma = 0;
}

void mr_json_write_open(mr_json_writer *w, char bracket)
{
    separate(w);
    mr_strbuf_add(w->text, (char[]){bracket, 0});
    w->needs_comma = 0;
}

void mr_json_write_close(mr_json_writer *w, char bracket)
{
    mr_strbuf_add(w->text, (char[]){bracket, 0});
    w->needs_comma = 1;
}

void mr_json_write_key(mr_json_writer *w, const char *key)
{
    mr_json_write_string(w, key, strlen(key));
    mr_strbuf_add(w->text, w->spaced ? ": " : ":");
    w->needs_comma = 0;
}

void mr_json_write_string(mr_json_writer *w, const char *s, size_t size)
{
    separate(w);
    mr_strbuf_json(w->text, s, size);
}

void mr_json_write_whole(mr_json_writer *w, int64_t value)
{
    separate(w);
    mr_strbuf_format(w->text, "%" PRId64, value);
}

void mr_json_write_real(mr_json_writer *w, double value, int digits)
{
    char number[MR_REAL_MAX];
    separate(w);
    mr_strbuf_add(w->text, isfinite(value) ? mr_real_print(number, value, digits) : "null");
}

void mr_json_write_word(mr_json_writer *w, const char *word)
{
    separate(w);
    mr_strbuf_add(w->text, word);
}

void mr_json_field_text(mr_json_writer *w, const char *key, const char *text)
{
    mr_json_write_key(w, key);
    if (text) mr_json_write_string(w, text, strlen(text));
    else mr_json_write_word(w, "null");
}

void mr_json_field_whole(mr_json_writer *w, const char *key, int64_t value)
{
    mr_json_write_key(w, key);
    mr_json_write_whole(w, value);
}

void mr_json_field_real(mr_json_writer *w, const char *key, double value, int digits)
{
    mr_json_write_key(w, key);
    mr_json_write_real(w, value, digits);
}
