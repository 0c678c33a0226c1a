/* Pieces of the parameter vector, and the tree of micro-batches. */
#include "model/pieces.h"

#include "core/mem.h"

#include <stdlib.h>

static int by_stage(const void *a, const void *b)
{
    const mr_piece *x = a, *y = b;
    if (x->stage != y->stage) return x->stage < y->stage ? -1 : 1;
    return (x->span.first > y->span.first) - (x->span.first < y->span.first);
}

/* A piece is complete when the last row that reaches into it is. */
static void stage_of_row(mr_piece *list, size_t piece, const mr_param *row, int stage)
{
    if (!row->count) return;
    for (size_t i = row->offset / piece; i <= (row->offset + row->count - 1) / piece; i++)
        if (list[i].stage < stage) list[i].stage = stage;
}

int mr_pieces_new(mr_pieces *p, const mr_params *params, const int *stages, size_t piece)
{
    const size_t count = (params->total + piece - 1) / piece;
    *p = (mr_pieces){.list = mr_alloc_with(params->allocator, count, sizeof *p->list), .count = (int)count};
    if (!p->list) return MR_ENOMEM;
    for (size_t i = 0; i < count; i++) {
        const size_t first = i * piece, left = params->total - first;
        p->list[i].span = (mr_span){first, left < piece ? left : piece};
    }
    for (int i = 0; i < params->count; i++) stage_of_row(p->list, piece, &params->list[i], stages[i]);
    qsort(p->list, count, sizeof *p->list, by_stage);
    return 0;
}

void mr_pieces_free(mr_pieces *p, const mr_allocator *allocator)
{
    mr_free_with(allocator, p->list);
    *p = (mr_pieces){0};
}

static size_t parts_in(size_t count) { return (count + MR_SUM_PART - 1) / MR_SUM_PART; }

mr_span mr_piece_of_rank(const mr_pieces *p, int piece, int rank, int ranks)
{
    const mr_span all = p->list[piece].span;
    const size_t parts = parts_in(all.count), slot = (size_t)((rank + piece) % ranks), of = (size_t)ranks;
    const size_t first = parts * slot / of * MR_SUM_PART, end = parts * (slot + 1) / of * MR_SUM_PART;
    if (first >= all.count) return (mr_span){all.first + all.count, 0};
    return (mr_span){all.first + first, (end < all.count ? end : all.count) - first};
}

int mr_nodes_of(int first, int end, mr_node nodes[MR_NODES])
{
    int count = 0;
    while (first < end) {
        int level = 0;
        while (first % (2 << level) == 0 && first + (2 << level) <= end) level++;
        nodes[count++] = (mr_node){level, first >> level};
        first += 1 << level;
    }
    return count;
}

int mr_nodes_pair(mr_node left, mr_node right)
{
    return left.level == right.level && left.index % 2 == 0 && right.index == left.index + 1;
}

mr_node mr_node_above(mr_node half) { return (mr_node){half.level + 1, half.index / 2}; }

void mr_micros_of_rank(int micros, int rank, int ranks, int *first, int *end)
{
    *first = (int)((int64_t)micros * rank / ranks);
    *end = (int)((int64_t)micros * (rank + 1) / ranks);
}
