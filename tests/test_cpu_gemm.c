/* Large shapes on the CPU backend, which would take `minrnn check` too long: partial blocks, split sums over
 * many tokens, time split into chunks. Each is compared with plain loops or ref, and bit for bit with
 * another number of threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/mem.h"
#include "core/rng.h"
#include "ops/device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float *random_array(size_t n, float scale, uint32_t stream)
{
    float *a = mr_alloc(n, sizeof *a);
    mr_rng rng = mr_rng_at(7, stream, 0, 0);
    for (size_t i = 0; i < n; i++) a[i] = scale * (float)(2.0 * mr_rng_uniform(&rng) - 1.0);
    return a;
}

static mr_dev *open_with(int threads, const char *isa, int bf16)
{
    mr_error err = {0};
    mr_dev *dev = NULL;
    assert_int_equal(mr_cpu_open(&(mr_dev_options){.threads = threads, .isa = isa, .bf16 = bf16}, &dev, &err), 0);
    return dev;
}

static mr_dev *open_cpu(int threads, const char *isa) { return open_with(threads, isa, 0); }

/* The nearest number with eight bits of mantissa, ties to even. */
static double to_bf16(double x)
{
    int exponent;
    double mantissa = frexp(x, &exponent);
    return ldexp(nearbyint(ldexp(mantissa, 8)), exponent - 8);
}

static double as_multiplied(float x, int bf16) { return bf16 ? to_bf16((double)x) : (double)x; }

static void assert_near(double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance)) fail_msg("got %.9g, expected %.9g", got, want);
}

/* y = x Wᵀ + b, dx = dy W and dW = dyᵀ x of one shape, at a sample of elements. */
static void check_products(mr_dev *dev, int M, int N, int K, int bf16)
{
    float *x = random_array((size_t)M * K, 1, 1), *W = random_array((size_t)N * K, 1, 2);
    float *b = random_array((size_t)N, 1, 3);
    float *y = random_array((size_t)M * N, 1, 4), *dx = mr_alloc((size_t)M * K, 4), *dW = mr_alloc((size_t)N * K, 4);
    float *db = mr_alloc((size_t)N, 4);
    for (size_t i = 0; i < (size_t)M * K; i++) dx[i] = NAN;
    mr_linear_bwd_x_args to_x = {.M = M, .N = N, .K = K, .dy = (mr_act *)y, .W = (mr_real *)W, .dx = (mr_act *)dx};
    mr_linear_bwd_w_args to_w = {
        .M = M, .N = N, .K = K, .dy = (mr_act *)y, .x = (mr_act *)x, .dW = (mr_real *)dW, .db = (mr_real *)db};
    dev->ops.linear_bwd_x(dev, &to_x);
    dev->ops.linear_bwd_w(dev, &to_w);
    for (int sample = 0; sample < 300; sample++) {
        const int m = sample * 7919 % M, n = sample * 104729 % N, k = sample * 1299709 % K;
        double sx = 0, sw = 0, sb = 0;
        for (int i = 0; i < N; i++)
            sx += as_multiplied(y[(size_t)m * N + i], bf16) * as_multiplied(W[(size_t)i * K + k], bf16);
        for (int i = 0; i < M; i++) {
            sw += as_multiplied(y[(size_t)i * N + n], bf16) * as_multiplied(x[(size_t)i * K + k], bf16);
            sb += y[(size_t)i * N + n];
        }
        assert_near(dx[(size_t)m * K + k], sx, 2e-6 * sqrt(N) * 4);
        assert_near(dW[(size_t)n * K + k], sw, 2e-6 * sqrt(M) * 4);
        assert_near(db[n], sb, 2e-6 * sqrt(M) * 4);
    }
    mr_linear_fwd_args forward = {
        .M = M, .N = N, .K = K, .x = (mr_act *)x, .W = (mr_real *)W, .b = (mr_real *)b, .y = (mr_act *)y};
    dev->ops.linear_fwd(dev, &forward);
    for (int sample = 0; sample < 300; sample++) {
        const int m = sample * 7919 % M, n = sample * 104729 % N;
        double sum = b[n];
        for (int i = 0; i < K; i++)
            sum += as_multiplied(x[(size_t)m * K + i], bf16) * as_multiplied(W[(size_t)n * K + i], bf16);
        assert_near(y[(size_t)m * N + n], sum, 2e-6 * sqrt(K) * 4);
    }
    mr_free(x), mr_free(W), mr_free(b), mr_free(y), mr_free(dx), mr_free(dW), mr_free(db);
}

static void check_ragged_blocks(int bf16)
{
    for (const char *const *isa = mr_cpu_isas(); *isa; isa++) {
        mr_dev *dev = open_with(2, *isa, bf16);
        check_products(dev, 203, 517, 401, bf16); /* two blocks of rows, columns and depth, none of them whole */
        check_products(dev, 5000, 16, 65, bf16);  /* a split sum over tokens into a tiny gradient */
        check_products(dev, 9, 700, 1, bf16);
        check_products(dev, 64, 96, 1100, bf16); /* whole tiles, several pieces of depth */
        mr_dev_close(dev);
    }
}

static void products_of_ragged_blocks_are_right(void **state)
{
    (void)state;
    check_ragged_blocks(0);
}

/* As precise as fp32 once the operands are rounded. */
static void products_in_bf16_are_right(void **state)
{
    (void)state;
    check_ragged_blocks(1);
}

static void fill_product(mr_dev *dev, int M, int N, int K, float *y, float *dW)
{
    float *x = random_array((size_t)M * K, 1, 1), *W = random_array((size_t)N * K, 1, 2);
    mr_linear_fwd_args forward = {.M = M, .N = N, .K = K, .x = (mr_act *)x, .W = (mr_real *)W, .y = (mr_act *)y};
    mr_linear_bwd_w_args to_w = {.M = M, .N = N, .K = K, .dy = (mr_act *)y, .x = (mr_act *)x, .dW = (mr_real *)dW};
    dev->ops.linear_fwd(dev, &forward);
    dev->ops.linear_bwd_w(dev, &to_w);
    mr_free(x), mr_free(W);
}

static void threads_change_no_bit(void **state)
{
    enum { M = 2500, N = 130, K = 420 };
    (void)state;
    for (const char *const *isa = mr_cpu_isas(); *isa; isa++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            float *y[2], *dW[2];
            for (int i = 0; i < 2; i++) {
                mr_dev *dev = open_with(i ? 3 : 1, *isa, bf16);
                y[i] = mr_alloc(M * N, 4), dW[i] = mr_alloc(N * K, 4);
                fill_product(dev, M, N, K, y[i], dW[i]);
                mr_dev_close(dev);
            }
            assert_memory_equal(y[0], y[1], M * N * 4);
            assert_memory_equal(dW[0], dW[1], N * K * 4);
            for (int i = 0; i < 2; i++) mr_free(y[i]), mr_free(dW[i]);
        }
}

typedef struct layer {
    int B, T, D, H;
    mr_cell cell;
    float *x, *W, *b, *init, *h, *dh, *dx, *dW, *db, *dinit, *out;
    uint8_t *reset;
} layer;

static layer new_layer(int B, int T, int D, int H)
{
    const size_t tokens = (size_t)B * T;
    layer l = {.B = B, .T = T, .D = D, .H = H, .cell = {.kind = MR_MINLSTM, .candidate = MR_POSITIVE, .normalize = 1}};
    l.x = random_array(tokens * D, 1, 1), l.W = random_array(3 * (size_t)H * D, 2, 2);
    l.b = random_array(3 * (size_t)H, 1, 3);
    l.init = random_array((size_t)H, 1, 4), l.dh = random_array(tokens * H, 1, 5), l.h = mr_alloc(tokens * H, 4);
    l.dx = mr_alloc(tokens * D, 4), l.dW = mr_alloc(3 * (size_t)H * D, 4), l.db = mr_alloc(3 * (size_t)H, 4);
    l.dinit = mr_alloc((size_t)H, 4), l.out = mr_alloc((size_t)B * H, 4), l.reset = mr_alloc(tokens, 1);
    for (size_t i = 0; i < tokens; i++) l.reset[i] = i % 541 == 2; /* just after the start of a chunk of 4321/8 */
    return l;
}

static void free_layer(layer *l)
{
    float *arrays[] = {l->x, l->W, l->b, l->init, l->h, l->dh, l->dx, l->dW, l->db, l->dinit, l->out};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) mr_free(arrays[i]);
    mr_free(l->reset);
}

static void run_layer(mr_dev *dev, layer *l)
{
    void *saved = dev->alloc(dev, dev->minrnn_saved(dev, &l->cell, l->B, l->T, l->D, l->H));
    mr_minrnn_fwd_args f = {.cell = l->cell,
                            .B = l->B,
                            .T = l->T,
                            .D = l->D,
                            .H = l->H,
                            .x = (mr_act *)l->x,
                            .W = (mr_real *)l->W,
                            .b = (mr_real *)l->b,
                            .h_init = (mr_real *)l->init,
                            .reset = l->reset,
                            .saved = saved,
                            .h = (mr_act *)l->h,
                            .h_out = (mr_real *)l->out};
    dev->ops.minrnn_fwd(dev, &f);
    mr_minrnn_bwd_args b = {.cell = l->cell,
                            .B = l->B,
                            .T = l->T,
                            .D = l->D,
                            .H = l->H,
                            .x = f.x,
                            .W = f.W,
                            .b = f.b,
                            .h_init = f.h_init,
                            .reset = l->reset,
                            .saved = saved,
                            .h = f.h,
                            .dh = (mr_act *)l->dh,
                            .dx = (mr_act *)l->dx,
                            .dW = (mr_real *)l->dW,
                            .db = (mr_real *)l->db,
                            .dh_init = (mr_real *)l->dinit};
    dev->ops.minrnn_bwd(dev, &b);
    dev->release(dev, saved);
}

static void assert_close(const float *got, const float *want, size_t n, double tolerance)
{
    double scale = 1;
    for (size_t i = 0; i < n; i++) scale = fmax(scale, fabs((double)want[i]));
    for (size_t i = 0; i < n; i++) assert_near(got[i], want[i], tolerance * scale);
}

/* One long sequence (time in chunks), and many (one per task): agrees with ref, and the same
 * bits for 1 and 3 threads. */
static void check_layer(const char *isa, int B, int T)
{
    layer one = new_layer(B, T, 5, 19), three = new_layer(B, T, 5, 19), right = new_layer(B, T, 5, 19);
    mr_dev *single = open_cpu(1, isa), *triple = open_cpu(3, isa), *ref = NULL;
    assert_int_equal(mr_dev_open("ref", NULL, &ref, NULL), 0);
    run_layer(single, &one);
    run_layer(triple, &three);
    run_layer(ref, &right);
    const size_t tokens = (size_t)B * T;
    assert_close(one.h, right.h, tokens * 19, 1e-5);
    assert_close(one.out, right.out, (size_t)B * 19, 1e-5);
    assert_close(one.dx, right.dx, tokens * 5, 5e-5);
    assert_close(one.dW, right.dW, 3 * 19 * 5, 5e-5);
    assert_close(one.db, right.db, 3 * 19, 5e-5);
    assert_close(one.dinit, right.dinit, 19, 5e-5);
    assert_memory_equal(one.h, three.h, tokens * 19 * 4);
    assert_memory_equal(one.dx, three.dx, tokens * 5 * 4);
    assert_memory_equal(one.dW, three.dW, 3 * 19 * 5 * 4);
    assert_memory_equal(one.dinit, three.dinit, 19 * 4);
    mr_dev_close(single), mr_dev_close(triple), mr_dev_close(ref);
    free_layer(&one), free_layer(&three), free_layer(&right);
}

static void a_scan_cut_into_chunks_is_right(void **state)
{
    (void)state;
    for (const char *const *isa = mr_cpu_isas(); *isa; isa++) check_layer(*isa, 1, 4321);
}

static void a_scan_of_many_sequences_is_right(void **state)
{
    (void)state;
    for (const char *const *isa = mr_cpu_isas(); *isa; isa++) check_layer(*isa, 18, 101);
}

/* Saturated gates are exactly 0 and 1 without NaN on the way, and a NaN input is not hidden. */
static void saturated_gates_give_no_nan(void **state)
{
    (void)state;
    const float pre[] = {-1e4f, -100.0f, 100.0f, 1e4f, NAN};
    for (const char *const *isa = mr_cpu_isas(); *isa; isa++)
        for (int i = 0; i < 5; i++) {
            mr_dev *dev = open_cpu(1, *isa);
            float x = 0, W[3] = {0}, b[3] = {pre[i], pre[i], 0.5f}, h = 7, in = 2, saved[3];
            mr_minrnn_fwd_args f = {.cell = {.kind = MR_MINLSTM, .candidate = MR_LINEAR, .normalize = 1},
                                    .B = 1,
                                    .T = 1,
                                    .D = 1,
                                    .H = 1,
                                    .x = (mr_act *)&x,
                                    .W = (mr_real *)W,
                                    .b = (mr_real *)b,
                                    .h_in = (mr_real *)&in,
                                    .saved = saved,
                                    .h = (mr_act *)&h};
            dev->ops.minrnn_fwd(dev, &f);
            if (isnan(pre[i])) assert_true(isnan(h));
            else assert_near(h, 0.5 * 2 + 0.5 * 0.5, 1e-6);
            f.cell.normalize = 0;
            dev->ops.minrnn_fwd(dev, &f);
            if (isnan(pre[i])) assert_true(isnan(h));
            else assert_near(h, pre[i] > 0 ? 2.5 : 0.0, 1e-30);
            mr_dev_close(dev);
        }
}

static void unknown_isa_is_refused(void **state)
{
    (void)state;
    mr_error err = {0};
    mr_dev *dev = NULL;
    assert_int_equal(mr_cpu_open(&(mr_dev_options){.isa = "avx1024"}, &dev, &err), MR_EDEVICE);
    assert_null(dev);
    assert_non_null(strstr(err.text, "avx1024"));
    assert_non_null(strstr(err.text, "scalar"));
    assert_int_equal(setenv("MINRNN_ISA", "scalar", 1), 0);
    dev = open_cpu(1, NULL);
    assert_string_equal(dev->isa, "scalar");
    mr_dev_close(dev);
    assert_int_equal(unsetenv("MINRNN_ISA"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_of_ragged_blocks_are_right),
        cmocka_unit_test(products_in_bf16_are_right),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(a_scan_cut_into_chunks_is_right),
        cmocka_unit_test(a_scan_of_many_sequences_is_right),
        cmocka_unit_test(saturated_gates_give_no_nan),
        cmocka_unit_test(unknown_isa_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
