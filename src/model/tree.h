/* The sum of micro-batches' gradients in the tree of pieces.h: each is made from zero in the model's gradient vector,
 * and what cannot be added to it yet lies in vectors of its own, of which there are log2(micro-batches). */
#ifndef MR_MODEL_TREE_H
#define MR_MODEL_TREE_H

#include "model/pieces.h"
#include "ops/device.h"

typedef struct mr_tree {
    mr_real *kept[MR_NODES]; /* vectors of the device; the first `count` are nodes, from left to right */
    mr_node nodes[MR_NODES];
    int count;
} mr_tree;

void mr_tree_free(mr_tree *tree, mr_dev *dev);

/* How many kept vectors the gradient of micro-batch `micro` completes nodes with, from the last one back. `node`
 * becomes what the gradient is after that. */
int mr_tree_merges(const mr_tree *tree, int micro, mr_node *node);
/* Adds the last `merges` kept vectors to the gradient, for some elements of it. */
void mr_tree_merge(const mr_tree *tree, mr_dev *dev, int merges, mr_real *grads, mr_span span);

/* Micro-batch `micro`, which is not the last one, has its gradient in grads[total]: adds it to the tree. 0 or
 * MR_ENOMEM. */
int mr_tree_keep(mr_tree *tree, mr_dev *dev, int micro, mr_real *grads, size_t total);
/* The last one of a process alone: grads becomes the sum of all. */
void mr_tree_finish(mr_tree *tree, mr_dev *dev, mr_real *grads, size_t total);

#endif
