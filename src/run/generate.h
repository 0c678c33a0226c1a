/* Writing on from a prompt, one token at a time. */
#ifndef MR_RUN_GENERATE_H
#define MR_RUN_GENERATE_H

#include "run/session.h"

#include <signal.h>

typedef struct mr_sampling {
    double temperature; /* 0: always the likeliest */
    int top_k;          /* 0: all */
    double top_p;       /* 1: all */
} mr_sampling;

/* Draws a token; u is uniform in [0, 1). `order` is scratch for n ints. */
int mr_sample(const float *logits, int n, const mr_sampling *how, double u, int *order);

/* Told each piece of text as it is made; a return other than 0 ends the generation. */
typedef int mr_piece_fn(void *user, const char *bytes, size_t size);

typedef struct mr_generation {
    const char *prompt; /* "" or NULL: the model starts from a line break (or its first token) */
    const char *stop_text; /* ends the generation, not given out; NULL: none */
    int64_t tokens;
    uint64_t seed;
    mr_sampling how;
    const volatile sig_atomic_t *stop;
} mr_generation;

/* The session must be planned for at least 1 × 1; prompts go through in pieces of the plan's length. */
int mr_generate(mr_session *session, int plan_T, const mr_generation *want, mr_piece_fn *piece, void *user, mr_error *err);

#endif
