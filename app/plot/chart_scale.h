/* The scale of one axis: which values it spans, where a value is on it, and its ticks. */
#ifndef MR_APP_PLOT_CHART_SCALE_H
#define MR_APP_PLOT_CHART_SCALE_H

#include <stddef.h>

typedef enum mr_scale {
    MR_SCALE_LINEAR,
    MR_SCALE_LOG2,
    MR_SCALE_LOG10,
    MR_SCALE_AUTO /* log10 when no value is negative and they span more than two decades, else linear */
} mr_scale;

typedef struct mr_span {
    double low, high;
    mr_scale scale; /* never MR_SCALE_AUTO */
} mr_span;

/* The finite values that a scale is made for; start with MR_NO_VALUES. */
typedef struct mr_values {
    double low, high, least; /* least: of the positive ones */
} mr_values;

#define MR_NO_VALUES ((mr_values){INFINITY, -INFINITY, INFINITY})

/* Finite, and far enough from overflow that differences, sums and ratios are finite too. */
int mr_chart_usable(double value);
void mr_values_take(mr_values *values, double value); /* one that is usable */

/* From the least to the greatest value. tight: exactly so; otherwise out to the next ticks, and from 0 where that is
 * near. */
mr_span mr_span_of(const mr_values *values, mr_scale scale, int tight);

/* Where a value lies, 0 … 1: outside it is at the nearer end; so are zeros on a logarithmic scale. */
double mr_span_share(const mr_span *span, double value);

enum { MR_TICKS = 64 };

typedef struct mr_tick {
    double value;
    int labelled;
} mr_tick;

/* About this many; returns their number. */
int mr_span_ticks(const mr_span *span, int about, mr_tick ticks[MR_TICKS]);

#endif
