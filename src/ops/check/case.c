/* Draws a case: its random shape, its buffers and their values, all from one seed. */
#include "ops/check/makers.h"

#include "core/mem.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define OP(name, tolerance, what)                                                                                      \
    static void call_##name(mr_dev *dev, const mr_case_args *args) { dev->ops.name(dev, &args->name); }
#include "ops/ops.def"
#undef OP

const mr_case_op mr_case_ops[MR_OP_COUNT] = {
#define OP(name, tolerance, what) {#name, tolerance, mr_case_##name, call_##name},
#include "ops/ops.def"
#undef OP
};

int mr_case_below(mr_case *c, int n) { return (int)mr_rng_below(&c->rng, (uint32_t)n); }
int mr_case_chance(mr_case *c, int percent) { return mr_case_below(c, 100) < percent; }

int mr_case_width(mr_case *c)
{
    static const int wide[] = {48, 64, 100, 128, 131};
    int turn = (int)(c->seed % 40);
    if (c->speed) return 256;
    return turn < 35 ? turn + 1 : wide[turn - 35];
}

int mr_case_other_width(mr_case *c)
{
    if (c->speed) return 256;
    return mr_case_chance(c, 80) ? 1 + mr_case_below(c, 40) : 64 + mr_case_below(c, 80);
}

int mr_case_rows(mr_case *c)
{
    if (c->speed) return 256;
    if (mr_case_chance(c, 10)) return 1;
    return mr_case_chance(c, 80) ? 1 + mr_case_below(c, 40) : 100 + mr_case_below(c, 300);
}

void mr_case_say(mr_case *c, const char *format, ...)
{
    size_t used = strlen(c->shape);
    va_list list;
    va_start(list, format);
    vsnprintf(c->shape + used, sizeof c->shape - used, format, list);
    va_end(list);
}

mr_case_buffer *mr_case_add(mr_case *c, const char *name, size_t field, mr_case_type type, mr_case_role role,
                            size_t count, mr_case_fill fill, double value)
{
    mr_case_buffer *b = &c->buffers[c->buffer_count++];
    *b = (mr_case_buffer){.name = name,
                          .type = type,
                          .role = role,
                          .fill = fill,
                          .value = value,
                          .count = count,
                          .plant = MR_NO_PLANT,
                          .reach = count,
                          .field = field,
                          .alias = MR_NO_FIELD,
                          .in_first = MR_NO_FIELD};
    const int shift = 1 + mr_case_below(c, 15);
    b->shift = c->speed || c->aligned ? 0 : shift;
    return b;
}

void mr_case_add_dropout(mr_case *c, mr_dropout *drop, size_t field, int percent_on)
{
    static const float chances[] = {0.1f, 0.2f, 0.5f, 0.9f};
    int on = !c->speed && mr_case_chance(c, percent_on);
    if (on) {
        drop->p = chances[mr_case_below(c, 4)];
        drop->site = (uint32_t)mr_case_below(c, 50);
        mr_case_say(c, " dropout=%g", (double)drop->p);
    }
    if (on || mr_case_chance(c, 50))
        mr_case_add(c, "step", field + offsetof(mr_dropout, step), MR_CASE_STEP, MR_CASE_IN, 1, MR_FILL_STEP, 0);
}

static mr_step random_step(mr_case *c)
{
    static const double clips[] = {0, 0.25, 1}, decays[] = {0, 0.01, 0.1};
    mr_rng *rng = &c->rng;
    double t = 1 + mr_case_below(c, 1000);
    mr_step step = {.seed = (uint64_t)mr_rng_u32(rng) << 32 | mr_rng_u32(rng),
                    .step = (uint32_t)t,
                    .micro = (uint32_t)mr_case_below(c, 4),
                    .lr = 1e-3 * (1 + mr_case_below(c, 10)),
                    .beta1 = 0.9,
                    .beta2 = 0.99,
                    .eps = 1e-8,
                    .weight_decay = decays[mr_case_below(c, 3)],
                    .clip = clips[mr_case_below(c, 3)],
                    .decoupled = mr_case_below(c, 2)};
    step.bias1 = 1 - pow(step.beta1, t);
    step.bias2 = 1 - pow(step.beta2, t);
    return step;
}

static mr_sampling random_sampling(mr_case *c)
{
    static const double temperatures[] = {0, 0.3, 0.8, 1, 1.7}, top_ps[] = {1, 1, 0.95, 0.5, 0};
    static const int top_ks[] = {0, 0, 1, 7, 1000000};
    mr_rng *rng = &c->rng;
    return (mr_sampling){.seed = (uint64_t)mr_rng_u32(rng) << 32 | mr_rng_u32(rng),
                         .temperature = temperatures[mr_case_below(c, 5)],
                         .top_p = top_ps[mr_case_below(c, 5)],
                         .top_k = top_ks[mr_case_below(c, 5)]};
}

static int signed_value(mr_case *c, const mr_case_buffer *b)
{
    return mr_case_below(c, 2 * (int)b->value + 1) - (int)b->value;
}

static double real_value(mr_case *c, const mr_case_buffer *b, size_t i)
{
    switch (b->fill) {
    case MR_FILL_NORMAL: return b->value * mr_rng_normal(&c->rng);
    case MR_FILL_WHOLE: return round(b->value * mr_rng_normal(&c->rng));
    case MR_FILL_SIGNED: return signed_value(c, b);
    case MR_FILL_POSITIVE: return fabs(b->value * mr_rng_normal(&c->rng)) + 0.01;
    case MR_FILL_SATURATED:
        if (i >= b->reach || mr_case_chance(c, 50)) return mr_rng_normal(&c->rng);
        return mr_case_chance(c, 50) ? b->value : -b->value;
    case MR_FILL_CONSTANT: return b->value;
    default: return NAN;
    }
}

/* A value that differs from the i values before it. */
static int distinct_value(mr_case *c, const mr_case_buffer *b, size_t i)
{
    const int32_t *taken = b->data;
    for (;;) {
        const int value = mr_case_below(c, (int)b->value);
        size_t k = 0;
        while (k < i && taken[k] != value) k++;
        if (k == i) return value;
    }
}

/* Does it begin with a state? A sequence without one has a token at least. */
static int continues(const mr_case *c)
{
    static const char *const names[][2] = {{"h_in", "h_out"}, {"tail_in", "tail_out"}, {"cache_in", "cache_out"}};
    for (int i = 0; i < c->buffer_count; i++)
        for (int k = 0; k < 3; k++) {
            const mr_case_buffer *b = &c->buffers[i];
            if (!strcmp(b->name, names[k][0]) || (!strcmp(b->name, names[k][1]) && b->alias != MR_NO_FIELD)) return 1;
        }
    return 0;
}

static int int_value(mr_case *c, const mr_case_buffer *b)
{
    if (b->fill == MR_FILL_CONSTANT) return (int)b->value;
    if (b->fill == MR_FILL_LEFT && continues(c) && mr_case_chance(c, 15)) return 0;
    if (b->fill == MR_FILL_LENGTH || b->fill == MR_FILL_LEFT)
        return mr_case_chance(c, 20) ? (int)b->value : 1 + mr_case_below(c, (int)b->value);
    if (b->fill == MR_FILL_TARGET && mr_case_chance(c, 20)) return -1;
    return mr_case_below(c, (int)b->value);
}

static void fill_element(mr_case *c, mr_case_buffer *b, size_t i)
{
    switch (b->type) {
    case MR_CASE_ACT:
    case MR_CASE_REAL: ((float *)b->data)[i] = i == b->plant ? NAN : (float)real_value(c, b, i); break;
    case MR_CASE_DOUBLE: ((double *)b->data)[i] = real_value(c, b, i); break;
    case MR_CASE_INT:
        ((int32_t *)b->data)[i] = b->fill == MR_FILL_DISTINCT ? distinct_value(c, b, i) : int_value(c, b);
        break;
    case MR_CASE_BYTE:
        ((uint8_t *)b->data)[i] =
            (uint8_t)(b->fill == MR_FILL_SIGNED ? signed_value(c, b) : mr_rng_uniform(&c->rng) < b->value);
        break;
    case MR_CASE_STEP: ((mr_step *)b->data)[i] = random_step(c); break;
    case MR_CASE_SAMPLING: ((mr_sampling *)b->data)[i] = random_sampling(c); break;
    case MR_CASE_SAVED: break;
    }
}

int mr_case_draw(mr_case *c, int op, uint64_t seed, int how)
{
    static const size_t host_size[] = {[MR_CASE_ACT] = sizeof(float),           [MR_CASE_REAL] = sizeof(float),
                                       [MR_CASE_INT] = sizeof(int32_t),         [MR_CASE_BYTE] = 1,
                                       [MR_CASE_DOUBLE] = sizeof(double),       [MR_CASE_STEP] = sizeof(mr_step),
                                       [MR_CASE_SAMPLING] = sizeof(mr_sampling)};
    memset(c, 0, sizeof *c);
    c->op = op;
    c->seed = seed;
    c->rng = mr_rng_at(seed, MR_STREAM_SAMPLE, (uint32_t)op, 0);
    c->speed = (how & MR_CASE_SPEED) != 0;
    c->bf16 = (how & MR_CASE_STORED_BF16) != 0;
    c->aligned = seed % 3 == 1;
    c->first_op = -1;
    c->tolerance = mr_case_ops[op].tolerance;
    mr_case_ops[op].make(c);
    for (mr_case_buffer *b = c->buffers; b < c->buffers + c->buffer_count; b++) {
        if (b->type == MR_CASE_SAVED) continue;
        b->data = mr_alloc(b->count, host_size[b->type]);
        if (!b->data) return MR_ENOMEM;
        for (size_t i = 0; i < b->count; i++) fill_element(c, b, i);
    }
    if (c->bf16) mr_case_bf16_stored(c);
    return 0;
}

void mr_case_free(mr_case *c)
{
    for (int i = 0; i < c->buffer_count; i++) mr_free(c->buffers[i].data);
    c->buffer_count = 0;
}
