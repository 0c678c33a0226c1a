/* What the forward and the backward of attention share. A task is one head of one stream and a chunk of its
 * tokens: it packs the rows that these tokens see once, then loops over tiles of queries and blocks of rows. A
 * chunk is at least as long as the window, so only that chunk and the next one see its rows. "Turn" means the
 * rotation of rotary positions. */
#ifndef MR_OPS_CPU_ATTN_H
#define MR_OPS_CPU_ATTN_H

#include "ops/attn.h"
#include "ops/cpu/gemm.h"

typedef struct mr_attn_job {
    mr_cpu *cpu;
    mr_attn shape;
    size_t D;
    float scale; /* 1/√size */
    const float *qkv, *cache, *counts;
    const uint8_t *reset;
    const int32_t *length;
    const float *turns;      /* [rows, 2·size] rotations by position, or NULL */
    mr_attn_stream *streams; /* [B] */
    int *count, *first;      /* [B]; [B, T] the first row that each token sees */
    int chunk, chunks;       /* tokens in a chunk, chunks in a stream */
    int tile, block;         /* queries in a tile, rows in a block */
    int most_rows;           /* the most rows that a task may see */
    /* forward */
    float *y, *lse;
    /* backward */
    const float *dy, *dcache_out;
    float *dqkv, *dcache_in;
    float *spill; /* [B, heads, chunks − 1, window, 2, size]: gradients for rows of the previous chunk */
} mr_attn_job;

/* The part of a task: tokens t0 … t1 − 1, and rows from `first` on. */
typedef struct mr_attn_span {
    int b, head, index, t0, t1;
    int first, rows;
    const mr_attn_stream *s;
} mr_attn_span;

/* The three vectors of a row. */
enum { MR_ATTN_Q, MR_ATTN_K, MR_ATTN_V };

int mr_attn_prepare(mr_attn_job *job, mr_dev *dev, const mr_attn *shape, int tile); /* returns 0: out of memory */
mr_attn_span mr_attn_span_of(const mr_attn_job *job, int task);
static inline int mr_attn_tasks(const mr_attn_job *job) { return job->shape.B * job->shape.heads * job->chunks; }

static inline const float *mr_attn_turn(const mr_attn_job *job, int position)
{
    return job->turns ? job->turns + (size_t)position * 2 * (size_t)job->shape.size : NULL;
}

/* Copies n rows from `row` on into contiguous memory; q and k are rotated by their positions. */
void mr_attn_take(const mr_attn_job *job, const mr_attn_span *span, int row, int n, int which, float *to);

/* Pack rows in two ways: as columns of a product over a head's channels, and for a sum over rows. */
size_t mr_attn_columns_room(const mr_attn_job *job, int rows);
size_t mr_attn_rows_room(const mr_attn_job *job, int rows);
void mr_attn_pack_columns(const mr_attn_job *job, const mr_attn_span *span, int which, float *room, float *to);
void mr_attn_pack_rows(const mr_attn_job *job, const mr_attn_span *span, int which, float *room, float *to);

/* scores[tile, cols] = queries·columns, for packed columns first … first + cols − 1; `first` is a
 * multiple of the panel width. */
size_t mr_attn_queries_room(const mr_attn_job *job);
void mr_attn_pack_queries(const mr_attn_job *job, const float *from, int n, float *to);
void mr_attn_scores(const mr_attn_job *job, int n, const float *queries, const float *columns, int first, int cols,
                    float *scores);

/* sums[n, size] += weights[n, count]·rows, for packed rows first … first + count − 1, all in one block. */
void mr_attn_add_rows(const mr_attn_job *job, int n, const float *weights, const float *rows, int first, int count,
                      float *packed, float *sums);

/* The columns from … end − 1 that a tile sees in a block, relative to the span; `from` is a
 * multiple of the panel width. */
typedef struct mr_attn_piece {
    int from, end;
} mr_attn_piece;
mr_attn_piece mr_attn_piece_of(const mr_attn_job *job, const mr_attn_span *span, int t, int n, int block);

/* The columns of a piece that token t sees. */
static inline void mr_attn_see(const mr_attn_job *job, const mr_attn_span *span, const mr_attn_piece *piece, int t,
                               mr_soften *row)
{
    const int shift = span->first + piece->from;
    row->n = piece->end - piece->from;
    row->from = job->first[span->b * job->shape.T + t] - shift;
    row->end = span->s->carried + t + 1 - shift;
}

void mr_cpu_attn_bwd(mr_dev *dev, const mr_attn_bwd_args *args);

#endif
