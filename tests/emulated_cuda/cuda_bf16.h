/* bfloat16 as CUDA has it: the upper half of a float, rounded to nearest, ties to even. */
#ifndef EMULATED_CUDA_BF16_H
#define EMULATED_CUDA_BF16_H

#include "cuda_runtime.h"

struct __nv_bfloat16 {
    unsigned short bits;
    __nv_bfloat16() = default;
    explicit __nv_bfloat16(float v)
    {
        const unsigned u = __float_as_uint(v);
        bits = v != v ? 0x7fff : (unsigned short)((u + 0x7fff + (u >> 16 & 1)) >> 16);
    }
    explicit operator float() const { return __uint_as_float((unsigned)bits << 16); }
};
struct __align__(4) __nv_bfloat162 { __nv_bfloat16 x, y; };

static inline __nv_bfloat16 __float2bfloat16(float v) { return __nv_bfloat16(v); }
static inline float __bfloat162float(__nv_bfloat16 v) { return (float)v; }
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 v) { return v.bits; }
static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {__nv_bfloat16(x), __nv_bfloat16(y)}; }

#endif
