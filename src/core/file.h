/* Files: read whole, replaced atomically, locked while in use. */
#ifndef MR_CORE_FILE_H
#define MR_CORE_FILE_H

#include "core/sha256.h"
#include "core/status.h"

#include <stddef.h>
#include <stdint.h>

/* Reads a whole regular file into fresh memory (freed by mr_free; one zero byte follows the data). Refuses what is
 * longer than `limit` bytes (MR_EDATA), directories and devices (MR_EIO). */
int mr_file_read(const char *path, uint64_t limit, char **data, size_t *size, mr_error *err);

/* A regular file to be read in parts; nothing is mapped, so a file that is cut off meanwhile is an error and no signal.
 * mr_file_read_at reads exactly `bytes` from `at` on, or fails. */
int mr_file_open(const char *path, int *fd, uint64_t *size, mr_error *err);
int mr_file_read_at(int fd, const char *path, uint64_t at, void *to, size_t bytes, mr_error *err);
void mr_file_close(int fd); /* −1 is fine */

/* Of a file of any size. */
int mr_file_sha256(const char *path, char text[MR_SHA256_TEXT], mr_error *err);

/* Replaces a file in one step: written under a temporary name beside it, synced, renamed, directory synced. Until
 * mr_replace_commit succeeds the old file is whole; abort (or a failed commit) removes the temporary one. */
typedef struct mr_replace {
    int fd;
    char *path, *temporary;
} mr_replace;

int mr_replace_begin(mr_replace *file, const char *path, mr_error *err);
int mr_replace_write(mr_replace *file, const void *data, size_t size, mr_error *err);
int mr_replace_commit(mr_replace *file, mr_error *err); /* frees `file`'s memory either way */
void mr_replace_abort(mr_replace *file);

/* All of the above for one block of bytes. */
int mr_file_replace(const char *path, const void *data, size_t size, mr_error *err);

/* Makes a directory (and its parents); one that exists is fine. */
int mr_make_directory(const char *path, mr_error *err);

/* Takes DIR/.lock by flock: released by mr_unlock or by the process's death. MR_EBUSY when another process holds it. */
int mr_lock_directory(const char *path, int *lock, mr_error *err);
void mr_unlock(int lock);

/* What stands behind the last slash. */
const char *mr_path_name(const char *path);

/* "dir/name" in fresh memory, or NULL. */
char *mr_path_join(const char *dir, const char *name);
int mr_path_exists(const char *path);

#endif
