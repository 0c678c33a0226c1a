/* The optimiser's memory shared by ranks: each one has the moments of the elements that it adds up, updates their
 * weights, and sends these to all others. */
#include "model/network.h"

static mr_span own_part(const mr_model *m, int piece)
{
    const mr_comm *comm = mr_ranks_comm(m->ranks);
    return mr_piece_of_rank(mr_ranks_pieces(m->ranks), piece, comm->rank, comm->size);
}

static int pieces_of(const mr_model *m) { return mr_ranks_pieces(m->ranks)->count; }

size_t mr_shard_reals(const mr_model *m)
{
    size_t sum = 1; /* a rank may have none */
    for (int p = 0; p < pieces_of(m); p++) sum += own_part(m, p).count;
    return sum;
}

/* ---- the norm ---- */

static size_t parts_in(mr_span span) { return (span.count + MR_SUM_PART - 1) / MR_SUM_PART; }

static int list_parts(mr_model *m, mr_message *list)
{
    const mr_comm *comm = mr_ranks_comm(m->ranks);
    int count = 0;
    for (int p = 0; p < pieces_of(m); p++)
        for (int q = 0; q < comm->size; q++) {
            const mr_span own = own_part(m, p), theirs = mr_piece_of_rank(mr_ranks_pieces(m->ranks), p, q, comm->size);
            if (q == comm->rank) continue;
            if (own.count)
                list[count++] = (mr_message){
                    .peer = q, .at = m->parts + own.first / MR_SUM_PART, .bytes = parts_in(own) * sizeof *m->parts};
            if (theirs.count)
                list[count++] = (mr_message){.peer = q,
                                             .receive = 1,
                                             .at = m->parts + theirs.first / MR_SUM_PART,
                                             .bytes = parts_in(theirs) * sizeof *m->parts};
        }
    return count;
}

static int share_parts(mr_model *m, mr_error *err)
{
    mr_channel *channel = mr_ranks_channel(m->ranks);
    const size_t most = 2 * (size_t)pieces_of(m) * (size_t)(channel->comm->size - 1);
    mr_message *list = mr_alloc_with(m->dev->allocator, most, sizeof *list);
    int64_t number;
    if (!list) return mr_no_memory(err, "messages between ranks");
    int status = mr_channel_post(channel, m->dev, list, list_parts(m, list), &number, err);
    if (!status) status = mr_channel_wait(channel, m->dev, number, NULL, 0, err);
    mr_free_with(m->dev->allocator, list);
    return status;
}

int mr_shard_update(mr_model *m, mr_error *err)
{
    size_t moment = 0;
    for (int p = 0; p < pieces_of(m); p++) {
        const mr_span own = own_part(m, p);
        if (own.count)
            m->dev->ops.sumsq_parts(m->dev, &(mr_sumsq_parts_args){.n = own.count,
                                                                   .g = mr_real_at(m->dev, m->grads, own.first),
                                                                   .parts = m->parts + own.first / MR_SUM_PART});
    }
    int status = share_parts(m, err);
    if (status) return status;
    m->dev->ops.sum_parts(m->dev,
                          &(mr_sum_parts_args){.n = mr_model_norm_parts(m), .parts = m->parts, .out = m->sumsq});
    for (int p = 0; p < pieces_of(m); p++) {
        const mr_span own = own_part(m, p);
        if (own.count) mr_model_adam(m, own, moment);
        moment += own.count;
    }
    return mr_ranks_share(m->ranks, m->dev, m->weights, err);
}

/* ---- whole vectors ---- */

static mr_real *moments(const mr_model *m, mr_vector which) { return which == MR_MOMENT1 ? m->moment1 : m->moment2; }

void mr_shard_put(mr_model *m, mr_vector which, const float *from)
{
    size_t moment = 0;
    for (int p = 0; p < pieces_of(m); p++) {
        const mr_span own = own_part(m, p);
        m->dev->put(m->dev, mr_real_at(m->dev, moments(m, which), moment), from + own.first, own.count);
        moment += own.count;
    }
}

/* The gradients' vector holds it on the way: after a step nothing needs them. */
int mr_model_gather(mr_model *m, mr_vector which, float *to, mr_error *err)
{
    size_t moment = 0;
    if (mr_model_has_whole(m, which)) return mr_model_get(m, which, to), 0;
    for (int p = 0; p < pieces_of(m); p++) {
        const mr_span own = own_part(m, p);
        m->dev->copy(m->dev, mr_real_at(m->dev, m->grads, own.first), mr_real_at(m->dev, moments(m, which), moment),
                     own.count * m->dev->real_size);
        moment += own.count;
    }
    int status = mr_ranks_share(m->ranks, m->dev, m->grads, err);
    if (!status) mr_model_get(m, MR_GRADS, to);
    return status;
}
