/* Sampling: the draws do not depend on how they are split into calls, and follow the model's probabilities. */
#include "api_support.h"

enum { DRAWN = 40 };

static mr_net *trained(mr_context *ctx, const char *mixer)
{
    mr_net *net = net_with(ctx, mixer);
    train(net, 0, 4);
    return net;
}

static int highest(const float *scores)
{
    int best = 0;
    for (int i = 1; i < VOCAB; i++)
        if (scores[i] > scores[best]) best = i;
    return best;
}

static mr_sample_options as(double temperature, uint64_t seed)
{
    mr_sample_options how = MR_SAMPLE_OPTIONS;
    how.temperature = temperature;
    how.seed = seed;
    return how;
}

static void temperature_0_draws_the_likeliest(void **state)
{
    (void)state;
    const int32_t prompt[] = {1, 4, 2};
    mr_context *ctx = context_on("cpu");
    for (int m = 0; mixers()[m]; m++) {
        mr_net *net = trained(ctx, mixers()[m]);
        mr_stream *drawing = stream_on(net), *stepping = stream_on(net);
        mr_sample_options how = as(0, 1);
        int32_t drawn[DRAWN];
        float scores[VOCAB];
        OK(mr_stream_sample(drawing, prompt, 3, &how, drawn, DRAWN, &err));
        OK(mr_stream_feed(stepping, prompt, 3, scores, VOCAB, &err));
        for (int i = 0; i < DRAWN; i++) {
            if (drawn[i] != highest(scores))
                fail_msg("%s: token %d is %d, not %d", mixers()[m], i, (int)drawn[i], highest(scores));
            OK(mr_stream_step(stepping, drawn[i], scores, VOCAB, &err));
        }
        float after[VOCAB]; /* the last token was drawn but not fed */
        OK(mr_stream_step(drawing, drawn[DRAWN - 1], after, VOCAB, &err));
        near_floats("after the last one", after, scores, VOCAB, 1e-4);
        how = as(0.7, 3);
        how.top_k = 1;
        int32_t only[DRAWN];
        mr_stream_reset(drawing);
        OK(mr_stream_sample(drawing, prompt, 3, &how, only, DRAWN, &err));
        assert_memory_equal(only, drawn, sizeof drawn); /* top-k of one: the likeliest */
        mr_stream_free(drawing), mr_stream_free(stepping);
        mr_net_free(net);
    }
    mr_context_free(ctx);
}

/* Draws DRAWN tokens in calls of this size. */
static void draw_in_pieces(mr_net *net, mr_sample_options how, size_t piece, int32_t *drawn)
{
    mr_stream *stream = stream_on(net);
    const int32_t prompt[] = {3, 9};
    const int32_t *tokens = prompt;
    size_t n = 2;
    for (size_t at = 0; at < DRAWN; at += piece) {
        const size_t count = DRAWN - at < piece ? DRAWN - at : piece;
        OK(mr_stream_sample(stream, tokens, n, &how, drawn + at, count, &err));
        tokens = drawn + at + count - 1;
        n = 1;
        how.position += count;
    }
    mr_stream_free(stream);
}

static void draws_do_not_depend_on_the_calls(void **state)
{
    (void)state;
    static const size_t pieces[] = {1, 7, 16, 39};
    mr_context *ctx = context_on("cpu");
    for (int m = 0; mixers()[m]; m++) {
        mr_net *net = trained(ctx, mixers()[m]);
        mr_sample_options how = as(0.9, 12);
        int32_t want[DRAWN], got[DRAWN], other[DRAWN];
        how.top_p = 0.95;
        draw_in_pieces(net, how, DRAWN, want);
        for (int i = 0; i < 4; i++) {
            draw_in_pieces(net, how, pieces[i], got);
            assert_memory_equal(got, want, sizeof want);
        }
        how.seed = 13;
        draw_in_pieces(net, how, DRAWN, other);
        assert_memory_not_equal(other, want, sizeof want);
        how.seed = 12, how.position = 1;
        draw_in_pieces(net, how, DRAWN, other);
        assert_memory_not_equal(other, want, sizeof want);
        mr_net_free(net);
    }
    mr_context_free(ctx);
}

/* Streams sampled together, each with its own options, draw the same as each alone. */
static void many_draw_as_each_alone(void **state)
{
    (void)state;
    enum { CROWD = 5, STEPS = 12 };
    mr_context *ctx = context_on("cpu");
    for (int m = 0; mixers()[m]; m++) {
        mr_net *net = trained(ctx, mixers()[m]);
        mr_stream *together[CROWD], *alone[CROWD];
        mr_sample_options how[CROWD];
        int32_t tokens[CROWD], drawn[CROWD + 1], one;
        for (int i = 0; i < CROWD; i++) {
            together[i] = stream_on(net), alone[i] = stream_on(net);
            how[i] = as(0.2 * i, 100 + (uint64_t)i % 2);
            how[i].position = 7 * (uint64_t)i;
            how[i].top_k = i == 4 ? 3 : 0;
            tokens[i] = i;
        }
        for (int step = 0; step < STEPS; step++) {
            drawn[CROWD] = -7;
            OK(mr_stream_sample_many(together, CROWD, tokens, how, drawn, &err));
            assert_int_equal(drawn[CROWD], -7);
            for (int i = 0; i < CROWD; i++) {
                OK(mr_stream_sample(alone[i], &tokens[i], 1, &how[i], &one, 1, &err));
                assert_int_equal(drawn[i], one);
                tokens[i] = one;
                how[i].position++;
            }
        }
        for (int i = 0; i < CROWD; i++) mr_stream_free(together[i]), mr_stream_free(alone[i]);
        mr_net_free(net);
    }
    mr_context_free(ctx);
}

/* ---- probabilities */

/* softmax(scores / temperature), with 0 outside the top k or the nucleus of p. */
static void probabilities(const float *scores, const mr_sample_options *how, double *p)
{
    double top = -INFINITY, sum = 0;
    for (int i = 0; i < VOCAB; i++) top = fmax(top, scores[i] / how->temperature);
    for (int i = 0; i < VOCAB; i++) sum += p[i] = exp(scores[i] / how->temperature - top);
    for (int i = 0; i < VOCAB; i++) p[i] /= sum;
    double before[VOCAB];
    int rank[VOCAB];
    for (int i = 0; i < VOCAB; i++) {
        before[i] = 0, rank[i] = 0;
        for (int k = 0; k < VOCAB; k++)
            if (p[k] > p[i]) before[i] += p[k], rank[i]++;
    }
    sum = 0;
    for (int i = 0; i < VOCAB; i++) {
        if ((how->top_k && rank[i] >= how->top_k) || before[i] >= how->top_p) p[i] = 0;
        sum += p[i];
    }
    for (int i = 0; i < VOCAB; i++) p[i] /= sum;
}

static void check_distribution(mr_net *net, mr_sample_options how, int least, int most)
{
    enum { DRAWS = 20000 };
    mr_stream *stream = stream_on(net);
    float scores[VOCAB];
    double p[VOCAB], chi = 0;
    int seen[VOCAB] = {0}, kinds = 0;
    const int32_t token = 2;
    OK(mr_stream_step(stream, token, scores, VOCAB, &err));
    probabilities(scores, &how, p);
    for (int i = 0; i < DRAWS; i++) {
        int32_t drawn = -1;
        how.position = (uint64_t)i;
        mr_stream_reset(stream);
        OK(mr_stream_sample(stream, &token, 1, &how, &drawn, 1, &err));
        assert_in_range(drawn, 0, VOCAB - 1);
        seen[drawn]++;
    }
    for (int i = 0; i < VOCAB; i++) {
        if (p[i] == 0) assert_int_equal(seen[i], 0);
        if (p[i] == 0) continue;
        kinds++;
        assert_that(p[i] * DRAWS, >, 5);
        chi += (seen[i] - p[i] * DRAWS) * (seen[i] - p[i] * DRAWS) / (p[i] * DRAWS);
    }
    assert_in_range(kinds, least, most);
    if (!(chi < 29.6)) fail_msg("chi-square is %g over %d kinds: once in a thousand it is 29.6 or more", chi, kinds);
    mr_stream_free(stream);
}

static void as_likely_as_the_model_says(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *net = trained(ctx, "mingru");
    mr_sample_options how = as(1, 5);
    check_distribution(net, how, VOCAB, VOCAB);
    how.temperature = 0.5;
    check_distribution(net, how, VOCAB, VOCAB);
    how.top_k = 4;
    check_distribution(net, how, 4, 4);
    how.top_k = 0, how.top_p = 0.6;
    check_distribution(net, how, 2, VOCAB - 2);
    mr_net_free(net);
    mr_context_free(ctx);
}

/* ---- refusals */

static void wrong_draws_are_refused(void **state)
{
    (void)state;
    const char *const classes[] = {"inputs", "11", "outputs", "4", "dim", "8", NULL};
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_with(ctx, "mingru"), *other = net_of(ctx, classes);
    mr_stream *stream = stream_on(net), *no = stream_on(other);
    mr_sample_options how = MR_SAMPLE_OPTIONS;
    int32_t drawn[2] = {-7, -7}, token = 1;
#define REFUSED(word, change)                                                                                          \
    how = (mr_sample_options)MR_SAMPLE_OPTIONS, change;                                                                \
    FAILS(MR_EINVAL, word, mr_stream_sample(stream, &token, 1, &how, drawn, 2, &err));                                 \
    FAILS(MR_EINVAL, word, mr_stream_sample_many(&stream, 1, &token, &how, drawn, &err))
    REFUSED("size", how.size = 0);
    REFUSED("temperature", how.temperature = -0.1);
    REFUSED("temperature", how.temperature = NAN);
    REFUSED("top_p", how.top_p = 1.1);
    REFUSED("top_p", how.top_p = NAN);
    REFUSED("top_k = -1", how.top_k = -1);
    REFUSED("position", how.position = UINT64_MAX);
    how = (mr_sample_options)MR_SAMPLE_OPTIONS;
    FAILS(MR_EINVAL, "no tokens", mr_stream_sample(stream, &token, 0, &how, drawn, 2, &err));
    FAILS(MR_EINVAL, "drawn", mr_stream_sample(stream, &token, 1, &how, NULL, 2, &err));
    FAILS(MR_EINVAL, "drawn", mr_stream_sample(stream, &token, 1, &how, drawn, 0, &err));
    FAILS(MR_EINVAL, "token 11", mr_stream_sample(stream, (int32_t[]){11}, 1, &how, drawn, 2, &err));
    FAILS(MR_EINVAL, "none can be sampled", mr_stream_sample(no, &token, 1, &how, drawn, 2, &err));
    FAILS(MR_EINVAL, "none can be sampled", mr_stream_sample_many(&no, 1, &token, &how, drawn, &err));
    FAILS(MR_EINVAL, "twice",
          mr_stream_sample_many((mr_stream *[]){stream, stream}, 2, (int32_t[]){1, 1}, &how, drawn, &err));
    assert_that(drawn[0], ==, -7);
    assert_that(drawn[1], ==, -7);
    mr_stream_free(stream), mr_stream_free(no);
    mr_net_free(net), mr_net_free(other);
    mr_context_free(ctx);
}

static void nonfinite_scores_are_an_error(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_with(ctx, "mingru");
    mr_stream *stream = stream_on(net);
    mr_tensor head = MR_TENSOR;
    mr_sample_options how = MR_SAMPLE_OPTIONS;
    int32_t drawn[3], token = 1;
    OK(mr_net_tensor(net, mr_net_tensors(net) - 1, &head, &err));
    float *weights = room(head.count * sizeof *weights);
    for (size_t i = 0; i < head.count; i++) weights[i] = i % 2 ? 3e38f : -3e38f;
    OK(mr_net_put(net, MR_WEIGHTS, head.name, weights, head.count, &err));
    FAILS(MR_ENONFINITE, "NaN or infinite", mr_stream_sample(stream, &token, 1, &how, drawn, 3, &err));
    FAILS(MR_ENONFINITE, "NaN or infinite", mr_stream_sample_many(&stream, 1, &token, &how, drawn, &err));
    free(weights);
    mr_stream_free(stream);
    mr_net_free(net);
    mr_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(temperature_0_draws_the_likeliest), cmocka_unit_test(draws_do_not_depend_on_the_calls),
        cmocka_unit_test(many_draw_as_each_alone),           cmocka_unit_test(as_likely_as_the_model_says),
        cmocka_unit_test(wrong_draws_are_refused),           cmocka_unit_test(nonfinite_scores_are_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
