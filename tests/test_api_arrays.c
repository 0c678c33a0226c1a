/* The arrays of raw calls: which are needed, where they may lie, and how large they may be. */
#define HOST_MEMORY
#include "raw_support.h"

#include <stdio.h>

static const shape shapes[] = {
    {.name = "scan", .given = 1, .B = 2, .T = 9, .H = 5, .masked = 1, .carried = 1},
    {.name = "minGRU of given gates", .B = 3, .T = 9, .H = 5, .masked = 1},
    {.name = "minGRU", .B = 3, .T = 9, .D = 4, .H = 5, .candidate = MR_TANH, .masked = 1, .carried = 1},
    {.name = "minLSTM", .B = 2, .T = 8, .D = 7, .H = 3, .kind = MR_MINLSTM, .masked = 1},
};

enum { SHAPES = sizeof shapes / sizeof *shapes };

/* One element too many, or one row too few, and the largest that is still taken. */
static void shapes_have_limits(void **state)
{
    (void)state;
    static const struct {
        int B, T, D, H;
        const char *wrong; /* NULL: fits */
    } cases[] = {
        {1, 1, 1, 1, NULL},
        {0, 1, 1, 1, "B = 0"},
        {1, 0, 1, 1, "T = 0"},
        {1, 1, 1, 0, "H = 0"},
        {1, 1, 0, 1, "D = 0"},
        {1, 1, -1, 1, "D = -1"},
        {-1, -1, 1, 1, "B = -1"},
        {1 << 16, 1 << 15, 1, 1, "B = 65536"}, /* B·T = 2³¹ */
        {1 << 15, 1 << 15, 1, 1 << 9, NULL},   /* 2³⁰ tokens of 2 gates of 2⁹: 2⁴⁰ elements */
        {1 << 15, 1 << 15, 1, (1 << 9) + 1, "H = 513"},
        {1 << 15, 1 << 15, 1 << 10, 1, NULL}, /* 2³⁰ tokens of 2¹⁰ */
        {1 << 15, 1 << 15, (1 << 10) + 1, 1, "D = 1025"},
        {1, 1, 1 << 20, 1 << 19, NULL}, /* a matrix of 2⁴⁰ */
        {1, 1, (1 << 20) + 1, 1 << 19, "D = 1048577"},
        {1, 1, 1, 1 << 29, "H = 536870912"}, /* more than half of what an int counts */
        {1, 1, 1, (1 << 29) - 1, NULL},
    };
    mr_context *cpu = context_on("cpu");
    float any[16] = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_cell_args a = MR_CELL_ARGS;
        mr_error err = {0};
        a.B = cases[i].B, a.T = cases[i].T, a.D = cases[i].D, a.H = cases[i].H, a.W = (mr_wide *)any;
        /* without a workspace every call is refused; here it matters what for */
        assert_int_equal(mr_cell_forward(cpu, &a, &err), MR_EINVAL);
        const char *wanted = cases[i].wrong ? cases[i].wrong : "workspace: 0 bytes";
        if (!strstr(err.text, wanted)) fail_msg("case %zu: %s", i, err.text);
    }
    mr_context_free(cpu);
}

/* Points the arguments to the arrays again, after one of them moved. */
static void point_again(raw_run *r)
{
    const mr_cell_args cell = r->cell;
    const mr_scan_args scan = r->scan;
    point_scan(r), point_cell(r);
    r->scan.workspace = scan.workspace, r->scan.workspace_size = scan.workspace_size;
    r->cell.workspace = cell.workspace, r->cell.workspace_size = cell.workspace_size;
    r->cell.saved = cell.saved, r->cell.saved_size = cell.saved_size;
}

/* Forward or backward with an array somewhere else: succeeds (why is NULL), or is refused for it. */
static void call_with(raw_run *r, int backward, int which, void *at, const char *why)
{
    void *const before = r->at[which];
    mr_error err = {0};
    char wanted[64] = "";
    r->at[which] = at, point_again(r);
    int status = r->s.given ? (backward ? mr_scan_backward : mr_scan_forward)(r->ctx, &r->scan, &err)
                            : (backward ? mr_cell_backward : mr_cell_forward)(r->ctx, &r->cell, &err);
    if (why) snprintf(wanted, sizeof wanted, why, array[which].name, (int)element_size(r->dtype, which));
    if (status != (why ? MR_EINVAL : 0) || !strstr(err.text, wanted))
        fail_msg("%s, dtype %d, %s, %s: %d: %s, wanted \"%s\"", r->s.name, (int)r->dtype,
                 backward ? "backward" : "forward", array[which].name, status, err.text, wanted);
    r->at[which] = before, point_again(r);
}

static int is_needed(int which, int backward)
{
    switch (which) {
    case X:
    case A:
    case H: return 1;
    case B_: return !backward;
    case DW:
    case DBIAS:
    case DPRE:
    case DA:
    case DB:
    case DH: return backward;
    default: return 0;
    }
}

/* Each array lies at a multiple of its elements' size, and any such place will do; some may be left out. */
static void arrays_are_needed_and_aligned(void **state)
{
    (void)state;
    mr_context *cpu = context_on("cpu"), *ref = context_on("ref");
    for (int i = 0; i < SHAPES * 3; i++) {
        const shape *s = &shapes[i / 3];
        const mr_dtype dtype = (mr_dtype[]){MR_F32, MR_BF16, MR_F64}[i % 3];
        raw_run r = new_run(dtype == MR_F64 ? ref : cpu, &host, s, dtype, NULL);
        for (int which = 0; which < ARRAYS; which++) {
            const size_t size = element_size(dtype, which);
            for (int backward = 0; backward <= 1 && r.at[which]; backward++) {
                call_with(&r, backward, which, (char *)r.at[which] + size, NULL);
                call_with(&r, backward, which, (char *)r.at[which] + size / 2, "%s: must be aligned to %d bytes");
                if (which == PRE) call_with(&r, backward, which, NULL, "pre and W are NULL: one of them is needed");
                else if (which != W && which != H_INIT)
                    call_with(&r, backward, which, NULL, is_needed(which, backward) ? "%s is NULL" : NULL);
            }
        }
        free_run(&r);
    }
    mr_context_free(cpu), mr_context_free(ref);
}

static int same_array(const raw_run *a, const raw_run *b, int which)
{
    const size_t n = count_of(&a->s, which);
    return !n || !memcmp(a->at[which], b->at[which], n * element_size(a->dtype, which));
}

static void a_cell_without_bias_is_one_with_zeros(void **state)
{
    (void)state;
    mr_context *cpu = context_on("cpu"), *ref = context_on("ref");
    for (int i = 0; i < SHAPES * 3; i++) {
        const shape *s = &shapes[i / 3];
        const mr_dtype dtype = (mr_dtype[]){MR_F32, MR_BF16, MR_F64}[i % 3];
        if (s->given || !count_of(s, BIAS)) continue;
        mr_context *ctx = dtype == MR_F64 ? ref : cpu;
        raw_run with = new_run(ctx, &host, s, dtype, NULL), without = new_run(ctx, &host, s, dtype, NULL);
        values v = draw_values(s, 5);
        memset(v.of[BIAS], 0, count_of(s, BIAS) * sizeof(double));
        raw_run *const both[] = {&with, &without};
        for (int k = 0; k < 2; k++) {
            put_arrays(both[k], &v, 0, ARRAYS);
            if (k) both[k]->cell.bias = NULL, both[k]->cell.dbias = NULL;
            run_forward(both[k]), run_backward(both[k]);
        }
        for (int which = INPUTS; which < ARRAYS; which++)
            if (which != DBIAS && !same_array(&with, &without, which))
                fail_msg("%s, dtype %d: %s differs without bias", s->name, (int)dtype, array[which].name);
        free_values(&v);
        free_run(&with), free_run(&without);
    }
    mr_context_free(cpu), mr_context_free(ref);
}

/* Sums start from zero where gradients are to be overwritten, and a dx that nobody needs changes nothing else. */
static void fresh_gradients_are_sums_from_zero(void **state)
{
    (void)state;
    mr_context *cpu = context_on("cpu"), *ref = context_on("ref");
    for (int i = 0; i < SHAPES * 3; i++) {
        const shape *s = &shapes[i / 3];
        const mr_dtype dtype = (mr_dtype[]){MR_F32, MR_BF16, MR_F64}[i % 3];
        if (s->given) continue;
        mr_context *ctx = dtype == MR_F64 ? ref : cpu;
        values v = draw_values(s, 6);
        raw_run added = new_run(ctx, &host, s, dtype, NULL), fresh = new_run(ctx, &host, s, dtype, NULL);
        put_arrays(&added, &v, 0, ARRAYS);
        put_arrays(&fresh, &v, 0, INPUTS); /* the outputs are NaN before */
        fresh.cell.fresh = 1, fresh.cell.dx = NULL;
        run_forward(&added), run_backward(&added);
        run_forward(&fresh), run_backward(&fresh);
        for (int which = INPUTS; which < ARRAYS; which++)
            if (which != DX && !same_array(&added, &fresh, which))
                fail_msg("%s, dtype %d: %s differs if fresh", s->name, (int)dtype, array[which].name);
        free_values(&v);
        free_run(&added), free_run(&fresh);
    }
    mr_context_free(cpu), mr_context_free(ref);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_have_limits),
        cmocka_unit_test(arrays_are_needed_and_aligned),
        cmocka_unit_test(a_cell_without_bias_is_one_with_zeros),
        cmocka_unit_test(fresh_gradients_are_sums_from_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
