/* The CPU device: choice of the kernels, scratch memory, tasks on threads, opening and closing. */
#include "ops/cpu/cpu.h"

#include "ops/cpu/features.h"

#include "core/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- kernels of this machine, best first */

static const mr_cpu_kernels *const all_kernels[] = {
#if defined(__x86_64__)
    &mr_cpu_kernels_avx512,
    &mr_cpu_kernels_avx2,
#elif defined(__aarch64__)
    &mr_cpu_kernels_neon,
#endif
    &mr_cpu_kernels_scalar,
    NULL,
};

static const char *const all_names[] = {
#if defined(__x86_64__)
    "avx512",
    "avx2",
#elif defined(__aarch64__)
    "neon",
#endif
    "scalar",
    NULL,
};

/* Each instruction set includes those after it in the list, so a machine can run all sets from some index on. */
static int best_here(void)
{
#if defined(__x86_64__)
    const int features = mr_cpu_features();
    if (!(features & MR_HAS_AVX2)) return 2;
    if (!(features & MR_HAS_AVX512)) return 1;
#endif
    return 0;
}

const char *const *mr_cpu_isas(void) { return all_names + best_here(); }

static const mr_cpu_kernels *choose(const char *wanted, mr_error *err)
{
    const mr_cpu_kernels *const *list = all_kernels + best_here();
    const char *source = wanted && *wanted ? "isa" : "MINRNN_ISA";
    if (!wanted || !*wanted) wanted = getenv("MINRNN_ISA");
    if (!wanted || !*wanted) return list[0];
    char have[128] = "";
    for (int i = 0; list[i]; i++) {
        if (!strcmp(list[i]->name, wanted)) return list[i];
        size_t used = strlen(have);
        snprintf(have + used, sizeof have - used, "%s%s", i ? ", " : "", list[i]->name);
    }
    mr_fail(err, MR_EDEVICE, "%s is \"%s\", which this machine does not have; it has %s", source, wanted, have);
    return NULL;
}

const mr_product_kernels *mr_cpu_choose_product(const mr_cpu_kernels *kernels, int bf16)
{
    if (!bf16) return &kernels->product;
#if defined(__x86_64__)
    if (kernels == &mr_cpu_kernels_avx512 && mr_cpu_has_amx()) return &mr_cpu_product_amx;
#endif
    return &kernels->product_bf16;
}

/* ---- scratch */

float *mr_cpu_scratch(mr_cpu *cpu, int which, size_t count)
{
    mr_scratch *s = &cpu->scratch[which];
    if (s->count >= count && s->data) return s->data;
    mr_free_with(cpu->dev.allocator, s->data);
    cpu->dev.taken -= s->count * sizeof(float);
    s->data = mr_alloc_with(cpu->dev.allocator, count ? count : 1, sizeof(float));
    s->count = s->data ? count : 0;
    cpu->dev.taken += s->count * sizeof(float);
    if (!s->data) cpu->out_of_memory = 1;
    return s->data;
}

int mr_cpu_slots(mr_cpu *cpu, size_t count)
{
    size_t stride = mr_cpu_slot_stride(count);
    if (stride <= cpu->slot_stride && cpu->scratch[MR_SCRATCH_SLOTS].data) return 1;
    cpu->slot_stride = 0;
    if (!mr_cpu_scratch(cpu, MR_SCRATCH_SLOTS, stride * (size_t)cpu->dev.threads)) return 0;
    cpu->slot_stride = stride;
    return 1;
}

/* ---- tasks */

#if defined(__x86_64__)
typedef unsigned float_mode;
static float_mode enter_quick_mode(void)
{
    float_mode before = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(before | 0x8040); /* flush to zero, denormals are zero */
    return before;
}
static void leave_quick_mode(float_mode before) { __builtin_ia32_ldmxcsr(before); }
#elif defined(__aarch64__)
typedef uint64_t float_mode;
static void leave_quick_mode(float_mode before) { __asm__ volatile("msr fpcr, %0" : : "r"(before)); }
static float_mode enter_quick_mode(void)
{
    float_mode before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    leave_quick_mode(before | (1u << 24));
    return before;
}
#else
typedef int float_mode;
static float_mode enter_quick_mode(void) { return 0; }
static void leave_quick_mode(float_mode before) { (void)before; }
#endif

typedef struct quick_job {
    mr_pool_fn *fn;
    void *arg;
} quick_job;

static void quick_task(void *arg, int task, int slot)
{
    const quick_job *job = arg;
    float_mode before = enter_quick_mode();
    job->fn(job->arg, task, slot);
    leave_quick_mode(before);
}

void mr_cpu_run(mr_cpu *cpu, mr_pool_fn *fn, void *arg, int tasks)
{
    quick_job job = {fn, arg};
    mr_pool_run(cpu->pool, quick_task, &job, tasks);
}

/* ---- ordered sums */

typedef struct reduce_job {
    mr_cpu *cpu;
    size_t n, stride;
    const float *from;
    int parts;
    float *to;
} reduce_job;

enum { REDUCE_SPAN = 1024 };

static void reduce_span(void *arg, int task, int slot)
{
    (void)slot;
    const reduce_job *job = arg;
    size_t first = (size_t)task * REDUCE_SPAN, n = job->n - first < REDUCE_SPAN ? job->n - first : REDUCE_SPAN;
    float sum[REDUCE_SPAN];
    memcpy(sum, job->from + first, n * sizeof *sum);
    for (int part = 1; part < job->parts; part++)
        job->cpu->kernels.add(n, sum, job->from + (size_t)part * job->stride + first);
    job->cpu->kernels.add(n, job->to + first, sum);
}

void mr_cpu_reduce(mr_cpu *cpu, size_t n, const float *from, size_t stride, int parts, float *to)
{
    reduce_job job = {cpu, n, stride, from, parts, to};
    if (parts > 0) mr_cpu_run(cpu, reduce_span, &job, (int)mr_ceil_div(n, REDUCE_SPAN));
}

/* ---- memory */

static void *device_alloc(mr_dev *dev, size_t bytes)
{
    void *p = mr_alloc_with(dev->allocator, bytes ? bytes : 1, 1);
    if (p) dev->taken += bytes;
    return p;
}

static void device_release(mr_dev *dev, void *p) { mr_free_with(dev->allocator, p); }

static void copy_bytes(mr_dev *dev, void *to, const void *from, size_t bytes)
{
    (void)dev;
    if (bytes) memmove(to, from, bytes);
}

static void zero_bytes(mr_dev *dev, void *to, size_t bytes)
{
    (void)dev;
    if (bytes) memset(to, 0, bytes);
}

static void put(mr_dev *dev, mr_real *to, const float *from, size_t n) { copy_bytes(dev, to, from, n * 4); }
static void get(mr_dev *dev, float *to, const mr_real *from, size_t n) { copy_bytes(dev, to, from, n * 4); }
static void put_act(mr_dev *dev, mr_act *to, const float *from, size_t n) { copy_bytes(dev, to, from, n * 4); }
static void get_act(mr_dev *dev, float *to, const mr_act *from, size_t n) { copy_bytes(dev, to, from, n * 4); }

/* ---- the device */

static void replay(mr_dev *dev, const mr_replay_key *key, void (*work)(void *arg), void *arg)
{
    (void)dev;
    (void)key;
    work(arg);
}

static int device_sync(mr_dev *dev, mr_error *err)
{
    mr_cpu *cpu = mr_cpu_of(dev);
    if (!cpu->out_of_memory) return 0;
    cpu->out_of_memory = 0;
    return mr_no_memory(err, "scratch of the CPU device");
}

static void device_close(mr_dev *dev)
{
    mr_cpu *cpu = mr_cpu_of(dev);
    mr_pool_free(cpu->pool);
    for (int i = 0; i < MR_SCRATCHES; i++) mr_free_with(dev->allocator, cpu->scratch[i].data);
    mr_free_with(dev->allocator, cpu);
}

static void fill_device(mr_cpu *cpu, int threads, const mr_allocator *allocator)
{
    mr_dev *dev = &cpu->dev;
    *dev = (mr_dev){
        .kind = "cpu",
        .isa = cpu->kernels.name,
        .threads = threads,
        .allocator = allocator,
        .memory = mr_memory_total(),
        .ahead = 1,
        .act_size = sizeof(float),
        .real_size = sizeof(float),
        .host_floats = 1,
        .alloc = device_alloc,
        .release = device_release,
        .upload = copy_bytes,
        .download = copy_bytes,
        .copy = copy_bytes,
        .zero = zero_bytes,
        .put = put,
        .get = get,
        .put_act = put_act,
        .get_act = get_act,
        .replay = replay,
        .sync = device_sync,
        .close = device_close,
        .minrnn_saved = mr_cpu_minrnn_saved,
        .scan_work = mr_cpu_scan_work,
        .rnn_saved = mr_cpu_rnn_saved,
        .impl = cpu,
    };
    mr_cpu_linear_ops(&dev->ops);
    mr_cpu_minrnn_ops(&dev->ops);
    mr_cpu_norm_ops(&dev->ops);
    mr_cpu_activate_ops(&dev->ops);
    mr_cpu_conv_ops(&dev->ops);
    mr_cpu_token_ops(&dev->ops);
    mr_cpu_loss_ops(&dev->ops);
    mr_cpu_sample_ops(&dev->ops);
    mr_cpu_train_ops(&dev->ops);
    mr_cpu_rnn_ops(&dev->ops);
    mr_cpu_attn_ops(&dev->ops);
    mr_cpu_sscan_ops(&dev->ops);
    mr_cpu_state_ops(&dev->ops);
    mr_cpu_effect_ops(&dev->ops);
    mr_cpu_raw_hooks(dev);
}

int mr_cpu_open(const mr_dev_options *options, mr_dev **out, mr_error *err)
{
    enum { MOST_THREADS = 4096 };
    int threads = options->threads;
    *out = NULL;
    const mr_cpu_kernels *kernels = choose(options->isa, err);
    if (!kernels) return MR_EDEVICE;
    if (threads < 0 || threads > MOST_THREADS)
        return mr_fail(err, MR_EINVAL, "threads must be 0 (all) to %d, not %d", MOST_THREADS, threads);
    if (!threads) threads = mr_processors();
    mr_cpu *cpu = mr_alloc_with(options->allocator, 1, sizeof *cpu);
    if (!cpu) return mr_no_memory(err, "the CPU device");
    cpu->kernels = *kernels;
    cpu->set = kernels;
    cpu->product = mr_cpu_choose_product(kernels, options->bf16);
    fill_device(cpu, threads, options->allocator);
    cpu->pool = mr_pool_new(threads, options->allocator);
    if (!cpu->pool) {
        device_close(&cpu->dev);
        return mr_fail(err, MR_EDEVICE, "%d threads cannot be started on this machine; ask for fewer", threads);
    }
    *out = &cpu->dev;
    return 0;
}
