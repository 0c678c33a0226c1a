/* Batches and what a model looks like from outside: host arrays that a task fills and a model takes. */
#ifndef MR_CORE_BATCH_H
#define MR_CORE_BATCH_H

#include "minrnn_experimental.h"

/* What a task feeds a model and asks of it. */
typedef struct mr_interface {
    mr_input input;
    int inputs; /* vocabulary, or values a step */
    mr_head head;
    mr_loss loss;
    int outputs; /* classes, or values predicted */
} mr_interface;

/* An mr_batch with zeroed arrays of its own for up to B rows of T tokens, reset and length NULL; 0 or MR_ENOMEM. */
int mr_batch_new(mr_batch *batch, const mr_interface *face, int max_B, int max_T);
/* Room that such a batch has for a reset mask and for lengths: what a filler sets batch->reset and batch->length to
 * when this batch has them. */
uint8_t *mr_batch_resets(const mr_batch *batch);
int32_t *mr_batch_lengths(const mr_batch *batch);
void mr_batch_free(mr_batch *batch); /* only of mr_batch_new, or all zero */

size_t mr_batch_rows(const mr_batch *batch, mr_head head);
size_t mr_head_rows(mr_head head, size_t B, size_t T);
static inline int mr_head_pairs(mr_head head) { return head == MR_HEAD_PAIR_LAST || head == MR_HEAD_PAIR_MEAN; }

#endif
