/* Conversion between float and bf16, which is the upper half of a float. */
#ifndef MR_OPS_BF16_H
#define MR_OPS_BF16_H

#include <stdint.h>
#include <string.h>

static inline float mr_bf16_wide(uint16_t x)
{
    const uint32_t bits = (uint32_t)x << 16;
    float out;
    memcpy(&out, &bits, sizeof out);
    return out;
}

/* Rounds to nearest, ties to even. NaN stays NaN: one of its bits is set, because its upper half alone could read as
 * infinity. */
static inline uint16_t mr_bf16_near(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t nan = (bits & 0x7fffffff) > 0x7f800000, near = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (uint16_t)(nan ? bits >> 16 | 0x40 : near);
}

#endif
