/* Mamba's layer as ONNX: all that depends on the inputs alone for all tokens at once, then a Scan over time, which
 * is the first axis there. */
#include "weights/onnx_parts.h"

/* A step of the Scan for one token: s = exp(Δ·A)·s + (Δ·v)·B, y = Σ C·s, with Δ and Δ·v [batch, H], B and C [batch, S]
 * and A [H, S], which is −exp(A_log). */
static void step(mr_onnx_graph *body, mr_onnx_value A, int64_t H, int64_t S)
{
    const mr_onnx_form state = {MR_ONNX_F32, 3, {MR_ONNX_BATCH, H, S}}, channels = {MR_ONNX_F32, 2, {MR_ONNX_BATCH, H}};
    const mr_onnx_form parts = {MR_ONNX_F32, 2, {MR_ONNX_BATCH, S}};
    const mr_onnx_value s = mr_onnx_inner_input(body, "s", &state), size = mr_onnx_inner_input(body, "size", &channels);
    const mr_onnx_value in = mr_onnx_inner_input(body, "in", &channels), B = mr_onnx_inner_input(body, "B", &parts);
    const mr_onnx_value C = mr_onnx_inner_input(body, "C", &parts), axis1 = mr_onnx_list(body, 1, &(int64_t){1});
    const mr_onnx_value axis2 = mr_onnx_list(body, 1, &(int64_t){2});
    const mr_onnx_value wide = mr_onnx_op2(body, "Mul", mr_onnx_op2(body, "Unsqueeze", size, axis2), A);
    const mr_onnx_value kept = mr_onnx_op2(body, "Mul", mr_onnx_op1(body, "Exp", wide), s);
    const mr_onnx_value column = mr_onnx_op2(body, "Unsqueeze", in, axis2);
    const mr_onnx_value added = mr_onnx_op2(body, "Mul", column, mr_onnx_op2(body, "Unsqueeze", B, axis1));

    const mr_onnx_value next = mr_onnx_op2(body, "Add", kept, added);
    const mr_onnx_value y = mr_onnx_op2(body, "MatMul", next, mr_onnx_op2(body, "Unsqueeze", C, axis2));
    mr_onnx_inner_output(body, "next", &state, next);
    mr_onnx_inner_output(body, "y", &channels, mr_onnx_op2(body, "Squeeze", y, axis2));
}

/* in: Δ, Δ·v, B, C of all tokens. */
static mr_onnx_value scan(mr_onnx_export *x, int block, const mr_onnx_value in[4], mr_onnx_value A, int64_t H,
                          int64_t S)
{
    const mr_onnx_state state = mr_onnx_block_state(x, block, "s", 2, (int64_t[]){H, S}, NULL);
    mr_onnx_graph body;
    mr_proto attributes = {0};
    mr_onnx_value out[2];
    mr_onnx_start(&body, &x->graph, "step");
    step(&body, A, H, S);
    mr_onnx_set_graph(&attributes, "body", &body);
    mr_onnx_set_whole(&attributes, "num_scan_inputs", 4);
    mr_onnx_node(&x->graph, "Scan", 5, (mr_onnx_value[]){state.now, in[0], in[1], in[2], in[3]}, 2, out, &attributes);
    mr_onnx_keep(x, state, out[0]);
    return out[1];
}

mr_onnx_value mr_onnx_mamba(mr_onnx_export *x, int block, const char *prefix, mr_onnx_value in)
{
    mr_onnx_graph *g = &x->graph;
    char name[MR_ONNX_NAME];
    const int64_t H = mr_onnx_size(x, mr_onnx_join(name, prefix, "A_log"), 0), S = mr_onnx_size(x, name, 1);
    const mr_onnx_value A = mr_onnx_op1(g, "Neg", mr_onnx_op1(g, "Exp", mr_onnx_weight(x, name)));
    const mr_onnx_value D = mr_onnx_weight(x, mr_onnx_join(name, prefix, "D"));
    const int64_t R = mr_onnx_size(x, mr_onnx_join(name, prefix, "dt_proj.weight"), 1);
    mr_onnx_value half[2], part[3];
    mr_onnx_split(g, mr_onnx_linear(x, mr_onnx_join(name, prefix, "in_proj"), in), 2, 2, (int64_t[]){H, H}, half);
    const mr_onnx_value heard = mr_onnx_conv(x, block, mr_onnx_join(name, prefix, "conv1d"), "mixer_conv", half[0]);
    const mr_onnx_value v = mr_onnx_silu(x, mr_onnx_turn(x, heard)), z = mr_onnx_turn(x, half[1]);
    const mr_onnx_value all = mr_onnx_linear(x, mr_onnx_join(name, prefix, "x_proj"), v);
    mr_onnx_split(g, all, 2, 3, (int64_t[]){R, S, S}, part);
    const mr_onnx_value size =
        mr_onnx_op1(g, "Softplus", mr_onnx_linear(x, mr_onnx_join(name, prefix, "dt_proj"), part[0]));
    const mr_onnx_value inputs[] = {size, mr_onnx_op2(g, "Mul", size, v), part[1], part[2]};
    const mr_onnx_value y = scan(x, block, inputs, A, H, S);
    const mr_onnx_value whole = mr_onnx_op2(g, "Add", y, mr_onnx_op2(g, "Mul", D, v));
    return mr_onnx_turn(x, mr_onnx_op2(g, "Mul", mr_onnx_silu(x, z), whole));
}
