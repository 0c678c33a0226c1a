/* Products of a few rows: each row of w is read once and used for up to MOST_X rows of x, as many as there are
 * registers for their sums. The order of a row's sums does not depend on the number of rows. */
/* DOT_ROWS rows of w at a time: as many independent sums for one row of x */
enum { DOT_ROWS = 4, MOST_X = LANES == 16 ? 4 : 2 };

/* m is a compile-time constant. */
INLINE void few_dots(const float *x, int m, int k, const float *w, int n, const float *bias, float *c, size_t c_row)
{
    vf sum[MOST_X][DOT_ROWS];
    EACH(r, MOST_X) EACH(j, DOT_ROWS) sum[r][j] = v_set(0.0f);
    const float *row[DOT_ROWS];
    EACH(j, DOT_ROWS) row[j] = w + (j < n ? (size_t)j * k : 0);
    for (int i = 0; i < k; i += LANES) {
        const int left = k - i;
        vf at[MOST_X];
        EACH(r, MOST_X) if (r < m) at[r] = v_load_part(x + (size_t)r * k + i, left);
        EACH(j, DOT_ROWS)
        {
            vf value = v_load_part(row[j] + i, left);
            EACH(r, MOST_X) if (r < m) sum[r][j] += at[r] * value;
        }
    }
    EACH(j, DOT_ROWS)
    {
        if (j >= n) break;
        const float start = bias ? bias[j] : 0.0f;
        EACH(r, MOST_X) if (r < m) c[(size_t)r * c_row + j] = start + v_sum(sum[r][j]);
    }
}

static void dots(const float *x, int m, int k, const float *w, const float *bias, int n, float *c, size_t c_row)
{
    for (int j = 0; j < n; j += DOT_ROWS) {
        const int count = n - j < DOT_ROWS ? n - j : DOT_ROWS;
        const float *rows = w + (size_t)j * k, *start = bias ? bias + j : NULL, *from = x;
        float *to = c + j;
        int left = m;
        for (; left >= MOST_X; left -= MOST_X, from += (size_t)MOST_X * k, to += MOST_X * c_row)
            few_dots(from, MOST_X, k, rows, count, start, to, c_row);
        for (; left >= 2; left -= 2, from += 2 * (size_t)k, to += 2 * c_row)
            few_dots(from, 2, k, rows, count, start, to, c_row);
        if (left) few_dots(from, 1, k, rows, count, start, to, c_row);
    }
}
