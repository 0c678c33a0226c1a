/* Attention, forward: tiles of queries over blocks of rows, with a softmax that is updated block by block. A single
 * token with a cache reads the cache directly. */
#include "ops/cpu/attn.h"

#include <math.h>
#include <string.h>

enum { TILE = 28 }; /* queries per tile, approximately */

/* Work memory of a task. */
typedef struct rooms {
    float *keys, *values; /* packed */
    float *plain;         /* rows before packing */
    float *queries, *scores, *weights, *sums;
    mr_soften *rows; /* [tile] */
} rooms;

static size_t lay_rooms(const mr_attn_job *job, float *base, rooms *r)
{
    const size_t size = (size_t)job->shape.size, tile = (size_t)job->tile, block = (size_t)job->block;
    size_t at[8] = {0};
    at[1] = at[0] + mr_round_up(mr_attn_columns_room(job, job->most_rows), 16);
    at[2] = at[1] + mr_round_up(mr_attn_rows_room(job, job->most_rows), 16);
    at[3] = at[2] + mr_round_up((size_t)mr_max_int(job->block, job->tile) * size, 16);
    at[4] = at[3] + mr_round_up(mr_attn_queries_room(job), 16);
    at[5] = at[4] + tile * block;
    at[6] = at[5] + mr_round_up(mr_packed_rows(job->cpu->product, job->tile), 16);
    at[7] = at[6] + mr_round_up(tile * size, 16);
    if (base)
        *r = (rooms){base + at[0], base + at[1], base + at[2], base + at[3],
                     base + at[4], base + at[5], base + at[6], (mr_soften *)(void *)(base + at[7])};
    return at[7] + tile * sizeof(mr_soften) / sizeof(float);
}

static void finish_tile(const mr_attn_job *job, const mr_attn_span *span, const rooms *r, int t, int n)
{
    const size_t size = (size_t)job->shape.size, T = (size_t)job->shape.T, row = (size_t)span->b * T + (size_t)t;
    float *lse = job->lse + ((size_t)span->b * (size_t)job->shape.heads + (size_t)span->head) * T + (size_t)t;
    for (int i = 0; i < n; i++) {
        float *y = job->y + (row + (size_t)i) * job->D + (size_t)span->head * size;
        lse[i] = r->rows[i].top + logf(r->rows[i].sum);
        job->cpu->kernels.scale(size, 1.0f / r->rows[i].sum, r->sums + (size_t)i * size, y);
    }
}

static void forward_tile(const mr_attn_job *job, const mr_attn_span *span, const rooms *r, int t, int n)
{
    const mr_cpu_kernels *kernels = &job->cpu->kernels;
    const size_t size = (size_t)job->shape.size;
    mr_attn_take(job, span, span->s->carried + t, n, MR_ATTN_Q, r->plain);
    mr_attn_pack_queries(job, r->plain, n, r->queries);
    memset(r->sums, 0, (size_t)n * size * sizeof *r->sums);
    for (int i = 0; i < n; i++) r->rows[i] = (mr_soften){.scale = job->scale, .top = -INFINITY};
    for (int block = 0; block < span->rows; block += job->block) {
        const mr_attn_piece piece = mr_attn_piece_of(job, span, t, n, block);
        if (piece.from >= piece.end) continue;
        mr_attn_scores(job, n, r->queries, r->keys, piece.from, piece.end - piece.from, r->scores);
        for (int i = 0; i < n; i++) {
            mr_soften *row = &r->rows[i];
            row->s = r->scores + (size_t)i * (size_t)job->block;
            mr_attn_see(job, span, &piece, t + i, row);
            if (row->from >= row->n || row->end <= 0) { /* sees no column of this block */
                memset(row->s, 0, (size_t)row->n * sizeof *row->s);
                continue;
            }
            const float shrink = kernels->soften(row);
            float *sums = r->sums + (size_t)i * size;
            if (!(shrink == 1.0f)) kernels->scale(size, shrink, sums, sums);
        }
        mr_attn_add_rows(job, n, r->scores, r->values, piece.from, piece.end - piece.from, r->weights, r->sums);
    }
    finish_tile(job, span, r, t, n);
}

/* Sets outputs beyond the length of a stream to 0. */
static void clear_padding(const mr_attn_job *job, const mr_attn_span *span)
{
    const size_t size = (size_t)job->shape.size, T = (size_t)job->shape.T;
    float *lse = job->lse + ((size_t)span->b * (size_t)job->shape.heads + (size_t)span->head) * T;
    for (int t = span->s->real; t < job->shape.T; t++) {
        lse[t] = 0.0f;
        memset(job->y + ((size_t)span->b * T + (size_t)t) * job->D + (size_t)span->head * size, 0,
               size * sizeof(float));
    }
}

static void forward_task(void *arg, int task, int slot)
{
    const mr_attn_job *job = arg;
    const mr_attn_span span = mr_attn_span_of(job, task);
    rooms r;
    lay_rooms(job, mr_cpu_slot(job->cpu, slot), &r);
    if (span.index == 0) clear_padding(job, &span);
    if (span.t0 >= span.t1) return;
    mr_attn_pack_columns(job, &span, MR_ATTN_K, r.plain, r.keys);
    mr_attn_pack_rows(job, &span, MR_ATTN_V, r.plain, r.values);
    for (int t = span.t0; t < span.t1; t += job->tile)
        forward_tile(job, &span, &r, t, mr_min_int(job->tile, span.t1 - t));
}

/* ---- one token */

/* Only distances matter, so q is rotated for each row and the cache stays unrotated. */
static void one_task(void *arg, int task, int slot)
{
    const mr_attn_job *job = arg;
    const mr_cpu_kernels *kernels = &job->cpu->kernels;
    const mr_attn_span span = mr_attn_span_of(job, task);
    const int size = job->shape.size, own = span.s->carried, first = job->first[span.b], n = own + 1 - first;
    const size_t D = job->D, at = (size_t)span.head * (size_t)size;
    const float *qkv = job->qkv + (size_t)span.b * 3 * D + at,
                *cache = job->cache + (size_t)span.b * (size_t)job->shape.window * 2 * D + at;
    float *scores = mr_cpu_slot(job->cpu, slot), *y = job->y + (size_t)span.b * D + at;
    for (int i = 0; i < n; i++) {
        const int r = first + i, slot_in = mr_attn_slot_in(span.s, job->count[span.b], r);
        const float *k = r == own ? qkv + D : cache + 2 * (size_t)slot_in * D;
        scores[i] = job->scale * kernels->turned_dot(size, qkv, k, mr_attn_turn(job, own - r));
    }
    const float top = kernels->max(n, scores), sum = kernels->exp_sum(n, scores, top, scores);
    memset(y, 0, (size_t)size * sizeof *y);
    for (int i = 0; i < n; i++) {
        const int r = first + i, slot_in = mr_attn_slot_in(span.s, job->count[span.b], r);
        kernels->axpy((size_t)size, scores[i] / sum, r == own ? qkv + 2 * D : cache + (2 * (size_t)slot_in + 1) * D, y);
    }
    job->lse[(size_t)span.b * (size_t)job->shape.heads + (size_t)span.head] = top + logf(sum);
}

/* ---- the cache after the call */

static void keep_rows(const mr_attn_job *job, int b, float *out)
{
    const size_t row = 2 * job->D, window = (size_t)job->shape.window;
    const float *in = job->cache ? job->cache + (size_t)b * window * row : NULL;
    const float *tokens = job->qkv + (size_t)b * (size_t)job->shape.T * 3 * job->D + job->D;
    const mr_attn_stream *s = &job->streams[b];
    out += (size_t)b * window * row;
    if (s->fresh) memset(out, 0, window * row * sizeof *out);
    else if (in != out) memcpy(out, in, window * row * sizeof *out);
    for (int t = mr_max_int(s->from, s->real - job->shape.window); t < s->real; t++)
        memcpy(out + (size_t)mr_attn_slot_out(s, t) * row, tokens + (size_t)t * 3 * job->D, row * sizeof *out);
}

typedef struct keep_job {
    const mr_attn_job *job;
    float *cache;
} keep_job;

static void keep_task(void *arg, int task, int slot)
{
    (void)slot;
    const keep_job *keep = arg;
    keep_rows(keep->job, task, keep->cache);
}

static void attn_fwd(mr_dev *dev, const mr_attn_fwd_args *a)
{
    mr_attn_job job = {.qkv = (const float *)a->qkv,
                       .cache = (const float *)a->cache_in,
                       .counts = (const float *)a->count_in,
                       .reset = a->reset,
                       .length = a->length,
                       .y = (float *)a->y,
                       .lse = (float *)a->lse};
    if (!mr_attn_prepare(&job, dev, &a->shape, TILE)) return;
    const int one = a->shape.T == 1 && a->cache_in && !a->length;
    rooms none;
    if (!mr_cpu_slots(job.cpu, one ? (size_t)a->shape.window + 16 : lay_rooms(&job, NULL, &none))) return;
    mr_cpu_run(job.cpu, one ? one_task : forward_task, &job, mr_attn_tasks(&job));
    if (!a->cache_out) return;
    keep_job keep = {&job, (float *)a->cache_out};
    mr_cpu_run(job.cpu, keep_task, &keep, a->shape.B);
    for (int b = 0; b < a->shape.B; b++) ((float *)a->count_out)[b] = (float)mr_attn_count_out(&job.streams[b]);
}

/* ---- learned positions */

static void position_fwd(mr_dev *dev, const mr_position_fwd_args *a)
{
    mr_cpu *cpu = mr_cpu_of(dev);
    const size_t D = (size_t)a->D, T = (size_t)a->T;
    for (size_t b = 0; b < (size_t)a->B; b++) {
        int place = a->count_in ? mr_attn_count((double)((const float *)a->count_in)[b], a->window) % a->window : 0;
        for (size_t n = b * T; n < (b + 1) * T; n++, place = (place + 1) % a->window) {
            if (a->reset && a->reset[n]) place = 0;
            a->ids[n] = place;
            float *y = (float *)a->y + n * D;
            memcpy(y, (const float *)a->x + n * D, D * sizeof *y);
            cpu->kernels.add(D, y, (const float *)a->table + (size_t)place * D);
        }
    }
}

void mr_cpu_attn_ops(mr_ops *ops)
{
    ops->attn_fwd = attn_fwd;
    ops->attn_bwd = mr_cpu_attn_bwd;
    ops->position_fwd = position_fwd;
}
