/* The hint about overfitting: given where the test loss rises while the training loss falls, and nowhere else. */
#include "train/overfit.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { STEPS = 400, EVERY = 40, POINTS = STEPS + STEPS / EVERY };

/* The log of a run whose training loss goes from `train` straight to `train_end`, and whose test loss falls from
 * `first` to `best` at the middle and then goes to `last`. */
static mr_overfit run(double train, double train_end, double first, double best, double last)
{
    mr_curve_point points[POINTS];
    size_t n = 0;
    for (int step = 1; step <= STEPS; step++) {
        const double share = (double)step / STEPS;
        points[n++] = (mr_curve_point){step, train + share * (train_end - train), NAN, NAN};
        if (step % EVERY) continue;
        const double test = share <= 0.5 ? first + 2 * share * (best - first) : best + (2 * share - 1) * (last - best);
        points[n++] = (mr_curve_point){step, NAN, test, NAN};
    }
    return mr_overfit_of(points, n);
}

static void found_where_it_is(void **unused)
{
    (void)unused;
    const mr_overfit o = run(3.5, 0.3, 3.5, 2.24, 3.6);
    assert_int_equal(o.found, 1);
    assert_int_equal(o.best_step, STEPS / 2);
    assert_true(fabs(o.best_loss - 2.24) < 1e-12);
    assert_true(fabs(o.last_loss - 3.6) < 1e-12);
    assert_true(o.train_at_end < o.train_at_best);
    assert_true(fabs(o.train_at_end - (0.3 + 3.2 * 49.5 / STEPS)) < 1e-9); /* the mean of the last 100 steps */
    assert_int_equal(run(3, 1, 2, 1.99, 2.1).found, 1);
}

static void not_found_elsewhere(void **unused)
{
    (void)unused;
    assert_int_equal(run(3.5, 1, 3.5, 2, 1.5).found, 0);       /* still falling */
    assert_int_equal(run(3.5, 1, 3.5, 2, 2).found, 0);         /* flat */
    assert_int_equal(run(3.5, 1, 3.5, 2, 2.05).found, 0);      /* hardly risen */
    assert_int_equal(run(3.5, 4, 3.5, 2, 3).found, 0);         /* both rise: it diverges */
    assert_int_equal(run(2.7, 0, 2.7, 0.001, 0.004).found, 0); /* solved, and wavers near 0 */
    assert_int_equal(run(NAN, NAN, 3.5, 2, 3).found, 0);
    assert_int_equal(run(3.5, 1, NAN, NAN, NAN).found, 0);
    assert_int_equal(mr_overfit_of(NULL, 0).found, 0);
    const mr_curve_point one[] = {{1, 2, NAN, NAN}, {1, NAN, 2, NAN}};
    assert_int_equal(mr_overfit_of(one, 2).found, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(found_where_it_is), cmocka_unit_test(not_found_elsewhere)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
