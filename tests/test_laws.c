/* The laws of state. For the recurrent ops, on every device: a sequence at once, token by token and in any chunks gives
 * the same numbers; a reset is a new sequence, and nothing crosses it; a row of a ragged batch is that row alone. */
#include "support.h"

enum { WHOLE, STEPS, CHUNKS }; /* how a sequence is cut */

static int next_piece(int cut, mr_rng *rng, int left)
{
    int n = cut == WHOLE ? left : cut == STEPS ? 1 : 1 + (int)mr_rng_below(rng, 1u << mr_rng_below(rng, 12));
    return n < left ? n : left;
}

/* ---- a recurrent op under test: x [B, T, D] → y [B, T, H], with a state that is carried */

typedef struct layer {
    bag bag;
    const cell_form *form; /* NULL: a convolution */
    int taps;
    int B, T, D, H;
    size_t state;              /* reals of one stream */
    double *x;                 /* [B, T, D] host */
    uint8_t *reset;            /* [B, T] host, or NULL */
    int32_t *length;           /* [B] host, or NULL */
    double *given;             /* [B, state] host, or NULL: a sequence starts at token 0 */
    const double *dy, *dstate; /* gradients of the outputs, for the backward */
    mr_real *W, *b, *init;
    void *x_dev, *y_dev, *carry, *saved, *reset_dev, *length_dev;
} layer;

/* The forms, then convolutions. */
static const int conv_taps[] = {4, 2, 7, MR_TAPS_MOST};
enum { LAYERS = COUNT(forms) + COUNT(conv_taps) };
static const cell_form *form_at(int i) { return i < COUNT(forms) ? &forms[i] : NULL; }
static int taps_at(int i) { return i < COUNT(forms) ? 0 : conv_taps[i - COUNT(forms)]; }

static const char *name_of(const layer *l) { return l->form ? l->form->name : "conv"; }

/* A minLSTM that may forget nothing and still take in: its states are sums of up to T terms. */
static int is_sum(const mr_cell *cell)
{
    return cell->transition == MR_TRANSITION_SIGNED && cell->kind == MR_MINLSTM && !cell->normalize;
}

/* The log scan sums T logarithms: its error grows with T (measured: 5e-4 at T = 4096). Where a signed gate is exactly
 * ±1, roundings of the state add up over the tokens instead of fading. In bf16, pieces of other lengths may use other
 * product kernels, whose sums round to neighbouring numbers; a convolution only rounds its result. */
static double tolerance_of(const layer *l)
{
    const mr_cell *cell = l->form ? &l->form->cell : NULL;
    double tolerance = 1e-5;
    if (cell && cell->scan == MR_SCAN_LOG) tolerance = fmax(1e-5, 5e-7 * l->T);
    if (cell && cell->transition == MR_TRANSITION_SIGNED) tolerance = fmax(1e-5, 1e-6 * sqrt(l->T));
    if (cell && is_sum(cell)) tolerance = fmax(1e-5, 2e-7 * l->T);
    return is_bf16(l->bag.dev) ? tolerance + (l->form ? 8 : 2) * BF16 : tolerance;
}

static double gradient_tolerance(const layer *l) { return is_bf16(l->bag.dev) ? 8 * BF16 : 5e-5; }

/* start: 0 zero, 1 learned, 2 given (and learned after resets). */
static layer make_layer(mr_dev *dev, int which, int B, int T, int D, int H, int start)
{
    const cell_form *form = form_at(which);
    layer l = {.bag = {.dev = dev}, .form = form, .taps = taps_at(which), .B = B, .T = T, .D = D, .H = form ? H : D};
    bag *own = &l.bag;
    mr_rng rng = mr_rng_at((uint64_t)(T * 8 + start), MR_STREAM_SAMPLE, 2, 0);
    size_t N = (size_t)B * (size_t)T, rows = form ? (size_t)(mr_cell_gates(&form->cell) * H) : (size_t)D,
           taps = form ? (size_t)D : (size_t)l.taps;
    l.state = form ? (size_t)H : (size_t)(l.taps - 1) * (size_t)D;
    l.x = bag_random(own, &rng, N * (size_t)D, 1);
    l.W = bag_put(own, bag_random(own, &rng, rows * taps, 0.4), rows * taps);
    l.b = bag_put(own, bag_random(own, &rng, rows, 2), rows); /* widely spread: some channels remember for long */
    l.init = form && start ? bag_put(own, bag_random(own, &rng, l.state, 1), l.state) : NULL;
    if (start == 2) {
        l.given = bag_random(own, &rng, (size_t)B * l.state, 1);
        for (size_t i = 0; form && form->cell.candidate == MR_POSITIVE && i < (size_t)B * l.state; i++)
            l.given[i] = 0.1 + fabs(l.given[i]);
        for (size_t i = 0; i < (size_t)B * l.state; i++) l.given[i] = (float)l.given[i];
    }
    l.x_dev = bag_device(own, N * (size_t)D * dev->act_size);
    l.y_dev = bag_device(own, N * (size_t)l.H * dev->act_size);
    l.carry = bag_device(own, (size_t)B * l.state * dev->real_size);
    l.saved = form ? bag_device(own, dev->minrnn_saved(dev, &form->cell, B, T, D, H)) : NULL;
    l.reset_dev = bag_device(own, N);
    l.length_dev = bag_device(own, (size_t)B * sizeof(int32_t));
    return l;
}

static void add_resets(layer *l, uint8_t *reset, uint32_t seed)
{
    mr_rng rng = mr_rng_at(seed, MR_STREAM_SAMPLE, 3, 0);
    for (int i = 0; i < l->B * l->T; i++) reset[i] = mr_rng_below(&rng, 1 + (uint32_t)l->T / 3) == 0;
    l->reset = reset;
}

/* Tokens at … at + n − 1 of every row, on the device. The state goes in and out through the same memory. */
static void forward_piece(layer *l, int at, int n, int carried)
{
    mr_dev *dev = l->bag.dev;
    size_t D = (size_t)l->D;
    for (int b = 0; b < l->B; b++) {
        size_t to = (size_t)b * (size_t)n, from = (size_t)b * (size_t)l->T + (size_t)at;
        put_as(dev, ACTS, mr_act_at(dev, l->x_dev, to * D), l->x + from * D, (size_t)n * D);
        if (l->reset) dev->upload(dev, (char *)l->reset_dev + to, l->reset + from, (size_t)n);
    }
    if (l->length) dev->upload(dev, l->length_dev, l->length, (size_t)l->B * sizeof *l->length);
    const mr_real *in = carried ? l->carry : NULL;
    const uint8_t *reset = l->reset ? l->reset_dev : NULL;
    const int32_t *length = l->length ? l->length_dev : NULL;
    if (l->form)
        dev->ops.minrnn_fwd(dev, &(mr_minrnn_fwd_args){.cell = l->form->cell,
                                                       .B = l->B,
                                                       .T = n,
                                                       .D = l->D,
                                                       .H = l->H,
                                                       .x = l->x_dev,
                                                       .W = l->W,
                                                       .b = l->b,
                                                       .h_in = in,
                                                       .h_init = l->init,
                                                       .reset = reset,
                                                       .length = length,
                                                       .saved = l->saved,
                                                       .h = l->y_dev,
                                                       .h_out = l->carry});
    else
        dev->ops.conv_fwd(dev, &(mr_conv_fwd_args){.B = l->B,
                                                   .T = n,
                                                   .D = l->D,
                                                   .taps = l->taps,
                                                   .x = l->x_dev,
                                                   .w = l->W,
                                                   .b = l->b,
                                                   .tail_in = in,
                                                   .reset = reset,
                                                   .length = length,
                                                   .y = l->y_dev,
                                                   .tail_out = l->carry});
}

/* Tokens first … last − 1, cut into pieces; `given` tells whether the row starts from l->given. y: [B, T, H]. */
static void run_range(layer *l, int cut, int first, int last, int given, double *y, double *state)
{
    mr_dev *dev = l->bag.dev;
    mr_rng rng = mr_rng_at((uint64_t)l->T, MR_STREAM_SAMPLE, 4, (uint32_t)cut);
    size_t H = (size_t)l->H;
    if (given) put_doubles(dev, l->carry, l->given, (size_t)l->B * l->state);
    for (int at = first, n; at < last; at += n) {
        n = next_piece(cut, &rng, last - at);
        forward_piece(l, at, n, given || at > first);
        for (int b = 0; b < l->B; b++)
            get_as(dev, ACTS, y + ((size_t)b * (size_t)l->T + (size_t)at) * H,
                   mr_act_at(dev, l->y_dev, (size_t)b * (size_t)n * H), (size_t)n * H);
    }
    get_doubles(dev, state, l->carry, (size_t)l->B * l->state);
}

typedef struct result {
    double *y, *state;   /* [B, T, H], [B, state] */
    double *dx, *dstate; /* [B, T, D], [B, state] */
    double *dW;
} result;

static result run(layer *l, int cut)
{
    result r = {.y = bag_host(&l->bag, (size_t)(l->B * l->T * l->H)),
                .state = bag_host(&l->bag, (size_t)l->B * l->state)};
    run_range(l, cut, 0, l->T, l->given != NULL, r.y, r.state);
    return r;
}

/* Forward at once, then backward with l->dy and l->dstate. */
static result run_backward(layer *l)
{
    bag *own = &l->bag;
    mr_dev *dev = own->dev;
    size_t N = (size_t)(l->B * l->T), reals = (size_t)l->B * l->state, D = (size_t)l->D;
    size_t rows = l->form ? (size_t)(mr_cell_gates(&l->form->cell) * l->H) : D,
           weights = rows * (l->form ? D : (size_t)l->taps);
    result r = run(l, WHOLE);
    void *in = bag_put(own, l->given, reals), *dy = bag_put_as(own, ACTS, l->dy, N * (size_t)l->H),
         *dstate = bag_put(own, l->dstate, reals);
    void *dx = bag_poisoned_as(own, ACTS, N * D), *dW = bag_device(own, weights * dev->real_size),
         *db = bag_device(own, rows * dev->real_size);
    void *din = bag_poisoned(own, reals), *dinit = l->init ? bag_device(own, l->state * dev->real_size) : NULL;
    const uint8_t *reset = l->reset ? l->reset_dev : NULL;
    const int32_t *length = l->length ? l->length_dev : NULL;
    if (l->form)
        dev->ops.minrnn_bwd(dev, &(mr_minrnn_bwd_args){.cell = l->form->cell,
                                                       .B = l->B,
                                                       .T = l->T,
                                                       .D = l->D,
                                                       .H = l->H,
                                                       .x = l->x_dev,
                                                       .W = l->W,
                                                       .b = l->b,
                                                       .h_in = in,
                                                       .h_init = l->init,
                                                       .reset = reset,
                                                       .length = length,
                                                       .saved = l->saved,
                                                       .h = l->y_dev,
                                                       .dh = dy,
                                                       .dh_out = dstate,
                                                       .dx = dx,
                                                       .dW = dW,
                                                       .db = db,
                                                       .dh_in = din,
                                                       .dh_init = dinit});
    else
        dev->ops.conv_bwd(dev, &(mr_conv_bwd_args){.B = l->B,
                                                   .T = l->T,
                                                   .D = l->D,
                                                   .taps = l->taps,
                                                   .x = l->x_dev,
                                                   .w = l->W,
                                                   .tail_in = in,
                                                   .reset = reset,
                                                   .length = length,
                                                   .dy = dy,
                                                   .dtail_out = dstate,
                                                   .dx = dx,
                                                   .dw = dW,
                                                   .db = db,
                                                   .dtail_in = din});
    r.dx = bag_get_as(own, ACTS, dx, N * D);
    r.dW = bag_get(own, dW, weights);
    r.dstate = bag_get(own, din, reals);
    return r;
}

static void check_same(const layer *l, const char *law, const double *got, const double *want, size_t n,
                       double tolerance)
{
    char name[256];
    snprintf(name, sizeof name, "%s %s, %d threads: %s, B %d, T %d: %s", l->bag.dev->kind, l->bag.dev->isa,
             l->bag.dev->threads, name_of(l), l->B, l->T, law);
    check_near(name, got, want, n, tolerance);
}

static void check_zero(const layer *l, const char *law, const double *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(x[i] == 0))
            fail_msg("%s %s: %s: %s: element %zu is %g, not 0", l->bag.dev->kind, l->bag.dev->isa, name_of(l), law, i,
                     x[i]);
}

/* ---- at once ≡ token by token ≡ in chunks */

static void check_cuts_of(mr_dev *dev, int which, int T, int start)
{
    int B = T > 1000 ? 1 : 2;
    layer l = make_layer(dev, which, B, T, 3, 19, start);
    uint8_t *reset = mr_alloc((size_t)(B * T), 1);
    assert_non_null(reset);
    add_resets(&l, reset, (uint32_t)T);
    if (T % 2) l.reset = NULL;
    result whole = run(&l, WHOLE), steps = run(&l, STEPS), chunks = run(&l, CHUNKS);
    size_t values = (size_t)(B * T * l.H), reals = (size_t)B * l.state;
    check_same(&l, "token by token", steps.y, whole.y, values, tolerance_of(&l));
    check_same(&l, "in chunks", chunks.y, whole.y, values, tolerance_of(&l));
    check_same(&l, "state token by token", steps.state, whole.state, reals, tolerance_of(&l));
    check_same(&l, "state in chunks", chunks.state, whole.state, reals, tolerance_of(&l));
    bag_empty(&l.bag);
    mr_free(reset);
}

static void check_cuts(mr_dev *dev)
{
    static const int lengths[] = {1, 2, 3, 17, 256, 1000, 4097, 10000};
    for (int i = 0; i < LAYERS; i++)
        for (int t = 0; t < (REDUCED ? 5 : COUNT(lengths)); t++) {
            int many = lengths[t] <= 256;
            for (int start = many ? 0 : 1 + (i + t) % 2; start < 3; start += many ? 1 : 3)
                check_cuts_of(dev, i, lengths[t], start);
        }
}

/* ---- a reset is a new sequence */

static void check_resets_of(mr_dev *dev, int which, int T, int cut)
{
    layer l = make_layer(dev, which, 2, T, 3, 19, 2);
    bag *own = &l.bag;
    size_t values = (size_t)(2 * T * l.H), reals = 2 * l.state, H = (size_t)l.H, D = (size_t)l.D;
    mr_rng rng = mr_rng_at(9, MR_STREAM_SAMPLE, 5, 0);
    uint8_t *reset = mr_alloc((size_t)(2 * T), 1);
    assert_non_null(reset);
    reset[cut] = reset[T + cut] = 1;
    double *dy = bag_random(own, &rng, values, 1), *state = bag_host(own, reals), *apart = bag_host(own, values);
    for (int b = 0; b < 2; b++) memset(dy + (size_t)(b * T) * H, 0, (size_t)cut * H * sizeof *dy);
    run_range(&l, WHOLE, 0, cut, 1, apart, state);
    run_range(&l, WHOLE, cut, T, 0, apart, state);
    l.reset = reset;
    l.dy = dy;
    l.dstate = bag_random(own, &rng, reals, 1);
    result joined = run_backward(&l);
    check_same(&l, "reset", joined.y, apart, values, tolerance_of(&l));
    check_same(&l, "state after a reset", joined.state, state, reals, tolerance_of(&l));
    check_zero(&l, "gradient of the state before a reset", joined.dstate, reals);
    for (int b = 0; b < 2; b++)
        check_zero(&l, "gradient of inputs before a reset", joined.dx + (size_t)(b * T) * D, (size_t)cut * D);
    for (int b = 0; b < 2; b++)
        for (size_t i = 0; i < (size_t)cut * D; i++) l.x[(size_t)(b * T) * D + i] *= -30;
    for (size_t i = 0; i < reals; i++) l.given[i] *= 100;
    result moved = run_backward(&l);
    for (int b = 0; b < 2; b++) {
        size_t at = (size_t)(b * T + cut);
        assert_memory_equal(moved.y + at * H, joined.y + at * H, (size_t)(T - cut) * H * sizeof *moved.y);
        assert_memory_equal(moved.dx + at * D, joined.dx + at * D, (size_t)(T - cut) * D * sizeof *moved.dx);
    }
    assert_memory_equal(moved.state, joined.state, reals * sizeof *moved.state);
    bag_empty(own);
    mr_free(reset);
}

static void check_resets(mr_dev *dev)
{
    static const struct {
        int T, cut;
    } cases[] = {{1, 0}, {2, 1}, {9, 0}, {9, 4}, {9, 8}, {300, 129}, {1500, 1100}};
    for (int i = 0; i < LAYERS; i++)
        for (int j = 0; j < COUNT(cases) - REDUCED; j++) check_resets_of(dev, i, cases[j].T, cases[j].cut);
}

/* ---- a row of a ragged batch equals that row alone */

static void check_ragged_row(layer *l, const result *batch, int b)
{
    int n = l->length[b];
    size_t H = (size_t)l->H, D = (size_t)l->D, T = (size_t)l->T, row = (size_t)b;
    layer alone = *l;
    alone.bag = (bag){.dev = l->bag.dev};
    alone.B = 1;
    alone.T = n;
    alone.x = l->x + row * T * D;
    alone.reset = l->reset + row * T;
    alone.length = NULL;
    alone.given = l->given + row * l->state;
    alone.dy = l->dy + row * T * H;
    alone.dstate = l->dstate + row * l->state;
    result r = run_backward(&alone);
    check_same(&alone, "ragged row", batch->y + row * T * H, r.y, (size_t)n * H, tolerance_of(l));
    check_same(&alone, "ragged state", batch->state + row * l->state, r.state, l->state, tolerance_of(l));
    check_same(&alone, "ragged dx", batch->dx + row * T * D, r.dx, (size_t)n * D, gradient_tolerance(l));
    check_same(&alone, "ragged gradient of the state", batch->dstate + row * l->state, r.dstate, l->state,
               gradient_tolerance(l));
    check_zero(l, "outputs beyond the length", batch->y + (row * T + (size_t)n) * H, (T - (size_t)n) * H);
    check_zero(l, "gradients beyond the length", batch->dx + (row * T + (size_t)n) * D, (T - (size_t)n) * D);
    bag_empty(&alone.bag);
}

static void check_ragged(mr_dev *dev)
{
    static int32_t lengths[] = {41, 1, 2, 17, 40};
    uint8_t reset[5 * 41];
    for (int i = 0; i < LAYERS; i++) {
        layer l = make_layer(dev, i, COUNT(lengths), lengths[0], 3, 19, 2);
        mr_rng rng = mr_rng_at(10, MR_STREAM_SAMPLE, 6, 0);
        add_resets(&l, reset, 77);
        l.length = lengths;
        l.dy = bag_random(&l.bag, &rng, (size_t)(l.B * l.T * l.H), 1);
        l.dstate = bag_random(&l.bag, &rng, (size_t)l.B * l.state, 1);
        result batch = run_backward(&l);
        for (int b = 0; b < l.B; b++) check_ragged_row(&l, &batch, b);
        bag_empty(&l.bag);
    }
}

ON_DEVICES_BF16(at_once_equals_steps_equals_chunks, check_cuts)
ON_DEVICES_BF16(a_reset_starts_a_new_sequence, check_resets)
ON_DEVICES_BF16(rows_of_a_ragged_batch_are_independent, check_ragged)

int main(void)
{
    const struct CMUnitTest tests[] = {
        DEVICE_TESTS_BF16(at_once_equals_steps_equals_chunks),
        DEVICE_TESTS_BF16(a_reset_starts_a_new_sequence),
        DEVICE_TESTS_BF16(rows_of_a_ragged_batch_are_independent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
