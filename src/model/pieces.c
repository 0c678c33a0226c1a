/* Pieces of the parameter vector, and the tree of micro-batches. */
#include "model/pieces.h"

#include "core/mem.h"

#include <stdlib.h>

/* A row of the table with its place in the vector. */
typedef struct row {
    size_t offset;
    int stage;
} row;

static int by_offset(const void *a, const void *b)
{
    const size_t x = ((const row *)a)->offset, y = ((const row *)b)->offset;
    return (x > y) - (x < y);
}

static int by_stage(const void *a, const void *b)
{
    const mr_piece *x = a, *y = b;
    if (x->stage != y->stage) return x->stage < y->stage ? -1 : 1;
    return (x->span.first > y->span.first) - (x->span.first < y->span.first);
}

static size_t parts_in(size_t count) { return (count + MR_SUM_PART - 1) / MR_SUM_PART; }

/* Neighbours of one stage become one piece. Padding after a row belongs to it: its gradient is 0. */
static int join_rows(mr_piece *list, const row *rows, int count, size_t total)
{
    int pieces = 0;
    for (int i = 0; i < count; i++) {
        const size_t end = i + 1 < count ? rows[i + 1].offset : total;
        if (pieces && list[pieces - 1].stage == rows[i].stage) {
            list[pieces - 1].span.count = end - list[pieces - 1].span.first;
            continue;
        }
        list[pieces++] = (mr_piece){.span = {rows[i].offset, end - rows[i].offset}, .stage = rows[i].stage};
    }
    return pieces;
}

int mr_pieces_new(mr_pieces *p, const mr_params *params, const int *stages)
{
    const size_t count = (size_t)params->count;
    row *rows = mr_alloc_with(params->allocator, count, sizeof *rows);
    *p = (mr_pieces){.list = mr_alloc_with(params->allocator, count, sizeof *p->list)};
    if (!rows || !p->list) {
        mr_free_with(params->allocator, rows);
        mr_pieces_free(p, params->allocator);
        return MR_ENOMEM;
    }
    for (size_t i = 0; i < count; i++) rows[i] = (row){params->list[i].offset, stages[i]};
    qsort(rows, count, sizeof *rows, by_offset);
    p->count = join_rows(p->list, rows, (int)count, params->total);
    mr_free_with(params->allocator, rows);
    qsort(p->list, (size_t)p->count, sizeof *p->list, by_stage);
    for (int i = 0; i < p->count; i++) {
        p->list[i].parts = p->parts;
        p->parts += parts_in(p->list[i].span.count);
    }
    return 0;
}

void mr_pieces_free(mr_pieces *p, const mr_allocator *allocator)
{
    mr_free_with(allocator, p->list);
    *p = (mr_pieces){0};
}

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
