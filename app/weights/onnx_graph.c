/* A builder of ONNX graphs (onnx_graph.h): names, tensors, inputs and outputs, nodes. Field numbers are those of
 * onnx.proto. */
#include "weights/onnx_graph.h"

#include "core/mem.h"
#include "core/strbuf.h"

#include <stdio.h>
#include <string.h>

enum { GRAPH_NODE = 1, GRAPH_NAME = 2, GRAPH_TENSOR = 5, GRAPH_INPUT = 11, GRAPH_OUTPUT = 12 };
enum { NODE_INPUT = 1, NODE_OUTPUT = 2, NODE_NAME = 3, NODE_OP = 4, NODE_ATTRIBUTE = 5 };
enum { TENSOR_DIMS = 1, TENSOR_TYPE = 2, TENSOR_NAME = 8, TENSOR_RAW = 9 };
enum { ATTRIBUTE_NAME = 1, ATTRIBUTE_I = 3, ATTRIBUTE_G = 6, ATTRIBUTE_INTS = 8, ATTRIBUTE_TYPE = 20 };
enum { TYPE_INT = 2, TYPE_GRAPH = 5, TYPE_INTS = 7 };

/* ---- values and their names */

static int make_room(mr_onnx_graph *root)
{
    if (root->failed) return 0;
    if (root->count < root->room) return 1;
    const int room = 2 * root->room + 256;
    mr_onnx_entry *entries = mr_alloc((size_t)room, sizeof *entries);
    if (!entries) {
        root->failed = 1;
        return 0;
    }
    if (root->count) memcpy(entries, root->entries, (size_t)root->count * sizeof *entries);
    mr_free(root->entries);
    root->entries = entries;
    root->room = room;
    return 1;
}

/* A new value with this name; 0: out of memory. */
static mr_onnx_value named(mr_onnx_graph *graph, const char *name)
{
    mr_onnx_graph *root = graph->root;
    if (!make_room(root)) return 0;
    char *copy = mr_strdup(name);
    if (!copy) root->failed = 1;
    root->entries[root->count] = (mr_onnx_entry){.name = copy};
    return copy ? root->count++ : 0;
}

static const char *name_of(const mr_onnx_graph *graph, mr_onnx_value value)
{
    return value ? graph->root->entries[value].name : "";
}

/* "blocks.0.mixer/Mul_17": the number is that of the value. */
static mr_onnx_value invented(mr_onnx_graph *graph, const char *word)
{
    char name[160];
    snprintf(name, sizeof name, "%s/%s_%d", graph->scope, word, graph->root->count);
    return named(graph, name);
}

void mr_onnx_start(mr_onnx_graph *graph, mr_onnx_graph *root, const char *name)
{
    *graph = (mr_onnx_graph){.root = root ? root : graph, .scope = root ? root->scope : name};
    mr_proto_text(&graph->nodes, GRAPH_NAME, name);
    if (!root) named(graph, ""); /* 0 is no value */
}

void mr_onnx_free(mr_onnx_graph *graph)
{
    mr_proto_free(&graph->nodes);
    mr_proto_free(&graph->tensors);
    mr_proto_free(&graph->inputs);
    mr_proto_free(&graph->outputs);
    for (int i = 0; i < graph->count; i++) mr_free(graph->entries[i].name);
    mr_free(graph->entries);
    *graph = (mr_onnx_graph){.root = graph, .failed = graph->failed};
}

int mr_onnx_failed(const mr_onnx_graph *graph)
{
    return graph->root->failed || graph->nodes.failed || graph->tensors.failed || graph->inputs.failed ||
           graph->outputs.failed;
}

/* ---- inputs, outputs, tensors */

static const char *size_name(int64_t size)
{
    return size == MR_ONNX_BATCH ? "batch" : size == MR_ONNX_TIME ? "time" : "pairs";
}

/* A ValueInfoProto: its name, and the type with its shape, whose sizes are numbers or names. */
static void add_info(mr_proto *to, int field, const char *name, const mr_onnx_form *form)
{
    mr_proto size = {0}, shape = {0}, tensor = {0}, type = {0}, info = {0};
    for (int i = 0; i < form->ndim; i++) {
        if (form->dims[i] >= 0) mr_proto_whole(&size, 1, form->dims[i]);
        else mr_proto_text(&size, 2, size_name(form->dims[i]));
        mr_proto_message(&shape, 1, &size);
    }
    mr_proto_whole(&tensor, 1, form->type);
    mr_proto_message(&tensor, 2, &shape);
    mr_proto_message(&type, 1, &tensor);
    mr_proto_text(&info, 1, name);
    mr_proto_message(&info, 2, &type);
    mr_proto_message(to, field, &info);
    mr_proto_free(&size), mr_proto_free(&shape), mr_proto_free(&tensor), mr_proto_free(&type), mr_proto_free(&info);
}

mr_onnx_value mr_onnx_input(mr_onnx_graph *graph, const char *name, const mr_onnx_form *form)
{
    add_info(&graph->inputs, GRAPH_INPUT, name, form);
    return named(graph, name);
}

mr_onnx_value mr_onnx_output(mr_onnx_graph *graph, const char *name, const mr_onnx_form *form)
{
    add_info(&graph->outputs, GRAPH_OUTPUT, name, form);
    return named(graph, name);
}

mr_onnx_value mr_onnx_inner_input(mr_onnx_graph *graph, const char *word, const mr_onnx_form *form)
{
    const mr_onnx_value input = invented(graph, word);
    add_info(&graph->inputs, GRAPH_INPUT, name_of(graph, input), form);
    return input;
}

void mr_onnx_inner_output(mr_onnx_graph *graph, const char *word, const mr_onnx_form *form, mr_onnx_value from)
{
    const mr_onnx_value output = invented(graph, word);
    add_info(&graph->outputs, GRAPH_OUTPUT, name_of(graph, output), form);
    mr_onnx_give(graph, output, from);
}

static size_t element_size(mr_onnx_type type) { return type == MR_ONNX_F32 ? 4 : type == MR_ONNX_BOOL ? 1 : 8; }

mr_onnx_value mr_onnx_tensor(mr_onnx_graph *graph, const char *name, const mr_onnx_form *form, const void *data)
{
    mr_proto head = {0}, *to = &graph->root->tensors;
    size_t bytes = element_size(form->type);
    for (int i = 0; i < form->ndim; i++) {
        mr_proto_whole(&head, TENSOR_DIMS, form->dims[i]);
        bytes *= (size_t)form->dims[i];
    }
    mr_proto_whole(&head, TENSOR_TYPE, form->type);
    mr_proto_text(&head, TENSOR_NAME, name);
    mr_proto_begin(&head, TENSOR_RAW, bytes);
    mr_proto_begin(to, GRAPH_TENSOR, head.size + bytes);
    mr_proto_add(to, head.data, head.size);
    mr_proto_add(to, data, bytes);
    to->failed |= head.failed;
    mr_proto_free(&head);
    return named(graph, name);
}

/* The constant of this name, which says its value; it is made where there is none yet. */
static mr_onnx_value constant(mr_onnx_graph *graph, const char *name, const mr_onnx_form *form, const void *data)
{
    mr_onnx_graph *root = graph->root;
    for (mr_onnx_value v = root->constants; v; v = root->entries[v].earlier)
        if (!strcmp(root->entries[v].name, name)) return v;
    const mr_onnx_value made = mr_onnx_tensor(graph, name, form, data);
    if (!made) return 0;
    root->entries[made].earlier = root->constants;
    return root->constants = made;
}

mr_onnx_value mr_onnx_number(mr_onnx_graph *graph, mr_onnx_type type, double value)
{
    static const char *const kinds[] = {[MR_ONNX_F32] = "float", [MR_ONNX_I64] = "whole", [MR_ONNX_F64] = "double"};
    char name[MR_REAL_MAX + 16], digits[MR_REAL_MAX];
    const float narrow = (float)value;
    const int64_t whole = (int64_t)value;
    snprintf(name, sizeof name, "%s %s", kinds[type], mr_real_print(digits, value, 0));
    const void *data = type == MR_ONNX_F32   ? (const void *)&narrow
                       : type == MR_ONNX_I64 ? (const void *)&whole
                                             : &value;
    return constant(graph, name, &(mr_onnx_form){type, 0, {0}}, data);
}

mr_onnx_value mr_onnx_list(mr_onnx_graph *graph, int count, const int64_t *values)
{
    char name[128] = "list";
    for (int i = 0; i < count; i++)
        snprintf(name + strlen(name), sizeof name - strlen(name), " %lld", (long long)values[i]);
    return constant(graph, name, &(mr_onnx_form){MR_ONNX_I64, 1, {count}}, values);
}

/* ---- nodes */

void mr_onnx_set_whole(mr_proto *attributes, const char *name, int64_t value)
{
    mr_proto attribute = {0};
    mr_proto_text(&attribute, ATTRIBUTE_NAME, name);
    mr_proto_whole(&attribute, ATTRIBUTE_I, value);
    mr_proto_whole(&attribute, ATTRIBUTE_TYPE, TYPE_INT);
    mr_proto_message(attributes, NODE_ATTRIBUTE, &attribute);
    mr_proto_free(&attribute);
}

void mr_onnx_set_list(mr_proto *attributes, const char *name, int count, const int64_t *values)
{
    mr_proto attribute = {0};
    mr_proto_text(&attribute, ATTRIBUTE_NAME, name);
    for (int i = 0; i < count; i++) mr_proto_whole(&attribute, ATTRIBUTE_INTS, values[i]);
    mr_proto_whole(&attribute, ATTRIBUTE_TYPE, TYPE_INTS);
    mr_proto_message(attributes, NODE_ATTRIBUTE, &attribute);
    mr_proto_free(&attribute);
}

void mr_onnx_set_graph(mr_proto *attributes, const char *name, mr_onnx_graph *body)
{
    mr_proto attribute = {0}, *parts[] = {&body->nodes, &body->inputs, &body->outputs};
    size_t size = 0;
    for (int i = 0; i < 3; i++) size += parts[i]->size;
    mr_proto_text(&attribute, ATTRIBUTE_NAME, name);
    mr_proto_begin(&attribute, ATTRIBUTE_G, size);
    for (int i = 0; i < 3; i++) mr_proto_add(&attribute, parts[i]->data, parts[i]->size);
    mr_proto_whole(&attribute, ATTRIBUTE_TYPE, TYPE_GRAPH);
    attribute.failed |= mr_onnx_failed(body);
    mr_proto_message(attributes, NODE_ATTRIBUTE, &attribute);
    mr_proto_free(&attribute);
    mr_onnx_free(body);
}

/* A node whose outputs exist already. */
static void add_node(mr_onnx_graph *graph, const char *op, int ins, const mr_onnx_value *in, int outs,
                     const mr_onnx_value *out, mr_proto *attributes)
{
    mr_proto node = {0};
    for (int i = 0; i < ins; i++) mr_proto_text(&node, NODE_INPUT, name_of(graph, in[i]));
    for (int i = 0; i < outs; i++) mr_proto_text(&node, NODE_OUTPUT, name_of(graph, out[i]));
    mr_proto_text(&node, NODE_NAME, name_of(graph, out[0]));
    mr_proto_text(&node, NODE_OP, op);
    if (attributes) {
        mr_proto_add(&node, attributes->data, attributes->size);
        node.failed |= attributes->failed;
        mr_proto_free(attributes);
    }
    mr_proto_message(&graph->nodes, GRAPH_NODE, &node);
    mr_proto_free(&node);
}

void mr_onnx_give(mr_onnx_graph *graph, mr_onnx_value output, mr_onnx_value from)
{
    add_node(graph, "Identity", 1, &from, 1, &output, NULL);
}

void mr_onnx_node(mr_onnx_graph *graph, const char *op, int ins, const mr_onnx_value *in, int outs, mr_onnx_value *out,
                  mr_proto *attributes)
{
    for (int i = 0; i < outs; i++) out[i] = invented(graph, op);
    add_node(graph, op, ins, in, outs, out, attributes);
}
