/* Chained launches (programmatic dependent launch): the next kernel starts while this one runs, loads its weights, and
 * waits before it reads this one's results. */
#ifndef MR_OPS_CUDA_CHAIN_CUH
#define MR_OPS_CUDA_CHAIN_CUH

#include "ops/cuda/cuda.cuh"

/* A kernel that calls early_start lets the next chained kernel start at once; that one must call wait_for_results
 * before it reads anything but weights, or writes anything. Other launches wait for the whole kernel as usual. */
__device__ __forceinline__ void early_start(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

__device__ __forceinline__ void wait_for_results(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

template <class... P, class... Q>
static void chain(mr_cuda *c, const char *name, void (*kernel)(P...), dim3 grid, unsigned threads, size_t shared,
                  Q... args)
{
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = grid, config.blockDim = dim3(threads), config.dynamicSmemBytes = shared, config.stream = c->stream;
    config.attrs = &early;
    config.numAttrs = c->stream_end == MR_END_CHAINED && c->capability >= 90;
    CHECK(c, mr_cuda_allow_shared((const void *)kernel, shared));
    mr_cuda_note(c, cudaLaunchKernelEx(&config, kernel, args...), name);
    c->stream_end = MR_END_CHAINED;
}

#endif
