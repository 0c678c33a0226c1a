/* What a series looks like: its colour, its marker, and the mark of the paper's values. */
#include "plot/chart_drawing.h"

#include <stdio.h>
#include <string.h>

/* Around 0,0, all of about the same visual size; every second one is hollow. A diamond is the paper's. */
static const struct marker {
    const char *path;
    int hollow;
} markers[] = {{"M-3.6 0a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0-7.2 0z", 0},
               {"M-3.4-3.4h6.8v6.8h-6.8z", 1},
               {"M0-4.4L4.2 3.2H-4.2z", 0},
               {"M-3.6 0a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0-7.2 0z", 1},
               {"M0 4.4L4.2-3.2H-4.2z", 0},
               {"M0-4.4L4.2 3.2H-4.2z", 1},
               {"M-3.4-3.4h6.8v6.8h-6.8z", 0},
               {"M0 4.4L4.2-3.2H-4.2z", 1},
               {"M-3.6-3.6L3.6 3.6M3.6-3.6L-3.6 3.6", 0}};
enum { MARKERS = sizeof markers / sizeof *markers };

int mr_is_paper(const mr_chart_series *s) { return s->style == MR_CHART_PAPER; }

size_t mr_rank(const mr_drawing *d, size_t series)
{
    size_t rank = 0;
    for (size_t i = 0; i < series; i++) rank += !mr_is_paper(&d->chart->series[i]);
    return rank;
}

int mr_series_colour(const mr_drawing *d, size_t i)
{
    int given = d->chart->series[i].colour;
    if (given >= 1 && given <= MR_CHART_COLOURS) return given;
    if (mr_is_paper(&d->chart->series[i])) return i ? mr_series_colour(d, i - 1) : 1;
    return 2 + (int)(mr_rank(d, i) % (MR_CHART_COLOURS - 1));
}

const char *mr_line_class(mr_chart_style style)
{
    static const char *const classes[] = {
        [MR_CHART_LINE] = "",   [MR_CHART_DASHED] = " dashed", [MR_CHART_PLAIN] = " plain", [MR_CHART_FAINT] = " faint",
        [MR_CHART_POINTS] = "", [MR_CHART_RING] = "",          [MR_CHART_PAPER] = ""};
    return classes[style];
}

int mr_model_colour(const char *name)
{
    static const struct {
        const char *model;
        int colour;
    } list[] = {{"minGRU", 2}, {"minLSTM", 3},   {"GRU", 4},        {"LSTM", 5},
                {"Mamba", 6},  {"attention", 7}, {"Transformer", 7}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (!strcmp(list[i].model, name)) return list[i].colour;
    return 0;
}

/* Its number among the series that have markers. */
static size_t marker_of(const mr_drawing *d, size_t series)
{
    size_t marked = 0;
    for (size_t i = 0; i < series; i++) {
        const mr_chart_style style = d->chart->series[i].style;
        marked += style == MR_CHART_LINE || style == MR_CHART_DASHED || style == MR_CHART_POINTS;
    }
    return marked % MARKERS;
}

int mr_is_over(const mr_chart_series *s) { return mr_is_paper(s) || s->style == MR_CHART_RING; }

void mr_draw_marker(mr_drawing *d, size_t series, double x, double y)
{
    if (d->chart->series[series].style == MR_CHART_RING) {
        mr_strbuf_format(d->svg, "<circle class=\"ring\" cx=\"%s\" cy=\"%s\" r=\"7.5\"/>", mr_pixel(x).text,
                         mr_pixel(y).text);
        return;
    }
    const struct marker *m = &markers[marker_of(d, series)];
    mr_strbuf_format(d->svg, "<path class=\"marker%s\" transform=\"translate(%s %s)\" d=\"%s\"/>",
                     m->hollow ? " hollow" : "", mr_pixel(x).text, mr_pixel(y).text, m->path);
}

/* A diamond with a dark edge, and a dot in the colour of its model. */
void mr_draw_paper_mark(mr_drawing *d, double x, double y)
{
    const mr_label at_x = mr_pixel(x), at_y = mr_pixel(y);
    mr_strbuf_format(d->svg,
                     "<path class=\"paper\" transform=\"translate(%s %s)\" d=\"M0-6.2L6.2 0L0 6.2L-6.2 0z\"/>"
                     "<circle class=\"coloured\" cx=\"%s\" cy=\"%s\" r=\"2.2\"/>\n",
                     at_x.text, at_y.text, at_x.text, at_y.text);
}

void mr_draw_spread(mr_drawing *d, const mr_span *span, double x, double y, double spread)
{
    mr_label at = mr_pixel(x), left = mr_pixel(x - 4), low = mr_pixel(mr_pixel_y(d, span, y - spread)),
             high = mr_pixel(mr_pixel_y(d, span, y + spread));
    mr_strbuf_format(d->svg, "<path class=\"spread\" d=\"M%s %sV%sM%s %sh8M%s %sh8\"/>", at.text, low.text, high.text,
                     left.text, low.text, left.text, high.text);
}
