/* Matrix product kernels: a register tile of TILE_ROWS × (TILE_VECS·LANES). Both operands are packed: A into tiles of
 * TILE_ROWS rows, each row of DEPTH numbers contiguous, or, where A is given transposed, [k, TILE_ROWS]; B into panels
 * [k, TILE_COLS], which are read from the L2 cache while a tile of A stays in L1. C is then written along its rows.
 *
 * The rows of a packed tile lie A_ROW apart: a constant, so that one pointer reaches them all, and not a power of two,
 * so that they map to different cache sets. */
enum { TILE_COLS = TILE_VECS * LANES, DEPTH = 384, A_ROW = DEPTH + 16, A_TILE = TILE_ROWS * A_ROW };

/* Keeps compilers from reordering across steps: the tile leaves only one or two registers free. */
#define KEEP_ORDER() __asm__ volatile("" : : : "memory")

/* Two of every three rows are broadcast by the multiply-add itself, which is as many as the load ports allow. Fewer
 * instructions matter where hardware threads share a core. */
INLINE void tile_step(const float *a, size_t a_row, const float *b, int rows, vf sum[TILE_ROWS][TILE_VECS])
{
    vf column[TILE_VECS];
    EACH(v, TILE_VECS) column[v] = v_load(b + v * LANES);
    EACH(r, TILE_ROWS)
    {
        if (r >= rows) break;
        const float *at = a + (size_t)r * a_row;
        if (r % 3) {
            EACH(v, TILE_VECS) sum[r][v] = v_add_product(sum[r][v], column[v], at);
        } else {
            vf value = v_set(*at);
            EACH(v, TILE_VECS) sum[r][v] = v_fma(value, column[v], sum[r][v]);
        }
    }
    KEEP_ORDER();
}

INLINE void tile_sums(const float *a, size_t a_row, size_t a_col, const float *b, int k, int rows, mr_ask ask,
                      vf sum[TILE_ROWS][TILE_VECS])
{
    for (; k >= 4; k -= 4, a += 4 * a_col, b += 4 * TILE_COLS) {
        EACH(half, 2)
        {
            __builtin_prefetch(ask.at, 0, 2);
            ask.at += ask.step;
            EACH(u, 2)
            {
                const int i = 2 * half + u;
                tile_step(a + (size_t)i * a_col, a_row, b + i * TILE_COLS, rows, sum);
            }
        }
    }
    for (; k > 0; k--, a += a_col, b += TILE_COLS) tile_step(a, a_row, b, rows, sum);
}

/* One tile, of which `real` rows are stored; `rows` and `whole` are compile-time constants. */
INLINE void tile(const mr_packed *p, const float *a, const float *b, int col, float *c, mr_ask ask, int rows, int real,
                 int whole)
{
    vf sum[TILE_ROWS][TILE_VECS];
    EACH(v, TILE_VECS)
    {
        const int left = whole ? LANES : p->cols - col - v * LANES;
        vf start = p->bias && left > 0 ? v_load_part(p->bias + col + v * LANES, left) : v_set(0.0f);
        EACH(r, TILE_ROWS) sum[r][v] = start;
    }
    if (p->by_columns) tile_sums(a, 1, TILE_ROWS, b, p->k, rows, ask, sum);
    else tile_sums(a, A_ROW, 1, b, p->k, rows, ask, sum);
    EACH(r, TILE_ROWS)
    {
        if (r >= rows || r >= real) break;
        EACH(v, TILE_VECS)
        {
            const int left = whole ? LANES : p->cols - col - v * LANES;
            float *to = c + (size_t)r * p->c_row + col + v * LANES;
            if (left <= 0) break;
            v_store_part(to, p->accumulate ? v_load_part(to, left) + sum[r][v] : sum[r][v], left);
        }
    }
}

static void multiply(const mr_packed *p)
{
    const float *a = p->a;
    float *c = p->c;
    int done = 0;
    for (int r = 0; r < p->rows; r += TILE_ROWS, a += A_TILE, c += TILE_ROWS * p->c_row) {
        const int real = p->rows - r < TILE_ROWS ? p->rows - r : TILE_ROWS;
        const char *panel = p->b;
        for (int col = 0; col < p->cols; col += TILE_COLS, panel += p->b_panel, done++) {
            const float *b = (const float *)panel;
            const mr_ask ask = done < p->ask_count ? p->asks[done] : (mr_ask){panel, 0};
            if (p->cols - col < TILE_COLS) tile(p, a, b, col, c, ask, TILE_ROWS, real, 0);
            else if (real > TILE_ROWS / 2) tile(p, a, b, col, c, ask, TILE_ROWS, real, 1);
            else tile(p, a, b, col, c, ask, TILE_ROWS / 2, real, 1);
        }
    }
}

/* ---- packing; `bf16` is a compile-time constant: 1 rounds to bf16, to give the results of
 * machines with bf16 products */

INLINE vf packed(vf v, int bf16) { return bf16 ? v_round_bf16(v) : v; }

INLINE void pack_rows(const float *b, size_t b_row, int k, int cols, float *to, int bf16)
{
    for (int i = 0; i < k; i++, b += b_row, to += TILE_COLS) EACH(v, TILE_VECS)
        {
            const int left = cols - v * LANES;
            v_store(to + v * LANES, left > 0 ? packed(v_load_part(b + v * LANES, left), bf16) : v_set(0.0f));
        }
}

/* Columns of B are rows in memory: transposes squares of LANES × LANES in registers. */
INLINE void pack_columns(const float *b, size_t b_col, int k, int cols, float *to, int bf16)
{
    for (int i = 0; i < k; i += LANES, to += LANES * TILE_COLS) {
        const int deep = k - i < LANES ? k - i : LANES;
        for (int j = 0; j < TILE_COLS; j += LANES) {
            vf square[LANES];
            EACH(l, LANES)
            {
                const float *from = b + (size_t)(j + l) * b_col + i;
                square[l] = j + l < cols ? packed(v_load_part(from, deep), bf16) : v_set(0.0f);
            }
            v_transpose(square);
            EACH(l, LANES) if (l < deep) v_store(to + (size_t)l * TILE_COLS + j, square[l]);
        }
    }
}

INLINE void pack_b_as(const float *b, size_t b_row, size_t b_col, int k, int cols, void *to, int bf16)
{
    if (b_col == 1 && cols == TILE_COLS) pack_rows(b, b_row, k, TILE_COLS, to, bf16);
    else if (b_col == 1) pack_rows(b, b_row, k, cols, to, bf16);
    else pack_columns(b, b_col, k, cols, to, bf16);
}

INLINE void pack_a_as(const float *a, size_t a_row, int k, int rows, void *to, int bf16)
{
    const int whole = k / LANES * LANES;
    float *row = to;
    for (int r = 0; r < rows; r++, a += a_row, row += A_ROW) {
        for (int i = 0; i < whole; i += LANES) v_store(row + i, packed(v_load(a + i), bf16));
        if (whole < k) v_store(row + whole, packed(v_load_n(a + whole, k - whole), bf16));
    }
    for (int r = rows; r % TILE_ROWS; r++, row += A_ROW) memset(row, 0, (size_t)k * sizeof *row);
}

/* Packs one tile's columns of a few rows of Aᵀ, and adds them to `sums` if that is not NULL. */
INLINE void pack_strip(const float *a, size_t a_row, int k, int cols, float *to, float *sums, int bf16)
{
    enum { VECS = (TILE_ROWS + LANES - 1) / LANES };
    EACH(v, VECS)
    {
        const int at = v * LANES, left = cols - at, room = TILE_ROWS - at;
        vf sum = sums && left > 0 ? v_load_part(sums + at, left) : v_set(0.0f);
        _Pragma("GCC unroll 8") for (int i = 0; i < k; i++)
        {
            vf value = left > 0 ? v_load_part(a + (size_t)i * a_row + at, left) : v_set(0.0f);
            v_store_part(to + (size_t)i * TILE_ROWS + at, packed(value, bf16), room);
            sum += value;
        }
        if (sums && left > 0) v_store_part(sums + at, sum, left);
    }
}

/* Packs a few rows at a time, so that memory is read in whole rows. Common cases are compiled with constants. */
INLINE void pack_at_as(const float *a, size_t a_row, int k, int rows, void *to, float *sums, int bf16)
{
    enum { FEW = 8 };
    for (int i = 0; i < k; i += FEW, a += FEW * a_row) {
        const int deep = k - i < FEW ? k - i : FEW;
        for (int r = 0; r < rows; r += TILE_ROWS) {
            float *strip = (float *)to + (size_t)(r / TILE_ROWS) * A_TILE + (size_t)i * TILE_ROWS;
            const int cols = rows - r < TILE_ROWS ? rows - r : TILE_ROWS;
            if (cols < TILE_ROWS || deep < FEW)
                pack_strip(a + r, a_row, deep, cols, strip, sums ? sums + r : NULL, bf16);
            else if (sums) pack_strip(a + r, a_row, FEW, TILE_ROWS, strip, sums + r, bf16);
            else pack_strip(a + r, a_row, FEW, TILE_ROWS, strip, NULL, bf16);
        }
    }
}

#define PACKERS(name, bf16)                                                                                            \
    static void pack_b_##name(const float *b, size_t b_row, size_t b_col, int k, int cols, void *to)                   \
    {                                                                                                                  \
        pack_b_as(b, b_row, b_col, k, cols, to, bf16);                                                                 \
    }                                                                                                                  \
    static void pack_a_##name(const float *a, size_t a_row, int k, int rows, void *to)                                 \
    {                                                                                                                  \
        pack_a_as(a, a_row, k, rows, to, bf16);                                                                        \
    }                                                                                                                  \
    static void pack_at_##name(const float *a, size_t a_row, int k, int rows, void *to, float *sums)                   \
    {                                                                                                                  \
        pack_at_as(a, a_row, k, rows, to, sums, bf16);                                                                 \
    }
PACKERS(f32, 0)
PACKERS(rounded, 1)

#define PRODUCT(name)                                                                                                  \
    {                                                                                                                  \
        .tile_rows = TILE_ROWS, .tile_cols = TILE_COLS, .depth = DEPTH, .k_step = 1, .a_tile = A_TILE * sizeof(float), \
        .b_row = TILE_COLS * sizeof(float), .multiply = multiply, .pack_b = pack_b_##name, .pack_a = pack_a_##name,    \
        .pack_at = pack_at_##name                                                                                      \
    }

static void add_row(size_t n, float *to, const float *from)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) v_store(to + i, v_load(to + i) + v_load(from + i));
    if (i < n) v_store_n(to + i, v_load_n(to + i, (int)(n - i)) + v_load_n(from + i, (int)(n - i)), (int)(n - i));
}
