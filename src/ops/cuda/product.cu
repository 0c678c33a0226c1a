/* Matrix products with cuBLASLt. A plan (layouts and algorithm) is made once per shape by the library's heuristic,
 * never by timing, and kept; split reductions are allowed only through the workspace, where their order is fixed. */
#include "ops/cuda/cuda.cuh"

#include <string.h>

/* Column-major D [m, n] = op(A)·op(B) (+ D). Row-major matrices are their own transposes here. */
struct product {
    int m, n, k;
    int lda, ldb, ldd;
    int trans_a, trans_b;
    cudaDataType_t in, out;
    cublasLtEpilogue_t epilogue;
    const void *a, *b, *c; /* c: what is added, [m, n] as d; may be d itself; NULL: nothing */
    void *d, *aux;
    const void *bias;
};

/* The largest of 2, 4, 8 and 16 that all addresses are multiples of. */
static uint32_t common_alignment(const product *p)
{
    const uintptr_t all =
        (uintptr_t)p->a | (uintptr_t)p->b | (uintptr_t)p->c | (uintptr_t)p->d | (uintptr_t)p->aux | 16;
    return (uint32_t)(all & (0 - all));
}

static void key_of(const mr_cuda *c, const product *p, uint64_t key[4])
{
    key[0] = (uint64_t)(uint32_t)p->m << 32 | (uint32_t)p->n;
    key[1] = (uint64_t)(uint32_t)p->k << 32 | (uint32_t)p->lda;
    key[2] = (uint64_t)(uint32_t)p->ldb << 32 | (uint32_t)p->ldd;
    key[3] = (uint64_t)p->epilogue << 32 | (uint64_t)p->in << 16 | (uint64_t)p->out << 8 | p->trans_a |
             p->trans_b << 1 | (p->c != NULL) << 2 | c->exact << 3 | (uint64_t)common_alignment(p) << 56;
}

/* Tells the library the alignment of an address. Products with the same common alignment share a plan, so below 16
 * bytes only that is promised; a caller's arrays never get more, because they may lie elsewhere the next time. */
static void alignment(const mr_cuda *c, cublasLtMatmulPreference_t pref, cublasLtMatmulPreferenceAttributes_t which,
                      uint32_t common, const void *p)
{
    uint32_t bytes = common;
    while (!c->raw && common == 16 && bytes < 256 && ((uintptr_t)p & (2 * bytes - 1)) == 0) bytes *= 2;
    mr_lt.MatmulPreferenceSetAttribute(pref, which, &bytes, sizeof bytes);
}

static void set_pointers(const mr_cuda_plan *plan, const product *p)
{
    if (p->bias) mr_lt.MatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->bias, sizeof p->bias);
    if (p->aux)
        mr_lt.MatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &p->aux, sizeof p->aux);
}

static void describe(mr_cuda *c, const product *p, mr_cuda_plan *plan)
{
    cublasComputeType_t compute = p->in == CUDA_R_32F && !c->exact ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    cublasOperation_t ta = p->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N, tb = p->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    mr_lt.MatmulDescCreate(&plan->desc, compute, CUDA_R_32F);
    mr_lt.MatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta);
    mr_lt.MatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb);
    mr_lt.MatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &p->epilogue, sizeof p->epilogue);
    if (p->bias) {
        cudaDataType_t type = p->out;
        mr_lt.MatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type);
    }
    if (p->aux) {
        int64_t ld = p->ldd;
        mr_lt.MatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, sizeof ld);
    }
    set_pointers(plan, p);
    mr_lt.MatrixLayoutCreate(&plan->a, p->in, p->trans_a ? p->k : p->m, p->trans_a ? p->m : p->k, p->lda);
    mr_lt.MatrixLayoutCreate(&plan->b, p->in, p->trans_b ? p->n : p->k, p->trans_b ? p->k : p->n, p->ldb);
    mr_lt.MatrixLayoutCreate(&plan->c, p->out, p->m, p->n, p->ldd);
}

void mr_cuda_forget_plan(mr_cuda_plan *plan)
{
    mr_lt.MatrixLayoutDestroy(plan->a);
    mr_lt.MatrixLayoutDestroy(plan->b);
    mr_lt.MatrixLayoutDestroy(plan->c);
    mr_lt.MatmulDescDestroy(plan->desc);
    memset(plan, 0, sizeof *plan);
}

/* Replaces the oldest plan when all are taken: raw calls may come with any number of shapes. */
static mr_cuda_plan *new_plan(mr_cuda *c)
{
    if (c->plan_count < MR_CUDA_PLANS) return &c->plans[c->plan_count++];
    mr_cuda_plan *plan = &c->plans[c->plan_oldest];
    c->plan_oldest = (c->plan_oldest + 1) % MR_CUDA_PLANS;
    mr_cuda_forget_plan(plan);
    return plan;
}

static mr_cuda_plan *plan_of(mr_cuda *c, const product *p)
{
    uint64_t key[4];
    key_of(c, p, key);
    for (int i = 0; i < c->plan_count; i++)
        if (!memcmp(c->plans[i].key, key, sizeof key)) return &c->plans[i];
    mr_cuda_plan *plan = new_plan(c);
    memcpy(plan->key, key, sizeof key);
    describe(c, p, plan);
    cublasLtMatmulPreference_t pref;
    cublasLtMatmulHeuristicResult_t result;
    size_t bytes = MR_CUDA_WORKSPACE;
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, common = common_alignment(p);
    int found = 0;
    mr_lt.MatmulPreferenceCreate(&pref);
    mr_lt.MatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes);
    mr_lt.MatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
                                       sizeof reductions);
    alignment(c, pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, common, p->a);
    alignment(c, pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, common, p->b);
    alignment(c, pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, common, p->c ? p->c : p->d);
    alignment(c, pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, common, p->d);
    plan->found = mr_lt.MatmulAlgoGetHeuristic(c->lt, plan->desc, plan->a, plan->b, plan->c, plan->c, pref, 1, &result,
                                               &found) == CUBLAS_STATUS_SUCCESS &&
                  found;
    if (plan->found) plan->algo = result.algo;
    mr_lt.MatmulPreferenceDestroy(pref);
    return plan;
}

/* Returns 0 when the library has no kernel for this product. */
static int run(mr_cuda *c, const product *p)
{
    mr_cuda_plan *plan = plan_of(c, p);
    float one = 1, beta = p->c ? 1.0f : 0.0f;
    if (!plan->found) return 0;
    set_pointers(plan, p);
    cublasStatus_t status =
        mr_lt.Matmul(c->lt, plan->desc, &one, p->a, plan->a, p->b, plan->b, &beta, p->c ? p->c : p->d, plan->c, p->d,
                     plan->c, &plan->algo, c->workspace, MR_CUDA_WORKSPACE, c->stream);
    if (status != CUBLAS_STATUS_SUCCESS) mr_cuda_note(c, cudaErrorUnknown, mr_lt.GetStatusName(status));
    return 1;
}

/* For operands that the library does not take (addresses or widths that are not multiples of 16
 * bytes). One thread per output. */
template <class IN, class OUT> static __global__ void plain_product(product p)
{
    const int i = blockIdx.x * 16 + threadIdx.x, j = blockIdx.y * 16 + threadIdx.y;
    if (i >= p.m || j >= p.n) return;
    const IN *a = (const IN *)p.a, *b = (const IN *)p.b;
    OUT *d = (OUT *)p.d + (size_t)j * p.ldd + i;
    float sum = 0;
    for (int k = 0; k < p.k; k++)
        sum += load(a + (p.trans_a ? (size_t)i * p.lda + k : (size_t)k * p.lda + i)) *
               load(b + (p.trans_b ? (size_t)k * p.ldb + j : (size_t)j * p.ldb + k));
    store(d, p.c ? sum + load((const OUT *)p.c + (size_t)j * p.ldd + i) : sum);
}

static void run_somehow(mr_cuda *c, const product *p)
{
    if (run(c, p)) return;
    dim3 grid((unsigned)div_up((size_t)p->m, 16), (unsigned)div_up((size_t)p->n, 16)), block(16, 16);
    if (p->in == CUDA_R_32F) plain_product<float, float><<<grid, block, 0, c->stream>>>(*p);
    else if (p->out == CUDA_R_32F) plain_product<bf16, float><<<grid, block, 0, c->stream>>>(*p);
    else plain_product<bf16, bf16><<<grid, block, 0, c->stream>>>(*p);
    LAUNCHED(c, "plain_product");
}

/* ---- around the products ---- */

/* v = sum + b; pre = v; y = gelu(v) or v, + residual. The sum is fp32, so that rounding happens once, after everything
 * is added. sum and residual may be y itself. */
template <class A>
static __global__ void finish_rows(size_t n, int N, const float *sum, const float *b, int use_gelu, const A *residual,
                                   A *pre, A *y)
{
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float v = sum[i] + (b ? b[i % (size_t)N] : 0);
    if (pre) store(pre + i, v);
    store(y + i, (use_gelu ? gelu(v) : v) + (residual ? load(residual + i) : 0.0f));
}

template <class A>
static __global__ void finish_quads(size_t quads, int N, const float *sum, const float *b, int use_gelu,
                                    const A *residual, A *pre, A *y)
{
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= quads) return;
    const int column = (int)(i % (size_t)(N / 4)) * 4;
    float v[4], r[4] = {0, 0, 0, 0};
    quad<float>::load(sum + 4 * i, v);
    if (residual) quad<A>::load(residual + 4 * i, r);
    for (int k = 0; b && k < 4; k++) v[k] += b[column + k];
    if (pre) quad<A>::store(pre + 4 * i, v);
    for (int k = 0; k < 4; k++) v[k] = (use_gelu ? gelu(v[k]) : v[k]) + r[k];
    quad<A>::store(y + 4 * i, v);
}

static bool quads_fit(size_t n, size_t size, const void *a, const void *b, const void *c)
{
    return n % 4 == 0 && ((uintptr_t)a | (uintptr_t)b | (uintptr_t)c) % (4 * size) == 0;
}

template <class A>
static void finish(mr_cuda *c, int M, int N, const float *sum, const float *b, int use_gelu, const void *residual,
                   void *pre, void *y)
{
    const size_t n = (size_t)M * (size_t)N;
    if (N % 4 == 0 && (uintptr_t)sum % 16 == 0 && quads_fit(n, sizeof(A), residual, pre, y))
        finish_quads<A><<<(unsigned)div_up(n / 4, 256), 256, 0, c->stream>>>(n / 4, N, sum, b, use_gelu,
                                                                             (const A *)residual, (A *)pre, (A *)y);
    else
        finish_rows<A><<<(unsigned)div_up(n, 256), 256, 0, c->stream>>>(n, N, sum, b, use_gelu, (const A *)residual,
                                                                        (A *)pre, (A *)y);
    LAUNCHED(c, "finish_rows");
}

static cudaDataType_t act_type(const mr_cuda *c) { return c->bf16 ? CUDA_R_16BF : CUDA_R_32F; }

/* Parameters in the type that products take. */
static const void *operand(mr_cuda *c, const float *W, size_t n)
{
    return c->bf16 && W ? (const void *)mr_cuda_shadow_of(c, W, n) : W;
}

static cublasLtEpilogue_t forward_epilogue(int bias, int use_gelu, int keep)
{
    if (use_gelu)
        return keep   ? (bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX)
               : bias ? CUBLASLT_EPILOGUE_GELU_BIAS
                      : CUBLASLT_EPILOGUE_GELU;
    return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

/* The library fuses gelu well only in bf16; in fp32 it runs a separate, slower pass, so we run our own. */
void mr_cuda_product_fwd(mr_cuda *c, int M, int N, int K, const void *x, const float *W, const float *b, int use_gelu,
                         void *pre, const void *residual, void *y)
{
    product p = {};
    p.m = N, p.n = M, p.k = K, p.lda = K, p.ldb = K, p.ldd = N, p.trans_a = 1;
    p.in = p.out = act_type(c);
    p.a = operand(c, W, (size_t)N * (size_t)K), p.b = x, p.d = y;
    p.bias = operand(c, b, (size_t)N);
    if (!p.a || (b && !p.bias)) return;
    p.epilogue = forward_epilogue(b != NULL, use_gelu, pre != NULL);
    p.aux = use_gelu ? pre : NULL;
    const int apart = use_gelu || pre; /* the residual is added after what is kept, or after gelu */
    const int pre_fits = (uintptr_t)pre % 16 == 0 && N % 8 == 0; /* the library requires this */
    /* for odd widths or addresses the library rounds to bf16 before it adds the bias */
    const int even =
        K % 8 == 0 && N % 8 == 0 && ((uintptr_t)p.a | (uintptr_t)x | (uintptr_t)y | (uintptr_t)p.bias) % 16 == 0;
    const int bias_fits = !c->raw || (uintptr_t)p.bias % 16 == 0; /* our own biases always fit */
    const int fused =
        bias_fits && (!c->bf16 || !b || even) && (use_gelu ? c->bf16 && !residual && (!pre || pre_fits) : !pre);
    p.c = apart ? NULL : residual;
    if (fused && run(c, &p)) return;
    p.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    p.bias = p.aux = NULL;
    if (!b && !apart) {
        run_somehow(c, &p);
        return;
    }
    p.c = NULL;
    p.out = CUDA_R_32F;
    if (c->bf16 || residual == y) p.d = mr_cuda_product_scratch(c, (size_t)M * (size_t)N * sizeof(float));
    if (!p.d) return;
    run_somehow(c, &p);
    BY_ACT(c, finish, c, M, N, (const float *)p.d, b, use_gelu, residual, pre, y);
}

template <class A> static __global__ void spread_rows(size_t n, int N, int row, const float *sum, const float *b, A *y)
{
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    const size_t m = i / (size_t)N, column = i % (size_t)N;
    store(y + m * (size_t)row + column, sum[i] + b[column]);
}

template <class A> static void spread(mr_cuda *c, int M, int N, int row, const float *sum, const float *b, void *y)
{
    const size_t n = (size_t)M * (size_t)N;
    spread_rows<A><<<(unsigned)div_up(n, 256), 256, 0, c->stream>>>(n, N, row, sum, b, (A *)y);
    LAUNCHED(c, "spread_rows");
}

/* With a bias the sum is fp32 and lies close together first, as above. */
void mr_cuda_product_rows(mr_cuda *c, int M, int N, int K, const void *x, const float *W, const float *b, void *y,
                          int y_row)
{
    product p = {};
    p.m = N, p.n = M, p.k = K, p.lda = K, p.ldb = K, p.ldd = b ? N : y_row, p.trans_a = 1;
    p.in = act_type(c), p.out = b ? CUDA_R_32F : p.in;
    p.a = operand(c, W, (size_t)N * (size_t)K), p.b = x;
    p.d = b ? mr_cuda_product_scratch(c, (size_t)M * (size_t)N * sizeof(float)) : y;
    p.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    if (!p.a || !p.d) return;
    run_somehow(c, &p);
    if (b) BY_ACT(c, spread, c, M, N, y_row, (const float *)p.d, b, y);
}

template <class A>
static __global__ void gelu_slope_quads(size_t quads, const A *pre, int accumulate, const A *v, A *dx)
{
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= quads) return;
    float g[4], x[4], old[4] = {0, 0, 0, 0};
    quad<A>::load(v + 4 * i, g);
    quad<A>::load(pre + 4 * i, x);
    if (accumulate) quad<A>::load(dx + 4 * i, old);
    for (int k = 0; k < 4; k++) g[k] = g[k] * gelu_slope(x[k]) + old[k];
    quad<A>::store(dx + 4 * i, g);
}

template <class A> static __global__ void gelu_slope_rows(size_t n, const A *pre, int accumulate, const A *v, A *dx)
{
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) store(dx + i, load(v + i) * gelu_slope(load(pre + i)) + (accumulate ? load(dx + i) : 0.0f));
}

template <class A>
static void through_gelu(mr_cuda *c, size_t n, const void *pre, int accumulate, const void *v, void *dx)
{
    if (quads_fit(n, sizeof(A), pre, v, dx))
        gelu_slope_quads<A><<<(unsigned)div_up(n / 4, 256), 256, 0, c->stream>>>(n / 4, (const A *)pre, accumulate,
                                                                                 (const A *)v, (A *)dx);
    else
        gelu_slope_rows<A>
            <<<(unsigned)div_up(n, 256), 256, 0, c->stream>>>(n, (const A *)pre, accumulate, (const A *)v, (A *)dx);
    LAUNCHED(c, "through_gelu");
}

/* Whether the slope of gelu is a part of the product: in bf16 where dx leaves the cache (32,768 × 3,072: 298 µs instead
 * of 392), or is so small that launches count. Between, two passes are faster (16,384 × 1,536: 71 instead of 85). */
enum { SLOPE_FEW = 1 << 22, SLOPE_MANY = 1 << 26 };

static int fuses_slope(const mr_cuda *c, const product *p, const void *pre, int accumulate)
{
    const size_t n = (size_t)p->m * (size_t)p->n;
    return c->bf16 && !accumulate && (uintptr_t)pre % 16 == 0 && p->ldd % 8 == 0 && (n <= SLOPE_FEW || n >= SLOPE_MANY);
}

void mr_cuda_product_dx(mr_cuda *c, int M, int N, int K, const void *dy, int dy_row, const float *W, const void *pre,
                        int accumulate, void *dx)
{
    const size_t n = (size_t)M * (size_t)K;
    product p = {};
    p.m = K, p.n = M, p.k = N, p.lda = K, p.ldb = dy_row, p.ldd = K;
    p.in = p.out = act_type(c);
    p.a = operand(c, W, (size_t)N * (size_t)K), p.b = dy, p.c = accumulate && !pre ? dx : NULL;
    p.d = pre && accumulate ? mr_cuda_product_scratch(c, n * c->dev.act_size) : dx;
    if (!p.a || !p.d) return;
    if (pre && fuses_slope(c, &p, pre, accumulate)) {
        p.epilogue = CUBLASLT_EPILOGUE_DGELU;
        p.aux = (void *)pre;
        if (run(c, &p)) return;
        p.aux = NULL;
    }
    p.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    run_somehow(c, &p);
    if (pre) BY_ACT(c, through_gelu, c, n, pre, accumulate, p.d, dx);
}

/* Σ over rows of dy, in two fixed stages: blocks of rows, then the blocks. */
template <class A> static __global__ void column_sums(int M, int N, int row, int rows, const A *dy, float *partial)
{
    __shared__ float tile[8][33];
    const int n = blockIdx.x * 32 + threadIdx.x, first = blockIdx.y * rows, last = min(M, first + rows);
    float sum = 0;
    if (n < N)
        for (int m = first + threadIdx.y; m < last; m += 8) sum += load(dy + (size_t)m * row + n);
    tile[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || n >= N) return;
    for (int i = 1; i < 8; i++) sum += tile[i][threadIdx.x];
    partial[(size_t)blockIdx.y * N + n] = sum;
}

template <class A> static void bias_grad(mr_cuda *c, int M, int N, int row, const void *dy, int fresh, float *db)
{
    const size_t across = div_up((size_t)N, 32), enough = div_up(1056, across); /* blocks of rows that fill the chip */
    const size_t rows = div_up((size_t)M, enough) < 64 ? 64 : div_up((size_t)M, enough);
    const unsigned blocks = (unsigned)div_up((size_t)M, rows);
    float *partial = (float *)mr_cuda_scratch(c, (size_t)blocks * (size_t)N * sizeof(float));
    if (!partial) return;
    column_sums<A>
        <<<dim3((unsigned)across, blocks), dim3(32, 8), 0, c->stream>>>(M, N, row, (int)rows, (const A *)dy, partial);
    LAUNCHED(c, "column_sums");
    mr_cuda_reduce(c, partial, blocks, (size_t)N, (size_t)N, fresh, db);
}

void mr_cuda_product_dw(mr_cuda *c, int M, int N, int K, const void *dy, int dy_row, const void *x, int fresh,
                        float *dW, float *db)
{
    product p = {};
    p.m = K, p.n = N, p.k = M, p.lda = K, p.ldb = dy_row, p.ldd = K, p.trans_b = 1;
    p.in = act_type(c), p.out = CUDA_R_32F;
    p.a = x, p.b = dy, p.c = fresh ? NULL : dW, p.d = dW;
    p.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    run_somehow(c, &p);
    if (db) BY_ACT(c, bias_grad, c, M, N, dy_row, dy, fresh, db);
}
