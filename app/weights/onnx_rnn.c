/* GRU and LSTM as ONNX's own nodes of these names. They have the gates in another order than PyTorch and minrnn. */
#include "weights/onnx_parts.h"

#include "core/mem.h"

#include <stddef.h>
#include <string.h>

/* ONNX's gates, each as its place in ours. */
static const int gru_order[] = {1, 0, 2};     /* z r n, of r z n */
static const int lstm_order[] = {0, 3, 1, 2}; /* i o f g, of i f g o */

/* Copies a tensor's groups of rows in another order. */
static void reorder(mr_onnx_export *x, const char *name, int groups, const int *order, float *to)
{
    mr_tensor tensor;
    float *from = mr_onnx_read(x, name);
    if (!from || !mr_onnx_find(x, name, &tensor)) return;
    const size_t part = tensor.count / (size_t)groups;
    for (int i = 0; i < groups; i++) memcpy(to + (size_t)i * part, from + (size_t)order[i] * part, part * sizeof *to);
    mr_free(from);
}

/* A matrix as [1, rows, columns], its rows in ONNX's order. */
static mr_onnx_value matrix(mr_onnx_export *x, const char *prefix, const char *word, int groups, const int *order)
{
    char name[MR_ONNX_NAME];
    mr_tensor tensor;
    if (!mr_onnx_find(x, mr_onnx_join(name, prefix, word), &tensor)) return 0;
    float *data = mr_onnx_alloc(x, tensor.count, sizeof *data);
    if (!data) return 0;
    reorder(x, name, groups, order, data);
    const mr_onnx_form form = {MR_ONNX_F32, 3, {1, tensor.shape[0], tensor.shape[1]}};
    const mr_onnx_value value = mr_onnx_tensor(&x->graph, name, &form, data);
    mr_free(data);
    return value;
}

/* Both biases as one tensor: those of the inputs, then those of the states. */
static mr_onnx_value biases(mr_onnx_export *x, const char *prefix, int groups, const int *order)
{
    char of_inputs[MR_ONNX_NAME], of_states[MR_ONNX_NAME], name[MR_ONNX_NAME];
    const int64_t rows = mr_onnx_size(x, mr_onnx_join(of_inputs, prefix, "bias_ih"), 0);
    float *data = mr_onnx_alloc(x, 2 * (size_t)rows, sizeof *data);
    if (!data) return 0;
    reorder(x, of_inputs, groups, order, data);
    reorder(x, mr_onnx_join(of_states, prefix, "bias_hh"), groups, order, data + rows);
    const mr_onnx_value value = mr_onnx_tensor(&x->graph, mr_onnx_join(name, prefix, "bias"),
                                               &(mr_onnx_form){MR_ONNX_F32, 2, {1, 2 * rows}}, data);
    mr_free(data);
    return value;
}

/* The states h (and c, with two), which start as h0 where that is learned. */
static void open_states(mr_onnx_export *x, int block, const char *prefix, int64_t channels, int count,
                        mr_onnx_state *states)
{
    static const char *const words[] = {"h", "c"};
    char name[MR_ONNX_NAME];
    float *start = mr_onnx_size(x, mr_onnx_join(name, prefix, "h0"), 0) ? mr_onnx_read(x, name) : NULL;
    for (int i = 0; i < count; i++)
        states[i] = mr_onnx_block_state(x, block, words[i], 1, &channels, start ? start + i * channels : NULL);
    mr_free(start);
}

/* The node: its inputs and outputs are [time, batch, channels], its states [1, batch, channels]. */
static mr_onnx_value recurrent(mr_onnx_export *x, int block, const char *prefix, mr_onnx_value in, const char *op)
{
    const int lstm = !strcmp(op, "LSTM"), groups = lstm ? 4 : 3, states = lstm ? 2 : 1;
    const int *order = lstm ? lstm_order : gru_order;
    mr_onnx_graph *g = &x->graph;
    char name[MR_ONNX_NAME];
    mr_onnx_state state[2];
    mr_onnx_value out[3], inputs[7] = {0}; /* one that is left out: lengths */
    inputs[0] = mr_onnx_turn(x, in);
    inputs[1] = matrix(x, prefix, "weight_ih", groups, order);
    inputs[2] = matrix(x, prefix, "weight_hh", groups, order);
    inputs[3] = biases(x, prefix, groups, order);
    const int64_t channels = mr_onnx_size(x, mr_onnx_join(name, prefix, "weight_hh"), 1);
    const mr_onnx_value front = mr_onnx_list(g, 1, &(int64_t){0}), second = mr_onnx_list(g, 1, &(int64_t){1});
    mr_proto attributes = {0};
    open_states(x, block, prefix, channels, states, state);
    for (int i = 0; i < states; i++) inputs[5 + i] = mr_onnx_op2(g, "Unsqueeze", state[i].now, front);
    mr_onnx_set_whole(&attributes, "hidden_size", channels);
    if (!lstm) mr_onnx_set_whole(&attributes, "linear_before_reset", mr_onnx_is(x, "gru-reset", "after", "before"));
    mr_onnx_node(g, op, 5 + states, inputs, 1 + states, out, &attributes);
    for (int i = 0; i < states; i++) mr_onnx_keep(x, state[i], mr_onnx_op2(g, "Squeeze", out[1 + i], front));
    return mr_onnx_turn(x, mr_onnx_op2(g, "Squeeze", out[0], second));
}

mr_onnx_value mr_onnx_gru(mr_onnx_export *x, int block, const char *prefix, mr_onnx_value in)
{
    return recurrent(x, block, prefix, in, "GRU");
}

mr_onnx_value mr_onnx_lstm(mr_onnx_export *x, int block, const char *prefix, mr_onnx_value in)
{
    return recurrent(x, block, prefix, in, "LSTM");
}
