/* Nodes that are used often, each as one call (onnx_graph.h). */
#include "weights/onnx_graph.h"

static mr_onnx_value one(mr_onnx_graph *graph, const char *op, int ins, const mr_onnx_value *in, mr_proto *attributes)
{
    mr_onnx_value out;
    mr_onnx_node(graph, op, ins, in, 1, &out, attributes);
    return out;
}

mr_onnx_value mr_onnx_op1(mr_onnx_graph *graph, const char *op, mr_onnx_value x) { return one(graph, op, 1, &x, NULL); }

mr_onnx_value mr_onnx_op2(mr_onnx_graph *graph, const char *op, mr_onnx_value x, mr_onnx_value y)
{
    return one(graph, op, 2, (mr_onnx_value[]){x, y}, NULL);
}

mr_onnx_value mr_onnx_op3(mr_onnx_graph *graph, const char *op, mr_onnx_value x, mr_onnx_value y, mr_onnx_value z)
{
    return one(graph, op, 3, (mr_onnx_value[]){x, y, z}, NULL);
}

mr_onnx_value mr_onnx_scale(mr_onnx_graph *graph, mr_onnx_value x, double by)
{
    return mr_onnx_op2(graph, "Mul", x, mr_onnx_number(graph, MR_ONNX_F32, by));
}

mr_onnx_value mr_onnx_shift(mr_onnx_graph *graph, mr_onnx_value x, double by)
{
    return mr_onnx_op2(graph, "Add", x, mr_onnx_number(graph, MR_ONNX_F32, by));
}

mr_onnx_value mr_onnx_cast(mr_onnx_graph *graph, mr_onnx_value x, mr_onnx_type to)
{
    mr_proto attributes = {0};
    mr_onnx_set_whole(&attributes, "to", to);
    return one(graph, "Cast", 1, &x, &attributes);
}

mr_onnx_value mr_onnx_concat(mr_onnx_graph *graph, int axis, int count, const mr_onnx_value *parts)
{
    mr_proto attributes = {0};
    mr_onnx_set_whole(&attributes, "axis", axis);
    return one(graph, "Concat", count, parts, &attributes);
}

mr_onnx_value mr_onnx_transpose(mr_onnx_graph *graph, mr_onnx_value x, int ndim, const int64_t *order)
{
    mr_proto attributes = {0};
    mr_onnx_set_list(&attributes, "perm", ndim, order);
    return one(graph, "Transpose", 1, &x, &attributes);
}

mr_onnx_value mr_onnx_reduce_mean(mr_onnx_graph *graph, mr_onnx_value x, int axis)
{
    mr_proto attributes = {0};
    mr_onnx_set_list(&attributes, "axes", 1, &(int64_t){axis});
    return one(graph, "ReduceMean", 1, &x, &attributes);
}

mr_onnx_value mr_onnx_slice(mr_onnx_graph *graph, mr_onnx_value x, int axis, int64_t from, int64_t to)
{
    const mr_onnx_value begin = mr_onnx_list(graph, 1, &from), end = mr_onnx_list(graph, 1, &to);
    const mr_onnx_value axes = mr_onnx_list(graph, 1, &(int64_t){axis});
    return one(graph, "Slice", 4, (mr_onnx_value[]){x, begin, end, axes}, NULL);
}

void mr_onnx_split(mr_onnx_graph *graph, mr_onnx_value x, int axis, int count, const int64_t *sizes, mr_onnx_value *out)
{
    mr_proto attributes = {0};
    mr_onnx_set_whole(&attributes, "axis", axis);
    mr_onnx_node(graph, "Split", 2, (mr_onnx_value[]){x, mr_onnx_list(graph, count, sizes)}, count, out, &attributes);
}
