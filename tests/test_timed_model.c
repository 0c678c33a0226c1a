/* The basis of measurements: the timer, and a device that counts its memory. */
#include "bench/timed_model.h"
#include "support.h"

#include <time.h>

static void the_median_is_the_middle_time(void **unused)
{
    (void)unused;
    assert_true(mr_median((double[]){3, 1, 2}, 3) == 2);
    assert_true(mr_median((double[]){7}, 1) == 7);
    assert_true(mr_median((double[]){5, 1, 9, 3, 100}, 5) == 5);
}

typedef struct counter {
    int calls, milliseconds;
} counter;

static void work(void *arg)
{
    counter *c = arg;
    struct timespec pause = {0, c->milliseconds * 1000000L};
    c->calls++;
    if (c->milliseconds) nanosleep(&pause, NULL);
}

/* Short work is repeated, long work is not; the first run never counts. */
static void repetitions_follow_the_limit(void **unused)
{
    (void)unused;
    mr_dev *dev = open_device("cpu", 1, NULL);
    mr_error err = {0};
    mr_timing timing;
    counter quick = {0, 0}, middle = {0, 20}, slow = {0, 60};
    assert_int_equal(mr_time(dev, work, &quick, 10, &timing, &err), 0);
    assert_that(timing.runs, ==, 201);
    assert_that(quick.calls, ==, 204);
    assert_that(timing.best, >=, 0);
    assert_that(timing.median, >=, timing.best);
    assert_that(timing.median, <, 0.1);
    assert_int_equal(mr_time(dev, work, &slow, 0.05, &timing, &err), 0);
    assert_that(timing.runs, ==, 1);
    assert_that(slow.calls, ==, 2);
    assert_that(timing.median, >=, 0.06);
    assert_int_equal(mr_time(dev, work, &middle, 0.2, &timing, &err), 0);
    assert_that(timing.runs, >=, 1);
    assert_that(timing.runs, <, 10);
    assert_that(timing.best, >=, 0.02);
    mr_dev_close(dev);
}

static int broken_sync(mr_dev *dev, mr_error *err)
{
    (void)dev;
    return mr_fail(err, MR_ENOMEM, "broken");
}

static void errors_of_the_device_are_told(void **unused)
{
    (void)unused;
    mr_dev *dev = open_device("cpu", 1, NULL);
    mr_error err = {0};
    mr_timing timing;
    counter c = {0, 0};
    dev->sync = broken_sync;
    assert_int_equal(mr_time(dev, work, &c, 1, &timing, &err), MR_ENOMEM);
    assert_int_equal(timing.runs, 0);
    mr_dev_close(dev);
}

/* At least the plan and the four vectors, more for scratch, and nothing more for a second step. */
static void devices_know_what_they_took(void **unused)
{
    (void)unused;
    static const char *const kinds[] = {"cpu", "ref"};
    for (int k = 0; k < COUNT(kinds); k++)
        for (int mixer = 0; mr_mixer_names[mixer]; mixer++) {
            mr_dev *dev = open_device(kinds[k], 2, NULL);
            mr_timed_model s;
            mr_error err = {0};
            mr_timed_shape shape = mr_timed_paper_shape(mixer);
            shape.dim = 8;
            assert_that(dev->taken, ==, 0);
            if (mr_timed_model_open(&s, dev, &shape, 2, 5, 1, &err)) fail_msg("%s", err.text);
            const size_t least = mr_model_planned_bytes(s.model) + 4 * mr_model_params(s.model)->total * dev->real_size;
            assert_that(dev->taken, ==, least);
            mr_timed_model_step(&s, 0);
            const size_t after = dev->taken;
            assert_that(after, >=, least);
            assert_true((k == 1 || after > least));
            mr_timed_model_step(&s, 0);
            assert_that(dev->taken, ==, after);
            mr_timed_model_close(&s);
            mr_dev_close(dev);
        }
}

/* A stream continues where its context ended. */
static void tokens_follow_the_context(void **unused)
{
    (void)unused;
    mr_dev *dev = open_device("ref", 1, NULL);
    mr_error err = {0};
    for (int mixer = 0; mr_mixer_names[mixer]; mixer++) {
        mr_timed_model once, then;
        mr_timed_shape shape = mr_timed_paper_shape(mixer);
        float a[3 * 16], b[3 * 16];
        shape.dim = 8;
        shape.window = 8;
        if (mr_timed_model_open(&once, dev, &shape, 3, 4, 0, &err) || mr_timed_model_stream(&once, &err))
            fail_msg("%s", err.text);
        if (mr_timed_model_open(&then, dev, &shape, 3, 4, 0, &err) || mr_timed_model_stream(&then, &err))
            fail_msg("%s", err.text);
        for (int i = 0; i < 3 * 4; i++) once.batch.ids[i] = then.batch.ids[i] = 5;
        mr_timed_model_context(&once);
        mr_timed_model_context(&once); /* from the beginning again */
        mr_timed_model_token(&once, 3);
        mr_state_reset(then.state);
        for (int t = 0; t < 5; t++) mr_timed_model_token(&then, 3);
        mr_model_logits(once.model, a, 0, 3);
        mr_model_logits(then.model, b, 0, 3);
        for (int i = 0; i < 3 * 16; i++)
            if (!(fabsf(a[i] - b[i]) <= 1e-4f)) fail_msg("%s: %g is not %g", mr_mixer_names[mixer], a[i], b[i]);
        mr_timed_model_close(&once);
        mr_timed_model_close(&then);
    }
    mr_dev_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_median_is_the_middle_time), cmocka_unit_test(repetitions_follow_the_limit),
        cmocka_unit_test(errors_of_the_device_are_told), cmocka_unit_test(devices_know_what_they_took),
        cmocka_unit_test(tokens_follow_the_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
