/* Which points of a chart can be drawn, what its axes span, and where a value lies. */
#include "plot/chart_drawing.h"

#include <math.h>

static const mr_chart_axis *axis_of(const mr_chart *chart, const mr_chart_series *s)
{
    return s->right ? &chart->right : &chart->y;
}

const mr_span *mr_span_for(const mr_drawing *d, const mr_chart_series *s) { return s->right ? &d->right : &d->y; }

static int is_log(mr_scale scale) { return scale == MR_SCALE_LOG2 || scale == MR_SCALE_LOG10; }

int mr_has_point(const mr_chart *chart, const mr_chart_series *s, size_t i)
{
    if (!mr_chart_usable(s->y[i]) || (is_log(axis_of(chart, s)->scale) && s->y[i] < 0)) return 0;
    if (chart->groups) return i < chart->group_count;
    return mr_chart_usable(s->x[i]) && !(is_log(chart->x.scale) && s->x[i] <= 0);
}

double mr_spread_at(const mr_chart_series *s, size_t i)
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

size_t mr_fit_spans(mr_drawing *d)
{
    size_t points = 0;
    mr_values x = MR_NO_VALUES, y = MR_NO_VALUES, right = MR_NO_VALUES;
    for (const mr_chart_series *s = d->chart->series; s < d->chart->series + d->chart->count; s++) {
        mr_values *values = s->right ? &right : &y;
        for (size_t i = 0; i < s->n; i++) {
            if (!mr_has_point(d->chart, s, i)) continue;
            const double spread = mr_spread_at(s, i);
            points++;
            if (!d->chart->groups) mr_values_take(&x, s->x[i]);
            mr_values_take(values, s->y[i]);
            if (spread > 0) mr_values_take(values, s->y[i] + spread);
            if (spread > 0 && (s->y[i] > spread || s->y[i] < 0)) mr_values_take(values, s->y[i] - spread);
        }
    }
    if (d->chart->groups && !is_log(d->chart->y.scale)) mr_values_take(&y, 0); /* bars stand on the zero line */
    d->x = fit(&d->chart->x, &x, 1);
    d->y = fit(&d->chart->y, &y, 0);
    d->right = fit(&d->chart->right, &right, 0);
    return points;
}

double mr_pixel_x(const mr_drawing *d, double value) { return LEFT + (RIGHT - LEFT) * mr_span_share(&d->x, value); }

double mr_pixel_y(const mr_drawing *d, const mr_span *span, double value)
{
    return BOTTOM - (BOTTOM - d->top) * mr_span_share(span, value);
}
