/* cuBLASLt's matrix products, column-major, by plain loops. What is not aligned to 16 bytes is refused, as the library
 * may, so that the backend's own kernel gets its turn. The workspace is overwritten, as the library would. */
#include "runtime.h"

#include <algorithm>
#include <cuda_bf16.h>
#include <vector>

#include "ops/cuda/lt.cuh"

struct emulated_lt {};

struct emulated_product {
    cublasOperation_t turned[2];
    cublasLtEpilogue_t epilogue;
    const void *bias;
    void *aux;
    int64_t aux_ld;
    bool tf32;
};

struct emulated_layout {
    cudaDataType type;
    uint64_t rows, columns;
    int64_t ld;
};

struct emulated_preference {
    uint32_t least; /* of the alignments */
};

namespace {
float number(const void *p, cudaDataType type, size_t i)
{
    return type == CUDA_R_32F ? ((const float *)p)[i] : __bfloat162float(((const __nv_bfloat16 *)p)[i]);
}

void put(void *p, cudaDataType type, size_t i, float v)
{
    if (type == CUDA_R_32F) ((float *)p)[i] = v;
    else ((__nv_bfloat16 *)p)[i] = __float2bfloat16(v);
}

float gelu_gate(float x) { return 1 / (1 + expf(-1.5957691216057308f * (x + 0.044715f * x * x * x))); }

float gelu_slope(float x)
{
    const float s = gelu_gate(x);
    return s + x * s * (1 - s) * 1.5957691216057308f * (1 + 3 * 0.044715f * x * x);
}

/* op(X) as [K, n]. */
std::vector<float> unpacked(const void *x, const emulated_layout &l, bool k_is_rows, bool tf32)
{
    const size_t K = k_is_rows ? l.rows : l.columns, n = k_is_rows ? l.columns : l.rows;
    std::vector<float> out(n * K);
    for (size_t k = 0; k < K; k++)
        for (size_t i = 0; i < n; i++) {
            const size_t row = k_is_rows ? k : i, column = k_is_rows ? i : k;
            unsigned rounded;
            float v = number(x, l.type, column * (size_t)l.ld + row);
            if (tf32) {
                ptx::cvt_rna_tf32_f32(rounded, v);
                v = __uint_as_float(rounded);
            }
            out[k * n + i] = v;
        }
    return out;
}

struct operation {
    emulated_product p;
    emulated_layout a, b, d;
    const void *at_a, *at_b, *at_c;
    void *at_d;
    float beta;

    float finished(float v, size_t i, size_t j) const
    {
        const size_t at = j * (size_t)p.aux_ld + i;
        if (p.epilogue & 4) v += number(p.bias, d.type, i);
        if (p.epilogue == CUBLASLT_EPILOGUE_DGELU) return v * gelu_slope(number(p.aux, d.type, at));
        if (p.epilogue & 128) put(p.aux, d.type, at, v);
        return p.epilogue & 32 ? v * gelu_gate(v) : v;
    }

    void run() const
    {
        const std::vector<float> left = unpacked(at_a, a, p.turned[0] == CUBLAS_OP_T, p.tf32),
                                 right = unpacked(at_b, b, p.turned[1] == CUBLAS_OP_N, p.tf32);
        const size_t K = p.turned[0] == CUBLAS_OP_T ? a.rows : a.columns;
        std::vector<double> sums(d.rows);
        for (size_t j = 0; j < d.columns; j++) {
            std::fill(sums.begin(), sums.end(), 0);
            for (size_t k = 0; k < K; k++) {
                const double y = right[k * d.columns + j];
                const float *x = left.data() + k * d.rows;
                for (size_t i = 0; i < d.rows; i++) sums[i] += (double)x[i] * y;
            }
            for (size_t i = 0; i < d.rows; i++) {
                const size_t at = j * (size_t)d.ld + i;
                if (beta != 0) sums[i] += (double)beta * (double)number(at_c, d.type, at);
                put(at_d, d.type, at, finished((float)sums[i], i, j));
            }
        }
    }
};
} // namespace

cublasStatus_t cublasLtCreate(cublasLtHandle_t *lt) { return *lt = new emulated_lt, CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t lt) { return delete lt, CUBLAS_STATUS_SUCCESS; }
const char *cublasLtGetStatusName(cublasStatus_t) { return "CUBLAS_STATUS_NOT_SUPPORTED"; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute, cudaDataType_t)
{
    *desc = new emulated_product();
    (*desc)->tf32 = compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) { return delete desc, CUBLAS_STATUS_SUCCESS; }

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t which,
                                              const void *value, size_t bytes)
{
    switch (which) {
    case CUBLASLT_MATMUL_DESC_TRANSA: memcpy(&desc->turned[0], value, bytes); break;
    case CUBLASLT_MATMUL_DESC_TRANSB: memcpy(&desc->turned[1], value, bytes); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE: memcpy(&desc->epilogue, value, bytes); break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: memcpy(&desc->bias, value, bytes); break;
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: break; /* that of the result */
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: memcpy(&desc->aux, value, bytes); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: memcpy(&desc->aux_ld, value, bytes); break;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t ld)
{
    *layout = new emulated_layout{type, rows, columns, ld};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    return delete layout, CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    *preference = new emulated_preference{256};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    return delete preference, CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t which, const void *value,
                                                    size_t)
{
    if (which < CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES) return CUBLAS_STATUS_SUCCESS;
    preference->least = min(preference->least, *(const uint32_t *)value);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int,
                                              cublasLtMatmulHeuristicResult_t *results, int *found)
{
    memset(results, 0, sizeof *results);
    const int64_t even = a->type == CUDA_R_32F ? 1 : 8;
    *found = preference->least >= 16 && a->ld % even == 0 && b->ld % even == 0 && d->ld % even == 0;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
                              const void *beta, const void *c, cublasLtMatrixLayout_t, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream)
{
    const size_t PAGE = 4096;
    const operation o = {*desc, *a_layout, *b_layout, *d_layout, a, b, c, d, *(const float *)beta};
    if (*(const float *)alpha != 1 || (uintptr_t)workspace % 256) return CUBLAS_STATUS_NOT_SUPPORTED;
    emulated::enqueue(stream, [=] {
        memset(workspace, 0xff, PAGE < workspace_bytes ? PAGE : workspace_bytes); /* its ends stand for all of it */
        if (workspace_bytes > PAGE) memset((char *)workspace + workspace_bytes - PAGE, 0xff, PAGE);
        o.run();
    });
    return CUBLAS_STATUS_SUCCESS;
}

mr_lt_table mr_lt;

int mr_lt_load(mr_error *)
{
#define X(name) mr_lt.name = cublasLt##name;
    MR_LT_FUNCTIONS(X)
#undef X
    return 0;
}
