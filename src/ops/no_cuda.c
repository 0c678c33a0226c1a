/* Stands in for src/ops/cuda in a build without CUDA. */
#include "ops/device.h"

int mr_cuda_open(int index, const mr_dev_options *options, mr_dev **out, mr_error *err)
{
    (void)options;
    *out = NULL;
    return mr_fail(err, MR_EDEVICE, "--device cuda:%d: this build has no CUDA; use --device cpu", index);
}

void mr_cuda_look(int index, mr_card *card) { *card = (mr_card){.index = index}; }

const char *mr_cuda_version(void) { return "no"; }
