/* Adding up the gradients of micro-batches. a + b = b + a to the last bit, so a sum may be made in either's place. */
#include "model/tree.h"

void mr_tree_free(mr_tree *t, mr_dev *dev)
{
    for (int i = 0; i < MR_NODES; i++)
        if (t->kept[i]) dev->release(dev, t->kept[i]);
    *t = (mr_tree){0};
}

int mr_tree_merges(const mr_tree *t, int micro, mr_node *node)
{
    int merges = 0;
    *node = (mr_node){0, micro};
    while (merges < t->count && mr_nodes_pair(t->nodes[t->count - 1 - merges], *node)) {
        *node = mr_node_above(*node);
        merges++;
    }
    return merges;
}

void mr_tree_merge(const mr_tree *t, mr_dev *dev, int merges, mr_real *grads, mr_span span)
{
    for (int i = 0; i < merges; i++)
        dev->ops.accumulate(dev, &(mr_accumulate_args){.n = span.count,
                                                       .x = mr_real_at(dev, t->kept[t->count - 1 - i], span.first),
                                                       .y = mr_real_at(dev, grads, span.first)});
}

int mr_tree_keep(mr_tree *t, mr_dev *dev, int micro, mr_real *grads, size_t total)
{
    mr_node node;
    const int merges = mr_tree_merges(t, micro, &node);
    mr_tree_merge(t, dev, merges, grads, (mr_span){0, total});
    t->count -= merges;
    if (!t->kept[t->count]) t->kept[t->count] = dev->alloc(dev, total * dev->real_size);
    if (!t->kept[t->count]) return MR_ENOMEM;
    dev->copy(dev, t->kept[t->count], grads, total * dev->real_size);
    t->nodes[t->count++] = node;
    return 0;
}

/* Complete nodes first, then what is left over, from the right: both are the kept vectors from the last one back. */
void mr_tree_finish(mr_tree *t, mr_dev *dev, mr_real *grads, size_t total)
{
    mr_tree_merge(t, dev, t->count, grads, (mr_span){0, total});
    t->count = 0;
}
