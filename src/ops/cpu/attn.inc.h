/* Attention kernels on one row: rotation by a position, a softmax that is updated block by block, and its gradient. */

/* A shuffle that swaps neighbours. */
#if LANES == 16
#define NEIGHBOURS 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14
#elif LANES == 8
#define NEIGHBOURS 1, 0, 3, 2, 5, 4, 7, 6
#else
#define NEIGHBOURS 1, 0, 3, 2
#endif

/* turn is a row of the rotary table: cos, cos for each pair, then −sin, sin. */
INLINE vf v_turn(vf x, const float *turn, int at, int n, float sign)
{
    vf other = __builtin_shufflevector(x, x, NEIGHBOURS);
    return x * v_load_part(turn + at, n - at) + sign * other * v_load_part(turn + n + at, n - at);
}

static void turn_row(int n, const float *x, const float *turn, float sign, float *to)
{
    for (int i = 0; i < n; i += LANES) {
        vf v = v_load_part(x + i, n - i);
        v_store_part(to + i, turn ? v_turn(v, turn, i, n, sign) : v, n - i);
    }
}

static float turned_dot(int n, const float *q, const float *k, const float *turn)
{
    vf sum = v_set(0.0f);
    for (int i = 0; i < n; i += LANES) {
        vf v = v_load_part(q + i, n - i);
        sum += (turn ? v_turn(v, turn, i, n, 1.0f) : v) * v_load_part(k + i, n - i);
    }
    return v_sum(sum);
}

INLINE vf lanes_from(int first)
{
    vf lane = {0};
    for (int i = 0; i < LANES; i++) lane[i] = (float)i;
    return lane + (float)first;
}

/* v in columns from … end − 1, `other` elsewhere; `all` is a compile-time constant: the whole row is seen. */
INLINE vf seen(vf v, int at, const mr_soften *row, float other, int all)
{
    if (all) return v;
    vf column = lanes_from(at), out = v_set(other);
    return v_if_less(column, v_set((float)row->from), out, v_if_less(column, v_set((float)row->end), v, out));
}

INLINE int sees_all(const mr_soften *row) { return row->from <= 0 && row->end >= row->n && row->n % LANES == 0; }

INLINE float soften_as(mr_soften *row, int all)
{
    vf most = v_set(-INFINITY), sum = v_set(0.0f);
    for (int i = 0; i < row->n; i += LANES)
        most = v_max(most, seen(v_load_part(row->s + i, row->n - i), i, row, -INFINITY, all));
    float top = row->top;
    for (int i = 0; i < LANES; i++) top = most[i] * row->scale > top ? most[i] * row->scale : top;
    for (int i = 0; i < row->n; i += LANES) {
        vf v = v_exp(v_load_part(row->s + i, row->n - i) * row->scale - top);
        v = seen(v, i, row, 0.0f, all);
        v_store_part(row->s + i, v, row->n - i);
        sum += v;
    }
    float shrink = row->top == top ? 1.0f : expf(row->top - top);
    row->sum = row->sum * shrink + v_sum(sum);
    row->top = top;
    return shrink;
}

static float soften_row(mr_soften *row) { return sees_all(row) ? soften_as(row, 1) : soften_as(row, 0); }

INLINE void soften_bwd_as(const mr_soften *row, int all)
{
    for (int i = 0; i < row->n; i += LANES) {
        const int n = row->n - i;
        vf p = v_exp(v_load_part(row->s + i, n) * row->scale - row->top);
        p = seen(p, i, row, 0.0f, all);
        vf d = p * (v_load_part(row->ds + i, n) - row->mean) * row->scale;
        v_store_part(row->s + i, p, n);
        v_store_part(row->ds + i, d, n);
    }
}

static void soften_bwd_row(const mr_soften *row)
{
    if (sees_all(row)) soften_bwd_as(row, 1);
    else soften_bwd_as(row, 0);
}
