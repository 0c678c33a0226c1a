/* How a model's gates start: the key gate-init. It decides only initial values. */
#ifndef MR_MODEL_GATE_INIT_H
#define MR_MODEL_GATE_INIT_H

#include "core/status.h"

typedef enum mr_gate_init_kind {
    MR_GATE_INIT_DEFAULT,
    MR_GATE_INIT_FORGET_BIAS,
    MR_GATE_INIT_SUMS,
    MR_GATE_INIT_TIMESCALES,
    MR_GATE_INIT_TIMESCALES_UNIFORM
} mr_gate_init_kind;

enum { MR_GATE_INIT_VALUES = 64 };

typedef struct mr_gate_init {
    mr_gate_init_kind kind;
    int count;                          /* of values */
    double values[MR_GATE_INIT_VALUES]; /* biases of the blocks, or the longest time scale */
} mr_gate_init;

/* Reads "default", "forget-bias=X[,Y…]", "sums=X[,Y…]" (the same, and a minGRU's states start as sums of its inputs,
 * not means), "timescales[=T]" or "timescales-uniform[=T]". */
int mr_gate_init_read(const char *text, mr_gate_init *gates, mr_error *err);

/* The bias of a block; 0 where none are given. The last one is for all further blocks. */
double mr_gate_init_bias(const mr_gate_init *gates, int block);

/* Is it one of the kinds in which channels start with time scales? */
int mr_gate_init_timed(const mr_gate_init *gates);

#endif
