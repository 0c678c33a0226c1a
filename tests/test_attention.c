/* Attention as a mixer: compared with PyTorch and finite differences, and the laws of state for whole models. */
#include "support.h"

#include "core/safetensors.h"

static const mr_interface text = {
    .input = MR_INPUT_TOKENS, .inputs = 11, .head = MR_HEAD_TOKEN, .loss = MR_LOSS_XENT, .outputs = 11};

/* Every kind of positions; windows shorter than a chunk and longer than everything; with varying other settings. */
static const struct {
    int positions, heads, window, conv, mlp, layer_norm;
} forms_of_attention[] = {
    {MR_POSITIONS_ROTARY, 2, 5, 0, 2, 0},   {MR_POSITIONS_LEARNED, 3, 7, 4, 0, 0},
    {MR_POSITIONS_NONE, 1, 40, 0, 0, 1},    {MR_POSITIONS_ROTARY, 0, 300, 4, 2, 1},
    {MR_POSITIONS_LEARNED, 12, 1, 0, 2, 0}, {MR_POSITIONS_ROTARY, 6, 1, 0, 0, 0},
};

static mr_config config_at(int i)
{
    mr_config c;
    mr_options_default(mr_config_options, &c);
    mr_config_set_interface(&c, &text);
    while (strcmp(mr_mixer_names[c.mixer], "attention")) c.mixer++;
    c.layers = 2;
    c.dim = 12;
    c.positions = forms_of_attention[i].positions;
    c.heads = forms_of_attention[i].heads;
    c.window = forms_of_attention[i].window;
    c.conv = forms_of_attention[i].conv;
    c.mlp = forms_of_attention[i].mlp;
    c.norm = forms_of_attention[i].layer_norm ? MR_NORM_LAYER : MR_NORM_RMS;
    return c;
}

/* Learned positions are a matrix like others, whatever stands before them. */
static void learned_positions_decay(void **state)
{
    (void)state;
    mr_dev *dev = open_device("ref", 1, NULL);
    mr_config c = config_at(1);
    mr_model *model;
    assert_int_equal(mr_model_new(&c, dev, MR_DECAY_MATRICES, &model, NULL), 0);
    const mr_params *params = mr_model_params(model);
    const int row = mr_params_find(params, "blocks.0.mixer.position");
    assert_that(row, >=, 0);
    assert_int_equal(params->list[row].decay, 1);
    mr_model_free(model);
    mr_dev_close(dev);
}

static double tolerance_of(const mr_dev *dev, double single)
{
    return dev->real_size == sizeof(double) ? 1e-11 : single;
}

static void rare_resets(mr_batch *batch)
{
    mr_rng rng = mr_rng_at(22, MR_STREAM_SAMPLE, 0, 0);
    for (int t = 0; batch->reset && t < batch->B * batch->T; t++)
        batch->reset[t] = mr_rng_below(&rng, 1 + (uint32_t)batch->T / 3) == 0;
}

/* ---- at once ≡ token by token ≡ in chunks */

enum { WHOLE, STEPS, CHUNKS };

/* Logits [B, T, C], followed by the state. */
static double *run_in(bag *own, mr_model *model, const mr_batch *batch, int cut, size_t *count)
{
    mr_rng rng = mr_rng_at(21, MR_STREAM_SAMPLE, (uint32_t)cut, 0);
    size_t C = (size_t)text.outputs, logits = (size_t)(batch->B * batch->T) * C,
           reals = (size_t)batch->B * mr_model_state_reals(model);
    double *out = bag_host(own, *count = logits + reals);
    mr_state *state = make_state(model, batch->B);
    for (int at = 0, n; at < batch->T; at += n) {
        n = cut == WHOLE ? batch->T : cut == STEPS ? 1 : 1 + (int)mr_rng_below(&rng, 1u << mr_rng_below(&rng, 10));
        n = n < batch->T - at ? n : batch->T - at;
        mr_batch piece = cut_batch(batch, &text, at, n);
        mr_model_forward(model, &piece, state, 0);
        for (int b = 0; b < batch->B; b++)
            get_doubles(own->dev, out + (size_t)(b * batch->T + at) * C,
                        mr_act_at(own->dev, model->logits, (size_t)(b * n) * C), (size_t)n * C);
        mr_batch_free(&piece);
    }
    get_doubles(own->dev, out + logits, state->reals, reals);
    mr_state_free(state);
    return out;
}

static void check_cuts_of(mr_dev *dev, int i, int B, int T)
{
    bag own = {.dev = dev};
    mr_config config = config_at(i);
    mr_model *model = make_model(&config, dev, B, T, 0);
    mr_batch batch = make_batch(&text, B, T, T % 2, 0, (uint32_t)T);
    rare_resets(&batch);
    size_t n;
    char name[128];
    snprintf(name, sizeof name, "%s %s: form %d, T %d", dev->kind, dev->isa, i, T);
    double *whole = run_in(&own, model, &batch, WHOLE, &n);
    check_near(name, run_in(&own, model, &batch, STEPS, &n), whole, n, tolerance_of(dev, 1e-4));
    check_near(name, run_in(&own, model, &batch, CHUNKS, &n), whole, n, tolerance_of(dev, 1e-4));
    mr_model_forward(model, &batch, NULL, 0);
    size_t logits = (size_t)(B * T * text.outputs);
    check_near(name, bag_get(&own, model->logits, logits), whole, logits, tolerance_of(dev, 1e-4));
    mr_batch_free(&batch);
    mr_model_free(model);
    bag_empty(&own);
}

static void check_cuts(mr_dev *dev)
{
    static const int lengths[] = {1, 2, 17, 130, 601};
    for (int i = 0; i < COUNT(forms_of_attention); i++)
        for (int t = 0; t < COUNT(lengths) - REDUCED; t++) check_cuts_of(dev, i, t < 3 ? 2 : 1, lengths[t]);
}

/* ---- gradients passed from chunk to chunk equal those of the whole */

static void learn(mr_model *model, const mr_batch *batch, mr_state *state, const mr_state *after, mr_state *before)
{
    mr_model_forward(model, batch, state, 1);
    mr_model_loss(model, batch, 1);
    mr_model_backward(model, batch, after, before);
}

static void check_chunked_gradients(mr_dev *dev)
{
    enum { B = 3, T = 29, CUT = 11 };
    for (int i = 0; i < COUNT(forms_of_attention); i++) {
        bag own = {.dev = dev};
        mr_config config = config_at(i);
        mr_model *model = make_model(&config, dev, B, T, 1);
        mr_batch batch = make_batch(&text, B, T, i % 2, 0, (uint32_t)i), first = cut_batch(&batch, &text, 0, CUT),
                 second = cut_batch(&batch, &text, CUT, T - CUT);
        const mr_params *params = mr_model_params(model);
        mr_state *state = make_state(model, B), *between = make_state(model, B);
        learn(model, &batch, NULL, NULL, NULL);
        double *whole = bag_get(&own, model->grads, params->total);
        mr_model_zero_grads(model);
        mr_model_forward(model, &first, state, 0);
        learn(model, &second, state, NULL, between);
        mr_state_reset(state);
        learn(model, &first, state, between, NULL);
        double *parts = bag_get(&own, model->grads, params->total);
        for (int p = 0; p < params->count; p++) {
            const mr_param *row = &params->list[p];
            check_norm(row->name, parts + row->offset, whole + row->offset, row->count, tolerance_of(dev, 1e-4),
                       1e-7 * norm_of(whole, params->total));
        }
        mr_state_free(between);
        mr_state_free(state);
        mr_batch_free(&first);
        mr_batch_free(&second);
        mr_batch_free(&batch);
        mr_model_free(model);
        bag_empty(&own);
    }
}

/* ---- gradients against finite differences: loss + Σ pull·(final state), along random directions */

typedef struct tested_model {
    mr_model *model;
    mr_batch batch;
    mr_state *state, *after, *before;
    size_t reals;
    double *start, *pull;
} tested_model;

static double loss_of(tested_model *s, bag *own)
{
    double stats[MR_STATS], loss;
    put_doubles(own->dev, s->state->reals, s->start, s->reals);
    s->state->under_way = 1;
    mr_model_zero_stats(s->model);
    mr_model_forward(s->model, &s->batch, s->state, 1);
    mr_model_loss(s->model, &s->batch, 0);
    mr_model_stats(s->model, stats);
    loss = stats[MR_STAT_LOSS];
    double *end = mr_alloc(s->reals, sizeof *end);
    get_doubles(own->dev, end, s->state->reals, s->reals);
    for (size_t i = 0; i < s->reals; i++) loss += s->pull[i] * end[i];
    mr_free(end);
    return loss;
}

static void check_direction(tested_model *s, bag *own, const char *what, void *place, double *x, const double *gradient,
                            size_t n, mr_rng *rng)
{
    const double step = 1e-5;
    double *direction = mr_alloc(n, sizeof *direction), *moved = mr_alloc(n, sizeof *moved), want = 0, loss[2],
           *start = s->start;
    for (size_t i = 0; i < n; i++) want += gradient[i] * (direction[i] = mr_rng_normal(rng));
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i < n; i++) moved[i] = x[i] + (side ? step : -step) * direction[i];
        if (place) put_doubles(own->dev, place, moved, n);
        else s->start = moved;
        loss[side] = loss_of(s, own);
        s->start = start;
    }
    if (place) put_doubles(own->dev, place, x, n);
    double got = (loss[1] - loss[0]) / (2 * step), size = norm_of(gradient, n);
    if (!(fabs(got - want) <= 1e-6 * (fabs(want) + size) + 1e-9))
        fail_msg("%s: gradient %.12g, finite difference %.12g", what, want, got);
    mr_free(direction);
    mr_free(moved);
}

static void check_differences(mr_dev *dev, int i, int carried)
{
    enum { B = 2, T = 9 };
    bag own = {.dev = dev};
    mr_config config = config_at(i);
    tested_model s = {.model = make_model(&config, dev, B, T, 1),
                      .batch = make_batch(&text, B, T, i % 2, i % 3 == 0, 5)};
    const mr_params *params = mr_model_params(s.model);
    mr_rng rng = mr_rng_at(31, MR_STREAM_SAMPLE, (uint32_t)i, 0);
    s.state = make_state(s.model, B), s.after = make_state(s.model, B), s.before = make_state(s.model, B);
    s.reals = B * mr_model_state_reals(s.model);
    for (int k = 0; k < carried; k++) mr_model_forward(s.model, &s.batch, s.state, 0);
    s.start = bag_get(&own, s.state->reals, s.reals);
    s.pull = bag_random(&own, &rng, s.reals, 0.1);
    put_doubles(dev, s.after->reals, s.pull, s.reals);
    loss_of(&s, &own);
    put_doubles(dev, s.state->reals, s.start, s.reals);
    learn(s.model, &s.batch, s.state, s.after, s.before);
    double *weights = bag_get(&own, s.model->weights, params->total),
           *grads = bag_get(&own, s.model->grads, params->total);
    for (int row = 0; row < params->count; row++) {
        const mr_param *p = &params->list[row];
        check_direction(&s, &own, p->name, mr_real_at(dev, s.model->weights, p->offset), weights + p->offset,
                        grads + p->offset, p->count, &rng);
    }
    check_direction(&s, &own, "the state before", NULL, s.start, bag_get(&own, s.before->reals, s.reals), s.reals,
                    &rng);
    mr_state_free(s.state);
    mr_state_free(s.after);
    mr_state_free(s.before);
    mr_batch_free(&s.batch);
    mr_model_free(s.model);
    bag_empty(&own);
}

static void gradients_agree_with_differences(void **unused)
{
    (void)unused;
    mr_dev *dev = open_device("ref64", 1, NULL);
    for (int i = 0; i < COUNT(forms_of_attention); i++)
        for (int carried = 0; carried < 3; carried++) check_differences(dev, i, carried);
    mr_dev_close(dev);
}

/* ---- rows of a ragged batch, and what follows a reset, are independent sequences */

static void check_apart(mr_dev *dev)
{
    enum { B = 3, T = 23 };
    size_t C = (size_t)text.outputs;
    for (int i = 0; i < COUNT(forms_of_attention); i++) {
        bag own = {.dev = dev};
        mr_config config = config_at(i);
        mr_model *model = make_model(&config, dev, B, T, 0);
        mr_batch batch = make_batch(&text, B, T, 1, 1, 60 + (uint32_t)i);
        mr_model_forward(model, &batch, NULL, 0);
        double *together = bag_get(&own, model->logits, B * T * C);
        for (int b = 0; b < B; b++) {
            int n = batch.length[b], last = 0;
            for (int t = 0; t < n; t++)
                if (batch.reset[b * T + t]) last = t;
            mr_batch alone = make_batch(&text, 1, n - last, 0, 0, 1);
            memcpy(alone.ids, batch.ids + b * T + last, (size_t)(n - last) * sizeof *alone.ids);
            mr_model_forward(model, &alone, NULL, 0);
            size_t values = (size_t)(n - last) * C;
            check_near("the last sequence of a row", together + (size_t)(b * T + last) * C,
                       bag_get(&own, model->logits, values), values, 1e-4);
            mr_batch_free(&alone);
        }
        mr_batch_free(&batch);
        mr_model_free(model);
        bag_empty(&own);
    }
}

/* ---- the same bits for any number of threads */

static void threads_change_no_bit(void **unused)
{
    (void)unused;
    static const int threads[] = {1, 2, 5};
    enum { B = 2, T = 300 };
    for (int i = 0; i < COUNT(forms_of_attention); i++) {
        double *first = NULL;
        bag own[COUNT(threads)] = {{0}};
        for (int k = 0; k < COUNT(threads); k++) {
            mr_dev *dev = own[k].dev = open_device("cpu", threads[k], NULL);
            mr_config config = config_at(i);
            mr_model *model = make_model(&config, dev, B, T, 1);
            mr_batch batch = make_batch(&text, B, T, 1, 1, 3);
            rare_resets(&batch);
            size_t total = mr_model_params(model)->total;
            learn(model, &batch, NULL, NULL, NULL);
            double *grads = bag_get(&own[k], model->grads, total);
            if (first) assert_memory_equal(grads, first, total * sizeof *grads);
            else first = grads;
            mr_batch_free(&batch);
            mr_model_free(model);
        }
        for (int k = 0; k < COUNT(threads); k++) {
            mr_dev *dev = own[k].dev;
            bag_empty(&own[k]);
            mr_dev_close(dev);
        }
    }
}

/* ---- against PyTorch (golden/make_golden.py) */

static double *golden(bag *own, const mr_st *st, const char *prefix, const char *name, size_t n)
{
    char full[64];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    const mr_st_tensor *t = mr_st_find(st, full);
    if (!t || t->bytes != n * sizeof(double)) fail_msg("no tensor %s of %zu numbers in the golden file", full, n);
    double *values = bag_host(own, n);
    assert_int_equal(mr_st_read(st, full, t, values, NULL), 0);
    return values;
}

static void check_golden_of(mr_dev *dev, const mr_st *st, const char *name, int rotary, int window)
{
    enum { B = 2, T = 9, D = 12, HEADS = 3, N = B * T };
    bag own = {.dev = dev};
    char prefix[16];
    double tolerance = dev->real_size == sizeof(double) ? 1e-12 : 2e-5;
    mr_attn shape = {.B = B, .T = T, .heads = HEADS, .size = D / HEADS, .window = window, .rotary = rotary};
    void *x = bag_put(&own, golden(&own, st, "", "x", N * D), N * D),
         *dy = bag_put(&own, golden(&own, st, "", "dy", N * D), N * D);
    void *W = bag_put(&own, golden(&own, st, "weight.", "in_proj_weight", 3 * D * D), 3 * D * D);
    void *b = bag_put(&own, golden(&own, st, "weight.", "in_proj_bias", 3 * D), 3 * D);
    void *V = bag_put(&own, golden(&own, st, "weight.", "out_proj.weight", D * D), D * D);
    void *c = bag_put(&own, golden(&own, st, "weight.", "out_proj.bias", D), D);
    void *qkv = bag_poisoned(&own, 3 * N * D), *mixed = bag_poisoned(&own, N * D),
         *lse = bag_poisoned(&own, B * HEADS * T), *y = bag_poisoned(&own, N * D);
    void *dmixed = bag_poisoned(&own, N * D), *dx = bag_poisoned(&own, N * D),
         *dW = bag_device(&own, 3 * D * D * dev->real_size), *db = bag_device(&own, 3 * D * dev->real_size);
    uint8_t *reset = rotary ? bag_device(&own, N) : NULL;
    uint8_t flags[N];
    assert_int_equal(mr_st_read(st, "reset", mr_st_find(st, "reset"), flags, NULL), 0);
    if (reset) dev->upload(dev, reset, flags, N);
    dev->ops.linear_fwd(dev, &(mr_linear_fwd_args){.M = N, .N = 3 * D, .K = D, .x = x, .W = W, .b = b, .y = qkv});
    dev->ops.attn_fwd(dev, &(mr_attn_fwd_args){.shape = shape, .qkv = qkv, .reset = reset, .y = mixed, .lse = lse});
    dev->ops.linear_fwd(dev, &(mr_linear_fwd_args){.M = N, .N = D, .K = D, .x = mixed, .W = V, .b = c, .y = y});
    dev->ops.linear_bwd_x(dev, &(mr_linear_bwd_x_args){.M = N, .N = D, .K = D, .dy = dy, .W = V, .dx = dmixed});
    dev->ops.attn_bwd(
        dev, &(mr_attn_bwd_args){.shape = shape, .qkv = qkv, .reset = reset, .y = mixed, .lse = lse, .dy = dmixed});
    dev->ops.linear_bwd_w(dev,
                          &(mr_linear_bwd_w_args){.M = N, .N = 3 * D, .K = D, .dy = qkv, .x = x, .dW = dW, .db = db});
    dev->ops.linear_bwd_x(dev, &(mr_linear_bwd_x_args){.M = N, .N = 3 * D, .K = D, .dy = qkv, .W = W, .dx = dx});
    snprintf(prefix, sizeof prefix, "%s.", name);
    check_near("y", bag_get(&own, y, N * D), golden(&own, st, prefix, "y", N * D), N * D, tolerance);
    check_near("dx", bag_get(&own, dx, N * D), golden(&own, st, prefix, "d.x", N * D), N * D, tolerance);
    check_near("dW", bag_get(&own, dW, 3 * D * D), golden(&own, st, prefix, "d.in_proj_weight", 3 * D * D), 3 * D * D,
               tolerance);
    check_near("db", bag_get(&own, db, 3 * D), golden(&own, st, prefix, "d.in_proj_bias", 3 * D), 3 * D, tolerance);
    bag_empty(&own);
}

static void check_golden(mr_dev *dev)
{
    mr_error err = {0};
    mr_st *st;
    if (mr_st_open(MINRNN_SOURCE_DIR "/tests/golden/attention.safetensors", &st, &err)) fail_msg("%s", err.text);
    check_golden_of(dev, st, "none", 0, 9);
    check_golden_of(dev, st, "rotary", 1, 4);
    mr_st_close(st);
}

/* ---- configurations that make no sense */

static void refuses(mr_config config, const char *word)
{
    mr_error err = {0};
    assert_int_equal(mr_config_check(&config, &err), MR_ECONFIG);
    assert_non_null(strstr(err.text, word));
}

static void wrong_configurations_are_refused(void **unused)
{
    (void)unused;
    mr_config good = config_at(0), c = good;
    assert_int_equal(mr_config_check(&good, NULL), 0);
    c.heads = 5, refuses(c, "heads = 5");
    c = good, c.heads = 4, refuses(c, "rotary");
    c = good, c.dim = 260, c.heads = 2, refuses(c, "130 channels per head");
    c = good, c.window = 0, refuses(c, "window = 0");
    c = good, c.window = 1 << 24, c.dim = 65536, c.heads = 1024, refuses(c, "window");
    c = good, c.dim = 384, c.heads = c.window = 0;
    mr_config_settle(&c, 256);
    assert_that(c.heads, ==, 6);
    assert_that(c.window, ==, 256);
    c.dim = 130, c.heads = 0;
    assert_int_equal(mr_config_heads(&c), 5);
    c.dim = 9;
    assert_int_equal(mr_config_heads(&c), 1);
}

ON_DEVICES_REF64(agrees_with_pytorch, check_golden)
ON_DEVICES_REF64(at_once_equals_steps_equals_chunks, check_cuts)
ON_DEVICES_REF64(gradients_through_chunks_equal_the_whole, check_chunked_gradients)
ON_DEVICES(sequences_in_a_row_are_independent, check_apart)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_configurations_are_refused),
        cmocka_unit_test(learned_positions_decay),
        DEVICE_TESTS(agrees_with_pytorch),
        DEVICE_TESTS(at_once_equals_steps_equals_chunks),
        DEVICE_TESTS(gradients_through_chunks_equal_the_whole),
        cmocka_unit_test(gradients_agree_with_differences),
        DEVICE_TESTS(sequences_in_a_row_are_independent),
        cmocka_unit_test(threads_change_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
