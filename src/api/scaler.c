/* The scaler of a net: fitted to data or set by the caller, before the first training step. */
#include "api/api.h"

static int set_scaler(mr_net *net, const mr_scaler *s, mr_error *err)
{
    mr_lease lease;
    int status = mr_lease_begin_exclusive(&lease, net, err);
    if (status) return status;
    if (net->steps > 0)
        status = mr_fail(err, MR_EINVAL, "this net has already trained %lld steps; set the scaler before the first one",
                         (long long)net->steps);
    pthread_mutex_lock(&net->lock); /* mr_net_setting takes no lease */
    if (!status)
        status = mr_model_set_scaler(net->owner, s->input_mean, s->input_scale, s->target_mean, s->target_scale, err);
    pthread_mutex_unlock(&net->lock);
    return mr_lease_end(&lease, status, err);
}

int mr_net_set_scaler(mr_net *net, const double *input_mean, const double *input_scale, const double *target_mean,
                      const double *target_scale, mr_error *err)
{
    if (!input_mean != !input_scale || !target_mean != !target_scale)
        return mr_fail(err, MR_EINVAL, "a mean without its scale, or a scale without its mean");
    /* the casts are safe: set_scaler only reads */
    const mr_scaler s = {.input_mean = (double *)input_mean,
                         .input_scale = (double *)input_scale,
                         .target_mean = (double *)target_mean,
                         .target_scale = (double *)target_scale};
    return set_scaler(net, &s, err);
}

int mr_net_fit_scaler(mr_net *net, const mr_batch *batch, mr_error *err)
{
    mr_checked_batch checked = {0};
    mr_scaler_fit *fit = NULL;
    const int tanh = mr_model_config(net->owner)->output == MR_OUTPUT_TANH; /* targets are within ±1 as they are */
    const int targets = net->interface.loss == MR_LOSS_MSE && !tanh;
    if (net->interface.input != MR_INPUT_REALS && !targets)
        return mr_fail(err, MR_EINVAL, "this model takes tokens and predicts %s: there is nothing to scale",
                       tanh ? "values between -1 and 1" : "classes");
    int status = mr_checked_batch_take(&checked, net, batch, targets, err);
    if (!targets) checked.batch.target_values = NULL;
    if (!status) status = mr_scaler_fit_new(&net->interface, &net->ctx->allocator, &fit, err);
    if (!status) status = mr_scaler_fit_add(fit, &checked.batch, err);
    if (!status) {
        const mr_scaler s = mr_scaler_fit_result(fit);
        status = set_scaler(net, &s, err);
    }
    mr_scaler_fit_free(fit);
    mr_checked_batch_free(&checked, net);
    return status;
}

static void copy(double *to, const double *from, int64_t n)
{
    for (int64_t i = 0; to && from && i < n; i++) to[i] = from[i];
}

int mr_net_scaler(const mr_net *net, double *input_mean, double *input_scale, size_t inputs, double *target_mean,
                  double *target_scale, size_t outputs, mr_error *err)
{
    mr_net *mutable_net = (mr_net *)net; /* for the lease: another thread may be setting the scaler */
    mr_lease lease;
    int status = mr_lease_begin_exclusive(&lease, mutable_net, err), which = 0;
    if (status) return status;
    const mr_scaler *s = mr_model_scaler(net->owner);
    if (s->input_mean && (input_mean || input_scale) && inputs < (size_t)s->inputs)
        status = mr_fail(err, MR_EINVAL, "room for %zu inputs where %lld are needed", inputs, (long long)s->inputs);
    if (!status && s->target_mean && (target_mean || target_scale) && outputs < (size_t)s->outputs)
        status = mr_fail(err, MR_EINVAL, "room for %zu outputs where %lld are needed", outputs, (long long)s->outputs);
    if (!status) {
        copy(input_mean, s->input_mean, s->inputs), copy(input_scale, s->input_scale, s->inputs);
        copy(target_mean, s->target_mean, s->outputs), copy(target_scale, s->target_scale, s->outputs);
        which = (s->input_mean != NULL) + 2 * (s->target_mean != NULL);
    }
    status = mr_lease_end(&lease, status, err);
    return status ? status : which;
}
