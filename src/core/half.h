/* Floats of 16 bits as floats of 32. Every value has one: no rounding, and NaN stays NaN. */
#ifndef MR_CORE_HALF_H
#define MR_CORE_HALF_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float mr_float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* bfloat16: the upper half of a float. */
static inline float mr_bf16_read(uint16_t bits) { return mr_float_of_bits((uint32_t)bits << 16); }

/* IEEE binary16: 1 sign bit, 5 of the exponent (bias 15), 10 of the fraction. */
static inline float mr_f16_read(uint16_t bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
    if (exponent == 31) return mr_float_of_bits(sign | 0x7f800000 | fraction << 13);
    if (exponent) return mr_float_of_bits(sign | (exponent + 127 - 15) << 23 | fraction << 13);
    const float small = ldexpf((float)fraction, -24); /* zero, or too small for a leading 1 */
    return sign ? -small : small;
}

#endif
