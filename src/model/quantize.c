/* 8-bit models: laying out their two vectors, rounding, reading and writing their tensors. */
#include "model/quantize.h"

#include "core/mem.h"
#include "model/file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TOP = 127 }; /* −128 is not used, so that the range is symmetric */

int mr_param_quantizes(const mr_param *p) { return p->ndim == 2 && !(p->flags & (MR_PARAM_RATE | MR_PARAM_F32)); }

static size_t reals_of(const mr_param *p) { return mr_param_quantizes(p) ? (size_t)p->shape[0] : p->count; }

int mr_quants_layout(mr_quants *quants, mr_params *params)
{
    const size_t line = MR_ALIGN / sizeof(float);
    *quants = (mr_quants){.at = mr_alloc_with(params->allocator, (size_t)params->count, sizeof *quants->at),
                          .allocator = params->allocator};
    if (!quants->at) return MR_ENOMEM;
    params->total = params->decayed = 0;
    for (int i = 0; i < params->count; i++) {
        mr_param *p = &params->list[i];
        if (!p->follows) {
            params->total = (params->total + line - 1) / line * line;
            quants->bytes = (quants->bytes + MR_ALIGN - 1) / MR_ALIGN * MR_ALIGN;
        }
        p->offset = params->total;
        params->total += reals_of(p);
        quants->at[i] = quants->bytes;
        if (mr_param_quantizes(p)) quants->bytes += p->count;
    }
    return 0;
}

void mr_quants_free(mr_quants *quants)
{
    mr_free_with(quants->allocator, quants->at);
    *quants = (mr_quants){0};
}

/* ---- rounding ---- */

static void quantize_row(size_t columns, const float *w, int8_t *q, float *scale)
{
    float top = 0;
    for (size_t k = 0; k < columns; k++) top = fmaxf(top, fabsf(w[k]));
    *scale = top / TOP;
    for (size_t k = 0; k < columns; k++) {
        float steps = *scale > 0 ? rintf(w[k] / *scale) : 0;
        q[k] = (int8_t)fmaxf(-TOP, fminf(TOP, steps)); /* a tiny scale is rounded itself, so steps may exceed TOP */
    }
}

void mr_quantize_matrix(size_t rows, size_t columns, const float *w, int8_t *q, float *scale)
{
    for (size_t n = 0; n < rows; n++) quantize_row(columns, w + n * columns, q + n * columns, &scale[n]);
}

void mr_quantize_vector(const mr_params *from, const float *weights, const mr_params *to, const mr_quants *quants,
                        float *reals, int8_t *bytes)
{
    memset(reals, 0, to->total * sizeof *reals);
    memset(bytes, 0, quants->bytes);
    for (int i = 0; i < to->count; i++) {
        const mr_param *p = &to->list[i];
        const float *w = weights + from->list[i].offset;
        if (mr_param_quantizes(p))
            mr_quantize_matrix((size_t)p->shape[0], (size_t)p->shape[1], w, bytes + quants->at[i], reals + p->offset);
        else memcpy(reals + p->offset, w, p->count * sizeof *w);
    }
}

/* ---- files ---- */

static const char *scale_name(const mr_param *p, char name[80])
{
    snprintf(name, 80, "%s_scale", p->name);
    return name;
}

int mr_quants_check(const mr_st *st, const char *path, const mr_params *params, mr_error *err)
{
    char name[80];
    int tensors = params->count, status = mr_scaler_check(st, path, &tensors, err);
    for (int i = 0; !status && i < params->count; i++) {
        const mr_param *p = &params->list[i];
        const int matrix = mr_param_quantizes(p);
        status = mr_model_check_tensor(st, path, p->name, matrix ? MR_ST_I8 : MR_ST_F32, p->ndim, p->shape, err);
        if (status || !matrix) continue;
        status = mr_model_check_tensor(st, path, scale_name(p, name), MR_ST_F32, 1, p->shape, err);
        tensors++;
    }
    if (!status && mr_st_count(st) != tensors)
        status = mr_fail(err, MR_EFORMAT, "%s: has %d tensors, but its configuration needs %d", path, mr_st_count(st),
                         tensors);
    return status;
}

/* Checks the values and scales of a matrix. Only a row of zeros may have the scale 0. */
static int check_rows(const char *path, const mr_param *p, const int8_t *q, const float *scale, mr_error *err)
{
    const size_t columns = (size_t)p->shape[1];
    for (size_t n = 0; n < (size_t)p->shape[0]; n++) {
        int zeros = 1;
        for (size_t k = 0; k < columns; k++) {
            int value = q[n * columns + k];
            zeros &= value == 0;
            if (value < -TOP)
                return mr_fail(err, MR_EFORMAT, "%s: tensor %s has the value %d (row %zu); -127 to 127 are allowed",
                               path, p->name, value, n);
        }
        if (!isfinite(scale[n]) || scale[n] < 0 || (scale[n] == 0 && !zeros))
            return mr_fail(err, MR_EFORMAT,
                           "%s: tensor %s_scale has the value %g (row %zu); scales must be finite and above 0", path,
                           p->name, (double)scale[n], n);
    }
    return 0;
}

int mr_quants_read(const mr_st *st, const char *path, const mr_params *params, const mr_quants *quants, float *reals,
                   int8_t *bytes, mr_error *err)
{
    char name[80];
    int status = 0;
    memset(reals, 0, params->total * sizeof *reals);
    memset(bytes, 0, quants->bytes);
    for (int i = 0; !status && i < params->count; i++) {
        const mr_param *p = &params->list[i];
        const int matrix = mr_param_quantizes(p);
        status = mr_model_read_tensor(st, path, matrix ? scale_name(p, name) : p->name, reals + p->offset, err);
        if (status || !matrix) continue;
        status = mr_st_read(st, path, mr_st_find(st, p->name), bytes + quants->at[i], err);
        if (!status) status = check_rows(path, p, bytes + quants->at[i], reals + p->offset, err);
    }
    return status;
}

int mr_quants_add(mr_st_writer *w, const mr_params *params, const mr_quants *quants, const float *reals,
                  const int8_t *bytes)
{
    char name[80];
    int status = 0;
    for (int i = 0; !status && i < params->count; i++) {
        const mr_param *p = &params->list[i];
        if (!mr_param_quantizes(p)) {
            status = mr_st_add(w, p->name, MR_ST_F32, p->ndim, p->shape, reals + p->offset);
            continue;
        }
        status = mr_st_add(w, p->name, MR_ST_I8, p->ndim, p->shape, bytes + quants->at[i]);
        if (!status) status = mr_st_add(w, scale_name(p, name), MR_ST_F32, 1, p->shape, reals + p->offset);
    }
    return status;
}
