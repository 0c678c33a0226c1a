/* Does a run overfit: has its test loss risen clearly above its best while the training loss fell? */
#ifndef MR_APP_TRAIN_OVERFIT_H
#define MR_APP_TRAIN_OVERFIT_H

#include "plot/curve.h"

typedef struct mr_overfit {
    int found;                          /* 0: no, and the rest is 0 */
    int64_t best_step;                  /* of the lowest test loss */
    double best_loss, last_loss;        /* on the test set */
    double train_at_best, train_at_end; /* means over some steps up to there */
} mr_overfit;

/* Of the points of a log, in the order of their steps. */
mr_overfit mr_overfit_of(const mr_curve_point *points, size_t n);

#endif
