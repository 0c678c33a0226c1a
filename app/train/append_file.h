/* A file that grows at its end: what is added is gathered in memory and written when that is full, at a flush and at
 * the end. A failed write loses nothing that can be written later. */
#ifndef MR_APP_TRAIN_APPEND_FILE_H
#define MR_APP_TRAIN_APPEND_FILE_H

#include "core/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct mr_append_file mr_append_file;

/* Opens a file and cuts it to `offset` bytes; 0: creates it where it is missing. MR_EDATA, and the file stays as it is,
 * when it is shorter than that or no line ends there: it is not the file that the checkpoint knew. */
int mr_append_open(const char *path, uint64_t offset, mr_append_file **out, mr_error *err);
int mr_append(mr_append_file *file, const void *bytes, size_t size, mr_error *err);

/* Where the next byte will be, including what is still in memory. */
uint64_t mr_append_offset(const mr_append_file *file);

/* Writes what is in memory; sync: and waits until the disk has it. */
int mr_append_flush(mr_append_file *file, int sync, mr_error *err);

/* Flushes and frees; `file` is gone either way, NULL is fine. */
int mr_append_close(mr_append_file *file, mr_error *err);

#endif
