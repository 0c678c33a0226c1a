/* Which examples of a data set a batch holds: passes over all of it, each in its own order, as a pure function of
 * (seed, step, micro-batch); nothing is stored, so a resumed run continues where it was. */
#ifndef MR_APP_TASKS_SHUFFLE_H
#define MR_APP_TASKS_SHUFFLE_H

#include "tasks/task.h"

/* The item (0 … n−1) at a place in an endless sequence of passes: places 0 … n−1 are the first pass, and so on. Every
 * item comes once in a pass. */
uint32_t mr_shuffle_at(uint64_t seed, uint32_t stream, uint32_t n, uint64_t place);

/* The `count` items of a training batch, next to each other in length, so that little of it is padding: some
 * batches' worth of the pass at a time is sorted by length and cut, and the pieces are visited in random order. */
void mr_shuffle_batch(const mr_task *task, uint32_t step, uint32_t micro, const uint32_t *length, uint32_t n, int count,
                      int32_t *items);

/* For qsort: orders numbers that have a length in their upper 32 bits and an item in the lower ones. */
int mr_by_length(const void *a, const void *b);

/* T of a batch whose longest row is `longest`: rounded up so that there are at most 32 different ones up to max_T (a
 * GPU records each shape once), never above max_T. */
int mr_padded_T(int longest, int max_T);

#endif
