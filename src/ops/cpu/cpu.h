/* What the CPU backend's files share: the device's data, scratch memory, how work is split. */
#ifndef MR_OPS_CPU_CPU_H
#define MR_OPS_CPU_CPU_H

#include "core/pool.h"
#include "ops/cpu/kernels.h"
#include "ops/device.h"

/* Scratch grows when a larger shape is first seen and is kept: a step with known shapes allocates nothing. */
typedef struct mr_scratch {
    float *data;
    size_t count;
} mr_scratch;

enum {
    MR_SCRATCH_PACK,    /* the packed operand of a product */
    MR_SCRATCH_PARTIAL, /* partial sums of a reduction */
    MR_SCRATCH_STATE,   /* states and carries of a scan; rows of a convolution */
    MR_SCRATCH_SLOTS,   /* one part for each thread */
    MR_SCRATCH_RNN,     /* W_hh packed for its products, and rows of states */
    MR_SCRATCH_TURNS,   /* attention: cosines and sines by position */
    MR_SCRATCH_SPILL,   /* attention: gradients that one task leaves for another */
    MR_SCRATCHES
};

typedef struct mr_cpu {
    mr_dev dev;
    mr_cpu_kernels kernels;
    const mr_cpu_kernels *set;                /* the set they come from */
    const mr_product_kernels *product;        /* how matrices are multiplied */
    const mr_product_kernels *raw_product[2]; /* for raw calls in fp32 and in bf16; NULL until first used */
    const mr_product_kernels *kept_product;   /* during a raw call: the saved value of `product` */
    mr_pool *pool;
    mr_scratch scratch[MR_SCRATCHES];
    size_t slot_stride;
    int turn_size, turn_rows; /* shape of the table in MR_SCRATCH_TURNS */
    int out_of_memory;        /* since the last sync */
} mr_cpu;

static inline mr_cpu *mr_cpu_of(mr_dev *dev) { return dev->impl; }

/* At least `count` floats, or NULL (sync then reports it). Growing loses the previous contents. */
float *mr_cpu_scratch(mr_cpu *cpu, int which, size_t count);

/* The same for every thread; mr_cpu_slot returns a thread's part. Returns 0 when out of memory. */
int mr_cpu_slots(mr_cpu *cpu, size_t count);
static inline size_t mr_cpu_slot_stride(size_t count)
{
    return (count + 63) / 64 * 64 + 64;
} /* threads share no cache line */
static inline float *mr_cpu_slot(const mr_cpu *cpu, int slot)
{
    return cpu->scratch[MR_SCRATCH_SLOTS].data + (size_t)slot * cpu->slot_stride;
}

/* mr_pool_run with denormal numbers flushed to 0: a gradient that decays over a long sequence is full of them, and each
 * would cost a hundred cycles. */
void mr_cpu_run(mr_cpu *cpu, mr_pool_fn *fn, void *arg, int tasks);

/* How work is split. It depends on shapes only, never on the number of threads, so that results do not either. */
static inline size_t mr_ceil_div(size_t a, size_t b) { return (a + b - 1) / b; }
static inline size_t mr_round_up(size_t a, size_t b) { return mr_ceil_div(a, b) * b; }
static inline int mr_min_int(int a, int b) { return a < b ? a : b; }
static inline int mr_max_int(int a, int b) { return a > b ? a : b; }

/* Rows per task, so that a task of rows of this width is worth handing to a thread. */
static inline int mr_cpu_grain(int width) { return mr_max_int(1, 16384 / mr_max_int(1, width)); }

/* to[n] += Σ over parts of from[part · stride], in the order of the parts. */
void mr_cpu_reduce(mr_cpu *cpu, size_t n, const float *from, size_t stride, int parts, float *to);

/* Whether bf16 products can use AMX. */
int mr_cpu_has_amx(void);

/* Each adds the ops of one file to the table. */
void mr_cpu_linear_ops(mr_ops *ops);
void mr_cpu_minrnn_ops(mr_ops *ops);
void mr_cpu_norm_ops(mr_ops *ops);
void mr_cpu_activate_ops(mr_ops *ops);
void mr_cpu_conv_ops(mr_ops *ops);
void mr_cpu_token_ops(mr_ops *ops);
void mr_cpu_loss_ops(mr_ops *ops);
void mr_cpu_sample_ops(mr_ops *ops);
void mr_cpu_train_ops(mr_ops *ops);
void mr_cpu_attn_ops(mr_ops *ops);
void mr_cpu_sscan_ops(mr_ops *ops);
void mr_cpu_state_ops(mr_ops *ops);
void mr_cpu_effect_ops(mr_ops *ops);
int mr_cpu_gates_of(const mr_cell *cell); /* MR_GATES_… */
size_t mr_cpu_minrnn_saved(mr_dev *dev, const mr_cell *cell, int B, int T, int D, int H);
size_t mr_cpu_scan_work(mr_dev *dev, int B, int T, int H);
void mr_cpu_rnn_ops(mr_ops *ops);
const mr_product_kernels *mr_cpu_choose_product(const mr_cpu_kernels *kernels, int bf16);
void mr_cpu_raw_hooks(mr_dev *dev); /* raw_begin, widen, … */
size_t mr_cpu_rnn_saved(mr_dev *dev, mr_rnn kind, int B, int T, int H);

#endif
