/* The legend: a key and a name for every series, and one for all of the paper's values. */
#include "plot/chart_drawing.h"

#include <stdio.h>

enum { KEY = 30, GAP = 22 }; /* widths of a key with the room after it, and between entries */
#define LETTER 7.2           /* width of one, estimated */

static int width_of(const mr_chart_series *s) { return KEY + (int)(LETTER * mr_letters(s->name)) + GAP; }

/* Moves *x after the entry, which begins a new row where the last one is full. Returns the rows so far. */
static int place_entry(const mr_chart_series *s, int *x, int *row)
{
    const int width = width_of(s);
    if (*x > LEFT && *x + width > WIDTH - 10) {
        *x = LEFT;
        ++*row;
    }
    *x += width;
    return *row + 1;
}

/* The paper's values come in several series, one for each model, and are named once. */
static int is_in_legend(const mr_chart *chart, size_t i)
{
    const mr_chart_series *s = &chart->series[i];
    if (!s->n || !s->name || s->style == MR_CHART_FAINT) return 0;
    for (size_t k = 0; mr_is_paper(s) && k < i; k++)
        if (mr_is_paper(&chart->series[k]) && is_in_legend(chart, k)) return 0;
    return 1;
}

int mr_legend_rows(const mr_chart *chart)
{
    int x = LEFT, row = 0, rows = 1;
    for (int paper = 0; paper < 2; paper++)
        for (size_t i = 0; i < chart->count; i++)
            if (is_in_legend(chart, i) && mr_is_paper(&chart->series[i]) == paper)
                rows = place_entry(&chart->series[i], &x, &row);
    return rows;
}

static void draw_key(mr_drawing *d, size_t i, int x, int y)
{
    const mr_chart_series *s = &d->chart->series[i];
    mr_strbuf_format(d->svg, "<g class=\"c%d\">", mr_is_paper(s) ? 1 : mr_series_colour(d, i));
    if (mr_is_paper(s)) mr_draw_paper_mark(d, x + 11, y - 4);
    else if (d->chart->groups)
        mr_strbuf_format(
            d->svg,
            "<rect fill=\"url(#bar%zu)\" stroke=\"currentColor\" x=\"%d\" y=\"%d\" width=\"22\" height=\"11\"/>", i, x,
            y - 10);
    else if (s->style != MR_CHART_POINTS && s->style != MR_CHART_RING)
        mr_strbuf_format(d->svg, "<path class=\"key%s\" d=\"M%d %dh22\"/>", mr_line_class(s->style), x, y - 4);
    if (!d->chart->groups && s->style != MR_CHART_PLAIN && !mr_is_paper(s)) mr_draw_marker(d, i, x + 11, y - 4);
    mr_strbuf_add(d->svg, "</g>");
}

void mr_draw_legend(mr_drawing *d)
{
    int x = LEFT, row = 0;
    for (int paper = 0; paper < 2; paper++)
        for (size_t i = 0; i < d->chart->count; i++) {
            const mr_chart_series *s = &d->chart->series[i];
            char where[96];
            if (!is_in_legend(d->chart, i) || mr_is_paper(s) != paper) continue;
            place_entry(s, &x, &row);
            const int start = x - width_of(s), y = d->legend_top + LEGEND_ROW * row;
            draw_key(d, i, start, y);
            snprintf(where, sizeof where, "x=\"%d\" y=\"%d\"", start + KEY, y);
            mr_draw_text(d->svg, where, s->name);
        }
}
