/* The stopwatch: median and best of several calls, and the share of the limit that applies. */
#include "bench/bench.h"

#include "core/clock.h"
#include "core/rng.h"
#include "bench/timed_model.h"

#include <stdio.h>

enum { LEAST = 5, MOST = 1001 };

static double once(mr_bench *b, const mr_bench_job *job)
{
    if (job->before) job->before(job->arg);
    b->dev->sync(b->dev, NULL);
    double start = mr_seconds();
    job->run(job->arg);
    b->dev->sync(b->dev, NULL);
    return mr_seconds() - start;
}

static mr_bound binding(const mr_limits *limits, const mr_bench_job *job)
{
    double rate = job->read_bytes > 0 ? job->read_bytes : limits->copy_bytes;
    double compute = limits->flops > 0 ? job->flops / limits->flops : 0;
    double memory = rate > 0 ? job->bytes / rate : 0;
    if (compute <= 0 && memory <= 0) return MR_BOUND_NONE;
    return compute > memory ? MR_BOUND_COMPUTE : job->read_bytes > 0 ? MR_BOUND_READ : MR_BOUND_COPY;
}

/* Limit, work, limit, work, …: each repetition is compared with the limits measured around it. */
void mr_bench_measure(mr_bench *b, const mr_bench_job *job)
{
    double times[MOST], shares[MOST], budget = b->quick ? 0.2 : 1.0;
    const mr_bound bound = binding(&b->limits, job);
    const double work = bound == MR_BOUND_COMPUTE ? job->flops : job->bytes;
    mr_bench_row row = {.bench = job->bench,
                        .bytes = job->bytes,
                        .flops = job->flops,
                        .tokens = job->tokens,
                        .limit = bound == MR_BOUND_NONE      ? ""
                                 : bound == MR_BOUND_COMPUTE ? "compute"
                                 : bound == MR_BOUND_READ    ? job->place
                                                             : "memory"};
    snprintf(row.name, sizeof row.name, "%s", job->name);
    if (b->on_start) b->on_start(b->arg, job->bench, job->name);
    once(b, job);
    int count = 0;
    double before = mr_bench_now(b, bound), patience = mr_seconds() + 3 * budget;
    for (double spent = 0; count < MOST && (count < LEAST || (spent < budget && mr_seconds() < patience)); count++) {
        if (bound == MR_BOUND_READ) once(b, job); /* the reads around it have evicted its weights from the cache */
        spent += times[count] = once(b, job);
        const double after = mr_bench_now(b, bound);
        shares[count] = work / (0.5 * (before + after)) / times[count];
        before = after;
    }
    row.seconds = mr_median(times, count);
    row.best = times[0];
    if (bound != MR_BOUND_NONE) row.share = mr_median(shares, count);
    b->on_row(b->arg, &row);
}

/* The same few thousand values over and over: what is timed does not depend on them. */
enum { PATTERN = 4096 };

static void random_pattern(float *values, double scale)
{
    mr_rng rng = mr_rng_at(1, MR_STREAM_SAMPLE, 0, 0);
    for (int i = 0; i < PATTERN; i++) values[i] = (float)(scale * (2 * mr_rng_uniform(&rng) - 1));
}

mr_act *mr_bench_acts(mr_dev *dev, size_t count, double scale)
{
    float pattern[PATTERN];
    mr_act *p = dev->alloc(dev, count * dev->act_size);
    random_pattern(pattern, scale);
    for (size_t i = 0; p && i < count; i += PATTERN)
        dev->put_act(dev, mr_act_at(dev, p, i), pattern, count - i < PATTERN ? count - i : PATTERN);
    return p;
}

mr_real *mr_bench_reals(mr_dev *dev, size_t count, double scale)
{
    float pattern[PATTERN];
    mr_real *p = dev->alloc(dev, count * dev->real_size);
    random_pattern(pattern, scale);
    for (size_t i = 0; p && i < count; i += PATTERN)
        dev->put(dev, mr_real_at(dev, p, i), pattern, count - i < PATTERN ? count - i : PATTERN);
    return p;
}
