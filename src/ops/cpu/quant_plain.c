/* 8-bit kernels for any machine, and the choice of kernels for this one. */
#include "ops/cpu/features.h"
#include "ops/cpu/quant_kernels.h"

#include "ops/cpu/quant_round.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

static float round_row(int K, const float *x, int8_t *q) { return mr_quant_round(K, x, q); }

#if defined(__aarch64__)
static int32_t dot(int K, const int8_t *x, const int8_t *w)
{
    int32x4_t sum = vdupq_n_s32(0);
    int k = 0;
    for (; k + 16 <= K; k += 16) {
        const int8x16_t a = vld1q_s8(x + k), b = vld1q_s8(w + k);
#if defined(__ARM_FEATURE_DOTPROD)
        sum = vdotq_s32(sum, a, b);
#else
        const int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(b));
        /* two products of 127² fit into 16 bits */
        sum = vpadalq_s16(sum, vmlal_s8(low, vget_high_s8(a), vget_high_s8(b)));
#endif
    }
    int32_t total = vaddvq_s32(sum);
    for (; k < K; k++) total += x[k] * w[k];
    return total;
}
#else
static int32_t dot(int K, const int8_t *x, const int8_t *w)
{
    int32_t sum = 0;
    for (int k = 0; k < K; k++) sum += x[k] * w[k];
    return sum;
}
#endif

static void dots(int K, const int8_t *x, size_t x_row, int m, const int8_t *w, size_t w_row, int n, int32_t *sums,
                 size_t sums_row)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++)
            sums[(size_t)i * sums_row + (size_t)j] = dot(K, x + (size_t)i * x_row, w + (size_t)j * w_row);
}

const mr_quant_kernels mr_quant_plain = {round_row, dots};

const mr_quant_kernels *mr_quant_choose(const char *isa)
{
#if defined(__x86_64__)
    if (!strcmp(isa, "avx512"))
        return (mr_cpu_features() & MR_HAS_AVX512_VNNI) ? &mr_quant_avx512_vnni : &mr_quant_avx512;
    if (!strcmp(isa, "avx2")) return (mr_cpu_features() & MR_HAS_AVX_VNNI) ? &mr_quant_avx2_vnni : &mr_quant_avx2;
#else
    (void)isa;
#endif
    return &mr_quant_plain;
}
