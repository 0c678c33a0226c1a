/* The host's side: memory, streams, events, recorded graphs. A stream runs what it was given when somebody waits for
 * it. Memory of the device begins as NaN. */
#include "runtime.h"

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

typedef std::function<void()> work;

struct emulated_graph {
    std::vector<work> list;
    emulated_stream *origin;
    std::set<emulated_event *> events; /* recorded in it, while it is recorded */
    cudaError_t error;                 /* what the recording did wrong */
};

struct emulated_stream {
    std::deque<work> queue;
    emulated_graph *recording;
    size_t recorded, joined; /* beside the origin of a recording: pieces of work, and how many somebody waited for */
};

struct emulated_event {
    emulated_stream *of;
    unsigned long asked, done;
    emulated_graph *recorded_in;
    size_t at; /* of->recorded */
};

namespace {
enum memory { DEVICE, PINNED };
struct piece {
    size_t bytes;
    memory kind;
};
std::recursive_mutex big_lock;
std::map<uintptr_t, piece> pieces;
std::set<emulated_stream *> streams;
std::map<const void *, int> allowed_shared;
size_t taken;
const size_t ALL_MEMORY = (size_t)8 << 30;
thread_local cudaError_t last_error;
thread_local emulated_graph *recorded_here; /* by this thread */

struct locked {
    std::lock_guard<std::recursive_mutex> guard{big_lock};
};

emulated_stream *legacy(void)
{
    static emulated_stream *s = *streams.insert(new emulated_stream()).first;
    return s;
}

emulated_stream *stream_of(cudaStream_t s) { return !s || s == cudaStreamLegacy ? legacy() : s; }

bool run_one(emulated_stream *s)
{
    if (s->queue.empty()) return false;
    const work first = s->queue.front();
    s->queue.pop_front();
    first();
    return true;
}

void drain(emulated_stream *s)
{
    while (run_one(s)) continue;
}

void drain_all(void)
{
    for (emulated_stream *s : streams) drain(s);
}

/* Whether p lies in memory of CUDA's, and of which kind. */
bool is_known(const void *p, memory *kind)
{
    auto after = pieces.upper_bound((uintptr_t)p);
    if (after == pieces.begin()) return false;
    const auto &at = *--after;
    if ((uintptr_t)p >= at.first + at.second.bytes) return false;
    *kind = at.second.kind;
    return true;
}

/* What a thread may not do while it records. */
cudaError_t not_while_recording(void)
{
    if (!recorded_here) return cudaSuccess;
    recorded_here->error = cudaErrorStreamCaptureInvalidated;
    return emulated::fail(cudaErrorStreamCaptureUnsupported);
}

cudaError_t take(void **p, size_t bytes, memory kind)
{
    locked l;
    *p = NULL;
    if (const cudaError_t error = not_while_recording()) return error;
    if (bytes > ALL_MEMORY - taken || posix_memalign(p, 512, bytes ? bytes : 1))
        return emulated::fail(cudaErrorMemoryAllocation);
    memset(*p, 0xff, bytes);
    taken += bytes;
    pieces[(uintptr_t)*p] = {bytes, kind};
    return cudaSuccess;
}

cudaError_t give_back(void *p)
{
    locked l;
    if (!p) return cudaSuccess;
    if (const cudaError_t error = not_while_recording()) return error;
    drain_all();
    auto at = pieces.find((uintptr_t)p);
    if (at == pieces.end()) return emulated::fail(cudaErrorInvalidValue); /* not from here, or freed before */
    taken -= at->second.bytes;
    pieces.erase(at);
    free(p);
    return cudaSuccess;
}
} // namespace

cudaError_t emulated::fail(cudaError_t error) { return last_error = error; }

void emulated::enqueue(cudaStream_t stream, work what)
{
    locked l;
    emulated_stream *s = stream_of(stream);
    s->recorded++;
    if (s->recording) s->recording->list.push_back(what);
    else s->queue.push_back(what);
}

static cudaError_t check(const emulated::launch_shape &s, const void *kernel)
{
    const size_t threads = (size_t)s.block.x * s.block.y * s.block.z;
    const auto at = allowed_shared.find(kernel);
    const size_t allowed = at == allowed_shared.end() ? (size_t)emulated::FREE_SHARED : (size_t)at->second;
    if (!threads || threads > emulated::MOST_THREADS || s.block.z > 64 || !s.grid.x || !s.grid.y || !s.grid.z ||
        s.grid.y > 65535 || s.grid.z > 65535)
        return cudaErrorInvalidConfiguration;
    if (s.together && s.grid.x * s.grid.y * s.grid.z > emulated::PROCESSORS) return cudaErrorCooperativeLaunchTooLarge;
    return s.shared > allowed ? cudaErrorInvalidValue : cudaSuccess;
}

static cudaError_t enqueue_threads(const emulated::launch_shape &shape, work thread, const void *kernel)
{
    locked l;
    if (const cudaError_t error = check(shape, kernel)) return emulated::fail(error);
    emulated::enqueue(shape.stream, [=] { emulated::run_kernel(shape, thread, kernel); });
    return cudaSuccess;
}

cudaError_t emulated::enqueue_kernel(const launch_shape &shape, call *given, const void *kernel)
{
    const std::shared_ptr<call> kept(given);
    return enqueue_threads(
        shape, [=] { kept->run(); }, kernel);
}

/* ---- the card */

const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorLaunchOutOfResources: return "too many resources requested for launch";
    case cudaErrorNotReady: return "device not ready";
    default: return "an error of the emulated card";
    }
}

cudaError_t cudaGetLastError(void)
{
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaDriverGetVersion(int *version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaGetDeviceCount(int *count) { return *count = 1, cudaSuccess; }
cudaError_t cudaGetDevice(int *index) { return *index = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int index) { return index ? emulated::fail(cudaErrorInvalidDevice) : cudaSuccess; }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *prop, int)
{
    memset(prop, 0, sizeof *prop);
    strcpy(prop->name, "emulated card");
    prop->major = 9;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr which, int)
{
    *value = which == cudaDevAttrMultiProcessorCount ? (int)emulated::PROCESSORS : (int)emulated::MOST_SHARED;
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *out, const void *kernel)
{
    locked l;
    const auto at = allowed_shared.find(kernel);
    *out = {at == allowed_shared.end() ? (int)emulated::FREE_SHARED : at->second, 90};
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute, int value)
{
    locked l;
    if (value > emulated::MOST_SHARED) return emulated::fail(cudaErrorInvalidValue);
    allowed_shared[kernel] = value;
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *, int, size_t)
{
    *blocks = 1;
    return cudaSuccess;
}

struct any_struct {
    char bytes[512];
};

/* Reads what lies after a smaller one, too. */
__attribute__((no_sanitize("address"))) static any_struct copy_of(const volatile char *from)
{
    any_struct copy;
    for (char &byte : copy.bytes) byte = *from++;
    return copy;
}

/* Kernels for this have one argument, a struct. It is passed by value, in a larger one: on the stack, or by address. */
cudaError_t cudaLaunchCooperativeKernel(const void *kernel, dim3 grid, dim3 block, void **args, size_t shared,
                                        cudaStream_t stream)
{
    typedef void takes(any_struct);
    const any_struct copy = copy_of((const char *)args[0]);
    return enqueue_threads(
        {grid, block, shared, stream, true}, [=] { ((takes *)kernel)(copy); }, kernel);
}

/* ---- memory */

cudaError_t cudaMalloc(void **p, size_t bytes) { return take(p, bytes, DEVICE); }
cudaError_t cudaFree(void *p) { return give_back(p); }
cudaError_t cudaMallocHost(void **p, size_t bytes) { return take(p, bytes, PINNED); }
cudaError_t cudaFreeHost(void *p) { return give_back(p); }

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    *total = ALL_MEMORY;
    *free_bytes = ALL_MEMORY - taken;
    return cudaSuccess;
}

static bool allows(cudaMemcpyKind kind, const void *to, const void *from)
{
    memory of_to = PINNED, of_from = PINNED;
    is_known(to, &of_to), is_known(from, &of_from);
    const bool into = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice,
               out_of = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    return kind == cudaMemcpyDefault || (into == (of_to == DEVICE) && out_of == (of_from == DEVICE));
}

/* Ordinary memory of the host is read at once, and written before the call returns; a recording reads and writes it
 * when it is replayed. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream)
{
    locked l;
    memory known;
    const bool recording = stream_of(stream)->recording;
    if (!allows(kind, to, from)) return emulated::fail(cudaErrorInvalidValue);
    if (recording || is_known(from, &known)) {
        emulated::enqueue(stream, [=] { memmove(to, from, bytes); });
    } else {
        auto kept = std::make_shared<std::vector<char>>((const char *)from, (const char *)from + bytes);
        emulated::enqueue(stream, [=] { memcpy(to, kept->data(), bytes); });
    }
    return recording || is_known(to, &known) ? cudaSuccess : cudaStreamSynchronize(stream);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    const cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, cudaStreamLegacy);
    return error == cudaSuccess ? cudaStreamSynchronize(cudaStreamLegacy) : error;
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_row, const void *from, size_t from_row, size_t width, size_t height,
                              cudaMemcpyKind, cudaStream_t stream)
{
    emulated::enqueue(stream, [=] {
        for (size_t i = 0; i < height; i++) memcpy((char *)to + i * to_row, (const char *)from + i * from_row, width);
    });
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    emulated::enqueue(stream, [=] { memset(to, value, bytes); });
    return cudaSuccess;
}

cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    cudaMemsetAsync(to, value, bytes, cudaStreamLegacy);
    return cudaStreamSynchronize(cudaStreamLegacy);
}

/* ---- streams and events */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
    locked l;
    *stream = *streams.insert(new emulated_stream()).first;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    locked l;
    drain(stream);
    streams.erase(stream);
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    locked l;
    emulated_graph *recording = stream_of(stream)->recording;
    if (recording) {
        recording->error = cudaErrorStreamCaptureInvalidated;
        return emulated::fail(cudaErrorStreamCaptureUnsupported);
    }
    drain(stream_of(stream));
    return cudaSuccess;
}

/* A stream that is only asked never gets further: wait for it. */
cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    locked l;
    return stream_of(stream)->queue.empty() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaDeviceSynchronize(void)
{
    locked l;
    if (const cudaError_t error = not_while_recording()) return error;
    drain_all();
    return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*function)(void *), void *arg)
{
    emulated::enqueue(stream, [=] { function(arg); });
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    return *event = new emulated_event(), cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    locked l;
    drain_all(); /* somebody may still wait for it */
    if (event->recorded_in) event->recorded_in->events.erase(event);
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    locked l;
    emulated_stream *s = stream_of(stream);
    event->of = s, event->at = s->recorded;
    event->recorded_in = s->recording;
    if (s->recording) return s->recording->events.insert(event), cudaSuccess;
    const unsigned long ticket = ++event->asked;
    emulated::enqueue(stream, [=] { event->done = ticket; });
    return cudaSuccess;
}

/* A stream that waits for an event of a recording belongs to that recording. Its work is listed in the order in which
 * the host asked for it, which is one that a graph allows. */
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    locked l;
    emulated_stream *s = stream_of(stream);
    if (event->recorded_in) {
        if (!s->recording) s->recording = event->recorded_in, s->recorded = s->joined = 0;
        if (event->of->joined < event->at) event->of->joined = event->at;
        return cudaSuccess;
    }
    if (s->recording) return emulated::fail(s->recording->error = cudaErrorStreamCaptureIsolation);
    const unsigned long ticket = event->asked;
    emulated_stream *of = event->of;
    emulated::enqueue(stream, [=] {
        while (event->done < ticket && run_one(of)) continue;
    });
    return cudaSuccess;
}

/* ---- graphs */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode)
{
    locked l;
    emulated_stream *s = stream_of(stream);
    recorded_here = s->recording = new emulated_graph();
    s->recording->origin = s;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    locked l;
    emulated_graph *g = stream_of(stream)->recording;
    *graph = recorded_here = NULL;
    if (!g) return emulated::fail(cudaErrorStreamCaptureInvalidated);
    for (emulated_stream *s : streams) {
        if (s->recording != g) continue;
        s->recording = NULL;
        if (s != g->origin && s->joined < s->recorded) g->error = cudaErrorStreamCaptureUnjoined;
    }
    for (emulated_event *e : g->events) e->recorded_in = NULL;
    g->events.clear();
    const cudaError_t error = g->error;
    if (error == cudaSuccess) *graph = g;
    else delete g;
    return error == cudaSuccess ? error : emulated::fail(error);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    *exec = new emulated_graph(*graph);
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    locked l;
    for (const work &w : exec->list) emulated::enqueue(stream, w);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete graph, cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { return delete exec, cudaSuccess; }
