/* Activations by themselves, plain and gated. */

static double silu(double x) { return x * sigmoid(x); }
static double silu_slope(double x) { return sigmoid(x) * (1 + x * sigmoid(-x)); }

/* The distribution function of the normal distribution. */
static double normal_below(double x) { return 0.5 * erfc(-x * 0.70710678118654752); }

static double activation(mr_activation kind, double x)
{
    if (kind == MR_SILU) return silu(x);
    return kind == MR_GELU_TANH ? gelu(x) : x * normal_below(x);
}

static double activation_slope(mr_activation kind, double x)
{
    if (kind == MR_SILU) return silu_slope(x);
    return kind == MR_GELU_TANH ? gelu_slope(x) : normal_below(x) + x * exp(-x * x / 2) * 0.39894228040143268;
}

static void activate_fwd(mr_dev *dev, const mr_activate_fwd_args *a)
{
    (void)dev;
    const size_t F = a->F, wide = a->gated ? 2 * F : F;
    for (size_t m = 0; m < a->M; m++) {
        const real *x = IN(a->x) + m * wide;
        for (size_t f = 0; f < F; f++)
            OUT(a->y)[m * F + f] = (real)(activation(a->kind, x[f]) * (a->gated ? x[F + f] : 1));
    }
}

static void activate_bwd(mr_dev *dev, const mr_activate_bwd_args *a)
{
    (void)dev;
    const size_t F = a->F, wide = a->gated ? 2 * F : F;
    for (size_t m = 0; m < a->M; m++) {
        const real *x = IN(a->x) + m * wide;
        real *dx = OUT(a->dx) + m * wide;
        for (size_t f = 0; f < F; f++) {
            const double dy = IN(a->dy)[m * F + f], g = x[f], u = a->gated ? x[F + f] : 1;
            dx[f] = (real)(dy * u * activation_slope(a->kind, g));
            if (a->gated) dx[F + f] = (real)(dy * activation(a->kind, g));
        }
    }
}
