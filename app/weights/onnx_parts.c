/* The net's tensors, settings and state as values of an ONNX graph, and the layers of many places (onnx_parts.h). */
#include "weights/onnx_parts.h"

#include "core/mem.h"
#include "core/options.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *mr_onnx_alloc(mr_onnx_export *x, size_t count, size_t size)
{
    void *data = x->status ? NULL : mr_alloc(count, size);
    if (!data && !x->status) x->status = mr_no_memory(x->err, "the ONNX graph");
    return data;
}

const char *mr_onnx_join(char out[MR_ONNX_NAME], const char *prefix, const char *word)
{
    snprintf(out, MR_ONNX_NAME, "%s.%s", prefix, word);
    return out;
}

int mr_onnx_is(mr_onnx_export *x, const char *key, const char *word, const char *fallback)
{
    char text[MR_TEXT_MAX];
    return !strcmp(mr_net_setting(x->net, key, text, sizeof text, NULL) ? fallback : text, word);
}

double mr_onnx_setting(mr_onnx_export *x, const char *key, double fallback)
{
    char text[MR_TEXT_MAX];
    return mr_net_setting(x->net, key, text, sizeof text, NULL) ? fallback : strtod(text, NULL);
}

/* ---- tensors */

int mr_onnx_find(mr_onnx_export *x, const char *name, mr_tensor *tensor)
{
    const int count = mr_net_tensors(x->net);
    *tensor = (mr_tensor)MR_TENSOR;
    for (int i = 0; i < count; i++) { /* most are looked for in the order of the net */
        const int index = (x->found + i) % count;
        if (mr_net_tensor(x->net, index, tensor, NULL) || strcmp(tensor->name, name)) continue;
        x->found = index;
        return 1;
    }
    return 0;
}

int64_t mr_onnx_size(mr_onnx_export *x, const char *name, int axis)
{
    mr_tensor tensor;
    return mr_onnx_find(x, name, &tensor) && axis < tensor.ndim ? tensor.shape[axis] : 0;
}

float *mr_onnx_read(mr_onnx_export *x, const char *name)
{
    mr_tensor tensor;
    if (x->status) return NULL;
    if (!mr_onnx_find(x, name, &tensor)) {
        x->status = mr_fail(x->err, MR_ECONFIG, "the model has no tensor %s, which its ONNX graph needs", name);
        return NULL;
    }
    float *data = mr_onnx_alloc(x, tensor.count, sizeof *data);
    if (data) x->status = mr_net_get(x->net, MR_WEIGHTS, name, data, tensor.count, x->err);
    if (!x->status) return data;
    mr_free(data);
    return NULL;
}

mr_onnx_value mr_onnx_weight(mr_onnx_export *x, const char *name)
{
    mr_tensor tensor;
    if (!mr_onnx_find(x, name, &tensor)) return 0;
    mr_onnx_form form = {MR_ONNX_F32, tensor.ndim, {0}};
    for (int i = 0; i < tensor.ndim; i++) form.dims[i] = tensor.shape[i];
    float *data = mr_onnx_read(x, name);
    const mr_onnx_value value = data ? mr_onnx_tensor(&x->graph, name, &form, data) : 0;
    mr_free(data);
    return value;
}

mr_onnx_value mr_onnx_transposed(mr_onnx_export *x, const char *name)
{
    const int64_t rows = mr_onnx_size(x, name, 0), columns = mr_onnx_size(x, name, 1);
    char turned_name[MR_ONNX_NAME];
    float *data = mr_onnx_read(x, name), *turned = mr_onnx_alloc(x, (size_t)(rows * columns), sizeof *turned);
    mr_onnx_value value = 0;
    for (int64_t i = 0; data && turned && i < rows; i++)
        for (int64_t j = 0; j < columns; j++) turned[j * rows + i] = data[i * columns + j];
    if (data && turned)
        value = mr_onnx_tensor(&x->graph, mr_onnx_join(turned_name, name, "transposed"),
                               &(mr_onnx_form){MR_ONNX_F32, 2, {columns, rows}}, turned);
    mr_free(data);
    mr_free(turned);
    return value;
}

/* ---- the state */

mr_onnx_state mr_onnx_open_state(mr_onnx_export *x, const char *name, int ndim, const int64_t *dims, const float *start)
{
    char next[MR_ONNX_NAME + 8], learned[MR_ONNX_NAME];
    mr_onnx_form form = {MR_ONNX_F32, 1 + ndim, {MR_ONNX_BATCH}};
    mr_onnx_state state = {0};
    for (int i = 0; i < ndim; i++) form.dims[1 + i] = dims[i];
    snprintf(next, sizeof next, "next_%s", name);
    state.now = mr_onnx_input(&x->graph, name, &form);
    state.next = mr_onnx_output(&x->graph, next, &form);
    if (!start) return state;
    form.dims[0] = 1;
    state.start = mr_onnx_tensor(&x->graph, mr_onnx_join(learned, name, "start"), &form, start);
    state.now = mr_onnx_op2(&x->graph, "Add", state.now, state.start);
    return state;
}

void mr_onnx_keep(mr_onnx_export *x, mr_onnx_state state, mr_onnx_value next)
{
    if (state.start) next = mr_onnx_op2(&x->graph, "Sub", next, state.start);
    mr_onnx_give(&x->graph, state.next, next);
}

mr_onnx_state mr_onnx_block_state(mr_onnx_export *x, int block, const char *word, int ndim, const int64_t *dims,
                                  const float *start)
{
    char name[MR_ONNX_NAME];
    snprintf(name, sizeof name, "state.%d.%s", block, word);
    return mr_onnx_open_state(x, name, ndim, dims, start);
}

mr_onnx_value mr_onnx_time(mr_onnx_export *x)
{
    if (!x->time) x->time = mr_onnx_slice(&x->graph, mr_onnx_op1(&x->graph, "Shape", x->input), 0, 1, 2);
    return x->time;
}

mr_onnx_value mr_onnx_turn(mr_onnx_export *x, mr_onnx_value in)
{
    return mr_onnx_transpose(&x->graph, in, 3, (int64_t[]){1, 0, 2});
}

/* ---- layers */

mr_onnx_value mr_onnx_mix(mr_onnx_export *x, const char *weight, const char *bias, mr_onnx_value in)
{
    const mr_onnx_value product = mr_onnx_op2(&x->graph, "MatMul", in, mr_onnx_transposed(x, weight));
    const mr_onnx_value shift = mr_onnx_weight(x, bias);
    return shift ? mr_onnx_op2(&x->graph, "Add", product, shift) : product;
}

mr_onnx_value mr_onnx_linear(mr_onnx_export *x, const char *prefix, mr_onnx_value in)
{
    char weight[MR_ONNX_NAME], bias[MR_ONNX_NAME];
    return mr_onnx_mix(x, mr_onnx_join(weight, prefix, "weight"), mr_onnx_join(bias, prefix, "bias"), in);
}

mr_onnx_value mr_onnx_norm(mr_onnx_export *x, const char *prefix, mr_onnx_value in)
{
    mr_onnx_graph *g = &x->graph;
    const int layer = mr_onnx_is(x, "norm", "layer", "rms"), none = mr_onnx_is(x, "norm", "none", "rms");
    const double own = layer ? 1e-5 : 1e-6, given = mr_onnx_setting(x, "norm-eps", 0);
    char name[MR_ONNX_NAME];
    if (!none) {
        if (layer) in = mr_onnx_op2(g, "Sub", in, mr_onnx_reduce_mean(g, in, -1));
        const mr_onnx_value square = mr_onnx_reduce_mean(g, mr_onnx_op2(g, "Mul", in, in), -1);
        const mr_onnx_value root = mr_onnx_op1(g, "Sqrt", mr_onnx_shift(g, square, given > 0 ? given : own));
        in = mr_onnx_op2(g, "Div", in, root);
    }
    in = mr_onnx_op2(g, "Mul", in, mr_onnx_weight(x, mr_onnx_join(name, prefix, "weight")));
    const mr_onnx_value bias = mr_onnx_weight(x, mr_onnx_join(name, prefix, "bias"));
    return bias ? mr_onnx_op2(g, "Add", in, bias) : in;
}

mr_onnx_value mr_onnx_conv(mr_onnx_export *x, int block, const char *prefix, const char *word, mr_onnx_value in)
{
    mr_onnx_graph *g = &x->graph;
    char weight[MR_ONNX_NAME], bias[MR_ONNX_NAME];
    mr_onnx_join(weight, prefix, "weight");
    const int64_t channels = mr_onnx_size(x, weight, 0), taps = mr_onnx_size(x, weight, 2);
    const int64_t turn[] = {0, 2, 1};
    if (taps > 1) { /* with one tap there is nothing to remember */
        const mr_onnx_state tail = mr_onnx_block_state(x, block, word, 2, (int64_t[]){taps - 1, channels}, NULL);
        in = mr_onnx_concat(g, 1, 2, (mr_onnx_value[]){tail.now, in});
        mr_onnx_keep(x, tail, mr_onnx_slice(g, in, 1, 1 - taps, INT32_MAX));
    }
    const mr_onnx_value rows = mr_onnx_transpose(g, in, 3, turn), taken = mr_onnx_weight(x, weight);
    const mr_onnx_value shift = mr_onnx_weight(x, mr_onnx_join(bias, prefix, "bias"));
    mr_proto attributes = {0};
    mr_onnx_value out;
    mr_onnx_set_whole(&attributes, "group", channels);
    mr_onnx_node(g, "Conv", shift ? 3 : 2, (mr_onnx_value[]){rows, taken, shift}, 1, &out, &attributes);
    return mr_onnx_transpose(g, out, 3, turn);
}

mr_onnx_value mr_onnx_silu(mr_onnx_export *x, mr_onnx_value in)
{
    return mr_onnx_op2(&x->graph, "Mul", in, mr_onnx_op1(&x->graph, "Sigmoid", in));
}

/* erf: ½·x·(1 + erf(x/√2)). tanh: x·σ(x·(2·√(2/π) + 2·√(2/π)·0.044715·x²)). */
mr_onnx_value mr_onnx_gelu(mr_onnx_export *x, mr_onnx_value in)
{
    mr_onnx_graph *g = &x->graph;
    if (mr_onnx_is(x, "gelu", "erf", "tanh")) {
        const mr_onnx_value erf = mr_onnx_op1(g, "Erf", mr_onnx_scale(g, in, sqrt(0.5)));
        const mr_onnx_value half = mr_onnx_scale(g, in, 0.5);
        return mr_onnx_op2(g, "Mul", half, mr_onnx_shift(g, erf, 1));
    }
    const double c = 2 * sqrt(2 / acos(-1));
    const mr_onnx_value square = mr_onnx_op2(g, "Mul", in, in);
    const mr_onnx_value slope = mr_onnx_shift(g, mr_onnx_scale(g, square, 0.044715 * c), c);
    const mr_onnx_value gate = mr_onnx_op1(g, "Sigmoid", mr_onnx_op2(g, "Mul", in, slope));
    return mr_onnx_op2(g, "Mul", in, gate);
}
