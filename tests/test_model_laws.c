/* The laws of state for whole models, on every device: at once ≡ token by token ≡ in chunks, also for
 * gradients; resets and ragged rows are independent sequences; a state can be saved, restored and cloned; the
 * same bits for any thread count. */
#include "support.h"

/* The op's law is 1e-5·max(1, |h|) (test_laws.c). On the way to the logits an error passes norms, projections and the
 * layers above, each of which may enlarge it a little: ten times that for the logits. In bf16, products of a piece of
 * another length may round to neighbouring numbers in every layer. */
static const double LOGITS = 1e-4, LOGITS_LOG = 2e-3, LOGITS_BF16 = 16 * BF16;

static const mr_interface text = {
    .input = MR_INPUT_TOKENS, .inputs = 11, .head = MR_HEAD_TOKEN, .loss = MR_LOSS_XENT, .outputs = 11};

/* The i-th model: every form, with varying other settings. */
static mr_config config_at(int i, const mr_interface *interface)
{
    mr_config c = model_config(i, interface);
    c.layers = 2;
    c.dim = 9;
    c.h0_learned = is_cell(i) && i % 2;
    c.conv = i % 3 ? (i % 4 == 1 ? 7 : i % 4 == 2 ? 2 : 4) : 0;
    c.conv_place = i % 3 == 1 ? MR_CONV_INSIDE : MR_CONV_RESIDUAL;
    c.mlp = i % 4 < 2 ? 2 : 0;
    c.mlp_gate = c.mlp ? (mr_mlp_gate)(i % 3) : MR_MLP_PLAIN;
    c.gelu = i % 3 == 2 ? MR_GELU_IS_ERF : MR_GELU_IS_TANH;
    c.mixer_bias = i % 7 != 3 || !strcmp(model_name(i), "gru") || !strcmp(model_name(i), "lstm");
    c.tied = i % 5 == 2;
    c.head_bias = i % 2 == 0;
    c.norm = i % 5 < 2 ? MR_NORM_RMS : i % 5 < 4 ? MR_NORM_LAYER : MR_NORM_NONE;
    return c;
}

static double tolerance_at(const mr_dev *dev, int i)
{
    double tolerance = is_cell(i) && forms[i].cell.scan == MR_SCAN_LOG ? LOGITS_LOG : LOGITS;
    return is_bf16(dev) ? tolerance + LOGITS_BF16 : tolerance;
}

/* Tolerance of gradients, in norm. */
static double gradient_tolerance(const mr_dev *dev)
{
    return is_bf16(dev) ? 8 * BF16 : dev->real_size == sizeof(double) ? 1e-11 : 1e-4;
}
static double gradient_floor(const mr_dev *dev)
{
    return is_bf16(dev) ? BF16 / 4 : 1e-7;
} /* for those that nearly cancel */

static void check_logits(mr_dev *dev, int i, const char *law, const double *got, const double *want, size_t n)
{
    char name[256];
    snprintf(name, sizeof name, "%s %s, %d threads: %s: %s", dev->kind, dev->isa, dev->threads, model_name(i), law);
    check_near(name, got, want, n, tolerance_at(dev, i));
}

/* One row of a batch, up to its length. */
static mr_batch row_of(const mr_batch *from, const mr_interface *interface, int b, int n)
{
    mr_batch to = make_batch(interface, 1, n, from->reset != NULL, 0, 1);
    memcpy(to.ids, from->ids + (size_t)b * (size_t)from->T, (size_t)n * sizeof *to.ids);
    if (from->reset) memcpy(to.reset, from->reset + (size_t)b * (size_t)from->T, (size_t)n);
    return to;
}

/* ---- cuts */

enum { WHOLE, STEPS, CHUNKS };

static double *logits_in(bag *own, mr_model *model, const mr_batch *batch, int cut)
{
    mr_rng rng = mr_rng_at(21, MR_STREAM_SAMPLE, (uint32_t)cut, 0);
    size_t C = (size_t)text.outputs;
    double *logits = bag_host(own, (size_t)batch->B * (size_t)batch->T * C);
    mr_state *state = make_state(model, batch->B);
    for (int at = 0, n; at < batch->T; at += n) {
        n = cut == WHOLE ? batch->T : cut == STEPS ? 1 : 1 + (int)mr_rng_below(&rng, 1u << mr_rng_below(&rng, 10));
        n = n < batch->T - at ? n : batch->T - at;
        mr_batch piece = cut_batch(batch, &text, at, n);
        mr_model_forward(model, &piece, state, 0);
        for (int b = 0; b < batch->B; b++)
            get_as(own->dev, ACTS, logits + ((size_t)b * (size_t)batch->T + (size_t)at) * C,
                   mr_act_at(own->dev, model->logits, (size_t)(b * n) * C), (size_t)n * C);
        mr_batch_free(&piece);
    }
    mr_state_free(state);
    return logits;
}

static void check_cuts_of(mr_dev *dev, int i, int B, int T)
{
    bag own = {.dev = dev};
    mr_config config = config_at(i, &text);
    mr_model *model = make_model(&config, dev, B, T, 0);
    mr_batch batch = make_batch(&text, B, T, T % 2, 0, (uint32_t)T);
    mr_rng rng = mr_rng_at(22, MR_STREAM_SAMPLE, 0, 0);
    for (int t = 0; batch.reset && t < B * T; t++) batch.reset[t] = mr_rng_below(&rng, 1 + (uint32_t)T / 3) == 0;
    size_t n = (size_t)B * (size_t)T * (size_t)text.outputs;
    double *whole = logits_in(&own, model, &batch, WHOLE);
    check_logits(dev, i, "token by token", logits_in(&own, model, &batch, STEPS), whole, n);
    check_logits(dev, i, "in chunks", logits_in(&own, model, &batch, CHUNKS), whole, n);
    mr_model_forward(model, &batch, NULL, 0);
    check_logits(dev, i, "without a state", bag_get_as(&own, ACTS, model->logits, n), whole, n);
    mr_batch_free(&batch);
    mr_model_free(model);
    bag_empty(&own);
}

static void check_cuts(mr_dev *dev)
{
    static const int lengths[] = {1, 2, 3, 17, 256};
    for (int i = 0; i < MODEL_FORMS; i++)
        for (int t = 0; t < COUNT(lengths) - REDUCED; t++) check_cuts_of(dev, i, 2, lengths[t]);
    if (REDUCED) return;
    check_cuts_of(dev, 0, 1, 10000);
    check_cuts_of(dev, 10, 1, 4097);
    for (int i = COUNT(forms); i < MODEL_FORMS; i++) check_cuts_of(dev, i, 1, 4097);
    check_cuts_of(dev, 5, 1, 1000);
}

/* ---- gradients through chunks: passing the state's gradient from chunk to chunk is
 * backpropagation through the whole */

static void gradients_whole(mr_model *model, const mr_batch *batch)
{
    mr_model_zero_grads(model);
    mr_model_forward(model, batch, NULL, 1);
    mr_model_loss(model, batch, 1);
    mr_model_backward(model, batch, NULL, NULL);
}

static void gradients_in_two(mr_model *model, const mr_batch *batch, int cut)
{
    mr_batch first = cut_batch(batch, &text, 0, cut), second = cut_batch(batch, &text, cut, batch->T - cut);
    mr_state *state = make_state(model, batch->B), *between = make_state(model, batch->B);
    mr_model_zero_grads(model);
    mr_model_forward(model, &first, state, 1);
    mr_model_forward(model, &second, state, 1);
    mr_model_loss(model, &second, 1);
    mr_model_backward(model, &second, NULL, between);
    mr_state_reset(state);
    mr_model_forward(model, &first, state, 1);
    mr_model_loss(model, &first, 1);
    mr_model_backward(model, &first, between, NULL);
    mr_state_free(between);
    mr_state_free(state);
    mr_batch_free(&first);
    mr_batch_free(&second);
}

static void check_gradients(mr_dev *dev)
{
    for (int i = 0; i < MODEL_FORMS; i++) {
        bag own = {.dev = dev};
        mr_config config = config_at(i, &text);
        mr_model *model = make_model(&config, dev, 3, 29, 1);
        mr_batch batch = make_batch(&text, 3, 29, i % 2, 0, (uint32_t)i);
        const mr_params *params = mr_model_params(model);
        gradients_whole(model, &batch);
        double *whole = bag_get(&own, model->grads, params->total);
        gradients_in_two(model, &batch, 1 + i);
        double *in_two = bag_get(&own, model->grads, params->total);
        for (int p = 0; p < params->count; p++) {
            const mr_param *row = &params->list[p];
            check_norm(row->name, in_two + row->offset, whole + row->offset, row->count, gradient_tolerance(dev),
                       gradient_floor(dev) * norm_of(whole, params->total));
        }
        mr_batch_free(&batch);
        mr_model_free(model);
        bag_empty(&own);
    }
}

/* ---- shapes: a plan for few long rows and many short ones serves each as well as its own plan would, and is smaller
 * than one for many long rows */

static double *gradients_of(bag *own, mr_model *model, const mr_batch *batch)
{
    gradients_whole(model, batch);
    return bag_get(own, model->grads, mr_model_params(model)->total);
}

static void check_shapes_of(mr_dev *dev, int i)
{
    static const mr_shape shapes[MR_SHAPES] = {{12, 5}, {2, 37}};
    const mr_config config = config_at(i, &text);
    bag own = {.dev = dev};
    mr_model *both = make_model(&config, dev, 12, 37, 1);
    const size_t bytes = mr_model_params(both)->total * sizeof(double), most = mr_model_planned_bytes(both);
    assert_int_equal(mr_model_plan_shapes(both, shapes, MR_SHAPES, 1, NULL), 0);
    assert_that(mr_model_planned_bytes(both), <, most / 2);
    for (int k = 0; k < 2 * MR_SHAPES; k++) { /* each twice: neither must affect the other */
        const mr_shape shape = shapes[k % MR_SHAPES];
        mr_model *one = make_model(&config, dev, shape.B, shape.T, 1);
        mr_batch batch = make_batch(&text, shape.B, shape.T, i % 2, 0, (uint32_t)k);
        assert_true(mr_model_fits(both, shape.B, shape.T, 1));
        assert_true(!mr_model_fits(both, shape.B, shape.T + 1, 1));
        assert_true(!mr_model_fits(both, shape.B + 1, shape.T, 1));
        assert_memory_equal(gradients_of(&own, both, &batch), gradients_of(&own, one, &batch), bytes);
        mr_batch_free(&batch);
        mr_model_free(one);
    }
    mr_model_free(both);
    bag_empty(&own);
}

static void check_shapes(mr_dev *dev)
{
    for (int i = 0; i < MODEL_FORMS; i++) check_shapes_of(dev, i);
}

/* ---- resets */

static void check_reset_of(mr_dev *dev, int i)
{
    enum { B = 2, T = 31, CUT = 12 };
    bag own = {.dev = dev};
    mr_config config = config_at(i, &text);
    mr_model *model = make_model(&config, dev, B, T, 1);
    mr_batch batch = make_batch(&text, B, T, 1, 0, 50 + (uint32_t)i);
    size_t C = (size_t)text.outputs, total = mr_model_params(model)->total;
    memset(batch.reset, 0, B * T);
    for (int b = 0; b < B; b++) batch.reset[b * T + CUT] = 1;
    for (int t = 0; t < B * T; t++) batch.target[t] = t % T < CUT ? -1 : t % (int)C;
    mr_batch tail = cut_batch(&batch, &text, CUT, T - CUT);
    gradients_whole(model, &tail);
    double *apart = bag_get(&own, model->grads, total);
    mr_model_forward(model, &tail, NULL, 0);
    double *alone = bag_get_as(&own, ACTS, model->logits, (size_t)B * (T - CUT) * C);
    gradients_whole(model, &batch);
    double *joined = bag_get(&own, model->grads, total);
    check_norm("gradients of what follows a reset", joined, apart, total, gradient_tolerance(dev), 0);
    double *before = logits_in(&own, model, &batch, WHOLE);
    for (int t = 0; t < B * T; t++)
        if (t % T < CUT) batch.ids[t] = (batch.ids[t] + 1 + t % 5) % text.inputs;
    double *after = logits_in(&own, model, &batch, WHOLE);
    assert_memory_not_equal(after, before, CUT * C * sizeof *after);
    for (int b = 0; b < B; b++) {
        size_t at = (size_t)(b * T + CUT) * C, n = (T - CUT) * C;
        assert_memory_equal(after + at, before + at, n * sizeof *after);
        check_logits(dev, i, "after a reset", after + at, alone + (size_t)b * n, n);
    }
    mr_batch_free(&tail);
    mr_batch_free(&batch);
    mr_model_free(model);
    bag_empty(&own);
}

static void check_resets(mr_dev *dev)
{
    for (int i = 0; i < MODEL_FORMS; i++) check_reset_of(dev, i);
}

/* ---- ragged rows */

static void check_ragged_of(mr_dev *dev, int i, mr_head head)
{
    enum { B = 4, T = 23, MORE = 3 };
    bag own = {.dev = dev};
    mr_interface interface = text;
    interface.head = head;
    mr_config config = config_at(i, &interface);
    mr_model *model = make_model(&config, dev, B, T, 0);
    mr_batch batch = make_batch(&interface, B, T, 1, 1, 60 + (uint32_t)i);
    mr_batch more = make_batch(&interface, B, MORE, 0, 0, 70), next = make_batch(&interface, 1, MORE, 0, 0, 70);
    size_t C = (size_t)interface.outputs, rows = head == MR_HEAD_TOKEN ? T : 1,
           more_rows = head == MR_HEAD_TOKEN ? MORE : 1;
    mr_state *state = make_state(model, B);
    mr_model_forward(model, &batch, state, 0);
    double *together = bag_get_as(&own, ACTS, model->logits, B * rows * C);
    mr_model_forward(model, &more, state, 0); /* the state that each row left shows in the next batch */
    double *went_on = bag_get_as(&own, ACTS, model->logits, B * more_rows * C);
    for (int b = 0; b < B; b++) {
        int n = batch.length[b];
        mr_batch row = row_of(&batch, &interface, b, n);
        mr_state *mine = make_state(model, 1);
        mr_model_forward(model, &row, mine, 0);
        size_t values = (head == MR_HEAD_TOKEN ? (size_t)n : 1) * C;
        check_logits(dev, i, "ragged row", together + (size_t)b * rows * C,
                     bag_get_as(&own, ACTS, model->logits, values), values);
        for (int t = 0; t < MORE; t++) memcpy(next.ids + t, more.ids + b * MORE + t, sizeof *next.ids);
        mr_model_forward(model, &next, mine, 0);
        values = (head == MR_HEAD_TOKEN ? MORE : 1) * C;
        check_logits(dev, i, "after a ragged row", went_on + (size_t)b * values,
                     bag_get_as(&own, ACTS, model->logits, values), values);
        mr_state_free(mine);
        mr_batch_free(&row);
    }
    mr_state_free(state);
    mr_batch_free(&batch);
    mr_batch_free(&more);
    mr_batch_free(&next);
    mr_model_free(model);
    bag_empty(&own);
}

static void check_ragged(mr_dev *dev)
{
    for (int i = 0; i < MODEL_FORMS; i++) check_ragged_of(dev, i, (mr_head)(i % 3));
}

/* ---- states */

static void check_states(mr_dev *dev)
{
    enum { B = 2, T = 13 };
    bag own = {.dev = dev};
    mr_config config = config_at(1, &text);
    mr_model *model = make_model(&config, dev, B, T, 0);
    mr_batch first = make_batch(&text, B, T, 0, 0, 1), second = make_batch(&text, B, T, 0, 0, 2);
    size_t n = B * mr_model_state_reals(model) + 1, logits = (size_t)(B * T * text.outputs);
    float *saved = mr_alloc(n, sizeof *saved), *again = mr_alloc(n, sizeof *again);
    mr_state *state = make_state(model, B), *clone = make_state(model, B);
    mr_state_get(state, saved);
    assert_that(saved[0], ==, 0);
    mr_model_forward(model, &first, state, 0);
    mr_state_get(state, saved);
    assert_that(saved[0], ==, 1);
    mr_state_put(clone, saved);
    mr_state_get(clone, again);
    assert_memory_equal(again, saved, n * sizeof *saved);
    mr_model_forward(model, &second, state, 0);
    double *went_on = bag_get_as(&own, ACTS, model->logits, logits);
    mr_model_forward(model, &second, clone, 0);
    assert_memory_equal(bag_get_as(&own, ACTS, model->logits, logits), went_on, logits * sizeof(double));
    mr_state_reset(clone);
    mr_model_forward(model, &second, clone, 0);
    double *fresh = bag_get_as(&own, ACTS, model->logits, logits);
    assert_memory_not_equal(fresh, went_on, logits * sizeof(double));
    mr_model_forward(model, &second, NULL, 0);
    assert_memory_equal(bag_get_as(&own, ACTS, model->logits, logits), fresh, logits * sizeof(double));
    mr_free(saved);
    mr_free(again);
    mr_state_free(state);
    mr_state_free(clone);
    mr_batch_free(&first);
    mr_batch_free(&second);
    mr_model_free(model);
    bag_empty(&own);
}

/* ---- threads: the same bits */

enum { TRAINING_STEPS = 3 };

/* Trains a few steps; returns the weights, both moments, the last logits and the state, concatenated. */
static double *train(bag *own, const mr_config *config, int B, int T, size_t *count)
{
    mr_dev *dev = own->dev;
    mr_interface interface = mr_config_interface(config);
    mr_model *model = make_model(config, dev, B, T, 1);
    mr_state *state = make_state(model, B);
    size_t total = mr_model_params(model)->total, reals = (size_t)B * mr_model_state_reals(model),
           logits = (size_t)(B * T * interface.outputs);
    for (int t = 1; t <= TRAINING_STEPS; t++) {
        mr_batch batch = make_batch(&interface, B, T, 1, B > 1, (uint32_t)t);
        mr_model_set_step(model, &(mr_step){.seed = 5,
                                            .step = (uint32_t)t,
                                            .lr = 1e-2,
                                            .beta1 = 0.9,
                                            .beta2 = 0.99,
                                            .eps = 1e-8,
                                            .weight_decay = 0.1,
                                            .clip = 0.5,
                                            .bias1 = 1 - pow(0.9, t),
                                            .bias2 = 1 - pow(0.99, t),
                                            .decoupled = 1});
        mr_model_zero_grads(model);
        mr_model_forward(model, &batch, state, 1);
        mr_model_loss(model, &batch, 1.0 / (double)batch.counted);
        mr_model_backward(model, &batch, NULL, NULL);
        mr_model_update(model);
        if (t == TRAINING_STEPS) mr_model_forward(model, &batch, state, 0);
        mr_batch_free(&batch);
    }
    *count = 4 * total + reals + logits;
    double *all = bag_host(own, *count);
    mr_real *const vectors[] = {model->weights, model->moment1, model->moment2, model->grads};
    for (size_t i = 0; i < 4; i++) get_doubles(dev, all + i * total, vectors[i], total);
    get_doubles(dev, all + 4 * total, state->reals, reals);
    get_as(dev, ACTS, all + 4 * total + reals, model->logits, logits);
    mr_state_free(state);
    mr_model_free(model);
    return all;
}

static void check_threads(const char *isa, const mr_config *config, int B, int T)
{
    static const int threads[] = {1, 2, 3, 8};
    bag own = {0};
    double *first = NULL;
    for (int i = 0; i < COUNT(threads); i++) {
        size_t n;
        mr_dev *dev = own.dev = open_device("cpu", threads[i], isa);
        double *now = train(&own, config, B, T, &n);
        mr_dev_close(dev);
        for (size_t k = 0; k < n; k++) assert_true(isfinite(now[k]));
        if (first && memcmp(now, first, n * sizeof *now))
            fail_msg("%s: %s, B %d, T %d: %d threads give other bits than 1", isa, mr_mixer_names[config->mixer], B, T,
                     threads[i]);
        if (!first) first = now;
    }
    bag_empty(&own);
}

static void threads_change_no_bit(void **state)
{
    (void)state;
    static const struct {
        int B, T, dim;
    } shapes[] = {{5, 40, 24}, {1, 1500, 8}, {2, 7, 130}};
    const char *const *isas = mr_cpu_isas();
    for (int i = 0; isas[i]; i++)
        for (int j = 0; j < COUNT(shapes); j++)
            for (int k = j; k < MODEL_FORMS; k += REDUCED ? 12 : 3) {
                mr_config config = config_at(k, &text);
                config.dropout = 0.2;
                config.dim = shapes[j].dim;
                check_threads(isas[i], &config, shapes[j].B, shapes[j].T);
            }
}

ON_DEVICES_BF16(at_once_equals_steps_equals_chunks, check_cuts)
ON_DEVICES_BF16(a_plan_for_two_shapes_serves_both, check_shapes)
ON_DEVICES_BF16(a_reset_starts_a_new_sequence, check_resets)
ON_DEVICES_BF16(rows_of_a_ragged_batch_are_independent, check_ragged)
ON_DEVICES_BF16(states_can_be_saved_and_cloned, check_states)

ON_DEVICES_REF64(gradients_through_chunks_equal_the_whole, check_gradients)
DEVICE_TEST(gradients_through_chunks_equal_the_whole_on_a_gpu_in_bf16, on_the_gpu(check_gradients, 1))

int main(void)
{
    const struct CMUnitTest tests[] = {
        DEVICE_TESTS_BF16(at_once_equals_steps_equals_chunks),
        DEVICE_TESTS_BF16(gradients_through_chunks_equal_the_whole),
        DEVICE_TESTS_BF16(a_reset_starts_a_new_sequence),
        DEVICE_TESTS_BF16(rows_of_a_ragged_batch_are_independent),
        DEVICE_TESTS_BF16(states_can_be_saved_and_cloned),
        cmocka_unit_test(threads_change_no_bit),
        DEVICE_TESTS_BF16(a_plan_for_two_shapes_serves_both),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
