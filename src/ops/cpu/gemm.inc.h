/* Matrix product kernels: a register tile of TILE_ROWS × (TILE_VECS·LANES), B packed, A broadcast. */
enum { TILE_ROWS = 6, TILE_COLS = TILE_VECS * LANES };

#define EACH(i, n) _Pragma("GCC unroll 8") for (int i = 0; i < (n); i++)

INLINE void tile_sums(const mr_panel *p, const float *a, int rows, vf sum[TILE_ROWS][TILE_VECS])
{
    const float *row[TILE_ROWS]; /* rows that are not there repeat the first; their sums are dropped */
    EACH(r, TILE_ROWS) row[r] = a + (r < rows ? (size_t)r * p->a_row : 0);
    const float *b = p->b;
    const size_t step = p->a_col;
    size_t at = 0;
    for (int k = p->k; k > 0; k--, at += step, b += TILE_COLS) {
        vf column[TILE_VECS];
        EACH(v, TILE_VECS) column[v] = v_load(b + v * LANES);
        EACH(r, TILE_ROWS)
        {
            vf value = v_set(row[r][at]);
            EACH(v, TILE_VECS) sum[r][v] += value * column[v];
        }
    }
}

INLINE void whole_tile(const mr_panel *p, const float *a, float *c, int rows)
{
    vf sum[TILE_ROWS][TILE_VECS];
    EACH(v, TILE_VECS)
    {
        vf start = p->bias ? v_load(p->bias + v * LANES) : v_set(0.0f);
        EACH(r, TILE_ROWS) sum[r][v] = start;
    }
    tile_sums(p, a, rows, sum);
    EACH(r, TILE_ROWS)
    {
        if (r >= rows) break;
        float *to = c + (size_t)r * p->c_row;
        EACH(v, TILE_VECS) v_store(to + v * LANES, p->accumulate ? v_load(to + v * LANES) + sum[r][v] : sum[r][v]);
    }
}

INLINE void ragged_tile(const mr_panel *p, const float *a, float *c, int rows)
{
    vf sum[TILE_ROWS][TILE_VECS];
    EACH(v, TILE_VECS)
    {
        int left = p->cols - v * LANES;
        vf start = p->bias && left > 0 ? v_load_part(p->bias + v * LANES, left) : v_set(0.0f);
        EACH(r, TILE_ROWS) sum[r][v] = start;
    }
    tile_sums(p, a, rows, sum);
    EACH(r, TILE_ROWS)
    {
        if (r >= rows) break;
        EACH(v, TILE_VECS)
        {
            int left = p->cols - v * LANES;
            float *to = c + (size_t)r * p->c_row + v * LANES;
            if (left <= 0) break;
            v_store_part(to, p->accumulate ? v_load_part(to, left) + sum[r][v] : sum[r][v], left);
        }
    }
}

static void panel(const mr_panel *p)
{
    const float *a = p->a;
    float *c = p->c;
    for (int r = 0; r < p->rows; r += TILE_ROWS, a += p->a_tile, c += TILE_ROWS * p->c_row) {
        int rows = p->rows - r < TILE_ROWS ? p->rows - r : TILE_ROWS;
        if (p->cols == TILE_COLS) whole_tile(p, a, c, rows);
        else ragged_tile(p, a, c, rows);
    }
}

static void pack_rows(const float *b, size_t b_row, int k, int cols, float *to)
{
    for (int i = 0; i < k; i++, b += b_row, to += TILE_COLS)
        for (int j = 0; j < TILE_COLS; j += LANES)
            v_store(to + j, cols > j ? v_load_part(b + j, cols - j) : v_set(0.0f));
}

/* Columns of B are rows in memory: blocks small enough that both sides stay in the first cache. */
static void pack_columns(const float *b, size_t b_col, int k, int cols, float *to)
{
    enum { BLOCK = 16 };
    for (int i = 0; i < k; i += BLOCK) {
        int end = i + BLOCK < k ? i + BLOCK : k;
        for (int j = 0; j < TILE_COLS; j++) {
            const float *from = b + (size_t)j * b_col;
            if (j < cols)
                for (int l = i; l < end; l++) to[(size_t)l * TILE_COLS + j] = from[l];
            else
                for (int l = i; l < end; l++) to[(size_t)l * TILE_COLS + j] = 0.0f;
        }
    }
}

static void pack_b(const float *b, size_t b_row, size_t b_col, int k, int cols, float *to)
{
    if (b_col == 1) pack_rows(b, b_row, k, cols, to);
    else pack_columns(b, b_col, k, cols, to);
}

static void add_row(size_t n, float *to, const float *from)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) v_store(to + i, v_load(to + i) + v_load(from + i));
    if (i < n) v_store_n(to + i, v_load_n(to + i, (int)(n - i)) + v_load_n(from + i, (int)(n - i)), (int)(n - i));
}

static void pack_a(const float *a, size_t a_row, int k, int rows, float *to, float *sums)
{
    enum { BLOCK = 8 };
    for (int i = 0; i < k; i += BLOCK) {
        int end = i + BLOCK < k ? i + BLOCK : k;
        int r = 0;
        for (; r + TILE_ROWS <= rows; r += TILE_ROWS)
            for (int l = i; l < end; l++) {
                float *tile = to + (size_t)r * k + (size_t)l * TILE_ROWS;
                memcpy(tile, a + (size_t)l * a_row + r, TILE_ROWS * sizeof(float));
            }
        for (int l = i; r < rows && l < end; l++)
            for (int j = 0; j < TILE_ROWS; j++)
                to[(size_t)r * k + (size_t)l * TILE_ROWS + j] = r + j < rows ? a[(size_t)l * a_row + r + j] : 0.0f;
        for (int l = i; sums && l < end; l++) add_row((size_t)rows, sums, a + (size_t)l * a_row);
    }
}

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
