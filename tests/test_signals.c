/* What the command does with signals, by raising them (one that is not caught ends the test), and what the training
 * loop does with requests to save. No timing. */
#include "scratch.h"

#include "train/train.h"
#include "commands/args.h"

#include <signal.h>

static int is_default(int number)
{
    struct sigaction action;
    assert_int_equal(sigaction(number, NULL, &action), 0);
    return action.sa_handler == SIG_DFL;
}

static void the_first_signal_stops_and_the_second_ends(void **state)
{
    (void)state;
    static const int numbers[] = {SIGINT, SIGTERM};
    for (int i = 0; i < 2; i++) {
        mr_catch_signals();
        *mr_stop_flag() = 0;
        raise(numbers[i]);
        assert_int_equal(*mr_stop_flag(), numbers[i]);
        assert_true(is_default(numbers[i]));
    }
}

static void a_terminal_may_hang_up_twice(void **state)
{
    (void)state;
    signal(SIGHUP, SIG_DFL); /* whatever started the tests may ignore it */
    mr_catch_signals();
    *mr_stop_flag() = 0;
    raise(SIGHUP);
    raise(SIGHUP);
    assert_int_equal(*mr_stop_flag(), SIGHUP);
}

static void a_hangup_that_is_ignored_stays_ignored(void **state)
{
    (void)state;
    signal(SIGHUP, SIG_IGN);
    mr_catch_signals();
    *mr_stop_flag() = 0;
    raise(SIGHUP);
    assert_int_equal(*mr_stop_flag(), 0);
}

static void each_request_to_save_counts(void **state)
{
    (void)state;
    mr_catch_signals();
    *mr_stop_flag() = 0;
    const int before = *mr_save_requests();
    for (int i = 0; i < 3; i++) raise(SIGUSR1);
    assert_int_equal(*mr_save_requests(), before + 3);
    assert_int_equal(*mr_stop_flag(), 0);
}

static void a_limit_on_files_is_no_signal(void **state)
{
    (void)state;
    mr_catch_signals();
    raise(SIGXFSZ);
}

/* ---- requests in the training loop ---- */

static struct {
    mr_requests requests;
    int64_t saved[8]; /* the steps of the checkpoints that were requested */
    int count;
} asked;

static void on_step(void *user, int64_t step, int64_t tokens, double loss)
{
    (void)user, (void)tokens, (void)loss;
    if (step == 2) asked.requests += 2; /* two signals before anybody looks are one checkpoint */
    if (step == 5) asked.requests++;
}

static void on_notice(void *user, const char *line)
{
    long long step;
    (void)user;
    if (sscanf(line, "step %lld: saved as requested", &step) == 1 && asked.count < 8) asked.saved[asked.count++] = step;
}

static void a_request_is_met_once_and_after_its_step(void **state)
{
    (void)state;
    static const char *const keys[] = {"length", "8", "tokens", "2", "eval-batches", "1",   "dim",        "4",
                                       "layers", "1", "batch",  "2", "eval-every",   "100", "save-every", "100",
                                       "steps",  "9", NULL};
    const mr_train_watch watch = {.stepped = on_step, .notice = on_notice, .save_requests = &asked.requests};
    mr_context *ctx = NULL;
    mr_train_result result;
    mr_recipe recipe;
    mr_error err = {0};
    char dir[MR_TEXT_MAX];
    in_folder("run", dir);
    if (mr_context_new(NULL, &ctx, &err) || mr_recipe_load(&recipe, "selective-copy", &err)) fail_msg("%s", err.text);
    for (const char *const *key = keys; *key; key += 2)
        if (mr_recipe_set(&recipe, key[0], key[1], &err)) fail_msg("%s", err.text);
    if (mr_recipe_open(&recipe, &err)) fail_msg("%s", err.text);
    if (mr_train(&recipe, ctx, dir, 0, NULL, &watch, &result, &err)) fail_msg("%s", err.text);
    mr_recipe_free(&recipe);
    mr_context_free(ctx);
    assert_int_equal(asked.count, 2);
    assert_int_equal(asked.saved[0], 2);
    assert_int_equal(asked.saved[1], 5);
    assert_int_equal(result.step, 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_first_signal_stops_and_the_second_ends),
                                       cmocka_unit_test(a_terminal_may_hang_up_twice),
                                       cmocka_unit_test(a_hangup_that_is_ignored_stays_ignored),
                                       cmocka_unit_test(each_request_to_save_counts),
                                       cmocka_unit_test(a_limit_on_files_is_no_signal),
                                       cmocka_unit_test(a_request_is_met_once_and_after_its_step)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
