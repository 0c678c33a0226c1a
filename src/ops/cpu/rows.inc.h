/* Kernels on one row: the end of a linear layer, norms, convolution, losses, optimiser. */
INLINE vf gelu_argument(vf x, vf *slope)
{
    const float scale = 1.59576912160573f;            /* 2·√(2/π) */
    x = v_max(v_set(-30.0f), v_min(v_set(30.0f), x)); /* σ is 0 or 1 beyond this; prevents overflow */
    vf square = x * x;
    *slope = scale + (3.0f * 0.044715f * scale) * square;
    return x * (scale + (0.044715f * scale) * square);
}

INLINE vf v_gelu(vf x)
{
    vf slope;
    return x * v_sigmoid(gelu_argument(x, &slope));
}

INLINE vf v_gelu_slope(vf x)
{
    vf slope, other, s = v_sigmoid_pair(gelu_argument(x, &slope), &other);
    return s + x * (s * other) * slope;
}

/* The random bits of 4·LANES consecutive elements from index 4·block on. */
INLINE void dropout_bits(const mr_drop *d, uint32_t block, uint32_t bits[4 * LANES])
{
    vu lane;
    for (int i = 0; i < LANES; i++) lane[i] = (uint32_t)i;
    vu c0 = lane + block, c1 = v_set_u(d->site), c2 = v_set_u(d->micro), c3 = v_set_u(d->step);
    uint32_t k0 = (uint32_t)d->seed, k1 = (uint32_t)(d->seed >> 32);
    for (int round = 0; round < 10; round++) {
        vu low0, low2, high0 = v_high_product(c0, 0xD2511F53u, &low0), high2 = v_high_product(c2, 0xCD9E8D57u, &low2);
        c0 = high2 ^ c1 ^ k0;
        c2 = high0 ^ c3 ^ k1;
        c1 = low2;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    vu even_low = __builtin_shufflevector(c0, c2, LOW_HALVES), even_high = __builtin_shufflevector(c0, c2, HIGH_HALVES);
    vu odd_low = __builtin_shufflevector(c1, c3, LOW_HALVES), odd_high = __builtin_shufflevector(c1, c3, HIGH_HALVES);
    *(vu_at *)bits = __builtin_shufflevector(even_low, odd_low, LOW_HALVES);
    *(vu_at *)(bits + LANES) = __builtin_shufflevector(even_low, odd_low, HIGH_HALVES);
    *(vu_at *)(bits + 2 * LANES) = __builtin_shufflevector(even_high, odd_high, LOW_HALVES);
    *(vu_at *)(bits + 3 * LANES) = __builtin_shufflevector(even_high, odd_high, HIGH_HALVES);
}

static void dropout_row(const mr_drop *d, uint64_t first, size_t n, const float *x, float *y)
{
    uint32_t bits[4 * LANES];
    for (size_t i = 0; i < n;) {
        uint64_t element = first + i;
        size_t skip = element % 4, count = 4 * LANES - skip < n - i ? 4 * LANES - skip : n - i;
        dropout_bits(d, (uint32_t)(element / 4), bits);
        for (size_t j = 0; j < count; j++) y[i + j] = bits[skip + j] < d->keep ? x[i + j] * d->scale : 0.0f;
        i += count;
    }
}

/* Without dropout: one pass. */
INLINE void finish_plain(const mr_finish *row, int gelu)
{
    for (int i = 0; i < row->n; i += LANES) {
        const int n = row->n - i;
        vf v = v_load_part(row->value + i, n);
        if (row->pre) v_store_part(row->pre + i, v, n);
        if (gelu) v = v_gelu(v);
        if (row->residual) v += v_load_part(row->residual + i, n);
        v_store_part(row->y + i, v, n);
    }
}

static void finish_dropout(const mr_finish *row)
{
    enum { CHUNK = 256 };
    float part[CHUNK];
    for (int i = 0; i < row->n; i += CHUNK) {
        const int n = row->n - i < CHUNK ? row->n - i : CHUNK;
        mr_finish before = {.n = n, .value = row->value + i, .pre = row->pre ? row->pre + i : NULL, .y = part};
        if (row->gelu) finish_plain(&before, 1);
        else finish_plain(&before, 0);
        dropout_row(&row->drop, row->first + (uint64_t)i, (size_t)n, part, part);
        mr_finish rest = {.n = n, .value = part, .residual = row->residual ? row->residual + i : NULL, .y = row->y + i};
        finish_plain(&rest, 0);
    }
}

static void finish_row(const mr_finish *row)
{
    if (row->drop.on) finish_dropout(row);
    else if (row->gelu) finish_plain(row, 1);
    else finish_plain(row, 0);
}

static void gelu_bwd_row(int n, const float *product, const float *pre, int accumulate, float *dx)
{
    for (int i = 0; i < n; i += LANES) {
        vf d = v_load_part(product + i, n - i) * v_gelu_slope(v_load_part(pre + i, n - i));
        if (accumulate) d += v_load_part(dx + i, n - i);
        v_store_part(dx + i, d, n - i);
    }
}

INLINE int part(size_t left) { return left < LANES ? (int)left : LANES; }

static void axpy_row(size_t n, float factor, const float *from, float *to)
{
    for (size_t i = 0; i < n; i += LANES) {
        int m = part(n - i);
        v_store_part(to + i, v_load_part(to + i, m) + factor * v_load_part(from + i, m), m);
    }
}

static void scale_row(size_t n, float factor, const float *from, float *to)
{
    for (size_t i = 0; i < n; i += LANES) {
        int m = part(n - i);
        v_store_part(to + i, factor * v_load_part(from + i, m), m);
    }
}

static void affine_row(int n, float *h, const float *a, const float *b)
{
    for (int i = 0; i < n; i += LANES)
        v_store_part(h + i, v_load_part(a + i, n - i) * v_load_part(h + i, n - i) + v_load_part(b + i, n - i), n - i);
}

/* x − mean, with lanes beyond n kept at zero. */
INLINE vf centred(const float *x, float mean, int n)
{
    if (n >= LANES) return v_load(x) - mean;
    float m[LANES] = {0};
    for (int i = 0; i < n; i++) m[i] = mean;
    return v_load_n(x, n) - v_load(m);
}

static void norm_fwd_row(mr_norm_row *row)
{
    const int n = row->n;
    row->mean = 0.0f;
    if (row->kind == MR_NORM_LAYER) {
        vf sum = v_set(0.0f);
        for (int i = 0; i < n; i += LANES) sum += v_load_part(row->x + i, n - i);
        row->mean = v_sum(sum) / (float)n;
    }
    vf square = v_set(0.0f);
    for (int i = 0; i < n; i += LANES) {
        vf x = centred(row->x + i, row->mean, n - i);
        square += x * x;
    }
    row->rstd = row->kind == MR_NORM_NONE ? 1.0f : (float)(1.0 / sqrt((double)v_sum(square) / n + row->eps));
    for (int i = 0; i < n; i += LANES) {
        vf y = (v_load_part(row->x + i, n - i) - row->mean) * row->rstd * v_load_part(row->w + i, n - i);
        if (row->b) y += v_load_part(row->b + i, n - i);
        v_store_part(row->y + i, y, n - i);
    }
}

static void norm_bwd_row(const mr_norm_row *row)
{
    const int n = row->n;
    vf sum = v_set(0.0f), dot = v_set(0.0f);
    for (int i = 0; i < n; i += LANES) {
        int m = n - i;
        vf dy = v_load_part(row->dy + i, m), unit = (v_load_part(row->x + i, m) - row->mean) * row->rstd;
        vf d = dy * v_load_part(row->w + i, m);
        sum += d;
        dot += d * unit; /* lanes beyond n: d is 0 there */
        v_store_part(row->dw + i, v_load_part(row->dw + i, m) + dy * unit, m);
        if (row->db) v_store_part(row->db + i, v_load_part(row->db + i, m) + dy, m);
    }
    float mean_d = row->kind == MR_NORM_LAYER ? v_sum(sum) / (float)n : 0.0f,
          mean_dot = row->kind == MR_NORM_NONE ? 0.0f : v_sum(dot) / (float)n;
    for (int i = 0; i < n; i += LANES) {
        int m = n - i;
        vf unit = (v_load_part(row->x + i, m) - row->mean) * row->rstd;
        vf d = v_load_part(row->dy + i, m) * v_load_part(row->w + i, m);
        vf dx = (d - mean_d - unit * mean_dot) * row->rstd;
        if (row->accumulate) dx += v_load_part(row->dx + i, m);
        v_store_part(row->dx + i, dx, m);
    }
}

INLINE void conv_taps(const mr_conv_row *row, int taps)
{
    for (int i = 0; i < row->n; i += LANES) {
        int m = row->n - i;
        vf y = row->bias ? v_load_part(row->bias + i, m) : v_set(0.0f);
        EACH(j, taps) y += v_load_part(row->w[j] + i, m) * v_load_part(row->x[j] + i, m);
        v_store_part(row->y + i, y, m);
    }
}

INLINE void conv_grad_taps(const mr_conv_row *row, int taps)
{
    for (int i = 0; i < row->n; i += LANES) {
        int m = row->n - i;
        vf dy = v_load_part(row->dy + i, m);
        v_store_part(row->db + i, v_load_part(row->db + i, m) + dy, m);
        EACH(j, taps)
        {
            vf dw = v_load_part(row->dw[j] + i, m) + dy * v_load_part(row->x[j] + i, m);
            v_store_part(row->dw[j] + i, dw, m);
        }
    }
}

/* The usual four taps become a constant. */
static void conv_row(const mr_conv_row *row)
{
    if (row->taps == 4) conv_taps(row, 4);
    else conv_taps(row, row->taps);
}

static void conv_grad_row(const mr_conv_row *row)
{
    if (row->taps == 4) conv_grad_taps(row, 4);
    else conv_grad_taps(row, row->taps);
}

static float max_row(int n, const float *x)
{
    float best = -INFINITY;
    if (n >= LANES) {
        vf most = v_load(x);
        for (int i = LANES; i + LANES <= n; i += LANES) most = v_max(most, v_load(x + i));
        for (int i = 0; i < LANES; i++) best = most[i] > best ? most[i] : best;
    }
    for (int i = n / LANES * LANES; i < n; i++) best = x[i] > best ? x[i] : best;
    return best;
}

static float exp_sum_row(int n, const float *x, float max, float *e)
{
    vf sum = v_set(0.0f);
    int i = 0;
    for (; i + LANES <= n; i += LANES) {
        vf term = v_exp(v_load(x + i) - max);
        if (e) v_store(e + i, term);
        sum += term;
    }
    if (i < n) {
        float last[LANES] = {0};
        v_store(last, v_exp(v_load_n(x + i, n - i) - max));
        sum += v_load_n(last, n - i);
        if (e) memcpy(e + i, last, (size_t)(n - i) * sizeof(float));
    }
    return v_sum(sum);
}

static void tanh_row(size_t n, const float *x, float *y)
{
    for (size_t i = 0; i < n; i += LANES) {
        int m = part(n - i);
        v_store_part(y + i, v_tanh(v_load_part(x + i, m)), m);
    }
}

static void tanh_bwd_row(size_t n, const float *x, const float *dy, float *dx)
{
    for (size_t i = 0; i < n; i += LANES) {
        int m = part(n - i);
        vf y = v_tanh(v_load_part(x + i, m));
        v_store_part(dx + i, v_load_part(dy + i, m) * (1.0f - y * y), m);
    }
}

static double sumsq_row(size_t n, const float *x)
{
    typedef double wide __attribute__((vector_size(8 * LANES)));
    wide sum[2] = {{0}, {0}};
    size_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) EACH(j, 2)
        {
            wide v = __builtin_convertvector(v_load(x + i + (size_t)j * LANES), wide);
            sum[j] += v * v;
        }
    double total = 0.0;
    for (; i < n; i++) total += (double)x[i] * (double)x[i];
    sum[0] += sum[1];
    for (int lane = 0; lane < LANES; lane++) total += sum[0][lane];
    return total;
}

static void adam_row(const mr_adam_row *row)
{
    for (size_t i = 0; i < row->n; i += LANES) {
        int m = part(row->n - i);
        vf p = v_load_part(row->p + i, m);
        vf g = v_load_part(row->g + i, m) * row->clip + row->l2 * p;
        vf first = row->beta1 * v_load_part(row->m + i, m) + row->one_beta1 * g;
        vf second = row->beta2 * v_load_part(row->v + i, m) + row->one_beta2 * g * g;
        v_store_part(row->m + i, first, m);
        v_store_part(row->v + i, second, m);
        p = p - row->shrink * p;
        v_store_part(row->p + i, p - row->rate * first / (v_sqrt(second) * row->root + row->eps), m);
    }
}
