/* The parameter vector in pieces, in the order in which a backward completes their gradients; which rank adds up which
 * part of a piece; and the tree in which gradients of micro-batches are added. */
#ifndef MR_MODEL_PIECES_H
#define MR_MODEL_PIECES_H

#include "model/params.h"
#include "ops/ops.h"

/* Elements first … first + count − 1. */
typedef struct mr_span {
    size_t first, count;
} mr_span;

/* A piece begins at a whole part of the norm (MR_SUM_PART), wherever its tensors do: the sum of squares has the same
 * parts for any number of ranks. */
typedef struct mr_piece {
    mr_span span;
    int stage; /* of the backward that completes it */
} mr_piece;

typedef struct mr_pieces {
    mr_piece *list; /* by stage, then by place */
    int count;
} mr_pieces;

/* stages[row]: the stage that completes the gradient of a row of the table. piece: elements of one, whole parts. 0 or
 * MR_ENOMEM. */
int mr_pieces_new(mr_pieces *pieces, const mr_params *params, const int *stages, size_t piece);
void mr_pieces_free(mr_pieces *pieces, const mr_allocator *allocator);

/* The part of a piece that a rank adds up: whole parts of the norm, dealt so that every rank has as much as another. */
mr_span mr_piece_of_rank(const mr_pieces *pieces, int piece, int rank, int ranks);

/* A node of the tree that micro-batches are added up in: 2^level of them, from index·2^level on. Pairs of neighbours
 * are added, then pairs of pairs; what is left over at the end is added from the right. The tree depends on how many
 * micro-batches there are and on nothing else, so the sum has the same bits however ranks share them. */
typedef struct mr_node {
    int level, index;
} mr_node;

enum { MR_NODES = 40 }; /* more than any range of 2^16 micro-batches has */

/* The largest nodes that make up first … end − 1, from left to right. Returns how many. */
int mr_nodes_of(int first, int end, mr_node nodes[MR_NODES]);
/* Are these a node's two halves, in this order? */
int mr_nodes_pair(mr_node left, mr_node right);
mr_node mr_node_above(mr_node half);

/* The micro-batches of a rank: as many as another rank has, or one less. */
void mr_micros_of_rank(int micros, int rank, int ranks, int *first, int *end);

#endif
