#include "run/curve.h"

#include "core/file.h"
#include "core/mem.h"
#include "run/text.h"
#include "core/utf8.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The picture and the plot in it, in pixels. The right margin holds the second axis whether it is drawn or not, so that
 * pictures of different runs lie over each other. */
enum { WIDTH = 800, HEIGHT = 480, LEFT = 68, RIGHT = WIDTH - 68, TOP = 78, BOTTOM = HEIGHT - 58 };
enum { BINS = 1000 };         /* points drawn of one line, at most: more than the plot has pixels */
enum { DOTS = 60 };           /* a line of so few points shows each as a dot */
enum { TITLE_CHARS = 84 };
#define HUGE_VALUE 1e150

typedef enum series_kind { TRAIN, TEST, ACCURACY, SERIES } series_kind;

typedef struct series {
    size_t n;
    double x[BINS], y[BINS]; /* steps and values, in the order of the steps */
    double last;
} series;

typedef struct axis {
    double low, high;
    int log;
} axis;

typedef struct curve {
    series of[SERIES];
    double smooth[BINS]; /* pixels */
    double last_step;
    axis loss;
    mr_text svg;
} curve;

static const char style[] =
    "<style>\n"
    "  text { font: 13px system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'DejaVu Sans', sans-serif; fill: #4a5160 }\n"
    "  .title { font-size: 16px; font-weight: 600; fill: #16191f }\n"
    "  .ground { fill: #ffffff } .grid { stroke: #e4e7ec } .frame { stroke: #9aa2b1; fill: none }\n"
    "  polyline, .key { fill: none; stroke-linejoin: round; stroke-linecap: round }\n"
    "  .raw { stroke: #7c8699; stroke-width: 1; opacity: .35 } .train { stroke: #7c8699; stroke-width: 1.4 }\n"
    "  .test { stroke: #1f6fd6; stroke-width: 2.2 } .accuracy { stroke: #c8580a; stroke-width: 2.2 }\n"
    "  circle, text { stroke: none !important }\n"
    "  circle.train { fill: #7c8699 } circle.test { fill: #1f6fd6 } circle.accuracy, text.accuracy { fill: #c8580a }\n"
    "  @media (prefers-color-scheme: dark) {\n"
    "    text { fill: #a9b2c1 } .title { fill: #eef1f6 }\n"
    "    .ground { fill: #12151b } .grid { stroke: #262c37 } .frame { stroke: #5b6575 }\n"
    "    .raw, .train { stroke: #8f9aad } .test { stroke: #6bb0ff } .accuracy { stroke: #ff9d54 }\n"
    "    circle.train { fill: #8f9aad } circle.test { fill: #6bb0ff } circle.accuracy, text.accuracy { fill: #ff9d54 }\n"
    "  }\n"
    "</style>\n";

/* ---- the data */

static double value_of(const mr_curve_point *point, series_kind kind)
{
    return kind == TRAIN ? point->train_loss : kind == TEST ? point->test_loss : point->accuracy;
}

/* Finite, and far enough from overflow that differences, sums and ratios are finite too. */
static int usable(const mr_curve_point *point, series_kind kind)
{
    return point->step >= 0 && fabs(value_of(point, kind)) < HUGE_VALUE;
}

/* Means over equal spans of steps: a line of a million points becomes one that a browser draws at once. */
static void bin(series *line, const mr_curve_point *points, size_t n, series_kind kind, double last_step)
{
    double count[BINS] = {0}, x[BINS] = {0}, y[BINS] = {0};
    line->last = NAN;
    for (size_t i = 0; i < n; i++) {
        if (!usable(&points[i], kind)) continue;
        size_t at = (size_t)((double)points[i].step / (last_step + 1) * BINS);
        if (at >= BINS) at = BINS - 1; /* steps so many that one more is lost in rounding */
        count[at]++;
        x[at] += ((double)points[i].step - x[at]) / count[at];
        y[at] += (value_of(&points[i], kind) - y[at]) / count[at];
        line->last = value_of(&points[i], kind);
    }
    for (size_t at = 0; at < BINS; at++) {
        if (!count[at]) continue;
        line->x[line->n] = x[at];
        line->y[line->n++] = y[at];
    }
}

static void take_points(curve *c, const mr_curve_point *points, size_t n)
{
    c->last_step = 1;
    for (size_t i = 0; i < n; i++)
        if (points[i].step > c->last_step) c->last_step = (double)points[i].step;
    for (series_kind kind = TRAIN; kind < SERIES; kind++) bin(&c->of[kind], points, n, kind, c->last_step);
}

/* ---- the scales */

/* 1, 2, 2.5 or 5 times a power of ten: about `ticks` of them in the span. */
static double nice_step(double span, int ticks)
{
    double rough = span / ticks, power = pow(10, floor(log10(rough))), lead = rough / power;
    return power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 2.5 ? 2.5 : lead <= 5 ? 5 : 10);
}

/* The loss runs from its least to its greatest value; logarithmic when that is more than two decades. Zeros then lie on
 * the floor, which is the least positive value. */
static axis loss_axis(const curve *c)
{
    double low = INFINITY, high = -INFINITY, least = INFINITY;
    for (series_kind kind = TRAIN; kind <= TEST; kind++)
        for (size_t i = 0; i < c->of[kind].n; i++) {
            double y = c->of[kind].y[i];
            low = fmin(low, y);
            high = fmax(high, y);
            if (y > 1 / HUGE_VALUE) least = fmin(least, y);
        }
    if (low > high) return (axis){0, 1, 0};
    if (low >= 0 && high > 100 * least) {
        double room = pow(high / least, 0.03);
        return (axis){least / room, high * room, 1};
    }
    if (low > 0 && low < 0.4 * high) low = 0;
    if (!(high - low > 1e-9 * fabs(high))) { /* one value, or nearly: some room around it */
        double room = fabs(high) > 0 ? 0.1 * fabs(high) : 1;
        low -= room;
        high += room;
    }
    double step = nice_step(high - low, 5);
    return (axis){step * floor(low / step), step * ceil(high / step), 0};
}

static double clamp(double v, double low, double high) { return v < low ? low : v > high ? high : v; }

static double pixel_x(const curve *c, double step) { return LEFT + (RIGHT - LEFT) * step / c->last_step; }

static double pixel_y(const axis *a, double value)
{
    value = clamp(value, a->low, a->high);
    double share = a->log ? log(value / a->low) / log(a->high / a->low) : (value - a->low) / (a->high - a->low);
    return BOTTOM - (BOTTOM - TOP) * share;
}

/* ---- the drawing */

typedef struct number {
    char text[MR_REAL_MAX];
} number;

static number pixel(double v)
{
    number out = {0};
    mr_real_print(out.text, round(v * 10) / 10, 0);
    return out;
}

/* For people, and narrow: 1e-4, not 0.0001 or 1e-04. */
static number brief(double v, int digits)
{
    number out = {0};
    int power = v == 0 ? 0 : (int)floor(log10(fabs(v)) + 1e-9);
    if (power >= -3 && power < 6) {
        mr_real_print(out.text, v, digits);
    } else {
        char lead[MR_REAL_MAX];
        snprintf(out.text, sizeof out.text, "%.20se%d", mr_real_print(lead, v / pow(10, power), digits), power);
    }
    return out;
}

/* Any text as XML: escaped, without control characters and broken UTF-8, and cut to a line's length. */
static void add_escaped(mr_text *svg, const char *s)
{
    size_t left = strlen(s);
    for (int shown = 0; left; shown++) {
        uint32_t codepoint;
        int bytes = mr_utf8_read(s, left, &codepoint);
        if (shown == TITLE_CHARS) {
            mr_text_add(svg, "…");
            return;
        }
        if (bytes <= 0) {
            bytes = 1;
            mr_text_add(svg, "�");
        } else if (codepoint < 0x20 || (codepoint >= 0x7f && codepoint < 0xa0) || codepoint == 0xfffe || codepoint == 0xffff) {
            mr_text_add(svg, " ");
        } else if (codepoint == '&' || codepoint == '<' || codepoint == '>') {
            mr_text_add(svg, codepoint == '&' ? "&amp;" : codepoint == '<' ? "&lt;" : "&gt;");
        } else {
            mr_text_format(svg, "%.*s", bytes, s);
        }
        s += bytes;
        left -= (size_t)bytes;
    }
}

static void draw_loss_tick(curve *c, double value, int labelled)
{
    number y = pixel(pixel_y(&c->loss, value)), below = pixel(pixel_y(&c->loss, value) + 4.5);
    mr_text_format(&c->svg, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%s\" y2=\"%s\"/>\n", LEFT, RIGHT, y.text, y.text);
    if (labelled)
        mr_text_format(&c->svg, "<text x=\"%d\" y=\"%s\" text-anchor=\"end\">%s</text>\n", LEFT - 8, below.text,
                       brief(value, 6).text);
}

static void draw_loss_ticks(curve *c)
{
    const axis *a = &c->loss;
    if (!a->log) {
        double step = nice_step(a->high - a->low, 5);
        long first = lround(ceil(a->low / step - 1e-9)), last = lround(floor(a->high / step + 1e-9));
        for (long i = first; i <= last; i++) draw_loss_tick(c, (double)i * step, 1);
        return;
    }
    double decades = log10(a->high / a->low);
    int first = (int)floor(log10(a->low)), last = (int)ceil(log10(a->high)), each = 1 + (int)(decades / 8);
    for (int n = first; n <= last; n++)
        for (int lead = 1; lead <= 5; lead += lead == 1 ? 1 : 3) { /* 1, 2, 5 */
            double value = lead * pow(10, n);
            if (value < a->low || value > a->high || (lead > 1 && decades > 4) || n % each) continue;
            draw_loss_tick(c, value, lead == 1 || decades < 3);
        }
}

static void draw_step_ticks(curve *c)
{
    double step = fmax(1, nice_step(c->last_step, 6));
    for (int i = 0; i * step <= c->last_step * (1 + 1e-9); i++) {
        char label[MR_REAL_MAX];
        number x = pixel(pixel_x(c, i * step));
        mr_text_format(&c->svg, "<line class=\"frame\" x1=\"%s\" x2=\"%s\" y1=\"%d\" y2=\"%d\"/>", x.text, x.text, BOTTOM, BOTTOM + 5);
        mr_text_format(&c->svg, "<text x=\"%s\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", x.text, BOTTOM + 20,
                       mr_count_print(label, i * step, 4));
    }
}

static void draw_axes(curve *c)
{
    int middle = (TOP + BOTTOM) / 2;
    draw_loss_ticks(c);
    draw_step_ticks(c);
    mr_text_format(&c->svg, "<path class=\"frame\" d=\"M%d %dV%dH%d\"/>\n", LEFT, TOP, BOTTOM, RIGHT);
    mr_text_format(&c->svg, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">training steps</text>\n", (LEFT + RIGHT) / 2, HEIGHT - 14);
    mr_text_format(&c->svg, "<text transform=\"translate(17 %d) rotate(-90)\" text-anchor=\"middle\">loss%s</text>\n", middle,
                   c->loss.log ? " (log scale)" : "");
    if (!c->of[ACCURACY].n) return;
    mr_text_format(&c->svg, "<path class=\"frame\" d=\"M%d %dV%d\"/>\n", RIGHT, TOP, BOTTOM);
    for (int percent = 0; percent <= 100; percent += 20)
        mr_text_format(&c->svg, "<text class=\"accuracy\" x=\"%d\" y=\"%s\">%d</text>\n", RIGHT + 8,
                       pixel(BOTTOM - (BOTTOM - TOP) * percent / 100.0 + 4.5).text, percent);
    mr_text_format(&c->svg, "<text class=\"accuracy\" transform=\"translate(%d %d) rotate(90)\" text-anchor=\"middle\">accuracy (%%)</text>\n",
                   WIDTH - 17, middle);
}

static void draw_line(curve *c, const char *class, const series *line, const double *y)
{
    mr_text_format(&c->svg, "<polyline class=\"%s\" points=\"", class);
    for (size_t i = 0; i < line->n; i++)
        mr_text_format(&c->svg, "%s%s,%s", i ? " " : "", pixel(pixel_x(c, line->x[i])).text, pixel(y[i]).text);
    mr_text_add(&c->svg, "\"/>\n");
    if (line->n > DOTS || !strcmp(class, "raw") || (line->n > 1 && !strcmp(class, "train"))) return;
    for (size_t i = 0; i < line->n; i++)
        mr_text_format(&c->svg, "<circle class=\"%s\" cx=\"%s\" cy=\"%s\" r=\"3\"/>", class, pixel(pixel_x(c, line->x[i])).text,
                       pixel(y[i]).text);
    mr_text_add(&c->svg, "\n");
}

/* A centred mean, taken in pixels: on a log scale it is the geometric one. It narrows towards the steep beginning and is
 * one-sided at the end. Returns its half width. */
static size_t smoothen(double *out, const double *y, size_t n)
{
    size_t half = n / 50;
    for (size_t i = 0; i < n; i++) {
        size_t before = half < i ? half : i, after = before < n - 1 - i ? before : n - 1 - i;
        double sum = 0;
        for (size_t j = i - before; j <= i + after; j++) sum += y[j];
        out[i] = sum / (double)(before + after + 1);
    }
    return half;
}

static void draw_series(curve *c)
{
    static const axis share = {0, 1, 0};
    static const char *const class[SERIES] = {"train", "test", "accuracy"};
    for (series_kind kind = TRAIN; kind < SERIES; kind++) {
        series *line = &c->of[kind];
        if (!line->n) continue;
        double y[BINS];
        for (size_t i = 0; i < line->n; i++) y[i] = pixel_y(kind == ACCURACY ? &share : &c->loss, line->y[i]);
        if (kind == TRAIN) {
            if (smoothen(c->smooth, y, line->n)) draw_line(c, "raw", line, y);
            memcpy(y, c->smooth, sizeof y);
        }
        draw_line(c, class[kind], line, y);
    }
}

/* One entry a line, with the value it ends on; the widths of the texts are estimated. */
static void draw_legend(curve *c)
{
    static const char *const name[SERIES] = {"train loss", "test loss", "accuracy"};
    static const char *const class[SERIES] = {"train", "test", "accuracy"};
    int x = LEFT;
    for (series_kind kind = TRAIN; kind < SERIES; kind++) {
        if (!c->of[kind].n) continue;
        char label[64];
        double last = c->of[kind].last;
        if (kind == ACCURACY) snprintf(label, sizeof label, "%s %s %%", name[kind], brief(floor(last * 10000) / 100, 4).text);
        else snprintf(label, sizeof label, "%s %s", name[kind], brief(last, 4).text);
        mr_text_format(&c->svg, "<path class=\"key %s\" d=\"M%d 53h22\"/><text x=\"%d\" y=\"57\">%s</text>\n", class[kind], x, x + 30, label);
        x += 30 + (int)(7.2 * (double)strlen(label)) + 22;
    }
}

static void draw(curve *c, const char *title)
{
    mr_text_format(&c->svg, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\">\n",
                   WIDTH, HEIGHT, WIDTH, HEIGHT);
    mr_text_add(&c->svg, "<title>");
    add_escaped(&c->svg, title);
    mr_text_add(&c->svg, "</title>\n");
    mr_text_add(&c->svg, style);
    mr_text_add(&c->svg, "<rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n");
    mr_text_format(&c->svg, "<text class=\"title\" x=\"%d\" y=\"30\">", LEFT);
    add_escaped(&c->svg, title);
    mr_text_add(&c->svg, "</text>\n");
    draw_axes(c);
    draw_series(c);
    draw_legend(c);
    if (!c->of[TRAIN].n && !c->of[TEST].n && !c->of[ACCURACY].n)
        mr_text_format(&c->svg, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">nothing measured yet</text>\n", (LEFT + RIGHT) / 2,
                       (TOP + BOTTOM) / 2);
    mr_text_add(&c->svg, "</svg>\n");
}

int mr_curve_write(const char *path, const mr_curve_point *points, size_t n, const char *title, mr_error *err)
{
    curve *c = mr_alloc(1, sizeof *c);
    if (!c) return mr_no_memory(err, "the learning curve");
    take_points(c, points, n);
    c->loss = loss_axis(c);
    draw(c, title);
    int status = c->svg.failed ? mr_no_memory(err, "the learning curve") : mr_file_replace(path, c->svg.data, c->svg.size, err);
    mr_text_free(&c->svg);
    mr_free(c);
    return status;
}
