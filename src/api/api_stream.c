/* Streams: a state each, stepped alone, over a piece of text, or many together; saved and loaded. */
#include "api/api.h"

#include "model/mixer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct mr_stream {
    mr_net *net;
    mr_state *state;
    int listed; /* while a call that takes many goes through them */
};

/* ---- making and freeing ---- */

static int check_streams(const mr_net *net, mr_error *err)
{
    if (mr_head_pairs(net->face.head)) return mr_fail(err, MR_EINVAL, "this model's output belongs to two sequences: use mr_net_forward");
    if (net->face.head != MR_HEAD_MEAN) return 0;
    return mr_fail(err, MR_EINVAL, "this model's output is a mean over the whole sequence (head = mean): use mr_net_forward");
}

int mr_stream_new(mr_net *net, mr_stream **out, mr_error *err)
{
    mr_turn turn;
    *out = NULL;
    int status = check_streams(net, err);
    if (status) return status;
    mr_stream *stream = mr_alloc_by(&net->ctx->allocator, 1, sizeof *stream);
    if (!stream) return mr_no_memory(err, "a stream");
    stream->net = net;
    status = mr_turn_begin(&turn, net, 1, 1, err);
    if (!status) status = mr_turn_end(&turn, mr_state_new(turn.runner->model, 1, &stream->state, err), err);
    if (!status) return *out = stream, 0;
    mr_stream_free(stream);
    return status;
}

void mr_stream_free(mr_stream *stream)
{
    if (!stream) return;
    mr_net *net = stream->net;
    if (stream->state) { /* any device of the context can free it: what it was planned for may be at work elsewhere */
        mr_dev *dev = mr_context_borrow(net->ctx);
        mr_state_release(stream->state, dev);
        mr_context_return(net->ctx, dev);
    }
    mr_free_by(&net->ctx->allocator, stream);
}

void mr_stream_reset(mr_stream *stream) { mr_state_reset(stream->state); }

int mr_stream_clone(const mr_stream *stream, mr_stream **out, mr_error *err)
{
    mr_turn turn;
    int status = mr_stream_new(stream->net, out, err);
    if (status) return status;
    status = mr_turn_begin(&turn, stream->net, 1, 1, err);
    if (!status) {
        mr_state_use((*out)->state, turn.runner->model);
        mr_state_gather((*out)->state, 0, stream->state);
        if (mr_state_under_way(stream->state)) mr_state_resume((*out)->state);
        status = mr_turn_end(&turn, 0, err);
    }
    if (!status) return 0;
    mr_stream_free(*out);
    *out = NULL;
    return status;
}

/* ---- stepping ---- */

static int check_tokens(const mr_net *net, const int32_t *tokens, size_t n, mr_error *err)
{
    if (net->face.input != MR_INPUT_TOKENS) return mr_fail(err, MR_EINVAL, "this model takes values, not tokens: mr_stream_step_values");
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= net->face.inputs)
            return mr_fail(err, MR_EINVAL, "token %d is outside 0 … %d", (int)tokens[i], net->face.inputs - 1);
    return 0;
}

/* All T tokens of a batch of one, in pieces; the batch's pointers move along. */
static int run_one(mr_stream *stream, mr_batch batch, size_t n, float *scores, mr_error *err)
{
    enum { PIECE = 256 };
    mr_turn turn;
    const int longest = n < PIECE ? (int)n : PIECE;
    int status = mr_turn_begin(&turn, stream->net, 1, longest, err);
    if (status) return status;
    mr_model *model = turn.runner->model;
    mr_state_use(stream->state, model);
    for (batch.B = 1; n; n -= (size_t)batch.T) {
        batch.T = n < PIECE ? (int)n : PIECE;
        mr_model_forward(model, &batch, stream->state, 0);
        if (batch.ids) batch.ids += batch.T;
    }
    mr_model_logits(model, scores, stream->net->face.head == MR_HEAD_TOKEN ? (size_t)batch.T - 1 : 0, 1);
    return mr_turn_end(&turn, 0, err);
}

int mr_stream_feed(mr_stream *stream, const int32_t *tokens, size_t n, float *scores, mr_error *err)
{
    int status = check_tokens(stream->net, tokens, n, err);
    if (!status && !n) status = mr_fail(err, MR_EINVAL, "no tokens: there are no scores before the first one");
    return status ? status : run_one(stream, (mr_batch){.ids = (int32_t *)tokens}, n, scores, err);
}

int mr_stream_step(mr_stream *stream, int32_t token, float *scores, mr_error *err)
{
    return mr_stream_feed(stream, &token, 1, scores, err);
}

int mr_stream_step_values(mr_stream *stream, const float *values, float *scores, mr_error *err)
{
    if (stream->net->face.input != MR_INPUT_REALS) return mr_fail(err, MR_EINVAL, "this model takes tokens, not values: mr_stream_step");
    return run_one(stream, (mr_batch){.values = (float *)values}, 1, scores, err);
}

/* ---- many at once ---- */

/* Marks each stream once; returns how many were marked. */
static int list_streams(mr_stream *const *streams, int n, mr_error *err)
{
    for (int i = 0; i < n; i++) {
        if (streams[i]->listed) return mr_fail(err, MR_EINVAL, "stream %d is given twice; each takes one token a call", i), i;
        if (streams[i]->net != streams[0]->net) return mr_fail(err, MR_EINVAL, "stream %d is one of another net", i), i;
        streams[i]->listed = 1;
    }
    return n;
}

static int have_room(mr_runner *runner, int n, mr_error *err)
{
    if (runner->many && runner->many_B == n) return 0;
    mr_state_free(runner->many);
    runner->many = NULL;
    runner->many_B = n;
    return mr_state_new(runner->model, n, &runner->many, err);
}

static int run_many(mr_turn *turn, mr_stream *const *streams, int n, mr_batch *batch, float *scores, mr_error *err)
{
    mr_runner *runner = turn->runner;
    int status = have_room(runner, n, err);
    if (status) return status;
    for (int i = 0; i < n; i++) {
        mr_state_use(streams[i]->state, runner->model);
        batch->reset[i] = !mr_state_under_way(streams[i]->state);
        batch->has_reset |= batch->reset[i];
        mr_state_gather(runner->many, i, streams[i]->state);
    }
    mr_state_resume(runner->many);
    mr_model_forward(runner->model, batch, runner->many, 0);
    mr_model_logits(runner->model, scores, 0, (size_t)n);
    for (int i = 0; i < n; i++) {
        mr_state_scatter(runner->many, i, streams[i]->state);
        mr_state_resume(streams[i]->state);
    }
    return 0;
}

int mr_stream_step_many(mr_stream *const *streams, int n, const int32_t *tokens, float *scores, mr_error *err)
{
    mr_turn turn;
    if (n < 1) return mr_fail(err, MR_EINVAL, "%d streams: there must be one or more", n);
    mr_net *net = streams[0]->net;
    mr_batch batch = {.B = n, .T = 1, .ids = (int32_t *)tokens};
    int status = check_tokens(net, tokens, (size_t)n, err);
    if (status) return status;
    const int listed = list_streams(streams, n, err);
    for (int i = 0; i < listed; i++) streams[i]->listed = 0;
    if (listed < n) return MR_EINVAL;
    batch.reset = mr_alloc_by(&net->ctx->allocator, (size_t)n, 1);
    if (!batch.reset) return mr_no_memory(err, "a step of many streams");
    status = mr_turn_begin(&turn, net, n, 1, err);
    if (!status) status = mr_turn_end(&turn, run_many(&turn, streams, n, &batch, scores, err), err);
    mr_free_by(&net->ctx->allocator, batch.reset);
    return status;
}

/* ---- blobs ---- */

/* Little-endian, as the machines that this is built for; reals of fp32 follow. */
typedef struct blob_header {
    char magic[8];
    uint32_t version;
    uint32_t under_way;
    char mixer[16];
    uint32_t layers, dim, expansion, conv;
    uint64_t reals;
} blob_header;

static blob_header header_of(const mr_stream *stream)
{
    const mr_config *c = mr_model_config(stream->net->owner);
    blob_header h = {.magic = "mrstate", .version = 1, .under_way = (uint32_t)mr_state_under_way(stream->state),
                     .layers = (uint32_t)c->layers, .dim = (uint32_t)c->dim, .expansion = (uint32_t)c->expansion,
                     .conv = (uint32_t)c->conv, .reals = stream->net->state_reals};
    snprintf(h.mixer, sizeof h.mixer, "%s", mr_mixer_names[c->mixer]);
    return h;
}

size_t mr_stream_state_size(const mr_stream *stream) { return sizeof(blob_header) + stream->net->state_reals * sizeof(float); }

/* The state as mr_state_get and mr_state_put have it, through memory of our own: a blob may lie anywhere. */
static int exchange(const mr_stream *stream, float *reals, int load, mr_error *err)
{
    mr_turn turn;
    int status = mr_turn_begin(&turn, stream->net, 1, 1, err);
    if (status) return status;
    mr_state_use(stream->state, turn.runner->model);
    if (load) mr_state_put(stream->state, reals);
    else mr_state_get(stream->state, reals);
    return mr_turn_end(&turn, 0, err);
}

int mr_stream_save(const mr_stream *stream, void *blob, mr_error *err)
{
    const blob_header header = header_of(stream);
    const size_t bytes = (size_t)header.reals * sizeof(float);
    const mr_allocator *by = &stream->net->ctx->allocator;
    float *reals = mr_alloc_by(by, (size_t)header.reals + 1, sizeof *reals);
    if (!reals) return mr_no_memory(err, "a state");
    int status = exchange(stream, reals, 0, err);
    if (!status) memcpy(blob, &header, sizeof header);
    if (!status && header.under_way) memcpy((char *)blob + sizeof header, reals + 1, bytes);
    else if (!status) memset((char *)blob + sizeof header, 0, bytes);
    mr_free_by(by, reals);
    return status;
}

static int check_blob(const mr_stream *stream, const blob_header *got, size_t size, mr_error *err)
{
    const blob_header want = header_of(stream);
    if (size < sizeof *got || memcmp(got->magic, want.magic, sizeof got->magic))
        return mr_fail(err, MR_EFORMAT, "not the state of a stream");
    if (got->version != want.version)
        return mr_fail(err, MR_EFORMAT, "the state of a stream in version %u; this library reads version %u", (unsigned)got->version, (unsigned)want.version);
    if (memcmp(got->mixer, want.mixer, sizeof got->mixer) || got->layers != want.layers || got->dim != want.dim ||
        got->expansion != want.expansion || got->conv != want.conv || got->reals != want.reals)
        return mr_fail(err, MR_EINVAL, "the state of another model: %.15s, %u layers of %u × %u, conv %u; this one is %s, %u layers of %u × %u, conv %u",
                       got->mixer, (unsigned)got->layers, (unsigned)got->dim, (unsigned)got->expansion, (unsigned)got->conv, want.mixer,
                       (unsigned)want.layers, (unsigned)want.dim, (unsigned)want.expansion, (unsigned)want.conv);
    if (size != mr_stream_state_size(stream) || got->under_way > 1)
        return mr_fail(err, MR_EFORMAT, "the state of a stream, damaged: %zu bytes where %zu belong", size, mr_stream_state_size(stream));
    return 0;
}

int mr_stream_load(mr_stream *stream, const void *blob, size_t size, mr_error *err)
{
    blob_header header;
    const mr_allocator *by = &stream->net->ctx->allocator;
    memset(&header, 0, sizeof header);
    memcpy(&header, blob, size < sizeof header ? size : sizeof header);
    int status = check_blob(stream, &header, size, err);
    if (status) return status;
    float *reals = mr_alloc_by(by, (size_t)header.reals + 1, sizeof *reals);
    if (!reals) return mr_no_memory(err, "a state");
    reals[0] = (float)header.under_way;
    memcpy(reals + 1, (const char *)blob + sizeof header, size - sizeof header);
    for (uint64_t i = 0; !status && i < header.reals; i++)
        if (!isfinite(reals[i + 1])) status = mr_fail(err, MR_EFORMAT, "the state of a stream, damaged: number %llu is not finite", (unsigned long long)i);
    if (!status) status = exchange(stream, reals, 1, err);
    mr_free_by(by, reals);
    return status;
}
