#include "core/batch.h"

#include "core/mem.h"
#include "core/status.h"

#include <string.h>

int mr_batch_new(mr_batch *batch, const mr_interface *face, int max_B, int max_T)
{
    size_t tokens = (size_t)max_B * (size_t)max_T;
    size_t rows = mr_head_rows(face->head, (size_t)max_B, (size_t)max_T);
    int reals = face->input == MR_INPUT_REALS, mse = face->loss == MR_LOSS_MSE;
    memset(batch, 0, sizeof *batch);
    batch->max_B = max_B;
    batch->max_T = max_T;
    batch->ids = reals ? NULL : mr_alloc(tokens, sizeof *batch->ids);
    batch->values = reals ? mr_alloc(tokens * (size_t)face->inputs, sizeof *batch->values) : NULL;
    batch->target = mse ? NULL : mr_alloc(rows, sizeof *batch->target);
    batch->target_values = mse ? mr_alloc(rows * (size_t)face->outputs, sizeof *batch->target_values) : NULL;
    batch->mask = mse ? mr_alloc(rows, 1) : NULL;
    batch->reset = mr_alloc(tokens, 1);
    batch->length = mr_alloc((size_t)max_B, sizeof *batch->length);
    int whole = (reals ? !!batch->values : !!batch->ids) && batch->reset && batch->length &&
                (mse ? batch->target_values && batch->mask : !!batch->target);
    if (whole) return 0;
    mr_batch_free(batch);
    return MR_ENOMEM;
}

void mr_batch_free(mr_batch *batch)
{
    mr_free(batch->ids);
    mr_free(batch->values);
    mr_free(batch->target);
    mr_free(batch->target_values);
    mr_free(batch->mask);
    mr_free(batch->reset);
    mr_free(batch->length);
    memset(batch, 0, sizeof *batch);
}

size_t mr_head_rows(mr_head head, size_t B, size_t T)
{
    if (head == MR_HEAD_TOKEN) return B * T;
    return mr_head_pairs(head) ? (B + 1) / 2 : B;
}

size_t mr_batch_rows(const mr_batch *batch, mr_head head) { return mr_head_rows(head, (size_t)batch->B, (size_t)batch->T); }
