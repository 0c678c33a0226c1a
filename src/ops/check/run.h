/* One case on one device: laid out between guard words, run, and compared with ref. Private to src/ops/check. */
#ifndef MR_OPS_CHECK_RUN_H
#define MR_OPS_CHECK_RUN_H

#include "ops/check/case.h"

/* What is checked. `called` is the device whose op is called: dev itself, or a mutant that corrupts its results. */
typedef struct mr_tested_device {
    mr_dev *dev, *called;
    const struct mr_placed *placed; /* the layout of the current run … */
    int run_index;                  /* … and which one it is: 0 or 1 */
} mr_tested_device;

/* A case in device memory: all buffers in one block, with guard words between them. */
typedef struct mr_placed {
    const mr_case *c;
    size_t at[MR_CASE_BUFFERS], bytes[MR_CASE_BUFFERS], total;
    char *base; /* device memory */
    mr_case_args args, first;
} mr_placed;

/* The outcome of a run: the whole block before and after the op, and the outputs as numbers. */
typedef struct mr_outcome {
    mr_placed placed;
    char *before, *after;
    double *values[MR_CASE_BUFFERS]; /* NULL for buffers that are not outputs */
} mr_outcome;

typedef struct mr_verdict {
    double worst; /* largest error as a share of the tolerance */
    int misses;
    char what[256]; /* the first miss */
} mr_verdict;

int mr_case_is_output(const mr_case_buffer *b);
size_t mr_case_element_size(const mr_dev *dev, mr_case_type type);

/* Reads elements of an output on the device as numbers; writes one element. */
void mr_case_read(mr_dev *dev, mr_case_type type, const char *from, size_t count, double *to);
void mr_case_write(mr_dev *dev, mr_case_type type, char *to, double value);

/* Returns 0 or a negative status with a message in err. Call mr_outcome_free either way. */
int mr_case_run(const mr_case *c, mr_tested_device *tested, int run_index, mr_outcome *out, mr_error *err);
void mr_outcome_free(mr_outcome *out);

/* Checks that values are within the tolerance of ref's, and that guards and inputs are unchanged. */
void mr_outcome_judge(const mr_case *c, const mr_outcome *got, const mr_outcome *ref, mr_verdict *verdict);
/* Checks that every output has the same bits; `than` names the other run. */
void mr_outcome_same(const mr_case *c, const mr_outcome *got, const mr_outcome *other, const char *than,
                     mr_verdict *verdict);

/* Times one op: nanoseconds per element, best of several calls. */
int mr_case_time(const mr_case *c, mr_dev *dev, double *ns, mr_error *err);

#endif
