/* Gates and scan. Every function is written once, with the kind of gates and of candidate as compile-time constants;
 * the table at the end instantiates it for each pair. Channels are processed row by row, so that memory is read in one
 * direction; the backward goes strictly downwards in time and in channels. */
typedef struct gates {
    vf a, b, c;      /* h = a·h + b, b = keep·c */
    vf keep;         /* factor of the candidate */
    vf slope_a;      /* ∂a/∂(its argument) = a·(1 − a); for minLSTM without normalisation, of the forget gate */
    vf slope_b;      /* that of the input gate */
    vf slope_c;      /* ∂c/∂v */
    vf not_p, not_k; /* σ(−p), σ(−k), normalised gates only */
    vf lost;         /* signed: −∂keep/∂a */
} gates;

INLINE vf candidate(int kind, vf v, vf *slope)
{
    if (kind == MR_LINEAR) {
        *slope = v_set(1.0f);
        return v;
    }
    if (kind == MR_TANH) {
        vf c = v_tanh(v);
        *slope = 1.0f - c * c;
        return c;
    }
    const vf zero = v_set(0.0f);
    vf e = v_exp_fall(v), other = v_reciprocal(1.0f + e), small = e * other; /* σ(−v) and σ(v) for v < 0 */
    *slope = v_if_less(v, zero, small * other, v_set(1.0f));
    return v_if_less(v, zero, small, v + 0.5f);
}

/* σ(d) and σ(−d) with d = softplus(−k) − softplus(−p), that is f/(f + i) and i/(f + i) for f = σ(p), i =
 * σ(k). Each of f and i is exp(min(x, 0))/(1 + exp(−|x|)); both numerators are divided by the larger one,
 * so that 0/0 cannot occur. */
INLINE void normalised_gates(vf p, vf k, gates *g)
{
    const vf zero = v_set(0.0f), one = v_set(1.0f);
    vf ep = v_exp_fall(p), ek = v_exp_fall(k);
    vf gap = v_min(zero, p) - v_min(zero, k), less = v_exp_fall(gap);
    vf f = (1.0f + ek) * v_if_less(gap, zero, less, one), i = (1.0f + ep) * v_if_less(gap, zero, one, less);
    vf r = v_reciprocal(f + i);
    g->a = f * r;
    g->keep = i * r;
    g->slope_a = g->a * g->keep;
    g->not_p = v_reciprocal(1.0f + ep) * v_if_less(p, zero, one, ep);
    g->not_k = v_reciprocal(1.0f + ek) * v_if_less(k, zero, one, ek);
}

INLINE int is_signed(int kind) { return kind >= MR_GATES_SIGNED_GRU; }
INLINE int has_two_gates(int kind) { return kind == MR_GATES_GRU || kind == MR_GATES_SIGNED_GRU; }

/* a = clamp(reach·tanh(q), −1, 1); comparisons are such that NaN stays NaN. */
INLINE void signed_gates(int kind, vf q, vf k, gates *g)
{
    const vf zero = v_set(0.0f), one = v_set(1.0f), minus = v_set(-1.0f);
    const float reach = (float)MR_SIGNED_REACH;
    vf t = v_tanh(q), wide = reach * t;
    g->a = v_if_less(one, wide, one, v_if_less(wide, minus, minus, wide));
    g->slope_a = v_if_less(v_abs(wide), one, reach * (1.0f - t * t), zero);
    vf rest = 1.0f - v_abs(g->a), sign = v_if_less(g->a, zero, minus, one);
    if (kind == MR_GATES_SIGNED_GRU) {
        g->keep = rest;
        g->lost = sign;
        return;
    }
    vf not_i, i = v_sigmoid_pair(k, &not_i);
    const int normalised = kind == MR_GATES_SIGNED_LSTM_NORM;
    g->keep = normalised ? rest * i : i;
    g->slope_b = normalised ? rest * i * not_i : i * not_i;
    g->lost = normalised ? sign * i : zero;
}

/* p is only used for minLSTM. */
INLINE gates make_gates(int kind, int cand, vf p, vf k, vf v)
{
    gates g = {0};
    g.c = candidate(cand, v, &g.slope_c);
    if (is_signed(kind)) {
        signed_gates(kind, has_two_gates(kind) ? k : p, k, &g);
    } else if (kind == MR_GATES_GRU) {
        g.keep = v_sigmoid_pair(k, &g.a);
        g.slope_a = g.a * g.keep;
    } else if (kind == MR_GATES_LSTM) {
        vf not_f, not_i;
        g.a = v_sigmoid_pair(p, &not_f);
        g.keep = v_sigmoid_pair(k, &not_i);
        g.slope_a = g.a * not_f;
        g.slope_b = g.keep * not_i;
    } else {
        normalised_gates(p, k, &g);
    }
    g.b = g.keep * g.c;
    return g;
}

INLINE gates load_gates(int kind, int cand, const float *pre, size_t gate, int n)
{
    if (has_two_gates(kind))
        return make_gates(kind, cand, v_set(0.0f), v_load_part(pre, n), v_load_part(pre + gate, n));
    return make_gates(kind, cand, v_load_part(pre, n), v_load_part(pre + gate, n), v_load_part(pre + 2 * gate, n));
}

INLINE void fwd_step(int kind, int cand, const float *pre, size_t gate, const float *before, float *h, int n)
{
    gates g = load_gates(kind, cand, pre, gate, n);
    v_store_part(h, g.a * v_load_part(before, n) + g.b, n);
}

/* Prefetching: the arithmetic is too long for the hardware to look ahead far enough. Rows some way ahead are prefetched
 * into the L2 cache, which can have more lines outstanding, and the next row into L1. Whole rows are prefetched line by
 * line, across the gates: memory that is read in one direction arrives sooner. */
typedef struct ahead {
    size_t channel, gate; /* at channel c, gate g: c·channel + g·gate */
    size_t far;           /* rows */
} ahead;

INLINE ahead ahead_of(int kind, const mr_run *run)
{
    enum { FAR = 4096 }; /* floats */
    const size_t gates_here = has_two_gates(kind) ? 2 : 3, far = FAR / run->pre_row + 2;
    return (size_t)run->n == run->gate ? (ahead){gates_here, LANES, far} : (ahead){1, run->gate, far};
}

INLINE void ask_for_gates(int kind, const float *near, const float *far, ahead order, size_t gate, int c)
{
    const float *at = far + (size_t)c * order.channel;
    __builtin_prefetch(at, 0, 2);
    __builtin_prefetch(at + order.gate, 0, 2);
    if (!has_two_gates(kind)) __builtin_prefetch(at + 2 * order.gate, 0, 2);
    __builtin_prefetch(near + c);
    __builtin_prefetch(near + gate + c);
    if (!has_two_gates(kind)) __builtin_prefetch(near + 2 * gate + c);
}

INLINE void scan_fwd(int kind, int cand, const mr_run *given)
{
    const mr_run run = *given; /* a copy, so that the compiler knows that no store changes it */
    const ahead order = ahead_of(kind, &run);
    const int whole = run.n / LANES * LANES;
    const float *before = run.start, *pre = run.pre;
    float *h = run.h;
    for (int t = 0; t < run.rows; t++, pre += run.pre_row, before = h, h += run.h_row) {
        const float *far_pre = pre + order.far * run.pre_row, *far_h = h + order.far * run.h_row;
        for (int c = 0; c < whole; c += LANES) {
            ask_for_gates(kind, pre + run.pre_row, far_pre, order, run.gate, c);
            __builtin_prefetch(far_h + c, 0, 2);
            __builtin_prefetch(h + run.h_row + c, 1);
            fwd_step(kind, cand, pre + c, run.gate, before + c, h + c, LANES);
        }
        if (whole < run.n) fwd_step(kind, cand, pre + whole, run.gate, before + whole, h + whole, run.n - whole);
    }
}

INLINE void bwd_step(int kind, int cand, float *pre, size_t gate, const float *before, const float *dh, float *carry,
                     int n)
{
    gates g = load_gates(kind, cand, pre, gate, n);
    vf d = v_load_part(dh, n) + v_load_part(carry, n), h = v_load_part(before, n);
    v_store_part(carry, g.a * d, n);
    vf dv = d * g.keep * g.slope_c, dq = d * g.slope_a * (h - g.lost * g.c); /* dq: signed */
    if (has_two_gates(kind)) {
        v_store_part(pre, is_signed(kind) ? dq : d * g.slope_a * (g.c - h), n);
        v_store_part(pre + gate, dv, n);
        return;
    }
    vf dp = d * g.slope_a * h, dk = d * g.slope_b * g.c;
    if (kind == MR_GATES_LSTM_NORM) {
        vf dd = d * g.slope_a * (h - g.c);
        dp = dd * g.not_p;
        dk = -dd * g.not_k;
    }
    if (is_signed(kind)) dp = dq;
    v_store_part(pre, dp, n);
    v_store_part(pre + gate, dk, n);
    v_store_part(pre + 2 * gate, dv, n);
}

INLINE void scan_bwd(int kind, int cand, const mr_run *given)
{
    const mr_run run = *given;
    const ahead order = ahead_of(kind, &run);
    const int whole = run.n / LANES * LANES, rest = run.n - whole;
    for (int t = run.rows - 1; t >= 0; t--) {
        float *pre = run.pre + (size_t)t * run.pre_row;
        const float *dh = run.dh + (size_t)t * run.h_row;
        const float *before = t ? run.h + (size_t)(t - 1) * run.h_row : run.start;
        const float *far_pre = pre - order.far * run.pre_row;
        const size_t far = order.far * run.h_row;
        if (rest) bwd_step(kind, cand, pre + whole, run.gate, before + whole, dh + whole, run.carry + whole, rest);
        for (int c = whole - LANES; c >= 0; c -= LANES) {
            ask_for_gates(kind, pre - run.pre_row, far_pre, order, run.gate, c);
            __builtin_prefetch(dh - far + c, 0, 2);
            __builtin_prefetch(before - far + c, 0, 2);
            __builtin_prefetch(dh - run.h_row + c);
            __builtin_prefetch(before - run.h_row + c);
            bwd_step(kind, cand, pre + c, run.gate, before + c, dh + c, run.carry + c, LANES);
        }
    }
}

/* The effect of the rows on the state before them, or on the carry after them; `backward`
 * is a compile-time constant. */
INLINE void scan_effect(int kind, int cand, const mr_run *given, int backward)
{
    const mr_run run = *given;
    const ahead order = ahead_of(kind, &run);
    for (int i = 0; i < run.rows; i++) {
        const int t = backward ? run.rows - 1 - i : i;
        const float *pre = run.pre + (size_t)t * run.pre_row, *dh = backward ? run.dh + (size_t)t * run.h_row : NULL;
        const float *next = backward ? pre - run.pre_row : pre + run.pre_row;
        const float *far = backward ? pre - order.far * run.pre_row : pre + order.far * run.pre_row;
        for (int c = 0; c < run.n; c += LANES) {
            const int n = run.n - c;
            ask_for_gates(kind, next, far, order, run.gate, c);
            gates g = load_gates(kind, cand, pre + c, run.gate, n);
            vf drive = v_load_part(run.carry + c, n);
            drive = backward ? (drive + v_load_part(dh + c, n)) * g.a : g.a * drive + g.b;
            v_store_part(run.carry + c, drive, n);
            v_store_part(run.decay + c, v_load_part(run.decay + c, n) * g.a, n);
        }
    }
}

/* log(eˣ + eʸ), −inf where both are. */
INLINE vf v_log_add(vf x, vf y)
{
    vf large = v_if_less(x, y, y, x), gap = -v_abs(x - y);
    vf sum = large + v_log1p_unit(v_exp(gap));
    return v_if_less(v_set(-INFINITY), large, sum, large + x + y);
}

/* log a and log b of one vector; positive candidate. */
INLINE void log_gates(int kind, const float *pre, size_t gate, int n, vf *log_a, vf *log_b)
{
    const float *k_at = kind == MR_GATES_GRU ? pre : pre + gate;
    vf k = v_load_part(k_at, n), v = v_load_part(k_at + gate, n);
    vf log_c = v_if_less(v, v_set(0.0f), -v_softplus(-v), v_log(v_max(v_set(0.0f), v) + 0.5f));
    if (kind == MR_GATES_GRU) {
        *log_a = -v_softplus(k);
        *log_b = log_c - v_softplus(-k);
        return;
    }
    vf p = v_load_part(pre, n);
    *log_a = -v_softplus(-p);
    *log_b = log_c - v_softplus(-k);
    if (kind == MR_GATES_LSTM_NORM) {
        vf d = v_softplus(-k) - v_softplus(-p);
        *log_a = -v_softplus(-d);
        *log_b = log_c - v_softplus(d);
    }
}

/* The paper's way: s, the running sum of log a, and the running log-sum-exp of log b − s. */
INLINE void scan_log(int kind, const mr_run *run)
{
    float *sum = run->carry, *mass = run->carry + run->n;
    for (int c = 0; c < run->n; c += LANES) {
        v_store_part(sum + c, v_set(0.0f), run->n - c);
        v_store_part(mass + c, v_log(v_load_part(run->start + c, run->n - c)), run->n - c);
    }
    for (int t = 0; t < run->rows; t++)
        for (int c = 0; c < run->n; c += LANES) {
            int n = run->n - c;
            vf log_a, log_b;
            log_gates(kind, run->pre + (size_t)t * run->pre_row + c, run->gate, n, &log_a, &log_b);
            vf s = v_load_part(sum + c, n) + log_a;
            vf l = v_log_add(v_load_part(mass + c, n), log_b - s);
            v_store_part(sum + c, s, n);
            v_store_part(mass + c, l, n);
            v_store_part(run->h + (size_t)t * run->h_row + c, v_exp(s + l), n);
        }
}

/* ---- a and b given: the recurrence alone */

static void given_fwd(const mr_run *given)
{
    const mr_run run = *given;
    const float *before = run.start;
    for (size_t t = 0, at = 0; t < (size_t)run.rows; t++, before = run.h + at, at += run.h_row)
        for (int c = 0; c < run.n; c += LANES) {
            const int n = run.n - c;
            vf h = v_load_part(run.a + at + c, n) * v_load_part(before + c, n) + v_load_part(run.b + at + c, n);
            v_store_part(run.h + at + c, h, n);
        }
}

static void given_bwd(const mr_run *given)
{
    const mr_run run = *given;
    for (size_t t = (size_t)run.rows; t-- > 0;) {
        const size_t at = t * run.h_row;
        const float *before = t ? run.h + at - run.h_row : run.start;
        for (int c = 0; c < run.n; c += LANES) {
            const int n = run.n - c;
            vf d = v_load_part(run.dh + at + c, n) + v_load_part(run.carry + c, n), a = v_load_part(run.a + at + c, n);
            v_store_part(run.carry + c, a * d, n);
            v_store_part(run.da + at + c, d * v_load_part(before + c, n), n);
            v_store_part(run.db + at + c, d, n);
        }
    }
}

INLINE void given_effect(const mr_run *given, int backward)
{
    const mr_run run = *given;
    for (int i = 0; i < run.rows; i++) {
        const size_t at = (size_t)(backward ? run.rows - 1 - i : i) * run.h_row;
        for (int c = 0; c < run.n; c += LANES) {
            const int n = run.n - c;
            vf a = v_load_part(run.a + at + c, n), drive = v_load_part(run.carry + c, n);
            drive =
                backward ? (drive + v_load_part(run.dh + at + c, n)) * a : a * drive + v_load_part(run.b + at + c, n);
            v_store_part(run.carry + c, drive, n);
            v_store_part(run.decay + c, v_load_part(run.decay + c, n) * a, n);
        }
    }
}

static void given_effect_fwd(const mr_run *run) { given_effect(run, 0); }
static void given_effect_bwd(const mr_run *run) { given_effect(run, 1); }

static void candidate_row(mr_candidate kind, int n, const float *v, float *c)
{
    vf slope;
    for (int i = 0; i < n; i += LANES)
        v_store_part(c + i, candidate((int)kind, v_load_part(v + i, n - i), &slope), n - i);
}

static void candidate_bwd_row(mr_candidate kind, int n, const float *v, const float *dc, float *dv)
{
    for (int i = 0; i < n; i += LANES) {
        vf slope;
        candidate((int)kind, v_load_part(v + i, n - i), &slope);
        v_store_part(dv + i, v_load_part(dv + i, n - i) + v_load_part(dc + i, n - i) * slope, n - i);
    }
}

#define SCAN_FUNCTIONS(name, kind, cand)                                                                               \
    static void fwd_##name(const mr_run *run) { scan_fwd(kind, cand, run); }                                           \
    static void bwd_##name(const mr_run *run) { scan_bwd(kind, cand, run); }                                           \
    static void effect_fwd_##name(const mr_run *run) { scan_effect(kind, cand, run, 0); }                              \
    static void effect_bwd_##name(const mr_run *run) { scan_effect(kind, cand, run, 1); }

#define SCAN_KIND(name, kind)                                                                                          \
    SCAN_FUNCTIONS(name##_positive, kind, MR_POSITIVE)                                                                 \
    SCAN_FUNCTIONS(name##_linear, kind, MR_LINEAR)                                                                     \
    SCAN_FUNCTIONS(name##_tanh, kind, MR_TANH)

#define SCAN_LOG(name, kind)                                                                                           \
    static void log_##name(const mr_run *run) { scan_log(kind, run); }

SCAN_KIND(gru, MR_GATES_GRU)
SCAN_KIND(lstm, MR_GATES_LSTM)
SCAN_KIND(lstm_norm, MR_GATES_LSTM_NORM)
SCAN_KIND(signed_gru, MR_GATES_SIGNED_GRU)
SCAN_KIND(signed_lstm, MR_GATES_SIGNED_LSTM)
SCAN_KIND(signed_lstm_norm, MR_GATES_SIGNED_LSTM_NORM)
SCAN_LOG(gru, MR_GATES_GRU)
SCAN_LOG(lstm, MR_GATES_LSTM)
SCAN_LOG(lstm_norm, MR_GATES_LSTM_NORM)

#define SCAN_ROW(prefix, name)                                                                                         \
    {                                                                                                                  \
        prefix##name##_positive, prefix##name##_linear, prefix##name##_tanh                                            \
    }
#define SCAN_TABLE(prefix)                                                                                             \
    {                                                                                                                  \
        SCAN_ROW(prefix, gru), SCAN_ROW(prefix, lstm), SCAN_ROW(prefix, lstm_norm), SCAN_ROW(prefix, signed_gru),      \
            SCAN_ROW(prefix, signed_lstm), SCAN_ROW(prefix, signed_lstm_norm)                                          \
    }
