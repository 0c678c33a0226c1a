/* Measures the exchange of gradients between ranks. */
#ifndef MR_APP_BENCH_RANKS_H
#define MR_APP_BENCH_RANKS_H

#include "comm/comm.h"
#include "ops/device.h"

/* What the model of the cost knows: seconds of an exchange of nearly nothing with all other ranks, bytes that a rank
 * sends and receives a second, and additions a second. */
typedef struct mr_ranks_limits {
    double latency, bandwidth, adds;
} mr_ranks_limits;

typedef struct mr_ranks_row {
    int64_t parameters;
    double bytes;         /* that each rank sends, and receives, in a step */
    double seconds, best; /* of an exchange that nothing hides: median and best */
    double model;         /* seconds that the model says */
} mr_ranks_row;

typedef struct mr_ranks_job {
    const int64_t *sizes; /* parameters */
    int count, repeats;   /* repeats: at most 64 */
    void (*watch)(void *arg, int64_t parameters, int done);
    void *arg;
} mr_ranks_job;

double mr_ranks_model(const mr_ranks_limits *limits, int ranks, int pieces, double parameters);
int mr_ranks_measure(mr_ranks_job *job, mr_comm *comm, mr_dev *dev, mr_ranks_limits *limits, mr_ranks_row *rows,
                     mr_error *err);

#endif
