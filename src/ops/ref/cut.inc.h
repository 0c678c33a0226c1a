/* What lets a sequence be cut in time: effects of chunks, rows of them, and the inputs that a convolution passes on. */

/* h or d, as A·(what was before) + C. */
typedef struct effect {
    double A, C;
} effect;

static effect minrnn_effect_of(const mr_minrnn_effect_args *a, size_t b, size_t c)
{
    const size_t T = (size_t)a->T, H = (size_t)a->H, wide = H * (size_t)mr_cell_gates(&a->cell);
    const size_t real_T = (size_t)real_tokens(a->length, (int)b, a->T);
    effect e = {1, 0};
    for (size_t i = 0; i < real_T; i++) {
        const size_t t = a->dh ? real_T - 1 - i : i;
        const gates g = gates_of(&a->cell, IN(a->pre) + (b * T + t) * wide + c, H);
        const int fresh = a->reset && a->reset[b * T + t];
        if (fresh && !a->dh) e = (effect){0, start_state(&a->cell, a->h_init, c)};
        e.C = a->dh ? g.a * (e.C + IN(a->dh)[(b * T + t) * H + c]) : g.a * e.C + g.i * g.c;
        e.A *= g.a;
        if (fresh && a->dh) e = (effect){0, 0};
    }
    return e;
}

static void minrnn_effect(mr_dev *dev, const mr_minrnn_effect_args *a)
{
    (void)dev;
    const size_t H = (size_t)a->H;
    for (size_t b = 0; b < (size_t)a->B; b++)
        for (size_t c = 0; c < H; c++) {
            const effect e = minrnn_effect_of(a, b, c);
            OUT(a->A)[b * H + c] = (real)e.A;
            OUT(a->C)[b * H + c] = (real)e.C;
        }
}

static effect sscan_effect_of(const mr_sscan_effect_args *a, size_t b, size_t e, size_t n)
{
    const size_t T = (size_t)a->T, E = (size_t)a->E, N = (size_t)a->N;
    const size_t real_T = (size_t)real_tokens(a->length, (int)b, a->T);
    const double rate = -exp(IN(a->A_log)[e * N + n]);
    effect x = {1, 0};
    for (size_t i = 0; i < real_T; i++) {
        const size_t t = a->dy ? real_T - 1 - i : i, at = (b * T + t) * E + e;
        const double step = softplus((double)IN(a->delta)[at] + IN(a->dt_bias)[e]), decay = exp(step * rate);
        const real *B = IN(a->bc) + (b * T + t) * 2 * N, *C = B + N;
        const int fresh = a->reset && a->reset[b * T + t];
        if (fresh && !a->dy) x = (effect){0, 0};
        x.C = a->dy ? decay * (x.C + IN(a->dy)[at] * silu(IN(a->z)[at]) * C[n])
                    : decay * x.C + step * B[n] * IN(a->u)[at];
        x.A *= decay;
        if (fresh && a->dy) x = (effect){0, 0};
    }
    return x;
}

static void sscan_effect(mr_dev *dev, const mr_sscan_effect_args *a)
{
    (void)dev;
    const size_t E = (size_t)a->E, N = (size_t)a->N;
    for (size_t b = 0; b < (size_t)a->B; b++)
        for (size_t n = 0; n < N; n++)
            for (size_t e = 0; e < E; e++) {
                const effect x = sscan_effect_of(a, b, e, n);
                OUT(a->A)[(b * N + n) * E + e] = (real)x.A;
                OUT(a->C)[(b * N + n) * E + e] = (real)x.C;
            }
}

static void effect_chain(mr_dev *dev, const mr_effect_chain_args *a)
{
    (void)dev;
    for (size_t i = 0; i < a->n; i++) {
        double y = 0;
        for (int j = 0; j < a->count; j++) {
            const size_t at = (size_t)(a->down ? a->count - 1 - j : j) * a->n + i;
            y = j == 0 || IN(a->A)[at] == 0 ? IN(a->C)[at] : (double)IN(a->A)[at] * y + IN(a->C)[at];
        }
        OUT(a->y)[i] = (real)y;
    }
}

/* The token that row j of a tail holds, or −1. */
static long tail_token(const uint8_t *reset, const int32_t *length, int b, int T, int past, int j)
{
    const long real_T = real_tokens(length, b, T), source = real_T - past + j;
    return visible(reset ? reset + (size_t)b * (size_t)T : NULL, 0, source, real_T - 1) ? source : -1;
}

static void conv_tail_fwd(mr_dev *dev, const mr_conv_tail_fwd_args *a)
{
    (void)dev;
    const int past = a->taps - 1;
    const size_t D = (size_t)a->D;
    for (int b = 0; b < a->B; b++)
        for (int j = 0; j < past; j++) {
            const long t = tail_token(a->reset, a->length, b, a->T, past, j);
            for (size_t d = 0; d < D; d++) OUT(a->tail)
            [((size_t)b * (size_t)past + (size_t)j) * D + d] =
                t < 0 ? 0 : IN(a->x)[((size_t)b * (size_t)a->T + (size_t)t) * D + d];
        }
}

static void conv_tail_bwd(mr_dev *dev, const mr_conv_tail_bwd_args *a)
{
    (void)dev;
    const int past = a->taps - 1;
    const size_t D = (size_t)a->D;
    for (int b = 0; b < a->B; b++)
        for (int j = 0; j < past; j++) {
            const long t = tail_token(a->reset, a->length, b, a->T, past, j);
            for (size_t d = 0; t >= 0 && d < D; d++) OUT(a->dx)
            [((size_t)b * (size_t)a->T + (size_t)t) * D + d] +=
                IN(a->dtail)[((size_t)b * (size_t)past + (size_t)j) * D + d];
        }
}
