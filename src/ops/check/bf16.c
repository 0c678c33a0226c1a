/* The tolerance for bf16. Its 8 significant bits round by at most u = 2⁻⁸ of a number; sums
 * are made in fp32 everywhere.
 *
 * Stored activations (a GPU with --dtype bf16). ref gets the same numbers as the device: activations and the operands
 * of products, rounded to bf16. The remaining error is
 *   the rounding of a stored result          u·|ref|, element by element
 *   roundings inside the op                   inner·u·scale, with `inner` as below
 *   the op's tolerance in fp32               as always
 * Gradients of parameters, states and statistics are fp32 and get only the last, unless inner roundings reach them.
 *   linear_fwd, linear_bwd_x   one, before dropout or gelu', of a number up to 4 times what comes out: 4
 *   minrnn_fwd, minrnn_bwd     the pre-activations are kept in bf16, and so are the states and the pre-activations'
 *                              gradients before they go into products: 4. More would be too lax: with every rounding
 *                              in its place, 1 … 2 were seen.
 *   rnn_fwd, rnn_bwd           the same, and the gates themselves are kept in bf16; what is rounded at one token
 *                              carries over to the states of all later tokens: 8, and 16 for gradients
 *   attn_fwd, attn_bwd         rotated queries and keys, and the softmax, before they go into products: 4; backward,
 *                              also the kept y and the gradients of the scores: 8
 *
 * Products in bf16 with activations in fp32 (the CPU): operands are rounded inside the op, which ref does not do. */
#include "ops/check/case.h"

#include <math.h>
#include <string.h>

#define UNIT 0x1p-8

static const struct {
    int op;
    double inner, products;
} rules[] = {
    {MR_OP_linear_fwd, 4, 1e-2}, {MR_OP_linear_bwd_x, 4, 1e-2}, {MR_OP_linear_bwd_w, 0, 1e-2},
    {MR_OP_minrnn_fwd, 4, 2e-2}, {MR_OP_minrnn_bwd, 4, 3e-2},   {MR_OP_rnn_fwd, 8, 3e-2},
    {MR_OP_rnn_bwd, 16, 6e-2},   {MR_OP_attn_fwd, 4, 2e-2},     {MR_OP_attn_bwd, 8, 4e-2},
};

/* The cell of a minrnn op; NULL: another op. */
static const mr_cell *cell_of(const mr_case *c)
{
    if (c->op == MR_OP_minrnn_fwd) return &c->args.minrnn_fwd.cell;
    return c->op == MR_OP_minrnn_bwd ? &c->args.minrnn_bwd.cell : NULL;
}

/* A signed gate passes a rounding on more strongly than a sigmoid: its slope is up to 1.2, not 1/4. */
static double steepness(const mr_case *c)
{
    const mr_cell *cell = cell_of(c);
    return cell && cell->transition == MR_TRANSITION_SIGNED ? MR_SIGNED_REACH / 0.25 : 1;
}

/* The slope of the positive candidate jumps at v = 0, that of signed gates at 0 and at ±1, and rounded operands move
 * some across: there the gradient agrees only roughly. A rounded v keeps its sign, so stored activations need this for
 * signed gates alone. */
void mr_case_bf16_products(mr_case *c)
{
    const mr_cell *cell = cell_of(c);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (c->op == rules[i].op) c->tolerance = fmax(c->tolerance, rules[i].products * steepness(c));
    if (!cell || c->op != MR_OP_minrnn_bwd) return;
    if (cell->candidate == MR_POSITIVE) c->tolerance = 0.5;
    if (cell->transition == MR_TRANSITION_SIGNED) c->tolerance = 1;
}

/* Rounds to nearest, ties to even; NaN stays NaN. */
static float nearest(float x)
{
    uint32_t bits;
    if (isnan(x)) return x;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

void mr_case_bf16_stored(mr_case *c)
{
    const mr_cell *cell = cell_of(c);
    int operands = 0; /* 1: the op rounds W and b */
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (c->op == rules[i].op) {
            c->inner = rules[i].inner * steepness(c);
            operands = 1;
        }
    if (cell && c->op == MR_OP_minrnn_bwd && cell->transition == MR_TRANSITION_SIGNED) c->tolerance = 1;
    for (mr_case_buffer *b = c->buffers; b < c->buffers + c->buffer_count; b++) {
        int operand =
            operands && b->type == MR_CASE_REAL &&
            (!strcmp(b->name, "W") || !strcmp(b->name, "b") || !strcmp(b->name, "W_ih") || !strcmp(b->name, "b_ih"));
        if (b->type != MR_CASE_ACT && !operand) continue;
        for (size_t i = 0; i < b->count; i++) ((float *)b->data)[i] = nearest(((float *)b->data)[i]);
    }
}

double mr_case_allows(const mr_case *c, const mr_case_buffer *b, double ref, double scale)
{
    double allowed = c->tolerance * scale;
    if (!c->bf16) return allowed;
    return allowed + c->inner * UNIT * scale + (b->type == MR_CASE_ACT ? UNIT * fabs(ref) : 0);
}
