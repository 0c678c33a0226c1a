/* A rank's part of a batch. */
#include "model/sequence.h"

#include <string.h>

/* Copies columns first … first + n − 1 of B rows with `from_row` of them; bytes: of one. */
static void copy_columns(void *to, const void *from, int B, int from_row, int first, int n, size_t bytes)
{
    for (int b = 0; to && from && b < B; b++)
        memcpy((char *)to + (size_t)b * (size_t)n * bytes,
               (const char *)from + ((size_t)b * (size_t)from_row + (size_t)first) * bytes, (size_t)n * bytes);
}

/* Targets of whole sequences. The first rank counts them all, the others none. */
static void copy_rows(const mr_batch *whole, const mr_interface *interface, int rank, mr_batch *part)
{
    const size_t rows = mr_batch_rows(whole, interface->head), outputs = (size_t)interface->outputs;
    for (size_t i = 0; part->target && i < rows; i++) part->target[i] = rank ? -1 : whole->target[i];
    if (part->target_values)
        memcpy(part->target_values, whole->target_values, rows * outputs * sizeof *part->target_values);
    for (size_t i = 0; part->mask && i < rows; i++) part->mask[i] = rank ? 0 : whole->mask[i];
}

int mr_sequence_batch(const mr_batch *whole, const mr_interface *interface, int ranks, int rank, mr_batch *part,
                      mr_error *err)
{
    const int B = whole->B, T = whole->T, first = mr_sequence_cut(T, ranks, rank),
              n = mr_sequence_cut(T, ranks, rank + 1) - first, pooled = interface->head != MR_HEAD_TOKEN;
    if (mr_batch_new(part, interface, B, n)) return mr_no_memory(err, "a rank's part of a batch");
    part->B = B;
    part->T = n;
    part->counted = whole->counted;
    if (!whole->target) part->target = NULL;
    if (!whole->target_values) part->target_values = NULL;
    if (!whole->mask && !(pooled && rank)) part->mask = NULL;
    copy_columns(part->ids, whole->ids, B, T, first, n, sizeof *part->ids);
    copy_columns(part->values, whole->values, B, T, first, n, (size_t)interface->inputs * sizeof *part->values);
    if (pooled) copy_rows(whole, interface, rank, part);
    else {
        copy_columns(part->target, whole->target, B, T, first, n, sizeof *part->target);
        copy_columns(part->target_values, whole->target_values, B, T, first, n,
                     (size_t)interface->outputs * sizeof *part->target_values);
        copy_columns(part->mask, whole->mask, B, T, first, n, sizeof *part->mask);
    }
    if (whole->reset) part->reset = mr_batch_resets(part);
    copy_columns(part->reset, whole->reset, B, T, first, n, sizeof *part->reset);
    if (whole->length) part->length = mr_batch_lengths(part);
    for (int b = 0; whole->length && b < B; b++) {
        const int left = whole->length[b] - first;
        part->length[b] = left < 0 ? 0 : left < n ? left : n;
    }
    return 0;
}
