/* A case of `minrnn check`: one op with random shape and options, described as data, so that one loop can lay it out on
 * any device, run it and compare. Private to src/ops/check. */
#ifndef MR_OPS_CHECK_CASE_H
#define MR_OPS_CHECK_CASE_H

#include "core/rng.h"
#include "ops/device.h"

#include <stddef.h>

typedef enum mr_case_type {
    MR_CASE_ACT,
    MR_CASE_REAL,
    MR_CASE_INT,
    MR_CASE_BYTE,
    MR_CASE_DOUBLE,
    MR_CASE_STEP,
    MR_CASE_SAMPLING,
    MR_CASE_SAVED /* `saved` of the minrnn and rnn ops: as many bytes as the device asks for */
} mr_case_type;

/* OUT is filled with NaN first, ADD with values that the op adds to; SCRATCH is not compared. */
typedef enum mr_case_role { MR_CASE_IN, MR_CASE_OUT, MR_CASE_ADD, MR_CASE_SCRATCH } mr_case_role;

typedef enum mr_case_fill {
    MR_FILL_NAN,
    MR_FILL_NORMAL,    /* N(0, value²) */
    MR_FILL_WHOLE,     /* the same, rounded: many equal numbers */
    MR_FILL_SIGNED,    /* whole numbers −value … value, uniform */
    MR_FILL_POSITIVE,  /* |N(0, value²)| + 0.01 */
    MR_FILL_SATURATED, /* N(0, 1), and ±value in every second element */
    MR_FILL_CONSTANT,  /* value */
    MR_FILL_BELOW,     /* 0 … value−1 */
    MR_FILL_DISTINCT,  /* the same, all different */
    MR_FILL_TARGET,    /* 0 … value−1, or −1 */
    MR_FILL_LENGTH,    /* 1 … value */
    MR_FILL_LEFT,      /* the same, and 0 in a case whose sequences continue from a state */
    MR_FILL_FLAG,      /* 1 with probability `value` */
    MR_FILL_STEP,
    MR_FILL_SAMPLING
} mr_case_fill;

#define MR_NO_FIELD ((size_t)-1)
#define MR_NO_PLANT ((size_t)-1)

typedef struct mr_case_buffer {
    const char *name;
    mr_case_type type;
    mr_case_role role;
    mr_case_fill fill;
    double value;
    size_t count;
    size_t plant;    /* element that is set to NaN */
    size_t reach;    /* MR_FILL_SATURATED: elements from here on stay N(0, 1) */
    size_t field;    /* offset in args where its address goes … */
    size_t alias;    /* … and again, when two arguments share memory … */
    size_t in_first; /* … and in the args of the op that runs before */
    int shift;       /* misaligned by this many elements */
    void *data;      /* values on the host; float for ACT and REAL */
} mr_case_buffer;

typedef union mr_case_args {
#define OP(name, tolerance, what) mr_##name##_args name;
#include "ops/ops.def"
#undef OP
} mr_case_args;

enum {
#define OP(name, tolerance, what) MR_OP_##name,
#include "ops/ops.def"
#undef OP
    MR_OP_COUNT
};

enum { MR_CASE_BUFFERS = 24, MR_CASE_SHAPE = 320 };

typedef struct mr_case {
    int op;
    uint64_t seed;
    mr_rng rng;
    int speed;         /* a fixed shape for timing instead of a random one */
    int aligned;       /* all addresses are multiples of 64 bytes, as in plans; in other cases none need be */
    mr_case_args args; /* all but the addresses */
    int first_op;      /* an op that must run before, or −1 */
    mr_case_args first;
    mr_case_buffer buffers[MR_CASE_BUFFERS];
    int buffer_count;
    int bf16;     /* activations are stored in bf16 … */
    double inner; /* … and this many roundings to it happen inside the op */
    double tolerance;
    int planted;     /* 1: results must contain NaN */
    size_t elements; /* to compute the time of one */
    char shape[MR_CASE_SHAPE];
} mr_case;

typedef struct mr_case_op {
    const char *name;
    double tolerance;
    void (*make)(mr_case *c);
    void (*call)(mr_dev *dev, const mr_case_args *args);
} mr_case_op;

extern const mr_case_op mr_case_ops[MR_OP_COUNT];

enum { MR_CASE_SPEED = 1, MR_CASE_STORED_BF16 = 2 }; /* a shape for timing; a device that stores activations in bf16 */

/* Draws a case and its host values. Returns 0 or MR_ENOMEM; call mr_case_free either way. */
int mr_case_draw(mr_case *c, int op, uint64_t seed, int how);

/* Set the tolerance for bf16 (check/bf16.c): for products that round their operands, and for a device that
 * stores activations in bf16. */
void mr_case_bf16_products(mr_case *c);
void mr_case_bf16_stored(mr_case *c);

/* How far an element may differ from ref's. scale: the largest |ref| of this output, at least 1. */
double mr_case_allows(const mr_case *c, const mr_case_buffer *b, double ref, double scale);
void mr_case_free(mr_case *c);

#endif
