/* Checks every op of a device against `ref`, with random shapes and options: the table that `minrnn check` prints. */
#ifndef MR_OPS_CHECK_CHECK_H
#define MR_OPS_CHECK_CHECK_H

#include "core/status.h"

#include <stdint.h>

/* One op on one instruction set. */
typedef struct mr_check_row {
    const char *op, *isa;
    double worst;          /* largest error, as a share of the tolerance */
    double ns_per_element; /* one thread, a shape that fits the cache */
    long cases, misses;
} mr_check_row;

typedef struct mr_check_options {
    const char *device; /* what is checked; NULL: cpu, on every ISA, with 1, 2 and 5 threads */
    const char *op;     /* NULL: all */
    const char *isa;    /* NULL: all that this machine can run */
    int bf16;           /* 1: products in bf16, with the tolerance for it */
    uint64_t seed;      /* of the first case; a seed always gives the same case */
    int cases;          /* of each op */
    void (*on_row)(void *arg, const mr_check_row *row);
    void (*on_miss)(void *arg, const char *line); /* op, ISA, threads, seed, shape, and what was wrong */
    void (*on_mutant)(void *arg, const char *op, int caught, int tried);
    void *arg;
} mr_check_options;

enum { MR_CHECK_QUICK = 80, MR_CHECK_FULL = 960 }; /* number of cases of each op */

typedef struct mr_check_result {
    long cases, misses;  /* of mr_check_run */
    int caught, mutants; /* of mr_check_mutate */
} mr_check_result;

/* Compares the ops. Returns 0 when the comparison ran; the result counts the misses. */
int mr_check_run(const mr_check_options *options, mr_check_result *result, mr_error *err);

/* Checks the check: corrupts the results of one op at a time, in every way that mr_check_run must notice. */
int mr_check_mutate(const mr_check_options *options, mr_check_result *result, mr_error *err);

#endif
