/* Files: read whole or in parts, replaced atomically, locked while in use. */
#ifndef MR_CORE_FILE_H
#define MR_CORE_FILE_H

#include "core/sha256.h"
#include "core/status.h"

#include <stddef.h>
#include <stdint.h>

/* Reads a whole regular file into new memory; one zero byte follows the data. Free with mr_free. Refuses files longer
 * than `limit` bytes (MR_EDATA), directories and devices (MR_EIO). */
int mr_file_read(const char *path, uint64_t limit, char **data, size_t *size, mr_error *err);

/* Opens a regular file to be read in parts. Files are not mapped, so one that is truncated meanwhile gives an error and
 * not a signal. mr_file_read_at reads exactly `bytes` bytes starting at `at`, or fails. */
int mr_file_open(const char *path, int *fd, uint64_t *size, mr_error *err);
int mr_file_read_at(int fd, const char *path, uint64_t at, void *to, size_t bytes, mr_error *err);
void mr_file_close(int fd); /* −1 is fine */

/* The SHA-256 of a file of any size. */
int mr_file_sha256(const char *path, char text[MR_SHA256_TEXT], mr_error *err);

/* Replaces a file atomically: write a temporary file next to it, sync, rename, sync the directory. The old file stays
 * intact until mr_replace_commit succeeds. Abort, or a commit that fails, removes the temporary file. */
typedef struct mr_replace {
    int fd;
    char *path, *temporary;
} mr_replace;

/* The name of that temporary file, in new memory; NULL: out of memory. */
char *mr_replace_name(const char *path);

int mr_replace_begin(mr_replace *file, const char *path, mr_error *err);
int mr_replace_write(mr_replace *file, const void *data, size_t size, mr_error *err);
int mr_replace_commit(mr_replace *file, mr_error *err); /* frees `file`'s memory either way */
void mr_replace_abort(mr_replace *file);

/* All of the above for one block of bytes. */
int mr_file_replace(const char *path, const void *data, size_t size, mr_error *err);

/* As fsync, and again where a signal interrupted it. */
int mr_file_sync(int fd);

/* Creates a directory and its parents; it may exist already. */
int mr_make_directory(const char *path, mr_error *err);

/* Locks DIR/.lock with flock, until mr_unlock or the end of the process. MR_EBUSY: another process holds it. */
int mr_lock_directory(const char *path, int *lock, mr_error *err);
void mr_unlock(int lock);
/* The same, and removes the lock file, then the folder and its parent, if empty. */
void mr_unlock_and_tidy(const char *path, int lock);

/* The part after the last slash. */
const char *mr_path_name(const char *path);

/* The part before it, "." where there is none, in new memory; NULL: out of memory. */
char *mr_path_folder(const char *path);

/* "dir/name" in new memory; NULL: out of memory. */
char *mr_path_join(const char *dir, const char *name);
int mr_path_exists(const char *path);
/* The same place by a name that starts at the root, in fresh memory; links are not followed. NULL: out of memory, or
 * the current folder has no name. */
char *mr_path_absolute(const char *path);

#endif
