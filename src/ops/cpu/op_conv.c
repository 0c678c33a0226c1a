/* The depthwise convolution over time. Position q of a sequence is a row of x for q ≥ 0 and of the carried tail
 * for q = −past … −1, where past is one less than the taps. A token sees the `reach` positions before it: `past` of
 * them, or fewer after a reset. A task is a span of tokens of one sequence. */
#include "ops/cpu/cpu.h"

#include <string.h>

enum { SPAN = 256 };

typedef struct conv {
    mr_cpu *cpu;
    int B, T, D, spans, taps, past;
    const float *x, *tail_in, *bias;
    const uint8_t *reset;
    const int32_t *length;
    float *y, *tail_out;
    const float *dy, *dtail_out;
    float *dx, *dtail_in;
    int accumulate;
    size_t row;     /* D rounded up */
    float *zeros;   /* [row] */
    float *weights; /* [taps, row] */
    float *partial; /* [B·spans, taps + 1, row] dw, db */
} conv;

/* Of the gradients: those of the taps, and the bias. */
static size_t weight_rows(const conv *c) { return (size_t)c->taps + 1; }

static int length_of(const conv *c, int b) { return c->length ? mr_max_int(0, mr_min_int(c->T, c->length[b])) : c->T; }

/* How many positions of its sequence token t sees before itself. */
static int reach_of(const conv *c, int b, int t)
{
    int reach = 0;
    for (; reach < c->past; reach++)
        if (t - reach < 0 || (c->reset && c->reset[(size_t)b * (size_t)c->T + (size_t)(t - reach)])) break;
    return t - reach < 0 ? c->past : reach;
}

static const float *input_at(const conv *c, int b, int q)
{
    if (q >= 0) return c->x + ((size_t)b * (size_t)c->T + (size_t)q) * (size_t)c->D;
    return c->tail_in ? c->tail_in + ((size_t)b * (size_t)c->past + (size_t)(q + c->past)) * (size_t)c->D : c->zeros;
}

static void point_to_inputs(const conv *c, int b, int t, mr_conv_row *row)
{
    const int reach = reach_of(c, b, t);
    for (int lag = 0; lag < c->taps; lag++) row->x[c->past - lag] = lag <= reach ? input_at(c, b, t - lag) : c->zeros;
}

/* Points the row at the gradients that reach position q: dy of the later tokens that see it. */
static void point_to_gradients(const conv *c, int b, int q, mr_conv_row *row)
{
    const int length = length_of(c, b);
    for (int lag = 0; lag < c->taps; lag++) {
        const int t = q + lag, reaches = t >= 0 && t < length && lag <= reach_of(c, b, t);
        row->x[c->past - lag] = reaches ? c->dy + ((size_t)b * (size_t)c->T + (size_t)t) * (size_t)c->D : c->zeros;
    }
}

/* The row of tail_out that holds position q, or −1. */
static int tail_row(const conv *c, int b, int q)
{
    const int length = length_of(c, b), lag = length - 1 - q;
    if (lag < 0 || lag >= c->past) return -1;
    if (length && lag > reach_of(c, b, length - 1)) return -1;
    return c->past - 1 - lag;
}

static void set_row(const conv *c, float *to, const float *from)
{
    if (from) memmove(to, from, (size_t)c->D * sizeof *to);
    else memset(to, 0, (size_t)c->D * sizeof *to);
}

static mr_conv_row weights_row(const conv *c)
{
    mr_conv_row row = {.n = c->D, .taps = c->taps, .bias = c->bias};
    for (int j = 0; j < c->taps; j++) row.w[j] = c->weights + (size_t)j * c->row;
    return row;
}

static void forward_task(void *arg, int task, int slot)
{
    (void)slot;
    const conv *c = arg;
    const int b = task / c->spans, first = task % c->spans * SPAN, end = mr_min_int(c->T, first + SPAN);
    const int length = length_of(c, b);
    mr_conv_row row = weights_row(c);
    for (int t = first; t < end; t++) {
        row.y = c->y + ((size_t)b * (size_t)c->T + (size_t)t) * (size_t)c->D;
        if (t >= length) {
            set_row(c, row.y, NULL);
            continue;
        }
        point_to_inputs(c, b, t, &row);
        c->cpu->kernels.conv(&row);
    }
}

/* Oldest first, so that tail_out may be tail_in: each row is read before it is overwritten. */
static void write_tail(const conv *c, int b)
{
    const int length = length_of(c, b);
    for (int i = 0; i < c->past; i++) {
        const int q = length - c->past + i;
        const int there = tail_row(c, b, q) >= 0 && (q >= 0 || c->tail_in);
        set_row(c, c->tail_out + ((size_t)b * (size_t)c->past + (size_t)i) * (size_t)c->D,
                there ? input_at(c, b, q) : NULL);
    }
}

static void input_gradient(const conv *c, int b, int q, float *to, mr_conv_row *row)
{
    row->y = to;
    point_to_gradients(c, b, q, row);
    c->cpu->kernels.conv(row);
    const int tail = c->dtail_out ? tail_row(c, b, q) : -1;
    if (tail < 0) return;
    c->cpu->kernels.add((size_t)c->D, to, c->dtail_out + ((size_t)b * (size_t)c->past + (size_t)tail) * (size_t)c->D);
}

/* Without tail_in a sequence starts at token 0, and dtail_in is 0. */
static void tail_gradient(const conv *c, int b, mr_conv_row *row)
{
    float *to = c->dtail_in + (size_t)b * (size_t)c->past * (size_t)c->D;
    for (int i = 0; i < c->past; i++, to += c->D)
        if (c->tail_in) input_gradient(c, b, i - c->past, to, row);
        else set_row(c, to, NULL);
}

static void backward_task(void *arg, int task, int slot)
{
    (void)slot;
    const conv *c = arg;
    const int b = task / c->spans, first = task % c->spans * SPAN, end = mr_min_int(c->T, first + SPAN);
    const int length = length_of(c, b);
    float *sums = c->partial + (size_t)task * weight_rows(c) * c->row;
    memset(sums, 0, weight_rows(c) * c->row * sizeof *sums);
    mr_conv_row row = weights_row(c);
    for (int j = 0; j < c->taps; j++) row.dw[j] = sums + (size_t)j * c->row;
    row.db = sums + (size_t)c->taps * c->row;
    for (int t = first; t < end; t++) {
        const size_t at = ((size_t)b * (size_t)c->T + (size_t)t) * (size_t)c->D;
        if (t >= length) {
            if (!c->accumulate) set_row(c, c->dx + at, NULL);
            continue;
        }
        row.bias = c->accumulate ? c->dx + at : NULL; /* initial value of the sum */
        input_gradient(c, b, t, c->dx + at, &row);
        row.dy = c->dy + at;
        point_to_inputs(c, b, t, &row);
        c->cpu->kernels.conv_grad(&row);
    }
    row.bias = NULL;
    if (!first && c->dtail_in) tail_gradient(c, b, &row);
}

/* Weights are [D, taps] in memory; the kernels want [taps, D]. */
static int take_scratch(conv *c, const float *w, int gradients)
{
    const size_t taps = (size_t)c->taps;
    c->past = c->taps - 1;
    c->spans = (int)mr_ceil_div((size_t)c->T, SPAN);
    c->row = mr_round_up((size_t)c->D, 16);
    c->zeros = mr_cpu_scratch(c->cpu, MR_SCRATCH_STATE, (1 + 2 * taps + 2) * c->row);
    if (!c->zeros) return 0;
    memset(c->zeros, 0, c->row * sizeof *c->zeros);
    c->weights = c->zeros + c->row;
    for (size_t d = 0; d < (size_t)c->D; d++)
        for (size_t j = 0; j < taps; j++) c->weights[j * c->row + d] = w[taps * d + j];
    if (!gradients) return 1;
    c->partial = mr_cpu_scratch(c->cpu, MR_SCRATCH_PARTIAL, (size_t)c->B * (size_t)c->spans * (taps + 1) * c->row);
    return c->partial != NULL;
}

static void conv_fwd(mr_dev *dev, const mr_conv_fwd_args *a)
{
    conv c = {
        .cpu = mr_cpu_of(dev),
        .B = a->B,
        .T = a->T,
        .D = a->D,
        .taps = a->taps,
        .x = (const float *)a->x,
        .bias = (const float *)a->b,
        .tail_in = (const float *)a->tail_in,
        .reset = a->reset,
        .length = a->length,
        .y = (float *)a->y,
        .tail_out = (float *)a->tail_out,
    };
    if (!take_scratch(&c, (const float *)a->w, 0)) return;
    mr_cpu_run(c.cpu, forward_task, &c, c.B * c.spans);
    for (int b = 0; c.tail_out && b < c.B; b++) write_tail(&c, b);
}

static void conv_bwd(mr_dev *dev, const mr_conv_bwd_args *a)
{
    conv c = {
        .cpu = mr_cpu_of(dev),
        .B = a->B,
        .T = a->T,
        .D = a->D,
        .taps = a->taps,
        .x = (const float *)a->x,
        .tail_in = (const float *)a->tail_in,
        .reset = a->reset,
        .length = a->length,
        .dy = (const float *)a->dy,
        .dtail_out = (const float *)a->dtail_out,
        .dx = (float *)a->dx,
        .dtail_in = (float *)a->dtail_in,
        .accumulate = a->accumulate,
    };
    if (!take_scratch(&c, (const float *)a->w, 1)) return;
    const int tasks = c.B * c.spans;
    mr_cpu_run(c.cpu, backward_task, &c, tasks);
    const size_t taps = (size_t)c.taps, rows = weight_rows(&c);
    float *sums = c.weights + taps * c.row; /* [taps + 1, row] */
    memset(sums, 0, rows * c.row * sizeof *sums);
    mr_cpu_reduce(c.cpu, rows * c.row, c.partial, rows * c.row, tasks, sums);
    float *dw = (float *)a->dw, *db = (float *)a->db;
    for (size_t d = 0; d < (size_t)c.D; d++) {
        for (size_t j = 0; j < taps; j++) dw[taps * d + j] += sums[j * c.row + d];
        db[d] += sums[taps * c.row + d];
    }
}

/* ---- the tail alone, of a chunk that another device continues */

static void conv_tail_fwd(mr_dev *dev, const mr_conv_tail_fwd_args *a)
{
    const conv c = {.cpu = mr_cpu_of(dev),
                    .B = a->B,
                    .T = a->T,
                    .D = a->D,
                    .taps = a->taps,
                    .past = a->taps - 1,
                    .x = (const float *)a->x,
                    .reset = a->reset,
                    .length = a->length,
                    .tail_out = (float *)a->tail};
    for (int b = 0; b < c.B; b++) write_tail(&c, b);
}

static void conv_tail_bwd(mr_dev *dev, const mr_conv_tail_bwd_args *a)
{
    const conv c = {
        .B = a->B, .T = a->T, .D = a->D, .taps = a->taps, .past = a->taps - 1, .reset = a->reset, .length = a->length};
    const float *from = (const float *)a->dtail;
    for (int b = 0; b < c.B; b++)
        for (int i = 0; i < c.past; i++, from += c.D) {
            const int q = length_of(&c, b) - c.past + i;
            if (q < 0 || tail_row(&c, b, q) < 0) continue;
            float *to = (float *)a->dx + ((size_t)b * (size_t)c.T + (size_t)q) * (size_t)c.D;
            mr_cpu_of(dev)->kernels.add((size_t)c.D, to, from);
        }
}

void mr_cpu_conv_ops(mr_ops *ops)
{
    ops->conv_tail_fwd = conv_tail_fwd;
    ops->conv_tail_bwd = conv_tail_bwd;
    ops->conv_fwd = conv_fwd;
    ops->conv_bwd = conv_bwd;
}
