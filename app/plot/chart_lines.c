/* Series of points: lines with markers, bands, and the paper's values. */
#include "plot/chart_drawing.h"

enum { EVERY_POINT = 60, SOME_POINTS = 10 }; /* up to EVERY_POINT points all are marked, of more about SOME_POINTS */

/* Along the upper edge, and back along the lower one. */
static void draw_band(mr_drawing *d, const mr_chart_series *s)
{
    mr_strbuf_add(d->svg, "<polygon class=\"band\" points=\"");
    for (size_t i = 0; i < 2 * s->n; i++) {
        const size_t at = i < s->n ? i : 2 * s->n - 1 - i;
        if (!mr_has_point(d->chart, s, at)) continue;
        const double y = s->y[at] + (i < s->n ? 1 : -1) * mr_spread_at(s, at);
        mr_strbuf_format(d->svg, "%s,%s ", mr_pixel(mr_pixel_x(d, s->x[at])).text,
                         mr_pixel(mr_pixel_y(d, mr_span_for(d, s), y)).text);
    }
    mr_strbuf_add(d->svg, "\"/>\n");
}

static void draw_points(mr_drawing *d, size_t series, size_t count)
{
    const mr_chart_series *s = &d->chart->series[series];
    const mr_span *span = mr_span_for(d, s);
    const int marked = s->style == MR_CHART_LINE || s->style == MR_CHART_DASHED || s->style == MR_CHART_POINTS ||
                       s->style == MR_CHART_RING;
    const size_t each = count <= EVERY_POINT || s->style == MR_CHART_POINTS ? 1 : count / SOME_POINTS;
    size_t shown = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (!mr_has_point(d->chart, s, i)) continue;
        const double x = mr_pixel_x(d, s->x[i]), y = mr_pixel_y(d, span, s->y[i]);
        if (!s->band && mr_spread_at(s, i) > 0) mr_draw_spread(d, span, x, s->y[i], s->spread[i]);
        if (mr_is_paper(s)) mr_draw_paper_mark(d, x, y);
        else if ((marked || count == 1) && shown++ % each == each / 2) mr_draw_marker(d, series, x, y);
    }
    mr_strbuf_add(d->svg, "\n");
}

void mr_draw_line(mr_drawing *d, size_t series)
{
    const mr_chart_series *s = &d->chart->series[series];
    size_t count = 0;
    for (size_t i = 0; i < s->n; i++) count += (size_t)mr_has_point(d->chart, s, i);
    if (!count) return;
    mr_strbuf_format(d->svg, "<g class=\"c%d\">\n", mr_series_colour(d, series));
    if (s->band && s->spread) draw_band(d, s);
    if (s->style != MR_CHART_POINTS && !mr_is_over(s)) {
        mr_strbuf_format(d->svg, "<polyline class=\"line%s\" points=\"", mr_line_class(s->style));
        for (size_t i = 0; i < s->n; i++)
            if (mr_has_point(d->chart, s, i))
                mr_strbuf_format(d->svg, "%s,%s ", mr_pixel(mr_pixel_x(d, s->x[i])).text,
                                 mr_pixel(mr_pixel_y(d, mr_span_for(d, s), s->y[i])).text);
        mr_strbuf_add(d->svg, "\"/>\n");
    }
    draw_points(d, series, count);
    mr_strbuf_add(d->svg, "</g>\n");
}
