/* Reading text: from files as from pipes, whose size is not known. */
#include "commands/text_input.h"

#include "core/mem.h"
#include "tasks/source.h"
#include "commands/args.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { FIRST_ROOM = 1 << 16 };

void mr_tell_typing(const char *names, int quiet)
{
    if (!quiet && mr_source_is_typed(names))
        fprintf(stderr, "reading the text from standard input; end it with Ctrl-D\n");
}

int mr_text_input_open(mr_text_input *in, const char *path, mr_error *err)
{
    *in = (mr_text_input){.fd = -1, .name = strcmp(path, "-") ? path : "standard input"};
    return mr_source_open(path, &in->fd, &in->total, err);
}

long mr_text_input_read(mr_text_input *in, char *buffer, size_t size)
{
    ssize_t got;
    do {
        if (mr_source_wait(in->fd, mr_stop_flag())) return errno = EINTR, -1;
        got = read(in->fd, buffer, size);
    } while (got < 0 && (errno == EINTR || errno == EAGAIN));
    if (got > 0) in->bytes += (uint64_t)got;
    return (long)got;
}

void mr_text_input_close(mr_text_input *in) { close(in->fd); }

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
        if (!status && *mr_stop_flag()) status = mr_fail(err, MR_ESTOPPED, "stopped while %s was read", in->name);
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
