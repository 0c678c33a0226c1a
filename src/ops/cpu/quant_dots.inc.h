/* Sums of products of 8-bit rows, for one variant of the multiply step. The including file defines
 *   NAME(x)            x with the suffix of this variant
 *   TARGET             the instructions that it needs
 *   VEC, BYTES         a vector of bytes or of 32-bit sums, and its size
 *   ZERO, LOAD, STEP   no sum; bytes from p on, zeros beyond `left` of them; sum + the products of x and w, grouped
 *                      in lanes
 *   OFFSET             what STEP adds to each w before it multiplies, or 0
 *   ADD_UP             four vectors of sums into four sums */

/* Σ OFFSET·x over a row of x, to be subtracted from its sums: the same for every row of w. */
INSIDE(TARGET) __m128i NAME(excess)(int K, const int8_t *x)
{
    VEC none = ZERO();
    if (OFFSET) /* STEP reads a w of 0 as OFFSET */
        for (int k = 0; k < K; k += BYTES) none = STEP(none, LOAD(x + k, BYTES), ZERO());
    return OFFSET ? ADD_UP(none, none, none, none) : _mm_setzero_si128();
}

/* m rows of x (a compile-time constant) times four rows of w; missing rows of w repeat the first. */
INSIDE(TARGET)
void NAME(tile)(int K, const int8_t *x, size_t x_row, int m, const int8_t *w, size_t w_row, int rows,
                const __m128i *excess, int32_t *sums, size_t sums_row)
{
    const int8_t *at[4];
    VEC sum[4][4];
    for (int j = 0; j < 4; j++) at[j] = j < rows ? w + (size_t)j * w_row : w;
    for (int i = 0; i < m; i++)
        for (int j = 0; j < 4; j++) sum[i][j] = ZERO();
    for (int k = 0; k < K; k += BYTES) {
        VEC here[4];
        for (int j = 0; j < 4; j++) {
            here[j] = LOAD(at[j] + k, K - k);
            _mm_prefetch((const char *)at[j] + 4 * w_row + k, _MM_HINT_T0); /* the next four rows */
        }
        for (int i = 0; i < m; i++) {
            const VEC v = LOAD(x + (size_t)i * x_row + k, BYTES);
            for (int j = 0; j < 4; j++) sum[i][j] = STEP(sum[i][j], v, here[j]);
        }
    }
    for (int i = 0; i < m; i++) {
        const __m128i total = _mm_sub_epi32(ADD_UP(sum[i][0], sum[i][1], sum[i][2], sum[i][3]), excess[i]);
        int32_t *to = sums + (size_t)i * sums_row;
        if (rows >= 4) _mm_storeu_si128((__m128i *)to, total);
        else memcpy(to, &total, (size_t)rows * sizeof *to);
    }
}

INSIDE(TARGET)
void NAME(band)(int K, const int8_t *x, size_t x_row, int m, const int8_t *w, size_t w_row, int n, int32_t *sums,
                size_t sums_row)
{
    __m128i excess[4];
    for (int i = 0; i < m; i++) excess[i] = NAME(excess)(K, x + (size_t)i * x_row);
    for (int j = 0; j < n; j += 4)
        NAME(tile)(K, x, x_row, m, w + (size_t)j * w_row, w_row, n - j, excess, sums + j, sums_row);
}

static WITH(TARGET) void NAME(dots)(int K, const int8_t *x, size_t x_row, int m, const int8_t *w, size_t w_row, int n,
                                    int32_t *sums, size_t sums_row)
{
    for (; m >= 4; m -= 4, x += 4 * x_row, sums += 4 * sums_row)
        NAME(band)(K, x, x_row, 4, w, w_row, n, sums, sums_row);
    for (; m >= 2; m -= 2, x += 2 * x_row, sums += 2 * sums_row)
        NAME(band)(K, x, x_row, 2, w, w_row, n, sums, sums_row);
    if (m) NAME(band)(K, x, x_row, 1, w, w_row, n, sums, sums_row);
}

#undef NAME
#undef TARGET
#undef VEC
#undef BYTES
#undef ZERO
#undef LOAD
#undef STEP
#undef OFFSET
#undef ADD_UP
