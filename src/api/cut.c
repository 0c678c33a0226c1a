/* Sequences that several ranks share: every rank of a group is given the same batches and computes its part of them. */
#include "api/api.h"

#include <limits.h>

int mr_cut_begin(mr_net *net, mr_error *err)
{
    const mr_context *ctx = net->ctx;
    if (ctx->cut == 1) return 0;
    const int first = ctx->comm->rank / ctx->cut * ctx->cut;
    int status = mr_cut_check(net, INT_MAX, err);
    if (status) return status;
    status = mr_sequence_new(mr_model_config(net->owner), mr_model_dev(net->owner), ctx->comm, ctx->courier, first,
                             ctx->cut, &net->sequence, err);
    if (!status) mr_model_cut(net->owner, net->sequence);
    return status;
}

int mr_cut_check(const mr_net *net, int T, mr_error *err)
{
    return mr_sequence_check(mr_model_config(net->owner), net->ctx->cut, T, err);
}

int mr_cut_longest(const mr_net *net, int T) { return (int)(((int64_t)T + net->ctx->cut - 1) / net->ctx->cut); }

int mr_cut_batch(const mr_net *net, const mr_batch *whole, mr_batch *part, mr_error *err)
{
    const int ranks = net->ctx->cut;
    *part = *whole;
    if (ranks == 1) return 0;
    int status = mr_cut_check(net, whole->T, err);
    return status ? status
                  : mr_sequence_batch(whole, &net->interface, ranks, mr_sequence_rank(net->sequence), part, err);
}

void mr_cut_batch_free(const mr_net *net, mr_batch *part)
{
    if (net->ctx->cut > 1) mr_batch_free(part);
}

int mr_cut_status(const mr_net *net, mr_error *err)
{
    return net->sequence ? mr_sequence_status(net->sequence, err) : 0;
}

int mr_check_whole(const mr_net *net, const char *what, mr_error *err)
{
    if (net->ctx->cut == 1) return 0;
    return mr_fail(err, MR_EINVAL,
                   "%s: ranks share the sequences of this net; mr_net_learn and mr_net_evaluate_sums "
                   "compute with them",
                   what);
}
