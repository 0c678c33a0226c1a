/* What the files around nets share: the methods that net.c lists. */
#ifndef MR_PYTHON_NET_H
#define MR_PYTHON_NET_H

#include "core.h"

#define NET_FAST(name) PyObject *mr_py_net_##name(PyObject *self, PyObject *const *args, Py_ssize_t n)
#define NET_PLAIN(name) PyObject *mr_py_net_##name(PyObject *self, PyObject *none)

/* tensors.c */
NET_PLAIN(tensors);
NET_FAST(get);
NET_FAST(put);
NET_FAST(view);
int mr_py_add_view(PyObject *module);
/* learn.c */
NET_FAST(run);
NET_FAST(learn);
NET_FAST(backward);
NET_PLAIN(update);
PyObject *mr_py_net_drop(PyObject *self, PyObject *gradients);
NET_PLAIN(mark_best);
NET_PLAIN(forget_carry);
NET_FAST(fit_scaler);
NET_FAST(scaler);
NET_FAST(set_scaler);
/* stream.c */
NET_PLAIN(stream);

#endif
