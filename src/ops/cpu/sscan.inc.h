/* The selective scan. A vector of channels goes through a chunk of tokens with its states in registers; B and
 * C, which all channels share, are broadcast. Functions take the number of states as an argument, so that the usual 16
 * becomes a compile-time constant. */
/* Transposes from [n, states], the layout of the parameter, to [states, n]. */
static void sscan_rates(int n, int states, const float *A_log, float *rate, size_t rate_row)
{
    for (int c = 0; c < n; c += LANES)
        for (int i = 0; i < states; i++) {
            vf x = v_set(0.0f);
            const int m = n - c < LANES ? n - c : LANES;
            for (int j = 0; j < m; j++) x[j] = A_log[(size_t)(c + j) * (size_t)states + (size_t)i];
            v_store_part(rate + (size_t)i * rate_row + c, -1.44269504088896341f * v_exp(x), m);
        }
}

INLINE void sscan_load(vf *h, const float *from, size_t row, int states, int n)
{
    EACH(i, states) h[i] = v_load_part(from + (size_t)i * row, n);
}

INLINE void sscan_store(float *to, const vf *h, size_t row, int states, int n)
{
    EACH(i, states) v_store_part(to + (size_t)i * row, h[i], n);
}

INLINE void sscan_fwd_channels(const mr_sscan_run *given, int c, int n, int states)
{
    const mr_sscan_run run = *given;
    const float *rate = run.rate + c;
    vf h[MR_SSCAN_STATES];
    sscan_load(h, run.h + c, run.state_row, states, n);
    const vf bias = v_load_part(run.dt_bias + c, n), skip = v_load_part(run.D + c, n);
    for (int t = 0; t < run.rows; t++) {
        const size_t at = (size_t)t * run.row + (size_t)c;
        const float *B = run.bc + (size_t)t * 2 * (size_t)states, *C = B + states;
        vf u = v_load_part(run.u + at, n), z = v_load_part(run.z + at, n);
        vf step = v_softplus(v_load_part(run.delta + at, n) + bias), drive = step * u, y = skip * u;
        if (run.reset && run.reset[t]) EACH(i, states) h[i] = v_set(0.0f);
        EACH(i, states)
        {
            vf decay = v_exp2_fall(step * v_load_part(rate + (size_t)i * run.rate_row, n));
            h[i] = decay * h[i] + drive * B[i];
            y += C[i] * h[i];
        }
        v_store_part(run.y + at, y * v_silu(z), n);
    }
    sscan_store(run.h + c, h, run.state_row, states, n);
}

static void sscan_fwd(const mr_sscan_run *run)
{
    int c = 0;
    if (run->states == 16)
        for (; c + LANES <= run->n; c += LANES) sscan_fwd_channels(run, c, LANES, 16);
    for (; c < run->n; c += LANES) sscan_fwd_channels(run, c, run->n - c, run->states);
}

/* What the forward pass over a chunk keeps for the backward pass: for each token the states before it, the decays, and
 * the vectors of sscan_token. */
typedef struct sscan_token {
    vf u, step, slope;
} sscan_token;

INLINE void sscan_walk_up(const mr_sscan_run *run, int c, int n, int states, vf *before, vf *decays,
                          sscan_token *tokens)
{
    vf h[MR_SSCAN_STATES];
    const vf bias = v_load_part(run->dt_bias + c, n);
    sscan_load(h, run->h + c, run->state_row, states, n);
    for (int t = 0; t < run->rows; t++, before += states, decays += states) {
        const size_t at = (size_t)t * run->row + (size_t)c;
        const float *B = run->bc + (size_t)t * 2 * (size_t)states;
        vf raw = v_load_part(run->delta + at, n) + bias, u = v_load_part(run->u + at, n), step = v_softplus(raw),
           drive = step * u;
        tokens[t] = (sscan_token){u, step, v_sigmoid(raw)};
        if (run->reset && run->reset[t]) EACH(i, states) h[i] = v_set(0.0f);
        EACH(i, states)
        {
            before[i] = h[i];
            decays[i] = v_exp2_fall(step * v_load_part(run->rate + c + (size_t)i * run->rate_row, n));
            h[i] = decays[i] * h[i] + drive * B[i];
        }
    }
}

/* The backward of one token; sums: [2·states] vectors of the gradients of B and C, over the channels so far. */
INLINE void sscan_token_bwd(const mr_sscan_run *run, int t, int c, int n, int states, const vf *before,
                            const vf *decays, const sscan_token *token, vf *sums)
{
    const size_t at = (size_t)t * run->row + (size_t)c;
    const float *B = run->bc + (size_t)t * 2 * (size_t)states, *C = B + states;
    const vf skip = v_load_part(run->D + c, n), z = v_load_part(run->z + at, n), dy = v_load_part(run->dy + at, n);
    const vf step = token->step, drive = step * token->u, dsum = dy * v_silu(z);
    vf sum = skip * token->u, through_rate = v_set(0.0f), through_B = v_set(0.0f);
    EACH(i, states)
    {
        const size_t state = (size_t)i * run->state_row + (size_t)c;
        vf kept = decays[i] * before[i], h = kept + drive * B[i];
        vf dh = v_load_part(run->carry + state, n) + dsum * C[i], dkept = dh * kept;
        sum += C[i] * h;
        through_B += dh * B[i];
        through_rate += dkept * v_load_part(run->rate + c + (size_t)i * run->rate_row, n);
        sums[i] += dh * drive;
        sums[states + i] += dsum * h;
        v_store_part(run->dA + state, v_load_part(run->dA + state, n) + dkept * step, n);
        v_store_part(run->carry + state, decays[i] * dh, n);
    }
    v_store_part(run->dD + c, v_load_part(run->dD + c, n) + dsum * token->u, n);
    v_store_part(run->dz + at, dy * sum * v_silu_slope(z), n);
    v_store_part(run->du + at, dsum * skip + step * through_B, n);
    v_store_part(run->ddelta + at, (0.693147180559945f * through_rate + token->u * through_B) * token->slope, n);
    if (!run->reset || !run->reset[t]) return;
    EACH(i, states) v_store_part(run->carry + (size_t)i * run->state_row + (size_t)c, v_set(0.0f), n);
}

INLINE void sscan_bwd_channels(const mr_sscan_run *given, int c, int n, int states)
{
    const mr_sscan_run run = *given;
    vf *sums = (vf *)run.work, *before = sums + MR_SSCAN_CHUNK * 2 * states, *decays = before + MR_SSCAN_CHUNK * states;
    sscan_token *tokens = (sscan_token *)(decays + MR_SSCAN_CHUNK * states);
    sscan_walk_up(&run, c, n, states, before, decays, tokens);
    for (int t = run.rows - 1; t >= 0; t--)
        sscan_token_bwd(&run, t, c, n, states, before + t * states, decays + t * states, tokens + t,
                        sums + t * 2 * states);
}

static void sscan_bwd(const mr_sscan_run *run)
{
    const int values = run->rows * 2 * run->states;
    vf *sums = (vf *)run->work;
    int c = 0;
    for (int i = 0; i < values; i++) sums[i] = v_set(0.0f);
    if (run->states == 16)
        for (; c + LANES <= run->n; c += LANES) sscan_bwd_channels(run, c, LANES, 16);
    for (; c < run->n; c += LANES) sscan_bwd_channels(run, c, run->n - c, run->states);
    for (int i = 0; i < values; i++) run->dbc[i] = v_sum(sums[i]);
}

/* The effect of the tokens on the state before them, or on the carry after them; `backward` is a compile-time
 * constant. */
INLINE void sscan_effect_channels(const mr_sscan_run *given, int c, int n, int states, int backward)
{
    const mr_sscan_run run = *given;
    const float *rate = run.rate + c;
    vf carry[MR_SSCAN_STATES], kept[MR_SSCAN_STATES];
    sscan_load(carry, run.carry + c, run.state_row, states, n);
    sscan_load(kept, run.kept + c, run.state_row, states, n);
    const vf bias = v_load_part(run.dt_bias + c, n);
    for (int i = 0; i < run.rows; i++) {
        const int t = backward ? run.rows - 1 - i : i, fresh = run.reset && run.reset[t];
        const size_t at = (size_t)t * run.row + (size_t)c;
        const float *B = run.bc + (size_t)t * 2 * (size_t)states, *C = B + states;
        const vf step = v_softplus(v_load_part(run.delta + at, n) + bias);
        const vf drive = backward ? v_load_part(run.dy + at, n) * v_silu(v_load_part(run.z + at, n))
                                  : step * v_load_part(run.u + at, n);
        if (fresh && !backward) EACH(j, states) carry[j] = kept[j] = v_set(0.0f);
        EACH(j, states)
        {
            const vf decay = v_exp2_fall(step * v_load_part(rate + (size_t)j * run.rate_row, n));
            carry[j] = backward ? decay * (carry[j] + drive * C[j]) : decay * carry[j] + drive * B[j];
            kept[j] *= decay;
        }
        if (fresh && backward) EACH(j, states) carry[j] = kept[j] = v_set(0.0f);
    }
    sscan_store(run.carry + c, carry, run.state_row, states, n);
    sscan_store(run.kept + c, kept, run.state_row, states, n);
}

INLINE void sscan_effect_all(const mr_sscan_run *run, int backward)
{
    int c = 0;
    if (run->states == 16)
        for (; c + LANES <= run->n; c += LANES) sscan_effect_channels(run, c, LANES, 16, backward);
    for (; c < run->n; c += LANES) sscan_effect_channels(run, c, run->n - c, run->states, backward);
}

static void sscan_effect(const mr_sscan_run *run)
{
    if (run->dy) sscan_effect_all(run, 1);
    else sscan_effect_all(run, 0);
}
