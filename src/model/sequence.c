/* One sequence over several ranks: what layers exchange. */
#include "model/sequence.h"

#include "model/block.h"

#include <string.h>

/* What a block keeps from its forward to its backward. */
typedef struct kept {
    mr_real *in;             /* [n] the state before this rank's chunk */
    mr_real *A;              /* [ranks, n] of the chunks; those of the first and the last rank are not needed */
    mr_real *tail[MR_CONVS]; /* the inputs before this rank's chunk */
} kept;

struct mr_sequence {
    mr_config config;
    mr_dev *dev;
    mr_channel channel;
    int first, ranks, rank; /* rank: within the group */
    int block;              /* whose layers run */
    kept *blocks;
    mr_real *C;            /* [ranks, n] */
    mr_real *gradient;     /* [n] of the state after this rank's chunk */
    mr_real *tail, *dtail; /* of any convolution: what this rank sends, and what comes back */
    mr_real *carried;      /* a state of all blocks */
    /* a head that pools: what each rank pooled [ranks, B, D], weights [B] and then the number of ranks, how many tokens
     * of each row each rank has [ranks, B], and on the host the last two */
    mr_act *pooled;
    mr_real *weights;
    int32_t *tokens, *host_tokens;
    float *host_weights;
    int host_rows;
    mr_message *list; /* room for MESSAGES to and from every rank */
    uint64_t bytes;
    int status;
    mr_error why;
};

enum { MESSAGES = 4 };

/* ---- the group */

/* The recurrent state of one stream, without the tail of the mixer's own convolution. */
static size_t state_of(const mr_config *c)
{
    const mr_mixer *mixer = mr_mixer_at(c->mixer);
    return mixer->state_rest ? mixer->state_rest(c) : mixer->state_reals(c);
}

/* Reals of a convolution's tail. */
static size_t tail_of(const mr_config *c, int which)
{
    if (which == MR_CONV_OF_BLOCK) return mr_config_tail(c) * (size_t)c->dim;
    return mr_mixer_at(c->mixer)->state_reals(c) - state_of(c);
}

int mr_sequence_check(const mr_config *c, int ranks, int T, mr_error *err)
{
    const mr_mixer *mixer = mr_mixer_at(c->mixer);
    const int shortest = T / ranks, past = (int)mr_config_tail(c),
              own = (int)tail_of(c, MR_CONV_OF_MIXER) / mr_config_width(c), most = past > own ? past : own;
    if (ranks == 1) return 0;
    if (!mixer->cut)
        return mr_fail(err, MR_ECONFIG,
                       "sequence-ranks = %d: mixer = %s cannot be cut in time; mingru, minlstm and mamba can", ranks,
                       mixer->name);
    if (shortest < 1)
        return mr_fail(err, MR_ECONFIG, "sequence-ranks = %d: more ranks than the %d tokens of a sequence", ranks, T);
    if (shortest < most)
        return mr_fail(err, MR_ECONFIG,
                       "sequence-ranks = %d: %d tokens a rank are fewer than the %d that a convolution looks back; use "
                       "fewer ranks or longer sequences",
                       ranks, shortest, most);
    return 0;
}

int mr_sequence_new(const mr_config *config, mr_dev *dev, mr_comm *comm, mr_courier *courier, int first, int ranks,
                    mr_sequence **out, mr_error *err)
{
    mr_sequence *s = mr_alloc_with(dev->allocator, 1, sizeof *s);
    *out = NULL;
    if (!s) return mr_no_memory(err, "a group of ranks");
    *s = (mr_sequence){.config = *config,
                       .dev = dev,
                       .channel = mr_channel_over(comm, courier),
                       .first = first,
                       .ranks = ranks,
                       .rank = comm->rank - first};
    s->blocks = mr_alloc_with(dev->allocator, (size_t)config->layers, sizeof *s->blocks);
    s->list = mr_alloc_with(dev->allocator, (size_t)ranks * MESSAGES, sizeof *s->list);
    if (s->blocks && s->list) return *out = s, 0;
    mr_sequence_free(s);
    return mr_no_memory(err, "a group of ranks");
}

void mr_sequence_free(mr_sequence *s)
{
    if (!s) return;
    mr_channel_free(&s->channel, s->dev);
    mr_free_with(s->dev->allocator, s->host_tokens);
    mr_free_with(s->dev->allocator, s->host_weights);
    mr_free_with(s->dev->allocator, s->blocks);
    mr_free_with(s->dev->allocator, s->list);
    mr_free_with(s->dev->allocator, s);
}

int mr_sequence_rank(const mr_sequence *s) { return s ? s->rank : 0; }
int mr_sequence_ranks(const mr_sequence *s) { return s ? s->ranks : 1; }
uint64_t mr_sequence_bytes(const mr_sequence *s) { return s->bytes; }

int mr_sequence_status(const mr_sequence *s, mr_error *err)
{
    if (s->status && err) *err = s->why;
    return s->status;
}

void mr_sequence_enter(const mr_pass *p, int block)
{
    if (p->sequence) p->sequence->block = block;
}

/* ---- memory */

void mr_sequence_plan(mr_sequence *s, mr_arena *arena, int B)
{
    const mr_config *c = &s->config;
    const size_t row = (size_t)B * s->dev->real_size, n = row * state_of(c);
    size_t most = 0;
    for (int i = 0; i < c->layers; i++) {
        kept *k = &s->blocks[i];
        k->in = mr_arena_take(arena, n);
        k->A = mr_arena_take(arena, n * (size_t)s->ranks);
        for (int which = 0; which < MR_CONVS; which++) {
            const size_t tail = row * tail_of(c, which);
            k->tail[which] = mr_arena_take(arena, tail);
            if (tail > most) most = tail;
        }
    }
    s->C = mr_arena_take(arena, n * (size_t)s->ranks);
    s->gradient = mr_arena_take(arena, n);
    s->tail = mr_arena_take(arena, most);
    s->dtail = mr_arena_take(arena, most);
    s->carried = mr_arena_take(arena, row * (size_t)c->layers * mr_block_state_reals(c));
    if (c->head == MR_HEAD_TOKEN) return;
    s->pooled = mr_arena_take(arena, (size_t)s->ranks * (size_t)B * (size_t)c->dim * s->dev->act_size);
    s->weights = mr_arena_take(arena, ((size_t)B + 1) * s->dev->real_size);
    s->tokens = mr_arena_take(arena, (size_t)s->ranks * (size_t)B * sizeof *s->tokens);
}

/* ---- messages */

static int add_bytes(mr_sequence *s, int count, int peer, int receive, void *at, size_t bytes)
{
    s->list[count] = (mr_message){.peer = s->first + peer, .receive = receive, .at = at, .bytes = bytes};
    if (!receive) s->bytes += bytes;
    return count + 1;
}

static int add(mr_sequence *s, int count, int peer, int receive, mr_real *at, size_t reals)
{
    return add_bytes(s, count, peer, receive, at, reals * s->dev->real_size);
}

static void exchange(mr_sequence *s, int count)
{
    int64_t number;
    if (!count || s->status) return;
    s->status = mr_channel_post(&s->channel, s->dev, s->list, count, &number, &s->why);
    if (!s->status) s->status = mr_channel_wait(&s->channel, s->dev, number, NULL, 0, &s->why);
}

/* ---- states */

static mr_real *of_rank(const mr_sequence *s, mr_real *all, int rank, size_t n)
{
    return mr_real_at(s->dev, all, (size_t)rank * n);
}

/* Only a rank between two others has an A that one of them needs, forward or backward. */
static int between(const mr_sequence *s, int rank) { return rank > 0 && rank < s->ranks - 1; }

/* C goes to all ranks that come later on the way; A, in the forward, to all that will need it. */
static void send_effects(mr_sequence *s, const kept *k, int down, int train, size_t n)
{
    int count = 0;
    for (int r = 0; r < s->ranks; r++) {
        if (r == s->rank) continue;
        const int later = (r > s->rank) != down;
        if (later) count = add(s, count, r, 0, of_rank(s, s->C, s->rank, n), n);
        else count = add(s, count, r, 1, of_rank(s, s->C, r, n), n);
        if (down) continue;
        if (between(s, s->rank) && (train || later)) count = add(s, count, r, 0, of_rank(s, k->A, s->rank, n), n);
        if (between(s, r) && (train || !later)) count = add(s, count, r, 1, of_rank(s, k->A, r, n), n);
    }
    exchange(s, count);
}

/* The state before this rank's chunk, or the gradient of that after it, from the effects of the others. */
static void follow(mr_sequence *s, const kept *k, int down, size_t n, mr_real *to)
{
    const int from = down ? s->rank + 1 : 0;
    s->dev->ops.effect_chain(s->dev, &(mr_effect_chain_args){.n = n,
                                                             .count = down ? s->ranks - from : s->rank,
                                                             .down = down,
                                                             .A = of_rank(s, k->A, from, n),
                                                             .C = of_rank(s, s->C, from, n),
                                                             .y = to});
}

void mr_sequence_cross(const mr_pass *p, int down, const mr_crossing *x, const mr_real *in, mr_real *out)
{
    mr_sequence *s = p->sequence;
    if (!s || s->ranks == 1) {
        x->run(x->work, in, out);
        return;
    }
    const kept *k = &s->blocks[s->block];
    const size_t n = (size_t)p->B * state_of(&s->config);
    const int starts = s->rank == (down ? s->ranks - 1 : 0);
    mr_real *own = of_rank(s, s->C, s->rank, n), *to = down ? s->gradient : k->in;
    if (starts) x->run(x->work, in, own);
    else if (between(s, s->rank)) x->effect(x->work, of_rank(s, k->A, s->rank, n), own);
    send_effects(s, k, down, p->train, n);
    if (starts && out) s->dev->copy(s->dev, out, own, n * s->dev->real_size);
    if (starts) return;
    follow(s, k, down, n, to);
    x->run(x->work, to, out);
}

const mr_real *mr_sequence_start(const mr_pass *p, const mr_real *in)
{
    return mr_sequence_rank(p->sequence) ? p->sequence->blocks[p->sequence->block].in : in;
}

/* ---- convolutions */

/* One message to the rank at `to` and one from the rank at `from`, where they exist. */
static void pass_on(mr_sequence *s, int to, mr_real *out, int from, mr_real *in, size_t n)
{
    int count = 0;
    if (to >= 0 && to < s->ranks) count = add(s, count, to, 0, out, n);
    if (from >= 0 && from < s->ranks) count = add(s, count, from, 1, in, n);
    exchange(s, count);
}

void mr_sequence_conv_fwd(const mr_pass *p, int which, mr_conv_fwd_args a)
{
    mr_sequence *s = p->sequence;
    if (s && a.taps > 1) {
        mr_real *before = s->blocks[s->block].tail[which];
        if (s->rank < s->ranks - 1)
            s->dev->ops.conv_tail_fwd(s->dev, &(mr_conv_tail_fwd_args){.B = a.B,
                                                                       .T = a.T,
                                                                       .D = a.D,
                                                                       .taps = a.taps,
                                                                       .x = a.x,
                                                                       .reset = a.reset,
                                                                       .length = a.length,
                                                                       .tail = s->tail});
        pass_on(s, s->rank + 1, s->tail, s->rank - 1, before, (size_t)a.B * (size_t)(a.taps - 1) * (size_t)a.D);
        if (s->rank > 0) a.tail_in = before;
    }
    p->dev->ops.conv_fwd(p->dev, &a);
}

void mr_sequence_conv_bwd(const mr_pass *p, int which, mr_conv_bwd_args a)
{
    mr_sequence *s = p->sequence;
    const int inner = s && a.taps > 1, last = inner && s->rank == s->ranks - 1;
    if (inner && s->rank > 0) a.tail_in = s->blocks[s->block].tail[which], a.dtail_in = s->tail;
    if (inner && !last) a.dtail_out = NULL; /* it comes from the next rank, below */
    p->dev->ops.conv_bwd(p->dev, &a);
    if (!inner) return;
    pass_on(s, s->rank - 1, s->tail, s->rank + 1, s->dtail, (size_t)a.B * (size_t)(a.taps - 1) * (size_t)a.D);
    if (last) return;
    s->dev->ops.conv_tail_bwd(s->dev, &(mr_conv_tail_bwd_args){.B = a.B,
                                                               .T = a.T,
                                                               .D = a.D,
                                                               .taps = a.taps,
                                                               .reset = a.reset,
                                                               .length = a.length,
                                                               .dtail = s->dtail,
                                                               .dx = a.dx});
}

/* ---- heads that pool */

/* Every rank gets the rows of all others; a row is `bytes` long. */
static void gather(mr_sequence *s, void *all, size_t bytes)
{
    int count = 0;
    for (int r = 0; r < s->ranks; r++) {
        if (r == s->rank) continue;
        count = add_bytes(s, count, r, 0, (char *)all + (size_t)s->rank * bytes, bytes);
        count = add_bytes(s, count, r, 1, (char *)all + (size_t)r * bytes, bytes);
    }
    exchange(s, count);
}

/* Host memory for B rows; 0 or MR_ENOMEM. */
static int make_room(mr_sequence *s, int B)
{
    if (B <= s->host_rows) return 0;
    mr_free_with(s->dev->allocator, s->host_tokens);
    mr_free_with(s->dev->allocator, s->host_weights);
    s->host_tokens = mr_alloc_with(s->dev->allocator, (size_t)s->ranks * (size_t)B, sizeof *s->host_tokens);
    s->host_weights = mr_alloc_with(s->dev->allocator, (size_t)B + 1, sizeof *s->host_weights);
    s->host_rows = s->host_tokens && s->host_weights ? B : 0;
    return s->host_rows ? 0 : mr_no_memory(&s->why, "the lengths of rows");
}

/* The share of what is pooled of row b that comes from this rank: its share of the tokens, or all of it from the rank
 * with the last token. */
static float weight_of(const mr_sequence *s, int B, int b)
{
    const int mean = s->config.head == MR_HEAD_MEAN || s->config.head == MR_HEAD_PAIR_MEAN;
    const int32_t own = s->host_tokens[s->rank * B + b];
    int32_t all = 0, later = 0;
    for (int r = 0; r < s->ranks; r++) {
        all += s->host_tokens[r * B + b];
        if (r > s->rank) later += s->host_tokens[r * B + b];
    }
    if (mean) return all ? (float)own / (float)all : 0;
    return own && !later ? 1 : 0;
}

void mr_sequence_lengths(mr_sequence *s, const mr_batch *batch)
{
    const int B = batch->B;
    const size_t row = (size_t)B * sizeof *s->tokens;
    if (s->config.head == MR_HEAD_TOKEN || s->status) return;
    s->status = make_room(s, B);
    if (s->status) return;
    for (int b = 0; b < B; b++) s->host_tokens[s->rank * B + b] = batch->length ? batch->length[b] : batch->T;
    s->dev->upload(s->dev, s->tokens + s->rank * B, s->host_tokens + s->rank * B, row);
    gather(s, s->tokens, row);
    s->dev->download(s->dev, s->host_tokens, s->tokens, row * (size_t)s->ranks);
    for (int b = 0; b < B; b++) s->host_weights[b] = weight_of(s, B, b);
    s->host_weights[B] = (float)s->ranks;
    s->dev->put(s->dev, s->weights, s->host_weights, (size_t)B + 1);
}

const mr_real *mr_sequence_weights(const mr_pass *p) { return p->sequence ? p->sequence->weights : NULL; }

/* The sum over ranks is their mean by their number. */
void mr_sequence_sum(const mr_pass *p, mr_act *pooled)
{
    mr_sequence *s = p->sequence;
    if (!s || s->ranks == 1) return;
    const size_t n = (size_t)p->B * (size_t)s->config.dim, bytes = n * s->dev->act_size;
    s->dev->copy(s->dev, mr_act_at(s->dev, s->pooled, (size_t)s->rank * n), pooled, bytes);
    gather(s, s->pooled, bytes);
    s->dev->ops.pool_fwd(s->dev, &(mr_pool_fwd_args){.B = 1,
                                                     .T = s->ranks,
                                                     .D = (int)n,
                                                     .kind = MR_POOL_MEAN,
                                                     .weight = mr_real_at(s->dev, s->weights, (size_t)p->B),
                                                     .x = s->pooled,
                                                     .y = pooled});
}

void mr_sequence_share(const mr_pass *p, mr_act *dpooled)
{
    mr_sequence *s = p->sequence;
    if (!s || s->ranks == 1) return;
    const size_t bytes = (size_t)p->B * (size_t)s->config.dim * s->dev->act_size;
    int count = s->rank ? add_bytes(s, 0, 0, 1, dpooled, bytes) : 0;
    for (int r = 1; !s->rank && r < s->ranks; r++) count = add_bytes(s, count, r, 0, dpooled, bytes);
    exchange(s, count);
}

/* ---- what the next batch continues from */

/* Rows without a token in this chunk are as the rank before left them. */
static void keep_rows(const mr_sequence *s, int B, const int32_t *length, mr_real *reals)
{
    size_t parts[MR_STATE_PARTS], at = 0;
    mr_block_state_parts(&s->config, parts);
    for (int64_t i = 0; i < s->config.layers * MR_STATE_PARTS; i++) {
        const size_t part = parts[i % MR_STATE_PARTS], bytes = part * s->dev->real_size;
        for (int b = 0; b < B; b++, at += part)
            if (part && length[b] <= 0)
                s->dev->copy(s->dev, mr_real_at(s->dev, reals, at), mr_real_at(s->dev, s->carried, at), bytes);
    }
}

void mr_sequence_carry(const mr_pass *p, const int32_t *length, mr_real *reals)
{
    mr_sequence *s = p->sequence;
    if (!s || s->ranks == 1) return;
    const int last = s->ranks - 1;
    const size_t n = (size_t)p->B * (size_t)s->config.layers * mr_block_state_reals(&s->config);
    if (length) { /* from rank to rank */
        pass_on(s, -1, NULL, s->rank - 1, s->carried, n);
        if (s->rank > 0) keep_rows(s, p->B, length, reals);
        pass_on(s, s->rank + 1, reals, -1, NULL, n);
    }
    if (s->rank == last) pass_on(s, 0, reals, -1, NULL, n);
    if (s->rank == 0) pass_on(s, -1, NULL, last, reals, n);
}
