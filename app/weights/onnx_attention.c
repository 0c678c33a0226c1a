/* Attention over a sliding window as ONNX. The state is the last `window` keys (not rotated) and values of each
 * sequence, and the position that it is at: rows of the state that lie before its first token are not looked at. */
#include "weights/onnx_parts.h"

#include "core/mem.h"

#include <math.h>
#include <stddef.h>

typedef struct shape {
    int64_t heads, size, window, dim;
} shape;

static mr_onnx_value axis(mr_onnx_graph *g, int64_t number) { return mr_onnx_list(g, 1, &number); }

/* 0, 1, … below a length [1]. */
static mr_onnx_value count_up(mr_onnx_graph *g, mr_onnx_value length)
{
    const mr_onnx_value one = mr_onnx_number(g, MR_ONNX_I64, 1), zero = mr_onnx_number(g, MR_ONNX_I64, 0);
    return mr_onnx_op3(g, "Range", zero, mr_onnx_op1(g, "Squeeze", length), one);
}

/* Rows of the state, then those of this run. */
static mr_onnx_value rows(mr_onnx_export *x, const shape *s)
{
    const mr_onnx_value time = mr_onnx_time(x);
    return count_up(&x->graph, mr_onnx_op2(&x->graph, "Add", time, axis(&x->graph, s->window)));
}

/* cos and sin of each row's angles, [rows, 1, pairs, 1]. Scores depend on differences of positions only, so a row's
 * number takes the place of its position. Turns are counted in double, because a float has too few digits for them. */
static void make_turns(mr_onnx_export *x, const shape *s)
{
    mr_onnx_graph *g = &x->graph;
    const int64_t pairs = s->size / 2;
    double *turns = mr_onnx_alloc(x, (size_t)pairs, sizeof *turns);
    if (!turns) return;
    for (int64_t i = 0; i < pairs; i++) turns[i] = pow(10000, -2.0 * (double)i / (double)s->size) / (2 * acos(-1));
    const mr_onnx_value speed =
        mr_onnx_tensor(g, "rotary.turns", &(mr_onnx_form){MR_ONNX_F64, 3, {1, pairs, 1}}, turns);
    mr_free(turns);
    const mr_onnx_value others = mr_onnx_list(g, 3, (int64_t[]){1, 2, 3});
    const mr_onnx_value row = mr_onnx_op2(g, "Unsqueeze", mr_onnx_cast(g, rows(x, s), MR_ONNX_F64), others);
    const mr_onnx_value angle = mr_onnx_op2(g, "Mul", row, speed);
    const mr_onnx_value part = mr_onnx_op2(g, "Sub", angle, mr_onnx_op1(g, "Floor", angle));
    const mr_onnx_value radians = mr_onnx_op2(g, "Mul", part, mr_onnx_number(g, MR_ONNX_F64, 2 * acos(-1)));
    const mr_onnx_value narrow = mr_onnx_cast(g, radians, MR_ONNX_F32);
    x->cosine = mr_onnx_op1(g, "Cos", narrow);
    x->sine = mr_onnx_op1(g, "Sin", narrow);
}

/* How many tokens a sequence has had, [batch]. Above W, multiples of W are left out, so that a float is exact for
 * sequences of any length: learned positions repeat after W, and no more than W rows are looked at. */
static void open_position(mr_onnx_export *x, const shape *s)
{
    mr_onnx_graph *g = &x->graph;
    const mr_onnx_value window = mr_onnx_number(g, MR_ONNX_I64, (double)s->window);
    const mr_onnx_state state = mr_onnx_open_state(x, "state.position", 0, NULL, NULL);
    x->position = mr_onnx_cast(g, state.now, MR_ONNX_I64);
    const mr_onnx_value next = mr_onnx_op2(g, "Add", x->position, mr_onnx_time(x));
    const mr_onnx_value turned = mr_onnx_op2(g, "Add", mr_onnx_op2(g, "Mod", next, window), window);
    const mr_onnx_value kept = mr_onnx_op3(g, "Where", mr_onnx_op2(g, "Greater", next, window), turned, next);
    mr_onnx_keep(x, state, mr_onnx_cast(g, kept, MR_ONNX_F32));
}

/* [batch, 1, tokens, rows]: token t is row W + t; it sees the rows t + 1 … t + W, less those before its sequence. */
static void make_visible(mr_onnx_export *x, const shape *s)
{
    mr_onnx_graph *g = &x->graph;
    const mr_onnx_value row = rows(x, s), window = mr_onnx_number(g, MR_ONNX_I64, (double)s->window);
    const mr_onnx_value second = axis(g, 1), others = mr_onnx_list(g, 3, (int64_t[]){1, 2, 3});
    const mr_onnx_value token = mr_onnx_op2(g, "Unsqueeze", count_up(g, mr_onnx_time(x)), second);
    const mr_onnx_value distance = mr_onnx_op2(g, "Sub", row, token);
    const mr_onnx_value after = mr_onnx_op2(g, "Greater", distance, mr_onnx_number(g, MR_ONNX_I64, 0));
    const mr_onnx_value near = mr_onnx_op2(g, "And", after, mr_onnx_op2(g, "LessOrEqual", distance, window));
    const mr_onnx_value count = mr_onnx_op2(g, "Unsqueeze", x->position, others);
    const mr_onnx_value real = mr_onnx_op2(g, "GreaterOrEqual", mr_onnx_op2(g, "Add", row, count), window);
    x->visible = mr_onnx_op2(g, "And", near, real);
}

/* in + position[n mod W], with n counted from the start of the sequence. */
static mr_onnx_value placed(mr_onnx_export *x, const shape *s, const char *prefix, mr_onnx_value in)
{
    mr_onnx_graph *g = &x->graph;
    char name[MR_ONNX_NAME];
    const mr_onnx_value count = mr_onnx_op2(g, "Unsqueeze", x->position, axis(g, 1));
    const mr_onnx_value n = mr_onnx_op2(g, "Add", count, count_up(g, mr_onnx_time(x)));
    const mr_onnx_value place = mr_onnx_op2(g, "Mod", n, mr_onnx_number(g, MR_ONNX_I64, (double)s->window));
    const mr_onnx_value table = mr_onnx_weight(x, mr_onnx_join(name, prefix, "position"));
    return mr_onnx_op2(g, "Add", in, mr_onnx_op2(g, "Gather", table, place));
}

/* [batch, rows, heads, size] with each pair of channels rotated. */
static mr_onnx_value rotate(mr_onnx_export *x, const shape *s, mr_onnx_value in, mr_onnx_value cosine,
                            mr_onnx_value sine)
{
    mr_onnx_graph *g = &x->graph;
    mr_onnx_value part[2];
    in = mr_onnx_op2(g, "Reshape", in, mr_onnx_list(g, 5, (int64_t[]){0, 0, s->heads, s->size / 2, 2}));
    mr_onnx_split(g, in, 4, 2, (int64_t[]){1, 1}, part);
    const mr_onnx_value a = mr_onnx_op2(g, "Mul", part[0], cosine), b = mr_onnx_op2(g, "Mul", part[1], sine);
    const mr_onnx_value c = mr_onnx_op2(g, "Mul", part[0], sine), d = mr_onnx_op2(g, "Mul", part[1], cosine);
    const mr_onnx_value first = mr_onnx_op2(g, "Sub", a, b), second = mr_onnx_op2(g, "Add", c, d);
    in = mr_onnx_concat(g, 4, 2, (mr_onnx_value[]){first, second});
    return mr_onnx_op2(g, "Reshape", in, mr_onnx_list(g, 4, (int64_t[]){0, 0, s->heads, s->size}));
}

/* [batch, rows, dim] as [batch, heads, rows, size]; a table of turns that begins at row `from` rotates it first. */
static mr_onnx_value by_heads(mr_onnx_export *x, const shape *s, mr_onnx_value in, int64_t from, const int64_t *order)
{
    mr_onnx_graph *g = &x->graph;
    in = mr_onnx_op2(g, "Reshape", in, mr_onnx_list(g, 4, (int64_t[]){0, 0, s->heads, s->size}));
    if (from >= 0 && mr_onnx_is(x, "positions", "rotary", "rotary")) {
        if (!x->cosine) make_turns(x, s);
        const mr_onnx_value cosine = from ? mr_onnx_slice(g, x->cosine, 0, from, INT32_MAX) : x->cosine;
        const mr_onnx_value sine = from ? mr_onnx_slice(g, x->sine, 0, from, INT32_MAX) : x->sine;
        in = rotate(x, s, in, cosine, sine);
    }
    return mr_onnx_transpose(g, in, 4, order);
}

/* The rows of the state and those of this run; the last W of them are the next state. */
static mr_onnx_value remember(mr_onnx_export *x, const shape *s, int block, const char *word, mr_onnx_value in)
{
    const mr_onnx_state state = mr_onnx_block_state(x, block, word, 2, (int64_t[]){s->window, s->dim}, NULL);
    const mr_onnx_value all = mr_onnx_concat(&x->graph, 1, 2, (mr_onnx_value[]){state.now, in});
    mr_onnx_keep(x, state, mr_onnx_slice(&x->graph, all, 1, -s->window, INT32_MAX));
    return all;
}

mr_onnx_value mr_onnx_attention(mr_onnx_export *x, int block, const char *prefix, mr_onnx_value in)
{
    mr_onnx_graph *g = &x->graph;
    char weight[MR_ONNX_NAME], bias[MR_ONNX_NAME];
    const int64_t heads = (int64_t)mr_onnx_setting(x, "heads", 1), rowwise[] = {0, 2, 1, 3},
                  columnwise[] = {0, 2, 3, 1};
    const shape s = {heads, x->dim / heads, (int64_t)mr_onnx_setting(x, "window", 0), x->dim};
    mr_onnx_value part[3];
    if (!x->position) open_position(x, &s);
    if (mr_onnx_is(x, "positions", "learned", "rotary")) in = placed(x, &s, prefix, in);
    in = mr_onnx_mix(x, mr_onnx_join(weight, prefix, "in_proj_weight"), mr_onnx_join(bias, prefix, "in_proj_bias"), in);
    mr_onnx_split(g, in, 2, 3, (int64_t[]){s.dim, s.dim, s.dim}, part);
    if (!x->visible) make_visible(x, &s);
    const mr_onnx_value q = by_heads(x, &s, part[0], s.window, rowwise);
    const mr_onnx_value k = by_heads(x, &s, remember(x, &s, block, "k", part[1]), 0, columnwise);
    const mr_onnx_value v = by_heads(x, &s, remember(x, &s, block, "v", part[2]), -1, rowwise);
    const mr_onnx_value product = mr_onnx_op2(g, "MatMul", mr_onnx_scale(g, q, 1 / sqrt((double)s.size)), k);
    mr_onnx_value scores = mr_onnx_op3(g, "Where", x->visible, product, mr_onnx_number(g, MR_ONNX_F32, -1e30)), out;
    mr_proto attributes = {0};
    mr_onnx_set_whole(&attributes, "axis", 3);
    mr_onnx_node(g, "Softmax", 1, &scores, 1, &out, &attributes);
    out = mr_onnx_transpose(g, mr_onnx_op2(g, "MatMul", out, v), 4, rowwise);
    return mr_onnx_op2(g, "Reshape", out, mr_onnx_list(g, 3, (int64_t[]){0, 0, s.dim}));
}
