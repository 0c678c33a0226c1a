/* Matrix products by cuBLASLt. A plan (layouts and algorithm) is made once for a shape by the library's heuristic, never by a
 * stopwatch, and kept; split reductions are allowed only through the workspace, whose order is fixed. */
#include "ops/cuda/cuda.cuh"

#include <string.h>

enum { WORKSPACE = 32 << 20 };

/* Column-major D [m, n] = op(A)·op(B) (+ D). Row-major matrices are their own transposes here. */
struct product {
    int m, n, k;
    int lda, ldb, ldd;
    int trans_a, trans_b;
    cudaDataType_t in, out;
    cublasLtEpilogue_t epilogue;
    const void *a, *b;
    void *d, *aux;
    const void *bias;
    int add; /* D += */
};

static void key_of(const mr_cuda *c, const product *p, uint64_t key[4])
{
    int aligned = (((uintptr_t)p->a | (uintptr_t)p->b | (uintptr_t)p->d | (uintptr_t)p->aux) & 15) == 0;
    key[0] = (uint64_t)(uint32_t)p->m << 32 | (uint32_t)p->n;
    key[1] = (uint64_t)(uint32_t)p->k << 32 | (uint32_t)p->lda;
    key[2] = (uint64_t)(uint32_t)p->ldb << 32 | (uint32_t)p->ldd;
    key[3] = (uint64_t)p->epilogue << 32 | (uint64_t)p->in << 16 | (uint64_t)p->out << 8 | p->trans_a | p->trans_b << 1 | p->add << 2 | aligned << 3 | c->exact << 4;
}

static void alignment(cublasLtMatmulPreference_t pref, cublasLtMatmulPreferenceAttributes_t which, const void *p)
{
    uint32_t bytes = 4;
    while (bytes < 256 && ((uintptr_t)p & (2 * bytes - 1)) == 0) bytes *= 2;
    cublasLtMatmulPreferenceSetAttribute(pref, which, &bytes, sizeof bytes);
}

static void set_pointers(const mr_cuda_plan *plan, const product *p)
{
    if (p->bias) cublasLtMatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->bias, sizeof p->bias);
    if (p->aux) cublasLtMatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &p->aux, sizeof p->aux);
}

static void describe(mr_cuda *c, const product *p, mr_cuda_plan *plan)
{
    cublasComputeType_t compute = p->in == CUDA_R_32F && !c->exact ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    cublasOperation_t ta = p->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N, tb = p->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtMatmulDescCreate(&plan->desc, compute, CUDA_R_32F);
    cublasLtMatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta);
    cublasLtMatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb);
    cublasLtMatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &p->epilogue, sizeof p->epilogue);
    if (p->bias) {
        cudaDataType_t type = CUDA_R_32F;
        cublasLtMatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type);
    }
    if (p->aux) {
        int64_t ld = p->ldd;
        cublasLtMatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, sizeof ld);
    }
    set_pointers(plan, p);
    cublasLtMatrixLayoutCreate(&plan->a, p->in, p->trans_a ? p->k : p->m, p->trans_a ? p->m : p->k, p->lda);
    cublasLtMatrixLayoutCreate(&plan->b, p->in, p->trans_b ? p->n : p->k, p->trans_b ? p->k : p->n, p->ldb);
    cublasLtMatrixLayoutCreate(&plan->c, p->out, p->m, p->n, p->ldd);
}

static mr_cuda_plan *plan_of(mr_cuda *c, const product *p)
{
    uint64_t key[4];
    key_of(c, p, key);
    for (int i = 0; i < c->plan_count; i++)
        if (!memcmp(c->plans[i].key, key, sizeof key)) return &c->plans[i];
    if (c->plan_count == MR_CUDA_PLANS) return NULL;
    mr_cuda_plan *plan = &c->plans[c->plan_count++];
    memset(plan, 0, sizeof *plan);
    memcpy(plan->key, key, sizeof key);
    describe(c, p, plan);
    cublasLtMatmulPreference_t pref;
    cublasLtMatmulHeuristicResult_t result;
    size_t bytes = WORKSPACE;
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    int found = 0;
    cublasLtMatmulPreferenceCreate(&pref);
    cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes);
    cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions);
    alignment(pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p->a);
    alignment(pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p->b);
    alignment(pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p->d);
    alignment(pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p->d);
    plan->found = cublasLtMatmulAlgoGetHeuristic(c->lt, plan->desc, plan->a, plan->b, plan->c, plan->c, pref, 1, &result, &found) ==
                      CUBLAS_STATUS_SUCCESS && found;
    if (plan->found) plan->algo = result.algo;
    cublasLtMatmulPreferenceDestroy(pref);
    return plan;
}

/* Returns 0 when the library has no kernel for this product. */
static int run(mr_cuda *c, const product *p)
{
    mr_cuda_plan *plan = plan_of(c, p);
    float one = 1, beta = p->add ? 1.0f : 0.0f;
    if (!plan || !plan->found) return 0;
    set_pointers(plan, p);
    cublasStatus_t status = cublasLtMatmul(c->lt, plan->desc, &one, p->a, plan->a, p->b, plan->b, &beta, p->d, plan->c, p->d, plan->c,
                                           &plan->algo, c->workspace, WORKSPACE, c->stream);
    if (status != CUBLAS_STATUS_SUCCESS) mr_cuda_note(c, cudaErrorUnknown, cublasLtGetStatusName(status));
    return 1;
}

static void run_or_note(mr_cuda *c, const product *p)
{
    if (!run(c, p)) mr_cuda_note(c, cudaErrorNotSupported, "a matrix product");
}

/* ---- around the products ---- */

static __global__ void narrow(size_t n, const float *from, bf16 *to)
{
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) store(to + i, from[i]);
}

/* W as the products want it: itself, or a bf16 copy in scratch. */
static const void *weights(mr_cuda *c, const float *W, size_t n)
{
    if (!c->bf16) return W;
    bf16 *copy = (bf16 *)mr_cuda_scratch(c, n * sizeof(bf16));
    if (!copy) return NULL;
    narrow<<<(unsigned)div_up(n, 256), 256, 0, c->stream>>>(n, W, copy);
    LAUNCHED(c, "narrow");
    return copy;
}

template <class A> static __global__ void finish_rows(size_t n, int N, const float *b, int use_gelu, A *pre, A *y)
{
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = load(y + i) + (b ? b[i % (size_t)N] : 0);
    if (pre) store(pre + i, v);
    store(y + i, use_gelu ? gelu(v) : v);
}

template <class A> static void finish(mr_cuda *c, int M, int N, const float *b, int use_gelu, void *pre, void *y)
{
    size_t n = (size_t)M * (size_t)N;
    finish_rows<A><<<(unsigned)div_up(n, 256), 256, 0, c->stream>>>(n, N, b, use_gelu, (A *)pre, (A *)y);
    LAUNCHED(c, "finish_rows");
}

static cudaDataType_t act_type(const mr_cuda *c) { return c->bf16 ? CUDA_R_16BF : CUDA_R_32F; }

void mr_cuda_product_fwd(mr_cuda *c, int M, int N, int K, const void *x, const float *W, const float *b, int use_gelu, void *pre, void *y)
{
    product p = {};
    p.m = N, p.n = M, p.k = K, p.lda = K, p.ldb = K, p.ldd = N, p.trans_a = 1;
    p.in = p.out = act_type(c);
    p.a = weights(c, W, (size_t)N * (size_t)K), p.b = x, p.d = y;
    if (!p.a) return;
    p.epilogue = b ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    p.bias = b;
    int fused = !use_gelu && !pre && run(c, &p);
    if (!fused) {
        p.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
        p.bias = NULL;
        run_or_note(c, &p);
        BY_ACT(c, finish, c, M, N, b, use_gelu, pre, y);
    }
}

void mr_cuda_product_dx(mr_cuda *c, int M, int N, int K, const void *dy, const float *W, int accumulate, void *dx)
{
    product p = {};
    p.m = K, p.n = M, p.k = N, p.lda = K, p.ldb = N, p.ldd = K;
    p.in = p.out = act_type(c);
    p.a = weights(c, W, (size_t)N * (size_t)K), p.b = dy, p.d = dx, p.add = accumulate;
    p.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    if (p.a) run_or_note(c, &p);
}

/* Σ over rows of dy, in two fixed stages: blocks of rows, then the blocks. */
enum { SUM_ROWS = 512 };

template <class A> static __global__ void column_sums(int M, int N, const A *dy, float *partial)
{
    __shared__ float tile[8][33];
    int n = blockIdx.x * 32 + threadIdx.x, first = blockIdx.y * SUM_ROWS, last = min(M, first + SUM_ROWS);
    float sum = 0;
    if (n < N)
        for (int m = first + threadIdx.y; m < last; m += 8) sum += load(dy + (size_t)m * N + n);
    tile[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || n >= N) return;
    for (int i = 1; i < 8; i++) sum += tile[i][threadIdx.x];
    partial[(size_t)blockIdx.y * N + n] = sum;
}

template <class A> static void bias_grad(mr_cuda *c, int M, int N, const void *dy, float *db)
{
    unsigned blocks = (unsigned)div_up((size_t)M, SUM_ROWS);
    float *partial = (float *)mr_cuda_scratch(c, (size_t)blocks * (size_t)N * sizeof(float));
    if (!partial) return;
    column_sums<A><<<dim3((unsigned)div_up((size_t)N, 32), blocks), dim3(32, 8), 0, c->stream>>>(M, N, (const A *)dy, partial);
    LAUNCHED(c, "column_sums");
    mr_cuda_reduce(c, partial, blocks, (size_t)N, db);
}

void mr_cuda_product_dw(mr_cuda *c, int M, int N, int K, const void *dy, const void *x, float *dW, float *db)
{
    product p = {};
    p.m = K, p.n = N, p.k = M, p.lda = K, p.ldb = N, p.ldd = K, p.trans_b = 1;
    p.in = act_type(c), p.out = CUDA_R_32F;
    p.a = x, p.b = dy, p.d = dW, p.add = 1;
    p.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    run_or_note(c, &p);
    if (db) BY_ACT(c, bias_grad, c, M, N, dy, db);
}
