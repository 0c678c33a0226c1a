/* Files and folders by POSIX calls: reading, atomic replacement, locks, paths. */
#include "core/file.h"

#include "core/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ATTEMPTS = 100 }; /* to open a temporary file that other processes keep renaming */

static int fail_errno(mr_error *err, const char *path, const char *doing)
{
    return mr_fail(err, MR_EIO, "%s: %s: %s", path, doing, strerror(errno));
}

static int fail_kind(mr_error *err, const char *path, mode_t mode)
{
    return mr_fail(err, MR_EIO, "%s: is %s; give the name of a file", path,
                   S_ISDIR(mode) ? "a directory" : "a device or pipe, not a regular file");
}

static char *concatenate(const char *a, const char *between, const char *b)
{
    size_t size = strlen(a) + strlen(between) + strlen(b) + 1;
    char *text = mr_alloc(size, 1);
    if (text) snprintf(text, size, "%s%s%s", a, between, b);
    return text;
}

/* ---- reading */

/* O_NONBLOCK: without it, opening a pipe that has no writer would wait for ever. */
int mr_file_open(const char *path, int *fd, uint64_t *size, mr_error *err)
{
    struct stat st;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0) return fail_errno(err, path, "cannot be opened");
    int rc = fstat(*fd, &st) ? fail_errno(err, path, "cannot be read") : 0;
    if (!rc && !S_ISREG(st.st_mode)) rc = fail_kind(err, path, st.st_mode);
    if (rc) {
        close(*fd);
        *fd = -1;
    }
    *size = rc ? 0 : (uint64_t)st.st_size;
    return rc;
}

void mr_file_close(int fd)
{
    if (fd >= 0) close(fd);
}

int mr_file_read_at(int fd, const char *path, uint64_t at, void *to, size_t bytes, mr_error *err)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t got = pread(fd, (char *)to + done, bytes - done, (off_t)(at + done));
        if (got == 0) return mr_fail(err, MR_EIO, "%s: became shorter while it was being read; try again", path);
        if (got < 0 && errno != EINTR) return fail_errno(err, path, "cannot be read");
        if (got > 0) done += (size_t)got;
    }
    return 0;
}

int mr_file_sha256(const char *path, char text[MR_SHA256_TEXT], mr_error *err)
{
    char piece[1 << 16];
    mr_sha256 sha;
    int fd;
    uint64_t size, at = 0;
    int status = mr_file_open(path, &fd, &size, err);
    mr_sha256_begin(&sha);
    while (!status && at < size) {
        size_t n = size - at < sizeof piece ? (size_t)(size - at) : sizeof piece;
        status = mr_file_read_at(fd, path, at, piece, n, err);
        mr_sha256_add(&sha, piece, n);
        at += n;
    }
    mr_sha256_end(&sha, text);
    mr_file_close(fd);
    return status;
}

/* Reads up to `room` bytes or to the end of the file; *size is what was read. */
static int read_all(int fd, char *data, size_t room, size_t *size)
{
    *size = 0;
    while (*size < room) {
        ssize_t got = read(fd, data + *size, room - *size);
        if (got == 0) break;
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -1;
        *size += (size_t)got;
    }
    return 0;
}

static int read_open(int fd, uint64_t length, const char *path, char **data, size_t *size, mr_error *err)
{
    char *memory = length < SIZE_MAX ? mr_alloc((size_t)length + 1, 1) : NULL;
    if (!memory) return mr_no_memory(err, path);
    int rc = read_all(fd, memory, (size_t)length, size) ? fail_errno(err, path, "cannot be read") : 0;
    if (rc) mr_free(memory);
    else *data = memory;
    return rc;
}

int mr_file_read(const char *path, uint64_t limit, char **data, size_t *size, mr_error *err)
{
    int fd;
    uint64_t length = 0;
    int rc = mr_file_open(path, &fd, &length, err);
    if (rc) return rc;
    if (length > limit)
        rc = mr_fail(err, MR_EDATA, "%s: has %llu bytes; at most %llu can be read", path, (unsigned long long)length,
                     (unsigned long long)limit);
    else rc = read_open(fd, length, path, data, size, err);
    close(fd);
    return rc;
}

/* ---- replacing */

/* Does `name` still mean the file that `fd` has open? Another process may have renamed it before we locked it. */
static int is_current(int fd, const char *name)
{
    struct stat ours, theirs;
    return !fstat(fd, &ours) && !lstat(name, &theirs) && ours.st_ino == theirs.st_ino && ours.st_dev == theirs.st_dev;
}

/* The temporary name is always the same, so a killed process leaves at most one such file, and the next writer reuses
 * it. A lock keeps two writers apart; on file systems without locks nothing does. */
static int open_temporary(mr_replace *file, mr_error *err)
{
    for (int attempt = 0; file->fd < 0; attempt++) {
        int fd = open(file->temporary, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
        /* a folder that is missing says nothing about the temporary file */
        const int no_folder = fd < 0 && (errno == ENOENT || errno == ENOTDIR);
        if (fd < 0) return fail_errno(err, no_folder ? file->path : file->temporary, "cannot be created");
        int busy = (flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) || attempt == ATTEMPTS;
        if (!busy && is_current(fd, file->temporary)) file->fd = fd;
        else close(fd);
        if (busy) return mr_fail(err, MR_EBUSY, "%s: another process is writing it; wait for it to end", file->path);
    }
    return ftruncate(file->fd, 0) ? fail_errno(err, file->temporary, "cannot be emptied") : 0;
}

char *mr_replace_name(const char *path) { return concatenate(path, ".tmp", ""); }

int mr_replace_begin(mr_replace *file, const char *path, mr_error *err)
{
    struct stat st;
    *file = (mr_replace){.fd = -1};
    if (!stat(path, &st) && !S_ISREG(st.st_mode)) return fail_kind(err, path, st.st_mode);
    file->path = mr_strdup(path);
    file->temporary = mr_replace_name(path);
    int rc = file->path && file->temporary ? open_temporary(file, err) : mr_no_memory(err, path);
    if (rc) mr_replace_abort(file);
    return rc;
}

int mr_replace_write(mr_replace *file, const void *data, size_t size, mr_error *err)
{
    const char *next = data;
    while (size) {
        ssize_t written = write(file->fd, next, size);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return fail_errno(err, file->path, "cannot be written");
        next += written;
        size -= (size_t)written;
    }
    return 0;
}

int mr_file_sync(int fd)
{
    int rc;
    do rc = fsync(fd);
    while (rc && errno == EINTR);
    return rc;
}

/* Makes a rename durable. Directories that cannot be opened or do not support fsync are ignored. */
static int sync_directory_of(const char *path, mr_error *err)
{
    char *dir = mr_strdup(path);
    if (!dir) return mr_no_memory(err, path);
    char *slash = strrchr(dir, '/');
    if (slash) slash[slash == dir] = 0;
    int fd = open(slash ? dir : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = fd >= 0 && mr_file_sync(fd) && errno != EINVAL ? fail_errno(err, path, "its folder cannot be synced") : 0;
    if (fd >= 0) close(fd);
    mr_free(dir);
    return rc;
}

/* Closes and frees; deletes the temporary file unless it has been renamed. */
static void release(mr_replace *file, int renamed)
{
    if (file->fd >= 0 && !renamed) unlink(file->temporary);
    if (file->fd >= 0) close(file->fd);
    mr_free(file->path);
    mr_free(file->temporary);
    *file = (mr_replace){.fd = -1};
}

/* The descriptor, and with it the lock, stays open until after the rename, so no other process writes the file
 * before. */
int mr_replace_commit(mr_replace *file, mr_error *err)
{
    int rc = 0;
    if (mr_file_sync(file->fd)) rc = fail_errno(err, file->path, "cannot be synced");
    else if (rename(file->temporary, file->path)) rc = fail_errno(err, file->path, "cannot be replaced");
    int renamed = !rc;
    if (renamed) rc = sync_directory_of(file->path, err);
    release(file, renamed);
    return rc;
}

void mr_replace_abort(mr_replace *file) { release(file, 0); }

int mr_file_replace(const char *path, const void *data, size_t size, mr_error *err)
{
    mr_replace file;
    int rc = mr_replace_begin(&file, path, err);
    if (rc) return rc;
    rc = mr_replace_write(&file, data, size, err);
    if (!rc) return mr_replace_commit(&file, err);
    mr_replace_abort(&file);
    return rc;
}

/* ---- directories */

static int make_one(const char *path, mr_error *err)
{
    struct stat st;
    if (!mkdir(path, 0777)) return 0;
    int why = errno;
    if (!stat(path, &st)) {
        if (S_ISDIR(st.st_mode)) return 0;
        return mr_fail(err, MR_EIO, "%s: exists and is not a directory; choose another name", path);
    }
    errno = why;
    return fail_errno(err, path, "cannot be created");
}

int mr_make_directory(const char *path, mr_error *err)
{
    int rc = 0;
    char *part = mr_strdup(path);
    if (!part) return mr_no_memory(err, path);
    for (char *slash = *part ? strchr(part + 1, '/') : NULL; slash && !rc; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        rc = make_one(part, err);
        *slash = '/';
    }
    if (!rc) rc = make_one(part, err);
    mr_free(part);
    return rc;
}

static int lock_file(const char *dir, const char *name, int *lock, mr_error *err)
{
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (fd < 0) return fail_errno(err, name, "cannot be created");
        const int failed = flock(fd, LOCK_EX | LOCK_NB), why = errno;
        if (!failed && is_current(fd, name)) return *lock = fd, 0;
        close(fd);
        errno = why;
        if (failed && why != EWOULDBLOCK) return fail_errno(err, name, "cannot be locked");
        if (failed) break;
    }
    return mr_fail(err, MR_EBUSY, "%s: another minrnn is using this folder; wait for it or choose another --out", dir);
}

int mr_lock_directory(const char *path, int *lock, mr_error *err)
{
    char *name = mr_path_join(path, ".lock");
    *lock = -1;
    int rc = name ? lock_file(path, name, lock, err) : mr_no_memory(err, path);
    mr_free(name);
    return rc;
}

void mr_unlock_and_tidy(const char *path, int lock)
{
    char *name = lock >= 0 ? mr_path_join(path, ".lock") : NULL;
    if (name) {
        unlink(name); /* while it is held: a process that opened it earlier notices by is_current */
        name[strlen(path)] = 0;
        char *slash = rmdir(name) ? NULL : strrchr(name, '/');
        if (slash) *slash = 0, rmdir(name);
    }
    mr_free(name);
    mr_unlock(lock);
}

void mr_unlock(int lock)
{
    if (lock >= 0) close(lock);
}

const char *mr_path_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

char *mr_path_join(const char *dir, const char *name)
{
    size_t length = strlen(dir);
    return concatenate(dir, !length || dir[length - 1] == '/' ? "" : "/", name);
}

int mr_path_exists(const char *path) { return access(path, F_OK) == 0; }

char *mr_path_folder(const char *path)
{
    const size_t size = (size_t)(mr_path_name(path) - path);
    char *dir = mr_alloc(size + 2, 1);
    if (dir) memcpy(dir, size ? path : ".", size ? size : 1);
    return dir;
}

char *mr_path_absolute(const char *path)
{
    char here[PATH_MAX];
    while (path[0] == '.' && path[1] == '/') path += 2 + strspn(path + 2, "/");
    if (path[0] == '/') return mr_strdup(path);
    return getcwd(here, sizeof here) ? mr_path_join(here, path) : NULL;
}
