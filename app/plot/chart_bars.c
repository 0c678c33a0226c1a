/* Grouped bars: a bar of every series in every group, and the paper's values over the bars they belong to. */
#include "plot/chart_drawing.h"

#include <math.h>
#include <string.h>

/* Where the bars of one series stand. */
typedef struct places {
    double group, width, first; /* of a group and a bar in pixels; where the first bar begins */
} places;

static places places_of(const mr_drawing *d, size_t series)
{
    const double group = (double)(RIGHT - LEFT) / (double)d->chart->group_count,
                 width = 0.84 * group / fmax(1, (double)mr_rank(d, d->chart->count));
    const size_t slot = mr_rank(d, series) - (mr_is_paper(&d->chart->series[series]) && series > 0);
    return (places){group, width, LEFT + 0.08 * group + width * (double)slot};
}

/* Values stand above the bars where there is room for every one of them. */
static int values_fit(const mr_drawing *d, double width)
{
    for (const mr_chart_series *s = d->chart->series; s < d->chart->series + d->chart->count; s++)
        for (size_t i = 0; i < s->n; i++)
            if (!mr_is_paper(s) && mr_has_point(d->chart, s, i) &&
                width < 6.6 * (double)strlen(mr_brief(s->y[i], 3).text))
                return 0;
    return 1;
}

/* Stripes at an angle of the series' own tell bars apart without colour; the first series is solid. */
static void add_pattern(mr_drawing *d, size_t series)
{
    const size_t rank = mr_rank(d, series);
    mr_strbuf_format(d->svg,
                     "<pattern id=\"bar%zu\" class=\"c%d\" width=\"7\" height=\"7\" patternUnits=\"userSpaceOnUse\" "
                     "patternTransform=\"rotate(%d)\"><rect class=\"coloured\" width=\"7\" height=\"7\"/>",
                     series, mr_series_colour(d, series), (int)(45 * rank));
    if (rank) mr_strbuf_add(d->svg, "<path class=\"stripes\" d=\"M0 0V7\"/>");
    mr_strbuf_add(d->svg, "</pattern>\n");
}

/* The height that a value is written at: above the bar, its spread and the paper's mark. */
static double value_height(const mr_drawing *d, size_t series, size_t i, double top)
{
    const mr_chart_series *s = &d->chart->series[series], *next = s + 1;
    const mr_span *span = mr_span_for(d, s);
    double height = fmin(top, mr_pixel_y(d, span, s->y[i] + mr_spread_at(s, i)));
    if (series + 1 < d->chart->count && mr_is_paper(next) && i < next->n && mr_has_point(d->chart, next, i)) {
        const double mark = mr_pixel_y(d, span, next->y[i]);
        if (mark < height + 8 && mark > height - 18) height = mark - 6;
    }
    return height - 4;
}

static void draw_bar(mr_drawing *d, size_t series, size_t i, const places *p, int with_value)
{
    const mr_chart_series *s = &d->chart->series[series];
    const mr_span *span = mr_span_for(d, s);
    const double ground = mr_pixel_y(d, span, 0); /* on a logarithmic scale its floor */
    const double x = p->first + p->group * (double)i, y = mr_pixel_y(d, span, s->y[i]), top = fmin(y, ground);
    mr_strbuf_format(
        d->svg, "<rect fill=\"url(#bar%zu)\" stroke=\"currentColor\" x=\"%s\" y=\"%s\" width=\"%s\" height=\"%s\"/>",
        series, mr_pixel(x + 0.05 * p->width).text, mr_pixel(top).text, mr_pixel(0.9 * p->width).text,
        mr_pixel(fabs(y - ground)).text);
    mr_strbuf_add(d->svg, "<g class=\"over\">");
    if (mr_spread_at(s, i) > 0) mr_draw_spread(d, span, x + p->width / 2, s->y[i], s->spread[i]);
    mr_strbuf_add(d->svg, "</g>\n");
    if (with_value)
        mr_strbuf_format(d->svg, "<text class=\"value\" x=\"%s\" y=\"%s\" text-anchor=\"middle\">%s</text>\n",
                         mr_pixel(x + p->width / 2).text, mr_pixel(value_height(d, series, i, top)).text,
                         mr_brief(s->y[i], 3).text);
}

void mr_draw_bars(mr_drawing *d, size_t series)
{
    const mr_chart_series *s = &d->chart->series[series];
    const places p = places_of(d, series);
    const int with_values = values_fit(d, p.width);
    if (!mr_is_paper(s)) add_pattern(d, series);
    mr_strbuf_format(d->svg, "<g class=\"c%d\">\n", mr_series_colour(d, series));
    for (size_t i = 0; i < s->n; i++) {
        if (!mr_has_point(d->chart, s, i)) continue;
        if (mr_is_paper(s))
            mr_draw_paper_mark(d, p.first + p.group * (double)i + p.width / 2,
                               mr_pixel_y(d, mr_span_for(d, s), s->y[i]));
        else draw_bar(d, series, i, &p, with_values);
    }
    mr_strbuf_add(d->svg, "</g>\n");
}
