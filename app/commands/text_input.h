/* Text that a command reads: a file, a pipe, or standard input, which is named "-". */
#ifndef MR_APP_COMMANDS_TEXT_INPUT_H
#define MR_APP_COMMANDS_TEXT_INPUT_H

#include "core/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct mr_text_input {
    int fd;
    const char *name;      /* for messages */
    uint64_t bytes, total; /* read so far; of all of it, 0: not known */
} mr_text_input;

/* Says on stderr that standard input is waited for, where it is one of `names` (a name a line) and a terminal. */
void mr_tell_typing(const char *names, int quiet);

int mr_text_input_open(mr_text_input *input, const char *path, mr_error *err);
/* At most `size` bytes; returns how many, 0 at the end, negative on failure or after Ctrl-C (errno says why). */
long mr_text_input_read(mr_text_input *input, char *buffer, size_t size);
void mr_text_input_close(mr_text_input *input);

/* All of it, in fresh memory for mr_free; more than `limit` bytes are refused. MR_ESTOPPED: after Ctrl-C. */
int mr_text_input_all(const char *path, size_t limit, char **text, size_t *size, mr_error *err);

#endif
