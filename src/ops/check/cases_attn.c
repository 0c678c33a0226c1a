/* Cases of attention: windows shorter and longer than the sequence, heads of every size, caches
 * full, partly full and empty. */
#include "ops/check/makers.h"

static mr_attn draw_shape(mr_case *c)
{
    static const int sizes[] = {1, 2, 3, 64, 4, 8, 12, 64, 16, 20, 32, 64, 40, 48, 64, 66, 96, 126, 128};
    mr_attn a = {.B = 1 + mr_case_below(c, 4),
                 .T = mr_case_chance(c, 25) ? 1 : 1 + mr_case_below(c, mr_case_chance(c, 80) ? 40 : 300)};
    a.size = sizes[c->seed % (sizeof sizes / sizeof *sizes)];
    a.heads = 1 + mr_case_below(c, a.size > 40 ? 2 : 4);
    a.window = mr_case_chance(c, 10) ? 1 : 1 + mr_case_below(c, mr_case_chance(c, 50) ? 20 : 2 * a.T + 100);
    if (a.size == 64) { /* the usual heads, which a backend may have kernels of its own for: several tiles of rows */
        a.T = 1 + mr_case_below(c, 330);
        if (mr_case_chance(c, 50)) a.window = a.T + mr_case_below(c, 100);
    }
    if (a.size < 10 && mr_case_chance(c, 15)) { /* long sequences, short windows: where a backend splits time */
        a.T = 600 + mr_case_below(c, 500);
        a.window = 1 + mr_case_below(c, 400);
    }
    a.rotary = a.size % 2 == 0 && mr_case_chance(c, 60);
    if (c->speed) a = (mr_attn){.B = 4, .T = 128, .heads = 2, .size = 64, .window = 128, .rotary = 1};
    c->elements = (size_t)a.B * a.T * a.heads * a.size;
    mr_case_say(c, "B=%d T=%d heads=%d size=%d window=%d%s", a.B, a.T, a.heads, a.size, a.window,
                a.rotary ? " rotary" : "");
    return a;
}

/* Whether a case is one of training, where nothing is carried. */
static int draw_whole(mr_case *c, const mr_attn *a) { return mr_case_chance(c, a->size == 64 ? 60 : 20); }

/* A count for all streams: zero, some, or more than the window holds. */
static double draw_count(mr_case *c, int window)
{
    double count = mr_case_below(c, 2 * window);
    mr_case_say(c, " count=%g", count);
    return count;
}

void mr_case_attn_fwd(mr_case *c)
{
    mr_attn a = c->args.attn_fwd.shape = draw_shape(c);
    size_t cache = (size_t)a.B * a.window * 2 * a.heads * a.size;
    const int whole = draw_whole(c, &a);
    int in = !whole && mr_case_chance(c, 60), same = in && mr_case_chance(c, 50), out = same || mr_case_chance(c, 60);
    mr_case_add(c, MR_FIELD(attn_fwd, qkv), ACT, IN, 3 * c->elements, NORMAL, 1);
    mr_case_add_reset(c, offsetof(mr_attn_fwd_args, reset), a.B, a.T);
    mr_case_add_length(c, offsetof(mr_attn_fwd_args, length), a.B, a.T);
    mr_case_add(c, MR_FIELD(attn_fwd, y), ACT, OUT, c->elements, EMPTY, 0);
    mr_case_add(c, MR_FIELD(attn_fwd, lse), REAL, OUT, (size_t)a.B * a.heads * a.T, EMPTY, 0);
    if (same) {
        mr_case_say(c, " cache_out=cache_in");
        mr_case_add(c, MR_FIELD(attn_fwd, cache_out), REAL, ADD, cache, NORMAL, 1)->alias =
            offsetof(mr_attn_fwd_args, cache_in);
        mr_case_add(c, MR_FIELD(attn_fwd, count_out), REAL, ADD, (size_t)a.B, MR_FILL_CONSTANT, draw_count(c, a.window))
            ->alias = offsetof(mr_attn_fwd_args, count_in);
        return;
    }
    if (in) {
        mr_case_add(c, MR_FIELD(attn_fwd, cache_in), REAL, IN, cache, NORMAL, 1);
        mr_case_add(c, MR_FIELD(attn_fwd, count_in), REAL, IN, (size_t)a.B, MR_FILL_CONSTANT, draw_count(c, a.window));
    }
    if (!out) return;
    mr_case_add(c, MR_FIELD(attn_fwd, cache_out), REAL, OUT, cache, EMPTY, 0);
    mr_case_add(c, MR_FIELD(attn_fwd, count_out), REAL, OUT, (size_t)a.B, EMPTY, 0);
}

/* Inputs that the backward shares with the forward that runs before it. */
#define SHARED(name) MR_FIELD(attn_bwd, name)
#define ALSO(name) ->in_first = offsetof(mr_attn_fwd_args, name)

void mr_case_attn_bwd(mr_case *c)
{
    mr_attn a = c->args.attn_bwd.shape = draw_shape(c);
    size_t cache = (size_t)a.B * a.window * 2 * a.heads * a.size;
    c->first_op = MR_OP_attn_fwd;
    c->first.attn_fwd.shape = a;
    mr_case_add(c, SHARED(qkv), ACT, ADD, 3 * c->elements, NORMAL, 1) ALSO(qkv);
    mr_case_buffer *reset = mr_case_add_reset(c, offsetof(mr_attn_bwd_args, reset), a.B, a.T);
    mr_case_buffer *length = mr_case_add_length(c, offsetof(mr_attn_bwd_args, length), a.B, a.T);
    if (reset) reset ALSO(reset);
    if (length) length ALSO(length);
    mr_case_add(c, SHARED(y), ACT, IN, c->elements, EMPTY, 0) ALSO(y);
    mr_case_add(c, SHARED(lse), REAL, IN, (size_t)a.B * a.heads * a.T, EMPTY, 0) ALSO(lse);
    mr_case_add(c, MR_FIELD(attn_bwd, dy), ACT, IN, c->elements, NORMAL, 1);
    const int whole = draw_whole(c, &a);
    if (!whole && mr_case_chance(c, 60)) {
        mr_case_add(c, SHARED(cache_in), REAL, IN, cache, NORMAL, 1) ALSO(cache_in);
        mr_case_add(c, SHARED(count_in), REAL, IN, (size_t)a.B, MR_FILL_CONSTANT, draw_count(c, a.window))
            ALSO(count_in);
    }
    if (!whole && mr_case_chance(c, 60)) {
        mr_case_say(c, " dcache_out");
        mr_case_add(c, MR_FIELD(attn_bwd, dcache_out), REAL, IN, cache, NORMAL, 1);
    }
    if (!mr_case_chance(c, 60)) return;
    mr_case_add(c, MR_FIELD(attn_bwd, dcache_in), REAL, OUT, cache, EMPTY, 0);
    mr_case_add(c, MR_FIELD(attn_bwd, dcount_in), REAL, OUT, (size_t)a.B, EMPTY, 0);
}

void mr_case_position_fwd(mr_case *c)
{
    mr_position_fwd_args *a = &c->args.position_fwd;
    a->D = mr_case_width(c);
    a->B = 1 + mr_case_below(c, 5);
    a->T = c->speed ? 64 : 1 + mr_case_below(c, 200);
    a->window = 1 + mr_case_below(c, 100);
    c->elements = (size_t)a->B * a->T * a->D;
    mr_case_say(c, "B=%d T=%d D=%d window=%d", a->B, a->T, a->D, a->window);
    mr_case_add(c, MR_FIELD(position_fwd, x), ACT, IN, c->elements, NORMAL, 1);
    mr_case_add(c, MR_FIELD(position_fwd, table), REAL, IN, (size_t)a->window * a->D, NORMAL, 1);
    if (mr_case_chance(c, 50))
        mr_case_add(c, MR_FIELD(position_fwd, count_in), REAL, IN, (size_t)a->B, MR_FILL_CONSTANT,
                    draw_count(c, a->window));
    mr_case_add_reset(c, offsetof(mr_position_fwd_args, reset), a->B, a->T);
    mr_case_add(c, MR_FIELD(position_fwd, ids), INT, SCRATCH, (size_t)a->B * a->T, MR_FILL_BELOW, 1);
    mr_case_add(c, MR_FIELD(position_fwd, y), ACT, OUT, c->elements, EMPTY, 0);
}
