/* Draws a chart as SVG: axes, series, bars and the legend. */
#include "plot/chart.h"

#include "core/file.h"
#include "core/utf8.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The picture and the plot in it, in pixels. The right margin holds the second axis whether it is drawn or not, so that
 * pictures of different runs can be laid over each other. */
enum { WIDTH = 800, HEIGHT = 480, LEFT = 68, RIGHT = WIDTH - 68, TOP = 78, BOTTOM = HEIGHT - 58 };
enum { LEGEND_TOP = 57, LEGEND_ROW = 20, KEY = 30 };
enum {
    EVERY_POINT = 60,
    SOME_POINTS = 10
}; /* markers: on every point of up to so many, otherwise on about so many of a line */
enum { TEXT_CHARS = 84 };
#define LETTER 7.2 /* width of one, estimated */

typedef struct drawing {
    const mr_chart *chart;
    mr_text *svg;
    mr_span x, y, right;
    int top;
} drawing;

static const char style[] =
    "<style>\n"
    "  text { font: 13px system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'DejaVu Sans', sans-serif; "
    "fill: #4a5160 }\n"
    "  .title { font-size: 16px; font-weight: 600; fill: #16191f } .value { font-size: 10px }\n"
    "  .ground, .marker.hollow { fill: #ffffff } .grid { stroke: #e4e7ec } .frame { stroke: #9aa2b1; fill: none }\n"
    "  .line, .key { fill: none; stroke: currentColor; stroke-width: 2.2; stroke-linejoin: round; stroke-linecap: "
    "round }\n"
    "  .dashed { stroke-width: 1.6; stroke-dasharray: 6 5 } .plain { stroke-width: 1.4 } .faint { stroke-width: 1; "
    "opacity: .35 }\n"
    "  .spread { stroke: currentColor; stroke-width: 1.2; fill: none } .band { fill: currentColor; opacity: .16 } "
    ".over { color: #4a5160 }\n"
    "  .marker { fill: currentColor; stroke: currentColor; stroke-width: 1.6; stroke-linejoin: round }\n"
    "  .stripes { stroke: currentColor; stroke-width: 3 } .wash { fill: currentColor; opacity: .35 } .coloured { fill: "
    "currentColor }\n"
    "  .c1 { color: #7c8699 } .c2 { color: #1f6fd6 } .c3 { color: #c8580a } .c4 { color: #1a8454 } .c5 { color: "
    "#8446cf }\n"
    "  .c6 { color: #c92a4b } .c7 { color: #0a8490 } .c8 { color: #8a6d00 } .c9 { color: #b8409c }\n"
    "  @media (prefers-color-scheme: dark) {\n"
    "    text { fill: #a9b2c1 } .title { fill: #eef1f6 } .over { color: #eef1f6 } .coloured { fill: currentColor }\n"
    "    .ground, .marker.hollow { fill: #12151b } .grid { stroke: #262c37 } .frame { stroke: #5b6575 }\n"
    "    .c1 { color: #8f9aad } .c2 { color: #6bb0ff } .c3 { color: #ff9d54 } .c4 { color: #4fcf94 } .c5 { color: "
    "#bd93ff }\n"
    "    .c6 { color: #ff7d93 } .c7 { color: #45d0dc } .c8 { color: #e0bd3c } .c9 { color: #f08fd6 }\n"
    "  }\n"
    "</style>\n";

/* Markers around 0,0, of about the same size to the eye; every second one is hollow. */
static const struct marker {
    const char *path;
    int hollow;
} markers[] = {{"M-3.6 0a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0-7.2 0z", 0},
               {"M-3.4-3.4h6.8v6.8h-6.8z", 1},
               {"M0-4.4L4.2 3.2H-4.2z", 0},
               {"M0-4.8L4.8 0L0 4.8L-4.8 0z", 1},
               {"M0 4.4L4.2-3.2H-4.2z", 0},
               {"M-3.6 0a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0-7.2 0z", 1},
               {"M-3.4-3.4h6.8v6.8h-6.8z", 0},
               {"M0-4.4L4.2 3.2H-4.2z", 1},
               {"M-3.6-3.6L3.6 3.6M3.6-3.6L-3.6 3.6", 0}};
enum { MARKERS = sizeof markers / sizeof *markers };

/* ---- numbers and texts */

typedef struct number {
    char text[MR_REAL_MAX];
} number;

static number pixel(double v)
{
    number out = {0};
    mr_real_print(out.text, round(v * 10) / 10, 0);
    return out;
}

static number brief(double v, int digits)
{
    number out = {0};
    mr_brief_print(out.text, v, digits);
    return out;
}

/* Powers of two are written with all their digits, by which people know them. */
static number tick_label(const mr_span *span, double value)
{
    number out = brief(value, 6);
    if (span->scale == MR_SCALE_LOG2 && value >= 1 && value < 1e6) mr_real_print(out.text, value, 6);
    return out;
}

static int is_control(uint32_t c) { return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0xfffe || c == 0xffff; }

/* Any text as XML: escaped, without control characters and broken UTF-8, and cut to a line's length. */
static void add_escaped(mr_text *svg, const char *s)
{
    size_t left = strlen(s);
    for (int shown = 0; left; shown++) {
        uint32_t codepoint;
        int bytes = mr_utf8_read(s, left, &codepoint);
        if (shown == TEXT_CHARS) {
            mr_text_add(svg, "…");
            return;
        }
        if (bytes <= 0) {
            bytes = 1;
            mr_text_add(svg, "�");
        } else if (is_control(codepoint)) {
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

static void add_text(mr_text *svg, const char *attributes, const char *s)
{
    mr_text_format(svg, "<text %s>", attributes);
    add_escaped(svg, s ? s : "");
    mr_text_add(svg, "</text>\n");
}

static int letters(const char *s)
{
    int count = 0;
    for (; s && *s; s++) count += ((unsigned char)*s & 0xc0) != 0x80;
    return count < TEXT_CHARS ? count : TEXT_CHARS;
}

/* The font size, at most `size`, at which so many letters take no more room than there is. */
static double fitting(double size, double room, int count)
{
    const double fits = room / (0.64 * count);
    return count && fits < size ? fits : size;
}

/* ---- which points there are, and where */

static const mr_chart_axis *axis_of(const mr_chart *chart, const mr_chart_series *s)
{
    return s->right ? &chart->right : &chart->y;
}

static const mr_span *span_of(const drawing *d, const mr_chart_series *s) { return s->right ? &d->right : &d->y; }

static int is_log(mr_scale scale) { return scale == MR_SCALE_LOG2 || scale == MR_SCALE_LOG10; }

static int has_point(const mr_chart *chart, const mr_chart_series *s, size_t i)
{
    if (!mr_chart_usable(s->y[i]) || (is_log(axis_of(chart, s)->scale) && s->y[i] < 0)) return 0;
    if (chart->groups) return i < chart->group_count;
    return mr_chart_usable(s->x[i]) && !(is_log(chart->x.scale) && s->x[i] <= 0);
}

static double spread_of(const mr_chart_series *s, size_t i)
{
    return s->spread && mr_chart_usable(s->spread[i]) && s->spread[i] > 0 ? s->spread[i] : 0;
}

static mr_span fit(const mr_chart_axis *axis, const mr_values *values, int tight)
{
    if (axis->high > axis->low && mr_chart_usable(axis->low) && mr_chart_usable(axis->high) &&
        !(is_log(axis->scale) && axis->low <= 0))
        return (mr_span){axis->low, axis->high, axis->scale == MR_SCALE_AUTO ? MR_SCALE_LINEAR : axis->scale};
    return mr_span_of(values, axis->scale, tight);
}

/* Returns the number of points. */
static size_t fit_spans(drawing *d)
{
    size_t points = 0;
    mr_values x = MR_NO_VALUES, y = MR_NO_VALUES, right = MR_NO_VALUES;
    for (const mr_chart_series *s = d->chart->series; s < d->chart->series + d->chart->count; s++) {
        mr_values *values = s->right ? &right : &y;
        for (size_t i = 0; i < s->n; i++) {
            if (!has_point(d->chart, s, i)) continue;
            points++;
            if (!d->chart->groups) mr_values_take(&x, s->x[i]);
            mr_values_take(values, s->y[i]);
            if (spread_of(s, i) > 0) mr_values_take(values, s->y[i] + s->spread[i]);
            if (spread_of(s, i) > 0 && (s->y[i] > s->spread[i] || s->y[i] < 0))
                mr_values_take(values, s->y[i] - s->spread[i]);
        }
    }
    if (d->chart->groups && !is_log(d->chart->y.scale)) mr_values_take(&y, 0); /* bars start at 0 */
    d->x = fit(&d->chart->x, &x, 1);
    d->y = fit(&d->chart->y, &y, 0);
    d->right = fit(&d->chart->right, &right, 0);
    return points;
}

static double pixel_x(const drawing *d, double value) { return LEFT + (RIGHT - LEFT) * mr_span_share(&d->x, value); }

static double pixel_y(const drawing *d, const mr_span *span, double value)
{
    return BOTTOM - (BOTTOM - d->top) * mr_span_share(span, value);
}

static int colour_of(const drawing *d, size_t i)
{
    int given = d->chart->series[i].colour;
    return given >= 1 && given <= MR_CHART_COLOURS ? given : 2 + (int)(i % (MR_CHART_COLOURS - 1));
}

/* ---- axes */

static void draw_y_axis(drawing *d)
{
    mr_tick ticks[MR_TICKS];
    int count = mr_span_ticks(&d->y, 5, ticks);
    for (int i = 0; i < count; i++) {
        double at = pixel_y(d, &d->y, ticks[i].value);
        number y = pixel(at), below = pixel(at + 4.5);
        mr_text_format(d->svg, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%s\" y2=\"%s\"/>\n", LEFT, RIGHT, y.text,
                       y.text);
        if (ticks[i].labelled)
            mr_text_format(d->svg, "<text x=\"%d\" y=\"%s\" text-anchor=\"end\">%s</text>\n", LEFT - 8, below.text,
                           tick_label(&d->y, ticks[i].value).text);
    }
}

/* All in the size that the longest one needs. */
static void name_groups(drawing *d)
{
    const double room = (double)(RIGHT - LEFT) / (double)d->chart->group_count;
    int longest = 0;
    for (size_t g = 0; g < d->chart->group_count; g++)
        if (letters(d->chart->groups[g]) > longest) longest = letters(d->chart->groups[g]);
    const number size = pixel(fitting(13, room - 4, longest));
    for (size_t g = 0; g < d->chart->group_count; g++) {
        char where[128];
        snprintf(where, sizeof where, "x=\"%s\" y=\"%d\" text-anchor=\"middle\" style=\"font-size: %spx\"",
                 pixel(LEFT + room * ((double)g + 0.5)).text, BOTTOM + 20, size.text);
        add_text(d->svg, where, d->chart->groups[g]);
    }
}

static void draw_x_axis(drawing *d)
{
    mr_tick ticks[MR_TICKS];
    int count = d->chart->groups ? 0 : mr_span_ticks(&d->x, 6, ticks);
    for (int i = 0; i < count; i++) {
        number x = pixel(pixel_x(d, ticks[i].value));
        mr_text_format(d->svg, "<line class=\"frame\" x1=\"%s\" x2=\"%s\" y1=\"%d\" y2=\"%d\"/>", x.text, x.text,
                       BOTTOM, BOTTOM + 5);
        if (ticks[i].labelled)
            mr_text_format(d->svg, "<text x=\"%s\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", x.text, BOTTOM + 20,
                           tick_label(&d->x, ticks[i].value).text);
    }
    if (d->chart->groups) name_groups(d);
}

/* In the colour of the first series that it belongs to. */
static void draw_right_axis(drawing *d)
{
    mr_tick ticks[MR_TICKS];
    size_t i = 0;
    while (i < d->chart->count && !(d->chart->series[i].right && d->chart->series[i].n)) i++;
    if (i == d->chart->count) return;
    const int colour = colour_of(d, i), count = mr_span_ticks(&d->right, 5, ticks);
    mr_text_format(d->svg, "<path class=\"frame\" d=\"M%d %dV%d\"/>\n<g class=\"c%d\">\n", RIGHT, d->top, BOTTOM,
                   colour);
    for (int t = 0; t < count; t++)
        if (ticks[t].labelled)
            mr_text_format(d->svg, "<text class=\"coloured\" x=\"%d\" y=\"%s\">%s</text>\n", RIGHT + 8,
                           pixel(pixel_y(d, &d->right, ticks[t].value) + 4.5).text,
                           tick_label(&d->right, ticks[t].value).text);
    char where[128];
    snprintf(where, sizeof where, "class=\"coloured\" transform=\"translate(%d %d) rotate(90)\" text-anchor=\"middle\"",
             WIDTH - 17, (d->top + BOTTOM) / 2);
    add_text(d->svg, where, d->chart->right.label);
    mr_text_add(d->svg, "</g>\n");
}

static void draw_axes(drawing *d)
{
    char where[96], label[256];
    draw_y_axis(d);
    draw_x_axis(d);
    mr_text_format(d->svg, "<path class=\"frame\" d=\"M%d %dV%dH%d\"/>\n", LEFT, d->top, BOTTOM, RIGHT);
    snprintf(where, sizeof where, "x=\"%d\" y=\"%d\" text-anchor=\"middle\"", (LEFT + RIGHT) / 2, HEIGHT - 14);
    add_text(d->svg, where, d->chart->x.label);
    snprintf(where, sizeof where, "transform=\"translate(17 %d) rotate(-90)\" text-anchor=\"middle\"",
             (d->top + BOTTOM) / 2);
    snprintf(label, sizeof label, "%.200s%s", d->chart->y.label ? d->chart->y.label : "",
             d->chart->y.scale == MR_SCALE_AUTO && d->y.scale == MR_SCALE_LOG10 ? " (log scale)" : "");
    add_text(d->svg, where, label);
    draw_right_axis(d);
}

/* ---- series */

static void draw_marker(drawing *d, size_t series, double x, double y)
{
    const struct marker *m = &markers[series % MARKERS];
    mr_text_format(d->svg, "<path class=\"marker%s\" transform=\"translate(%s %s)\" d=\"%s\"/>",
                   m->hollow ? " hollow" : "", pixel(x).text, pixel(y).text, m->path);
}

static void draw_bar_of_spread(drawing *d, const mr_span *span, double x, double y, double spread)
{
    number at = pixel(x), left = pixel(x - 4), low = pixel(pixel_y(d, span, y - spread)),
           high = pixel(pixel_y(d, span, y + spread));
    mr_text_format(d->svg, "<path class=\"spread\" d=\"M%s %sV%sM%s %sh8M%s %sh8\"/>", at.text, low.text, high.text,
                   left.text, low.text, left.text, high.text);
}

/* Along the upper edge, and back along the lower one. */
static void draw_band(drawing *d, const mr_chart_series *s)
{
    mr_text_add(d->svg, "<polygon class=\"band\" points=\"");
    for (size_t i = 0; i < 2 * s->n; i++) {
        const size_t at = i < s->n ? i : 2 * s->n - 1 - i;
        if (!has_point(d->chart, s, at)) continue;
        const double y = s->y[at] + (i < s->n ? 1 : -1) * spread_of(s, at);
        mr_text_format(d->svg, "%s,%s ", pixel(pixel_x(d, s->x[at])).text, pixel(pixel_y(d, span_of(d, s), y)).text);
    }
    mr_text_add(d->svg, "\"/>\n");
}

static void draw_points(drawing *d, size_t series, size_t count)
{
    const mr_chart_series *s = &d->chart->series[series];
    const mr_span *span = span_of(d, s);
    const int marked = s->style == MR_CHART_LINE || s->style == MR_CHART_DASHED || s->style == MR_CHART_POINTS;
    const size_t each = count <= EVERY_POINT || s->style == MR_CHART_POINTS ? 1 : count / SOME_POINTS;
    size_t shown = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (!has_point(d->chart, s, i)) continue;
        const double x = pixel_x(d, s->x[i]), y = pixel_y(d, span, s->y[i]);
        if (!s->band && spread_of(s, i) > 0) draw_bar_of_spread(d, span, x, s->y[i], s->spread[i]);
        if ((marked || count == 1) && shown++ % each == each / 2) draw_marker(d, series, x, y);
    }
    mr_text_add(d->svg, "\n");
}

static const char *const line_class[] = {"", " dashed", " plain", " faint", ""};

static void draw_line(drawing *d, size_t series)
{
    const mr_chart_series *s = &d->chart->series[series];
    size_t count = 0;
    for (size_t i = 0; i < s->n; i++) count += (size_t)has_point(d->chart, s, i);
    if (!count) return;
    mr_text_format(d->svg, "<g class=\"c%d\">\n", colour_of(d, series));
    if (s->band && s->spread) draw_band(d, s);
    if (s->style != MR_CHART_POINTS) {
        mr_text_format(d->svg, "<polyline class=\"line%s\" points=\"", line_class[s->style]);
        for (size_t i = 0; i < s->n; i++)
            if (has_point(d->chart, s, i))
                mr_text_format(d->svg, "%s,%s ", pixel(pixel_x(d, s->x[i])).text,
                               pixel(pixel_y(d, span_of(d, s), s->y[i])).text);
        mr_text_add(d->svg, "\"/>\n");
    }
    draw_points(d, series, count);
    mr_text_add(d->svg, "</g>\n");
}

/* ---- grouped bars */

/* The colour, faint, under stripes whose angle is different for each series; the first series is solid. */
static void add_pattern(drawing *d, size_t series)
{
    mr_text_format(d->svg,
                   "<pattern id=\"bar%zu\" class=\"c%d\" width=\"7\" height=\"7\" patternUnits=\"userSpaceOnUse\" "
                   "patternTransform=\"rotate(%d)\"><rect class=\"wash\" width=\"7\" height=\"7\"/>",
                   series, colour_of(d, series), (int)(45 * series));
    if (series) mr_text_add(d->svg, "<path class=\"stripes\" d=\"M0 0V7\"/>");
    else mr_text_add(d->svg, "<rect class=\"coloured\" width=\"7\" height=\"7\"/>");
    mr_text_add(d->svg, "</pattern>\n");
}

static void draw_bars(drawing *d, size_t series)
{
    const mr_chart_series *s = &d->chart->series[series];
    const mr_span *span = span_of(d, s);
    const double group = (double)(RIGHT - LEFT) / (double)d->chart->group_count,
                 width = 0.84 * group / (double)d->chart->count;
    const double ground = pixel_y(d, span, span->scale == MR_SCALE_LINEAR ? 0 : span->low);
    add_pattern(d, series);
    mr_text_format(d->svg, "<g class=\"c%d\">\n", colour_of(d, series));
    for (size_t i = 0; i < s->n; i++) {
        if (!has_point(d->chart, s, i)) continue;
        const double x = LEFT + group * ((double)i + 0.08) + width * (double)series, y = pixel_y(d, span, s->y[i]);
        const double top = fmin(y, ground), above = fmin(top, pixel_y(d, span, s->y[i] + spread_of(s, i))) - 4;
        mr_text_format(
            d->svg,
            "<rect fill=\"url(#bar%zu)\" stroke=\"currentColor\" x=\"%s\" y=\"%s\" width=\"%s\" height=\"%s\"/>",
            series, pixel(x + 0.05 * width).text, pixel(top).text, pixel(0.9 * width).text,
            pixel(fabs(y - ground)).text);
        mr_text_add(d->svg, "<g class=\"over\">");
        if (spread_of(s, i) > 0) draw_bar_of_spread(d, span, x + width / 2, s->y[i], s->spread[i]);
        mr_text_add(d->svg, "</g>");
        number value = brief(s->y[i], 3);
        if (width > 5.5 * (double)strlen(value.text))
            mr_text_format(d->svg, "<text class=\"value\" x=\"%s\" y=\"%s\" text-anchor=\"middle\">%s</text>\n",
                           pixel(x + width / 2).text, pixel(above).text, value.text);
    }
    mr_text_add(d->svg, "</g>\n");
}

/* ---- legend */

/* The place of an entry; rows are filled from the left. Returns the rows so far. */
static int place_entry(const mr_chart_series *s, int *x, int *row)
{
    const int width = KEY + (int)(LETTER * letters(s->name)) + 22;
    if (*x > LEFT && *x + width > WIDTH - 10) {
        *x = LEFT;
        ++*row;
    }
    *x += width;
    return *row + 1;
}

static int in_legend(const mr_chart_series *s) { return s->n && s->name && s->style != MR_CHART_FAINT; }

static int legend_rows(const mr_chart *chart)
{
    int x = LEFT, row = 0, rows = 1;
    for (const mr_chart_series *s = chart->series; s < chart->series + chart->count; s++)
        if (in_legend(s)) rows = place_entry(s, &x, &row);
    return rows;
}

static void draw_legend(drawing *d)
{
    int x = LEFT, row = 0;
    for (size_t i = 0; i < d->chart->count; i++) {
        const mr_chart_series *s = &d->chart->series[i];
        if (!in_legend(s)) continue;
        place_entry(s, &x, &row);
        const int start = x - KEY - (int)(LETTER * letters(s->name)) - 22, y = LEGEND_TOP + LEGEND_ROW * row;
        mr_text_format(d->svg, "<g class=\"c%d\">", colour_of(d, i));
        if (d->chart->groups)
            mr_text_format(
                d->svg,
                "<rect fill=\"url(#bar%zu)\" stroke=\"currentColor\" x=\"%d\" y=\"%d\" width=\"22\" height=\"11\"/>", i,
                start, y - 10);
        else if (s->style != MR_CHART_POINTS)
            mr_text_format(d->svg, "<path class=\"key%s\" d=\"M%d %dh22\"/>", line_class[s->style], start, y - 4);
        if (!d->chart->groups && s->style != MR_CHART_PLAIN) draw_marker(d, i, start + 11, y - 4);
        char where[96];
        snprintf(where, sizeof where, "x=\"%d\" y=\"%d\"", start + KEY, y);
        mr_text_add(d->svg, "</g>");
        add_text(d->svg, where, s->name);
    }
}

/* ---- the whole */

void mr_chart_print(mr_text *svg, const mr_chart *chart)
{
    const char *title = chart->title ? chart->title : "";
    drawing d = {.chart = chart, .svg = svg, .top = TOP + LEGEND_ROW * (legend_rows(chart) - 1)};
    const size_t points = fit_spans(&d);
    if (d.top > BOTTOM - 100) d.top = BOTTOM - 100; /* more names than a legend can hold */
    mr_text_format(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\">\n",
        WIDTH, HEIGHT, WIDTH, HEIGHT);
    mr_text_add(svg, "<title>");
    add_escaped(svg, title);
    mr_text_add(svg, "</title>\n");
    mr_text_add(svg, style);
    mr_text_add(svg, "<rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n");
    mr_text_format(svg, "<text class=\"title\" x=\"%d\" y=\"30\" style=\"font-size: %spx\">", LEFT,
                   pixel(fitting(16, WIDTH - LEFT - 10, letters(title))).text);
    add_escaped(svg, title);
    mr_text_add(svg, "</text>\n");
    draw_axes(&d);
    for (size_t i = 0; i < chart->count; i++) (chart->groups ? draw_bars : draw_line)(&d, i);
    draw_legend(&d);
    if (!points)
        mr_text_format(svg, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">nothing measured yet</text>\n",
                       (LEFT + RIGHT) / 2, (d.top + BOTTOM) / 2);
    mr_text_add(svg, "</svg>\n");
}

int mr_chart_write(const char *path, const mr_chart *chart, mr_error *err)
{
    mr_text svg = {0};
    mr_chart_print(&svg, chart);
    int status = svg.failed ? mr_no_memory(err, "a picture") : mr_file_replace(path, svg.data, svg.size, err);
    mr_text_free(&svg);
    return status;
}
