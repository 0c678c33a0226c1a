/* Products of a handful of rows: each row of w is read once and used for two rows of x. */
enum { DOT_ROWS = 4 }; /* rows of w at a time: as many independent sums for one row of x */

INLINE void few_dots(const float *x, int m, int k, const float *w, int n, const float *bias, float *c, size_t c_row)
{
    vf sum[2][DOT_ROWS];
    EACH(r, 2) EACH(j, DOT_ROWS) sum[r][j] = v_set(0.0f);
    const float *second = m > 1 ? x + k : x;
    const float *row[DOT_ROWS];
    EACH(j, DOT_ROWS) row[j] = w + (j < n ? (size_t)j * k : 0);
    for (int i = 0; i < k; i += LANES) {
        int left = k - i;
        vf x0 = v_load_part(x + i, left), x1 = v_load_part(second + i, left);
        EACH(j, DOT_ROWS)
        {
            vf value = v_load_part(row[j] + i, left);
            sum[0][j] += x0 * value;
            if (m > 1) sum[1][j] += x1 * value;
        }
    }
    EACH(j, DOT_ROWS)
    {
        if (j >= n) break;
        float start = bias ? bias[j] : 0.0f;
        c[j] = start + v_sum(sum[0][j]);
        if (m > 1) c[c_row + j] = start + v_sum(sum[1][j]);
    }
}

static void dots(const float *x, int m, int k, const float *w, const float *bias, int n, float *c, size_t c_row)
{
    for (int j = 0; j < n; j += DOT_ROWS) {
        int count = n - j < DOT_ROWS ? n - j : DOT_ROWS;
        const float *rows = w + (size_t)j * k, *start = bias ? bias + j : NULL;
        float *to = c + j;
        int r = 0;
        for (; r + 2 <= m; r += 2) few_dots(x + (size_t)r * k, 2, k, rows, count, start, to + (size_t)r * c_row, c_row);
        if (r < m) few_dots(x + (size_t)r * k, 1, k, rows, count, start, to + (size_t)r * c_row, c_row);
    }
}
