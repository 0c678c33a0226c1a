/* The effect of a chunk on the state before it or on the gradient after it, and rows of effects. A task is one sequence
 * and a block of channels through all of its time. */
#include "ops/cpu/cpu.h"

#include <string.h>

enum { CHANNELS = 64, SPAN = 4096 };

typedef struct effect {
    mr_cpu *cpu;
    int B, T, H, blocks;
    float *pre;
    size_t pre_row;
    const float *dh, *fresh; /* fresh: [H] the state where a sequence starts */
    const uint8_t *reset;
    const int32_t *length;
    mr_scan_fn *run;
    float *A, *C;
} effect;

/* Consecutive tokens of one sequence, channels c … c+n−1. */
typedef struct share {
    int b, c, n, real;
    size_t state;
} share;

static int starts(const effect *e, int b, int t) { return e->reset && e->reset[(size_t)b * (size_t)e->T + (size_t)t]; }

/* Tokens first … end − 1, of which only the first may start a sequence. */
static void run_through(const effect *e, const share *p, int first, int end)
{
    const size_t token = (size_t)p->b * (size_t)e->T + (size_t)first;
    e->run(&(mr_run){.rows = end - first,
                     .n = p->n,
                     .pre = e->pre + token * e->pre_row + p->c,
                     .pre_row = e->pre_row,
                     .gate = (size_t)e->H,
                     .dh = e->dh ? e->dh + token * (size_t)e->H + p->c : NULL,
                     .h_row = (size_t)e->H,
                     .decay = e->A + p->state,
                     .carry = e->C + p->state});
}

/* What is before a start has no effect any more. */
static void start(const effect *e, const share *p, const float *from)
{
    const size_t bytes = (size_t)p->n * sizeof(float);
    memset(e->A + p->state, 0, bytes);
    if (from) memcpy(e->C + p->state, from + p->c, bytes);
    else memset(e->C + p->state, 0, bytes);
}

static void up(const effect *e, const share *p)
{
    for (int t = 0, end; t < p->real; t = end) {
        for (end = t + 1; end < p->real && !starts(e, p->b, end);) end++;
        if (starts(e, p->b, t)) start(e, p, e->fresh);
        run_through(e, p, t, end);
    }
}

static void down(const effect *e, const share *p)
{
    for (int end = p->real, t; end > 0; end = t) {
        for (t = end - 1; t > 0 && !starts(e, p->b, t);) t--;
        run_through(e, p, t, end);
        if (starts(e, p->b, t)) start(e, p, NULL);
    }
}

static void effect_task(void *arg, int task, int slot)
{
    (void)slot;
    const effect *e = arg;
    share p = {.b = task / e->blocks, .c = task % e->blocks * CHANNELS};
    p.n = mr_min_int(CHANNELS, e->H - p.c);
    p.real = e->length ? mr_max_int(0, mr_min_int(e->T, e->length[p.b])) : e->T;
    p.state = (size_t)p.b * (size_t)e->H + (size_t)p.c;
    for (int c = 0; c < p.n; c++) e->A[p.state + (size_t)c] = 1.0f;
    memset(e->C + p.state, 0, (size_t)p.n * sizeof *e->C);
    if (e->dh) down(e, &p);
    else up(e, &p);
}

static void minrnn_effect(mr_dev *dev, const mr_minrnn_effect_args *a)
{
    mr_cpu *cpu = mr_cpu_of(dev);
    const int kind = mr_cpu_gates_of(&a->cell);
    float *fresh = a->h_init ? mr_cpu_scratch(cpu, MR_SCRATCH_STATE, (size_t)a->H) : NULL;
    if (a->h_init && !fresh) return;
    if (fresh) cpu->kernels.candidate(a->cell.candidate, a->H, (const float *)a->h_init, fresh);
    effect e = {.cpu = cpu,
                .B = a->B,
                .T = a->T,
                .H = a->H,
                .blocks = (int)mr_ceil_div((size_t)a->H, CHANNELS),
                .pre = (float *)a->pre,
                .pre_row = (size_t)mr_cell_gates(&a->cell) * (size_t)a->H,
                .dh = (const float *)a->dh,
                .fresh = fresh,
                .reset = a->reset,
                .length = a->length,
                .run = (a->dh ? cpu->kernels.effect_bwd : cpu->kernels.effect_fwd)[kind][a->cell.candidate],
                .A = (float *)a->A,
                .C = (float *)a->C};
    mr_cpu_run(cpu, effect_task, &e, e.B * e.blocks);
}

static void chain_task(void *arg, int task, int slot)
{
    (void)slot;
    const mr_effect_chain_args *a = arg;
    const size_t first = (size_t)task * SPAN, end = first + SPAN < a->n ? first + SPAN : a->n;
    float *y = (float *)a->y;
    for (int j = 0; j < a->count; j++) {
        const size_t row = (size_t)(a->down ? a->count - 1 - j : j) * a->n;
        const float *A = (const float *)a->A + row, *C = (const float *)a->C + row;
        if (j == 0) memcpy(y + first, C + first, (end - first) * sizeof *y);
        else
            for (size_t i = first; i < end; i++) y[i] = A[i] == 0 ? C[i] : A[i] * y[i] + C[i];
    }
}

static void effect_chain(mr_dev *dev, const mr_effect_chain_args *a)
{
    mr_effect_chain_args job = *a;
    mr_cpu_run(mr_cpu_of(dev), chain_task, &job, (int)mr_ceil_div(a->n, SPAN));
}

void mr_cpu_effect_ops(mr_ops *ops)
{
    ops->minrnn_effect = minrnn_effect;
    ops->effect_chain = effect_chain;
}
