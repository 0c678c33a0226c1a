/* The public functions of include/minrnn.h: thin covers over sessions and states. */
#include "core/mem.h"
#include "run/session.h"

struct mr_context {
    mr_dev *dev;
    mr_error err;
};

struct mr_net {
    mr_context *ctx;
    mr_session session;
};

struct mr_stream {
    mr_net *net;
    mr_state *state;
    mr_batch batch; /* 1 × 1 */
};

int mr_context_new(const char *device, int threads, mr_context **out)
{
    mr_context *ctx = mr_alloc(1, sizeof *ctx);
    *out = NULL;
    if (!ctx) return MR_ENOMEM;
    int status = mr_dev_open(device, &(mr_dev_options){.threads = threads}, &ctx->dev, &ctx->err);
    if (status) mr_free(ctx);
    else *out = ctx;
    return status;
}

void mr_context_free(mr_context *ctx)
{
    if (!ctx) return;
    mr_dev_close(ctx->dev);
    mr_free(ctx);
}

const char *mr_context_error(const mr_context *ctx) { return ctx->err.text; }

int mr_net_open(mr_context *ctx, const char *path, mr_net **out)
{
    mr_net *net = mr_alloc(1, sizeof *net);
    *out = NULL;
    if (!net) return mr_no_memory(&ctx->err, path);
    net->ctx = ctx;
    int status = mr_session_open(&net->session, path, ctx->dev, 1, 1, &ctx->err);
    if (status) mr_free(net);
    else *out = net;
    return status;
}

void mr_net_free(mr_net *net)
{
    if (!net) return;
    mr_session_close(&net->session);
    mr_free(net);
}

int mr_net_inputs(const mr_net *net) { return (int)net->session.recipe.config.inputs; }
int mr_net_outputs(const mr_net *net) { return (int)net->session.recipe.config.outputs; }
int64_t mr_net_parameters(const mr_net *net) { return mr_model_count(net->session.model); }

int mr_net_encode(const mr_net *net, const char *text, size_t size, size_t *used)
{
    int32_t tokens[4];
    size_t count = 0, taken = 0;
    *used = 0;
    if (!net->session.vocab.size) return mr_fail(&net->ctx->err, MR_EINVAL, "this model does not read text");
    /* the shortest piece that is a whole character */
    for (size_t n = 1; n <= size && n <= 4; n++) {
        int status = mr_vocab_encode(&net->session.vocab, text, n, n == size || n == 4, 0, tokens, &count, &taken, &net->ctx->err);
        if (status) return status;
        if (count) return *used = taken, tokens[0];
    }
    return mr_fail(&net->ctx->err, MR_EINVAL, "no text to encode");
}

int mr_net_decode(const mr_net *net, int token, char bytes[4])
{
    if (net->session.vocab.size && token >= 0 && token < net->session.vocab.size) return mr_vocab_decode(&net->session.vocab, token, bytes);
    return mr_fail(&net->ctx->err, MR_EINVAL, "token %d is not in the vocabulary", token);
}

int mr_stream_new(mr_net *net, mr_stream **out)
{
    mr_stream *stream = mr_alloc(1, sizeof *stream);
    mr_interface face = mr_config_interface(&net->session.recipe.config);
    *out = NULL;
    if (!stream) return mr_no_memory(&net->ctx->err, "a stream");
    stream->net = net;
    int status = mr_batch_new(&stream->batch, &face, 1, 1) ? mr_no_memory(&net->ctx->err, "a stream")
                                                           : mr_state_new(net->session.model, 1, &stream->state, &net->ctx->err);
    if (!status) return *out = stream, 0;
    mr_stream_free(stream);
    return status;
}

void mr_stream_free(mr_stream *stream)
{
    if (!stream) return;
    mr_state_free(stream->state);
    mr_batch_free(&stream->batch);
    mr_free(stream);
}

void mr_stream_reset(mr_stream *stream) { mr_state_reset(stream->state); }

static int step(mr_stream *stream, float *scores)
{
    mr_model *model = stream->net->session.model;
    stream->batch.B = stream->batch.T = 1;
    mr_model_forward(model, &stream->batch, stream->state, 0);
    mr_model_logits(model, scores, 0, 1);
    return mr_model_dev(model)->sync(mr_model_dev(model), &stream->net->ctx->err);
}

int mr_stream_step(mr_stream *stream, int token, float *scores)
{
    mr_context *ctx = stream->net->ctx;
    if (!stream->batch.ids) return mr_fail(&ctx->err, MR_EINVAL, "this model takes values, not tokens: mr_stream_step_values");
    if (token < 0 || token >= mr_net_inputs(stream->net))
        return mr_fail(&ctx->err, MR_EINVAL, "token %d is outside 0 … %d", token, mr_net_inputs(stream->net) - 1);
    stream->batch.ids[0] = token;
    return step(stream, scores);
}

int mr_stream_step_values(mr_stream *stream, const float *values, float *scores)
{
    if (!stream->batch.values) return mr_fail(&stream->net->ctx->err, MR_EINVAL, "this model takes tokens, not values: mr_stream_step");
    for (int i = 0; i < mr_net_inputs(stream->net); i++) stream->batch.values[i] = values[i];
    return step(stream, scores);
}

size_t mr_stream_state_size(const mr_stream *stream) { return mr_model_state_reals(stream->net->session.model) + 1; }
void mr_stream_save(const mr_stream *stream, float *state) { mr_state_get(stream->state, state); }
void mr_stream_load(mr_stream *stream, const float *state) { mr_state_put(stream->state, state); }
