/* The caller's batches: every array looked through before a device sees it, and results written back. */
#include "api/api.h"

#include <limits.h>
#include <math.h>
#include <string.h>

static int check_shape(const mr_net *net, const mr_batch *d, mr_error *err)
{
    if (d->B < 1 || d->T < 1 || d->T > INT_MAX / d->B)
        return mr_fail(err, MR_EINVAL, "B = %d, T = %d: both must be 1 or more, and their product an int", d->B, d->T);
    if (mr_head_pairs(net->face.head) && d->B % 2)
        return mr_fail(err, MR_EINVAL, "B = %d: this model takes pairs of sequences; B must be even", d->B);
    if (net->face.input == MR_INPUT_TOKENS && !d->ids)
        return mr_fail(err, MR_EINVAL, "ids is NULL: this model takes tokens");
    if (net->face.input == MR_INPUT_REALS && !d->values)
        return mr_fail(err, MR_EINVAL, "values is NULL: this model takes values");
    for (int b = 0; d->length && b < d->B; b++)
        if (d->length[b] < 1 || d->length[b] > d->T)
            return mr_fail(err, MR_EINVAL, "length[%d] = %d: must be 1 … T, which is %d", b, (int)d->length[b], d->T);
    return 0;
}

/* Loops without a branch, so that they cost a few percent of the copy that follows; the second one only looks for a
 * name. */
static int ids_within(const int32_t *ids, size_t n, uint32_t limit)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) bad |= (uint32_t)((uint32_t)ids[i] >= limit);
    return !bad;
}

static int all_finite(const float *x, size_t n)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bad |= (uint32_t)((bits & 0x7f800000u) == 0x7f800000u);
    }
    return !bad;
}

static int check_values(const float *x, size_t n, mr_error *err)
{
    if (all_finite(x, n)) return 0;
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return mr_fail(err, MR_EINVAL, "values[%zu] is %s", i, isnan(x[i]) ? "NaN" : "infinite");
    return 0;
}

static int check_inputs(const mr_net *net, const mr_batch *d, mr_error *err)
{
    const size_t N = (size_t)d->B * (size_t)d->T, wide = (size_t)net->face.inputs;
    if (net->face.input == MR_INPUT_REALS) return check_values(d->values, N * wide, err);
    if (ids_within(d->ids, N, (uint32_t)net->face.inputs)) return 0;
    for (size_t i = 0; i < N; i++)
        if (d->ids[i] < 0 || d->ids[i] >= net->face.inputs)
            return mr_fail(err, MR_EINVAL, "ids[%zu] = %d: outside 0 … %d", i, (int)d->ids[i], net->face.inputs - 1);
    return 0;
}

static size_t rows_of(const mr_net *net, const mr_batch *d)
{
    return mr_head_rows(net->face.head, (size_t)d->B, (size_t)d->T);
}

/* Is this row a token beyond its sequence's length? */
static int beyond(const mr_net *net, const mr_batch *d, size_t row)
{
    return net->face.head == MR_HEAD_TOKEN && d->length && (int)(row % (size_t)d->T) >= d->length[row / (size_t)d->T];
}

static int check_classes(const mr_net *net, const mr_batch *d, int64_t *counted, mr_error *err)
{
    const size_t rows = rows_of(net, d);
    const uint32_t classes = (uint32_t)net->face.outputs;
    uint32_t bad = 0;
    size_t counts = 0;
    if (!d->target) return mr_fail(err, MR_EINVAL, "target is NULL: this model's loss is xent");
    for (size_t r = 0; r < rows; r++) {
        bad |= (uint32_t)((uint32_t)(d->target[r] + 1) > classes);
        counts += d->target[r] >= 0;
    }
    *counted = (int64_t)counts;
    for (size_t r = 0; r < rows && (bad || d->length); r++) {
        if (d->target[r] < -1 || d->target[r] >= net->face.outputs)
            return mr_fail(err, MR_EINVAL, "target[%zu] = %d: outside −1 … %d", r, (int)d->target[r],
                           net->face.outputs - 1);
        if (d->target[r] >= 0 && beyond(net, d, r))
            return mr_fail(err, MR_EINVAL, "target[%zu] = %d: lies beyond its sequence's length and must be −1", r,
                           (int)d->target[r]);
    }
    return 0;
}

/* Does a row of values count? Where there is no mask, all within their length do. */
static int counts(const mr_net *net, const mr_batch *d, size_t row)
{
    return d->mask ? d->mask[row] != 0 : !beyond(net, d, row);
}

static int check_targets(const mr_net *net, const mr_batch *d, int64_t *counted, mr_error *err)
{
    const size_t rows = rows_of(net, d), wide = (size_t)net->face.outputs;
    if (!d->target_values) return mr_fail(err, MR_EINVAL, "target_values is NULL: this model's loss is mse");
    for (size_t r = 0; r < rows; r++) {
        if (!counts(net, d, r)) continue;
        if (d->mask && beyond(net, d, r))
            return mr_fail(err, MR_EINVAL, "mask[%zu] lies beyond its sequence's length and must be 0", r);
        for (size_t i = r * wide; i < (r + 1) * wide; i++)
            if (!isfinite(d->target_values[i]))
                return mr_fail(err, MR_EINVAL, "target_values[%zu] is %s", i,
                               isnan(d->target_values[i]) ? "NaN" : "infinite");
        *counted += 1;
    }
    return 0;
}

static int look_through(const mr_net *net, const mr_batch *d, int targets, int64_t *counted, mr_error *err)
{
    *counted = 0;
    int status = check_shape(net, d, err);
    if (!status) status = check_inputs(net, d, err);
    if (status || !targets) return status;
    status = net->face.loss == MR_LOSS_XENT ? check_classes(net, d, counted, err) : check_targets(net, d, counted, err);
    if (!status && !*counted) status = mr_fail(err, MR_EINVAL, "no row counts: there is nothing to learn or to score");
    return status;
}

int mr_net_check(const mr_net *net, mr_batch *batch, mr_error *err)
{
    mr_batch d;
    int64_t counted = 0;
    int status = mr_sized_take(&d, sizeof d, batch, "mr_batch", err);
    if (!status && batch->size < sizeof d)
        return mr_fail(err, MR_EINVAL, "mr_batch: of an older header, without counted");
    if (!status) status = look_through(net, &d, 1, &counted, err);
    if (!status) batch->counted = counted;
    return status;
}

/* The model reads a mask for every row of values. */
static int make_mask(mr_given *g, const mr_net *net, mr_error *err)
{
    const size_t rows = rows_of(net, &g->batch);
    g->mask = mr_alloc_by(&net->ctx->allocator, rows, 1);
    if (!g->mask) return mr_no_memory(err, "a mask");
    for (size_t r = 0; r < rows; r++) g->mask[r] = (uint8_t)!beyond(net, &g->batch, r);
    g->batch.mask = g->mask;
    return 0;
}

int mr_given_take(mr_given *g, const mr_net *net, const mr_batch *from, int targets, mr_error *err)
{
    g->mask = NULL;
    int status = mr_sized_take(&g->batch, sizeof g->batch, from, "mr_batch", err);
    if (!status && !(targets && g->batch.counted > 0))
        status = look_through(net, &g->batch, targets, &g->batch.counted, err);
    if (!status && targets && net->face.loss == MR_LOSS_MSE && !g->batch.mask) status = make_mask(g, net, err);
    return status;
}

void mr_given_free(mr_given *g, const mr_net *net) { mr_free_by(&net->ctx->allocator, g->mask); }

int mr_result_check(const mr_result *to, mr_error *err)
{
    if (!to || to->size >= sizeof to->size) return 0;
    return mr_fail(err, MR_EINVAL, "mr_result: its size is not set; begin with MR_RESULT");
}

int mr_result_give(mr_result *to, const mr_net *net, const double stats[MR_STATS], double norm, double lr,
                   mr_error *err)
{
    mr_result r = MR_RESULT;
    if (!to) return 0;
    int status = mr_result_check(to, err);
    if (status) return status;
    r.loss = stats[MR_STAT_LOSS] / stats[MR_STAT_COUNT];
    r.accuracy = net->face.loss == MR_LOSS_XENT ? stats[MR_STAT_CORRECT] / stats[MR_STAT_COUNT] : NAN;
    r.grad_norm = norm;
    r.lr = lr;
    r.rows = (int64_t)stats[MR_STAT_COUNT];
    r.step = net->steps;
    r.size = to->size;
    memcpy(to, &r, to->size < sizeof r ? to->size : sizeof r);
    return 0;
}
