/* One sequence over several ranks. Rank s of S holds tokens ⌊s·T/S⌋ … ⌊(s+1)·T/S⌋ − 1 of every row, and all ranks run
 * the same model. What one needs of the others is what their chunks do to the state that passes through, which is
 * affine (ops/args_cut.h), and the last inputs of the chunk before, for convolutions.
 *
 * Each layer's forward: the first rank computes its chunk and sends the state after it. The others compute the effect
 * of theirs on a state, (A, C), and send it to those after them; from what it gets, each follows the state up to its
 * own chunk, in the order of ranks, and then computes it. The backward is the same from the last rank to the first,
 * with the gradient of the state. It has the A of the forward, so that it sends C alone. docs/design.md counts the
 * bytes. */
#ifndef MR_MODEL_SEQUENCE_H
#define MR_MODEL_SEQUENCE_H

#include "core/batch.h"
#include "model/exchange.h"
#include "model/layers.h"

typedef struct mr_sequence mr_sequence;

/* Can a model run over this many ranks on rows of T tokens? Refuses what cannot be cut, by name. */
int mr_sequence_check(const mr_config *config, int ranks, int T, mr_error *err);

/* The group of ranks first … first + ranks − 1 of `comm`, to which this one belongs. courier: of `comm`, or NULL;
 * whoever else uses `comm` while a forward or backward runs must go through the same. The device must be that of the
 * model. */
int mr_sequence_new(const mr_config *config, mr_dev *dev, mr_comm *comm, mr_courier *courier, int first, int ranks,
                    mr_sequence **out, mr_error *err);
void mr_sequence_free(mr_sequence *sequence); /* NULL is fine */

int mr_sequence_rank(const mr_sequence *sequence); /* among the group's, from 0; of NULL: 0 */
int mr_sequence_ranks(const mr_sequence *sequence);
/* Bytes that this rank has sent so far. */
uint64_t mr_sequence_bytes(const mr_sequence *sequence);
/* The first failure of an exchange, or 0. After it the group exchanges nothing any more, and results mean nothing. */
int mr_sequence_status(const mr_sequence *sequence, mr_error *err);

/* The first token of a rank's chunk; of rank `ranks`: T. */
static inline int mr_sequence_cut(int T, int ranks, int rank) { return (int)((int64_t)T * rank / ranks); }
/* A rank's part of a batch, as a batch of its own (mr_batch_free): its tokens, their targets and resets, and the length
 * of each row in it, which may be 0. Its `counted` is that of the whole batch, which
 * must have been checked: all ranks scale their losses alike. */
int mr_sequence_batch(const mr_batch *whole, const mr_interface *interface, int ranks, int rank, mr_batch *part,
                      mr_error *err);

/* ---- for the model: memory, and what layers do in a pass with a sequence; without one, they compute as ever */

void mr_sequence_plan(mr_sequence *sequence, mr_arena *arena, int B);
/* The layers that follow belong to this block. */
void mr_sequence_enter(const mr_pass *pass, int block);

/* A recurrence over this rank's chunk. run: from the state before it to that after it, backward from the gradient after
 * it to that before it; in NULL: a sequence starts, or a gradient of 0; out NULL: not needed. effect: A and C. */
typedef struct mr_crossing {
    void (*run)(const void *work, const mr_real *in, mr_real *out);
    void (*effect)(const void *work, mr_real *A, mr_real *C);
    const void *work;
} mr_crossing;

/* in: the state before the first rank's chunk (down: the gradient of that after the last rank's); only there it counts.
 * out: the state after this rank's chunk (down: the gradient of that before it). */
void mr_sequence_cross(const mr_pass *pass, int down, const mr_crossing *crossing, const mr_real *in, mr_real *out);
/* For the backward: the state that this rank's chunk started from. */
const mr_real *mr_sequence_start(const mr_pass *pass, const mr_real *in);

/* conv_fwd and conv_bwd with the inputs of the rank before. which: a block has up to two convolutions. Tails in the
 * arguments count where no other rank has them: before the first and after the last. The gradient of the tail after the
 * last is for rows that reach the last rank: with lengths there must be none, as in training. */
enum { MR_CONV_OF_BLOCK, MR_CONV_OF_MIXER, MR_CONVS };
void mr_sequence_conv_fwd(const mr_pass *pass, int which, mr_conv_fwd_args args);
void mr_sequence_conv_bwd(const mr_pass *pass, int which, mr_conv_bwd_args args);

/* Heads that pool: a rank pools its own tokens of each row with these weights [B], so that the sum over the ranks is
 * what one rank would have pooled; without a sequence NULL. All ranks then have the sum and compute the same scores,
 * but only the first counts them (mr_sequence_batch leaves the others no target), and shares the gradient of what was
 * pooled. */
void mr_sequence_lengths(mr_sequence *sequence, const mr_batch *batch);
const mr_real *mr_sequence_weights(const mr_pass *pass);
void mr_sequence_sum(const mr_pass *pass, mr_act *pooled);    /* [B, D] */
void mr_sequence_share(const mr_pass *pass, mr_act *dpooled); /* [B, D] */

/* After a forward: gives the first rank the states after the last tokens, where its next batch continues. reals: a
 * state of all blocks (mr_state). length: the lengths in this rank's chunk, on the host, or NULL on all ranks. */
void mr_sequence_carry(const mr_pass *pass, const int32_t *length, mr_real *reals);

#endif
