/* Attention, backward: the same loops; the softmax is recomputed from the log-sum that the forward left. Gradients of
 * rows are summed in the task's work memory, tile by tile. */
#include "ops/cpu/attn.h"

#include <math.h>
#include <string.h>

enum { TILE = 56 }; /* queries per tile, approximately: the depth of the sums for keys and values */

typedef struct rooms {
    float *keys, *values;        /* as columns */
    float *key_rows;             /* as rows */
    float *dkeys, *dvalues;      /* [rows, size] */
    float *plain;                /* rows before packing */
    float *q, *dy;               /* [tile, size] */
    float *q_packed, *dy_packed; /* as queries */
    float *q_panels, *dy_panels; /* for a sum over queries */
    float *p, *ds;               /* [tile, block] */
    float *weights;              /* packed */
    float *dq;                   /* [tile, size] */
} rooms;

static int panels_of(const mr_attn_job *job)
{
    return (int)mr_ceil_div((size_t)job->shape.size, (size_t)job->cpu->product->tile_cols);
}
static size_t tile_panel(const mr_attn_job *job)
{
    return mr_panel_bytes(job->cpu->product, job->tile) / sizeof(float);
}

static size_t lay_rooms(const mr_attn_job *job, float *base, rooms *r)
{
    const size_t size = (size_t)job->shape.size, tile = (size_t)job->tile, rows = (size_t)job->most_rows;
    const size_t columns = mr_attn_columns_room(job, job->most_rows), panels = (size_t)panels_of(job) * tile_panel(job);
    const struct {
        float **to;
        size_t count;
    } all[] = {{&r->keys, columns},
               {&r->values, columns},
               {&r->key_rows, mr_attn_rows_room(job, job->most_rows)},
               {&r->dkeys, rows * size},
               {&r->dvalues, rows * size},
               {&r->plain, (size_t)job->block * size},
               {&r->q, tile * size},
               {&r->dy, tile * size},
               {&r->q_packed, mr_attn_queries_room(job)},
               {&r->dy_packed, mr_attn_queries_room(job)},
               {&r->q_panels, panels},
               {&r->dy_panels, panels},
               {&r->p, tile * (size_t)job->block},
               {&r->ds, tile * (size_t)job->block},
               {&r->weights, mr_packed_rows(job->cpu->product, mr_max_int(job->block, job->tile))},
               {&r->dq, tile * size}};
    size_t at = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        *all[i].to = base ? base + at : NULL;
        at += mr_round_up(all[i].count, 16);
    }
    return at;
}

static void pack_panels(const mr_attn_job *job, const float *from, int n, float *to)
{
    const mr_product_kernels *product = job->cpu->product;
    const int size = job->shape.size;
    for (int col = 0; col < size; col += product->tile_cols, to += tile_panel(job))
        product->pack_b(from + col, (size_t)size, 1, n, mr_min_int(product->tile_cols, size - col), to);
}

/* sums[cols, size] += weights[n, cols]ᵀ·(the n packed queries) */
static void add_columns(const mr_attn_job *job, int n, const float *weights, int cols, const float *panels,
                        float *packed, float *sums)
{
    const mr_product_kernels *product = job->cpu->product;
    product->pack_at(weights, (size_t)job->block, n, cols, packed, NULL);
    product->multiply(&(mr_packed){.rows = cols,
                                   .cols = job->shape.size,
                                   .k = n,
                                   .a = packed,
                                   .by_columns = 1,
                                   .b = panels,
                                   .b_panel = tile_panel(job) * sizeof(float),
                                   .accumulate = 1,
                                   .c = sums,
                                   .c_row = (size_t)job->shape.size});
}

static const float *at_token(const mr_attn_job *job, const mr_attn_span *span, const float *x, int t)
{
    return x + ((size_t)span->b * (size_t)job->shape.T + (size_t)t) * job->D +
           (size_t)span->head * (size_t)job->shape.size;
}

/* Fetches the tile's queries and gradients in every form needed. */
static void take_tile(const mr_attn_job *job, const mr_attn_span *span, const rooms *r, int t, int n)
{
    const size_t size = (size_t)job->shape.size;
    mr_attn_take(job, span, span->s->carried + t, n, MR_ATTN_Q, r->q);
    for (int i = 0; i < n; i++)
        memcpy(r->dy + (size_t)i * size, at_token(job, span, job->dy, t + i), size * sizeof *r->dy);
    mr_attn_pack_queries(job, r->q, n, r->q_packed);
    mr_attn_pack_queries(job, r->dy, n, r->dy_packed);
    pack_panels(job, r->q, n, r->q_panels);
    pack_panels(job, r->dy, n, r->dy_panels);
    memset(r->dq, 0, (size_t)n * size * sizeof *r->dq);
}

static void soften_tile(const mr_attn_job *job, const mr_attn_span *span, const rooms *r, const mr_attn_piece *piece,
                        int t, int n)
{
    const mr_cpu_kernels *kernels = &job->cpu->kernels;
    const size_t T = (size_t)job->shape.T;
    const float *lse = job->lse + ((size_t)span->b * (size_t)job->shape.heads + (size_t)span->head) * T;
    for (int i = 0; i < n; i++) {
        mr_soften row = {.scale = job->scale,
                         .s = r->p + (size_t)i * (size_t)job->block,
                         .ds = r->ds + (size_t)i * (size_t)job->block,
                         .top = lse[t + i]};
        row.mean = kernels->turned_dot(job->shape.size, r->dy + (size_t)i * (size_t)job->shape.size,
                                       at_token(job, span, job->y, t + i), NULL);
        mr_attn_see(job, span, piece, t + i, &row);
        kernels->soften_bwd(&row);
    }
}

static void backward_tile(const mr_attn_job *job, const mr_attn_span *span, const rooms *r, int t, int n)
{
    const size_t size = (size_t)job->shape.size;
    take_tile(job, span, r, t, n);
    for (int block = 0; block < span->rows; block += job->block) {
        const mr_attn_piece piece = mr_attn_piece_of(job, span, t, n, block);
        const int cols = piece.end - piece.from;
        if (cols <= 0) continue;
        mr_attn_scores(job, n, r->q_packed, r->keys, piece.from, cols, r->p);
        mr_attn_scores(job, n, r->dy_packed, r->values, piece.from, cols, r->ds);
        soften_tile(job, span, r, &piece, t, n);
        add_columns(job, n, r->p, cols, r->dy_panels, r->weights, r->dvalues + (size_t)piece.from * size);
        add_columns(job, n, r->ds, cols, r->q_panels, r->weights, r->dkeys + (size_t)piece.from * size);
        mr_attn_add_rows(job, n, r->ds, r->key_rows, piece.from, cols, r->weights, r->dq);
    }
    for (int i = 0; i < n; i++) {
        float *to = job->dqkv + ((size_t)span->b * (size_t)job->shape.T + (size_t)(t + i)) * 3 * job->D +
                    (size_t)span->head * size;
        job->cpu->kernels.turn((int)size, r->dq + (size_t)i * size, mr_attn_turn(job, span->s->carried + t + i), -1.0f,
                               to);
    }
}

/* ---- where the gradients of rows go */

static float *spilled(const mr_attn_job *job, const mr_attn_span *span, int row)
{
    const size_t window = (size_t)job->shape.window, size = (size_t)job->shape.size;
    const size_t head = (size_t)span->b * (size_t)job->shape.heads + (size_t)span->head;
    const size_t back = (size_t)(row - (span->s->carried + span->t0 - job->shape.window));
    return job->spill + (((head * (size_t)(job->chunks - 1) + (size_t)(span->index - 1)) * window + back) * 2) * size;
}

/* Writes or adds dk and dv of a row, `apart` floats from each other; dk is rotated back. */
static void put_row(const mr_attn_job *job, const mr_attn_span *span, const rooms *r, int row, float *to, size_t apart,
                    int add)
{
    const size_t size = (size_t)job->shape.size, at = (size_t)(row - span->first) * size;
    float *dk = r->plain;
    job->cpu->kernels.turn((int)size, r->dkeys + at, mr_attn_turn(job, row), -1.0f, dk);
    if (!add) memset(to, 0, size * sizeof *to), memset(to + apart, 0, size * sizeof *to);
    job->cpu->kernels.add(size, to, dk);
    job->cpu->kernels.add(size, to + apart, r->dvalues + at);
}

static void put_rows(const mr_attn_job *job, const mr_attn_span *span, const rooms *r)
{
    const size_t size = (size_t)job->shape.size, D = job->D, at = (size_t)span->head * size,
                 window = (size_t)job->shape.window;
    const float *dcache = job->dcache_out ? job->dcache_out + (size_t)span->b * window * 2 * D + at : NULL;
    for (int row = span->first; row < span->s->carried + span->t1; row++) {
        const int t = row - span->s->carried;
        if (t >= span->t0) {
            float *to = job->dqkv + (((size_t)span->b * (size_t)job->shape.T + (size_t)t) * 3 + 1) * D + at;
            const int slot = dcache ? mr_attn_slot_out(span->s, t) : -1;
            put_row(job, span, r, row, to, D, 0);
            if (slot < 0) continue;
            job->cpu->kernels.add(size, to, dcache + 2 * (size_t)slot * D);
            job->cpu->kernels.add(size, to + D, dcache + (2 * (size_t)slot + 1) * D);
        } else if (t >= 0) {
            put_row(job, span, r, row, spilled(job, span, row), size, 0);
        } else if (job->dcache_in) {
            const size_t slot = (size_t)mr_attn_slot_in(span->s, job->count[span->b], row);
            put_row(job, span, r, row, job->dcache_in + ((size_t)span->b * window + slot) * 2 * D + at, D, 1);
        }
    }
}

/* Initial values of the outputs: the gradient of cache rows that the call kept, and 0 for tokens that do not exist. */
static void start_outputs(const mr_attn_job *job, const mr_attn_span *span)
{
    const size_t size = (size_t)job->shape.size, D = job->D, at = (size_t)span->head * size,
                 bytes = size * sizeof(float);
    for (int t = span->s->real; t < job->shape.T; t++)
        for (size_t i = 0; i < 3; i++)
            memset(job->dqkv + (((size_t)span->b * (size_t)job->shape.T + (size_t)t) * 3 + i) * D + at, 0, bytes);
    for (int slot = 0; job->dcache_in && slot < job->shape.window; slot++) {
        const int kept = job->dcache_out && job->cache && mr_attn_source(span->s, slot) == MR_ATTN_KEPT;
        for (size_t i = 0; i < 2; i++) {
            const size_t place = (((size_t)span->b * (size_t)job->shape.window + (size_t)slot) * 2 + i) * D + at;
            if (kept) memcpy(job->dcache_in + place, job->dcache_out + place, bytes);
            else memset(job->dcache_in + place, 0, bytes);
        }
    }
}

static void backward_task(void *arg, int task, int slot)
{
    const mr_attn_job *job = arg;
    const mr_attn_span span = mr_attn_span_of(job, task);
    rooms r;
    lay_rooms(job, mr_cpu_slot(job->cpu, slot), &r);
    if (span.index == 0) start_outputs(job, &span);
    if (span.t0 >= span.t1) return;
    mr_attn_pack_columns(job, &span, MR_ATTN_K, r.plain, r.keys);
    mr_attn_pack_columns(job, &span, MR_ATTN_V, r.plain, r.values);
    mr_attn_pack_rows(job, &span, MR_ATTN_K, r.plain, r.key_rows);
    memset(r.dkeys, 0, (size_t)span.rows * (size_t)job->shape.size * sizeof *r.dkeys);
    memset(r.dvalues, 0, (size_t)span.rows * (size_t)job->shape.size * sizeof *r.dvalues);
    for (int t = span.t0; t < span.t1; t += job->tile)
        backward_tile(job, &span, &r, t, mr_min_int(job->tile, span.t1 - t));
    put_rows(job, &span, &r);
}

/* Adds the gradients that a chunk left for rows of the previous chunk. */
static void spill_task(void *arg, int task, int slot)
{
    (void)slot;
    const mr_attn_job *job = arg;
    const mr_attn_span span = mr_attn_span_of(job, task);
    const size_t size = (size_t)job->shape.size, D = job->D;
    if (span.index == 0 || span.t0 >= span.t1) return;
    for (int row = span.first; row < span.s->carried + span.t0; row++) {
        float *to = job->dqkv +
                    (((size_t)span.b * (size_t)job->shape.T + (size_t)(row - span.s->carried)) * 3 + 1) * D +
                    (size_t)span.head * size;
        job->cpu->kernels.add(size, to, spilled(job, &span, row));
        job->cpu->kernels.add(size, to + D, spilled(job, &span, row) + size);
    }
}

/* With several chunks, a task would read rows that another one overwrites. So tasks read a copy, and leave gradients of
 * other chunks' rows in `spill`. */
static int part_chunks(mr_attn_job *job)
{
    const size_t B = (size_t)job->shape.B, values = B * (size_t)job->shape.T * 3 * job->D;
    const size_t spills = B * (size_t)(job->chunks - 1) * (size_t)job->shape.window * 2 * job->D;
    float *copy = mr_cpu_scratch(job->cpu, MR_SCRATCH_PARTIAL, values);
    job->spill = mr_cpu_scratch(job->cpu, MR_SCRATCH_SPILL, spills);
    if (!copy || !job->spill) return 0;
    memcpy(copy, job->qkv, values * sizeof *copy);
    job->qkv = copy;
    return 1;
}

void mr_cpu_attn_bwd(mr_dev *dev, const mr_attn_bwd_args *a)
{
    mr_attn_job job = {.qkv = (const float *)a->qkv,
                       .cache = (const float *)a->cache_in,
                       .counts = (const float *)a->count_in,
                       .reset = a->reset,
                       .length = a->length,
                       .y = (float *)a->y,
                       .lse = (float *)a->lse,
                       .dy = (const float *)a->dy,
                       .dcache_out = (const float *)a->dcache_out,
                       .dqkv = (float *)a->qkv,
                       .dcache_in = (float *)a->dcache_in};
    rooms none;
    if (!mr_attn_prepare(&job, dev, &a->shape, TILE)) return;
    if (!mr_cpu_slots(job.cpu, lay_rooms(&job, NULL, &none))) return;
    if (job.chunks > 1 && !part_chunks(&job)) return;
    mr_cpu_run(job.cpu, backward_task, &job, mr_attn_tasks(&job));
    if (job.chunks > 1) mr_cpu_run(job.cpu, spill_task, &job, mr_attn_tasks(&job));
    for (int b = 0; a->dcount_in && b < a->shape.B; b++) ((float *)a->dcount_in)[b] = 0.0f;
}
