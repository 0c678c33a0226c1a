/* Sampling on a device: what it draws by itself, in groups of any size, is what a loop over
 * each row of logits draws. */
#include "support.h"

enum { PROMPT = 5, TOKENS = 40, VOCAB = 23 };

static const mr_interface interface = {
    .input = MR_INPUT_TOKENS, .inputs = VOCAB, .head = MR_HEAD_TOKEN, .loss = MR_LOSS_XENT, .outputs = VOCAB};

static mr_model *small_model(mr_dev *dev)
{
    mr_config config = config_of(&forms[0].cell, &interface);
    config.layers = 2;
    config.dim = 24;
    config.conv = 4;
    return make_model(&config, dev, 1, PROMPT, 0);
}

static void feed_prompt(mr_model *model, mr_state *state)
{
    mr_batch prompt = make_batch(&interface, 1, PROMPT, 0, 0, 3);
    mr_state_reset(state);
    mr_model_forward(model, &prompt, state, 0);
    mr_batch_free(&prompt);
}

static void draw_in_groups(mr_model *model, mr_state *state, const mr_sampling *how, int group, int32_t *tokens)
{
    feed_prompt(model, state);
    mr_model_draw_from(model, how, 0);
    for (int i = 0; i < TOKENS; i += group)
        mr_model_draw(model, state, i == 0, group < TOKENS - i ? group : TOKENS - i, tokens + i);
}

/* The op of `ref` on one row of logits. */
static int32_t draw_by_ref(mr_dev *ref, const float *logits, const mr_sampling *how, double position)
{
    int32_t id, drawn[MR_DRAWN];
    ref->ops.sample(ref, &(mr_sample_args){.R = 1,
                                           .C = VOCAB,
                                           .logits = (const mr_act *)logits,
                                           .how = how,
                                           .position = &position,
                                           .ids = &id,
                                           .drawn = drawn});
    return id;
}

static void draw_by_hand(mr_model *model, mr_state *state, const mr_sampling *how, int32_t *tokens)
{
    mr_dev *ref = open_device("ref", 1, NULL);
    mr_batch next = make_batch(&interface, 1, 1, 0, 0, 3);
    float logits[VOCAB];
    feed_prompt(model, state);
    mr_model_logits(model, logits, PROMPT - 1, 1);
    for (int i = 0; i < TOKENS; i++) {
        tokens[i] = draw_by_ref(ref, logits, how, i);
        next.ids[0] = tokens[i];
        mr_model_forward(model, &next, state, 0);
        mr_model_logits(model, logits, 0, 1);
    }
    mr_batch_free(&next);
    mr_dev_close(ref);
}

static void check_draws(mr_dev *dev)
{
    static const mr_sampling ways[] = {{.seed = 1, .temperature = 1, .top_p = 1},
                                       {.seed = 2, .temperature = 2, .top_p = 0.9, .top_k = 9},
                                       {.seed = 3, .temperature = 0, .top_p = 1}};
    static const int groups[] = {1, 7, MR_DRAWN};
    mr_model *model = small_model(dev);
    mr_state *state = make_state(model, 1);
    for (int i = 0; i < COUNT(ways); i++) {
        int32_t want[TOKENS], got[TOKENS];
        draw_by_hand(model, state, &ways[i], want);
        for (int k = 0; k < COUNT(groups); k++) {
            draw_in_groups(model, state, &ways[i], groups[k], got);
            assert_memory_equal(got, want, sizeof want);
        }
    }
    mr_state_free(state);
    mr_model_free(model);
}

/* A model that is not finite draws −1, and still feeds itself a valid token. */
static void check_not_finite(mr_dev *dev)
{
    mr_model *model = small_model(dev);
    mr_state *state = make_state(model, 1);
    const mr_param *first = &mr_model_params(model)->list[0];
    const mr_sampling how = {.temperature = 1, .top_p = 1};
    int32_t tokens[TOKENS];
    for (size_t i = 0; i < first->count; i++)
        put_doubles(dev, mr_real_at(dev, model->weights, first->offset + i), &(double){NAN}, 1);
    draw_in_groups(model, state, &how, 8, tokens);
    for (int i = 0; i < TOKENS; i++) assert_int_equal(tokens[i], -1);
    mr_state_free(state);
    mr_model_free(model);
}

ON_DEVICES_BF16(a_device_draws_what_ref_draws, check_draws)

ON_DEVICES_BF16(nonfinite_logits_draw_nothing, check_not_finite)

int main(void)
{
    const struct CMUnitTest tests[] = {DEVICE_TESTS_BF16(a_device_draws_what_ref_draws),
                                       DEVICE_TESTS_BF16(nonfinite_logits_draw_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
