/* Few rows on a GPU, where one-token ops are fused and deferred (src/ops/cuda/defer.cu); `minrnn check`, which runs
 * single ops, sees little of that. The same sequence of ops runs on ref and on the GPU in exact fp32, TF32 and bf16, in
 * the orders of a model and in others, and all outputs of all ops are compared. */
#include "support.h"

typedef struct shape {
    int M, D, H, F;
    mr_norm norm;
} shape;

static const shape shapes[] = {
    {1, 384, 768, 1536, MR_NORM_RMS},    {2, 384, 768, 1536, MR_NORM_LAYER},  {3, 64, 100, 36, MR_NORM_NONE},
    {8, 20, 12, 28, MR_NORM_LAYER},      {5, 30, 22, 34, MR_NORM_RMS},        {9, 64, 96, 256, MR_NORM_LAYER},
    {64, 64, 384, 256, MR_NORM_RMS},     {16, 384, 768, 1536, MR_NORM_NONE},  {128, 384, 768, 1536, MR_NORM_RMS},
    {64, 384, 768, 1536, MR_NORM_LAYER}, {70, 136, 264, 520, MR_NORM_NONE},   {200, 64, 384, 256, MR_NORM_LAYER},
    {1000, 72, 136, 200, MR_NORM_RMS},   {1024, 384, 768, 1536, MR_NORM_RMS}, {1030, 64, 64, 128, MR_NORM_RMS},
};
enum { OUTPUTS = 24, VOCAB = 65 };

typedef struct results {
    const char *name[OUTPUTS];
    float *at[OUTPUTS];
    size_t n[OUTPUTS];
    int count;
} results;

typedef struct work {
    mr_dev *dev;
    shape s;
    bag own;
    mr_rng rng;
    results *out;
} work;

static mr_act *acts(work *w, size_t n)
{
    float *v = mr_alloc(n, sizeof *v);
    mr_act *p = bag_device(&w->own, n * w->dev->act_size);
    assert_non_null(v);
    for (size_t i = 0; i < n; i++) v[i] = (float)mr_rng_normal(&w->rng);
    w->dev->put_act(w->dev, p, v, n);
    mr_free(v);
    return p;
}

static mr_real *reals(work *w, size_t n, double scale)
{
    float *v = mr_alloc(n, sizeof *v);
    mr_real *p = bag_device(&w->own, n * w->dev->real_size);
    assert_non_null(v);
    for (size_t i = 0; i < n; i++) v[i] = (float)(scale * mr_rng_normal(&w->rng));
    w->dev->put(w->dev, p, v, n);
    mr_free(v);
    return p;
}

static float *result(work *w, const char *name, size_t n)
{
    results *out = w->out;
    assert_that(out->count, <, OUTPUTS);
    float *to = mr_alloc(n, sizeof *to);
    assert_non_null(to);
    out->name[out->count] = name;
    out->n[out->count] = n;
    return out->at[out->count++] = to;
}

static void keep_act(work *w, const char *name, const mr_act *from, size_t n)
{
    w->dev->get_act(w->dev, result(w, name, n), from, n);
}
static void keep(work *w, const char *name, const mr_real *from, size_t n)
{
    w->dev->get(w->dev, result(w, name, n), from, n);
}

static mr_norm_fwd_args norm_args(work *w, const mr_act *x, mr_act *y, mr_real *stat)
{
    size_t D = (size_t)w->s.D;
    return (mr_norm_fwd_args){.M = w->s.M,
                              .D = w->s.D,
                              .kind = w->s.norm,
                              .eps = w->s.norm == MR_NORM_LAYER ? 1e-4 : 1e-6,
                              .x = x,
                              .w = reals(w, D, 1),
                              .b = w->s.norm == MR_NORM_LAYER ? reals(w, D, 1) : NULL,
                              .y = y,
                              .stat = stat};
}

static mr_linear_fwd_args linear_args(work *w, int N, int K, const mr_act *x, int bias, int gelu,
                                      const mr_act *residual, mr_act *y)
{
    return (mr_linear_fwd_args){.M = w->s.M,
                                .N = N,
                                .K = K,
                                .x = x,
                                .W = reals(w, (size_t)N * (size_t)K, 1 / sqrt(K)),
                                .b = bias ? reals(w, (size_t)N, 1) : NULL,
                                .gelu = gelu,
                                .residual = residual,
                                .y = y};
}

static uint8_t *some_resets(work *w, size_t B)
{
    uint8_t flags[2048] = {0}, *p = bag_device(&w->own, B);
    for (size_t b = 0; b < B; b++) flags[b] = b % 3 == 1;
    w->dev->upload(w->dev, p, flags, B);
    return p;
}

/* norm → conv → minGRU or minLSTM, states in place. */
static mr_act *mix(work *w, const mr_act *x, const mr_cell *cell)
{
    mr_dev *dev = w->dev;
    size_t B = (size_t)w->s.M, D = (size_t)w->s.D, H = (size_t)w->s.H, G = (size_t)mr_cell_gates(cell);
    mr_act *u = acts(w, B * D), *y = acts(w, B * D), *h = acts(w, B * H);
    mr_real *tail = reals(w, B * 3 * D, 1), *state = reals(w, B * H, 1), *stat = reals(w, 2 * B, 1);
    uint8_t *reset = some_resets(w, B);
    mr_norm_fwd_args first = norm_args(w, x, u, stat);
    mr_conv_fwd_args conv = {.B = (int)B,
                             .T = 1,
                             .D = (int)D,
                             .taps = 4,
                             .x = u,
                             .w = reals(w, D * 4, 1),
                             .b = reals(w, D, 1),
                             .tail_in = tail,
                             .reset = reset,
                             .y = y,
                             .tail_out = tail};
    mr_minrnn_fwd_args cells = {.cell = *cell,
                                .B = (int)B,
                                .T = 1,
                                .D = (int)D,
                                .H = (int)H,
                                .x = y,
                                .W = reals(w, G * H * D, 1 / sqrt((double)D)),
                                .b = reals(w, G * H, 1),
                                .h_in = state,
                                .h_init = reals(w, H, 1),
                                .reset = reset,
                                .saved = bag_device(&w->own, dev->minrnn_saved(dev, cell, (int)B, 1, (int)D, (int)H)),
                                .h = h,
                                .h_out = state};
    dev->ops.norm_fwd(dev, &first);
    dev->ops.conv_fwd(dev, &conv);
    dev->ops.minrnn_fwd(dev, &cells);
    keep_act(w, "norm before conv", u, B * D);
    keep(w, "its statistics", stat, 2 * B);
    keep_act(w, "conv", y, B * D);
    keep(w, "tail", tail, B * 3 * D);
    keep_act(w, "h", h, B * H);
    keep(w, "h_out", state, B * H);
    return h;
}

/* down + residual in place → norm → up, gelu → down + residual in place → norm → head. */
static void rest_of_layer(work *w, mr_act *x, const mr_act *h)
{
    mr_dev *dev = w->dev;
    size_t M = (size_t)w->s.M, D = (size_t)w->s.D, F = (size_t)w->s.F;
    mr_act *v = acts(w, M * D), *wide = acts(w, M * F), *pre = acts(w, M * F), *top = acts(w, M * D),
           *logits = acts(w, M * VOCAB);
    mr_linear_fwd_args down = linear_args(w, (int)D, w->s.H, h, 1, 0, x, x),
                       up = linear_args(w, (int)F, (int)D, v, 1, 1, NULL, wide);
    mr_linear_fwd_args back = linear_args(w, (int)D, (int)F, wide, 1, 0, x, x),
                       head = linear_args(w, VOCAB, (int)D, top, 0, 0, NULL, logits);
    mr_norm_fwd_args second = norm_args(w, x, v, NULL), last = norm_args(w, x, top, NULL);
    up.pre = pre;
    dev->ops.linear_fwd(dev, &down);
    dev->ops.norm_fwd(dev, &second);
    dev->ops.linear_fwd(dev, &up);
    dev->ops.linear_fwd(dev, &back);
    dev->ops.norm_fwd(dev, &last);
    dev->ops.linear_fwd(dev, &head);
    keep_act(w, "norm before gelu", v, M * D);
    keep_act(w, "before gelu", pre, M * F);
    keep_act(w, "gelu", wide, M * F);
    keep_act(w, "the stream", x, M * D);
    keep_act(w, "last norm", top, M * D);
    keep_act(w, "logits", logits, M * VOCAB);
}

/* What a model never does: the product overwrites the norm's input; nothing reads the norm; its input changes right
 * after it; two norms follow each other; another op reads its result. */
static void odd_orders(work *w, mr_act *x)
{
    mr_dev *dev = w->dev;
    size_t M = (size_t)w->s.M, D = (size_t)w->s.D;
    mr_act *u[4], *other = acts(w, M * D), *y = acts(w, M * D);
    for (int i = 0; i < 4; i++) u[i] = acts(w, M * D);
    mr_norm_fwd_args n[4] = {norm_args(w, x, u[0], NULL), norm_args(w, x, u[1], NULL), norm_args(w, x, u[2], NULL),
                             norm_args(w, u[2], u[3], NULL)};
    mr_linear_fwd_args over = linear_args(w, (int)D, (int)D, u[0], 1, 0, x, x),
                       aside = linear_args(w, (int)D, (int)D, other, 1, 0, NULL, y);
    dev->ops.norm_fwd(dev, &n[0]);
    dev->ops.linear_fwd(dev, &over);
    keep_act(w, "a product over the norm's input", x, M * D);
    dev->ops.norm_fwd(dev, &n[1]);
    dev->ops.linear_fwd(dev, &aside);
    keep_act(w, "a norm that nobody read", u[1], M * D);
    keep_act(w, "a product beside it", y, M * D);
    dev->ops.norm_fwd(dev, &n[2]);
    dev->ops.norm_fwd(dev, &n[3]);
    dev->zero(dev, u[2], M * D * dev->act_size);
    keep_act(w, "a norm of a norm, whose input was cleared", u[3], M * D);
    keep_act(w, "the cleared one", u[2], M * D);
}

static void run(mr_dev *dev, const shape *s, const mr_cell *cell, results *out)
{
    work w = {.dev = dev, .s = *s, .own = {.dev = dev}, .rng = mr_rng_at(3, MR_STREAM_SAMPLE, 0, 0), .out = out};
    mr_act *x = acts(&w, (size_t)s->M * (size_t)s->D);
    rest_of_layer(&w, x, mix(&w, x, cell));
    odd_orders(&w, x);
    bag_empty(&w.own);
}

static void compare(const char *device, const shape *s, const char *cell, const results *got, const results *want,
                    double tolerance)
{
    assert_int_equal(got->count, want->count);
    for (int o = 0; o < want->count; o++) {
        double scale = 1, worst = 0;
        for (size_t i = 0; i < want->n[o]; i++) scale = fmax(scale, fabs(want->at[o][i]));
        for (size_t i = 0; i < want->n[o]; i++) {
            double off = fabs((double)got->at[o][i] - want->at[o][i]) / scale;
            if (!(off <= tolerance))
                fail_msg("%s, %d rows of %d, %s: %s: element %zu is %g, wanted %g", device, s->M, s->D, cell,
                         want->name[o], i, got->at[o][i], want->at[o][i]);
            worst = fmax(worst, off);
        }
        if (worst > tolerance / 4)
            print_message("%s, %d rows of %d: %s: off by %.1e of %.0e\n", device, s->M, s->D, want->name[o], worst,
                          tolerance);
    }
}

static void forget(results *r)
{
    for (int o = 0; o < r->count; o++) mr_free(r->at[o]);
    r->count = 0;
}

static void fused_ops_of_few_rows_agree_with_ref(void **unused)
{
    static const struct {
        const char *name;
        mr_dev_options options;
        double tolerance;
    } kinds[] = {{"exact", {.exact = 1}, 1e-5}, {"tf32", {0}, 4e-3}, {"bf16", {.bf16 = 1}, 4e-2}};
    mr_dev *gpu[3];
    (void)unused;
    for (int k = 0; k < COUNT(kinds); k++) gpu[k] = open_test_gpu(&kinds[k].options);
    mr_dev *ref = open_device("ref", 1, NULL);
    for (int i = 0; i < COUNT(shapes); i++) {
        const cell_form *form = &forms[i * 5 % COUNT(forms)];
        if (form->cell.scan == MR_SCAN_LOG) form++; /* it is not fused, and needs positive states */
        results want = {.count = 0}, got = {.count = 0};
        run(ref, &shapes[i], &form->cell, &want);
        for (int k = 0; k < COUNT(kinds); k++) {
            run(gpu[k], &shapes[i], &form->cell, &got);
            assert_int_equal(gpu[k]->sync(gpu[k], NULL), 0);
            compare(kinds[k].name, &shapes[i], form->name, &got, &want, kinds[k].tolerance);
            forget(&got);
        }
        forget(&want);
    }
    for (int k = 0; k < COUNT(kinds); k++) mr_dev_close(gpu[k]);
    mr_dev_close(ref);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(fused_ops_of_few_rows_agree_with_ref)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
