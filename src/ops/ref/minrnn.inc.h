/* minGRU and minLSTM: projection, gates, scan. */

static double candidate(mr_candidate kind, double v)
{
    if (kind == MR_LINEAR) return v;
    if (kind == MR_TANH) return tanh(v);
    return v >= 0 ? v + 0.5 : sigmoid(v);
}

static double candidate_slope(mr_candidate kind, double v)
{
    if (kind == MR_LINEAR) return 1;
    if (kind == MR_TANH) return 1 - tanh(v) * tanh(v);
    return v >= 0 ? 1 : sigmoid(v) * sigmoid(-v);
}

/* One token, one channel: h = a·h' + i·c. */
typedef struct gates {
    double a, i, c;
} gates;

/* transition = signed. */
static double signed_decay(double q)
{
    double a = MR_SIGNED_REACH * tanh(q);
    return a > 1 ? 1 : a < -1 ? -1 : a;
}

static double signed_slope(double q)
{
    double a = MR_SIGNED_REACH * tanh(q);
    return fabs(a) < 1 ? MR_SIGNED_REACH * (1 - tanh(q) * tanh(q)) : 0;
}

static gates signed_gates(const mr_cell *cell, const real *pre, size_t H)
{
    double a = signed_decay(pre[0]), rest = 1 - fabs(a);
    if (cell->kind == MR_MINGRU) return (gates){a, rest, candidate(cell->candidate, pre[H])};
    return (gates){a, (cell->normalize ? rest : 1) * sigmoid(pre[H]), candidate(cell->candidate, pre[2 * H])};
}

static void signed_gates_bwd(const mr_cell *cell, real *pre, size_t H, double da, double di)
{
    double q = pre[0], sign = signed_decay(q) < 0 ? -1 : 1, rest = 1 - fabs(signed_decay(q));
    if (cell->kind == MR_MINGRU) {
        pre[0] = (real)((da - sign * di) * signed_slope(q));
        return;
    }
    double k = pre[H], i = sigmoid(k), slope = i * sigmoid(-k);
    pre[0] = (real)((da - (cell->normalize ? sign * i * di : 0)) * signed_slope(q));
    pre[H] = (real)(di * (cell->normalize ? rest : 1) * slope);
}

/* `pre` points to the channel's first pre-activation; those of the other gates follow H apart. */
static gates gates_of(const mr_cell *cell, const real *pre, size_t H)
{
    if (cell->transition == MR_TRANSITION_SIGNED) return signed_gates(cell, pre, H);
    if (cell->kind == MR_MINGRU) return (gates){sigmoid(-pre[0]), sigmoid(pre[0]), candidate(cell->candidate, pre[H])};
    double p = pre[0], k = pre[H], c = candidate(cell->candidate, pre[2 * H]);
    if (!cell->normalize) return (gates){sigmoid(p), sigmoid(k), c};
    double d = softplus(-k) - softplus(-p);
    return (gates){sigmoid(d), sigmoid(-d), c};
}

/* Replaces the pre-activations by their gradients, given those of a, i and c. */
static void gates_bwd(const mr_cell *cell, real *pre, size_t H, double da, double di, double dc)
{
    gates g = gates_of(cell, pre, H);
    real *v = pre + (cell->kind == MR_MINGRU ? 1 : 2) * H;
    *v = (real)(dc * candidate_slope(cell->candidate, *v));
    if (cell->transition == MR_TRANSITION_SIGNED) {
        signed_gates_bwd(cell, pre, H, da, di);
        return;
    }
    if (cell->kind == MR_MINGRU) {
        pre[0] = (real)((di - da) * g.a * g.i);
        return;
    }
    double p = pre[0], k = pre[H];
    if (cell->normalize) { /* ∂d/∂p = σ(−p), ∂d/∂k = −σ(−k) */
        double dd = (da - di) * g.a * g.i;
        pre[0] = (real)(dd * sigmoid(-p));
        pre[H] = (real)(-dd * sigmoid(-k));
    } else {
        pre[0] = (real)(da * sigmoid(p) * sigmoid(-p));
        pre[H] = (real)(di * sigmoid(k) * sigmoid(-k));
    }
}

/* The paper's way: s = Σ log a, L = logcumsumexp(log b − s) with log h0 in front, h = exp(s + L). */
typedef struct log_scan {
    double s, L;
} log_scan;

static double log_add(double x, double y)
{
    double top = x > y ? x : y, low = x > y ? y : x;
    return top == -INFINITY ? top : top + log1p(exp(low - top));
}

static double log_step(log_scan *state, const gates *g)
{
    state->s += log(g->a);
    state->L = log_add(state->L, log(g->i) + log(g->c) - state->s);
    return exp(state->s + state->L);
}

static double start_state(const mr_cell *cell, const mr_real *h_init, size_t h)
{
    return h_init ? candidate(cell->candidate, IN(h_init)[h]) : 0;
}

/* Does a new sequence start before token t of row b? */
static int starts(const mr_real *h_in, const uint8_t *reset, size_t b, size_t t, size_t T)
{
    return (t == 0 && !h_in) || (reset && reset[b * T + t]);
}

static void scan_channel(const mr_minrnn_fwd_args *a, size_t b, size_t c)
{
    size_t T = (size_t)a->T, H = (size_t)a->H, wide = H * (size_t)mr_cell_gates(&a->cell);
    size_t real_T = (size_t)real_tokens(a->length, (int)b, a->T);
    double h = a->h_in ? IN(a->h_in)[b * H + c] : start_state(&a->cell, a->h_init, c);
    log_scan state = {0, log(h)};
    for (size_t t = 0; t < T; t++) {
        real *out = OUT(a->h) + (b * T + t) * H + c;
        if (t >= real_T) {
            *out = 0;
            continue;
        }
        gates g = gates_of(&a->cell, IN(a->saved) + (b * T + t) * wide + c, H);
        if (starts(a->h_in, a->reset, b, t, T)) {
            h = start_state(&a->cell, a->h_init, c);
            state = (log_scan){0, log(h)};
        }
        h = a->cell.scan == MR_SCAN_LOG ? log_step(&state, &g) : g.a * h + g.i * g.c;
        *out = (real)h;
    }
    if (a->h_out) OUT(a->h_out)[b * H + c] = (real)h;
}

static void minrnn_fwd(mr_dev *dev, const mr_minrnn_fwd_args *a)
{
    if (a->W)
        linear_fwd(dev, &(mr_linear_fwd_args){.M = a->B * a->T,
                                              .N = a->H * mr_cell_gates(&a->cell),
                                              .K = a->D,
                                              .x = a->x,
                                              .W = a->W,
                                              .b = a->b,
                                              .y = (mr_act *)a->saved});
    for (size_t b = 0; b < (size_t)a->B; b++)
        for (size_t c = 0; c < (size_t)a->H; c++) scan_channel(a, b, c);
}

/* The backward of one channel; returns the gradient that reached cand(h_init). */
static double scan_channel_bwd(const mr_minrnn_bwd_args *a, size_t b, size_t c)
{
    size_t T = (size_t)a->T, H = (size_t)a->H, wide = H * (size_t)mr_cell_gates(&a->cell);
    size_t real_T = (size_t)real_tokens(a->length, (int)b, a->T);
    double carry = a->dh_out ? IN(a->dh_out)[b * H + c] : 0, to_start = 0;
    for (size_t t = T; t-- > 0;) {
        real *pre = OUT(a->saved) + (b * T + t) * wide + c;
        if (t >= real_T) {
            for (size_t gate = 0; gate < wide / H; gate++) pre[gate * H] = 0;
            continue;
        }
        int start = starts(a->h_in, a->reset, b, t, T);
        double before = start   ? start_state(&a->cell, a->h_init, c)
                        : t > 0 ? IN(a->h)[(b * T + t - 1) * H + c]
                                : IN(a->h_in)[b * H + c];
        gates g = gates_of(&a->cell, pre, H);
        double dh = carry + IN(a->dh)[(b * T + t) * H + c];
        gates_bwd(&a->cell, pre, H, dh * before, dh * g.c, dh * g.i);
        carry = dh * g.a;
        if (!start) continue;
        to_start += carry;
        carry = 0;
    }
    if (!a->h_in) to_start += carry, carry = 0; /* a row without tokens */
    if (a->dh_in) OUT(a->dh_in)[b * H + c] = (real)carry;
    return to_start;
}

static void start_from_zero(const mr_minrnn_bwd_args *a, size_t rows)
{
    if (a->W) memset(a->dW, 0, rows * (size_t)a->D * sizeof(real));
    if (a->W && a->db) memset(a->db, 0, rows * sizeof(real));
    if (a->dh_init) memset(a->dh_init, 0, (size_t)a->H * sizeof(real));
}

static void minrnn_bwd(mr_dev *dev, const mr_minrnn_bwd_args *a)
{
    int M = a->B * a->T, N = a->H * mr_cell_gates(&a->cell);
    if (a->fresh) start_from_zero(a, (size_t)N);
    for (size_t c = 0; c < (size_t)a->H; c++) {
        double to_start = 0;
        for (size_t b = 0; b < (size_t)a->B; b++) to_start += scan_channel_bwd(a, b, c);
        if (a->dh_init) OUT(a->dh_init)[c] += to_start * candidate_slope(a->cell.candidate, IN(a->h_init)[c]);
    }
    if (!a->W) return;
    if (a->dx)
        linear_bwd_x(
            dev, &(mr_linear_bwd_x_args){
                     .M = M, .N = N, .K = a->D, .dy = a->saved, .W = a->W, .accumulate = a->accumulate, .dx = a->dx});
    linear_bwd_w(
        dev, &(mr_linear_bwd_w_args){.M = M, .N = N, .K = a->D, .dy = a->saved, .x = a->x, .dW = a->dW, .db = a->db});
}

/* ---- the recurrence alone ---- */

static void scan_given(const mr_scan_fwd_args *a, size_t b, size_t c)
{
    size_t T = (size_t)a->T, H = (size_t)a->H, real_T = (size_t)real_tokens(a->length, (int)b, a->T);
    double h = a->h_in ? IN(a->h_in)[b * H + c] : 0;
    for (size_t t = 0; t < T; t++) {
        size_t at = (b * T + t) * H + c;
        if (t < real_T && starts(a->h_in, a->reset, b, t, T)) h = 0;
        if (t < real_T) h = IN(a->a)[at] * h + IN(a->b)[at];
        OUT(a->h)[at] = t < real_T ? (real)h : 0;
    }
    if (a->h_out) OUT(a->h_out)[b * H + c] = (real)h;
}

static void scan_fwd(mr_dev *dev, const mr_scan_fwd_args *a)
{
    (void)dev;
    for (size_t b = 0; b < (size_t)a->B; b++)
        for (size_t c = 0; c < (size_t)a->H; c++) scan_given(a, b, c);
}

static void scan_given_bwd(const mr_scan_bwd_args *a, size_t b, size_t c)
{
    size_t T = (size_t)a->T, H = (size_t)a->H, real_T = (size_t)real_tokens(a->length, (int)b, a->T);
    double carry = a->dh_out ? IN(a->dh_out)[b * H + c] : 0;
    for (size_t t = T; t-- > 0;) {
        size_t at = (b * T + t) * H + c;
        int here = t < real_T, start = starts(a->h_in, a->reset, b, t, T);
        double before = start ? 0 : t > 0 ? IN(a->h)[at - H] : IN(a->h_in)[b * H + c];
        double decay = IN(a->a)[at], dh = carry + IN(a->dh)[at];
        OUT(a->da)[at] = here ? (real)(dh * before) : 0;
        OUT(a->db)[at] = here ? (real)dh : 0;
        if (here) carry = start ? 0 : dh * decay;
    }
    if (a->dh_in) OUT(a->dh_in)[b * H + c] = a->h_in ? (real)carry : 0;
}

static void scan_bwd(mr_dev *dev, const mr_scan_bwd_args *a)
{
    (void)dev;
    for (size_t b = 0; b < (size_t)a->B; b++)
        for (size_t c = 0; c < (size_t)a->H; c++) scan_given_bwd(a, b, c);
}
