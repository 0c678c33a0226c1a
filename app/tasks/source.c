/* Texts from files, pipes and standard input. Each name is opened, read to its end and closed in turn. */
#include "tasks/source.h"

#include "core/file.h"
#include "core/mem.h"
#include "core/options.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    WRITER_WAIT_MS = 1000, /* for a pipe that nobody has opened for writing yet */
    LOOK_MS = 500, /* how often a reader that waits looks whether it was stopped; a signal mostly wakes it at once */
    PIECE = 1 << 16,
    MOST_AT_ONCE = 1 << 24, /* bytes; after each such piece, the reader looks whether it was stopped */
    FIRST_ROOM = 1 << 20    /* for a pipe, whose length is not known */
};

/* ---- names ---- */

/* Copies the next name of the list; 0 after the last. */
static int next_name(const char **names, char out[MR_TEXT_MAX])
{
    const size_t n = strcspn(*names, "\n");
    if (!**names) return 0;
    snprintf(out, MR_TEXT_MAX, "%.*s", (int)n, *names);
    *names += n + ((*names)[n] == '\n');
    return 1;
}

static const char *shown(const char *name) { return strcmp(name, "-") ? name : "standard input"; }

const char *mr_source_label(const char *names, char out[MR_SOURCE_LABEL])
{
    char name[MR_TEXT_MAX] = "";
    int more = 0;
    next_name(&names, name);
    for (const char *c = names; *c; c++) more += c == names || c[-1] == '\n';
    if (more) snprintf(out, MR_SOURCE_LABEL, "%.200s and %d more", shown(name), more);
    else snprintf(out, MR_SOURCE_LABEL, "%.250s", shown(name));
    return out;
}

const char *mr_source_name(const char *names, size_t index, char out[MR_SOURCE_LABEL])
{
    char name[MR_TEXT_MAX] = "";
    for (size_t i = 0; i <= index && next_name(&names, name);) i++;
    snprintf(out, MR_SOURCE_LABEL, "%.250s", shown(name));
    return out;
}

static size_t count_names(const char *names)
{
    char name[MR_TEXT_MAX];
    size_t count = 0;
    while (next_name(&names, name)) count++;
    return count;
}

static int look_at(const char *name, struct stat *st)
{
    return strcmp(name, "-") ? stat(name, st) : fstat(STDIN_FILENO, st);
}

int mr_source_has_file(const char *names, const char *path)
{
    char name[MR_TEXT_MAX];
    struct stat file, st;
    if (stat(path, &file)) return 0;
    while (next_name(&names, name))
        if (!look_at(name, &st) && st.st_dev == file.st_dev && st.st_ino == file.st_ino) return 1;
    return 0;
}

int mr_source_is_typed(const char *names)
{
    char name[MR_TEXT_MAX];
    while (next_name(&names, name))
        if (!strcmp(name, "-")) return isatty(STDIN_FILENO);
    return 0;
}

/* /dev/stdin and /dev/fd/5 may be regular files, but only for this process. /dev/shm has files like any other. */
static int is_of_process(const char *name)
{
    char *whole = mr_path_absolute(name);
    const int found =
        whole && (!strncmp(whole, "/proc/", 6) || (!strncmp(whole, "/dev/", 5) && strncmp(whole, "/dev/shm/", 9)));
    mr_free(whole);
    return found;
}

int mr_source_is_lasting(const char *names)
{
    char name[MR_TEXT_MAX];
    struct stat st;
    while (next_name(&names, name))
        if (!strcmp(name, "-") || is_of_process(name) || (!stat(name, &st) && S_ISFIFO(st.st_mode))) return 0;
    return 1;
}

uint64_t mr_source_bytes(const char *names)
{
    char name[MR_TEXT_MAX];
    struct stat st;
    uint64_t bytes = 0;
    while (next_name(&names, name))
        if (!stat(name, &st) && S_ISREG(st.st_mode)) bytes += (uint64_t)st.st_size;
    return bytes;
}

int mr_source_check(const char *names, mr_error *err)
{
    char name[MR_TEXT_MAX];
    int standard = 0;
    while (next_name(&names, name)) standard += !strcmp(name, "-");
    return standard < 2 ? 0 : mr_fail(err, MR_EINVAL, "--data - is given twice; standard input can be given once");
}

/* ---- reading ---- */

int mr_source_open(const char *name, int *fd, uint64_t *length, mr_error *err)
{
    struct stat st;
    const int is_stdin = !strcmp(name, "-");
    *length = 0;
    *fd = is_stdin ? dup(STDIN_FILENO) : open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0) return mr_fail(err, MR_EIO, "%s: cannot be opened: %s", shown(name), strerror(errno));
    const int kind = fstat(*fd, &st) ? 0 : (int)(st.st_mode & S_IFMT);
    if (kind == S_IFREG) *length = (uint64_t)st.st_size;
    if (is_stdin && kind != S_IFDIR) return 0;
    if (kind == S_IFIFO) poll(&(struct pollfd){.fd = *fd, .events = POLLIN}, 1, WRITER_WAIT_MS);
    if (kind == S_IFREG || kind == S_IFIFO) return 0;
    close(*fd);
    *fd = -1;
    return mr_fail(err, MR_EIO, "%s: is %s; give a file or a pipe, or - for standard input", shown(name),
                   kind == S_IFDIR ? "a directory" : "a device");
}

/* A pipe that never had a writer is never ready: after a while, reading it finds its end. It was opened so that this
 * cannot block. Standard input might, and is waited for until it is ready. */
int mr_source_wait(int fd, const mr_stop *stop)
{
    struct pollfd wanted = {.fd = fd, .events = POLLIN};
    const int may_block = !(fcntl(fd, F_GETFL) & O_NONBLOCK);
    for (int ready = 0; !ready;) {
        if (stop && *stop) return 1;
        ready = poll(&wanted, 1, LOOK_MS);
        if (ready < 0 && errno == EINTR) ready = 0;
        else if (!may_block) break;
    }
    return stop && *stop;
}

/* At most `room` bytes into `to`; *got is 0 at the end. */
static int read_some(int fd, const char *name, const mr_stop *stop, char *to, size_t room, size_t *got, mr_error *err)
{
    ssize_t n;
    *got = 0;
    do {
        if (mr_source_wait(fd, stop)) return mr_fail(err, MR_ESTOPPED, "stopped while %s was read", shown(name));
        n = read(fd, to, room < MOST_AT_ONCE ? room : MOST_AT_ONCE);
    } while (n < 0 && (errno == EINTR || errno == EAGAIN));
    if (n < 0) return mr_fail(err, MR_EIO, "%s: cannot be read: %s", shown(name), strerror(errno));
    *got = (size_t)n;
    return 0;
}

typedef struct buffer {
    char *data;
    size_t size, room; /* one byte of the room stays free, for the zero at the end */
} buffer;

static int grow(buffer *b, size_t room, const char *name, mr_error *err)
{
    char *data = mr_alloc(room, 1);
    if (!data) return mr_no_memory(err, name);
    if (b->data) memcpy(data, b->data, b->size);
    mr_free(b->data);
    b->data = data;
    b->room = room;
    return 0;
}

/* Appends what one source has, and finds out that it is at its end: that takes a byte of room. */
static int append(buffer *b, int fd, const char *name, uint64_t length, uint64_t limit, const mr_stop *stop,
                  mr_error *err)
{
    const size_t expected = length ? (size_t)length + 1 : FIRST_ROOM;
    int status = b->room - b->size <= expected ? grow(b, b->size + expected + 1, name, err) : 0;
    for (size_t got = 1; !status && got;) {
        if (b->size + 1 == b->room) status = grow(b, 2 * b->room, name, err);
        if (!status) status = read_some(fd, name, stop, b->data + b->size, b->room - b->size - 1, &got, err);
        if (status) break;
        b->size += got;
        if (b->size > limit)
            return mr_fail(err, MR_EDATA, "%s: more than %llu bytes in all; that is the most that can be read",
                           shown(name), (unsigned long long)limit);
    }
    return status;
}

static int append_named(buffer *b, const char *name, uint64_t limit, const mr_stop *stop, mr_error *err)
{
    uint64_t length;
    int fd, status = mr_source_open(name, &fd, &length, err);
    if (!status && length > limit)
        status = mr_fail(err, MR_EDATA, "%s: has %llu bytes; at most %llu can be read", shown(name),
                         (unsigned long long)length, (unsigned long long)limit);
    if (!status) status = append(b, fd, name, length, limit, stop, err);
    if (fd >= 0) close(fd);
    return status;
}

int mr_source_read(const char *names, uint64_t limit, const mr_stop *stop, mr_source_text *text, mr_error *err)
{
    buffer b = {0};
    char name[MR_TEXT_MAX];
    size_t *ends = mr_alloc(count_names(names) + 1, sizeof *ends), count = 0;
    int status = ends ? mr_source_check(names, err) : mr_no_memory(err, "the text");
    while (!status && next_name(&names, name)) {
        status = append_named(&b, name, limit, stop, err);
        ends[count++] = b.size;
    }
    if (!status && !b.data) status = grow(&b, 1, "the text", err);
    if (!status) return *text = (mr_source_text){b.data, b.size, ends}, 0;
    mr_free(b.data);
    mr_free(ends);
    return status;
}

/* ---- copying ---- */

static int copy_one(mr_replace *file, const char *name, const mr_stop *stop, uint64_t *size, mr_error *err)
{
    char piece[PIECE];
    uint64_t length;
    int fd, status = mr_source_open(name, &fd, &length, err);
    for (size_t got = 1; !status && got;) {
        status = read_some(fd, name, stop, piece, sizeof piece, &got, err);
        if (!status) status = mr_replace_write(file, piece, got, err);
        *size += got;
    }
    if (fd >= 0) close(fd);
    return status;
}

int mr_source_copy(const char *names, const char *path, const mr_stop *stop, mr_error *err)
{
    mr_replace file;
    char name[MR_TEXT_MAX], label[MR_SOURCE_LABEL];
    uint64_t size = 0;
    int status = mr_replace_begin(&file, path, err);
    if (status) return status;
    mr_source_label(names, label);
    while (!status && next_name(&names, name)) status = copy_one(&file, name, stop, &size, err);
    if (!status && !size) status = mr_fail(err, MR_EDATA, "%s is empty: give a text to learn from", label);
    if (!status) return mr_replace_commit(&file, err);
    mr_replace_abort(&file);
    return status;
}
