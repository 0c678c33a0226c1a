/* Mamba's selective scan. A task is one sequence × a block of channels, walked in chunks of
 * MR_SSCAN_CHUNK tokens; the backward takes the chunks from last to first, each from the state that the forward
 * saved before it. Gradients of B and C are sums over all channels: each block of channels has its own sums, which
 * are added in order at the end. */
#include "ops/cpu/cpu.h"

#include <string.h>

enum { ENOUGH_TASKS = 16, LEAST_CHANNELS = 16, MOST_CHANNELS = 128, RATES_SPAN = 64 };

typedef struct sscan {
    mr_cpu *cpu;
    int B, T, E, N;
    int width, blocks; /* channels of a task */
    const float *u, *delta, *z, *bc, *A_log, *D, *dt_bias, *h_in;
    const uint8_t *reset;
    const int32_t *length;
    float *y, *h_out, *states;
    const float *dy, *dh_out;
    float *du, *ddelta, *dz, *dh_in;
    float *effect_A, *effect_C;
    float *rate; /* [N, rate_row] */
    size_t rate_row;
    float *dbc_parts;   /* [blocks, B, T, 2·N] */
    float *param_parts; /* [B, blocks, N + 1, width]: dA, dD */
} sscan;

static void cut_channels(sscan *s)
{
    const int most = (int)mr_ceil_div((size_t)s->E, LEAST_CHANNELS),
              least = (int)mr_ceil_div((size_t)s->E, MOST_CHANNELS);
    s->blocks = mr_max_int(least, mr_min_int(most, (int)mr_ceil_div(ENOUGH_TASKS, (size_t)s->B)));
    s->width = (int)mr_round_up(mr_ceil_div((size_t)s->E, (size_t)s->blocks), LEAST_CHANNELS);
    s->blocks = (int)mr_ceil_div((size_t)s->E, (size_t)s->width);
    s->rate_row = mr_round_up((size_t)s->E, LEAST_CHANNELS);
}

static void rates_task(void *arg, int task, int slot)
{
    (void)slot;
    const sscan *s = arg;
    const int first = task * RATES_SPAN, n = mr_min_int(RATES_SPAN, s->E - first);
    s->cpu->kernels.sscan_rates(n, s->N, s->A_log + (size_t)first * (size_t)s->N, s->rate + first, s->rate_row);
}

/* Takes memory for the rates, and `work` floats for each thread. */
static int take_scratch(sscan *s, size_t work)
{
    cut_channels(s);
    s->rate = mr_cpu_scratch(s->cpu, MR_SCRATCH_STATE, (size_t)s->N * s->rate_row);
    if (!s->rate || !mr_cpu_slots(s->cpu, work)) return 0;
    mr_cpu_run(s->cpu, rates_task, s, (int)mr_ceil_div((size_t)s->E, RATES_SPAN));
    return 1;
}

/* ---- the share of a task */

typedef struct share {
    int b, block, c, n, real; /* channels c … c+n−1, real tokens */
} share;

static share share_of(const sscan *s, int task)
{
    share p = {.b = task / s->blocks, .block = task % s->blocks};
    p.c = p.block * s->width;
    p.n = mr_min_int(s->width, s->E - p.c);
    p.real = s->length ? mr_max_int(0, mr_min_int(s->T, s->length[p.b])) : s->T;
    return p;
}

/* Where token t of the share lies in [B, T, E], and its state in [rows, N, E]. */
static size_t token_at(const sscan *s, const share *p, int t)
{
    return ((size_t)p->b * (size_t)s->T + (size_t)t) * (size_t)s->E + (size_t)p->c;
}
static size_t state_at(const sscan *s, const share *p, size_t row)
{
    return row * (size_t)s->N * (size_t)s->E + (size_t)p->c;
}
static size_t chunk_row(const sscan *s, const share *p, int t)
{
    return (size_t)p->b * mr_sscan_chunks(s->T) + (size_t)(t / MR_SSCAN_CHUNK);
}

/* Copies [N, n] between arrays with different row distances; from NULL: zeros. */
static void copy_state(const sscan *s, const share *p, float *to, size_t to_row, const float *from, size_t from_row)
{
    for (size_t i = 0; i < (size_t)s->N; i++)
        if (from) memcpy(to + i * to_row, from + i * from_row, (size_t)p->n * sizeof *to);
        else memset(to + i * to_row, 0, (size_t)p->n * sizeof *to);
}

static void clear_tokens(const sscan *s, const share *p, float *to)
{
    for (int t = p->real; t < s->T; t++) memset(to + token_at(s, p, t), 0, (size_t)p->n * sizeof *to);
}

static mr_sscan_run run_of(const sscan *s, const share *p, int first, int end)
{
    const size_t at = token_at(s, p, first), token = (size_t)p->b * (size_t)s->T + (size_t)first;
    return (mr_sscan_run){.rows = end - first,
                          .n = p->n,
                          .states = s->N,
                          .row = (size_t)s->E,
                          .state_row = (size_t)s->width,
                          .u = s->u ? s->u + at : NULL,
                          .delta = s->delta + at,
                          .z = s->z ? s->z + at : NULL,
                          .bc = s->bc + token * 2 * (size_t)s->N,
                          .reset = s->reset ? s->reset + token : NULL,
                          .rate = s->rate + p->c,
                          .rate_row = s->rate_row,
                          .D = s->D ? s->D + p->c : NULL,
                          .dt_bias = s->dt_bias + p->c};
}

/* ---- forward */

static void forward_task(void *arg, int task, int slot)
{
    const sscan *s = arg;
    const share p = share_of(s, task);
    const size_t E = (size_t)s->E, width = (size_t)s->width;
    float *h = mr_cpu_slot(s->cpu, slot);
    copy_state(s, &p, h, width, s->h_in ? s->h_in + state_at(s, &p, (size_t)p.b) : NULL, E);
    for (int t = 0; t < s->T; t += MR_SSCAN_CHUNK) {
        if (s->states) copy_state(s, &p, s->states + state_at(s, &p, chunk_row(s, &p, t)), E, h, width);
        if (t >= p.real) continue;
        mr_sscan_run run = run_of(s, &p, t, mr_min_int(p.real, t + MR_SSCAN_CHUNK));
        run.h = h;
        run.y = s->y + token_at(s, &p, t);
        s->cpu->kernels.sscan_fwd(&run);
    }
    clear_tokens(s, &p, s->y);
    if (s->h_out) copy_state(s, &p, s->h_out + state_at(s, &p, (size_t)p.b), E, h, width);
}

static void sscan_fwd(mr_dev *dev, const mr_sscan_fwd_args *a)
{
    sscan s = {.cpu = mr_cpu_of(dev),
               .B = a->B,
               .T = a->T,
               .E = a->E,
               .N = a->N,
               .u = (const float *)a->u,
               .delta = (const float *)a->delta,
               .z = (const float *)a->z,
               .bc = (const float *)a->bc,
               .A_log = (const float *)a->A_log,
               .D = (const float *)a->D,
               .dt_bias = (const float *)a->dt_bias,
               .h_in = (const float *)a->h_in,
               .reset = a->reset,
               .length = a->length,
               .y = (float *)a->y,
               .h_out = (float *)a->h_out,
               .states = (float *)a->states};
    if (take_scratch(&s, (size_t)a->N * MOST_CHANNELS)) mr_cpu_run(s.cpu, forward_task, &s, s.B * s.blocks);
}

/* ---- backward */

static void clear_gradients(const sscan *s, const share *p, float *dbc)
{
    clear_tokens(s, p, s->du);
    clear_tokens(s, p, s->ddelta);
    clear_tokens(s, p, s->dz);
    memset(dbc + (size_t)p->real * 2 * (size_t)s->N, 0, (size_t)(s->T - p->real) * 2 * (size_t)s->N * sizeof *dbc);
}

static void backward_task(void *arg, int task, int slot)
{
    const sscan *s = arg;
    const share p = share_of(s, task);
    const size_t E = (size_t)s->E, N = (size_t)s->N, width = (size_t)s->width;
    float *carry = mr_cpu_slot(s->cpu, slot), *h = carry + N * MOST_CHANNELS, *work = h + N * MOST_CHANNELS;
    float *dA = s->param_parts + (size_t)task * (N + 1) * width;
    float *dbc = s->dbc_parts + ((size_t)p.block * (size_t)s->B + (size_t)p.b) * (size_t)s->T * 2 * N;
    memset(dA, 0, (N + 1) * width * sizeof *dA);
    copy_state(s, &p, carry, width, s->dh_out ? s->dh_out + state_at(s, &p, (size_t)p.b) : NULL, E);
    clear_gradients(s, &p, dbc);
    for (int end = p.real, t; end > 0; end = t) {
        t = (end - 1) / MR_SSCAN_CHUNK * MR_SSCAN_CHUNK;
        const size_t at = token_at(s, &p, t);
        copy_state(s, &p, h, width, s->states + state_at(s, &p, chunk_row(s, &p, t)), E);
        mr_sscan_run run = run_of(s, &p, t, end);
        run.h = h, run.carry = carry, run.dA = dA, run.dD = dA + N * width, run.work = work;
        run.dy = s->dy + at, run.du = s->du + at, run.ddelta = s->ddelta + at, run.dz = s->dz + at;
        run.dbc = dbc + (size_t)t * 2 * N;
        s->cpu->kernels.sscan_bwd(&run);
    }
    if (s->dh_in) copy_state(s, &p, s->dh_in + state_at(s, &p, (size_t)p.b), E, s->h_in ? carry : NULL, width);
}

/* dA_log = dA·A, with A = −exp(A_log) = log 2·rate. sums: [blocks, N + 1, width]. */
static void add_param_gradients(const sscan *s, const float *sums, float *dA_log, float *dD)
{
    const size_t N = (size_t)s->N, width = (size_t)s->width;
    for (size_t e = 0; e < (size_t)s->E; e++) {
        const float *own = sums + e / width * (N + 1) * width + e % width;
        for (size_t i = 0; i < N; i++)
            dA_log[e * N + i] += 0.693147180559945f * s->rate[i * s->rate_row + e] * own[i * width];
        dD[e] += own[N * width];
    }
}

static void sscan_bwd(mr_dev *dev, const mr_sscan_bwd_args *a)
{
    sscan s = {.cpu = mr_cpu_of(dev),
               .B = a->B,
               .T = a->T,
               .E = a->E,
               .N = a->N,
               .u = (const float *)a->u,
               .delta = (const float *)a->delta,
               .z = (const float *)a->z,
               .bc = (const float *)a->bc,
               .A_log = (const float *)a->A_log,
               .D = (const float *)a->D,
               .dt_bias = (const float *)a->dt_bias,
               .h_in = (const float *)a->h_in,
               .reset = a->reset,
               .length = a->length,
               .states = (float *)a->states,
               .dy = (const float *)a->dy,
               .dh_out = (const float *)a->dh_out,
               .du = (float *)a->du,
               .ddelta = (float *)a->ddelta,
               .dz = (float *)a->dz,
               .dh_in = (float *)a->dh_in};
    if (!take_scratch(&s, 2 * (size_t)a->N * MOST_CHANNELS + MR_SSCAN_WORK(a->N))) return;
    const size_t params = (size_t)s.blocks * ((size_t)s.N + 1) * (size_t)s.width,
                 values = (size_t)s.B * (size_t)s.T * 2 * (size_t)s.N;
    s.param_parts = mr_cpu_scratch(s.cpu, MR_SCRATCH_PARTIAL, ((size_t)s.B + 1) * params + (size_t)s.blocks * values);
    if (!s.param_parts) return;
    float *sums = s.param_parts + (size_t)s.B * params;
    s.dbc_parts = sums + params;
    mr_cpu_run(s.cpu, backward_task, &s, s.B * s.blocks);
    memset(a->dbc, 0, values * sizeof(float));
    mr_cpu_reduce(s.cpu, values, s.dbc_parts, values, s.blocks, (float *)a->dbc);
    memset(sums, 0, params * sizeof *sums);
    mr_cpu_reduce(s.cpu, params, s.param_parts, params, s.B, sums);
    add_param_gradients(&s, sums, (float *)a->dA_log, (float *)a->dD);
}

/* ---- the effect on the state before the tokens, or on its gradient after them */

static void effect_task(void *arg, int task, int slot)
{
    const sscan *s = arg;
    const share p = share_of(s, task);
    const size_t E = (size_t)s->E, width = (size_t)s->width, to = state_at(s, &p, (size_t)p.b);
    const int runs = (p.real + MR_SSCAN_CHUNK - 1) / MR_SSCAN_CHUNK;
    float *carry = mr_cpu_slot(s->cpu, slot), *kept = carry + (size_t)s->N * MOST_CHANNELS;
    copy_state(s, &p, carry, width, NULL, 0);
    for (size_t i = 0; i < (size_t)s->N * width; i++) kept[i] = 1.0f;
    for (int i = 0; i < runs; i++) {
        const int t = (s->dy ? runs - 1 - i : i) * MR_SSCAN_CHUNK;
        mr_sscan_run run = run_of(s, &p, t, mr_min_int(p.real, t + MR_SSCAN_CHUNK));
        run.carry = carry, run.kept = kept;
        run.dy = s->dy ? s->dy + token_at(s, &p, t) : NULL;
        s->cpu->kernels.sscan_effect(&run);
    }
    copy_state(s, &p, s->effect_A + to, E, kept, width);
    copy_state(s, &p, s->effect_C + to, E, carry, width);
}

static void sscan_effect(mr_dev *dev, const mr_sscan_effect_args *a)
{
    sscan s = {.cpu = mr_cpu_of(dev),
               .B = a->B,
               .T = a->T,
               .E = a->E,
               .N = a->N,
               .u = (const float *)a->u,
               .delta = (const float *)a->delta,
               .z = (const float *)a->z,
               .bc = (const float *)a->bc,
               .A_log = (const float *)a->A_log,
               .dt_bias = (const float *)a->dt_bias,
               .reset = a->reset,
               .length = a->length,
               .dy = (const float *)a->dy,
               .effect_A = (float *)a->A,
               .effect_C = (float *)a->C};
    if (take_scratch(&s, 2 * (size_t)a->N * MOST_CHANNELS)) mr_cpu_run(s.cpu, effect_task, &s, s.B * s.blocks);
}

void mr_cpu_sscan_ops(mr_ops *ops)
{
    ops->sscan_effect = sscan_effect;
    ops->sscan_fwd = sscan_fwd;
    ops->sscan_bwd = sscan_bwd;
}
