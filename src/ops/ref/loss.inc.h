/* Pooling, losses, tanh of scores, and the optimiser. */

/* What each pooled token of row b counts for; tokens first … last − 1 are pooled. */
static double pool_share(mr_pooling kind, const int32_t *length, const mr_real *weight, size_t b, int T, size_t *first,
                         size_t *last)
{
    *last = (size_t)real_tokens(length, (int)b, T);
    *first = kind == MR_POOL_LAST && *last > 0 ? *last - 1 : 0;
    if (weight && IN(weight)[b] == 0) *last = *first;
    return (weight ? IN(weight)[b] : 1) / (double)(*last - *first);
}

static void pool_fwd(mr_dev *dev, const mr_pool_fwd_args *a)
{
    (void)dev;
    size_t T = (size_t)a->T, D = (size_t)a->D;
    for (size_t b = 0; b < (size_t)a->B; b++) {
        size_t first, last;
        const double share = pool_share(a->kind, a->length, a->weight, b, a->T, &first, &last);
        for (size_t d = 0; d < D; d++) {
            double sum = 0;
            for (size_t t = first; t < last; t++) sum += IN(a->x)[(b * T + t) * D + d];
            OUT(a->y)[b * D + d] = first < last ? (real)(sum * share) : 0;
        }
    }
}

static void pool_bwd(mr_dev *dev, const mr_pool_bwd_args *a)
{
    (void)dev;
    size_t T = (size_t)a->T, D = (size_t)a->D;
    for (size_t b = 0; b < (size_t)a->B; b++) {
        size_t first, last;
        const double share = pool_share(a->kind, a->length, a->weight, b, a->T, &first, &last);
        for (size_t t = 0; t < T; t++)
            for (size_t d = 0; d < D; d++) OUT(a->dx)
        [(b * T + t) * D + d] = t >= first && t < last ? (real)(IN(a->dy)[b * D + d] * share) : 0;
    }
}

static void pair_fwd(mr_dev *dev, const mr_pair_fwd_args *args)
{
    (void)dev;
    size_t D = (size_t)args->D;
    for (size_t p = 0; p < (size_t)args->P; p++)
        for (size_t d = 0; d < D; d++) {
            double a = IN(args->x)[2 * p * D + d], b = IN(args->x)[(2 * p + 1) * D + d];
            const double y[4] = {a, b, a * b, a - b};
            for (size_t k = 0; k < 4; k++) OUT(args->y)[(4 * p + k) * D + d] = (real)y[k];
        }
}

static void pair_bwd(mr_dev *dev, const mr_pair_bwd_args *args)
{
    (void)dev;
    size_t D = (size_t)args->D;
    for (size_t p = 0; p < (size_t)args->P; p++)
        for (size_t d = 0; d < D; d++) {
            double a = IN(args->x)[2 * p * D + d], b = IN(args->x)[(2 * p + 1) * D + d], dy[4];
            for (size_t k = 0; k < 4; k++) dy[k] = IN(args->dy)[(4 * p + k) * D + d];
            OUT(args->dx)[2 * p * D + d] = (real)(dy[0] + dy[2] * b + dy[3]);
            OUT(args->dx)[(2 * p + 1) * D + d] = (real)(dy[1] + dy[2] * a - dy[3]);
        }
}

static void xent(mr_dev *dev, const mr_xent_args *a)
{
    (void)dev;
    size_t C = (size_t)a->C, row = mr_row_step(a->row, a->C);
    for (size_t r = 0; r < (size_t)a->R; r++) {
        const real *x = IN(a->logits) + r * row;
        long target = a->target[r];
        size_t best = 0;
        double sum = 0, nan = 0;
        for (size_t c = 0; c < C; c++) {
            if (x[c] > x[best]) best = c;
            nan += x[c] - x[c]; /* 0, or NaN as soon as one logit is not finite */
        }
        double top = x[best] + nan;
        for (size_t c = 0; c < C; c++) sum += exp(x[c] - top);
        double loss = target < 0 ? 0 : top + log(sum) - x[target];
        a->stats[MR_STAT_LOSS] += loss;
        a->stats[MR_STAT_CORRECT] += target >= 0 && best == (size_t)target;
        a->stats[MR_STAT_COUNT] += target >= 0;
        OUT(a->row_loss)[r] = (real)loss;
        for (size_t c = 0; a->dlogits && c < C; c++) OUT(a->dlogits)
        [r * row + c] = target < 0 ? 0 : (real)(*a->scale * (exp(x[c] - top) / sum - ((long)c == target)));
    }
}

static void mse(mr_dev *dev, const mr_mse_args *a)
{
    (void)dev;
    size_t C = (size_t)a->C;
    for (size_t r = 0; r < (size_t)a->R; r++) {
        int counts = !a->mask || a->mask[r];
        double loss = 0;
        for (size_t c = 0; c < C; c++) {
            double x = IN(a->pred)[r * C + c], y = a->tanh ? tanh(x) : x, slope = a->tanh ? 1 - y * y : 1;
            double off = counts ? y - IN(a->target)[r * C + c] : 0;
            loss += off * off / (double)C;
            if (a->dpred) OUT(a->dpred)[r * C + c] = counts ? (real)(*a->scale * 2 / (double)C * off * slope) : 0;
        }
        a->stats[MR_STAT_LOSS] += loss;
        a->stats[MR_STAT_COUNT] += counts;
        OUT(a->row_loss)[r] = (real)loss;
    }
}

static void tanh_fwd(mr_dev *dev, const mr_tanh_fwd_args *a)
{
    (void)dev;
    for (size_t i = 0; i < a->n; i++) OUT(a->y)[i] = (real)tanh(IN(a->x)[i]);
}

static void tanh_bwd(mr_dev *dev, const mr_tanh_bwd_args *a)
{
    (void)dev;
    for (size_t i = 0; i < a->n; i++) {
        double y = tanh(IN(a->x)[i]);
        OUT(a->dx)[i] = (real)(IN(a->dy)[i] * (1 - y * y));
    }
}

static void sumsq(mr_dev *dev, const mr_sumsq_args *a)
{
    (void)dev;
    double sum = 0;
    for (size_t i = 0; i < a->n; i++) sum += (double)IN(a->g)[i] * IN(a->g)[i];
    *a->out = sum;
}

static void sumsq_parts(mr_dev *dev, const mr_sumsq_parts_args *a)
{
    (void)dev;
    for (size_t first = 0; first < a->n; first += MR_SUM_PART) {
        const size_t end = a->n - first < MR_SUM_PART ? a->n : first + MR_SUM_PART;
        double sum = 0;
        for (size_t i = first; i < end; i++) sum += (double)IN(a->g)[i] * IN(a->g)[i];
        a->parts[first / MR_SUM_PART] = sum;
    }
}

static void sum_parts(mr_dev *dev, const mr_sum_parts_args *a)
{
    (void)dev;
    double sum = 0;
    for (size_t i = 0; i < a->n; i++) sum += a->parts[i];
    *a->out = sum;
}

static void accumulate(mr_dev *dev, const mr_accumulate_args *a)
{
    (void)dev;
    for (size_t i = 0; i < a->n; i++) OUT(a->y)[i] = (real)(OUT(a->y)[i] + IN(a->x)[i]);
}

static void adam(mr_dev *dev, const mr_adam_args *a)
{
    (void)dev;
    const mr_step *s = a->step;
    if (!isfinite(*a->sumsq)) return;
    double shrink = s->clip > 0 ? s->clip / (sqrt(*a->sumsq) + 1e-6) : 1;
    for (size_t i = 0; i < a->n; i++) {
        real *p = OUT(a->p) + i, *m = OUT(a->m) + i, *v = OUT(a->v) + i;
        double g = IN(a->g)[i] * (shrink < 1 ? shrink : 1), decay = i < a->n_decay ? s->weight_decay : 0;
        if (!s->decoupled) g += decay * *p;
        *m = (real)(s->beta1 * *m + (1 - s->beta1) * g);
        *v = (real)(s->beta2 * *v + (1 - s->beta2) * g * g);
        double keep = s->decoupled ? 1 - s->lr * decay : 1;
        *p = (real)(*p * keep - s->lr * (*m / s->bias1) / (sqrt(*v / s->bias2) + s->eps));
    }
}
