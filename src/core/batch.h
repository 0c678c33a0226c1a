/* A batch: what a task makes and a model takes, in host memory. */
#ifndef MR_CORE_BATCH_H
#define MR_CORE_BATCH_H

#include <stddef.h>
#include <stdint.h>

typedef enum mr_input { MR_INPUT_TOKENS, MR_INPUT_REALS } mr_input;
/* PAIR: rows 2i and 2i+1 of the batch go together, and there is one answer for both. */
typedef enum mr_head { MR_HEAD_TOKEN, MR_HEAD_LAST, MR_HEAD_MEAN, MR_HEAD_PAIR_LAST, MR_HEAD_PAIR_MEAN } mr_head;
typedef enum mr_loss { MR_LOSS_XENT, MR_LOSS_MSE } mr_loss;

/* What a task feeds a model and asks of it. */
typedef struct mr_interface {
    mr_input input;
    int inputs; /* vocabulary, or values a step */
    mr_head head;
    mr_loss loss;
    int outputs; /* classes, or values predicted */
} mr_interface;

/* Rows of the loss: one a token (MR_HEAD_TOKEN), one a sequence, or one for two sequences. */
typedef struct mr_batch {
    int B, T;                /* of this batch; never above the capacity */
    int max_B, max_T;        /* the capacity */
    int32_t *ids;            /* [B,T], MR_INPUT_TOKENS */
    float *values;           /* [B,T,inputs], MR_INPUT_REALS */
    int32_t *target;         /* [rows], MR_LOSS_XENT; −1: this row does not count (tokens beyond length must not) */
    float *target_values;    /* [rows,outputs], MR_LOSS_MSE */
    uint8_t *mask;           /* [rows], MR_LOSS_MSE: 1 where the row counts */
    uint8_t *reset;          /* [B,T]: 1: a new sequence starts before this token. Read only when has_reset */
    int32_t *length;         /* [B]: tokens that are real, 1 … T. Read only when has_length */
    int has_reset, has_length;
    int64_t counted;         /* rows that count: the loss is the mean over them */
    int group;               /* of a test batch: a score is the mean over groups, which follow one another; one of them: 0 */
} mr_batch;

/* Up to B rows of up to T tokens. */
typedef struct mr_shape {
    int B, T;
} mr_shape;

/* Zeroed arrays for the capacity; 0 or MR_ENOMEM. */
int mr_batch_new(mr_batch *batch, const mr_interface *face, int max_B, int max_T);
void mr_batch_free(mr_batch *batch);
size_t mr_batch_rows(const mr_batch *batch, mr_head head);
size_t mr_head_rows(mr_head head, size_t B, size_t T);
static inline int mr_head_pairs(mr_head head) { return head == MR_HEAD_PAIR_LAST || head == MR_HEAD_PAIR_MEAN; }

#endif
