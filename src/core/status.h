/* How a function says that it failed: it returns a negative mr_status and leaves one sentence in an mr_error. */
#ifndef MR_CORE_STATUS_H
#define MR_CORE_STATUS_H

#include "minrnn.h"

/* Records the sentence, as one printable line whatever names it repeats (err may be NULL). */
void mr_error_set(mr_error *err, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The same as an expression that is `status`, so that a caller writes `return mr_fail(err, MR_EIO, …)`. A macro, so
 * that whoever analyses the caller sees that it fails. */
#define mr_fail(err, status, ...) (mr_error_set((err), (status), __VA_ARGS__), mr_failed(status))
static inline int mr_failed(int status) { return status; }

/* The common case: out of memory for `what`. */
#define mr_no_memory(err, what) mr_fail((err), MR_ENOMEM, "out of memory for %s", (what))

#endif
