/* What the forward and the backward of attention share: rotary tables, streams, packing, products. */
#include "ops/cpu/attn.h"

#include <math.h>
#include <string.h>

/* ---- the rotary table */

static void fill_turns(mr_cpu *cpu, float *turns, int size, int rows)
{
    for (int p = 0; p < rows; p++)
        for (int i = 0; i < size; i += 2) {
            const double angle = p * pow(MR_ROTARY_BASE, -(double)i / size);
            float *turn = turns + (size_t)p * 2 * (size_t)size + i;
            turn[0] = turn[1] = (float)cos(angle);
            turn[size + 1] = (float)sin(angle);
            turn[size] = -turn[size + 1];
        }
    cpu->turn_size = size;
    cpu->turn_rows = rows;
}

static const float *turns_for(mr_cpu *cpu, int size, int rows)
{
    if (cpu->turn_size == size && cpu->turn_rows >= rows) return cpu->scratch[MR_SCRATCH_TURNS].data;
    cpu->turn_size = 0;
    float *turns = mr_cpu_scratch(cpu, MR_SCRATCH_TURNS, (size_t)rows * 2 * (size_t)size);
    if (turns) fill_turns(cpu, turns, size, rows);
    return turns;
}

/* ---- streams */

static void find_stream(mr_attn_job *job, int b)
{
    const mr_attn *g = &job->shape;
    const int real = job->length ? job->length[b] : g->T;
    const uint8_t *reset = job->reset ? job->reset + (size_t)b * (size_t)g->T : NULL;
    int from = -1;
    for (int t = 0; reset && t < real; t++)
        if (reset[t]) from = t;
    job->count[b] = job->counts ? mr_attn_count((double)job->counts[b], g->window) : -1;
    mr_attn_stream *s = &job->streams[b];
    *s = mr_attn_stream_of(g->window, job->count[b], real, from);
    for (int t = 0, start = s->start; t < g->T; t++) {
        if (reset && reset[t]) start = s->carried + t;
        job->first[b * g->T + t] = mr_attn_first(s, start, t);
    }
}

enum { LEAST_CHUNK = 256 };

int mr_attn_prepare(mr_attn_job *job, mr_dev *dev, const mr_attn *shape, int tile)
{
    mr_cpu *cpu = job->cpu = mr_cpu_of(dev);
    const mr_product_kernels *product = cpu->product;
    const size_t B = (size_t)shape->B, T = (size_t)shape->T, whole = sizeof(mr_attn_stream) / sizeof(int);
    job->shape = *shape;
    job->D = (size_t)shape->heads * (size_t)shape->size;
    job->scale = (float)(1 / sqrt(shape->size));
    job->chunk = mr_max_int(LEAST_CHUNK, shape->window);
    job->chunks = (int)mr_ceil_div(T, (size_t)job->chunk);
    job->tile = product->tile_rows * mr_max_int(1, tile / product->tile_rows);
    job->block = product->depth / product->tile_cols * product->tile_cols;
    job->most_rows = mr_min_int(shape->window - 1, job->cache || job->chunks > 1 ? shape->window : 0) +
                     mr_min_int(job->chunk, shape->T);
    job->turns = NULL;
    if (shape->rotary) {
        job->turns = turns_for(cpu, shape->size, shape->T + (job->cache ? shape->window : 0));
        if (!job->turns) return 0;
    }
    int *room = (int *)mr_cpu_scratch(cpu, MR_SCRATCH_STATE, B * (whole + 1 + T));
    if (!room) return 0;
    job->streams = (mr_attn_stream *)room;
    job->count = room + B * whole;
    job->first = job->count + B;
    for (int b = 0; b < shape->B; b++) find_stream(job, b);
    return 1;
}

mr_attn_span mr_attn_span_of(const mr_attn_job *job, int task)
{
    const int head = task / job->chunks;
    mr_attn_span span = {.b = head / job->shape.heads, .head = head % job->shape.heads, .index = task % job->chunks};
    span.s = &job->streams[span.b];
    span.t0 = mr_min_int(span.index * job->chunk, span.s->real);
    span.t1 = mr_min_int(span.t0 + job->chunk, span.s->real);
    if (span.t0 >= span.t1) return span;
    span.first = job->first[span.b * job->shape.T + span.t0];
    span.rows = span.s->carried + span.t1 - span.first;
    return span;
}

void mr_attn_take(const mr_attn_job *job, const mr_attn_span *span, int row, int n, int which, float *to)
{
    const size_t size = (size_t)job->shape.size, at = (size_t)span->head * size, D = job->D;
    const float *tokens = job->qkv + (size_t)span->b * (size_t)job->shape.T * 3 * D + at + (size_t)which * D;
    const float *cached = job->cache ? job->cache + (size_t)span->b * (size_t)job->shape.window * 2 * D + at : NULL;
    for (int r = row; r < row + n; r++, to += size) {
        const int t = r - span->s->carried;
        const float *from =
            t >= 0 ? tokens + (size_t)t * 3 * D
                   : cached + (2 * (size_t)mr_attn_slot_in(span->s, job->count[span->b], r) + (size_t)which - 1) * D;
        job->cpu->kernels.turn((int)size, from, which == MR_ATTN_V ? NULL : mr_attn_turn(job, r), 1.0f, to);
    }
}

/* ---- packing and products */

static int pieces_of(const mr_attn_job *job)
{
    return (int)mr_ceil_div((size_t)job->shape.size, (size_t)job->cpu->product->depth);
}
static int piece_depth(const mr_attn_job *job) { return mr_min_int(job->shape.size, job->cpu->product->depth); }
static int panels_of(const mr_attn_job *job, int n)
{
    return (int)mr_ceil_div((size_t)n, (size_t)job->cpu->product->tile_cols);
}

static size_t column_panel(const mr_attn_job *job)
{
    return mr_panel_bytes(job->cpu->product, piece_depth(job)) / sizeof(float);
}
static size_t row_panel(const mr_attn_job *job)
{
    return mr_panel_bytes(job->cpu->product, job->block) / sizeof(float);
}

size_t mr_attn_columns_room(const mr_attn_job *job, int rows)
{
    return (size_t)pieces_of(job) * (size_t)panels_of(job, rows) * column_panel(job);
}

size_t mr_attn_rows_room(const mr_attn_job *job, int rows)
{
    return mr_ceil_div((size_t)rows, (size_t)job->block) * (size_t)panels_of(job, job->shape.size) * row_panel(job);
}

size_t mr_attn_queries_room(const mr_attn_job *job)
{
    return (size_t)pieces_of(job) * mr_packed_rows(job->cpu->product, job->tile);
}

void mr_attn_pack_columns(const mr_attn_job *job, const mr_attn_span *span, int which, float *room, float *to)
{
    const mr_product_kernels *product = job->cpu->product;
    const int width = product->tile_cols, panels = panels_of(job, job->most_rows), size = job->shape.size;
    for (int at = 0; at < span->rows; at += width) {
        const int n = mr_min_int(width, span->rows - at);
        mr_attn_take(job, span, span->first + at, n, which, room);
        for (int piece = 0, k = 0; k < size; piece++, k += product->depth)
            product->pack_b(room + k, 1, (size_t)size, mr_min_int(product->depth, size - k), n,
                            to + ((size_t)piece * (size_t)panels + (size_t)(at / width)) * column_panel(job));
    }
}

void mr_attn_pack_rows(const mr_attn_job *job, const mr_attn_span *span, int which, float *room, float *to)
{
    const mr_product_kernels *product = job->cpu->product;
    const int width = product->tile_cols, size = job->shape.size;
    for (int at = 0; at < span->rows; at += job->block) {
        const int n = mr_min_int(job->block, span->rows - at);
        mr_attn_take(job, span, span->first + at, n, which, room);
        for (int col = 0; col < size; col += width, to += row_panel(job))
            product->pack_b(room + col, (size_t)size, 1, n, mr_min_int(width, size - col), to);
    }
}

void mr_attn_pack_queries(const mr_attn_job *job, const float *from, int n, float *to)
{
    const mr_product_kernels *product = job->cpu->product;
    const int size = job->shape.size;
    for (int k = 0; k < size; k += product->depth, to += mr_packed_rows(product, job->tile))
        product->pack_a(from + k, (size_t)size, mr_min_int(product->depth, size - k), n, to);
}

void mr_attn_scores(const mr_attn_job *job, int n, const float *queries, const float *columns, int first, int cols,
                    float *scores)
{
    const mr_product_kernels *product = job->cpu->product;
    const int panels = panels_of(job, job->most_rows), size = job->shape.size;
    for (int piece = 0, k = 0; k < size; piece++, k += product->depth)
        product->multiply(&(mr_packed){
            .rows = n,
            .cols = cols,
            .k = mr_min_int(product->depth, size - k),
            .a = queries + (size_t)piece * mr_packed_rows(product, job->tile),
            .b = columns + ((size_t)piece * (size_t)panels + (size_t)(first / product->tile_cols)) * column_panel(job),
            .b_panel = column_panel(job) * sizeof(float),
            .accumulate = k > 0,
            .c = scores,
            .c_row = (size_t)job->block});
}

void mr_attn_add_rows(const mr_attn_job *job, int n, const float *weights, const float *rows, int first, int count,
                      float *packed, float *sums)
{
    const mr_product_kernels *product = job->cpu->product;
    const size_t block = (size_t)(first / job->block), skip = (size_t)(first % job->block) * product->b_row;
    product->pack_a(weights, (size_t)job->block, count, n, packed);
    product->multiply(&(mr_packed){
        .rows = n,
        .cols = job->shape.size,
        .k = count,
        .a = packed,
        .b = (const char *)(rows + block * (size_t)panels_of(job, job->shape.size) * row_panel(job)) + skip,
        .b_panel = row_panel(job) * sizeof(float),
        .accumulate = 1,
        .c = sums,
        .c_row = (size_t)job->shape.size});
}

mr_attn_piece mr_attn_piece_of(const mr_attn_job *job, const mr_attn_span *span, int t, int n, int block)
{
    const int width = job->cpu->product->tile_cols, first = job->first[span->b * job->shape.T + t] - span->first;
    return (mr_attn_piece){.from = mr_max_int(block, first / width * width),
                           .end = mr_min_int(block + job->block, span->s->carried + t + n - span->first)};
}
