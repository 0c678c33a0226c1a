/* The functions of cuBLASLt that the backend calls. They are looked up when a CUDA device is first opened: loading the
 * library takes a tenth of a second, which commands on the CPU should not pay for. */
#ifndef MR_OPS_CUDA_LT_CUH
#define MR_OPS_CUDA_LT_CUH

#include <cublasLt.h>

extern "C" {
#include "core/status.h"
}

#define MR_LT_FUNCTIONS(X)                                                                                             \
    X(Create)                                                                                                          \
    X(Destroy)                                                                                                         \
    X(GetStatusName)                                                                                                   \
    X(Matmul)                                                                                                          \
    X(MatmulAlgoGetHeuristic)                                                                                          \
    X(MatmulDescCreate)                                                                                                \
    X(MatmulDescDestroy)                                                                                               \
    X(MatmulDescSetAttribute)                                                                                          \
    X(MatrixLayoutCreate)                                                                                              \
    X(MatrixLayoutDestroy)                                                                                             \
    X(MatmulPreferenceCreate)                                                                                          \
    X(MatmulPreferenceDestroy)                                                                                         \
    X(MatmulPreferenceSetAttribute)

struct mr_lt_table {
#define X(name) decltype(&cublasLt##name) name;
    MR_LT_FUNCTIONS(X)
#undef X
};

extern mr_lt_table mr_lt; /* filled by mr_lt_load */

/* Loads once per process. Returns 0, or MR_EDEVICE with what is missing. */
int mr_lt_load(mr_error *err);

#endif
