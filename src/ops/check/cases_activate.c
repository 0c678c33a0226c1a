/* Cases of activations by themselves. */
#include "ops/check/makers.h"

/* Draws shape and kind. Returns the elements of y. */
static size_t draw(mr_case *c, size_t *M, size_t *F, mr_activation *kind, int *gated)
{
    static const char *const names[] = {"silu", "gelu", "gelu-erf"};
    *M = (size_t)mr_case_rows(c);
    *F = (size_t)mr_case_width(c);
    *kind = (mr_activation)mr_case_below(c, 3);
    *gated = mr_case_chance(c, 50);
    c->elements = *M * *F;
    mr_case_say(c, "M=%zu F=%zu %s%s", *M, *F, names[*kind], *gated ? " gated" : "");
    return c->elements;
}

/* Ordinary numbers, or with every other one far outside. */
static void add_input(mr_case_buffer *x, int far)
{
    x->fill = far ? MR_FILL_SATURATED : NORMAL;
    if (far) x->value = 1e4;
}

void mr_case_activate_fwd(mr_case *c)
{
    mr_activate_fwd_args *a = &c->args.activate_fwd;
    const size_t n = draw(c, &a->M, &a->F, &a->kind, &a->gated);
    const int same = !a->gated && mr_case_chance(c, 50);
    if (same) mr_case_say(c, " y=x");
    mr_case_buffer *x =
        mr_case_add(c, MR_FIELD(activate_fwd, x), ACT, same ? ADD : IN, a->gated ? 2 * n : n, NORMAL, 3);
    add_input(x, !a->gated && mr_case_chance(c, 20));
    if (same) x->alias = offsetof(mr_activate_fwd_args, y);
    else mr_case_add(c, MR_FIELD(activate_fwd, y), ACT, OUT, n, EMPTY, 0);
}

void mr_case_activate_bwd(mr_case *c)
{
    mr_activate_bwd_args *a = &c->args.activate_bwd;
    const size_t n = draw(c, &a->M, &a->F, &a->kind, &a->gated), wide = a->gated ? 2 * n : n;
    const int with = mr_case_below(c, a->gated ? 2 : 3); /* which input dx shares memory with */
    if (with) mr_case_say(c, with == 1 ? " dx=x" : " dx=dy");
    mr_case_buffer *x = mr_case_add(c, MR_FIELD(activate_bwd, x), ACT, with == 1 ? ADD : IN, wide, NORMAL, 3);
    mr_case_buffer *dy = mr_case_add(c, MR_FIELD(activate_bwd, dy), ACT, with == 2 ? ADD : IN, n, NORMAL, 1);
    add_input(x, !a->gated && mr_case_chance(c, 20));
    if (with == 0) mr_case_add(c, MR_FIELD(activate_bwd, dx), ACT, OUT, wide, EMPTY, 0);
    else (with == 1 ? x : dy)->alias = offsetof(mr_activate_bwd_args, dx);
}
