/* Model files: the configuration, and tensors by the parameter table. */
#include "model/file.h"

#include "core/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define FORMAT "minrnn"
#define FORMAT_VERSION "1"
#define PREFIX "model."

/* ---- writing ---- */

int mr_model_add_config(mr_st_writer *w, const mr_config *config)
{
    char key[64], value[MR_TEXT_MAX];
    int status = mr_st_add_meta(w, "format", FORMAT);
    if (!status) status = mr_st_add_meta(w, "version", FORMAT_VERSION);
    for (const mr_option *o = mr_config_options; !status && o->key; o++) {
        snprintf(key, sizeof key, PREFIX "%s", o->key);
        mr_option_print(o, config, value);
        if ((o->flags & MR_OPT_SPARSE) && !strcmp(value, o->fallback)) continue;
        status = mr_st_add_meta(w, key, value);
    }
    return status;
}

int mr_model_add_vector(mr_st_writer *w, const char *prefix, const mr_params *params, const float *from)
{
    char name[128];
    int status = 0;
    for (int i = 0; !status && i < params->count; i++) {
        const mr_param *p = &params->list[i];
        snprintf(name, sizeof name, "%s%s", prefix, p->name);
        status = mr_st_add(w, name, MR_ST_F32, p->ndim, p->shape, from + p->offset);
    }
    return status;
}

int mr_model_add_scaler(mr_st_writer *w, const mr_model *model) { return mr_scaler_add(w, mr_model_scaler(model)); }

/* ---- reading ---- */

/* Refuses unknown keys that begin with "model.". All others are ignored: other programs may add their own. */
static int check_keys(const mr_st *st, const char *path, mr_error *err)
{
    const size_t n = strlen(PREFIX);
    for (int i = 0; i < mr_st_meta_count(st); i++) {
        const char *key, *value;
        mr_st_meta_at(st, i, &key, &value);
        if (strncmp(key, PREFIX, n) || mr_option_find(mr_config_options, key + n)) continue;
        return mr_fail(err, MR_EFORMAT, "%s: unknown metadata key \"%.200s\"; was it written by a newer minrnn?", path,
                       key);
    }
    return 0;
}

int mr_model_read_config(const mr_st *st, const char *path, mr_config *config, mr_error *err)
{
    const char *format = mr_st_meta(st, "format"), *version = mr_st_meta(st, "version");
    char key[64];
    mr_error inner;
    if (!format || strcmp(format, FORMAT))
        return mr_fail(err, MR_EFORMAT,
                       "%s: not a minrnn model (its metadata has no format = minrnn); `minrnn import` makes one of the "
                       "weights of another program",
                       path);
    if (!version || strcmp(version, FORMAT_VERSION))
        return mr_fail(err, MR_EFORMAT, "%s: format version %.20s; this minrnn reads version " FORMAT_VERSION, path,
                       version ? version : "missing");
    int status = check_keys(st, path, err);
    if (status) return status;
    mr_options_default(mr_config_options, config);
    for (const mr_option *o = mr_config_options; o->key; o++) {
        snprintf(key, sizeof key, PREFIX "%s", o->key);
        const char *value = mr_st_meta(st, key);
        if (!value && (o->flags & MR_OPT_SPARSE)) continue;
        if (!value) return mr_fail(err, MR_EFORMAT, "%s: its metadata has no %s", path, key);
        if (mr_option_parse(o, config, value, &inner)) return mr_fail(err, MR_EFORMAT, "%s: %.800s", path, inner.text);
    }
    if (mr_config_check(config, &inner)) return mr_fail(err, MR_EFORMAT, "%s: %.800s", path, inner.text);
    return 0;
}

int mr_model_check_tensor(const mr_st *st, const char *path, const char *name, mr_st_dtype dtype, int ndim,
                          const int64_t *shape, mr_error *err)
{
    const mr_st_tensor *t = mr_st_find(st, name);
    if (!t) return mr_fail(err, MR_EFORMAT, "%s: has no tensor %s, which its configuration needs", path, name);
    if (t->dtype != dtype && !(dtype == MR_ST_F32 && mr_st_is_float(t->dtype)))
        return mr_fail(err, MR_EFORMAT, "%s: tensor %s is %s; minrnn reads %s", path, name, mr_st_dtype_name(t->dtype),
                       dtype == MR_ST_F32 ? "F32, F16, BF16 and F64" : mr_st_dtype_name(dtype));
    int same = t->ndim == ndim;
    for (int i = 0; same && i < ndim; i++) same = t->shape[i] == shape[i];
    if (!same)
        return mr_fail(err, MR_EFORMAT, "%s: tensor %s does not have the shape that its configuration needs", path,
                       name);
    return 0;
}

int mr_model_check_tensors(const mr_st *st, const char *path, const char *const *prefixes, const mr_params *params,
                           mr_error *err)
{
    char name[128];
    int sets = 0, scaler = 0, status = mr_scaler_check(st, path, &scaler, err);
    if (status) return status;
    for (; prefixes[sets]; sets++)
        for (int i = 0; i < params->count; i++) {
            snprintf(name, sizeof name, "%s%s", prefixes[sets], params->list[i].name);
            status = mr_model_check_tensor(st, path, name, MR_ST_F32, params->list[i].ndim, params->list[i].shape, err);
            if (status) return status;
        }
    /* Every name of the table was found once, so a larger count means unknown tensors. */
    const int needed = sets * params->count + scaler;
    if (mr_st_count(st) != needed)
        return mr_fail(err, MR_EFORMAT, "%s: has %d tensors, but its configuration needs %d", path, mr_st_count(st),
                       needed);
    return 0;
}

int mr_model_read_tensor(const mr_st *st, const char *path, const char *name, float *to, mr_error *err)
{
    const mr_st_tensor *t = mr_st_find(st, name);
    int status = mr_st_read_floats(st, path, t, to, err);
    if (status) return status;
    for (size_t i = 0; i < mr_st_elements(t); i++)
        if (!isfinite(to[i]))
            return mr_fail(err, MR_EFORMAT, "%s: tensor %s has a number that is not finite (element %zu)", path, name,
                           i);
    return 0;
}

int mr_model_read_vector(const mr_st *st, const char *path, const char *prefix, const mr_params *params, float *to,
                         mr_error *err)
{
    char name[128];
    int status = 0;
    memset(to, 0, params->total * sizeof *to);
    for (int i = 0; !status && i < params->count; i++) {
        snprintf(name, sizeof name, "%s%s", prefix, params->list[i].name);
        status = mr_model_read_tensor(st, path, name, to + params->list[i].offset, err);
    }
    return status;
}
