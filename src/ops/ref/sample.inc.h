/* Sampling: draws a token from each row of logits. */

static int comes_before(const real *x, int a, int b) { return x[a] > x[b] || (x[a] == x[b] && a < b); }

/* The next likeliest token after `last` (−1: the first one); −1: there is none. */
static int next_likeliest(const real *x, int C, int last)
{
    int best = -1;
    for (int c = 0; c < C; c++)
        if ((last < 0 || comes_before(x, last, c)) && (best < 0 || comes_before(x, c, best))) best = c;
    return best;
}

static int sample_row(const real *x, int C, const mr_sampling *how, double u)
{
    const int first = next_likeliest(x, C, -1), limit = how->top_k > 0 && how->top_k < C ? how->top_k : C;
    if (how->temperature <= 0) return first;
    double all = 0, kept = 0, sum = 0;
    int count = 0, token = first;
    for (int c = 0; c < C; c++) all += exp(((double)x[c] - x[first]) / how->temperature);
    for (int c = first; count < limit && (count == 0 || kept < how->top_p * all); count++, c = next_likeliest(x, C, c))
        kept += exp(((double)x[c] - x[first]) / how->temperature);
    for (int i = 0, c = first; i < count; i++, c = next_likeliest(x, C, c)) {
        token = c;
        sum += exp(((double)x[c] - x[first]) / how->temperature);
        if (u * kept < sum) break;
    }
    return token;
}

static void sample(mr_dev *dev, const mr_sample_args *a)
{
    (void)dev;
    const uint64_t position = (uint64_t)*a->position;
    for (int r = 0; r < a->R; r++) {
        const real *x = IN(a->logits) + (size_t)r * (size_t)a->C;
        int32_t *drawn = a->drawn + position % MR_DRAWN * (size_t)a->R + r;
        int finite = 1;
        for (int c = 0; c < a->C; c++) finite &= isfinite(x[c]) != 0;
        *drawn = finite ? sample_row(x, a->C, a->how, mr_sample_uniform(a->how->seed, position, (uint32_t)r)) : -1;
        a->ids[r] = finite ? *drawn : 0;
    }
    *a->position += 1;
}
