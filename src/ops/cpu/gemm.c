/* Matrix products on all threads: how they are split into blocks, and their gradients (gemm.h). */
#include "ops/cpu/gemm.h"

/* A block of B (some columns, all of k) stays in the L2 cache while blocks of A's rows pass by, each split into pieces
 * of k. For up to FEW rows, dot products that read W once without packing are faster. */
enum { BLOCK_ROWS = 112, FEW = 8 };
static const size_t block_bytes = 1200 << 10;

/* How a product is split; depends on its shape and the kernels' tile. */
typedef struct plan {
    int depth, pieces;      /* of k */
    size_t b_panel;         /* bytes of a packed panel of that depth */
    int block_rows, down;   /* of A */
    int block_cols, across; /* of B, in whole panels */
} plan;

/* Splits n into even parts of whole tiles, none larger than `most`. */
static int even_part(int n, int most, int tile, int *parts)
{
    const size_t wanted = mr_ceil_div((size_t)n, (size_t)mr_max_int(tile, most));
    const int size = (int)mr_round_up(mr_ceil_div((size_t)n, wanted), (size_t)tile);
    *parts = (int)mr_ceil_div((size_t)n, (size_t)size);
    return size;
}

static plan cut_product(const mr_product *p)
{
    const mr_product_kernels *kernels = p->cpu->product;
    plan c;
    c.depth = even_part(p->K, kernels->depth, 4, &c.pieces);
    c.b_panel = mr_panel_bytes(kernels, c.depth);
    const int most_panels = (int)(block_bytes / (c.b_panel * (size_t)c.pieces));
    c.block_rows = BLOCK_ROWS / kernels->tile_rows * kernels->tile_rows;
    c.down = (int)mr_ceil_div((size_t)p->M, (size_t)c.block_rows);
    c.block_cols = even_part(p->N, most_panels * kernels->tile_cols, kernels->tile_cols, &c.across);
    return c;
}

/* ---- packing B, for all threads: by pieces of k, then by panels */

static int panels_of(const mr_product *p) { return (int)mr_ceil_div((size_t)p->N, (size_t)p->cpu->product->tile_cols); }

static char *packed_panel(const mr_product *p, const plan *how, int piece, int panel)
{
    return (char *)p->packed + ((size_t)piece * (size_t)panels_of(p) + (size_t)panel) * how->b_panel;
}

static void pack_task(void *arg, int task, int slot)
{
    (void)slot;
    const mr_product *p = arg;
    const plan c = cut_product(p);
    const int panel = task % panels_of(p), piece = task / panels_of(p), k0 = piece * c.depth;
    const int width = p->cpu->product->tile_cols, col = panel * width;
    const size_t row = p->b_transposed ? 1 : (size_t)p->N, column = p->b_transposed ? (size_t)p->K : 1;
    const float *from = p->b + (size_t)k0 * row + (size_t)col * column;
    p->cpu->product->pack_b(from, row, column, mr_min_int(c.depth, p->K - k0), mr_min_int(width, p->N - col),
                            packed_panel(p, &c, piece, panel));
}

static int pack(mr_product *p, const plan *c)
{
    const int tasks = panels_of(p) * c->pieces;
    p->packed = mr_cpu_scratch(p->cpu, MR_SCRATCH_PACK, (size_t)tasks * c->b_panel / sizeof(float));
    if (!p->packed) return 0;
    mr_cpu_run(p->cpu, pack_task, p, tasks);
    return 1;
}

/* ---- one block of C, by rows of tiles: pack A, multiply, finish */

enum { MOST_ASKS = 128, LINE = 64 };

/* Prefetch requests for the next tile's rows of A, spread evenly over the tiles of C. */
static int ask_for_rows(const char *from, size_t bytes, int k, int tiles, mr_ask *asks)
{
    const int count = mr_min_int(tiles, MOST_ASKS);
    const size_t share = bytes / (size_t)count, halves = (size_t)mr_max_int(1, k / 2);
    for (int i = 0; i < count; i++) asks[i] = (mr_ask){from + (size_t)i * share, share / halves};
    return count;
}

static void compute_rows(const mr_product *p, const plan *how, const mr_block *block, void *a, float *c, int accumulate)
{
    const mr_product_kernels *kernels = p->cpu->product;
    const size_t row = mr_a_row(p), first = (size_t)block->first_row;
    const size_t next = (size_t)mr_min_int(kernels->tile_rows, p->M - block->first_row - block->rows);
    const int tiles = (int)mr_ceil_div((size_t)block->cols, (size_t)kernels->tile_cols);
    mr_ask asks[MOST_ASKS];
    for (int piece = 0, k0 = 0; k0 < p->K; piece++, k0 += how->depth) {
        const int depth = mr_min_int(how->depth, p->K - k0);
        const float *ahead = p->a + (first + (size_t)block->rows) * row + (size_t)k0 * next;
        kernels->pack_a(p->a + first * row + (size_t)k0, row, depth, block->rows, a);
        mr_packed operands = {
            .rows = block->rows,
            .cols = block->cols,
            .k = depth,
            .a = a,
            .b = packed_panel(p, how, piece, block->first_col / kernels->tile_cols),
            .b_panel = how->b_panel,
            .bias = p->bias && !k0 ? p->bias + block->first_col : NULL,
            .accumulate = accumulate || k0,
            .c = c,
            .c_row = block->row,
            .asks = asks,
            .ask_count = ask_for_rows((const char *)ahead, (size_t)depth * next * sizeof *ahead, depth, tiles, asks),
        };
        kernels->multiply(&operands);
    }
}

/* The distance of a block's rows; not a power of two, which would map them to the same cache sets. */
static size_t value_row(const plan *how) { return mr_round_up((size_t)how->block_cols, 32) + 16; }

/* Tasks go down before they go across, so that a thread reuses its block of B. */
static void block_task(void *arg, int task, int slot)
{
    const mr_product *p = arg;
    const plan how = cut_product(p);
    const int first = task % how.down * how.block_rows, end = mr_min_int(p->M, first + how.block_rows);
    const int tile = p->cpu->product->tile_rows;
    float *a = mr_cpu_slot(p->cpu, slot), *value = a + mr_packed_rows(p->cpu->product, tile);
    mr_block block = {.first_col = task / how.down * how.block_cols, .value = value};
    block.cols = mr_min_int(how.block_cols, p->N - block.first_col);
    block.row = p->finish ? value_row(&how) : mr_c_row(p);
    for (block.first_row = first; block.first_row < end; block.first_row += tile) {
        block.rows = mr_min_int(tile, end - block.first_row);
        float *c = p->finish ? value : p->c + (size_t)block.first_row * block.row + block.first_col;
        compute_rows(p, &how, &block, a, c, !p->finish && p->accumulate);
        if (p->finish) p->finish(p->cpu, p->arg, &block);
    }
}

/* ---- few rows */

static int dots_cols(const mr_product *p)
{
    return mr_max_int(4, (int)mr_round_up(65536 / (size_t)mr_max_int(1, p->K), 4));
}

static void dots_task(void *arg, int task, int slot)
{
    const mr_product *p = arg;
    const int cols = dots_cols(p);
    mr_block block = {.rows = p->M, .first_col = task * cols, .cols = mr_min_int(cols, p->N - task * cols)};
    const float *w = p->b + (size_t)block.first_col * (size_t)p->K, *bias = p->bias ? p->bias + block.first_col : NULL;
    float *to = p->finish ? mr_cpu_slot(p->cpu, slot) : p->c + block.first_col;
    block.value = to;
    block.row = p->finish ? (size_t)cols : mr_c_row(p);
    p->cpu->kernels.dots(p->a, p->M, p->K, w, bias, block.cols, to, block.row);
    if (p->finish) p->finish(p->cpu, p->arg, &block);
}

void mr_product_run(mr_product *p)
{
    const int few = p->b_transposed && p->M <= FEW && !p->accumulate;
    if (few) {
        if (p->finish && !mr_cpu_slots(p->cpu, (size_t)p->M * (size_t)dots_cols(p))) return;
        mr_cpu_run(p->cpu, dots_task, p, (int)mr_ceil_div((size_t)p->N, (size_t)dots_cols(p)));
        return;
    }
    const plan c = cut_product(p);
    const int tile = p->cpu->product->tile_rows;
    const size_t value = p->finish ? (size_t)tile * value_row(&c) : 0;
    if (!mr_cpu_slots(p->cpu, mr_packed_rows(p->cpu->product, tile) + value) || !pack(p, &c)) return;
    mr_cpu_run(p->cpu, block_task, p, c.down * c.across);
}

/* ---- gradients of weights: few outputs, a long sum over tokens */

/* A block of dW and the packed tokens of one piece stay in the L2 cache. */
enum { GRAD_ROWS = 392, GRAD_COLS = 384, GRAD_DEPTH = 192, GRAD_TASKS = 16, GRAD_LEAST = 1024 };

typedef struct gradient {
    mr_cpu *cpu;
    int M, N, K;
    const float *dy, *x;
    size_t dy_row;
    float *dW, *db;
    int down, across; /* blocks of dW */
    int block_rows, block_cols;
    int parts, part_tokens; /* how the sum over tokens is split */
    size_t stride;          /* N·K + N */
    float *partial;         /* [parts − 1, stride]: the first part adds into dW itself */
} gradient;

static void cut_gradient(gradient *g)
{
    const mr_product_kernels *kernels = g->cpu->product;
    g->block_rows = even_part(g->N, GRAD_ROWS / kernels->tile_rows * kernels->tile_rows, kernels->tile_rows, &g->down);
    g->block_cols = even_part(g->K, GRAD_COLS, kernels->tile_cols, &g->across);
    const int wanted = (int)mr_ceil_div(GRAD_TASKS, (size_t)(g->down * g->across));
    const int parts = mr_min_int(wanted, mr_max_int(1, g->M / GRAD_LEAST));
    g->part_tokens = (int)mr_round_up(mr_ceil_div((size_t)g->M, (size_t)parts), GRAD_DEPTH);
    g->parts = (int)mr_ceil_div((size_t)g->M, (size_t)g->part_tokens);
    g->stride = (size_t)g->N * (size_t)g->K + (size_t)g->N;
}

static size_t packed_cols(const mr_cpu *cpu, int cols)
{
    return mr_ceil_div((size_t)cols, (size_t)cpu->product->tile_cols) * mr_panel_bytes(cpu->product, GRAD_DEPTH) /
           sizeof(float);
}

static void pack_tokens(const gradient *g, const float *x, int depth, int cols, char *to)
{
    const mr_product_kernels *kernels = g->cpu->product;
    for (int col = 0; col < cols; col += kernels->tile_cols, to += mr_panel_bytes(kernels, GRAD_DEPTH))
        kernels->pack_b(x + col, (size_t)g->K, 1, depth, mr_min_int(kernels->tile_cols, cols - col), to);
}

/* Prefetch requests for a piece of tokens [depth, width] with rows `row` floats apart; two requests cover
 * one column of cache lines. */
static int ask_for_tokens(const float *from, size_t row, int depth, int width, mr_ask *asks, int count)
{
    const size_t step = row * sizeof *from;
    for (int at = 0; at < width; at += LINE / (int)sizeof *from)
        for (int half = 0; half < 2 && count < MOST_ASKS; half++)
            asks[count++] = (mr_ask){(const char *)(from + (size_t)(half * (depth / 2)) * row + at), step};
    return count;
}

static void gradient_task(void *arg, int task, int slot)
{
    const gradient *g = arg;
    const mr_product_kernels *kernels = g->cpu->product;
    const int part = task / (g->down * g->across), block = task % (g->down * g->across);
    const int row = block / g->across * g->block_rows, col = block % g->across * g->block_cols;
    const int rows = mr_min_int(g->block_rows, g->N - row), cols = mr_min_int(g->block_cols, g->K - col);
    const int first = part * g->part_tokens, end = mr_min_int(g->M, first + g->part_tokens);
    float *own = part ? g->partial + (size_t)(part - 1) * g->stride : NULL;
    float *sums = !g->db || col ? NULL : (own ? own + (size_t)g->N * (size_t)g->K : g->db) + row;
    for (int r = 0; own && sums && r < rows; r++) sums[r] = 0.0f;

    float *a = mr_cpu_slot(g->cpu, slot);
    char *b = (char *)(a + mr_packed_rows(g->cpu->product, g->block_rows));
    mr_ask asks[MOST_ASKS];
    mr_packed operands = {.rows = rows,
                          .cols = cols,
                          .a = a,
                          .by_columns = 1,
                          .asks = asks,
                          .b = b,
                          .c_row = (size_t)g->K,
                          .b_panel = mr_panel_bytes(kernels, GRAD_DEPTH),
                          .c = (own ? own : g->dW) + (size_t)row * (size_t)g->K + col};
    for (int k0 = first; k0 < end; k0 += GRAD_DEPTH) {
        operands.k = mr_min_int(GRAD_DEPTH, end - k0);
        operands.accumulate = !own || k0 > first;
        kernels->pack_at(g->dy + (size_t)k0 * g->dy_row + row, g->dy_row, operands.k, rows, a, sums);
        pack_tokens(g, g->x + (size_t)k0 * (size_t)g->K + col, operands.k, cols, b);
        const int next = k0 + GRAD_DEPTH, whole = next + GRAD_DEPTH <= end;
        operands.ask_count = 0;
        if (whole) {
            const float *dy = g->dy + (size_t)next * g->dy_row + row, *x = g->x + (size_t)next * (size_t)g->K + col;
            operands.ask_count = ask_for_tokens(dy, g->dy_row, GRAD_DEPTH, rows, asks, 0);
            operands.ask_count = ask_for_tokens(x, (size_t)g->K, GRAD_DEPTH, cols, asks, operands.ask_count);
        }
        kernels->multiply(&operands);
    }
}

void mr_product_gradient(mr_cpu *cpu, int M, int N, int K, const float *dy, const float *x, float *dW, float *db)
{
    mr_product_gradient_rows(cpu, M, N, K, dy, (size_t)N, x, dW, db);
}

void mr_product_gradient_rows(mr_cpu *cpu, int M, int N, int K, const float *dy, size_t dy_row, const float *x,
                              float *dW, float *db)
{
    gradient g = {.cpu = cpu, .M = M, .N = N, .K = K, .dy = dy, .dy_row = dy_row, .x = x, .dW = dW, .db = db};
    cut_gradient(&g);
    const size_t more = (size_t)(g.parts - 1), outputs = (size_t)N * (size_t)K;
    if (!mr_cpu_slots(cpu, mr_packed_rows(cpu->product, g.block_rows) + packed_cols(cpu, g.block_cols))) return;
    if (more && !(g.partial = mr_cpu_scratch(cpu, MR_SCRATCH_PARTIAL, g.stride * more))) return;
    mr_cpu_run(cpu, gradient_task, &g, g.parts * g.down * g.across);
    mr_cpu_reduce(cpu, outputs, g.partial, g.stride, (int)more, dW);
    if (db && more) mr_cpu_reduce(cpu, (size_t)N, g.partial + outputs, g.stride, (int)more, db);
}
