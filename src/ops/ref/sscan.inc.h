/* Mamba's selective scan. */

/* One channel of one sequence: h = decay·h + Δ·B·u. */
static void sscan_channel(const mr_sscan_fwd_args *a, size_t b, size_t e)
{
    size_t T = (size_t)a->T, E = (size_t)a->E, N = (size_t)a->N, real_T = (size_t)real_tokens(a->length, (int)b, a->T);
    double h[MR_SSCAN_STATES];
    for (size_t n = 0; n < N; n++) h[n] = a->h_in ? IN(a->h_in)[(b * N + n) * E + e] : 0;
    for (size_t t = 0; t < T; t++) {
        size_t at = (b * T + t) * E + e, chunk = b * mr_sscan_chunks(a->T) + t / MR_SSCAN_CHUNK;
        const real *B = IN(a->bc) + (b * T + t) * 2 * N, *C = B + N;
        double u = IN(a->u)[at], step = softplus((double)IN(a->delta)[at] + IN(a->dt_bias)[e]), y = IN(a->D)[e] * u;
        for (size_t n = 0; a->states && t % MR_SSCAN_CHUNK == 0 && n < N; n++)
            OUT(a->states)[(chunk * N + n) * E + e] = (real)h[n];
        for (size_t n = 0; t < real_T && n < N; n++) {
            if (starts(a->h_in, a->reset, b, t, T)) h[n] = 0;
            h[n] = exp(-step * exp(IN(a->A_log)[e * N + n])) * h[n] + step * B[n] * u;
            y += C[n] * h[n];
        }
        OUT(a->y)[at] = (real)(t < real_T ? y * silu(IN(a->z)[at]) : 0);
    }
    for (size_t n = 0; a->h_out && n < N; n++) OUT(a->h_out)[(b * N + n) * E + e] = (real)h[n];
}

static void sscan_fwd(mr_dev *dev, const mr_sscan_fwd_args *a)
{
    (void)dev;
    for (size_t b = 0; b < (size_t)a->B; b++)
        for (size_t e = 0; e < (size_t)a->E; e++) sscan_channel(a, b, e);
}

/* What the backward of one channel carries along. */
typedef struct sscan_grads {
    double *dbc; /* [T, 2·N] of the sequence, += */
    double dA_log[MR_SSCAN_STATES], dD;
    double carry[MR_SSCAN_STATES]; /* gradient of the state after the token */
} sscan_grads;

/* The states before each token of a chunk, after resets. */
static void sscan_chunk_states(const mr_sscan_bwd_args *a, size_t b, size_t e, size_t first, size_t end,
                               double before[MR_SSCAN_CHUNK][MR_SSCAN_STATES])
{
    size_t T = (size_t)a->T, E = (size_t)a->E, N = (size_t)a->N,
           chunk = b * mr_sscan_chunks(a->T) + first / MR_SSCAN_CHUNK;
    for (size_t n = 0; n < N; n++) {
        double h = IN(a->states)[(chunk * N + n) * E + e];
        for (size_t t = first; t < end; t++) {
            double u = IN(a->u)[(b * T + t) * E + e],
                   step = softplus((double)IN(a->delta)[(b * T + t) * E + e] + IN(a->dt_bias)[e]);
            if (starts(a->h_in, a->reset, b, t, T)) h = 0;
            before[t - first][n] = h;
            h = exp(-step * exp(IN(a->A_log)[e * N + n])) * h + step * IN(a->bc)[(b * T + t) * 2 * N + n] * u;
        }
    }
}

/* The backward of one token: from the gradients of its y and of the state after it to those of its inputs. */
static void sscan_token_bwd(const mr_sscan_bwd_args *a, size_t b, size_t t, size_t e, const double *before,
                            sscan_grads *g)
{
    size_t T = (size_t)a->T, N = (size_t)a->N, at = (b * T + t) * (size_t)a->E + e;
    const real *B = IN(a->bc) + (b * T + t) * 2 * N, *C = B + N;
    double raw = (double)IN(a->delta)[at] + IN(a->dt_bias)[e], step = softplus(raw), u = IN(a->u)[at], z = IN(a->z)[at],
           D = IN(a->D)[e];
    double dy = IN(a->dy)[at], dsum = dy * silu(z), sum = D * u, du = dsum * D, dstep = 0;
    for (size_t n = 0; n < N; n++) {
        double A = -exp(IN(a->A_log)[e * N + n]), decay = exp(step * A), h = decay * before[n] + step * B[n] * u;
        double dh = g->carry[n] + dsum * C[n];
        sum += C[n] * h;
        g->dbc[t * 2 * N + N + n] += dsum * h;
        g->dbc[t * 2 * N + n] += dh * step * u;
        du += dh * step * B[n];
        dstep += dh * (before[n] * decay * A + B[n] * u);
        g->dA_log[n] += dh * before[n] * decay * step * A;
        g->carry[n] = starts(a->h_in, a->reset, b, t, T) ? 0 : dh * decay;
    }
    g->dD += dsum * u;
    OUT(a->dz)[at] = (real)(dy * sum * silu_slope(z));
    OUT(a->ddelta)[at] = (real)(dstep * sigmoid(raw));
    OUT(a->du)[at] = (real)du;
}

static void sscan_channel_bwd(const mr_sscan_bwd_args *a, size_t b, size_t e, sscan_grads *g)
{
    size_t T = (size_t)a->T, E = (size_t)a->E, N = (size_t)a->N, real_T = (size_t)real_tokens(a->length, (int)b, a->T);
    double before[MR_SSCAN_CHUNK][MR_SSCAN_STATES];
    for (size_t n = 0; n < N; n++) g->carry[n] = a->dh_out ? IN(a->dh_out)[(b * N + n) * E + e] : 0;
    for (size_t t = real_T; t < T; t++)
        OUT(a->du)[(b * T + t) * E + e] = OUT(a->ddelta)[(b * T + t) * E + e] = OUT(a->dz)[(b * T + t) * E + e] = 0;
    for (size_t end = real_T; end > 0;) {
        size_t first = (end - 1) / MR_SSCAN_CHUNK * MR_SSCAN_CHUNK;
        sscan_chunk_states(a, b, e, first, end, before);
        for (; end > first; end--) sscan_token_bwd(a, b, end - 1, e, before[end - 1 - first], g);
    }
    for (size_t n = 0; a->dh_in && n < N; n++) OUT(a->dh_in)[(b * N + n) * E + e] = a->h_in ? (real)g->carry[n] : 0;
}

/* Every channel reads B and C, so their gradients are summed in doubles and stored when all channels are done. */
static void sscan_bwd(mr_dev *dev, const mr_sscan_bwd_args *a)
{
    (void)dev;
    size_t T = (size_t)a->T, E = (size_t)a->E, N = (size_t)a->N;
    double *dbc = mr_alloc((size_t)a->B * T * 2 * N, sizeof *dbc);
    if (!dbc) { /* no memory: NaN, so that the step is refused as not finite */
        OUT(a->dD)[0] = (real)NAN;
        return;
    }
    for (size_t e = 0; e < E; e++) {
        sscan_grads g = {0};
        for (size_t b = 0; b < (size_t)a->B; b++) {
            g.dbc = dbc + b * T * 2 * N;
            sscan_channel_bwd(a, b, e, &g);
        }
        for (size_t n = 0; n < N; n++) OUT(a->dA_log)[e * N + n] += g.dA_log[n];
        OUT(a->dD)[e] += g.dD;
    }
    for (size_t i = 0; i < (size_t)a->B * T * 2 * N; i++) OUT(a->dbc)[i] = (real)dbc[i];
    mr_free(dbc);
}
