/* Generation: text that continues a prompt. */
#ifndef MR_APP_TRAIN_GENERATE_H
#define MR_APP_TRAIN_GENERATE_H

#include "core/stop.h"
#include "minrnn_experimental.h"
#include "tasks/encode.h"

/* Called with each piece of text as it is made; a return other than 0 ends the generation. */
typedef int mr_piece_fn(void *user, const char *bytes, size_t size);

enum { MR_GROUP_MAX = 16 };

/* A prompt as tokens, never empty; mr_free(tokens). */
typedef struct mr_prompt {
    int32_t *tokens;
    size_t count;
    int64_t changed; /* characters that were skipped or replaced */
} mr_prompt;

/* Where no character is left, the prompt is a line break, or for a model that knows none its first token. */
int mr_prompt_encode(const mr_net *net, const char *text, size_t size, mr_unknown unknown, mr_prompt *out,
                     mr_error *err);

typedef struct mr_generation {
    const mr_prompt *prompt;
    /* The generation ends before the first of these texts that appears; ends with NULL. Empty ones do not count. */
    const char *const *stop_texts;
    int64_t tokens;
    /* tokens that one call draws: 1 shows each as it is made; a GPU is faster with more, up to MR_GROUP_MAX */
    int group;
    mr_sample_options how;
    const mr_stop *stop;
} mr_generation;

int mr_generate(mr_net *net, const mr_generation *want, mr_piece_fn *piece, void *user, mr_error *err);

#endif
