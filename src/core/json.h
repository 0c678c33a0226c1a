/* A strict reader of JSON (RFC 8259) for files from anywhere: it walks along the text as the caller asks, allocates
 * nothing, and goes as deep as the caller does. Text is written as JSON by core/text.h. */
#ifndef MR_CORE_JSON_H
#define MR_CORE_JSON_H

#include <stddef.h>
#include <stdint.h>

typedef struct mr_json {
    const char *start, *at, *end;
    char *room;        /* where strings are put, one behind the other */
    const char *wrong; /* what is not JSON, at `at`; NULL while all is well */
    int fresh;         /* inside a bracket, before its first item */
} mr_json;

/* `room` has space for as many bytes as the text: decoded strings are never longer. */
void mr_json_start(mr_json *json, const char *text, size_t size, char *room);

/* What comes next, white space aside: its first byte, or 0 at the end. */
char mr_json_peek(mr_json *json);

/* Goes into { or [. 0 when something else comes next. */
int mr_json_enter(mr_json *json, char bracket);
/* 1: another item follows. 0: `bracket` (} or ]) has been passed, or json->wrong is set. */
int mr_json_item(mr_json *json, char bracket);

/* A string, with a zero byte behind it; NULL when there is none or it is wrong. A \u0000 inside is counted in *size. */
const char *mr_json_string(mr_json *json, size_t *size);
/* A string and the colon behind it. */
const char *mr_json_key(mr_json *json, size_t *size);

/* A whole number from 0 to 2^63 − 1; 0 when something else comes next. */
int mr_json_whole(mr_json *json, int64_t *value);
/* Any number, as its text; 0 when something else comes next. */
size_t mr_json_number(mr_json *json, const char **text);
/* null, true or false. 0 when something else comes next. */
int mr_json_word(mr_json *json, const char *word);

/* Nothing but white space is left, and nothing was wrong. */
int mr_json_done(mr_json *json);

#endif
