/* GRU and LSTM, token by token. `saved` holds [N, G·H] input projections, which become the gates and, in the backward,
 * the gradients of the gates' arguments; then [N, H]: r·h' (gru before), s_n (gru after) or c (lstm); then a few rows
 * of doubles. */

enum { RNN_ROWS = 10 }; /* rows of H doubles: a state, sums, carries */

static size_t rnn_stored(mr_rnn kind, int B, int T, int H)
{
    size_t bytes = (size_t)B * (size_t)T * (size_t)H * (size_t)(mr_rnn_gates(kind) + 1) * sizeof(real);
    return (bytes + sizeof(double) - 1) / sizeof(double) * sizeof(double);
}

static size_t rnn_saved(mr_dev *dev, mr_rnn kind, int B, int T, int H)
{
    (void)dev;
    return rnn_stored(kind, B, T, H) + sizeof(double) + RNN_ROWS * (size_t)H * sizeof(double);
}

/* One stream: where its parts of `saved` lie, and its rows of doubles. */
typedef struct rnn_stream {
    size_t T, H, wide, real_T;
    real *gates, *extra; /* [T, G·H], [T, H] */
    double *state;       /* [2, H] h and c before the token */
    double *sums;        /* [4, H] forward: s; backward: gradients of the gates' arguments in s */
    double *carry;       /* [2, H] backward: gradient of the state after the token */
    double *start;       /* [2, H] backward: what reached h_init */
} rnn_stream;

static rnn_stream rnn_stream_of(mr_rnn kind, int B, int T, int H, void *saved, const int32_t *length, size_t b)
{
    rnn_stream s = {.T = (size_t)T, .H = (size_t)H, .wide = (size_t)(H * mr_rnn_gates(kind))};
    s.real_T = (size_t)real_tokens(length, (int)b, T);
    s.gates = (real *)saved + b * s.T * s.wide;
    s.extra = (real *)saved + (size_t)B * s.T * s.wide + b * s.T * s.H;
    char *rows = (char *)saved + rnn_stored(kind, B, T, H);
    rows += (sizeof(double) - (uintptr_t)rows % sizeof(double)) % sizeof(double);
    s.state = (double *)rows;
    s.sums = s.state + 2 * s.H;
    s.carry = s.sums + 4 * s.H;
    s.start = s.carry + 2 * s.H;
    return s;
}

/* sums[j] = b[j] + Σ_k W[j, k]·h[k] for rows first … first+rows−1 of W_hh. */
static void rnn_product(const rnn_stream *s, const mr_real *W, const mr_real *b, const double *h, size_t first,
                        size_t rows)
{
    for (size_t j = first; j < first + rows; j++) {
        double v = IN(b)[j];
        for (size_t k = 0; k < s->H; k++) v += IN(W)[j * s->H + k] * h[k];
        s->sums[j] = v;
    }
}

static void lstm_step(const mr_rnn_fwd_args *a, const rnn_stream *s, size_t t)
{
    const size_t H = s->H;
    real *g = s->gates + t * s->wide;
    rnn_product(s, a->W_hh, a->b_hh, s->state, 0, 4 * H);
    for (size_t j = 0; j < H; j++) {
        double i = sigmoid(g[j] + s->sums[j]), f = sigmoid(g[H + j] + s->sums[H + j]);
        double n = tanh(g[2 * H + j] + s->sums[2 * H + j]), o = sigmoid(g[3 * H + j] + s->sums[3 * H + j]);
        double c = f * s->state[H + j] + i * n;
        s->state[H + j] = c;
        s->state[j] = o * tanh(c);
        g[j] = (real)i, g[H + j] = (real)f, g[2 * H + j] = (real)n, g[3 * H + j] = (real)o;
        s->extra[t * H + j] = (real)c;
    }
}

static void gru_step(const mr_rnn_fwd_args *a, const rnn_stream *s, size_t t)
{
    const size_t H = s->H;
    real *g = s->gates + t * s->wide, *extra = s->extra + t * H;
    double *rh = s->carry; /* free in the forward */
    rnn_product(s, a->W_hh, a->b_hh, s->state, 0, 3 * H);
    for (size_t j = 0; j < H; j++) {
        g[j] = (real)sigmoid(g[j] + s->sums[j]);
        g[H + j] = (real)sigmoid(g[H + j] + s->sums[H + j]);
        rh[j] = g[j] * s->state[j];
    }
    if (a->kind == MR_GRU_BEFORE) rnn_product(s, a->W_hh, a->b_hh, rh, 2 * H, H);
    for (size_t j = 0; j < H; j++) {
        double r = a->kind == MR_GRU_BEFORE ? 1 : g[j], z = g[H + j], n = tanh(g[2 * H + j] + r * s->sums[2 * H + j]);
        extra[j] = (real)(a->kind == MR_GRU_BEFORE ? rh[j] : s->sums[2 * H + j]);
        s->state[j] = (1 - z) * n + z * s->state[j];
        g[2 * H + j] = (real)n;
    }
}

static void rnn_stream_fwd(const mr_rnn_fwd_args *a, size_t b)
{
    rnn_stream s = rnn_stream_of(a->kind, a->B, a->T, a->H, a->saved, a->length, b);
    const size_t S = (size_t)mr_rnn_state(a->kind, a->H);
    for (size_t j = 0; j < S; j++) s.state[j] = a->h_in ? IN(a->h_in)[b * S + j] : 0;
    for (size_t t = 0; t < s.T; t++) {
        real *h = OUT(a->h) + (b * s.T + t) * s.H;
        for (size_t j = 0; j < S && starts(a->h_in, a->reset, b, t, s.T) && t < s.real_T; j++)
            s.state[j] = a->h_init ? IN(a->h_init)[j] : 0;
        if (t < s.real_T) (a->kind == MR_LSTM ? lstm_step : gru_step)(a, &s, t);
        for (size_t j = 0; j < s.H; j++) h[j] = t < s.real_T ? (real)s.state[j] : 0;
    }
    for (size_t j = 0; a->h_out && j < S; j++) OUT(a->h_out)[b * S + j] = (real)s.state[j];
}

static void rnn_fwd(mr_dev *dev, const mr_rnn_fwd_args *a)
{
    if (a->W_ih)
        linear_fwd(dev, &(mr_linear_fwd_args){.M = a->B * a->T,
                                              .N = a->H * mr_rnn_gates(a->kind),
                                              .K = a->D,
                                              .x = a->x,
                                              .W = a->W_ih,
                                              .b = a->b_ih,
                                              .y = (mr_act *)a->saved});
    for (size_t b = 0; b < (size_t)a->B; b++) rnn_stream_fwd(a, b);
}

/* ---- backward */

/* Element j of the state before token t. */
static double rnn_before(const mr_rnn_bwd_args *a, const rnn_stream *s, size_t b, size_t t, size_t j)
{
    if (starts(a->h_in, a->reset, b, t, s->T)) return a->h_init ? IN(a->h_init)[j] : 0;
    if (t == 0) return IN(a->h_in)[b * (size_t)mr_rnn_state(a->kind, a->H) + j];
    return j < s->H ? IN(a->h)[(b * s->T + t - 1) * s->H + j] : s->extra[(t - 1) * s->H + j - s->H];
}

/* Σ over rows first … first+rows−1 of W_hh of W[j, k]·sums[j]. */
static double rnn_back(const mr_rnn_bwd_args *a, const rnn_stream *s, size_t first, size_t rows, size_t k)
{
    double v = 0;
    for (size_t j = first; j < first + rows; j++) v += IN(a->W_hh)[j * s->H + k] * s->sums[j];
    return v;
}

/* Takes the gradient of h in carry; leaves those of the gates' arguments, and in carry that of the previous state. */
static void lstm_step_bwd(const mr_rnn_bwd_args *a, const rnn_stream *s, size_t b, size_t t)
{
    const size_t H = s->H;
    real *pre = s->gates + t * s->wide;
    for (size_t j = 0; j < H; j++) {
        double i = pre[j], f = pre[H + j], g = pre[2 * H + j], o = pre[3 * H + j], c = tanh(s->extra[t * H + j]);
        double dh = s->carry[j], dc = s->carry[H + j] + dh * o * (1 - c * c);
        s->carry[H + j] = dc * f;
        s->sums[j] = dc * g * i * (1 - i);
        s->sums[H + j] = dc * rnn_before(a, s, b, t, H + j) * f * (1 - f);
        s->sums[2 * H + j] = dc * i * (1 - g * g);
        s->sums[3 * H + j] = dh * c * o * (1 - o);
    }
    for (size_t j = 0; j < H; j++) s->carry[j] = rnn_back(a, s, 0, 4 * H, j);
    for (size_t j = 0; j < 4 * H; j++) pre[j] = (real)s->sums[j];
}

static void gru_step_bwd(const mr_rnn_bwd_args *a, const rnn_stream *s, size_t b, size_t t)
{
    const size_t H = s->H;
    const int before = a->kind == MR_GRU_BEFORE;
    real *pre = s->gates + t * s->wide, *extra = s->extra + t * H;
    for (size_t j = 0; j < H; j++) {
        double r = pre[j], z = pre[H + j], n = pre[2 * H + j], dh = s->carry[j];
        double dn = dh * (1 - z) * (1 - n * n);
        s->sums[H + j] = dh * (rnn_before(a, s, b, t, j) - n) * z * (1 - z);
        s->sums[2 * H + j] = before ? dn : dn * r;
        s->sums[j] = dn * extra[j] * r * (1 - r); /* after: s_n is in extra */
        s->carry[j] = dh * z;
        pre[2 * H + j] = (real)dn;
        if (!before) extra[j] = (real)(dn * r);
    }
    for (size_t j = 0; before && j < H; j++) {
        double r = pre[j], drh = rnn_back(a, s, 2 * H, H, j);
        s->sums[j] = drh * rnn_before(a, s, b, t, j) * r * (1 - r);
        s->carry[j] += drh * r;
    }
    for (size_t j = 0; j < H; j++) s->carry[j] += rnn_back(a, s, 0, before ? 2 * H : 3 * H, j);
    for (size_t j = 0; j < 2 * H; j++) pre[j] = (real)s->sums[j];
}

static void rnn_stream_bwd(const mr_rnn_bwd_args *a, size_t b)
{
    rnn_stream s = rnn_stream_of(a->kind, a->B, a->T, a->H, a->saved, a->length, b);
    const size_t S = (size_t)mr_rnn_state(a->kind, a->H);
    for (size_t j = 0; j < S; j++) s.carry[j] = a->dh_out ? IN(a->dh_out)[b * S + j] : 0;
    for (size_t j = 0; j < S; j++) s.start[j] = 0;
    for (size_t t = s.T; t-- > 0;) {
        if (t >= s.real_T) {
            for (size_t j = 0; j < s.wide; j++) s.gates[t * s.wide + j] = 0;
            continue;
        }
        for (size_t j = 0; j < s.H; j++) s.carry[j] += IN(a->dh)[(b * s.T + t) * s.H + j];
        (a->kind == MR_LSTM ? lstm_step_bwd : gru_step_bwd)(a, &s, b, t);
        for (size_t j = 0; j < S && starts(a->h_in, a->reset, b, t, s.T); j++) {
            s.start[j] += s.carry[j];
            s.carry[j] = 0;
        }
    }
    for (size_t j = 0; a->dh_in && j < S; j++) OUT(a->dh_in)[b * S + j] = (real)s.carry[j];
    for (size_t j = 0; a->dh_init && j < S; j++) OUT(a->dh_init)[j] += (real)s.start[j];
}

/* dW_hh[j, ·] and db_hh[j]: the gradient of s_j times what W_hh was multiplied with. */
static void rnn_row_bwd(const mr_rnn_bwd_args *a, size_t j)
{
    const size_t H = (size_t)a->H;
    const int of_n = a->kind != MR_LSTM && j >= 2 * H;
    for (size_t k = 0; k <= H; k++) { /* k = H: the bias */
        real *to = k < H ? OUT(a->dW_hh) + j * H + k : OUT(a->db_hh) + j;
        double v = *to;
        for (size_t b = 0; b < (size_t)a->B; b++) {
            rnn_stream s = rnn_stream_of(a->kind, a->B, a->T, a->H, a->saved, a->length, b);
            for (size_t t = 0; t < s.real_T; t++) {
                double ds = of_n && a->kind == MR_GRU_AFTER ? s.extra[t * H + j - 2 * H] : s.gates[t * s.wide + j];
                if (k == H) v += ds;
                else
                    v += ds *
                         (of_n && a->kind == MR_GRU_BEFORE ? (double)s.extra[t * H + k] : rnn_before(a, &s, b, t, k));
            }
        }
        *to = (real)v;
    }
}

static void rnn_bwd(mr_dev *dev, const mr_rnn_bwd_args *a)
{
    int M = a->B * a->T, N = a->H * mr_rnn_gates(a->kind);
    for (size_t b = 0; b < (size_t)a->B; b++) rnn_stream_bwd(a, b);
    for (size_t j = 0; j < (size_t)N; j++) rnn_row_bwd(a, j);
    if (!a->W_ih) return;
    linear_bwd_x(
        dev, &(mr_linear_bwd_x_args){
                 .M = M, .N = N, .K = a->D, .dy = a->saved, .W = a->W_ih, .accumulate = a->accumulate, .dx = a->dx});
    linear_bwd_w(dev, &(mr_linear_bwd_w_args){
                          .M = M, .N = N, .K = a->D, .dy = a->saved, .x = a->x, .dW = a->dW_ih, .db = a->db_ih});
}
