/* What training keeps of a batch for its backward, and what it computes again. */
#ifndef MR_MODEL_RECOMPUTE_H
#define MR_MODEL_RECOMPUTE_H

#include "ops/device.h"

/* none: every block keeps what its backward reads. blocks: it keeps its input alone, and its forward runs again before
 * its backward. chunks: sequences are cut in time; a first pass keeps the states at the borders alone, and a second
 * one, from the last chunk to the first, does forward and backward of one chunk at a time. auto: the first of these
 * whose memory the device has. */
typedef enum mr_recompute {
    MR_RECOMPUTE_AUTO,
    MR_RECOMPUTE_NONE,
    MR_RECOMPUTE_BLOCKS,
    MR_RECOMPUTE_CHUNKS
} mr_recompute;

extern const char *const mr_recompute_names[]; /* NULL-terminated, the choices of `recompute` */

/* A way to compute again. chunk: tokens of each row in a chunk, with chunks alone; to ask for 0 leaves it to the
 * plan. */
typedef struct mr_recomputing {
    mr_recompute how;
    int chunk;
} mr_recomputing;

/* Memory of a model that walks a batch in chunks. */
typedef struct mr_chunks {
    mr_real *borders;          /* [chunks, B, …] the state before each chunk; that of the first one may not be set */
    mr_real *after;            /* [B, …] the state after the chunk at hand */
    mr_real *dafter, *dbefore; /* the gradients of the states after and before it */
    char *room;                /* host: a chunk of the rows of a batch */
    size_t room_size;
} mr_chunks;

#endif
