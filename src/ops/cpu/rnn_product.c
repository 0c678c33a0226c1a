/* Products with W_hh, which GRU and LSTM multiply with at every token: packed once for a call. */
#include "ops/cpu/rnn.h"

static void pack_task(void *arg, int task, int slot)
{
    (void)slot;
    const mr_rnn_job *j = arg;
    const mr_rnn_matrix *m = j->matrices;
    for (; task >= m->pieces * m->panels; m++) task -= m->pieces * m->panels;
    const mr_product_kernels *kernels = j->cpu->product;
    const int k0 = task / m->panels * m->depth, col = task % m->panels * kernels->tile_cols;
    kernels->pack_b(m->from + (size_t)k0 * m->row + (size_t)col * m->column, m->row, m->column,
                    mr_min_int(m->depth, m->K - k0), mr_min_int(kernels->tile_cols, m->N - col),
                    m->packed + (size_t)task * m->panel);
}

/* Transposes B for few rows, which read it by columns. In the forward W_hh already lies like that. */
static void turn_task(void *arg, int task, int slot)
{
    (void)slot;
    const mr_rnn_job *j = arg;
    const mr_rnn_matrix *m = j->matrices;
    for (; task >= m->N; m++) task -= m->N;
    for (int k = 0; k < m->K; k++)
        m->plain[(size_t)task * (size_t)m->K + (size_t)k] = m->from[(size_t)k * m->row + (size_t)task * m->column];
}

static void cut_matrix(const mr_rnn_job *j, mr_rnn_matrix *m)
{
    const mr_product_kernels *kernels = j->cpu->product;
    m->depth = mr_min_int(kernels->depth, m->K);
    m->pieces = (int)mr_ceil_div((size_t)m->K, (size_t)m->depth);
    m->panels = (int)mr_ceil_div((size_t)m->N, (size_t)kernels->tile_cols);
    m->panel = mr_round_up((size_t)m->depth, (size_t)kernels->k_step) * kernels->b_row;
}

/* Describes rows first … first+rows−1 of W_hh: they are Bᵀ in the forward, B in the backward. */
static void set_matrix(mr_rnn_job *j, mr_rnn_matrix *m, const float *W, const float *bias, int first, int rows,
                       int down)
{
    const size_t H = (size_t)j->H;
    *m = (mr_rnn_matrix){.N = down ? j->H : rows,
                         .K = down ? rows : j->H,
                         .from = W + (size_t)first * H,
                         .row = down ? H : 1,
                         .column = down ? 1 : H,
                         .bias = bias ? bias + first : NULL};
    cut_matrix(j, m);
}

int mr_rnn_make_matrices(mr_rnn_job *j, const float *W, const float *bias, int down)
{
    const int gates = j->G * j->H, first = j->kind == MR_GRU_BEFORE ? 2 * j->H : gates;
    set_matrix(j, &j->matrices[0], W, bias, 0, first, down);
    if (first < gates) set_matrix(j, &j->matrices[1], W, bias, first, gates - first, down);
    size_t floats = 0;
    int tasks = 0;
    for (mr_rnn_matrix *m = j->matrices; m < j->matrices + MR_RNN_MATRICES; m++) {
        floats += j->few ? (size_t)m->N * (size_t)m->K : (size_t)(m->pieces * m->panels) * m->panel / sizeof(float);
        tasks += j->few ? m->N : m->pieces * m->panels;
    }
    if (j->few && !down) {
        for (mr_rnn_matrix *m = j->matrices; m < j->matrices + MR_RNN_MATRICES; m++) m->plain = (float *)m->from;
        return 1;
    }
    float *data = mr_cpu_scratch(j->cpu, MR_SCRATCH_RNN, floats);
    if (!data) return 0;
    for (mr_rnn_matrix *m = j->matrices; m < j->matrices + MR_RNN_MATRICES; m++) {
        m->plain = data;
        m->packed = (char *)data;
        data += j->few ? (size_t)m->N * (size_t)m->K : (size_t)(m->pieces * m->panels) * m->panel / sizeof(float);
    }
    mr_cpu_run(j->cpu, j->few ? turn_task : pack_task, j, tasks);
    return 1;
}

static void multiply_tile(const mr_rnn_group *g, const mr_rnn_matrix *m, const float *a, int rows, float *c)
{
    const mr_product_kernels *kernels = g->j->cpu->product;
    for (int piece = 0, k0 = 0; piece < m->pieces; piece++, k0 += m->depth) {
        const int depth = mr_min_int(m->depth, m->K - k0);
        kernels->pack_a(a + k0, (size_t)m->K, depth, rows, g->tile);
        kernels->multiply(&(mr_packed){.rows = rows,
                                       .cols = m->N,
                                       .k = depth,
                                       .a = g->tile,
                                       .b = m->packed + (size_t)(piece * m->panels) * m->panel,
                                       .b_panel = m->panel,
                                       .bias = piece ? NULL : m->bias,
                                       .accumulate = piece > 0,
                                       .c = c,
                                       .c_row = (size_t)m->N});
    }
}

void mr_rnn_multiply(const mr_rnn_group *g, const mr_rnn_matrix *m, const float *a, float *c)
{
    if (g->j->few) {
        mr_product p = {.cpu = g->j->cpu,
                        .M = g->rows,
                        .N = m->N,
                        .K = m->K,
                        .a = a,
                        .b = m->plain,
                        .b_transposed = 1,
                        .bias = m->bias,
                        .c = c};
        mr_product_run(&p);
        return;
    }
    const int tile = g->j->cpu->product->tile_rows;
    for (int r = 0; r < g->rows; r += tile)
        multiply_tile(g, m, a + (size_t)r * (size_t)m->K, mr_min_int(tile, g->rows - r), c + (size_t)r * (size_t)m->N);
}
