/* Tensors by name: listing them, copying them out and in. */
#include "api/api.h"

#include "model/quantize.h"

#include <math.h>
#include <string.h>

int mr_net_tensors(const mr_net *net) { return mr_model_params(net->owner)->count; }

int mr_net_tensor(const mr_net *net, int index, mr_tensor *out, mr_error *err)
{
    const mr_params *params = mr_model_params(net->owner);
    mr_tensor t = MR_TENSOR;
    if (index < 0 || index >= params->count)
        return mr_fail(err, MR_EINVAL, "tensor %d: this net has %d, numbered from 0", index, params->count);
    if (out->size < sizeof out->size)
        return mr_fail(err, MR_EINVAL, "mr_tensor: its size is not set; start from MR_TENSOR");
    const mr_param *p = &params->list[index];
    t.size = out->size;
    t.name = p->name;
    t.dtype = mr_model_dtype(net->owner, index);
    t.ndim = p->ndim;
    t.count = 1;
    for (int i = 0; i < p->ndim; i++) t.count *= (size_t)(t.shape[i] = p->shape[i]);
    memcpy(out, &t, out->size < sizeof t ? out->size : sizeof t);
    return 0;
}

/* Finds a tensor's row in the table, and checks that the vector exists. */
static int find(const mr_net *net, mr_vector which, const char *name, int *row, mr_error *err)
{
    if ((unsigned)which >= MR_VECTORS) return mr_fail(err, MR_EINVAL, "which = %d: no such vector", (int)which);
    *row = mr_params_find(mr_model_params(net->owner), name);
    if (*row < 0) return mr_fail(err, MR_EINVAL, "%.100s: no such tensor; mr_net_tensor lists them", name);
    if (mr_model_quants(net->owner) && which != MR_WEIGHTS)
        return mr_fail(err, MR_ECONFIG, "an 8-bit model has only weights: it cannot be trained");
    if (which != MR_BEST && !mr_model_has_whole(net->owner, which))
        return mr_fail(err, MR_EINVAL, "%.100s: ranks share the moments; mr_net_save_training gathers them", name);
    return 0;
}

/* Gradients and moments are made with the first plan for training. */
static int make_vectors(mr_net *net, mr_error *err)
{
    if (mr_model_fits(net->owner, 1, 1, 1)) return 0;
    net->last_batch.B = 0;
    return mr_model_plan(net->owner, 1, 1, 1, err);
}

/* Copies a tensor's part of a vector: out if `to` is set, in otherwise. */
static int move(mr_net *net, mr_vector which, int row, float *to, const float *from, mr_error *err)
{
    const mr_param *p = &mr_model_params(net->owner)->list[row];
    if (which == MR_BEST) {
        if (!net->best) return mr_fail(err, MR_EINVAL, "there are no best weights: call mr_net_mark_best first");
        if (to) memcpy(to, net->best + p->offset, p->count * sizeof *to);
        if (from) memcpy(net->best + p->offset, from, p->count * sizeof *from);
        return 0;
    }
    const int status = which == MR_WEIGHTS ? 0 : make_vectors(net, err);
    if (status) return status;
    if (to) mr_model_get_part(net->owner, which, p->offset, p->count, to);
    else mr_model_put_part(net->owner, which, p->offset, p->count, from);
    return 0;
}

/* Reads an 8-bit matrix as floats. Its scales are in the vector of reals. */
static int get_int8(mr_net *net, int row, float *to, mr_error *err)
{
    const mr_param *p = &mr_model_params(net->owner)->list[row];
    const size_t rows = (size_t)p->shape[0], columns = (size_t)p->shape[1];
    float *scale = mr_alloc_with(&net->ctx->allocator, rows, sizeof *scale);
    int8_t *bytes = mr_alloc_with(&net->ctx->allocator, rows * columns, 1);
    int status = scale && bytes ? 0 : mr_no_memory(err, p->name);
    if (!status) {
        mr_model_get_part(net->owner, MR_WEIGHTS, p->offset, rows, scale);
        mr_model_get_bytes(net->owner, row, bytes);
        for (size_t i = 0; i < rows * columns; i++) to[i] = scale[i / columns] * (float)bytes[i];
    }
    mr_free_with(&net->ctx->allocator, scale);
    mr_free_with(&net->ctx->allocator, bytes);
    return status;
}

static size_t elements(const mr_net *net, int row)
{
    const mr_param *p = &mr_model_params(net->owner)->list[row];
    size_t count = 1;
    for (int i = 0; i < p->ndim; i++) count *= (size_t)p->shape[i];
    return count;
}

static int is_int8(const mr_net *net, int row) { return !strcmp(mr_model_dtype(net->owner, row), "I8"); }

int mr_net_get(mr_net *net, mr_vector which, const char *name, float *to, size_t capacity, mr_error *err)
{
    mr_lease lease;
    int row, status = find(net, which, name, &row, err);
    if (!status) status = mr_check_capacity(to, capacity, elements(net, row), name, err);
    if (!status) status = mr_lease_begin_exclusive(&lease, net, err);
    if (status) return status;
    status = is_int8(net, row) ? get_int8(net, row, to, err) : move(net, which, row, to, NULL, err);
    return mr_lease_end(&lease, status, err);
}

int mr_net_put(mr_net *net, mr_vector which, const char *name, const float *from, size_t count, mr_error *err)
{
    mr_lease lease;
    int row, status = find(net, which, name, &row, err);
    if (status) return status;
    if (is_int8(net, row)) return mr_fail(err, MR_ECONFIG, "%s: has 8 bits and cannot be set", name);
    if (count != elements(net, row) || !from)
        return mr_fail(err, MR_EINVAL, "%s: has %zu elements, not %zu", name, elements(net, row), from ? count : 0);
    for (size_t i = 0; i < count; i++)
        if (!isfinite(from[i]))
            return mr_fail(err, MR_EINVAL, "%s: element %zu is %s", name, i, isnan(from[i]) ? "NaN" : "infinite");
    status = mr_lease_begin_exclusive(&lease, net, err);
    return status ? status : mr_lease_end(&lease, move(net, which, row, NULL, from, err), err);
}

int mr_net_view(mr_net *net, mr_vector which, const char *name, float **out, mr_error *err)
{
    mr_lease lease;
    *out = NULL;
    int row, status = find(net, which, name, &row, err);
    if (!status && which == MR_BEST) status = mr_fail(err, MR_EINVAL, "the best weights cannot be viewed; copy them");
    if (!status && is_int8(net, row)) status = mr_fail(err, MR_ECONFIG, "%s: has 8 bits and cannot be viewed", name);
    if (!status) status = mr_lease_begin_exclusive(&lease, net, err);
    if (status) return status;
    if (which != MR_WEIGHTS) status = make_vectors(net, err);
    if (!status) *out = mr_model_host_part(net->owner, which, mr_model_params(net->owner)->list[row].offset);
    if (!status && !*out)
        status = mr_fail(err, MR_EDEVICE, "%s: this device's memory cannot be seen in place; copy the tensor", name);
    return mr_lease_end(&lease, status, err);
}
