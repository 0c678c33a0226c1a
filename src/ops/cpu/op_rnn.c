/* GRU and LSTM: one product projects the input into `saved`, then tokens are computed one after the other.
 *
 * Rows of a batch are independent, so a task takes a group of rows through all of time, with W_hh packed once and read
 * from the cache for every token; no thread waits for another. A few rows are not worth tiles: then all threads share
 * every token's product as dot products. A row's result does not depend on which rows it is multiplied with, so the
 * groups may depend on the number of threads. */
#include "ops/cpu/rnn.h"

#include <string.h>

enum { FEW = 8, MOST_TILES = 3 };

size_t mr_cpu_rnn_saved(mr_dev *dev, mr_rnn kind, int B, int T, int H)
{
    (void)dev;
    return (size_t)B * (size_t)T * (size_t)(mr_rnn_gates(kind) + 1) * (size_t)H * sizeof(float);
}

/* ---- rows and tokens */

typedef void visit_fn(const mr_rnn_group *g, int r, int t, int part);

typedef struct visit {
    visit_fn *fn;
    const mr_rnn_group *g;
    int t, part;
} visit;

static void visit_task(void *arg, int task, int slot)
{
    (void)slot;
    const visit *v = arg;
    v->fn(v->g, task, v->t, v->part);
}

static void visit_rows(const mr_rnn_group *g, int t, int part, visit_fn *fn)
{
    if (g->j->few) mr_cpu_run(g->j->cpu, visit_task, &(visit){fn, g, t, part}, g->rows);
    for (int r = 0; !g->j->few && r < g->rows; r++) fn(g, r, t, part);
}

static size_t token(const mr_rnn_group *g, int r, int t)
{
    return (size_t)(g->first + r) * (size_t)g->j->T + (size_t)t;
}

static int is_real(const mr_rnn_group *g, int r, int t) { return !g->j->length || t < g->j->length[g->first + r]; }

static int starts_at(const mr_rnn_group *g, int r, int t)
{
    return (t == 0 && !g->j->h_in) || (g->j->reset && g->j->reset[token(g, r, t)] && is_real(g, r, t));
}

/* h (or c, H further on) that token t of a row starts from. */
static const float *state_before(const mr_rnn_group *g, int r, int t, int of_c)
{
    const mr_rnn_job *j = g->j;
    const size_t H = (size_t)j->H, at = of_c ? H : 0;
    if (starts_at(g, r, t)) return j->h_init ? j->h_init + at : j->zeros;
    if (t == 0) return j->h_in + (size_t)(g->first + r) * (size_t)j->S + at;
    return (of_c ? j->extra : j->h) + (token(g, r, t) - 1) * H;
}

static void copy_row(float *to, const float *from, int n) { memmove(to, from, (size_t)n * sizeof *to); }
static void clear_row(float *to, int n) { memset(to, 0, (size_t)n * sizeof *to); }

static mr_rnn_row row_of(const mr_rnn_group *g, int r, int t)
{
    const mr_rnn_job *j = g->j;
    const size_t H = (size_t)j->H, wide = (size_t)(j->G * j->H), at = (size_t)r * H;
    const size_t pitch = j->kind == MR_GRU_BEFORE ? 2 * H : wide;
    return (mr_rnn_row){.n = j->H,
                        .gates = j->gates + token(g, r, t) * wide,
                        .extra = j->extra + token(g, r, t) * H,
                        .sums = g->sums + (size_t)r * pitch,
                        .ds = g->sums + (size_t)r * pitch,
                        .rh = g->rh + at,
                        .h = g->h + at,
                        .c = g->c + at,
                        .carry = g->carry + at,
                        .carry_c = g->carry_c + at,
                        .back = g->back + at};
}

static mr_rnn_group group_of(const mr_rnn_job *j, int first, int rows, float *at)
{
    const size_t tile = mr_round_up(j->cpu->product->a_tile, 64) / sizeof(float), n = (size_t)rows * (size_t)j->H;
    mr_rnn_group g = {.j = j, .first = first, .rows = rows, .tile = at, .h = at + tile};
    g.c = g.h + n, g.rh = g.c + n, g.carry = g.rh + n, g.carry_c = g.carry + n, g.back = g.carry_c + n,
    g.more = g.back + n;
    g.sums = g.more + n;
    return g;
}

/* Splits the batch into groups and takes scratch for every thread's group. bf16 products may add in another order in a
 * tile that is not full; there groups are whole tiles, so that only the last tile of the batch is partial. */
static int cut_batch(mr_rnn_job *j)
{
    const int tile = j->cpu->product->tile_rows, threads = j->cpu->dev.threads;
    j->few = j->B <= FEW;
    int groups = mr_min_int(j->B, threads);
    while (!j->few && mr_ceil_div((size_t)j->B, (size_t)groups) > (size_t)(MOST_TILES * tile)) groups += threads;
    j->group_rows = j->few ? j->B : (int)mr_ceil_div((size_t)j->B, (size_t)groups);
    if (j->cpu->product != &j->cpu->kernels.product)
        j->group_rows = (int)mr_round_up((size_t)j->group_rows, (size_t)tile);
    return mr_cpu_slots(j->cpu, mr_round_up(j->cpu->product->a_tile, 64) / sizeof(float) +
                                    (size_t)j->group_rows * (size_t)((7 + j->G) * j->H));
}

/* Runs every group through all of time. */
static void run_groups(mr_rnn_job *j, mr_pool_fn *task)
{
    if (j->few) task(j, 0, 0);
    else mr_cpu_run(j->cpu, task, j, (int)mr_ceil_div((size_t)j->B, (size_t)j->group_rows));
}

static mr_rnn_group group_at(const mr_rnn_job *j, int task, int slot)
{
    const int first = task * j->group_rows;
    return group_of(j, first, mr_min_int(j->group_rows, j->B - first), mr_cpu_slot(j->cpu, slot));
}

/* ---- forward */

static void forward_row(const mr_rnn_group *g, int r, int t, int part)
{
    const mr_rnn_job *j = g->j;
    mr_rnn_row row = row_of(g, r, t);
    row.out = j->h + token(g, r, t) * (size_t)j->H;
    if (part == MR_RNN_BEFORE_SECOND) row.sums = g->more + (size_t)r * (size_t)j->H;
    if (is_real(g, r, t)) {
        j->cpu->kernels.rnn_fwd[part](&row);
        return;
    }
    clear_row(row.out, j->H);
    clear_row(row.extra, j->H);
    clear_row(row.rh, j->H);
}

static void enter_row(const mr_rnn_group *g, int r, int t, int part)
{
    (void)part;
    const size_t at = (size_t)r * (size_t)g->j->H;
    if (t > 0 && !(is_real(g, r, t) && starts_at(g, r, t))) return;
    copy_row(g->h + at, state_before(g, r, t, 0), g->j->H);
    if (g->j->kind == MR_LSTM) copy_row(g->c + at, state_before(g, r, t, 1), g->j->H);
}

static void leave_row(const mr_rnn_group *g, int r, int t, int part)
{
    (void)t;
    (void)part;
    const mr_rnn_job *j = g->j;
    const size_t at = (size_t)r * (size_t)j->H;
    float *to = j->h_out + (size_t)(g->first + r) * (size_t)j->S;
    copy_row(to, g->h + at, j->H);
    if (j->kind == MR_LSTM) copy_row(to + j->H, g->c + at, j->H);
}

static void forward_task(void *arg, int task, int slot)
{
    const mr_rnn_job *j = arg;
    const mr_rnn_group g = group_at(j, task, slot);
    for (int t = 0; t < j->T; t++) {
        if (t == 0 || j->reset) visit_rows(&g, t, 0, enter_row);
        mr_rnn_multiply(&g, &j->matrices[0], g.h, g.sums);
        if (j->kind == MR_LSTM) visit_rows(&g, t, MR_RNN_LSTM, forward_row);
        if (j->kind == MR_GRU_AFTER) visit_rows(&g, t, MR_RNN_AFTER, forward_row);
        if (j->kind != MR_GRU_BEFORE) continue;
        visit_rows(&g, t, MR_RNN_BEFORE_FIRST, forward_row);
        mr_rnn_multiply(&g, &j->matrices[1], g.rh, g.more);
        visit_rows(&g, t, MR_RNN_BEFORE_SECOND, forward_row);
    }
    if (j->h_out) visit_rows(&g, 0, 0, leave_row);
}

/* ---- backward */

static void backward_row(const mr_rnn_group *g, int r, int t, int part)
{
    const mr_rnn_job *j = g->j;
    mr_rnn_row row = row_of(g, r, t);
    row.dout = j->dh + token(g, r, t) * (size_t)j->H;
    row.before = state_before(g, r, t, 0);
    if (j->kind == MR_LSTM) row.c_before = state_before(g, r, t, 1);
    if (part == MR_RNN_BEFORE_SECOND) row.sums = g->more + (size_t)r * (size_t)j->H;
    if (is_real(g, r, t)) {
        j->cpu->kernels.rnn_bwd[part](&row);
        return;
    }
    clear_row(row.gates, j->G * j->H);
    clear_row(row.ds, (j->kind == MR_GRU_BEFORE ? 2 : j->G) * j->H);
    clear_row(row.rh, j->H);
    if (j->kind == MR_GRU_AFTER) clear_row(row.extra, j->H);
}

/* At a start, the whole gradient of the state before the token goes to h_init; nothing crosses it. */
static void start_row(const mr_rnn_group *g, int r, int t, int part)
{
    (void)part;
    const mr_rnn_job *j = g->j;
    const size_t at = (size_t)r * (size_t)j->H, n = (size_t)j->H;
    if (!is_real(g, r, t) || !starts_at(g, r, t)) return;
    if (j->start_grad) {
        float *to = j->start_grad + (size_t)(g->first + r) * (size_t)j->S;
        j->cpu->kernels.add(n, to, g->carry + at);
        j->cpu->kernels.add(n, to, g->back + at);
        if (j->kind == MR_LSTM) j->cpu->kernels.add(n, to + n, g->carry_c + at);
    }
    clear_row(g->carry + at, j->H);
    clear_row(g->back + at, j->H);
    clear_row(g->carry_c + at, j->H);
}

static void begin_row(const mr_rnn_group *g, int r, int t, int part)
{
    (void)t;
    (void)part;
    const mr_rnn_job *j = g->j;
    const size_t at = (size_t)r * (size_t)j->H, stream = (size_t)(g->first + r) * (size_t)j->S;
    const float *from = j->dh_out ? j->dh_out + stream : NULL;
    copy_row(g->carry + at, from ? from : j->zeros, j->H);
    copy_row(g->carry_c + at, from && j->kind == MR_LSTM ? from + j->H : j->zeros, j->H);
    clear_row(g->back + at, j->H);
    if (j->start_grad) clear_row(j->start_grad + stream, j->S);
}

static void end_row(const mr_rnn_group *g, int r, int t, int part)
{
    (void)t;
    (void)part;
    const mr_rnn_job *j = g->j;
    const size_t at = (size_t)r * (size_t)j->H;
    float *to = j->dh_in + (size_t)(g->first + r) * (size_t)j->S;
    copy_row(to, g->carry + at, j->H);
    j->cpu->kernels.add((size_t)j->H, to, g->back + at);
    if (j->kind == MR_LSTM) copy_row(to + j->H, g->carry_c + at, j->H);
}

/* Beyond its length a row multiplies zeros, so that its product adds nothing; its carry is kept
 * until its last real token. */
static void backward_task(void *arg, int task, int slot)
{
    const mr_rnn_job *j = arg;
    const mr_rnn_group g = group_at(j, task, slot);
    visit_rows(&g, 0, 0, begin_row);
    for (int t = j->T - 1; t >= 0; t--) {
        if (j->kind == MR_LSTM) visit_rows(&g, t, MR_RNN_LSTM, backward_row);
        if (j->kind == MR_GRU_AFTER) visit_rows(&g, t, MR_RNN_AFTER, backward_row);
        if (j->kind == MR_GRU_BEFORE) {
            visit_rows(&g, t, MR_RNN_BEFORE_FIRST, backward_row);
            mr_rnn_multiply(&g, &j->matrices[1], g.rh, g.more);
            visit_rows(&g, t, MR_RNN_BEFORE_SECOND, backward_row);
        }
        mr_rnn_multiply(&g, &j->matrices[0], g.sums, g.back);
        if (t == 0 || j->reset) visit_rows(&g, t, 0, start_row);
    }
    if (j->dh_in) visit_rows(&g, 0, 0, end_row);
}

/* Collects the states that W_hh was multiplied with, [B, T, H]. */
typedef struct shifting {
    const mr_rnn_job *j;
    float *to;
} shifting;

static void shift_task(void *arg, int task, int slot)
{
    (void)slot;
    const shifting *s = arg;
    const mr_rnn_job *j = s->j;
    const mr_rnn_group g = {.j = j, .first = task, .rows = 1};
    const size_t H = (size_t)j->H, at = token(&g, 0, 0) * H;
    copy_row(s->to + at, state_before(&g, 0, 0, 0), j->H);
    memcpy(s->to + at + H, j->h + at, (size_t)(j->T - 1) * H * sizeof *s->to);
    for (int t = 1; j->reset && t < j->T; t++)
        if (starts_at(&g, 0, t)) copy_row(s->to + at + (size_t)t * H, state_before(&g, 0, t, 0), j->H);
}

static void recurrent_gradients(mr_rnn_job *j, const mr_rnn_bwd_args *a, float *states)
{
    const int tokens = j->B * j->T, H = j->H, wide = j->G * H, first = j->kind == MR_LSTM ? wide : 2 * H;
    float *dW = (float *)a->dW_hh, *db = (float *)a->db_hh;
    mr_cpu_run(j->cpu, shift_task, &(shifting){j, states}, j->B);
    mr_product_gradient_rows(j->cpu, tokens, first, H, j->gates, (size_t)wide, states, dW, db);
    dW += (size_t)first * (size_t)H, db += first;
    if (j->kind == MR_GRU_AFTER) mr_product_gradient(j->cpu, tokens, H, H, j->extra, states, dW, db);
    if (j->kind == MR_GRU_BEFORE)
        mr_product_gradient_rows(j->cpu, tokens, H, H, j->gates + first, (size_t)wide, j->extra, dW, db);
}

/* ---- the ops */

static mr_rnn_job job_of(mr_cpu *cpu, mr_rnn kind, int B, int T, int H, void *saved)
{
    mr_rnn_job j = {.cpu = cpu,
                    .kind = kind,
                    .B = B,
                    .T = T,
                    .H = H,
                    .G = mr_rnn_gates(kind),
                    .S = mr_rnn_state(kind, H),
                    .gates = saved};
    j.extra = j.gates + (size_t)B * (size_t)T * (size_t)(j.G * H);
    return j;
}

/* Takes a row of zeros and `more` floats after it; returns the latter. */
static float *take_scratch(mr_rnn_job *j, size_t more)
{
    const size_t row = mr_round_up((size_t)j->H, 16);
    float *data = mr_cpu_scratch(j->cpu, MR_SCRATCH_STATE, row + more);
    if (!data) return NULL;
    memset(data, 0, row * sizeof *data);
    j->zeros = data;
    return data + row;
}

static void rnn_fwd(mr_dev *dev, const mr_rnn_fwd_args *a)
{
    mr_cpu *cpu = mr_cpu_of(dev);
    mr_rnn_job j = job_of(cpu, a->kind, a->B, a->T, a->H, a->saved);
    j.h_in = (const float *)a->h_in, j.h_init = (const float *)a->h_init, j.reset = a->reset, j.length = a->length;
    j.h = (float *)a->h, j.h_out = (float *)a->h_out;
    mr_product p = {.cpu = cpu,
                    .M = a->B * a->T,
                    .N = j.G * j.H,
                    .K = a->D,
                    .a = (const float *)a->x,
                    .b = (const float *)a->W_ih,
                    .b_transposed = 1,
                    .bias = (const float *)a->b_ih,
                    .c = j.gates};
    if (a->W_ih) mr_product_run(&p);
    if (!take_scratch(&j, 0) || !cut_batch(&j) ||
        !mr_rnn_make_matrices(&j, (const float *)a->W_hh, (const float *)a->b_hh, 0))
        return;
    run_groups(&j, forward_task);
}

static void rnn_bwd(mr_dev *dev, const mr_rnn_bwd_args *a)
{
    mr_cpu *cpu = mr_cpu_of(dev);
    mr_rnn_job j = job_of(cpu, a->kind, a->B, a->T, a->H, a->saved);
    const int tokens = a->B * a->T, learned = a->h_init && a->dh_init;
    j.h_in = (const float *)a->h_in, j.h_init = (const float *)a->h_init, j.reset = a->reset, j.length = a->length;
    j.h = (float *)a->h, j.dh = (const float *)a->dh, j.dh_out = (const float *)a->dh_out, j.dh_in = (float *)a->dh_in;
    float *states = take_scratch(&j, (size_t)tokens * (size_t)j.H + (size_t)(j.B * j.S));
    if (!states || !cut_batch(&j) || !mr_rnn_make_matrices(&j, (const float *)a->W_hh, NULL, 1)) return;
    if (learned) j.start_grad = states + (size_t)tokens * (size_t)j.H;
    run_groups(&j, backward_task);
    for (int b = 0; learned && b < j.B; b++)
        cpu->kernels.add((size_t)j.S, (float *)a->dh_init, j.start_grad + (size_t)b * (size_t)j.S);
    recurrent_gradients(&j, a, states);
    if (!a->W_ih) return;
    mr_product p = {.cpu = cpu,
                    .M = tokens,
                    .N = a->D,
                    .K = j.G * j.H,
                    .a = j.gates,
                    .b = (const float *)a->W_ih,
                    .accumulate = a->accumulate,
                    .c = (float *)a->dx};
    mr_product_run(&p);
    mr_product_gradient(cpu, tokens, j.G * j.H, a->D, j.gates, (const float *)a->x, (float *)a->dW_ih,
                        (float *)a->db_ih);
}

void mr_cpu_rnn_ops(mr_ops *ops)
{
    ops->rnn_fwd = rnn_fwd;
    ops->rnn_bwd = rnn_bwd;
}
