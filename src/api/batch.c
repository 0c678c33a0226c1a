/* The caller's batches and results: every array is checked before a device reads it. */
#include "api/api.h"

#include <limits.h>
#include <math.h>
#include <string.h>

static int check_shape(const mr_net *net, const mr_batch *d, mr_error *err)
{
    if (d->B < 1 || d->T < 1 || d->T > INT_MAX / d->B)
        return mr_fail(err, MR_EINVAL, "B = %d, T = %d: both must be 1 or more, and their product must fit in an int",
                       d->B, d->T);
    if (mr_head_pairs(net->interface.head) && d->B % 2)
        return mr_fail(err, MR_EINVAL, "B = %d: this model takes pairs of sequences; B must be even", d->B);
    if (net->interface.input == MR_INPUT_TOKENS && !d->ids)
        return mr_fail(err, MR_EINVAL, "ids is NULL: this model takes tokens");
    if (net->interface.input == MR_INPUT_REALS && !d->values)
        return mr_fail(err, MR_EINVAL, "values is NULL: this model takes values");
    for (int b = 0; d->length && b < d->B; b++)
        if (d->length[b] < 1 || d->length[b] > d->T)
            return mr_fail(err, MR_EINVAL, "length[%d] = %d: must be 1 … T, which is %d", b, (int)d->length[b], d->T);
    return 0;
}

/* ids_within and all_finite have no branch, so they cost only a few percent of the copy that follows. Their callers
 * look for the index only after a failure. */
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
    const size_t N = (size_t)d->B * (size_t)d->T, wide = (size_t)net->interface.inputs;
    if (net->interface.input == MR_INPUT_REALS) return check_values(d->values, N * wide, err);
    if (ids_within(d->ids, N, (uint32_t)net->interface.inputs)) return 0;
    for (size_t i = 0; i < N; i++)
        if (d->ids[i] < 0 || d->ids[i] >= net->interface.inputs)
            return mr_fail(err, MR_EINVAL, "ids[%zu] = %d: outside 0 … %d", i, (int)d->ids[i],
                           net->interface.inputs - 1);
    return 0;
}

static size_t rows_of(const mr_net *net, const mr_batch *d)
{
    return mr_head_rows(net->interface.head, (size_t)d->B, (size_t)d->T);
}

/* Is this row padding: a token beyond its sequence's length? */
static int beyond(const mr_net *net, const mr_batch *d, size_t row)
{
    return net->interface.head == MR_HEAD_TOKEN && d->length &&
           (int)(row % (size_t)d->T) >= d->length[row / (size_t)d->T];
}

static int check_classes(const mr_net *net, const mr_batch *d, int64_t *counted, mr_error *err)
{
    const size_t rows = rows_of(net, d);
    const uint32_t classes = (uint32_t)net->interface.outputs;
    uint32_t bad = 0;
    size_t counts = 0;
    if (!d->target) return mr_fail(err, MR_EINVAL, "target is NULL: this model's loss is xent");
    for (size_t r = 0; r < rows; r++) {
        bad |= (uint32_t)((uint32_t)(d->target[r] + 1) > classes);
        counts += d->target[r] >= 0;
    }
    *counted = (int64_t)counts;
    for (size_t r = 0; r < rows && (bad || d->length); r++) {
        if (d->target[r] < -1 || d->target[r] >= net->interface.outputs)
            return mr_fail(err, MR_EINVAL, "target[%zu] = %d: outside −1 … %d", r, (int)d->target[r],
                           net->interface.outputs - 1);
        if (d->target[r] >= 0 && beyond(net, d, r))
            return mr_fail(err, MR_EINVAL, "target[%zu] = %d: is beyond its sequence's length and must be −1", r,
                           (int)d->target[r]);
    }
    return 0;
}

/* Does a row of values count? Without a mask, all rows but padding do. */
static int counts(const mr_net *net, const mr_batch *d, size_t row)
{
    return d->mask ? d->mask[row] != 0 : !beyond(net, d, row);
}

static int check_targets(const mr_net *net, const mr_batch *d, int64_t *counted, mr_error *err)
{
    const size_t rows = rows_of(net, d), wide = (size_t)net->interface.outputs;
    if (!d->target_values) return mr_fail(err, MR_EINVAL, "target_values is NULL: this model's loss is mse");
    for (size_t r = 0; r < rows; r++) {
        if (!counts(net, d, r)) continue;
        if (d->mask && beyond(net, d, r))
            return mr_fail(err, MR_EINVAL, "mask[%zu] is beyond its sequence's length and must be 0", r);
        for (size_t i = r * wide; i < (r + 1) * wide; i++)
            if (!isfinite(d->target_values[i]))
                return mr_fail(err, MR_EINVAL, "target_values[%zu] is %s", i,
                               isnan(d->target_values[i]) ? "NaN" : "infinite");
        *counted += 1;
    }
    return 0;
}

static int check_all(const mr_net *net, const mr_batch *d, int targets, int64_t *counted, mr_error *err)
{
    *counted = 0;
    int status = check_shape(net, d, err);
    if (!status) status = check_inputs(net, d, err);
    if (status || !targets) return status;
    status =
        net->interface.loss == MR_LOSS_XENT ? check_classes(net, d, counted, err) : check_targets(net, d, counted, err);
    if (!status && !*counted) status = mr_fail(err, MR_EINVAL, "no row counts: there is nothing to learn or to score");
    return status;
}

int mr_net_check(const mr_net *net, mr_batch *batch, mr_error *err)
{
    mr_batch d;
    int64_t counted = 0;
    int status = mr_sized_copy(&d, sizeof d, batch, "mr_batch", err);
    if (!status && batch->size < sizeof d)
        return mr_fail(err, MR_EINVAL, "mr_batch: comes from an older header, which has no `counted`");
    if (!status) status = check_all(net, &d, 1, &counted, err);
    if (!status) batch->counted = counted;
    return status;
}

/* Makes a mask for a batch without one, because the model always reads a mask. */
static int make_mask(mr_checked_batch *checked, const mr_net *net, mr_error *err)
{
    const size_t rows = rows_of(net, &checked->batch);
    checked->mask = mr_alloc_with(&net->ctx->allocator, rows, 1);
    if (!checked->mask) return mr_no_memory(err, "a mask");
    for (size_t r = 0; r < rows; r++) checked->mask[r] = (uint8_t)!beyond(net, &checked->batch, r);
    checked->batch.mask = checked->mask;
    return 0;
}

int mr_checked_batch_take(mr_checked_batch *checked, const mr_net *net, const mr_batch *from, int targets,
                          mr_error *err)
{
    checked->mask = NULL;
    int status = mr_sized_copy(&checked->batch, sizeof checked->batch, from, "mr_batch", err);
    if (!status && !(targets && checked->batch.counted > 0))
        status = check_all(net, &checked->batch, targets, &checked->batch.counted, err);
    if (!status && targets && net->interface.loss == MR_LOSS_MSE && !checked->batch.mask)
        status = make_mask(checked, net, err);
    return status;
}

void mr_checked_batch_free(mr_checked_batch *checked, const mr_net *net)
{
    mr_free_with(&net->ctx->allocator, checked->mask);
}

int mr_result_check(const mr_result *to, mr_error *err)
{
    if (!to || to->size >= sizeof to->size) return 0;
    return mr_fail(err, MR_EINVAL, "mr_result: its size is not set; start from MR_RESULT");
}

int mr_result_write(mr_result *to, const mr_net *net, const double stats[MR_STATS], int64_t step, double norm,
                    double lr, mr_error *err)
{
    mr_result r = MR_RESULT;
    if (!to) return 0;
    int status = mr_result_check(to, err);
    if (status) return status;
    r.loss = stats[MR_STAT_LOSS] / stats[MR_STAT_COUNT];
    r.accuracy = net->interface.loss == MR_LOSS_XENT ? stats[MR_STAT_CORRECT] / stats[MR_STAT_COUNT] : NAN;
    r.grad_norm = norm;
    r.lr = lr;
    r.rows = (int64_t)stats[MR_STAT_COUNT];
    r.step = step;
    r.size = to->size;
    memcpy(to, &r, to->size < sizeof r ? to->size : sizeof r);
    return 0;
}
