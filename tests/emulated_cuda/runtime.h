/* What the files of the emulated runtime share. */
#ifndef EMULATED_RUNTIME_H
#define EMULATED_RUNTIME_H

#include "cuda_runtime.h"

#include <functional>

namespace emulated {
/* Runs a kernel: every block, and in it every thread. */
void run_kernel(const launch_shape &shape, const std::function<void()> &thread, const void *kernel);
/* Adds work to a stream, or to what it records. */
void enqueue(cudaStream_t stream, std::function<void()> work);
cudaError_t fail(cudaError_t error); /* notes it for cudaGetLastError, and returns it */
enum { MOST_THREADS = 1024, MOST_SHARED = 232448, FREE_SHARED = 48 << 10, PROCESSORS = 8 };
} // namespace emulated

#endif
