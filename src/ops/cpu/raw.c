/* Raw calls: each chooses the precision of its products, and a caller's bf16 arrays are converted to fp32 and back. */
#include "ops/bf16.h"
#include "ops/cpu/cpu.h"

static size_t raw_work(mr_dev *dev, const mr_raw *raw) { return mr_cpu_scan_work(dev, raw->B, raw->T, raw->H); }

static void raw_begin(mr_dev *dev, const mr_raw *raw)
{
    mr_cpu *cpu = mr_cpu_of(dev);
    const mr_product_kernels **product = &cpu->raw_product[raw->bf16];
    if (!*product) *product = mr_cpu_choose_product(cpu->set, raw->bf16); /* asks the operating system, so only once */
    cpu->kept_product = cpu->product;
    cpu->product = *product;
}

static int raw_end(mr_dev *dev, mr_error *err)
{
    mr_cpu *cpu = mr_cpu_of(dev);
    cpu->product = cpu->kept_product;
    return dev->sync(dev, err);
}

/* ---- conversions, split by shape */

enum { SPAN = 1 << 16 };

typedef struct conversion {
    size_t n;
    float *wide;
    uint16_t *narrow;
} conversion;

static void widen_span(void *arg, int task, int slot)
{
    (void)slot;
    const conversion *job = arg;
    const size_t first = (size_t)task * SPAN, n = job->n - first < SPAN ? job->n - first : SPAN;
    const uint16_t *from = job->narrow + first;
    float *to = job->wide + first;
    for (size_t i = 0; i < n; i++) to[i] = mr_bf16_wide(from[i]);
}

static void narrow_span(void *arg, int task, int slot)
{
    (void)slot;
    const conversion *job = arg;
    const size_t first = (size_t)task * SPAN, n = job->n - first < SPAN ? job->n - first : SPAN;
    const float *from = job->wide + first;
    uint16_t *to = job->narrow + first;
    for (size_t i = 0; i < n; i++) to[i] = mr_bf16_near(from[i]);
}

static void widen(mr_dev *dev, float *to, const uint16_t *from, size_t n)
{
    conversion job = {n, to, (uint16_t *)from}; /* only read */
    mr_cpu_run(mr_cpu_of(dev), widen_span, &job, (int)mr_ceil_div(n, SPAN));
}

static void narrow(mr_dev *dev, uint16_t *to, const float *from, size_t n)
{
    conversion job = {n, (float *)from, to}; /* only read */
    mr_cpu_run(mr_cpu_of(dev), narrow_span, &job, (int)mr_ceil_div(n, SPAN));
}

void mr_cpu_raw_hooks(mr_dev *dev)
{
    dev->raw_work = raw_work;
    dev->raw_begin = raw_begin;
    dev->raw_end = raw_end;
    dev->widen = widen;
    dev->narrow = narrow;
}
