/* The check itself: its cases cover what they must, correct devices pass and wrong ones do not. */
#include "assert_that.h"
#include "ops/check/check.h"
#include "ops/check/group.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void count_row(void *arg, const mr_check_row *row)
{
    if (row->misses) fprintf(stderr, "%s %s: %ld misses, worst %g\n", row->op, row->isa, row->misses, row->worst);
    assert_that(row->ns_per_element, >, 0);
    ++*(int *)arg;
}

static void show_miss(void *arg, const char *line)
{
    (void)arg;
    fprintf(stderr, "miss: %s\n", line);
}

static void every_op_passes(const char *device, int bf16)
{
    int rows = 0;
    mr_error err = {0};
    mr_check_result result;
    mr_check_options options = {
        .device = device, .bf16 = bf16, .cases = 20, .on_row = count_row, .on_miss = show_miss, .arg = &rows};
    assert_int_equal(mr_check_run(&options, &result, &err), 0);
    assert_that(rows, >=, MR_OP_COUNT);
    assert_that(result.cases, >=, 20 * MR_OP_COUNT);
    assert_int_equal(result.misses, 0);
}

static void ref64_passes(void **state)
{
    (void)state;
    every_op_passes("ref64", 0);
}
static void cpu_passes(void **state)
{
    (void)state;
    every_op_passes("cpu", 0);
}
static void cpu_passes_in_bf16(void **state)
{
    (void)state;
    every_op_passes("cpu", 1);
}

static void every_mutation_is_caught(void **state)
{
    (void)state;
    mr_error err = {0};
    mr_check_result result;
    mr_check_options options = {.device = "ref64", .on_miss = show_miss};
    assert_int_equal(mr_check_mutate(&options, &result, &err), 0);
    assert_that(result.mutants, >=, 30 * MR_OP_COUNT);
    assert_int_equal(result.caught, result.mutants);
}

/* bf16 has the widest tolerance. */
static void bf16_does_not_hide_mutations(void **state)
{
    (void)state;
    mr_error err = {0};
    mr_check_result result;
    mr_check_options options = {.bf16 = 1, .op = "minrnn_bwd", .isa = mr_cpu_isas()[0], .on_miss = show_miss};
    assert_int_equal(mr_check_mutate(&options, &result, &err), 0);
    assert_that(result.mutants, >=, 30);
    assert_int_equal(result.caught, result.mutants);
}

/* Cases for stored bf16: activations and operands of products have 8 significant bits, other parameters keep all. */
static void stored_bf16_is_exact(void **state)
{
    (void)state;
    static const struct {
        int op;
        const char *name;
        int narrow;
    } wanted[] = {{MR_OP_linear_fwd, "x", 1}, {MR_OP_linear_fwd, "W", 1}, {MR_OP_minrnn_bwd, "dh", 1},
                  {MR_OP_minrnn_bwd, "b", 1}, {MR_OP_conv_fwd, "x", 1},   {MR_OP_conv_fwd, "b", 0},
                  {MR_OP_norm_fwd, "w", 0},   {MR_OP_minrnn_bwd, "dW", 0}};
    for (int k = 0; k < 8; k++) {
        int wide = 0, seen = 0;
        for (uint64_t seed = 7; seed < 20 && !seen; seed++) { /* not every case has the buffer, or numbers in it */
            mr_case c;
            assert_int_equal(mr_case_draw(&c, wanted[k].op, seed, MR_CASE_STORED_BF16), 0);
            for (mr_case_buffer *b = c.buffers; b < c.buffers + c.buffer_count; b++)
                for (size_t i = 0; !strcmp(b->name, wanted[k].name) && i < b->count; i++) {
                    uint32_t bits;
                    memcpy(&bits, (float *)b->data + i, sizeof bits);
                    if (isnan(((float *)b->data)[i])) continue;
                    wide |= (bits & 0xffff) != 0, seen = 1;
                }
            mr_case_free(&c);
        }
        assert_true(seen);
        assert_int_equal(!wide, wanted[k].narrow);
    }
}

/* Allowed: u times a stored number, inner roundings times the largest one, and nothing for what stays in fp32. */
static void stored_bf16_allows_what_it_says(void **state)
{
    (void)state;
    const mr_case c = {.bf16 = 1, .inner = 4, .tolerance = 1e-6}, plain = {.inner = 4, .tolerance = 1e-6};
    const mr_case_buffer act = {.type = MR_CASE_ACT}, real = {.type = MR_CASE_REAL};
    assert_that(fabs(mr_case_allows(&c, &act, -3, 10) - (1e-5 + 40.0 / 256 + 3.0 / 256)), <=, 1e-15);
    assert_that(fabs(mr_case_allows(&c, &real, -3, 10) - (1e-5 + 40.0 / 256)), <=, 1e-15);
    assert_that(fabs(mr_case_allows(&plain, &act, -3, 10) - (1e-5)), <=, 1e-15);
}

static void keep_line(void *arg, const char *line) { snprintf(arg, 512, "%s", line); }

static void leaves_one_out(mr_dev *dev, const mr_embed_fwd_args *args)
{
    mr_embed_fwd_args fewer = *args;
    fewer.N--;
    mr_dev *sound;
    assert_int_equal(mr_dev_open("ref64", NULL, &sound, NULL), 0);
    sound->ops.embed_fwd(sound, &fewer);
    mr_dev_close(sound);
    (void)dev;
}

/* The report of a miss says where it was and how to repeat it. */
static void a_miss_is_reported(void **state)
{
    (void)state;
    char line[512] = "";
    mr_error err = {0};
    mr_check_result result;
    mr_check_row row = {0};
    mr_check_options options = {.device = "ref64", .on_miss = keep_line, .arg = line};
    mr_check k = {.options = &options, .result = &result};
    assert_int_equal(mr_check_open(&k, &err), 0);
    assert_int_equal(mr_check_case(&k, MR_OP_embed_fwd, 3, &row, &err), 0);
    assert_int_equal(row.misses, 0);
    k.groups[0].devices[0].dev->ops.embed_fwd = leaves_one_out;
    assert_int_equal(mr_check_case(&k, MR_OP_embed_fwd, 3, &row, &err), 0);
    assert_int_equal(row.misses, 1);
    assert_non_null(strstr(line, "embed_fwd ref64 threads=1 seed=3"));
    assert_non_null(strstr(line, "y["));
    assert_non_null(strstr(line, "is nan, expected"));
    mr_check_close(&k);
}

static void wrong_requests_are_refused(void **state)
{
    (void)state;
    mr_error err = {0};
    mr_check_result result;
    const mr_check_options wrong[] = {{.device = "ref64", .op = "nothing", .cases = 1},
                                      {.device = "ref64", .isa = "avx2", .cases = 1},
                                      {.device = "nowhere", .cases = 1},
                                      {.isa = "abacus", .cases = 1}};
    static const char *const named[] = {"nothing", "--isa", "nowhere", "abacus"};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(mr_check_run(&wrong[i], &result, &err), MR_EINVAL);
        assert_non_null(strstr(err.text, named[i]));
    }
}

static void a_seed_is_a_case(void **state)
{
    (void)state;
    mr_case a, b;
    for (int op = 0; op < MR_OP_COUNT; op++) {
        assert_int_equal(mr_case_draw(&a, op, 5, 0), 0);
        assert_int_equal(mr_case_draw(&b, op, 5, 0), 0);
        assert_string_equal(a.shape, b.shape);
        assert_int_equal(a.buffer_count, b.buffer_count);
        for (int i = 0; i < a.buffer_count; i++)
            if (a.buffers[i].type == MR_CASE_ACT)
                assert_memory_equal(a.buffers[i].data, b.buffers[i].data, a.buffers[i].count * sizeof(float));
        mr_case_free(&a);
        mr_case_free(&b);
    }
}

/* The quick check covers widths 1 … 2·16+3, every kind of cell, and each option on and off. */
static void quick_covers_what_it_must(void **state)
{
    (void)state;
    int widths[36] = {0}, cells[2][3][2][2] = {{{{0}}}}, with_sign[2][3][2] = {{{0}}}, long_time = 0;
    int given[6] = {0}, cases = 0;
    for (uint64_t seed = 0; seed < MR_CHECK_QUICK; seed++) {
        mr_case c;
        assert_int_equal(mr_case_draw(&c, MR_OP_minrnn_bwd, seed, 0), 0);
        const mr_minrnn_bwd_args *a = &c.args.minrnn_bwd;
        static const char *const optional[] = {"h_in", "h_init", "reset", "length", "dh_out", "dh_in"};
        if (a->H < 36) widths[a->H] = 1;
        if (a->cell.transition == MR_TRANSITION_POSITIVE)
            cells[a->cell.kind][a->cell.candidate][a->cell.scan][a->cell.normalize]++;
        else with_sign[a->cell.kind][a->cell.candidate][a->cell.normalize] += a->cell.scan == MR_SCAN_LINEAR;
        long_time |= a->T >= 1000;
        cases++;
        for (int i = 0; i < c.buffer_count; i++)
            for (int k = 0; k < 6; k++) given[k] += !strcmp(c.buffers[i].name, optional[k]);
        mr_case_free(&c);
    }
    for (int width = 1; width <= 35; width++) assert_int_equal(widths[width], 1);
    for (int candidate = 0; candidate < 3; candidate++) {
        assert_that(cells[MR_MINGRU][candidate][MR_SCAN_LINEAR][0], >, 0);
        assert_that(cells[MR_MINLSTM][candidate][MR_SCAN_LINEAR][0], >, 0);
        assert_that(cells[MR_MINLSTM][candidate][MR_SCAN_LINEAR][1], >, 0);
        assert_that(with_sign[MR_MINGRU][candidate][0], >, 0);
        assert_that(with_sign[MR_MINLSTM][candidate][0], >, 0);
        assert_that(with_sign[MR_MINLSTM][candidate][1], >, 0);
        assert_int_equal(candidate != MR_POSITIVE && cells[MR_MINLSTM][candidate][MR_SCAN_LOG][1], 0);
    }
    assert_that(cells[MR_MINGRU][MR_POSITIVE][MR_SCAN_LOG][0], >, 0);
    assert_that(cells[MR_MINLSTM][MR_POSITIVE][MR_SCAN_LOG][1], >, 0);
    assert_true(long_time);
    for (int k = 0; k < 6; k++) assert_in_range(given[k], 1, cases - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quick_covers_what_it_must),
        cmocka_unit_test(a_seed_is_a_case),
        cmocka_unit_test(a_miss_is_reported),
        cmocka_unit_test(wrong_requests_are_refused),
        cmocka_unit_test(ref64_passes),
        cmocka_unit_test(cpu_passes),
        cmocka_unit_test(cpu_passes_in_bf16),
        cmocka_unit_test(every_mutation_is_caught),
        cmocka_unit_test(bf16_does_not_hide_mutations),
        cmocka_unit_test(stored_bf16_is_exact),
        cmocka_unit_test(stored_bf16_allows_what_it_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
