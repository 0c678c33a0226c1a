/* Looks for overfitting in the points of a log. */
#include "train/overfit.h"

#include <math.h>

/* "Clearly": by a twentieth of the best loss, and by a fiftieth of what training had gained, so that a loss near 0
 * may waver. */
static const double of_best = 0.05, of_gain = 0.02;
enum { TRAIN_STEPS = 100 }; /* training losses waver from batch to batch: means over this many steps, at most */

/* The mean training loss of the steps first … last; NaN where there is none. */
static double mean_train(const mr_curve_point *points, size_t n, int64_t first, int64_t last)
{
    double sum = 0, count = 0;
    for (size_t i = 0; i < n; i++) {
        if (points[i].step < first || points[i].step > last || !isfinite(points[i].train_loss)) continue;
        sum += points[i].train_loss;
        count++;
    }
    return sum / count;
}

mr_overfit mr_overfit_of(const mr_curve_point *points, size_t n)
{
    double first_loss = NAN;
    int64_t last_step = 0;
    mr_overfit o = {.best_loss = INFINITY};
    for (size_t i = 0; i < n; i++) {
        const mr_curve_point *p = &points[i];
        if (!isfinite(p->test_loss)) continue;
        if (isnan(first_loss)) first_loss = p->test_loss;
        if (p->test_loss < o.best_loss) o.best_loss = p->test_loss, o.best_step = p->step;
        o.last_loss = p->test_loss;
        last_step = p->step;
    }
    const double rise = o.last_loss - o.best_loss;
    const int64_t steps = last_step - o.best_step < TRAIN_STEPS ? last_step - o.best_step : TRAIN_STEPS;
    o.train_at_best = mean_train(points, n, o.best_step - steps + 1, o.best_step);
    o.train_at_end = mean_train(points, n, last_step - steps + 1, last_step);
    o.found =
        rise > of_best * o.best_loss && rise > of_gain * (first_loss - o.best_loss) && o.train_at_end < o.train_at_best;
    return o.found ? o : (mr_overfit){0};
}
