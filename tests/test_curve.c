/* The learning curve: valid XML for any input, and lines that match the points. */
#include "core/mem.h"
#include "plot/curve.h"
#include "scratch.h"
#include "skip_because.h"

#include <math.h>

/* The text of the picture; freed by mr_free. */
static char *picture_as(const char *name, const mr_curve_point *points, size_t n, const char *title)
{
    char *svg, path[MR_TEXT_MAX];
    size_t size;
    mr_error err = {0};
    in_folder(name, path);
    if (mr_curve_write(path, points, n, 0, title, &err)) fail_msg("%s", err.text);
    if (mr_file_read(path, 10000000, &svg, &size, &err)) fail_msg("%s", err.text);
    assert_int_equal(strlen(svg), size);
    assert_null(strstr(svg, "nan"));
    assert_null(strstr(svg, "inf"));
    return svg;
}

static char *picture(const mr_curve_point *points, size_t n, const char *title)
{
    return picture_as("curve.svg", points, n, title);
}

/* An independent parser reads every picture in the folder and must find its title, which is in NAME.svg.title
 * where there is such a file. */
static void expect_valid_pictures(int count)
{
    char command[MR_TEXT_MAX];
    if (system("python3 -c 'import xml.dom.minidom' 2>/dev/null")) {
        skip_because("no python3 here to read the XML");
    }
    snprintf(command, sizeof command,
             "python3 -c '\n"
             "import glob, os, sys, xml.dom.minidom\n"
             "files = glob.glob(sys.argv[1] + \"/*.svg\")\n"
             "for file in files:\n"
             "    svg = xml.dom.minidom.parse(file).documentElement\n"
             "    title = svg.getElementsByTagName(\"title\")[0].firstChild\n"
             "    told = file + \".title\"\n"
             "    want = open(told, encoding=\"utf-8\").read() if os.path.exists(told) else \"odd\"\n"
             "    assert svg.tagName == \"svg\" and (title.data if title else \"\") == want, file\n"
             "assert len(files) == %d, files\n' %s",
             count, folder);
    assert_int_equal(system(command), 0);
    snprintf(command, sizeof command, "rm %s/*", folder);
    assert_int_equal(system(command), 0);
}

/* How a chart marks the lines of a curve. */
#define RAW "<g class=\"c1\">\n<polyline class=\"line faint\" points=\""
#define TRAIN "<g class=\"c1\">\n<polyline class=\"line plain\" points=\""
#define TEST "<g class=\"c2\">\n<polyline class=\"line\" points=\""
#define ACCURACY "<g class=\"c3\">\n<polyline class=\"line\" points=\""

/* Where a series' line ends, in pixels; returns the number of its points. */
static size_t line_points(const char *svg, const char *opening, double *first_y, double *last_y)
{
    size_t n = 0;
    const char *at = strstr(svg, opening);
    if (!at) return 0;
    at += strlen(opening);
    for (double x, y; *at != '"'; n++) {
        int used = 0;
        assert_int_equal(sscanf(at, "%lf,%lf%n", &x, &y, &used), 2);
        at += used + strspn(at + used, " ");
        assert_that(x, >=, 0);
        assert_that(x, <=, 800);
        assert_that(y, >=, 0);
        assert_that(y, <=, 480);
        if (!n && first_y) *first_y = y;
        if (last_y) *last_y = y;
    }
    return n;
}

static void any_title_is_valid(void **unused)
{
    (void)unused;
    static const struct {
        const char *given, *read;
    } titles[] = {
        {"plain", "plain"},
        {"", ""},
        {"a < b && c > \"d\" 'e' ]]> <!-- <script>", "a < b && c > \"d\" 'e' ]]> <!-- <script>"},
        {"naïve — 日本語 🙂", "naïve — 日本語 🙂"},
        {"bell\a and \x1b[1mescape\n", "bell  and  [1mescape "},
        {"broken \xff\xc3( \xed\xa0\x80", "broken ��( ���"},
        {"not a character: \xef\xbf\xbf", "not a character:  "},
    };
    enum { TITLES = sizeof titles / sizeof *titles };
    for (int i = 0; i < TITLES; i++) {
        char name[32], path[MR_TEXT_MAX];
        snprintf(name, sizeof name, "%d.svg", i);
        mr_free(picture_as(name, NULL, 0, titles[i].given));
        snprintf(name, sizeof name, "%d.svg.title", i);
        write_file(name, titles[i].read, strlen(titles[i].read), path);
    }
    expect_valid_pictures(TITLES);
}

static void any_points_are_valid(void **unused)
{
    (void)unused;
    static const mr_curve_point odd[] = {
        {0, 1, 1, 1},
        {1, NAN, NAN, NAN},
        {2, INFINITY, -INFINITY, INFINITY},
        {-5, 3, 3, 3},
        {3, 0, 0, 0},
        {4, 1e308, -1e308, 2},
        {5, 1e-320, 1e-300, -1},
        {INT64_MAX, 2, 2, 0.5},
        {7, 1e149, 2, 0.5},
        {8, -1e149, 2, 0.5},
    };
    enum { ODD = sizeof odd / sizeof *odd };
    int count = 0;
    for (size_t first = 0; first < ODD; first++)
        for (size_t n = 0; n <= ODD - first; n += n < 2 ? 1 : 3) {
            char name[32];
            snprintf(name, sizeof name, "%d.svg", count++);
            mr_free(picture_as(name, odd + first, n, "odd"));
        }
    expect_valid_pictures(count);
}

static void lines_follow_the_points(void **unused)
{
    (void)unused;
    mr_curve_point points[20];
    for (int i = 0; i < 20; i++) points[i] = (mr_curve_point){i * 10, NAN, 4 - 0.1 * i, i / 19.0};
    char *svg = picture(points, 20, "t");
    double first, last;
    assert_int_equal(line_points(svg, TEST, &first, &last), 20);
    assert_that(last, >, first); /* a falling loss falls: y grows downwards */
    assert_int_equal(line_points(svg, ACCURACY, &first, &last), 20);
    /* 0 % at the bottom, 100 % at the top */
    assert_that(first, ==, 422);
    assert_that(last, ==, 78);
    assert_int_equal(line_points(svg, TRAIN, NULL, NULL), 0);
    assert_non_null(strstr(svg, "test loss 2.1<"));
    assert_non_null(strstr(svg, "accuracy 100 %<"));
    assert_non_null(strstr(svg, "accuracy (%)"));
    assert_null(strstr(svg, "log scale"));
    assert_null(strstr(svg, ">-0<"));
    assert_non_null(strstr(svg, "prefers-color-scheme: dark"));
    mr_free(svg);
    for (int i = 0; i < 20; i++) points[i].accuracy = NAN;
    svg = picture(points, 20, "t");
    assert_null(strstr(svg, "accuracy (%)"));
    mr_free(svg);
}

/* A run that was evaluated before its first step begins at the left. */
static void step_0_is_at_the_left(void **unused)
{
    (void)unused;
    const mr_curve_point points[] = {{0, NAN, 2, NAN}};
    char *svg = picture(points, 1, "t");
    assert_non_null(strstr(svg, "<path class=\"marker\" transform=\"translate(68 "));
    mr_free(svg);
}

/* The test loss of the best step is marked and named; a step that was not evaluated marks nothing. */
static void best_point_is_marked(void **unused)
{
    (void)unused;
    static const struct {
        int64_t best_step;
        const char *label;
    } cases[] = {{20, ">best 1.5, step 20<"}, {30, ">best 1.75, step 30<"}, {0, NULL}, {25, NULL}};
    const mr_curve_point points[] = {{10, NAN, 2, 0.3}, {20, NAN, 1.5, 0.5}, {25, 1, NAN, NAN}, {30, NAN, 1.75, 0.4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[MR_TEXT_MAX], *svg;
        size_t size;
        in_folder("best.svg", path);
        assert_int_equal(mr_curve_write(path, points, 4, cases[i].best_step, "t", NULL), 0);
        assert_int_equal(mr_file_read(path, 1 << 20, &svg, &size, NULL), 0);
        /* a ring at the point, drawn after all lines, and one in the legend */
        const char *ring = strstr(svg, "<circle class=\"ring\""), *lines = strstr(svg, ACCURACY);
        assert_int_equal(ring != NULL, cases[i].label != NULL);
        assert_true(lines && (!ring || (ring > lines && strstr(ring + 1, "<circle class=\"ring\""))));
        if (cases[i].label) assert_non_null(strstr(svg, cases[i].label));
        else assert_null(strstr(svg, ">best "));
        mr_free(svg);
        assert_int_equal(remove(path), 0);
    }
}

/* Labels end on the last values, to four digits; an accuracy is never rounded up. */
static void labels_tell_the_last_values(void **unused)
{
    (void)unused;
    const mr_curve_point points[] = {{1, 3, 2, 0.5}, {2, 1.234567, 0.0234567, 0.98769}, {3, NAN, NAN, NAN}};
    char *svg = picture(points, 3, "t");
    assert_non_null(strstr(svg, ">train loss 1.235<"));
    assert_non_null(strstr(svg, ">test loss 0.02346<"));
    assert_non_null(strstr(svg, ">accuracy 98.76 %<"));
    mr_free(svg);
    const mr_curve_point impossible[] = {{1, 3, 2, 1.23456}};
    svg = picture(impossible, 1, "t");
    assert_non_null(strstr(svg, ">accuracy 123.5 %<"));
    mr_free(svg);
}

static void log_scale_beyond_two_decades(void **unused)
{
    (void)unused;
    double least[] = {0.02, 0.005, 0};
    for (int i = 0; i < 3; i++) {
        mr_curve_point points[] = {{1, NAN, 1, NAN},
                                   {2, NAN, 0.1, NAN},
                                   {3, NAN, 0.002 + least[0], NAN},
                                   {4, NAN, least[i], NAN},
                                   {5, NAN, 0.005, NAN}};
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
    assert_in_range(line_points(svg, TRAIN, &first, &last), 500, 1000);
    assert_in_range(line_points(svg, RAW, NULL, NULL), 500, 1000);
    assert_that(fabs(first - last), <, 5); /* the mean, not the zigzag of 1 and 3 */
    assert_that(strlen(svg), <, 100000);
    mr_free(svg);
    mr_free(points);
}

static void unwritable_place_is_an_error(void **unused)
{
    (void)unused;
    mr_error err = {0};
    assert_int_equal(mr_curve_write("/nonexistent/curve.svg", NULL, 0, 0, "t", &err), MR_EIO);
    assert_says(&err, "/nonexistent");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_title_is_valid),           cmocka_unit_test(any_points_are_valid),
        cmocka_unit_test(lines_follow_the_points),      cmocka_unit_test(step_0_is_at_the_left),
        cmocka_unit_test(best_point_is_marked),         cmocka_unit_test(labels_tell_the_last_values),
        cmocka_unit_test(log_scale_beyond_two_decades), cmocka_unit_test(many_points_are_binned_and_smoothed),
        cmocka_unit_test(unwritable_place_is_an_error),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
