/* Writing on from a prompt. */
#ifndef MR_APP_TRAIN_GENERATE_H
#define MR_APP_TRAIN_GENERATE_H

#include "train/session.h"

/* Told each piece of text as it is made; a return other than 0 ends the generation. */
typedef int mr_piece_fn(void *user, const char *bytes, size_t size);

typedef struct mr_generation {
    const char *prompt; /* "" or NULL: the model starts from a line break (or its first token) */
    const char *stop_text; /* ends the generation, not given out; NULL: none */
    int64_t tokens;
    mr_sampling how;
    const mr_stop *stop;
} mr_generation;

/* The session must be planned for at least 1 × 1; prompts go through in pieces of the plan's length. */
int mr_generate(mr_session *session, int plan_T, const mr_generation *want, mr_piece_fn *piece, void *user, mr_error *err);

#endif
