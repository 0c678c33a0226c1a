/* The exchange of gradients: what is sent to whom, and the sums. */
#include "model/ranks.h"

/* What one piece needs in a step. */
typedef struct traffic {
    mr_message *nodes, *sums; /* lists of messages: everybody's nodes to the owners; the owners' sums to all */
    int64_t nodes_sent, sums_sent;
    size_t received; /* where this rank's part of the others' nodes lies, in reals */
} traffic;

struct mr_ranks {
    mr_channel channel;
    mr_pieces pieces;
    int cut;          /* ranks of a group, which share sequences */
    traffic *traffic; /* [pieces] */
    /* as long as the number of micro-batches stays the same */
    int micros;
    mr_node (*nodes)[MR_NODES]; /* [ranks] the nodes that each one has at the end of a step */
    int *node_count;            /* [ranks] */
    mr_message *messages;       /* memory for the lists of nodes */
    mr_real *received;          /* device */
    /* of this step */
    mr_real *grads, *mine[MR_NODES]; /* the vectors of this rank's nodes, the last one in grads */
    const mr_tree *tree;
    int merges; /* of kept vectors into the last node */
    int next;   /* the first piece that was not sent yet */
    mr_error error;
    mr_message *sums; /* memory for the lists of sums */
};

const mr_comm *mr_ranks_comm(const mr_ranks *r) { return r->channel.comm; }
mr_channel *mr_ranks_channel(mr_ranks *r) { return &r->channel; }
const mr_pieces *mr_ranks_pieces(const mr_ranks *r) { return &r->pieces; }

/* ---- memory ---- */

int mr_ranks_new(mr_dev *dev, mr_comm *comm, mr_courier *courier, int cut, const mr_params *params, const int *stages,
                 mr_ranks **out)
{
    mr_ranks *r = *out = mr_alloc_with(dev->allocator, 1, sizeof *r);
    if (!r) return MR_ENOMEM;
    r->channel = mr_channel_over(comm, courier);
    r->cut = cut;
    const size_t ranks = (size_t)comm->size;
    int status = mr_pieces_new(&r->pieces, params, stages, MR_RANKS_PIECE);
    if (!status) r->traffic = mr_alloc_with(dev->allocator, (size_t)r->pieces.count, sizeof *r->traffic);
    const size_t each = 2 * (ranks - 1);
    r->sums = mr_alloc_with(dev->allocator, (size_t)r->pieces.count * each, sizeof *r->sums);
    for (int p = 0; r->traffic && p < r->pieces.count; p++) r->traffic[p].sums = r->sums + (size_t)p * each;
    r->nodes = mr_alloc_with(dev->allocator, ranks, sizeof *r->nodes);
    r->node_count = mr_alloc_with(dev->allocator, ranks, sizeof *r->node_count);
    if (!status && r->traffic && r->sums && r->nodes && r->node_count) return 0;
    mr_ranks_free(r, dev);
    *out = NULL;
    return MR_ENOMEM;
}

void mr_ranks_free(mr_ranks *r, mr_dev *dev)
{
    if (!r) return;
    mr_channel_free(&r->channel, dev);
    mr_pieces_free(&r->pieces, dev->allocator);
    if (r->received) dev->release(dev, r->received);
    mr_free_with(dev->allocator, r->traffic);
    mr_free_with(dev->allocator, r->nodes);
    mr_free_with(dev->allocator, r->node_count);
    mr_free_with(dev->allocator, r->messages);
    mr_free_with(dev->allocator, r->sums);
    mr_free_with(dev->allocator, r);
}

static mr_span part_of(const mr_ranks *r, int piece, int rank)
{
    return mr_piece_of_rank(&r->pieces, piece, rank, r->channel.comm->size);
}

/* Nodes of other ranks, each of which this rank receives its part of. */
static int foreign_nodes(const mr_ranks *r)
{
    int sum = 0;
    for (int q = 0; q < r->channel.comm->size; q++)
        if (q != r->channel.comm->rank) sum += r->node_count[q];
    return sum;
}

/* The list of a piece has at most as many messages as this. */
static size_t most_node_messages(const mr_ranks *r)
{
    const mr_comm *comm = r->channel.comm;
    return (size_t)(comm->size - 1) * (size_t)r->node_count[comm->rank] + (size_t)foreign_nodes(r);
}

static int plan(mr_ranks *r, mr_dev *dev, int micros)
{
    const mr_comm *comm = r->channel.comm;
    const size_t pieces = (size_t)r->pieces.count;
    size_t reals = 0;
    if (micros == r->micros) return 0;
    r->micros = 0;
    for (int q = 0; q < comm->size; q++) {
        int first, end;
        mr_micros_of_rank(micros, q / r->cut, comm->size / r->cut, &first, &end);
        r->node_count[q] = mr_nodes_of(first, end, r->nodes[q]);
    }
    const size_t each = most_node_messages(r);
    mr_free_with(dev->allocator, r->messages);
    if (r->received) dev->release(dev, r->received);
    for (int p = 0; p < r->pieces.count; p++) {
        r->traffic[p].received = reals;
        reals += part_of(r, p, comm->rank).count * (size_t)foreign_nodes(r);
    }
    r->messages = mr_alloc_with(dev->allocator, pieces * each, sizeof *r->messages);
    r->received = dev->alloc(dev, (reals + 1) * dev->real_size);
    if (!r->messages || !r->received) return MR_ENOMEM;
    for (size_t p = 0; p < pieces; p++) r->traffic[p].nodes = r->messages + p * each;
    r->micros = micros;
    return 0;
}

/* ---- sending ---- */

static mr_message message(mr_dev *dev, int peer, int receive, mr_real *vector, mr_span span)
{
    return (mr_message){.peer = peer,
                        .receive = receive,
                        .at = mr_real_at(dev, vector, span.first),
                        .bytes = span.count * dev->real_size};
}

/* Where this rank's part of node k of rank q lies. */
static mr_real *received_node(mr_ranks *r, mr_dev *dev, int piece, int q, int k)
{
    size_t before = 0;
    for (int i = 0; i < q; i++)
        if (i != r->channel.comm->rank) before += (size_t)r->node_count[i];
    return mr_real_at(dev, r->received,
                      r->traffic[piece].received +
                          (before + (size_t)k) * part_of(r, piece, r->channel.comm->rank).count);
}

/* This rank's nodes to the owners of their parts, and the others' nodes of its own part. */
static int list_nodes(mr_ranks *r, mr_dev *dev, int piece)
{
    const mr_comm *comm = r->channel.comm;
    mr_message *list = r->traffic[piece].nodes;
    const size_t own = part_of(r, piece, comm->rank).count;
    int count = 0;
    for (int q = 0; q < comm->size; q++) {
        const mr_span part = part_of(r, piece, q);
        if (q == comm->rank) continue;
        for (int k = 0; part.count && k < r->node_count[comm->rank]; k++)
            list[count++] = message(dev, q, 0, r->mine[k], part);
        for (int k = 0; own && k < r->node_count[q]; k++)
            list[count++] = message(dev, q, 1, received_node(r, dev, piece, q, k), (mr_span){0, own});
    }
    return count;
}

int mr_ranks_begin(mr_ranks *r, mr_dev *dev, int micros, int last, const mr_tree *tree, mr_real *grads, mr_error *err)
{
    mr_node node;
    if (plan(r, dev, micros)) return mr_no_memory(err, "gradients of other ranks; lower layers, dim or expansion");
    r->tree = tree;
    r->grads = grads;
    r->merges = mr_tree_merges(tree, last, &node);
    const int kept = tree->count - r->merges;
    for (int k = 0; k < kept; k++) r->mine[k] = tree->kept[k];
    r->mine[kept] = grads;
    r->next = 0;
    r->error = (mr_error){0};
    return 0;
}

void mr_ranks_stage_done(mr_ranks *r, mr_dev *dev, int stage)
{
    for (; r->next < r->pieces.count && r->pieces.list[r->next].stage <= stage; r->next++) {
        traffic *t = &r->traffic[r->next];
        mr_tree_merge(r->tree, dev, r->merges, r->grads, r->pieces.list[r->next].span);
        const int count = list_nodes(r, dev, r->next);
        if (!r->error.status) mr_channel_post(&r->channel, dev, t->nodes, count, &t->nodes_sent, &r->error);
    }
}

/* ---- sums ---- */

/* Adds up the nodes of the ranks that have one place in their groups, from left to right, in the memory where they lie.
 * Returns where the sum is. */
static mr_real *add_nodes(mr_ranks *r, mr_dev *dev, int piece, mr_span part, int place)
{
    const mr_comm *comm = r->channel.comm;
    mr_real *at[MR_NODES] = {NULL}; /* every place has a node: there are as many micro-batches as groups */
    mr_node nodes[MR_NODES];
    int depth = 0;
    for (int q = place; q < comm->size; q += r->cut)
        for (int k = 0; k < r->node_count[q]; k++) {
            mr_real *x = q == comm->rank ? mr_real_at(dev, r->mine[k], part.first) : received_node(r, dev, piece, q, k);
            mr_node node = r->nodes[q][k];
            for (; depth && mr_nodes_pair(nodes[depth - 1], node); node = mr_node_above(node)) {
                depth--;
                dev->ops.accumulate(dev, &(mr_accumulate_args){.n = part.count, .x = at[depth], .y = x});
            }
            nodes[depth] = node;
            at[depth++] = x;
        }
    for (; depth > 1; depth--) /* what is left over, from the right */
        dev->ops.accumulate(dev, &(mr_accumulate_args){.n = part.count, .x = at[depth - 1], .y = at[depth - 2]});
    return at[0];
}

static int add_piece(mr_ranks *r, mr_dev *dev, int piece, mr_error *err)
{
    const mr_span part = part_of(r, piece, r->channel.comm->rank);
    int status = mr_channel_wait(&r->channel, dev, r->traffic[piece].nodes_sent, NULL, 0, err);
    if (status || !part.count) return status;
    mr_real *sum = add_nodes(r, dev, piece, part, 0), *place = mr_real_at(dev, r->grads, part.first);
    for (int i = 1; i < r->cut; i++)
        dev->ops.accumulate(dev,
                            &(mr_accumulate_args){.n = part.count, .x = add_nodes(r, dev, piece, part, i), .y = sum});
    if (sum != place) dev->copy(dev, place, sum, part.count * dev->real_size);
    return 0;
}

/* This rank's part to all others, and theirs to this one. */
static int list_sums(mr_ranks *r, mr_dev *dev, int piece, mr_real *vector)
{
    const mr_comm *comm = r->channel.comm;
    mr_message *list = r->traffic[piece].sums;
    const mr_span own = part_of(r, piece, comm->rank);
    int count = 0;
    for (int q = 0; q < comm->size; q++) {
        const mr_span part = part_of(r, piece, q);
        if (q == comm->rank) continue;
        if (own.count) list[count++] = message(dev, q, 0, vector, own);
        if (part.count) list[count++] = message(dev, q, 1, vector, part);
    }
    return count;
}

static int share_piece(mr_ranks *r, mr_dev *dev, int piece, mr_real *vector, mr_error *err)
{
    traffic *t = &r->traffic[piece];
    return mr_channel_post(&r->channel, dev, t->sums, list_sums(r, dev, piece, vector), &t->sums_sent, err);
}

static int wait_shared(mr_ranks *r, mr_dev *dev, const mr_real *vector, mr_error *err)
{
    int status = 0;
    for (int p = 0; !status && p < r->pieces.count; p++) {
        const mr_span span = r->pieces.list[p].span;
        status = mr_channel_wait(&r->channel, dev, r->traffic[p].sums_sent,
                                 (const char *)vector + span.first * dev->real_size, span.count * dev->real_size, err);
    }
    return status;
}

int mr_ranks_add_up(mr_ranks *r, mr_dev *dev, int own_only, mr_error *err)
{
    int status = r->error.status;
    if (status && err) *err = r->error;
    for (int p = 0; !status && p < r->pieces.count; p++) {
        status = add_piece(r, dev, p, err);
        if (!status && !own_only) status = share_piece(r, dev, p, r->grads, err);
    }
    return status || own_only ? status : wait_shared(r, dev, r->grads, err);
}

int mr_ranks_share(mr_ranks *r, mr_dev *dev, mr_real *vector, mr_error *err)
{
    int status = 0;
    for (int p = 0; !status && p < r->pieces.count; p++) status = share_piece(r, dev, p, vector, err);
    return status ? status : wait_shared(r, dev, vector, err);
}
