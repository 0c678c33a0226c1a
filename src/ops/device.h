/* A device: where arrays lie and which backend's functions run on them. Everything above src/ops/ talks to this. */
#ifndef MR_OPS_DEVICE_H
#define MR_OPS_DEVICE_H

#include "core/mem.h"
#include "core/status.h"
#include "ops/card.h"
#include "ops/ops.h"
#include "ops/replay.h"

/* A call on memory that is the caller's alone. */
typedef struct mr_raw {
    const mr_cell *cell; /* NULL: the scan by itself */
    int B, T, D, H;      /* D 0: without W */
    int bf16;            /* products in bf16 */
    void *stream;        /* GPU: the cudaStream_t to work in; NULL: the device's own */
    void *work;          /* raw_work(…) bytes; `work` of the ops lies at their start */
} mr_raw;

struct mr_dev {
    const char *kind; /* "cpu", "ref", "ref64" */
    const char *isa;  /* "avx512", …; "" where there is no choice */
    const char *name; /* the chip's, or NULL: that of the CPU, which nobody has asked for */
    int threads;
    int queue;              /* 1: one queue, whoever asks; its device is lent to one call at a time */
    const mr_allocator *by; /* whose the host's memory is: everything made for this device; NULL: the C library's */
    /* tokens drawn before they are looked at: 1 … MR_DRAWN; above 1 where looking means waiting for the device */
    int ahead;
    size_t act_size, real_size; /* bytes of one mr_act, mr_real */
    size_t memory;              /* bytes that there are at most; 0: alloc knows, and fails where there are no more */
    /* bytes so far: all that alloc gave, whether given back since or not, and the device's own scratch */
    size_t taken;
    mr_ops ops; /* filled by the backend: dev->ops.linear_fwd(dev, &args) */

    void *(*alloc)(mr_dev *, size_t bytes); /* zeroed; NULL when not to be had */
    void (*release)(mr_dev *, void *);
    void (*upload)(mr_dev *, void *to, const void *from, size_t bytes);
    void (*download)(mr_dev *, void *to, const void *from, size_t bytes); /* waits until the bytes are there */
    void (*copy)(mr_dev *, void *to, const void *from, size_t bytes);     /* device to device */
    void (*zero)(mr_dev *, void *to, size_t bytes);
    void (*put)(mr_dev *, mr_real *to, const float *from, size_t n); /* converting copies for mr_real … */
    void (*get)(mr_dev *, float *to, const mr_real *from, size_t n);
    void (*put_act)(mr_dev *, mr_act *to, const float *from, size_t n); /* … and for mr_act */
    void (*get_act)(mr_dev *, float *to, const mr_act *from, size_t n);
    /* Runs work(arg), which calls ops with the same arguments each time it is given the same key: a backend may
     * record it once and replay it. Anything that changes from one time to the next must lie in device memory. A
     * recording holds addresses: all of a device's are dropped when it releases memory, whatever lay there, so what
     * it recorded over must be released by it and not by another device. alloc drops none. MR_REPLAYS of them are
     * kept: when one more piece of work comes, the recording that was not asked for the longest goes, so that of
     * more than that many, each asked for in turn, none is ever replayed. */
    void (*replay)(mr_dev *, const mr_replay_key *key, void (*work)(void *arg), void *arg);
    int (*sync)(mr_dev *, mr_error *); /* the first error since the last sync */
    void (*enter)(mr_dev *);           /* before a thread uses a device that another one opened; or NULL */
    void (*close)(mr_dev *);

    /* Bytes of `saved` in the minrnn ops for these shapes; D = 0: gates and scan alone. Enough for a smaller B or T
     * too. */
    size_t (*minrnn_saved)(mr_dev *, const mr_cell *cell, int B, int T, int D, int H);
    /* Bytes of `work` in the minrnn and scan ops. */
    size_t (*scan_work)(mr_dev *, int B, int T, int H);

    size_t (*rnn_saved)(mr_dev *, mr_rnn kind, int B, int T, int H); /* the same for the rnn ops */

    int index;    /* GPU: which one */
    void *stream; /* GPU: the cudaStream_t that it works in */
    /* Around the ops of a raw call, which then take all their memory from raw->work (on a CPU products have some of
     * the device's own, which grows at the first call of a shape) and wait for nothing. A GPU's must be opened with
     * `raw`. */
    size_t (*raw_work)(mr_dev *, const mr_raw *); /* stream and work are not read */
    void (*raw_begin)(mr_dev *, const mr_raw *);
    int (*raw_end)(mr_dev *, mr_error *); /* the first error of the launches */
    /* bf16 to fp32 and back, to the nearest, ties to even; NULL on a GPU, whose activations may be bf16 themselves */
    void (*widen)(mr_dev *, float *to, const uint16_t *from, size_t n);
    void (*narrow)(mr_dev *, uint16_t *to, const float *from, size_t n);

    void *impl; /* the backend's own */
};

/* How a device computes. All zero: the best fp32 that it has. */
typedef struct mr_dev_options {
    int threads;            /* CPU; 0: as many as the process may use */
    const char *isa;        /* CPU; NULL: MINRNN_ISA or the best here */
    int bf16;               /* matrix products in bf16; on a GPU stored activations too */
    int exact;              /* GPU: fp32 products without TF32 */
    const mr_allocator *by; /* of the host's memory; outlives the device. NULL: the C library's */
    void *stream;           /* GPU: a cudaStream_t to work in; NULL: one of its own */
    /* auto: told in one line why a GPU that is there is not used; or NULL */
    void (*tell)(void *user, const char *line);
    void *tell_user;
    int raw; /* GPU: for raw calls alone, with no memory of its own; stream is what NULL means there */
} mr_dev_options;

/* spec: auto (a GPU where there is one that can be used, else cpu), cpu, cuda[:i], ref, ref64. options NULL: all
 * zero. */
int mr_dev_open(const char *spec, const mr_dev_options *options, mr_dev **out, mr_error *err);
void mr_dev_close(mr_dev *dev); /* NULL is fine */

/* Addresses of element i, which layers cannot compute themselves. */
static inline mr_act *mr_act_at(const mr_dev *dev, mr_act *p, size_t i)
{
    return (mr_act *)((char *)p + i * dev->act_size);
}
static inline mr_real *mr_real_at(const mr_dev *dev, mr_real *p, size_t i)
{
    return (mr_real *)((char *)p + i * dev->real_size);
}

/* The backends' openers. */
int mr_ref32_open(const mr_dev_options *options, mr_dev **out, mr_error *err); /* ref */
int mr_ref64_open(const mr_dev_options *options, mr_dev **out, mr_error *err); /* ref64 */
int mr_cpu_open(const mr_dev_options *options, mr_dev **out, mr_error *err);
int mr_cuda_open(int index, const mr_dev_options *options, mr_dev **out, mr_error *err);
void mr_cuda_look(int index, mr_card *card); /* count 0 in a build without CUDA */
/* What `auto` does with what a look at the first card found; open_gpu is mr_cuda_open, or stands in for it in tests. */
int mr_auto_open(const mr_card *card, int (*open_gpu)(int, const mr_dev_options *, mr_dev **, mr_error *),
                 const mr_dev_options *options, mr_dev **out, mr_error *err);

#endif
