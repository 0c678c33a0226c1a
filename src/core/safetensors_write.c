/* Writing safetensors: metadata and tensors are collected, sorted, described in JSON, and written atomically. */
#include "core/file.h"
#include "core/json_write.h"
#include "core/mem.h"
#include "core/safetensors.h"
#include "core/utf8.h"

#include <stdlib.h>
#include <string.h>

enum { DATA_ALIGN = 64 }; /* of the data's offset in the file, so that it is aligned when the file is mapped */

/* A metadata entry or a tensor: both are collected, sorted and checked the same way. */
typedef struct entry {
    char *name;
    char *value;         /* metadata only */
    mr_st_tensor tensor; /* its own name is not used */
} entry;

typedef struct entries {
    entry *list;
    int count, room;
} entries;

struct mr_st_writer {
    entries meta, tensors;
    mr_error failed; /* the first failed add, which mr_st_write reports */
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
    if (mr_st_bytes(dtype, ndim, shape, &bytes)) return refuse(w, MR_EINVAL, name, "impossible type or shape");
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

/* JSON strings must be UTF-8. */
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

static void add_string(mr_json_writer *json, const char *key, const char *value)
{
    mr_json_write_key(json, key);
    mr_json_write_string(json, value, strlen(value));
}

static void add_list(mr_json_writer *json, const char *key, const int64_t *values, int count)
{
    mr_json_write_key(json, key);
    mr_json_write_open(json, '[');
    for (int i = 0; i < count; i++) mr_json_write_whole(json, values[i]);
    mr_json_write_close(json, ']');
}

static void describe_meta(const mr_st_writer *w, mr_json_writer *json)
{
    mr_json_write_key(json, MR_ST_METADATA);
    mr_json_write_open(json, '{');
    for (int i = 0; i < w->meta.count; i++) add_string(json, w->meta.list[i].name, w->meta.list[i].value);
    mr_json_write_close(json, '}');
}

static void describe_tensor(const entry *e, size_t begin, mr_json_writer *json)
{
    const mr_st_tensor *t = &e->tensor;
    mr_json_write_key(json, e->name);
    mr_json_write_open(json, '{');
    add_string(json, "dtype", mr_st_dtype_name(t->dtype));
    add_list(json, "shape", t->shape, t->ndim);
    add_list(json, "data_offsets", (int64_t[]){(int64_t)begin, (int64_t)(begin + t->bytes)}, 2);
    mr_json_write_close(json, '}');
}

static int check_texts(const mr_st_writer *w, const char *path, mr_error *err)
{
    int rc = 0;
    for (int i = 0; !rc && i < w->meta.count; i++) {
        rc = check_utf8(w->meta.list[i].name, w->meta.list[i].name, path, err);
        if (!rc) rc = check_utf8(w->meta.list[i].value, w->meta.list[i].name, path, err);
    }
    for (int i = 0; !rc && i < w->tensors.count; i++) rc = check_utf8(w->tensors.list[i].name, "a tensor", path, err);
    return rc;
}

static void describe(const mr_st_writer *w, mr_strbuf *text)
{
    mr_json_writer json = {.text = text};
    size_t begin = 0;
    mr_json_write_open(&json, '{');
    if (w->meta.count) describe_meta(w, &json);
    for (int i = 0; i < w->tensors.count; i++) {
        describe_tensor(&w->tensors.list[i], begin, &json);
        begin += w->tensors.list[i].tensor.bytes;
    }
    mr_json_write_close(&json, '}');
}

/* The header's length, the JSON and its padding, in new memory. */
static int print_header(const mr_strbuf *json, char **out, size_t *size, const char *path, mr_error *err)
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
    mr_strbuf json = {0};
    int rc = check_texts(w, path, err);
    if (rc) return rc;
    describe(w, &json);
    rc = json.failed ? mr_no_memory(err, path) : print_header(&json, out, size, path, err);
    mr_strbuf_free(&json);
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
