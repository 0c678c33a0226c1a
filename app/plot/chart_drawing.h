/* Inside a chart: the picture that is being drawn, and the files that draw its parts. */
#ifndef MR_APP_PLOT_CHART_DRAWING_H
#define MR_APP_PLOT_CHART_DRAWING_H

#include "plot/chart.h"

/* The picture and the plot in it, in pixels. The right margin holds the second axis whether it is drawn or not, so that
 * pictures of different runs can be laid over each other. */
enum { WIDTH = 800, HEIGHT = 480, LEFT = 68, RIGHT = WIDTH - 68, TOP = 78, BOTTOM = HEIGHT - 58 };
enum { TITLE_TOP = 30, TITLE_ROW = 20, TITLE_ROWS = 3, LEGEND_TOP = 57, LEGEND_ROW = 20 };
#define TEXT_SIZE 13.0

typedef struct mr_drawing {
    const mr_chart *chart;
    mr_strbuf *svg;
    mr_span x, y, right;
    int top, legend_top;
} mr_drawing;

/* ---- chart_text.c: numbers and texts in SVG */

typedef struct mr_label {
    char text[MR_REAL_MAX];
} mr_label;

mr_label mr_pixel(double value); /* a coordinate, to a tenth */
mr_label mr_brief(double value, int digits);
/* Any text as XML: escaped, without control characters and broken UTF-8. At most `most` characters of it; … stands for
 * the rest. */
void mr_draw_escaped(mr_strbuf *svg, const char *text, size_t size, int most);
void mr_draw_text(mr_strbuf *svg, const char *attributes, const char *text); /* text NULL: none */
int mr_letters(const char *text);
/* The bytes of the first row of a text that is broken at blanks into rows of at most `most` letters. */
size_t mr_row_bytes(const char *text, int most);
/* The font size, at most `size`, at which this many letters fit into `room` pixels. */
double mr_fitting_size(double size, double room, int letters);

/* ---- chart_marks.c: what a series looks like */

int mr_is_paper(const mr_chart_series *s);
int mr_is_over(const mr_chart_series *s);           /* drawn last, so that no line or bar hides it */
size_t mr_rank(const mr_drawing *d, size_t series); /* its number among the series that are not the paper's */
int mr_series_colour(const mr_drawing *d, size_t series);
const char *mr_line_class(mr_chart_style style);
void mr_draw_marker(mr_drawing *d, size_t series, double x, double y);
void mr_draw_paper_mark(mr_drawing *d, double x, double y);
void mr_draw_spread(mr_drawing *d, const mr_span *span, double x, double y, double spread);

/* ---- chart_points.c: which points there are, and where */

int mr_has_point(const mr_chart *chart, const mr_chart_series *s, size_t i);
double mr_spread_at(const mr_chart_series *s, size_t i); /* 0: none */
const mr_span *mr_span_for(const mr_drawing *d, const mr_chart_series *s);
size_t mr_fit_spans(mr_drawing *d); /* returns the number of points */
double mr_pixel_x(const mr_drawing *d, double value);
double mr_pixel_y(const mr_drawing *d, const mr_span *span, double value);

/* ---- the parts, a file each */

void mr_draw_axes(mr_drawing *d);
void mr_draw_line(mr_drawing *d, size_t series);
void mr_draw_bars(mr_drawing *d, size_t series);
int mr_legend_rows(const mr_chart *chart);
void mr_draw_legend(mr_drawing *d);

#endif
