/* Cases of ops that let a sequence be cut in time. */
#include "ops/check/makers.h"

#include <math.h>

/* Adds what both directions of an effect have: resets, lengths, results. Returns whether it is the backward's. */
static int add_effect(mr_case *c, size_t reset, size_t length, size_t A, size_t C, int B, int T, size_t states)
{
    const int down = mr_case_chance(c, 50);
    mr_case_say(c, down ? " down" : " up");
    mr_case_add_reset(c, reset, B, T);
    mr_case_add_room(c, length, B, T);
    mr_case_add(c, "A", A, REAL, OUT, states, EMPTY, 0);
    mr_case_add(c, "C", C, REAL, OUT, states, EMPTY, 0);
    return down;
}

#define EFFECT(op)                                                                                                     \
    offsetof(mr_##op##_args, reset), offsetof(mr_##op##_args, length), offsetof(mr_##op##_args, A),                    \
        offsetof(mr_##op##_args, C)

/* Gates ordinary, or saturated as far as training could ever drive them. */
void mr_case_minrnn_effect(mr_case *c)
{
    mr_minrnn_effect_args *a = &c->args.minrnn_effect;
    a->cell = mr_case_cell(c);
    a->H = mr_case_width(c);
    mr_case_shape(c, a->H, &a->B, &a->T);
    const size_t states = (size_t)a->B * a->H;
    c->elements = states * a->T;
    mr_case_say(c, " B=%d T=%d H=%d", a->B, a->T, a->H);
    const int saturated = !a->cell.normalize && !c->speed && mr_case_chance(c, 30);
    if (saturated) mr_case_say(c, " saturated");
    mr_case_add(c, MR_FIELD(minrnn_effect, pre), ACT, IN, c->elements * (size_t)mr_cell_gates(&a->cell),
                saturated ? MR_FILL_SATURATED : NORMAL, saturated ? 30 : 2);
    if (mr_case_chance(c, 50)) {
        mr_case_add(c, MR_FIELD(minrnn_effect, h_init), REAL, IN, (size_t)a->H, NORMAL, 1);
        mr_case_say(c, " h_init");
    }
    if (add_effect(c, EFFECT(minrnn_effect), a->B, a->T, states))
        mr_case_add(c, MR_FIELD(minrnn_effect, dh), ACT, IN, c->elements, NORMAL, 1);
}

void mr_case_sscan_effect(mr_case *c)
{
    mr_sscan_effect_args *a = &c->args.sscan_effect;
    a->E = mr_case_width(c);
    mr_case_shape(c, a->E, &a->B, &a->T);
    a->N = c->speed || mr_case_chance(c, 60) ? 16 : 1 + mr_case_below(c, MR_SSCAN_STATES);
    const size_t states = (size_t)a->B * a->N * a->E, E = (size_t)a->E;
    const double spread = mr_case_chance(c, 70) ? 1 : 20;
    c->elements = (size_t)a->B * a->T * a->E;
    mr_case_say(c, "B=%d T=%d E=%d N=%d%s", a->B, a->T, a->E, a->N, spread > 1 ? " spread" : "");
    mr_case_add(c, MR_FIELD(sscan_effect, delta), ACT, IN, c->elements, NORMAL, spread);
    mr_case_add(c, MR_FIELD(sscan_effect, bc), ACT, IN, (size_t)a->B * a->T * 2 * a->N, NORMAL, 1 / sqrt((double)a->N));
    mr_case_add(c, MR_FIELD(sscan_effect, A_log), REAL, IN, E * a->N, NORMAL, 1);
    mr_case_add(c, MR_FIELD(sscan_effect, dt_bias), REAL, IN, E, NORMAL, 2);
    if (!add_effect(c, EFFECT(sscan_effect), a->B, a->T, states)) {
        mr_case_add(c, MR_FIELD(sscan_effect, u), ACT, IN, c->elements, NORMAL, 1);
        return;
    }
    mr_case_add(c, MR_FIELD(sscan_effect, z), ACT, IN, c->elements, NORMAL, spread);
    mr_case_add(c, MR_FIELD(sscan_effect, dy), ACT, IN, c->elements, NORMAL, 1);
}

void mr_case_effect_chain(mr_case *c)
{
    mr_effect_chain_args *a = &c->args.effect_chain;
    a->n = c->elements = (size_t)mr_case_rows(c) * (size_t)mr_case_width(c);
    a->count = 1 + mr_case_below(c, 9);
    a->down = mr_case_chance(c, 50);
    mr_case_say(c, "n=%zu count=%d %s", a->n, a->count, a->down ? "down" : "up");
    /* whole numbers: many are 0 */
    mr_case_add(c, MR_FIELD(effect_chain, A), REAL, IN, a->n * (size_t)a->count, MR_FILL_WHOLE, 0.8);
    mr_case_buffer *C = mr_case_add(c, MR_FIELD(effect_chain, C), REAL, IN, a->n * (size_t)a->count, NORMAL, 1);
    mr_case_add(c, MR_FIELD(effect_chain, y), REAL, OUT, a->n, EMPTY, 0);
    if (!mr_case_chance(c, 10)) return;
    C->plant = (size_t)(a->down ? 0 : a->count - 1) * a->n + (size_t)mr_case_below(c, (int)a->n);
    c->planted = 1;
    mr_case_say(c, " NaN in the last C");
}

static void draw_tail(mr_case *c, int *B, int *T, int *D, int *taps)
{
    *D = mr_case_width(c);
    mr_case_shape(c, *D, B, T);
    *taps = c->speed || mr_case_chance(c, 50) ? 4 : 2 + mr_case_below(c, MR_TAPS_MOST - 1);
    c->elements = (size_t)*B * *T * *D;
    mr_case_say(c, "B=%d T=%d D=%d taps=%d", *B, *T, *D, *taps);
}

void mr_case_conv_tail_fwd(mr_case *c)
{
    mr_conv_tail_fwd_args *a = &c->args.conv_tail_fwd;
    draw_tail(c, &a->B, &a->T, &a->D, &a->taps);
    mr_case_add(c, MR_FIELD(conv_tail_fwd, x), ACT, IN, c->elements, NORMAL, 1);
    mr_case_add_reset(c, offsetof(mr_conv_tail_fwd_args, reset), a->B, a->T);
    mr_case_add_room(c, offsetof(mr_conv_tail_fwd_args, length), a->B, a->T);
    mr_case_add(c, MR_FIELD(conv_tail_fwd, tail), REAL, OUT, (size_t)a->B * (size_t)(a->taps - 1) * a->D, EMPTY, 0);
}

void mr_case_conv_tail_bwd(mr_case *c)
{
    mr_conv_tail_bwd_args *a = &c->args.conv_tail_bwd;
    draw_tail(c, &a->B, &a->T, &a->D, &a->taps);
    mr_case_add_reset(c, offsetof(mr_conv_tail_bwd_args, reset), a->B, a->T);
    mr_case_add_room(c, offsetof(mr_conv_tail_bwd_args, length), a->B, a->T);
    mr_case_add(c, MR_FIELD(conv_tail_bwd, dtail), REAL, IN, (size_t)a->B * (size_t)(a->taps - 1) * a->D, NORMAL, 1);
    mr_case_add(c, MR_FIELD(conv_tail_bwd, dx), ACT, ADD, c->elements, NORMAL, 1);
}
