/* Means and deviations of data by Welford's method, which stays exact where values are large and differ little. */
#include "model/scaler.h"

#include "core/mem.h"

#include <math.h>

/* One side: the values, or the targets. */
typedef struct sums {
    int64_t channels, count;
    double *mean, *squares, *scale; /* squares: the sum of squared distances from the mean */
} sums;

struct mr_scaler_fit {
    mr_interface interface;
    const mr_allocator *allocator;
    sums values, targets;
};

static int new_sums(sums *s, const mr_allocator *allocator, int64_t channels)
{
    double *room = mr_alloc_with(allocator, 3 * (size_t)channels, sizeof *room);
    if (!room) return MR_ENOMEM;
    *s = (sums){.channels = channels, .mean = room, .squares = room + channels, .scale = room + 2 * channels};
    return 0;
}

int mr_scaler_fit_new(const mr_interface *interface, const mr_allocator *allocator, mr_scaler_fit **out, mr_error *err)
{
    mr_scaler_fit *fit = mr_alloc_with(allocator, 1, sizeof *fit);
    int status = fit ? 0 : MR_ENOMEM;
    *out = NULL;
    if (fit) *fit = (mr_scaler_fit){.interface = *interface, .allocator = allocator};
    if (!status && interface->input == MR_INPUT_REALS) status = new_sums(&fit->values, allocator, interface->inputs);
    if (!status && interface->loss == MR_LOSS_MSE) status = new_sums(&fit->targets, allocator, interface->outputs);
    if (!status) *out = fit;
    else mr_scaler_fit_free(fit);
    return status ? mr_no_memory(err, "means and deviations") : 0;
}

void mr_scaler_fit_free(mr_scaler_fit *fit)
{
    if (!fit) return;
    mr_free_with(fit->allocator, fit->values.mean);
    mr_free_with(fit->allocator, fit->targets.mean);
    mr_free_with(fit->allocator, fit);
}

static int is_real(const mr_batch *batch, size_t token)
{
    const size_t T = (size_t)batch->T;
    return !batch->length || (int64_t)(token % T) < batch->length[token / T];
}

static int counts(const mr_scaler_fit *fit, const mr_batch *batch, size_t row)
{
    if (batch->mask && !batch->mask[row]) return 0;
    return fit->interface.head != MR_HEAD_TOKEN || is_real(batch, row);
}

static int check_row(const char *name, size_t row, size_t channels, const float *x, mr_error *err)
{
    for (size_t c = 0; c < channels; c++)
        if (!isfinite(x[c]))
            return mr_fail(err, MR_EINVAL, "%s[%zu] is %g; means and deviations need finite numbers", name,
                           row * channels + c, (double)x[c]);
    return 0;
}

static void add_row(sums *s, const float *x)
{
    s->count++;
    for (int64_t c = 0; c < s->channels; c++) {
        const double off = x[c] - s->mean[c];
        s->mean[c] += off / (double)s->count;
        s->squares[c] += off * (x[c] - s->mean[c]);
    }
}

/* Goes through both sides, to add their rows or only to check them. */
static int walk(mr_scaler_fit *fit, const mr_batch *batch, int add, mr_error *err)
{
    const size_t tokens = (size_t)batch->B * (size_t)batch->T, rows = mr_batch_rows(batch, fit->interface.head);
    const size_t inputs = (size_t)fit->values.channels, outputs = (size_t)fit->targets.channels;
    int status = 0;
    for (size_t i = 0; !status && inputs && batch->values && i < tokens; i++) {
        if (!is_real(batch, i)) continue;
        if (add) add_row(&fit->values, batch->values + i * inputs);
        else status = check_row("values", i, inputs, batch->values + i * inputs, err);
    }
    for (size_t r = 0; !status && outputs && batch->target_values && r < rows; r++) {
        if (!counts(fit, batch, r)) continue;
        if (add) add_row(&fit->targets, batch->target_values + r * outputs);
        else status = check_row("target_values", r, outputs, batch->target_values + r * outputs, err);
    }
    return status;
}

int mr_scaler_fit_add(mr_scaler_fit *fit, const mr_batch *batch, mr_error *err)
{
    const int status = walk(fit, batch, 0, err);
    return status ? status : walk(fit, batch, 1, err);
}

static int finish(sums *s)
{
    for (int64_t c = 0; c < s->channels && s->count; c++) {
        const double deviation = sqrt(s->squares[c] / (double)s->count);
        s->scale[c] = deviation > 0 ? deviation : 1;
    }
    return s->count > 0;
}

mr_scaler mr_scaler_fit_result(mr_scaler_fit *fit)
{
    mr_scaler s = {.inputs = fit->interface.inputs, .outputs = fit->interface.outputs};
    if (finish(&fit->values)) s.input_mean = fit->values.mean, s.input_scale = fit->values.scale;
    if (finish(&fit->targets)) s.target_mean = fit->targets.mean, s.target_scale = fit->targets.scale;
    return s;
}
