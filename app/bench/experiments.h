/* Experiments that measure instead of training: each is a function, and its results are kept like those of runs. */
#ifndef MR_APP_BENCH_EXPERIMENTS_H
#define MR_APP_BENCH_EXPERIMENTS_H

#include "paper/reproduce.h"

typedef struct mr_measuring mr_measuring;

/* For each cell that has no row yet, it measures and adds one. */
typedef struct mr_measured {
    const char *name, *summary;
    int (*run)(mr_measuring *m, mr_error *err);
    int (*report)(const mr_rows *rows, const char *dir, mr_error *err); /* writes DIR/NAME.md and DIR/NAME.svg */
} mr_measured;

int mr_reproduce_measured(const mr_measured *experiment, const mr_reproduce_options *options,
                          mr_reproduce_result *result, mr_error *err);

extern const mr_measured mr_efficiency, mr_inference, mr_parameters;

#endif
