/* Contexts, and the raw calls on arrays: the scan and the cells alone. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

PyTypeObject *mr_py_context_type;

/* ---- contexts */

PY_FUNCTION(context_new)
{
    (void)self;
    mr_context_options options = MR_CONTEXT_OPTIONS;
    mr_error err;
    if (mr_py_count("context_new", n, 4, 4)) return NULL;
    if (!(options.device = mr_py_text(args[0], "device"))) return NULL;
    options.threads = mr_py_int(args[1], "threads");
    options.bf16 = PyObject_IsTrue(args[2]);
    options.exact = PyObject_IsTrue(args[3]);
    if (PyErr_Occurred()) return NULL;
    py_context *c = (py_context *)PyType_GenericAlloc(mr_py_context_type, 0);
    int status;
    if (!c) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = mr_context_new(&options, &c->ctx, &err);
    Py_END_ALLOW_THREADS
    if (!status) return (PyObject *)c;
    Py_DECREF(c);
    return mr_py_raise(&err);
}

static void context_free(PyObject *self)
{
    py_context *c = (py_context *)self;
    PyTypeObject *type = Py_TYPE(self);
    for (int i = 0; i < c->room_count; i++) free(c->rooms[i].at);
    Py_BEGIN_ALLOW_THREADS
    mr_context_free(c->ctx);
    Py_END_ALLOW_THREADS
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *context_describe(PyObject *self, PyObject *none)
{
    (void)none;
    mr_context *ctx = ((py_context *)self)->ctx;
    return Py_BuildValue("{s:s,s:s,s:i}", "device", mr_context_device(ctx), "chip", mr_context_chip(ctx), "threads",
                         mr_context_threads(ctx));
}

static PyObject *context_wait(PyObject *self, PyObject *none)
{
    (void)none;
    mr_error err;
    int status;
    Py_BEGIN_ALLOW_THREADS
    status = mr_context_wait(((py_context *)self)->ctx, &err);
    Py_END_ALLOW_THREADS
    if (status) return mr_py_raise(&err);
    Py_RETURN_NONE;
}

static PyMethodDef context_methods[] = {
    {"describe", context_describe, METH_NOARGS, "Device, chip and threads."},
    {"wait", context_wait, METH_NOARGS, "Waits until all work in the context's own stream is done."},
    {0}};

static PyType_Slot context_slots[] = {{Py_tp_dealloc, (void *)context_free},
                                      {Py_tp_methods, context_methods},
                                      {Py_tp_doc, "A device and its threads."},
                                      {0}};
static PyType_Spec context_spec = {"minrnn._core.Context", sizeof(py_context), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, context_slots};

int mr_py_add_context(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &context_spec, NULL);
    mr_py_context_type = (PyTypeObject *)type;
    return type ? PyModule_AddObjectRef(module, "Context", type) : -1;
}

/* ---- workspaces: kept for the next call, because fresh memory costs a page fault for every 4 KiB */

static void *take_room(py_context *c, size_t *size)
{
    const size_t wanted = *size;
    for (int i = 0; i < c->room_count; i++)
        if (c->rooms[i].size >= wanted) {
            void *at = c->rooms[i].at;
            *size = c->rooms[i].size;
            memmove(&c->rooms[i], &c->rooms[i + 1], (size_t)(--c->room_count - i) * sizeof *c->rooms);
            return at;
        }
    *size = (wanted + 63) / 64 * 64;
    return aligned_alloc(64, *size);
}

static void give_room(py_context *c, void *at, size_t size)
{
    const int most = (int)(sizeof c->rooms / sizeof *c->rooms);
    int i = 0;
    if (!at) return;
    if (c->room_count == most) { /* the smallest goes */
        free(c->rooms[0].at);
        memmove(c->rooms, c->rooms + 1, (size_t)--c->room_count * sizeof *c->rooms);
    }
    while (i < c->room_count && c->rooms[i].size < size) i++;
    memmove(&c->rooms[i + 1], &c->rooms[i], (size_t)(c->room_count++ - i) * sizeof *c->rooms);
    c->rooms[i] = (struct py_room){at, size};
}

/* ---- arguments of raw calls */

static py_context *context_of(PyObject *object)
{
    if (Py_IS_TYPE(object, mr_py_context_type)) return (py_context *)object;
    PyErr_SetString(PyExc_TypeError, "context: must be a Context");
    return NULL;
}

/* `count` ints from args on. */
static int take_ints(PyObject *const *args, int count, const char *what, int *out)
{
    for (int i = 0; i < count; i++) {
        const long v = PyLong_AsLong(args[i]);
        if (PyErr_Occurred()) return -1;
        if (v < 0 || v > INT32_MAX) {
            mr_py_refuse("%s: %ld is not a size", what, v);
            return -1;
        }
        out[i] = (int)v;
    }
    return 0;
}

static size_t act_size(mr_dtype dtype) { return dtype == MR_F64 ? 8 : dtype == MR_BF16 ? 2 : 4; }
static size_t wide_size(mr_dtype dtype) { return dtype == MR_F64 ? 8 : 4; }

/* What an argument is: its name, elements, their size, and whether it is written. */
typedef struct item {
    const char *name;
    size_t count, size;
    int written;
} item;

static int borrow_all(PyObject *const *args, const item *items, int count, py_array *arrays)
{
    for (int i = 0; i < count; i++)
        if (mr_py_borrow(args[i], items[i].name, items[i].count, items[i].size, items[i].written, &arrays[i])) {
            mr_py_return(arrays, (size_t)i + 1);
            return -1;
        }
    return 0;
}

typedef enum call { FORWARD, BACKWARD, STEP } call;

/* ---- the scan */

/* What a call needs. The library may have to wait for a device, so other threads run meanwhile. */
static size_t scan_room(py_context *c, const mr_scan_args *a)
{
    size_t size;
    Py_BEGIN_ALLOW_THREADS
    size = mr_scan_workspace(c->ctx, a);
    Py_END_ALLOW_THREADS
    return size;
}

enum { SCAN_INTS = 5, SCAN_ARRAYS = 12 };

PY_FUNCTION(raw_scan_workspace)
{
    (void)self;
    int v[4];
    if (mr_py_count("raw_scan_workspace", n, 5, 5) || !context_of(args[0]) || take_ints(args + 1, 4, "scan", v))
        return NULL;
    mr_scan_args a = MR_SCAN_ARGS;
    a.dtype = (mr_dtype)v[0], a.B = v[1], a.T = v[2], a.H = v[3];
    return PyLong_FromSize_t(scan_room(context_of(args[0]), &a));
}

static int run_scan(py_context *c, call what, mr_scan_args *a, mr_error *err)
{
    int status;
    size_t size = a->workspace ? 0 : scan_room(c, a);
    void *own = size ? take_room(c, &size) : NULL;
    if (own) a->workspace = own, a->workspace_size = size;
    Py_BEGIN_ALLOW_THREADS
    status = (what == FORWARD ? mr_scan_forward : what == STEP ? mr_scan_step : mr_scan_backward)(c->ctx, a, err);
    Py_END_ALLOW_THREADS
    give_room(c, own, size);
    return status;
}

/* raw_scan(context, call, dtype, B, T, H, stream, a, b, h_in, reset, length, h, h_out, dh, dh_out, da, db, dh_in,
 * workspace, workspace_size) */
PY_FUNCTION(raw_scan)
{
    (void)self;
    int v[SCAN_INTS];
    py_array at[SCAN_ARRAYS];
    mr_error err;
    if (mr_py_count("raw_scan", n, 21, 21) || !context_of(args[0]) || take_ints(args + 1, SCAN_INTS, "scan", v))
        return NULL;
    mr_scan_args a = MR_SCAN_ARGS;
    a.dtype = (mr_dtype)v[1], a.B = v[2], a.T = v[3], a.H = v[4];
    const size_t act = act_size(a.dtype), wide = wide_size(a.dtype), B = (size_t)a.B, tokens = B * (size_t)a.T,
                 all = tokens * (size_t)a.H, states = B * (size_t)a.H;
    const int back = v[0] == BACKWARD;
    const item items[SCAN_ARRAYS] = {{"a", all, act, 0},          {"b", all, act, 0},  {"h0", states, wide, 0},
                                     {"reset", tokens, 1, 0},     {"length", B, 4, 0}, {"h", all, act, !back},
                                     {"h_last", states, wide, 1}, {"dh", all, act, 0}, {"dh_last", states, wide, 0},
                                     {"da", all, act, 1},         {"db", all, act, 1}, {"dh0", states, wide, 1}};
    a.stream = PyLong_AsVoidPtr(args[6]), a.workspace = PyLong_AsVoidPtr(args[19]);
    a.workspace_size = PyLong_AsSize_t(args[20]);
    if (PyErr_Occurred() || borrow_all(args + 7, items, SCAN_ARRAYS, at)) return NULL;
    a.a = at[0].at, a.b = at[1].at, a.h_in = at[2].at, a.reset = at[3].at, a.length = at[4].at, a.h = at[5].at;
    a.h_out = at[6].at, a.dh = at[7].at, a.dh_out = at[8].at, a.da = at[9].at, a.db = at[10].at, a.dh_in = at[11].at;
    const int status = run_scan(context_of(args[0]), (call)v[0], &a, &err);
    mr_py_return(at, SCAN_ARRAYS);
    if (status) return mr_py_raise(&err);
    Py_RETURN_NONE;
}

/* ---- the cells */

enum { CELL_INTS = 11, CELL_ARRAYS = 18 };

/* From the ints call, dtype, kind, candidate, scan, normalize, transition, B, T, D, H. */
static mr_cell_args cell_of(const int *v)
{
    mr_cell_args a = MR_CELL_ARGS;
    a.dtype = (mr_dtype)v[1], a.kind = (mr_cell_kind)v[2], a.candidate = (mr_candidate)v[3], a.scan = (mr_scan)v[4];
    a.normalize = v[5], a.transition = (mr_transition)v[6], a.B = v[7], a.T = v[8], a.D = v[9], a.H = v[10];
    return a;
}

/* What a call needs, or 0 for what is not asked for. Other threads run meanwhile, as in scan_room. */
typedef struct cell_rooms {
    size_t saved, workspace;
} cell_rooms;

static cell_rooms rooms_of(py_context *c, const mr_cell_args *a, call what, int saved, int workspace)
{
    cell_rooms rooms = {0, 0};
    if (!saved && !workspace) return rooms;
    Py_BEGIN_ALLOW_THREADS
    if (saved) rooms.saved = mr_cell_saved(c->ctx, a);
    if (workspace)
        rooms.workspace = (what == BACKWARD ? mr_cell_backward_workspace : mr_cell_forward_workspace)(c->ctx, a);
    Py_END_ALLOW_THREADS
    return rooms;
}

enum { WITH_WEIGHTS = 1, WITH_DX = 2 };

/* raw_cell_sizes(context, the ints of raw_cell, flags as above): (saved, workspace), for arrays aligned to 16 bytes */
PY_FUNCTION(raw_cell_sizes)
{
    (void)self;
    int v[CELL_INTS + 1];
    static const float something;
    if (mr_py_count("raw_cell_sizes", n, 13, 13) || !context_of(args[0]) ||
        take_ints(args + 1, CELL_INTS + 1, "cell", v))
        return NULL;
    mr_cell_args a = cell_of(v);
    if (v[CELL_INTS] & WITH_WEIGHTS) a.W = &something; /* only whether there is one counts here */
    else a.pre = &something;
    if (v[CELL_INTS] & WITH_DX) a.dx = (void *)&something;
    const cell_rooms rooms = rooms_of(context_of(args[0]), &a, (call)v[0], 1, 1);
    return Py_BuildValue("nn", (Py_ssize_t)rooms.saved, (Py_ssize_t)rooms.workspace);
}

static int run_cell(py_context *c, call what, mr_cell_args *a, mr_error *err)
{
    int status;
    const int keeps = what != BACKWARD && !a->saved; /* nobody will ask for the backward */
    const cell_rooms rooms = rooms_of(c, a, what, keeps, !a->workspace);
    size_t size = rooms.workspace, keep = rooms.saved;
    void *own = size ? take_room(c, &size) : NULL, *kept = keep ? take_room(c, &keep) : NULL;
    if (own) a->workspace = own, a->workspace_size = size;
    if (kept) a->saved = kept, a->saved_size = keep;
    Py_BEGIN_ALLOW_THREADS
    status = (what == FORWARD ? mr_cell_forward : what == STEP ? mr_cell_step : mr_cell_backward)(c->ctx, a, err);
    Py_END_ALLOW_THREADS
    give_room(c, own, size);
    give_room(c, kept, keep);
    return status;
}

static void describe_cell(const mr_cell_args *a, int back, int has_W, size_t saved, item items[CELL_ARRAYS])
{
    const size_t act = act_size(a->dtype), wide = wide_size(a->dtype), G = a->kind == MR_MINGRU ? 2 : 3;
    const size_t B = (size_t)a->B, tokens = B * (size_t)a->T, H = (size_t)a->H, D = (size_t)a->D, all = tokens * H;
    const item list[CELL_ARRAYS] = {{"x", tokens * D, act, 0},       {"weight", G * H * D, wide, 0},
                                    {"bias", G * H, wide, 0},        {"pre", all * G, act, 0},
                                    {"h0", B * H, wide, 0},          {"h_init", H, wide, 0},
                                    {"reset", tokens, 1, 0},         {"length", B, 4, 0},
                                    {"h", all, act, !back},          {"h_last", B * H, wide, 1},
                                    {"saved", saved, 1, 1},          {"dh", all, act, 0},
                                    {"dh_last", B * H, wide, 0},     {"dx", has_W ? tokens * D : all * G, act, 1},
                                    {"dweight", G * H * D, wide, 1}, {"dbias", G * H, wide, 1},
                                    {"dh0", B * H, wide, 1},         {"dh_init", H, wide, 1}};
    memcpy(items, list, sizeof list);
}

/* raw_cell(context, call, dtype, kind, candidate, scan, normalize, transition, B, T, D, H, stream, x, weight, bias,
 * pre, h0, h_init, reset, length, h, h_last, saved, dh, dh_last, dx (or dpre), dweight, dbias, dh0, dh_init,
 * saved_size, workspace, workspace_size). Gradients are overwritten; dx may be None beside a weight. */
PY_FUNCTION(raw_cell)
{
    (void)self;
    int v[CELL_INTS];
    py_array at[CELL_ARRAYS];
    item items[CELL_ARRAYS];
    mr_error err;
    if (mr_py_count("raw_cell", n, 34, 34) || !context_of(args[0]) || take_ints(args + 1, CELL_INTS, "cell", v))
        return NULL;
    mr_cell_args a = cell_of(v);
    a.stream = PyLong_AsVoidPtr(args[12]), a.saved_size = PyLong_AsSize_t(args[31]);
    a.workspace = PyLong_AsVoidPtr(args[32]), a.workspace_size = PyLong_AsSize_t(args[33]);
    const int has_W = args[14] != Py_None;
    describe_cell(&a, v[0] == BACKWARD, has_W, a.saved_size, items);
    if (PyErr_Occurred() || borrow_all(args + 13, items, CELL_ARRAYS, at)) return NULL;
    a.x = at[0].at, a.W = at[1].at, a.bias = at[2].at, a.pre = at[3].at, a.h_in = at[4].at, a.h_init = at[5].at;
    a.reset = at[6].at, a.length = at[7].at, a.h = at[8].at, a.h_out = at[9].at, a.saved = at[10].at;
    a.dh = at[11].at, a.dh_out = at[12].at, a.dW = at[14].at, a.dbias = at[15].at, a.dh_in = at[16].at;
    a.dh_init = at[17].at, a.fresh = 1;
    *(has_W ? &a.dx : &a.dpre) = at[13].at;
    const int status = run_cell(context_of(args[0]), (call)v[0], &a, &err);
    mr_py_return(at, CELL_ARRAYS);
    if (status) return mr_py_raise(&err);
    Py_RETURN_NONE;
}
