#include "core/file.h"
#include "core/mem.h"
#include "core/safetensors.h"
#include "core/text.h"
#include "core/utf8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { DATA_ALIGN = 64 }; /* where the data begins in the file: a mapped file then has it aligned as mr_alloc does */

/* A line of metadata or a tensor: both are collected, sorted and checked the same way. */
typedef struct entry {
    char *name;
    char *value;         /* of metadata */
    mr_st_tensor tensor; /* its name stays unset */
} entry;

typedef struct entries {
    entry *list;
    int count, room;
} entries;

struct mr_st_writer {
    entries meta, tensors;
    mr_error failed; /* the first thing that could not be added: mr_st_write reports it */
};

mr_st_writer *mr_st_writer_new(void) { return mr_alloc(1, sizeof(mr_st_writer)); }

static void free_entries(entries *e)
{
    for (int i = 0; i < e->count; i++) {
        mr_free(e->list[i].name);
        mr_free(e->list[i].value);
    }
    mr_free(e->list);
}

void mr_st_writer_free(mr_st_writer *w)
{
    if (!w) return;
    free_entries(&w->meta);
    free_entries(&w->tensors);
    mr_free(w);
}

/* ---- collecting */

static int refuse(mr_st_writer *w, int status, const char *name, const char *why)
{
    if (!w->failed.status) mr_fail(&w->failed, status, "%s: %s", name, why);
    return status;
}

static entry *append(entries *e, const char *name)
{
    if (e->count == e->room) {
        int room = e->room ? 2 * e->room : 16;
        entry *list = mr_alloc((size_t)room, sizeof *list);
        if (!list) return NULL;
        if (e->list) memcpy(list, e->list, (size_t)e->count * sizeof *list);
        mr_free(e->list);
        e->list = list;
        e->room = room;
    }
    entry *last = &e->list[e->count];
    last->name = mr_strdup(name);
    if (last->name) e->count++;
    return last->name ? last : NULL;
}

int mr_st_add_meta(mr_st_writer *w, const char *key, const char *value)
{
    entry *added = append(&w->meta, key);
    if (added) added->value = mr_strdup(value);
    return added && added->value ? 0 : refuse(w, MR_ENOMEM, key, "out of memory");
}

int mr_st_add(mr_st_writer *w, const char *name, mr_st_dtype dtype, int ndim, const int64_t *shape, const void *data)
{
    size_t bytes;
    if (!strcmp(name, MR_ST_METADATA)) return refuse(w, MR_EINVAL, name, "no tensor may have this name");
    if (mr_st_bytes(dtype, ndim, shape, &bytes)) return refuse(w, MR_EINVAL, name, "its type or shape is impossible");
    if (bytes && !data) return refuse(w, MR_EINVAL, name, "it has no data");
    entry *added = append(&w->tensors, name);
    if (!added) return refuse(w, MR_ENOMEM, name, "out of memory");
    added->tensor = (mr_st_tensor){.dtype = dtype, .ndim = ndim, .data = data, .bytes = bytes};
    if (ndim) memcpy(added->tensor.shape, shape, (size_t)ndim * sizeof *shape);
    return 0;
}

/* ---- the header */

static int by_name(const void *a, const void *b) { return strcmp(((const entry *)a)->name, ((const entry *)b)->name); }

static int sort(entries *e, const char *path, mr_error *err)
{
    if (e->count) qsort(e->list, (size_t)e->count, sizeof *e->list, by_name);
    for (int i = 1; i < e->count; i++)
        if (!strcmp(e->list[i - 1].name, e->list[i].name))
            return mr_fail(err, MR_EINVAL, "%s: %s: given twice", path, e->list[i].name);
    return 0;
}

/* Text that goes into JSON must be UTF-8. */
static int check_utf8(const char *text, const char *key, const char *path, mr_error *err)
{
    const size_t size = strlen(text);
    uint32_t codepoint;
    for (size_t at = 0; at < size;) {
        const int length = mr_utf8_read(text + at, size - at, &codepoint);
        if (length <= 0) return mr_fail(err, MR_EINVAL, "%s: %s: its name or text is not UTF-8", path, key);
        at += (size_t)length;
    }
    return 0;
}

static void add_string(mr_text *json, const char *s) { mr_text_json(json, s, strlen(s)); }

static void describe_meta(const mr_st_writer *w, mr_text *json)
{
    add_string(json, MR_ST_METADATA);
    for (int i = 0; i < w->meta.count; i++) {
        mr_text_add(json, i ? "," : ":{");
        add_string(json, w->meta.list[i].name);
        mr_text_add(json, ":");
        add_string(json, w->meta.list[i].value);
    }
    mr_text_add(json, "}");
}

static void describe_tensor(const entry *e, uint64_t begin, mr_text *json)
{
    const mr_st_tensor *t = &e->tensor;
    add_string(json, e->name);
    mr_text_format(json, ":{\"dtype\":\"%s\",\"shape\":[", mr_st_dtype_name(t->dtype));
    for (int i = 0; i < t->ndim; i++) mr_text_format(json, "%s%" PRId64, i ? "," : "", t->shape[i]);
    mr_text_format(json, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", begin, begin + t->bytes);
}

static int describe(const mr_st_writer *w, mr_text *json, const char *path, mr_error *err)
{
    uint64_t begin = 0;
    int rc = 0;
    for (int i = 0; !rc && i < w->meta.count; i++) {
        rc = check_utf8(w->meta.list[i].name, w->meta.list[i].name, path, err);
        if (!rc) rc = check_utf8(w->meta.list[i].value, w->meta.list[i].name, path, err);
    }
    for (int i = 0; !rc && i < w->tensors.count; i++) rc = check_utf8(w->tensors.list[i].name, "a tensor", path, err);
    if (rc) return rc;
    mr_text_add(json, "{");
    if (w->meta.count) describe_meta(w, json);
    for (int i = 0; i < w->tensors.count; i++) {
        if (i || w->meta.count) mr_text_add(json, ",");
        describe_tensor(&w->tensors.list[i], begin, json);
        begin += w->tensors.list[i].tensor.bytes;
    }
    mr_text_add(json, "}");
    return json->failed ? mr_no_memory(err, path) : 0;
}

/* The length, the JSON and its padding, in fresh memory. */
static int print_header(const mr_text *json, char **out, size_t *size, const char *path, mr_error *err)
{
    const size_t whole = (sizeof(uint64_t) + json->size + DATA_ALIGN - 1) / DATA_ALIGN * DATA_ALIGN;
    const uint64_t length = whole - sizeof length;
    if (length > MR_ST_HEADER_MAX)
        return mr_fail(err, MR_EINVAL, "%s: names and metadata need more than %d bytes", path, MR_ST_HEADER_MAX);
    char *text = mr_alloc(whole, 1);
    if (!text) return mr_no_memory(err, path);
    memcpy(text, &length, sizeof length);
    memset(text + sizeof length, ' ', length);
    memcpy(text + sizeof length, json->data, json->size);
    *out = text;
    *size = whole;
    return 0;
}

static int make_header(const mr_st_writer *w, char **out, size_t *size, const char *path, mr_error *err)
{
    mr_text json = {0};
    int rc = describe(w, &json, path, err);
    if (!rc) rc = print_header(&json, out, size, path, err);
    mr_text_free(&json);
    return rc;
}

/* ---- the file */

static int write_all(const mr_st_writer *w, const char *header, size_t size, const char *path, mr_error *err)
{
    mr_replace file;
    int rc = mr_replace_begin(&file, path, err);
    if (rc) return rc;
    rc = mr_replace_write(&file, header, size, err);
    for (int i = 0; i < w->tensors.count && !rc; i++)
        rc = mr_replace_write(&file, w->tensors.list[i].tensor.data, w->tensors.list[i].tensor.bytes, err);
    if (!rc) return mr_replace_commit(&file, err);
    mr_replace_abort(&file);
    return rc;
}

int mr_st_write(mr_st_writer *w, const char *path, mr_error *err)
{
    char *header = NULL;
    size_t size = 0;
    if (w->failed.status) return mr_fail(err, w->failed.status, "%s: %s", path, w->failed.text);
    int rc = sort(&w->meta, path, err);
    if (!rc) rc = sort(&w->tensors, path, err);
    if (!rc) rc = make_header(w, &header, &size, path, err);
    if (rc) return rc;
    rc = write_all(w, header, size, path, err);
    mr_free(header);
    return rc;
}
