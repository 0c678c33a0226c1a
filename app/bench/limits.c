/* What this machine can do at best: multiply-adds in registers, copies beyond the cache and within it. */
#include "bench/bench.h"
#include "bench/timed_model.h"

#include "core/clock.h"
#include "core/mem.h"
#include "core/pool.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

enum { CHAINS = 12, ROUNDS = 125000, PIECES = 8, SLOTS = 256 };

/* Twelve independent chains, each in a register of its own, hide the latency of the multiply-add. They start
 * differently and their sum is returned, or the compiler would make one chain of them, or none. */
#define FMA_LOOP(function, attribute, vector, set, fma)                                                                \
    attribute static double function(long rounds)                                                                      \
    {                                                                                                                  \
        vector x = set(0.999f), y = set(0.001f);                                                                       \
        vector a = set(1), b = set(2), c = set(3), d = set(4), e = set(5), f = set(6);                                 \
        vector g = set(7), h = set(8), i = set(9), j = set(10), k = set(11), l = set(12);                              \
        for (long round = 0; round < rounds; round++) {                                                                \
            a = fma(a, x, y), b = fma(b, x, y), c = fma(c, x, y), d = fma(d, x, y);                                    \
            e = fma(e, x, y), f = fma(f, x, y), g = fma(g, x, y), h = fma(h, x, y);                                    \
            i = fma(i, x, y), j = fma(j, x, y), k = fma(k, x, y), l = fma(l, x, y);                                    \
        }                                                                                                              \
        vector sum = a + b + c + d + e + f + g + h + i + j + k + l;                                                    \
        float first;                                                                                                   \
        memcpy(&first, &sum, sizeof first);                                                                            \
        return (double)first;                                                                                          \
    }

#if defined(__x86_64__)
FMA_LOOP(fma_avx512, __attribute__((target("avx512f"))), __m512, _mm512_set1_ps, _mm512_fmadd_ps)
FMA_LOOP(fma_avx2, __attribute__((target("avx2,fma"))), __m256, _mm256_set1_ps, _mm256_fmadd_ps)
#elif defined(__aarch64__)
#define NEON_FMA(a, b, c) vfmaq_f32(c, a, b)
FMA_LOOP(fma_neon, , float32x4_t, vdupq_n_f32, NEON_FMA)
#endif

typedef float four __attribute__((vector_size(16)));
static inline four set_four(float x) { return (four){x, x, x, x}; }
static inline four multiply_add_four(four a, four b, four c) { return a * b + c; }
FMA_LOOP(fma_plain, , four, set_four, multiply_add_four)

/* Reads everything once, eight vectors at a time: the least that a matrix-vector product must read. The sum is
 * returned so that the compiler removes nothing. */
#define READ_LOOP(function, attribute, vector)                                                                         \
    attribute static double function(const char *from, size_t bytes)                                                   \
    {                                                                                                                  \
        vector sum[8] = {{0}};                                                                                         \
        for (size_t at = 0; at + sizeof sum <= bytes; at += sizeof sum)                                                \
            for (int i = 0; i < 8; i++) sum[i] += ((const vector *)(from + at))[i];                                    \
        vector all = sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];                            \
        float first;                                                                                                   \
        memcpy(&first, &all, sizeof first);                                                                            \
        return (double)first;                                                                                          \
    }

#if defined(__x86_64__)
READ_LOOP(read_avx512, __attribute__((target("avx512f"))), __m512)
READ_LOOP(read_avx2, __attribute__((target("avx2"))), __m256)
#endif
READ_LOOP(read_plain, , four)

typedef struct fma_kind {
    const char *isa;
    double (*run)(long rounds);
    int lanes;
    double (*read)(const char *from, size_t bytes);
} fma_kind;

static const fma_kind *find_fma(const char *isa)
{
    static const fma_kind kinds[] = {
#if defined(__x86_64__)
        {"avx512", fma_avx512, 16, read_avx512},
        {"avx2", fma_avx2, 8, read_avx2},
#elif defined(__aarch64__)
        {"neon", fma_neon, 4, read_plain},
#endif
        {"", fma_plain, 4, read_plain},
    };
    const fma_kind *kind = kinds;
    while (kind->isa[0] && strcmp(kind->isa, isa)) kind++;
    return kind;
}

/* One buffer serves all: the copies between its halves, those within the second-level cache, the reads. */
struct mr_probe {
    mr_pool *pool;
    const fma_kind *fma;
    int threads;
    char *memory, *weights; /* for copies and for reads */
    size_t memory_bytes, weight_bytes;
    size_t at, piece;   /* where the next copy starts in each half, and how much it takes */
    size_t cache_bytes; /* that one thread copies within its cache */
    double sink[SLOTS];
};

static void fma_task(void *arg, int task, int slot)
{
    mr_probe *p = arg;
    (void)task;
    p->sink[slot] += p->fma->run(ROUNDS);
}

static void copy_task(void *arg, int task, int slot)
{
    mr_probe *p = arg;
    const size_t part = p->piece / (size_t)(PIECES * p->threads);
    char *from = p->memory + p->at + part * (size_t)task;
    (void)slot;
    memcpy(from + p->memory_bytes / 2, from, part);
}

enum { CACHE_ROUNDS = 2000 };

static void cache_task(void *arg, int task, int slot)
{
    mr_probe *p = arg;
    char *from = p->memory + 2 * p->cache_bytes * (size_t)task, *to = from + p->cache_bytes;
    for (int i = 0; i < CACHE_ROUNDS; i++) {
        memcpy(to, from, p->cache_bytes);
        __asm__ volatile("" : : "r"(to), "r"(from) : "memory"); /* each copy counts */
    }
    (void)slot;
}

enum { READ_ROUNDS = 4 };

static void read_task(void *arg, int task, int slot)
{
    mr_probe *p = arg;
    const size_t part = p->weight_bytes / (size_t)p->threads / 64 * 64;
    for (int i = 0; i < READ_ROUNDS; i++) p->sink[slot] += p->fma->read(p->weights + part * (size_t)task, part);
}

static double timed(mr_probe *p, mr_pool_fn *task)
{
    /* in pieces, so that a thread that is late delays the others by one piece at most */
    const int tasks = task == fma_task || task == copy_task ? PIECES * p->threads : p->threads;
    double start = mr_seconds();
    mr_pool_run(p->pool, task, p, tasks);
    return mr_seconds() - start;
}

/* The next piece of the copy, so that no piece is still in a cache when its turn comes again. */
static double timed_copy(mr_probe *p)
{
    p->at = p->at + 2 * p->piece <= p->memory_bytes / 2 ? p->at + p->piece : 0;
    return timed(p, copy_task);
}

static double best_of(mr_probe *p, mr_pool_fn *task, int tries)
{
    double best = 1e300;
    for (int i = 0; i <= tries; i++) {
        double took = task == copy_task ? timed_copy(p) : timed(p, task);
        if (i && took < best) best = took;
    }
    return best;
}

static double fma_count(const mr_probe *p) { return 2.0 * CHAINS * ROUNDS * PIECES * p->fma->lanes * p->threads; }

double mr_bench_now(mr_bench *b, mr_bound bound)
{
    mr_probe *p = b->probe;
    if (!p) return bound == MR_BOUND_COMPUTE ? b->limits.flops : b->limits.copy_bytes;
    mr_pool_run(p->pool, fma_task, p, PIECES * p->threads); /* wakes the threads; those of the device go to sleep */
    switch (bound) {
    case MR_BOUND_COMPUTE: return fma_count(p) / timed(p, fma_task);
    case MR_BOUND_COPY: return 2.0 * (double)p->piece / timed_copy(p);
    case MR_BOUND_READ: return READ_ROUNDS * (double)p->weight_bytes / timed(p, read_task);
    default: return 0;
    }
}

static int is_host(const mr_dev *dev) { return !strcmp(dev->kind, "cpu") || !strncmp(dev->kind, "ref", 3); }

/* Of level 2 or 3; a usual size where the C library does not say. */
static size_t cache_size(int level)
{
    long size = 0;
#if defined(_SC_LEVEL2_CACHE_SIZE) && defined(_SC_LEVEL3_CACHE_SIZE)
    size = sysconf(level == 2 ? _SC_LEVEL2_CACHE_SIZE : _SC_LEVEL3_CACHE_SIZE);
#endif
    return size > 0 ? (size_t)size : level == 2 ? (size_t)512 << 10 : (size_t)32 << 20;
}

/* Beyond the cache means several times its size, but no more than an eighth of the memory. */
static size_t copy_size(void)
{
    size_t wanted = cache_size(3) * 2, eighth = mr_memory_total() / 8;
    if (wanted < (64u << 20)) wanted = 64u << 20;
    return wanted < eighth ? wanted : eighth;
}

static void report(mr_bench *b, const char *what, double seconds, double bytes, double flops)
{
    mr_bench_row row = {
        .bench = "limits", .seconds = seconds, .best = seconds, .bytes = bytes, .flops = flops, .limit = ""};
    snprintf(row.name, sizeof row.name, "%s, %d thread%s", what, b->dev->threads, b->dev->threads == 1 ? "" : "s");
    b->on_row(b->arg, &row);
}

static const char *place_of(size_t bytes, int threads)
{
    if (bytes / (size_t)threads <= cache_size(2)) return "L2";
    return bytes <= cache_size(3) ? "L3" : "memory";
}

int mr_bench_read(mr_bench *b, size_t bytes, double *rate, const char **place, mr_error *err)
{
    mr_probe *p = b->probe;
    *rate = 0;
    *place = "memory";
    if (!p) return 0;
    mr_free(p->weights);
    p->weight_bytes = bytes;
    p->weights = mr_alloc(bytes, 1);
    if (!p->weights) return mr_no_memory(err, "the reads that measure the memory");
    char what[64];
    double seconds = best_of(p, read_task, 60), read = (double)bytes * READ_ROUNDS;
    *rate = read / seconds;
    *place = place_of(bytes, p->threads);
    snprintf(what, sizeof what, "read, %.1f MB in %s", (double)bytes / 1e6, *place);
    report(b, what, seconds, read, 0);
    return 0;
}

/* A device with memory of its own: only the rate of its copy is known. */
static int measure_device_copy(mr_bench *b, mr_error *err)
{
    size_t bytes = (size_t)1 << 28;
    mr_dev *dev = b->dev;
    void *from = dev->alloc(dev, bytes), *to = dev->alloc(dev, bytes);
    double best = 1e300;
    for (int i = 0; from && to && i < 6; i++) {
        double start = mr_seconds();
        dev->copy(dev, to, from, bytes);
        dev->sync(dev, NULL);
        double took = mr_seconds() - start;
        if (i && took < best) best = took;
    }
    int status = from && to ? 0 : mr_no_memory(err, "the copies that measure the device");
    if (from) dev->release(dev, from);
    if (to) dev->release(dev, to);
    if (status < 0) return status;
    b->limits.copy_bytes = 2.0 * (double)bytes / best;
    report(b, "copy, memory", best, 2.0 * (double)bytes, 0);
    return 0;
}

static int open_probe(mr_bench *b, mr_error *err)
{
    mr_probe *p = b->probe = mr_alloc(1, sizeof *p);
    if (!p) return mr_no_memory(err, "the measurement of the limits");
    p->fma = find_fma(b->dev->isa);
    p->threads = b->dev->threads;
    const size_t grain = 64 * PIECES * (size_t)p->threads;
    p->cache_bytes = cache_size(2) / 4 / 64 * 64;
    p->memory_bytes = 2 * copy_size();
    p->piece = p->memory_bytes / 16 / grain * grain;
    if (p->memory_bytes < 2 * p->cache_bytes * (size_t)p->threads)
        p->memory_bytes = 2 * p->cache_bytes * (size_t)p->threads;
    p->pool = mr_pool_new(p->threads, NULL);
    p->memory = mr_alloc(p->memory_bytes, 1);
    if (!p->pool || !p->memory) return mr_no_memory(err, "the copies that measure the memory");
    memset(p->memory, 1, p->memory_bytes);
    return 0;
}

void mr_bench_end(mr_bench *b)
{
    mr_probe *p = b->probe;
    if (!p) return;
    mr_pool_free(p->pool);
    mr_free(p->memory);
    mr_free(p->weights);
    mr_free(p);
    b->probe = NULL;
}

int mr_bench_limits(mr_bench *b, mr_error *err)
{
    if (b->on_start) b->on_start(b->arg, "limits", "of this machine");
    if (!is_host(b->dev)) return measure_device_copy(b, err);
    if (b->dev->threads > SLOTS)
        return mr_fail(err, MR_EINVAL, "bench measures up to %d threads: give --threads", SLOTS);
    int status = open_probe(b, err);
    if (status < 0) return status;
    mr_probe *p = b->probe;
    double seconds = best_of(p, fma_task, 120);
    b->limits.flops = fma_count(p) / seconds;
    report(b, "multiply-adds", seconds, 0, fma_count(p));
    seconds = best_of(p, copy_task, 64);
    b->limits.copy_bytes = 2.0 * (double)p->piece / seconds;
    report(b, "copy, memory", seconds, 2.0 * (double)p->piece, 0);
    seconds = best_of(p, cache_task, 12);
    const double bytes = 2.0 * (double)p->cache_bytes * p->threads * CACHE_ROUNDS;
    b->limits.cache_bytes = bytes / seconds;
    report(b, "copy, second-level cache", seconds, bytes, 0);
    return 0;
}
