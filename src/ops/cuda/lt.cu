/* Loads cuBLASLt and looks up the functions of lt.cuh. */
#include "ops/cuda/lt.cuh"

#include <dlfcn.h>
#include <pthread.h>

#define TEXT(x) #x
#define NAME(major) "libcublasLt.so." TEXT(major)
#define LIBRARY NAME(CUBLAS_VER_MAJOR)

mr_lt_table mr_lt;
static const char *missing = LIBRARY; /* what could not be found; NULL: all was found */

static void load(void)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library) library = dlopen("/usr/local/cuda/lib64/" LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library) return;
    missing = NULL;
#define X(name)                                                                                                        \
    mr_lt.name = (decltype(mr_lt.name))dlsym(library, "cublasLt" #name);                                               \
    if (!mr_lt.name) missing = "cublasLt" #name " in " LIBRARY;
    MR_LT_FUNCTIONS(X)
#undef X
}

int mr_lt_load(mr_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    if (!missing) return 0;
    return mr_fail(err, MR_EDEVICE,
                   "a GPU needs %s, which was not found; install cuBLAS of CUDA %d, or add its folder to "
                   "LD_LIBRARY_PATH, or use --device cpu",
                   missing, CUBLAS_VER_MAJOR);
}
