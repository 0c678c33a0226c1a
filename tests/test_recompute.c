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
    const outcome want = learn(&own, m, batch, level, &interface),
                  same = learn(&own, blocks, batch, level, &interface);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        DEVICE_TESTS(all_models),
    };
    return cmocka_run_group_tests(tests, make_cases, NULL);
}
