/* The examples of ListOps: Long Range Arena's generator, and the files that it was published as. */
#ifndef MR_APP_TASKS_LISTOPS_DATA_H
#define MR_APP_TASKS_LISTOPS_DATA_H

#include "tasks/byte_rows.h"

/* Tokens: 0 pads, 1 … 10 are the digits 0 … 9, then the operators, then the bracket that closes one. */
enum {
    MR_LISTOPS_PAD,
    MR_LISTOPS_ZERO,
    MR_LISTOPS_MIN = 11,
    MR_LISTOPS_MAX,
    MR_LISTOPS_MED,
    MR_LISTOPS_SM,
    MR_LISTOPS_END,
    MR_LISTOPS_VOCABULARY
};

/* the most that may be asked for */
enum { MR_LISTOPS_DEPTH = 64, MR_LISTOPS_ARGUMENTS = 64, MR_LISTOPS_LONGEST = 1 << 16 };

typedef struct mr_listops_shape {
    int min_length, max_length; /* of the tokens, both exclusive */
    int depth, arguments;       /* at most */
} mr_listops_shape;

/* Adds `count` trees, no two of the whole set alike. The same shape and counts give the same set on every machine. */
int mr_listops_generate(const mr_listops_shape *shape, uint32_t count, mr_byte_rows *rows, mr_error *err);

/* Adds the rows of a file of the published form: a line of column names, then `Source TAB Target`. Parentheses carry no
 * information and are dropped; everything after `longest` tokens is cut off. */
int mr_listops_read(const char *path, uint32_t longest, mr_byte_rows *rows, mr_error *err);

#endif
