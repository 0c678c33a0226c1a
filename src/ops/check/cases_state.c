/* Cases of ops on the states of streams. */
#include "ops/check/makers.h"

/* Size of one part of a block's state: zero, any number, or a multiple of four (backends move those four at a time). */
static int draw_part(mr_case *c, int fours)
{
    if (c->speed) return 256;
    if (mr_case_chance(c, 20)) return 0;
    return fours ? 4 * (1 + mr_case_below(c, 40)) : 1 + mr_case_below(c, 90);
}

void mr_case_state_rows(mr_case *c)
{
    mr_state_rows_args *a = &c->args.state_rows;
    const int fours = mr_case_chance(c, 50);
    a->B = mr_case_rows(c);
    a->layers = c->speed ? 4 : 1 + mr_case_below(c, 4);
    a->tail = draw_part(c, fours);
    a->mixer = draw_part(c, fours);
    a->rest = draw_part(c, fours);
    if (a->tail + a->mixer + a->rest == 0) a->mixer = mr_case_width(c);
    const int wide = !c->speed && mr_case_chance(c, 2); /* as large as attention's states */
    if (wide) {
        a->B = 1 + mr_case_below(c, 2);
        a->layers = 1;
        a->mixer = 70000 + mr_case_below(c, 9) * (fours ? 4 : 1);
    }
    a->scatter = mr_case_chance(c, 50);
    const int slots = a->B + (mr_case_chance(c, 30) ? 0 : 1 + mr_case_below(c, wide ? 1 : 20));
    const size_t state = (size_t)a->layers * (size_t)(a->tail + a->mixer + a->rest);
    c->elements = (size_t)a->B * state;
    mr_case_say(c, "B=%d layers=%d tail=%d mixer=%d rest=%d slots=%d %s", a->B, a->layers, a->tail, a->mixer, a->rest,
                slots, a->scatter ? "scatter" : "gather");
    mr_case_add(c, MR_FIELD(state_rows, slot), INT, IN, (size_t)a->B, MR_FILL_DISTINCT, slots);
    mr_case_buffer *pool =
        mr_case_add(c, MR_FIELD(state_rows, pool), REAL, a->scatter ? ADD : IN, (size_t)slots * state, NORMAL, 1);
    mr_case_buffer *many = mr_case_add(c, MR_FIELD(state_rows, many), REAL, a->scatter ? IN : OUT, c->elements,
                                       a->scatter ? NORMAL : EMPTY, 1);
    if (fours) pool->shift = many->shift = 0; /* four at a time needs aligned addresses */
}
