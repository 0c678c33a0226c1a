/* Many streams in one call: gather their states, step them together, put the states back. */
#include "api/stream.h"

#include <math.h>

int mr_check_values(const mr_net *net, const float *values, size_t n, mr_error *err)
{
    if (net->interface.input != MR_INPUT_REALS) return mr_fail(err, MR_EINVAL, "this model takes tokens, not values");
    if (!values) return mr_fail(err, MR_EINVAL, "values is NULL");
    for (size_t i = 0; i < n * (size_t)net->interface.inputs; i++)
        if (!isfinite(values[i]))
            return mr_fail(err, MR_EINVAL, "values[%zu] is %s", i, isnan(values[i]) ? "NaN" : "infinite");
    return 0;
}

/* Marks each stream and so finds duplicates. Returns how many were marked, less than n after an error. */
static int list_streams(mr_stream *const *streams, int n, mr_error *err)
{
    for (int i = 0; i < n; i++) {
        if (streams[i]->listed)
            return mr_fail(err, MR_EINVAL, "stream %d is in the list twice; each takes one token per call", i), i;
        if (streams[i]->net != streams[0]->net)
            return mr_fail(err, MR_EINVAL, "stream %d belongs to another net", i), i;
        streams[i]->listed = 1;
    }
    return n;
}

static int check_many(mr_stream *const *streams, int n, const int32_t *tokens, const float *values, mr_error *err)
{
    if (n < 1) return mr_fail(err, MR_EINVAL, "%d streams: there must be one or more", n);
    const mr_net *net = streams[0]->net;
    if (!tokens == !values) return mr_fail(err, MR_EINVAL, "give tokens or values, the other one NULL");
    int status = tokens ? mr_check_tokens(net, tokens, (size_t)n, err) : mr_check_values(net, values, (size_t)n, err);
    if (status) return status;
    const int listed = list_streams(streams, n, err);
    for (int i = 0; i < listed; i++) streams[i]->listed = 0;
    return listed < n ? MR_EINVAL : 0;
}

/* What a call with n streams needs on the host: their slots, and which of them start a sequence. */
typedef struct crowd {
    int32_t *slots;
    uint8_t *reset;
} crowd;

/* Uses the outputs of a step while its lease lasts. */
typedef int take_outputs(void *user, mr_lease *lease, int n, mr_error *err);

/* Outputs are read before the states are put back, because a device that records steps delivers what is downloaded
 * directly after a step together with it. */
static int run_many(mr_lease *lease, mr_stream *const *streams, int n, mr_batch *batch, const crowd *c,
                    take_outputs *take, void *user, mr_error *err)
{
    mr_runner *r = lease->runner;
    int fresh = 0, status = mr_runner_reserve(lease, n, err);
    if (status) return status;
    for (int i = 0; i < n; i++) {
        c->slots[i] = streams[i]->slot;
        c->reset[i] = !streams[i]->under_way;
        fresh |= c->reset[i];
    }
    batch->reset = fresh ? c->reset : NULL;
    mr_state state = {.model = r->model, .B = n, .under_way = 1, .reals = r->states};
    lease->dev->upload(lease->dev, r->slots, c->slots, (size_t)n * sizeof *c->slots);
    mr_state_gather(&state, r->slots, lease->net->pool.reals);
    mr_model_forward(r->model, batch, &state, 0);
    if (take) status = take(user, lease, n, err);
    mr_state_scatter(&state, r->slots, lease->net->pool.reals);
    for (int i = 0; i < n; i++) streams[i]->under_way = 1;
    return status;
}

static int step_many(mr_stream *const *streams, int n, mr_batch batch, take_outputs *take, void *user, mr_error *err)
{
    mr_lease lease;
    mr_net *net = streams[0]->net;
    const mr_allocator *allocator = &net->ctx->allocator;
    crowd c = {mr_alloc_with(allocator, (size_t)n, sizeof *c.slots), mr_alloc_with(allocator, (size_t)n, 1)};
    int status = c.slots && c.reset ? 0 : mr_no_memory(err, "a step of many streams");
    if (!status) status = mr_lease_begin(&lease, net, n, 1, err);
    if (!status) {
        status = run_many(&lease, streams, n, &batch, &c, take, user, err);
        status = mr_lease_end(&lease, status, err);
    }
    mr_free_with(allocator, c.slots);
    mr_free_with(allocator, c.reset);
    return status;
}

static int take_scores(void *user, mr_lease *lease, int n, mr_error *err)
{
    (void)err;
    mr_model_logits(lease->runner->model, user, 0, (size_t)n);
    return 0;
}

int mr_stream_step_many(mr_stream *const *streams, int n, const int32_t *tokens, const float *values, float *scores,
                        size_t capacity, mr_error *err)
{
    int status = check_many(streams, n, tokens, values, err);
    if (!status && scores)
        status =
            mr_check_capacity(scores, capacity, (size_t)n * (size_t)streams[0]->net->interface.outputs, "scores", err);
    if (status) return status;
    const mr_batch batch = {.B = n, .T = 1, .ids = (int32_t *)tokens, .values = (float *)values};
    return step_many(streams, n, batch, scores ? take_scores : NULL, scores, err);
}

/* ---- sampling ---- */

typedef struct draws {
    mr_sampling *how;
    uint64_t *position;
    int32_t *drawn;
} draws;

static int take_draws(void *user, mr_lease *lease, int n, mr_error *err)
{
    const draws *d = user;
    mr_model_draw_rows(lease->runner->model, n, d->how, d->position, d->drawn);
    int status = lease->dev->sync(lease->dev, err);
    for (int i = 0; !status && i < n; i++)
        if (d->drawn[i] < 0)
            status = mr_fail(err, MR_ENONFINITE, "stream %d: the model's output is NaN or infinite", i);
    return status;
}

int mr_stream_sample_many(mr_stream *const *streams, int n, const int32_t *tokens, const mr_sample_options *how,
                          int32_t *drawn, mr_error *err)
{
    int status = check_many(streams, n, tokens, NULL, err);
    if (!status) status = mr_check_can_sample(streams[0]->net, err);
    if (!status) status = mr_check_capacity(drawn, (size_t)n, (size_t)n, "drawn", err);
    if (status) return status;
    const mr_allocator *allocator = &streams[0]->net->ctx->allocator;
    draws d = {mr_alloc_with(allocator, (size_t)n, sizeof *d.how),
               mr_alloc_with(allocator, (size_t)n, sizeof *d.position), drawn};
    if (!d.how || !d.position) status = mr_no_memory(err, "a step of many streams");
    for (int i = 0; !status && i < n; i++) status = mr_read_sampling(&how[i], &d.how[i], &d.position[i], err);
    const mr_batch batch = {.B = n, .T = 1, .ids = (int32_t *)tokens};
    if (!status) status = step_many(streams, n, batch, take_draws, &d, err);
    mr_free_with(allocator, d.how);
    mr_free_with(allocator, d.position);
    return status;
}
