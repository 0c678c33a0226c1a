/* The time of a run: what --max-seconds covers, what a resumed run continues with, how far a schedule has come. */
#include "train/run_clock.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-12)) fail_msg("%.15g, not %.15g", got, want);
}

static void without_a_limit(void **unused)
{
    (void)unused;
    mr_run_clock c = {.began = 1000, .before = 7, .eval_seconds = 1e9};
    mr_run_clock_ready(&c, 1003);
    near(mr_run_seconds(&c, 1010), 17);
    near(mr_run_progress(&c, 1e12), 0);
    assert_true(isinf(mr_run_deadline(&c)));
    assert_int_equal(mr_run_time_is_up(&c, 1e12), 0);
}

/* Reading the data is no progress of the schedule, though it counts against the limit. */
static void progress_begins_with_the_first_step(void **unused)
{
    (void)unused;
    mr_run_clock c = {.limit = 20, .began = 100};
    mr_run_clock_ready(&c, 104);
    near(mr_run_deadline(&c), 120);
    near(mr_run_progress(&c, 104), 0);
    near(mr_run_progress(&c, 108), 0.25);
    near(mr_run_progress(&c, 112), 0.5);
    near(mr_run_progress(&c, 120), 1);
    near(mr_run_progress(&c, 500), 1);
}

/* Training ends, and the schedule with it, while there is time for the last evaluation and checkpoint. */
static void the_last_evaluation_is_within_the_limit(void **unused)
{
    (void)unused;
    mr_run_clock c = {.limit = 20, .began = 100};
    mr_run_clock_ready(&c, 104);
    c.eval_seconds = 5, c.save_seconds = 1, c.step_seconds = 0.5;
    near(mr_run_progress(&c, 109), 5.0 / 13); /* of 16 seconds 6 are kept, and half of that counts half-way */
    near(mr_run_progress(&c, 113.9999999999999), 1);
    near(mr_run_progress(&c, 114), 1);
    assert_int_equal(mr_run_time_is_up(&c, 113.4), 0);
    assert_int_equal(mr_run_time_is_up(&c, 113.5), 1);
    c.eval_seconds = 100; /* more than there is: the run ends at once */
    near(mr_run_progress(&c, 105), 1);
    assert_int_equal(mr_run_time_is_up(&c, 105), 1);
}

/* A run that was stopped after 8 of 20 seconds, 4 of them setup, has 12 left when it is resumed, and its schedule
 * continues where it was. */
static void a_resumed_run_continues(void **unused)
{
    (void)unused;
    mr_run_clock first = {.limit = 20, .began = 100};
    mr_run_clock_ready(&first, 104);
    near(mr_run_progress(&first, 108), 0.25);
    mr_run_clock c = {.limit = 20, .began = 5000, .before = mr_run_seconds(&first, 108), .setup = first.setup};
    mr_run_clock_ready(&c, 5002);
    near(mr_run_seconds(&c, 5002), 10);
    near(mr_run_deadline(&c), 5012);
    near(mr_run_progress(&c, 5002), 4.0 / 14);
    near(mr_run_progress(&c, 5012), 1);
    c.limit = 34; /* a longer limit stretches the schedule, as more steps do */
    near(mr_run_progress(&c, 5012), 0.5);
    assert_int_equal(mr_run_time_is_up(&c, 5012), 0);
    c.limit = 8; /* and what is used up ends it */
    assert_int_equal(mr_run_time_is_up(&c, 5002), 1);
    near(mr_run_progress(&c, 5002), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_limit),
        cmocka_unit_test(progress_begins_with_the_first_step),
        cmocka_unit_test(the_last_evaluation_is_within_the_limit),
        cmocka_unit_test(a_resumed_run_continues),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
