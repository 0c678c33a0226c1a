/* The CUDA device: memory, copies, recorded steps, errors. */
#include "ops/cuda/chain.cuh"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Pinned memory after that for uploads: LANDING bytes for small downloads, of which a recording itself writes at most
 * BROUGHT. */
enum { STAGING = MR_CUDA_STAGING, LANDING = 1 << 20, BROUGHT = 64 << 10 };

void mr_cuda_note(mr_cuda *c, cudaError_t error, const char *where)
{
    if (error == cudaSuccess || c->error != cudaSuccess) return;
    c->error = error;
    c->where = where;
}

/* ---- memory ---- */

static void forget_graphs(mr_cuda *c)
{
    for (int i = 0; i < MR_REPLAYS; i++)
        if (c->graphs[i].exec) cudaGraphExecDestroy(c->graphs[i].exec);
    memset(c->graphs, 0, sizeof c->graphs);
    c->replays.count = 0;
    if (c->stream_end == MR_END_REPLAYED) c->stream_end = MR_END_PLAIN;
}

/* Recordings stay valid: nothing that they refer to moves (releasing memory dropped those that referred to it). */
static void *cuda_alloc(mr_dev *dev, size_t bytes)
{
    mr_cuda *c = cuda_of(dev);
    void *p = NULL;
    mr_cuda_settle(c);
    if (cudaMalloc(&p, bytes ? bytes : 1) != cudaSuccess) {
        cudaGetLastError();
        return NULL;
    }
    dev->taken += bytes;
    CHECK(c, cudaMemsetAsync(p, 0, bytes ? bytes : 1, c->stream));
    return p;
}

/* Drops bf16 copies when memory is released: the address may be reused for something else. */
static void forget_shadows(mr_cuda *c)
{
    for (int i = 0; i < c->shadow_count; i++) cudaFree(c->shadows[i].to);
    c->shadow_count = 0;
}

static void cuda_release(mr_dev *dev, void *p)
{
    if (!p) return;
    mr_cuda_settle(cuda_of(dev));
    forget_graphs(cuda_of(dev)); /* they hold addresses */
    forget_shadows(cuda_of(dev));
    CHECK(cuda_of(dev), cudaStreamSynchronize(cuda_of(dev)->stream));
    CHECK(cuda_of(dev), cudaFree(p));
}

static void *grow(mr_cuda *c, mr_cuda_room *room, size_t bytes)
{
    if (bytes <= room->size) return room->data;
    if (c->raw) { /* raw_work counted all of it, so this cannot happen */
        mr_cuda_note(c, cudaErrorMemoryAllocation, "the caller's workspace");
        return NULL;
    }
    forget_graphs(c);
    CHECK(c, cudaStreamSynchronize(c->stream));
    cudaFree(room->data);
    c->dev.taken -= room->size;
    room->data = NULL;
    room->size = 0;
    cudaError_t error = cudaMalloc(&room->data, bytes);
    if (error == cudaSuccess) room->size = bytes;
    else mr_cuda_note(c, error, "scratch memory");
    c->dev.taken += room->size;
    /* only for initcheck, which does not see what cuBLASLt writes here (finish_quads reads it afterwards) */
    if (room->data) CHECK(c, cudaMemsetAsync(room->data, 0, bytes, c->stream));
    return room->data;
}

void *mr_cuda_scratch(mr_cuda *c, size_t bytes) { return grow(c, &c->scratch, bytes); }
void *mr_cuda_product_scratch(mr_cuda *c, size_t bytes) { return grow(c, &c->product_scratch, bytes); }

cudaError_t mr_cuda_allow_shared(const void *kernel, size_t bytes)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    cudaFuncAttributes has;
    if (bytes <= 48 << 10) return cudaSuccess; /* the default that every kernel may use */
    pthread_mutex_lock(&lock);
    cudaError_t error = cudaFuncGetAttributes(&has, kernel);
    if (error == cudaSuccess && (size_t)has.maxDynamicSharedSizeBytes < bytes)
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    pthread_mutex_unlock(&lock);
    return error;
}

void mr_cuda_wait(mr_cuda *c)
{
    mr_cuda_deliver(c);
    CHECK(c, cudaStreamSynchronize(c->stream));
    c->staged = 0;
}

/* Copies a small piece of device memory to pinned memory. When this directly follows a replayed recording, the work is
 * recorded again with a last kernel that writes the piece there: a separate copy takes as long as a dozen kernels,
 * because it switches engines. */
static const void *land(mr_cuda *c, const void *from, size_t bytes)
{
    mr_cuda_graph *g = c->stream_end == MR_END_REPLAYED ? c->replayed : NULL;
    if (g && g->wanted == from && bytes <= g->wanted_bytes) {
        mr_cuda_wait(c);
        return c->staging + STAGING;
    }
    mr_cuda_settle(c);
    CHECK(c, cudaMemcpyAsync(c->staging + STAGING, from, bytes, cudaMemcpyDeviceToHost, c->stream));
    mr_cuda_wait(c);
    if (g && g->exec && !g->wanted && bytes <= BROUGHT && (uintptr_t)from % 2 == 0 && bytes % 2 == 0) {
        g->wanted = from;
        g->wanted_bytes = bytes;
        cudaGraphExecDestroy(g->exec);
        g->exec = NULL;
    }
    return c->staging + STAGING;
}

static __global__ void bring(const uint16_t *from, uint16_t *to, int n)
{
    early_start();
    wait_for_results();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) to[i] = from[i];
}

static void cuda_download(mr_dev *dev, void *to, const void *from, size_t bytes)
{
    mr_cuda *c = cuda_of(dev);
    if (bytes <= LANDING) {
        memcpy(to, land(c, from, bytes), bytes);
        return;
    }
    mr_cuda_settle(c);
    CHECK(c, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, c->stream));
    mr_cuda_wait(c);
}

static void cuda_copy(mr_dev *dev, void *to, const void *from, size_t bytes)
{
    mr_cuda_settle(cuda_of(dev));
    mr_cuda_written(cuda_of(dev), to, bytes);
    CHECK(cuda_of(dev), cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, cuda_of(dev)->stream));
}

static void cuda_zero(mr_dev *dev, void *to, size_t bytes)
{
    mr_cuda_settle(cuda_of(dev));
    mr_cuda_written(cuda_of(dev), to, bytes);
    CHECK(cuda_of(dev), cudaMemsetAsync(to, 0, bytes, cuda_of(dev)->stream));
}

static void get(mr_dev *dev, float *to, const mr_real *from, size_t n)
{
    cuda_download(dev, to, from, n * sizeof(float));
}

static __global__ void from_bf16(size_t n, const bf16 *from, float *to)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        to[i] = load(from + i);
}

static void get_act(mr_dev *dev, float *to, const mr_act *from, size_t n)
{
    mr_cuda *c = cuda_of(dev);
    if (!c->bf16) {
        cuda_download(dev, to, from, n * sizeof(float));
        return;
    }
    if (n * sizeof(bf16) <= LANDING) { /* for few numbers the host converts faster than a kernel starts */
        const uint16_t *narrow = (const uint16_t *)land(c, from, n * sizeof(bf16));
        for (size_t i = 0; i < n; i++) {
            const uint32_t bits = (uint32_t)narrow[i] << 16;
            memcpy(to + i, &bits, sizeof bits);
        }
        return;
    }
    mr_cuda_settle(c);
    float *wide = (float *)mr_cuda_scratch(c, n * sizeof(float));
    if (!wide) return;
    from_bf16<<<256, 256, 0, c->stream>>>(n, (const bf16 *)from, wide);
    LAUNCHED(c, "from_bf16");
    cuda_download(dev, to, wide, n * sizeof(float));
}

/* ---- recorded work ---- */

/* The graph for a key. The caller has settled the stream, so nothing refers to a graph whose row is reused here;
 * destroying one that is still running waits for it. */
static mr_cuda_graph *graph_of(mr_cuda *c, const mr_replay_key *key)
{
    int fresh;
    mr_cuda_graph *g = &c->graphs[mr_replay_row(&c->replays, key, &fresh)];
    if (!fresh) return g;
    if (g->exec) cudaGraphExecDestroy(g->exec);
    memset(g, 0, sizeof *g);
    return g;
}

static void record(mr_cuda *c, mr_cuda_graph *g, void (*work)(void *arg), void *arg)
{
    cudaGraph_t graph = NULL;
    c->weights_written = 0;
    CHECK(c, cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal));
    work(arg);
    if (c->has_waiting) mr_cuda_settle(c);
    if (g->wanted)
        chain(c, "bring", bring, dim3((unsigned)div_up(g->wanted_bytes, 512)), 256, 0, (const uint16_t *)g->wanted,
              (uint16_t *)(c->staging + STAGING), (int)(g->wanted_bytes / 2));
    mr_cuda_settle(c);
    CHECK(c, cudaStreamEndCapture(c->stream, &graph));
    g->writes_weights = c->weights_written;
    if (graph) CHECK(c, cudaGraphInstantiate(&g->exec, graph, 0));
    if (graph) cudaGraphDestroy(graph);
}

/* The first time, work runs directly (products are planned, scratch grows); the second time it is recorded;
 * from then on it is replayed. */
static void cuda_replay(mr_dev *dev, const mr_replay_key *key, void (*work)(void *arg), void *arg)
{
    mr_cuda *c = cuda_of(dev);
    mr_cuda_settle(c);
    mr_cuda_graph *g = graph_of(c, key);
    if (!g->seen) {
        g->seen = 1;
        work(arg);
        mr_cuda_settle(c);
        return;
    }
    mr_cuda_freshen(c); /* recordings assume fresh bf16 copies of the weights */
    if (!g->exec) record(c, g, work, arg);
    if (g->exec) CHECK(c, cudaGraphLaunch(g->exec, c->stream));
    if (g->writes_weights) c->shadows_stale = 1;
    c->replayed = g;
    c->stream_end = MR_END_REPLAYED;
}

static int cuda_sync(mr_dev *dev, mr_error *err)
{
    mr_cuda *c = cuda_of(dev);
    mr_cuda_settle(c);
    mr_cuda_wait(c);
    if (c->error == cudaSuccess) return 0;
    cudaError_t error = c->error;
    c->error = cudaSuccess;
    if (error == cudaErrorMemoryAllocation)
        return mr_fail(err, MR_ENOMEM, "out of memory on %s (%s); lower --batch, --context or --dim", c->name,
                       c->where);
    return mr_fail(err, MR_EDEVICE, "%s: %s (%s)", c->name, cudaGetErrorString(error), c->where);
}

/* The current GPU is a setting of each thread. */
static void cuda_enter(mr_dev *dev) { CHECK(cuda_of(dev), cudaSetDevice(cuda_of(dev)->index)); }

static void cuda_close(mr_dev *dev)
{
    mr_cuda *c = cuda_of(dev);
    forget_graphs(c);
    for (int i = 0; i < c->plan_count; i++) mr_cuda_forget_plan(&c->plans[i]);
    if (c->lt) mr_lt.Destroy(c->lt);
    if (!c->raw) forget_shadows(c);
    cudaFree(c->shadow_table);
    cudaFree(c->workspace);
    cudaFree(c->scratch.data);
    cudaFree(c->product_scratch.data);
    cudaFreeHost(c->staging);
    mr_cuda_side_free(c);
    if (c->stream && !c->stream_given) cudaStreamDestroy(c->stream);
    mr_free_with(dev->allocator, c);
}

/* ---- opening ---- */

/* Never launched: asking for its attributes tells whether there is code for the card. */
static __global__ void probe(void) {}

static mr_card_code code_for_card(void)
{
    cudaFuncAttributes has;
    const cudaError_t error = cudaFuncGetAttributes(&has, (const void *)probe);
    cudaGetLastError();
    switch (error) {
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction: return MR_CODE_MISSING;
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorInvalidPtx:
    case cudaErrorJitCompilerNotFound:
    case cudaErrorJitCompilationDisabled: return MR_CODE_UNREADABLE;
    default: return MR_CODE_FITS; /* any other error is the card's: opening it will report it */
    }
}

/* No driver, or a driver without a card, is not an error: that is a machine without a GPU. */
static const char *trouble_of(cudaError_t error)
{
    int driver = 0;
    cudaDriverGetVersion(&driver);
    cudaGetLastError();
    const bool none = error == cudaErrorNoDevice || error == cudaErrorStubLibrary ||
                      (error == cudaErrorInsufficientDriver && !driver);
    return error == cudaSuccess || none ? NULL : cudaGetErrorString(error);
}

extern "C" void mr_cuda_look(int index, mr_card *card)
{
    cudaDeviceProp prop;
    int count = 0;
    memset(card, 0, sizeof *card);
    card->index = index;
    cudaError_t error = cudaGetDeviceCount(&count);
    card->trouble = trouble_of(error);
    card->count = error == cudaSuccess ? count : 0;
    if (index >= card->count) return;
    error = cudaSetDevice(index);
    if (error == cudaSuccess) error = cudaGetDeviceProperties(&prop, index);
    if (error != cudaSuccess) { /* the card exists, but cannot be used */
        card->trouble = cudaGetErrorString(error);
        cudaGetLastError();
        return;
    }
    snprintf(card->name, sizeof card->name, "%s", prop.name);
    card->major = prop.major;
    card->minor = prop.minor;
    card->code = code_for_card();
}

static int find_device(mr_cuda *c, int index, mr_error *err)
{
    mr_card card;
    cudaFuncAttributes has;
    mr_cuda_look(index, &card);
    const int status = mr_card_check(&card, c->bf16, err);
    if (status) return status;
    cudaError_t error = cudaDeviceGetAttribute(&c->sms, cudaDevAttrMultiProcessorCount, index);
    if (error == cudaSuccess) error = cudaFuncGetAttributes(&has, (const void *)probe);
    if (error != cudaSuccess) return mr_fail(err, MR_EDEVICE, "%s: %s", card.name, cudaGetErrorString(error));
    snprintf(c->name, sizeof c->name, "%s", card.name);
    c->index = index;
    c->capability = 10 * card.major + card.minor;
    if (c->capability > has.ptxVersion) c->capability = has.ptxVersion;
    return 0;
}

static int make_resources(mr_cuda *c, mr_error *err)
{
    cudaError_t error = c->stream_given ? cudaSuccess : cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking);
    if (error == cudaSuccess && !c->raw) error = cudaMalloc(&c->workspace, MR_CUDA_WORKSPACE);
    if (error == cudaSuccess && !c->raw) c->dev.taken += MR_CUDA_WORKSPACE;
    if (error == cudaSuccess && !c->raw) error = cudaMallocHost((void **)&c->staging, STAGING + LANDING);
    if (error != cudaSuccess) return mr_fail(err, MR_EDEVICE, "%s: %s", c->name, cudaGetErrorString(error));
    if (mr_lt.Create(&c->lt) != CUBLAS_STATUS_SUCCESS)
        return mr_fail(err, MR_EDEVICE, "%s: cuBLASLt does not start", c->name);
    return 0;
}

static void fill_ops(mr_dev *dev)
{
    mr_cuda_linear_ops(&dev->ops);
    mr_cuda_minrnn_ops(&dev->ops);
    mr_cuda_scan_ops(&dev->ops);
    mr_cuda_norm_ops(&dev->ops);
    mr_cuda_loss_ops(&dev->ops);
    mr_cuda_conv_ops(&dev->ops);
    mr_cuda_pool_ops(&dev->ops);
    mr_cuda_token_ops(&dev->ops);
    mr_cuda_train_ops(&dev->ops);
    mr_cuda_activate_ops(&dev->ops);
    mr_cuda_sscan_ops(&dev->ops);
    mr_cuda_sample_ops(&dev->ops);
    mr_cuda_rnn_ops(&dev->ops);
    mr_cuda_attn_ops(&dev->ops);
    mr_cuda_state_ops(&dev->ops);
    mr_cuda_effect_ops(&dev->ops);
    mr_cuda_defer_ops(cuda_of(dev)); /* after all others: it wraps them */
}

extern "C" const char *mr_cuda_version(void)
{
#define TEXT(x) #x
#define VERSION(major, minor) TEXT(major) "." TEXT(minor)
    return VERSION(__CUDACC_VER_MAJOR__, __CUDACC_VER_MINOR__);
}

extern "C" int mr_cuda_open(int index, const mr_dev_options *options, mr_dev **out, mr_error *err)
{
    int before = -1; /* a raw call, even the first, leaves the caller's current device unchanged */
    *out = NULL;
    if (options->raw && cudaGetDevice(&before) != cudaSuccess) before = -1;
    mr_cuda *c = (mr_cuda *)mr_alloc_with(options->allocator, 1, sizeof *c);
    if (!c) return mr_no_memory(err, "a device");
    mr_dev *dev = &c->dev;
    c->bf16 = options->bf16;
    c->exact = options->exact;
    c->stream = (cudaStream_t)options->stream;
    c->stream_given = options->stream != NULL;
    c->raw = options->raw;
    c->own_stream = c->stream;
    dev->kind = "cuda";
    dev->name = c->name;
    dev->isa = "";
    dev->threads = 1;
    dev->queue = 1;
    dev->allocator = options->allocator;
    dev->ahead = MR_DRAWN;
    dev->act_size = c->bf16 ? sizeof(bf16) : sizeof(float);
    dev->real_size = sizeof(float);
    dev->alloc = cuda_alloc;
    dev->release = cuda_release;
    dev->download = cuda_download;
    dev->copy = cuda_copy;
    dev->zero = cuda_zero;
    dev->get = get;
    dev->get_act = get_act;
    dev->replay = cuda_replay;
    dev->sync = cuda_sync;
    dev->enter = cuda_enter;
    dev->close = cuda_close;
    dev->minrnn_saved = mr_cuda_minrnn_saved;
    dev->scan_work = mr_cuda_scan_work;
    dev->rnn_saved = mr_cuda_rnn_saved;
    dev->impl = c;
    dev->index = index;
    mr_cuda_raw_hooks(dev);
    mr_cuda_side_hooks(dev);
    mr_cuda_upload_hooks(dev);
    fill_ops(dev);
    int status = find_device(c, index, err);
    if (!status) status = mr_lt_load(err);
    if (!status) status = make_resources(c, err);
    dev->stream = c->stream;
    if (status) cuda_close(dev);
    else *out = dev;
    if (before >= 0) cudaSetDevice(before);
    return status;
}
