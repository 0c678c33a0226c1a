/* 8-bit kernels for x86-64. Each loop is written once on top of a few vector functions per instruction set. Functions
 * declare the instructions they need as attributes and are called only where the machine has them. */
#include "ops/cpu/quant_kernels.h"

#include "ops/cpu/quant_round.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define WITH(target_list) __attribute__((target(target_list)))
#define INSIDE(target_list) static inline __attribute__((always_inline, target(target_list)))

/* Four vectors of partial sums into four sums. */
INSIDE("avx2") __m128i add_up_256(__m256i a, __m256i b, __m256i c, __m256i d)
{
    const __m256i four = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
    return _mm_add_epi32(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));
}

INSIDE("avx512f,avx512bw") __m128i add_up_512(__m512i a, __m512i b, __m512i c, __m512i d)
{
    const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    const __m512i all = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
    const __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

/* Loads bytes from p, zeros beyond `left` of them. x is padded, so only w needs this. */
INSIDE("avx512f,avx512bw") __m512i load_512(const int8_t *p, int left)
{
    return left >= 64 ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi8((1ull << left) - 1, p);
}

INSIDE("avx2") __m256i load_256(const int8_t *p, int left)
{
    if (left >= 32) return _mm256_loadu_si256((const __m256i *)p);
    int8_t bytes[32] = {0};
    memcpy(bytes, p, (size_t)left);
    return _mm256_loadu_si256((const __m256i *)bytes);
}

/* ---- one step: sum += the products of a vector of x and one of w. VNNI multiplies unsigned by signed bytes, so it
 * gets w + 128 and x. Without VNNI, bytes are widened to 16 bits first. */

INSIDE("avx512f,avx512bw,avx512vnni") __m512i step_512_vnni(__m512i sum, __m512i x, __m512i w)
{
    return _mm512_dpbusd_epi32(sum, _mm512_xor_si512(w, _mm512_set1_epi8((char)0x80)), x);
}

INSIDE("avx512f,avx512bw") __m512i step_512(__m512i sum, __m512i x, __m512i w)
{
    const __m512i low = _mm512_madd_epi16(_mm512_cvtepi8_epi16(_mm512_castsi512_si256(x)),
                                          _mm512_cvtepi8_epi16(_mm512_castsi512_si256(w)));
    const __m512i high = _mm512_madd_epi16(_mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64(x, 1)),
                                           _mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64(w, 1)));
    return _mm512_add_epi32(sum, _mm512_add_epi32(low, high));
}

INSIDE("avx2,avxvnni") __m256i step_256_vnni(__m256i sum, __m256i x, __m256i w)
{
    return _mm256_dpbusd_avx_epi32(sum, _mm256_xor_si256(w, _mm256_set1_epi8((char)0x80)), x);
}

INSIDE("avx2") __m256i step_256(__m256i sum, __m256i x, __m256i w)
{
    const __m256i low = _mm256_madd_epi16(_mm256_cvtepi8_epi16(_mm256_castsi256_si128(x)),
                                          _mm256_cvtepi8_epi16(_mm256_castsi256_si128(w)));
    const __m256i high = _mm256_madd_epi16(_mm256_cvtepi8_epi16(_mm256_extracti128_si256(x, 1)),
                                           _mm256_cvtepi8_epi16(_mm256_extracti128_si256(w, 1)));
    return _mm256_add_epi32(sum, _mm256_add_epi32(low, high));
}

/* ---- the loops over them */

#define NAME(x) x##_512_vnni
#define TARGET "avx512f,avx512bw,avx512vnni"
#define VEC __m512i
#define BYTES 64
#define ZERO _mm512_setzero_si512
#define LOAD load_512
#define STEP step_512_vnni
#define OFFSET 128
#define ADD_UP add_up_512
#include "ops/cpu/quant_dots.inc.h"

#define NAME(x) x##_512
#define TARGET "avx512f,avx512bw"
#define VEC __m512i
#define BYTES 64
#define ZERO _mm512_setzero_si512
#define LOAD load_512
#define STEP step_512
#define OFFSET 0
#define ADD_UP add_up_512
#include "ops/cpu/quant_dots.inc.h"

#define NAME(x) x##_256_vnni
#define TARGET "avx2,avxvnni"
#define VEC __m256i
#define BYTES 32
#define ZERO _mm256_setzero_si256
#define LOAD load_256
#define STEP step_256_vnni
#define OFFSET 128
#define ADD_UP add_up_256
#include "ops/cpu/quant_dots.inc.h"

#define NAME(x) x##_256
#define TARGET "avx2"
#define VEC __m256i
#define BYTES 32
#define ZERO _mm256_setzero_si256
#define LOAD load_256
#define STEP step_256
#define OFFSET 0
#define ADD_UP add_up_256
#include "ops/cpu/quant_dots.inc.h"

static WITH("avx512f,avx512bw,avx512dq,avx512vl") float round_512(int K, const float *x, int8_t *q)
{
    return mr_quant_round(K, x, q);
}
static WITH("avx2") float round_256(int K, const float *x, int8_t *q) { return mr_quant_round(K, x, q); }

const mr_quant_kernels mr_quant_avx512_vnni = {round_512, dots_512_vnni};
const mr_quant_kernels mr_quant_avx512 = {round_512, dots_512};
const mr_quant_kernels mr_quant_avx2_vnni = {round_256, dots_256_vnni};
const mr_quant_kernels mr_quant_avx2 = {round_256, dots_256};
#else
typedef int mr_quant_x86_is_empty; /* a file must declare something */
#endif
