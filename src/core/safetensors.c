#include "core/safetensors.h"

#include "core/file.h"
#include "core/mem.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tensors are used as they lie in the file, which is little-endian"
#endif

enum {
    PREFIX = 8,     /* the header's length stands before the header */
    DEEPEST = 3,    /* the header, a tensor's entry, its list */
    LONGEST = 1000, /* list: far above what is valid, far below what costs memory */
    MARKS = 2 << 20, /* the JSON reader takes up to 100 bytes for each bracket, comma and colon; 84,000 tensors need half */
    SHOWN = 100     /* bytes of a name that an error repeats */
};

typedef struct meta_entry {
    const char *key, *value;
} meta_entry;

struct mr_st {
    int fd;            /* of a file; −1 when all of it lies in the caller's memory */
    const char *name;  /* borrowed, while opening */
    const char *data;  /* what follows the header in the caller's memory */
    uint64_t begin, data_size; /* where it begins in the file */
    json_t *header; /* holds all names and texts */
    mr_st_tensor *tensors; /* in the order of the data */
    const mr_st_tensor **named; /* the same in the order of their names */
    int count;
    meta_entry *meta;
    int meta_count;
};

/* ---- types */

static const struct {
    const char *name;
    size_t size;
} dtypes[] = {
    [MR_ST_F32] = {"F32", 4}, [MR_ST_F64] = {"F64", 8}, [MR_ST_F16] = {"F16", 2}, [MR_ST_BF16] = {"BF16", 2},
    [MR_ST_I64] = {"I64", 8}, [MR_ST_I32] = {"I32", 4}, [MR_ST_I16] = {"I16", 2}, [MR_ST_I8] = {"I8", 1},
    [MR_ST_U8] = {"U8", 1},   [MR_ST_BOOL] = {"BOOL", 1},
};

enum { DTYPES = sizeof dtypes / sizeof *dtypes };

const char *mr_st_dtype_name(mr_st_dtype dtype) { return dtypes[dtype].name; }

/* The product is taken in order, so that a zero after an overflow does not hide it: the crate does the same. */
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

__attribute__((format(printf, 4, 5)))
static int fail_tensor(const mr_st *st, mr_error *err, const char *tensor, const char *format, ...)
{
    char what[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return mr_fail(err, MR_EFORMAT, "%s: not a valid safetensors file: tensor %.*s: %s", st->name, SHOWN, tensor, what);
}

/* ---- the header as text */

/* A glance before the JSON reader, which would build whatever it is given: nesting and lists beyond all use are
 * refused, and what it would let pass: "-0" for an integer, and a zero byte after a number. */
static const char *refuse_extravagant(const char *text, size_t size)
{
    char open[DEEPEST + 1] = {0}; /* the brackets around the current byte, by depth */
    int depth = 0, quoted = 0, commas = 0, marks = 0;
    if (memchr(text, 0, size)) return "its header has a zero byte";
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        if (quoted && c == '\\') i++;
        else if (c == '"') quoted = !quoted;
        else if (quoted) continue;
        else if (strchr("{[,:", c) && ++marks > MARKS) return "its header has more entries than any model";
        else if (c == '{' || c == '[') {
            if (depth == DEEPEST) return "its header is nested too deeply";
            open[++depth] = c;
            commas = 0;
        } else if ((c == '}' || c == ']') && depth) depth--;
        else if (c == ',' && (depth == DEEPEST || open[depth] == '[')) {
            if (++commas > LONGEST) return "its header has a list that is too long";
        } else if (c == '-' && i + 1 < size && text[i + 1] == '0') return "its header has a number that begins with -0";
    }
    return NULL;
}

static int fail_json(const mr_st *st, mr_error *err, const json_error_t *why)
{
    if (json_error_code(why) == json_error_out_of_memory) return mr_no_memory(err, st->name);
    return mr_fail(err, MR_EFORMAT, "%s: not a valid safetensors file: its header, byte %d: %.*s", st->name,
                   why->position, SHOWN, why->text);
}

/* How long the header is, from the first bytes of a file of that size. */
static int read_length(const mr_st *st, const void *prefix, uint64_t size, uint64_t *length, mr_error *err)
{
    if (size < PREFIX) return fail_header(st, err, "it is shorter than 8 bytes");
    memcpy(length, prefix, PREFIX);
    if (*length > MR_ST_HEADER_MAX) return fail_header(st, err, "its header is longer than 32 MiB");
    if (*length > size - PREFIX)
        return fail_header(st, err, "its header is longer than the file, which may have been cut off");
    return 0;
}

static int read_header(mr_st *st, const char *text, size_t length, mr_error *err)
{
    json_error_t why;
    if (!length || *text != '{') return fail_header(st, err, "its header does not begin with {");
    const char *extravagant = refuse_extravagant(text, length);
    if (extravagant) return fail_header(st, err, extravagant);
    st->header = json_loadb(text, length, JSON_REJECT_DUPLICATES, &why);
    return st->header ? 0 : fail_json(st, err, &why);
}

/* ---- the header's content */

static int read_meta(mr_st *st, const json_t *meta, mr_error *err)
{
    if (!json_is_object(meta)) return fail_header(st, err, MR_ST_METADATA " is not an object");
    st->meta = mr_alloc(json_object_size(meta), sizeof *st->meta);
    if (!st->meta) return mr_no_memory(err, st->name);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)meta, key, value) {
        if (!json_is_string(value)) return fail_header(st, err, MR_ST_METADATA " has a value that is not a string");
        st->meta[st->meta_count++] = (meta_entry){key, json_string_value(value)};
    }
    return 0;
}

static int read_dtype(const mr_st *st, const json_t *value, mr_st_tensor *tensor, mr_error *err)
{
    const char *name = json_string_value(value);
    if (!name) return fail_tensor(st, err, tensor->name, "dtype is not a string");
    for (int i = 0; i < DTYPES; i++)
        if (!strcmp(dtypes[i].name, name)) {
            tensor->dtype = (mr_st_dtype)i;
            return 0;
        }
    return fail_tensor(st, err, tensor->name, "dtype %.*s is not supported", SHOWN, name);
}

/* A list of whole numbers, none negative; returns how many, or −1. */
static int read_sizes(const json_t *list, int64_t *out, size_t room)
{
    size_t count = json_array_size(list);
    if (!json_is_array(list) || count > room) return -1;
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_array_get(list, i);
        if (!json_is_integer(value) || json_integer_value(value) < 0) return -1;
        out[i] = json_integer_value(value);
    }
    return (int)count;
}

static int read_place(const mr_st *st, const json_t *value, mr_st_tensor *tensor, mr_error *err)
{
    int64_t range[2];
    if (read_sizes(value, range, 2) != 2)
        return fail_tensor(st, err, tensor->name, "data_offsets are not two whole numbers, 0 or more");
    if (range[0] > range[1]) return fail_tensor(st, err, tensor->name, "data_offsets end before they begin");
    if ((uint64_t)range[1] > st->data_size)
        return fail_tensor(st, err, tensor->name, "its data lies beyond the file's end, which may have been cut off");
    tensor->offset = (uint64_t)range[0];
    tensor->data = st->data ? st->data + range[0] : NULL;
    tensor->bytes = (size_t)(range[1] - range[0]);
    return 0;
}

static int read_tensor(const mr_st *st, const char *name, const json_t *entry, mr_st_tensor *tensor, mr_error *err)
{
    size_t bytes;
    tensor->name = name;
    if (!json_is_object(entry)) return fail_tensor(st, err, name, "its entry is not an object");
    const json_t *dtype = json_object_get(entry, "dtype"), *shape = json_object_get(entry, "shape");
    const json_t *place = json_object_get(entry, "data_offsets");
    if (!dtype || !shape || !place || json_object_size(entry) != 3)
        return fail_tensor(st, err, name, "its entry must have dtype, shape and data_offsets, and nothing else");
    int rc = read_dtype(st, dtype, tensor, err);
    if (rc) return rc;
    tensor->ndim = read_sizes(shape, tensor->shape, MR_ST_DIMS);
    if (tensor->ndim < 0)
        return fail_tensor(st, err, name, "shape is not a list of at most %d whole numbers, 0 or more", MR_ST_DIMS);
    if (mr_st_bytes(tensor->dtype, tensor->ndim, tensor->shape, &bytes))
        return fail_tensor(st, err, name, "its shape is too large for any memory");
    rc = read_place(st, place, tensor, err);
    if (!rc && tensor->bytes != bytes)
        rc = fail_tensor(st, err, name, "its shape and dtype need %zu bytes, its data_offsets hold %zu", bytes,
                         tensor->bytes);
    return rc;
}

static int read_entries(mr_st *st, mr_error *err)
{
    int rc = 0;
    const char *key;
    json_t *value;
    st->tensors = mr_alloc(json_object_size(st->header), sizeof *st->tensors);
    if (!st->tensors) return mr_no_memory(err, st->name);
    json_object_foreach(st->header, key, value) {
        if (!strcmp(key, MR_ST_METADATA)) rc = read_meta(st, value, err);
        else rc = read_tensor(st, key, value, &st->tensors[st->count++], err);
        if (rc) return rc;
    }
    return 0;
}

/* An empty tensor comes before the one that begins where it lies. */
static int by_place(const void *left, const void *right)
{
    const mr_st_tensor *a = left, *b = right;
    if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* The tensors must tile the data: no overlap, no hole, nothing left. */
static int check_tiling(mr_st *st, mr_error *err)
{
    uint64_t end = 0;
    qsort(st->tensors, (size_t)st->count, sizeof *st->tensors, by_place);
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

static int sort_names(mr_st *st, mr_error *err)
{
    st->named = mr_alloc((size_t)st->count, sizeof *st->named);
    if (!st->named) return mr_no_memory(err, st->name);
    for (int i = 0; i < st->count; i++) st->named[i] = &st->tensors[i];
    qsort(st->named, (size_t)st->count, sizeof *st->named, by_name);
    return 0;
}

/* ---- opening */

static int parse(mr_st *st, const char *header, uint64_t length, uint64_t size, mr_error *err)
{
    st->begin = PREFIX + length;
    st->data_size = size - st->begin;
    int rc = read_header(st, header, (size_t)length, err);
    if (!rc) rc = read_entries(st, err);
    if (!rc) rc = check_tiling(st, err);
    return rc ? rc : sort_names(st, err);
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

static int give(mr_st *st, int rc, mr_st **out)
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
    return give(st, rc, out);
}

int mr_st_open_memory(const void *data, size_t size, const char *name, mr_st **out, mr_error *err)
{
    *out = NULL;
    mr_st *st = new_handle(name, err);
    return st ? give(st, parse_memory(st, data, size, err), out) : MR_ENOMEM;
}

void mr_st_close(mr_st *st)
{
    if (!st) return;
    mr_free(st->tensors);
    mr_free(st->named);
    mr_free(st->meta);
    json_decref(st->header);
    mr_file_close(st->fd);
    mr_free(st);
}

/* ---- asking */

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
