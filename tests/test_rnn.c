/* GRU and LSTM, on every device: compared with PyTorch in float64 (golden/make_rnn.py), and the laws of state: at once
 * ≡ token by token ≡ in chunks, a reset is a new sequence, a row of a ragged batch equals that row alone. */
#include "support.h"

#include "core/safetensors.h"

static const char *const kinds[] = {"gru_before", "gru_after", "lstm"};

/* ---- a layer on a device; NULL parts are absent */

typedef struct layer {
    bag bag;
    mr_rnn kind;
    int B, T, D, H;
    double *x, *h_in, *init; /* host */
    uint8_t *reset;          /* host, or NULL */
    int32_t *length;
    mr_real *W_ih, *W_hh, *b_ih, *b_hh;
} layer;

static size_t gates_of(const layer *l) { return (size_t)(mr_rnn_gates(l->kind) * l->H); }
static size_t state_of(const layer *l) { return (size_t)mr_rnn_state(l->kind, l->H); }

static layer make_layer(mr_dev *dev, mr_rnn which, int B, int T, int D, int H)
{
    layer l = {.bag = {.dev = dev}, .kind = which, .B = B, .T = T, .D = D, .H = H};
    bag *own = &l.bag;
    mr_rng rng = mr_rng_at((uint64_t)(B * 1000 + T), MR_STREAM_SAMPLE, (uint32_t)which, 0);
    size_t rows = gates_of(&l), scale = (size_t)H;
    l.x = bag_random(own, &rng, (size_t)(B * T * D), 1);
    l.W_ih = bag_put(own, bag_random(own, &rng, rows * (size_t)D, 0.5), rows * (size_t)D);
    l.W_hh = bag_put(own, bag_random(own, &rng, rows * (size_t)H, 0.7 / sqrt((double)scale)), rows * (size_t)H);
    l.b_ih = bag_put(own, bag_random(own, &rng, rows, 0.5), rows);
    l.b_hh = bag_put(own, bag_random(own, &rng, rows, 0.5), rows);
    l.init = bag_random(own, &rng, state_of(&l), 0.5);
    l.h_in = bag_random(own, &rng, (size_t)B * state_of(&l), 0.5);
    return l;
}

typedef struct result {
    double *h, *state; /* [B, T, H], [B, S] */
} result;

/* Tokens first … first+n−1 of rows row … row+rows−1, from `state` (host [rows, S], or NULL: a start); replaces it. */
static void forward_piece(layer *l, int row, int rows, int first, int n, int carried, double *state, double *h)
{
    bag own = {.dev = l->bag.dev};
    mr_dev *dev = own.dev;
    size_t D = (size_t)l->D, H = (size_t)l->H, S = state_of(l), N = (size_t)rows * (size_t)n;
    double *x = bag_host(&own, N * D);
    uint8_t *reset = l->reset ? bag_device(&own, N) : NULL;
    for (int b = 0; b < rows; b++) {
        size_t from = (size_t)(row + b) * (size_t)l->T + (size_t)first, to = (size_t)b * (size_t)n;
        memcpy(x + to * D, l->x + from * D, (size_t)n * D * sizeof *x);
        if (reset) dev->upload(dev, reset + to, l->reset + from, (size_t)n);
    }
    int32_t *length = l->length ? bag_device(&own, (size_t)rows * sizeof *length) : NULL;
    if (length) dev->upload(dev, length, l->length + row, (size_t)rows * sizeof *length);
    mr_real *carry = bag_device(&own, (size_t)rows * S * dev->real_size);
    if (carried) put_doubles(dev, carry, state, (size_t)rows * S);
    mr_act *out = bag_poisoned(&own, N * H);
    dev->ops.rnn_fwd(dev, &(mr_rnn_fwd_args){.kind = l->kind,
                                             .B = rows,
                                             .T = n,
                                             .D = l->D,
                                             .H = l->H,
                                             .x = bag_put(&own, x, N * D),
                                             .W_ih = l->W_ih,
                                             .b_ih = l->b_ih,
                                             .W_hh = l->W_hh,
                                             .b_hh = l->b_hh,
                                             .h_in = carried ? carry : NULL,
                                             .h_init = bag_put(&own, l->init, S),
                                             .reset = reset,
                                             .length = length,
                                             .saved = bag_device(&own, dev->rnn_saved(dev, l->kind, rows, n, l->H)),
                                             .h = out,
                                             .h_out = carry});
    get_doubles(dev, state, carry, (size_t)rows * S);
    for (int b = 0; b < rows; b++)
        get_doubles(dev, h + ((size_t)(row + b) * (size_t)l->T + (size_t)first) * H,
                    mr_act_at(dev, out, (size_t)(b * n) * H), (size_t)n * H);
    bag_empty(&own);
}

static result at_once(layer *l)
{
    result r = {.h = bag_host(&l->bag, (size_t)(l->B * l->T * l->H)),
                .state = bag_host(&l->bag, (size_t)l->B * state_of(l))};
    memcpy(r.state, l->h_in, (size_t)l->B * state_of(l) * sizeof *r.state);
    forward_piece(l, 0, l->B, 0, l->T, 1, r.state, r.h);
    return r;
}

static void check_law(const layer *l, const char *law, const double *got, const double *want, size_t n)
{
    char name[192];
    snprintf(name, sizeof name, "%s %s, %d threads: %s, B %d: %s", l->bag.dev->kind, l->bag.dev->isa,
             l->bag.dev->threads, kinds[l->kind], l->B, law);
    check_near(name, got, want, n, 1e-5);
}

/* ---- at once ≡ token by token ≡ in chunks */

static void check_cuts(mr_dev *dev)
{
    static const struct {
        int B, T, piece;
    } cases[] = {{1, 33, 1}, {3, 20, 1}, {3, 50, 7}, {11, 17, 1}, {11, 40, 9}};
    for (int which = 0; which < COUNT(kinds); which++)
        for (int i = 0; i < COUNT(cases); i++) {
            layer l = make_layer(dev, (mr_rnn)which, cases[i].B, cases[i].T, 5, 19);
            size_t N = (size_t)(l.B * l.T), reals = (size_t)l.B * state_of(&l);
            mr_rng rng = mr_rng_at(4, MR_STREAM_SAMPLE, (uint32_t)i, 0);
            uint8_t *reset = mr_alloc(N, 1);
            assert_non_null(reset);
            for (size_t k = 0; k < N; k++) reset[k] = mr_rng_below(&rng, 9) == 0;
            l.reset = i % 2 ? reset : NULL;
            result whole = at_once(&l);
            double *h = bag_host(&l.bag, N * (size_t)l.H), *state = bag_host(&l.bag, reals);
            memcpy(state, l.h_in, reals * sizeof *state);
            for (int t = 0; t < l.T; t += cases[i].piece) {
                int n = t + cases[i].piece < l.T ? cases[i].piece : l.T - t;
                forward_piece(&l, 0, l.B, t, n, 1, state, h);
            }
            check_law(&l, "in pieces", h, whole.h, N * (size_t)l.H);
            check_law(&l, "state in pieces", state, whole.state, reals);
            mr_free(reset);
            bag_empty(&l.bag);
        }
}

/* ---- resets and ragged rows are independent sequences */

static void check_resets(mr_dev *dev)
{
    enum { T = 15, CUT = 6 };
    for (int which = 0; which < COUNT(kinds); which++)
        for (int B = 2; B < 14; B += 9) {
            layer l = make_layer(dev, (mr_rnn)which, B, T, 4, 18);
            size_t H = (size_t)l.H, reals = (size_t)B * state_of(&l);
            uint8_t reset[13 * T] = {0};
            double *apart = bag_host(&l.bag, (size_t)(B * T) * H), *state = bag_host(&l.bag, reals);
            forward_piece(&l, 0, B, CUT, T - CUT, 0, state, apart);
            for (int b = 0; b < B; b++) reset[b * T + CUT] = 1;
            l.reset = reset;
            result joined = at_once(&l);
            for (int b = 0; b < B; b++)
                check_law(&l, "after a reset", joined.h + (size_t)(b * T + CUT) * H, apart + (size_t)(b * T + CUT) * H,
                          (T - CUT) * H);
            check_law(&l, "state after a reset", joined.state, state, reals);
            bag_empty(&l.bag);
        }
}

static void check_ragged(mr_dev *dev)
{
    enum { T = 12 };
    for (int which = 0; which < COUNT(kinds); which++)
        for (int B = 3; B < 14; B += 9) {
            layer l = make_layer(dev, (mr_rnn)which, B, T, 4, 21);
            size_t H = (size_t)l.H, S = state_of(&l);
            int32_t length[12];
            for (int b = 0; b < B; b++) length[b] = 1 + b * 5 % T;
            l.length = length;
            result all = at_once(&l);
            l.length = NULL;
            double *h = bag_host(&l.bag, (size_t)(B * T) * H), *state = bag_host(&l.bag, S);
            for (int b = 0; b < B; b++) {
                size_t at = (size_t)(b * T) * H, n = (size_t)length[b] * H;
                memcpy(state, l.h_in + (size_t)b * S, S * sizeof *state);
                forward_piece(&l, b, 1, 0, length[b], 1, state, h);
                check_law(&l, "ragged row", all.h + at, h + at, n);
                check_law(&l, "ragged state", all.state + (size_t)b * S, state, S);
                for (size_t k = n; k < T * H; k++) assert_that(all.h[at + k], ==, 0);
            }
            bag_empty(&l.bag);
        }
}

/* ---- against PyTorch */

static double *golden(bag *own, const mr_st *st, int which, const char *name, size_t *count)
{
    char full[64];
    snprintf(full, sizeof full, "%s.%s", kinds[which], name);
    const mr_st_tensor *t = mr_st_find(st, full);
    if (!t) fail_msg("no tensor %s in the golden file", full);
    assert_int_equal(t->dtype, MR_ST_F64);
    *count = t->bytes / sizeof(double);
    double *values = bag_host(own, *count);
    assert_int_equal(mr_st_read(st, full, t, values, NULL), 0);
    return values;
}

static void *put_golden(bag *own, const mr_st *st, int which, const char *name)
{
    size_t n;
    double *values = golden(own, st, which, name, &n);
    return bag_put(own, values, n);
}

static void check_golden(bag *own, const mr_st *st, int which, const char *name, const void *got)
{
    size_t n;
    char what[128];
    double *want = golden(own, st, which, name, &n);
    snprintf(what, sizeof what, "%s %s: %s.%s", own->dev->kind, own->dev->isa, kinds[which], name);
    check_near(what, bag_get(own, got, n), want, n, own->dev->real_size == sizeof(double) ? 1e-12 : 2e-5);
}

static void *zeros(bag *own, size_t n) { return bag_device(own, n * own->dev->real_size); }

static void check_kind(mr_dev *dev, const mr_st *st, int which)
{
    enum { B = 3, T = 11, D = 5, H = 6 };
    bag own = {.dev = dev};
    size_t G = (size_t)mr_rnn_gates((mr_rnn)which) * H, S = (size_t)mr_rnn_state((mr_rnn)which, H);
    mr_rnn_fwd_args f = {.kind = (mr_rnn)which,
                         .B = B,
                         .T = T,
                         .D = D,
                         .H = H,
                         .x = put_golden(&own, st, which, "x"),
                         .W_ih = put_golden(&own, st, which, "weight_ih"),
                         .b_ih = put_golden(&own, st, which, "bias_ih"),
                         .W_hh = put_golden(&own, st, which, "weight_hh"),
                         .b_hh = put_golden(&own, st, which, "bias_hh"),
                         .h_in = put_golden(&own, st, which, "h_in"),
                         .h = bag_poisoned(&own, B * T * H),
                         .saved = bag_device(&own, dev->rnn_saved(dev, (mr_rnn)which, B, T, H)),
                         .h_out = bag_poisoned(&own, B * S)};
    dev->ops.rnn_fwd(dev, &f);
    check_golden(&own, st, which, "h", f.h);
    check_golden(&own, st, which, "h_out", f.h_out);
    mr_rnn_bwd_args g = {.kind = f.kind,
                         .B = B,
                         .T = T,
                         .D = D,
                         .H = H,
                         .x = f.x,
                         .W_ih = f.W_ih,
                         .W_hh = f.W_hh,
                         .h_in = f.h_in,
                         .saved = f.saved,
                         .h = f.h,
                         .dh = put_golden(&own, st, which, "dh"),
                         .dh_out = put_golden(&own, st, which, "dh_out"),
                         .dx = bag_poisoned(&own, B * T * D),
                         .dW_ih = zeros(&own, G * D),
                         .db_ih = zeros(&own, G),
                         .dW_hh = zeros(&own, G * H),
                         .db_hh = zeros(&own, G),
                         .dh_in = bag_poisoned(&own, B * S)};
    dev->ops.rnn_bwd(dev, &g);
    check_golden(&own, st, which, "dx", g.dx);
    check_golden(&own, st, which, "dweight_ih", g.dW_ih);
    check_golden(&own, st, which, "dbias_ih", g.db_ih);
    check_golden(&own, st, which, "dweight_hh", g.dW_hh);
    check_golden(&own, st, which, "dbias_hh", g.db_hh);
    check_golden(&own, st, which, "dh_in", g.dh_in);
    bag_empty(&own);
}

static void check_pytorch(mr_dev *dev)
{
    mr_error err = {0};
    mr_st *st;
    if (mr_st_open(MINRNN_SOURCE_DIR "/tests/golden/rnn.safetensors", &st, &err)) fail_msg("%s", err.text);
    for (int which = 0; which < COUNT(kinds); which++) check_kind(dev, st, which);
    mr_st_close(st);
}

ON_DEVICES_REF64(agrees_with_pytorch, check_pytorch)
ON_DEVICES(at_once_equals_steps_equals_chunks, check_cuts)
ON_DEVICES(a_reset_starts_a_new_sequence, check_resets)
ON_DEVICES(rows_of_a_ragged_batch_are_independent, check_ragged)

int main(void)
{
    const struct CMUnitTest tests[] = {
        DEVICE_TESTS(agrees_with_pytorch),
        DEVICE_TESTS(at_once_equals_steps_equals_chunks),
        DEVICE_TESTS(a_reset_starts_a_new_sequence),
        DEVICE_TESTS(rows_of_a_ragged_batch_are_independent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
