/* Cases of ops over time: ragged lengths, resets, carried states, very long sequences, saturated gates. */
#include "ops/check/makers.h"

#include <math.h>

void mr_case_shape(mr_case *c, int width, int *B, int *T)
{
    *B = mr_case_chance(c, 25) ? 1 : 1 + mr_case_below(c, 7);
    *T = mr_case_chance(c, 15) ? 1 : 1 + mr_case_below(c, mr_case_chance(c, 85) ? 40 : 300);
    if (width < 40 && mr_case_chance(c, 6)) { /* few channels, long sequences: where a backend splits time */
        *B = 1 + mr_case_below(c, 2);
        *T = 1000 + mr_case_below(c, width < 10 ? 9000 : 2000);
    }
    if (c->speed) {
        *B = 4;
        *T = 64;
    }
}

mr_case_buffer *mr_case_add_reset(mr_case *c, size_t field, int B, int T)
{
    static const double chances[] = {0, 0.01, 0.1, 0.5, 1};
    if (mr_case_chance(c, 50)) return NULL;
    double p = chances[mr_case_below(c, 5)];
    mr_case_say(c, " reset=%g", p);
    return mr_case_add(c, "reset", field, BYTE, IN, (size_t)B * T, MR_FILL_FLAG, p);
}

mr_case_buffer *mr_case_add_length(mr_case *c, size_t field, int B, int T)
{
    if (mr_case_chance(c, 50)) return NULL;
    mr_case_say(c, " length");
    return mr_case_add(c, "length", field, INT, IN, (size_t)B, MR_FILL_LEFT, T);
}

/* Lengths of 0, too: a rank may hold no token of a row. */
mr_case_buffer *mr_case_add_room(mr_case *c, size_t field, int B, int T)
{
    mr_case_buffer *length = mr_case_add_length(c, field, B, T);
    if (length) length->fill = MR_FILL_BELOW, length->value = T + 1;
    return length;
}

void mr_case_add_state(mr_case *c, const char *in_name, size_t in, const char *out_name, size_t out, size_t count,
                       mr_case_fill fill, double value)
{
    if (mr_case_chance(c, 30)) {
        mr_case_add(c, out_name, out, REAL, ADD, count, fill, value)->alias = in;
        mr_case_say(c, " %s=%s", out_name, in_name);
        return;
    }
    if (mr_case_chance(c, 50)) {
        mr_case_add(c, in_name, in, REAL, IN, count, fill, value);
        mr_case_say(c, " %s", in_name);
    }
    if (mr_case_chance(c, 70)) mr_case_add(c, out_name, out, REAL, OUT, count, EMPTY, 0);
}

static void draw_conv(mr_case *c, int *B, int *T, int *D, int *taps)
{
    *D = mr_case_width(c);
    mr_case_shape(c, *D, B, T);
    *taps = c->speed || mr_case_chance(c, 50) ? 4 : 1 + mr_case_below(c, MR_TAPS_MOST);
    c->elements = (size_t)*B * *T * *D;
    mr_case_say(c, "B=%d T=%d D=%d taps=%d", *B, *T, *D, *taps);
}

void mr_case_conv_fwd(mr_case *c)
{
    mr_conv_fwd_args *a = &c->args.conv_fwd;
    draw_conv(c, &a->B, &a->T, &a->D, &a->taps);
    size_t D = (size_t)a->D, taps = (size_t)a->taps, tail = (size_t)a->B * (taps - 1) * D;
    mr_case_add(c, MR_FIELD(conv_fwd, x), ACT, IN, c->elements, NORMAL, 1);
    mr_case_add(c, MR_FIELD(conv_fwd, w), REAL, IN, D * taps, NORMAL, 0.5);
    mr_case_add(c, MR_FIELD(conv_fwd, b), REAL, IN, D, NORMAL, 1);
    mr_case_add_reset(c, offsetof(mr_conv_fwd_args, reset), a->B, a->T);
    mr_case_add_room(c, offsetof(mr_conv_fwd_args, length), a->B, a->T);
    mr_case_add(c, MR_FIELD(conv_fwd, y), ACT, OUT, c->elements, EMPTY, 0);
    mr_case_add_state(c, MR_FIELD(conv_fwd, tail_in), MR_FIELD(conv_fwd, tail_out), tail, NORMAL, 1);
}

void mr_case_conv_bwd(mr_case *c)
{
    mr_conv_bwd_args *a = &c->args.conv_bwd;
    draw_conv(c, &a->B, &a->T, &a->D, &a->taps);
    size_t D = (size_t)a->D, taps = (size_t)a->taps, tail = (size_t)a->B * (taps - 1) * D;
    mr_case_add(c, MR_FIELD(conv_bwd, x), ACT, IN, c->elements, NORMAL, 1);
    mr_case_add(c, MR_FIELD(conv_bwd, w), REAL, IN, D * taps, NORMAL, 0.5);
    mr_case_add_reset(c, offsetof(mr_conv_bwd_args, reset), a->B, a->T);
    mr_case_add_room(c, offsetof(mr_conv_bwd_args, length), a->B, a->T);
    mr_case_add(c, MR_FIELD(conv_bwd, dy), ACT, IN, c->elements, NORMAL, 1);
    if (mr_case_chance(c, 60)) {
        mr_case_add(c, MR_FIELD(conv_bwd, tail_in), REAL, IN, tail, NORMAL, 1);
        mr_case_say(c, " tail_in");
    }
    if (mr_case_chance(c, 50)) {
        mr_case_add(c, MR_FIELD(conv_bwd, dtail_out), REAL, IN, tail, NORMAL, 1);
        mr_case_say(c, " dtail_out");
    }
    a->accumulate = mr_case_chance(c, 50);
    if (a->accumulate) mr_case_say(c, " accumulate");
    mr_case_add(c, MR_FIELD(conv_bwd, dx), ACT, a->accumulate ? ADD : OUT, c->elements, a->accumulate ? NORMAL : EMPTY,
                1);
    mr_case_add(c, MR_FIELD(conv_bwd, dw), REAL, ADD, D * taps, NORMAL, 1);
    mr_case_add(c, MR_FIELD(conv_bwd, db), REAL, ADD, D, NORMAL, 1);
    if (mr_case_chance(c, 60)) mr_case_add(c, MR_FIELD(conv_bwd, dtail_in), REAL, OUT, tail, EMPTY, 0);
}

static void add_weight(mr_case *c, size_t field, int B)
{
    if (mr_case_chance(c, 70)) return;
    mr_case_say(c, " weight");
    mr_case_add(c, "weight", field, REAL, IN, (size_t)B, MR_FILL_WHOLE, 0.8); /* some are 0 */
}

void mr_case_pool_fwd(mr_case *c)
{
    mr_pool_fwd_args *a = &c->args.pool_fwd;
    a->D = mr_case_width(c);
    mr_case_shape(c, a->D, &a->B, &a->T);
    a->kind = c->speed || mr_case_below(c, 2) ? MR_POOL_MEAN : MR_POOL_LAST;
    c->elements = (size_t)a->B * a->T * a->D;
    mr_case_say(c, "B=%d T=%d D=%d %s", a->B, a->T, a->D, a->kind == MR_POOL_MEAN ? "mean" : "last");
    mr_case_add_room(c, offsetof(mr_pool_fwd_args, length), a->B, a->T);
    add_weight(c, offsetof(mr_pool_fwd_args, weight), a->B);
    mr_case_add(c, MR_FIELD(pool_fwd, x), ACT, IN, c->elements, NORMAL, 1);
    mr_case_add(c, MR_FIELD(pool_fwd, y), ACT, OUT, (size_t)a->B * a->D, EMPTY, 0);
}

void mr_case_pool_bwd(mr_case *c)
{
    mr_pool_bwd_args *a = &c->args.pool_bwd;
    a->D = mr_case_width(c);
    mr_case_shape(c, a->D, &a->B, &a->T);
    a->kind = c->speed || mr_case_below(c, 2) ? MR_POOL_MEAN : MR_POOL_LAST;
    c->elements = (size_t)a->B * a->T * a->D;
    mr_case_say(c, "B=%d T=%d D=%d %s", a->B, a->T, a->D, a->kind == MR_POOL_MEAN ? "mean" : "last");
    mr_case_add_room(c, offsetof(mr_pool_bwd_args, length), a->B, a->T);
    add_weight(c, offsetof(mr_pool_bwd_args, weight), a->B);
    mr_case_add(c, MR_FIELD(pool_bwd, dy), ACT, IN, (size_t)a->B * a->D, NORMAL, 1);
    mr_case_add(c, MR_FIELD(pool_bwd, dx), ACT, OUT, c->elements, EMPTY, 0);
}

void mr_case_pair_fwd(mr_case *c)
{
    mr_pair_fwd_args *a = &c->args.pair_fwd;
    a->P = mr_case_rows(c);
    a->D = mr_case_width(c);
    c->elements = (size_t)a->P * a->D;
    mr_case_say(c, "P=%d D=%d", a->P, a->D);
    mr_case_add(c, MR_FIELD(pair_fwd, x), ACT, IN, 2 * c->elements, NORMAL, 1);
    mr_case_add(c, MR_FIELD(pair_fwd, y), ACT, OUT, 4 * c->elements, EMPTY, 0);
}

void mr_case_pair_bwd(mr_case *c)
{
    mr_pair_bwd_args *a = &c->args.pair_bwd;
    a->P = mr_case_rows(c);
    a->D = mr_case_width(c);
    c->elements = (size_t)a->P * a->D;
    mr_case_say(c, "P=%d D=%d", a->P, a->D);
    mr_case_add(c, MR_FIELD(pair_bwd, x), ACT, IN, 2 * c->elements, NORMAL, 1);
    mr_case_add(c, MR_FIELD(pair_bwd, dy), ACT, IN, 4 * c->elements, NORMAL, 1);
    mr_case_add(c, MR_FIELD(pair_bwd, dx), ACT, OUT, 2 * c->elements, EMPTY, 0);
}

/* Cycles through all cells; 840 seeds combine each of them with each width. */
mr_cell mr_case_cell(mr_case *c)
{
    enum { LINEAR = 9 };
    static const struct {
        mr_cell_kind kind;
        mr_candidate candidate;
        mr_scan scan;
        int normalize;
    } cells[] = {
        {MR_MINGRU, MR_POSITIVE, MR_SCAN_LINEAR, 0},  {MR_MINGRU, MR_LINEAR, MR_SCAN_LINEAR, 0},
        {MR_MINGRU, MR_TANH, MR_SCAN_LINEAR, 0},      {MR_MINLSTM, MR_POSITIVE, MR_SCAN_LINEAR, 0},
        {MR_MINLSTM, MR_LINEAR, MR_SCAN_LINEAR, 0},   {MR_MINLSTM, MR_TANH, MR_SCAN_LINEAR, 0},
        {MR_MINLSTM, MR_POSITIVE, MR_SCAN_LINEAR, 1}, {MR_MINLSTM, MR_LINEAR, MR_SCAN_LINEAR, 1},
        {MR_MINLSTM, MR_TANH, MR_SCAN_LINEAR, 1},     {MR_MINGRU, MR_POSITIVE, MR_SCAN_LOG, 0},
        {MR_MINLSTM, MR_POSITIVE, MR_SCAN_LOG, 0},    {MR_MINLSTM, MR_POSITIVE, MR_SCAN_LOG, 1},
    };
    static const char *const candidates[] = {"positive", "linear", "tanh"};
    const size_t positive = sizeof cells / sizeof *cells,
                 all = positive + LINEAR; /* the linear ones once more, signed */
    const size_t i = c->speed ? 0 : (c->seed / 40 + c->seed) % all, row = i < positive ? i : i - positive;
    const mr_cell cell = {.kind = cells[row].kind,
                          .candidate = cells[row].candidate,
                          .scan = cells[row].scan,
                          .normalize = cells[row].normalize,
                          .transition = i < positive ? MR_TRANSITION_POSITIVE : MR_TRANSITION_SIGNED};
    mr_case_say(c, "%s %s%s%s%s", cell.kind == MR_MINGRU ? "mingru" : "minlstm", candidates[cell.candidate],
                cell.scan == MR_SCAN_LOG ? " log" : "", cell.normalize ? " normalized" : "",
                cell.transition == MR_TRANSITION_SIGNED ? " signed" : "");
    return cell;
}

/* Shared by forward and backward: shape, cell, and a tolerance for the log scan, whose error grows with T. */
static void draw_recurrence(mr_case *c, mr_cell *cell, int *B, int *T, int *D, int *H)
{
    *cell = mr_case_cell(c);
    *H = mr_case_width(c);
    mr_case_shape(c, *H, B, T);
    *D = *T > 300 ? 1 + mr_case_below(c, 4) : c->speed ? 64 : mr_case_other_width(c);
    if (cell->scan == MR_SCAN_LOG) c->tolerance = 1e-3 * fmax(1, *T / 4096.0);
    c->elements = (size_t)*B * *T * *H;
    mr_case_say(c, " B=%d T=%d D=%d H=%d", *B, *T, *D, *H);
}

/* The bias decides how far the gates are open: ordinary, or saturated as far as training could ever drive them. The log
 * scan sums logarithms of gates, so only `linear` is exact for closed gates. */
/* NULL: this case has no bias. */
static mr_case_buffer *add_bias(mr_case *c, const mr_cell *cell, size_t field, int H)
{
    static const double extremes[] = {30, 100, 1e4};
    size_t count = (size_t)H * mr_cell_gates(cell);
    if (!c->speed && mr_case_chance(c, 15)) return mr_case_say(c, " no bias"), NULL;
    if (cell->scan == MR_SCAN_LOG || mr_case_chance(c, 60))
        return mr_case_add(c, "b", field, REAL, IN, count, NORMAL, 1);
    double extreme = extremes[mr_case_below(c, 3)];
    mr_case_say(c, " gates=±%g", extreme);
    mr_case_buffer *b = mr_case_add(c, "b", field, REAL, IN, count, MR_FILL_SATURATED, extreme);
    if (cell->normalize && (c->bf16 || extreme > 30))
        b->reach = (size_t)H; /* the difference of two huge gates would have no correct digits */
    return b;
}

static mr_case_fill state_fill(const mr_cell *cell) { return cell->scan == MR_SCAN_LOG ? MR_FILL_POSITIVE : NORMAL; }

void mr_case_minrnn_fwd(mr_case *c)
{
    mr_minrnn_fwd_args *a = &c->args.minrnn_fwd;
    draw_recurrence(c, &a->cell, &a->B, &a->T, &a->D, &a->H);
    size_t gates = (size_t)mr_cell_gates(&a->cell) * a->H, D = (size_t)a->D, states = (size_t)a->B * a->H;
    mr_case_buffer *x = mr_case_add(c, MR_FIELD(minrnn_fwd, x), ACT, IN, (size_t)a->B * a->T * D, NORMAL, 1);
    mr_case_add(c, MR_FIELD(minrnn_fwd, W), REAL, IN, gates * D, NORMAL, 1 / sqrt((double)D));
    add_bias(c, &a->cell, offsetof(mr_minrnn_fwd_args, b), a->H);
    if (mr_case_chance(c, 50)) {
        mr_case_add(c, MR_FIELD(minrnn_fwd, h_init), REAL, IN, (size_t)a->H, NORMAL, 1);
        mr_case_say(c, " h_init");
    }
    mr_case_add_reset(c, offsetof(mr_minrnn_fwd_args, reset), a->B, a->T);
    mr_case_add_room(c, offsetof(mr_minrnn_fwd_args, length), a->B, a->T);
    mr_case_add(c, MR_FIELD(minrnn_fwd, saved), SAVED, SCRATCH, 0, EMPTY, 0);
    mr_case_add(c, MR_FIELD(minrnn_fwd, h), ACT, OUT, c->elements, EMPTY, 0);
    if (a->cell.scan == MR_SCAN_LINEAR && mr_case_chance(c, 6)) {
        x->plant = (size_t)mr_case_below(c, (int)x->count);
        c->planted = 1;
        mr_case_say(c, " NaN in x");
    }
    mr_case_add_state(c, MR_FIELD(minrnn_fwd, h_in), MR_FIELD(minrnn_fwd, h_out), states, state_fill(&a->cell), 1);
}

/* Inputs that the backward shares with the forward that runs before it. */
#define SHARED(name) MR_FIELD(minrnn_bwd, name)
#define ALSO(name) ->in_first = offsetof(mr_minrnn_fwd_args, name)

static void add_forward(mr_case *c, const mr_minrnn_bwd_args *a)
{
    size_t gates = (size_t)mr_cell_gates(&a->cell) * a->H, D = (size_t)a->D, states = (size_t)a->B * a->H;
    c->first_op = MR_OP_minrnn_fwd;
    c->first.minrnn_fwd = (mr_minrnn_fwd_args){.cell = a->cell, .B = a->B, .T = a->T, .D = a->D, .H = a->H};
    mr_case_add(c, SHARED(x), ACT, IN, (size_t)a->B * a->T * D, NORMAL, 1) ALSO(x);
    mr_case_add(c, SHARED(W), REAL, IN, gates * D, NORMAL, 1 / sqrt((double)D)) ALSO(W);
    mr_case_buffer *b = add_bias(c, &a->cell, offsetof(mr_minrnn_bwd_args, b), a->H);
    if (b) {
        b ALSO(b);
        mr_case_add(c, SHARED(db), REAL, a->fresh ? OUT : ADD, gates, a->fresh ? EMPTY : NORMAL, 1);
    }
    mr_case_buffer *reset = mr_case_add_reset(c, offsetof(mr_minrnn_bwd_args, reset), a->B, a->T);
    mr_case_buffer *length = mr_case_add_room(c, offsetof(mr_minrnn_bwd_args, length), a->B, a->T);
    if (reset) reset ALSO(reset);
    if (length) length ALSO(length);
    mr_case_add(c, SHARED(saved), SAVED, SCRATCH, 0, EMPTY, 0) ALSO(saved);
    mr_case_add(c, SHARED(h), ACT, IN, c->elements, EMPTY, 0) ALSO(h);
    if (mr_case_chance(c, 50)) {
        mr_case_add(c, SHARED(h_in), REAL, IN, states, state_fill(&a->cell), 1) ALSO(h_in);
        mr_case_say(c, " h_in");
    }
    if (mr_case_chance(c, 50)) {
        mr_case_add(c, SHARED(h_init), REAL, IN, (size_t)a->H, NORMAL, 1) ALSO(h_init);
        mr_case_say(c, " h_init");
        if (mr_case_chance(c, 80))
            mr_case_add(c, SHARED(dh_init), REAL, a->fresh ? OUT : ADD, (size_t)a->H, a->fresh ? EMPTY : NORMAL, 1);
    }
}

void mr_case_minrnn_bwd(mr_case *c)
{
    mr_minrnn_bwd_args *a = &c->args.minrnn_bwd;
    draw_recurrence(c, &a->cell, &a->B, &a->T, &a->D, &a->H);
    a->fresh = mr_case_chance(c, 30);
    if (a->fresh) mr_case_say(c, " fresh");
    add_forward(c, a);
    const size_t gates = (size_t)mr_cell_gates(&a->cell) * a->H, D = (size_t)a->D, states = (size_t)a->B * a->H;
    mr_case_add(c, MR_FIELD(minrnn_bwd, dh), ACT, IN, c->elements, NORMAL, 1);
    if (mr_case_chance(c, 60)) {
        mr_case_add(c, MR_FIELD(minrnn_bwd, dh_out), REAL, IN, states, NORMAL, 1);
        mr_case_say(c, " dh_out");
    }
    a->accumulate = mr_case_chance(c, 50);
    if (a->accumulate) mr_case_say(c, " accumulate");
    if (mr_case_chance(c, 85))
        mr_case_add(c, MR_FIELD(minrnn_bwd, dx), ACT, a->accumulate ? ADD : OUT, (size_t)a->B * a->T * D,
                    a->accumulate ? NORMAL : EMPTY, 1);
    else mr_case_say(c, " no dx");
    mr_case_add(c, MR_FIELD(minrnn_bwd, dW), REAL, a->fresh ? OUT : ADD, gates * D, a->fresh ? EMPTY : NORMAL, 1);
    if (mr_case_chance(c, 60)) mr_case_add(c, MR_FIELD(minrnn_bwd, dh_in), REAL, OUT, states, EMPTY, 0);
}

/* ---- the recurrence alone: decays as gates give them, including fully shut and open ones */

void mr_case_scan_fwd(mr_case *c)
{
    mr_scan_fwd_args *a = &c->args.scan_fwd;
    a->H = mr_case_width(c);
    mr_case_shape(c, a->H, &a->B, &a->T);
    size_t states = (size_t)a->B * a->H;
    c->elements = states * a->T;
    mr_case_say(c, "B=%d T=%d H=%d", a->B, a->T, a->H);
    mr_case_add(c, MR_FIELD(scan_fwd, a), ACT, IN, c->elements, NORMAL, 0.5);
    mr_case_buffer *b = mr_case_add(c, MR_FIELD(scan_fwd, b), ACT, IN, c->elements, NORMAL, 1);
    mr_case_add_reset(c, offsetof(mr_scan_fwd_args, reset), a->B, a->T);
    mr_case_add_room(c, offsetof(mr_scan_fwd_args, length), a->B, a->T);
    mr_case_add(c, MR_FIELD(scan_fwd, h), ACT, OUT, c->elements, EMPTY, 0);
    if (mr_case_chance(c, 6)) {
        b->plant = (size_t)mr_case_below(c, (int)b->count);
        c->planted = 1;
        mr_case_say(c, " NaN in b");
    }
    mr_case_add_state(c, MR_FIELD(scan_fwd, h_in), MR_FIELD(scan_fwd, h_out), states, NORMAL, 1);
}

void mr_case_scan_bwd(mr_case *c)
{
    mr_scan_bwd_args *a = &c->args.scan_bwd;
    a->H = mr_case_width(c);
    mr_case_shape(c, a->H, &a->B, &a->T);
    size_t states = (size_t)a->B * a->H;
    c->elements = states * a->T;
    mr_case_say(c, "B=%d T=%d H=%d", a->B, a->T, a->H);
    mr_case_add_reset(c, offsetof(mr_scan_bwd_args, reset), a->B, a->T);
    mr_case_add_room(c, offsetof(mr_scan_bwd_args, length), a->B, a->T);
    mr_case_add(c, MR_FIELD(scan_bwd, h), ACT, IN, c->elements, NORMAL, 1);
    if (mr_case_chance(c, 50)) {
        mr_case_add(c, MR_FIELD(scan_bwd, h_in), REAL, IN, states, NORMAL, 1);
        mr_case_say(c, " h_in");
    }
    if (mr_case_chance(c, 60)) {
        mr_case_add(c, MR_FIELD(scan_bwd, dh_out), REAL, IN, states, NORMAL, 1);
        mr_case_say(c, " dh_out");
    }
    int in_place = mr_case_chance(c, 30);
    mr_case_buffer *da =
        mr_case_add(c, MR_FIELD(scan_bwd, da), ACT, in_place ? ADD : OUT, c->elements, in_place ? NORMAL : EMPTY, 0.5);
    mr_case_buffer *db =
        mr_case_add(c, MR_FIELD(scan_bwd, db), ACT, in_place ? ADD : OUT, c->elements, in_place ? NORMAL : EMPTY, 1);
    if (in_place) {
        da->alias = offsetof(mr_scan_bwd_args, a);
        db->alias = offsetof(mr_scan_bwd_args, dh);
        mr_case_say(c, " da=a db=dh");
    } else {
        mr_case_add(c, MR_FIELD(scan_bwd, a), ACT, IN, c->elements, NORMAL, 0.5);
        mr_case_add(c, MR_FIELD(scan_bwd, dh), ACT, IN, c->elements, NORMAL, 1);
    }
    if (mr_case_chance(c, 60)) mr_case_add(c, MR_FIELD(scan_bwd, dh_in), REAL, OUT, states, EMPTY, 0);
}

/* ---- the selective scan */

static void draw_sscan(mr_case *c, int *B, int *T, int *E, int *N)
{
    *E = mr_case_width(c);
    mr_case_shape(c, *E, B, T);
    *N = c->speed || mr_case_chance(c, 60) ? 16 : 1 + mr_case_below(c, mr_case_chance(c, 80) ? 20 : MR_SSCAN_STATES);
    c->elements = (size_t)*B * *T * *E;
    mr_case_say(c, "B=%d T=%d E=%d N=%d", *B, *T, *E, *N);
}

/* Offsets of the shared inputs in the argument structs of forward and backward, for mr_case_add. */
typedef struct sscan_places {
    size_t u, delta, z, bc, A_log, D, dt_bias, h_in, reset, length;
} sscan_places;

#define SSCAN_PLACES(op)                                                                                               \
    {                                                                                                                  \
        offsetof(mr_##op##_args, u), offsetof(mr_##op##_args, delta), offsetof(mr_##op##_args, z),                     \
            offsetof(mr_##op##_args, bc), offsetof(mr_##op##_args, A_log), offsetof(mr_##op##_args, D),                \
            offsetof(mr_##op##_args, dt_bias), offsetof(mr_##op##_args, h_in), offsetof(mr_##op##_args, reset),        \
            offsetof(mr_##op##_args, length)                                                                           \
    }

static const sscan_places forward_places = SSCAN_PLACES(sscan_fwd);

/* same: bits for delta, z and bc: the gradient is written over that input. first: they are also inputs of the
 * forward that runs before. */
static void add_sscan_inputs(mr_case *c, const sscan_places *at, int B, int T, int E, int N, int same, int first)
{
    const size_t tokens = (size_t)B * T, wide = tokens * E;
    /* step sizes and rates from hardly any decay to forgetting the state at once */
    const double spread = mr_case_chance(c, 70) ? 1 : 20;
    mr_case_buffer *all[] = {
        mr_case_add(c, "u", at->u, ACT, IN, wide, NORMAL, 1),
        mr_case_add(c, "delta", at->delta, ACT, same & 1 ? ADD : IN, wide, NORMAL, spread),
        mr_case_add(c, "z", at->z, ACT, same & 2 ? ADD : IN, wide, NORMAL, spread),
        mr_case_add(c, "bc", at->bc, ACT, same & 4 ? ADD : IN, tokens * 2 * N, NORMAL, 1 / sqrt((double)N)),
        mr_case_add(c, "A_log", at->A_log, REAL, IN, (size_t)E * N, NORMAL, 1),
        mr_case_add(c, "D", at->D, REAL, IN, (size_t)E, NORMAL, 1),
        mr_case_add(c, "dt_bias", at->dt_bias, REAL, IN, (size_t)E, NORMAL, 2)};
    const size_t places[] = {forward_places.u,     forward_places.delta, forward_places.z,      forward_places.bc,
                             forward_places.A_log, forward_places.D,     forward_places.dt_bias};
    for (int i = 0; first && i < 7; i++) all[i]->in_first = places[i];
    mr_case_buffer *reset = mr_case_add_reset(c, at->reset, B, T), *length = mr_case_add_room(c, at->length, B, T);
    if (first && reset) reset->in_first = forward_places.reset;
    if (first && length) length->in_first = forward_places.length;
    mr_case_say(c, spread > 1 ? " spread" : "");
}

void mr_case_sscan_fwd(mr_case *c)
{
    mr_sscan_fwd_args *a = &c->args.sscan_fwd;
    draw_sscan(c, &a->B, &a->T, &a->E, &a->N);
    const size_t states = (size_t)a->B * a->N * a->E;
    add_sscan_inputs(c, &forward_places, a->B, a->T, a->E, a->N, 0, 0);
    if (mr_case_chance(c, 6)) {
        c->buffers[0].plant = (size_t)mr_case_below(c, (int)c->elements);
        c->planted = 1;
        mr_case_say(c, " NaN in u");
    }
    mr_case_add(c, MR_FIELD(sscan_fwd, y), ACT, OUT, c->elements, EMPTY, 0);
    if (mr_case_chance(c, 50))
        mr_case_add(c, MR_FIELD(sscan_fwd, states), REAL, OUT, mr_sscan_chunks(a->T) * states, EMPTY, 0);
    mr_case_add_state(c, MR_FIELD(sscan_fwd, h_in), MR_FIELD(sscan_fwd, h_out), states, NORMAL, 1);
}

/* The forward runs first and leaves `states`; its y is not compared. */
void mr_case_sscan_bwd(mr_case *c)
{
    static const sscan_places places = SSCAN_PLACES(sscan_bwd);
    mr_sscan_bwd_args *a = &c->args.sscan_bwd;
    draw_sscan(c, &a->B, &a->T, &a->E, &a->N);
    const size_t states = (size_t)a->B * a->N * a->E;
    const int same = mr_case_below(c, 8);
    c->first_op = MR_OP_sscan_fwd;
    c->first.sscan_fwd = (mr_sscan_fwd_args){.B = a->B, .T = a->T, .E = a->E, .N = a->N};
    add_sscan_inputs(c, &places, a->B, a->T, a->E, a->N, same, 1);
    c->buffers[1].alias = same & 1 ? offsetof(mr_sscan_bwd_args, ddelta) : MR_NO_FIELD;
    c->buffers[2].alias = same & 2 ? offsetof(mr_sscan_bwd_args, dz) : MR_NO_FIELD;
    c->buffers[3].alias = same & 4 ? offsetof(mr_sscan_bwd_args, dbc) : MR_NO_FIELD;
    mr_case_say(c, " in place=%d", same);
    mr_case_add(c, MR_FIELD(sscan_bwd, states), REAL, IN, mr_sscan_chunks(a->T) * states, EMPTY, 0)->in_first =
        offsetof(mr_sscan_fwd_args, states);
    mr_case_add(c, "y", MR_NO_FIELD, ACT, SCRATCH, c->elements, EMPTY, 0)->in_first = offsetof(mr_sscan_fwd_args, y);
    mr_case_add(c, MR_FIELD(sscan_bwd, dy), ACT, IN, c->elements, NORMAL, 1);
    if (mr_case_chance(c, 50)) {
        mr_case_add(c, MR_FIELD(sscan_bwd, h_in), REAL, IN, states, NORMAL, 1)->in_first =
            offsetof(mr_sscan_fwd_args, h_in);
        mr_case_say(c, " h_in");
    }
    if (mr_case_chance(c, 60)) {
        mr_case_add(c, MR_FIELD(sscan_bwd, dh_out), REAL, IN, states, NORMAL, 1);
        mr_case_say(c, " dh_out");
    }
    mr_case_add(c, MR_FIELD(sscan_bwd, du), ACT, OUT, c->elements, EMPTY, 0);
    if (!(same & 1)) mr_case_add(c, MR_FIELD(sscan_bwd, ddelta), ACT, OUT, c->elements, EMPTY, 0);
    if (!(same & 2)) mr_case_add(c, MR_FIELD(sscan_bwd, dz), ACT, OUT, c->elements, EMPTY, 0);
    if (!(same & 4)) mr_case_add(c, MR_FIELD(sscan_bwd, dbc), ACT, OUT, (size_t)a->B * a->T * 2 * a->N, EMPTY, 0);
    mr_case_add(c, MR_FIELD(sscan_bwd, dA_log), REAL, ADD, (size_t)a->E * a->N, NORMAL, 1);
    mr_case_add(c, MR_FIELD(sscan_bwd, dD), REAL, ADD, (size_t)a->E, NORMAL, 1);
    if (mr_case_chance(c, 60)) mr_case_add(c, MR_FIELD(sscan_bwd, dh_in), REAL, OUT, states, EMPTY, 0);
}
