/* The scaler of a net: taken from data or from the caller, before anything is trained. */
#include "api/api.h"

static int set_scaler(mr_net *net, const mr_scaler *s, mr_error *err)
{
    mr_turn turn;
    int status = mr_turn_begin_alone(&turn, net, err);
    if (status) return status;
    if (net->steps > 0)
        status = mr_fail(err, MR_EINVAL,
                         "this net has trained %lld steps in its units; a scaler is set before the first one",
                         (long long)net->steps);
    pthread_mutex_lock(&net->lock); /* mr_net_setting takes no turn */
    if (!status)
        status = mr_model_set_scaler(net->owner, s->input_mean, s->input_scale, s->target_mean, s->target_scale, err);
    pthread_mutex_unlock(&net->lock);
    return mr_turn_end(&turn, status, err);
}

int mr_net_set_scaler(mr_net *net, const double *input_mean, const double *input_scale, const double *target_mean,
                      const double *target_scale, mr_error *err)
{
    if (!input_mean != !input_scale || !target_mean != !target_scale)
        return mr_fail(err, MR_EINVAL, "a mean without its scale, or a scale without its mean");
    /* the copy is only read */
    const mr_scaler s = {.input_mean = (double *)input_mean,
                         .input_scale = (double *)input_scale,
                         .target_mean = (double *)target_mean,
                         .target_scale = (double *)target_scale};
    return set_scaler(net, &s, err);
}

int mr_net_fit_scaler(mr_net *net, const mr_batch *batch, mr_error *err)
{
    mr_given g = {0};
    mr_scaler_fit *fit = NULL;
    if (net->face.input != MR_INPUT_REALS && net->face.loss != MR_LOSS_MSE)
        return mr_fail(err, MR_EINVAL, "this model takes tokens and predicts classes: there is nothing to scale");
    int status = mr_given_take(&g, net, batch, net->face.loss == MR_LOSS_MSE, err);
    if (!status) status = mr_scaler_fit_new(&net->face, &net->ctx->allocator, &fit, err);
    if (!status) status = mr_scaler_fit_add(fit, &g.batch, err);
    if (!status) {
        const mr_scaler s = mr_scaler_fit_result(fit);
        status = set_scaler(net, &s, err);
    }
    mr_scaler_fit_free(fit);
    mr_given_free(&g, net);
    return status;
}

static void copy(double *to, const double *from, int64_t n)
{
    for (int64_t i = 0; to && from && i < n; i++) to[i] = from[i];
}

int mr_net_scaler(const mr_net *net, double *input_mean, double *input_scale, size_t inputs, double *target_mean,
                  double *target_scale, size_t outputs, mr_error *err)
{
    mr_net *own = (mr_net *)net; /* for its turn: a scaler may be set at this moment */
    mr_turn turn;
    int status = mr_turn_begin_alone(&turn, own, err), which = 0;
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
    status = mr_turn_end(&turn, status, err);
    return status ? status : which;
}
