/* Training that computes again what it did not keep: by blocks it has the same bits, by chunks of time the same loss,
 * state and gradients within rounding. */
#include "gradients_support.h"

enum { B = 3, T = 23, DIM = 16 };

/* What a micro-batch leaves: gradients, sums of the loss, the state after it. */
typedef struct outcome {
    mr_model *model;
    double *grads, *after, stats[MR_STATS];
} outcome;

static const mr_step plain_step = {.seed = 5,
                                   .step = 3,
                                   .micro = 1,
                                   .lr = 1e-2,
                                   .beta1 = 0.9,
                                   .beta2 = 0.99,
                                   .eps = 1e-8,
                                   .clip = 1,
                                   .bias1 = 0.1,
                                   .bias2 = 0.01};

static mr_model *planned(const mr_config *config, mr_dev *dev, int rows, mr_recompute how, int chunk)
{
    mr_error err = {0};
    mr_model *m = make_model(config, dev, 1, 1, 0);
    mr_model_set_recompute(m, (mr_recomputing){.how = how, .chunk = chunk});
    if (mr_model_plan(m, rows, T, 1, &err)) fail_msg("%s", err.text);
    return m;
}

static mr_state *started(mr_model *m, const mr_batch *batch, int level, const mr_interface *interface)
{
    if (level == NO_STATE) return NULL;
    mr_state *state = make_state(m, batch->B);
    if (level == FRESH_STATE) return state;
    mr_batch before = make_batch(interface, batch->B, 5, 0, 0, 77); /* fits into a chunk */
    mr_model_forward(m, &before, state, 0);
    mr_batch_free(&before);
    return state;
}

/* Two micro-batches: gradients and sums add up, and the second one may continue from the first one's state. */
static outcome learn(bag *own, mr_model *m, const mr_batch *batch, int level, const mr_interface *interface)
{
    outcome o = {.model = m};
    const size_t total = mr_model_params(m)->total, reals = (size_t)batch->B * mr_model_state_reals(m);
    mr_state *state = started(m, batch, level, interface);
    for (int micro = 0; micro < 2; micro++)
        mr_model_learn(m, batch, state, &plain_step, 1.0 / (double)batch->counted, micro == 0, 0);
    o.grads = bag_get(own, m->grads, total);
    o.after = state ? bag_get(own, state->reals, reals) : NULL;
    mr_model_stats(m, o.stats);
    mr_state_free(state);
    return o;
}

static void compare(const char *what, const outcome *got, const outcome *want, size_t reals, double tolerance)
{
    const mr_params *params = mr_model_params(want->model);
    char name[400];
    for (int i = 0; i < params->count; i++) {
        const mr_param *p = &params->list[i];
        snprintf(name, sizeof name, "%s: %s", what, p->name);
        check_norm(name, got->grads + p->offset, want->grads + p->offset, p->count, tolerance, tolerance * 1e-2);
    }
    snprintf(name, sizeof name, "%s: state", what);
    if (want->after) check_near(name, got->after, want->after, reals, tolerance);
    snprintf(name, sizeof name, "%s: sums", what);
    check_near(name, got->stats, want->stats, MR_STATS, tolerance);
    assert_that(got->stats[MR_STAT_COUNT], ==, want->stats[MR_STAT_COUNT]);
}

/* Another way must give what keeping everything gives. */
static void compare_ways(mr_dev *dev, const char *name, const mr_config *config, const mr_batch *batch, int level)
{
    static const int chunks[] = {5, 8, 22, 64};
    const mr_interface interface = mr_config_interface(config);
    bag own = {.dev = dev};
    char what[256];
    mr_model *m = planned(config, dev, batch->B, MR_RECOMPUTE_NONE, 0);
    mr_model *blocks = planned(config, dev, batch->B, MR_RECOMPUTE_BLOCKS, 0);
    const size_t reals = (size_t)batch->B * mr_model_state_reals(m), total = mr_model_params(m)->total;
    const outcome want = learn(&own, m, batch, level, &interface), same = learn(&own, blocks, batch, level, &interface);
    snprintf(what, sizeof what, "%s %s, %s, blocks", dev->kind, dev->isa, name);
    assert_true(norm_of(want.grads, total) > 0);
    if (memcmp(want.grads, same.grads, total * sizeof *want.grads) ||
        memcmp(want.stats, same.stats, sizeof want.stats) ||
        (want.after && memcmp(want.after, same.after, reals * sizeof *want.after)))
        fail_msg("%s: other bits than without", what);
    const int by_chunks = interface.head == MR_HEAD_TOKEN && !(config->dropout > 0);
    for (int i = 0; by_chunks && i < COUNT(chunks); i++) {
        mr_model *cut = planned(config, dev, batch->B, MR_RECOMPUTE_CHUNKS, chunks[i]);
        const outcome got = learn(&own, cut, batch, level, &interface);
        snprintf(what, sizeof what, "%s %s, %s, chunks of %d", dev->kind, dev->isa, name, chunks[i]);
        compare(what, &got, &want, reals, dev->real_size == sizeof(double) ? 1e-10 : 1e-5);
        mr_model_free(cut);
    }
    mr_model_free(blocks);
    mr_model_free(m);
    bag_empty(&own);
}

static void compare_case(mr_dev *dev, int index)
{
    const choice *c = &cases[index];
    const mr_config config = config_for(c, DIM);
    const mr_interface interface = mr_config_interface(&config);
    mr_batch batch = make_batch(&interface, mr_head_pairs(interface.head) ? B + B % 2 : B, T, c->level[RESET],
                                c->level[RAGGED], 100 + (uint32_t)index);
    char name[96];
    snprintf(name, sizeof name, "model %d (%s)", index, model_name(c->level[FORM]));
    compare_ways(dev, name, &config, &batch, c->level[STATE]);
    mr_batch_free(&batch);
}

static void all_models_of(mr_dev *dev)
{
    for (int i = 0; i < case_count; i += REDUCED ? 7 : 1) compare_case(dev, i);
}
ON_DEVICES_REF64(all_models, all_models_of)

/* ---- the mixers that the covering set does not have */

typedef struct other_model {
    const char *name, *mixer;
    int conv, residual, mlp, learned_start, resets, ragged, after;
    mr_positions positions;
} other_model;

static const other_model others[] = {
    {.name = "gru", .mixer = "gru"},
    {.name = "gru, all", .mixer = "gru", .conv = 4, .mlp = 4, .learned_start = 1, .resets = 1, .ragged = 1},
    {.name = "gru after", .mixer = "gru", .after = 1, .conv = 4, .residual = 1, .resets = 1, .ragged = 1},
    {.name = "lstm", .mixer = "lstm", .mlp = 4, .learned_start = 1},
    {.name = "lstm, all", .mixer = "lstm", .conv = 3, .learned_start = 1, .resets = 1, .ragged = 1},
    {.name = "attention", .mixer = "attention"},
    {.name = "attention, all", .mixer = "attention", .conv = 4, .mlp = 4, .resets = 1, .ragged = 1},
    {.name = "attention, learned positions", .mixer = "attention", .positions = MR_POSITIONS_LEARNED, .ragged = 1},
    {.name = "attention, no positions", .mixer = "attention", .positions = MR_POSITIONS_NONE, .resets = 1},
};

static const mr_interface plain = {
    .input = MR_INPUT_TOKENS, .inputs = 5, .head = MR_HEAD_TOKEN, .loss = MR_LOSS_XENT, .outputs = 4};

static mr_config config_of_other(const other_model *o)
{
    mr_config config = config_with(o->mixer, &plain);
    config.layers = 2;
    config.dim = DIM;
    config.conv = o->conv;
    config.conv_place = o->residual ? MR_CONV_RESIDUAL : MR_CONV_INSIDE;
    config.mlp = o->mlp;
    config.h0_learned = o->learned_start;
    config.gru_reset = o->after ? MR_RESET_AFTER : MR_RESET_BEFORE;
    if (strcmp(o->mixer, "attention")) return config;
    config.window = 7; /* reaches over chunks of 5 */
    config.heads = 2;
    config.positions = o->positions;
    return config;
}

static void other_models_of(mr_dev *dev)
{
    for (int i = 0; i < COUNT(others); i++)
        for (int level = NO_STATE; level <= CARRIED_STATE; level++) {
            const mr_config config = config_of_other(&others[i]);
            mr_batch batch = make_batch(&plain, B, T, others[i].resets, others[i].ragged, 300 + (uint32_t)i);
            compare_ways(dev, others[i].name, &config, &batch, level);
            mr_batch_free(&batch);
        }
}
ON_DEVICES_REF64(other_models, other_models_of)

/* ---- dropout */

/* The same by hand: forward and backward of every chunk, each with its own number instead of the micro-batch's. */
static void learn_by_hand(mr_model *m, const mr_batch *batch, int chunk)
{
    mr_state *states[T + 1], *after = make_state(m, B), *before = make_state(m, B);
    const int count = (T + chunk - 1) / chunk;
    mr_step step = plain_step;
    mr_model_zero_grads(m);
    mr_model_zero_stats(m);
    for (int pass = 0; pass < 2; pass++)
        for (int k = 0; k < count; k++) {
            const int i = pass ? count - 1 - k : k, at = i * chunk, n = at + chunk < T ? chunk : T - at;
            mr_batch cut = cut_batch(batch, &plain, at, n);
            mr_state *state = make_state(m, B);
            step.micro = plain_step.micro + ((uint32_t)i << 16);
            mr_model_set_step(m, &step);
            if (i) {
                const size_t reals = B * mr_model_state_reals(m);
                m->dev->copy(m->dev, state->reals, states[i]->reals, reals * m->dev->real_size);
                mr_state_resume(state);
            }
            mr_model_forward(m, &cut, state, 1);
            if (!pass) states[i + 1] = state;
            else {
                mr_model_loss(m, &cut, 1.0 / (double)batch->counted);
                mr_model_backward(m, &cut, k ? after : NULL, before);
                mr_state *swap = after;
                after = before, before = swap;
                mr_state_free(state);
            }
            mr_batch_free(&cut);
        }
    for (int i = 1; i <= count; i++) mr_state_free(states[i]);
    mr_state_free(after);
    mr_state_free(before);
}

/* Both passes of a chunk drop the same elements, and no two chunks do. */
static void dropout_of(mr_dev *dev)
{
    for (int i = 0; i < COUNT(forms) + 2; i += 5) {
        mr_config config = i < COUNT(forms) ? config_of(&forms[i].cell, &plain) : config_with("mamba", &plain);
        config.layers = 2, config.dim = DIM, config.dropout = 0.3, config.mlp = 2, config.conv = 4;
        bag own = {.dev = dev};
        char name[200];
        mr_batch batch = make_batch(&plain, B, T, 1, 0, 5);
        mr_model *hand = planned(&config, dev, B, MR_RECOMPUTE_NONE, 0),
                 *m = planned(&config, dev, B, MR_RECOMPUTE_CHUNKS, 6);
        const size_t total = mr_model_params(m)->total;
        learn_by_hand(hand, &batch, 6);
        mr_model_learn(m, &batch, NULL, &plain_step, 1.0 / (double)batch.counted, 1, 0);
        outcome want = {.model = hand, .grads = bag_get(&own, hand->grads, total)},
                got = {.model = m, .grads = bag_get(&own, m->grads, total)};
        mr_model_stats(hand, want.stats);
        mr_model_stats(m, got.stats);
        snprintf(name, sizeof name, "%s, dropout, model %d", dev->kind, i);
        compare(name, &got, &want, 0, dev->real_size == sizeof(double) ? 1e-10 : 1e-5);
        mr_model_free(hand);
        mr_model_free(m);
        mr_batch_free(&batch);
        bag_empty(&own);
    }
}
ON_DEVICES_REF64(dropout, dropout_of)

/* ---- scores, plans, refusals */

static void scores_of(mr_dev *dev)
{
    mr_config config = config_of_other(&others[1]);
    mr_batch batch = make_batch(&plain, B, T, 1, 1, 9);
    mr_model *m = planned(&config, dev, B, MR_RECOMPUTE_NONE, 0),
             *cut = planned(&config, dev, B, MR_RECOMPUTE_CHUNKS, 5);
    double want[MR_STATS], got[MR_STATS];
    mr_model_zero_stats(m);
    mr_model_zero_stats(cut);
    mr_model_score(m, &batch);
    mr_model_score(cut, &batch);
    mr_model_stats(m, want);
    mr_model_stats(cut, got);
    assert_that(got[MR_STAT_COUNT], ==, (double)batch.counted);
    check_near("scores by chunks", got, want, MR_STATS, 1e-5);
    mr_model_free(cut);
    mr_model_free(m);
    mr_batch_free(&batch);
}
ON_DEVICES_REF64(scores, scores_of)

/* A model planned for 1 × tokens on a device that claims to have so much memory. */
static mr_recomputing chosen(mr_dev *dev, mr_head head, int tokens, double bytes, size_t *planned_bytes, mr_error *err)
{
    mr_interface interface = plain;
    mr_model *m;
    interface.head = head;
    mr_config config = config_with("mingru", &interface);
    config.layers = 4, config.dim = 32;
    const size_t memory = dev->memory;
    assert_int_equal(mr_model_new(&config, dev, MR_DECAY_MATRICES, &m, err), 0);
    mr_model_set_recompute(m, (mr_recomputing){.how = MR_RECOMPUTE_AUTO});
    dev->memory = bytes > 0 ? (size_t)bytes : memory;
    const int status = mr_model_plan(m, 1, tokens, 1, err);
    dev->memory = memory;
    const mr_recomputing how = mr_model_recompute(m);
    if (planned_bytes) *planned_bytes = mr_model_planned_bytes(m);
    mr_model_free(m);
    return status ? (mr_recomputing){.how = MR_RECOMPUTE_AUTO} : how;
}

/* The first way that fits is taken, and a power of two of tokens. */
static void the_choice_of_the_plan(void **state)
{
    (void)state;
    enum { TOKENS = 1 << 15 };
    mr_error err = {0}, little = {0};
    size_t whole = 0, now = 0;
    mr_dev *dev = open_device("cpu", 1, NULL);
    assert_int_equal(chosen(dev, MR_HEAD_TOKEN, TOKENS, 0, &whole, &err).how, MR_RECOMPUTE_NONE);
    assert_int_equal(chosen(dev, MR_HEAD_TOKEN, TOKENS, 0.9 * (double)whole, &now, &err).how, MR_RECOMPUTE_BLOCKS);
    assert_that(now, <, 0.9 * (double)whole);
    const mr_recomputing cut = chosen(dev, MR_HEAD_TOKEN, TOKENS, 0.2 * (double)whole, &now, &err);
    assert_int_equal(cut.how, MR_RECOMPUTE_CHUNKS);
    assert_int_equal(cut.chunk & (cut.chunk - 1), 0);
    assert_that(now, <, 0.2 * (double)whole);
    const mr_recomputing less = chosen(dev, MR_HEAD_TOKEN, TOKENS, 0.05 * (double)whole, &now, &err);
    assert_int_equal(less.how, MR_RECOMPUTE_CHUNKS);
    assert_that(less.chunk, <, cut.chunk);
    assert_int_equal(chosen(dev, MR_HEAD_TOKEN, TOKENS, 1000, NULL, &little).how, MR_RECOMPUTE_AUTO); /* refused */
    assert_int_equal(little.status, MR_ENOMEM);
    assert_int_equal(chosen(dev, MR_HEAD_MEAN, TOKENS, 0.2 * (double)whole, NULL, &little).how, MR_RECOMPUTE_AUTO);
    assert_int_equal(little.status, MR_ENOMEM);
    mr_dev_close(dev);
}

static void what_is_refused(void **state)
{
    (void)state;
    mr_error err = {0};
    mr_model *m;
    mr_interface interface = plain;
    mr_dev *dev = open_device("cpu", 1, NULL);
    interface.head = MR_HEAD_MEAN;
    mr_config config = config_with("mingru", &interface);
    assert_int_equal(mr_model_new(&config, dev, MR_DECAY_MATRICES, &m, &err), 0);
    assert_int_equal(mr_model_plan(m, 1, 10, 1, &err), 0);
    mr_model_set_recompute(m, (mr_recomputing){.how = MR_RECOMPUTE_CHUNKS, .chunk = 5});
    assert_int_equal(mr_model_plan(m, 1, 100, 1, &err), MR_ECONFIG);
    assert_false(mr_model_fits(m, 1, 100, 1)); /* its memory is for less */
    assert_non_null(strstr(err.text, "recompute = chunks: head = mean looks at whole sequences"));
    mr_model_free(m);
    config = config_with("mingru", &plain);
    assert_int_equal(mr_model_new(&config, dev, MR_DECAY_MATRICES, &m, &err), 0);
    mr_model_set_recompute(m, (mr_recomputing){.how = MR_RECOMPUTE_CHUNKS, .chunk = 1});
    assert_int_equal(mr_model_plan(m, 1, (1 << 16) + 1, 1, &err), MR_ECONFIG);
    assert_non_null(strstr(err.text, "recompute-chunk = 1: cuts 65537 tokens into more than 65536 chunks"));
    mr_model_free(m);
    mr_dev_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DEVICE_TESTS(all_models),
        DEVICE_TESTS(other_models),
        DEVICE_TESTS(dropout),
        DEVICE_TESTS(scores),
        cmocka_unit_test(the_choice_of_the_plan),
        cmocka_unit_test(what_is_refused),
    };
    return cmocka_run_group_tests(tests, make_cases, NULL);
}
