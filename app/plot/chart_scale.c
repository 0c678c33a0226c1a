/* Spans and ticks of linear and logarithmic axes. */
#include "plot/chart_scale.h"

#include <math.h>

#define HUGE_VALUE 1e150

int mr_chart_usable(double value) { return fabs(value) < HUGE_VALUE; }

void mr_values_take(mr_values *v, double value)
{
    v->low = fmin(v->low, value);
    v->high = fmax(v->high, value);
    if (value > 1 / HUGE_VALUE) v->least = fmin(v->least, value);
}

/* 1, 2, 2.5 or 5 times a power of ten: about `ticks` of them in the span. */
static double nice_step(double span, int ticks)
{
    double rough = span / ticks, power = pow(10, floor(log10(rough))), lead = rough / power;
    return power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 2.5 ? 2.5 : lead <= 5 ? 5 : 10);
}

static mr_span linear_span(double low, double high, int tight)
{
    if (!tight && low > 0 && low < 0.4 * high) low = 0;
    if (!(high - low > 1e-9 * fabs(high))) { /* one value, or nearly: some room around it */
        double room = fabs(high) > 0 ? 0.1 * fabs(high) : 1;
        low -= room;
        high += room;
    }
    if (tight) return (mr_span){low, high, MR_SCALE_LINEAR};
    double step = nice_step(high - low, 5);
    return (mr_span){step * floor(low / step), step * ceil(high / step), MR_SCALE_LINEAR};
}

/* A little beyond the values, so that none lies on the frame; zeros lie on the floor. */
static mr_span log_span(double least, double high, mr_scale scale)
{
    double room = fmax(pow(high / least, 0.03), 1.1);
    return (mr_span){least / room, high * room, scale};
}

mr_span mr_span_of(const mr_values *v, mr_scale scale, int tight)
{
    if (v->low > v->high)
        return scale == MR_SCALE_LOG2 || scale == MR_SCALE_LOG10 ? (mr_span){1, 2, scale}
                                                                 : (mr_span){0, 1, MR_SCALE_LINEAR};
    if (scale == MR_SCALE_AUTO) scale = v->low >= 0 && v->high > 100 * v->least ? MR_SCALE_LOG10 : MR_SCALE_LINEAR;
    if (scale == MR_SCALE_LINEAR) return linear_span(v->low, v->high, tight);
    return v->least > v->high ? (mr_span){1, 2, scale} : log_span(v->least, v->high, scale);
}

double mr_span_share(const mr_span *s, double value)
{
    value = value < s->low ? s->low : value > s->high ? s->high : value;
    return s->scale == MR_SCALE_LINEAR ? (value - s->low) / (s->high - s->low)
                                       : log(value / s->low) / log(s->high / s->low);
}

static int add_tick(mr_tick *ticks, int count, double value, int labelled)
{
    if (count == MR_TICKS) return count;
    ticks[count] = (mr_tick){value, labelled};
    return count + 1;
}

static int linear_ticks(const mr_span *s, int about, mr_tick *ticks)
{
    int count = 0;
    double step = nice_step(s->high - s->low, about);
    double first = ceil(s->low / step - 1e-9), last = floor(s->high / step + 1e-9);
    for (double i = first; i <= last && count < MR_TICKS; i++)
        count = add_tick(ticks, count, i * step + 0.0, 1); /* 0, not −0 */
    return count;
}

/* Powers of two, all of them or every second, third, … */
static int log2_ticks(const mr_span *s, int about, mr_tick *ticks)
{
    int count = 0, first = (int)ceil(log2(s->low)), last = (int)floor(log2(s->high));
    int each = 1 + (last - first) / (2 * about);
    for (int n = first; n <= last; n++)
        if (n % each == 0) count = add_tick(ticks, count, ldexp(1, n), 1);
    return count;
}

/* Powers of ten; 2 and 5 times them where there is room. */
static int log10_ticks(const mr_span *s, mr_tick *ticks)
{
    double decades = log10(s->high / s->low);
    int count = 0, first = (int)floor(log10(s->low)), last = (int)ceil(log10(s->high)), each = 1 + (int)(decades / 8);
    for (int n = first; n <= last; n++)
        for (int lead = 1; lead <= 5; lead += lead == 1 ? 1 : 3) { /* 1, 2, 5 */
            double value = lead * pow(10, n);
            if (value < s->low || value > s->high || (lead > 1 && decades > 4) || n % each) continue;
            count = add_tick(ticks, count, value, lead == 1 || decades < 3);
        }
    return count;
}

int mr_span_ticks(const mr_span *s, int about, mr_tick ticks[MR_TICKS])
{
    if (s->scale == MR_SCALE_LINEAR) return linear_ticks(s, about, ticks);
    return s->scale == MR_SCALE_LOG2 ? log2_ticks(s, about, ticks) : log10_ticks(s, ticks);
}
