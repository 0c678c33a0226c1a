/* Charts: valid XML with finite coordinates for any input, and lines and bars that match the numbers. */
#include "core/mem.h"
#include "plot/chart.h"
#include "scratch.h"
#include "skip_because.h"

#include <math.h>

/* The text of the picture; freed by mr_free. */
static char *picture(const char *name, const mr_chart *chart)
{
    char *svg, path[MR_TEXT_MAX];
    size_t size;
    mr_error err = {0};
    in_folder(name, path);
    if (mr_chart_write(path, chart, &err)) fail_msg("%s", err.text);
    if (mr_file_read(path, 10000000, &svg, &size, &err)) fail_msg("%s", err.text);
    assert_int_equal(strlen(svg), size);
    return svg;
}

/* An independent parser reads every picture in the folder: it must be well-formed, with
 * every coordinate on the page. */
static void expect_valid_pictures(int count)
{
    char command[2 * MR_TEXT_MAX];
    if (system("python3 -c 'import xml.dom.minidom' 2>/dev/null")) {
        skip_because("no python3 here to read the XML");
    }
    snprintf(command, sizeof command,
             "python3 -c '\n"
             "import glob, re, sys, xml.dom.minidom\n"
             "files = glob.glob(sys.argv[1] + \"/*.svg\")\n"
             "for file in files:\n"
             "    svg = xml.dom.minidom.parse(file).documentElement\n"
             "    for e in svg.getElementsByTagName(\"*\"):\n"
             "        for name in (\"x\", \"y\", \"x1\", \"x2\", \"y1\", \"y2\", \"width\", \"height\", \"points\", "
             "\"transform\"):\n"
             "            for word in re.split(r\"[^\\w.+-]+\", e.getAttribute(name)):\n"
             "                if word and word not in (\"100\", \"translate\", \"rotate\"): assert -1000 <= "
             "float(word) <= 1000, (file, e.toxml())\n"
             "assert len(files) == %d, files\n' %s",
             count, folder);
    assert_int_equal(system(command), 0);
    snprintf(command, sizeof command, "rm %s/*", folder);
    assert_int_equal(system(command), 0);
}

static int count_of(const char *text, const char *part)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part)) count++;
    return count;
}

/* The points of the first line of the series with this colour. */
static int line_points(const char *svg, int colour, double x[], double y[], int room)
{
    char opening[64];
    int n = 0, used;
    snprintf(opening, sizeof opening, "<g class=\"c%d\">\n<polyline class=\"line\" points=\"", colour);
    const char *at = strstr(svg, opening);
    assert_non_null(at);
    for (at += strlen(opening); n < room && sscanf(at, "%lf,%lf %n", &x[n], &y[n], &used) == 2; n++) at += used;
    return n;
}

static void any_numbers_are_valid(void **unused)
{
    (void)unused;
    static const double odd[] = {0, 1, NAN, INFINITY, -INFINITY, -3, 1e308, -1e308, 1e-320, 1e149, -1e149, 5, 1e-300};
    static const char *const groups[] = {"a", "b", "c"};
    enum { ODD = sizeof odd / sizeof *odd };
    int count = 0;
    for (int scales = 0; scales < 16; scales++)
        for (int way = 0; way < 3; way++) {
            double backwards[ODD];
            char name[32];
            for (int i = 0; i < ODD; i++) backwards[i] = odd[(i * 5 + way + 3) % ODD];
            const mr_chart_series series[] = {
                {.name = "one", .n = ODD, .x = odd, .y = backwards, .spread = odd, .band = way == 1},
                {.name = "two", .n = ODD - 8, .x = backwards, .y = odd, .right = way == 1, .style = MR_CHART_POINTS},
                {.name = "paper", .n = ODD, .x = odd, .y = backwards, .style = MR_CHART_PAPER},
                {.name = NULL, .n = 0}};
            const mr_chart chart = {.title = "odd",
                                    .x = {"x", (mr_scale)(scales % 4), 0, 0},
                                    .y = {"y", (mr_scale)(scales / 4), 0, way == 2 ? NAN : 0},
                                    .series = series,
                                    .count = 4,
                                    .groups = way == 2 ? groups : NULL,
                                    .group_count = 3};
            snprintf(name, sizeof name, "%d.svg", count++);
            mr_free(picture(name, &chart));
        }
    expect_valid_pictures(count);
}

static void texts_are_escaped(void **unused)
{
    (void)unused;
    static const double v[] = {1, 2};
    static const char *const groups[] = {"a<b", "c&d"};
    const mr_chart_series series[] = {{.name = "x < y & \"z\" \x01 \xff", .n = 2, .x = v, .y = v}};
    for (int bars = 0; bars < 2; bars++) {
        const mr_chart chart = {.title = "<script>",
                                .x = {.label = "a & b"},
                                .y = {.label = "]]> <!--"},
                                .series = series,
                                .count = 1,
                                .groups = bars ? groups : NULL,
                                .group_count = 2};
        char *svg = picture(bars ? "1.svg" : "0.svg", &chart);
        assert_non_null(strstr(svg, "x &lt; y &amp; \"z\"   \xef\xbf\xbd<"));
        assert_non_null(strstr(svg, ">a &amp; b<"));
        assert_null(strstr(svg, "<script>"));
        assert_int_equal(strstr(svg, ">a&lt;b<") != NULL, bars);
        mr_free(svg);
    }
    expect_valid_pictures(2);
}

/* Doublings are equally far apart on a log2 axis, decades on a log10 axis. */
static void lines_follow_the_numbers(void **unused)
{
    (void)unused;
    static const double T[] = {64, 128, NAN, 256, 512}, ms[] = {1, 10, 5, 100, 1000};
    const mr_chart_series series[] = {{.name = "minGRU", .n = 5, .x = T, .y = ms}};
    const mr_chart chart = {.title = "t",
                            .x = {"tokens", MR_SCALE_LOG2, 0, 0},
                            .y = {"step (ms)", MR_SCALE_LOG10, 0, 0},
                            .series = series,
                            .count = 1};
    double x[8], y[8];
    char *svg = picture("0.svg", &chart);
    assert_int_equal(line_points(svg, 2, x, y, 8), 4); /* NaN is left out */
    for (int i = 1; i < 4; i++) {
        assert_that(fabs((x[i] - x[i - 1]) - (x[1] - x[0])), <, 0.3);
        assert_that(x[1], >, x[0] + 50);
        assert_that(fabs((y[i] - y[i - 1]) - (y[1] - y[0])), <, 0.3);
        assert_that(y[1], <, y[0] - 50);
    }
    assert_non_null(strstr(svg, ">512<"));
    assert_non_null(strstr(svg, ">1000<"));
    assert_non_null(strstr(svg, "prefers-color-scheme: dark"));
    assert_int_equal(count_of(svg, "class=\"marker"), 5); /* four points and the legend */
    mr_free(svg);
    expect_valid_pictures(1);
}

static void spread_is_drawn(void **unused)
{
    (void)unused;
    static const double x[] = {1, 2, 3}, y[] = {10, 20, 30}, spread[] = {1, NAN, 3};
    for (int band = 0; band < 2; band++) {
        const mr_chart_series series[] = {{.name = "s", .n = 3, .x = x, .y = y, .spread = spread, .band = band}};
        const mr_chart chart = {.title = "t", .series = series, .count = 1};
        char *svg = picture("0.svg", &chart);
        assert_int_equal(count_of(svg, "class=\"spread\""), band ? 0 : 2);
        assert_int_equal(count_of(svg, "class=\"band\""), band);
        mr_free(svg);
    }
    expect_valid_pictures(1);
}

/* Bars are as high as their values, have the same baseline, and every series has its own stripes. */
static void bars_are_as_high_as_their_values(void **unused)
{
    (void)unused;
    static const char *const groups[] = {"GRU", "LSTM"};
    static const double one[] = {10, 20}, two[] = {40, NAN};
    const mr_chart_series series[] = {{.name = "one", .n = 2, .y = one}, {.name = "two", .n = 2, .y = two}};
    const mr_chart chart = {.title = "t", .series = series, .count = 2, .groups = groups, .group_count = 2};
    char *svg = picture("0.svg", &chart);
    double height[4];
    int n = 0;
    for (const char *at = strstr(svg, "<g class"); (at = strstr(at, "height=\"")) && n < 4; at += 8)
        if (strncmp(at, "height=\"7\"", 10) && strncmp(at, "height=\"11\"", 11)) height[n++] = strtod(at + 8, NULL);
    assert_int_equal(n, 3);
    assert_that(height[0], >, 20);
    assert_that(fabs(height[1] - 2 * height[0]), <, 0.3);
    assert_that(fabs(height[2] - 4 * height[0]), <, 0.5);
    assert_int_equal(count_of(svg, "<pattern"), 2);
    assert_int_equal(count_of(svg, "class=\"value\""), 3);
    mr_free(svg);
    expect_valid_pictures(1);
}

/* Bars stand on the zero line, and hang from it where the value is negative; on a logarithmic axis they stand on its
 * floor. */
static void bars_stand_on_zero(void **unused)
{
    (void)unused;
    static const char *const groups[] = {"a", "b"};
    static const double below[] = {-10, 20}, above[] = {10, 1000};
    for (int is_log = 0; is_log < 2; is_log++) {
        const mr_chart_series series[] = {{.name = "s", .n = 2, .y = is_log ? above : below}};
        const mr_chart chart = {
            .title = "t",
            .y = {"y", is_log ? MR_SCALE_LOG10 : MR_SCALE_LINEAR, is_log ? 1 : -20, is_log ? 1000 : 20},
            .series = series,
            .count = 1,
            .groups = groups,
            .group_count = 2};
        char *svg = picture(is_log ? "1.svg" : "0.svg", &chart);
        const char *at = svg;
        double top[2], height[2];
        for (int i = 0; i < 2; i++, at++) {
            at = strstr(at, "<rect fill=\"url(#bar0)\"");
            assert_non_null(at);
            assert_int_equal(
                sscanf(strstr(at, " y=\""), " y=\"%lf\" width=\"%*f\" height=\"%lf\"", &top[i], &height[i]), 2);
        }
        const double floor_y = 422, high = 78; /* the ends of the axis */
        if (is_log) {
            assert_float_equal(height[0], (floor_y - high) / 3, 0.2);
            assert_float_equal(height[1], floor_y - high, 0.2);
            assert_float_equal(top[0] + height[0], floor_y, 0.2);
        } else {
            assert_float_equal(top[0], (floor_y + high) / 2, 0.2);
            assert_float_equal(height[0], (floor_y - high) / 4, 0.2);
            assert_float_equal(height[1], (floor_y - high) / 2, 0.2);
        }
        assert_float_equal(top[1], high, 0.2);
        mr_free(svg);
    }
    expect_valid_pictures(2);
}

/* Values above bars have three digits; ticks lie on both ends of an axis that ends on ticks, though 0.14 / 0.02 is more
 * than 7, and 0.3 / 0.1 less than 3. */
static void numbers_are_written_out(void **unused)
{
    (void)unused;
    static const char *const groups[] = {"a", "b"};
    static const double y[] = {0.23456, 0.15}, small[] = {0.1, 0.2}, x[] = {1, 2};
    const mr_chart_series bars = {.name = "s", .n = 2, .y = y}, line = {.name = "s", .n = 2, .x = x, .y = small};
    mr_chart chart = {.title = "t",
                      .y = {.label = "y", .low = 0.14, .high = 0.24},
                      .series = &bars,
                      .count = 1,
                      .groups = groups,
                      .group_count = 2};
    char *svg = picture("0.svg", &chart);
    assert_non_null(strstr(svg, ">0.235<"));
    assert_non_null(strstr(svg, ">0.14<"));
    assert_non_null(strstr(svg, ">0.24<"));
    assert_null(strstr(svg, ">0.17<"));
    mr_free(svg);
    chart = (mr_chart){.title = "t", .y = {.high = 0.3}, .series = &line, .count = 1};
    svg = picture("1.svg", &chart);
    assert_non_null(strstr(svg, ">0.3<"));
    mr_free(svg);
    expect_valid_pictures(2);
}

/* The paper's values are the same marks everywhere: over their bars, which they do not move, and on lines; the legend
 * names them once. */
static void paper_values_are_marked(void **unused)
{
    (void)unused;
    static const char *const groups[] = {"a", "b"};
    static const double x[] = {1, 2}, one[] = {10, 20}, two[] = {40, 30}, theirs[] = {10, NAN}, others[] = {20, 30};
    const mr_chart_series series[] = {{.name = "one", .n = 2, .x = x, .y = one, .colour = 5},
                                      {.name = "paper", .n = 2, .x = x, .y = theirs, .style = MR_CHART_PAPER},
                                      {.name = "two", .n = 2, .x = x, .y = two},
                                      {.name = "paper", .n = 2, .x = x, .y = others, .style = MR_CHART_PAPER}};
    for (int bars = 0; bars < 2; bars++) {
        const mr_chart chart = {
            .title = "t", .series = series, .count = 4, .groups = bars ? groups : NULL, .group_count = 2};
        char *svg = picture(bars ? "1.svg" : "0.svg", &chart), *at;
        assert_int_equal(count_of(svg, "class=\"paper\""), 3 + 1);
        assert_int_equal(count_of(svg, ">paper<"), 1);
        assert_int_equal(count_of(svg, "class=\"marker"), bars ? 0 : 4 + 2);
        assert_int_equal(count_of(svg, "<pattern"), bars ? 2 : 0);
        assert_int_equal(count_of(svg, "class=\"c5\""), bars ? 4 : 3); /* pattern, series, its paper's, legend */
        if (bars) { /* the first mark lies on the top of the first bar, in its middle */
            double left, top, width, mark_x, mark_y;
            at = strstr(svg, "<rect fill=\"url(#bar0)\"");
            assert_int_equal(sscanf(strstr(at, " x=\""), " x=\"%lf\" y=\"%lf\" width=\"%lf\"", &left, &top, &width), 3);
            at = strstr(svg, "class=\"paper\" transform=\"translate(");
            assert_int_equal(sscanf(strstr(at, "(") + 1, "%lf %lf", &mark_x, &mark_y), 2);
            assert_float_equal(mark_x, left + width / 2, 0.2);
            assert_float_equal(mark_y, top, 0.2);
        }
        mr_free(svg);
    }
    expect_valid_pictures(2);
}

/* A name with a blank is broken into two lines before it gets smaller; values are written above all bars or none. */
static void names_are_broken_and_values_fit(void **unused)
{
    (void)unused;
    static const char *const groups[] = {"missing duplicate", "b", "c", "d", "e", "f", "g"};
    static const double y[] = {0.123, 1, 1, 1, 1, 1, 1};
    mr_chart_series series[6];
    for (int i = 0; i < 6; i++) series[i] = (mr_chart_series){.name = "s", .n = 7, .y = y};
    mr_chart chart = {.title = "t", .series = series, .count = 6, .groups = groups, .group_count = 7};
    char *svg = picture("0.svg", &chart);
    assert_non_null(strstr(svg, "font-size: 13px\">missing</text>"));
    assert_non_null(strstr(svg, "y=\"458\" text-anchor=\"middle\" style=\"font-size: 13px\">duplicate</text>"));
    assert_int_equal(count_of(svg, "class=\"value\""), 0); /* 1 would fit, 0.123 does not */
    mr_free(svg);
    chart.count = 1;
    svg = picture("1.svg", &chart);
    assert_int_equal(count_of(svg, "class=\"value\""), 7);
    mr_free(svg);
    expect_valid_pictures(2);
}

/* The font size of the text that ends like this, in pixels; 0 where none is set. */
static double size_before(const char *svg, const char *text)
{
    const char *end = strstr(svg, text), *at = end;
    assert_non_null(end);
    while (at > svg && strncmp(at, "font-size: ", 11) && *at != '\n') at--;
    return strncmp(at, "font-size: ", 11) ? 0 : strtod(at + 11, NULL);
}

/* Long names shrink instead of overlapping. */
static void long_texts_fit(void **unused)
{
    (void)unused;
    static const char *const groups[] = {"short", "a_name_of_20_letters", "c", "d", "e", "f", "g"};
    static const double y[] = {1, 2, 3, 4, 5, 6, 7};
    const mr_chart_series series = {.name = "one", .n = 7, .y = y};
    mr_chart chart = {.title = "brief", .series = &series, .count = 1, .groups = groups, .group_count = 7};
    char *svg = picture("0.svg", &chart);
    const double name = size_before(svg, ">a_name_of_20_letters<");
    assert_that(name, >, 6);
    assert_that(name * 0.6 * 20, <, 664.0 / 7);
    assert_that(size_before(svg, ">short<"), ==, name);
    mr_free(svg);
    chart.group_count = 1;
    svg = picture("1.svg", &chart);
    assert_that(size_before(svg, ">short<"), ==, 13);
    mr_free(svg);
    expect_valid_pictures(2);
}

/* A long title is broken at blanks, up to three rows, and the rest moves down. The name of the picture is all of it. */
static void long_titles_are_broken(void **unused)
{
    (void)unused;
    static const struct {
        const char *title, *rows[4];
    } cases[] = {
        {"brief", {">brief</text>"}},
        {"seventy letters, which is as many as the picture has room for at 16 px",
         {">seventy letters, which is as many as the picture has room for at 16 px</text>"}},
        {"(quick, not comparable with the paper) Shakespeare by characters: best test loss (nats) and the step",
         {"y=\"30\">(quick, not comparable with the paper) Shakespeare by characters: best</text>",
          "y=\"50\">test loss (nats) and the step</text>", "y=\"77\">one</text>"}},
        {"oneverylongwordoneverylongwordoneverylongwordoneverylongwordoneverylongwordoneverylongword",
         {">oneverylongwordoneverylongwordoneverylongwordoneverylongwordoneverylon</text>",
          ">gwordoneverylongword</text>"}},
        {"aaaaaaaaa bbbbbbbbb ccccccccc ddddddddd eeeeeeeee fffffffff ggggggggg hhhhhhhhh iiiiiiiii jjjjjjjjj "
         "kkkkkkkkk "
         "lllllllll mmmmmmmmm nnnnnnnnn ooooooooo ppppppppp qqqqqqqqq rrrrrrrrr sssssssss ttttttttt uuuuuuuuu "
         "vvvvvvvvv",
         {" ggggggggg</text>", ">hhhhhhhhh ", ">ooooooooo ", "uuuuuuuuu …</text>"}},
    };
    static const double x[] = {1, 2};
    const mr_chart_series series = {.name = "one", .n = 2, .x = x, .y = x};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char whole[512], path[MR_TEXT_MAX];
        const mr_chart chart = {.title = cases[i].title, .series = &series, .count = 1};
        char *svg = picture("long.svg", &chart);
        for (int row = 0; row < 4 && cases[i].rows[row]; row++)
            if (!strstr(svg, cases[i].rows[row])) fail_msg("%s: no row %s", cases[i].title, cases[i].rows[row]);
        snprintf(whole, sizeof whole, "<title>%s</title>", cases[i].title);
        assert_non_null(strstr(svg, whole));
        mr_free(svg);
        in_folder("long.svg", path);
        assert_int_equal(remove(path), 0);
    }
}

/* A legend of nine series takes two rows, and the plot makes room for it. */
static void a_long_legend_is_broken(void **unused)
{
    (void)unused;
    static const double v[] = {1, 2};
    mr_chart_series series[9];
    for (int i = 0; i < 9; i++) series[i] = (mr_chart_series){.name = "a name of some length", .n = 2, .x = v, .y = v};
    const mr_chart chart = {.title = "t", .series = series, .count = 9};
    char *svg = picture("0.svg", &chart);
    assert_int_equal(count_of(svg, "y=\"57\">a name"), 3);
    assert_int_equal(count_of(svg, "y=\"77\">a name"), 3);
    assert_int_equal(count_of(svg, "y=\"97\">a name"), 3);
    assert_non_null(strstr(svg, "M68 118V422"));
    mr_free(svg);
    expect_valid_pictures(1);
}

static void unwritable_place_is_an_error(void **unused)
{
    (void)unused;
    mr_error err = {0};
    assert_int_equal(mr_chart_write("/nonexistent/chart.svg", &(mr_chart){.title = "t"}, &err), MR_EIO);
    assert_says(&err, "/nonexistent");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_numbers_are_valid),
        cmocka_unit_test(texts_are_escaped),
        cmocka_unit_test(lines_follow_the_numbers),
        cmocka_unit_test(spread_is_drawn),
        cmocka_unit_test(bars_are_as_high_as_their_values),
        cmocka_unit_test(bars_stand_on_zero),
        cmocka_unit_test(numbers_are_written_out),
        cmocka_unit_test(paper_values_are_marked),
        cmocka_unit_test(names_are_broken_and_values_fit),
        cmocka_unit_test(long_texts_fit),
        cmocka_unit_test(long_titles_are_broken),
        cmocka_unit_test(a_long_legend_is_broken),
        cmocka_unit_test(unwritable_place_is_an_error),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
