/* The one clock for measuring time: it never jumps and never runs backwards. */
#ifndef MR_CORE_CLOCK_H
#define MR_CORE_CLOCK_H

double mr_seconds(void); /* since some fixed moment: only differences mean anything */

#endif
