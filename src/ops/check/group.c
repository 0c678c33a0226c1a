/* Opens the devices of a check, and runs a case on each of them. */
#include "ops/check/group.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void mr_check_close(mr_check *k)
{
    mr_dev_close(k->ref.dev);
    for (int g = 0; g < k->count; g++)
        for (int i = 0; i < k->groups[g].count; i++) mr_dev_close(k->groups[g].devices[i].dev);
}

static const char *label(const mr_dev *dev) { return dev->isa[0] ? dev->isa : dev->kind; }

static int add_device(mr_group *g, const char *spec, mr_dev_options how, mr_error *err)
{
    mr_dev *dev;
    how.exact = 1;
    int status = mr_dev_open(spec, &how, &dev, err);
    if (status == 0) g->devices[g->count++] = (mr_tested_device){.dev = dev, .called = dev};
    return status;
}

static int add_isa(mr_check *k, const char *isa, mr_error *err)
{
    static const int threads[MR_CHECK_THREADS] = {1, 2, 5};
    mr_group *g = &k->groups[k->count++];
    g->isa = isa;
    int status = 0;
    for (int i = 0; i < MR_CHECK_THREADS && status == 0; i++) {
        const mr_dev_options how = {.threads = threads[i], .isa = isa, .bf16 = k->options->bf16};
        status = add_device(g, "cpu", how, err);
    }
    return status;
}

int mr_check_open(mr_check *k, mr_error *err)
{
    const mr_check_options *o = k->options;
    const char *device = o->device ? o->device : "cpu";
    int status = mr_dev_open("ref", NULL, &k->ref.dev, err);
    k->ref.called = k->ref.dev;
    if (status < 0) return status;
    if (strcmp(device, "cpu")) {
        if (o->isa) return mr_fail(err, MR_EINVAL, "device %s has one instruction set: omit --isa", device);
        mr_group *g = &k->groups[k->count++];
        g->isa = "";
        status = add_device(g, device, (mr_dev_options){.bf16 = o->bf16}, err);
        if (status == 0) g->isa = label(g->devices[0].dev);
        return status;
    }
    for (const char *const *isa = mr_cpu_isas(); *isa && k->count < MR_CHECK_ISAS && status == 0; isa++)
        if (!o->isa || !strcmp(o->isa, *isa)) status = add_isa(k, *isa, err);
    if (status == 0 && k->count == 0)
        return mr_fail(err, MR_EINVAL, "this machine cannot run instruction set %s; see `minrnn --version`", o->isa);
    return status;
}

static void report_miss(const mr_check *k, const mr_case *c, const mr_tested_device *s, const char *what)
{
    char line[MR_CASE_SHAPE + 512];
    if (!k->options->on_miss) return;
    snprintf(line, sizeof line, "%s %s threads=%d seed=%llu (%s): %s", mr_case_ops[c->op].name, label(s->dev),
             s->dev->threads, (unsigned long long)c->seed, c->shape, what);
    k->options->on_miss(k->options->arg, line);
}

/* Checks one device: against ref, against a second run, and against the first of its group,
 * whose outcome is `leader`. */
static int try_device(const mr_case *c, mr_tested_device *s, const mr_outcome *ref, mr_outcome *leader,
                      mr_verdict *verdict, mr_error *err)
{
    mr_outcome got = {0}, again = {0};
    int status = mr_case_run(c, s, 0, &got, err);
    if (status == 0) status = mr_case_run(c, s, 1, &again, err);
    if (status == 0) {
        mr_verdict second = {0};
        mr_outcome_judge(c, &got, ref, verdict);
        mr_outcome_same(c, &again, &got, "in the run before", verdict);
        mr_outcome_judge(c, &again, ref, &second);
        if (!verdict->misses && second.misses) *verdict = second;
        if (leader->after) mr_outcome_same(c, &got, leader, "with one thread", verdict);
    }
    mr_outcome_free(&again);
    if (status == 0 && !leader->after) *leader = got;
    else mr_outcome_free(&got);
    return status;
}

static int try_group(const mr_check *k, const mr_case *c, mr_group *g, const mr_outcome *ref, mr_check_row *row,
                     mr_error *err)
{
    mr_outcome leader = {0};
    int status = 0;
    for (int i = 0; i < g->count && status == 0; i++) {
        mr_verdict verdict = {0};
        status = try_device(c, &g->devices[i], ref, &leader, &verdict, err);
        row->cases++;
        row->misses += verdict.misses != 0;
        row->worst = fmax(row->worst, verdict.worst);
        if (verdict.misses) report_miss(k, c, &g->devices[i], verdict.what);
    }
    mr_outcome_free(&leader);
    return status;
}

int mr_check_case(mr_check *k, int op, uint64_t seed, mr_check_row *rows, mr_error *err)
{
    mr_case c;
    mr_outcome ref = {0};
    int stored = k->groups[0].devices[0].dev->act_size < k->ref.dev->act_size;
    int status =
        mr_case_draw(&c, op, seed, stored ? MR_CASE_STORED_BF16 : 0) < 0 ? mr_no_memory(err, "a case of the check") : 0;
    if (k->options->bf16 && !stored) mr_case_bf16_products(&c);
    if (status == 0) status = mr_case_run(&c, &k->ref, 0, &ref, err);
    for (int g = 0; g < k->count && status == 0; g++) status = try_group(k, &c, &k->groups[g], &ref, &rows[g], err);
    mr_outcome_free(&ref);
    mr_case_free(&c);
    return status;
}
