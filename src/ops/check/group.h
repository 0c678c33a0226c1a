/* The devices of a check, in groups that must give the same bits. Private to src/ops/check. */
#ifndef MR_OPS_CHECK_GROUP_H
#define MR_OPS_CHECK_GROUP_H

#include "ops/check/check.h"
#include "ops/check/run.h"

enum { MR_CHECK_ISAS = 8, MR_CHECK_THREADS = 3 };

/* One instruction set with several thread counts; the first count is 1. */
typedef struct mr_group {
    const char *isa;
    mr_tested_device devices[MR_CHECK_THREADS];
    int count;
} mr_group;

typedef struct mr_check {
    const mr_check_options *options;
    mr_check_result *result;
    mr_tested_device ref;
    mr_group groups[MR_CHECK_ISAS];
    int count;
} mr_check;

int mr_check_wants(const mr_check_options *options, int op);
int mr_check_wants_any(const mr_check_options *options, mr_error *err); /* MR_EINVAL: no such op */

/* Opens the devices that the options ask for; call mr_check_close either way. */
int mr_check_open(mr_check *k, mr_error *err);
void mr_check_close(mr_check *k);

/* Runs the case of one seed on every device; adds to rows[group]. */
int mr_check_case(mr_check *k, int op, uint64_t seed, mr_check_row *rows, mr_error *err);

#endif
