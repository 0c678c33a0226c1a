/* Training that computes again what it did not keep, through the API: settings, the same lessons learned, evaluation in
 * the same memory, what is refused. */
#include "api_support.h"

static void ask(mr_net *net, const char *how, const char *chunk)
{
    OK(mr_net_set(net, "recompute", how, &err));
    OK(mr_net_set(net, "recompute-chunk", chunk, &err));
    OK(mr_net_set(net, "eps", "0.1", &err)); /* the weights show the gradient itself */
}

static void must_say(const mr_net *net, const char *how, const char *chunk)
{
    char text[64];
    OK(mr_net_setting(net, "recompute", text, sizeof text, &err));
    assert_string_equal(text, how);
    OK(mr_net_setting(net, "recompute-chunk", text, sizeof text, &err));
    assert_string_equal(text, chunk);
}

/* Steps of two micro-batches each; rows continue where they ended. */
static void learn(mr_net *net, mr_result *result)
{
    mr_learn_options o = MR_LEARN_OPTIONS;
    lesson l;
    o.carry = 1, o.micros = 2;
    for (int step = 0; step < 3; step++)
        for (o.micro = 0; o.micro < 2; o.micro++) {
            make_lesson(&l, (uint32_t)(2 * step + o.micro));
            OK(mr_net_learn(net, &l.data, &o, result, &err));
        }
}

static void every_mixer_learns_the_same(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    for (const char *const *mixer = mixers(); *mixer; mixer++) {
        mr_net *none = net_with(ctx, *mixer), *blocks = net_with(ctx, *mixer), *chunks = net_with(ctx, *mixer);
        mr_result want = MR_RESULT, same = MR_RESULT, got = MR_RESULT;
        ask(none, "none", "0");
        ask(blocks, "blocks", "0");
        ask(chunks, "chunks", "5");
        learn(none, &want);
        learn(blocks, &same);
        learn(chunks, &got);
        same_vectors(*mixer, blocks, none, MR_WEIGHTS, 0);
        same_vectors(*mixer, chunks, none, MR_WEIGHTS, 1e-5);
        assert_true(same.loss == want.loss);
        assert_that(fabs(got.loss - want.loss), <, 1e-5 * want.loss);
        assert_that(got.rows, ==, want.rows);
        mr_net_free(none), mr_net_free(blocks), mr_net_free(chunks);
    }
    mr_context_free(ctx);
}

/* Real values, scaled on the way, with lengths, resets and rows that do not count. */
static void values_learn_the_same(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    enum { B = 2, T = 13 };
    float values[B * T * 3], target[B * T * 2];
    uint8_t mask[B * T], reset[B * T] = {0};
    int32_t length[B] = {13, 4};
    const double mean[3] = {1, 2, 3}, scale[3] = {2, 3, 4}, target_mean[2] = {-1, 1}, target_scale[2] = {0.5, 5};
    mr_batch data = MR_BATCH;
    fill_random(values, B * T * 3, 1, 1);
    fill_random(target, B * T * 2, 1, 2);
    for (int i = 0; i < B * T; i++) mask[i] = i % 3 != 0 && i < T + length[1], reset[i] = i % 7 == 4;
    data.B = B, data.T = T, data.values = values, data.target_values = target;
    data.mask = mask, data.reset = reset, data.length = length;
    mr_net *nets[2] = {values_net_with(ctx, "minlstm"), values_net_with(ctx, "minlstm")};
    double loss[2];
    for (int i = 0; i < 2; i++) {
        mr_result result = MR_RESULT;
        ask(nets[i], i ? "chunks" : "none", i ? "3" : "0");
        OK(mr_net_set_scaler(nets[i], mean, scale, target_mean, target_scale, &err));
        for (int step = 0; step < 3; step++) OK(mr_net_train(nets[i], &data, &result, &err));
        loss[i] = result.loss;
    }
    same_vectors("values", nets[1], nets[0], MR_WEIGHTS, 1e-5);
    assert_that(fabs(loss[1] - loss[0]), <, 1e-5 * loss[0]);
    mr_net_free(nets[0]), mr_net_free(nets[1]);
    mr_context_free(ctx);
}

/* The setting that was asked for is told until there is a plan, then what that does. */
static void the_choice_is_told(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, tiny);
    lesson l;
    make_lesson(&l, 1);
    must_say(net, "auto", "0");
    train(net, 0, 1);
    must_say(net, "none", "0");
    OK(mr_net_set(net, "recompute", "chunks", &err));
    must_say(net, "chunks", "0");
    train(net, 1, 2);
    must_say(net, "chunks", "16"); /* the power of two below 17 tokens */
    OK(mr_net_set(net, "recompute", "blocks", &err));
    train(net, 2, 3);
    must_say(net, "blocks", "0");
    OK(mr_net_set(net, "recompute-chunk", "4", &err));
    FAILS(MR_ECONFIG, "recompute = blocks has no chunks", mr_net_train(net, &l.data, NULL, &err));
    FAILS(MR_EINVAL, "must be one of auto, none, blocks, chunks", mr_net_set(net, "recompute", "all", &err));
    mr_net_free(net);
    mr_context_free(ctx);
}

/* Reserved memory serves training and evaluation by chunks. */
static void evaluation_goes_by_chunks_too(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, tiny), *whole = net_of(ctx, tiny);
    mr_result got = MR_RESULT, want = MR_RESULT;
    lesson l;
    make_lesson(&l, 3);
    int32_t length[BATCH] = {TIME, 3, 9};
    for (int b = 0; b < BATCH; b++)
        for (int t = length[b]; t < TIME; t++) l.target[b * TIME + t] = -1;
    l.data.length = length;
    OK(mr_net_set(net, "recompute", "chunks", &err));
    OK(mr_net_set(net, "recompute-chunk", "4", &err));
    OK(mr_net_reserve(net, &(mr_shape){BATCH, TIME}, &(mr_shape){BATCH, TIME + 5}, &err));
    must_say(net, "chunks", "4");
    OK(mr_net_evaluate(net, &l.data, &got, &err));
    OK(mr_net_evaluate(whole, &l.data, &want, &err));
    assert_that(fabs(got.loss - want.loss), <, 1e-5 * want.loss);
    assert_that(got.rows, ==, want.rows);
    OK(mr_net_train(net, &l.data, &got, &err));
    OK(mr_net_train(whole, &l.data, &want, &err));
    assert_that(fabs(got.loss - want.loss), <, 1e-5 * want.loss);
    mr_net_free(net), mr_net_free(whole);
    mr_context_free(ctx);
}

/* Scores of all tokens at once are what chunks do without; blocks keep the scores. */
static void a_loss_of_the_callers_own(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    static float scores[SCORES], again[SCORES], slope[SCORES];
    mr_net *net = net_of(ctx, tiny), *blocks = net_of(ctx, tiny);
    lesson l;
    make_lesson(&l, 3);
    fill_random(slope, SCORES, 0.01f, 5);
    ask(net, "chunks", "4");
    FAILS(MR_ECONFIG, "recompute = chunks", mr_net_keep_forward(net, &l.data, NULL, scores, SCORES, &err));
    ask(net, "chunks", "17"); /* one chunk is the whole */
    ask(blocks, "blocks", "0");
    OK(mr_net_keep_forward(net, &l.data, NULL, scores, SCORES, &err));
    OK(mr_net_backward(net, slope, SCORES, &err));
    OK(mr_net_keep_forward(blocks, &l.data, NULL, again, SCORES, &err));
    OK(mr_net_backward(blocks, slope, SCORES, &err));
    assert_memory_equal(scores, again, sizeof scores);
    same_vectors("gradients", blocks, net, MR_GRADS, 0);
    mr_net_free(net), mr_net_free(blocks);
    mr_context_free(ctx);
}

/* A NaN that begins in a later chunk is found at the border behind it; blocks name the layer. */
static void a_nan_is_found(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    float values[30] = {0}, target[20] = {0};
    mr_batch data = MR_BATCH;
    mr_net *chunks = values_net_with(ctx, "mingru"), *blocks = values_net_with(ctx, "mingru");
    data.B = 1, data.T = 10, data.values = values, data.target_values = target;
    for (int i = 15; i < 18; i++) values[i] = 3e38f;
    ask(chunks, "chunks", "4");
    ask(blocks, "blocks", "0");
    OK(mr_net_put(chunks, MR_WEIGHTS, "embed.bias", (float[16]){3e38f}, 16, &err));
    OK(mr_net_put(blocks, MR_WEIGHTS, "embed.bias", (float[16]){0}, 16, &err));
    OK(mr_net_put(chunks, MR_WEIGHTS, "embed.bias", (float[16]){0}, 16, &err));
    FAILS(MR_ENONFINITE, "a state before token 8", mr_net_train(chunks, &data, NULL, &err));
    FAILS(MR_ENONFINITE, "embed (output)", mr_net_train(blocks, &data, NULL, &err));
    mr_net_free(chunks), mr_net_free(blocks);
    mr_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mixer_learns_the_same), cmocka_unit_test(values_learn_the_same),
        cmocka_unit_test(the_choice_is_told),          cmocka_unit_test(evaluation_goes_by_chunks_too),
        cmocka_unit_test(a_loss_of_the_callers_own),   cmocka_unit_test(a_nan_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
