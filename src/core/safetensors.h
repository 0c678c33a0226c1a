/* The safetensors file format: reading, with every check that the Rust crate makes, and writing. */
#ifndef MR_CORE_SAFETENSORS_H
#define MR_CORE_SAFETENSORS_H

#include "core/status.h"

#include <stddef.h>
#include <stdint.h>

#define MR_ST_DIMS 8
#define MR_ST_HEADER_MAX (32 << 20) /* bytes: the largest model and vocabulary need 20 MB (the Rust crate takes 100) */
#define MR_ST_METADATA "__metadata__"

typedef enum mr_st_dtype {
    MR_ST_F32,
    MR_ST_F64,
    MR_ST_F16,
    MR_ST_BF16,
    MR_ST_I64,
    MR_ST_I32,
    MR_ST_I16,
    MR_ST_I8,
    MR_ST_U8,
    MR_ST_BOOL
} mr_st_dtype;

typedef struct mr_st_tensor {
    const char *name;
    mr_st_dtype dtype;
    int ndim;
    int64_t shape[MR_ST_DIMS];
    const void *data; /* in the caller's memory, not aligned; NULL when it is in a file: use mr_st_read */
    uint64_t offset;  /* from the end of the header */
    size_t bytes;
} mr_st_tensor;

typedef struct mr_st mr_st; /* an open file */

int mr_st_open(const char *path, mr_st **out, mr_error *err);
/* The same from memory, which must outlive the handle. Errors use `name` as the path. */
int mr_st_open_memory(const void *data, size_t size, const char *name, mr_st **out, mr_error *err);
void mr_st_close(mr_st *st);

int mr_st_count(const mr_st *st);
const mr_st_tensor *mr_st_at(const mr_st *st, int index);          /* in the order of the data */
const mr_st_tensor *mr_st_find(const mr_st *st, const char *name); /* or NULL */
int mr_st_read(const mr_st *st, const char *path, const mr_st_tensor *tensor, void *to, mr_error *err);
/* Its numbers as float: F32 as they are, F16 and BF16 converted, F64 rounded; one too large for a float and other types
 * are refused. */
int mr_st_read_floats(const mr_st *st, const char *path, const mr_st_tensor *tensor, float *to, mr_error *err);
int mr_st_is_float(mr_st_dtype dtype);             /* one that mr_st_read_floats takes */
size_t mr_st_elements(const mr_st_tensor *tensor); /* how many numbers it has */
int mr_st_meta_count(const mr_st *st);
void mr_st_meta_at(const mr_st *st, int index, const char **key, const char **value);
const char *mr_st_meta(const mr_st *st, const char *key); /* or NULL */
const char *mr_st_dtype_name(mr_st_dtype dtype);          /* "F32" */
/* The bytes of a tensor. MR_EINVAL: its type, rank or a size is impossible, or the product overflows. */
int mr_st_bytes(mr_st_dtype dtype, int ndim, const int64_t *shape, size_t *bytes);

/* Writing: add everything, then call mr_st_write once. The tensors' data is borrowed until then. Metadata and tensors
 * are sorted by name, so the same content gives the same bytes. mr_st_write also reports an add that failed. */
typedef struct mr_st_writer mr_st_writer;

mr_st_writer *mr_st_writer_new(void);
void mr_st_writer_free(mr_st_writer *w);
int mr_st_add_meta(mr_st_writer *w, const char *key, const char *value);
int mr_st_add(mr_st_writer *w, const char *name, mr_st_dtype dtype, int ndim, const int64_t *shape, const void *data);
int mr_st_write(mr_st_writer *w, const char *path, mr_error *err); /* atomic, see core/file.h */

#endif
