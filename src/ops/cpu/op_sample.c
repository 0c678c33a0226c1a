/* Sampling: a heap for each row, so that only tokens that can be drawn are sorted. */
#include "core/rng.h"
#include "ops/cpu/cpu.h"

#include <math.h>

/* Likeliest first; among equals the smaller token. */
static int before(const float *logits, int a, int b)
{
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

static void sift_down(const float *logits, int *heap, int n, int at)
{
    for (int child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && before(logits, heap[child + 1], heap[child])) child++;
        if (!before(logits, heap[child], heap[at])) return;
        int swap = heap[at];
        heap[at] = heap[child];
        heap[child] = swap;
    }
}

/* Takes the best token off the heap of n and returns it. */
static int pop(const float *logits, int *heap, int n)
{
    int best = heap[0];
    heap[0] = heap[n - 1];
    heap[n - 1] = best;
    sift_down(logits, heap, n - 1, 0);
    return best;
}

static int draw(const float *logits, int n, const mr_sampling *how, double u, int *order)
{
    for (int i = 0; i < n; i++) order[i] = i;
    for (int i = n / 2 - 1; i >= 0; i--) sift_down(logits, order, n, i);
    if (how->temperature <= 0) return order[0];
    double top = (double)logits[order[0]], all = 0, kept = 0;
    int limit = how->top_k > 0 && how->top_k < n ? how->top_k : n, count = 0;
    for (int i = 0; i < n; i++) all += exp(((double)logits[i] - top) / how->temperature);
    /* popped tokens collect at the end of order[], likeliest last */
    while (count < limit && (count == 0 || kept < how->top_p * all)) {
        kept += exp(((double)logits[pop(logits, order, n - count)] - top) / how->temperature);
        count++;
    }
    double target = u * kept, sum = 0;
    for (int i = 0; i < count; i++) {
        int token = order[n - 1 - i];
        sum += exp(((double)logits[token] - top) / how->temperature);
        if (target < sum) return token;
    }
    return order[n - count];
}

typedef struct sample_job {
    mr_cpu *cpu;
    const mr_sample_args *args;
    uint64_t position;
} sample_job;

static void sample_row(void *arg, int r, int slot)
{
    const sample_job *job = arg;
    const mr_sample_args *a = job->args;
    const float *x = (const float *)a->logits + (size_t)r * (size_t)a->C;
    int32_t *drawn = a->drawn + job->position % MR_DRAWN * (size_t)a->R + r;
    float poison = 0;
    for (int c = 0; c < a->C; c++) poison += x[c] - x[c]; /* NaN when a logit is not finite */
    const int finite = poison == 0;
    const double u = mr_sample_uniform(a->how->seed, job->position, (uint32_t)r);
    *drawn = finite ? draw(x, a->C, a->how, u, (int *)mr_cpu_slot(job->cpu, slot)) : -1;
    a->ids[r] = finite ? *drawn : 0;
}

static void sample(mr_dev *dev, const mr_sample_args *a)
{
    sample_job job = {.cpu = mr_cpu_of(dev), .args = a, .position = (uint64_t)*a->position};
    if (!mr_cpu_slots(job.cpu, (size_t)a->C)) return;
    mr_pool_run(job.cpu->pool, sample_row, &job, a->R); /* not mr_cpu_run: denormal logits must keep their order */
    *a->position += 1;
}

void mr_cpu_sample_ops(mr_ops *ops) { ops->sample = sample; }
