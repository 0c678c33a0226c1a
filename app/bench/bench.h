/* Benchmarks: each row says how long something took and which share of this machine's limit that is, the limits being
 * measured in the same run. */
#ifndef MR_APP_BENCH_BENCH_H
#define MR_APP_BENCH_BENCH_H

#include "core/status.h"
#include "ops/device.h"

/* What this machine can do at best, with the device's number of threads. 0: not known for this device. */
typedef struct mr_limits {
    double flops;       /* multiply-adds in registers, per second */
    double copy_bytes;  /* read and written beyond the cache, per second */
    double cache_bytes; /* the same within the second-level cache */
} mr_limits;

/* Which limit applies to a row. */
typedef enum mr_bound { MR_BOUND_NONE, MR_BOUND_COMPUTE, MR_BOUND_COPY, MR_BOUND_READ } mr_bound;

typedef struct mr_probe mr_probe; /* the loops that measure the limits, ready to run */

typedef struct mr_bench_row {
    const char *bench;
    char name[96];
    double seconds, best; /* median and best; 0: not a time */
    double bytes, flops;  /* the least that must be moved and computed */
    double tokens;        /* 0, or what the time was for */
    /* "compute", "memory", or where the bytes are read from ("L3"), whichever applies; "" if none does */
    const char *limit;
    double share; /* of that limit, as it was measured just before and after: the median of the repetitions */
} mr_bench_row;

typedef struct mr_bench {
    mr_dev *dev;
    int quick;
    const char *mixer;                                   /* models with this one only; NULL: all */
    int (*open)(void *arg, mr_dev **dev, mr_error *err); /* another device like dev */
    mr_limits limits;
    mr_probe *probe; /* a CPU's; NULL elsewhere */
    void (*on_row)(void *arg, const mr_bench_row *row);
    void (*on_start)(void *arg, const char *bench, const char *name);
    void *arg;
} mr_bench;

/* Something to measure. `before` (or NULL) runs before each call and is not timed. */
typedef struct mr_bench_job {
    const char *bench;
    char name[96];
    double bytes, flops, tokens;
    double read_bytes; /* 0, or the rate at which `bytes` can be read from where they are … */
    const char *place; /* … and where that is */
    void (*before)(void *arg);
    void (*run)(void *arg);
    void *arg;
} mr_bench_job;

void mr_bench_measure(mr_bench *b, const mr_bench_job *job); /* warms up, repeats, reports a row */

/* Device arrays of random values in ±scale, or NULL; freed by dev->release. */
mr_act *mr_bench_acts(mr_dev *dev, size_t count, double scale);
mr_real *mr_bench_reals(mr_dev *dev, size_t count, double scale);

int mr_bench_limits(mr_bench *b, mr_error *err); /* first: fills b->limits and b->probe, reports the limits as rows */
void mr_bench_end(mr_bench *b);                  /* last */

/* A limit as it is at this moment (operations or bytes per second; it takes some milliseconds): a machine that others
 * use too is not always equally fast. Devices without a probe give the limit measured at the start. */
double mr_bench_now(mr_bench *b, mr_bound bound);

/* Measures how fast the device's threads read this many bytes again and again, each its own part: from now on the
 * limit of MR_BOUND_READ; *place gets the name of the smallest cache that holds them. A row reports it. Only on a
 * CPU; 0 elsewhere. */
int mr_bench_read(mr_bench *b, size_t bytes, double *rate, const char **place, mr_error *err);

int mr_bench_gemm(mr_bench *b, mr_error *err);
int mr_bench_scan(mr_bench *b, mr_error *err);
int mr_bench_layer(mr_bench *b, mr_error *err);
int mr_bench_step(mr_bench *b, mr_error *err);
int mr_bench_decode(mr_bench *b, mr_error *err);
int mr_bench_memory(mr_bench *b, mr_error *err);

#endif
