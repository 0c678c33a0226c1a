/* Batches from tuples of arrays. */
#include "core.h"

#include <string.h>

static int check_shape(int B, int T)
{
    if (B > 0 && T > 0) return 0;
    mr_py_refuse("batch: %d sequences of %d tokens; it needs one or more of each", B, T);
    return -1;
}

int mr_py_take_batch(const mr_net *net, PyObject *tuple, py_batch *out)
{
    static const char *const names[PY_BATCH_ARRAYS] = {"ids",    "values",        "reset", "length",
                                                       "target", "target_values", "mask"};
    memset(out, 0, sizeof *out);
    out->batch = (mr_batch)MR_BATCH;
    mr_batch *b = &out->batch;
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != PY_BATCH_ARRAYS + 2) {
        PyErr_SetString(PyExc_TypeError, "batch: must be a tuple of B, T and seven arrays");
        return -1;
    }
    b->B = mr_py_int(PyTuple_GetItem(tuple, 0), "batch");
    b->T = mr_py_int(PyTuple_GetItem(tuple, 1), "time");
    if (PyErr_Occurred() || check_shape(b->B, b->T)) return -1;
    const size_t B = (size_t)b->B, tokens = B * (size_t)b->T, rows = mr_net_rows(net, b->B, b->T),
                 inputs = (size_t)mr_net_inputs(net), outputs = (size_t)mr_net_outputs(net);
    const size_t counts[PY_BATCH_ARRAYS] = {tokens, tokens * inputs, tokens, B, rows, rows * outputs, rows};
    const size_t sizes[PY_BATCH_ARRAYS] = {4, 4, 1, 4, 4, 4, 1};
    for (int i = 0; i < PY_BATCH_ARRAYS; i++)
        if (mr_py_borrow(PyTuple_GetItem(tuple, i + 2), names[i], counts[i], sizes[i], 0, &out->arrays[i])) {
            mr_py_drop_batch(out);
            return -1;
        }
    b->ids = out->arrays[0].at, b->values = out->arrays[1].at, b->reset = out->arrays[2].at;
    b->length = out->arrays[3].at, b->target = out->arrays[4].at, b->target_values = out->arrays[5].at;
    b->mask = out->arrays[6].at;
    return 0;
}

void mr_py_drop_batch(py_batch *batch) { mr_py_return(batch->arrays, PY_BATCH_ARRAYS); }
