/* The scan and the cells on raw buffers, compared with plain loops and finite differences; and what they refuse. */
#define HOST_MEMORY
#include "api_support.h"

enum { B = 2, T = 9, H = 5, D = 4, N = B * T * H };

static const uint8_t resets[B * T] = {[4] = 1, [T] = 1, [T + 7] = 1};
static const int32_t lengths[B] = {T, 6};

typedef struct buffers {
    float a[N], b[N], h[N], dh[N], da[N], db[N], h_in[B * H], h_out[B * H], dh_out[B * H], dh_in[B * H];
    mr_scan_args args;
} buffers;

static void make(buffers *x, int masked)
{
    fill_random(x->a, N, 0.9f, 1), fill_random(x->b, N, 1, 2), fill_random(x->dh, N, 1, 3),
        fill_random(x->h_in, B * H, 1, 4), fill_random(x->dh_out, B * H, 1, 5);
    x->args = (mr_scan_args)MR_SCAN_ARGS;
    x->args.B = B, x->args.T = T, x->args.H = H, x->args.a = x->a, x->args.b = x->b, x->args.h_in = x->h_in;
    x->args.h = x->h, x->args.h_out = x->h_out, x->args.dh = x->dh, x->args.dh_out = x->dh_out;
    x->args.da = x->da, x->args.db = x->db, x->args.dh_in = x->dh_in;
    if (masked) x->args.reset = resets, x->args.length = lengths;
}

/* The recurrence as plain loops. Returns Σ dh·h + Σ dh_out·h_out, whose gradients the backward must give. */
static double plain(const buffers *x, float *h, float *h_out)
{
    double sum = 0;
    for (int b = 0; b < B; b++)
        for (int c = 0; c < H; c++) {
            double state = x->args.h_in ? x->h_in[b * H + c] : 0;
            const int real = x->args.length ? x->args.length[b] : T;
            for (int t = 0; t < T; t++) {
                const int i = (b * T + t) * H + c;
                if (t < real && x->args.reset && x->args.reset[b * T + t]) state = 0;
                if (t < real) state = x->a[i] * state + x->b[i];
                if (h) h[i] = t < real ? (float)state : 0;
                sum += t < real ? x->dh[i] * state : 0;
            }
            if (h_out) h_out[b * H + c] = (float)state;
            sum += x->dh_out[b * H + c] * state;
        }
    return sum;
}

static void check_gradient(const char *what, buffers *x, float *value, const float *gradient, int n)
{
    for (int i = 0; i < n; i++) { /* linear in each number: a wide difference is exact */
        const float was = value[i];
        value[i] = was + 0.25f;
        double up = plain(x, NULL, NULL);
        value[i] = was - 0.25f;
        double down = plain(x, NULL, NULL);
        value[i] = was;
        if (!(fabs((up - down) / 0.5 - gradient[i]) <= 1e-4 * fmax(1, fabs(gradient[i]))))
            fail_msg("%s[%d]: %g, wanted %g", what, i, (double)gradient[i], (up - down) / 0.5);
    }
}

static void check_scan(mr_context *ctx, int masked, int carried)
{
    buffers *x = room(sizeof *x);
    float h[N], h_out[B * H];
    fenced f;
    make(x, masked);
    if (!carried) x->args.h_in = NULL;
    x->args.workspace_size = mr_scan_workspace(ctx, &x->args);
    x->args.workspace = fence(&f, x->args.workspace_size);
    OK(mr_scan_forward(ctx, &x->args, &err));
    OK(mr_context_wait(ctx, &err));
    plain(x, h, h_out);
    near_floats("h", x->h, h, N, 1e-6);
    near_floats("h_out", x->h_out, h_out, B * H, 1e-6);
    OK(mr_scan_backward(ctx, &x->args, &err));
    OK(mr_context_wait(ctx, &err));
    check_gradient("da", x, x->a, x->da, N);
    check_gradient("db", x, x->b, x->db, N);
    if (carried) check_gradient("dh_in", x, x->h_in, x->dh_in, B * H);
    for (int i = 0; !carried && i < B * H; i++) assert_that(x->dh_in[i], ==, 0);
    check_fence(&f);
    free(x);
}

static void the_scan_and_its_gradients_are_right(void **state)
{
    (void)state;
    const char *const devices[] = {"cpu", "ref"};
    for (int i = 0; i < 2; i++) {
        mr_context *ctx = context_on(devices[i]);
        for (int masked = 0; masked < 2; masked++)
            for (int carried = 0; carried < 2; carried++) check_scan(ctx, masked, carried);
        mr_context_free(ctx);
    }
}

/* Step by step, with the state in place, gives the same. */
static void scan_steps_equal_the_whole_scan(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    buffers *x = room(sizeof *x);
    float h[N], now[B * H], a[B * H], b[B * H];
    make(x, 0);
    plain(x, h, NULL);
    memcpy(now, x->h_in, sizeof now);
    mr_scan_args step = MR_SCAN_ARGS;
    step.B = B, step.T = 1, step.H = H, step.a = a, step.b = b, step.h_in = now, step.h = x->h, step.h_out = now;
    step.workspace_size = mr_scan_workspace(ctx, &step);
    step.workspace = aligned_alloc(64, step.workspace_size);
    for (int t = 0; t < T; t++) {
        for (int i = 0; i < B * H; i++)
            a[i] = x->a[(i / H * T + t) * H + i % H], b[i] = x->b[(i / H * T + t) * H + i % H];
        OK(mr_scan_step(ctx, &step, &err));
        for (int i = 0; i < B; i++) near_floats("a step", now + i * H, h + (i * T + t) * H, H, 1e-6);
    }
    step.T = 2;
    FAILS(MR_EINVAL, "T = 2", mr_scan_step(ctx, &step, &err));
    free(step.workspace);
    free(x);
    mr_context_free(ctx);
}

/* A long scan on several threads, which a backend splits in time. */
static void a_long_scan_on_threads_is_right(void **state)
{
    (void)state;
    enum { LONG = 9001, WIDE = 70 };
    mr_context_options options = MR_CONTEXT_OPTIONS;
    mr_context *ctx;
    options.device = "cpu", options.threads = 3;
    OK(mr_context_new(&options, &ctx, &err));
    float *a = room(sizeof *a * LONG * WIDE), *b = room(sizeof *b * LONG * WIDE), *h = room(sizeof *h * LONG * WIDE);
    fill_random(a, LONG * WIDE, 1, 6), fill_random(b, LONG * WIDE, 1, 7);
    fenced f;
    mr_scan_args args = MR_SCAN_ARGS;
    args.B = 1, args.T = LONG, args.H = WIDE, args.a = a, args.b = b, args.h = h;
    args.workspace_size = mr_scan_workspace(ctx, &args);
    args.workspace = fence(&f, args.workspace_size);
    OK(mr_scan_forward(ctx, &args, &err));
    for (int c = 0; c < WIDE; c++) {
        double now = 0;
        for (int t = 0; t < LONG; t++) {
            now = a[t * WIDE + c] * now + b[t * WIDE + c];
            if (!(fabs(h[t * WIDE + c] - now) <= 1e-5))
                fail_msg("h[%d] is %g, wanted %g", t, (double)h[t * WIDE + c], now);
        }
    }
    args.dh = b, args.da = a, args.db = b; /* in place */
    OK(mr_scan_backward(ctx, &args, &err));
    check_fence(&f);
    free(a), free(b), free(h);
    mr_context_free(ctx);
}

/* ---- cells ---- */

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static void cells_of_given_gates_are_right(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    float pre[B * T * 2 * H], h[N], want[N];
    fenced f;
    fill_random(pre, B * T * 2 * H, 3, 8);
    mr_cell_args args = MR_CELL_ARGS;
    args.candidate = MR_TANH;
    args.B = B, args.T = T, args.H = H, args.pre = pre, args.h = h;
    args.workspace_size = mr_cell_workspace(ctx, &args);
    args.workspace = fence(&f, args.workspace_size);
    OK(mr_cell_forward(ctx, &args, &err));
    for (int b = 0; b < B; b++)
        for (int c = 0; c < H; c++) {
            double now = 0;
            for (int t = 0; t < T; t++) {
                const float *q = pre + (b * T + t) * 2 * H + c;
                now = sigmoid(-q[0]) * now + sigmoid(q[0]) * tanh(q[H]);
                want[(b * T + t) * H + c] = (float)now;
            }
        }
    near_floats("h of minGRU", h, want, N, 1e-5);
    check_fence(&f);
    mr_context_free(ctx);
}

/* With W the call projects too; without W the caller does. Both give the same results and gradients. */
static void a_cell_with_w_projects_by_itself(void **state)
{
    (void)state;
    enum { G = 3, WIDE = G * H };
    mr_context *ctx = context_on("cpu");
    float x[B * T * D], W[WIDE * D], bias[WIDE], h_init[H], pre[B * T * WIDE], dpre[B * T * WIDE], h[2][N], dh[N];
    float dx[B * T * D], dW[WIDE * D], dbias[WIDE], dh_init[2][H], want_dx[B * T * D], want_dW[WIDE * D],
        want_dbias[WIDE];
    fenced f[2], kept[2];
    fill_random(x, B * T * D, 1, 1), fill_random(W, WIDE * D, 1, 2), fill_random(bias, WIDE, 1, 3),
        fill_random(h_init, H, 1, 4), fill_random(dh, N, 1, 5);
    memset(dW, 0, sizeof dW), memset(dbias, 0, sizeof dbias), memset(dh_init, 0, sizeof dh_init);
    for (int n = 0; n < B * T; n++)
        for (int j = 0; j < WIDE; j++) {
            double sum = bias[j];
            for (int d = 0; d < D; d++) sum += x[n * D + d] * W[j * D + d];
            pre[n * WIDE + j] = (float)sum;
        }
    mr_cell_args args[2] = {MR_CELL_ARGS, MR_CELL_ARGS};
    for (int i = 0; i < 2; i++) {
        mr_cell_args *a = &args[i];
        a->kind = MR_MINLSTM, a->normalize = 1;
        a->B = B, a->T = T, a->H = H, a->h = h[i], a->dh = dh, a->h_init = h_init, a->dh_init = dh_init[i],
        a->reset = resets, a->length = lengths;
        if (i == 0) a->D = D, a->x = x, a->W = W, a->bias = bias, a->dx = dx, a->dW = dW, a->dbias = dbias;
        else a->pre = pre, a->dpre = dpre;
        a->workspace_size = mr_cell_workspace(ctx, a);
        a->workspace = fence(&f[i], a->workspace_size);
        a->saved_size = mr_cell_saved(ctx, a);
        a->saved = fence(&kept[i], a->saved_size);
        assert_int_equal(a->saved_size != 0, i == 0);
        OK(mr_cell_forward(ctx, a, &err));
        memset(a->workspace, 0x5A, a->workspace_size); /* its contents are not needed between calls */
        OK(mr_cell_backward(ctx, a, &err));
        check_fence(&f[i]);
        check_fence(&kept[i]);
    }
    near_floats("h", h[0], h[1], N, 1e-5);
    near_floats("dh_init", dh_init[0], dh_init[1], H, 1e-5);
    memset(want_dx, 0, sizeof want_dx), memset(want_dW, 0, sizeof want_dW), memset(want_dbias, 0, sizeof want_dbias);
    for (int n = 0; n < B * T; n++)
        for (int j = 0; j < WIDE; j++) {
            want_dbias[j] += dpre[n * WIDE + j];
            for (int d = 0; d < D; d++)
                want_dx[n * D + d] += dpre[n * WIDE + j] * W[j * D + d],
                    want_dW[j * D + d] += dpre[n * WIDE + j] * x[n * D + d];
        }
    near_floats("dx", dx, want_dx, B * T * D, 1e-5);
    near_floats("dW", dW, want_dW, WIDE * D, 1e-5);
    near_floats("dbias", dbias, want_dbias, WIDE, 1e-5);
    mr_context_free(ctx);
}

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    buffers *x = room(sizeof *x);
    make(x, 0);
    const size_t size = x->args.workspace_size = mr_scan_workspace(ctx, &x->args);
    x->args.workspace = aligned_alloc(64, size);
    x->args.workspace_size--;
    FAILS(MR_EINVAL, "workspace", mr_scan_forward(ctx, &x->args, &err));
    x->args.workspace_size++;
    x->args.workspace = (char *)x->args.workspace + 4;
    FAILS(MR_EINVAL, "aligned", mr_scan_forward(ctx, &x->args, &err));
    x->args.workspace = (char *)x->args.workspace - 4;
    OK(mr_scan_forward(ctx, &x->args, &err));
    x->args.b = NULL;
    FAILS(MR_EINVAL, "b is NULL", mr_scan_forward(ctx, &x->args, &err));
    x->args.db = NULL;
    FAILS(MR_EINVAL, "db is NULL", mr_scan_backward(ctx, &x->args, &err));
    x->args.T = 0;
    FAILS(MR_EINVAL, "T = 0", mr_scan_forward(ctx, &x->args, &err));
    assert_int_equal(mr_scan_workspace(ctx, &x->args), 0);
    mr_cell_args cell = MR_CELL_ARGS;
    cell.B = cell.T = cell.H = 1, cell.workspace = x->args.workspace, cell.workspace_size = size, cell.h = x->h;
    FAILS(MR_EINVAL, "one of them", mr_cell_forward(ctx, &cell, &err));
    cell.scan = MR_SCAN_LOG, cell.candidate = MR_LINEAR;
    FAILS(MR_EINVAL, "log", mr_cell_forward(ctx, &cell, &err));
    cell.kind = (mr_cell_kind)7;
    FAILS(MR_EINVAL, "no such cell", mr_cell_step(ctx, &cell, &err));
    free(x->args.workspace);
    free(x);
    mr_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_scan_and_its_gradients_are_right), cmocka_unit_test(scan_steps_equal_the_whole_scan),
        cmocka_unit_test(a_long_scan_on_threads_is_right),      cmocka_unit_test(cells_of_given_gates_are_right),
        cmocka_unit_test(a_cell_with_w_projects_by_itself),     cmocka_unit_test(wrong_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
