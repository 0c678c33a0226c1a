/* Vectors of LANES floats in GCC's and Clang's vector extensions, and the elementary functions on them.
 * Included by isa_*.c, which define LANES. Intrinsics are used only where the extensions cannot express an
 * operation, next to a portable form. */
#include <math.h>
#include <string.h>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

typedef float vf __attribute__((vector_size(4 * LANES)));
typedef int32_t vi __attribute__((vector_size(4 * LANES)));
typedef uint32_t vu __attribute__((vector_size(4 * LANES)));
typedef float vf_at __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint32_t vu_at __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline, unused))
#define EACH(i, n) _Pragma("GCC unroll 16") for (int i = 0; i < (n); i++)

INLINE vf v_load(const float *p) { return *(const vf_at *)p; }
INLINE void v_store(float *p, vf v) { *(vf_at *)p = v; }
INLINE vf v_set(float x) { return x - (vf){0}; }
INLINE vu v_set_u(uint32_t x) { return x - (vu){0}; }
INLINE vi v_set_i(int32_t x) { return x - (vi){0}; }

#if LANES == 16 && defined(__AVX512F__)
INLINE __mmask16 first_lanes(int n) { return (__mmask16)((1u << n) - 1); }
INLINE vf v_load_n(const float *p, int n) { return (vf)_mm512_maskz_loadu_ps(first_lanes(n), p); }
INLINE void v_store_n(float *p, vf v, int n) { _mm512_mask_storeu_ps(p, first_lanes(n), (__m512)v); }
INLINE vf v_max(vf a, vf b) { return (vf)_mm512_max_ps((__m512)a, (__m512)b); }
INLINE vf v_min(vf a, vf b) { return (vf)_mm512_min_ps((__m512)a, (__m512)b); }
INLINE vf v_sqrt(vf x) { return (vf)_mm512_sqrt_ps((__m512)x); }
INLINE vf v_if_less(vf a, vf b, vf yes, vf no)
{
    return (vf)_mm512_mask_blend_ps(_mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LT_OQ), (__m512)no, (__m512)yes);
}
/* 1/x for x in [1, 4]: a 14-bit estimate and one Newton step; within 1 ulp, in a third of the time of a division. */
INLINE vf v_reciprocal(vf x)
{
    vf y = (vf)_mm512_rcp14_ps((__m512)x);
    return y + y * (1.0f - x * y);
}
INLINE vf v_scale2(vf x, vf n) { return (vf)_mm512_scalef_ps((__m512)x, (__m512)n); }
INLINE float v_sum(vf v) { return _mm512_reduce_add_ps((__m512)v); }
/* a·b + sum, accumulated in sum's register. */
INLINE vf v_fma(vf a, vf b, vf sum)
{
    __asm__("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
}
/* sum + b·*a, with *a broadcast by the instruction itself; compilers avoid that where *a is used twice. */
INLINE vf v_add_product(vf sum, vf b, const float *a)
{
    __asm__("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(b), "m"(*a));
    return sum;
}
INLINE vu v_high_product(vu a, uint32_t b, vu *low)
{
    __m512i x = (__m512i)a, y = _mm512_set1_epi32((int)b);
    __m512i even = _mm512_mul_epu32(x, y), odd = _mm512_mul_epu32(_mm512_srli_epi64(x, 32), y);
    *low = (vu)_mm512_mask_blend_epi32(0xAAAA, even, _mm512_slli_epi64(odd, 32));
    return (vu)_mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 32), odd);
}
#else
INLINE vf v_pick(vi mask, vf yes, vf no) { return (vf)((mask & (vi)yes) | (~mask & (vi)no)); }
INLINE vf v_if_less(vf a, vf b, vf yes, vf no) { return v_pick((vi)(a < b), yes, no); }

#if LANES == 8 && defined(__AVX2__)
INLINE __m256i first_lanes(int n)
{
    static const int32_t ones[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_loadu_si256((const __m256i *)(ones + 8 - n));
}
INLINE vf v_load_n(const float *p, int n) { return (vf)_mm256_maskload_ps(p, first_lanes(n)); }
INLINE void v_store_n(float *p, vf v, int n) { _mm256_maskstore_ps(p, first_lanes(n), (__m256)v); }
INLINE vf v_max(vf a, vf b) { return (vf)_mm256_max_ps((__m256)a, (__m256)b); }
INLINE vf v_min(vf a, vf b) { return (vf)_mm256_min_ps((__m256)a, (__m256)b); }
INLINE vf v_sqrt(vf x) { return (vf)_mm256_sqrt_ps((__m256)x); }
INLINE vu v_high_product(vu a, uint32_t b, vu *low)
{
    __m256i x = (__m256i)a, y = _mm256_set1_epi32((int)b);
    __m256i even = _mm256_mul_epu32(x, y), odd = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), y);
    *low = (vu)_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
    return (vu)_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
}
#else
INLINE vf v_load_n(const float *p, int n)
{
    vf v = {0};
    for (int i = 0; i < n; i++) v[i] = p[i];
    return v;
}
INLINE void v_store_n(float *p, vf v, int n)
{
    for (int i = 0; i < n; i++) p[i] = v[i];
}
/* As on x86: if either is NaN, the result is b. */
INLINE vf v_max(vf a, vf b) { return v_if_less(b, a, a, b); }
INLINE vf v_min(vf a, vf b) { return v_if_less(a, b, a, b); }
INLINE vf v_sqrt(vf x)
{
    for (int i = 0; i < LANES; i++) x[i] = sqrtf(x[i]);
    return x;
}
INLINE vu v_high_product(vu a, uint32_t b, vu *low)
{
    vu high;
    for (int i = 0; i < LANES; i++) high[i] = (uint32_t)(((uint64_t)a[i] * b) >> 32);
    *low = a * b;
    return high;
}
#endif

INLINE vf v_fma(vf a, vf b, vf sum) { return a * b + sum; }
INLINE vf v_add_product(vf sum, vf b, const float *a) { return v_fma(v_set(*a), b, sum); }
INLINE vf v_reciprocal(vf x) { return 1.0f / x; }
/* x·2ⁿ for whole n in −300 … 300, in two steps so that neither factor leaves the range of a float. */
INLINE vf v_scale2(vf x, vf n)
{
    vi whole = (vi)(n + 12582912.0f) - 0x4B400000;
    vi half = whole >> 1;
    return x * (vf)((half + 127) << 23) * (vf)((whole - half + 127) << 23);
}
INLINE float v_sum(vf v)
{
    for (int width = LANES / 2; width; width /= 2)
        for (int i = 0; i < width; i++) v[i] += v[i + width];
    return v[0];
}
#endif

INLINE vf v_abs(vf x) { return (vf)((vi)x & 0x7fffffff); }
INLINE vf v_load_part(const float *p, int n) { return n >= LANES ? v_load(p) : v_load_n(p, n); }
INLINE void v_store_part(float *p, vf v, int n)
{
    if (n >= LANES) v_store(p, v);
    else v_store_n(p, v, n);
}

/* The nearest number that bf16 holds, ties to even; NaN stays NaN. */
INLINE vf v_round_bf16(vf x)
{
    vu bits = (vu)x;
    vu rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
    return v_if_less(v_abs(x), v_set(INFINITY), (vf)rounded, x);
}

/* Transposes m: interleaves the lower half of the rows with the upper half, log2(LANES) times. */
#if LANES == 16
#define LOW_HALVES 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH_HALVES 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif LANES == 8
#define LOW_HALVES 0, 8, 1, 9, 2, 10, 3, 11
#define HIGH_HALVES 4, 12, 5, 13, 6, 14, 7, 15
#else
#define LOW_HALVES 0, 4, 1, 5
#define HIGH_HALVES 2, 6, 3, 7
#endif
INLINE void v_transpose(vf m[LANES])
{
    vf next[LANES];
    _Pragma("GCC unroll 4") for (int width = LANES; width > 1; width /= 2)
    {
        EACH(i, LANES / 2)
        {
            next[2 * i] = __builtin_shufflevector(m[i], m[i + LANES / 2], LOW_HALVES);
            next[2 * i + 1] = __builtin_shufflevector(m[i], m[i + LANES / 2], HIGH_HALVES);
        }
        EACH(i, LANES) m[i] = next[i];
    }
}

/* exp for −105 ≤ x ≤ 89. */
INLINE vf v_exp_inside(vf x)
{
    const float magic = 12582912.0f; /* adding it rounds to a whole number */
    vf t = x * 1.44269504088896341f + magic;
    vf n = t - magic;
    vf r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    vf p = 1.9875691500e-4f * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = (p * r) * r + r;
    return v_scale2(p + 1.0f, n);
}

/* Within 1.5 ulp; 0 below −104, infinite above 88.73, NaN for NaN. */
INLINE vf v_exp(vf x) { return v_exp_inside(v_max(v_set(-105.0f), v_min(v_set(89.0f), x))); }

/* exp(−|x|) */
INLINE vf v_exp_fall(vf x) { return v_exp_inside(v_max(v_set(-105.0f), (vf)((vi)x | v_set_i((int32_t)0x80000000u)))); }

/* 2ˣ for x ≤ 0: 0 below −150, NaN for NaN. */
INLINE vf v_exp2_fall(vf x)
{
    const float magic = 12582912.0f;
    x = v_max(v_set(-151.0f), x);
    vf t = x + magic, n = t - magic, r = x - n;
    vf p = 1.535336188319500e-4f * r + 1.339887440266574e-3f;
    p = p * r + 9.618437357674640e-3f;
    p = p * r + 5.550332471162809e-2f;
    p = p * r + 2.402264791363012e-1f;
    p = p * r + 6.931472028550421e-1f;
    return v_scale2(p * r + 1.0f, n);
}

/* log(1 + f) for f in −0.3 … 0.42 */
INLINE vf v_log_near_one(vf f)
{
    vf p = 7.0376836292e-2f * f - 1.1514610310e-1f;
    p = p * f + 1.1676998740e-1f;
    p = p * f - 1.2420140846e-1f;
    p = p * f + 1.4249322787e-1f;
    p = p * f - 1.6668057665e-1f;
    p = p * f + 2.0000714765e-1f;
    p = p * f - 2.4999993993e-1f;
    p = p * f + 3.3333331174e-1f;
    vf square = f * f;
    return f + (p * f * square - 0.5f * square);
}

/* log(1 + e) for e in 0 … 1 */
INLINE vf v_log1p_unit(vf e)
{
    const vf limit = v_set(0.41421356f), zero = v_set(0.0f);
    vf f = v_if_less(limit, e, 0.5f * e - 0.5f, e);
    return v_log_near_one(f) + v_if_less(limit, e, v_set(0.69314718056f), zero);
}

/* log x: −inf at 0, NaN below it and for NaN. */
INLINE vf v_log(vf x)
{
    const vf tiny = v_set(1.17549435e-38f), zero = v_set(0.0f);
    vf scaled = v_if_less(x, tiny, x * 8388608.0f, x);
    vi bits = (vi)scaled - 0x3f3504f3; /* so that the mantissa is in 0.707 … 1.414 */
    vi exponent = bits >> 23;
    vf m = (vf)((bits & 0x007fffff) + 0x3f3504f3);
    vf e = __builtin_convertvector(exponent, vf) - v_if_less(x, tiny, v_set(23.0f), zero);
    vf y = e * 0.693359375f + (v_log_near_one(m - 1.0f) - e * 2.12194440e-4f);
    y = v_if_less(v_set(3.4028235e38f), x, x, y);
    y = v_if_less(x, zero, v_set(NAN), y);
    y = v_if_less(v_abs(x), v_set(1e-45f), v_set(-INFINITY), y);
    return v_if_less(x, v_set(INFINITY), y, x); /* NaN and +inf are returned unchanged */
}

/* σ(x) and σ(−x), both with full relative accuracy. */
INLINE vf v_sigmoid_pair(vf x, vf *other)
{
    const vf zero = v_set(0.0f);
    vf e = v_exp_fall(x);
    vf large = v_reciprocal(1.0f + e), small = e * large;
    *other = v_if_less(x, zero, large, small);
    return v_if_less(x, zero, small, large);
}

INLINE vf v_sigmoid(vf x)
{
    vf other;
    return v_sigmoid_pair(x, &other);
}

INLINE vf v_softplus(vf x) { return v_max(v_set(0.0f), x) + v_log1p_unit(v_exp_fall(x)); }

INLINE vf v_tanh(vf x)
{
    vf e = v_exp_fall(x + x);
    vf far = (1.0f - e) * v_reciprocal(1.0f + e);
    far = (vf)((vi)far | ((vi)x & v_set_i((int32_t)0x80000000u)));
    vf s = x * x;
    vf p = -5.70498872745e-3f * s + 2.06390887954e-2f;
    p = p * s - 5.37397155531e-2f;
    p = p * s + 1.33314422036e-1f;
    p = p * s - 3.33332819422e-1f;
    return v_if_less(v_abs(x), v_set(0.625f), x + x * (p * s), far);
}
