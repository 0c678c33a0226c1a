/* Work that repeats: how a device tells one piece of it from another, and which recordings it keeps. */
#ifndef MR_OPS_REPLAY_H
#define MR_OPS_REPLAY_H

#include <stdint.h>

typedef enum mr_replay_work { MR_REPLAY_STEP, MR_REPLAY_LEARN } mr_replay_work;

/* Each has a bit of its own, whatever the work. */
enum {
    MR_REPLAY_RESET = 1,
    MR_REPLAY_LENGTH = 2,
    MR_REPLAY_DRAW = 4,
    MR_REPLAY_FIRST = 8,
    MR_REPLAY_LAST = 16,
    MR_REPLAY_CARRIED = 32
};

/* All that a piece of work depends on, as it is: packed or hashed, different work would meet in one number, and the
 * wrong recording be replayed. */
typedef struct mr_replay_key {
    mr_replay_work work;
    const void *model; /* the model, which holds the addresses of its weights and its plan */
    const void *state; /* the streams' state on the device, or NULL */
    int B, T;
    unsigned flags;
} mr_replay_key;

/* Field by field: the bytes between the fields have no meaning. */
static inline int mr_replay_same(const mr_replay_key *a, const mr_replay_key *b)
{
    return a->work == b->work && a->model == b->model && a->state == b->state && a->B == b->B && a->T == b->T &&
           a->flags == b->flags;
}

enum { MR_REPLAYS = 32 }; /* recordings that a device keeps */

/* Which work has which row of a device's table. All zero: none. */
typedef struct mr_replays {
    mr_replay_key keys[MR_REPLAYS];
    uint64_t used[MR_REPLAYS], clock; /* when each was last asked for */
    int count;
} mr_replays;

/* The row of this work. fresh: it had none. The row is then a new one or, where all are taken, that of the work that
 * was not asked for the longest: what the device keeps for that row belongs to other work and is to be dropped. */
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
