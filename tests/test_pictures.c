/* Charts and curves against pictures that somebody has looked at (tests/golden/pictures): every text the same, every
 * coordinate to a tenth of a pixel. After a change that is meant, MINRNN_GOLDEN=write writes them again: look at
 * them before you commit them. */
#include "core/mem.h"
#include "plot/chart.h"
#include "plot/curve.h"
#include "scratch.h"

#include <ctype.h>
#include <math.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

/* Compares two texts; numbers within tags are coordinates, which may be rounded differently elsewhere. */
static void expect_same_picture(const char *name, const char *got, const char *want)
{
    int line = 1, in_tag = 0;
    while (*got || *want) {
        if (in_tag && (isdigit((unsigned char)*got) || *got == '-') &&
            (isdigit((unsigned char)*want) || *want == '-')) {
            char *after_got, *after_want;
            double a = strtod(got, &after_got), b = strtod(want, &after_want);
            if (after_got != got && after_want != want) {
                if (!(fabs(a - b) <= (fabs(b) < 10 ? 0.011 : 0.11)))
                    fail_msg("%s, line %d: %.40s, where the picture has %.40s (MINRNN_GOLDEN=write if it is meant)",
                             name, line, got, want);
                got = after_got, want = after_want;
                continue;
            }
        }
        if (*got != *want)
            fail_msg("%s, line %d: \"%.40s\", where the picture has \"%.40s\" (MINRNN_GOLDEN=write if it is meant)",
                     name, line, got, want);
        if (*got == '<' || *got == '>') in_tag = *got == '<';
        line += *got == '\n';
        got++, want++;
    }
}

static void check_file(const char *name, const char *path)
{
    char golden[MR_TEXT_MAX], *got, *want;
    const char *mode = getenv("MINRNN_GOLDEN");
    size_t size;
    mr_error err = {0};
    snprintf(golden, sizeof golden, "%s/tests/golden/pictures/%s", MINRNN_SOURCE_DIR, name);
    if (mr_file_read(path, 1 << 22, &got, &size, &err)) fail_msg("%s", err.text);
    if (mode && !strcmp(mode, "write")) {
        if (mr_file_replace(golden, got, size, &err)) fail_msg("%s", err.text);
    } else {
        if (mr_file_read(golden, 1 << 22, &want, &size, &err)) fail_msg("%s", err.text);
        expect_same_picture(name, got, want);
        mr_free(want);
    }
    mr_free(got);
}

static void check_chart(const char *name, const mr_chart *chart)
{
    char path[MR_TEXT_MAX];
    mr_error err = {0};
    in_folder(name, path);
    if (mr_chart_write(path, chart, &err)) fail_msg("%s", err.text);
    check_file(name, path);
}

/* ---- charts ---- */

static void lines_of_every_style(void **state)
{
    (void)state;
    static const double T[] = {64, 128, 256, 512, 1024}, a[] = {1, 2.5, 7, 19, 60}, b[] = {0.5, 0.6, 0.9, 1.4, 2.2},
                        c[] = {3, NAN, 12, 40, 0}, spread[] = {0.2, 0.4, NAN, 3, 8};
    const mr_chart_series series[] = {
        {.name = "minGRU", .n = 5, .x = T, .y = a, .spread = spread},
        {.name = "GRU", .n = 5, .x = T, .y = c, .style = MR_CHART_DASHED},
        {.name = "minLSTM <&>", .n = 5, .x = T, .y = b, .style = MR_CHART_PLAIN, .spread = spread, .band = 1},
        {.name = "a run", .n = 4, .x = T, .y = b, .style = MR_CHART_FAINT, .colour = 2},
        {.name = "measured", .n = 5, .x = T, .y = a, .style = MR_CHART_POINTS, .colour = 5},
    };
    const mr_chart chart = {.title = "a training step, by length",
                            .x = {"tokens", MR_SCALE_LOG2, 0, 0},
                            .y = {"step (ms)", MR_SCALE_LOG10, 0, 0},
                            .series = series,
                            .count = COUNT(series)};
    check_chart("lines.svg", &chart);
}

static void two_axes_with_ends(void **state)
{
    (void)state;
    static const double x[] = {0, 100, 200, 300}, loss[] = {-0.5, 0.25, 1.25, 2}, accuracy[] = {10, 55, 80, 99.5};
    const mr_chart_series series[] = {{.name = "loss", .n = 4, .x = x, .y = loss},
                                      {.name = "accuracy", .n = 4, .x = x, .y = accuracy, .right = 1, .colour = 4}};
    const mr_chart chart = {.title = "two axes",
                            .x = {"step", MR_SCALE_LINEAR, 0, 300},
                            .y = {"loss (nats)", MR_SCALE_LINEAR, -1, 3},
                            .right = {"accuracy (%)", MR_SCALE_LINEAR, 0, 100},
                            .series = series,
                            .count = COUNT(series)};
    check_chart("two-axes.svg", &chart);
}

static void grouped_bars(void **state)
{
    (void)state;
    static const char *const groups[] = {"expert", "medium-replay", "medium"};
    static const double a[] = {10, 20, 35}, b[] = {40, NAN, 12}, c[] = {0, 5, 28}, spread[] = {1, 2, NAN};
    const mr_chart_series series[] = {{.name = "minGRU", .n = 3, .y = a, .spread = spread},
                                      {.name = "minLSTM", .n = 3, .y = b},
                                      {.name = "others", .n = 3, .y = c, .colour = 1}};
    mr_chart chart = {.title = "returns",
                      .y = {"return", MR_SCALE_LINEAR, 0, 0},
                      .series = series,
                      .count = COUNT(series),
                      .groups = groups,
                      .group_count = COUNT(groups)};
    check_chart("bars.svg", &chart);
    chart.y.scale = MR_SCALE_LOG10;
    chart.title = "the same, with a title so long that at its usual size it would not fit into the picture at all";
    check_chart("bars-log.svg", &chart);
}

static void values_of_the_paper(void **state)
{
    (void)state;
    static const char *const groups[] = {"bucket sort", "a name of two long lines", "parity", "d", "e"};
    static const double a[] = {0.95, 0.27, 0.84, 1, 0.5}, b[] = {0.99, 0.3, NAN, 1, 0.5}, spread[] = {NAN, 0.1},
                        paper[] = {0.94, 0.4, 0.79, 1, NAN}, x[] = {1000, 2500, 5000}, y[] = {2.5, 1.7, 1.5},
                        other[] = {2.2, 1.9, 1.8}, end[] = {5000}, one[] = {1.548}, two[] = {2};
    const mr_chart_series bars[] = {{.name = "minGRU", .n = 5, .y = a, .colour = 2},
                                    {.name = "paper", .n = 5, .y = paper, .style = MR_CHART_PAPER},
                                    {.name = "minLSTM", .n = 2, .y = b, .spread = spread, .colour = 3},
                                    {.name = "paper", .n = 1, .y = a, .style = MR_CHART_PAPER}};
    const mr_chart_series lines[] = {{.name = "minGRU", .n = 3, .x = x, .y = y, .colour = 2},
                                     {.name = "paper", .n = 1, .x = end, .y = one, .style = MR_CHART_PAPER},
                                     {.name = "Mamba", .n = 3, .x = x, .y = other, .colour = 6},
                                     {.name = "paper", .n = 1, .x = end, .y = two, .style = MR_CHART_PAPER}};
    mr_chart chart = {.title = "beside the paper",
                      .y = {"accuracy", MR_SCALE_LINEAR, 0, 1},
                      .series = bars,
                      .count = COUNT(bars),
                      .groups = groups,
                      .group_count = COUNT(groups)};
    check_chart("paper-bars.svg", &chart);
    chart = (mr_chart){.title = "curves beside the paper",
                       .x = {"training steps", MR_SCALE_LINEAR, 0, 5000},
                       .y = {"test loss (nats)", MR_SCALE_LINEAR, 0, 0},
                       .series = lines,
                       .count = COUNT(lines)};
    check_chart("paper-lines.svg", &chart);
}

static void many_series_and_none(void **state)
{
    (void)state;
    static const double x[] = {1, 2, 4}, y[] = {1, 3, 2};
    static const char *const names[] = {"one",   "two",   "three of some length", "four", "five",  "six of some length",
                                        "seven", "eight", "nine of some length",  "ten",  "eleven"};
    mr_chart_series series[COUNT(names)];
    double heights[COUNT(names)][3];
    for (size_t i = 0; i < COUNT(names); i++) {
        for (int k = 0; k < 3; k++) heights[i][k] = y[k] + 0.3 * (double)i;
        series[i] = (mr_chart_series){.name = names[i], .n = 3, .x = x, .y = heights[i]};
    }
    mr_chart chart = {.title = "many", .series = series, .count = COUNT(names)};
    check_chart("many.svg", &chart);
    chart.title = "(quick, not comparable with the paper) a title that is too long for one row, over many series";
    chart.count = 3;
    check_chart("long-title.svg", &chart);
    chart = (mr_chart){.title = "none"};
    check_chart("none.svg", &chart);
}

/* ---- curves ---- */

static void check_curve(const char *name, const mr_curve_point *points, size_t n, int64_t best)
{
    char path[MR_TEXT_MAX];
    mr_error err = {0};
    in_folder(name, path);
    if (mr_curve_write(path, points, n, best, name, &err)) fail_msg("%s", err.text);
    check_file(name, path);
}

static void curves(void **state)
{
    (void)state;
    enum { STEPS = 120, EVERY = 20 };
    static mr_curve_point points[STEPS + STEPS / EVERY];
    size_t n = 0;
    for (int step = 1; step <= STEPS; step++) {
        double loss = 3 / (1 + 0.1 * step) + 0.1 * ((step * 7) % 5);
        points[n++] = (mr_curve_point){.step = step, .train_loss = loss, .test_loss = NAN, .accuracy = NAN};
        if (step % EVERY) continue;
        double test = 1 + fabs((double)step - 80) / 100;
        points[n++] =
            (mr_curve_point){.step = step, .train_loss = NAN, .test_loss = test, .accuracy = 0.2 + 0.006 * step};
    }
    check_curve("curve.svg", points, n, 80);
    check_curve("curve-no-best.svg", points, n, 0);
    for (size_t i = 0; i < n; i++) points[i].accuracy = NAN;
    for (size_t i = 0; i < n; i++) points[i].train_loss = exp(-0.1 * (double)points[i].step);
    check_curve("curve-log.svg", points, n, 60);
    check_curve("curve-empty.svg", points, 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_of_every_style), cmocka_unit_test(two_axes_with_ends),   cmocka_unit_test(grouped_bars),
        cmocka_unit_test(values_of_the_paper),  cmocka_unit_test(many_series_and_none), cmocka_unit_test(curves),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
