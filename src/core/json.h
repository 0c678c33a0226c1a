/* A strict JSON reader (RFC 8259) for untrusted files. The caller asks for what it expects next. The reader allocates
 * nothing and never recurses, so hostile nesting costs nothing. core/json_write.h writes JSON. */
#ifndef MR_CORE_JSON_H
#define MR_CORE_JSON_H

#include <stddef.h>
#include <stdint.h>

typedef struct mr_json {
    const char *start, *at, *end;
    char *room;        /* where decoded strings go, one after another */
    const char *wrong; /* the first error, which is at `at`; NULL: none */
    int fresh;         /* just after an opening bracket, before its first item */
} mr_json;

/* `room` must hold as many bytes as the text: decoded strings are never longer. */
void mr_json_start(mr_json *json, const char *text, size_t size, char *room);

/* The next byte that is not white space; 0 at the end or after an error. */
char mr_json_peek(mr_json *json);

/* Skips an opening { or [. Returns 0 when something else comes next. */
int mr_json_enter(mr_json *json, char bracket);
/* Returns 1 when another item follows, 0 after skipping the closing bracket (} or ]) or when json->wrong is set. */
int mr_json_item(mr_json *json, char bracket);

/* Reads a string and ends it with a zero byte; NULL when there is none or it is malformed. *size counts a \u0000 inside
 * it. */
const char *mr_json_string(mr_json *json, size_t *size);
/* Reads a key and its colon. */
const char *mr_json_key(mr_json *json, size_t *size);

/* Reads a whole number from 0 to 2^63 − 1. Returns 0 when something else comes next. */
int mr_json_whole(mr_json *json, int64_t *value);
/* Reads any number as text and returns its length; 0 when something else comes next. */
size_t mr_json_number(mr_json *json, const char **text);
/* Reads null, true or false. Returns 0 when something else comes next. */
int mr_json_word(mr_json *json, const char *word);

/* 1: only white space is left, and there was no error. */
int mr_json_done(mr_json *json);

#endif
