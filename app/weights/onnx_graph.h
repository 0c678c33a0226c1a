/* A builder of ONNX graphs: nodes, the tensors they use, inputs and outputs, as the bytes of a GraphProto. A graph
 * inside another one (the body of a Scan) may use the values of the graph around it.
 *
 * Values are handles; 0 stands for an optional input that is left out. Names are made here and are unique over a graph
 * and the graphs inside it. When memory runs out, mr_onnx_failed says so at the end.
 *
 * A function that makes values gives them the next numbers. C does not say which argument of a call is computed first,
 * so at most one argument of a call makes values: then every compiler's program writes the same bytes. */
#ifndef MR_APP_WEIGHTS_ONNX_GRAPH_H
#define MR_APP_WEIGHTS_ONNX_GRAPH_H

#include "weights/protobuf.h"

typedef int mr_onnx_value;

/* As TensorProto.DataType has them. */
typedef enum mr_onnx_type { MR_ONNX_F32 = 1, MR_ONNX_I64 = 7, MR_ONNX_BOOL = 9, MR_ONNX_F64 = 11 } mr_onnx_type;

/* A type and a shape. Sizes that are known only when the graph runs have one of these names. */
enum { MR_ONNX_BATCH = -1, MR_ONNX_TIME = -2, MR_ONNX_PAIRS = -3, MR_ONNX_DIMS = 4 };
typedef struct mr_onnx_form {
    mr_onnx_type type;
    int ndim;
    int64_t dims[MR_ONNX_DIMS];
} mr_onnx_form;

typedef struct mr_onnx_entry {
    char *name;
    mr_onnx_value earlier; /* constants: the one made before this; 0: none */
} mr_onnx_entry;

typedef struct mr_onnx_graph {
    struct mr_onnx_graph *root; /* keeps the names, constants and tensors; the outermost graph is its own */
    const char *scope;          /* where nodes belong, for their names: "blocks.0.mixer" */
    mr_proto nodes, tensors, inputs, outputs;
    mr_onnx_entry *entries; /* of the root: its values, from 1 */
    int count, room, failed;
    mr_onnx_value constants; /* the newest */
} mr_onnx_graph;

/* root NULL: an outermost graph. */
void mr_onnx_start(mr_onnx_graph *graph, mr_onnx_graph *root, const char *name);
void mr_onnx_free(mr_onnx_graph *graph);
int mr_onnx_failed(const mr_onnx_graph *graph);

mr_onnx_value mr_onnx_input(mr_onnx_graph *graph, const char *name, const mr_onnx_form *form);
/* Declares an output; mr_onnx_give computes it. */
mr_onnx_value mr_onnx_output(mr_onnx_graph *graph, const char *name, const mr_onnx_form *form);
void mr_onnx_give(mr_onnx_graph *graph, mr_onnx_value output, mr_onnx_value from);
/* An input or output of the body of a Scan; its name is made from the scope. */
mr_onnx_value mr_onnx_inner_input(mr_onnx_graph *graph, const char *word, const mr_onnx_form *form);
void mr_onnx_inner_output(mr_onnx_graph *graph, const char *word, const mr_onnx_form *form, mr_onnx_value from);

/* A tensor. Its data are little-endian, as in memory. */
mr_onnx_value mr_onnx_tensor(mr_onnx_graph *graph, const char *name, const mr_onnx_form *form, const void *data);
/* Constants: a number, and a list of whole numbers (at most 4). */
mr_onnx_value mr_onnx_number(mr_onnx_graph *graph, mr_onnx_type type, double value);
mr_onnx_value mr_onnx_list(mr_onnx_graph *graph, int count, const int64_t *values);

/* Attributes of the next node, collected in a message that starts as {0}; mr_onnx_node frees it. A graph is emptied. */
void mr_onnx_set_whole(mr_proto *attributes, const char *name, int64_t value);
void mr_onnx_set_list(mr_proto *attributes, const char *name, int count, const int64_t *values);
void mr_onnx_set_graph(mr_proto *attributes, const char *name, mr_onnx_graph *body);

/* A node. The values of `out` are made here; attributes may be NULL. */
void mr_onnx_node(mr_onnx_graph *graph, const char *op, int ins, const mr_onnx_value *in, int outs, mr_onnx_value *out,
                  mr_proto *attributes);

/* Nodes with one output. */
mr_onnx_value mr_onnx_op1(mr_onnx_graph *graph, const char *op, mr_onnx_value x);
mr_onnx_value mr_onnx_op2(mr_onnx_graph *graph, const char *op, mr_onnx_value x, mr_onnx_value y);
mr_onnx_value mr_onnx_op3(mr_onnx_graph *graph, const char *op, mr_onnx_value x, mr_onnx_value y, mr_onnx_value z);
mr_onnx_value mr_onnx_scale(mr_onnx_graph *graph, mr_onnx_value x, double by); /* x·by */
mr_onnx_value mr_onnx_shift(mr_onnx_graph *graph, mr_onnx_value x, double by); /* x + by */
mr_onnx_value mr_onnx_cast(mr_onnx_graph *graph, mr_onnx_value x, mr_onnx_type to);
mr_onnx_value mr_onnx_concat(mr_onnx_graph *graph, int axis, int count, const mr_onnx_value *parts);
mr_onnx_value mr_onnx_transpose(mr_onnx_graph *graph, mr_onnx_value x, int ndim, const int64_t *order);
mr_onnx_value mr_onnx_reduce_mean(mr_onnx_graph *graph, mr_onnx_value x, int axis); /* the axis stays, with size 1 */
mr_onnx_value mr_onnx_slice(mr_onnx_graph *graph, mr_onnx_value x, int axis, int64_t from, int64_t to);
/* Cuts an axis into parts of these sizes. */
void mr_onnx_split(mr_onnx_graph *graph, mr_onnx_value x, int axis, int count, const int64_t *sizes,
                   mr_onnx_value *out);

#endif
