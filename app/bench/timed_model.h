/* A model to be measured: weights, a batch, and the stopwatch. */
#ifndef MR_APP_BENCH_TIMED_MODEL_H
#define MR_APP_BENCH_TIMED_MODEL_H

#include "core/clock.h"
#include "model/model.h"

enum { MR_TIMED_LAYERS = 3, MR_TIMED_VOCAB = 65, MR_TIMED_STREAMS = 64 };

typedef struct mr_timed_shape {
    int mixer, dim, expansion, conv, mlp, vocab; /* vocab: at most MR_TIMED_VOCAB */
    int weights;                                 /* mr_weight_type */
    int window;                                  /* of attention; 0: the T of its batch */
} mr_timed_shape;

typedef struct mr_timed_model {
    mr_model *model;
    mr_state *state; /* NULL until mr_timed_model_stream */
    mr_batch batch;
    mr_step step;
} mr_timed_model;

/* The stack of the paper's measurements: three layers 64 → 384, norm, mixer, down-projection, residual. */
mr_timed_shape mr_timed_paper_shape(int mixer);

/* Closed by mr_timed_model_close, whether it could be opened or not. */
int mr_timed_model_open(mr_timed_model *s, mr_dev *dev, const mr_timed_shape *what, int B, int T, int train,
                        mr_error *err);
int mr_timed_model_stream(mr_timed_model *s, mr_error *err); /* a state of as many streams as the batch has rows */
void mr_timed_model_close(mr_timed_model *s);

/* Forward, loss, backward; with `update` the optimiser too. */
void mr_timed_model_step(mr_timed_model *s, int update);
/* Forward of one token of every stream, until the logits of the first `streams` are there, at most
 * MR_TIMED_STREAMS. */
void mr_timed_model_token(mr_timed_model *s, int streams);
/* The whole batch as the streams' context, from their beginning. */
void mr_timed_model_context(mr_timed_model *s);

double mr_median(double *values, int count); /* sorts them */

/* What a repetition took, in seconds. */
typedef struct mr_timing {
    double median, best;
    int runs;
} mr_timing;

/* Runs work(arg) to warm up, and then often enough for a median: at least five times and for at most a second,
 * but as judged by the last run never for more than `limit` seconds in all, down to a single time. Each run
 * ends with the device's sync. */
int mr_time(mr_dev *dev, void (*work)(void *arg), void *arg, double limit, mr_timing *out, mr_error *err);

#endif
