/* The log-probability of a text under a model, streamed: the state is carried over the whole text, memory is
 * constant. */
#ifndef MR_APP_TRAIN_SCORE_H
#define MR_APP_TRAIN_SCORE_H

#include "minrnn_experimental.h"
#include "tasks/encode.h"

/* `parallel` takes as many tokens at once as this; the state is carried from one piece to the next. */
#define MR_PARALLEL_TOKENS 16384

/* Fills at most `size` bytes and returns how many; 0 at the end, negative on failure (errno says why). */
typedef long mr_read_fn(void *user, char *buffer, size_t size);
/* Called with log p(token i+1 | tokens 0 … i), in nats, in order. */
typedef void mr_logprob_fn(void *user, double logprob);

typedef struct mr_text_score {
    int64_t tokens;  /* in the text; all but the first are predicted */
    int64_t changed; /* characters that were skipped or replaced */
    double nats_per_token;
} mr_text_score;

typedef struct mr_score_options {
    int chunk; /* tokens at once */
    mr_unknown unknown;
    const char *name; /* of the text, for errors */
    mr_read_fn *read;
    mr_logprob_fn *each; /* or NULL */
    void *user;          /* for both */
} mr_score_options;

int mr_score_text(mr_net *net, const mr_score_options *options, mr_text_score *score, mr_error *err);

#endif
