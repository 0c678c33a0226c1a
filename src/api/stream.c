/* Streams: each has a slot in its net's pool of states; feeding, sampling and scoring one of them. */
#include "api/stream.h"

#include <string.h>

/* ---- slots ---- */

static int take_slot(mr_state_pool *pool)
{
    if (pool->unused_count) return pool->unused[--pool->unused_count];
    return pool->used < pool->capacity ? pool->used++ : -1;
}

/* Replaces the pool's arrays by larger ones, and returns the old ones in their place. */
static void swap_pool(mr_net *net, mr_dev *dev, mr_real **reals, int32_t **unused, int capacity)
{
    mr_state_pool *pool = &net->pool, old = *pool;
    pthread_mutex_lock(&net->lock);
    if (pool->used) dev->copy(dev, *reals, pool->reals, (size_t)pool->used * net->state_reals * dev->real_size);
    if (pool->unused_count) memcpy(*unused, pool->unused, (size_t)pool->unused_count * sizeof **unused);
    pool->reals = *reals;
    pool->unused = *unused;
    pool->capacity = capacity;
    pthread_mutex_unlock(&net->lock);
    *reals = old.reals;
    *unused = old.unused;
}

/* Adds slots. Exclusive, because running calls hold addresses of the old ones. */
static int grow_pool(mr_net *net, int capacity, mr_error *err)
{
    mr_lease lease;
    int status = mr_lease_begin_exclusive(&lease, net, err);
    if (status) return status;
    if (capacity > net->pool.capacity) {
        mr_dev *dev = lease.dev;
        mr_real *reals = dev->alloc(dev, (size_t)capacity * net->state_reals * dev->real_size + 1);
        int32_t *unused = mr_alloc_with(dev->allocator, (size_t)capacity, sizeof *unused);
        if (reals && unused) swap_pool(net, dev, &reals, &unused, capacity);
        else status = mr_no_memory(err, "the states of streams");
        dev->release(dev, reals);
        mr_free_with(dev->allocator, unused);
    }
    return mr_lease_end(&lease, status, err);
}

int mr_net_reserve_streams(mr_net *net, int count, mr_error *err) { return grow_pool(net, count, err); }

static int find_slot(mr_net *net, int *slot, mr_error *err)
{
    for (;;) {
        pthread_mutex_lock(&net->lock);
        *slot = take_slot(&net->pool);
        const int capacity = net->pool.capacity;
        pthread_mutex_unlock(&net->lock);
        if (*slot >= 0) return 0;
        int status = grow_pool(net, capacity ? 2 * capacity : 8, err);
        if (status) return status;
    }
}

/* ---- making and freeing ---- */

static int check_streams(const mr_net *net, mr_error *err)
{
    if (mr_head_pairs(net->interface.head))
        return mr_fail(err, MR_EINVAL, "this model has one output for two sequences: use mr_net_forward");
    if (net->interface.head != MR_HEAD_MEAN) return 0;
    return mr_fail(err, MR_EINVAL,
                   "this model's output is a mean over the whole sequence (head = mean): use mr_net_forward");
}

int mr_stream_new(mr_net *net, mr_stream **out, mr_error *err)
{
    *out = NULL;
    int status = check_streams(net, err);
    if (status) return status;
    mr_stream *stream = mr_alloc_with(&net->ctx->allocator, 1, sizeof *stream);
    if (!stream) return mr_no_memory(err, "a stream");
    stream->net = net;
    status = find_slot(net, &stream->slot, err);
    if (status) mr_free_with(&net->ctx->allocator, stream);
    else *out = stream;
    return status;
}

void mr_stream_free(mr_stream *stream)
{
    if (!stream) return;
    mr_net *net = stream->net;
    pthread_mutex_lock(&net->lock);
    net->pool.unused[net->pool.unused_count++] = stream->slot;
    pthread_mutex_unlock(&net->lock);
    mr_free_with(&net->ctx->allocator, stream);
}

void mr_stream_reset(mr_stream *stream) { stream->under_way = 0; }

int mr_stream_clone(const mr_stream *stream, mr_stream **out, mr_error *err)
{
    mr_lease lease;
    int status = mr_stream_new(stream->net, out, err);
    if (status) return status;
    status = mr_lease_begin(&lease, stream->net, 1, 1, err);
    if (!status) {
        lease.dev->copy(lease.dev, mr_stream_reals(*out, lease.dev), mr_stream_reals(stream, lease.dev),
                        stream->net->state_reals * lease.dev->real_size);
        (*out)->under_way = stream->under_way;
        status = mr_lease_end(&lease, 0, err);
    }
    if (!status) return 0;
    mr_stream_free(*out);
    *out = NULL;
    return status;
}

mr_real *mr_stream_reals(const mr_stream *stream, mr_dev *dev)
{
    return mr_real_at(dev, stream->net->pool.reals, (size_t)stream->slot * stream->net->state_reals);
}

/* ---- the state for a call ---- */

int mr_runner_reserve(mr_lease *lease, int B, mr_error *err)
{
    mr_runner *r = lease->runner;
    mr_dev *dev = lease->dev;
    if (B <= r->states_B) return 0;
    dev->release(dev, r->states);
    dev->release(dev, r->slots);
    r->states_B = B;
    r->states = dev->alloc(dev, (size_t)B * lease->net->state_reals * dev->real_size + 1);
    r->slots = dev->alloc(dev, (size_t)B * sizeof *r->slots);
    if (r->states && r->slots) return 0;
    r->states_B = 0;
    return mr_no_memory(err, "the states of a call");
}

/* Prepares a stream's state for a call. A device that records steps identifies them by their addresses, so there the
 * state is copied to a fixed place and all streams share a recording. Other devices use the state in place. */
static int open_state(mr_lease *lease, mr_stream *stream, mr_state *state, mr_error *err)
{
    mr_runner *r = lease->runner;
    const int32_t slot = stream->slot;
    *state = (mr_state){.model = r->model, .B = 1, .under_way = stream->under_way};
    state->reals = mr_stream_reals(stream, lease->dev);
    if (lease->dev->ahead == 1) return 0;
    int status = mr_runner_reserve(lease, 1, err);
    if (status) return status;
    lease->dev->upload(lease->dev, r->slots, &slot, sizeof slot);
    state->reals = r->states;
    mr_state_gather(state, r->slots, stream->net->pool.reals);
    return 0;
}

static void close_state(mr_lease *lease, mr_stream *stream, const mr_state *state)
{
    if (lease->dev->ahead > 1) mr_state_scatter(state, lease->runner->slots, stream->net->pool.reals);
    stream->under_way = 1;
}

/* ---- feeding ---- */

int mr_check_tokens(const mr_net *net, const int32_t *tokens, size_t n, mr_error *err)
{
    if (net->interface.input != MR_INPUT_TOKENS) return mr_fail(err, MR_EINVAL, "this model takes values, not tokens");
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= net->interface.inputs)
            return mr_fail(err, MR_EINVAL, "token %d is outside 0 … %d", (int)tokens[i], net->interface.inputs - 1);
    return 0;
}

/* Runs n tokens in pieces that fit the runner's plan, and calls `each` (or NULL) after every piece. */
typedef void after_piece(void *user, mr_model *model, const mr_batch *piece, size_t done);

enum { PIECE = 256 };

static void run_pieces(mr_lease *lease, mr_state *state, const mr_batch *all, size_t n, int longest, after_piece *each,
                       void *user)
{
    mr_batch piece = *all;
    for (size_t done = 0; done < n; done += (size_t)piece.T) {
        piece.B = 1;
        piece.T = n - done < (size_t)longest ? (int)(n - done) : longest;
        if (all->ids) piece.ids = all->ids + done;
        if (all->values) piece.values = all->values + done * (size_t)lease->net->interface.inputs;
        if (all->target) piece.target = all->target + done;
        mr_model_forward(lease->runner->model, &piece, state, 0);
        if (each) each(user, lease->runner->model, &piece, done);
    }
}

static int run_one(mr_stream *stream, const mr_batch *all, size_t n, float *scores, size_t capacity, mr_error *err)
{
    mr_lease lease;
    mr_state state;
    mr_net *net = stream->net;
    int status = n ? 0 : mr_fail(err, MR_EINVAL, "no tokens: there are no scores before the first one");
    if (!status && scores) status = mr_check_capacity(scores, capacity, (size_t)net->interface.outputs, "scores", err);
    const int longest = n < PIECE ? (int)n : PIECE;
    if (!status) status = mr_lease_begin(&lease, net, 1, longest, err);
    if (status) return status;
    status = open_state(&lease, stream, &state, err);
    if (!status) {
        run_pieces(&lease, &state, all, n, longest, NULL, NULL);
        const size_t last = (n - 1) % (size_t)longest;
        if (scores) mr_model_logits(lease.runner->model, scores, net->interface.head == MR_HEAD_TOKEN ? last : 0, 1);
        close_state(&lease, stream, &state);
    }
    return mr_lease_end(&lease, status, err);
}

int mr_stream_feed(mr_stream *stream, const int32_t *tokens, size_t n, float *scores, size_t capacity, mr_error *err)
{
    int status = mr_check_tokens(stream->net, tokens, n, err);
    return status ? status : run_one(stream, &(mr_batch){.ids = (int32_t *)tokens}, n, scores, capacity, err);
}

int mr_stream_step(mr_stream *stream, int32_t token, float *scores, size_t capacity, mr_error *err)
{
    return mr_stream_feed(stream, &token, 1, scores, capacity, err);
}

int mr_stream_feed_values(mr_stream *stream, const float *values, size_t n, float *scores, size_t capacity,
                          mr_error *err)
{
    int status = mr_check_values(stream->net, values, n, err);
    return status ? status : run_one(stream, &(mr_batch){.values = (float *)values}, n, scores, capacity, err);
}

int mr_stream_step_values(mr_stream *stream, const float *values, float *scores, size_t capacity, mr_error *err)
{
    return mr_stream_feed_values(stream, values, 1, scores, capacity, err);
}

/* ---- sampling ---- */

int mr_read_sampling(const mr_sample_options *from, mr_sampling *how, uint64_t *position, mr_error *err)
{
    mr_sample_options o;
    int status = mr_sized_copy(&o, sizeof o, from, "mr_sample_options", err);
    if (status) return status;
    if (!(o.temperature >= 0 && o.temperature <= 1e6))
        return mr_fail(err, MR_EINVAL, "temperature: must be a number from 0 to 1e6");
    if (!(o.top_p >= 0 && o.top_p <= 1)) return mr_fail(err, MR_EINVAL, "top_p: must be 0 … 1");
    if (o.top_k < 0) return mr_fail(err, MR_EINVAL, "top_k = %d: must be 0 or more", o.top_k);
    if (o.position > (uint64_t)1 << 52) return mr_fail(err, MR_EINVAL, "position: must be at most 2^52");
    *how = (mr_sampling){.temperature = o.temperature, .top_p = o.top_p, .top_k = o.top_k, .seed = o.seed};
    *position = o.position;
    return 0;
}

int mr_check_can_sample(const mr_net *net, mr_error *err)
{
    if (net->interface.input == MR_INPUT_TOKENS && net->interface.head == MR_HEAD_TOKEN &&
        net->interface.loss == MR_LOSS_XENT && net->interface.inputs == net->interface.outputs)
        return 0;
    return mr_fail(err, MR_EINVAL, "this model does not predict its own next token, so none can be sampled");
}

static int draw(mr_lease *lease, mr_state *state, int32_t *drawn, size_t count, mr_error *err)
{
    int status = 0;
    for (size_t i = 0; !status && i < count; i += (size_t)lease->dev->ahead) {
        const int n = count - i < (size_t)lease->dev->ahead ? (int)(count - i) : lease->dev->ahead;
        mr_model_draw(lease->runner->model, state, i == 0, n, drawn + i);
        status = lease->dev->sync(lease->dev, err);
        for (int k = 0; !status && k < n; k++)
            if (drawn[i + (size_t)k] < 0)
                status = mr_fail(err, MR_ENONFINITE, "the model's output is NaN or infinite after %zu sampled tokens",
                                 i + (size_t)k);
    }
    return status;
}

int mr_stream_sample(mr_stream *stream, const int32_t *tokens, size_t n, const mr_sample_options *how, int32_t *drawn,
                     size_t count, mr_error *err)
{
    mr_lease lease;
    mr_state state;
    mr_sampling sampling;
    uint64_t position;
    int status = mr_check_can_sample(stream->net, err);
    if (!status) status = mr_check_tokens(stream->net, tokens, n, err);
    if (!status) status = mr_read_sampling(how, &sampling, &position, err);
    if (!status && !n) status = mr_fail(err, MR_EINVAL, "no tokens: sampling needs at least one token first");
    if (!status) status = mr_check_capacity(drawn, count, count ? count : 1, "drawn", err);
    const int longest = n < PIECE ? (int)n : PIECE;
    if (!status) status = mr_lease_begin(&lease, stream->net, 1, longest, err);
    if (status) return status;
    status = open_state(&lease, stream, &state, err);
    if (!status) {
        run_pieces(&lease, &state, &(mr_batch){.ids = (int32_t *)tokens}, n, longest, NULL, NULL);
        mr_model_draw_from(lease.runner->model, &sampling, position);
        status = draw(&lease, &state, drawn, count, err);
        close_state(&lease, stream, &state);
    }
    return mr_lease_end(&lease, status, err);
}

/* ---- scoring ---- */

static void take_losses(void *user, mr_model *model, const mr_batch *piece, size_t done)
{
    float *losses = user;
    mr_model_loss(model, piece, 0);
    mr_model_row_loss(model, losses + done, (size_t)piece->T);
}

int mr_stream_score(mr_stream *stream, const int32_t *tokens, const int32_t *targets, size_t n, float *losses,
                    size_t capacity, mr_error *err)
{
    mr_lease lease;
    mr_state state;
    const mr_batch all = {.ids = (int32_t *)tokens, .target = (int32_t *)targets};
    const int longest = n < 1 << 24 ? (int)n : 1 << 24;
    int status = mr_check_can_sample(stream->net, err);
    if (!status) status = mr_check_tokens(stream->net, tokens, n, err);
    if (!status) status = mr_check_tokens(stream->net, targets, n, err);
    if (!status && !n) status = mr_fail(err, MR_EINVAL, "no tokens: there is nothing to score");
    if (!status) status = mr_check_capacity(losses, capacity, n, "losses", err);
    if (!status) status = mr_lease_begin(&lease, stream->net, 1, longest, err);
    if (status) return status;
    status = open_state(&lease, stream, &state, err);
    if (!status) {
        run_pieces(&lease, &state, &all, n, longest, take_losses, losses);
        close_state(&lease, stream, &state);
    }
    return mr_lease_end(&lease, status, err);
}
