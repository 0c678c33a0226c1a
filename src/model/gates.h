/* How the gates of a model start: the key gate-init. */
#ifndef MR_GATES_H
#define MR_GATES_H

#include "core/status.h"

typedef enum mr_gate_init {
    MR_GATES_DEFAULT,
    MR_GATES_FORGET_BIAS,
    MR_GATES_SUMS,
    MR_GATES_TIMESCALES,
    MR_GATES_TIMESCALES_UNIFORM
} mr_gate_init;

enum { MR_GATE_VALUES = 64 };

typedef struct mr_gates {
    mr_gate_init kind;
    int count;                     /* numbers given */
    double values[MR_GATE_VALUES]; /* biases of the blocks, or the longest time scale */
} mr_gates;

/* Reads "default", "forget-bias=X[,Y…]", "sums=X[,Y…]" (the same, and a minGRU's states start as sums, not means, of
 * what comes in), "timescales[=T]" or "timescales-uniform[=T]". */
int mr_gates_read(const char *text, mr_gates *gates, mr_error *err);

/* Where biases are given: that of a block; the last one holds for all further blocks. Otherwise 0. */
double mr_gates_bias(const mr_gates *gates, int block);

/* Do channels start with time scales? */
int mr_gates_timed(const mr_gates *gates);

#endif
