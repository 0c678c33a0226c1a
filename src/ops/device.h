/* A device: the memory that arrays lie in, and the backend whose ops run on them. Code above src/ops/ uses only
 * this. */
#ifndef MR_OPS_DEVICE_H
#define MR_OPS_DEVICE_H

#include "core/mem.h"
#include "core/status.h"
#include "ops/card.h"
#include "ops/ops.h"
#include "ops/replay.h"

/* A raw call: ops on the caller's own memory (mr_scan_… and mr_cell_… of minrnn_experimental.h). */
typedef struct mr_raw {
    const mr_cell *cell; /* NULL: the scan alone */
    int B, T, D, H;      /* D 0: without W */
    int bf16;            /* matrix products in bf16 */
    /* known: this very call, and so what it does without; 0: any call. aligned: its activations, to 16 bytes */
    int known, backward, dx, aligned;
    void *stream; /* GPU: the cudaStream_t to use; NULL: the device's own */
    void *work;   /* raw_work(…) bytes; they begin with the `work` of the ops */
} mr_raw;

struct mr_dev {
    const char *kind; /* "cpu", "ref", "ref64" */
    const char *isa;  /* "avx512", …; "" where there is no choice */
    const char *name; /* the chip's name; NULL on a CPU, where it is not looked up */
    int threads;
    int queue;                     /* 1: all work goes through one queue, so the device serves one call at a time */
    const mr_allocator *allocator; /* allocator of host memory for all that belongs to this device; NULL: malloc */
    /* tokens drawn before the host reads them: 1 … MR_DRAWN; above 1 where reading means waiting for the device */
    int ahead;
    size_t act_size, real_size; /* bytes of one mr_act, mr_real */
    int host_floats;            /* 1: an mr_real is a float that the host may read and write in place */
    size_t memory;              /* total memory in bytes; 0: unknown, alloc fails when it runs out */
    /* bytes allocated so far, released ones included, with the device's own scratch */
    size_t taken;
    mr_ops ops; /* filled by the backend: dev->ops.linear_fwd(dev, &args) */

    void *(*alloc)(mr_dev *, size_t bytes); /* zeroed; NULL: out of memory */
    void (*release)(mr_dev *, void *);
    void (*upload)(mr_dev *, void *to, const void *from, size_t bytes);
    void (*download)(mr_dev *, void *to, const void *from, size_t bytes); /* waits until the bytes are there */
    void (*copy)(mr_dev *, void *to, const void *from, size_t bytes);     /* device to device */
    void (*zero)(mr_dev *, void *to, size_t bytes);
    void (*put)(mr_dev *, mr_real *to, const float *from, size_t n); /* from and to float: mr_real … */
    void (*get)(mr_dev *, float *to, const mr_real *from, size_t n);
    void (*put_act)(mr_dev *, mr_act *to, const float *from, size_t n); /* … and for mr_act */
    void (*get_act)(mr_dev *, float *to, const mr_act *from, size_t n);
    /* Runs work(arg). work must call ops with the same arguments whenever the key is the same, so that a backend may
     * record it once and replay the recording. Anything that changes between calls must lie in device memory. A
     * recording holds addresses, so a device drops all its recordings when it releases any memory; memory that was
     * recorded over must be released by the same device. alloc drops none. The MR_REPLAYS most recently used recordings
     * are kept; a program that cycles through more pieces of work than that replays none. */
    void (*replay)(mr_dev *, const mr_replay_key *key, void (*work)(void *arg), void *arg);
    int (*sync)(mr_dev *, mr_error *); /* the first error since the last sync */
    void (*enter)(mr_dev *);           /* call before using the device in a thread that did not open it; or NULL */
    void (*close)(mr_dev *);

    /* Bytes of `saved` in the minrnn ops for these shapes; D = 0: gates and scan alone. Also enough for a smaller B or
     * T. */
    size_t (*minrnn_saved)(mr_dev *, const mr_cell *cell, int B, int T, int D, int H);
    /* Bytes of `work` in the minrnn and scan ops. */
    size_t (*scan_work)(mr_dev *, int B, int T, int H);

    size_t (*rnn_saved)(mr_dev *, mr_rnn kind, int B, int T, int H); /* the same for the rnn ops */

    /* GPU, NULL elsewhere: fork returns a second stream, which continues from what the device was told so far; join
     * makes the device wait for it, and says which memory (NULL: none of importance) was written there. */
    void *(*fork)(mr_dev *);
    void (*join)(mr_dev *, const void *wrote, size_t bytes);

    int index;    /* GPU: which one */
    void *stream; /* GPU: its cudaStream_t */
    /* raw_begin and raw_end enclose the ops of a raw call. Between them, ops take all memory from raw->work and never
     * wait. (On a CPU, products also use scratch of the device, which grows when a shape is first used.) A GPU must be
     * opened with options.raw for this. */
    size_t (*raw_work)(mr_dev *, const mr_raw *); /* does not read stream and work */
    void (*raw_begin)(mr_dev *, const mr_raw *);
    int (*raw_end)(mr_dev *, mr_error *); /* the first error of the launches */
    /* bf16 to fp32 and back, rounding to nearest, ties to even; NULL on a GPU, where activations may be bf16 */
    void (*widen)(mr_dev *, float *to, const uint16_t *from, size_t n);
    void (*narrow)(mr_dev *, uint16_t *to, const float *from, size_t n);

    void *impl; /* private to the backend */
};

/* How a device computes. All zero: fp32, with the best instructions available. */
typedef struct mr_dev_options {
    int threads;                   /* CPU; 0: as many as the process may run on */
    const char *isa;               /* CPU; NULL: MINRNN_ISA, or else the best available */
    int bf16;                      /* matrix products in bf16; on a GPU stored activations too */
    int exact;                     /* GPU: fp32 products without TF32 */
    const mr_allocator *allocator; /* allocator of host memory; must outlive the device. NULL: malloc */
    void *stream;                  /* GPU: a cudaStream_t to use; NULL: the device makes its own */
    /* auto: called with one line that says why a GPU of this machine is not used; or NULL */
    void (*tell)(void *user, const char *line);
    void *tell_user;
    int raw; /* GPU: for raw calls only, without memory of its own; `stream` is then the default stream of calls */
} mr_dev_options;

/* spec: auto (a usable GPU, or else the CPU), cpu, cuda[:i], ref, ref64. options NULL: all zero. */
int mr_dev_open(const char *spec, const mr_dev_options *options, mr_dev **out, mr_error *err);
void mr_dev_close(mr_dev *dev); /* NULL is fine */

/* Address of element i; layers cannot compute it, because the types are incomplete. */
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
/* Opens the device for `auto`, given the description of the first card. open_gpu is mr_cuda_open, or a stand-in in
 * tests. */
int mr_auto_open(const mr_card *card, int (*open_gpu)(int, const mr_dev_options *, mr_dev **, mr_error *),
                 const mr_dev_options *options, mr_dev **out, mr_error *err);

#endif
