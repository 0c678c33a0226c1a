/* An ONNX file: what is refused, the model around the graph with its metadata, and writing it (onnx.h). */
#include "weights/onnx.h"

#include "core/file.h"
#include "core/mem.h"
#include "core/options.h"
#include "weights/onnx_parts.h"

#include <stdio.h>
#include <string.h>

/* Operators are those of this version of ONNX (December 2020) and files have its form; all that the graphs need. */
enum { OPSET = 13, IR_VERSION = 7 };
enum {
    MODEL_IR = 1,
    MODEL_PRODUCER = 2,
    MODEL_PRODUCER_VERSION = 3,
    MODEL_GRAPH = 7,
    MODEL_OPSET = 8,
    MODEL_META = 14
};

/* Room for the graph besides the weights, before it is known. */
static const int64_t graph_bytes = 1 << 24;

/* Keys that the graph obeys, or that do not matter for it. A model that has another value than the default for a key
 * that is not here would be exported wrongly, so it is refused. */
static const char *const known[] = {"input",      "inputs",     "head",           "loss",      "outputs",
                                    "output",     "mixer",      "candidate",      "scan",      "h0",
                                    "gate-init",  "transition", "gru-reset",      "states",    "normalize-gates",
                                    "layers",     "dim",        "expansion",      "width",     "conv",
                                    "conv-place", "mlp",        "mlp-gate",       "mlp-width", "norm",
                                    "norm-eps",   "dropout",    "weights",        "heads",     "positions",
                                    "window",     "gelu",       "head-bias",      "scaler",    "mlp-bias",
                                    "mixer-bias", "dt-rank",    "tie-embeddings", "mixer-conv"};

int mr_onnx_knows(const char *key)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i], key)) return 1;
    return 0;
}

static int check_keys(mr_net *net, mr_error *err)
{
    char value[MR_TEXT_MAX];
    const mr_key *key;
    for (int i = 0; (key = mr_key_at(i)); i++)
        if (!(key->flags & MR_KEY_LEARN) && !mr_onnx_knows(key->name) &&
            !mr_net_setting(net, key->name, value, sizeof value, NULL) && strcmp(value, key->fallback))
            return mr_fail(err, MR_ECONFIG, "%s = %s cannot be exported to ONNX", key->name, value);
    return 0;
}

int mr_onnx_check_size(int64_t bytes, mr_error *err)
{
    if (bytes <= INT32_MAX) return 0;
    return mr_fail(err, MR_ECONFIG, "the ONNX file would have %.1f GB, and such files must have less than 2.1 GB",
                   (double)bytes / 1e9);
}

/* ---- metadata: the keys of the model file */

static void add_meta(mr_proto *to, const char *key, const char *value)
{
    mr_proto entry = {0};
    mr_proto_text(&entry, 1, key);
    mr_proto_text(&entry, 2, value);
    mr_proto_message(to, MODEL_META, &entry);
    mr_proto_free(&entry);
}

static void add_settings(mr_net *net, mr_proto *to)
{
    char value[MR_TEXT_MAX], name[MR_ONNX_NAME];
    const mr_key *key;
    for (int i = 0; (key = mr_key_at(i)); i++) {
        if (key->flags & MR_KEY_LEARN || mr_net_setting(net, key->name, value, sizeof value, NULL)) continue;
        if (!strcmp(key->name, "weights") || (key->flags & MR_KEY_SPARSE && !strcmp(value, key->fallback))) continue;
        add_meta(to, mr_onnx_join(name, "model", key->name), value);
    }
}

static int add_vocab(mr_net *net, mr_proto *to, mr_error *err)
{
    const mr_vocab *vocab = mr_net_vocab(net);
    size_t needed = 0;
    if (!vocab) return 0;
    mr_vocab_print(vocab, NULL, 0, &needed, NULL);
    char *text = mr_alloc(needed, 1);
    if (!text) return mr_no_memory(err, "the vocabulary");
    int status = mr_vocab_print(vocab, text, needed, &needed, err);
    if (!status) add_meta(to, "vocab", text);
    mr_free(text);
    return status;
}

static int add_metadata(mr_net *net, mr_proto *to, mr_error *err)
{
    char step[32];
    const char *key;
    add_settings(net, to);
    for (int i = 0; (key = mr_net_meta_key(net, i)); i++)
        if (mr_net_meta(net, key)) add_meta(to, key, mr_net_meta(net, key));
    snprintf(step, sizeof step, "%lld", (long long)mr_net_steps(net));
    add_meta(to, "step", step);
    return add_vocab(net, to, err);
}

/* ---- the file */

static void add_head(mr_proto *to)
{
    mr_proto opset = {0};
    mr_proto_whole(to, MODEL_IR, IR_VERSION);
    mr_proto_text(to, MODEL_PRODUCER, "minrnn");
    mr_proto_text(to, MODEL_PRODUCER_VERSION, mr_version());
    mr_proto_whole(&opset, 2, OPSET);
    mr_proto_message(to, MODEL_OPSET, &opset);
    mr_proto_free(&opset);
}

int mr_is_our_onnx(const char *path)
{
    static const char made_by[] = "\x12\x06minrnn"; /* after the field of the version, which has two bytes */
    char bytes[2 + sizeof made_by - 1];
    uint64_t size;
    int fd;
    if (mr_file_open(path, &fd, &size, NULL)) return 0;
    const int ours = size > sizeof bytes && !mr_file_read_at(fd, path, 0, bytes, sizeof bytes, NULL) &&
                     !memcmp(bytes + 2, made_by, sizeof made_by - 1);
    mr_file_close(fd);
    return ours;
}

/* The pieces are written one after another: the weights are in memory once. */
static int write_file(mr_onnx_export *x, mr_proto *head, const char *path)
{
    const mr_onnx_graph *g = &x->graph;
    const mr_proto *pieces[] = {head, &g->nodes, &g->tensors, &g->inputs, &g->outputs};
    size_t size = 0;
    mr_replace file;
    for (int i = 1; i < 5; i++) size += pieces[i]->size;
    mr_proto_begin(head, MODEL_GRAPH, size);
    if (head->failed || mr_onnx_failed(g)) return mr_no_memory(x->err, "the ONNX graph");
    int status = mr_onnx_check_size((int64_t)(head->size + size), x->err);
    if (!status) status = mr_replace_begin(&file, path, x->err);
    if (status) return status;
    for (int i = 0; !status && i < 5; i++) status = mr_replace_write(&file, pieces[i]->data, pieces[i]->size, x->err);
    if (!status) return mr_replace_commit(&file, x->err);
    mr_replace_abort(&file);
    return status;
}

int mr_export_onnx(mr_net *net, const char *path, mr_error *err)
{
    mr_onnx_export x = {.net = net, .err = err};
    mr_proto head = {0};
    int status = check_keys(net, err);
    if (!status) status = mr_onnx_check_size(mr_net_parameters(net) * (int64_t)sizeof(float) + graph_bytes, err);
    if (status) return status;
    mr_onnx_start(&x.graph, NULL, "minrnn");
    mr_onnx_stack(&x);
    status = x.status;
    add_head(&head);
    if (!status) status = add_metadata(net, &head, err);
    if (!status) status = write_file(&x, &head, path);
    mr_proto_free(&head);
    mr_onnx_free(&x.graph);
    return status;
}
