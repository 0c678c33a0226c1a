/* Batches that own their arrays. Everything is in one block: a record of where the parts are, just before the inputs,
 * and then the arrays. So a batch whose reset and length were set to NULL can find them again. */
#include "core/batch.h"

#include "core/mem.h"

#include <string.h>

typedef struct record {
    void *block;
    uint8_t *reset;
    int32_t *length;
} record;

/* The batch must have its arrays. */
static record *record_of(const mr_batch *batch)
{
    char *inputs = batch->ids ? (char *)batch->ids : (char *)batch->values;
    return (record *)(void *)(inputs - MR_ALIGN);
}

/* Takes the arrays from the arena; with base NULL it only counts their bytes. */
static record lay_out(mr_batch *batch, const mr_interface *interface, size_t B, size_t T, mr_arena *arena)
{
    const size_t tokens = B * T, rows = mr_head_rows(interface->head, B, T), outputs = (size_t)interface->outputs;
    const int reals = interface->input == MR_INPUT_REALS, mse = interface->loss == MR_LOSS_MSE;
    record r = {0};
    char *first =
        mr_arena_take(arena, MR_ALIGN + tokens * (reals ? (size_t)interface->inputs * sizeof(float) : sizeof(int32_t)));
    void *inputs = first ? first + MR_ALIGN : NULL;
    batch->ids = reals ? NULL : inputs;
    batch->values = reals ? inputs : NULL;
    batch->target = mse ? NULL : mr_arena_take(arena, rows * sizeof(int32_t));
    batch->target_values = mse ? mr_arena_take(arena, rows * outputs * sizeof(float)) : NULL;
    batch->mask = mse ? mr_arena_take(arena, rows) : NULL;
    r.reset = mr_arena_take(arena, tokens);
    r.length = mr_arena_take(arena, B * sizeof(int32_t));
    return r;
}

int mr_batch_new(mr_batch *batch, const mr_interface *interface, int max_B, int max_T)
{
    mr_arena count = {0}, arena = {0};
    *batch = (mr_batch)MR_BATCH;
    lay_out(batch, interface, (size_t)max_B, (size_t)max_T, &count);
    void *block = mr_alloc(count.used + MR_ARENA_ALIGN, 1);
    *batch = (mr_batch)MR_BATCH;
    if (!block) return MR_ENOMEM;
    arena.base = (char *)block;
    record r = lay_out(batch, interface, (size_t)max_B, (size_t)max_T, &arena);
    r.block = block;
    *record_of(batch) = r;
    return 0;
}

uint8_t *mr_batch_resets(const mr_batch *batch) { return record_of(batch)->reset; }
int32_t *mr_batch_lengths(const mr_batch *batch) { return record_of(batch)->length; }

void mr_batch_free(mr_batch *batch)
{
    if (batch->ids || batch->values) mr_free(record_of(batch)->block);
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
