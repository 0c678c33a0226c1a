/* bf16 matrix products with AMX: tiles of 16 rows × 64 bytes, sums in fp32. isa_avx512.c includes this after its
 * kernels; it is used where the machine has AMX and AVX512-BF16 and the system permits tiles.
 *
 * A is packed row by row, B in pairs of k: [k/2, 32 columns, 2], both padded with zeros to steps of 32. */
enum { AMX_ROWS = 32, AMX_COLS = 32, AMX_STEP = 32, AMX_DEPTH = 512, AMX_A_ROW = AMX_DEPTH + AMX_STEP };

typedef uint16_t bf16;

#define AMX __attribute__((target("amx-tile,amx-bf16")))

/* ---- packing */

/* Thirty-two numbers as bf16, those of `low` first. */
INLINE __m512i two_to_bf16(vf low, vf high)
{
    __m512i out;
    __asm__("vcvtne2ps2bf16 %2, %1, %0" : "=v"(out) : "v"(high), "v"(low));
    return out;
}

/* The same, with low[i] next to high[i]. */
INLINE vf pairs_to_bf16(vf low, vf high)
{
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                           21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return (vf)_mm512_permutexvar_epi16(order, two_to_bf16(low, high));
}

/* The first n of LANES numbers at p, the rest 0; n may be ≤ 0. */
INLINE vf load_some(const float *p, int n) { return n > 0 ? v_load_part(p, n) : v_set(0.0f); }

INLINE int amx_padded(int k) { return (k + AMX_STEP - 1) / AMX_STEP * AMX_STEP; }

static void amx_pack_a(const float *a, size_t a_row, int k, int rows, void *to)
{
    const size_t padded = (size_t)amx_padded(k);
    bf16 *row = to;
    for (int r = 0; r < rows; r++, a += a_row, row += AMX_A_ROW)
        for (int i = 0; i < k; i += AMX_STEP) {
            vf low = load_some(a + i, k - i), high = load_some(a + i + LANES, k - i - LANES);
            _mm512_storeu_si512(row + i, two_to_bf16(low, high));
        }
    for (int r = rows; r % AMX_ROWS; r++, row += AMX_A_ROW) memset(row, 0, padded * sizeof *row);
}

/* Loads sixteen columns of one step of Aᵀ, or of B stored by rows: pairs[i] holds k = 2i and 2i + 1 of every column. */
INLINE void load_pairs(const float *from, size_t row, int k, int cols, vf pairs[LANES], vf *sum)
{
    EACH(i, LANES)
    {
        vf low = 2 * i < k ? load_some(from + (size_t)(2 * i) * row, cols) : v_set(0.0f);
        vf high = 2 * i + 1 < k ? load_some(from + (size_t)(2 * i + 1) * row, cols) : v_set(0.0f);
        *sum += low + high;
        pairs[i] = pairs_to_bf16(low, high);
    }
}

static void amx_pack_at(const float *a, size_t a_row, int k, int rows, void *to, float *sums)
{
    const int all = (rows + AMX_ROWS - 1) / AMX_ROWS * AMX_ROWS;
    for (int i = 0; i < k; i += AMX_STEP)
        for (int r = 0; r < all; r += LANES) {
            const int cols = rows - r;
            vf pairs[LANES], sum = sums ? load_some(sums + r, cols) : v_set(0.0f);
            load_pairs(a + (size_t)i * a_row + r, a_row, k - i, cols, pairs, &sum);
            if (sums && cols > 0) v_store_part(sums + r, sum, cols);
            v_transpose(pairs);
            bf16 *row = (bf16 *)to + (size_t)r * AMX_A_ROW + i;
            EACH(l, LANES) _mm512_storeu_si512(row + l * AMX_A_ROW, (__m512i)pairs[l]);
        }
}

/* Loads sixteen columns of one step of B stored by columns. */
INLINE void load_columns(const float *from, size_t column, int k, int cols, vf pairs[LANES])
{
    EACH(l, LANES)
    {
        const float *at = from + (size_t)l * column;
        vf low = l < cols ? load_some(at, k) : v_set(0.0f),
           high = l < cols ? load_some(at + LANES, k - LANES) : v_set(0.0f);
        pairs[l] = (vf)two_to_bf16(low, high);
    }
    v_transpose(pairs);
}

static void amx_pack_b(const float *b, size_t b_row, size_t b_col, int k, int cols, void *to)
{
    for (int i = 0; i < k; i += AMX_STEP)
        for (int j = 0; j < AMX_COLS; j += LANES) {
            vf pairs[LANES], unused = v_set(0.0f);
            const float *from = b + (size_t)i * b_row + (size_t)j * b_col;
            if (b_col == 1) load_pairs(from, b_row, k - i, cols - j, pairs, &unused);
            else load_columns(from, b_col, k - i, cols - j, pairs);
            bf16 *square = (bf16 *)to + (size_t)i * AMX_COLS + 2 * j;
            EACH(l, LANES) _mm512_storeu_si512(square + l * 2 * AMX_COLS, (__m512i)pairs[l]);
        }
}

/* ---- tile registers: 0 to 3 hold C, 4 and 5 A, 6 and 7 B */

typedef struct tile_config {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} tile_config;

AMX static inline void amx_start(const float *c, size_t row_bytes)
{
    _tile_loadd(0, c, row_bytes);
    _tile_loadd(1, c + LANES, row_bytes);
    _tile_loadd(2, (const char *)c + LANES * row_bytes, row_bytes);
    _tile_loadd(3, (const char *)(c + LANES) + LANES * row_bytes, row_bytes);
}

AMX static inline void amx_store(float *c, size_t row_bytes)
{
    _tile_stored(0, c, row_bytes);
    _tile_stored(1, c + LANES, row_bytes);
    _tile_stored(2, (char *)c + LANES * row_bytes, row_bytes);
    _tile_stored(3, (char *)(c + LANES) + LANES * row_bytes, row_bytes);
}

AMX static inline void amx_sums(const bf16 *a, const bf16 *b, int k, mr_ask ask)
{
    const size_t a_bytes = AMX_A_ROW * sizeof *a, b_bytes = 2 * AMX_COLS * sizeof *b;
    for (int i = 0; i < k; i += AMX_STEP, a += AMX_STEP, b += AMX_STEP * AMX_COLS) {
        _tile_loadd(6, b, b_bytes);
        _tile_loadd(4, a, a_bytes);
        _tile_loadd(7, b + 2 * LANES, b_bytes);
        _tile_loadd(5, a + LANES * AMX_A_ROW, a_bytes);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        for (int l = 0; ask.step && l < AMX_STEP / 2; l++, ask.at += ask.step) __builtin_prefetch(ask.at, 0, 2);
    }
}

/* A tile at the edge, or one with both a bias and an accumulation, goes through a local buffer. */
AMX static void amx_edge(const mr_packed *p, const bf16 *a, const bf16 *b, int col, float *c, int real)
{
    float sums[AMX_ROWS * AMX_COLS];
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    amx_sums(a, b, p->k, (mr_ask){0});
    amx_store(sums, AMX_COLS * sizeof *sums);
    for (int r = 0; r < real; r++, c += p->c_row)
        for (int j = 0; j < AMX_COLS && col + j < p->cols; j += LANES) {
            const int left = p->cols - col - j;
            vf value = v_load(sums + r * AMX_COLS + j);
            if (p->bias) value += v_load_part(p->bias + col + j, left);
            if (p->accumulate) value += v_load_part(c + col + j, left);
            v_store_part(c + col + j, value, left);
        }
}

AMX static void amx_inside(const mr_packed *p, const bf16 *a, const bf16 *b, int col, float *c, mr_ask ask)
{
    static const float zeros[AMX_COLS];
    const size_t row_bytes = p->c_row * sizeof *c;
    const float *bias = p->bias ? p->bias + col : zeros;
    if (p->accumulate) {
        amx_start(c + col, row_bytes);
    } else { /* a stride of 0 bytes: the same row sixteen times */
        _tile_loadd(0, bias, 0);
        _tile_loadd(1, bias + LANES, 0);
        _tile_loadd(2, bias, 0);
        _tile_loadd(3, bias + LANES, 0);
    }
    amx_sums(a, b, p->k, ask);
    amx_store(c + col, row_bytes);
}

AMX static void amx_multiply(const mr_packed *p)
{
    tile_config config = {.palette = 1};
    for (int i = 0; i < 8; i++) config.bytes[i] = 64, config.rows[i] = 16;
    KEEP_ORDER(); /* compilers do not know which memory the tile instructions read */
    _tile_loadconfig(&config);
    const bf16 *a = p->a;
    float *c = p->c;
    int done = 0;
    for (int r = 0; r < p->rows; r += AMX_ROWS, a += AMX_ROWS * AMX_A_ROW, c += AMX_ROWS * p->c_row) {
        const int real = p->rows - r < AMX_ROWS ? p->rows - r : AMX_ROWS;
        const char *panel = p->b;
        for (int col = 0; col < p->cols; col += AMX_COLS, panel += p->b_panel, done++) {
            const int inside = real == AMX_ROWS && p->cols - col >= AMX_COLS && !(p->bias && p->accumulate);
            const mr_ask ask = done < p->ask_count ? p->asks[done] : (mr_ask){0};
            if (inside) amx_inside(p, a, (const bf16 *)panel, col, c, ask);
            else amx_edge(p, a, (const bf16 *)panel, col, c, real);
        }
    }
    _tile_release();
}

const mr_product_kernels mr_cpu_product_amx = {
    .tile_rows = AMX_ROWS,
    .tile_cols = AMX_COLS,
    .depth = AMX_DEPTH,
    .k_step = AMX_STEP,
    .a_tile = AMX_ROWS * AMX_A_ROW * sizeof(bf16),
    .b_row = AMX_COLS * sizeof(bf16),
    .multiply = amx_multiply,
    .pack_b = amx_pack_b,
    .pack_a = amx_pack_a,
    .pack_at = amx_pack_at,
};
