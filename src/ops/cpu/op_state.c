/* Moves states of streams between a pool and a batch. */
#include "ops/cpu/cpu.h"

#include <string.h>

typedef struct rows_job {
    const mr_state_rows_args *args;
    int span; /* blocks of rows per task */
} rows_job;

static void move_part(const mr_state_rows_args *a, float *one, float *many, int n)
{
    if (n) memcpy(a->scatter ? one : many, a->scatter ? many : one, (size_t)n * sizeof *one);
}

/* Moves the state of one block of one row. */
static void move_block(const mr_state_rows_args *a, int row, int layer)
{
    const int parts[] = {a->tail, a->mixer, a->rest};
    const size_t all = (size_t)parts[0] + (size_t)parts[1] + (size_t)parts[2], B = (size_t)a->B;
    float *one = (float *)a->pool + ((size_t)a->slot[row] * (size_t)a->layers + (size_t)layer) * all;
    float *many = (float *)a->many + (size_t)layer * all * B;
    for (int i = 0; i < 3; i++) {
        move_part(a, one, many + (size_t)row * (size_t)parts[i], parts[i]);
        one += parts[i];
        many += (size_t)parts[i] * B;
    }
}

static void rows_task(void *arg, int task, int slot)
{
    (void)slot;
    const rows_job *job = arg;
    const mr_state_rows_args *a = job->args;
    const int end = mr_min_int(a->B * a->layers, (task + 1) * job->span);
    for (int i = task * job->span; i < end; i++) move_block(a, i / a->layers, i % a->layers);
}

static void state_rows(mr_dev *dev, const mr_state_rows_args *a)
{
    const rows_job job = {.args = a, .span = mr_cpu_grain(a->tail + a->mixer + a->rest)};
    mr_cpu_run(mr_cpu_of(dev), rows_task, (void *)&job,
               (int)mr_ceil_div((size_t)a->B * (size_t)a->layers, (size_t)job.span));
}

void mr_cpu_state_ops(mr_ops *ops) { ops->state_rows = state_rows; }
