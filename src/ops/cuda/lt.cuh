/* The functions of cuBLASLt that the backend calls. They are looked up when a CUDA device is first opened: the
 * library takes a tenth of a second to load, which commands on the CPU need not wait for. */
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

/* Once for the process; 0, or MR_EDEVICE with the library's name. */
int mr_lt_load(mr_error *err);

#endif
