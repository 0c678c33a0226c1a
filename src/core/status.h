/* How functions report failure: they return a negative mr_status and leave one sentence in an mr_error. */
#ifndef MR_CORE_STATUS_H
#define MR_CORE_STATUS_H

#include "minrnn.h"

/* Records the status and the sentence. Control characters become '?', so it is always one printable line. err may be
 * NULL. */
void mr_error_set(mr_error *err, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The same, as an expression whose value is `status`: `return mr_fail(err, MR_EIO, …)`. A macro, so that static
 * analysers see the value that the caller returns. */
#define mr_fail(err, status, ...) (mr_error_set((err), (status), __VA_ARGS__), mr_failed(status))
static inline int mr_failed(int status) { return status; }

/* The most common failure. */
#define mr_no_memory(err, what) mr_fail((err), MR_ENOMEM, "out of memory for %s", (what))

#endif
