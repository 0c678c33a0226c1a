/* The dtypes of raw calls on the CPU and on ref: compared with each other and with finite
 * differences; and what is refused. */
#define HOST_MEMORY
#include "raw_support.h"

#include <pthread.h>
#include <stdatomic.h>

static const shape shapes[] = {
    {.name = "scan", .given = 1, .B = 2, .T = 9, .H = 5, .masked = 1, .carried = 1},
    {.name = "long scan", .given = 1, .B = 1, .T = 3000, .H = 70},
    {.name = "wide scan", .given = 1, .B = 40, .T = 50, .H = 130, .masked = 1},
    {.name = "minGRU of given gates", .B = 3, .T = 9, .H = 5, .masked = 1},
    {.name = "long minLSTM of given gates",
     .B = 1,
     .T = 3000,
     .H = 33,
     .kind = MR_MINLSTM,
     .candidate = MR_LINEAR,
     .normalize = 1,
     .carried = 1},
    {.name = "minGRU", .B = 3, .T = 9, .D = 4, .H = 5, .candidate = MR_TANH, .masked = 1, .carried = 1},
    {.name = "minLSTM", .B = 2, .T = 8, .D = 7, .H = 3, .kind = MR_MINLSTM, .masked = 1},
    {.name = "minLSTM, normalised",
     .B = 4,
     .T = 33,
     .D = 16,
     .H = 24,
     .kind = MR_MINLSTM,
     .candidate = MR_TANH,
     .normalize = 1},
    {.name = "minGRU in logarithms", .B = 2, .T = 9, .D = 4, .H = 5, .scan = MR_SCAN_LOG},
    {.name = "a step", .B = 5, .T = 1, .D = 8, .H = 6, .candidate = MR_TANH, .masked = 1, .carried = 1},
};

enum { SHAPES = sizeof shapes / sizeof *shapes };

static mr_context *context_with(const char *device, int threads, int bf16)
{
    mr_context_options options = MR_CONTEXT_OPTIONS;
    mr_context *ctx;
    options.device = device, options.threads = threads, options.bf16 = bf16;
    OK(mr_context_new(&options, &ctx, &err));
    return ctx;
}

/* Sums are in fp32, so a stored number is off only by its own rounding, except where products round their operands. */
static void check_dtype(const char *device, int threads, mr_dtype dtype)
{
    mr_context *ctx = context_with(device, threads, 0), *ref = context_with("ref", 1, 0);
    for (const shape *s = shapes; s < shapes + SHAPES; s++) {
        values got = draw_values(s, 7), want = draw_values(s, 7);
        run_on_host(ctx, s, dtype, &got);
        exact_values(ref, s, dtype == MR_BF16 ? &got : NULL, &want);
        for (int i = INPUTS; i < ARRAYS; i++) {
            const int of_products = i == DX || i == DW || i == DBIAS;
            const double each = dtype == MR_BF16 && array[i].act ? UNIT : 0;
            near_values(device, s, &got, &want, i, each, dtype == MR_BF16 && of_products ? 2 * UNIT : 2e-5);
        }
        free_values(&got), free_values(&want);
    }
    mr_context_free(ctx), mr_context_free(ref);
}

static void f32_and_bf16_agree_with_f64(void **state)
{
    (void)state;
    check_dtype("ref", 1, MR_F32);
    check_dtype("ref", 1, MR_BF16);
    check_dtype("cpu", 1, MR_F32);
    check_dtype("cpu", 3, MR_BF16);
}

/* A workspace for one call alone is enough for it, and gives the same bits. */
static void check_least_workspace(const char *device, mr_dtype dtype)
{
    mr_context *ctx = context_with(device, 1, 0);
    for (const shape *s = shapes; s < shapes + SHAPES; s++) {
        if (s->given) continue;
        values want = draw_values(s, 7), got = draw_values(s, 7);
        raw_run r = new_run(ctx, &host, s, dtype, NULL);
        for (int least = 0; least < 2; least++) {
            put_arrays(&r, &want, 0, ARRAYS);
            if (least) run_with_least(&r);
            else run_forward(&r), run_backward(&r);
            get_outputs(&r, least ? &got : &want);
        }
        same_values(device, s, &got, &want);
        free_run(&r), free_values(&got), free_values(&want);
    }
    mr_context_free(ctx);
}

static void a_workspace_for_one_call_is_enough_for_it(void **state)
{
    (void)state;
    check_least_workspace("ref", MR_F64);
    check_least_workspace("cpu", MR_F32);
    check_least_workspace("cpu", MR_BF16);
}

/* ---- gradients in double ---- */

static double loss_of(mr_context *ref, const shape *s, values *v)
{
    raw_run r = new_run(ref, &host, s, MR_F64, NULL);
    double sum = 0;
    put_arrays(&r, v, 0, ARRAYS);
    run_forward(&r);
    get_outputs(&r, v);
    for (size_t i = 0; i < count_of(s, H); i++) sum += v->of[H][i] * v->of[DH][i];
    for (size_t i = 0; i < count_of(s, H_OUT); i++) sum += v->of[H_OUT][i] * v->of[DH_OUT][i];
    free_run(&r);
    return sum;
}

static void check_differences(mr_context *ref, const shape *s)
{
    static const int pairs[][2] = {{X, DX}, {W, DW},  {BIAS, DBIAS}, {PRE, DPRE},
                                   {A, DA}, {B_, DB}, {H_IN, DH_IN}, {H_INIT, DH_INIT}};
    values v = draw_values(s, 3), gradients = draw_values(s, 3);
    run_on_host(ref, s, MR_F64, &gradients);
    for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++)
        for (size_t i = 0; i < count_of(s, pairs[p][0]); i++) {
            double *x = &v.of[pairs[p][0]][i], was = *x, step = 1e-5, got = gradients.of[pairs[p][1]][i];
            *x = was + step;
            const double up = loss_of(ref, s, &v);
            *x = was - step;
            const double down = loss_of(ref, s, &v), want = (up - down) / (2 * step);
            *x = was;
            if (!(fabs(got - want) <= 1e-7 * fmax(1, fabs(want))))
                fail_msg("%s: %s[%zu] is %.12g, by differences %.12g", s->name, array[pairs[p][1]].name, i, got, want);
        }
    free_values(&v), free_values(&gradients);
}

static void gradients_in_double_agree_with_differences(void **state)
{
    (void)state;
    mr_context *ref = context_with("ref", 1, 0);
    for (const shape *s = shapes; s < shapes + SHAPES; s++)
        if (count_of(s, H) < 200) check_differences(ref, s);
    mr_context_free(ref);
}

/* ---- rounding ---- */

static double bits_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* h is h_in·1 + 0, rounded once: ties go to even, too large numbers become infinite, NaN stays NaN. */
static void bf16_rounds_to_nearest_even(void **state)
{
    (void)state;
    static const struct {
        uint32_t wide;
        uint16_t narrow;
    } known[] = {
        {0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f818000, 0x3f82}, {0x3f808001, 0x3f81},
        {0x3f807fff, 0x3f80}, {0xbf818000, 0xbf82}, {0x7f7fffff, 0x7f80}, {0x7f800000, 0x7f80},
        {0xff800000, 0xff80}, {0x7fc00000, 0},      {0xffffffff, 0},      {0, 0},
        {0x80000000, 0x8000},
    };
    enum { N = sizeof known / sizeof *known };
    const shape s = {.name = "rounding", .given = 1, .B = 1, .T = 1, .H = N, .carried = 1};
    const char *const devices[] = {"cpu", "ref"};
    for (int d = 0; d < 2; d++) {
        mr_context *ctx = context_on(devices[d]);
        values v = new_values(&s);
        raw_run r = new_run(ctx, &host, &s, MR_BF16, NULL);
        for (int i = 0; i < N; i++) v.of[A][i] = 1, v.of[B_][i] = -0.0, v.of[H_IN][i] = bits_of(known[i].wide);
        put_arrays(&r, &v, 0, ARRAYS);
        run_forward(&r);
        for (int i = 0; i < N; i++) {
            const uint16_t got = ((const uint16_t *)r.at[H])[i];
            const int nan = known[i].narrow == 0 && known[i].wide != 0;
            if (nan ? !isnan(from_bf16(got)) : got != known[i].narrow)
                fail_msg("%s: %08x became %04x", devices[d], known[i].wide, got);
        }
        free_run(&r);
        free_values(&v);
        mr_context_free(ctx);
    }
}

/* ---- contexts ---- */

/* A call's dtype holds for that call only: neither the context's bf16 nor a call with another
 * dtype in between changes it. */
static void the_dtype_is_the_calls_own(void **state)
{
    (void)state;
    mr_context *plain = context_with("cpu", 1, 0), *half = context_with("cpu", 1, 1);
    for (const shape *s = shapes; s < shapes + SHAPES; s++)
        for (int dtype = MR_F32; dtype <= MR_BF16; dtype++) {
            values one = draw_values(s, 5), other = draw_values(s, 5);
            run_on_host(plain, s, dtype, &one);
            run_on_host(half, s, dtype, &other);
            same_values("bf16 context", s, &other, &one);
            free_values(&one), free_values(&other);
        }
    mr_context_free(plain), mr_context_free(half);
}

typedef struct share {
    mr_context *ctx;
    mr_dtype dtype;
    uint32_t seed;
    values want, got;
} share;

static void *many_times(void *arg)
{
    share *my = arg;
    for (int i = 0; i < 20; i++) {
        free_values(&my->got);
        my->got = draw_values(&shapes[7], my->seed);
        run_on_host(my->ctx, &shapes[7], my->dtype, &my->got);
    }
    return NULL;
}

static void check_threads(const char *device, mr_dtype first, mr_dtype second)
{
    enum { THREADS = 4 };
    mr_context *ctx = context_on(device);
    pthread_t threads[THREADS];
    share shares[THREADS];
    for (int i = 0; i < THREADS; i++) {
        shares[i] = (share){ctx, i % 2 ? second : first, (uint32_t)i + 1, draw_values(&shapes[7], (uint32_t)i + 1),
                            new_values(&shapes[7])};
        run_on_host(ctx, &shapes[7], shares[i].dtype, &shares[i].want);
    }
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, many_times, &shares[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        same_values(device, &shapes[7], &shares[i].got, &shares[i].want);
        free_values(&shares[i].got), free_values(&shares[i].want);
    }
    mr_context_free(ctx);
}

static void threads_call_at_the_same_time(void **state)
{
    (void)state;
    check_threads("cpu", MR_F32, MR_BF16);
    check_threads("ref", MR_F64, MR_BF16);
}

/* ---- memory ---- */

static void *counting_alloc(void *user, size_t bytes)
{
    atomic_fetch_add((atomic_long *)user, 1);
    return malloc(bytes);
}

static void counting_release(void *user, void *p)
{
    atomic_fetch_add((atomic_long *)user, 1);
    free(p);
}

static void check_no_allocation(const char *device, mr_dtype dtype)
{
    atomic_long calls = 0;
    mr_context_options options = MR_CONTEXT_OPTIONS;
    mr_context *ctx;
    mr_allocator counting = MR_ALLOCATOR;
    counting.alloc = counting_alloc, counting.release = counting_release, counting.user = &calls;
    options.device = device, options.threads = 2, options.allocator = &counting;
    OK(mr_context_new(&options, &ctx, &err));
    for (const shape *s = shapes; s < shapes + SHAPES; s++) {
        values v = draw_values(s, 9);
        raw_run r = new_run(ctx, &host, s, dtype, NULL);
        put_arrays(&r, &v, 0, ARRAYS);
        run_forward(&r), run_backward(&r);
        const long warm = calls;
        assert_that(warm, >, 0);
        for (int i = 0; i < 3; i++) run_forward(&r), run_backward(&r);
        if (calls != warm) fail_msg("%s: %s allocates %ld times after its first call", device, s->name, calls - warm);
        free_run(&r);
        free_values(&v);
    }
    mr_context_free(ctx);
}

static void nothing_is_allocated_after_the_first_call(void **state)
{
    (void)state;
    check_no_allocation("cpu", MR_F32);
    check_no_allocation("cpu", MR_BF16);
    check_no_allocation("ref", MR_BF16);
    check_no_allocation("ref", MR_F64);
}

/* Calls use nothing outside saved and workspace, and keep nothing in the workspace between calls. */
static void calls_stay_inside_saved_and_workspace(void **state)
{
    (void)state;
    mr_context *ctx = context_with("cpu", 3, 0);
    for (const shape *s = shapes; s < shapes + SHAPES; s++) {
        values one = draw_values(s, 9), other = draw_values(s, 9);
        raw_run r = new_run(ctx, &host, s, MR_BF16, NULL);
        void *workspace = r.scan.workspace, *saved = r.cell.saved;
        fenced f, kept;
        r.scan.workspace = r.cell.workspace = fence(&f, r.scan.workspace_size + r.cell.workspace_size);
        r.cell.saved = fence(&kept, r.cell.saved_size);
        put_arrays(&r, &one, 0, ARRAYS);
        run_forward(&r);
        memset(r.scan.workspace, 0xff, f.size);
        run_backward(&r);
        get_outputs(&r, &one);
        check_fence(&f), check_fence(&kept);
        r.scan.workspace = workspace, r.cell.saved = saved;
        free_run(&r);
        run_on_host(ctx, s, MR_BF16, &other);
        same_values("another workspace", s, &one, &other);
        free_values(&one), free_values(&other);
    }
    mr_context_free(ctx);
}

/* da may be a, db dh, dpre pre, and h_out h_in. */
static void check_in_place(mr_context *ctx, const shape *s, mr_dtype dtype)
{
    static const int pairs[][2] = {{A, DA}, {DH, DB}, {PRE, DPRE}};
    values apart = draw_values(s, 2), over = draw_values(s, 2), last = draw_values(s, 2);
    run_on_host(ctx, s, dtype, &apart);
    raw_run r = new_run(ctx, &host, s, dtype, NULL);
    put_arrays(&r, &over, 0, ARRAYS);
    run_forward(&r);
    r.scan.da = r.at[A], r.scan.db = r.at[DH], r.cell.dpre = r.at[PRE];
    run_backward(&r);
    get_outputs(&r, &over);
    for (int i = 0; i < 3; i++) {
        const int from = pairs[i][0], to = pairs[i][1];
        decode(dtype, to, over.of[to], r.at[from], count_of(s, to));
    }
    same_values("in place", s, &over, &apart);
    if (s->carried) {
        put_arrays(&r, &last, 0, INPUTS);
        r.scan.h_out = r.cell.h_out = r.at[H_IN];
        run_forward(&r);
        decode(dtype, H_OUT, over.of[H_OUT], r.at[H_IN], count_of(s, H_OUT));
        same_values("h_out over h_in", s, &over, &apart);
    }
    free_run(&r);
    free_values(&apart), free_values(&over), free_values(&last);
}

static void outputs_may_overwrite_inputs(void **state)
{
    (void)state;
    mr_context *ctx = context_with("cpu", 2, 0);
    for (const shape *s = shapes; s < shapes + SHAPES; s++)
        for (int dtype = MR_F32; dtype <= MR_BF16; dtype++) check_in_place(ctx, s, (mr_dtype)dtype);
    mr_context_free(ctx);
}

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    mr_context *cpu = context_on("cpu"), *ref = context_on("ref"), *wide = context_on("ref64");
    const shape *s = &shapes[0], *c = &shapes[5];
    raw_run scan = new_run(cpu, &host, s, MR_BF16, NULL), cell = new_run(cpu, &host, c, MR_BF16, NULL);
    mr_scan_args a = scan.scan;
    a.dtype = (mr_dtype)7;
    FAILS(MR_EINVAL, "dtype = 7", mr_scan_forward(cpu, &a, &err));
    assert_int_equal(mr_scan_workspace(cpu, &a), 0);
    a.dtype = (mr_dtype)-1;
    FAILS(MR_EINVAL, "dtype = -1", mr_scan_backward(cpu, &a, &err));
    a.dtype = MR_F64;
    FAILS(MR_EINVAL, "device = \"ref\"", mr_scan_forward(cpu, &a, &err));
    assert_int_equal(mr_scan_workspace(cpu, &a), 0);
    a = scan.scan, a.stream = &a;
    FAILS(MR_EINVAL, "stream", mr_scan_forward(cpu, &a, &err));
    FAILS(MR_EINVAL, "stream", mr_scan_forward(ref, &a, &err));
    FAILS(MR_EINVAL, "only in double", mr_scan_forward(wide, &scan.scan, &err));
    a = scan.scan, a.a = (const char *)a.a + 1;
    FAILS(MR_EINVAL, "a: must be aligned to 2", mr_scan_forward(cpu, &a, &err));
    a = scan.scan, a.h_in = (const char *)a.h_in + 2;
    FAILS(MR_EINVAL, "h_in: must be aligned to 4", mr_scan_forward(cpu, &a, &err));
    a = scan.scan, a.workspace_size--;
    FAILS(MR_EINVAL, "workspace", mr_scan_forward(cpu, &a, &err));
    a.dtype = MR_F32;
    assert_that(mr_scan_workspace(cpu, &a), <, scan.scan.workspace_size);
    mr_cell_args b = cell.cell;
    b.saved_size--;
    FAILS(MR_EINVAL, "saved", mr_cell_forward(cpu, &b, &err));
    b = cell.cell, b.saved = NULL;
    FAILS(MR_EINVAL, "saved: 0 bytes", mr_cell_backward(cpu, &b, &err));
    b = cell.cell, b.saved = (char *)b.saved + 8;
    FAILS(MR_EINVAL, "aligned to 64", mr_cell_forward(cpu, &b, &err));
    b = cell.cell, b.workspace_size--;
    FAILS(MR_EINVAL, "workspace", mr_cell_backward(cpu, &b, &err));
    b = cell.cell, b.dh_init = b.dh_in; /* this cell has no h_init */
    FAILS(MR_EINVAL, "without h_init", mr_cell_backward(cpu, &b, &err));
    b = cell.cell, b.dtype = MR_F64;
    FAILS(MR_EINVAL, "device = \"ref\"", mr_cell_forward(cpu, &b, &err));
    b = cell.cell, b.B = 1 << 20, b.T = 1 << 10, b.H = 1 << 20;
    FAILS(MR_EINVAL, "H = 1048576", mr_cell_forward(cpu, &b, &err));
    free_run(&scan), free_run(&cell);
    mr_context_free(cpu), mr_context_free(ref), mr_context_free(wide);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f32_and_bf16_agree_with_f64),
        cmocka_unit_test(a_workspace_for_one_call_is_enough_for_it),
        cmocka_unit_test(gradients_in_double_agree_with_differences),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
        cmocka_unit_test(the_dtype_is_the_calls_own),
        cmocka_unit_test(threads_call_at_the_same_time),
        cmocka_unit_test(nothing_is_allocated_after_the_first_call),
        cmocka_unit_test(calls_stay_inside_saved_and_workspace),
        cmocka_unit_test(outputs_may_overwrite_inputs),
        cmocka_unit_test(wrong_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
