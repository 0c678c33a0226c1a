/* The parameter table: rows are added, laid out in one vector, found by name, and given initial values. */
#include "model/params.h"

#include "core/mem.h"
#include "core/rng.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

int mr_params_add(mr_params *params, const char *prefix, const char *name, int follows, mr_init init, double value,
                  int ndim, const int64_t *shape)
{
    if (params->failed) return -1;
    if (params->count == params->room) {
        int room = params->room ? 2 * params->room : 64;
        mr_param *list = mr_alloc_with(params->allocator, (size_t)room, sizeof *list);
        if (!list) return params->failed = 1, -1;
        if (params->count) memcpy(list, params->list, (size_t)params->count * sizeof *list);
        mr_free_with(params->allocator, params->list);
        params->list = list;
        params->room = room;
    }
    mr_param *p = &params->list[params->count];
    *p = (mr_param){.ndim = ndim, .count = 1, .follows = follows, .init = init, .init_value = value};
    snprintf(p->name, sizeof p->name, "%s%s", prefix, name);

    for (int i = 0; i < ndim; i++) {
        p->shape[i] = shape[i];
        p->count *= (size_t)shape[i];
    }
    return params->count++;
}

void mr_params_flag(mr_params *params, int row, unsigned flags)
{
    if (row >= 0) params->list[row].flags |= flags;
}

static int decays(const mr_param *p, mr_decay_set set)
{
    if (p->flags & MR_PARAM_RATE) return 0;
    if (set == MR_DECAY_ALL) return 1;
    if (set == MR_DECAY_NO_GATES) return !(p->flags & MR_PARAM_GATE);
    return p->ndim == 2;
}

/* Decayed parameters come first, so that the optimiser makes one pass with one boundary. A group stays together: its
 * members are of one kind, so the first one decides. Groups start on a cache line. */
int mr_params_layout(mr_params *params, mr_decay_set set)
{
    const size_t line = MR_ALIGN / sizeof(float);
    size_t at = 0;
    if (params->failed) return MR_ENOMEM;
    for (int zone = 1; zone >= 0; zone--) {
        int here = 0;
        for (int i = 0; i < params->count; i++) {
            mr_param *p = &params->list[i];
            if (!p->follows) here = decays(p, set) == zone;
            if (!here) continue;
            if (!p->follows) at = (at + line - 1) / line * line;
            p->decay = zone;
            p->offset = at;
            at += p->count;
        }
        at = (at + line - 1) / line * line;
        if (zone == 1) params->decayed = at;
    }
    params->total = at;
    return 0;
}

void mr_params_free(mr_params *params)
{
    mr_free_with(params->allocator, params->list);
    memset(params, 0, sizeof *params);
}

int mr_params_find(const mr_params *params, const char *name)
{
    for (int i = 0; i < params->count; i++)
        if (!strcmp(params->list[i].name, name)) return i;
    return -1;
}

/* Draws a time scale in 1 … horizon. */
static double draw_tau(mr_rng *rng, double horizon, int log_uniform)
{
    double u = mr_rng_uniform(rng);
    return log_uniform ? exp(u * log(horizon)) : 1 + u * (horizon - 1);
}

/* Draws x such that s = softplus(x) is log-uniform: x = log(eˢ − 1). */
static double draw_step_size(mr_rng *rng)
{
    const double least = 1e-3, most = 0.1;
    double s = least * exp(mr_rng_uniform(rng) * log(most / least));
    return s + log(-expm1(-s));
}

double mr_signed_gate(double a) { return atanh(a / MR_SIGNED_REACH); }

static double kept_share(double tau) { return tau / (1 + tau); }

/* Draws the elements of a part with the random numbers of the table's row `place`. row: the tensor's last dimension. */
static void draw_part(const mr_param_part *part, int64_t row, uint64_t seed, int place, double horizon, int log_uniform,
                      float *out)
{
    mr_rng rng = mr_rng_at(seed, MR_STREAM_INIT, (uint32_t)place, 0);
    for (size_t j = 0; j < part->count; j++) {
        double v = part->value;
        switch (part->init) {
        case MR_INIT_UNIFORM: v *= 2 * mr_rng_uniform(&rng) - 1; break;
        case MR_INIT_NORMAL: v *= mr_rng_normal(&rng); break;
        case MR_INIT_CONSTANT: break;
        case MR_INIT_LOG_TAU: v *= log(draw_tau(&rng, horizon, log_uniform)); break;
        case MR_INIT_SIGNED_TAU: v *= mr_signed_gate(kept_share(draw_tau(&rng, horizon, log_uniform))); break;
        case MR_INIT_LOG_COUNT: v = log(1 + (double)(j % (size_t)row)); break;
        case MR_INIT_STEP_SIZE: v = draw_step_size(&rng); break;
        }
        out[part->first + j] = (float)v;
    }
}

void mr_params_init(const mr_params *params, uint64_t seed, double horizon, int log_uniform, float *out)
{
    memset(out, 0, params->total * sizeof *out);
    for (int i = 0; i < params->count; i++) {
        const mr_param *p = &params->list[i];
        int place = i; /* rows of a group share time scales: all gates of a channel start with the same τ */
        while ((p->init == MR_INIT_LOG_TAU || p->init == MR_INIT_SIGNED_TAU) && params->list[place].follows) place--;
        const mr_param_part all = {.count = p->count, .init = p->init, .value = p->init_value};
        const int64_t row = p->shape[p->ndim - 1];
        draw_part(&all, row, seed, place, horizon, log_uniform, out + p->offset);
        for (int k = 0; k < MR_PARAM_PARTS; k++)
            draw_part(&p->parts[k], row, seed, place, horizon, log_uniform, out + p->offset);
    }
}

int mr_params_first_nonfinite(const mr_params *params, const float *vector, const char **name)
{
    for (int i = 0; i < params->count; i++)
        for (size_t j = 0; j < params->list[i].count; j++)
            if (!isfinite(vector[params->list[i].offset + j])) return *name = params->list[i].name, 1;
    return 0;
}
