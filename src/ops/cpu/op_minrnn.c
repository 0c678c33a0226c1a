/* minGRU and minLSTM: a matrix product projects the input into `saved`, then gates and scan run
 * over it; and the scan alone.
 *
 * A task of the scan is one sequence × a block of channels. Where that gives too few tasks, time is split into chunks:
 * a first pass computes each chunk's effect on the state, h → decay·h + drive; the states before the chunks follow from
 * these in order; then every chunk runs from its own. The backward does the same with its carry. */
#include "ops/cpu/gemm.h"

#include <string.h>

enum { CHANNELS = 64, ENOUGH_TASKS = 16, LEAST_CHUNK = 512 };

typedef struct scan {
    mr_cpu *cpu;
    int B, T, H;
    size_t pre_row; /* gates · H */
    float *pre;
    const float *a, *b; /* given, instead of pre */
    float *da, *db;
    const float *h_in, *fresh; /* fresh: [H] the state where a sequence starts */
    const uint8_t *reset;
    const int32_t *length;
    float *h, *h_out;
    const float *dh, *dh_out;
    float *dh_in, *start_grad; /* start_grad: [B, chunks, H] gradients that reached a start of a sequence, or NULL */
    mr_scan_fn *forward, *backward, *effect_forward, *effect_backward;
    int log_scan;
    int width, blocks;         /* channels of a task */
    int chunks, chunk;         /* of time */
    float *decay, *drive, *at; /* [B, chunks, H], when chunks > 1; at: state before, or carry after, a chunk */
    float *slots;              /* scratch, one part for each thread */
    size_t slot_stride;
} scan;

size_t mr_cpu_minrnn_saved(mr_dev *dev, const mr_cell *cell, int B, int T, int D, int H)
{
    (void)dev, (void)D;
    return (size_t)B * (size_t)T * (size_t)mr_cell_gates(cell) * (size_t)H * sizeof(float);
}

int mr_cpu_gates_of(const mr_cell *cell)
{
    const int first = cell->transition == MR_TRANSITION_SIGNED ? MR_GATES_SIGNED_GRU : MR_GATES_GRU;
    if (cell->kind == MR_MINGRU) return first;
    return first + (cell->normalize ? MR_GATES_LSTM_NORM : MR_GATES_LSTM);
}

static void choose_functions(scan *s, const mr_cell *cell)
{
    const mr_cpu_kernels *k = &s->cpu->kernels;
    const int kind = mr_cpu_gates_of(cell);
    s->log_scan = cell->scan == MR_SCAN_LOG;
    s->forward = s->log_scan ? k->scan_log[kind] : k->scan_fwd[kind][cell->candidate];
    s->backward = k->scan_bwd[kind][cell->candidate];
    s->effect_forward = k->effect_fwd[kind][cell->candidate];
    s->effect_backward = k->effect_bwd[kind][cell->candidate];
    s->pre_row = (size_t)mr_cell_gates(cell) * (size_t)s->H;
}

/* Tasks are whole rows as long as there are enough sequences or chunks of time, because memory is then read in one
 * direction. Channels are split where time must not be split or is short. */
static void cut_scan(scan *s, int may_cut_time)
{
    const int cut_time = may_cut_time && s->B < ENOUGH_TASKS && s->T >= 4 * LEAST_CHUNK;
    const int most_blocks = cut_time ? 1 : (int)mr_ceil_div((size_t)s->H, CHANNELS);
    s->blocks = mr_min_int(most_blocks, (int)mr_ceil_div(ENOUGH_TASKS, (size_t)s->B));
    s->width = (int)mr_round_up(mr_ceil_div((size_t)s->H, (size_t)s->blocks), 16);
    s->blocks = (int)mr_ceil_div((size_t)s->H, (size_t)s->width);
    s->chunks = cut_time ? mr_min_int(s->T / LEAST_CHUNK, (int)mr_ceil_div(2 * ENOUGH_TASKS, (size_t)s->B)) : 1;
    s->chunk = (int)mr_ceil_div((size_t)s->T, (size_t)s->chunks);
    s->chunks = (int)mr_ceil_div((size_t)s->T, (size_t)s->chunk);
}

/* The tokens and channels of one task. */
typedef struct part {
    int b, chunk, c, n; /* channels c … c+n−1 */
    int first, end;     /* real tokens first … end−1 of the sequence */
    int stop;           /* end of the chunk, including padding */
    int last;           /* the chunk that holds the last real token, or the only one of an empty sequence */
    size_t state;       /* of (b, chunk, c) in [B, chunks, H] */
} part;

static part part_of(const scan *s, int task)
{
    part p = {.chunk = task % s->chunks, .b = task / s->chunks / s->blocks};
    p.c = task / s->chunks % s->blocks * s->width;
    p.n = mr_min_int(s->width, s->H - p.c);
    int length = s->length ? mr_max_int(0, mr_min_int(s->T, s->length[p.b])) : s->T;
    p.first = p.chunk * s->chunk;
    p.stop = mr_min_int(s->T, p.first + s->chunk);
    p.end = mr_max_int(p.first, mr_min_int(p.stop, length));
    p.last = p.chunk == mr_max_int(0, length - 1) / s->chunk;
    p.state = ((size_t)p.b * (size_t)s->chunks + (size_t)p.chunk) * (size_t)s->H + (size_t)p.c;
    return p;
}

static float *slot_of(const scan *s, int slot) { return s->slots + (size_t)slot * s->slot_stride; }
static int tasks_of(const scan *s) { return s->B * s->blocks * s->chunks; }
static size_t token(const scan *s, const part *p, int t) { return (size_t)p->b * (size_t)s->T + (size_t)t; }
static int starts_at(const scan *s, const part *p, int t) { return s->reset && s->reset[token(s, p, t)]; }
static const float *fresh_of(const scan *s, const part *p) { return s->fresh + p->c; }

/* The state before the sequence's token 0, before any reset there. */
static const float *entry_of(const scan *s, const part *p)
{
    return s->h_in ? s->h_in + (size_t)p->b * (size_t)s->H + p->c : fresh_of(s, p);
}

static mr_run run_of(const scan *s, const part *p, int first, int end)
{
    const size_t at = token(s, p, first), h_at = at * (size_t)s->H + (size_t)p->c;
    if (s->a)
        return (mr_run){
            .rows = end - first,
            .n = p->n,
            .a = s->a + h_at,
            .b = s->b ? s->b + h_at : NULL,
            .h = s->h + h_at,
            .h_row = (size_t)s->H,
            .dh = s->dh ? s->dh + h_at : NULL,
            .da = s->da ? s->da + h_at : NULL,
            .db = s->db ? s->db + h_at : NULL,
        };
    return (mr_run){
        .rows = end - first,
        .n = p->n,
        .pre = s->pre + at * s->pre_row + p->c,
        .pre_row = s->pre_row,
        .gate = (size_t)s->H,
        .h = s->h + h_at,
        .h_row = (size_t)s->H,
        .dh = s->dh ? s->dh + h_at : NULL,
    };
}

/* ---- forward */

static void copy_row(float *to, const float *from, int n) { memmove(to, from, (size_t)n * sizeof *to); }

/* The end of the run of real tokens from t on in which only t may start a sequence. */
static int run_end(const scan *s, const part *p, int t)
{
    do t++;
    while (t < p->end && !starts_at(s, p, t));
    return t;
}

static int run_first(const scan *s, const part *p, int end)
{
    int t = end - 1;
    while (t > p->first && !starts_at(s, p, t)) t--;
    return t;
}

static void forward_task(void *arg, int task, int slot)
{
    const scan *s = arg;
    const part p = part_of(s, task);
    const float *start = s->chunks > 1 ? s->at + p.state : entry_of(s, &p);
    for (int t = p.first, end; t < p.end; t = end) {
        end = run_end(s, &p, t);
        mr_run run = run_of(s, &p, t, end);
        run.start = starts_at(s, &p, t) ? fresh_of(s, &p) : start;
        run.carry = s->log_scan ? slot_of(s, slot) : NULL;
        s->forward(&run);
        start = run.h + (size_t)(run.rows - 1) * run.h_row;
    }
    for (int t = p.end; t < p.stop; t++)
        memset(s->h + token(s, &p, t) * (size_t)s->H + p.c, 0, (size_t)p.n * sizeof(float));
    if (s->h_out && p.last) copy_row(s->h_out + (size_t)p.b * (size_t)s->H + p.c, start, p.n);
}

static void no_effect(const scan *s, const part *p)
{
    for (int c = 0; c < p->n; c++) s->decay[p->state + (size_t)c] = 1.0f;
    memset(s->drive + p->state, 0, (size_t)p->n * sizeof *s->drive);
}

/* The effect of a chunk on the state before it. */
static void forward_effect(void *arg, int task, int slot)
{
    (void)slot;
    const scan *s = arg;
    const part p = part_of(s, task);
    no_effect(s, &p);
    for (int t = p.first, end; t < p.end; t = end) {
        end = run_end(s, &p, t);
        if (starts_at(s, &p, t)) {
            memset(s->decay + p.state, 0, (size_t)p.n * sizeof *s->decay);
            copy_row(s->drive + p.state, fresh_of(s, &p), p.n);
        }
        mr_run run = run_of(s, &p, t, end);
        run.decay = s->decay + p.state;
        run.carry = s->drive + p.state;
        s->effect_forward(&run);
    }
}

static void chain_forward(const scan *s)
{
    const size_t row = (size_t)s->H;
    for (int b = 0; b < s->B; b++) {
        const float *entry = s->h_in ? s->h_in + (size_t)b * row : s->fresh;
        float *at = s->at + (size_t)b * (size_t)s->chunks * row;
        memcpy(at, entry, row * sizeof *at);
        for (int i = 1; i < s->chunks; i++, at += row) {
            memcpy(at + row, at, row * sizeof *at);
            const size_t before = (size_t)(at - s->at);
            s->cpu->kernels.affine(s->H, at + row, s->decay + before, s->drive + before);
        }
    }
}

/* ---- backward */

/* At a start, the carry goes to the start state; nothing crosses it. */
static void leave_at_start(const scan *s, const part *p, float *carry)
{
    if (s->start_grad) s->cpu->kernels.add((size_t)p->n, s->start_grad + p->state, carry);
    memset(carry, 0, (size_t)p->n * sizeof *carry);
}

static void clear_gradients(const scan *s, const part *p)
{
    for (int t = p->stop - 1; t >= p->end; t--) {
        if (s->a) {
            const size_t at = token(s, p, t) * (size_t)s->H + (size_t)p->c;
            memset(s->da + at, 0, (size_t)p->n * sizeof *s->da);
            memset(s->db + at, 0, (size_t)p->n * sizeof *s->db);
            continue;
        }
        float *pre = s->pre + token(s, p, t) * s->pre_row + p->c;
        for (size_t gate = 0; gate < s->pre_row; gate += (size_t)s->H)
            memset(pre + gate, 0, (size_t)p->n * sizeof *pre);
    }
}

static void first_token_gradient(const scan *s, const part *p, float *carry)
{
    if (!s->h_in) leave_at_start(s, p, carry);
    if (s->dh_in) copy_row(s->dh_in + (size_t)p->b * (size_t)s->H + p->c, carry, p->n);
}

static void backward_task(void *arg, int task, int slot)
{
    const scan *s = arg;
    const part p = part_of(s, tasks_of(s) - 1 - task); /* from the end of memory down */
    float *carry = slot_of(s, slot);
    if (s->start_grad) memset(s->start_grad + p.state, 0, (size_t)p.n * sizeof *carry);
    if (s->chunks > 1) copy_row(carry, s->at + p.state, p.n);
    else if (s->dh_out) copy_row(carry, s->dh_out + (size_t)p.b * (size_t)s->H + p.c, p.n);
    else memset(carry, 0, (size_t)p.n * sizeof *carry);
    clear_gradients(s, &p);
    for (int end = p.end, t; end > p.first; end = t) {
        t = run_first(s, &p, end);
        mr_run run = run_of(s, &p, t, end);
        const int fresh = starts_at(s, &p, t);
        run.start = fresh ? fresh_of(s, &p) : t ? run.h - run.h_row : entry_of(s, &p);
        run.carry = carry;
        s->backward(&run);
        if (fresh) leave_at_start(s, &p, carry);
    }
    if (!p.chunk) first_token_gradient(s, &p, carry);
}

/* The effect of a chunk on the carry after it. */
static void backward_effect(void *arg, int task, int slot)
{
    (void)slot;
    const scan *s = arg;
    const part p = part_of(s, tasks_of(s) - 1 - task);
    no_effect(s, &p);
    for (int end = p.end, t; end > p.first; end = t) {
        t = run_first(s, &p, end);
        mr_run run = run_of(s, &p, t, end);
        run.decay = s->decay + p.state;
        run.carry = s->drive + p.state;
        s->effect_backward(&run);
        if (!starts_at(s, &p, t)) continue;
        memset(run.decay, 0, (size_t)p.n * sizeof *run.decay);
        memset(run.carry, 0, (size_t)p.n * sizeof *run.carry);
    }
}

static void chain_backward(const scan *s)
{
    const size_t row = (size_t)s->H;
    for (int b = 0; b < s->B; b++) {
        size_t i = ((size_t)(b + 1) * (size_t)s->chunks - 1) * row;
        if (s->dh_out) memcpy(s->at + i, s->dh_out + (size_t)b * row, row * sizeof *s->at);
        else memset(s->at + i, 0, row * sizeof *s->at);
        for (int chunk = s->chunks - 1; chunk > 0; chunk--, i -= row) {
            memcpy(s->at + i - row, s->at + i, row * sizeof *s->at);
            s->cpu->kernels.affine(s->H, s->at + i - row, s->decay + i, s->drive + i);
        }
    }
}

static void run_forward(scan *s)
{
    if (s->chunks > 1) {
        mr_cpu_run(s->cpu, forward_effect, s, tasks_of(s));
        chain_forward(s);
    }
    mr_cpu_run(s->cpu, forward_task, s, tasks_of(s));
}

static void run_backward(scan *s)
{
    if (s->chunks > 1) {
        mr_cpu_run(s->cpu, backward_effect, s, tasks_of(s));
        chain_backward(s);
    }
    mr_cpu_run(s->cpu, backward_task, s, tasks_of(s));
}

/* ---- the ops */

static size_t states_of(const scan *s) { return (size_t)s->B * (size_t)s->chunks * (size_t)s->H; }

/* Floats for the start state, the chunks' arrays, and `extra` more for gradients of starts. */
static size_t scratch_floats(const scan *s, int extra)
{
    return mr_round_up(mr_round_up((size_t)s->H, 16) + states_of(s) * (size_t)((s->chunks > 1 ? 3 : 0) + extra), 16);
}

/* Enough for both cases: time split, or not (the paper's log scan). */
size_t mr_cpu_scan_work(mr_dev *dev, int B, int T, int H)
{
    size_t most = 0;
    for (int cut = 0; cut < 2; cut++) {
        scan s = {.B = B, .T = T, .H = H};
        cut_scan(&s, cut);
        const size_t floats = scratch_floats(&s, 1) + (size_t)dev->threads * mr_cpu_slot_stride(2 * (size_t)s.width);
        if (floats > most) most = floats;
    }
    return most * sizeof(float);
}

/* Takes scratch from the caller's `work`, or from the device when it is NULL. */
static int take_scratch(scan *s, void *work, const mr_cell *cell, const float *h_init, int extra)
{
    const size_t states = states_of(s), row = mr_round_up((size_t)s->H, 16), count = scratch_floats(s, extra);
    float *data = work ? work : mr_cpu_scratch(s->cpu, MR_SCRATCH_STATE, count);
    if (!data || (!work && !mr_cpu_slots(s->cpu, 2 * (size_t)s->width))) return 0;
    s->slots = work ? data + count : mr_cpu_slot(s->cpu, 0);
    s->slot_stride = work ? mr_cpu_slot_stride(2 * (size_t)s->width) : s->cpu->slot_stride;
    if (h_init) s->cpu->kernels.candidate(cell->candidate, s->H, h_init, data);
    else memset(data, 0, row * sizeof *data);
    s->fresh = data;
    data += row;
    if (extra) s->start_grad = data, data += states;
    if (s->chunks > 1) s->decay = data, s->drive = data + states, s->at = data + 2 * states;
    return 1;
}

static void minrnn_fwd(mr_dev *dev, const mr_minrnn_fwd_args *a)
{
    mr_cpu *cpu = mr_cpu_of(dev);
    scan s = {
        .cpu = cpu,
        .B = a->B,
        .T = a->T,
        .H = a->H,
        .pre = a->saved,
        .h_in = (const float *)a->h_in,
        .reset = a->reset,
        .length = a->length,
        .h = (float *)a->h,
        .h_out = (float *)a->h_out,
    };
    choose_functions(&s, &a->cell);
    cut_scan(&s, a->cell.scan == MR_SCAN_LINEAR);
    mr_product p = {
        .cpu = cpu,
        .M = a->B * a->T,
        .N = (int)s.pre_row,
        .K = a->D,
        .a = (const float *)a->x,
        .b = (const float *)a->W,
        .b_transposed = 1,
        .bias = (const float *)a->b,
        .c = s.pre,
    };
    if (a->W) mr_product_run(&p);
    if (!take_scratch(&s, a->work, &a->cell, (const float *)a->h_init, 0)) return;
    run_forward(&s);
}

/* dh_init += cand'(h_init)·Σ over starts, in the order of sequences and chunks. */
static void init_gradient(const scan *s, const mr_minrnn_bwd_args *a)
{
    float *sum = s->start_grad;
    for (int i = 1; i < s->B * s->chunks; i++)
        s->cpu->kernels.add((size_t)s->H, sum, s->start_grad + (size_t)i * (size_t)s->H);
    s->cpu->kernels.candidate_bwd(a->cell.candidate, s->H, (const float *)a->h_init, sum, (float *)a->dh_init);
}

static void start_from_zero(const mr_minrnn_bwd_args *a)
{
    const size_t rows = (size_t)a->H * (size_t)mr_cell_gates(&a->cell);
    if (a->W) memset(a->dW, 0, rows * (size_t)a->D * sizeof(float));
    if (a->W && a->db) memset(a->db, 0, rows * sizeof(float));
    if (a->dh_init) memset(a->dh_init, 0, (size_t)a->H * sizeof(float));
}

static void minrnn_bwd(mr_dev *dev, const mr_minrnn_bwd_args *a)
{
    mr_cpu *cpu = mr_cpu_of(dev);
    if (a->fresh) start_from_zero(a);
    scan s = {
        .cpu = cpu,
        .B = a->B,
        .T = a->T,
        .H = a->H,
        .pre = a->saved,
        .h_in = (const float *)a->h_in,
        .reset = a->reset,
        .length = a->length,
        .h = (float *)a->h,
        .dh = (const float *)a->dh,
        .dh_out = (const float *)a->dh_out,
        .dh_in = (float *)a->dh_in,
    };
    choose_functions(&s, &a->cell);
    cut_scan(&s, 1);
    const int learned = a->h_init && a->dh_init;
    if (!take_scratch(&s, a->work, &a->cell, (const float *)a->h_init, learned)) return;
    run_backward(&s);
    if (learned) init_gradient(&s, a);

    const int tokens = a->B * a->T, channels = (int)s.pre_row;
    mr_product p = {
        .cpu = cpu,
        .M = tokens,
        .N = a->D,
        .K = channels,
        .a = s.pre,
        .b = (const float *)a->W,
        .accumulate = a->accumulate,
        .c = (float *)a->dx,
    };
    if (!a->W) return;
    if (a->dx) mr_product_run(&p);
    mr_product_gradient(cpu, tokens, channels, a->D, s.pre, (const float *)a->x, (float *)a->dW, (float *)a->db);
}

static scan given_scan(mr_dev *dev, int B, int T, int H)
{
    const mr_cpu_kernels *k = &mr_cpu_of(dev)->kernels;
    scan s = {
        .cpu = mr_cpu_of(dev),
        .B = B,
        .T = T,
        .H = H,
        .forward = k->given_fwd,
        .backward = k->given_bwd,
        .effect_forward = k->given_effect_fwd,
        .effect_backward = k->given_effect_bwd,
    };
    cut_scan(&s, 1);
    return s;
}

static void scan_fwd(mr_dev *dev, const mr_scan_fwd_args *a)
{
    scan s = given_scan(dev, a->B, a->T, a->H);
    s.a = (const float *)a->a, s.b = (const float *)a->b, s.h_in = (const float *)a->h_in, s.reset = a->reset,
    s.length = a->length;
    s.h = (float *)a->h, s.h_out = (float *)a->h_out;
    if (take_scratch(&s, a->work, NULL, NULL, 0)) run_forward(&s);
}

static void scan_bwd(mr_dev *dev, const mr_scan_bwd_args *a)
{
    scan s = given_scan(dev, a->B, a->T, a->H);
    s.a = (const float *)a->a, s.h_in = (const float *)a->h_in, s.reset = a->reset, s.length = a->length,
    s.h = (float *)a->h;
    s.dh = (const float *)a->dh, s.dh_out = (const float *)a->dh_out;
    s.da = (float *)a->da, s.db = (float *)a->db, s.dh_in = (float *)a->dh_in;
    if (take_scratch(&s, a->work, NULL, NULL, 0)) run_backward(&s);
}

void mr_cpu_minrnn_ops(mr_ops *ops)
{
    ops->scan_fwd = scan_fwd;
    ops->scan_bwd = scan_bwd;
    ops->minrnn_fwd = minrnn_fwd;
    ops->minrnn_bwd = minrnn_bwd;
}
