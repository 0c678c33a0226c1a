/* Activations by themselves, plain and gated, on rows of numbers. */
INLINE vf v_silu(vf x) { return x * v_sigmoid(x); }

INLINE vf v_silu_slope(vf x)
{
    vf other, s = v_sigmoid_pair(x, &other);
    return s + x * (s * other);
}

/* The distribution function of the normal distribution, and exp(−x²/2). With z = |x|/√2 and t = 1/(1 + z/2), what is
 * above is ½·exp(−z²)·t·P(t): P approximates erfcx(z)/t, fitted here to 4e-8 for z up to 10. */
INLINE vf v_normal_below(vf x, vf *bell)
{
    static const float fit[] = {-0.05907001821f, 0.2845799674f, -0.487209892f, 0.2780781205f, -0.02663285233f,
                                0.2026897389f,   0.2431030849f, 0.2823753947f, 0.2820864134f};
    const vf size = v_min(v_set(13.0f), v_max(x, -x)); /* exp(−x²/2) is 0 in fp32 a little further out */
    const vf t = 1.0f / (1.0f + 0.35355339059f * size);
    vf sum = v_set(fit[0]);
    for (int i = 1; i < (int)(sizeof fit / sizeof *fit); i++) sum = sum * t + fit[i];
    *bell = v_exp(-0.5f * size * size);
    const vf above = 0.5f * *bell * t * sum;
    return v_if_less(x, v_set(0.0f), above, 1.0f - above);
}

INLINE vf v_activate(vf x, mr_activation kind)
{
    vf bell;
    if (kind == MR_SILU) return v_silu(x);
    return kind == MR_GELU_TANH ? v_gelu(x) : x * v_normal_below(x, &bell);
}

INLINE vf v_activate_slope(vf x, mr_activation kind)
{
    vf bell;
    if (kind == MR_SILU) return v_silu_slope(x);
    if (kind == MR_GELU_TANH) return v_gelu_slope(x);
    const vf below = v_normal_below(x, &bell);
    return below + x * (0.39894228040f * bell);
}

INLINE void activate_plain(const mr_activate_row *row, mr_activation kind)
{
    for (size_t i = 0; i < row->n; i += LANES) {
        const int m = part(row->n - i);
        vf y = v_activate(v_load_part(row->x + i, m), kind);
        if (row->up) y *= v_load_part(row->up + i, m);
        v_store_part(row->y + i, y, m);
    }
}

INLINE void activate_bwd_plain(const mr_activate_row *row, mr_activation kind)
{
    for (size_t i = 0; i < row->n; i += LANES) {
        const int m = part(row->n - i);
        const vf x = v_load_part(row->x + i, m), dy = v_load_part(row->dy + i, m);
        vf dx = dy * v_activate_slope(x, kind);
        if (row->up) {
            dx *= v_load_part(row->up + i, m);
            v_store_part(row->dup + i, dy * v_activate(x, kind), m);
        }
        v_store_part(row->dx + i, dx, m);
    }
}

/* The kind becomes a constant of each loop. */
static void activate_row(const mr_activate_row *row)
{
    if (row->kind == MR_SILU) activate_plain(row, MR_SILU);
    else if (row->kind == MR_GELU_TANH) activate_plain(row, MR_GELU_TANH);
    else activate_plain(row, MR_GELU_ERF);
}

static void activate_bwd_row(const mr_activate_row *row)
{
    if (row->kind == MR_SILU) activate_bwd_plain(row, MR_SILU);
    else if (row->kind == MR_GELU_TANH) activate_bwd_plain(row, MR_GELU_TANH);
    else activate_bwd_plain(row, MR_GELU_ERF);
}
