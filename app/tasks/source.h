/* Where a text comes from: files, pipes and standard input, one after the other as one text. */
#ifndef MR_APP_TASKS_SOURCE_H
#define MR_APP_TASKS_SOURCE_H

#include "core/status.h"
#include "core/stop.h"

#include <stddef.h>
#include <stdint.h>

/* Opens a file or a pipe; "-" is standard input. *length is 0 where it is not known. A pipe that nobody writes to gets
 * a second to find a writer: without O_NONBLOCK, opening it could wait for ever. Folders and devices are refused: a
 * device is either endless or a terminal, which is better read as standard input. The caller closes *fd, which is -1
 * after a failure. */
int mr_source_open(const char *name, int *fd, uint64_t *length, mr_error *err);

/* To be called before each read, which is tried again after EAGAIN: waits until there is something to read, or the end.
 * 1: *stop was set instead; it may be NULL. */
int mr_source_wait(int fd, const mr_stop *stop);

/* Below, `names` has one name per line, as an option with MR_OPT_MANY does; "-" is standard input. */

typedef struct mr_source_text {
    char *data; /* one zero byte follows */
    size_t size;
    size_t *ends; /* of each source in turn: where in the data it ends */
} mr_source_text;

/* Reads all of it into fresh memory, which the caller frees with mr_free: text->data and text->ends. Refuses what is
 * longer than `limit` bytes together (MR_EDATA), and folders and devices (MR_EIO). Once *stop is set it ends with
 * MR_ESTOPPED; stop may be NULL. */
int mr_source_read(const char *names, uint64_t limit, const mr_stop *stop, mr_source_text *text, mr_error *err);

/* 1: all of them are regular files, so that they can be read again later; what /dev and /proc have is of this process
 * alone. What cannot be looked at counts as a file: reading it says what is wrong. */
int mr_source_is_lasting(const char *names);

/* The bytes of those that are regular files. */
uint64_t mr_source_bytes(const char *names);

/* 1: one of them is this file, under whatever name. */
int mr_source_has_file(const char *names, const char *path);

/* 1: standard input is one of them, and a person types it. */
int mr_source_is_typed(const char *names);

/* Refuses standard input that is named twice: the second time there would be nothing left of it. */
int mr_source_check(const char *names, mr_error *err);

/* Copies all of it into a file, which is replaced atomically. Takes little memory, whatever the size. MR_EDATA: it is
 * empty. MR_ESTOPPED: as in mr_source_read. */
int mr_source_copy(const char *names, const char *path, const mr_stop *stop, mr_error *err);

/* How errors name it: "a.txt", "a.txt and 2 more"; and how they name one of them, which has an index from 0. */
enum { MR_SOURCE_LABEL = 256 };
const char *mr_source_label(const char *names, char out[MR_SOURCE_LABEL]);
const char *mr_source_name(const char *names, size_t index, char out[MR_SOURCE_LABEL]);

#endif
