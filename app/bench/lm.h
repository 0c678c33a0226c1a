/* Training of large language models: how many tokens a second, and which share of the device's rate of matrix
 * products. */
#ifndef MR_APP_BENCH_LM_H
#define MR_APP_BENCH_LM_H

#include "minrnn_experimental.h"

typedef struct mr_lm_size {
    const char *name;
    int layers, dim, batch, context, vocab;
} mr_lm_size;

extern const mr_lm_size mr_lm_sizes[]; /* the last one has no name */

typedef struct mr_lm_job {
    mr_lm_size size;
    const char *mixer, *recompute;
    int tied, steps;
    uint64_t seed;
    const char *device;
    int threads, bf16, exact;
    /* what is being done, and how many of the steps are done; or NULL */
    void (*watch)(void *arg, const char *what, int done, int of);
    void *arg;
} mr_lm_job;

typedef struct mr_lm_result {
    char device[64], chip[128], dtype[8];
    int threads;
    char recompute[16], chunk[16];  /* as the library chose */
    int64_t parameters, multiplied; /* all, and those that each token is multiplied with */
    double memory;                  /* bytes that the net has taken */
    double seconds, best;           /* a step: median and best */
    double loss;                    /* of the last step */
    double matrix;                  /* operations a second in one large product: the best of some */
    int product;                    /* its size */
} mr_lm_result;

int mr_lm_run(const mr_lm_job *job, mr_lm_result *result, mr_error *err);

/* Of the result: tokens and operations (6 for each multiplied parameter and token) a second. */
double mr_lm_tokens_rate(const mr_lm_job *job, const mr_lm_result *result);
double mr_lm_flops_rate(const mr_lm_job *job, const mr_lm_result *result);

#endif
