/* The learning curve as a picture: loss and accuracy against steps, one SVG file. */
#ifndef MR_APP_PLOT_CURVE_H
#define MR_APP_PLOT_CURVE_H

#include "core/status.h"

#include <stddef.h>
#include <stdint.h>

/* NaN where there is nothing to show; accuracy in 0 … 1. */
typedef struct mr_curve_point {
    int64_t step;
    double train_loss, test_loss, accuracy;
} mr_curve_point;

/* Replaces the file in one step. Any n, 0 included, gives a valid picture; points that are not finite are left out. The
 * test loss of best_step is marked; 0: nothing is. The title is any text. */
int mr_curve_write(const char *path, const mr_curve_point *points, size_t n, int64_t best_step, const char *title,
                   mr_error *err);

#endif
