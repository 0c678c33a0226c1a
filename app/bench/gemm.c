/* Matrix products in the shapes of the d=384 language model, in the three forms of a training step. */
#include "bench/bench.h"

#include <stdio.h>

typedef struct product {
    mr_dev *dev;
    mr_linear_fwd_args forward;
    mr_linear_bwd_x_args backward_x;
    mr_linear_bwd_w_args backward_w;
} product;

static void run_forward(void *arg)
{
    product *p = arg;
    p->dev->ops.linear_fwd(p->dev, &p->forward);
}
static void run_backward_x(void *arg)
{
    product *p = arg;
    p->dev->ops.linear_bwd_x(p->dev, &p->backward_x);
}
static void run_backward_w(void *arg)
{
    product *p = arg;
    p->dev->ops.linear_bwd_w(p->dev, &p->backward_w);
}

static void measure(mr_bench *b, product *p, const char *form, void (*run)(void *))
{
    double M = p->forward.M, N = p->forward.N, K = p->forward.K;
    mr_bench_job job = {.bench = "gemm",
                        .run = run,
                        .arg = p,
                        .flops = 2 * M * N * K,
                        .bytes = (M * K + M * N) * (double)b->dev->act_size + N * K * (double)b->dev->real_size};
    snprintf(job.name, sizeof job.name, "%s %gx%gx%g", form, M, N, K);
    mr_bench_measure(b, &job);
}

static int bench_shape(mr_bench *b, int M, int N, int K, mr_error *err)
{
    mr_dev *dev = b->dev;
    mr_act *x = mr_bench_acts(dev, (size_t)M * K, 1), *y = mr_bench_acts(dev, (size_t)M * N, 1);
    mr_real *W = mr_bench_reals(dev, (size_t)N * K, 0.05), *dW = mr_bench_reals(dev, (size_t)N * K, 0);
    int status = x && y && W && dW ? 0 : mr_no_memory(err, "a matrix product");
    if (status == 0) {
        product p = {.dev = dev,
                     .forward = {.M = M, .N = N, .K = K, .x = x, .W = W, .y = y},
                     .backward_x = {.M = M, .N = N, .K = K, .dy = y, .W = W, .dx = x},
                     .backward_w = {.M = M, .N = N, .K = K, .dy = y, .x = x, .dW = dW}};
        measure(b, &p, "fwd", run_forward);
        measure(b, &p, "bwd_x", run_backward_x);
        measure(b, &p, "bwd_w", run_backward_w);
    }
    if (x) dev->release(dev, x);
    if (y) dev->release(dev, y);
    if (W) dev->release(dev, W);
    if (dW) dev->release(dev, dW);
    return status;
}

int mr_bench_gemm(mr_bench *b, mr_error *err)
{
    static const int shapes[][2] = {{1536, 384}, {384, 768}, {384, 1536}};
    int status = 0;
    for (int i = 0; i < 3 && status == 0; i++)
        status = bench_shape(b, b->quick ? 2048 : 16384, shapes[i][0], shapes[i][1], err);
    return status;
}
