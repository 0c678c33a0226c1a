/* Scalers: conversion of numbers, setting, and their tensors in files. */
#include "model/scaler.h"

#include "core/mem.h"
#include "model/file.h"

#include <math.h>
#include <string.h>

/* ---- numbers ---- */

/* Row by row, so that the compiler sees loops over neighbours. `first` is the channel of the first number. */
void mr_scale_in(size_t n, size_t first, size_t channels, const double *mean, const double *scale, const float *from,
                 float *to)
{
    for (size_t i = 0, count; i < n; i += count, first = 0) {
        count = n - i < channels - first ? n - i : channels - first;
        const double *m = mean + first, *s = scale + first;
        for (size_t k = 0; k < count; k++) to[i + k] = (float)((from[i + k] - m[k]) / s[k]);
    }
}

void mr_scale_out(size_t n, size_t first, size_t channels, const double *mean, const double *scale, const float *from,
                  float *to)
{
    for (size_t i = 0, c = first; i < n; i++) {
        to[i] = (float)(from[i] * scale[c] + mean[c]);
        if (++c == channels) c = 0;
    }
}

void mr_scale_gradient(size_t n, size_t first, size_t channels, const double *mean, const double *scale,
                       const float *from, float *to)
{
    (void)mean; /* a shift changes no gradient */
    for (size_t i = 0, c = first; i < n; i++) {
        to[i] = (float)(from[i] * scale[c]);
        if (++c == channels) c = 0;
    }
}

/* ---- setting ---- */

static int check_pair(const char *side, int64_t channels, const double *mean, const double *scale, mr_error *err)
{
    if (!mean != !scale)
        return mr_fail(err, MR_EINVAL, "scaler: the %s has only a mean or only a scale; give both or neither", side);
    for (int64_t c = 0; mean && c < channels; c++) {
        if (!isfinite(mean[c]))
            return mr_fail(err, MR_EINVAL, "scaler: the %s mean of channel %lld is %g; means must be finite", side,
                           (long long)c, mean[c]);
        if (!isfinite(scale[c]) || scale[c] <= 0)
            return mr_fail(err, MR_EINVAL,
                           "scaler: the %s scale of channel %lld is %g; scales must be finite and above 0", side,
                           (long long)c, scale[c]);
    }
    return 0;
}

/* Copies mean and scale into one block; NULL where there are none. */
static double *copy_pair(const mr_allocator *allocator, int64_t channels, const double *mean, const double *scale,
                         int *failed)
{
    double *pair = mean ? mr_alloc_with(allocator, 2 * (size_t)channels, sizeof *pair) : NULL;
    if (mean && !pair) *failed = 1;
    if (!pair) return NULL;
    memcpy(pair, mean, (size_t)channels * sizeof *pair);
    memcpy(pair + channels, scale, (size_t)channels * sizeof *pair);
    return pair;
}

int mr_scaler_set(mr_scaler *s, const mr_allocator *allocator, const double *input_mean, const double *input_scale,
                  const double *target_mean, const double *target_scale, mr_error *err)
{
    int failed = 0, status = check_pair("input", s->inputs, input_mean, input_scale, err);
    if (!status) status = check_pair("target", s->outputs, target_mean, target_scale, err);
    if (status) return status;
    double *input = copy_pair(allocator, s->inputs, input_mean, input_scale, &failed);
    double *target = copy_pair(allocator, s->outputs, target_mean, target_scale, &failed);
    if (failed) {
        mr_free_with(allocator, input);
        mr_free_with(allocator, target);
        return mr_no_memory(err, "a scaler");
    }
    mr_scaler_free(s, allocator);
    s->input_mean = input;
    s->input_scale = input ? input + s->inputs : NULL;
    s->target_mean = target;
    s->target_scale = target ? target + s->outputs : NULL;
    return 0;
}

void mr_scaler_free(mr_scaler *s, const mr_allocator *allocator)
{
    mr_free_with(allocator, s->input_mean);
    mr_free_with(allocator, s->target_mean);
    *s = (mr_scaler){.inputs = s->inputs, .outputs = s->outputs};
}

/* ---- files ---- */

typedef struct side {
    mr_scaler_kind kind;
    const char *mean, *scale; /* names of its tensors */
} side;

static const side sides[] = {{MR_SCALER_INPUT, "scaler.input.mean", "scaler.input.scale"},
                             {MR_SCALER_TARGET, "scaler.target.mean", "scaler.target.scale"}};

int mr_scaler_add(mr_st_writer *w, const mr_scaler *s)
{
    const double *const means[] = {s->input_mean, s->target_mean}, *const scales[] = {s->input_scale, s->target_scale};
    const int64_t channels[] = {s->inputs, s->outputs};
    int status = 0;
    for (int i = 0; i < 2; i++) {
        if (!means[i]) continue;
        if (!status) status = mr_st_add(w, sides[i].mean, MR_ST_F64, 1, &channels[i], means[i]);
        if (!status) status = mr_st_add(w, sides[i].scale, MR_ST_F64, 1, &channels[i], scales[i]);
    }
    return status;
}

/* What a file's metadata claims about its scaler and its channels. */
static void read_claims(const mr_st *st, mr_config *c)
{
    static const char *const keys[][2] = {
        {"scaler", "model.scaler"}, {"inputs", "model.inputs"}, {"outputs", "model.outputs"}};
    *c = (mr_config){0};
    mr_options_default(mr_config_options, c);
    for (int i = 0; i < 3; i++) {
        const char *value = mr_st_meta(st, keys[i][1]);
        if (value) mr_option_parse(mr_option_find(mr_config_options, keys[i][0]), c, value, NULL);
    }
}

int mr_scaler_check(const mr_st *st, const char *path, int *tensors, mr_error *err)
{
    mr_config c;
    read_claims(st, &c);
    const int64_t channels[] = {c.inputs, c.outputs};
    int status = 0;
    for (int i = 0; i < 2; i++) {
        if (!(c.scaler & sides[i].kind)) continue;
        if (!status) status = mr_model_check_tensor(st, path, sides[i].mean, MR_ST_F64, 1, &channels[i], err);
        if (!status) status = mr_model_check_tensor(st, path, sides[i].scale, MR_ST_F64, 1, &channels[i], err);
        *tensors += 2;
    }
    return status;
}

static int read_side(const mr_st *st, const char *path, const side *of, double *mean, double *scale, mr_error *err)
{
    int status = mr_st_read(st, path, mr_st_find(st, of->mean), mean, err);
    return status ? status : mr_st_read(st, path, mr_st_find(st, of->scale), scale, err);
}

int mr_scaler_read(mr_scaler *s, const mr_allocator *allocator, const mr_st *st, const char *path, mr_error *err)
{
    mr_config c;
    read_claims(st, &c);
    const int input = c.scaler & MR_SCALER_INPUT, target = c.scaler & MR_SCALER_TARGET;
    const size_t inputs = (size_t)s->inputs, outputs = (size_t)s->outputs;
    int tensors = 0, status = mr_scaler_check(st, path, &tensors, err);
    mr_error inner = {0};
    if (status) return status;
    if (c.scaler && (c.inputs != s->inputs || c.outputs != s->outputs))
        return mr_fail(err, MR_EFORMAT,
                       "%s: its scaler is for %lld inputs and %lld outputs; this model has %lld and %lld", path,
                       (long long)c.inputs, (long long)c.outputs, (long long)s->inputs, (long long)s->outputs);
    double *room = mr_alloc_with(allocator, 2 * (inputs + outputs), sizeof *room);
    if (!room) return mr_no_memory(err, path);
    double *im = room, *is = im + inputs, *tm = is + inputs, *ts = tm + outputs;
    if (input) status = read_side(st, path, &sides[0], im, is, err);
    if (!status && target) status = read_side(st, path, &sides[1], tm, ts, err);
    if (!status) {
        status = mr_scaler_set(s, allocator, input ? im : NULL, input ? is : NULL, target ? tm : NULL,
                               target ? ts : NULL, &inner);
        if (status == MR_ENOMEM) mr_no_memory(err, path);
        else if (status) status = mr_fail(err, MR_EFORMAT, "%s: %.800s", path, inner.text);
    }
    mr_free_with(allocator, room);
    return status;
}
