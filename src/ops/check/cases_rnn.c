/* Cases of GRU and LSTM. */
#include "ops/check/makers.h"

#include <math.h>

static const char *const names[] = {"gru before", "gru after", "lstm"};

/* Few and many rows (backends have a path for each), single tokens, ragged lengths. */
static void draw_shape(mr_case *c, mr_rnn *kind, int *B, int *T, int *D, int *H)
{
    *kind = c->speed ? MR_GRU_AFTER : (mr_rnn)((c->seed / 40 + c->seed) % 3);
    *H = mr_case_width(c);
    *B = mr_case_chance(c, 60) ? 1 + mr_case_below(c, 8) : 9 + mr_case_below(c, 30);
    *T = mr_case_chance(c, 15) ? 1 : 1 + mr_case_below(c, mr_case_chance(c, 90) ? 20 : 100);
    *D = mr_case_chance(c, 80) ? 1 + mr_case_below(c, 40) : mr_case_other_width(c);
    if (c->speed) *B = 32, *T = 16, *D = 64;
    c->elements = (size_t)*B * *T * *H;
    mr_case_say(c, "%s B=%d T=%d D=%d H=%d", names[*kind], *B, *T, *D, *H);
}

static mr_case_buffer *add_maybe(mr_case *c, const char *name, size_t field, mr_case_type type, size_t count,
                                 mr_case_fill fill, double value)
{
    if (mr_case_chance(c, 50)) return NULL;
    mr_case_say(c, " %s", name);
    return mr_case_add(c, name, field, type, IN, count, fill, value);
}

/* Gates as at the start of training, or saturated open or shut. */
static mr_case_buffer *add_bias(mr_case *c, const char *name, size_t field, size_t count)
{
    static const double extremes[] = {30, 1e4};
    if (mr_case_chance(c, 80)) return mr_case_add(c, name, field, REAL, IN, count, NORMAL, 1);
    return mr_case_add(c, name, field, REAL, IN, count, MR_FILL_SATURATED, extremes[mr_case_below(c, 2)]);
}

void mr_case_rnn_fwd(mr_case *c)
{
    mr_rnn_fwd_args *a = &c->args.rnn_fwd;
    draw_shape(c, &a->kind, &a->B, &a->T, &a->D, &a->H);
    size_t gates = (size_t)mr_rnn_gates(a->kind) * a->H, D = (size_t)a->D, H = (size_t)a->H;
    size_t state = (size_t)mr_rnn_state(a->kind, a->H), states = (size_t)a->B * state;
    mr_case_buffer *x = mr_case_add(c, MR_FIELD(rnn_fwd, x), ACT, IN, (size_t)a->B * a->T * D, NORMAL, 1);
    mr_case_add(c, MR_FIELD(rnn_fwd, W_ih), REAL, IN, gates * D, NORMAL, 1 / sqrt((double)D));
    mr_case_add(c, MR_FIELD(rnn_fwd, W_hh), REAL, IN, gates * H, NORMAL, 0.7 / sqrt((double)H));
    add_bias(c, MR_FIELD(rnn_fwd, b_ih), gates);
    mr_case_add(c, MR_FIELD(rnn_fwd, b_hh), REAL, IN, gates, NORMAL, 1);
    add_maybe(c, MR_FIELD(rnn_fwd, h_init), REAL, state, NORMAL, 1);
    mr_case_add_reset(c, offsetof(mr_rnn_fwd_args, reset), a->B, a->T);
    mr_case_add_length(c, offsetof(mr_rnn_fwd_args, length), a->B, a->T);
    mr_case_add(c, MR_FIELD(rnn_fwd, saved), SAVED, SCRATCH, 0, EMPTY, 0);
    mr_case_add(c, MR_FIELD(rnn_fwd, h), ACT, OUT, c->elements, EMPTY, 0);
    if (mr_case_chance(c, 6)) {
        x->plant = (size_t)mr_case_below(c, (int)x->count);
        c->planted = 1;
        mr_case_say(c, " NaN in x");
    }
    mr_case_add_state(c, MR_FIELD(rnn_fwd, h_in), MR_FIELD(rnn_fwd, h_out), states, NORMAL, 0.5);
}

static void also(mr_case_buffer *b, size_t field)
{
    if (b) b->in_first = field;
}

#define ALSO(name) offsetof(mr_rnn_fwd_args, name)

/* Inputs that the backward shares with the forward that runs before it. */
static void add_forward(mr_case *c, const mr_rnn_bwd_args *a)
{
    size_t gates = (size_t)mr_rnn_gates(a->kind) * a->H, D = (size_t)a->D, H = (size_t)a->H;
    size_t state = (size_t)mr_rnn_state(a->kind, a->H);
    c->first_op = MR_OP_rnn_fwd;
    c->first.rnn_fwd = (mr_rnn_fwd_args){.kind = a->kind, .B = a->B, .T = a->T, .D = a->D, .H = a->H};
    also(mr_case_add(c, MR_FIELD(rnn_bwd, x), ACT, IN, (size_t)a->B * a->T * D, NORMAL, 1), ALSO(x));
    also(mr_case_add(c, MR_FIELD(rnn_bwd, W_ih), REAL, IN, gates * D, NORMAL, 1 / sqrt((double)D)), ALSO(W_ih));
    also(mr_case_add(c, MR_FIELD(rnn_bwd, W_hh), REAL, IN, gates * H, NORMAL, 0.7 / sqrt((double)H)), ALSO(W_hh));
    also(add_bias(c, "b_ih", MR_NO_FIELD, gates), ALSO(b_ih));
    also(mr_case_add(c, "b_hh", MR_NO_FIELD, REAL, IN, gates, NORMAL, 1), ALSO(b_hh));
    also(mr_case_add_reset(c, offsetof(mr_rnn_bwd_args, reset), a->B, a->T), ALSO(reset));
    also(mr_case_add_length(c, offsetof(mr_rnn_bwd_args, length), a->B, a->T), ALSO(length));
    also(mr_case_add(c, MR_FIELD(rnn_bwd, saved), SAVED, SCRATCH, 0, EMPTY, 0), ALSO(saved));
    also(mr_case_add(c, MR_FIELD(rnn_bwd, h), ACT, IN, c->elements, EMPTY, 0), ALSO(h));
    also(add_maybe(c, MR_FIELD(rnn_bwd, h_in), REAL, (size_t)a->B * state, NORMAL, 0.5), ALSO(h_in));
    mr_case_buffer *init = add_maybe(c, MR_FIELD(rnn_bwd, h_init), REAL, state, NORMAL, 1);
    also(init, ALSO(h_init));
    if (init && mr_case_chance(c, 80)) mr_case_add(c, MR_FIELD(rnn_bwd, dh_init), REAL, ADD, state, NORMAL, 1);
}

void mr_case_rnn_bwd(mr_case *c)
{
    mr_rnn_bwd_args *a = &c->args.rnn_bwd;
    draw_shape(c, &a->kind, &a->B, &a->T, &a->D, &a->H);
    add_forward(c, a);
    size_t gates = (size_t)mr_rnn_gates(a->kind) * a->H, D = (size_t)a->D, tokens = (size_t)a->B * a->T;
    size_t states = (size_t)a->B * mr_rnn_state(a->kind, a->H);
    mr_case_add(c, MR_FIELD(rnn_bwd, dh), ACT, IN, c->elements, NORMAL, 1);
    add_maybe(c, MR_FIELD(rnn_bwd, dh_out), REAL, states, NORMAL, 1);
    a->accumulate = mr_case_chance(c, 50);
    if (a->accumulate) mr_case_say(c, " accumulate");
    mr_case_add(c, MR_FIELD(rnn_bwd, dx), ACT, a->accumulate ? ADD : OUT, tokens * D, a->accumulate ? NORMAL : EMPTY,
                1);
    mr_case_add(c, MR_FIELD(rnn_bwd, dW_ih), REAL, ADD, gates * D, NORMAL, 1);
    mr_case_add(c, MR_FIELD(rnn_bwd, db_ih), REAL, ADD, gates, NORMAL, 1);
    mr_case_add(c, MR_FIELD(rnn_bwd, dW_hh), REAL, ADD, gates * a->H, NORMAL, 1);
    mr_case_add(c, MR_FIELD(rnn_bwd, db_hh), REAL, ADD, gates, NORMAL, 1);
    if (mr_case_chance(c, 60)) mr_case_add(c, MR_FIELD(rnn_bwd, dh_in), REAL, OUT, states, EMPTY, 0);
}
