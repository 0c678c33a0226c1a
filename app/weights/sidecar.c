/* Reading config.json and the index of shards. */
#include "weights/sidecar.h"

#include "core/json.h"
#include "core/mem.h"

#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 32, SHOWN = 100 /* bytes of a key that an error message repeats */ };

typedef struct reader {
    mr_json json;
    const char *name;
    mr_error *err;
} reader;

static int wrong(const reader *r, const char *otherwise)
{
    return mr_fail(r->err, MR_EFORMAT, "%s: byte %zu: %s", r->name, (size_t)(r->json.at - r->json.start),
                   r->json.wrong ? r->json.wrong : otherwise);
}

/* A key without zero bytes; NULL, with the error set, otherwise. */
static const char *read_key(reader *r)
{
    size_t size;
    const char *key = mr_json_key(&r->json, &size);
    if (key && strlen(key) == size) return key;
    wrong(r, "a zero byte in a key");
    return NULL;
}

/* Copies the text of a number or word to where decoded strings go: it is as long there as in the file. */
static const char *keep(mr_json *json, const char *from, size_t size)
{
    char *text = json->room;
    memcpy(text, from, size);
    text[size] = 0;
    json->room += size + 1;
    return text;
}

static const char *read_word(mr_json *json)
{
    static const char *const words[] = {"null", "true", "false"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (mr_json_word(json, words[i])) return words[i];
    return NULL;
}

/* A string, number or word; *is_text: in quotes. NULL: there is none of them, or json.wrong is set. */
static const char *read_plain(reader *r, int *is_text)
{
    size_t size;
    const char *number, *text = mr_json_string(&r->json, &size);
    *is_text = text != NULL;
    if (text && strlen(text) == size) return text;
    if (text) r->json.wrong = "a zero byte in a text";
    if (r->json.wrong) return NULL;
    const char *word = read_word(&r->json);
    if (word) return word;
    size = mr_json_number(&r->json, &number);
    return size ? keep(&r->json, number, size) : NULL;
}

/* Skips a list or an object with everything inside. */
static int skip_nested(reader *r)
{
    char open[DEEPEST] = {0};
    int depth = 0, is_text;
    do {
        const char bracket = mr_json_peek(&r->json) == '{' ? '{' : '[';
        if (mr_json_enter(&r->json, bracket)) {
            if (depth == DEEPEST) return wrong(r, "lists and objects lie in each other more than 32 deep");
            open[depth++] = bracket == '{' ? '}' : ']';
        } else if (!depth || !read_plain(r, &is_text)) {
            return wrong(r, "a value is missing");
        }
        while (depth && !mr_json_item(&r->json, open[depth - 1])) {
            if (r->json.wrong) return wrong(r, "");
            depth--;
        }
        if (depth && open[depth - 1] == '}' && !read_key(r)) return MR_EFORMAT;
    } while (depth);
    return 0;
}

static int add(mr_sidecar *s, const reader *r, const mr_sidecar_entry *entry)
{
    if (s->count == s->capacity) {
        const int capacity = 2 * s->capacity + 64;
        mr_sidecar_entry *larger = mr_alloc((size_t)capacity, sizeof *larger);
        if (!larger) return mr_no_memory(r->err, r->name);
        if (s->count) memcpy(larger, s->entries, (size_t)s->count * sizeof *larger);
        mr_free(s->entries);
        s->entries = larger;
        s->capacity = capacity;
    }
    s->entries[s->count++] = *entry;
    return 0;
}

/* The entries of the object that comes next. s NULL: only the one under `inside` is wanted, whose entries go to `to`.
 */
static int read_object(reader *r, mr_sidecar *s, const char *inside, mr_sidecar *to)
{
    int found = 0, status = 0;
    if (!mr_json_enter(&r->json, '{')) return wrong(r, "it does not begin with {");
    while (!status && mr_json_item(&r->json, '}')) {
        mr_sidecar_entry entry = {.key = read_key(r)};
        if (!entry.key) return MR_EFORMAT;
        if (inside && !strcmp(entry.key, inside)) {
            if (found++) return mr_fail(r->err, MR_EFORMAT, "%s: the key %s is there twice", r->name, inside);
            status = read_object(r, to, NULL, NULL);
            continue;
        }
        const char next = mr_json_peek(&r->json);
        if (next == '{' || next == '[') {
            status = skip_nested(r);
        } else {
            entry.value = read_plain(r, &entry.is_text);
            if (!entry.value) return wrong(r, "a value is missing");
        }
        if (!status && s) status = add(s, r, &entry);
    }
    if (!status && r->json.wrong) return wrong(r, "");
    if (!status && inside && !found) return mr_fail(r->err, MR_EFORMAT, "%s: has no %s", r->name, inside);
    return status;
}

static int by_key(const void *left, const void *right)
{
    return strcmp(((const mr_sidecar_entry *)left)->key, ((const mr_sidecar_entry *)right)->key);
}

static int sort(mr_sidecar *s, const reader *r)
{
    if (s->count) qsort(s->entries, (size_t)s->count, sizeof *s->entries, by_key);
    for (int i = 1; i < s->count; i++)
        if (!strcmp(s->entries[i - 1].key, s->entries[i].key))
            return mr_fail(r->err, MR_EFORMAT, "%s: the key %.*s is there twice", r->name, SHOWN, s->entries[i].key);
    return 0;
}

int mr_sidecar_read(mr_sidecar *s, const char *name, const char *text, size_t size, const char *inside, mr_error *err)
{
    reader r = {.name = name, .err = err};
    *s = (mr_sidecar){.room = mr_alloc(size + 2, 2)}; /* a number of one digit takes two bytes with its end */
    if (!s->room) return mr_no_memory(err, name);
    mr_json_start(&r.json, text, size, s->room);
    int status = read_object(&r, inside ? NULL : s, inside, s);
    if (!status && !mr_json_done(&r.json)) status = wrong(&r, "something follows the closing brace");
    if (!status) status = sort(s, &r);
    if (status) mr_sidecar_free(s);
    return status;
}

void mr_sidecar_free(mr_sidecar *s)
{
    mr_free(s->room);
    mr_free(s->entries);
    *s = (mr_sidecar){0};
}

const mr_sidecar_entry *mr_sidecar_find(const mr_sidecar *s, const char *key)
{
    const mr_sidecar_entry wanted = {.key = key};
    return s->count ? bsearch(&wanted, s->entries, (size_t)s->count, sizeof *s->entries, by_key) : NULL;
}

const char *mr_sidecar_value(const mr_sidecar *s, const char *key)
{
    const mr_sidecar_entry *entry = mr_sidecar_find(s, key);
    if (!entry || !entry->value || (!entry->is_text && !strcmp(entry->value, "null"))) return NULL;
    return entry->value;
}
