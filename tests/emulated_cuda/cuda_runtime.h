/* Stands in for the CUDA toolkit's header where kernels run on the CPU (README.md): the language's words, and what a
 * kernel calls. The functions that hosts call are in cuda_runtime_api.h. */
#ifndef EMULATED_CUDA_RUNTIME_H
#define EMULATED_CUDA_RUNTIME_H

#include "cuda_runtime_api.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tuple>
#include <utility>

/* the newest chip that the kernels know */
#define __CUDA_ARCH__ 900
#define __CUDACC_VER_MAJOR__ emulated
#define __CUDACC_VER_MINOR__ 0

#define __host__
#define __device__
#define __global__
#define __launch_bounds__(...)
#define __forceinline__ inline
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static /* blocks run one after another; translate.py rewrites `extern __shared__` */
#undef NULL
#define NULL nullptr /* an argument of a launch keeps its meaning when it is passed on */

/* ---- a thread's place, as the runner of blocks sets it (blocks.cpp) */

namespace emulated {
struct lane {
    uint3 thread, block;
};
extern lane *now;
} // namespace emulated

extern dim3 blockDim, gridDim;

#define threadIdx (emulated::now->thread)
#define blockIdx (emulated::now->block)

/* ---- what threads do together */

void __syncthreads(void);
int __syncthreads_and(int v);
void __syncwarp(unsigned lanes = 0xffffffffu);
static inline void __threadfence(void) {}

namespace emulated {
enum meeting { SHUFFLE, BALLOT, BARRIER, MATRICES };
[[noreturn]] void stop(const char *what); /* ends the program, and says which thread of which kernel it was */
/* Every lane of the warp gives up to OF_LANE bytes at v; returns those of all 32 lanes, OF_LANE bytes apart, valid
 * until the lane's next call. */
const char *exchange(meeting what, unsigned lanes, const void *v, size_t bytes);
enum { OF_LANE = 64 };
unsigned present_lanes(void); /* a bit for each lane that was there: others have ended, or never were */
int lane_number(void);
void *shared_memory(void); /* the block's dynamic part */
void let_others_run(void);

template <class T> T from_lane(unsigned lanes, T v, int lane)
{
    const char *all = exchange(SHUFFLE, lanes, &v, sizeof v);
    if (!(present_lanes() >> lane & 1)) stop("shuffles with a lane that is not there");
    memcpy(&v, all + lane * OF_LANE, sizeof v);
    return v;
}
} // namespace emulated

template <class T> T __shfl_xor_sync(unsigned lanes, T v, int bits)
{
    return emulated::from_lane(lanes, v, emulated::lane_number() ^ bits);
}

template <class T> T __shfl_up_sync(unsigned lanes, T v, unsigned by)
{
    const int lane = emulated::lane_number(), from = lane - (int)by;
    return emulated::from_lane(lanes, v, from < 0 ? lane : from);
}

template <class T> T __shfl_sync(unsigned lanes, T v, int lane, int width = 32)
{
    const int first = emulated::lane_number() / width * width;
    return emulated::from_lane(lanes, v, first + (lane & (width - 1)));
}

unsigned __ballot_sync(unsigned lanes, int v);

/* ---- small functions */

static inline float __uint_as_float(unsigned x)
{
    float y;
    memcpy(&y, &x, sizeof y);
    return y;
}

static inline unsigned __float_as_uint(float x)
{
    unsigned y;
    memcpy(&y, &x, sizeof y);
    return y;
}

static inline float __fadd_rn(float a, float b)
{
    volatile float sum = a + b; /* not part of a fused multiplication */
    return sum;
}

static inline float __fmul_rn(float a, float b)
{
    volatile float product = a * b;
    return product;
}

static inline int __ffs(unsigned x) { return __builtin_ffs((int)x); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline float normcdff(float x) { return (float)(0.5 * erfc(-(double)x * 0.70710678118654752)); }

static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned pick)
{
    const uint64_t both = (uint64_t)b << 32 | a;
    unsigned out = 0;
    for (int i = 0; i < 4; i++) out |= (unsigned)(both >> (pick >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    return out;
}

template <class T> T __ldcg(const T *p) { return *p; }

template <class T> T atomicAdd(T *p, T v)
{
    const T before = *p;
    *p += v;
    return before;
}

template <class T> T atomicMin(T *p, T v)
{
    const T before = *p;
    if (v < before) *p = v;
    return before;
}

#define EMULATED_MIN_MAX(T)                                                                                            \
    static inline T min(T a, T b) { return b < a ? b : a; }                                                            \
    static inline T max(T a, T b) { return a < b ? b : a; }
EMULATED_MIN_MAX(int)
EMULATED_MIN_MAX(unsigned)
EMULATED_MIN_MAX(long)
EMULATED_MIN_MAX(unsigned long)
EMULATED_MIN_MAX(float)
EMULATED_MIN_MAX(double)

static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

/* Addresses of shared memory fit 32 bits on a GPU; here it is taken from the lowest 4 GB. */
size_t __cvta_generic_to_shared(const void *p);

/* ---- launches: translate.py turns k<<<grid, block, shared, stream>>>(a, b) into a call of launch */

namespace emulated {
struct launch_shape {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
    bool together; /* cooperative: all blocks are resident at once */
};

/* A kernel with its arguments. */
struct call {
    virtual ~call() {}
    virtual void run() = 0;
};

cudaError_t enqueue_kernel(const launch_shape &shape, call *work, const void *kernel);

template <class... P> struct call_of : call {
    void (*kernel)(P...);
    std::tuple<P...> args;
    template <class... Q> call_of(void (*k)(P...), Q... q) : kernel(k), args(q...) {}
    template <size_t... I> void with(std::index_sequence<I...>) { kernel(std::get<I>(args)...); }
    void run() override { with(std::index_sequence_for<P...>()); }
};

template <class... P, class... Q> cudaError_t launch(void (*kernel)(P...), const launch_shape &shape, Q... args)
{
    return enqueue_kernel(shape, new call_of<P...>(kernel, args...), (const void *)kernel);
}

static inline launch_shape shape_of(dim3 grid, dim3 block, size_t shared = 0, cudaStream_t stream = NULL)
{
    return {grid, block, shared, stream, false};
}
} // namespace emulated

template <class... P, class... Q>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(P...), Q... args)
{
    return emulated::launch(
        kernel, {config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream, false}, args...);
}

#include "instructions.h"

#endif
