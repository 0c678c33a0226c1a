/* Checks the check: a device that corrupts the results of one op must not pass. */
#include "ops/check/group.h"

#include "core/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef enum mutation {
    PERTURBED,      /* one element is wrong by 1 % more than the tolerance */
    IS_NAN,         /* one element is NaN */
    UNWRITTEN,      /* one element was not written */
    SKIPPED,        /* the op did nothing at all */
    PAST,           /* a byte just past an output was written */
    BEFORE,         /* a byte just before an output was written */
    INPUT_CHANGED,  /* a byte of an input was written */
    UNREPEATABLE,   /* the last bit differs between two runs */
    THREADS_DIFFER, /* the last bit differs with the number of threads */
    MUTATIONS
} mutation;

static const char *const mutation_names[] = {"perturbed", "is-nan",        "unwritten",    "skipped",       "past",
                                             "before",    "input-changed", "unrepeatable", "threads-differ"};

enum { ROUNDS = 4, TRIES = 60 }; /* rounds of each mutation; seeds tried until a case can be corrupted */

/* A device that wraps another: it calls its ops, then corrupts what they wrote. */
typedef struct mutant {
    mr_dev dev; /* must come first: ops are called with its address */
    mr_tested_device *tested;
    mutation kind;
    int round;
    int applied;
} mutant;

/* The n-th buffer (modulo their number) that is an output, or, with output = 0, an input; −1: there is none. */
static int pick_buffer(const mr_case *c, int output, int n)
{
    int found[MR_CASE_BUFFERS], count = 0;
    for (int i = 0; i < c->buffer_count; i++)
        if (c->buffers[i].type != MR_CASE_SAVED &&
            (output ? mr_case_is_output(&c->buffers[i]) : c->buffers[i].role == MR_CASE_IN))
            found[count++] = i;
    return count ? found[n % count] : -1;
}

static void flip(mutant *m, char *at, unsigned char bits)
{
    unsigned char byte;
    mr_dev *dev = m->tested->dev;
    dev->download(dev, &byte, at, 1);
    byte ^= bits;
    dev->upload(dev, at, &byte, 1);
    m->applied = 1;
}

static double initial_value(const mr_case_buffer *b, size_t i)
{
    if (b->type == MR_CASE_INT) return ((const int32_t *)b->data)[i];
    return b->type == MR_CASE_DOUBLE ? ((const double *)b->data)[i] : (double)((const float *)b->data)[i];
}

/* Whether leaving this element unwritten would be noticed. */
static int would_be_noticed(const mr_case *c, const mr_case_buffer *b, size_t i, double value, double scale)
{
    return isfinite(value) && !(fabs(value - initial_value(b, i)) <= 2 * mr_case_allows(c, b, value, scale));
}

static double scale_of(const double *values, size_t count)
{
    double scale = 1;
    for (size_t i = 0; i < count; i++)
        if (isfinite(values[i])) scale = fmax(scale, fabs(values[i]));
    return scale;
}

static void spoil_values(mutant *m, const mr_case *c, int buffer, const double *values)
{
    const mr_case_buffer *b = &c->buffers[buffer];
    mr_dev *dev = m->tested->dev;
    char *base = m->tested->placed->base + m->tested->placed->at[buffer];
    size_t size = mr_case_element_size(dev, b->type), at = (c->seed * 7919 + (size_t)m->round * 31) % b->count;
    double scale = scale_of(values, b->count);
    if (m->kind == SKIPPED) {
        for (size_t i = 0; i < b->count; i++) {
            mr_case_write(dev, b->type, base + i * size, initial_value(b, i));
            m->applied |= would_be_noticed(c, b, i, values[i], scale);
        }
    } else if (isfinite(values[at]) && (m->kind != UNWRITTEN || would_be_noticed(c, b, at, values[at], scale))) {
        double off = b->type == MR_CASE_INT ? 1 : scale / 100 + 4 * mr_case_allows(c, b, values[at], scale);
        double value = m->kind == UNWRITTEN ? initial_value(b, at) : m->kind == IS_NAN ? NAN : values[at] + off;
        mr_case_write(dev, b->type, base + at * size, value);
        m->applied = 1;
    }
}

static void spoil_output(mutant *m, const mr_case *c, int buffer)
{
    const mr_case_buffer *b = &c->buffers[buffer];
    double *values = mr_alloc(b->count, sizeof *values);
    if (!values) return;
    mr_case_read(m->tested->dev, b->type, m->tested->placed->base + m->tested->placed->at[buffer], b->count, values);
    spoil_values(m, c, buffer, values);
    mr_free(values);
}

static void spoil(mutant *m)
{
    const mr_placed *p = m->tested->placed;
    const mr_case *c = p->c;
    int input = pick_buffer(c, 0, m->round), output = pick_buffer(c, 1, m->round);
    char *first = p->base + p->at[output], *end = first + p->bytes[output];
    switch (m->kind) {
    case SKIPPED:
        for (int i = 0; i < c->buffer_count; i++)
            if (mr_case_is_output(&c->buffers[i])) spoil_output(m, c, i);
        break;
    case PAST: flip(m, end + m->round * 8, 0x55); break;
    case BEFORE: flip(m, first - 1 - m->round * 8, 0x55); break;
    case INPUT_CHANGED:
        if (input >= 0) flip(m, p->base + p->at[input] + p->bytes[input] / 2, 0x55);
        break;
    case UNREPEATABLE:
        if (m->tested->run_index == 1) flip(m, first, 1);
        break;
    case THREADS_DIFFER:
        if (m->tested->dev->threads == (m->round % 2 ? 2 : 5)) flip(m, first, 1);
        break;
    default: spoil_output(m, c, output);
    }
}

#define OP(name, tolerance, what)                                                                                      \
    static void mutant_##name(mr_dev *dev, const mr_##name##_args *args)                                               \
    {                                                                                                                  \
        mutant *m = (mutant *)dev;                                                                                     \
        m->tested->dev->ops.name(m->tested->dev, args);                                                                \
        spoil(m);                                                                                                      \
    }
#include "ops/ops.def"
#undef OP

static const mr_ops mutant_ops = {
#define OP(name, tolerance, what) .name = mutant_##name,
#include "ops/ops.def"
#undef OP
};

static void set_mutants(mr_group *g, mutant *mutants, mutation kind, int round)
{
    for (int i = 0; i < g->count; i++) {
        mutants[i] = (mutant){.dev = *g->devices[i].dev, .tested = &g->devices[i], .kind = kind, .round = round};
        mutants[i].dev.ops = mutant_ops;
        g->devices[i].called = &mutants[i].dev;
    }
}

/* Runs the case of a seed unchanged and, when it passes, mutated. Returns 1: done, 0: nothing to
 * corrupt, or a negative status. */
static int try_seed(mr_check *k, int op, uint64_t seed, mutation kind, int round, int *caught, mr_error *err)
{
    mr_group *g = &k->groups[0];
    mutant mutants[MR_CHECK_THREADS] = {{.kind = kind}};
    mr_check_row sound = {0}, spoiled = {0};
    int applied = 0, status = mr_check_case(k, op, seed, &sound, err);
    if (status < 0 || sound.misses) return status;
    set_mutants(g, mutants, kind, round);
    status = mr_check_case(k, op, seed, &spoiled, err);
    for (int i = 0; i < g->count; i++) {
        applied |= mutants[i].applied;
        g->devices[i].called = g->devices[i].dev;
    }
    *caught = spoiled.misses > 0;
    return status < 0 ? status : applied;
}

/* One mutation of one op: tries seeds until a case can be corrupted. */
static int try_mutation(mr_check *k, int op, mutation kind, int round, int *caught, mr_error *err)
{
    int applied = 0;
    *caught = 0;
    for (int try = 0; try < TRIES && applied == 0; try++)
        applied = try_seed(k, op, k->options->seed + (uint64_t)(round * TRIES + try), kind, round, caught, err);
    if (applied == 0) *caught = 0;
    return applied < 0 ? applied : 0;
}

static int mutate_op(mr_check *k, int op, const mr_check_options *o, mr_error *err)
{
    int caught = 0, tried = 0;
    for (int kind = 0; kind < MUTATIONS; kind++) {
        if (kind == THREADS_DIFFER && k->groups[0].count == 1) continue;
        for (int round = 0; round < ROUNDS; round++) {
            int found, status = try_mutation(k, op, (mutation)kind, round, &found, err);
            if (status < 0) return status;
            char line[128];
            snprintf(line, sizeof line, "%s: mutation %s (round %d) was not caught", mr_case_ops[op].name,
                     mutation_names[kind], round);
            if (!found && o->on_miss) o->on_miss(o->arg, line);
            caught += found;
            tried++;
        }
    }
    if (o->on_mutant) o->on_mutant(o->arg, mr_case_ops[op].name, caught, tried);
    k->result->caught += caught;
    k->result->mutants += tried;
    return 0;
}

int mr_check_mutate(const mr_check_options *options, mr_check_result *result, mr_error *err)
{
    mr_check_options silent = *options; /* misses caused by mutants are expected: do not print them */
    silent.on_miss = NULL;
    if (!silent.isa && (!silent.device || !strcmp(silent.device, "cpu"))) silent.isa = mr_cpu_isas()[0];
    mr_check k = {.options = &silent, .result = result};
    memset(result, 0, sizeof *result);
    int status = mr_check_wants_any(options, err);
    if (status == 0) status = mr_check_open(&k, err);
    for (int op = 0; op < MR_OP_COUNT && status == 0; op++)
        if (mr_check_wants(options, op)) status = mutate_op(&k, op, options, err);
    mr_check_close(&k);
    return status;
}
