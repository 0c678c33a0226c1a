/* The op table: one function of a backend for every row of ops.def.
 *
 * An op takes a struct of arguments (args_layers.h, args_time.h, args_cut.h), which gives the shape of each pointer.
 * All pointers are device memory of the backend that is called, except the structs themselves. N is the number of
 * tokens, B·T, laid out [B, T, …] with channels contiguous. Pointers marked "or NULL" are optional. */
#ifndef MR_OPS_OPS_H
#define MR_OPS_OPS_H

#include "ops/args_cut.h"
#include "ops/args_layers.h"
#include "ops/args_time.h"

/* The table: one function for each op. */
typedef struct mr_ops {
#define OP(name, tolerance, what) void (*name)(mr_dev *, const mr_##name##_args *);
#include "ops/ops.def"
#undef OP
} mr_ops;

#endif
