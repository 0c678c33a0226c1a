/* Models with GRU or LSTM: gradients compared with finite differences on ref64, and with ref64 on other devices; how
 * biases start; what is refused; and that they run in 8 bits. */
#include "support.h"

#include "model/quantize.h"

static const mr_interface text = {MR_INPUT_TOKENS, 7, MR_HEAD_TOKEN, MR_LOSS_XENT, 7};

static const struct {
    const char *mixer;
    int reset;
} kinds[] = {{"gru", MR_RESET_BEFORE}, {"gru", MR_RESET_AFTER}, {"lstm", MR_RESET_BEFORE}};

static mr_config config_at(int which)
{
    mr_config c;
    mr_options_default(mr_config_options, &c);
    mr_config_set_interface(&c, &text);
    for (c.mixer = 0; strcmp(mr_mixer_names[c.mixer], kinds[which].mixer); c.mixer++) continue;
    c.gru_reset = kinds[which].reset;
    c.layers = 2;
    c.dim = 4;
    c.conv = 4;
    return c;
}

/* ---- gradients of: loss of a batch + Σ pull·(final state) */

typedef struct tested_model {
    bag bag;
    mr_model *model;
    mr_batch batch;
    mr_state *state, *dafter, *dbefore;
    int carried;
    size_t total, reals;
    double *before, *pull, *weights, *grads, *dstate;
} tested_model;

/* company: bits for resets, ragged rows, a carried state, a learned start; B rows. */
static void make_tested_model(tested_model *s, mr_dev *dev, int which, int company, int B, int T, int dim)
{
    mr_config c = config_at(which);
    mr_rng rng = mr_rng_at(8, MR_STREAM_SAMPLE, (uint32_t)company, 0);
    c.dim = dim;
    c.h0_learned = company >> 3 & 1;
    *s = (tested_model){.bag = {.dev = dev}, .model = make_model(&c, dev, B, T, 1), .carried = company >> 2 & 1};
    s->batch = make_batch(&text, B, T, company & 1, company >> 1 & 1, 5 + (uint32_t)company);
    s->total = mr_model_params(s->model)->total;
    s->weights = bag_get(&s->bag, s->model->weights, s->total);
    s->state = make_state(s->model, B);
    s->dafter = make_state(s->model, B);
    s->dbefore = make_state(s->model, B);
    s->reals = (size_t)B * mr_model_state_reals(s->model);
    s->before = bag_random(&s->bag, &rng, s->reals, 0.5);
    s->pull = bag_random(&s->bag, &rng, s->reals, 0.3);
    put_doubles(dev, s->dafter->reals, s->pull, s->reals);
}

static void free_tested_model(tested_model *s)
{
    mr_state_free(s->state);
    mr_state_free(s->dafter);
    mr_state_free(s->dbefore);
    mr_batch_free(&s->batch);
    bag_empty(&s->bag);
    mr_model_free(s->model);
}

static void forward(tested_model *s)
{
    put_doubles(s->bag.dev, s->state->reals, s->before, s->reals);
    s->state->under_way = s->carried;
    mr_model_forward(s->model, &s->batch, s->state, 1);
}

static double loss_of(tested_model *s)
{
    double stats[MR_STATS], loss, *after = mr_alloc(s->reals, sizeof *after);
    assert_non_null(after);
    mr_model_zero_stats(s->model);
    forward(s);
    mr_model_loss(s->model, &s->batch, 0);
    mr_model_stats(s->model, stats);
    loss = stats[MR_STAT_LOSS];
    get_doubles(s->bag.dev, after, s->state->reals, s->reals);
    for (size_t i = 0; i < s->reals; i++) loss += s->pull[i] * after[i];
    mr_free(after);
    return loss;
}

static void backward(tested_model *s)
{
    mr_model_zero_grads(s->model);
    forward(s);
    mr_model_loss(s->model, &s->batch, 1);
    mr_model_backward(s->model, &s->batch, s->dafter, s->dbefore);
    s->grads = bag_get(&s->bag, s->model->grads, s->total);
    s->dstate = bag_get(&s->bag, s->dbefore->reals, s->reals);
}

/* The slope of the loss along a direction through x must be gradient·direction. */
static void check_slope(tested_model *s, const char *what, mr_real *place, double *x, const double *gradient, size_t n,
                        uint32_t seed)
{
    const double step = 1e-6;
    mr_rng rng = mr_rng_at(6, MR_STREAM_SAMPLE, seed, 0);
    double *direction = bag_host(&s->bag, n), *moved = bag_host(&s->bag, n), *kept = s->before, loss[2], want = 0;
    for (size_t i = 0; i < n; i++) want += gradient[i] * (direction[i] = mr_rng_normal(&rng));
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i < n; i++) moved[i] = x[i] + (side ? -step : step) * direction[i];
        if (place) put_doubles(s->bag.dev, place, moved, n);
        else s->before = moved;
        loss[side] = loss_of(s);
    }
    s->before = kept;
    if (place) put_doubles(s->bag.dev, place, x, n);
    double got = (loss[0] - loss[1]) / (2 * step);
    if (!(fabs(got - want) <= 1e-6 * (fabs(want) + norm_of(gradient, n)) + 1e-8))
        fail_msg("%s: gradient %.12g, finite difference %.12g", what, want, got);
}

static void gradients_agree_with_differences(void **state)
{
    (void)state;
    mr_dev *dev = open_device("ref64", 1, NULL);
    for (int which = 0; which < COUNT(kinds); which++)
        for (int company = 0; company < 16; company++) {
            tested_model s;
            char name[128];
            make_tested_model(&s, dev, which, company, 3, 6, 4);
            backward(&s);
            const mr_params *params = mr_model_params(s.model);
            for (int row = 0; row < params->count; row++) {
                const mr_param *p = &params->list[row];
                snprintf(name, sizeof name, "%s %d, company %d: %s", kinds[which].mixer, kinds[which].reset, company,
                         p->name);
                check_slope(&s, name, mr_real_at(dev, s.model->weights, p->offset), s.weights + p->offset,
                            s.grads + p->offset, p->count, (uint32_t)row);
            }
            snprintf(name, sizeof name, "%s %d, company %d: the state before", kinds[which].mixer, kinds[which].reset,
                     company);
            if (s.carried) check_slope(&s, name, NULL, s.before, s.dstate, s.reals, 99);
            free_tested_model(&s);
        }
    mr_dev_close(dev);
}

static void check_against_ref64(mr_dev *dev)
{
    mr_dev *exact = open_device("ref64", 1, NULL);
    for (int which = 0; which < COUNT(kinds); which++)
        for (int company = 0; company < 16; company += REDUCED ? 5 : 1) {
            tested_model got, want;
            const int B = company % 3 ? 3 : 17;
            make_tested_model(&got, dev, which, company, B, 9, 10);
            make_tested_model(&want, exact, which, company, B, 9, 10);
            backward(&got);
            backward(&want);
            const mr_params *params = mr_model_params(want.model);
            double floor = 1e-7 * norm_of(want.grads, want.total);
            for (int row = 0; row < params->count; row++) {
                const mr_param *p = &params->list[row];
                check_norm(p->name, got.grads + p->offset, want.grads + p->offset, p->count, 1e-4, floor);
            }
            check_norm("the state before", got.dstate, want.dstate, want.reals, 1e-4, floor);
            free_tested_model(&got);
            free_tested_model(&want);
        }
    mr_dev_close(exact);
}

ON_DEVICES(devices_agree_with_ref64, check_against_ref64)

/* ---- how biases start */

static float *initial(const mr_config *c, const char *name, double horizon, int *width)
{
    mr_dev *dev = open_device("ref", 1, NULL);
    mr_error err = {0};
    mr_model *model;
    if (mr_model_new(c, dev, MR_DECAY_MATRICES, &model, &err)) fail_msg("%s", err.text);
    const mr_params *params = mr_model_params(model);
    const mr_param *p = &params->list[mr_params_find(params, name)];
    float *all = mr_alloc(params->total, sizeof *all), *values = mr_alloc(p->count, sizeof *values);
    mr_model_init_weights(model, 7, horizon, all);
    memcpy(values, all + p->offset, p->count * sizeof *values);
    *width = mr_config_width(c);
    mr_free(all);
    mr_model_free(model);
    mr_dev_close(dev);
    return values;
}

static void biases_start_as_configured(void **state)
{
    (void)state;
    const float limit = (float)log(100.0);
    for (int which = 0; which < COUNT(kinds); which++) {
        mr_config c = config_at(which);
        int H, lstm = !strcmp(kinds[which].mixer, "lstm");
        strcpy(c.gate_init, "forget-bias=2.5");
        float *ih = initial(&c, "blocks.0.mixer.bias_ih", 100, &H),
              *hh = initial(&c, "blocks.0.mixer.bias_hh", 100, &H);
        for (int i = 0; i < H; i++) {
            assert_that(ih[H + i], ==, 2.5f);
            assert_that(hh[H + i], ==, 0);
            assert_that(ih[i], !=, 0);
            assert_that(fabsf(ih[i]), <=, 1 / sqrtf((float)H));
            assert_that(hh[i], !=, 0);
        }
        mr_free(ih);
        mr_free(hh);
        strcpy(c.gate_init, "timescales");
        ih = initial(&c, "blocks.0.mixer.bias_ih", 100, &H), hh = initial(&c, "blocks.0.mixer.bias_hh", 100, &H);
        for (int i = 0; i < H; i++) {
            assert_that(ih[H + i], >, 0);
            assert_that(ih[H + i], <=, limit);
            assert_that(hh[H + i], ==, 0);
            if (lstm) {
                assert_that(ih[i], ==, -ih[H + i]);
                assert_that(hh[i], ==, 0);
            } else assert_that(fabsf(ih[i]), <=, 1 / sqrtf((float)H));
        }
        assert_that(ih[H], !=, ih[H + 1]);
        mr_free(ih);
        mr_free(hh);
        strcpy(c.gate_init, "timescales=2"); /* the longest timescale is given, not the task's */
        ih = initial(&c, "blocks.0.mixer.bias_ih", 1e6, &H);
        for (int i = 0; i < H; i++) {
            assert_that(ih[H + i], >, 0);
            assert_that(ih[H + i], <=, logf(2));
        }
        mr_free(ih);
    }
}

/* minGRU with sums=X: z starts at −X and candidates are larger by e^X. A minLSTM has separate
 * gates and only needs the bias. */
static void sums_sets_bias_and_candidates(void **state)
{
    (void)state;
    mr_config plain = config_at(0), sums;
    int H;
    plain.candidate = MR_LINEAR;
    plain.layers = 4;
    for (int lstm = 0; lstm < 2; lstm++) {
        for (plain.mixer = 0; strcmp(mr_mixer_names[plain.mixer], lstm ? "minlstm" : "mingru"); plain.mixer++) continue;
        sums = plain;
        strcpy(sums.gate_init, "sums=12,3,-2");
        for (int block = 0; block < 4;
             /* the third number also holds for the fourth block; below 0, states forget anyway */
             block++) {
            const double X = block == 0 ? 12 : block == 1 ? 3 : -2;
            char bias_name[64], weight_name[64];
            snprintf(bias_name, sizeof bias_name, "blocks.%d.mixer.linear_%c.bias", block, lstm ? 'f' : 'z');
            snprintf(weight_name, sizeof weight_name, "blocks.%d.mixer.linear_h.weight", block);
            float *bias = initial(&sums, bias_name, 100, &H);
            float *before = initial(&plain, weight_name, 100, &H), *after = initial(&sums, weight_name, 100, &H);
            for (int i = 0; i < H; i++) {
                assert_true(bias[i] == (float)(lstm ? X : -X));
                assert_true(fabs(after[i] / (before[i] * (lstm || X < 0 ? 1 : exp(X))) - 1) < 1e-6);
            }
            mr_free(bias);
            mr_free(before);
            mr_free(after);
        }
    }
}

/* Signed gates keep the same share of the state at the start as positive ones do. */
static void signed_gates_start_with_the_same_share(void **state)
{
    (void)state;
    static const char *const starts[] = {"forget-bias=2.5", "sums=1.5", "timescales", "timescales-uniform=9"};
    for (int lstm = 0; lstm < 2; lstm++)
        for (int i = 0; i < COUNT(starts); i++) {
            mr_config c = config_with(lstm ? "minlstm" : "mingru", &text), other;
            const char *gate = lstm ? "blocks.0.mixer.linear_f.bias" : "blocks.0.mixer.linear_z.bias";
            const double sign = lstm ? 1 : -1;
            int H;
            strcpy(c.gate_init, starts[i]);
            other = c;
            other.transition = MR_TRANSITION_SIGNED;
            float *positive = initial(&c, gate, 100, &H), *with_sign = initial(&other, gate, 100, &H);
            for (int k = 0; k < H; k++) {
                const double share = 1 / (1 + exp(-sign * positive[k]));
                assert_that(fabs(1.2 * tanh(with_sign[k]) - share), <=, 1e-6);
            }
            mr_free(positive);
            mr_free(with_sign);
        }
}

/* ---- invalid configurations */

static void refuse(mr_config c, const char *word)
{
    mr_error err = {0};
    assert_int_equal(mr_config_check(&c, &err), MR_ECONFIG);
    if (!strstr(err.text, word)) fail_msg("\"%s\" does not name %s", err.text, word);
}

static void wrong_configurations_are_refused(void **state)
{
    (void)state;
    mr_error err = {0};
    for (int which = 0; which < COUNT(kinds); which++) {
        mr_config c = config_at(which);
        assert_int_equal(mr_config_check(&c, &err), 0);
        c.candidate = MR_TANH;
        refuse(c, "candidate");
    }
    mr_config lstm = config_at(2), mingru = config_at(0), large = config_at(0);
    lstm.gru_reset = MR_RESET_AFTER;
    refuse(lstm, "gru-reset");
    mingru.mixer = 0;
    mingru.gru_reset = MR_RESET_AFTER;
    refuse(mingru, "gru-reset");
    large.dim = 65536;
    large.expansion = 64;
    refuse(large, "expansion");
}

/* ---- 8 bits: everything but embed.weight and weight_hh */

static void int8_models_keep_weight_hh(void **state)
{
    (void)state;
    mr_dev *dev = open_device("cpu", 1, NULL);
    for (int which = 0; which < COUNT(kinds); which++) {
        bag own = {.dev = dev};
        mr_config c = config_at(which);
        c.dim = 24;
        mr_model *plain = make_model(&c, dev, 2, 9, 0), *small;
        const mr_params *from = mr_model_params(plain);
        float *weights = mr_alloc(from->total, sizeof *weights);
        mr_error err = {0};
        dev->get(dev, weights, plain->weights, from->total);
        c.weights = MR_WEIGHTS_INT8;
        if (mr_model_new(&c, dev, MR_DECAY_MATRICES, &small, &err) || mr_model_plan(small, 2, 9, 0, &err))
            fail_msg("%s", err.text);
        const mr_params *to = mr_model_params(small);
        float *reals = mr_alloc(to->total, sizeof *reals);
        int8_t *bytes = mr_alloc(small->quants.bytes, 1);
        mr_quantize_vector(from, weights, to, &small->quants, reals, bytes);
        mr_model_put(small, MR_WEIGHTS, reals);
        mr_model_put_bytes(small, bytes);
        assert_string_equal(mr_model_dtype(small, mr_params_find(to, "blocks.1.mixer.weight_hh")), "F32");
        assert_string_equal(mr_model_dtype(small, mr_params_find(to, "blocks.1.mixer.weight_ih")), "I8");
        mr_batch batch = make_batch(&text, 2, 9, 1, 1, 3);
        size_t n = 2 * 9 * (size_t)text.outputs;
        mr_model_forward(plain, &batch, NULL, 0);
        mr_model_forward(small, &batch, NULL, 0);
        double *want = bag_get(&own, plain->logits, n), *got = bag_get(&own, small->logits, n);
        check_norm("logits in 8 bits", got, want, n, 0.05, 0);
        assert_memory_not_equal(got, want, n * sizeof *got);
        mr_batch_free(&batch);
        mr_free(weights);
        mr_free(reals);
        mr_free(bytes);
        mr_model_free(plain);
        mr_model_free(small);
        bag_empty(&own);
    }
    mr_dev_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_agree_with_differences),
        DEVICE_TESTS(devices_agree_with_ref64),
        cmocka_unit_test(biases_start_as_configured),
        cmocka_unit_test(sums_sets_bias_and_candidates),
        cmocka_unit_test(signed_gates_start_with_the_same_share),
        cmocka_unit_test(wrong_configurations_are_refused),
        cmocka_unit_test(int8_models_keep_weight_hh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
