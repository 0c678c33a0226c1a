/* Linear layers: the product, then what is fused behind it. */
#include "ops/cuda/cuda.cuh"

/* y = residual + dropout(y). */
template <class A> static __global__ void drop_and_add(size_t n, dropout drop, const A *residual, A *y)
{
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = load(y + i) * dropout_factor(drop, i);
    store(y + i, residual ? v + load(residual + i) : v);
}

template <class A> static __global__ void drop_and_add_apart(size_t n, dropout drop, const A *residual, const A *v, A *y)
{
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) store(y + i, load(v + i) * dropout_factor(drop, i) + load(residual + i));
}

template <class A> static void finish(mr_cuda *c, const mr_linear_fwd_args *a, const void *v)
{
    size_t n = (size_t)a->M * (size_t)a->N;
    unsigned blocks = (unsigned)div_up(n, 256);
    dropout drop = dropout_of(&a->drop);
    if (v == (const void *)a->y) drop_and_add<A><<<blocks, 256, 0, c->stream>>>(n, drop, (const A *)a->residual, (A *)a->y);
    else drop_and_add_apart<A><<<blocks, 256, 0, c->stream>>>(n, drop, (const A *)a->residual, (const A *)v, (A *)a->y);
    LAUNCHED(c, "drop_and_add");
}

static void linear_fwd(mr_dev *dev, const mr_linear_fwd_args *a)
{
    mr_cuda *c = cuda_of(dev);
    size_t weights = (size_t)a->N * (size_t)a->K * dev->act_size;
    void *v = a->y;
    if (a->residual == a->y) { /* the product must not overwrite what is added to it; the weights' copy comes before it */
        char *scratch = (char *)mr_cuda_scratch(c, div_up(weights, 256) * 256 + (size_t)a->M * (size_t)a->N * dev->act_size);
        if (!scratch) return;
        v = scratch + div_up(weights, 256) * 256;
    }
    mr_cuda_product_fwd(c, a->M, a->N, a->K, a->x, (const float *)a->W, (const float *)a->b, a->gelu, a->pre, v);
    if (a->residual || a->drop.p > 0) BY_ACT(c, finish, c, a, v);
}

template <class A> static __global__ void times_gelu_slope(size_t n, const A *pre, const A *v, int accumulate, A *dx)
{
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    float g = load(v + i) * gelu_slope(load(pre + i));
    store(dx + i, accumulate ? g + load(dx + i) : g);
}

template <class A> static void through_gelu(mr_cuda *c, const mr_linear_bwd_x_args *a, const void *v)
{
    size_t n = (size_t)a->M * (size_t)a->K;
    times_gelu_slope<A><<<(unsigned)div_up(n, 256), 256, 0, c->stream>>>(n, (const A *)a->pre, (const A *)v, a->accumulate, (A *)a->dx);
    LAUNCHED(c, "times_gelu_slope");
}

static void linear_bwd_x(mr_dev *dev, const mr_linear_bwd_x_args *a)
{
    mr_cuda *c = cuda_of(dev);
    size_t weights = (size_t)a->N * (size_t)a->K * dev->act_size;
    void *v = a->dx;
    if (a->pre && a->accumulate) {
        char *scratch = (char *)mr_cuda_scratch(c, div_up(weights, 256) * 256 + (size_t)a->M * (size_t)a->K * dev->act_size);
        if (!scratch) return;
        v = scratch + div_up(weights, 256) * 256;
    }
    mr_cuda_product_dx(c, a->M, a->N, a->K, a->dy, (const float *)a->W, a->accumulate && !a->pre, v);
    if (a->pre) BY_ACT(c, through_gelu, c, a, v);
}

static void linear_bwd_w(mr_dev *dev, const mr_linear_bwd_w_args *a)
{
    mr_cuda_product_dw(cuda_of(dev), a->M, a->N, a->K, a->dy, a->x, (float *)a->dW, (float *)a->db);
}

void mr_cuda_linear_ops(mr_ops *ops)
{
    ops->linear_fwd = linear_fwd;
    ops->linear_bwd_x = linear_bwd_x;
    ops->linear_bwd_w = linear_bwd_w;
}
