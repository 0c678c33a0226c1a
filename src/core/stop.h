/* Flags that a signal handler sets and loops poll. A handler may run in any thread: atomic and lock-free. */
#ifndef MR_CORE_STOP_H
#define MR_CORE_STOP_H

#include <stdatomic.h>

#if ATOMIC_INT_LOCK_FREE != 2
#error "a signal handler needs an atomic int without locks"
#endif

typedef atomic_int mr_stop;     /* 0: continue; otherwise stop: the signal's number, or 1 */
typedef atomic_int mr_requests; /* how often something was asked for; each reader remembers the count it has served */

#endif
