/* What the command does with signals, by raising them: no timing, and a signal that is not caught ends the test. */
#include "scratch.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_signal_stops_and_the_second_ends), cmocka_unit_test(a_terminal_may_hang_up_twice),
        cmocka_unit_test(a_hangup_that_is_ignored_stays_ignored), cmocka_unit_test(each_request_to_save_counts),
        cmocka_unit_test(a_limit_on_files_is_no_signal)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
