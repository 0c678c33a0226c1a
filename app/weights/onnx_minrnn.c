/* minGRU and minLSTM as ONNX: the gates of all tokens at once, then a Scan over time that computes h = a·h + b. A model
 * with scan = log has the same h. Time is the first axis here: some programs have no Scan over another one. */
#include "weights/onnx_parts.h"

#include "core/mem.h"

#include <math.h>

/* cand(v) of docs/format.md, in the graph and for one number. */
static mr_onnx_value candidate(mr_onnx_export *x, mr_onnx_value v)
{
    mr_onnx_graph *g = &x->graph;
    if (mr_onnx_is(x, "candidate", "linear", "positive")) return v;
    if (mr_onnx_is(x, "candidate", "tanh", "positive")) return mr_onnx_op1(g, "Tanh", v);
    const mr_onnx_value above = mr_onnx_op2(g, "GreaterOrEqual", v, mr_onnx_number(g, MR_ONNX_F32, 0));
    const mr_onnx_value shifted = mr_onnx_shift(g, v, 0.5);
    return mr_onnx_op3(g, "Where", above, shifted, mr_onnx_op1(g, "Sigmoid", v));
}

static float candidate_of(mr_onnx_export *x, double v)
{
    if (mr_onnx_is(x, "candidate", "linear", "positive")) return (float)v;
    if (mr_onnx_is(x, "candidate", "tanh", "positive")) return (float)tanh(v);
    return (float)(v >= 0 ? v + 0.5 : 1 / (1 + exp(-v)));
}

/* a and b of h = a·h + b, from the linear outputs of the gates (i is 0 with minGRU) and the candidate. */
typedef struct gates {
    mr_onnx_value a, b;
} gates;

static mr_onnx_value rest(mr_onnx_export *x, mr_onnx_value part)
{
    return mr_onnx_op2(&x->graph, "Sub", mr_onnx_number(&x->graph, MR_ONNX_F32, 1), part);
}

static gates signed_gates(mr_onnx_export *x, mr_onnx_value q, mr_onnx_value i, mr_onnx_value c)
{
    mr_onnx_graph *g = &x->graph;
    gates out;
    const mr_onnx_value low = mr_onnx_number(g, MR_ONNX_F32, -1), high = mr_onnx_number(g, MR_ONNX_F32, 1);
    out.a = mr_onnx_op3(g, "Clip", mr_onnx_scale(g, mr_onnx_op1(g, "Tanh", q), 1.2), low, high);
    out.b = i ? mr_onnx_op2(g, "Mul", mr_onnx_op1(g, "Sigmoid", i), c) : c;
    if (!i || mr_onnx_is(x, "normalize-gates", "yes", "no"))
        out.b = mr_onnx_op2(g, "Mul", rest(x, mr_onnx_op1(g, "Abs", out.a)), out.b);
    return out;
}

static gates positive_gates(mr_onnx_export *x, mr_onnx_value q, mr_onnx_value i, mr_onnx_value c)
{
    mr_onnx_graph *g = &x->graph;
    gates out;
    mr_onnx_value share;
    if (!i) {
        share = mr_onnx_op1(g, "Sigmoid", q);
        out.a = mr_onnx_op1(g, "Sigmoid", mr_onnx_op1(g, "Neg", q));
    } else if (mr_onnx_is(x, "normalize-gates", "yes", "no")) {
        const mr_onnx_value less = mr_onnx_op1(g, "Softplus", mr_onnx_op1(g, "Neg", q));
        const mr_onnx_value more = mr_onnx_op1(g, "Softplus", mr_onnx_op1(g, "Neg", i));
        out.a = mr_onnx_op1(g, "Sigmoid", mr_onnx_op2(g, "Sub", more, less));
        share = mr_onnx_op1(g, "Sigmoid", mr_onnx_op2(g, "Sub", less, more));
    } else {
        out.a = mr_onnx_op1(g, "Sigmoid", q);
        share = mr_onnx_op1(g, "Sigmoid", i);
    }
    out.b = mr_onnx_op2(g, "Mul", share, c);
    return out;
}

/* The Scan: h of all tokens; the last one is the next state. */
static mr_onnx_value scan(mr_onnx_export *x, gates in, mr_onnx_state state, int64_t channels)
{
    const mr_onnx_form row = {MR_ONNX_F32, 2, {MR_ONNX_BATCH, channels}};
    mr_onnx_graph body;
    mr_proto attributes = {0};
    mr_onnx_value out[2];
    mr_onnx_start(&body, &x->graph, "step");
    const mr_onnx_value h = mr_onnx_inner_input(&body, "h", &row), a = mr_onnx_inner_input(&body, "a", &row);
    const mr_onnx_value b = mr_onnx_inner_input(&body, "b", &row);
    const mr_onnx_value next = mr_onnx_op2(&body, "Add", mr_onnx_op2(&body, "Mul", a, h), b);
    mr_onnx_inner_output(&body, "next", &row, next);
    mr_onnx_inner_output(&body, "row", &row, next);
    mr_onnx_set_graph(&attributes, "body", &body);
    mr_onnx_set_whole(&attributes, "num_scan_inputs", 2);
    mr_onnx_node(&x->graph, "Scan", 3, (mr_onnx_value[]){state.now, in.a, in.b}, 2, out, &attributes);
    mr_onnx_keep(x, state, out[0]);
    return out[1];
}

/* A sequence starts with cand(h0), or with zeros. */
static mr_onnx_state open_h(mr_onnx_export *x, int block, const char *prefix, int64_t channels)
{
    char name[MR_ONNX_NAME];
    float *start = mr_onnx_size(x, mr_onnx_join(name, prefix, "h0"), 0) ? mr_onnx_read(x, name) : NULL;
    for (int64_t i = 0; start && i < channels; i++) start[i] = candidate_of(x, start[i]);
    const mr_onnx_state state = mr_onnx_block_state(x, block, "h", 1, &channels, start);
    mr_free(start);
    return state;
}

mr_onnx_value mr_onnx_minrnn(mr_onnx_export *x, int block, const char *prefix, mr_onnx_value in)
{
    const int lstm = mr_onnx_is(x, "mixer", "minlstm", "mingru");
    char name[MR_ONNX_NAME], weight[MR_ONNX_NAME];
    in = mr_onnx_turn(x, in);
    const mr_onnx_value q = mr_onnx_linear(x, mr_onnx_join(name, prefix, lstm ? "linear_f" : "linear_z"), in);
    const mr_onnx_value i = lstm ? mr_onnx_linear(x, mr_onnx_join(name, prefix, "linear_i"), in) : 0;
    const mr_onnx_value c = candidate(x, mr_onnx_linear(x, mr_onnx_join(name, prefix, "linear_h"), in));
    const int64_t channels = mr_onnx_size(x, mr_onnx_join(weight, name, "weight"), 0);
    const gates both =
        mr_onnx_is(x, "transition", "signed", "positive") ? signed_gates(x, q, i, c) : positive_gates(x, q, i, c);
    return mr_onnx_turn(x, scan(x, both, open_h(x, block, prefix, channels), channels));
}
