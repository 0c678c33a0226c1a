/* Embedding, linear layers and what is fused into them. */

static double gelu(double x) { return x * sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x)); }

static double gelu_slope(double x)
{
    double s = sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x));
    return s + x * s * (1 - s) * 1.5957691216057308 * (1 + 3 * 0.044715 * x * x);
}

/* The dropout factor of element i: 0 or 1/(1 − p). */
static double dropout_factor(const mr_dropout *drop, size_t i)
{
    if (drop->p <= 0) return 1;
    double keep = nearbyint((1 - (double)drop->p) * 0x1p32);
    uint32_t bound = keep >= 0x1p32 ? UINT32_MAX : (uint32_t)keep;
    const mr_step *s = drop->step;
    uint32_t bits = mr_dropout_bits(s->seed, s->step, s->micro, drop->site, i);
    return bits < bound ? (double)(float)(1 / (1 - (double)drop->p)) : 0;
}

static void embed_fwd(mr_dev *dev, const mr_embed_fwd_args *a)
{
    (void)dev;
    size_t D = (size_t)a->D;
    for (size_t n = 0; n < (size_t)a->N; n++)
        for (size_t d = 0; d < D; d++) OUT(a->y)[n * D + d] = IN(a->table)[(size_t)a->ids[n] * D + d];
}

static void embed_bwd(mr_dev *dev, const mr_embed_bwd_args *a)
{
    (void)dev;
    size_t D = (size_t)a->D;
    for (size_t id = 0; id < (size_t)a->vocab; id++)
        for (size_t d = 0; d < D; d++) {
            double sum = 0;
            for (size_t n = 0; n < (size_t)a->N; n++)
                if ((size_t)a->ids[n] == id) sum += IN(a->dy)[n * D + d];
            OUT(a->dtable)[id * D + d] += sum;
        }
}

static void linear_fwd(mr_dev *dev, const mr_linear_fwd_args *a)
{
    (void)dev;
    size_t N = (size_t)a->N, K = (size_t)a->K, row = mr_row_step(a->row, a->N);
    for (size_t m = 0; m < (size_t)a->M; m++)
        for (size_t n = 0; n < N; n++) {
            double v = a->b ? IN(a->b)[n] : 0;
            for (size_t k = 0; k < K; k++) v += (double)IN(a->x)[m * K + k] * IN(a->W)[n * K + k];
            if (a->pre) OUT(a->pre)[m * N + n] = (real)v;
            if (a->gelu) v = gelu(v);
            v *= dropout_factor(&a->drop, m * N + n);
            OUT(a->y)[m * row + n] = (real)(v + (a->residual ? IN(a->residual)[m * N + n] : 0));
        }
}

static void linear_q_fwd(mr_dev *dev, const mr_linear_q_fwd_args *a)
{
    (void)dev;
    size_t N = (size_t)a->N, K = (size_t)a->K;
    for (size_t m = 0; m < (size_t)a->M; m++)
        for (size_t n = 0; n < N; n++) {
            double v = 0;
            for (size_t k = 0; k < K; k++) v += (double)IN(a->x)[m * K + k] * a->Wq[n * K + k];
            v = v * IN(a->scale)[n] + (a->b ? IN(a->b)[n] : 0);
            if (a->gelu) v = gelu(v);
            OUT(a->y)[m * N + n] = (real)(v + (a->residual ? IN(a->residual)[m * N + n] : 0));
        }
}

static void linear_bwd_x(mr_dev *dev, const mr_linear_bwd_x_args *a)
{
    (void)dev;
    size_t N = (size_t)a->N, K = (size_t)a->K, row = mr_row_step(a->row, a->N);
    for (size_t m = 0; m < (size_t)a->M; m++)
        for (size_t k = 0; k < K; k++) {
            double v = 0;
            for (size_t n = 0; n < N; n++) v += (double)IN(a->dy)[m * row + n] * IN(a->W)[n * K + k];
            if (a->pre) v *= gelu_slope(IN(a->pre)[m * K + k]);
            if (a->accumulate) v += OUT(a->dx)[m * K + k];
            OUT(a->dx)[m * K + k] = (real)v;
        }
}

static void linear_bwd_w(mr_dev *dev, const mr_linear_bwd_w_args *a)
{
    (void)dev;
    size_t M = (size_t)a->M, N = (size_t)a->N, K = (size_t)a->K, row = mr_row_step(a->row, a->N);
    for (size_t n = 0; n < N; n++) {
        for (size_t k = 0; k < K; k++) {
            double v = OUT(a->dW)[n * K + k];
            for (size_t m = 0; m < M; m++) v += (double)IN(a->dy)[m * row + n] * IN(a->x)[m * K + k];
            OUT(a->dW)[n * K + k] = (real)v;
        }
        if (!a->db) continue;
        double v = OUT(a->db)[n];
        for (size_t m = 0; m < M; m++) v += IN(a->dy)[m * row + n];
        OUT(a->db)[n] = (real)v;
    }
}

static void dropout_bwd(mr_dev *dev, const mr_dropout_bwd_args *a)
{
    (void)dev;
    for (size_t i = 0; i < a->n; i++) OUT(a->dx)[i] = (real)(IN(a->dy)[i] * dropout_factor(&a->drop, i));
}
