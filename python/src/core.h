/* What the files of the extension share. It is built against Python's limited API, so that one file serves all
 * versions from 3.11 on, and against minrnn's public headers alone. */
#ifndef MR_PYTHON_CORE_H
#define MR_PYTHON_CORE_H

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "minrnn_experimental.h"

typedef struct py_context {
    PyObject_HEAD mr_context *ctx;
    /* workspaces of raw calls on the host that are not in use, largest last */
    struct py_room {
        void *at;
        size_t size;
    } rooms[8];
    int room_count;
} py_context;

typedef struct py_net {
    PyObject_HEAD mr_net *net;
    PyObject *context;
} py_net;

extern PyTypeObject *mr_py_context_type, *mr_py_net_type, *mr_py_stream_type, *mr_py_view_type;

/* Raises the exception for what the library said. Returns NULL. */
PyObject *mr_py_raise(const mr_error *err);
/* Raises minrnn.InvalidArgument with a sentence as PyErr_Format makes it. */
void mr_py_refuse(const char *format, ...);
/* The library's text as a str; what is not UTF-8, such as the name of a file, becomes U+FFFD. */
PyObject *mr_py_string(const char *text);

/* An array that a call borrows: from an object with a buffer, an address as an int, or None. */
typedef struct py_array {
    void *at;
    size_t bytes; /* 0: an address, whose size nobody knows */
    Py_buffer buffer;
    int held;
} py_array;

/* Borrows `object` as `count` elements of `size` bytes; writable: it is written to. Returns 0, or −1 with an exception
 * that names the argument. An object that is absent (NULL) or None gives NULL. */
int mr_py_borrow(PyObject *object, const char *name, size_t count, size_t size, int writable, py_array *out);
void mr_py_return(py_array *arrays, size_t n);

/* Module functions of each file, for the module's table. */
#define PY_FUNCTION(name) PyObject *mr_py_##name(PyObject *self, PyObject *const *args, Py_ssize_t n)
PY_FUNCTION(context_new);
PY_FUNCTION(net_open);
PY_FUNCTION(net_open_bytes);
PY_FUNCTION(net_create);
PY_FUNCTION(raw_scan);
PY_FUNCTION(raw_scan_workspace);
PY_FUNCTION(raw_cell);
PY_FUNCTION(raw_cell_sizes);

/* Makes the types; −1 with an exception. */
int mr_py_add_context(PyObject *module);
int mr_py_add_net(PyObject *module);
int mr_py_add_stream(PyObject *module);
PyObject *mr_py_stream_of(py_net *net);

/* Checks how many arguments there are; 0, or −1 with an exception. */
int mr_py_count(const char *function, Py_ssize_t got, Py_ssize_t least, Py_ssize_t most);
/* An int of 32 bits. −1 with an exception: ask PyErr_Occurred. */
int32_t mr_py_int(PyObject *object, const char *name);
/* A zero-terminated UTF-8 text in `object`, which owns it. NULL with an exception. */
const char *mr_py_text(PyObject *object, const char *name);
/* The same of a path, which is bytes, as os.fsencode makes them. */
const char *mr_py_path(PyObject *object);

/* A batch from the tuple (B, T, ids, values, reset, length, target, target_values, mask). */
enum { PY_BATCH_ARRAYS = 7 };
typedef struct py_batch {
    mr_batch batch;
    py_array arrays[PY_BATCH_ARRAYS];
} py_batch;
int mr_py_take_batch(const mr_net *net, PyObject *tuple, py_batch *out);
void mr_py_drop_batch(py_batch *batch);

#endif
