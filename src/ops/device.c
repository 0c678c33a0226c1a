#include "ops/device.h"

#include <string.h>

int mr_dev_open(const char *spec, int threads, const char *isa, mr_dev **out, mr_error *err)
{
    *out = NULL;
    if (!strcmp(spec, "cpu") || !strcmp(spec, "auto")) return mr_cpu_open(threads, isa, out, err);
    if (!strcmp(spec, "ref")) return mr_ref32_open(out, err);
    if (!strcmp(spec, "ref64")) return mr_ref64_open(out, err);
    if (!strcmp(spec, "cuda") || !strncmp(spec, "cuda:", 5))
        return mr_fail(err, MR_EDEVICE, "--device %s: this build has no CUDA; use --device cpu", spec);
    return mr_fail(err, MR_EINVAL, "--device %s: must be one of auto, cpu, cuda[:i], ref", spec);
}

void mr_dev_close(mr_dev *dev)
{
    if (dev) dev->close(dev);
}
