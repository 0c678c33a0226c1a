/* Scoring a text: read in pieces, encoded, and run through the model in chunks. */
#include "train/score.h"

#include "core/mem.h"
#include "core/status.h"

#include <errno.h>
#include <math.h>
#include <string.h>

enum { PIECE = 1 << 16 };

typedef struct scorer {
    const mr_score_options *options;
    mr_stream *stream;
    mr_encoder encoder;
    int held;        /* tokens held: up to chunk + 1, the last one only as a target */
    int32_t *tokens; /* [chunk + 1] */
    float *loss;     /* [chunk] */
    double sum;
    int64_t predicted, seen;
} scorer;

/* Runs the held tokens through the model; the last one stays as the first of the next chunk. */
static int run_chunk(scorer *s, mr_error *err)
{
    const int T = s->held - 1;
    int status = mr_stream_score(s->stream, s->tokens, s->tokens + 1, (size_t)T, s->loss, (size_t)T, err);
    for (int t = 0; !status && t < T; t++) {
        if (!isfinite(s->loss[t]))
            return mr_fail(err, MR_ENONFINITE, "token %lld: the model's output is NaN or infinite",
                           (long long)(s->predicted + t + 1));
        s->sum += s->loss[t];
        if (s->options->each) s->options->each(s->options->user, -(double)s->loss[t]);
    }
    s->predicted += T;
    s->tokens[0] = s->tokens[T];
    s->held = 1;
    return status;
}

static int take_tokens(scorer *s, const int32_t *tokens, size_t count, mr_error *err)
{
    for (size_t i = 0; i < count; i++) {
        s->tokens[s->held++] = tokens[i];
        s->seen++;
        int status = s->held == s->options->chunk + 1 ? run_chunk(s, err) : 0;
        if (status) return status;
    }
    return 0;
}

static int take_text(scorer *s, char *text, int32_t *tokens, mr_error *err)
{
    const char *name = s->options->name;
    size_t held = 0, line = 1, count, used;
    mr_error inner;
    for (int last = 0; !last;) {
        long got = s->options->read(s->options->user, text + held, PIECE - held);
        if (got < 0) return mr_fail(err, MR_EIO, "%s: %s", name, strerror(errno));
        last = got == 0;
        held += (size_t)got;
        int status = mr_encode_text(&s->encoder, text, held, last, tokens, PIECE, &count, &used, &inner);
        line += mr_count_lines(text, used);
        if (status) return mr_fail(err, status, "%s, line %zu, %.900s", name, line, inner.text);
        status = take_tokens(s, tokens, count, err);
        if (status) return status;
        memmove(text, text + used, held - used);
        held -= used;
    }
    return s->held > 1 ? run_chunk(s, err) : 0;
}

static int set_up(scorer *s, mr_net *net, mr_error *err)
{
    const size_t chunk = (size_t)s->options->chunk;
    s->tokens = mr_alloc(chunk + 1, sizeof *s->tokens);
    s->loss = mr_alloc(chunk, sizeof *s->loss);
    if (!s->tokens || !s->loss) return mr_no_memory(err, "a chunk; lower --mode chunk=N");
    return mr_stream_new(net, &s->stream, err);
}

int mr_score_text(mr_net *net, const mr_score_options *options, mr_text_score *score, mr_error *err)
{
    const char *name = options->name;
    scorer s = {.options = options, .encoder = {.vocab = mr_net_vocab(net), .unknown = options->unknown}};
    char *text = mr_alloc(PIECE, 1);
    int32_t *tokens = mr_alloc(PIECE, sizeof *tokens);
    int status = text && tokens ? set_up(&s, net, err) : mr_no_memory(err, name);
    if (!status) status = take_text(&s, text, tokens, err);
    if (!status && s.seen < 2)
        status = mr_fail(err, MR_EDATA, "%s: %s; a score needs two tokens or more", name,
                         s.seen              ? "only one token"
                         : s.encoder.changed ? "nothing is left without the characters that were skipped"
                                             : "is empty");
    score->tokens = s.seen;
    score->changed = s.encoder.changed;
    score->nats_per_token = s.sum / (double)s.predicted;
    mr_stream_free(s.stream);
    mr_free(s.tokens);
    mr_free(s.loss);
    mr_free(text);
    mr_free(tokens);
    return status;
}
