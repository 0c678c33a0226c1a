/* Normalisation over channels and the short causal convolution over time. */

static void norm_fwd(mr_dev *dev, const mr_norm_fwd_args *a)
{
    (void)dev;
    size_t D = (size_t)a->D;
    for (size_t m = 0; m < (size_t)a->M; m++) {
        const real *x = IN(a->x) + m * D;
        double mean = 0, square = 0;
        if (a->kind == MR_NORM_LAYER)
            for (size_t d = 0; d < D; d++) mean += x[d] / (double)D;
        for (size_t d = 0; d < D; d++) square += (x[d] - mean) * (x[d] - mean) / (double)D;
        double rstd = a->kind == MR_NORM_NONE ? 1 : 1 / sqrt(square + a->eps);
        for (size_t d = 0; d < D; d++)
            OUT(a->y)[m * D + d] = (real)((x[d] - mean) * rstd * IN(a->w)[d] + (a->b ? IN(a->b)[d] : 0));
        if (!a->stat) continue;
        OUT(a->stat)[2 * m] = (real)mean;
        OUT(a->stat)[2 * m + 1] = (real)rstd;
    }
}

/* With x̂ = (x − mean)·rstd and u = dy·w:  dx = rstd·(u − [layer: mean(u)] − [rms, layer: x̂·mean(u·x̂)]). */
static void norm_bwd(mr_dev *dev, const mr_norm_bwd_args *a)
{
    (void)dev;
    size_t M = (size_t)a->M, D = (size_t)a->D;
    for (size_t m = 0; m < M; m++) {
        const real *x = IN(a->x) + m * D, *dy = IN(a->dy) + m * D, *w = IN(a->w);
        double mean = IN(a->stat)[2 * m], rstd = IN(a->stat)[2 * m + 1], mean_u = 0, mean_ux = 0;
        for (size_t d = 0; d < D; d++) {
            double u = (double)dy[d] * w[d];
            if (a->kind == MR_NORM_LAYER) mean_u += u / (double)D;
            if (a->kind != MR_NORM_NONE) mean_ux += u * (x[d] - mean) * rstd / (double)D;
        }
        for (size_t d = 0; d < D; d++) {
            double v = rstd * ((double)dy[d] * w[d] - mean_u - (x[d] - mean) * rstd * mean_ux);
            OUT(a->dx)[m * D + d] = (real)(v + (a->accumulate ? OUT(a->dx)[m * D + d] : 0));
        }
    }
    for (size_t d = 0; d < D; d++) {
        double dw = 0, db = 0;
        for (size_t m = 0; m < M; m++) {
            double mean = IN(a->stat)[2 * m], rstd = IN(a->stat)[2 * m + 1];
            dw += IN(a->dy)[m * D + d] * (IN(a->x)[m * D + d] - mean) * rstd;
            db += IN(a->dy)[m * D + d];
        }
        OUT(a->dw)[d] += dw;
        if (a->db) OUT(a->db)[d] += db;
    }
}

static long real_tokens(const int32_t *length, int b, int T) { return length ? length[b] : T; }

/* Can token `last` see input `source`? Negative sources lie in the tail. A reset hides everything before it. */
static int visible(const uint8_t *reset, int has_tail, long source, long last)
{
    if (source < 0 && !has_tail) return 0;
    for (long s = source < 0 ? 0 : source + 1; reset && s <= last; s++)
        if (reset[s]) return 0;
    return 1;
}

/* Input `source` of row b: a token, or for negative numbers one of the `past` entries of the tail (oldest first). */
static const real *conv_source(const mr_act *x, const mr_real *tail, int past, int b, size_t T, size_t D, long source)
{
    if (source >= 0) return IN(x) + ((size_t)b * T + (size_t)source) * D;
    return IN(tail) + ((size_t)b * (size_t)past + (size_t)(source + past)) * D;
}

static void conv_fwd(mr_dev *dev, const mr_conv_fwd_args *a)
{
    (void)dev;
    size_t T = (size_t)a->T, D = (size_t)a->D;
    int has_tail = a->tail_in != NULL, K = a->taps, past = K - 1;
    for (int b = 0; b < a->B; b++) {
        const uint8_t *reset = a->reset ? a->reset + (size_t)b * T : NULL;
        long real_T = real_tokens(a->length, b, a->T);
        for (long t = 0; t < a->T; t++)
            for (size_t d = 0; d < D; d++) {
                double v = IN(a->b)[d];
                for (int j = 0; j < K; j++)
                    if (visible(reset, has_tail, t - past + j, t))
                        v += (double)IN(a->w)[d * (size_t)K + (size_t)j] *
                             conv_source(a->x, a->tail_in, past, b, T, D, t - past + j)[d];
                OUT(a->y)[((size_t)b * T + (size_t)t) * D + d] = t < real_T ? (real)v : 0;
            }
        /* tail_out may be tail_in: entry j only reads later entries, so going upwards is safe. */
        for (int j = 0; a->tail_out && j < past; j++) {
            long source = real_T - past + j;
            int seen = visible(reset, has_tail, source, real_T - 1);
            for (size_t d = 0; d < D; d++) OUT(a->tail_out)
            [((size_t)b * (size_t)past + (size_t)j) * D + d] =
                seen ? conv_source(a->x, a->tail_in, past, b, T, D, source)[d] : 0;
        }
    }
}

/* Adds g to the gradient of input `source` of one row and channel: dx for tokens, dtail (or NULL) for the tail. */
static void conv_send(real *dx, real *dtail, int past, size_t D, long source, double g)
{
    if (source >= 0) dx[(size_t)source * D] += g;
    else if (dtail) dtail[(size_t)(source + past) * D] += g;
}

static void conv_bwd(mr_dev *dev, const mr_conv_bwd_args *a)
{
    (void)dev;
    size_t T = (size_t)a->T, D = (size_t)a->D;
    int has_tail = a->tail_in != NULL, K = a->taps, past = K - 1;
    if (!a->accumulate) memset(a->dx, 0, (size_t)a->B * T * D * sizeof(real));
    if (a->dtail_in) memset(a->dtail_in, 0, (size_t)a->B * (size_t)past * D * sizeof(real));
    for (size_t d = 0; d < D; d++) {
        double dw[MR_TAPS_MOST] = {0}, db = 0;
        for (int b = 0; b < a->B; b++) {
            const uint8_t *reset = a->reset ? a->reset + (size_t)b * T : NULL;
            long real_T = real_tokens(a->length, b, a->T);
            real *dx = OUT(a->dx) + (size_t)b * T * D + d;
            real *dtail = a->dtail_in ? OUT(a->dtail_in) + (size_t)b * (size_t)past * D + d : NULL;
            for (long t = 0; t < real_T; t++) {
                double dy = IN(a->dy)[((size_t)b * T + (size_t)t) * D + d];
                db += dy;
                for (int j = 0; j < K; j++) {
                    long source = t - past + j;
                    if (!visible(reset, has_tail, source, t)) continue;
                    dw[j] += dy * conv_source(a->x, a->tail_in, past, b, T, D, source)[d];
                    conv_send(dx, dtail, past, D, source, dy * IN(a->w)[d * (size_t)K + (size_t)j]);
                }
            }
            for (int j = 0; a->dtail_out && j < past; j++) {
                long source = real_T - past + j;
                if (visible(reset, has_tail, source, real_T - 1))
                    conv_send(dx, dtail, past, D, source,
                              IN(a->dtail_out)[((size_t)b * (size_t)past + (size_t)j) * D + d]);
            }
        }
        for (int j = 0; j < K; j++) OUT(a->dw)[d * (size_t)K + (size_t)j] += dw[j];
        OUT(a->db)[d] += db;
    }
}
