/* A wish to stop, set by a signal handler, which may run in any thread, and read by whoever may: atomic and free of
 * locks. */
#ifndef MR_CORE_STOP_H
#define MR_CORE_STOP_H

#include <stdatomic.h>

#if ATOMIC_INT_LOCK_FREE != 2
#error "a signal handler needs an atomic int without locks"
#endif

typedef atomic_int mr_stop; /* 0: go on; otherwise the signal, or 1 */

#endif
