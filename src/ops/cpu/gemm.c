#include "ops/cpu/gemm.h"

/* Blocks: DEPTH rows of B at a time, so that a panel of B stays in the second cache while it meets BLOCK_ROWS rows of
 * A. FEW rows are better done as dot products that read W once, without packing. */
enum { DEPTH = 384, BLOCK_ROWS = 96, BLOCK_COLS = 512, FEW = 8 };

static int padded_cols(const mr_product *p)
{
    return (int)mr_round_up((size_t)p->N, (size_t)p->cpu->kernels.tile_cols);
}

/* ---- B packed for all threads: for each DEPTH rows, panel after panel */

static int panels_of(const mr_product *p) { return padded_cols(p) / p->cpu->kernels.tile_cols; }

static void pack_task(void *arg, int task, int slot)
{
    (void)slot;
    const mr_product *p = arg;
    const int width = p->cpu->kernels.tile_cols, panels = panels_of(p);
    const int col = task % panels * width, k0 = task / panels * DEPTH, depth = mr_min_int(DEPTH, p->K - k0);
    float *to = (float *)p->packed + (size_t)k0 * (size_t)padded_cols(p) + (size_t)col * (size_t)depth;
    const size_t row = p->b_transposed ? 1 : (size_t)p->N, column = p->b_transposed ? (size_t)p->K : 1;
    const float *from = p->b + (size_t)k0 * row + (size_t)col * column;
    p->cpu->kernels.pack_b(from, row, column, depth, mr_min_int(width, p->N - col), to);
}

static int pack(mr_product *p)
{
    p->packed = mr_cpu_scratch(p->cpu, MR_SCRATCH_PACK, (size_t)padded_cols(p) * (size_t)p->K);
    if (!p->packed) return 0;
    mr_cpu_run(p->cpu, pack_task, p, panels_of(p) * (int)mr_ceil_div((size_t)p->K, DEPTH));
    return 1;
}

/* ---- one block of C */

static void compute_block(const mr_product *p, const mr_block *block, float *c, int accumulate)
{
    const mr_cpu_kernels *kernels = &p->cpu->kernels;
    const size_t width = (size_t)kernels->tile_cols, row = (size_t)p->K;
    for (int k0 = 0; k0 < p->K; k0 += DEPTH) {
        const int depth = mr_min_int(DEPTH, p->K - k0);
        for (int col = 0; col < block->cols; col += (int)width) {
            const size_t at = (size_t)(block->first_col + col);
            mr_panel panel = {
                .rows = block->rows, .cols = mr_min_int((int)width, block->cols - col), .k = depth,
                .a = p->a + (size_t)block->first_row * row + k0, .a_row = row, .a_col = 1,
                .a_tile = (size_t)kernels->tile_rows * row,
                .b = p->packed + (size_t)k0 * (size_t)padded_cols(p) + at * (size_t)depth,
                .bias = p->bias && !k0 ? p->bias + at : NULL,
                .accumulate = accumulate || k0, .c = c + col, .c_row = block->row,
            };
            kernels->panel(&panel);
        }
    }
}

static void block_task(void *arg, int task, int slot)
{
    const mr_product *p = arg;
    const int across = (int)mr_ceil_div((size_t)p->N, BLOCK_COLS);
    mr_block block = {.first_row = task / across * BLOCK_ROWS, .first_col = task % across * BLOCK_COLS};
    block.rows = mr_min_int(BLOCK_ROWS, p->M - block.first_row);
    block.cols = mr_min_int(BLOCK_COLS, p->N - block.first_col);
    if (!p->finish) {
        block.row = (size_t)p->N;
        compute_block(p, &block, p->c + (size_t)block.first_row * block.row + block.first_col, p->accumulate);
        return;
    }
    float *value = mr_cpu_slot(p->cpu, slot);
    block.value = value;
    block.row = mr_round_up((size_t)block.cols, 16);
    compute_block(p, &block, value, 0);
    p->finish(p->cpu, p->arg, &block);
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
    block.row = p->finish ? (size_t)cols : (size_t)p->N;
    p->cpu->kernels.dots(p->a, p->M, p->K, w, bias, block.cols, to, block.row);
    if (p->finish) p->finish(p->cpu, p->arg, &block);
}

void mr_product_run(mr_product *p)
{
    const int few = p->b_transposed && p->M <= FEW && !p->accumulate;
    const size_t block = few ? (size_t)p->M * (size_t)dots_cols(p) : (size_t)BLOCK_ROWS * BLOCK_COLS;
    if (p->finish && !mr_cpu_slots(p->cpu, block)) return;
    if (few) {
        mr_cpu_run(p->cpu, dots_task, p, (int)mr_ceil_div((size_t)p->N, (size_t)dots_cols(p)));
        return;
    }
    if (!pack(p)) return;
    const size_t down = mr_ceil_div((size_t)p->M, BLOCK_ROWS), across = mr_ceil_div((size_t)p->N, BLOCK_COLS);
    mr_cpu_run(p->cpu, block_task, p, (int)(down * across));
}

/* ---- gradients of weights: few outputs, a long sum over tokens */

enum { GRAD_ROWS = 192, GRAD_COLS = 384, GRAD_DEPTH = 256, GRAD_TASKS = 32, GRAD_LEAST = 1024 };

typedef struct gradient {
    mr_cpu *cpu;
    int M, N, K;
    const float *dy, *x;
    float *dW, *db;
    int down, across;       /* blocks of dW */
    int block_rows, block_cols;
    int parts, part_tokens; /* how the sum over tokens is cut */
    float *partial;         /* [parts, N·K + N] when there are several */
} gradient;

/* Even blocks that are whole tiles. */
static int even_block(int n, int most, int tile, int *blocks)
{
    int size = (int)mr_round_up(mr_ceil_div((size_t)n, mr_ceil_div((size_t)n, (size_t)most)), (size_t)tile);
    *blocks = (int)mr_ceil_div((size_t)n, (size_t)size);
    return size;
}

static void cut_gradient(gradient *g)
{
    g->block_rows = even_block(g->N, GRAD_ROWS, g->cpu->kernels.tile_rows, &g->down);
    g->block_cols = even_block(g->K, GRAD_COLS, g->cpu->kernels.tile_cols, &g->across);
    const int wanted = (int)mr_ceil_div(GRAD_TASKS, (size_t)(g->down * g->across));
    const int most = mr_max_int(1, g->M / GRAD_LEAST);
    const int parts = mr_min_int(wanted, most);
    g->part_tokens = (int)mr_round_up(mr_ceil_div((size_t)g->M, (size_t)parts), GRAD_DEPTH);
    g->parts = (int)mr_ceil_div((size_t)g->M, (size_t)g->part_tokens);
}

static void gradient_task(void *arg, int task, int slot)
{
    const gradient *g = arg;
    const mr_cpu_kernels *kernels = &g->cpu->kernels;
    const int part = task / (g->down * g->across), block = task % (g->down * g->across);
    const int row = block / g->across * g->block_rows, col = block % g->across * g->block_cols;
    const int rows = mr_min_int(g->block_rows, g->N - row), cols = mr_min_int(g->block_cols, g->K - col);
    const int first = part * g->part_tokens, end = mr_min_int(g->M, first + g->part_tokens);
    const size_t outputs = (size_t)g->N * (size_t)g->K;
    float *own = g->partial ? g->partial + (size_t)part * (outputs + (size_t)g->N) : NULL;
    float *c = (own ? own : g->dW) + (size_t)row * (size_t)g->K + col;
    float *sums = !g->db || col ? NULL : (own ? own + outputs : g->db) + row;
    for (int r = 0; own && sums && r < rows; r++) sums[r] = 0.0f;

    float *a = mr_cpu_slot(g->cpu, slot), *b = a + (size_t)g->block_rows * GRAD_DEPTH;
    for (int k0 = first; k0 < end; k0 += GRAD_DEPTH) {
        const int depth = mr_min_int(GRAD_DEPTH, end - k0);
        kernels->pack_a(g->dy + (size_t)k0 * (size_t)g->N + row, (size_t)g->N, depth, rows, a, sums);
        for (int j = 0; j < cols; j += kernels->tile_cols) {
            const int width = mr_min_int(kernels->tile_cols, cols - j);
            kernels->pack_b(g->x + (size_t)k0 * (size_t)g->K + col + j, (size_t)g->K, 1, depth, width, b);
            mr_panel panel = {
                .rows = rows, .cols = width, .k = depth, .a = a, .a_row = 1, .a_col = (size_t)kernels->tile_rows,
                .a_tile = (size_t)kernels->tile_rows * (size_t)depth, .b = b, .accumulate = !own || k0 > first,
                .c = c + j, .c_row = (size_t)g->K,
            };
            kernels->panel(&panel);
        }
    }
}

void mr_product_gradient(mr_cpu *cpu, int M, int N, int K, const float *dy, const float *x, float *dW, float *db)
{
    gradient g = {.cpu = cpu, .M = M, .N = N, .K = K, .dy = dy, .x = x, .dW = dW, .db = db};
    cut_gradient(&g);
    const size_t stride = (size_t)N * (size_t)K + (size_t)N;
    if (!mr_cpu_slots(cpu, (size_t)(g.block_rows + cpu->kernels.tile_cols) * GRAD_DEPTH)) return;
    if (g.parts > 1 && !(g.partial = mr_cpu_scratch(cpu, MR_SCRATCH_PARTIAL, stride * (size_t)g.parts))) return;
    mr_cpu_run(cpu, gradient_task, &g, g.parts * g.down * g.across);
    if (g.parts == 1) return;
    mr_cpu_reduce(cpu, (size_t)N * (size_t)K, g.partial, stride, g.parts, dW);
    if (db) mr_cpu_reduce(cpu, (size_t)N, g.partial + (size_t)N * (size_t)K, stride, g.parts, db);
}
