/* Keys of repeated work, by which a device finds its recording, and the table of recordings that it keeps. */
#ifndef MR_OPS_REPLAY_H
#define MR_OPS_REPLAY_H

#include <stdint.h>

typedef enum mr_replay_work {
    MR_REPLAY_STEP,
    MR_REPLAY_LEARN,
    MR_REPLAY_CHUNK_STATES,
    MR_REPLAY_CHUNK_LEARN
} mr_replay_work;

/* One bit each, so that they can be combined. */
enum {
    MR_REPLAY_RESET = 1,
    MR_REPLAY_LENGTH = 2,
    MR_REPLAY_DRAW = 4,
    MR_REPLAY_FIRST = 8,
    MR_REPLAY_LAST = 16,
    MR_REPLAY_CARRIED = 32
};

/* Everything that a piece of work depends on, unhashed: with a packed or hashed key, two pieces of work could collide
 * and the wrong recording would be replayed. */
typedef struct mr_replay_key {
    mr_replay_work work;
    const void *model; /* the model, which owns the addresses of its weights and buffers */
    const void *state; /* the streams' state on the device, or NULL */
    int B, T;
    unsigned flags;
} mr_replay_key;

/* Compares field by field, because padding bytes have no defined value. */
static inline int mr_replay_same(const mr_replay_key *a, const mr_replay_key *b)
{
    return a->work == b->work && a->model == b->model && a->state == b->state && a->B == b->B && a->T == b->T &&
           a->flags == b->flags;
}

enum { MR_REPLAYS = 32 }; /* recordings that a device keeps */

/* Which work owns which row of a device's table of recordings. All zero: empty. */
typedef struct mr_replays {
    mr_replay_key keys[MR_REPLAYS];
    uint64_t used[MR_REPLAYS], clock; /* when each was last used */
    int count;
} mr_replays;

/* Returns the row of this work. fresh: set to 1 when it had none; the row is then a free one or, when all are taken,
 * the least recently used one, and the caller must drop the recording that it kept there. */
static inline int mr_replay_row(mr_replays *r, const mr_replay_key *key, int *fresh)
{
    int row = 0;
    while (row < r->count && !mr_replay_same(&r->keys[row], key)) row++;
    *fresh = row == r->count;
    if (*fresh && r->count < MR_REPLAYS) r->count++;
    else if (*fresh) {
        row = 0;
        for (int i = 1; i < MR_REPLAYS; i++)
            if (r->used[i] < r->used[row]) row = i;
    }
    r->keys[row] = *key;
    r->used[row] = ++r->clock;
    return row;
}

#endif
