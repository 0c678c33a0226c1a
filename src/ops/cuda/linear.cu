/* Linear layers: the product and what is fused after it; dropout alone. */
#include "ops/cuda/cuda.cuh"

/* y = residual + dropout(v); v and residual may be y itself, residual may be NULL. The four elements of a
 * thread share one random draw. */
template <class A>
static __global__ void drop_and_add_quads(size_t quads, dropout drop, const A *residual, const A *v, A *y)
{
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= quads) return;
    float x[4], r[4] = {0, 0, 0, 0}, f[4];
    quad<A>::load(v + 4 * i, x);
    if (residual) quad<A>::load(residual + 4 * i, r);
    dropout_factors(drop, i, f);
    for (int k = 0; k < 4; k++) x[k] = x[k] * f[k] + r[k];
    quad<A>::store(y + 4 * i, x);
}

template <class A> static __global__ void drop_and_add(size_t n, dropout drop, const A *residual, const A *v, A *y)
{
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) store(y + i, load(v + i) * dropout_factor(drop, i) + (residual ? load(residual + i) : 0.0f));
}

template <class A>
static void launch_drop(mr_cuda *c, size_t n, const mr_dropout *how, const void *residual, const void *v, void *y)
{
    const dropout drop = dropout_of(how);
    const uintptr_t all = (uintptr_t)residual | (uintptr_t)v | (uintptr_t)y;
    if (n % 4 == 0 && all % (4 * sizeof(A)) == 0)
        drop_and_add_quads<A><<<(unsigned)div_up(n / 4, 256), 256, 0, c->stream>>>(n / 4, drop, (const A *)residual,
                                                                                   (const A *)v, (A *)y);
    else
        drop_and_add<A>
            <<<(unsigned)div_up(n, 256), 256, 0, c->stream>>>(n, drop, (const A *)residual, (const A *)v, (A *)y);
    LAUNCHED(c, "drop_and_add");
}

static void linear_fwd(mr_dev *dev, const mr_linear_fwd_args *a)
{
    mr_cuda *c = cuda_of(dev);
    const size_t n = (size_t)a->M * (size_t)a->N;
    if (a->row && a->row != a->N) {
        mr_cuda_product_rows(c, a->M, a->N, a->K, a->x, (const float *)a->W, (const float *)a->b, a->y, a->row);
        return;
    }
    if (a->drop.p <= 0) {
        mr_cuda_product_fwd(c, a->M, a->N, a->K, a->x, (const float *)a->W, (const float *)a->b, a->gelu, a->pre,
                            a->residual, a->y);
        return;
    }
    /* dropout comes between product and residual, so the product must not overwrite the residual */
    void *v = a->residual == a->y ? mr_cuda_scratch(c, n * dev->act_size) : (void *)a->y;
    if (!v) return;
    mr_cuda_product_fwd(c, a->M, a->N, a->K, a->x, (const float *)a->W, (const float *)a->b, a->gelu, a->pre, NULL, v);
    BY_ACT(c, launch_drop, c, n, &a->drop, a->residual, v, a->y);
}

static void linear_bwd_x(mr_dev *dev, const mr_linear_bwd_x_args *a)
{
    mr_cuda_product_dx(cuda_of(dev), a->M, a->N, a->K, a->dy, (int)mr_row_step(a->row, a->N), (const float *)a->W,
                       a->pre, a->accumulate, a->dx);
}

static void linear_bwd_w(mr_dev *dev, const mr_linear_bwd_w_args *a)
{
    mr_cuda_product_dw(cuda_of(dev), a->M, a->N, a->K, a->dy, (int)mr_row_step(a->row, a->N), a->x, 0, (float *)a->dW,
                       (float *)a->db);
}

static void dropout_bwd(mr_dev *dev, const mr_dropout_bwd_args *a)
{
    BY_ACT(cuda_of(dev), launch_drop, cuda_of(dev), a->n, &a->drop, NULL, a->dy, a->dx);
}

void mr_cuda_linear_q_fwd(mr_dev *dev, const mr_linear_q_fwd_args *args); /* quant.cu */

void mr_cuda_linear_ops(mr_ops *ops)
{
    ops->linear_fwd = linear_fwd;
    ops->linear_q_fwd = mr_cuda_linear_q_fwd;
    ops->linear_bwd_x = linear_bwd_x;
    ops->linear_bwd_w = linear_bwd_w;
    ops->dropout_bwd = dropout_bwd;
}
