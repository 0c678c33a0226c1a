/* Converts a layer's dropout to the form that the kernels take. */
#ifndef MR_OPS_CPU_DROPOUT_H
#define MR_OPS_CPU_DROPOUT_H

#include "ops/cpu/kernels.h"

#include <math.h>

static inline mr_drop mr_cpu_drop(const mr_dropout *drop)
{
    mr_drop d = {0};
    if (!(drop->p > 0.0f)) return d;
    const double kept = 1.0 - (double)drop->p, limit = round(kept * 4294967296.0);
    d.on = 1;
    d.seed = drop->step->seed;
    d.step = drop->step->step;
    d.micro = drop->step->micro;
    d.site = drop->site;
    d.keep = limit >= 4294967295.0 ? 4294967295u : (uint32_t)limit;
    d.scale = (float)(1.0 / kept);
    return d;
}

#endif
