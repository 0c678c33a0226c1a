/* Tensors of a net by name: listed, copied, and seen in their own memory. */
#include "net.h"

NET_PLAIN(tensors)
{
    (void)none;
    const mr_net *net = ((py_net *)self)->net;
    PyObject *list = PyList_New(0);
    for (int i = 0; list && i < mr_net_tensors(net); i++) {
        mr_tensor t = MR_TENSOR;
        mr_net_tensor(net, i, &t, NULL);
        PyObject *shape = PyTuple_New(t.ndim);
        for (int k = 0; shape && k < t.ndim; k++) PyTuple_SetItem(shape, k, PyLong_FromLongLong(t.shape[k]));
        PyObject *item = shape ? Py_BuildValue("(ssN)", t.name, t.dtype, shape) : NULL;
        if (!item || PyList_Append(list, item)) Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

/* Finds a tensor; −1 with an exception. */
static int find(const mr_net *net, const char *name, mr_tensor *out)
{
    for (int i = 0; i < mr_net_tensors(net); i++) {
        *out = (mr_tensor)MR_TENSOR;
        mr_net_tensor(net, i, out, NULL);
        const char *a = out->name, *b = name;
        while (*a && *a == *b) a++, b++;
        if (!*a && !*b) return 0;
    }
    PyErr_Format(PyExc_KeyError, "%s: there is no such tensor", name);
    return -1;
}

/* Takes which, name and an array of the tensor's size. */
static int take(const mr_net *net, PyObject *const *args, Py_ssize_t n, int written, long *which, mr_tensor *t,
                py_array *array)
{
    if (mr_py_count("get or put", n, 3, 3)) return -1;
    const char *name = mr_py_text(args[1], "name");
    *which = PyLong_AsLong(args[0]);
    if (!name || PyErr_Occurred() || find(net, name, t)) return -1;
    return mr_py_borrow(args[2], name, t->count, sizeof(float), written, array);
}

/* Copies a tensor into an array, or with `into_net` the other way. */
static PyObject *copy(PyObject *self, PyObject *const *args, Py_ssize_t n, int into_net)
{
    mr_net *net = ((py_net *)self)->net;
    mr_tensor t;
    py_array array;
    mr_error err;
    long which;
    int status;
    if (take(net, args, n, !into_net, &which, &t, &array)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = into_net ? mr_net_put(net, (mr_vector)which, t.name, array.at, t.count, &err)
                      : mr_net_get(net, (mr_vector)which, t.name, array.at, t.count, &err);
    Py_END_ALLOW_THREADS
    mr_py_return(&array, 1);
    if (status) return mr_py_raise(&err);
    Py_RETURN_NONE;
}

NET_FAST(get) { return copy(self, args, n, 0); }
NET_FAST(put) { return copy(self, args, n, 1); }

/* ---- views: an object whose buffer is the tensor itself; it keeps the net alive */

enum { DIMS = 4 };

typedef struct py_view {
    PyObject_HEAD PyObject *net;
    float *data;
    int ndim;
    Py_ssize_t shape[DIMS], strides[DIMS], bytes;
} py_view;

NET_FAST(view)
{
    py_net *net = (py_net *)self;
    mr_tensor t;
    mr_error err;
    float *data;
    int status;
    if (mr_py_count("view", n, 2, 2)) return NULL;
    const long which = PyLong_AsLong(args[0]);
    const char *name = PyErr_Occurred() ? NULL : mr_py_text(args[1], "name");
    if (!name || find(net->net, name, &t)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = mr_net_view(net->net, (mr_vector)which, name, &data, &err);
    Py_END_ALLOW_THREADS
    if (status) return mr_py_raise(&err);
    py_view *view = (py_view *)PyType_GenericAlloc(mr_py_view_type, 0);
    if (!view) return NULL;
    Py_INCREF(self);
    view->net = self, view->data = data, view->ndim = t.ndim;
    view->bytes = (Py_ssize_t)(t.count * sizeof(float));
    Py_ssize_t stride = sizeof(float);
    for (int i = t.ndim - 1; i >= 0; i--) {
        view->shape[i] = (Py_ssize_t)t.shape[i];
        view->strides[i] = stride;
        stride *= view->shape[i];
    }
    return (PyObject *)view;
}

static int view_buffer(PyObject *self, Py_buffer *out, int flags)
{
    py_view *view = (py_view *)self;
    if (PyBuffer_FillInfo(out, self, view->data, view->bytes, 0, flags)) return -1;
    out->itemsize = sizeof(float);
    if (flags & PyBUF_FORMAT) out->format = "f";
    if ((flags & PyBUF_ND) == PyBUF_ND) out->ndim = view->ndim, out->shape = view->shape;
    if ((flags & PyBUF_STRIDES) == PyBUF_STRIDES) out->strides = view->strides;
    return 0;
}

static void view_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(((py_view *)self)->net);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyType_Slot slots[] = {{Py_tp_dealloc, (void *)view_free},
                              {Py_bf_getbuffer, (void *)view_buffer},
                              {Py_tp_doc, "A tensor of a net, in its own memory."},
                              {0}};
static PyType_Spec spec = {"minrnn._core.View", sizeof(py_view), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

int mr_py_add_view(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &spec, NULL);
    mr_py_view_type = (PyTypeObject *)type;
    return type ? PyModule_AddObjectRef(module, "View", type) : -1;
}
