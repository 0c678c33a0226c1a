/* A chart as one SVG file, for light and dark pages: lines or grouped bars, ± as bars or a band, series that
 * can be told apart without colour. */
#ifndef MR_APP_PLOT_CHART_H
#define MR_APP_PLOT_CHART_H

#include "core/status.h"
#include "plot/chart_scale.h"
#include "core/strbuf.h"

typedef struct mr_chart_axis {
    const char *label; /* with its unit: "training step (ms)"; NULL: none */
    mr_scale scale;
    double low, high; /* its ends; high ≤ low: from the values */
} mr_chart_axis;

typedef enum mr_chart_style {
    MR_CHART_LINE,   /* with markers */
    MR_CHART_DASHED, /* the same, dashed: numbers of others */
    MR_CHART_PLAIN,  /* without markers, thinner */
    MR_CHART_FAINT,  /* thinner still, and not in the legend */
    MR_CHART_POINTS, /* markers alone */
    MR_CHART_RING,   /* a large ring around each point, over all lines */
    /* the paper's values: diamonds, the same in every chart, of the series before it. Of several such series the first
     * is in the legend. In a chart of bars they lie over the bars of that series */
    MR_CHART_PAPER
} mr_chart_style;

enum { MR_CHART_COLOURS = 9 }; /* 1: grey; 2 …: blue, orange, green, violet, red, teal, ochre, pink */

typedef struct mr_chart_series {
    const char *name;
    size_t n;
    const double *x, *y;  /* of bars: x is NULL and y[i] belongs to group i */
    const double *spread; /* ± around y, NULL: none. Where it is not finite, none is drawn */
    int band;             /* the spread as a band, not as bars */
    mr_chart_style style;
    int colour; /* 0: by the place of the series, from blue on; of the paper's values that of the series before it */
    int right;  /* its axis is the right one */
} mr_chart_series;

typedef struct mr_chart {
    const char *title;
    mr_chart_axis x, y, right;
    const mr_chart_series *series;
    size_t count;
    const char *const *groups; /* NULL: lines; otherwise grouped bars, with these names below, and x is not used */
    size_t group_count;
} mr_chart;

/* The colour that a model has in every chart ("minGRU"); 0: no model of that name. */
int mr_model_colour(const char *name);

/* Any numbers and texts give a valid picture: points that are not finite are left out, and so are those that a
 * logarithmic axis cannot show (y = 0 is drawn on its floor). */
void mr_chart_print(mr_strbuf *svg, const mr_chart *chart);
/* What is in every picture, so that it is known as one of ours; pictures of 0.1 have the other alone. */
#define MR_CHART_MARK "<!-- Made by minrnn. -->"
#define MR_CHART_OLD_MARK "<rect class=\"ground\" width=\"100%\" height=\"100%\"/>"

/* Replaces the file in one step. */
int mr_chart_write(const char *path, const mr_chart *chart, mr_error *err);

#endif
