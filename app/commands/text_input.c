/* Reading text: from files as from pipes, whose size is not known. */
#include "commands/text_input.h"

#include "core/mem.h"
#include "commands/args.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WRITER_WAIT_MS = 1000, FIRST_ROOM = 1 << 16 };

/* A pipe without a writer gets a second to find one; without O_NONBLOCK, opening it could wait for ever. A device is
 * either endless or a terminal, which is better read as standard input. */
static int open_path(mr_text_input *in, mr_error *err)
{
    struct stat st;
    in->fd = open(in->name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (in->fd < 0) return mr_fail(err, MR_EIO, "%s: cannot be opened: %s", in->name, strerror(errno));
    const int kind = fstat(in->fd, &st) ? 0 : (int)(st.st_mode & S_IFMT);
    if (kind == S_IFIFO) poll(&(struct pollfd){.fd = in->fd, .events = POLLIN}, 1, WRITER_WAIT_MS);
    fcntl(in->fd, F_SETFL, fcntl(in->fd, F_GETFL) & ~O_NONBLOCK);
    if (kind == S_IFREG || kind == S_IFIFO) return 0;
    close(in->fd);
    return mr_fail(err, MR_EIO, "%s: is %s; give a file or a pipe, or - for standard input", in->name,
                   kind == S_IFDIR ? "a directory" : "a device");
}

int mr_text_input_open(mr_text_input *in, const char *path, mr_error *err)
{
    struct stat st;
    const int standard = !strcmp(path, "-");
    *in = (mr_text_input){.fd = STDIN_FILENO, .name = standard ? "standard input" : path};
    int status = standard ? 0 : open_path(in, err);
    if (!status && !fstat(in->fd, &st) && S_ISREG(st.st_mode)) in->total = (uint64_t)st.st_size;
    return status;
}

long mr_text_input_read(mr_text_input *in, char *buffer, size_t size)
{
    ssize_t got;
    do got = read(in->fd, buffer, size);
    while (got < 0 && errno == EINTR && !*mr_stop_flag());
    if (got > 0) in->bytes += (uint64_t)got;
    return (long)got;
}

void mr_text_input_close(mr_text_input *in)
{
    if (in->fd != STDIN_FILENO) close(in->fd);
}

static int grow(char **text, size_t used, size_t *room, const char *name, mr_error *err)
{
    char *larger = mr_alloc(2 * *room, 1);
    if (!larger) return mr_no_memory(err, name);
    memcpy(larger, *text, used);
    mr_free(*text);
    *text = larger;
    *room *= 2;
    return 0;
}

static int read_all(mr_text_input *in, size_t limit, char **text, size_t *size, mr_error *err)
{
    size_t room = FIRST_ROOM;
    long got = 1;
    *text = mr_alloc(room, 1);
    int status = *text ? 0 : mr_no_memory(err, in->name);
    for (*size = 0; !status && got > 0; *size += got > 0 ? (size_t)got : 0) {
        if (*size == room) status = grow(text, *size, &room, in->name, err);
        if (!status) got = mr_text_input_read(in, *text + *size, room - *size);
        if (!status && got < 0) status = mr_fail(err, MR_EIO, "%s: %s", in->name, strerror(errno));
        if (!status && *size + (size_t)got > limit)
            status = mr_fail(err, MR_EDATA, "%s: is longer than %zu bytes; give less", in->name, limit);
    }
    return status;
}

int mr_text_input_all(const char *path, size_t limit, char **text, size_t *size, mr_error *err)
{
    mr_text_input in;
    *text = NULL;
    int status = mr_text_input_open(&in, path, err);
    if (status) return status;
    status = read_all(&in, limit, text, size, err);
    mr_text_input_close(&in);
    if (!status) return 0;
    mr_free(*text);
    *text = NULL;
    return status;
}
