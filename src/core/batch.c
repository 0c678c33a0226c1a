/* A batch of our own is one block: a note of where its parts are, then the arrays. The note lies just before the
 * inputs, so that a batch may lose its pointers to reset and length and find them again. */
#include "core/batch.h"

#include "core/mem.h"

#include <string.h>

typedef struct note {
    void *block;
    uint8_t *reset;
    int32_t *length;
} note;

static note *note_of(const mr_batch *batch)
{
    char *inputs = batch->ids ? (char *)batch->ids : (char *)batch->values;
    return inputs ? (note *)(void *)(inputs - MR_ALIGN) : NULL;
}

/* Lays the arrays out over the arena, whose base may be NULL: then they are only counted. */
static note lay_out(mr_batch *batch, const mr_interface *face, size_t B, size_t T, mr_arena *arena)
{
    const size_t tokens = B * T, rows = mr_head_rows(face->head, B, T), outputs = (size_t)face->outputs;
    const int reals = face->input == MR_INPUT_REALS, mse = face->loss == MR_LOSS_MSE;
    note n = {0};
    char *head =
        mr_arena_take(arena, MR_ALIGN + tokens * (reals ? (size_t)face->inputs * sizeof(float) : sizeof(int32_t)));
    void *inputs = head ? head + MR_ALIGN : NULL;
    batch->ids = reals ? NULL : inputs;
    batch->values = reals ? inputs : NULL;
    batch->target = mse ? NULL : mr_arena_take(arena, rows * sizeof(int32_t));
    batch->target_values = mse ? mr_arena_take(arena, rows * outputs * sizeof(float)) : NULL;
    batch->mask = mse ? mr_arena_take(arena, rows) : NULL;
    n.reset = mr_arena_take(arena, tokens);
    n.length = mr_arena_take(arena, B * sizeof(int32_t));
    return n;
}

int mr_batch_new(mr_batch *batch, const mr_interface *face, int max_B, int max_T)
{
    mr_arena count = {0}, arena = {0};
    *batch = (mr_batch)MR_BATCH;
    lay_out(batch, face, (size_t)max_B, (size_t)max_T, &count);
    void *block = mr_alloc(count.used + MR_ARENA_ALIGN, 1);
    *batch = (mr_batch)MR_BATCH;
    if (!block) return MR_ENOMEM;
    arena.base = (char *)block;
    note n = lay_out(batch, face, (size_t)max_B, (size_t)max_T, &arena);
    n.block = block;
    *note_of(batch) = n;
    return 0;
}

uint8_t *mr_batch_resets(const mr_batch *batch) { return note_of(batch)->reset; }
int32_t *mr_batch_lengths(const mr_batch *batch) { return note_of(batch)->length; }

void mr_batch_free(mr_batch *batch)
{
    const note *n = note_of(batch);
    if (n) mr_free(n->block);
    memset(batch, 0, sizeof *batch);
}

size_t mr_head_rows(mr_head head, size_t B, size_t T)
{
    if (head == MR_HEAD_TOKEN) return B * T;
    return mr_head_pairs(head) ? (B + 1) / 2 : B;
}

size_t mr_batch_rows(const mr_batch *batch, mr_head head)
{
    return mr_head_rows(head, (size_t)batch->B, (size_t)batch->T);
}
