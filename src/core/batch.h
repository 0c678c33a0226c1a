/* What goes into a model and comes out of it, and batches that own their arrays: a task fills them, a model reads
 * them. */
#ifndef MR_CORE_BATCH_H
#define MR_CORE_BATCH_H

#include "minrnn_experimental.h"

/* A model's inputs and outputs, as its task needs them. */
typedef struct mr_interface {
    mr_input input;
    int inputs; /* size of the vocabulary, or values per token */
    mr_head head;
    mr_loss loss;
    int outputs; /* classes, or values predicted */
} mr_interface;

/* Makes a batch with zeroed arrays for up to max_B sequences of max_T tokens, reset and length NULL. 0 or MR_ENOMEM. */
int mr_batch_new(mr_batch *batch, const mr_interface *interface, int max_B, int max_T);
/* The batch's own arrays for resets and lengths. When a batch needs them, fill them and point batch->reset and
 * batch->length to them. */
uint8_t *mr_batch_resets(const mr_batch *batch);
int32_t *mr_batch_lengths(const mr_batch *batch);
void mr_batch_free(mr_batch *batch); /* one made by mr_batch_new, or all zero */

/* Rows of targets and scores that a batch has. */
size_t mr_batch_rows(const mr_batch *batch, mr_head head);
size_t mr_head_rows(mr_head head, size_t B, size_t T);
static inline int mr_head_pairs(mr_head head) { return head == MR_HEAD_PAIR_LAST || head == MR_HEAD_PAIR_MEAN; }

#endif
