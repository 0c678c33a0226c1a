/* One case on one device: laid out between guard words, run, and its results held against ref's.
 * Private to src/ops/check*.c. */
#ifndef MR_OPS_CHECK_RUN_H
#define MR_OPS_CHECK_RUN_H

#include "ops/check/case.h"

/* What is being checked. `called` is the device whose op is called: dev itself, or a mutant that spoils its results. */
typedef struct mr_subject {
    mr_dev *dev, *called;
    const struct mr_placed *placed; /* the layout of the run in progress … */
    int turn;                       /* … which is its first or its second */
} mr_subject;

/* Where a case lies on a device: all buffers in one block, everything between them guard words. */
typedef struct mr_placed {
    const mr_case *c;
    size_t at[MR_CASE_BUFFERS], bytes[MR_CASE_BUFFERS], total;
    char *base; /* device memory */
    mr_case_args args, first;
} mr_placed;

/* What a run left: the whole block as it was before and after the op, and the outputs as numbers. */
typedef struct mr_outcome {
    mr_placed placed;
    char *before, *after;
    double *values[MR_CASE_BUFFERS]; /* NULL for what is no output */
} mr_outcome;

typedef struct mr_verdict {
    double worst; /* largest error as a share of the tolerance */
    int misses;
    char what[256]; /* the first miss */
} mr_verdict;

int mr_case_is_output(const mr_case_buffer *b);
size_t mr_case_element_size(const mr_dev *dev, mr_case_type type);

/* Elements of an output on the device as numbers, and one element written. */
void mr_case_read(mr_dev *dev, mr_case_type type, const char *from, size_t count, double *to);
void mr_case_write(mr_dev *dev, mr_case_type type, char *to, double value);

/* 0, or a negative status with the sentence in err. mr_outcome_free is due either way. */
int mr_case_run(const mr_case *c, mr_subject *subject, int turn, mr_outcome *out, mr_error *err);
void mr_outcome_free(mr_outcome *out);

/* Values within the tolerance of ref's; guards and inputs as they were. */
void mr_outcome_judge(const mr_case *c, const mr_outcome *got, const mr_outcome *ref, mr_verdict *verdict);
/* The same bits in every output; `than` names the other run. */
void mr_outcome_same(const mr_case *c, const mr_outcome *got, const mr_outcome *other, const char *than,
                     mr_verdict *verdict);

/* Nanoseconds an element of one op, the best of several calls. */
int mr_case_time(const mr_case *c, mr_dev *dev, double *ns, mr_error *err);

#endif
