/* The 8-bit kernels of the CPU backend, every set that this machine can run: `minrnn check` only sees the best of an
 * instruction set. Sums are integers, so all must be equal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assert_that.h"
#include "core/mem.h"
#include "core/rng.h"
#include "ops/cpu/features.h"
#include "ops/cpu/quant_kernels.h"

#include <math.h>
#include <string.h>

enum { MOST_K = 700, MOST_N = 11, MOST_M = 9, GUARD = 77 };

static void for_each_set(void (*test)(const char *name, const mr_quant_kernels *set))
{
    test("plain", &mr_quant_plain);
#if defined(__x86_64__)
    const int features = mr_cpu_features();
    /* the compiler's own way to ask is a second witness, where its names agree */
    assert_int_equal(features & MR_HAS_AVX2, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
    if (features & MR_HAS_AVX2) test("avx2", &mr_quant_avx2);
    if (features & MR_HAS_AVX_VNNI) test("avx2 vnni", &mr_quant_avx2_vnni);
    if (features & MR_HAS_AVX512) test("avx512", &mr_quant_avx512);
    if (features & MR_HAS_AVX512_VNNI) test("avx512 vnni", &mr_quant_avx512_vnni);
#endif
}

static int8_t any(mr_rng *rng) { return (int8_t)((int)mr_rng_below(rng, 255) - 127); }

static void check_dots(const char *name, const mr_quant_kernels *set, int K, int m, int n, mr_rng *rng)
{
    const size_t padded = mr_round_up((size_t)K, MR_QUANT_PAD);
    /* no byte after w, so that sanitizers notice reads past it */
    int8_t *x = mr_alloc(padded * MOST_M, 1), *w = mr_alloc((size_t)K * (size_t)n, 1);
    int32_t sums[MOST_M * MOST_N + 1];
    assert_true(x);
    assert_true(w);
    for (int i = 0; i < m; i++)
        for (int k = 0; k < K; k++) x[(size_t)i * padded + (size_t)k] = any(rng);
    for (size_t i = 0; i < (size_t)K * (size_t)n; i++) w[i] = any(rng);
    for (int i = 0; i <= m * n; i++) sums[i] = GUARD;
    set->dots(K, x, padded, m, w, (size_t)K, n, sums, (size_t)n);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            int32_t want = 0;
            for (int k = 0; k < K; k++)
                want += x[(size_t)i * padded + (size_t)k] * w[(size_t)j * (size_t)K + (size_t)k];
            if (sums[i * n + j] != want)
                fail_msg("%s: K=%d, row %d of %d, %d of %d: %d, not %d", name, K, i, m, j, n, sums[i * n + j], want);
        }
    assert_int_equal(sums[m * n], GUARD);
    mr_free(x);
    mr_free(w);
}

static void dots_of(const char *name, const mr_quant_kernels *set)
{
    mr_rng rng = mr_rng_at(3, MR_STREAM_SAMPLE, 0, 0);
    for (int K = 1; K <= 200; K++) check_dots(name, set, K, 1 + K % MOST_M, 1 + K % MOST_N, &rng);
    for (int round = 0; round < 50; round++)
        check_dots(name, set, 1 + (int)mr_rng_below(&rng, MOST_K), 1 + (int)mr_rng_below(&rng, MOST_M),
                   1 + (int)mr_rng_below(&rng, MOST_N), &rng);
}

static void dots_are_exact(void **state)
{
    (void)state;
    for_each_set(dots_of);
}

/* The longest sum of the largest terms fits. */
static void extremes_of(const char *name, const mr_quant_kernels *set)
{
    int8_t *x = mr_alloc(MR_QUANT_DEPTH, 1), *w = mr_alloc(MR_QUANT_DEPTH, 1);
    int32_t sum;
    assert_true(x);
    assert_true(w);
    for (int sign = -1; sign <= 1; sign += 2) {
        memset(x, 127, MR_QUANT_DEPTH);
        memset(w, sign * 127, MR_QUANT_DEPTH);
        set->dots(MR_QUANT_DEPTH, x, MR_QUANT_DEPTH, 1, w, MR_QUANT_DEPTH, 1, &sum, 1);
        if (sum != sign * 127 * 127 * MR_QUANT_DEPTH) fail_msg("%s: %d", name, sum);
    }
    mr_free(x);
    mr_free(w);
}

static void extreme_sums_fit(void **state)
{
    (void)state;
    for_each_set(extremes_of);
}

static void check_row(const char *name, const mr_quant_kernels *set, int K, mr_rng *rng)
{
    float x[MOST_K], top = 0;
    int8_t q[MOST_K + MR_QUANT_PAD];
    const int padded = (int)mr_round_up((size_t)K, MR_QUANT_PAD);
    for (int k = 0; k < K; k++) top = fmaxf(top, fabsf(x[k] = (float)mr_rng_normal(rng)));
    memset(q, GUARD, sizeof q);
    const float step = set->round_row(K, x, q);
    assert_that(fabsf(step * 127 - top), <=, 1e-6f * top);
    for (int k = 0; k < K; k++)
        if (!(fabsf(q[k] * step - x[k]) <= 0.501f * step))
            fail_msg("%s: K=%d: %g became %d steps of %g", name, K, (double)x[k], q[k], (double)step);
    for (int k = K; k < padded; k++) assert_int_equal(q[k], 0);
    for (size_t k = (size_t)padded; k < sizeof q; k++) assert_int_equal(q[k], GUARD);
}

static void round_of(const char *name, const mr_quant_kernels *set)
{
    mr_rng rng = mr_rng_at(4, MR_STREAM_SAMPLE, 0, 0);
    float x[40] = {0};
    int8_t q[MR_QUANT_PAD];
    for (int K = 1; K <= 150; K++) check_row(name, set, K, &rng);
    memset(q, GUARD, sizeof q);
    assert_that(set->round_row(40, x, q), ==, 0);
    for (int k = 0; k < MR_QUANT_PAD; k++) assert_int_equal(q[k], 0);
    x[7] = 1e-41f; /* 127/x is not finite */
    assert_that(set->round_row(40, x, q), ==, 0);
    const float bad[] = {NAN, INFINITY, -INFINITY, -NAN};
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 40; k++) {
            memset(x, 0, sizeof x);
            x[k] = bad[i];
            assert_true(isnan(set->round_row(40, x, q)));
        }
}

static void rows_are_rounded_to_nearest(void **state)
{
    (void)state;
    for_each_set(round_of);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(dots_are_exact), cmocka_unit_test(extreme_sums_fit),
                                       cmocka_unit_test(rows_are_rounded_to_nearest)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
