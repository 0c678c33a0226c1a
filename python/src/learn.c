/* Nets at work on batches: scores, losses, training. */
#include "net.h"

typedef enum running { RUN_FORWARD, RUN_KEEP, RUN_LOSSES } running;

static int run_batch(mr_net *net, running what, const mr_batch *batch, float *out, size_t capacity, mr_error *err)
{
    if (what == RUN_KEEP) return mr_net_keep_forward(net, batch, NULL, out, capacity, err);
    return (what == RUN_LOSSES ? mr_net_losses : mr_net_forward)(net, batch, out, capacity, err);
}

NET_FAST(run)
{
    mr_net *net = ((py_net *)self)->net;
    py_batch batch;
    py_array out;
    mr_error err;
    int status;
    if (mr_py_count("run", n, 3, 3)) return NULL;
    const long what = PyLong_AsLong(args[0]);
    if (PyErr_Occurred() || mr_py_take_batch(net, args[1], &batch)) return NULL;
    const size_t rows = mr_net_rows(net, batch.batch.B, batch.batch.T);
    const size_t count = what == RUN_LOSSES ? rows : rows * (size_t)mr_net_outputs(net);
    if (mr_py_borrow(args[2], "out", count, sizeof(float), 1, &out)) {
        mr_py_drop_batch(&batch);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = run_batch(net, (running)what, &batch.batch, out.at, count, &err);
    Py_END_ALLOW_THREADS
    mr_py_return(&out, 1);
    mr_py_drop_batch(&batch);
    if (status) return mr_py_raise(&err);
    Py_RETURN_NONE;
}

static PyObject *result_of(const mr_result *r)
{
    return Py_BuildValue("(ddddLL)", r->loss, r->accuracy, r->grad_norm, r->lr, (long long)r->rows, (long long)r->step);
}

typedef enum learning { TRAIN, EVALUATE, MICRO } learning;

NET_FAST(learn)
{
    mr_net *net = ((py_net *)self)->net;
    mr_learn_options options = MR_LEARN_OPTIONS;
    mr_result result = MR_RESULT;
    py_batch batch;
    mr_error err;
    int status;
    if (mr_py_count("learn", n, 6, 6)) return NULL;
    const long what = PyLong_AsLong(args[0]);
    options.micro = mr_py_int(args[2], "micro"), options.micros = mr_py_int(args[3], "accumulate");
    options.carry = PyObject_IsTrue(args[4]), options.progress = PyFloat_AsDouble(args[5]);
    if (PyErr_Occurred() || mr_py_take_batch(net, args[1], &batch)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = what == EVALUATE ? mr_net_evaluate(net, &batch.batch, &result, &err)
             : what == TRAIN  ? mr_net_train(net, &batch.batch, &result, &err)
                              : mr_net_learn(net, &batch.batch, &options, &result, &err);
    Py_END_ALLOW_THREADS
    mr_py_drop_batch(&batch);
    return status ? mr_py_raise(&err) : result_of(&result);
}

NET_FAST(backward)
{
    py_array scores;
    mr_error err;
    int status;
    if (mr_py_count("backward", n, 2, 2)) return NULL;
    const size_t count = PyLong_AsSize_t(args[1]);
    if (PyErr_Occurred() || mr_py_borrow(args[0], "dscores", count, sizeof(float), 0, &scores)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = mr_net_backward(((py_net *)self)->net, scores.at, count, &err);
    Py_END_ALLOW_THREADS
    mr_py_return(&scores, 1);
    if (status) return mr_py_raise(&err);
    Py_RETURN_NONE;
}

NET_PLAIN(update)
{
    (void)none;
    mr_result result = MR_RESULT;
    mr_error err;
    int status;
    Py_BEGIN_ALLOW_THREADS
    status = mr_net_update(((py_net *)self)->net, &result, &err);
    Py_END_ALLOW_THREADS
    return status ? mr_py_raise(&err) : result_of(&result);
}

/* drop(gradients) */
PyObject *mr_py_net_drop(PyObject *self, PyObject *gradients)
{
    mr_net *net = ((py_net *)self)->net;
    const int both = PyObject_IsTrue(gradients);
    Py_BEGIN_ALLOW_THREADS
    mr_net_drop(net);
    if (both) mr_net_drop_gradients(net);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

NET_PLAIN(mark_best)
{
    (void)none;
    mr_error err;
    int status;
    Py_BEGIN_ALLOW_THREADS
    status = mr_net_mark_best(((py_net *)self)->net, &err);
    Py_END_ALLOW_THREADS
    if (status) return mr_py_raise(&err);
    Py_RETURN_NONE;
}

NET_FAST(fit_scaler)
{
    mr_net *net = ((py_net *)self)->net;
    py_batch batch;
    mr_error err;
    int status;
    if (mr_py_count("fit_scaler", n, 1, 1) || mr_py_take_batch(net, args[0], &batch)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = mr_net_fit_scaler(net, &batch.batch, &err);
    Py_END_ALLOW_THREADS
    mr_py_drop_batch(&batch);
    if (status) return mr_py_raise(&err);
    Py_RETURN_NONE;
}

NET_PLAIN(forget_carry)
{
    (void)none;
    Py_BEGIN_ALLOW_THREADS
    mr_net_forget_carry(((py_net *)self)->net);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* ---- the scaler: its four vectors of doubles, in the order of the library's calls */

enum { SCALER = 4 };

static int take_scaler(const mr_net *net, PyObject *const *args, Py_ssize_t n, int written, py_array *at)
{
    static const char *const names[SCALER] = {"input_mean", "input_scale", "target_mean", "target_scale"};
    if (mr_py_count("the scaler", n, SCALER, SCALER)) return -1;
    for (int i = 0; i < SCALER; i++) {
        const int count = i < 2 ? mr_net_inputs(net) : mr_net_outputs(net);
        if (!mr_py_borrow(args[i], names[i], (size_t)count, sizeof(double), written, &at[i])) continue;
        mr_py_return(at, (size_t)i);
        return -1;
    }
    return 0;
}

NET_FAST(scaler)
{
    const mr_net *net = ((py_net *)self)->net;
    const size_t inputs = (size_t)mr_net_inputs(net), outputs = (size_t)mr_net_outputs(net);
    py_array at[SCALER];
    mr_error err;
    int which;
    if (take_scaler(net, args, n, 1, at)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    which = mr_net_scaler(net, at[0].at, at[1].at, inputs, at[2].at, at[3].at, outputs, &err);
    Py_END_ALLOW_THREADS
    mr_py_return(at, SCALER);
    return which < 0 ? mr_py_raise(&err) : PyLong_FromLong(which);
}

NET_FAST(set_scaler)
{
    mr_net *net = ((py_net *)self)->net;
    py_array at[SCALER];
    mr_error err;
    int status;
    if (take_scaler(net, args, n, 0, at)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = mr_net_set_scaler(net, at[0].at, at[1].at, at[2].at, at[3].at, &err);
    Py_END_ALLOW_THREADS
    mr_py_return(at, SCALER);
    if (status) return mr_py_raise(&err);
    Py_RETURN_NONE;
}
