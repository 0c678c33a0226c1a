/* What the files of the CUDA backend share: the device's own struct, element types, launches, reductions. */
#ifndef MR_OPS_CUDA_CUDA_CUH
#define MR_OPS_CUDA_CUDA_CUH

#include "ops/cuda/lt.cuh"

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

extern "C" {
#include "core/mem.h"
#include "core/rng.h"
#include "ops/device.h"
}

typedef __nv_bfloat16 bf16;

enum { MR_CUDA_PLANS = 512, MR_CUDA_SHADOWS = 2048, MR_CUDA_WORKSPACE = 32 << 20 };
enum { MR_CUDA_STAGING = 64 << 20, MR_CUDA_PIECES = 16 };

/* A planned product: its shape and options, and the algorithm chosen for them. */
struct mr_cuda_plan {
    uint64_t key[4];
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algo;
    int found; /* 0: the library has no kernel for this */
};

/* A parameter array and its bf16 copy. */
struct mr_cuda_shadow {
    const float *from;
    bf16 *to;
    size_t n;
};

/* A small upload that is not on its way yet; narrow: floats that become bf16. */
struct mr_cuda_piece {
    void *to;
    const char *from; /* in pinned memory */
    size_t bytes;
    int narrow;
};

/* One recording (CUDA graph) of repeated work. */
struct mr_cuda_graph {
    int seen, writes_weights;
    cudaGraphExec_t exec;
    const void *wanted; /* what is downloaded right after it: the recording copies it to the host too */
    size_t wanted_bytes;
};

/* What the stream ends with; defer.cu draws how it changes. */
enum mr_cuda_end {
    MR_END_PLAIN,   /* anything: the next kernel starts when it is done */
    MR_END_CHAINED, /* a kernel that calls early_start: a chained launch may start before it is done (chain.cuh) */
    MR_END_REPLAYED /* a recording: small downloads right after it become part of it (device.cu) */
};

struct mr_cuda_room {
    void *data;
    size_t size;
};

struct mr_cuda {
    mr_dev dev;
    /* capability: 90 for 9.0, the lower of the chip's and of its code's; exact: fp32 products without TF32 */
    int index, sms, capability, bf16, exact;
    cudaStream_t stream;
    int stream_given;  /* by the caller, who destroys it */
    cudaStream_t side; /* beside it, for messages between GPUs: NULL until there are any; see side.cu */
    cudaEvent_t side_event;
    cublasLtHandle_t lt;
    void *workspace;                                  /* of the products, MR_CUDA_WORKSPACE bytes */
    mr_cuda_room scratch, product_scratch;            /* for the op that runs now, and for a product inside it */
    mr_cuda_shadow shadows[MR_CUDA_SHADOWS];          /* bf16: copies of parameters for the products */
    int shadow_count, shadows_stale, weights_written; /* weights_written: since it was last cleared */
    mr_cuda_shadow *shadow_table;                     /* the list on the device */
    char *staging; /* pinned host memory: MR_CUDA_STAGING bytes for uploads, then room for small downloads */
    size_t staged;
    mr_cuda_piece pieces[MR_CUDA_PIECES]; /* small uploads since anything else was asked for; see upload.cu */
    int piece_count;
    mr_cuda_plan plans[MR_CUDA_PLANS];
    int plan_count, plan_oldest; /* oldest: the next to be replaced when all are taken */
    mr_replays replays;          /* the key of each graph */
    mr_cuda_graph graphs[MR_REPLAYS];
    mr_ops direct;            /* the ops that launch kernels; dev->ops goes through defer.cu first */
    mr_norm_fwd_args waiting; /* if has_waiting: a norm that is not launched yet; see defer.cu for the states */
    int has_waiting;
    mr_cuda_end stream_end;
    mr_cuda_graph *replayed; /* if stream_end is MR_END_REPLAYED: which recording */
    int raw;                 /* for raw calls only, see raw.cu: between calls it owns no memory */
    cudaStream_t own_stream; /* raw: the default stream */
    mr_cuda_room copies;     /* raw: for bf16 copies of this call's weights */
    int device_before;       /* raw: the caller's */
    cudaError_t error;       /* the first since the last sync */
    const char *where;
    char name[256];
};

void mr_cuda_forget_plan(mr_cuda_plan *plan);

static inline mr_cuda *cuda_of(mr_dev *dev) { return (mr_cuda *)dev->impl; }

/* Remembers the first error; dev->sync reports it. */
void mr_cuda_note(mr_cuda *c, cudaError_t error, const char *where);
#define CHECK(c, call) mr_cuda_note(c, call, #call)
#define LAUNCHED(c, name) mr_cuda_note(c, cudaGetLastError(), name)

/* Device memory for the op that runs now; grows at the first use of a larger shape. NULL when out of memory. */
void *mr_cuda_scratch(mr_cuda *c, size_t bytes);
void *mr_cuda_product_scratch(mr_cuda *c, size_t bytes);

/* Lets a kernel use this much dynamic shared memory. The limit is one setting for all threads of the process, so it is
 * only ever raised: another thread may be about to launch the kernel with more. */
cudaError_t mr_cuda_allow_shared(const void *kernel, size_t bytes);

/* The bf16 copy of a parameter array. All copies are refreshed in one launch at the first use after
 * parameters may have changed. */
const bf16 *mr_cuda_shadow_of(mr_cuda *c, const float *from, size_t n);
void mr_cuda_written(mr_cuda *c, const void *to, size_t bytes);
void mr_cuda_freshen(mr_cuda *c);

/* Raw calls: sets the device's hooks; returns the bf16 copy of an array for the current call. */
void mr_cuda_raw_hooks(mr_dev *dev);
void mr_cuda_side_hooks(mr_dev *dev);
void mr_cuda_side_free(mr_cuda *c);
const bf16 *mr_cuda_raw_copy(mr_cuda *c, const float *from, size_t n);

/* Launches the norm that was deferred and what fetches small uploads, if any: after this, the stream holds everything
 * that was asked for. */
void mr_cuda_settle(mr_cuda *c);
void mr_cuda_deliver(mr_cuda *c); /* the uploads alone */
void mr_cuda_wait(mr_cuda *c);    /* for the stream */
void mr_cuda_upload_hooks(mr_dev *dev);
void mr_cuda_defer_ops(mr_cuda *c);

static inline size_t div_up(size_t a, size_t b) { return (a + b - 1) / b; }

/* ---- element types ---- */

__device__ __forceinline__ float load(const float *p) { return *p; }
__device__ __forceinline__ float load(const bf16 *p) { return __bfloat162float(*p); }
__device__ __forceinline__ void store(float *p, float v) { *p = v; }
__device__ __forceinline__ void store(bf16 *p, float v) { *p = __float2bfloat16(v); }

/* Calls FN<type>(…) with the type in which the device stores activations. */
#define BY_ACT(c, FN, ...)                                                                                             \
    do {                                                                                                               \
        if ((c)->bf16) FN<bf16>(__VA_ARGS__);                                                                          \
        else FN<float>(__VA_ARGS__);                                                                                   \
    } while (0)

/* ---- small mathematics ---- */

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/* gelu in the tanh form is x·σ(2·√(2/π)·(x + 0.044715·x³)). */
__device__ __forceinline__ float gelu_gate(float x)
{
    return sigmoid(1.5957691216057308f * fmaf(0.044715f * x * x, x, x));
}
__device__ __forceinline__ float gelu(float x) { return x * gelu_gate(x); }
__device__ __forceinline__ float gelu_slope(float x)
{
    float s = gelu_gate(x);
    return s + x * s * (1 - s) * 1.5957691216057308f * (1 + 3 * 0.044715f * x * x);
}

/* Loads and stores four neighbours at once, where address and count allow it. */
template <class A> struct quad;
template <> struct quad<float> {
    static __device__ __forceinline__ void load(const float *p, float *v)
    {
        float4 x = *(const float4 *)p;
        v[0] = x.x, v[1] = x.y, v[2] = x.z, v[3] = x.w;
    }
    static __device__ __forceinline__ void store(float *p, const float *v)
    {
        *(float4 *)p = make_float4(v[0], v[1], v[2], v[3]);
    }
};
template <> struct quad<bf16> {
    static __device__ __forceinline__ void load(const bf16 *p, float *v)
    {
        uint2 x = *(const uint2 *)p;
        v[0] = __uint_as_float(x.x << 16), v[1] = __uint_as_float(x.x & 0xffff0000u);
        v[2] = __uint_as_float(x.y << 16), v[3] = __uint_as_float(x.y & 0xffff0000u);
    }
    static __device__ __forceinline__ void store(bf16 *p, const float *v)
    {
        __nv_bfloat162 x[2] = {__floats2bfloat162_rn(v[0], v[1]), __floats2bfloat162_rn(v[2], v[3])};
        *(uint2 *)p = *(const uint2 *)x;
    }
};

/* V neighbours: as stored in memory, and as floats. */
template <class ACT, int V> struct lanes;
template <> struct lanes<float, 1> {
    typedef float raw;
    static __device__ __forceinline__ void expand(raw x, float *v) { v[0] = x; }
    static __device__ __forceinline__ raw pack(const float *v) { return v[0]; }
};
template <> struct lanes<float, 2> {
    typedef float2 raw;
    static __device__ __forceinline__ void expand(raw x, float *v) { v[0] = x.x, v[1] = x.y; }
    static __device__ __forceinline__ raw pack(const float *v) { return make_float2(v[0], v[1]); }
};
template <> struct lanes<bf16, 1> {
    typedef unsigned short raw;
    static __device__ __forceinline__ void expand(raw x, float *v) { v[0] = __uint_as_float((unsigned)x << 16); }
    static __device__ __forceinline__ raw pack(const float *v) { return __bfloat16_as_ushort(__float2bfloat16(v[0])); }
};
template <> struct lanes<bf16, 2> {
    typedef unsigned raw;
    static __device__ __forceinline__ void expand(raw x, float *v)
    {
        v[0] = __uint_as_float(x << 16), v[1] = __uint_as_float(x & 0xffff0000u);
    }
    static __device__ __forceinline__ raw pack(const float *v)
    {
        __nv_bfloat162 x = __floats2bfloat162_rn(v[0], v[1]);
        return *(unsigned *)&x;
    }
};

/* The dropout factor of element i of a site. */
struct dropout {
    float p, factor;
    uint32_t bound, site;
    const mr_step *step;
};

static inline dropout dropout_of(const mr_dropout *d)
{
    double keep = (1 - (double)d->p) * 4294967296.0;
    dropout out = {d->p, (float)(1 / (1 - (double)d->p)), keep >= 4294967295.5 ? 0xffffffffu : (uint32_t)(keep + 0.5),
                   d->site, d->step};
    return out;
}

__device__ __forceinline__ float dropout_factor(const dropout &d, uint64_t i)
{
    if (d.p <= 0) return 1;
    return mr_dropout_bits(d.step->seed, d.step->step, d.step->micro, d.site, i) < d.bound ? d.factor : 0;
}

/* The same for elements 4i … 4i+3: one draw. */
__device__ __forceinline__ void dropout_factors(const dropout &d, uint64_t i, float *f)
{
    if (d.p <= 0) {
        f[0] = f[1] = f[2] = f[3] = 1;
        return;
    }
    const mr_u32x4 bits = mr_philox(d.step->seed, (uint32_t)i, d.site, d.step->micro, d.step->step);
    for (int k = 0; k < 4; k++) f[k] = bits.v[k] < d.bound ? d.factor : 0;
}

/* ---- sums within a warp and a block; the order is fixed ---- */

template <class T> __device__ __forceinline__ T warp_sum(T v)
{
    for (int k = 16; k; k >>= 1) v += __shfl_xor_sync(0xffffffffu, v, k);
    return v;
}

/* shared: 32 entries; the result is in thread 0 */
template <class T> __device__ __forceinline__ T block_sum(T v, T *shared)
{
    v = warp_sum(v);
    __syncthreads();
    if ((threadIdx.x & 31) == 0) shared[threadIdx.x >> 5] = v;
    __syncthreads();
    if (threadIdx.x >= 32) return v;
    v = threadIdx.x < (blockDim.x + 31) / 32 ? shared[threadIdx.x] : T(0);
    return warp_sum(v);
}

/* out[i] += Σ_r partial[r·stride + i] for i < n, in a fixed order. */
void mr_cuda_reduce(mr_cuda *c, const float *partial, size_t rows, size_t stride, size_t n, int fresh, float *out);

/* ---- the parts of the backend: each fills its ops ---- */

void mr_cuda_linear_ops(mr_ops *ops); /* linear, dropout */
void mr_cuda_minrnn_ops(mr_ops *ops);
void mr_cuda_scan_ops(mr_ops *ops);
void mr_cuda_norm_ops(mr_ops *ops);
void mr_cuda_loss_ops(mr_ops *ops); /* xent, mse, tanh */
void mr_cuda_conv_ops(mr_ops *ops);
void mr_cuda_pool_ops(mr_ops *ops);  /* pool, pair */
void mr_cuda_token_ops(mr_ops *ops); /* embed */
void mr_cuda_train_ops(mr_ops *ops); /* sums of squares, add, adam */
void mr_cuda_activate_ops(mr_ops *ops);
void mr_cuda_sscan_ops(mr_ops *ops);
void mr_cuda_sample_ops(mr_ops *ops);
void mr_cuda_effect_ops(mr_ops *ops);
void mr_cuda_state_ops(mr_ops *ops);
void mr_cuda_attn_ops(mr_ops *ops); /* attention, positions */
size_t mr_cuda_minrnn_saved(mr_dev *dev, const mr_cell *cell, int B, int T, int D, int H);
size_t mr_cuda_scan_work(mr_dev *dev, int B, int T, int H); /* enough for minrnn … */
size_t mr_cuda_given_work(int B, int T, int H);             /* … and for the scan by itself */

/* dh_init += cand'(h_init)·Σ of rows of to_start [rows, H], in order. */
void mr_cuda_start_grad(mr_cuda *c, mr_candidate candidate, int rows, int H, const float *to_start, const float *h_init,
                        int fresh, float *dh_init);

/* Recurrent layers whose pre-activations are recomputed instead of kept (fused.cu); the functions return 0 for
 * shapes that they do not handle. */
int mr_cuda_fusable(const mr_cuda *c, const mr_cell *cell, int D, int H);
int mr_cuda_fused_fwd(mr_cuda *c, const mr_minrnn_fwd_args *a);
int mr_cuda_fused_bwd(mr_cuda *c, const mr_minrnn_bwd_args *a);
/* Whether they take a shape, if its arrays are aligned to 16 bytes: enough blocks to fill the chip, or sequences too
 * short to split; offsets within a sequence fit 32 bits. */
int mr_cuda_fused_fits(int B, int T, int N, int H);
/* Bytes of scratch: of their backward (the forward needs none), and where the other kernels run such a layer. */
size_t mr_cuda_fused_scratch(const mr_cuda *c, const mr_cell *cell, int B, int T, int H, int dx);
size_t mr_cuda_recompute_scratch(mr_dev *dev, const mr_cell *cell, int B, int T, int H);

void mr_cuda_rnn_ops(mr_ops *ops);
size_t mr_cuda_rnn_saved(mr_dev *dev, mr_rnn kind, int B, int T, int H);

/* Products, row-major, of act matrices and a parameter matrix W [N, K]; see linear_fwd, linear_bwd_x and
 * linear_bwd_w in args_layers.h. y_row, dy_row: from one row to the next; N where rows lie close together. */
void mr_cuda_product_fwd(mr_cuda *c, int M, int N, int K, const void *x, const float *W, const float *b, int gelu,
                         void *pre, const void *residual, void *y);
void mr_cuda_product_rows(mr_cuda *c, int M, int N, int K, const void *x, const float *W, const float *b, void *y,
                          int y_row);
void mr_cuda_product_dx(mr_cuda *c, int M, int N, int K, const void *dy, int dy_row, const float *W, const void *pre,
                        int accumulate, void *dx);
void mr_cuda_product_dw(mr_cuda *c, int M, int N, int K, const void *dy, int dy_row, const void *x, int fresh,
                        float *dW, float *db);

#endif
