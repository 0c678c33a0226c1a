/* Sequences of Philox draws for host code: integers, uniform and normal numbers. */
#include "core/rng.h"

#include <math.h>

mr_rng mr_rng_at(uint64_t seed, uint32_t stream, uint32_t a, uint32_t b)
{
    return (mr_rng){.seed = seed, .stream = stream, .a = a, .b = b};
}

uint32_t mr_rng_u32(mr_rng *rng)
{
    if (rng->left == 0) {
        rng->block = mr_philox(rng->seed, rng->next++, rng->stream, rng->a, rng->b);
        rng->left = 4;
    }
    return rng->block.v[4 - rng->left--];
}

uint32_t mr_rng_below(mr_rng *rng, uint32_t n)
{
    uint32_t reject = (uint32_t)(-(int64_t)n) % n; /* 2³² mod n: accepting draws below it would favour small values */
    uint32_t x;
    do x = mr_rng_u32(rng);
    while (x < reject);
    return x % n;
}

static uint64_t next_u64(mr_rng *rng)
{
    uint64_t high = mr_rng_u32(rng);
    return high << 32 | mr_rng_u32(rng);
}

uint64_t mr_rng_below64(mr_rng *rng, uint64_t n)
{
    uint64_t reject = (0 - n) % n, x;
    do x = next_u64(rng);
    while (x < reject);
    return x % n;
}

double mr_rng_uniform(mr_rng *rng) { return (double)(next_u64(rng) >> 11) * 0x1p-53; }

double mr_rng_normal(mr_rng *rng)
{
    double u = 1 - mr_rng_uniform(rng), v = mr_rng_uniform(rng);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}
