/* Lays out one case in device memory between guard words, runs it, and compares the results. */
#include "ops/check/run.h"

#include "core/clock.h"
#include "core/mem.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Bytes of guard words. In the first run they are NaN, so that reading past a buffer shows in the result. In the second
 * they are an ordinary number, so that adding to a guard word changes it. */
static const unsigned char guard_bytes[2] = {0xFF, 0x3C};
enum { GUARD_ELEMENTS = 64, BLOCK = 64 };

int mr_case_is_output(const mr_case_buffer *b) { return b->role == MR_CASE_OUT || b->role == MR_CASE_ADD; }

size_t mr_case_element_size(const mr_dev *dev, mr_case_type type)
{
    switch (type) {
    case MR_CASE_ACT: return dev->act_size;
    case MR_CASE_REAL: return dev->real_size;
    case MR_CASE_INT: return sizeof(int32_t);
    case MR_CASE_BYTE: return 1;
    case MR_CASE_DOUBLE: return sizeof(double);
    case MR_CASE_STEP: return sizeof(mr_step);
    case MR_CASE_SAMPLING: return sizeof(mr_sampling);
    case MR_CASE_SAVED: return BLOCK;
    }
    return 0;
}

void mr_case_read(mr_dev *dev, mr_case_type type, const char *from, size_t count, double *to)
{
    enum { CHUNK = 1024 };
    float part[CHUNK];
    int32_t whole[CHUNK];
    if (type == MR_CASE_DOUBLE) {
        dev->download(dev, to, from, count * sizeof *to);
        return;
    }
    for (size_t done = 0; done < count; done += CHUNK) {
        size_t n = count - done < CHUNK ? count - done : CHUNK;
        const char *at = from + done * mr_case_element_size(dev, type);
        if (type == MR_CASE_INT) dev->download(dev, whole, at, n * sizeof *whole);
        else if (type == MR_CASE_ACT) dev->get_act(dev, part, (const mr_act *)at, n);
        else dev->get(dev, part, (const mr_real *)at, n);
        for (size_t i = 0; i < n; i++) to[done + i] = type == MR_CASE_INT ? whole[i] : (double)part[i];
    }
}

void mr_case_write(mr_dev *dev, mr_case_type type, char *to, double value)
{
    float single = (float)value;
    int32_t whole = isnan(value) ? INT32_MIN : (int32_t)value;
    if (type == MR_CASE_INT) dev->upload(dev, to, &whole, sizeof whole);
    else if (type == MR_CASE_DOUBLE) dev->upload(dev, to, &value, sizeof value);
    else if (type == MR_CASE_ACT) dev->put_act(dev, (mr_act *)to, &single, 1);
    else dev->put(dev, (mr_real *)to, &single, 1);
}

/* Bytes of `saved`; the arguments of a backward begin with the same members as those of its forward. */
static size_t saved_bytes(const mr_case *c, mr_dev *dev)
{
    const mr_minrnn_fwd_args *m = &c->args.minrnn_fwd;
    const mr_rnn_fwd_args *r = &c->args.rnn_fwd;
    if (c->op == MR_OP_rnn_fwd || c->op == MR_OP_rnn_bwd) return dev->rnn_saved(dev, r->kind, r->B, r->T, r->H);
    return dev->minrnn_saved(dev, &m->cell, m->B, m->T, m->D, m->H);
}

static void lay_out(const mr_case *c, mr_dev *dev, mr_placed *p)
{
    size_t used = 0;
    for (int i = 0; i < c->buffer_count; i++) {
        const mr_case_buffer *b = &c->buffers[i];
        size_t size = mr_case_element_size(dev, b->type);
        p->at[i] = used + (GUARD_ELEMENTS + (size_t)b->shift) * size;
        p->bytes[i] = b->count * size;
        if (b->type == MR_CASE_SAVED) p->bytes[i] = saved_bytes(c, dev);
        used = (p->at[i] + p->bytes[i] + GUARD_ELEMENTS * size + BLOCK - 1) / BLOCK * BLOCK;
    }
    p->total = used;
}

static void set_field(mr_case_args *args, size_t field, char *address)
{
    if (field != MR_NO_FIELD) memcpy((char *)args + field, &address, sizeof address);
}

static void bind(const mr_case *c, mr_placed *p)
{
    p->args = c->args;
    p->first = c->first;
    for (int i = 0; i < c->buffer_count; i++) {
        char *address = p->base + p->at[i];
        set_field(&p->args, c->buffers[i].field, address);
        set_field(&p->args, c->buffers[i].alias, address);
        set_field(&p->first, c->buffers[i].in_first, address);
    }
}

static int place(const mr_case *c, mr_dev *dev, mr_placed *p, mr_error *err)
{
    p->c = c;
    lay_out(c, dev, p);
    p->base = dev->alloc(dev, p->total);
    if (!p->base) return mr_no_memory(err, "a case of the check on the device");
    bind(c, p);
    return 0;
}

static void put_values(const mr_case *c, mr_dev *dev, const mr_placed *p)
{
    for (int i = 0; i < c->buffer_count; i++) {
        const mr_case_buffer *b = &c->buffers[i];
        char *to = p->base + p->at[i];
        if (b->type == MR_CASE_SAVED) continue;
        if (b->type == MR_CASE_ACT) dev->put_act(dev, (mr_act *)to, b->data, b->count);
        else if (b->type == MR_CASE_REAL) dev->put(dev, (mr_real *)to, b->data, b->count);
        else dev->upload(dev, to, b->data, p->bytes[i]);
    }
}

static int run_placed(const mr_case *c, mr_tested_device *tested, mr_outcome *out, mr_error *err)
{
    mr_dev *dev = tested->dev;
    mr_placed *p = &out->placed;
    out->before = mr_alloc(p->total, 1);
    out->after = mr_alloc(p->total, 1);
    if (!out->before || !out->after) return mr_no_memory(err, "a case of the check");
    memset(out->before, guard_bytes[tested->run_index], p->total);
    dev->upload(dev, p->base, out->before, p->total);
    put_values(c, dev, p);
    if (c->first_op >= 0) mr_case_ops[c->first_op].call(dev, &p->first);
    dev->download(dev, out->before, p->base, p->total);
    tested->placed = p;
    mr_case_ops[c->op].call(tested->called, &p->args);
    tested->placed = NULL;
    int status = dev->sync(dev, err);
    if (status < 0) return status;
    dev->download(dev, out->after, p->base, p->total);
    for (int i = 0; i < c->buffer_count; i++) {
        const mr_case_buffer *b = &c->buffers[i];
        if (!mr_case_is_output(b)) continue;
        out->values[i] = mr_alloc(b->count, sizeof(double));
        if (!out->values[i]) return mr_no_memory(err, "a case of the check");
        mr_case_read(dev, b->type, p->base + p->at[i], b->count, out->values[i]);
    }
    return 0;
}

int mr_case_run(const mr_case *c, mr_tested_device *tested, int run_index, mr_outcome *out, mr_error *err)
{
    memset(out, 0, sizeof *out);
    int status = place(c, tested->dev, &out->placed, err);
    if (status < 0) return status;
    tested->run_index = run_index;
    status = run_placed(c, tested, out, err);
    tested->dev->release(tested->dev, out->placed.base);
    out->placed.base = NULL;
    return status;
}

void mr_outcome_free(mr_outcome *out)
{
    mr_free(out->before);
    mr_free(out->after);
    for (int i = 0; i < MR_CASE_BUFFERS; i++) mr_free(out->values[i]);
    memset(out, 0, sizeof *out);
}

__attribute__((format(printf, 2, 3))) static void miss(mr_verdict *verdict, const char *format, ...)
{
    va_list list;
    if (verdict->misses++) return;
    va_start(list, format);
    vsnprintf(verdict->what, sizeof verdict->what, format, list);
    va_end(list);
}

static void judge_values(const mr_case *c, const mr_case_buffer *b, const double *got, const double *ref,
                         mr_verdict *verdict)
{
    double scale = 1;
    for (size_t i = 0; i < b->count; i++)
        if (isfinite(ref[i])) scale = fmax(scale, fabs(ref[i]));
    for (size_t i = 0; i < b->count; i++) {
        if (got[i] == ref[i] || (isnan(got[i]) && isnan(ref[i]) && c->planted)) continue;
        double error = fabs(got[i] - ref[i]), allowed = mr_case_allows(c, b, ref[i], scale), share = error / allowed;
        if (share <= 1) {
            verdict->worst = fmax(verdict->worst, share);
            continue;
        }
        verdict->worst = isnan(share) ? INFINITY : fmax(verdict->worst, share);
        miss(verdict, "%s[%zu] is %.9g, expected %.9g: error %.3g, tolerance %.3g", b->name, i, got[i], ref[i], error,
             allowed);
        return;
    }
}

/* Checks every byte that the op must not write. */
static void judge_bytes(const mr_case *c, const mr_outcome *got, mr_verdict *verdict)
{
    const mr_placed *p = &got->placed;
    size_t start = 0;
    for (int i = 0; i <= c->buffer_count; i++) {
        size_t end = i < c->buffer_count ? p->at[i] : p->total;
        for (size_t k = start; k < end; k++) {
            if (got->before[k] == got->after[k]) continue;
            int past = i > 0 && (i == c->buffer_count || k - start < end - k);
            miss(verdict, "wrote %zu bytes %s %s", past ? k - start + 1 : end - k,
                 past ? "past the end of" : "before the start of", c->buffers[past ? i - 1 : i].name);
            break;
        }
        if (i == c->buffer_count) return;
        start = end + p->bytes[i];
        if (c->buffers[i].role == MR_CASE_IN && memcmp(got->before + end, got->after + end, p->bytes[i]))
            miss(verdict, "changed its input %s", c->buffers[i].name);
    }
}

void mr_outcome_judge(const mr_case *c, const mr_outcome *got, const mr_outcome *ref, mr_verdict *verdict)
{
    for (int i = 0; i < c->buffer_count; i++)
        if (mr_case_is_output(&c->buffers[i])) judge_values(c, &c->buffers[i], got->values[i], ref->values[i], verdict);
    judge_bytes(c, got, verdict);
}

void mr_outcome_same(const mr_case *c, const mr_outcome *got, const mr_outcome *other, const char *than,
                     mr_verdict *verdict)
{
    for (int i = 0; i < c->buffer_count; i++) {
        const mr_case_buffer *b = &c->buffers[i];
        const char *mine = got->after + got->placed.at[i], *its = other->after + other->placed.at[i];
        size_t bytes = got->placed.bytes[i], k = 0;
        if (!mr_case_is_output(b) || memcmp(mine, its, bytes) == 0) continue;
        while (mine[k] == its[k]) k++;
        size_t element = k / (bytes / b->count);
        miss(verdict, "%s[%zu] is %.9g, but %.9g %s", b->name, element, got->values[i][element],
             other->values[i][element], than);
    }
}

int mr_case_time(const mr_case *c, mr_dev *dev, double *ns, mr_error *err)
{
    enum { CALLS = 5 };
    mr_placed p = {0};
    int status = place(c, dev, &p, err);
    if (status < 0) return status;
    put_values(c, dev, &p);
    *ns = INFINITY;
    for (int call = 0; call < CALLS && status == 0; call++) {
        if (c->first_op >= 0) mr_case_ops[c->first_op].call(dev, &p.first);
        status = dev->sync(dev, err);
        double start = mr_seconds();
        mr_case_ops[c->op].call(dev, &p.args);
        if (status == 0) status = dev->sync(dev, err);
        *ns = fmin(*ns, (mr_seconds() - start) * 1e9 / (double)c->elements);
    }
    dev->release(dev, p.base);
    return status;
}
