/* Layers with 64 inputs on a GPU's tensor cores, whose pre-activations are recomputed instead of stored,
 * compared with ref: every cell, in tf32 and bf16, full and partial tiles, blocks that sum over several
 * sequences, shapes that are not fused. */
#include "tests/support.h"

enum { D = 64 };

typedef struct task {
    mr_cell cell;
    int B, T, H, masked;
} task;

/* Inputs; rounded for a bf16 device, so that ref gets the same. */
typedef struct inputs {
    float *x, *W, *b, *dh, *init, *in, *dout;
    uint8_t *reset;
    int32_t *length;
} inputs;

/* Outputs: h, h_out, dx, dW, db, dh_in, dh_init. */
enum { OUT_H, OUT_STATE, OUT_DX, OUT_DW, OUT_DB, OUT_DIN, OUT_DINIT, OUTS };
static const char *const names[OUTS] = {"h", "h_out", "dx", "dW", "db", "dh_in", "dh_init"};

typedef struct outputs {
    float *v[OUTS];
    size_t n[OUTS];
} outputs;

static float narrow(float x, int bf16)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    if (bf16) u = (u + 0x7fff + (u >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &u, sizeof x);
    return x;
}

static float *drawn(bag *own, mr_rng *rng, size_t n, double scale, int bf16)
{
    const double *wide = bag_random(own, rng, n, scale);
    float *p = (float *)bag_host(own, n);
    for (size_t i = 0; i < n; i++) p[i] = narrow((float)wide[i], bf16);
    return p;
}

static inputs draw(bag *own, const task *t, int bf16)
{
    mr_rng rng = mr_rng_at((uint64_t)(t->T * 100 + t->H), MR_STREAM_SAMPLE, 7, 0);
    size_t N = (size_t)t->B * (size_t)t->T, H = (size_t)t->H, G = (size_t)mr_cell_gates(&t->cell) * H,
           states = (size_t)t->B * H;
    inputs in = {drawn(own, &rng, N * D, 1, bf16),
                 drawn(own, &rng, G * D, 0.15, bf16),
                 drawn(own, &rng, G, 1, 0),
                 drawn(own, &rng, N * H, 1, bf16),
                 drawn(own, &rng, H, 1, 0),
                 NULL,
                 drawn(own, &rng, states, 1, 0),
                 NULL,
                 NULL};
    if (!t->masked) return in;
    in.in = drawn(own, &rng, states, 1, 0);
    in.reset = (uint8_t *)bag_host(own, N);
    in.length = (int32_t *)bag_host(own, (size_t)t->B);
    for (size_t i = 0; i < N; i++) in.reset[i] = mr_rng_below(&rng, 9) == 0;
    for (int b = 0; b < t->B; b++) in.length[b] = b ? 1 + (int32_t)mr_rng_below(&rng, (uint32_t)t->T) : t->T;
    return in;
}

static void *act(bag *own, const float *from, size_t n)
{
    void *p = bag_device(own, n * own->dev->act_size);
    own->dev->put_act(own->dev, p, from, n);
    return p;
}

static void *reals(bag *own, const float *from, size_t n)
{
    if (!from) return NULL;
    void *p = bag_device(own, n * own->dev->real_size);
    own->dev->put(own->dev, p, from, n);
    return p;
}

static void *bytes(bag *own, const void *from, size_t n)
{
    if (!from) return NULL;
    void *p = bag_device(own, n);
    own->dev->upload(own->dev, p, from, n);
    return p;
}

static float *got(bag *own, const void *from, size_t n, int is_act)
{
    float *p = (float *)bag_host(own, n);
    if (is_act) own->dev->get_act(own->dev, p, from, n);
    else own->dev->get(own->dev, p, from, n);
    return p;
}

static outputs run(bag *own, const task *t, const inputs *in)
{
    mr_dev *dev = own->dev;
    const size_t N = (size_t)t->B * (size_t)t->T, H = (size_t)t->H, G = (size_t)mr_cell_gates(&t->cell) * H,
                 states = (size_t)t->B * H;
    mr_minrnn_fwd_args f = {.cell = t->cell,
                            .B = t->B,
                            .T = t->T,
                            .D = D,
                            .H = t->H,
                            .x = act(own, in->x, N * D),
                            .W = reals(own, in->W, G * D),
                            .b = reals(own, in->b, G),
                            .h_in = reals(own, in->in, states),
                            .h_init = reals(own, in->init, H),
                            .reset = bytes(own, in->reset, N),
                            .length = bytes(own, in->length, (size_t)t->B * sizeof(int32_t)),
                            .saved = bag_device(own, dev->minrnn_saved(dev, &t->cell, t->B, t->T, D, t->H)),
                            .h = bag_device(own, N * H * dev->act_size),
                            .h_out = bag_device(own, states * dev->real_size)};
    dev->ops.minrnn_fwd(dev, &f);
    mr_minrnn_bwd_args b = {.cell = t->cell,
                            .B = t->B,
                            .T = t->T,
                            .D = D,
                            .H = t->H,
                            .x = f.x,
                            .W = f.W,
                            .b = f.b,
                            .h_in = f.h_in,
                            .h_init = f.h_init,
                            .reset = f.reset,
                            .length = f.length,
                            .saved = f.saved,
                            .h = f.h,
                            .dh = act(own, in->dh, N * H),
                            .dh_out = reals(own, in->dout, states),
                            .dx = bag_device(own, N * D * dev->act_size),
                            .dW = bag_device(own, G * D * dev->real_size),
                            .db = bag_device(own, G * dev->real_size),
                            .dh_in = bag_device(own, states * dev->real_size),
                            .dh_init = bag_device(own, H * dev->real_size)};
    dev->ops.minrnn_bwd(dev, &b);
    return (outputs){{got(own, f.h, N * H, 1), got(own, f.h_out, states, 0), got(own, b.dx, N * D, 1),
                      got(own, b.dW, G * D, 0), got(own, b.db, G, 0), got(own, b.dh_in, states, 0),
                      got(own, b.dh_init, H, 0)},
                     {N * H, states, N * D, G * D, G, states, H}};
}

/* The slope of the positive candidate jumps at 0, and rounding changes the sign of some pre-activations. */
static double tolerance_of(const task *t, int bf16, int out)
{
    const int jumps = t->cell.candidate == MR_POSITIVE && out >= OUT_DX && out <= OUT_DB;
    return jumps ? 4e-2 : bf16 ? 1e-2 : 2e-3;
}

static void compare(const task *t, int bf16, const outputs *mine, const outputs *ref)
{
    for (int i = 0; i < OUTS; i++) {
        double off = 0, all = 0;
        for (size_t k = 0; k < ref->n[i]; k++) {
            const double d = (double)mine->v[i][k] - (double)ref->v[i][k];
            off += d * d, all += (double)ref->v[i][k] * (double)ref->v[i][k];
        }
        if (!(sqrt(off) <= tolerance_of(t, bf16, i) * sqrt(all)))
            fail_msg("%s, %s, gates %d, candidate %d, normalize %d, B=%d T=%d H=%d masked=%d: off by %.3g of its norm",
                     bf16 ? "bf16" : "tf32", names[i], mr_cell_gates(&t->cell), (int)t->cell.candidate,
                     t->cell.normalize, t->B, t->T, t->H, t->masked, sqrt(off / all));
    }
}

static void check_task(mr_dev *gpu, mr_dev *ref, const task *t)
{
    const int bf16 = gpu->act_size == 2;
    bag own = {.dev = gpu}, theirs = {.dev = ref};
    const inputs in = draw(&own, t, bf16);
    const outputs first = run(&own, t, &in), again = run(&own, t, &in), want = run(&theirs, t, &in);
    compare(t, bf16, &first, &want);
    for (int i = 0; i < OUTS; i++) assert_memory_equal(first.v[i], again.v[i], first.n[i] * sizeof(float));
    bag_empty(&own);
    bag_empty(&theirs);
}

static void check_dtype(int bf16)
{
    static const struct {
        int B, T, H, masked;
    } shapes[] = {{3, 96, 128, 0},   {3, 77, 128, 1}, {70, 32, 384, 0},
                  {9, 150, 1024, 1}, {2, 300, 64, 1}, {5, 1, 64, 1}};
    static const mr_cell cells[] = {{.kind = MR_MINGRU, .candidate = MR_POSITIVE},
                                    {.kind = MR_MINGRU, .candidate = MR_LINEAR},
                                    {.kind = MR_MINGRU, .candidate = MR_TANH},
                                    {.kind = MR_MINLSTM, .candidate = MR_POSITIVE},
                                    {.kind = MR_MINLSTM, .candidate = MR_LINEAR, .normalize = 1},
                                    {.kind = MR_MINLSTM, .candidate = MR_TANH, .normalize = 1},
                                    {.kind = MR_MINLSTM, .candidate = MR_POSITIVE, .normalize = 1},
                                    {.kind = MR_MINLSTM, .candidate = MR_LINEAR}};
    mr_dev *gpu = open_test_gpu(&(mr_dev_options){.bf16 = bf16}), *ref = open_device("ref", 1, NULL);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t i = 0; i < sizeof cells / sizeof *cells; i++)
            if (i == s || s < 2) /* small shapes with every cell, the others with one cell each */
                check_task(gpu, ref, &(task){cells[i], shapes[s].B, shapes[s].T, shapes[s].H, shapes[s].masked});
    assert_int_equal(gpu->sync(gpu, NULL), 0);
    mr_dev_close(ref);
    mr_dev_close(gpu);
}

static void fused_layers_agree_with_ref_in_tf32(void **state)
{
    (void)state;
    check_dtype(0);
}

static void fused_layers_agree_with_ref_in_bf16(void **state)
{
    (void)state;
    check_dtype(1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(fused_layers_agree_with_ref_in_tf32),
                                       cmocka_unit_test(fused_layers_agree_with_ref_in_bf16)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
