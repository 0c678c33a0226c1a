/* The extension module: its table of functions, its exceptions, and borrowing arrays. */
#include "core.h"

#include <string.h>

/* By status: exceptions that minrnn/errors.py defines. */
static PyObject *exceptions;

/* What the library's sentences advise, and what it is called here. A name comes before those that it begins with. */
static const char *const names[][2] = {{"mr_net_keep_forward", "forward(train=True)"},
                                       {"mr_net_drop_gradients", "drop"},
                                       {"mr_net_drop", "drop"},
                                       {"mr_net_backward", "backward"},
                                       {"mr_net_update", "update"},
                                       {"mr_net_mark_best", "mark_best"},
                                       {"mr_net_forward", "forward"},
                                       {"mr_net_set_scaler", "set_scaler"},
                                       {"mr_net_fit_scaler", "fit_scaler"},
                                       {"mr_net_save_training", "save_training"},
                                       {"mr_net_load_training", "load_training"},
                                       {"mr_net_save_int8", "save(int8=True)"},
                                       {"mr_net_tensor lists", "state_dict() has"},
                                       {"minrnn.h lists them at mr_net_set", "minrnn train --help lists them"},
                                       {"mr_key_at lists", "Model.config has"},
                                       {"`minrnn import`", "minrnn.from_state_dict"},
                                       {" is NULL", " is missing"},
                                       {"--device ", "device "},
                                       {"--dtype f32", "bf16=False"}};

/* Appends `count` bytes, or what fits. */
static void append(char *out, size_t size, size_t *at, const char *text, size_t count)
{
    if (count > size - 1 - *at) count = size - 1 - *at;
    memcpy(out + *at, text, count);
    out[ *at += count] = 0;
}

/* The sentence with the names that a caller in Python knows. */
static void translate(const char *text, char *out, size_t size)
{
    const size_t count = sizeof names / sizeof *names;
    for (size_t at = 0, i; *text;) {
        for (i = 0; i < count && strncmp(text, names[i][0], strlen(names[i][0])) != 0; i++) {}
        const char *word = i < count ? names[i][1] : text;
        append(out, size, &at, word, i < count ? strlen(word) : 1);
        text += i < count ? strlen(names[i][0]) : 1;
    }
}

PyObject *mr_py_raise(const mr_error *err)
{
    char text[sizeof err->text + 64] = "";
    PyObject *status = PyLong_FromLong(err->status);
    PyObject *kind = status && exceptions ? PyDict_GetItem(exceptions, status) : NULL;
    Py_XDECREF(status);
    translate(err->text, text, sizeof text);
    PyObject *sentence = mr_py_string(text);
    if (sentence) PyErr_SetObject(kind ? kind : PyExc_RuntimeError, sentence);
    Py_XDECREF(sentence);
    return NULL;
}

void mr_py_refuse(const char *format, ...)
{
    va_list arguments;
    PyObject *status = PyLong_FromLong(MR_EINVAL);
    PyObject *kind = status && exceptions ? PyDict_GetItem(exceptions, status) : NULL;
    Py_XDECREF(status);
    va_start(arguments, format);
    PyErr_FormatV(kind ? kind : PyExc_ValueError, format, arguments);
    va_end(arguments);
}

PyObject *mr_py_string(const char *text) { return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace"); }

static PyObject *set_exceptions(PyObject *self, PyObject *by_status)
{
    (void)self;
    if (!PyDict_Check(by_status)) return PyErr_Format(PyExc_TypeError, "a dict of status to exception is needed");
    Py_XDECREF(exceptions);
    Py_INCREF(by_status);
    exceptions = by_status;
    Py_RETURN_NONE;
}

int mr_py_count(const char *function, Py_ssize_t got, Py_ssize_t least, Py_ssize_t most)
{
    if (got >= least && got <= most) return 0;
    PyErr_Format(PyExc_TypeError, "%s takes %zd to %zd arguments, not %zd", function, least, most, got);
    return -1;
}

const char *mr_py_text(PyObject *object, const char *name)
{
    Py_ssize_t size;
    if (!PyUnicode_Check(object)) return mr_py_refuse("%s: must be a str", name), NULL;
    const char *text = PyUnicode_AsUTF8AndSize(object, &size);
    if (!text) {
        PyErr_Clear();
        return mr_py_refuse("%s: has half a character (a lone surrogate)", name), NULL;
    }
    if (strlen(text) == (size_t)size) return text;
    return mr_py_refuse("%s: has a zero byte", name), NULL;
}

const char *mr_py_path(PyObject *object)
{
    char *path;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(object, &path, &size)) return NULL;
    if (strlen(path) == (size_t)size) return path;
    return mr_py_refuse("path: has a zero byte"), NULL;
}

int32_t mr_py_int(PyObject *object, const char *name)
{
    int over;
    const long long v = PyLong_AsLongLongAndOverflow(object, &over);
    if (!over && v >= INT32_MIN && v <= INT32_MAX) return (int32_t)v; /* −1 also after an error, which stays set */
    mr_py_refuse("%s: %R is too large", name, object);
    return -1;
}

static int borrow_address(PyObject *object, const char *name, py_array *out)
{
    out->at = PyLong_AsVoidPtr(object);
    if (!PyErr_Occurred()) return 0;
    mr_py_refuse("%s: not an address", name);
    return -1;
}

int mr_py_borrow(PyObject *object, const char *name, size_t count, size_t size, int writable, py_array *out)
{
    *out = (py_array){0};
    if (!object || object == Py_None) return 0;
    if (PyLong_Check(object)) return borrow_address(object, name, out);
    if (PyObject_GetBuffer(object, &out->buffer, PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0))) {
        PyErr_Clear();
        mr_py_refuse("%s: must be a contiguous %sarray", name, writable ? "writable " : "");
        return -1;
    }
    out->held = 1;
    out->at = out->buffer.buf;
    out->bytes = (size_t)out->buffer.len;
    if (out->bytes == count * size && (size_t)out->buffer.itemsize == size) return 0;
    mr_py_refuse("%s: has %zu elements of %zd bytes, where %zu of %zu are needed", name,
                 out->bytes / (size_t)(out->buffer.itemsize ? out->buffer.itemsize : 1), out->buffer.itemsize, count,
                 size);
    mr_py_return(out, 1);
    return -1;
}

void mr_py_return(py_array *arrays, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (arrays[i].held) PyBuffer_Release(&arrays[i].buffer), arrays[i].held = 0;
}

/* ---- what the build can do */

static PyObject *list_of(const char *const *texts)
{
    PyObject *list = PyList_New(0);
    for (; list && *texts; texts++) {
        PyObject *text = PyUnicode_FromString(*texts);
        if (!text || PyList_Append(list, text)) Py_CLEAR(list);
        Py_XDECREF(text);
    }
    return list;
}

static PyObject *build(PyObject *self, PyObject *none)
{
    (void)self, (void)none;
    return Py_BuildValue("{s:s,s:N,s:s}", "version", mr_version(), "isas", list_of(mr_cpu_isas()), "cuda",
                         mr_cuda_version());
}

static PyObject *one_key(const mr_key *key)
{
    static const char *const types[] = {"int", "real", "bool", "choice", "pair", "text"};
    static const char *const none[] = {NULL};
    return Py_BuildValue("{s:s,s:s,s:s,s:N,s:s,s:d,s:d,s:i}", "name", key->name, "type", types[key->type], "default",
                         key->fallback, "choices", list_of(key->choices ? key->choices : none), "help", key->help,
                         "min", key->min, "max", key->max, "flags", (int)key->flags);
}

static PyObject *keys(PyObject *self, PyObject *none)
{
    (void)self, (void)none;
    PyObject *list = PyList_New(0);
    for (int i = 0; list && mr_key_at(i); i++) {
        PyObject *key = one_key(mr_key_at(i));
        if (!key || PyList_Append(list, key)) Py_CLEAR(list);
        Py_XDECREF(key);
    }
    return list;
}

static PyObject *file_meta(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    (void)self;
    char text[4096];
    size_t needed;
    mr_error err;
    int status;
    if (mr_py_count("file_meta", n, 2, 2)) return NULL;
    const char *path = mr_py_path(args[0]), *key = path ? mr_py_text(args[1], "key") : NULL;
    if (!key) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = mr_file_meta(path, key, text, sizeof text, &needed, &err);
    Py_END_ALLOW_THREADS
    if (status) return mr_py_raise(&err);
    if (!needed) Py_RETURN_NONE;
    return mr_py_string(text);
}

/* ---- the module */

#define FAST(name, doc)                                                                                                \
    {                                                                                                                  \
#name, (PyCFunction)(void (*)(void))mr_py_##name, METH_FASTCALL, doc                                           \
    }
static PyMethodDef functions[] = {
    {"set_exceptions", set_exceptions, METH_O, "Sets the exceptions to raise, by status."},
    {"build", build, METH_NOARGS, "What this build can do."},
    {"keys", keys, METH_NOARGS, "All keys of models and training."},
    {"file_meta", (PyCFunction)(void (*)(void))file_meta, METH_FASTCALL, "file_meta(path, key): a metadata value."},
    FAST(context_new, "context_new(device, threads, bf16, exact): a Context."),
    FAST(net_open, "net_open(context, path): a Net."),
    FAST(net_open_bytes, "net_open_bytes(context, bytes): a Net."),
    FAST(net_create, "net_create(context, [key, value, ...]): a Net."),
    FAST(raw_scan, "The scan on arrays or addresses; see minrnn/scans.py."),
    FAST(raw_scan_workspace, "Bytes of workspace that raw_scan needs."),
    FAST(raw_cell, "A cell on arrays or addresses; see minrnn/scans.py."),
    FAST(raw_cell_sizes, "Bytes of `saved` and of workspace that raw_cell needs."),
    {0}};

/* The types and exceptions are those of one interpreter: another one's `except` would not know them. */
static int take_process(void)
{
    static int64_t owner = -1;
    const int64_t id = PyInterpreterState_GetID(PyInterpreterState_Get());
    if (owner < 0) owner = id;
    if (owner == id) return 0;
    PyErr_SetString(PyExc_ImportError, "minrnn serves one interpreter of a process, and another one has it already");
    return -1;
}

static int fill(PyObject *module)
{
    if (take_process() || mr_py_add_context(module) || mr_py_add_net(module)) return -1;
    return mr_py_add_stream(module);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)fill}, {0}};

static PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "minrnn._core",
                                 .m_doc = "minrnn's C library. Use the package minrnn.", .m_methods = functions,
                                 .m_slots = slots};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&definition); }
