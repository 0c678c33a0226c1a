/* Nets: opened, created, asked, saved. Training and scoring are in learn.c. */
#include "net.h"

#include <stdlib.h>
#include <string.h>

PyTypeObject *mr_py_net_type, *mr_py_view_type;

/* ---- making them */

static py_net *new_net(PyObject *context)
{
    if (!Py_IS_TYPE(context, mr_py_context_type)) {
        PyErr_SetString(PyExc_TypeError, "context: must be a Context");
        return NULL;
    }
    py_net *net = (py_net *)PyType_GenericAlloc(mr_py_net_type, 0);
    if (!net) return NULL;
    Py_INCREF(context);
    net->context = context;
    return net;
}

static mr_context *ctx_of(const py_net *net) { return ((py_context *)net->context)->ctx; }

static PyObject *made(py_net *net, int status, const mr_error *err)
{
    if (!status) return (PyObject *)net;
    Py_DECREF(net);
    return mr_py_raise(err);
}

PY_FUNCTION(net_open)
{
    (void)self;
    mr_error err;
    int status;
    if (mr_py_count("net_open", n, 2, 2)) return NULL;
    const char *path = mr_py_path(args[1]);
    py_net *net = path ? new_net(args[0]) : NULL;
    if (!net) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = mr_net_open(ctx_of(net), path, &net->net, &err);
    Py_END_ALLOW_THREADS
    return made(net, status, &err);
}

PY_FUNCTION(net_open_bytes)
{
    (void)self;
    mr_error err;
    int status;
    char *bytes;
    Py_ssize_t size;
    if (mr_py_count("net_open_bytes", n, 2, 2) || PyBytes_AsStringAndSize(args[1], &bytes, &size)) return NULL;
    py_net *net = new_net(args[0]);
    if (!net) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = mr_net_open_memory(ctx_of(net), bytes, (size_t)size, &net->net, &err);
    Py_END_ALLOW_THREADS
    return made(net, status, &err);
}

PY_FUNCTION(net_create)
{
    (void)self;
    mr_error err;
    int status = 0;
    if (mr_py_count("net_create", n, 2, 2)) return NULL;
    if (!PyList_Check(args[1])) return PyErr_Format(PyExc_TypeError, "settings: must be a list");
    const Py_ssize_t count = PyList_Size(args[1]);
    const char **settings = calloc((size_t)count + 1, sizeof *settings);
    py_net *net = settings ? new_net(args[0]) : (py_net *)PyErr_NoMemory();
    for (Py_ssize_t i = 0; net && i < count; i++)
        if (!(settings[i] = mr_py_text(PyList_GetItem(args[1], i), "settings"))) Py_CLEAR(net);
    if (net) {
        Py_BEGIN_ALLOW_THREADS
        status = mr_net_create(ctx_of(net), settings, &net->net, &err);
        Py_END_ALLOW_THREADS
    }
    free((void *)settings);
    return net ? made(net, status, &err) : NULL;
}

static void net_free(PyObject *self)
{
    py_net *net = (py_net *)self;
    PyTypeObject *type = Py_TYPE(self);
    Py_BEGIN_ALLOW_THREADS
    mr_net_free(net->net);
    Py_END_ALLOW_THREADS
    Py_XDECREF(net->context);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* ---- asking them */

static PyObject *describe(PyObject *self, PyObject *none)
{
    (void)none;
    static const char *const inputs[] = {"tokens", "reals"}, *const losses[] = {"xent", "mse"};
    static const char *const heads[] = {"token", "last", "mean", "pair-last", "pair-mean"};
    const mr_net *net = ((py_net *)self)->net;
    const mr_vocab *vocab = mr_net_vocab(net);
    return Py_BuildValue("{s:s,s:i,s:s,s:s,s:i,s:L,s:n,s:L,s:s}", "input", inputs[mr_net_input(net)], "inputs",
                         mr_net_inputs(net), "head", heads[mr_net_head(net)], "loss", losses[mr_net_loss(net)],
                         "outputs", mr_net_outputs(net), "parameters", (long long)mr_net_parameters(net), "state_bytes",
                         (Py_ssize_t)mr_net_state_bytes(net), "steps", (long long)mr_net_steps(net), "vocab",
                         !vocab                     ? ""
                         : mr_vocab_is_bytes(vocab) ? "bytes"
                                                    : "chars");
}

static PyObject *rows(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    if (mr_py_count("rows", n, 2, 2)) return NULL;
    const long B = PyLong_AsLong(args[0]), T = PyLong_AsLong(args[1]);
    if (PyErr_Occurred()) return NULL;
    return PyLong_FromSize_t(mr_net_rows(((py_net *)self)->net, (int)B, (int)T));
}

static PyObject *setting(PyObject *self, PyObject *key)
{
    char text[4096];
    mr_error err;
    const char *name = mr_py_text(key, "key");
    if (!name) return NULL;
    if (mr_net_setting(((py_net *)self)->net, name, text, sizeof text, &err)) return mr_py_raise(&err);
    return mr_py_string(text);
}

static PyObject *set(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    mr_error err;
    int status;
    if (mr_py_count("set", n, 2, 2)) return NULL;
    const char *key = mr_py_text(args[0], "key"), *value = key ? mr_py_text(args[1], "value") : NULL;
    if (!value) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = mr_net_set(((py_net *)self)->net, key, value, &err);
    Py_END_ALLOW_THREADS
    if (status) return mr_py_raise(&err);
    Py_RETURN_NONE;
}

static PyObject *meta(PyObject *self, PyObject *none)
{
    (void)none;
    const mr_net *net = ((py_net *)self)->net;
    PyObject *all = PyDict_New();
    for (int i = 0; all && mr_net_meta_key(net, i); i++) {
        const char *key = mr_net_meta_key(net, i);
        PyObject *name = mr_py_string(key), *value = mr_py_string(mr_net_meta(net, key));
        if (!name || !value || PyDict_SetItem(all, name, value)) Py_CLEAR(all);
        Py_XDECREF(name);
        Py_XDECREF(value);
    }
    return all;
}

static PyObject *set_meta(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    mr_error err;
    if (mr_py_count("set_meta", n, 2, 2)) return NULL;
    const char *key = mr_py_text(args[0], "key"), *value = key ? mr_py_text(args[1], "value") : NULL;
    if (!value) return NULL;
    if (mr_net_set_meta(((py_net *)self)->net, key, value, &err)) return mr_py_raise(&err);
    Py_RETURN_NONE;
}

/* ---- text */

static PyObject *encode(PyObject *self, PyObject *bytes)
{
    char *text;
    Py_ssize_t size;
    size_t count;
    mr_error err;
    int status;
    const mr_net *net = ((py_net *)self)->net;
    if (PyBytes_AsStringAndSize(bytes, &text, &size)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = mr_net_encode(net, text, (size_t)size, NULL, 0, &count, NULL, &err);
    Py_END_ALLOW_THREADS
    if (status) return mr_py_raise(&err);
    PyObject *out = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)(count * sizeof(int32_t)));
    if (!out) return NULL;
    int32_t *tokens = (int32_t *)PyByteArray_AsString(out);
    Py_BEGIN_ALLOW_THREADS
    status = mr_net_encode(net, text, (size_t)size, tokens, count, &count, NULL, &err);
    Py_END_ALLOW_THREADS
    if (!status) return out;
    Py_DECREF(out);
    return mr_py_raise(&err);
}

static PyObject *decode(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    py_array ids;
    mr_error err;
    size_t size = 0;
    int status = 0;
    if (mr_py_count("decode", n, 2, 2)) return NULL;
    const size_t count = PyLong_AsSize_t(args[1]), room = count * 4 + 1;
    if (PyErr_Occurred() || mr_py_borrow(args[0], "tokens", count, sizeof(int32_t), 0, &ids)) return NULL;
    char *text = malloc(room);
    if (text) {
        Py_BEGIN_ALLOW_THREADS
        status = mr_net_decode(((py_net *)self)->net, ids.at, count, text, room, &size, &err);
        Py_END_ALLOW_THREADS
    }
    PyObject *out = !text    ? PyErr_NoMemory()
                    : status ? mr_py_raise(&err)
                             : PyBytes_FromStringAndSize(text, (Py_ssize_t)size);
    free(text);
    mr_py_return(&ids, 1);
    return out;
}

/* ---- files */

typedef enum saving { SAVE, SAVE_INT8, SAVE_BEST, SAVE_TRAINING, LOAD_TRAINING } saving;

static int save_as(mr_net *net, saving how, const char *path, mr_error *err)
{
    switch (how) {
    case SAVE: return mr_net_save(net, path, err);
    case SAVE_INT8: return mr_net_save_int8(net, path, err);
    case SAVE_BEST: return mr_net_save_best(net, path, err);
    case SAVE_TRAINING: return mr_net_save_training(net, path, NULL, err);
    case LOAD_TRAINING: return mr_net_load_training(net, path, err);
    }
    return 0;
}

static PyObject *save(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    mr_error err;
    int status;
    if (mr_py_count("save", n, 2, 2)) return NULL;
    const long how = PyLong_AsLong(args[0]);
    const char *path = PyErr_Occurred() ? NULL : mr_py_path(args[1]);
    if (!path) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = save_as(((py_net *)self)->net, (saving)how, path, &err);
    Py_END_ALLOW_THREADS
    if (status) return mr_py_raise(&err);
    Py_RETURN_NONE;
}

/* ---- the type */

#define FAST(name, function, doc)                                                                                      \
    {                                                                                                                  \
        name, (PyCFunction)(void (*)(void))function, METH_FASTCALL, doc                                                \
    }
static PyMethodDef methods[] = {
    {"describe", describe, METH_NOARGS, "What the net takes and gives."},
    FAST("rows", rows, "rows(B, T): rows of scores in a batch."),
    {"setting", setting, METH_O, "The value of a key."},
    FAST("set", set, "set(key, value): a training setting."),
    {"meta", meta, METH_NOARGS, "The metadata, as a dict."},
    FAST("set_meta", set_meta, "set_meta(key, value)."),
    {"encode", encode, METH_O, "UTF-8 bytes to tokens: a bytearray of int32."},
    FAST("decode", decode, "decode(tokens, count): bytes."),
    FAST("save", save, "save(how, path)."),
    {"stream", mr_py_net_stream, METH_NOARGS, "A new stream."},
    {"tensors", mr_py_net_tensors, METH_NOARGS, "All tensors: [(name, dtype, shape)]."},
    FAST("get", mr_py_net_get, "get(which, name, array): copies a tensor into an array."),
    FAST("put", mr_py_net_put, "put(which, name, array): copies an array into a tensor."),
    FAST("view", mr_py_net_view, "view(which, name): a tensor's own memory."),
    FAST("run", mr_py_net_run, "run(what, batch, array): forward, keep-forward or losses, into the array."),
    FAST("learn", mr_py_net_learn, "learn(what, batch, micro, micros, carry, progress): train or evaluate a batch."),
    FAST("backward", mr_py_net_backward, "backward(dscores): adds gradients of the kept forward."),
    {"update", mr_py_net_update, METH_NOARGS, "Updates the weights with the gradients."},
    {"drop", mr_py_net_drop, METH_O, "drop(gradients): discards a kept forward, and gradients if that is true."},
    {"mark_best", mr_py_net_mark_best, METH_NOARGS, "Keeps the current weights as the best."},
    {"forget_carry", mr_py_net_forget_carry, METH_NOARGS, "The next batch with carry starts anew."},
    FAST("fit_scaler", mr_py_net_fit_scaler, "fit_scaler(batch)."),
    FAST("scaler", mr_py_net_scaler,
         "scaler(input_mean, input_scale, target_mean, target_scale): 1 + 2, what there is."),
    FAST("set_scaler", mr_py_net_set_scaler, "set_scaler(input_mean, input_scale, target_mean, target_scale)."),
    {0}};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, (void *)net_free}, {Py_tp_methods, methods}, {Py_tp_doc, "A model. Use minrnn.Model."}, {0}};
static PyType_Spec spec = {"minrnn._core.Net", sizeof(py_net), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

int mr_py_add_net(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &spec, NULL);
    mr_py_net_type = (PyTypeObject *)type;
    if (!type || PyModule_AddObjectRef(module, "Net", type)) return -1;
    return mr_py_add_view(module);
}
