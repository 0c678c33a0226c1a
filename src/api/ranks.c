/* Several processes that train one net: joining them, what each one does, and small things that they tell each
 * other. */
#include "api/api.h"

#include "comm/engine.h"
#include "model/pieces.h"

#include <stdio.h>
#include <string.h>

int mr_ranks_launched(int *rank)
{
    const mr_launch launch = mr_launch_read();
    if (rank) *rank = launch.rank;
    return strcmp(launch.launcher, MR_NO_LAUNCHER) ? launch.size : 0;
}

void mr_ranks_here(int *place, int *count)
{
    const mr_launch launch = mr_launch_read();
    *place = launch.local_rank;
    *count = launch.local_size;
}

/* An exchange of host memory goes on in a thread of its own, while the device computes. */
static int start_courier(mr_context *ctx, mr_error *err)
{
    if (ctx->comm->device_memory) return 0;
    ctx->courier = mr_courier_new(ctx->comm, &ctx->allocator);
    return ctx->courier ? 0 : mr_no_memory(err, "a thread for messages");
}

static int check_cut(mr_join_options *o, int ranks, mr_error *err)
{
    if (o->sequence_ranks == 0) o->sequence_ranks = 1;
    if (o->sequence_ranks > 0 && ranks % o->sequence_ranks == 0) return 0;
    return mr_fail(err, MR_EINVAL, "sequence-ranks = %d: does not divide the %d ranks into groups", o->sequence_ranks,
                   ranks);
}

int mr_context_join(mr_context *ctx, const mr_join_options *options, mr_error *err)
{
    static const mr_join_options plain = MR_JOIN_OPTIONS;
    mr_join_options o;
    mr_error ignored;
    if (!err) err = &ignored;
    if (ctx->comm) return mr_fail(err, MR_EINVAL, "this context has joined %s already", ctx->engine);
    int status = mr_sized_copy(&o, sizeof o, options ? options : &plain, "mr_join_options", err);
    if (!status) status = mr_comm_join(o.engine ? o.engine : "auto", !strncmp(ctx->spec, "cuda", 4), &ctx->comm, err);
    if (!status) status = check_cut(&o, ctx->comm->size, err);
    if (!status) status = start_courier(ctx, err);
    if (status) return mr_context_leave(ctx), status;
    ctx->shard = o.shard;
    ctx->cut = o.sequence_ranks;
    ctx->channel = mr_channel_over(ctx->comm, NULL);
    snprintf(ctx->engine, sizeof ctx->engine, "%s: %s", ctx->comm->engine, ctx->comm->version);
    mr_context_log(ctx, "rank %d of %d, %s", ctx->comm->rank, ctx->comm->size, ctx->engine);
    return 0;
}

void mr_context_leave(mr_context *ctx)
{
    if (ctx->idle_count) mr_channel_free(&ctx->channel, ctx->idle[0]);
    mr_courier_free(ctx->courier);
    mr_comm_leave(ctx->comm);
    ctx->courier = NULL;
    ctx->comm = NULL;
    ctx->cut = 1;
}

int mr_context_rank(const mr_context *ctx) { return ctx->comm ? ctx->comm->rank : 0; }
int mr_context_ranks(const mr_context *ctx) { return ctx->comm ? ctx->comm->size : 1; }
const char *mr_context_engine(const mr_context *ctx) { return ctx->engine; }

void mr_rank_micros(const mr_context *ctx, int micros, int *first, int *end)
{
    mr_micros_of_rank(micros, mr_context_rank(ctx) / ctx->cut, mr_context_ranks(ctx) / ctx->cut, first, end);
}

int mr_context_gather(mr_context *ctx, const void *mine, void *all, size_t bytes, mr_error *err)
{
    if (!ctx->comm) return memcpy(all, mine, bytes), 0;
    mr_dev *dev = mr_context_borrow(ctx);
    const int status = mr_channel_gather(&ctx->channel, dev, mine, all, bytes, err);
    mr_context_return(ctx, dev);
    return status;
}

void mr_context_while_waiting(mr_context *ctx, mr_rank_waiting *waiting, void *user)
{
    if (!ctx->comm) return;
    ctx->comm->waiting = waiting;
    ctx->comm->waiting_user = user;
}

void mr_context_abort(mr_context *ctx)
{
    if (ctx->comm) ctx->comm->abort(ctx->comm);
}

/* ---- for nets ---- */

int mr_check_alone(const mr_net *net, const char *what, mr_error *err)
{
    if (!mr_has_ranks(net)) return 0;
    return mr_fail(err, MR_EINVAL, "%s: a net of several ranks is trained by mr_net_learn only", what);
}

int mr_keep_micro_sums(mr_net *net, int micros, mr_error *err)
{
    if (!mr_has_ranks(net) || micros <= net->micro_room) return 0;
    mr_free_with(&net->ctx->allocator, net->micro_sums);
    net->micro_sums = mr_alloc_with(&net->ctx->allocator, (size_t)micros, sizeof *net->micro_sums);
    net->micro_room = net->micro_sums ? micros : 0;
    return net->micro_sums ? 0 : mr_no_memory(err, "the sums of micro-batches");
}

/* Every rank sends as many rows as the one with most micro-batches has. Those of a group have the same ones. */
int mr_gather_sums(mr_net *net, int micros, mr_error *err)
{
    if (!mr_has_ranks(net)) return 0;
    const mr_comm *comm = net->ctx->comm;
    const int cut = net->ctx->cut, groups = comm->size / cut;
    const size_t ranks = (size_t)comm->size, most = (size_t)((micros + groups - 1) / groups);
    double(*all)[MR_STATS] = mr_alloc_with(&net->ctx->allocator, (ranks + 1) * most, sizeof *all);
    if (!all) return mr_no_memory(err, "the sums of micro-batches");
    double(*mine)[MR_STATS] = all + ranks * most;
    int first, end;
    mr_rank_micros(net->ctx, micros, &first, &end);
    memcpy(mine, net->micro_sums, (size_t)(end - first) * sizeof *mine);
    int status = mr_channel_gather(&net->ctx->channel, mr_model_dev(net->owner), mine, all, most * sizeof *mine, err);
    for (int g = 0; !status && g < groups; g++) {
        mr_micros_of_rank(micros, g, groups, &first, &end);
        for (int k = 0; k < end - first; k++)
            for (int q = g * cut; q < (g + 1) * cut; q++)
                for (int i = 0; i < MR_STATS; i++) net->sums[i] += all[(size_t)q * most + (size_t)k][i];
    }
    mr_free_with(&net->ctx->allocator, all);
    return status;
}
