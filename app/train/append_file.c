/* Appending to a file through a buffer. */
#include "train/append_file.h"

#include "core/file.h"
#include "core/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER_BYTES (64 * 1024)

struct mr_append_file {
    int fd;
    char *path;
    uint64_t written; /* bytes of the file */
    size_t used;      /* bytes in the buffer */
    char buffer[BUFFER_BYTES];
};

/* Is this the file that the checkpoint knew? It must reach to the offset, and a line must end there. */
static int check_offset(int fd, const char *path, uint64_t offset, mr_error *err)
{
    struct stat st;
    char last = '\n';
    if (fstat(fd, &st) < 0) return mr_fail(err, MR_EIO, "%s: cannot be examined: %s", path, strerror(errno));
    if ((uint64_t)st.st_size < offset)
        return mr_fail(err, MR_EDATA,
                       "%s: has %llu bytes, but the checkpoint was made at byte %llu of it; put the run's own log "
                       "back, or remove this one and resume: only the log is lost",
                       path, (unsigned long long)st.st_size, (unsigned long long)offset);
    if (offset && pread(fd, &last, 1, (off_t)offset - 1) != 1)
        return mr_fail(err, MR_EIO, "%s: cannot be read: %s", path, strerror(errno));
    if (last != '\n')
        return mr_fail(err, MR_EDATA,
                       "%s: no line ends at byte %llu, where the checkpoint was made; put the run's own log back, or "
                       "remove this one and resume: only the log is lost",
                       path, (unsigned long long)offset);
    return 0;
}

static int cut(int fd, const char *path, uint64_t offset, mr_error *err)
{
    int status = check_offset(fd, path, offset, err);
    if (status) return status;
    if (ftruncate(fd, (off_t)offset) < 0 || lseek(fd, (off_t)offset, SEEK_SET) < 0)
        return mr_fail(err, MR_EIO, "%s: cannot be cut to %llu bytes: %s", path, (unsigned long long)offset,
                       strerror(errno));
    return 0;
}

int mr_append_open(const char *path, uint64_t offset, mr_append_file **out, mr_error *err)
{
    *out = NULL;
    int fd = open(path, O_RDWR | O_CLOEXEC | (offset ? 0 : O_CREAT), 0666);
    if (fd < 0) return mr_fail(err, MR_EIO, "%s: cannot be opened for writing: %s", path, strerror(errno));
    int status = cut(fd, path, offset, err);
    mr_append_file *file = status ? NULL : mr_alloc(1, sizeof *file);
    if (file) file->path = mr_strdup(path);
    if (!status && (!file || !file->path)) status = mr_no_memory(err, path);
    if (status) {
        mr_free(file);
        close(fd);
        return status;
    }
    file->fd = fd;
    file->written = offset;
    *out = file;
    return 0;
}

uint64_t mr_append_offset(const mr_append_file *file) { return file->written + file->used; }

int mr_append_flush(mr_append_file *file, int sync, mr_error *err)
{
    size_t done = 0;
    int status = 0;
    while (!status && done < file->used) {
        ssize_t n = write(file->fd, file->buffer + done, file->used - done);
        if (n > 0) done += (size_t)n;
        else if (n == 0 || errno != EINTR)
            status = mr_fail(err, MR_EIO, "%s: cannot be written: %s", file->path, strerror(errno));
    }
    memmove(file->buffer, file->buffer + done, file->used - done);
    file->used -= done;
    file->written += done;
    if (!status && sync && mr_file_sync(file->fd))
        status = mr_fail(err, MR_EIO, "%s: cannot be written to the disk: %s", file->path, strerror(errno));
    return status;
}

int mr_append(mr_append_file *file, const void *bytes, size_t size, mr_error *err)
{
    if (size > BUFFER_BYTES) return mr_fail(err, MR_EINVAL, "%s: a piece of %zu bytes is too long", file->path, size);
    if (file->used + size > BUFFER_BYTES) {
        int status = mr_append_flush(file, 0, err);
        if (status) return status;
    }
    memcpy(file->buffer + file->used, bytes, size);
    file->used += size;
    return 0;
}

int mr_append_close(mr_append_file *file, mr_error *err)
{
    if (!file) return 0;
    int status = mr_append_flush(file, 1, err);
    if (close(file->fd) < 0 && !status)
        status = mr_fail(err, MR_EIO, "%s: cannot be written: %s", file->path, strerror(errno));
    mr_free(file->path);
    mr_free(file);
    return status;
}
