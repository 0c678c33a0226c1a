/* The reference device: host memory, one thread. */

static void *host_alloc(mr_dev *dev, size_t bytes)
{
    void *p = mr_alloc_with(dev->allocator, bytes, 1);
    if (p) dev->taken += bytes;
    return p;
}

static void host_release(mr_dev *dev, void *p) { mr_free_with(dev->allocator, p); }
static void host_copy(mr_dev *dev, void *to, const void *from, size_t bytes)
{
    (void)dev;
    memmove(to, from, bytes);
}
static void host_zero(mr_dev *dev, void *to, size_t bytes)
{
    (void)dev;
    memset(to, 0, bytes);
}
static void host_replay(mr_dev *dev, const mr_replay_key *key, void (*work)(void *), void *arg)
{
    (void)dev;
    (void)key;
    work(arg);
}
static int host_sync(mr_dev *dev, mr_error *err)
{
    (void)dev;
    (void)err;
    return 0;
}
static void host_close(mr_dev *dev) { mr_free_with(dev->allocator, dev); }

static void put_reals(mr_dev *dev, mr_real *to, const float *from, size_t n)
{
    (void)dev;
    for (size_t i = 0; i < n; i++) OUT(to)[i] = from[i];
}

static void get_reals(mr_dev *dev, float *to, const mr_real *from, size_t n)
{
    (void)dev;
    for (size_t i = 0; i < n; i++) to[i] = (float)IN(from)[i];
}

static void put_acts(mr_dev *dev, mr_act *to, const float *from, size_t n) { put_reals(dev, (mr_real *)to, from, n); }
static void get_acts(mr_dev *dev, float *to, const mr_act *from, size_t n)
{
    get_reals(dev, to, (const mr_real *)from, n);
}

static size_t minrnn_saved(mr_dev *dev, const mr_cell *cell, int B, int T, int D, int H)
{
    (void)dev, (void)D;
    return (size_t)B * (size_t)T * (size_t)H * (size_t)mr_cell_gates(cell) * sizeof(real);
}

static size_t scan_work(mr_dev *dev, int B, int T, int H)
{
    (void)dev, (void)B, (void)T, (void)H;
    return 0;
}

static size_t raw_work(mr_dev *dev, const mr_raw *raw)
{
    (void)dev, (void)raw;
    return 0;
}
static void raw_begin(mr_dev *dev, const mr_raw *raw) { (void)dev, (void)raw; }

static void widen(mr_dev *dev, float *to, const uint16_t *from, size_t n)
{
    (void)dev;
    for (size_t i = 0; i < n; i++) to[i] = mr_bf16_wide(from[i]);
}

static void narrow(mr_dev *dev, uint16_t *to, const float *from, size_t n)
{
    (void)dev;
    for (size_t i = 0; i < n; i++) to[i] = mr_bf16_near(from[i]);
}

int REF_OPEN(const mr_dev_options *options, mr_dev **out, mr_error *err)
{
    mr_dev *dev = mr_alloc_with(options->allocator, 1, sizeof *dev);
    if (!dev) return mr_no_memory(err, "a device");
    *dev = (mr_dev){.kind = REF_KIND,
                    .isa = "",
                    .threads = 1,
                    .allocator = options->allocator,
                    .memory = mr_memory_total(),
                    .ahead = 1,
                    .act_size = sizeof(real),
                    .real_size = sizeof(real),
                    .host_floats = sizeof(real) == sizeof(float),
                    .alloc = host_alloc,
                    .release = host_release,
                    .upload = host_copy,
                    .download = host_copy,
                    .copy = host_copy,
                    .zero = host_zero,
                    .put = put_reals,
                    .get = get_reals,
                    .put_act = put_acts,
                    .get_act = get_acts,
                    .replay = host_replay,
                    .sync = host_sync,
                    .close = host_close,
                    .minrnn_saved = minrnn_saved,
                    .scan_work = scan_work,
                    .rnn_saved = rnn_saved,
                    .raw_work = raw_work,
                    .raw_begin = raw_begin,
                    .raw_end = host_sync,
                    .widen = widen,
                    .narrow = narrow,
                    .ops = {
#define OP(name, tolerance, what) .name = name,
#include "ops/ops.def"
#undef OP
                    }};
    *out = dev;
    return 0;
}
