/* Tests of the emulated card itself: that it computes, and that it notices what it promises to notice (README.md). */
#include <cuda_runtime.h>

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static int failures;

static void check(const char *what, bool holds)
{
    printf("%s: %s\n", holds ? "ok" : "FAILED", what);
    failures += !holds;
}

/* The sum of a block's values, with or without the barrier that it needs. */
template <int WAITS> static __global__ void sum_up(const float *in, float *out)
{
    extern __shared__ float all[];
    all[threadIdx.x] = in[threadIdx.x];
    if (WAITS) __syncthreads();
    if (threadIdx.x) return;
    float sum = 0;
    for (unsigned i = 0; i < blockDim.x; i++) sum += all[i];
    *out = sum;
}

/* Copies asynchronously; reads at once or after the wait. */
template <int WAITS> static __global__ void copy_four(const float4 *in, float4 *out)
{
    extern __shared__ float4 room[];
    const unsigned at = (unsigned)__cvta_generic_to_shared(room + threadIdx.x);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(in + threadIdx.x), "r"(16));
    asm volatile("cp.async.commit_group;");
    if (WAITS) asm volatile("cp.async.wait_group 0;" ::: "memory");
    out[threadIdx.x] = room[threadIdx.x];
}

static __global__ void turn_lanes(int *out) { out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, (int)threadIdx.x, 5); }

static __global__ void never_meet(void)
{
    if (threadIdx.x < 32) __syncwarp();
    if (threadIdx.x == 0) return;
    if (threadIdx.x == 1) __syncwarp();
    else __syncthreads();
}

static __global__ void shuffle_with_the_gone(int *out)
{
    if (threadIdx.x == 3) return;
    *out = __shfl_xor_sync(0xffffffffu, 1, 1);
}

/* Whether work, and waiting for it, ends the process with a message that has these words. */
template <class WORK> static bool ends(const char *words, WORK work)
{
    char said[512] = "";
    int ends_of_pipe[2];
    fflush(stdout);
    if (pipe(ends_of_pipe)) return false;
    const pid_t child = fork();
    if (!child) {
        dup2(ends_of_pipe[1], STDERR_FILENO);
        work();
        cudaDeviceSynchronize();
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    close(ends_of_pipe[1]);
    if (read(ends_of_pipe[0], said, sizeof said - 1) < 0) return false;
    close(ends_of_pipe[0]);
    return WIFSIGNALED(status) && strstr(said, words);
}

static float *numbers(int n)
{
    float host[256], *p;
    for (int i = 0; i < n; i++) host[i] = (float)i;
    cudaMalloc(&p, n * sizeof *p);
    cudaMemcpy(p, host, n * sizeof *p, cudaMemcpyHostToDevice);
    return p;
}

static float first_of(const float *p)
{
    float v;
    cudaMemcpy(&v, p, sizeof v, cudaMemcpyDeviceToHost);
    return v;
}

static void check_kernels(float *in, float *out)
{
    int lanes[32], *turned;
    bool right = true;
    sum_up<1><<<1, 64, 64 * sizeof(float)>>>(in, out);
    check("a block adds up", first_of(out) == 63 * 64 / 2);
    sum_up<0><<<1, 64, 64 * sizeof(float)>>>(in, out);
    check("a missing barrier shows", first_of(out) != 63 * 64 / 2);
    copy_four<1><<<1, 8, 8 * sizeof(float4)>>>((const float4 *)in, (float4 *)out);
    check("a copy arrives", first_of(out + 5) == 5);
    copy_four<0><<<1, 8, 8 * sizeof(float4)>>>((const float4 *)in, (float4 *)out);
    check("a copy that nobody waited for shows", first_of(out + 5) != 5);
    cudaMalloc(&turned, sizeof lanes);
    turn_lanes<<<1, 32>>>(turned);
    cudaMemcpy(lanes, turned, sizeof lanes, cudaMemcpyDeviceToHost);
    for (int i = 0; i < 32; i++) right &= lanes[i] == (i ^ 5);
    check("lanes exchange numbers", right);
    check("threads that never meet end the program",
          ends("thread (1, 0, 0): waits for threads", [] { never_meet<<<1, 64>>>(); }));
    check("a shuffle with a lane that has ended, too",
          ends("thread (2, 0, 0): shuffles with a lane", [=] { shuffle_with_the_gone<<<1, 32>>>(turned); }));
    sum_up<1><<<1, 2048, 0>>>(in, out);
    check("too many threads are refused", cudaGetLastError() == cudaErrorInvalidConfiguration);
    sum_up<1><<<1, 64, 64 << 10>>>(in, out);
    check("too much shared memory is refused", cudaGetLastError() == cudaErrorInvalidValue);
}

static void check_streams(float *in, float *out)
{
    cudaStream_t one, other;
    cudaEvent_t event;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    void *more = NULL;
    float *host;
    cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking), cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    cudaMallocHost((void **)&host, sizeof *host);
    cudaMemcpyAsync(host, in + 7, sizeof *host, cudaMemcpyDeviceToHost, one);
    check("a result is not there before the wait", *host != 7);
    cudaStreamSynchronize(one);
    check("and is there after it", *host == 7);
    check("a copy of the wrong kind is refused", cudaMemcpy(out, in, 4, cudaMemcpyDeviceToHost) != cudaSuccess);

    cudaStreamBeginCapture(one, cudaStreamCaptureModeThreadLocal);
    cudaMemsetAsync(out, 0, sizeof *out, one);
    sum_up<1><<<1, 64, 64 * sizeof(float), one>>>(in, out);
    check("a recording ends well", cudaStreamEndCapture(one, &graph) == cudaSuccess);
    cudaMemset(out, 0xff, sizeof *out);
    cudaGraphInstantiate(&exec, graph, 0);
    cudaGraphLaunch(exec, one);
    cudaStreamSynchronize(one);
    check("a replay does the work", first_of(out) == 63 * 64 / 2);

    cudaStreamBeginCapture(one, cudaStreamCaptureModeThreadLocal);
    check("a recording may not allocate", cudaMalloc(&more, 64) != cudaSuccess);
    check("and fails if it tries", cudaStreamEndCapture(one, &graph) != cudaSuccess && !graph);

    for (int joins = 0; joins < 2; joins++) {
        cudaStreamBeginCapture(one, cudaStreamCaptureModeThreadLocal);
        cudaEventRecord(event, one), cudaStreamWaitEvent(other, event);
        cudaMemsetAsync(out, 0, sizeof *out, other);
        if (joins) cudaEventRecord(event, other), cudaStreamWaitEvent(one, event);
        check(joins ? "a stream that is joined is recorded" : "a stream that is not joined shows",
              (cudaStreamEndCapture(one, &graph) == cudaSuccess) == joins);
    }
}

int main(void)
{
    float *in = numbers(256), *out = numbers(256);
    check_kernels(in, out);
    check_streams(in, out);
    printf("%d failures\n", failures);
    return failures != 0;
}
