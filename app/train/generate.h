/* Generation: text that continues a prompt. */
#ifndef MR_APP_TRAIN_GENERATE_H
#define MR_APP_TRAIN_GENERATE_H

#include "core/stop.h"
#include "minrnn_experimental.h"

/* Told each piece of text as it is made; a return other than 0 ends the generation. */
typedef int mr_piece_fn(void *user, const char *bytes, size_t size);

enum { MR_GROUP_MAX = 16 };

typedef struct mr_generation {
    const char *prompt;    /* "" or NULL: the model starts from a line break (or its first token) */
    const char *stop_text; /* ends the generation, not given out; NULL: none */
    int64_t tokens;
    /* tokens that one call draws: 1 shows each as it is made; a GPU is faster with more, up to MR_GROUP_MAX */
    int group;
    mr_sample_options how;
    const mr_stop *stop;
} mr_generation;

int mr_generate(mr_net *net, const mr_generation *want, mr_piece_fn *piece, void *user, mr_error *err);

#endif
