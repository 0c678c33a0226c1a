/* Rounding a row to 8 bits, written so that compilers vectorize it; inlined into one function
 * for each instruction set. */
#ifndef MR_OPS_CPU_QUANT_ROUND_H
#define MR_OPS_CPU_QUANT_ROUND_H

#include "ops/cpu/quant.h"

#include <math.h>
#include <string.h>

static inline __attribute__((always_inline)) int32_t mr_quant_bits(float x)
{
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* The largest |x|, as the bits of a float. As integers these compare like |x|, with infinity and
 * then NaN above all others. */
static inline __attribute__((always_inline)) int32_t mr_quant_largest(int K, const float *x)
{
    int32_t largest = 0;
    for (int k = 0; k < K; k++) {
        int32_t bits = mr_quant_bits(x[k]) & 0x7fffffff;
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

static inline __attribute__((always_inline)) float mr_quant_round(int K, const float *x, int8_t *restrict q)
{
    const float magic = 12582912.0f; /* adding it rounds to a whole number, held in the lowest bits */
    const int32_t infinity = 0x7f800000, tiny = 0x02000000, largest = mr_quant_largest(K, x);
    const int padded = (int)mr_round_up((size_t)K, MR_QUANT_PAD);
    float top;
    if (largest >= infinity || largest < tiny) { /* below 9e-38 the row counts as zero: 127/max would not be finite */
        memset(q, 0, (size_t)padded);
        return largest >= infinity ? NAN : 0.0f;
    }
    memcpy(&top, &largest, sizeof top);
    const float factor = 127.0f / top;
    for (int k = 0; k < K; k++) q[k] = (int8_t)(mr_quant_bits(x[k] * factor + magic) & 0xff);
    memset(q + K, 0, (size_t)(padded - K));
    return top / 127.0f;
}

#endif
