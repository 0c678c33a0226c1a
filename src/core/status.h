/* How a function says that it failed: it returns a negative mr_status and leaves one sentence in an mr_error. */
#ifndef MR_CORE_STATUS_H
#define MR_CORE_STATUS_H

#include "minrnn.h"

typedef struct mr_error {
    int status;
    char text[1024];
} mr_error;

/* Records the sentence, as one printable line whatever names it repeats (err may be NULL),
 * and returns status, so that a caller writes `return mr_fail(err, MR_EIO, …)`. */
int mr_fail(mr_error *err, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The common case: out of memory for `what`. */
int mr_no_memory(mr_error *err, const char *what);

#endif
