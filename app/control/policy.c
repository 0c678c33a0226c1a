/* Policies of policies.h5: reading, checking, and acting in plain loops that compilers turn into vector code over the
 * lanes. */
#include "control/policy.h"

#include "control/hdf5_file.h"
#include "core/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LANES = MR_POLICY_LANES, MOST_LAYERS = 4, WIDEST = 256, GROUP = 40, NAME = 64 };

typedef float lanes[LANES];

typedef enum activation { RELU, TANH, CLIP } activation;
static const char *const activation_names[] = {"relu", "tanh", "clip"};

typedef struct layer {
    int in, out;
    float *weight, *bias; /* [out, in], [out] */
    activation activation;
} layer;

struct mr_policy {
    const mr_env_type *type;
    layer layers[MOST_LAYERS];
    int depth;
    layer log_std;                  /* of the last hidden numbers; in = 0: a bias alone; out = 0: no noise */
    double *mean, *deviation, most; /* observations become (o − mean)/deviation, cut to ±most; NULL: they stay */
};

/* ---- reading */

typedef struct source {
    mr_hdf5 *file;
    const char *path;
    char group[GROUP]; /* "/hopper/sac" */
} source;

static void name_in(const source *s, const char *rest, char out[NAME])
{
    snprintf(out, NAME, "%.39s/%.20s", s->group, rest);
}

static int has(const source *s, const char *rest)
{
    char name[NAME];
    name_in(s, rest, name);
    return mr_hdf5_has(s->file, name);
}

/* Reads an array and checks its shape; a wanted size of 0 means any, and is set. */
static int read_floats(const source *s, const char *rest, float **out, int *rows, int *columns, mr_error *err)
{
    char name[NAME];
    size_t r, c;
    name_in(s, rest, name);
    int status = mr_hdf5_read_floats(s->file, name, out, &r, &c, err);
    if (status) return status;
    if (!r || !c || r > WIDEST || c > WIDEST || (*rows && (size_t)*rows != r) || (*columns && (size_t)*columns != c))
        return mr_fail(err, MR_EDATA, "%s: %s has the shape [%zu, %zu], which does not fit", s->path, name, r, c);
    for (size_t i = 0; i < r * c; i++)
        if (!isfinite((*out)[i]))
            return mr_fail(err, MR_EDATA, "%s: %s has a number that is not finite", s->path, name);
    *rows = (int)r;
    *columns = (int)c;
    return 0;
}

static int read_activation(const source *s, const char *rest, activation *out, mr_error *err)
{
    char name[NAME], text[16];
    name_in(s, rest, name);
    int status = mr_hdf5_attribute_text(s->file, name, "activation", text, sizeof text, err);
    if (status) return status;
    for (size_t i = 0; i < sizeof activation_names / sizeof *activation_names; i++)
        if (!strcmp(text, activation_names[i])) return *out = (activation)i, 0;
    return mr_fail(err, MR_EDATA, "%s: %s has the unknown activation \"%s\"", s->path, name, text);
}

static int read_layer(const source *s, const char *weight, const char *bias, layer *l, mr_error *err)
{
    int one = 1, status = read_floats(s, weight, &l->weight, &l->out, &l->in, err);
    return status ? status : read_floats(s, bias, &l->bias, &l->out, &one, err);
}

static int read_layers(const source *s, mr_policy *p, mr_error *err)
{
    int status = 0, width = p->type->observed;
    char name[20], weight[20], bias[20];
    for (; !status && p->depth < MOST_LAYERS; p->depth++) {
        layer *l = &p->layers[p->depth];
        snprintf(name, sizeof name, "layer%d", p->depth);
        if (!has(s, name)) break;
        snprintf(weight, sizeof weight, "layer%d/weight", p->depth);
        snprintf(bias, sizeof bias, "layer%d/bias", p->depth);
        l->in = width;
        status = read_layer(s, weight, bias, l, err);
        if (!status) status = read_activation(s, name, &l->activation, err);
        width = l->out;
    }
    if (!status && (!p->depth || width != p->type->acted))
        return mr_fail(err, MR_EDATA, "%s: %s is no policy for %s: it gives %d numbers, not %d", s->path, s->group,
                       p->type->title, p->depth ? width : 0, p->type->acted);
    return status;
}

static int read_noise(const source *s, mr_policy *p, mr_error *err)
{
    int one = 1;
    layer *l = &p->log_std;
    if (has(s, "log_std")) {
        l->out = p->type->acted;
        return read_floats(s, "log_std", &l->bias, &l->out, &one, err);
    }
    if (!has(s, "log_std_weight")) return 0;
    l->in = p->layers[p->depth - 1].in;
    l->out = p->type->acted;
    return read_layer(s, "log_std_weight", "log_std_bias", l, err);
}

static int read_observed(const source *s, const char *rest, int count, double **out, mr_error *err)
{
    char name[NAME];
    size_t rows, columns;
    name_in(s, rest, name);
    int status = mr_hdf5_read_doubles(s->file, name, out, &rows, &columns, err);
    if (status) return status;
    if (rows != (size_t)count || columns != 1)
        return mr_fail(err, MR_EDATA, "%s: %s has %zu numbers, not %d", s->path, name, rows * columns, count);
    for (int i = 0; i < count; i++)
        if (!isfinite((*out)[i]))
            return mr_fail(err, MR_EDATA, "%s: %s has a number that is not finite", s->path, name);
    return 0;
}

static int read_scaling(const source *s, mr_policy *p, mr_error *err)
{
    double eps = 0;
    if (!has(s, "obs_mean")) return 0;
    int status = read_observed(s, "obs_mean", p->type->observed, &p->mean, err);
    if (!status) status = read_observed(s, "obs_var", p->type->observed, &p->deviation, err);
    if (!status) status = mr_hdf5_attribute(s->file, s->group, "obs_eps", &eps, err);
    if (!status) status = mr_hdf5_attribute(s->file, s->group, "clip_obs", &p->most, err);
    for (int i = 0; !status && i < p->type->observed; i++) {
        p->deviation[i] = sqrt(p->deviation[i] + eps);
        if (!(p->deviation[i] > 0 && p->most > 0))
            status = mr_fail(err, MR_EDATA, "%s: %s cannot scale observations: a variance or limit is not positive",
                             s->path, s->group);
    }
    return status;
}

int mr_policy_load(const char *path, const mr_env_type *type, const char *algorithm, mr_policy **out, mr_error *err)
{
    source s = {.path = path};
    mr_policy *p = mr_alloc(1, sizeof *p);
    *out = NULL;
    if (!p) return mr_no_memory(err, "a policy");
    p->type = type;
    snprintf(s.group, sizeof s.group, "/%s/%s", type->name, algorithm);
    int status = mr_hdf5_open(path, &s.file, err);
    if (!status && !mr_hdf5_has(s.file, s.group)) status = mr_fail(err, MR_EDATA, "%s has no policy %s", path, s.group);
    if (!status) status = read_scaling(&s, p, err);
    if (!status) status = read_layers(&s, p, err);
    if (!status) status = read_noise(&s, p, err);
    mr_hdf5_close(s.file);
    if (status) mr_policy_free(p);
    else *out = p;
    return status;
}

static void free_layer(layer *l)
{
    mr_free(l->weight);
    mr_free(l->bias);
}

void mr_policy_free(mr_policy *policy)
{
    if (!policy) return;
    for (int i = 0; i < MOST_LAYERS; i++) free_layer(&policy->layers[i]);
    free_layer(&policy->log_std);
    mr_free(policy->mean);
    mr_free(policy->deviation);
    mr_free(policy);
}

/* ---- acting */

/* Four rows at a time, so that each number of x is loaded once for them; the sums of a lane have one order. */
static void four_rows(const layer *l, int row, const lanes *x, lanes *y)
{
    const float *w0 = l->weight + (size_t)row * (size_t)l->in, *w1 = w0 + l->in, *w2 = w1 + l->in, *w3 = w2 + l->in;
    lanes a = {0}, b = {0}, c = {0}, d = {0};
    for (int k = 0; k < l->in; k++)
        for (int i = 0; i < LANES; i++) {
            a[i] += w0[k] * x[k][i];
            b[i] += w1[k] * x[k][i];
            c[i] += w2[k] * x[k][i];
            d[i] += w3[k] * x[k][i];
        }
    for (int i = 0; i < LANES; i++) {
        y[row][i] = a[i] + l->bias[row];
        y[row + 1][i] = b[i] + l->bias[row + 1];
        y[row + 2][i] = c[i] + l->bias[row + 2];
        y[row + 3][i] = d[i] + l->bias[row + 3];
    }
}

static void one_row(const layer *l, int row, const lanes *x, lanes *y)
{
    const float *w = l->weight + (size_t)row * (size_t)l->in;
    lanes sum = {0};
    for (int k = 0; k < l->in; k++)
        for (int i = 0; i < LANES; i++) sum[i] += w[k] * x[k][i];
    for (int i = 0; i < LANES; i++) y[row][i] = sum[i] + l->bias[row];
}

static void apply(const layer *l, const lanes *x, lanes *y)
{
    int row = 0;
    for (; row + 4 <= l->out; row += 4) four_rows(l, row, x, y);
    for (; row < l->out; row++) one_row(l, row, x, y);
}

static float activate(activation a, float x)
{
    if (a == RELU) return x > 0 ? x : 0;
    if (a == TANH) return tanhf(x);
    return fminf(fmaxf(x, -1), 1);
}

static void scale(const mr_policy *p, double observations[LANES][MR_ENV_MOST_OBSERVED], lanes *x)
{
    for (int k = 0; k < p->type->observed; k++)
        for (int i = 0; i < LANES; i++) {
            double o = observations[i][k];
            if (p->mean) o = fmin(fmax((o - p->mean[k]) / p->deviation[k], -p->most), p->most);
            x[k][i] = (float)o;
        }
}

/* Adds the policy's own noise to its last layer's sums; x is what went into that layer. */
static void add_noise(const mr_policy *p, const lanes *x, double noise, float draws[LANES][MR_ENV_MOST_ACTED], lanes *y)
{
    const layer *l = &p->log_std;
    lanes log_std[MR_ENV_MOST_ACTED] = {{0}};
    if (l->in) apply(l, x, log_std);
    for (int k = 0; k < l->out; k++)
        for (int i = 0; i < LANES; i++) {
            const float log_one = l->in ? fminf(fmaxf(log_std[k][i], -20), 2) : l->bias[k];
            y[k][i] += (float)noise * expf(log_one) * draws[i][k];
        }
}

void mr_policy_act(const mr_policy *policy, double observations[LANES][MR_ENV_MOST_OBSERVED], double noise,
                   float draws[LANES][MR_ENV_MOST_ACTED], float actions[LANES][MR_ENV_MOST_ACTED])
{
    lanes a[WIDEST] = {{0}}, b[WIDEST] = {{0}}, *x = a, *y = b;
    scale(policy, observations, x);
    for (int n = 0; n < policy->depth; n++) {
        const layer *l = &policy->layers[n];
        apply(l, x, y);
        if (n == policy->depth - 1 && noise > 0) add_noise(policy, x, noise, draws, y);
        for (int k = 0; k < l->out; k++)
            for (int i = 0; i < LANES; i++) y[k][i] = activate(l->activation, y[k][i]);
        lanes *swap = x;
        x = y;
        y = swap;
    }
    for (int k = 0; k < policy->type->acted; k++)
        for (int i = 0; i < LANES; i++) actions[i][k] = x[k][i];
}
