/* Gates of GRU and LSTM for one row of one token. Only the gates' values are kept; the backward gets the slopes from
 * them: σ' = σ·(1 − σ), tanh' = 1 − tanh². */

INLINE vf sigmoid_slope(vf y) { return y * (1.0f - y); }
INLINE vf tanh_slope(vf y) { return 1.0f - y * y; }

/* A gate's argument: input projection plus what the state adds. */
INLINE vf argument(const float *pre, const float *sums, size_t at, int left)
{
    return v_load_part(pre + at, left) + v_load_part(sums + at, left);
}

static void lstm_fwd(const mr_rnn_row *row)
{
    const size_t H = (size_t)row->n;
    for (size_t k = 0; k < H; k += LANES) {
        const int left = row->n - (int)k;
        vf i = v_sigmoid(argument(row->gates, row->sums, k, left)),
           f = v_sigmoid(argument(row->gates, row->sums, H + k, left));
        vf g = v_tanh(argument(row->gates, row->sums, 2 * H + k, left)),
           o = v_sigmoid(argument(row->gates, row->sums, 3 * H + k, left));
        vf c = f * v_load_part(row->c + k, left) + i * g, h = o * v_tanh(c);
        v_store_part(row->gates + k, i, left);
        v_store_part(row->gates + H + k, f, left);
        v_store_part(row->gates + 2 * H + k, g, left);
        v_store_part(row->gates + 3 * H + k, o, left);
        v_store_part(row->extra + k, c, left);
        v_store_part(row->c + k, c, left);
        v_store_part(row->h + k, h, left);
        v_store_part(row->out + k, h, left);
    }
}

static void gru_after_fwd(const mr_rnn_row *row)
{
    const size_t H = (size_t)row->n;
    for (size_t k = 0; k < H; k += LANES) {
        const int left = row->n - (int)k;
        vf r = v_sigmoid(argument(row->gates, row->sums, k, left)),
           z = v_sigmoid(argument(row->gates, row->sums, H + k, left));
        vf s = v_load_part(row->sums + 2 * H + k, left), n = v_tanh(v_load_part(row->gates + 2 * H + k, left) + r * s);
        vf h = n + z * (v_load_part(row->h + k, left) - n);
        v_store_part(row->gates + k, r, left);
        v_store_part(row->gates + H + k, z, left);
        v_store_part(row->gates + 2 * H + k, n, left);
        v_store_part(row->extra + k, s, left);
        v_store_part(row->h + k, h, left);
        v_store_part(row->out + k, h, left);
    }
}

static void gru_before_gates(const mr_rnn_row *row)
{
    const size_t H = (size_t)row->n;
    for (size_t k = 0; k < H; k += LANES) {
        const int left = row->n - (int)k;
        vf r = v_sigmoid(argument(row->gates, row->sums, k, left)),
           z = v_sigmoid(argument(row->gates, row->sums, H + k, left));
        vf rh = r * v_load_part(row->h + k, left);
        v_store_part(row->gates + k, r, left);
        v_store_part(row->gates + H + k, z, left);
        v_store_part(row->extra + k, rh, left);
        v_store_part(row->rh + k, rh, left);
    }
}

static void gru_before_fwd(const mr_rnn_row *row)
{
    const size_t H = (size_t)row->n;
    for (size_t k = 0; k < H; k += LANES) {
        const int left = row->n - (int)k;
        vf z = v_load_part(row->gates + H + k, left), n = v_tanh(argument(row->gates + 2 * H, row->sums, k, left));
        vf h = n + z * (v_load_part(row->h + k, left) - n);
        v_store_part(row->gates + 2 * H + k, n, left);
        v_store_part(row->h + k, h, left);
        v_store_part(row->out + k, h, left);
    }
}

/* ---- backward */

/* The whole gradient of h. */
INLINE vf arrived(const mr_rnn_row *row, size_t k, int left)
{
    return v_load_part(row->dout + k, left) + v_load_part(row->carry + k, left) + v_load_part(row->back + k, left);
}

/* Stores the gradient of a gate's argument for both its terms, the input projection and the sums. */
INLINE void leave(const mr_rnn_row *row, size_t at, vf gradient, int left)
{
    v_store_part(row->gates + at, gradient, left);
    v_store_part(row->ds + at, gradient, left);
}

static void lstm_bwd(const mr_rnn_row *row)
{
    const size_t H = (size_t)row->n;
    for (size_t k = 0; k < H; k += LANES) {
        const int left = row->n - (int)k;
        vf i = v_load_part(row->gates + k, left), f = v_load_part(row->gates + H + k, left);
        vf g = v_load_part(row->gates + 2 * H + k, left), o = v_load_part(row->gates + 3 * H + k, left);
        vf c = v_tanh(v_load_part(row->extra + k, left)), dh = arrived(row, k, left);
        vf dc = v_load_part(row->carry_c + k, left) + dh * o * tanh_slope(c);
        v_store_part(row->carry + k, v_set(0.0f), left);
        v_store_part(row->carry_c + k, dc * f, left);
        leave(row, k, dc * g * sigmoid_slope(i), left);
        leave(row, H + k, dc * v_load_part(row->c_before + k, left) * sigmoid_slope(f), left);
        leave(row, 2 * H + k, dc * i * tanh_slope(g), left);
        leave(row, 3 * H + k, dh * c * sigmoid_slope(o), left);
    }
}

static void gru_after_bwd(const mr_rnn_row *row)
{
    const size_t H = (size_t)row->n;
    for (size_t k = 0; k < H; k += LANES) {
        const int left = row->n - (int)k;
        vf r = v_load_part(row->gates + k, left), z = v_load_part(row->gates + H + k, left);
        vf n = v_load_part(row->gates + 2 * H + k, left), s = v_load_part(row->extra + k, left),
           dh = arrived(row, k, left);
        vf dn = dh * (1.0f - z) * tanh_slope(n);
        v_store_part(row->carry + k, dh * z, left);
        leave(row, k, dn * s * sigmoid_slope(r), left);
        leave(row, H + k, dh * (v_load_part(row->before + k, left) - n) * sigmoid_slope(z), left);
        v_store_part(row->gates + 2 * H + k, dn, left);
        v_store_part(row->ds + 2 * H + k, dn * r, left);
        v_store_part(row->extra + k, dn * r, left);
    }
}

/* First ds_n; then, with drh, the gradient of r·h', ds_r and ds_z. */
static void gru_before_bwd(const mr_rnn_row *row)
{
    const size_t H = (size_t)row->n;
    for (size_t k = 0; k < H; k += LANES) {
        const int left = row->n - (int)k;
        vf z = v_load_part(row->gates + H + k, left), n = v_load_part(row->gates + 2 * H + k, left),
           dh = arrived(row, k, left);
        vf dn = dh * (1.0f - z) * tanh_slope(n);
        v_store_part(row->carry + k, dh * z, left);
        leave(row, H + k, dh * (v_load_part(row->before + k, left) - n) * sigmoid_slope(z), left);
        v_store_part(row->gates + 2 * H + k, dn, left);
        v_store_part(row->rh + k, dn, left);
    }
}

static void gru_before_gates_bwd(const mr_rnn_row *row)
{
    const size_t H = (size_t)row->n;
    for (size_t k = 0; k < H; k += LANES) {
        const int left = row->n - (int)k;
        vf r = v_load_part(row->gates + k, left), drh = v_load_part(row->sums + k, left);
        v_store_part(row->carry + k, v_load_part(row->carry + k, left) + drh * r, left);
        leave(row, k, drh * v_load_part(row->before + k, left) * sigmoid_slope(r), left);
    }
}
