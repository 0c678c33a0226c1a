/* Streams: one sequence and its state. Only one call at a time may use a stream, so a second one is refused. */
#include "net.h"

#include <stdlib.h>

PyTypeObject *mr_py_stream_type;

typedef struct py_stream {
    PyObject_HEAD mr_stream *stream;
    PyObject *net;
    int busy;
} py_stream;

static mr_net *net_of(const py_stream *s) { return ((py_net *)s->net)->net; }

static py_stream *new_stream(PyObject *net)
{
    py_stream *s = (py_stream *)PyType_GenericAlloc(mr_py_stream_type, 0);
    if (!s) return NULL;
    Py_INCREF(net);
    s->net = net;
    return s;
}

static PyObject *made(py_stream *s, int status, const mr_error *err)
{
    if (!status) return (PyObject *)s;
    Py_DECREF(s);
    return mr_py_raise(err);
}

NET_PLAIN(stream)
{
    (void)none;
    mr_error err;
    int status;
    py_stream *s = new_stream(self);
    if (!s) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = mr_stream_new(net_of(s), &s->stream, &err);
    Py_END_ALLOW_THREADS
    return made(s, status, &err);
}

static void stream_free(PyObject *self)
{
    py_stream *s = (py_stream *)self;
    PyTypeObject *type = Py_TYPE(self);
    Py_BEGIN_ALLOW_THREADS
    mr_stream_free(s->stream);
    Py_END_ALLOW_THREADS
    Py_XDECREF(s->net);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* Begins a call; −1 with an exception if another thread is in one. */
static int begin(py_stream *s)
{
    if (!s->busy) return s->busy = 1, 0;
    PyErr_SetString(PyExc_RuntimeError, "this stream is in use by another thread");
    return -1;
}

static PyObject *end(py_stream *s, int status, const mr_error *err)
{
    s->busy = 0;
    if (status) return mr_py_raise(err);
    Py_RETURN_NONE;
}

static PyObject *clone(PyObject *self, PyObject *none)
{
    (void)none;
    py_stream *from = (py_stream *)self;
    mr_error err;
    if (begin(from)) return NULL;
    int status = 0;
    py_stream *s = new_stream(from->net);
    if (s) {
        Py_BEGIN_ALLOW_THREADS
        status = mr_stream_clone(from->stream, &s->stream, &err);
        Py_END_ALLOW_THREADS
    }
    from->busy = 0;
    return s ? made(s, status, &err) : NULL;
}

static PyObject *reset(PyObject *self, PyObject *none)
{
    (void)none;
    py_stream *s = (py_stream *)self;
    if (begin(s)) return NULL;
    mr_stream_reset(s->stream);
    return end(s, 0, NULL);
}

/* step(token, out) */
static PyObject *step(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    py_stream *s = (py_stream *)self;
    py_array out;
    mr_error err;
    int status;
    if (mr_py_count("step", n, 2, 2)) return NULL;
    const int32_t token = mr_py_int(args[0], "token");
    const size_t outputs = (size_t)mr_net_outputs(net_of(s));
    if (PyErr_Occurred() || mr_py_borrow(args[1], "out", outputs, sizeof(float), 1, &out)) return NULL;
    if (begin(s)) return mr_py_return(&out, 1), NULL;
    Py_BEGIN_ALLOW_THREADS
    status = mr_stream_step(s->stream, token, out.at, outputs, &err);
    Py_END_ALLOW_THREADS
    mr_py_return(&out, 1);
    return end(s, status, &err);
}

/* feed(array, count, is_values, out): the scores after the last one */
static PyObject *feed(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    py_stream *s = (py_stream *)self;
    py_array a[2];
    mr_error err;
    int status;
    if (mr_py_count("feed", n, 4, 4)) return NULL;
    const size_t count = PyLong_AsSize_t(args[1]), outputs = (size_t)mr_net_outputs(net_of(s));
    const int values = PyObject_IsTrue(args[2]);
    const size_t width = values ? (size_t)mr_net_inputs(net_of(s)) : 1;
    if (PyErr_Occurred() || mr_py_borrow(args[0], values ? "values" : "tokens", count * width, 4, 0, &a[0]))
        return NULL;
    if (mr_py_borrow(args[3], "out", outputs, sizeof(float), 1, &a[1]) || begin(s)) return mr_py_return(a, 2), NULL;
    Py_BEGIN_ALLOW_THREADS
    status = values ? mr_stream_feed_values(s->stream, a[0].at, count, a[1].at, outputs, &err)
                    : mr_stream_feed(s->stream, a[0].at, count, a[1].at, outputs, &err);
    Py_END_ALLOW_THREADS
    mr_py_return(a, 2);
    return end(s, status, &err);
}

/* sample(tokens, n, drawn, count, temperature, top_p, top_k, seed, position) */
static PyObject *sample(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    py_stream *s = (py_stream *)self;
    mr_sample_options how = MR_SAMPLE_OPTIONS;
    py_array a[2] = {{0}};
    mr_error err;
    int status;
    if (mr_py_count("sample", n, 9, 9)) return NULL;
    const size_t fed = PyLong_AsSize_t(args[1]), count = PyLong_AsSize_t(args[3]);
    how.temperature = PyFloat_AsDouble(args[4]), how.top_p = PyFloat_AsDouble(args[5]);
    how.top_k = mr_py_int(args[6], "top_k"), how.seed = PyLong_AsUnsignedLongLong(args[7]);
    how.position = PyLong_AsUnsignedLongLong(args[8]);
    if (PyErr_Occurred() || mr_py_borrow(args[0], "tokens", fed, 4, 0, &a[0])) return NULL;
    if (mr_py_borrow(args[2], "drawn", count, 4, 1, &a[1]) || begin(s)) return mr_py_return(a, 2), NULL;
    Py_BEGIN_ALLOW_THREADS
    status = mr_stream_sample(s->stream, a[0].at, fed, &how, a[1].at, count, &err);
    Py_END_ALLOW_THREADS
    mr_py_return(a, 2);
    return end(s, status, &err);
}

/* score(tokens, targets, n, losses) */
static PyObject *score(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    py_stream *s = (py_stream *)self;
    py_array a[3] = {{0}};
    mr_error err;
    int status;
    if (mr_py_count("score", n, 4, 4)) return NULL;
    const size_t count = PyLong_AsSize_t(args[2]);
    if (PyErr_Occurred() || mr_py_borrow(args[0], "tokens", count, 4, 0, &a[0]) ||
        mr_py_borrow(args[1], "targets", count, 4, 0, &a[1]) || mr_py_borrow(args[3], "losses", count, 4, 1, &a[2]) ||
        begin(s))
        return mr_py_return(a, 3), NULL;
    Py_BEGIN_ALLOW_THREADS
    status = mr_stream_score(s->stream, a[0].at, a[1].at, count, a[2].at, count, &err);
    Py_END_ALLOW_THREADS
    mr_py_return(a, 3);
    return end(s, status, &err);
}

static PyObject *save(PyObject *self, PyObject *none)
{
    (void)none;
    py_stream *s = (py_stream *)self;
    mr_error err;
    const size_t size = mr_stream_state_size(s->stream);
    int status;
    if (begin(s)) return NULL;
    char *blob = malloc(size);
    if (!blob) return s->busy = 0, PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS
    status = mr_stream_save(s->stream, blob, size, &err);
    Py_END_ALLOW_THREADS
    s->busy = 0;
    PyObject *out = status ? mr_py_raise(&err) : PyBytes_FromStringAndSize(blob, (Py_ssize_t)size);
    free(blob);
    return out;
}

static PyObject *load(PyObject *self, PyObject *bytes)
{
    py_stream *s = (py_stream *)self;
    char *blob;
    Py_ssize_t size;
    mr_error err;
    int status;
    if (PyBytes_AsStringAndSize(bytes, &blob, &size) || begin(s)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = mr_stream_load(s->stream, blob, (size_t)size, &err);
    Py_END_ALLOW_THREADS
    return end(s, status, &err);
}

#define FAST(name, doc)                                                                                                \
    {                                                                                                                  \
#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, doc                                                   \
    }
static PyMethodDef methods[] = {{"clone", clone, METH_NOARGS, "Another stream with the same state."},
                                {"reset", reset, METH_NOARGS, "Starts a new sequence."},
                                FAST(step, "step(token, out)."),
                                FAST(feed, "feed(array, count, is_values, out)."),
                                FAST(sample, "Feeds tokens and samples."),
                                FAST(score, "score(tokens, targets, n, losses)."),
                                {"save", save, METH_NOARGS, "The state as bytes."},
                                {"load", load, METH_O, "Loads a state."},
                                {0}};
static PyType_Slot slots[] = {{Py_tp_dealloc, (void *)stream_free},
                              {Py_tp_methods, methods},
                              {Py_tp_doc, "One sequence and its state. Use Model.stream()."},
                              {0}};
static PyType_Spec spec = {"minrnn._core.Stream", sizeof(py_stream), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

int mr_py_add_stream(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &spec, NULL);
    mr_py_stream_type = (PyTypeObject *)type;
    return type ? PyModule_AddObjectRef(module, "Stream", type) : -1;
}
