/* Schedules against their closed forms: the rate at the first, the middle and the last step, warm-up from step 0, and
 * how progress by the clock moves a schedule that decays. */
#include "api/schedule.h"
#include "minrnn_experimental.h"
#include "support.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

static mr_learn_settings settings(mr_schedule schedule, int64_t steps, int64_t warmup)
{
    mr_learn_settings set;
    mr_options_default(mr_learn_table, &set);
    set.lr = 0.25, set.schedule = schedule, set.steps = steps, set.warmup = warmup;
    return set;
}

static void expect_rate(const mr_learn_settings *set, int64_t step, double progress, double want)
{
    const double got = mr_step_values(set, step, progress).lr;
    if (!(fabs(got - want) <= 1e-15))
        fail_msg("schedule %d, step %lld of %lld, progress %g: %.17g, not %.17g", (int)set->schedule, (long long)step,
                 (long long)set->steps, progress, got, want);
}

static void constant_stays(void **unused)
{
    (void)unused;
    const mr_learn_settings set = settings(MR_SCHEDULE_CONSTANT, 100, 0);
    expect_rate(&set, 1, 0, 0.25);
    expect_rate(&set, 50, 0, 0.25);
    expect_rate(&set, 100, 0, 0.25);
    expect_rate(&set, 1000, 0, 0.25);
    expect_rate(&set, 3, 1, 0.25); /* no time limit bends what does not decay */
}

static void linear_falls_to_zero(void **unused)
{
    (void)unused;
    const mr_learn_settings set = settings(MR_SCHEDULE_LINEAR, 100, 0);
    expect_rate(&set, 1, 0, 0.25);
    expect_rate(&set, 51, 0, 0.125);
    expect_rate(&set, 100, 0, 0.0025);
    expect_rate(&set, 101, 0, 0);
    expect_rate(&set, 5000, 0, 0);
    const mr_learn_settings late = settings(MR_SCHEDULE_LINEAR, 110, 10); /* decays after the warm-up */
    expect_rate(&late, 11, 0, 0.25);
    expect_rate(&late, 61, 0, 0.125);
    expect_rate(&late, 110, 0, 0.0025);
}

static void cosine_falls_to_zero(void **unused)
{
    (void)unused;
    const mr_learn_settings set = settings(MR_SCHEDULE_COSINE, 100, 0);
    expect_rate(&set, 1, 0, 0.25);
    expect_rate(&set, 26, 0, 0.125 * (1 + sqrt(0.5)));
    expect_rate(&set, 51, 0, 0.125);
    expect_rate(&set, 100, 0, 0.125 * (1 + cos(pi * 0.99)));
    expect_rate(&set, 101, 0, 0);
    expect_rate(&set, 5000, 0, 0);
}

static void warmup_rises_from_step_0(void **unused)
{
    (void)unused;
    for (mr_schedule schedule = MR_SCHEDULE_CONSTANT; schedule <= MR_SCHEDULE_COSINE; schedule++) {
        const mr_learn_settings set = settings(schedule, 100, 8);
        expect_rate(&set, 1, 0, 0.25 / 8);
        expect_rate(&set, 4, 0, 0.125);
        expect_rate(&set, 8, 0, 0.25);
        expect_rate(&set, 9, 0, 0.25);                          /* the first step after it */
        const mr_learn_settings all = settings(schedule, 8, 8); /* nothing is left to decay */
        expect_rate(&all, 8, 0, 0.25);
        expect_rate(&all, 9, 0, 0.25);
        assert_that(mr_learning_rate(&set, 0.5), ==, 0.25 / 16); /* between steps, as progress puts it */
        assert_that(mr_learning_rate(&set, 8.5), ==, 0.25);
    }
}

/* Progress p stands for step 1 + p · steps, whatever the step. */
static void progress_moves_what_decays(void **unused)
{
    (void)unused;
    for (mr_schedule schedule = MR_SCHEDULE_LINEAR; schedule <= MR_SCHEDULE_COSINE; schedule++) {
        const mr_learn_settings set = settings(schedule, 100, 10);
        expect_rate(&set, 3, 0.05, 0.15); /* the warm-up is as short as the time */
        expect_rate(&set, 2, 0.55, 0.125);
        expect_rate(&set, 3, 1, 0);
        expect_rate(&set, 56, 0.1, 0.125); /* the later of the two counts */
        for (int step = 1; step <= 101; step++) {
            const double alone = mr_step_values(&set, step, 0).lr, before = (step - 1) / 101.0;
            if (memcmp(&alone, &(double){mr_step_values(&set, step, before).lr}, sizeof alone))
                fail_msg("step %d: progress that lags changes its rate", step);
        }
    }
}

/* An extension of a run: more steps make the same step an earlier one. */
static void more_steps_stretch(void **unused)
{
    (void)unused;
    const mr_learn_settings set = settings(MR_SCHEDULE_LINEAR, 200, 0);
    expect_rate(&set, 101, 0, 0.125);
    expect_rate(&set, 1, 0.5, 0.125);
}

static void progress_of_a_net_is_checked(void **unused)
{
    (void)unused;
    static const char *const keys[] = {"input",    "tokens", "inputs", "3",  "outputs", "3",
                                       "dim",      "4",      "layers", "1",  "lr",      "0.5",
                                       "schedule", "linear", "steps",  "10", NULL};
    mr_context *ctx;
    mr_net *net;
    mr_error err = {0};
    mr_result result = MR_RESULT;
    mr_learn_options o = MR_LEARN_OPTIONS;
    int32_t ids[4] = {0, 1, 2, 0}, target[4] = {1, 2, 0, 1};
    mr_batch batch = MR_BATCH;
    batch.B = 1, batch.T = 4, batch.ids = ids, batch.target = target;
    if (mr_context_new(NULL, &ctx, &err) || mr_net_create(ctx, keys, &net, &err)) fail_msg("%s", err.text);
    static const double wrong[] = {-0.1, 1.1, NAN, INFINITY};
    for (int i = 0; i < 4; i++) {
        o.progress = wrong[i];
        assert_int_equal(mr_net_learn(net, &batch, &o, &result, &err), MR_EINVAL);
        assert_non_null(strstr(err.text, "progress"));
    }
    o.progress = 0.5;
    if (mr_net_learn(net, &batch, &o, &result, &err)) fail_msg("%s", err.text);
    if (!(fabs(result.lr - 0.25) <= 1e-15)) fail_msg("the rate at half the time is %g, not 0.25", result.lr);
    mr_net_free(net);
    mr_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constant_stays),
        cmocka_unit_test(linear_falls_to_zero),
        cmocka_unit_test(cosine_falls_to_zero),
        cmocka_unit_test(warmup_rises_from_step_0),
        cmocka_unit_test(progress_moves_what_decays),
        cmocka_unit_test(more_steps_stretch),
        cmocka_unit_test(progress_of_a_net_is_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
