/* The axes of a chart: grid, ticks and labels. */
#include "plot/chart_drawing.h"

#include <stdio.h>
#include <string.h>

/* Powers of two are written in full; on a linear axis thousands are written with k, small ones too. */
static mr_label tick_label(const mr_span *span, double value)
{
    mr_label out = mr_brief(value, 6);
    if (span->scale == MR_SCALE_LINEAR && span->high >= 4000 && value >= 500 && value < 1e6) {
        mr_real_print(out.text, value / 1000, 4);
        strcat(out.text, "k");
    }
    if (span->scale == MR_SCALE_LOG2 && value >= 1 && value < 1e6) mr_real_print(out.text, value, 6);
    return out;
}

static void draw_y_axis(mr_drawing *d)
{
    mr_tick ticks[MR_TICKS];
    int count = mr_span_ticks(&d->y, 5, ticks);
    for (int i = 0; i < count; i++) {
        double at = mr_pixel_y(d, &d->y, ticks[i].value);
        mr_label y = mr_pixel(at), below = mr_pixel(at + 4.5);
        mr_strbuf_format(d->svg, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%s\" y2=\"%s\"/>\n", LEFT, RIGHT,
                         y.text, y.text);
        if (ticks[i].labelled)
            mr_strbuf_format(d->svg, "<text x=\"%d\" y=\"%s\" text-anchor=\"end\">%s</text>\n", LEFT - 8, below.text,
                             tick_label(&d->y, ticks[i].value).text);
    }
}

/* The name of a group on one line, or on two where it is too long for its room and has a blank. */
typedef struct group_name {
    char lines[2][160];
} group_name;

static group_name break_name(const char *name, double room)
{
    group_name out = {0};
    const char *best = NULL, *middle = name + strlen(name) / 2;
    snprintf(out.lines[0], sizeof out.lines[0], "%s", name);
    if (0.64 * TEXT_SIZE * mr_letters(name) <= room) return out;
    for (const char *at = name; (at = strchr(at, ' ')); at++)
        if (!best || (at < middle ? middle - at : at - middle) < (best < middle ? middle - best : best - middle))
            best = at;
    if (!best) return out;
    snprintf(out.lines[0], sizeof out.lines[0], "%.*s", (int)(best - name), name);
    snprintf(out.lines[1], sizeof out.lines[1], "%s", best + 1);
    return out;
}

/* All names in one size: that of the longest line. */
static void draw_group_names(mr_drawing *d)
{
    const double room = (double)(RIGHT - LEFT) / (double)d->chart->group_count;
    int longest = 0;
    for (size_t i = 0; i < 2 * d->chart->group_count; i++) {
        const group_name name = break_name(d->chart->groups[i / 2], room - 4);
        if (mr_letters(name.lines[i % 2]) > longest) longest = mr_letters(name.lines[i % 2]);
    }
    const mr_label size = mr_pixel(mr_fitting_size(TEXT_SIZE, room - 4, longest));
    for (size_t i = 0; i < 2 * d->chart->group_count; i++) {
        char where[128];
        const size_t group = i / 2;
        const group_name name = break_name(d->chart->groups[group], room - 4);
        if (!name.lines[i % 2][0]) continue;
        snprintf(where, sizeof where, "x=\"%s\" y=\"%d\" text-anchor=\"middle\" style=\"font-size: %spx\"",
                 mr_pixel(LEFT + room * ((double)group + 0.5)).text, BOTTOM + (i % 2 ? 36 : 20), size.text);
        mr_draw_text(d->svg, where, name.lines[i % 2]);
    }
}

static void draw_x_axis(mr_drawing *d)
{
    mr_tick ticks[MR_TICKS];
    int count = d->chart->groups ? 0 : mr_span_ticks(&d->x, 6, ticks);
    for (int i = 0; i < count; i++) {
        mr_label x = mr_pixel(mr_pixel_x(d, ticks[i].value));
        mr_strbuf_format(d->svg, "<line class=\"frame\" x1=\"%s\" x2=\"%s\" y1=\"%d\" y2=\"%d\"/>", x.text, x.text,
                         BOTTOM, BOTTOM + 5);
        if (ticks[i].labelled)
            mr_strbuf_format(d->svg, "<text x=\"%s\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", x.text, BOTTOM + 20,
                             tick_label(&d->x, ticks[i].value).text);
    }
    if (d->chart->groups) draw_group_names(d);
}

/* In the colour of the first series that uses it. */
static void draw_right_axis(mr_drawing *d)
{
    mr_tick ticks[MR_TICKS];
    size_t i = 0;
    while (i < d->chart->count && !(d->chart->series[i].right && d->chart->series[i].n)) i++;
    if (i == d->chart->count) return;
    const int colour = mr_series_colour(d, i), count = mr_span_ticks(&d->right, 5, ticks);
    mr_strbuf_format(d->svg, "<path class=\"frame\" d=\"M%d %dV%d\"/>\n<g class=\"c%d\">\n", RIGHT, d->top, BOTTOM,
                     colour);
    for (int t = 0; t < count; t++)
        if (ticks[t].labelled)
            mr_strbuf_format(d->svg, "<text class=\"coloured\" x=\"%d\" y=\"%s\">%s</text>\n", RIGHT + 8,
                             mr_pixel(mr_pixel_y(d, &d->right, ticks[t].value) + 4.5).text,
                             tick_label(&d->right, ticks[t].value).text);
    char where[128];
    snprintf(where, sizeof where, "class=\"coloured\" transform=\"translate(%d %d) rotate(90)\" text-anchor=\"middle\"",
             WIDTH - 17, (d->top + BOTTOM) / 2);
    mr_draw_text(d->svg, where, d->chart->right.label);
    mr_strbuf_add(d->svg, "</g>\n");
}

void mr_draw_axes(mr_drawing *d)
{
    char where[96], label[256];
    draw_y_axis(d);
    draw_x_axis(d);
    mr_strbuf_format(d->svg, "<path class=\"frame\" d=\"M%d %dV%dH%d\"/>\n", LEFT, d->top, BOTTOM, RIGHT);
    snprintf(where, sizeof where, "x=\"%d\" y=\"%d\" text-anchor=\"middle\"", (LEFT + RIGHT) / 2, HEIGHT - 14);
    if (d->chart->x.label) mr_draw_text(d->svg, where, d->chart->x.label);
    snprintf(where, sizeof where, "transform=\"translate(17 %d) rotate(-90)\" text-anchor=\"middle\"",
             (d->top + BOTTOM) / 2);
    snprintf(label, sizeof label, "%.200s%s", d->chart->y.label ? d->chart->y.label : "",
             d->chart->y.scale == MR_SCALE_AUTO && d->y.scale == MR_SCALE_LOG10 ? " (log scale)" : "");
    mr_draw_text(d->svg, where, label);
    draw_right_axis(d);
}
