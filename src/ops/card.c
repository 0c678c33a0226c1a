/* Which GPUs can be used: the first reason against one, as an error message. */
#include "ops/card.h"

enum { OLDEST = 75, OLDEST_BF16 = 80 };

int mr_card_check(const mr_card *c, int bf16, mr_error *err)
{
    const int capability = 10 * c->major + c->minor;
    if (c->trouble) return mr_fail(err, MR_EDEVICE, "no CUDA device: %s; use --device cpu", c->trouble);
    if (!c->count) return mr_fail(err, MR_EDEVICE, "no CUDA device found; use --device cpu");
    if (c->index >= c->count)
        return mr_fail(err, MR_EDEVICE, "--device cuda:%d: this machine has %d GPU%s, numbered from 0", c->index,
                       c->count, c->count > 1 ? "s" : "");
    if (capability < OLDEST)
        return mr_fail(err, MR_EDEVICE, "%s: compute capability %d.%d is too old, 7.5 is needed; use --device cpu",
                       c->name, c->major, c->minor);
    if (c->code == MR_CODE_MISSING)
        return mr_fail(err, MR_EDEVICE,
                       "%s: this build has no code for compute capability %d.%d; build with "
                       "-DCMAKE_CUDA_ARCHITECTURES=%d",
                       c->name, c->major, c->minor, capability);
    if (c->code == MR_CODE_UNREADABLE)
        return mr_fail(err, MR_EDEVICE,
                       "%s: its driver cannot compile this build's code for compute capability %d.%d; build "
                       "with -DCMAKE_CUDA_ARCHITECTURES=%d, or install a newer driver",
                       c->name, c->major, c->minor, capability);
    if (bf16 && capability < OLDEST_BF16)
        return mr_fail(err, MR_EDEVICE, "%s: has no bf16 matrix products; use --dtype f32", c->name);
    return 0;
}
