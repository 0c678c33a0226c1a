/* The whole net as an ONNX graph: inputs, blocks, pooling and head. */
#include "weights/onnx_parts.h"

#include "core/mem.h"
#include "core/options.h"

#include <stdio.h>
#include <string.h>

/* Where the nodes that follow belong, for their names. */
static void enter(mr_onnx_export *x, const char *scope)
{
    snprintf(x->scope, sizeof x->scope, "%s", scope);
    x->graph.scope = x->scope;
}

/* ---- the scaler, in double as the library has it */

static mr_onnx_value scaler_tensor(mr_onnx_export *x, const char *name, const double *data, int channels)
{
    return mr_onnx_tensor(&x->graph, name, &(mr_onnx_form){MR_ONNX_F64, 1, {channels}}, data);
}

/* Inputs: (v − mean)/scale; scores (target = 1): o·scale + mean. A net without such a scaler: `in` as it is. */
static mr_onnx_value scaled(mr_onnx_export *x, mr_onnx_value in, int target)
{
    mr_onnx_graph *g = &x->graph;
    const int channels = target ? mr_net_outputs(x->net) : mr_net_inputs(x->net), bit = target ? 2 : 1;
    double *mean = mr_onnx_alloc(x, (size_t)channels, sizeof *mean);
    double *scale = mr_onnx_alloc(x, (size_t)channels, sizeof *scale);
    int has = x->status;
    if (!has && target) has = mr_net_scaler(x->net, NULL, NULL, 0, mean, scale, (size_t)channels, x->err);
    else if (!has) has = mr_net_scaler(x->net, mean, scale, (size_t)channels, NULL, NULL, 0, x->err);
    if (has < 0) x->status = has;
    if (has > 0 && has & bit) {
        const mr_onnx_value m = scaler_tensor(x, target ? "scaler.target.mean" : "scaler.input.mean", mean, channels);
        const mr_onnx_value s =
            scaler_tensor(x, target ? "scaler.target.scale" : "scaler.input.scale", scale, channels);
        const mr_onnx_value wide = mr_onnx_cast(g, in, MR_ONNX_F64);
        in = target ? mr_onnx_op2(g, "Add", mr_onnx_op2(g, "Mul", wide, s), m)
                    : mr_onnx_op2(g, "Div", mr_onnx_op2(g, "Sub", wide, m), s);
        in = mr_onnx_cast(g, in, MR_ONNX_F32);
    }
    mr_free(mean);
    mr_free(scale);
    return in;
}

/* ---- inputs */

static mr_onnx_value embed(mr_onnx_export *x)
{
    mr_onnx_graph *g = &x->graph;
    enter(x, "embed");
    if (mr_net_input(x->net) == MR_INPUT_TOKENS) {
        x->input = mr_onnx_input(g, "ids", &(mr_onnx_form){MR_ONNX_I64, 2, {MR_ONNX_BATCH, MR_ONNX_TIME}});
        return mr_onnx_op2(g, "Gather", mr_onnx_weight(x, "embed.weight"), x->input);
    }
    const mr_onnx_form form = {MR_ONNX_F32, 3, {MR_ONNX_BATCH, MR_ONNX_TIME, mr_net_inputs(x->net)}};
    x->input = mr_onnx_input(g, "values", &form);
    return mr_onnx_linear(x, "embed", scaled(x, x->input, 0));
}

/* ---- blocks */

static const struct {
    const char *name;
    mr_onnx_value (*build)(mr_onnx_export *x, int block, const char *prefix, mr_onnx_value in);
} mixers[] = {{"mingru", mr_onnx_minrnn}, {"minlstm", mr_onnx_minrnn}, {"gru", mr_onnx_gru},
              {"lstm", mr_onnx_lstm},     {"mamba", mr_onnx_mamba},    {"attention", mr_onnx_attention}};

static mr_onnx_value mixer(mr_onnx_export *x, int block, const char *prefix, mr_onnx_value in)
{
    char name[MR_TEXT_MAX] = "";
    mr_net_setting(x->net, "mixer", name, sizeof name, NULL);
    for (size_t i = 0; i < sizeof mixers / sizeof *mixers; i++)
        if (!strcmp(mixers[i].name, name)) return mixers[i].build(x, block, prefix, in);
    if (!x->status) x->status = mr_fail(x->err, MR_ECONFIG, "mixer = %s cannot be exported to ONNX", name);
    return in;
}

/* in + PREFIX.down of act(gate)·up, or of gelu(up). */
static mr_onnx_value mlp(mr_onnx_export *x, const char *prefix, mr_onnx_value in, mr_onnx_value normed)
{
    char name[MR_ONNX_NAME];
    mr_onnx_value up = mr_onnx_linear(x, mr_onnx_join(name, prefix, "up"), normed);
    if (mr_onnx_is(x, "mlp-gate", "none", "none")) up = mr_onnx_gelu(x, up);
    else {
        const mr_onnx_value gate = mr_onnx_linear(x, mr_onnx_join(name, prefix, "gate"), normed);
        const int swish = mr_onnx_is(x, "mlp-gate", "swiglu", "none");
        up = mr_onnx_op2(&x->graph, "Mul", swish ? mr_onnx_silu(x, gate) : mr_onnx_gelu(x, gate), up);
    }
    return mr_onnx_op2(&x->graph, "Add", in, mr_onnx_linear(x, mr_onnx_join(name, prefix, "down"), up));
}

static mr_onnx_value block(mr_onnx_export *x, int i, mr_onnx_value in)
{
    mr_onnx_graph *g = &x->graph;
    char prefix[32], conv[MR_ONNX_NAME], name[MR_ONNX_NAME], weight[MR_ONNX_NAME];
    snprintf(prefix, sizeof prefix, "blocks.%d", i);
    enter(x, prefix);
    mr_onnx_join(conv, prefix, "conv");
    const int has_conv = mr_onnx_size(x, mr_onnx_join(weight, conv, "weight"), 0) > 0;
    const int residual = has_conv && mr_onnx_is(x, "conv-place", "residual", "inside");
    if (residual) {
        const mr_onnx_value heard = mr_onnx_conv(x, i, conv, "conv", in);
        in = mr_onnx_op2(g, "Add", in, mr_onnx_linear(x, mr_onnx_join(name, conv, "point"), heard));
    }
    mr_onnx_value u = mr_onnx_norm(x, mr_onnx_join(name, prefix, "norm1"), in);
    if (has_conv && !residual) u = mr_onnx_conv(x, i, conv, "conv", u);
    enter(x, mr_onnx_join(name, prefix, "mixer"));
    const mr_onnx_value h = mixer(x, i, name, u);
    in = mr_onnx_op2(g, "Add", in, mr_onnx_linear(x, mr_onnx_join(weight, name, "down"), h));
    enter(x, mr_onnx_join(name, prefix, "mlp"));
    if (!mr_onnx_size(x, mr_onnx_join(weight, name, "up.weight"), 0)) return in;
    return mlp(x, name, in, mr_onnx_norm(x, mr_onnx_join(weight, prefix, "norm2"), in));
}

/* ---- the head */

/* [batch, dim]: the last y, or the mean of all y so far. */
static mr_onnx_value pool(mr_onnx_export *x, mr_onnx_value y, int mean)
{
    mr_onnx_graph *g = &x->graph;
    const mr_onnx_value axis = mr_onnx_list(g, 1, &(int64_t){1});
    if (!mean) return mr_onnx_op2(g, "Squeeze", mr_onnx_slice(g, y, 1, -1, INT32_MAX), axis);
    const int64_t dim = x->dim; /* a variable for cppcheck, which stumbles over &(int64_t){x->dim} */
    const mr_onnx_state total = mr_onnx_open_state(x, "state.sum", 1, &dim, NULL);
    const mr_onnx_state seen = mr_onnx_open_state(x, "state.count", 0, NULL, NULL);
    const mr_onnx_value here = mr_onnx_op2(g, "Squeeze", mr_onnx_op2(g, "ReduceSum", y, axis), axis);
    const mr_onnx_value sum = mr_onnx_op2(g, "Add", total.now, here);
    const mr_onnx_value count = mr_onnx_op2(g, "Add", seen.now, mr_onnx_cast(g, mr_onnx_time(x), MR_ONNX_F32));
    mr_onnx_keep(x, total, sum);
    mr_onnx_keep(x, seen, count);
    return mr_onnx_op2(g, "Div", sum, mr_onnx_op2(g, "Unsqueeze", count, axis));
}

/* Sequences 2i and 2i+1, each as a vector, to one vector for both. */
static mr_onnx_value pair(mr_onnx_export *x, mr_onnx_value y)
{
    mr_onnx_graph *g = &x->graph;
    const mr_onnx_value axis = mr_onnx_list(g, 1, &(int64_t){1});
    mr_onnx_value two[2];
    y = mr_onnx_op2(g, "Reshape", y, mr_onnx_list(g, 3, (int64_t[]){-1, 2, x->dim}));
    mr_onnx_split(g, y, 1, 2, (int64_t[]){1, 1}, two);
    const mr_onnx_value a = mr_onnx_op2(g, "Squeeze", two[0], axis), b = mr_onnx_op2(g, "Squeeze", two[1], axis);
    const mr_onnx_value product = mr_onnx_op2(g, "Mul", a, b), difference = mr_onnx_op2(g, "Sub", a, b);
    const mr_onnx_value parts[] = {a, b, product, difference};
    return mr_onnx_gelu(x, mr_onnx_linear(x, "pair", mr_onnx_concat(g, 1, 4, parts)));
}

static mr_onnx_value head(mr_onnx_export *x, mr_onnx_value y)
{
    mr_onnx_graph *g = &x->graph;
    const mr_head kind = mr_net_head(x->net);
    enter(x, "head");
    if (kind != MR_HEAD_TOKEN) y = pool(x, y, kind == MR_HEAD_MEAN || kind == MR_HEAD_PAIR_MEAN);
    if (kind == MR_HEAD_PAIR_LAST || kind == MR_HEAD_PAIR_MEAN) y = pair(x, y);
    y = mr_onnx_mix(x, mr_onnx_size(x, "head.weight", 0) ? "head.weight" : "embed.weight", "head.bias", y);
    if (mr_onnx_is(x, "output", "tanh", "linear")) y = mr_onnx_op1(g, "Tanh", y);
    return scaled(x, y, 1);
}

static mr_onnx_value open_scores(mr_onnx_export *x)
{
    const int C = mr_net_outputs(x->net);
    mr_onnx_form form = {MR_ONNX_F32, 2, {MR_ONNX_BATCH, C}};
    const mr_head kind = mr_net_head(x->net);
    if (kind == MR_HEAD_TOKEN) form = (mr_onnx_form){MR_ONNX_F32, 3, {MR_ONNX_BATCH, MR_ONNX_TIME, C}};
    if (kind == MR_HEAD_PAIR_LAST || kind == MR_HEAD_PAIR_MEAN) form.dims[0] = MR_ONNX_PAIRS;
    return mr_onnx_output(&x->graph, "scores", &form);
}

void mr_onnx_stack(mr_onnx_export *x)
{
    const mr_onnx_value scores = open_scores(x);
    x->dim = (int)mr_onnx_setting(x, "dim", 0);
    x->layers = (int)mr_onnx_setting(x, "layers", 0);
    mr_onnx_value in = embed(x);
    for (int i = 0; i < x->layers && !x->status; i++) in = block(x, i, in);
    enter(x, "norm");
    in = mr_onnx_norm(x, "norm", in);
    mr_onnx_give(&x->graph, scores, head(x, in));
}
