/* One model trained by several ranks: gradients of micro-batches are added in one tree, whoever made them.
 *
 * The vector is exchanged in pieces, in the order in which the last backward of a step completes them, while it goes
 * on. Each rank has the sum of a part of every piece: it receives that part of the others' nodes, adds them up, and
 * sends the sum to all. */
#ifndef MR_MODEL_RANKS_H
#define MR_MODEL_RANKS_H

#include "model/exchange.h"
#include "model/model.h"
#include "model/tree.h"

typedef struct mr_ranks mr_ranks;

/* 4 MB: large enough for the bandwidth of a network, small enough for a vector to have several pieces to overlap. */
enum { MR_RANKS_PIECE = 64 * MR_SUM_PART };

/* cut: how many ranks share each sequence (1: none); micro-batches are dealt to such groups, and the gradient of
 * one is the sum over its group, in order. stages: of a backward (mr_model_stages), by row of the parameter table.
 * 0 or MR_ENOMEM. */
int mr_ranks_new(mr_dev *dev, mr_comm *comm, mr_courier *courier, int cut, const mr_params *params, const int *stages,
                 mr_ranks **out);
void mr_ranks_free(mr_ranks *ranks, mr_dev *dev);

const mr_comm *mr_ranks_comm(const mr_ranks *ranks);
mr_channel *mr_ranks_channel(mr_ranks *ranks);
const mr_pieces *mr_ranks_pieces(const mr_ranks *ranks);

/* Before the backward of this rank's last micro-batch: how many there are in a step, the last one's number, and the
 * vectors. Memory is allocated when `micros` changes. */
int mr_ranks_begin(mr_ranks *ranks, mr_dev *dev, int micros, int last, const mr_tree *tree, mr_real *grads,
                   mr_error *err);
/* Within it: a stage is complete. Errors are kept for mr_ranks_add_up. */
void mr_ranks_stage_done(mr_ranks *ranks, mr_dev *dev, int stage);
/* After it: the sum, in every rank's gradient vector, or with own_only in the parts that mr_piece_of_rank gives to
 * it. */
int mr_ranks_add_up(mr_ranks *ranks, mr_dev *dev, int own_only, mr_error *err);

/* Every rank sends its parts of a vector to all others. */
int mr_ranks_share(mr_ranks *ranks, mr_dev *dev, mr_real *vector, mr_error *err);

#endif
