/* Raw calls on a GPU as a host framework makes them: in its streams, captured in its graphs, only on its memory. */
#include "raw_support.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#define CUDA(call)                                                                                                     \
    do {                                                                                                               \
        cudaError_t error_ = (call);                                                                                   \
        if (error_ != cudaSuccess) fail_msg("%s: %s", #call, cudaGetErrorString(error_));                              \
    } while (0)

static const shape shapes[] = {
    {.name = "scan", .given = 1, .B = 2, .T = 9, .H = 5, .masked = 1, .carried = 1},
    {.name = "long scan", .given = 1, .B = 1, .T = 5000, .H = 70, .carried = 1},
    {.name = "wide scan", .given = 1, .B = 64, .T = 256, .H = 128},
    {.name = "minGRU of given gates", .B = 3, .T = 9, .H = 5, .masked = 1},
    {.name = "minLSTM of given gates",
     .B = 4,
     .T = 128,
     .H = 64,
     .kind = MR_MINLSTM,
     .candidate = MR_TANH,
     .normalize = 1,
     .carried = 1},
    {.name = "long minGRU of given gates", .B = 1, .T = 5000, .H = 64, .candidate = MR_LINEAR, .carried = 1},
    {.name = "fused minGRU", .B = 4, .T = 96, .D = 64, .H = 64},
    {.name = "fused minLSTM",
     .B = 5,
     .T = 70,
     .D = 64,
     .H = 128,
     .kind = MR_MINLSTM,
     .candidate = MR_TANH,
     .masked = 1},
    {.name = "64 inputs, too long to be fused",
     .B = 1,
     .T = 2000,
     .D = 64,
     .H = 64,
     .candidate = MR_TANH,
     .carried = 1},
    {.name = "minGRU", .B = 4, .T = 100, .D = 48, .H = 40, .candidate = MR_TANH, .masked = 1, .carried = 1},
    {.name = "minLSTM, normalised",
     .B = 2,
     .T = 300,
     .D = 256,
     .H = 192,
     .kind = MR_MINLSTM,
     .candidate = MR_TANH,
     .normalize = 1},
    {.name = "minGRU of odd widths", .B = 3, .T = 50, .D = 5, .H = 7, .candidate = MR_TANH, .masked = 1},
    {.name = "minGRU in logarithms", .B = 2, .T = 50, .D = 16, .H = 8, .scan = MR_SCAN_LOG},
    {.name = "a step of 3", .B = 3, .T = 1, .D = 64, .H = 64, .candidate = MR_TANH, .carried = 1},
    {.name = "a step of 40",
     .B = 40,
     .T = 1,
     .D = 128,
     .H = 96,
     .kind = MR_MINLSTM,
     .candidate = MR_TANH,
     .carried = 1},
    {.name = "a step with lengths", .B = 5, .T = 1, .D = 48, .H = 40, .candidate = MR_TANH, .masked = 1, .carried = 1},
};

enum { SHAPES = sizeof shapes / sizeof *shapes };

static mr_context *ref;
static cudaStream_t streams[2];

/* ---- the GPU's memory ---- */

static void *gpu_take(size_t bytes)
{
    void *p = NULL;
    CUDA(cudaMalloc(&p, bytes));
    CUDA(cudaMemset(p, 0xff, bytes)); /* NaN, whatever the type */
    CUDA(cudaDeviceSynchronize());
    return p;
}

static void gpu_copy(void *to, const void *from, size_t bytes)
{
    CUDA(cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
    CUDA(cudaDeviceSynchronize());
}

static void gpu_release(void *p) { CUDA(cudaFree(p)); }

static const memory gpu = {gpu_take, gpu_copy, gpu_release};

static mr_context *gpu_context(int exact)
{
    mr_context_options options = MR_CONTEXT_OPTIONS;
    mr_context *ctx;
    options.device = "cuda", options.exact = exact;
    OK(mr_context_new(&options, &ctx, &err));
    return ctx;
}

static void run_both(raw_run *r, cudaStream_t stream)
{
    r->scan.stream = r->cell.stream = stream;
    run_forward(r);
    run_backward(r);
}

/* Runs the same again, with accumulators set to 0. */
static void run_again(raw_run *r, const values *in, cudaStream_t stream, values *out)
{
    put_arrays(r, in, INPUTS, ARRAYS);
    run_both(r, stream);
    CUDA(cudaStreamSynchronize(stream));
    get_outputs(r, out);
}

/* ---- against ref in double ---- */

/* Stored numbers are rounded to bf16. With W, pre-activations and their gradients are rounded too: four roundings of
 * the largest number, as in src/ops/check/bf16.c. TF32 has 11 significant bits. */
static void check_near(const char *where, const shape *s, mr_dtype dtype, int exact, const values *got,
                       const values *want)
{
    for (int i = INPUTS; i < ARRAYS; i++) {
        const double each = dtype == MR_BF16 && array[i].act ? UNIT : 0;
        const double all = !s->D ? 1e-4 : dtype == MR_BF16 ? 4 * UNIT : exact ? 1e-4 : 1e-2;
        near_values(where, s, got, want, i, each, all);
    }
}

/* ---- each test for all shapes, in fp32, fp32 by TF32, and bf16 ---- */

static void for_all(void (*check)(mr_context *ctx, const shape *s, mr_dtype dtype, int exact))
{
    for (int exact = 0; exact < 2; exact++) {
        mr_context *ctx = gpu_context(exact);
        for (const shape *s = shapes; s < shapes + SHAPES; s++)
            for (int dtype = MR_F32; dtype <= MR_BF16; dtype++) check(ctx, s, (mr_dtype)dtype, exact);
        mr_context_free(ctx);
    }
}

/* A backward that overwrites, and one without dx: whatever was in the outputs, the rest is as it was. */
static void check_fresh(raw_run *r, int exact, const values *want)
{
    values got = new_values(&r->s);
    void *const dx = r->cell.dx;
    for (int i = INPUTS; i < ARRAYS; i++)
        if (i != H && r->at[i]) CUDA(cudaMemset(r->at[i], 0xff, count_of(&r->s, i) * element_size(r->dtype, i)));
    r->cell.fresh = 1, r->cell.dx = NULL;
    run_both(r, streams[0]);
    CUDA(cudaStreamSynchronize(streams[0]));
    get_outputs(r, &got);
    memcpy(got.of[DX], want->of[DX], count_of(&r->s, DX) * sizeof(double));
    check_near("fresh", &r->s, r->dtype, exact, &got, want);
    r->cell.fresh = 0, r->cell.dx = dx;
    free_values(&got);
}

/* With workspaces for one call each, in the context's own stream. */
static void check_least(raw_run *r, const values *in, const values *want)
{
    values got = new_values(&r->s);
    void *const dx = r->cell.dx;
    for (int with_dx = 0; with_dx < 2; with_dx++) {
        put_arrays(r, in, INPUTS, ARRAYS);
        r->scan.stream = r->cell.stream = NULL, r->cell.dx = with_dx ? dx : NULL;
        run_with_least(r);
        get_outputs(r, &got);
        if (!with_dx) memcpy(got.of[DX], want->of[DX], count_of(&r->s, DX) * sizeof(double));
        same_values("least workspace", &r->s, &got, want);
    }
    free_values(&got);
}

static void check_results(mr_context *ctx, const shape *s, mr_dtype dtype, int exact)
{
    values got = draw_values(s, 7), want = draw_values(s, 7);
    raw_run r = new_run(ctx, &gpu, s, dtype, streams[0]);
    put_arrays(&r, &got, 0, INPUTS);
    run_again(&r, &got, streams[0], &got);
    exact_values(ref, s, dtype == MR_BF16 ? &got : NULL, &want);
    check_near("eager", s, dtype, exact, &got, &want);
    check_fresh(&r, exact, &want);
    put_arrays(&r, &got, INPUTS, ARRAYS);
    run_both(&r, NULL); /* the context's own stream */
    OK(mr_context_wait(ctx, &err));
    get_outputs(&r, &want);
    same_values("own stream", s, &want, &got);
    run_again(&r, &got, cudaStreamLegacy, &want);
    same_values("default stream", s, &want, &got);
    if (!s->given) check_least(&r, &got, &want);
    free_run(&r);
    free_values(&got), free_values(&want);
}

static void results_agree_with_ref_in_double(void **state)
{
    (void)state;
    for_all(check_results);
}

/* A host function blocks the stream: calls must return all the same. */
typedef struct gate {
    atomic_int open, gave_up;
} gate;

static void wait_at(void *arg)
{
    gate *g = arg;
    for (int ms = 0; !g->open && ms < 60000; ms++) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    g->gave_up = !g->open;
}

static void check_no_wait(mr_context *ctx, const shape *s, mr_dtype dtype, int exact)
{
    (void)exact;
    values first = draw_values(s, 7), held = draw_values(s, 7);
    gate g = {0};
    size_t before, after, total;
    raw_run r = new_run(ctx, &gpu, s, dtype, streams[0]);
    put_arrays(&r, &first, 0, INPUTS);
    run_again(&r, &first, streams[0], &first);
    put_arrays(&r, &first, INPUTS, ARRAYS);
    CUDA(cudaMemGetInfo(&before, &total));
    CUDA(cudaLaunchHostFunc(streams[1], wait_at, &g)); /* warmed up in one stream, called in another */
    run_both(&r, streams[1]);
    const cudaError_t running = cudaStreamQuery(streams[1]);
    CUDA(cudaMemGetInfo(&after, &total));
    g.open = 1;
    CUDA(cudaStreamSynchronize(streams[1]));
    if (running != cudaErrorNotReady || g.gave_up) fail_msg("%s: waited for its stream", s->name);
    if (before != after)
        fail_msg("%s: took %zd bytes of the GPU after its first call", s->name, (ssize_t)(before - after));
    get_outputs(&r, &held);
    same_values("held up", s, &held, &first);
    free_run(&r);
    free_values(&first), free_values(&held);
}

static void calls_neither_allocate_nor_wait(void **state)
{
    (void)state;
    for_all(check_no_wait);
}

static cudaGraphExec_t capture(raw_run *r, cudaStream_t stream)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    run_both(r, stream);
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphDestroy(graph));
    return exec;
}

static void replay(raw_run *r, cudaGraphExec_t exec, values *out)
{
    put_arrays(r, out, INPUTS, ARRAYS);
    CUDA(cudaGraphLaunch(exec, streams[1]));
    CUDA(cudaStreamSynchronize(streams[1]));
    get_outputs(r, out);
}

/* A graph gives the same as a call, also with other weights, and after a call with a larger shape. */
static void check_capture(mr_context *ctx, const shape *s, mr_dtype dtype, int exact)
{
    values eager = draw_values(s, 7), graph = draw_values(s, 7), eager_next = draw_values(s, 8),
           graph_next = draw_values(s, 8), want = draw_values(s, 8);
    raw_run r = new_run(ctx, &gpu, s, dtype, streams[0]);
    put_arrays(&r, &eager, 0, INPUTS);
    run_again(&r, &eager, streams[0], &eager);
    cudaGraphExec_t exec = capture(&r, streams[1]);
    replay(&r, exec, &graph);
    same_values("a graph", s, &graph, &eager);
    put_arrays(&r, &eager_next, 0, INPUTS); /* in place: the library is not told */
    run_again(&r, &eager_next, streams[0], &eager_next);
    exact_values(ref, s, dtype == MR_BF16 ? &eager_next : NULL, &want);
    check_near("other weights", s, dtype, exact, &eager_next, &want);
    shape larger = *s;
    larger.B += 3, larger.T = s->T == 1 ? 1 : s->T + 64;
    values large = draw_values(&larger, 1);
    raw_run other = new_run(ctx, &gpu, &larger, dtype, streams[0]);
    put_arrays(&other, &large, 0, INPUTS);
    run_again(&other, &large, streams[0], &large);
    free_run(&other);
    replay(&r, exec, &graph_next);
    same_values("a graph with other weights", s, &graph_next, &eager_next);
    CUDA(cudaGraphExecDestroy(exec));
    free_run(&r);
    free_values(&eager), free_values(&graph), free_values(&eager_next), free_values(&graph_next), free_values(&want),
        free_values(&large);
}

static void a_captured_graph_gives_the_results_of_calls(void **state)
{
    (void)state;
    for_all(check_capture);
}

/* ---- two streams at once ---- */

#ifndef TIMES /* tests/emulated_cuda takes fewer */
#define TIMES 20
#endif

typedef struct worker {
    raw_run r;
    cudaStream_t stream;
} worker;

static void *work(void *arg)
{
    worker *w = arg;
    for (int i = 0; i < TIMES; i++) run_both(&w->r, w->stream);
    return NULL;
}

static void check_two_streams(mr_context *ctx, const shape *s, mr_dtype dtype, int exact)
{
    (void)exact;
    worker w[2];
    pthread_t threads[2];
    values alone[2], beside[2];
    for (int i = 0; i < 2; i++) { /* one after the other */
        w[i] = (worker){new_run(ctx, &gpu, s, dtype, streams[i]), streams[i]};
        alone[i] = draw_values(s, 20 + (uint32_t)i), beside[i] = draw_values(s, 20 + (uint32_t)i);
        put_arrays(&w[i].r, &alone[i], 0, ARRAYS);
        work(&w[i]);
        CUDA(cudaDeviceSynchronize());
        get_outputs(&w[i].r, &alone[i]);
        put_arrays(&w[i].r, &beside[i], INPUTS, ARRAYS);
    }
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, work, &w[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    CUDA(cudaDeviceSynchronize());
    for (int i = 0; i < 2; i++) {
        get_outputs(&w[i].r, &beside[i]);
        same_values("beside another stream", s, &beside[i], &alone[i]);
        free_run(&w[i].r);
        free_values(&alone[i]), free_values(&beside[i]);
    }
}

static void two_streams_do_not_disturb_each_other(void **state)
{
    (void)state;
    for_all(check_two_streams);
}

/* ---- refusals ---- */

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    mr_context *ctx = gpu_context(0);
    raw_run r = new_run(ctx, &gpu, &shapes[0], MR_F32, streams[0]),
            cell = new_run(ctx, &gpu, &shapes[9], MR_BF16, streams[0]);
    mr_scan_args a = r.scan;
    a.dtype = MR_F64;
    FAILS(MR_EINVAL, "device = \"ref\"", mr_scan_forward(ctx, &a, &err));
    mr_cell_args b = cell.cell;
    b.x = (const char *)b.x + 2;
    FAILS(MR_EINVAL, "x: must be aligned to 16", mr_cell_forward(ctx, &b, &err));
    shape many = {.name = "more sequences than a launch has room for", .given = 1, .B = 70000, .T = 1, .H = 1};
    raw_run wide = new_run(ctx, &gpu, &many, MR_F32, streams[0]);
    FAILS(MR_EDEVICE, "invalid",
          mr_scan_forward(ctx, &wide.scan, &err)); /* the launch is refused, and reported at once */
    values v = draw_values(&shapes[0], 1);
    put_arrays(&r, &v, 0, INPUTS);
    run_again(&r, &v, streams[0], &v); /* the error is cleared */
    OK(mr_context_wait(ctx, &err));
    free_values(&v);
    free_run(&r), free_run(&cell), free_run(&wide);
    mr_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_agree_with_ref_in_double),
        cmocka_unit_test(calls_neither_allocate_nor_wait),
        cmocka_unit_test(a_captured_graph_gives_the_results_of_calls),
        cmocka_unit_test(two_streams_do_not_disturb_each_other),
        cmocka_unit_test(wrong_arguments_are_refused),
    };
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || !count) {
        puts("no CUDA device here");
        return 77;
    }
    ref = context_on("ref");
    for (int i = 0; i < 2; i++)
        if (cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking) != cudaSuccess) return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mr_context_free(ref);
    return failed;
}
