/* The learning curve: valid XML for any input, and a picture that says what the points say. */
#include "core/mem.h"
#include "run/curve.h"
#include "scratch.h"

#include <math.h>

static char path[MR_TEXT_MAX];

static int choose_path(void **state)
{
    int status = make_folder(state);
    in_folder("curve.svg", path);
    return status;
}

/* The text of the picture; freed by mr_free. */
static char *picture(const mr_curve_point *points, size_t n, const char *title)
{
    char *svg;
    size_t size;
    mr_error err = {0};
    if (mr_curve_write(path, points, n, title, &err)) fail_msg("%s", err.text);
    if (mr_file_read(path, 10000000, &svg, &size, &err)) fail_msg("%s", err.text);
    assert_int_equal(strlen(svg), size);
    assert_null(strstr(svg, "nan"));
    assert_null(strstr(svg, "inf"));
    return svg;
}

static int has_python(void) { return system("python3 -c 'import xml.dom.minidom' 2>/dev/null") == 0; }

/* An independent reader must take it, and find the title. */
static void expect_valid(const char *title)
{
    char command[MR_TEXT_MAX + 512];
    snprintf(command, sizeof command,
             "python3 -c 'import sys, xml.dom.minidom as x; d = x.parse(sys.argv[1]); "
             "t = d.getElementsByTagName(\"title\")[0].firstChild; "
             "sys.exit(not (d.documentElement.tagName == \"svg\" and (t.data if t else \"\") == sys.stdin.read()))' %s", path);
    FILE *pipe = popen(command, "w");
    assert_non_null(pipe);
    fputs(title, pipe);
    assert_int_equal(pclose(pipe), 0);
}

/* Where a series' line ends, in pixels; returns the number of its points. */
static size_t line_points(const char *svg, const char *class, double *first_y, double *last_y)
{
    char opening[64];
    size_t n = 0;
    snprintf(opening, sizeof opening, "<polyline class=\"%s\" points=\"", class);
    const char *at = strstr(svg, opening);
    if (!at) return 0;
    at += strlen(opening);
    for (double x, y; *at != '"'; n++) {
        int used = 0;
        assert_int_equal(sscanf(at, "%lf,%lf%n", &x, &y, &used), 2);
        at += used + strspn(at + used, " ");
        assert_true(x >= 0 && x <= 800 && y >= 0 && y <= 480);
        if (!n && first_y) *first_y = y;
        if (last_y) *last_y = y;
    }
    return n;
}

static void any_title_is_valid(void **unused)
{
    (void)unused;
    if (!has_python()) {
        print_message("no python3 here to read the XML\n");
        skip();
    }
    static const struct { const char *given, *read; } titles[] = {
        {"plain", "plain"}, {"", ""}, {"a < b && c > \"d\" 'e' ]]> <!-- <script>", "a < b && c > \"d\" 'e' ]]> <!-- <script>"},
        {"naïve — 日本語 🙂", "naïve — 日本語 🙂"}, {"bell\a and \x1b[1mescape\n", "bell  and  [1mescape "},
        {"broken \xff\xc3( \xed\xa0\x80", "broken ��( ���"}, {"not a character: \xef\xbf\xbf", "not a character:  "},
    };
    for (size_t i = 0; i < sizeof titles / sizeof *titles; i++) {
        mr_free(picture(NULL, 0, titles[i].given));
        expect_valid(titles[i].read);
    }
}

static void any_points_are_valid(void **unused)
{
    (void)unused;
    static const mr_curve_point odd[] = {
        {0, 1, 1, 1},          {1, NAN, NAN, NAN},     {2, INFINITY, -INFINITY, INFINITY}, {-5, 3, 3, 3},
        {3, 0, 0, 0},          {4, 1e308, -1e308, 2},  {5, 1e-320, 1e-300, -1},            {INT64_MAX, 2, 2, 0.5},
        {7, 1e299, 2, 0.5},    {8, -1e299, 2, 0.5},
    };
    enum { ODD = sizeof odd / sizeof *odd };
    int python = has_python();
    for (size_t first = 0; first < ODD; first++)
        for (size_t n = 0; n <= ODD - first; n++) {
            mr_free(picture(odd + first, n, "odd"));
            if (python && (n <= 1 || n == ODD - first)) expect_valid("odd");
        }
}

static void lines_follow_the_points(void **unused)
{
    (void)unused;
    mr_curve_point points[20];
    for (int i = 0; i < 20; i++) points[i] = (mr_curve_point){i * 10, NAN, 4 - 0.1 * i, i / 19.0};
    char *svg = picture(points, 20, "t");
    double first, last;
    assert_int_equal(line_points(svg, "test", &first, &last), 20);
    assert_true(last > first); /* a falling loss falls: y grows downwards */
    assert_int_equal(line_points(svg, "accuracy", &first, &last), 20);
    assert_true(first == 422 && last == 78); /* 0 % on the floor, 100 % at the top */
    assert_int_equal(line_points(svg, "train", NULL, NULL), 0);
    assert_non_null(strstr(svg, "test loss 2.1<"));
    assert_non_null(strstr(svg, "accuracy 100 %<"));
    assert_non_null(strstr(svg, "accuracy (%)"));
    assert_null(strstr(svg, "log scale"));
    assert_non_null(strstr(svg, "prefers-color-scheme: dark"));
    mr_free(svg);
    for (int i = 0; i < 20; i++) points[i].accuracy = NAN;
    svg = picture(points, 20, "t");
    assert_null(strstr(svg, "accuracy (%)"));
    mr_free(svg);
}

static void log_scale_beyond_two_decades(void **unused)
{
    (void)unused;
    double least[] = {0.02, 0.005, 0};
    for (int i = 0; i < 3; i++) {
        mr_curve_point points[] = {{1, NAN, 1, NAN}, {2, NAN, 0.1, NAN}, {3, NAN, 0.002 + least[0], NAN}, {4, NAN, least[i], NAN}, {5, NAN, 0.005, NAN}};
        char *svg = picture(points, i ? 5 : 4, "t");
        assert_int_equal(strstr(svg, "log scale") != NULL, i > 0);
        mr_free(svg);
    }
    mr_curve_point negative[] = {{1, NAN, 1, NAN}, {2, NAN, -0.001, NAN}, {3, NAN, 0.001, NAN}};
    char *svg = picture(negative, 3, "t");
    assert_null(strstr(svg, "log scale"));
    mr_free(svg);
}

static void many_points_are_binned_and_smoothed(void **unused)
{
    (void)unused;
    enum { N = 200000 };
    mr_curve_point *points = mr_alloc(N, sizeof *points);
    assert_non_null(points);
    for (int i = 0; i < N; i++) points[i] = (mr_curve_point){i + 1, i % 2 ? 3 : 1, NAN, NAN};
    char *svg = picture(points, N, "t");
    double first, last;
    assert_in_range(line_points(svg, "train", &first, &last), 500, 1000);
    assert_in_range(line_points(svg, "raw", NULL, NULL), 500, 1000);
    assert_true(fabs(first - last) < 5); /* the mean, not the zigzag of 1 and 3 */
    assert_true(strlen(svg) < 100000);
    mr_free(svg);
    mr_free(points);
}

static void unwritable_place_is_an_error(void **unused)
{
    (void)unused;
    mr_error err = {0};
    assert_int_equal(mr_curve_write("/nonexistent/curve.svg", NULL, 0, "t", &err), MR_EIO);
    assert_says(&err, "/nonexistent");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_title_is_valid),
        cmocka_unit_test(any_points_are_valid),
        cmocka_unit_test(lines_follow_the_points),
        cmocka_unit_test(log_scale_beyond_two_decades),
        cmocka_unit_test(many_points_are_binned_and_smoothed),
        cmocka_unit_test(unwritable_place_is_an_error),
    };
    return cmocka_run_group_tests(tests, choose_path, remove_folder);
}
