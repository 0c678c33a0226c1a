/* The log-probability of a text under a model, streamed: the state is carried over the whole text, memory is
 * constant. */
#ifndef MR_APP_TRAIN_SCORE_H
#define MR_APP_TRAIN_SCORE_H

#include "minrnn_experimental.h"

/* `parallel` takes as many tokens at once as this; the state is carried from one piece to the next. */
#define MR_PARALLEL_TOKENS 16384

/* Fills at most `size` bytes and returns how many; 0 at the end, negative on failure (errno says why). */
typedef long mr_read_fn(void *user, char *buffer, size_t size);
/* Told log p(token i+1 | tokens 0 … i), in nats, in order. */
typedef void mr_logprob_fn(void *user, double logprob);

typedef struct mr_text_score {
    int64_t tokens; /* in the text; all but the first are predicted */
    double nats_per_token;
} mr_text_score;

/* `name` is the text's, for errors. */
int mr_score_text(mr_net *net, int chunk, const char *name, mr_read_fn *read, mr_logprob_fn *each, void *user,
                  mr_text_score *score, mr_error *err);

#endif
