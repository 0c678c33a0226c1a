#include "ops/device.h"

#include <stdlib.h>
#include <string.h>

/* "cuda" or "cuda:3": the number, or −1 when it is neither. */
static int cuda_index(const char *spec)
{
    char *end;
    if (!strcmp(spec, "cuda")) return 0;
    if (strncmp(spec, "cuda:", 5) || spec[5] < '0' || spec[5] > '9') return -1;
    long index = strtol(spec + 5, &end, 10);
    return *end || index > 1000 ? -1 : (int)index;
}

int mr_dev_open(const char *spec, const mr_dev_options *options, mr_dev **out, mr_error *err)
{
    static const mr_dev_options plain;
    if (!options) options = &plain;
    *out = NULL;
    if (!strcmp(spec, "auto") && !options->isa && !mr_cuda_open(0, options, out, NULL)) return 0;
    if (!strcmp(spec, "cpu") || !strcmp(spec, "auto")) return mr_cpu_open(options, out, err);
    if (!strcmp(spec, "ref")) return mr_ref32_open(options, out, err);
    if (!strcmp(spec, "ref64")) return mr_ref64_open(options, out, err);
    if (cuda_index(spec) >= 0) return mr_cuda_open(cuda_index(spec), options, out, err);
    return mr_fail(err, MR_EINVAL, "--device %.100s: must be one of auto, cpu, cuda[:i], ref", spec);
}

void mr_dev_close(mr_dev *dev)
{
    if (dev) dev->close(dev);
}
