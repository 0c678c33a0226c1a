/* The vocabulary for describing cases: mr_case_NAME draws a case of op NAME with these functions.
 * Private to src/ops/check. */
#ifndef MR_OPS_CHECK_MAKERS_H
#define MR_OPS_CHECK_MAKERS_H

#include "ops/check/case.h"

/* One for every row of ops.def. */
#define OP(name, tolerance, what) void mr_case_##name(mr_case *c);
#include "ops/ops.def"
#undef OP

int mr_case_below(mr_case *c, int n); /* 0 … n−1 */
int mr_case_chance(mr_case *c, int percent);
int mr_case_width(mr_case *c);       /* sweeps with the seed: all widths up to 2·vector+3, then larger ones */
int mr_case_other_width(mr_case *c); /* random, mostly small */
int mr_case_rows(mr_case *c);
/* Appends to the text that describes the case. */
void mr_case_say(mr_case *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
mr_case_buffer *mr_case_add(mr_case *c, const char *name, size_t field, mr_case_type type, mr_case_role role,
                            size_t count, mr_case_fill fill, double value);
void mr_case_add_dropout(mr_case *c, mr_dropout *drop, size_t field, int percent_on);

/* Adds resets or lengths, or leaves them out: returns the buffer or NULL. */
mr_case_buffer *mr_case_add_reset(mr_case *c, size_t field, int B, int T);
mr_case_buffer *mr_case_add_length(mr_case *c, size_t field, int B, int T);
mr_case_buffer *mr_case_add_room(mr_case *c, size_t field, int B, int T); /* lengths of 0 are among them */
/* Draw how many sequences and tokens there are, and a cell. */
void mr_case_shape(mr_case *c, int width, int *B, int *T);
mr_cell mr_case_cell(mr_case *c);
/* Adds the states before and after the tokens: one buffer for both, or two, either of which may be left out. */
void mr_case_add_state(mr_case *c, const char *in_name, size_t in, const char *out_name, size_t out, size_t count,
                       mr_case_fill fill, double value);

/* Name and offset of an argument, for mr_case_add. */
#define MR_FIELD(op, name) #name, offsetof(mr_##op##_args, name)

#define ACT MR_CASE_ACT
#define REAL MR_CASE_REAL
#define INT MR_CASE_INT
#define BYTE MR_CASE_BYTE
#define DOUBLE MR_CASE_DOUBLE
#define STEP MR_CASE_STEP
#define SAMPLING MR_CASE_SAMPLING
#define SAVED MR_CASE_SAVED
#define IN MR_CASE_IN
#define OUT MR_CASE_OUT
#define ADD MR_CASE_ADD
#define SCRATCH MR_CASE_SCRATCH
#define EMPTY MR_FILL_NAN
#define NORMAL MR_FILL_NORMAL

#endif
