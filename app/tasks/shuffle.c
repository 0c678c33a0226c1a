/* Random orders without storage: a permutation that is computed place by place. */
#include "tasks/shuffle.h"

#include "core/rng.h"

#include <stdlib.h>

enum { ROUNDS = 4, POOL = 1024, VISITS = 1 << 24 /* added to a stream: the order in which pieces are visited */ };

/* A Feistel network over 2·half bits, the smallest such power of two that holds n; a result of n or more goes through
 * it again, which keeps it a permutation of 0 … n−1. */
static uint32_t permute(uint64_t seed, uint32_t stream, uint32_t pass, uint32_t n, uint32_t i)
{
    uint32_t half = 1;
    while (half < 16 && (uint64_t)1 << (2 * half) < n) half++;
    const uint32_t mask = ((uint32_t)1 << half) - 1;
    do {
        uint32_t left = i >> half, right = i & mask;
        for (uint32_t round = 0; round < ROUNDS; round++) {
            uint32_t mixed = left ^ (mr_philox(seed, right, stream, pass, round).v[0] & mask);
            left = right;
            right = mixed;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}

uint32_t mr_shuffle_at(uint64_t seed, uint32_t stream, uint32_t n, uint64_t place)
{
    return permute(seed, stream, (uint32_t)(place / n), n, (uint32_t)(place % n));
}

int mr_by_length(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

void mr_shuffle_batch(const mr_task *task, uint32_t step, uint32_t micro, const uint32_t *length, uint32_t n, int count,
                      int32_t *items)
{
    /* of a small set, no item twice in a pool */
    const uint32_t stream = MR_STREAM_TRAIN + micro, most = n < POOL ? n : POOL;
    const uint32_t pieces = (uint32_t)count < most ? most / (uint32_t)count : 1;
    const uint64_t pool = step / pieces, first = pool * pieces * (uint64_t)count;
    uint64_t sorted[POOL];
    if (pieces == 1) {
        for (int i = 0; i < count; i++) items[i] = (int32_t)mr_shuffle_at(task->seed, stream, n, first + (uint64_t)i);
        return;
    }
    const int all = (int)pieces * count;
    for (int i = 0; i < all; i++) {
        uint32_t item = mr_shuffle_at(task->seed, stream, n, first + (uint64_t)i);
        sorted[i] = (uint64_t)length[item] << 32 | item;
    }
    qsort(sorted, (size_t)all, sizeof *sorted, mr_by_length);
    const uint32_t piece = permute(task->seed, stream + VISITS, (uint32_t)pool, pieces, step % pieces);
    for (int i = 0; i < count; i++) items[i] = (int32_t)(uint32_t)sorted[piece * (uint32_t)count + (uint32_t)i];
}

int mr_padded_T(int longest, int max_T)
{
    const int unit = 8 * ((max_T + 255) / 256), T = (longest + unit - 1) / unit * unit;
    return T < max_T ? T : max_T;
}
