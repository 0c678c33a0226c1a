/* Random cases of the ops of the optimiser and of gradients that are summed. */
#include "ops/check/makers.h"

#include <math.h>

static size_t draw_vector(mr_case *c)
{
    int large = !c->speed && mr_case_chance(c, 5); /* more than the slice of one thread */
    if (large) return 100000 + (size_t)mr_case_below(c, 100000);
    return (size_t)mr_case_width(c) * (size_t)(mr_case_chance(c, 50) ? 1 : mr_case_rows(c));
}

void mr_case_sumsq(mr_case *c)
{
    mr_sumsq_args *a = &c->args.sumsq;
    a->n = c->elements = draw_vector(c);
    mr_case_say(c, "n=%zu", a->n);
    mr_case_buffer *g = mr_case_add(c, MR_FIELD(sumsq, g), REAL, IN, a->n, NORMAL, mr_case_chance(c, 50) ? 1 : 1e18);
    if (mr_case_chance(c, 20)) {
        g->plant = (size_t)mr_case_below(c, (int)a->n);
        c->planted = 1;
        mr_case_say(c, " NaN in g");
    }
    mr_case_add(c, MR_FIELD(sumsq, out), DOUBLE, OUT, 1, EMPTY, 0);
}

void mr_case_sumsq_parts(mr_case *c)
{
    mr_sumsq_parts_args *a = &c->args.sumsq_parts;
    a->n = c->elements = draw_vector(c);
    mr_case_say(c, "n=%zu", a->n);
    mr_case_add(c, MR_FIELD(sumsq_parts, g), REAL, IN, a->n, NORMAL, mr_case_chance(c, 50) ? 1 : 1e18);
    mr_case_add(c, MR_FIELD(sumsq_parts, parts), DOUBLE, OUT, (a->n + MR_SUM_PART - 1) / MR_SUM_PART, EMPTY, 0);
}

void mr_case_sum_parts(mr_case *c)
{
    mr_sum_parts_args *a = &c->args.sum_parts;
    a->n = c->elements = (size_t)mr_case_width(c);
    mr_case_say(c, "n=%zu", a->n);
    mr_case_add(c, MR_FIELD(sum_parts, parts), DOUBLE, IN, a->n, MR_FILL_POSITIVE, 1);
    mr_case_add(c, MR_FIELD(sum_parts, out), DOUBLE, OUT, 1, EMPTY, 0);
}

void mr_case_accumulate(mr_case *c)
{
    mr_accumulate_args *a = &c->args.accumulate;
    a->n = c->elements = draw_vector(c);
    mr_case_say(c, "n=%zu", a->n);
    mr_case_add(c, MR_FIELD(accumulate, x), REAL, IN, a->n, NORMAL, 1);
    mr_case_add(c, MR_FIELD(accumulate, y), REAL, ADD, a->n, NORMAL, 1);
}

void mr_case_adam(mr_case *c)
{
    mr_adam_args *a = &c->args.adam;
    a->n = c->elements = draw_vector(c);
    a->n_decay = mr_case_chance(c, 30) ? 0 : mr_case_chance(c, 50) ? a->n : (size_t)mr_case_below(c, (int)a->n + 1);
    double sumsq = mr_case_chance(c, 60) ? 3 : mr_case_chance(c, 50) ? 1e-4 : mr_case_chance(c, 50) ? INFINITY : NAN;
    mr_case_say(c, "n=%zu n_decay=%zu sumsq=%g", a->n, a->n_decay, sumsq);
    mr_case_add(c, MR_FIELD(adam, p), REAL, ADD, a->n, NORMAL, 1);
    mr_case_add(c, MR_FIELD(adam, m), REAL, ADD, a->n, NORMAL, 0.1);
    mr_case_add(c, MR_FIELD(adam, v), REAL, ADD, a->n, MR_FILL_POSITIVE, 0.1);
    mr_case_buffer *g = mr_case_add(c, MR_FIELD(adam, g), REAL, IN, a->n, NORMAL, 1);
    if (!isfinite(sumsq)) g->plant = (size_t)mr_case_below(c, (int)a->n); /* must not change p, m or v */
    mr_case_add(c, MR_FIELD(adam, step), STEP, IN, 1, MR_FILL_STEP, 0);
    mr_case_add(c, MR_FIELD(adam, sumsq), DOUBLE, IN, 1, MR_FILL_CONSTANT, sumsq);
}
