/* Reading safetensors: the header is parsed and checked completely before any tensor is handed out. */
#include "core/safetensors.h"

#include "core/file.h"
#include "core/json.h"
#include "core/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors files are little-endian, and tensors are used without conversion"
#endif

enum {
    PREFIX = 8,                 /* bytes before the header that hold its length */
    LONGEST_HEADER = 100000000, /* bytes, of any safetensors file: the Rust crate refuses longer headers */
    SHOWN = 100                 /* bytes of a name that an error message repeats */
};

typedef struct meta_entry {
    const char *key, *value;
} meta_entry;

struct mr_st {
    int fd;                     /* of the file; −1: the content is in the caller's memory */
    const char *name;           /* borrowed while opening */
    const char *data;           /* the caller's memory after the header */
    uint64_t begin, data_size;  /* the data after the header: its offset in the file, its bytes */
    char *texts;                /* all names and metadata strings */
    mr_st_tensor *tensors;      /* in the order of the data */
    const mr_st_tensor **named; /* the same in the order of names */
    int count, room;
    meta_entry *meta;
    int has_meta, meta_count, meta_room;
};

/* ---- types */

static const struct {
    const char *name;
    size_t size;
} dtypes[] = {
    [MR_ST_F32] = {"F32", 4}, [MR_ST_F64] = {"F64", 8},   [MR_ST_F16] = {"F16", 2}, [MR_ST_BF16] = {"BF16", 2},
    [MR_ST_I64] = {"I64", 8}, [MR_ST_I32] = {"I32", 4},   [MR_ST_I16] = {"I16", 2}, [MR_ST_I8] = {"I8", 1},
    [MR_ST_U8] = {"U8", 1},   [MR_ST_BOOL] = {"BOOL", 1},
};

enum { DTYPES = sizeof dtypes / sizeof *dtypes };

const char *mr_st_dtype_name(mr_st_dtype dtype) { return dtypes[dtype].name; }

/* Multiplies in order, so that a zero size cannot hide an earlier overflow. The Rust crate does the same. */
int mr_st_bytes(mr_st_dtype dtype, int ndim, const int64_t *shape, size_t *bytes)
{
    size_t product = 1;
    if ((unsigned)dtype >= DTYPES || ndim < 0 || ndim > MR_ST_DIMS) return MR_EINVAL;
    for (int i = 0; i < ndim; i++)
        if (shape[i] < 0 || __builtin_mul_overflow(product, shape[i], &product)) return MR_EINVAL;
    return __builtin_mul_overflow(product, dtypes[dtype].size, bytes) ? MR_EINVAL : 0;
}

/* ---- errors */

static int fail_header(const mr_st *st, mr_error *err, const char *what)
{
    return mr_fail(err, MR_EFORMAT, "%s: not a valid safetensors file: %s", st->name, what);
}

__attribute__((format(printf, 4, 5))) static int fail_tensor(const mr_st *st, mr_error *err, const char *tensor,
                                                             const char *format, ...)
{
    char what[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return mr_fail(err, MR_EFORMAT, "%s: not a valid safetensors file: tensor %.*s: %s", st->name, SHOWN, tensor, what);
}

/* Reports a JSON error, or, where the JSON is fine, `otherwise`. */
static int fail_json(const mr_st *st, const mr_json *json, const char *otherwise, mr_error *err)
{
    if (!json->wrong) return fail_header(st, err, otherwise);
    return mr_fail(err, MR_EFORMAT, "%s: not a valid safetensors file: its header, byte %zu: %s", st->name,
                   (size_t)(json->at - json->start), json->wrong);
}

/* ---- the header */

/* Returns the list with room for one more item; NULL: out of memory. */
static void *grow(void *list, int count, int *room, size_t size)
{
    if (count < *room) return list;
    void *larger = mr_alloc((size_t)(2 * *room + 64), size);
    if (!larger) return NULL;
    if (count) memcpy(larger, list, (size_t)count * size);
    mr_free(list);
    *room = 2 * *room + 64;
    return larger;
}

/* The header's length, from the first bytes of a file of `size` bytes. */
static int read_length(const mr_st *st, const void *prefix, uint64_t size, uint64_t *length, mr_error *err)
{
    if (size < PREFIX) return fail_header(st, err, "it is shorter than 8 bytes");
    memcpy(length, prefix, PREFIX);
    if (*length > LONGEST_HEADER)
        return mr_fail(err, MR_EFORMAT,
                       "%s: not a model file: models are safetensors files, such as the model.safetensors of a run",
                       st->name);
    if (*length > MR_ST_HEADER_MAX) return fail_header(st, err, "its header is longer than 32 MiB");
    if (*length > size - PREFIX)
        return fail_header(st, err, "its header is longer than the file, which may have been cut off");
    return 0;
}

/* A key without zero bytes; NULL, with the error set, otherwise. */
static const char *read_key(const mr_st *st, mr_json *json, mr_error *err)
{
    size_t size;
    const char *key = mr_json_key(json, &size);
    if (key && strlen(key) == size) return key;
    fail_json(st, json, "its header has a zero byte in a key", err);
    return NULL;
}

static int read_text(mr_st *st, mr_json *json, mr_error *err)
{
    size_t size;
    meta_entry *meta = grow(st->meta, st->meta_count, &st->meta_room, sizeof *meta);
    if (!meta) return mr_no_memory(err, st->name);
    st->meta = meta;
    const char *key = read_key(st, json, err);
    if (!key) return MR_EFORMAT;
    const char *value = mr_json_string(json, &size);
    if (!value || strlen(value) != size)
        return fail_json(st, json, MR_ST_METADATA " has a value that is not a string, or one with a zero byte", err);
    st->meta[st->meta_count++] = (meta_entry){key, value};
    return 0;
}

static int read_meta(mr_st *st, mr_json *json, mr_error *err)
{
    int rc = 0;
    if (st->has_meta) return fail_header(st, err, "duplicate " MR_ST_METADATA);
    st->has_meta = 1;
    if (!mr_json_enter(json, '{')) return fail_json(st, json, MR_ST_METADATA " is not an object", err);
    while (!rc && mr_json_item(json, '}')) rc = read_text(st, json, err);
    return !rc && json->wrong ? fail_json(st, json, "", err) : rc;
}

/* The entry of a tensor as it is written, before it is checked. */
typedef struct entry {
    const char *dtype; /* "" where has_dtype is not set */
    int has_dtype;
    int64_t shape[MR_ST_DIMS], place[2];
    int ndim, ends; /* lengths of shape and place; −1: not read yet */
} entry;

/* Reads a list of whole numbers, 0 or more. Returns how many there are; −1: it is something else or too long. */
static int read_sizes(mr_json *json, int64_t *out, int room)
{
    int count = 0;
    if (!mr_json_enter(json, '[')) return -1;
    while (mr_json_item(json, ']'))
        if (count == room || !mr_json_whole(json, &out[count++])) return -1;
    return json->wrong ? -1 : count;
}

static int read_field(const mr_st *st, mr_json *json, const char *name, const char *field, entry *e, mr_error *err)
{
    size_t size;
    if ((!strcmp(field, "dtype") && e->has_dtype) || (!strcmp(field, "shape") && e->ndim >= 0) ||
        (!strcmp(field, "data_offsets") && e->ends >= 0))
        return fail_tensor(st, err, name, "duplicate %s", field);
    if (!strcmp(field, "dtype")) {
        const char *dtype = mr_json_string(json, &size);
        e->has_dtype = dtype != NULL;
        if (dtype) e->dtype = dtype;
        return dtype || json->wrong ? 0 : fail_tensor(st, err, name, "dtype is not a string");
    }
    if (!strcmp(field, "shape")) {
        e->ndim = read_sizes(json, e->shape, MR_ST_DIMS);
        return e->ndim >= 0 || json->wrong
                   ? 0
                   : fail_tensor(st, err, name, "shape is not a list of at most %d whole numbers, 0 or more",
                                 MR_ST_DIMS);
    }
    if (!strcmp(field, "data_offsets")) {
        e->ends = read_sizes(json, e->place, 2);
        return e->ends == 2 || json->wrong
                   ? 0
                   : fail_tensor(st, err, name, "data_offsets are not two whole numbers, 0 or more");
    }
    return fail_tensor(st, err, name, "its entry must have dtype, shape and data_offsets, and nothing else");
}

static int read_entry(const mr_st *st, mr_json *json, const char *name, entry *e, mr_error *err)
{
    int rc = 0;
    *e = (entry){.dtype = "", .ndim = -1, .ends = -1};
    if (!mr_json_enter(json, '{'))
        return json->wrong ? fail_json(st, json, "", err) : fail_tensor(st, err, name, "its entry is not an object");
    while (!rc && mr_json_item(json, '}')) {
        const char *field = read_key(st, json, err);
        rc = field ? read_field(st, json, name, field, e, err) : MR_EFORMAT;
    }
    if (!rc && json->wrong) rc = fail_json(st, json, "", err);
    if (!rc && (!e->has_dtype || e->ndim < 0 || e->ends < 0))
        rc = fail_tensor(st, err, name, "its entry must have dtype, shape and data_offsets, and nothing else");
    return rc;
}

static int take_dtype(const mr_st *st, const char *dtype, mr_st_tensor *tensor, mr_error *err)
{
    for (int i = 0; i < DTYPES; i++)
        if (!strcmp(dtypes[i].name, dtype)) {
            tensor->dtype = (mr_st_dtype)i;
            return 0;
        }
    return fail_tensor(st, err, tensor->name, "dtype %.*s is not supported", SHOWN, dtype);
}

static int take_place(const mr_st *st, const int64_t range[2], mr_st_tensor *tensor, mr_error *err)
{
    if (range[0] > range[1]) return fail_tensor(st, err, tensor->name, "data_offsets end before they begin");
    if ((uint64_t)range[1] > st->data_size)
        return fail_tensor(st, err, tensor->name, "its data lies beyond the file's end, which may have been cut off");
    tensor->offset = (uint64_t)range[0];
    tensor->data = st->data ? st->data + range[0] : NULL;
    tensor->bytes = (size_t)(range[1] - range[0]);
    return 0;
}

static int read_tensor(const mr_st *st, mr_json *json, const char *name, mr_st_tensor *tensor, mr_error *err)
{
    size_t bytes;
    entry e;
    *tensor = (mr_st_tensor){.name = name};
    int rc = read_entry(st, json, name, &e, err);
    if (!rc) rc = take_dtype(st, e.dtype, tensor, err);
    if (rc) return rc;
    tensor->ndim = e.ndim;
    memcpy(tensor->shape, e.shape, sizeof e.shape);
    if (mr_st_bytes(tensor->dtype, tensor->ndim, tensor->shape, &bytes))
        return fail_tensor(st, err, name, "its shape is too large for any memory");
    rc = take_place(st, e.place, tensor, err);
    if (!rc && tensor->bytes != bytes)
        rc = fail_tensor(st, err, name, "its shape and dtype need %zu bytes, its data_offsets hold %zu", bytes,
                         tensor->bytes);
    return rc;
}

static int read_one(mr_st *st, mr_json *json, mr_error *err)
{
    const char *key = read_key(st, json, err);
    if (!key) return MR_EFORMAT;
    if (!strcmp(key, MR_ST_METADATA)) return read_meta(st, json, err);
    mr_st_tensor *tensors = grow(st->tensors, st->count, &st->room, sizeof *tensors);
    if (!tensors) return mr_no_memory(err, st->name);
    st->tensors = tensors;
    return read_tensor(st, json, key, &st->tensors[st->count++], err);
}

static int read_header(mr_st *st, const char *text, size_t length, mr_error *err)
{
    mr_json json;
    int rc = 0;
    if (!length || *text != '{') return fail_header(st, err, "its header does not begin with {");
    if (memchr(text, 0, length)) return fail_header(st, err, "its header has a zero byte");
    st->texts = mr_alloc(length, 1);
    if (!st->texts) return mr_no_memory(err, st->name);
    mr_json_start(&json, text, length, st->texts);
    mr_json_enter(&json, '{');
    while (!rc && mr_json_item(&json, '}')) rc = read_one(st, &json, err);
    if (!rc && !mr_json_done(&json)) rc = fail_json(st, &json, "its header continues after its closing brace", err);
    return rc;
}

/* By offset. An empty tensor comes before the tensor that begins at the same offset. */
static int by_place(const void *left, const void *right)
{
    const mr_st_tensor *a = left, *b = right;
    if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* The tensors must cover the data exactly: no overlap, no gap, nothing left over. */
static int check_tiling(mr_st *st, mr_error *err)
{
    uint64_t end = 0;
    for (int i = 0; i < st->count; i++) {
        const mr_st_tensor *t = &st->tensors[i];
        if (t->offset < end) return fail_tensor(st, err, t->name, "its data overlaps another tensor's");
        if (t->offset > end) return fail_tensor(st, err, t->name, "unused bytes lie before its data");
        end += t->bytes;
    }
    if (end != st->data_size) return fail_header(st, err, "bytes that belong to no tensor lie at its end");
    return 0;
}

static int by_name(const void *left, const void *right)
{
    const mr_st_tensor *const *a = left, *const *b = right;
    return strcmp((*a)->name, (*b)->name);
}

static int by_key(const void *left, const void *right)
{
    return strcmp(((const meta_entry *)left)->key, ((const meta_entry *)right)->key);
}

/* Sorts tensors and metadata by name, and so finds duplicates. */
static int sort_names(mr_st *st, mr_error *err)
{
    st->named = mr_alloc((size_t)st->count, sizeof *st->named);
    if (!st->named) return mr_no_memory(err, st->name);
    for (int i = 0; i < st->count; i++) st->named[i] = &st->tensors[i];
    if (st->count) qsort(st->named, (size_t)st->count, sizeof *st->named, by_name);
    for (int i = 1; i < st->count; i++)
        if (!strcmp(st->named[i - 1]->name, st->named[i]->name))
            return fail_tensor(st, err, st->named[i]->name, "duplicate name");
    if (st->meta_count) qsort(st->meta, (size_t)st->meta_count, sizeof *st->meta, by_key);
    for (int i = 1; i < st->meta_count; i++)
        if (!strcmp(st->meta[i - 1].key, st->meta[i].key))
            return fail_header(st, err, "duplicate key in " MR_ST_METADATA);
    return 0;
}

/* ---- opening */

static int parse(mr_st *st, const char *header, uint64_t length, uint64_t size, mr_error *err)
{
    st->begin = PREFIX + length;
    st->data_size = size - st->begin;
    int rc = read_header(st, header, (size_t)length, err);
    if (!rc && st->count) qsort(st->tensors, (size_t)st->count, sizeof *st->tensors, by_place);
    if (!rc) rc = sort_names(st, err);
    return rc ? rc : check_tiling(st, err);
}

static int parse_file(mr_st *st, uint64_t size, mr_error *err)
{
    char prefix[PREFIX] = {0};
    uint64_t length = 0;
    int rc = size >= PREFIX ? mr_file_read_at(st->fd, st->name, 0, prefix, PREFIX, err) : 0;
    if (!rc) rc = read_length(st, prefix, size, &length, err);
    if (rc) return rc;
    char *header = mr_alloc((size_t)length, 1);
    if (!header) return mr_no_memory(err, st->name);
    rc = mr_file_read_at(st->fd, st->name, PREFIX, header, (size_t)length, err);
    if (!rc) rc = parse(st, header, length, size, err);
    mr_free(header);
    return rc;
}

static int parse_memory(mr_st *st, const char *memory, size_t size, mr_error *err)
{
    uint64_t length = 0;
    int rc = read_length(st, memory, size, &length, err);
    if (rc) return rc;
    st->data = memory + PREFIX + length;
    return parse(st, memory + PREFIX, length, size, err);
}

/* Returns the handle through `out`, or closes it after a failure. */
static int finish_open(mr_st *st, int rc, mr_st **out)
{
    st->name = NULL;
    if (rc) mr_st_close(st);
    else *out = st;
    return rc;
}

static mr_st *new_handle(const char *name, mr_error *err)
{
    mr_st *st = mr_alloc(1, sizeof *st);
    if (!st) mr_no_memory(err, name);
    else *st = (mr_st){.fd = -1, .name = name};
    return st;
}

int mr_st_open(const char *path, mr_st **out, mr_error *err)
{
    uint64_t size;
    *out = NULL;
    mr_st *st = new_handle(path, err);
    if (!st) return MR_ENOMEM;
    int rc = mr_file_open(path, &st->fd, &size, err);
    if (!rc) rc = parse_file(st, size, err);
    return finish_open(st, rc, out);
}

int mr_st_open_memory(const void *data, size_t size, const char *name, mr_st **out, mr_error *err)
{
    *out = NULL;
    mr_st *st = new_handle(name, err);
    return st ? finish_open(st, parse_memory(st, data, size, err), out) : MR_ENOMEM;
}

void mr_st_close(mr_st *st)
{
    if (!st) return;
    mr_free(st->tensors);
    mr_free(st->named);
    mr_free(st->meta);
    mr_free(st->texts);
    mr_file_close(st->fd);
    mr_free(st);
}

/* ---- looking up */

int mr_st_count(const mr_st *st) { return st->count; }

const mr_st_tensor *mr_st_at(const mr_st *st, int index)
{
    return index >= 0 && index < st->count ? &st->tensors[index] : NULL;
}

const mr_st_tensor *mr_st_find(const mr_st *st, const char *name)
{
    const mr_st_tensor key = {.name = name}, *wanted = &key;
    const mr_st_tensor **found = bsearch(&wanted, st->named, (size_t)st->count, sizeof *st->named, by_name);
    return found ? *found : NULL;
}

int mr_st_read(const mr_st *st, const char *path, const mr_st_tensor *tensor, void *to, mr_error *err)
{
    if (st->fd >= 0) return mr_file_read_at(st->fd, path, st->begin + tensor->offset, to, tensor->bytes, err);
    if (tensor->bytes) memcpy(to, tensor->data, tensor->bytes);
    return 0;
}

size_t mr_st_elements(const mr_st_tensor *tensor) { return tensor->bytes / dtypes[tensor->dtype].size; }

int mr_st_meta_count(const mr_st *st) { return st->meta_count; }

void mr_st_meta_at(const mr_st *st, int index, const char **key, const char **value)
{
    *key = st->meta[index].key;
    *value = st->meta[index].value;
}

const char *mr_st_meta(const mr_st *st, const char *key)
{
    for (int i = 0; i < st->meta_count; i++)
        if (!strcmp(st->meta[i].key, key)) return st->meta[i].value;
    return NULL;
}
