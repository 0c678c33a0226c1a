/* Attention, one token at a time over the rows that it sees; and learned positions. */

/* One head of one stream, and its work arrays. */
typedef struct attention {
    const mr_attn *shape;
    size_t b, head, D;
    mr_attn_stream s;
    int count;
    const real *qkv, *cache; /* of the stream; cache may be NULL */
    double *turns;           /* [window, size/2, 2] cos, sin by distance; NULL without rotary */
    double *share;           /* [window] softmax of one token */
    double *dq, *dk, *dv;    /* [T, size], [window + T, size] twice */
} attention;

static const real *row_at(const attention *a, int r, size_t which)
{
    size_t D = a->D, at = a->head * (size_t)a->shape->size;
    if (r >= a->s.carried) return a->qkv + (3 * (size_t)(r - a->s.carried) + which) * D + at;
    return a->cache + (2 * (size_t)mr_attn_slot_in(&a->s, a->count, r) + which - 1) * D + at;
}

/* Allocates the work arrays. Without memory nothing is computed, and every check notices that. */
static int attention_room(attention *a, const mr_attn *shape, int backward)
{
    size_t size = (size_t)shape->size, window = (size_t)shape->window, T = (size_t)shape->T;
    size_t turns = shape->rotary ? window * size : 0, rows = backward ? 3 * T + 2 * window : 0;
    double *room = mr_alloc(turns + window + rows * size, sizeof *room);
    *a = (attention){.shape = shape, .D = size * (size_t)shape->heads};
    if (!room) return 0;
    a->share = room;
    a->turns = turns ? room + window : NULL;
    a->dq = room + window + turns;
    a->dk = a->dq + T * size;
    a->dv = a->dk + (window + T) * size;
    for (size_t d = 0; a->turns && d < window; d++)
        for (size_t i = 0; i < size / 2; i++) {
            double angle = (double)d * pow(MR_ROTARY_BASE, -2.0 * (double)i / (double)size);
            a->turns[d * size + 2 * i] = cos(angle);
            a->turns[d * size + 2 * i + 1] = sin(angle);
        }
    return 1;
}

static void attention_stream(attention *a, size_t b, const mr_act *qkv, const mr_real *cache, const mr_real *counts,
                             const uint8_t *reset, const int32_t *length)
{
    const mr_attn *g = a->shape;
    int real_T = real_tokens(length, (int)b, g->T), from = -1;
    for (int t = 0; reset && t < real_T; t++)
        if (reset[b * (size_t)g->T + (size_t)t]) from = t;
    a->b = b;
    a->count = counts ? mr_attn_count(IN(counts)[b], g->window) : -1;
    a->s = mr_attn_stream_of(g->window, a->count, real_T, from);
    a->qkv = IN(qkv) + b * (size_t)g->T * 3 * a->D;
    a->cache = cache ? IN(cache) + b * (size_t)g->window * 2 * a->D : NULL;
}

/* The dot product of k and q rotated by their distance. */
static double turned_dot(const attention *a, const real *q, const real *k, int distance)
{
    size_t size = (size_t)a->shape->size;
    const double *turn = a->turns ? a->turns + (size_t)distance * size : NULL;
    double sum = 0;
    for (size_t i = 0; i < size && !turn; i++) sum += (double)q[i] * k[i];
    for (size_t i = 0; i + 1 < size && turn; i += 2)
        sum += turn[i] * ((double)q[i] * k[i] + (double)q[i + 1] * k[i + 1]) +
               turn[i + 1] * ((double)q[i] * k[i + 1] - (double)q[i + 1] * k[i]);
    return sum;
}

/* to += factor·(x rotated by distance; sign −1: rotated back) */
static void add_turned(const attention *a, double *to, const real *x, int distance, double sign, double factor)
{
    size_t size = (size_t)a->shape->size;
    const double *turn = a->turns ? a->turns + (size_t)distance * size : NULL;
    for (size_t i = 0; i < size && !turn; i++) to[i] += factor * x[i];
    for (size_t i = 0; i + 1 < size && turn; i += 2) {
        to[i] += factor * (turn[i] * x[i] - sign * turn[i + 1] * x[i + 1]);
        to[i + 1] += factor * (turn[i] * x[i + 1] + sign * turn[i + 1] * x[i]);
    }
}

/* Fills `share` with the softmax of token t over rows first … carried + t; returns the log of its sum. */
static double soften(const attention *a, int first, int t)
{
    int row = a->s.carried + t;
    const real *q = row_at(a, row, 0);
    double top = -INFINITY, sum = 0;
    for (int r = first; r <= row; r++) {
        a->share[r - first] = turned_dot(a, q, row_at(a, r, 1), row - r) / sqrt(a->shape->size);
        if (!(a->share[r - first] <= top)) top = a->share[r - first];
    }
    for (int r = first; r <= row; r++) sum += a->share[r - first] = exp(a->share[r - first] - top);
    for (int r = first; r <= row; r++) a->share[r - first] /= sum;
    return top + log(sum);
}

static int start_of(const attention *a, const uint8_t *reset, int t, int start)
{
    return reset && reset[a->b * (size_t)a->shape->T + (size_t)t] ? a->s.carried + t : start;
}

static void attend(const attention *a, const mr_attn_fwd_args *args)
{
    const mr_attn *g = a->shape;
    size_t size = (size_t)g->size, T = (size_t)g->T;
    for (int t = 0, start = a->s.start; t < g->T; t++) {
        real *y = OUT(args->y) + (a->b * T + (size_t)t) * a->D + a->head * size;
        real *lse = OUT(args->lse) + (a->b * (size_t)g->heads + a->head) * T + (size_t)t;
        start = start_of(a, args->reset, t, start);
        int first = mr_attn_first(&a->s, start, t), row = a->s.carried + t;
        *lse = (real)(t < a->s.real ? soften(a, first, t) : 0);
        for (size_t i = 0; i < size; i++) {
            double sum = 0;
            for (int r = first; t < a->s.real && r <= row; r++) sum += a->share[r - first] * row_at(a, r, 2)[i];
            y[i] = (real)sum;
        }
    }
}

static void keep_cache(const attention *a, mr_real *cache_out, mr_real *count_out)
{
    size_t D = a->D, window = (size_t)a->shape->window;
    real *out = OUT(cache_out) + a->b * window * 2 * D;
    for (size_t slot = 0; slot < window; slot++) {
        int source = mr_attn_source(&a->s, (int)slot);
        const real *from = source >= 0              ? a->qkv + (3 * (size_t)source + 1) * D
                           : source == MR_ATTN_KEPT ? a->cache + slot * 2 * D
                                                    : NULL;
        for (size_t i = 0; i < 2 * D; i++) out[slot * 2 * D + i] = from ? from[i] : 0;
    }
    OUT(count_out)[a->b] = mr_attn_count_out(&a->s);
}

static void attn_fwd(mr_dev *dev, const mr_attn_fwd_args *args)
{
    (void)dev;
    attention a;
    if (!attention_room(&a, &args->shape, 0)) return;
    for (size_t b = 0; b < (size_t)args->shape.B; b++) {
        attention_stream(&a, b, args->qkv, args->cache_in, args->count_in, args->reset, args->length);
        for (a.head = 0; a.head < (size_t)args->shape.heads; a.head++) attend(&a, args);
        if (args->cache_out) keep_cache(&a, args->cache_out, args->count_out);
    }
    mr_free(a.share);
}

/* ---- backward */

/* Adds the gradients that token t gives to its q, and to k and v of the rows that it saw. */
static void attend_bwd(const attention *a, int first, int t, const real *dy)
{
    size_t size = (size_t)a->shape->size;
    int row = a->s.carried + t;
    const real *q = row_at(a, row, 0);
    double mean = 0, scale = 1 / sqrt(a->shape->size);
    soften(a, first, t);
    for (int pass = 0; pass < 2; pass++)
        for (int r = first; r <= row; r++) {
            const real *v = row_at(a, r, 2);
            double share = a->share[r - first], dshare = 0;
            for (size_t i = 0; i < size; i++) dshare += (double)dy[i] * v[i];
            if (pass == 0) {
                mean += share * dshare;
                continue;
            }
            double ds = share * (dshare - mean) * scale;
            for (size_t i = 0; i < size; i++) a->dv[(size_t)r * size + i] += share * dy[i];
            add_turned(a, a->dq + (size_t)t * size, row_at(a, r, 1), row - r, -1, ds);
            add_turned(a, a->dk + (size_t)r * size, q, row - r, 1, ds);
        }
}

/* Writes the gradients of one head to qkv and dcache_in, adding what comes from dcache_out. */
static void spread(const attention *a, const mr_attn_bwd_args *args)
{
    size_t size = (size_t)a->shape->size, D = a->D, T = (size_t)a->shape->T, window = (size_t)a->shape->window,
           at = a->head * size;
    const real *dcache = args->dcache_out ? IN(args->dcache_out) + a->b * window * 2 * D + at : NULL;
    real *to = OUT(args->qkv) + a->b * T * 3 * D + at,
         *before = args->dcache_in ? OUT(args->dcache_in) + a->b * window * 2 * D + at : NULL;
    for (size_t slot = 0; before && slot < window; slot++)
        for (size_t i = 0; i < 2 * size; i++) {
            size_t place = (2 * slot + i / size) * D + i % size;
            before[place] = dcache && a->cache && mr_attn_source(&a->s, (int)slot) == MR_ATTN_KEPT ? dcache[place] : 0;
        }
    for (size_t r = 0; r < (size_t)a->s.carried + T; r++) {
        const int t = (int)r - a->s.carried,
                  slot = t < 0 ? mr_attn_slot_in(&a->s, a->count, (int)r) : mr_attn_slot_out(&a->s, t);
        const real *more = t >= 0 && slot >= 0 && dcache ? dcache + 2 * (size_t)slot * D : NULL;
        for (size_t i = 0; i < size; i++) {
            double dk = a->dk[r * size + i], dv = a->dv[r * size + i];
            if (t >= 0) {
                real *token = to + 3 * (size_t)t * D + i;
                token[0] = (real)a->dq[(size_t)t * size + i];
                token[D] = (real)(dk + (more ? more[i] : 0));
                token[2 * D] = (real)(dv + (more ? more[D + i] : 0));
            } else if (before) {
                before[2 * (size_t)slot * D + i] += dk;
                before[(2 * (size_t)slot + 1) * D + i] += dv;
            }
        }
    }
}

static void attn_bwd(mr_dev *dev, const mr_attn_bwd_args *args)
{
    (void)dev;
    attention a;
    const mr_attn *g = &args->shape;
    size_t size = (size_t)g->size, T = (size_t)g->T, rows = 3 * T + 2 * (size_t)g->window;
    if (!attention_room(&a, g, 1)) return;
    for (size_t b = 0; b < (size_t)g->B; b++) {
        attention_stream(&a, b, args->qkv, args->cache_in, args->count_in, args->reset, args->length);
        for (a.head = 0; a.head < (size_t)g->heads; a.head++) {
            memset(a.dq, 0, rows * size * sizeof *a.dq);
            for (int t = 0, start = a.s.start; t < a.s.real; t++) {
                start = start_of(&a, args->reset, t, start);
                attend_bwd(&a, mr_attn_first(&a.s, start, t), t,
                           IN(args->dy) + (b * T + (size_t)t) * a.D + a.head * size);
            }
            spread(&a, args);
        }
        if (args->dcount_in) OUT(args->dcount_in)[b] = 0;
    }
    mr_free(a.share);
}

/* ---- learned positions */

static void position_fwd(mr_dev *dev, const mr_position_fwd_args *a)
{
    (void)dev;
    size_t D = (size_t)a->D, T = (size_t)a->T;
    for (size_t b = 0; b < (size_t)a->B; b++) {
        int place = a->count_in ? mr_attn_count(IN(a->count_in)[b], a->window) % a->window : 0;
        for (size_t n = b * T; n < (b + 1) * T; n++, place = (place + 1) % a->window) {
            if (a->reset && a->reset[n]) place = 0;
            a->ids[n] = place;
            for (size_t d = 0; d < D; d++)
                OUT(a->y)[n * D + d] = IN(a->x)[n * D + d] + IN(a->table)[(size_t)place * D + d];
        }
    }
}
