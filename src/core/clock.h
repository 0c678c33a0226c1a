/* The one clock: everything that measures or limits time reads it. */
#ifndef MR_CORE_CLOCK_H
#define MR_CORE_CLOCK_H

/* Seconds of a clock that never goes backwards; only differences mean something. */
double mr_seconds(void);

#endif
