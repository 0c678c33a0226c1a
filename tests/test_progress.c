/* The progress line: its contents, that it fits, and that it does not flicker or jump. */
#include "assert_that.h"
#include "train/progress.h"
#include "core/strbuf.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static mr_progress half_way(void)
{
    mr_progress p;
    mr_progress_start(&p, 0, 2000, INFINITY, 100);
    p.utf8 = 0;
    for (int step = 1; step <= 1000; step++) mr_progress_step(&p, step, 4096, 1.23456, 100 + step * 0.1);
    mr_progress_eval(&p, 1.5, 0.9996);
    return p;
}

static size_t utf8_columns(const char *s)
{
    size_t n = 0;
    for (; *s; s++) n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

static void a_plain_line_says_everything(void **unused)
{
    (void)unused;
    char line[MR_PROGRESS_MAX];
    mr_progress p = half_way();
    size_t bytes = mr_progress_format(line, sizeof line, &p, 0);
    assert_string_equal(line, "step 1000/2000  loss 1.235  test loss 1.5  accuracy 99.9 %  41k tokens/s  1:40 left");
    assert_int_equal(bytes, strlen(line));
}

static void unknown_numbers_are_left_out(void **unused)
{
    (void)unused;
    char line[MR_PROGRESS_MAX];
    mr_progress p;
    mr_progress_start(&p, 0, 50, INFINITY, 7);
    assert_true(isnan(mr_progress_seconds_left(&p)));
    mr_progress_format(line, sizeof line, &p, 0);
    assert_string_equal(line, "step  0/50");
    p.loss = INFINITY;
    mr_progress_format(line, sizeof line, &p, 0);
    assert_string_equal(line, "step  0/50");
}

static void a_line_fits_every_width(void **unused)
{
    (void)unused;
    for (int utf8 = 0; utf8 <= 1; utf8++)
        for (int width = 1; width <= 300; width++) {
            char line[MR_PROGRESS_MAX];
            mr_progress p = half_way();
            p.utf8 = utf8;
            size_t bytes = mr_progress_format(line, sizeof line, &p, width);
            assert_int_equal(bytes, strlen(line));
            assert_that(utf8_columns(line), <=, (size_t)width - 1);
            if (width >= 20) assert_non_null(strstr(line, "step 1000/2000"));
            if (width >= 60) assert_non_null(strstr(line, "left"));
        }
}

static void the_bar_shows_the_share(void **unused)
{
    (void)unused;
    char line[MR_PROGRESS_MAX];
    mr_progress p = half_way();
    mr_progress_format(line, sizeof line, &p, 200);
    assert_non_null(strstr(line, "[####################--------------------]"));
    p.utf8 = 1;
    p.step = 1025; /* 20 cells and a half */
    mr_progress_format(line, sizeof line, &p, 200);
    assert_non_null(strstr(line, "▕████████████████████▌                   ▏"));
    p.step = p.steps = 0;
    mr_progress_format(line, sizeof line, &p, 200);
    assert_null(strstr(line, "█"));
}

static void short_buffer_is_not_overrun(void **unused)
{
    (void)unused;
    char line[12];
    mr_progress p = half_way();
    memset(line, 'x', sizeof line);
    assert_int_equal(mr_progress_format(line, 8, &p, 0), 7);
    assert_string_equal(line, "step 10");
    assert_int_equal(line[8], 'x');
}

static void time_left_is_smooth(void **unused)
{
    (void)unused;
    mr_progress p;
    mr_progress_start(&p, 500, 2000, INFINITY, 0); /* resumed: the 500 steps before cost this process nothing */
    double now = 0;
    for (int step = 501; step <= 1000; step++) mr_progress_step(&p, step, 10, 1, now += 0.1);
    double before = mr_progress_seconds_left(&p);
    if (!(fabs(before - 100) <= 0.01)) fail_msg("%g s left, 100 expected", before);
    mr_progress_step(&p, 1001, 10, 1, now += 1.0); /* one slow step */
    double after = mr_progress_seconds_left(&p);
    if (!(after > before && after < 2 * before)) fail_msg("one slow step moves it from %g to %g", before, after);
    for (int step = 1002; step <= 1800; step++) mr_progress_step(&p, step, 10, 1, now += 0.2);
    after = mr_progress_seconds_left(&p);
    if (!(fabs(after - 40) <= 2)) fail_msg("%g s left at the new pace, 40 expected", after);
    /* an evaluation as long as all that came before it: minutes, not days */
    mr_progress_start(&p, 0, 20000, INFINITY, now = 0);
    for (int step = 1; step <= 2000; step++) mr_progress_step(&p, step, 10, 1, now += 0.01);
    mr_progress_step(&p, 2001, 10, 1, now += 20);
    after = mr_progress_seconds_left(&p);
    if (!(after > 180 && after < 10 * 180)) fail_msg("%g s left after a long evaluation, 360 expected", after);
}

static void the_deadline_limits_the_time_left(void **unused)
{
    (void)unused;
    mr_progress p;
    mr_progress_start(&p, 0, 1000000, 1060, 1000);
    mr_progress_step(&p, 1, 10, 1, 1020);
    double left = mr_progress_seconds_left(&p);
    if (!(fabs(left - 40) <= 1e-9)) fail_msg("%g s left, 40 expected", left);
    mr_progress_step(&p, 2, 10, 1, 1090);
    assert_that(mr_progress_seconds_left(&p), ==, 0);
}

static void drawn_ten_times_a_second(void **unused)
{
    (void)unused;
    mr_progress p;
    mr_progress_start(&p, 0, 10, INFINITY, 0);
    int lines = 0;
    for (int ms = 0; ms < 10000; ms++) lines += mr_progress_due(&p, 0.1, ms / 1000.0);
    assert_in_range(lines, 95, 100);
}

static void the_locale_says_whether_it_is_utf8(void **unused)
{
    (void)unused;
    static const struct {
        const char *all, *ctype, *lang;
        int utf8;
    } cases[] = {
        {NULL, NULL, NULL, 0},
        {NULL, NULL, "de_DE.UTF-8", 1},
        {NULL, NULL, "C.utf8", 1},
        {"C", "C.UTF-8", "C.UTF-8", 0},
        {"", "en_GB.UTF-8", "C", 1},
        {NULL, "POSIX", "C.UTF-8", 0},
        {NULL, NULL, "de_DE.ISO-8859-1", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const value[] = {cases[i].all, cases[i].ctype, cases[i].lang}, *const name[] = {"LC_ALL",
                                                                                                    "LC_CTYPE", "LANG"};
        for (int k = 0; k < 3; k++) {
            if (value[k]) setenv(name[k], value[k], 1);
            else unsetenv(name[k]);
        }
        assert_int_equal(mr_locale_is_utf8(), cases[i].utf8);
    }
}

static void counts_are_rounded_for_people(void **unused)
{
    (void)unused;
    static const struct {
        double value;
        int digits;
        const char *text;
    } cases[] = {
        {0, 3, "0"},         {12.34, 3, "12.3"}, {950, 3, "950"},      {999.4, 3, "999"},     {999.6, 3, "1k"},
        {12345, 3, "12.3k"}, {999600, 3, "1M"},  {1.05e6, 3, "1.05M"}, {102500, 4, "102.5k"}, {2e10, 3, "20G"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[MR_REAL_MAX];
        assert_string_equal(mr_count_print(out, cases[i].value, cases[i].digits), cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plain_line_says_everything),
        cmocka_unit_test(unknown_numbers_are_left_out),
        cmocka_unit_test(a_line_fits_every_width),
        cmocka_unit_test(the_bar_shows_the_share),
        cmocka_unit_test(short_buffer_is_not_overrun),
        cmocka_unit_test(time_left_is_smooth),
        cmocka_unit_test(the_deadline_limits_the_time_left),
        cmocka_unit_test(drawn_ten_times_a_second),
        cmocka_unit_test(the_locale_says_whether_it_is_utf8),
        cmocka_unit_test(counts_are_rounded_for_people),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
