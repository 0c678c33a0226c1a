/* The learning curve: thins out the points, smooths the training loss and hands them to a chart. */
#include "plot/curve.h"

#include "core/mem.h"
#include "plot/chart.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BINS = 1000 }; /* points of one line at most: more than the plot has pixels */

typedef enum series_kind { TRAIN, TEST, ACCURACY, SERIES } series_kind;

typedef struct series {
    size_t n;
    double x[BINS], y[BINS]; /* steps and values, in the order of the steps */
    double last;
    char label[64];
} series;

typedef struct curve {
    series of[SERIES];
    double best_x, best_y; /* the best point; NaN: none */
    char best_label[64];
    double smooth[BINS]; /* of the training loss */
    double last_step;
} curve;

/* ---- the data */

static double value_of(const mr_curve_point *point, series_kind kind)
{
    return kind == TRAIN ? point->train_loss : kind == TEST ? point->test_loss : 100 * point->accuracy;
}

static int usable(const mr_curve_point *point, series_kind kind)
{
    return point->step >= 0 && mr_chart_usable(value_of(point, kind));
}

/* Means over equal spans of steps: a line of a million points becomes one that a browser draws at once. */
static void bin(series *line, const mr_curve_point *points, size_t n, series_kind kind, double last_step)
{
    double count[BINS] = {0}, x[BINS] = {0}, y[BINS] = {0};
    line->last = NAN;
    for (size_t i = 0; i < n; i++) {
        if (!usable(&points[i], kind)) continue;
        size_t at = (size_t)((double)points[i].step / (last_step + 1) * BINS);
        if (at >= BINS) at = BINS - 1; /* so many steps that one more is lost in rounding */
        count[at]++;
        x[at] += ((double)points[i].step - x[at]) / count[at];
        y[at] += (value_of(&points[i], kind) - y[at]) / count[at];
        line->last = value_of(&points[i], kind);
    }
    for (size_t at = 0; at < BINS; at++) {
        if (!count[at]) continue;
        line->x[line->n] = x[at];
        line->y[line->n++] = y[at];
    }
}

static void take_points(curve *c, const mr_curve_point *points, size_t n, int64_t best_step)
{
    c->last_step = 1;
    c->best_x = c->best_y = NAN;
    for (size_t i = 0; i < n; i++)
        if (best_step > 0 && points[i].step == best_step && usable(&points[i], TEST)) {
            c->best_x = (double)best_step;
            c->best_y = points[i].test_loss;
        }
    for (size_t i = 0; i < n; i++)
        if (points[i].step > c->last_step) c->last_step = (double)points[i].step;
    for (series_kind kind = TRAIN; kind < SERIES; kind++) bin(&c->of[kind], points, n, kind, c->last_step);
}

static mr_span loss_span(const curve *c)
{
    mr_values values = MR_NO_VALUES;
    for (series_kind kind = TRAIN; kind <= TEST; kind++)
        for (size_t i = 0; i < c->of[kind].n; i++) mr_values_take(&values, c->of[kind].y[i]);
    return mr_span_of(&values, MR_SCALE_AUTO, 0);
}

/* A centred mean of what the eye sees: on a log scale the geometric mean. It narrows towards the steep
 * beginning and is one-sided at the end. Returns its half width. */
static size_t smoothen(double *out, const series *line, const mr_span *span)
{
    const int is_log = span->scale != MR_SCALE_LINEAR;
    const size_t n = line->n, half = n / 50;
    for (size_t i = 0; i < n; i++) {
        size_t before = half < i ? half : i, after = before < n - 1 - i ? before : n - 1 - i;
        double sum = 0;
        for (size_t j = i - before; j <= i + after; j++) sum += is_log ? log(fmax(line->y[j], span->low)) : line->y[j];
        const double mean = sum / (double)(before + after + 1);
        out[i] = is_log ? exp(mean) : mean;
    }
    return half;
}

/* ---- the picture */

/* A line's name, with the value that it ends on. */
static void write_labels(curve *c)
{
    char number[MR_REAL_MAX];
    series *train = &c->of[TRAIN], *test = &c->of[TEST], *accuracy = &c->of[ACCURACY];
    if (train->n) snprintf(train->label, sizeof train->label, "train loss %s", mr_brief_print(number, train->last, 4));
    if (test->n) snprintf(test->label, sizeof test->label, "test loss %s", mr_brief_print(number, test->last, 4));
    if (isfinite(c->best_y))
        snprintf(c->best_label, sizeof c->best_label, "best %s, step %.0f", mr_brief_print(number, c->best_y, 4),
                 c->best_x);
    if (accuracy->n)
        snprintf(accuracy->label, sizeof accuracy->label, "accuracy %s %%",
                 mr_brief_print(number, floor(accuracy->last * 100 + 1e-9) / 100, 4));
}

int mr_curve_write(const char *path, const mr_curve_point *points, size_t n, int64_t best_step, const char *title,
                   mr_error *err)
{
    curve *c = mr_alloc(1, sizeof *c);
    if (!c) return mr_no_memory(err, "the learning curve");
    take_points(c, points, n, best_step);
    write_labels(c);
    const mr_span span = loss_span(c);
    const series *train = &c->of[TRAIN], *test = &c->of[TEST], *accuracy = &c->of[ACCURACY];
    const int noisy = smoothen(c->smooth, train, &span) > 0;
    const mr_chart_series lines[] = {
        {.n = noisy ? train->n : 0, .x = train->x, .y = train->y, .colour = 1, .style = MR_CHART_FAINT},
        {.name = train->label, .n = train->n, .x = train->x, .y = c->smooth, .colour = 1, .style = MR_CHART_PLAIN},
        {.name = test->label, .n = test->n, .x = test->x, .y = test->y, .colour = 2},
        {.name = c->best_label,
         .n = isfinite(c->best_y),
         .x = &c->best_x,
         .y = &c->best_y,
         .colour = 6,
         .style = MR_CHART_RING},
        {.name = accuracy->label, .n = accuracy->n, .x = accuracy->x, .y = accuracy->y, .colour = 3, .right = 1}};
    const mr_chart chart = {.title = title,
                            .x = {.label = "training steps", .high = c->last_step},
                            .y = {.label = "loss", .scale = MR_SCALE_AUTO},
                            .right = {.label = "accuracy (%)", .high = 100},
                            .series = lines,
                            .count = sizeof lines / sizeof *lines};
    int status = mr_chart_write(path, &chart, err);
    mr_free(c);
    return status;
}
