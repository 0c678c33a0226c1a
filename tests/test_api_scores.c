/* Losses and scores in all ways: by hand, of rows, of batches, of many batches, of streams in pieces. */
#include "api_support.h"

static double by_hand(const float *scores, int target)
{
    double top = scores[0], sum = 0;
    for (int i = 1; i < VOCAB; i++) top = fmax(top, scores[i]);
    for (int i = 0; i < VOCAB; i++) sum += exp(scores[i] - top);
    return top + log(sum) - scores[target];
}

static void losses_of_rows_are_those_by_hand(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, tiny);
    lesson l;
    mr_result result = MR_RESULT;
    float *scores = room(sizeof *scores * SCORES), losses[BATCH * TIME + 1];
    double sum = 0;
    int right = 0;
    make_lesson(&l, 3);
    train(net, 0, 5);
    l.target[4] = l.target[20] = -1;
    losses[BATCH * TIME] = 77;
    OK(mr_net_forward(net, &l.data, scores, SCORES, &err));
    OK(mr_net_losses(net, &l.data, losses, BATCH * TIME, &err));
    assert_that(losses[BATCH * TIME], ==, 77);
    for (int r = 0; r < BATCH * TIME; r++) {
        if (l.target[r] < 0) assert_that(losses[r], ==, 0);
        if (l.target[r] < 0) continue;
        const float want = (float)by_hand(scores + r * VOCAB, l.target[r]);
        int best = 0;
        for (int c = 1; c < VOCAB; c++)
            if (scores[r * VOCAB + c] > scores[r * VOCAB + best]) best = c;
        near_floats("a row's loss", &losses[r], &want, 1, 1e-5);
        sum += want;
        right += best == l.target[r];
    }
    OK(mr_net_evaluate(net, &l.data, &result, &err));
    assert_int_equal(result.rows, BATCH * TIME - 2);
    assert_that(fabs(result.loss - sum / (BATCH * TIME - 2)), <, 1e-5);
    assert_that(fabs(result.accuracy - right / (BATCH * TIME - 2.0)), <, 1e-6);
    assert_that(result.grad_norm, ==, 0);
    assert_that(result.lr, ==, 0);
    assert_that(result.step, ==, 5);
    FAILS(MR_EINVAL, "room for 50 where 51", mr_net_losses(net, &l.data, losses, BATCH * TIME - 1, &err));
    free(scores);
    mr_net_free(net);
    mr_context_free(ctx);
}

/* A text's losses are the same in one batch and in a stream, however it is split. */
static void streams_score_like_batches(void **state)
{
    (void)state;
    enum { LONG = 600 };
    static const size_t pieces[] = {1, 5, 255, 256, 257, LONG};
    mr_context *ctx = context_on("cpu");
    int32_t ids[LONG], target[LONG];
    float want[LONG], got[LONG + 1];
    uint32_t seed = 9;
    mr_batch data = MR_BATCH;
    data.B = 1, data.T = LONG, data.ids = ids, data.target = target;
    for (int i = 0; i < LONG; i++) ids[i] = random_below(&seed, VOCAB), target[i] = random_below(&seed, VOCAB);
    for (int m = 0; mixers()[m]; m++) {
        mr_net *net = net_with(ctx, mixers()[m]);
        mr_stream *stream = stream_on(net);
        float scores[VOCAB];
        OK(mr_net_losses(net, &data, want, LONG, &err));
        for (int p = 0; p < 6; p++) {
            mr_stream_reset(stream);
            for (size_t at = 0; at < LONG; at += pieces[p]) {
                const size_t n = LONG - at < pieces[p] ? LONG - at : pieces[p];
                got[at + n] = 77;
                OK(mr_stream_score(stream, ids + at, target + at, n, got + at, n, &err));
                assert_that(got[at + n], ==, 77);
            }
            near_floats(mixers()[m], got, want, LONG, 1e-4);
        }
        mr_stream_reset(stream);
        for (int i = 0; i < LONG; i++) {
            OK(mr_stream_step(stream, ids[i], scores, VOCAB, &err));
            got[i] = (float)by_hand(scores, target[i]);
        }
        near_floats("by hand", got, want, LONG, 1e-4);
        FAILS(MR_EINVAL, "room for 2 where 3", mr_stream_score(stream, ids, target, 3, got, 2, &err));
        FAILS(MR_EINVAL, "nothing to score", mr_stream_score(stream, ids, target, 0, got, 2, &err));
        FAILS(MR_EINVAL, "token 11", mr_stream_score(stream, ids, (int32_t[]){11}, 1, got, 2, &err));
        mr_stream_free(stream);
        mr_net_free(net);
    }
    mr_context_free(ctx);
}

/* ---- many batches */

enum { BATCHES = 4 };

typedef struct course {
    lesson lessons[BATCHES];
    mr_batch batches[BATCHES];
    int32_t length[BATCHES][BATCH];
    int next, stop_at;
} course;

/* Batches of B = 1, 3, 2, 3 sequences and T = 5, 9, 17, 17 tokens: each needs more memory than those before it. */
static void make_course(course *c)
{
    static const int B[] = {1, 3, 2, 3}, T[] = {5, 9, TIME, TIME};
    memset(c, 0, sizeof *c);
    c->stop_at = -1;
    for (int i = 0; i < BATCHES; i++) {
        make_lesson(&c->lessons[i], (uint32_t)i + 40);
        c->batches[i] = c->lessons[i].data;
        c->batches[i].B = B[i];
        c->batches[i].T = T[i];
        for (int k = i; k < B[i] * T[i]; k += 4) c->lessons[i].target[k] = -1;
    }
}

static int next_batch(void *user, const mr_batch **batch)
{
    course *c = user;
    if (c->next == c->stop_at) return MR_ESTOPPED;
    if (c->next == BATCHES) return 0;
    *batch = &c->batches[c->next++];
    return 1;
}

static void check_evaluation(mr_net *net, course *c)
{
    mr_result whole = MR_RESULT, part = MR_RESULT;
    double loss = 0, accuracy = 0;
    int64_t rows = 0;
    c->next = 0;
    OK(mr_net_evaluate_all(net, next_batch, c, &whole, &err));
    for (int i = 0; i < BATCHES; i++) {
        OK(mr_net_evaluate(net, &c->batches[i], &part, &err));
        loss += part.loss * (double)part.rows;
        accuracy += part.accuracy * (double)part.rows;
        rows += part.rows;
    }
    assert_int_equal(whole.rows, rows);
    assert_that(fabs(whole.loss - loss / (double)rows), <, 1e-6);
    assert_that(fabs(whole.accuracy - accuracy / (double)rows), <, 1e-6);
}

static void many_batches_are_evaluated_as_one(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_result result = MR_RESULT;
    course c;
    make_course(&c);
    for (int reserved = 0; reserved < 3; reserved++) {
        mr_net *net = net_of(ctx, tiny);
        const mr_shape training = {2, 8}, scoring = {3, 9};
        if (reserved) OK(mr_net_reserve(net, &training, reserved > 1 ? &scoring : NULL, &err));
        check_evaluation(net, &c); /* batches that grow */
        check_evaluation(net, &c); /* and again with enough memory */
        train(net, 0, 3);
        check_evaluation(net, &c);
        c.next = 0, c.stop_at = 2;
        FAILS(MR_ESTOPPED, "the caller stopped", mr_net_evaluate_all(net, next_batch, &c, &result, &err));
        c.next = BATCHES, c.stop_at = -1;
        FAILS(MR_EINVAL, "no batch", mr_net_evaluate_all(net, next_batch, &c, &result, &err));
        c.batches[2].ids[3] = 99, c.next = 0;
        FAILS(MR_EINVAL, "ids[3] = 99", mr_net_evaluate_all(net, next_batch, &c, &result, &err));
        c.batches[2].ids[3] = 1;
        check_evaluation(net, &c); /* as if nothing had happened */
        mr_net_free(net);
    }
    mr_context_free(ctx);
}

/* ---- values */

static void values_in_pieces_score_the_same(void **state)
{
    (void)state;
    enum { LONG = 300, INPUTS = 3, OUTPUTS = 2 };
    static const size_t pieces[] = {1, 7, 256, LONG};
    mr_context *ctx = context_on("cpu");
    float values[LONG * INPUTS], *want = room(sizeof *want * LONG * OUTPUTS), got[OUTPUTS];
    uint32_t seed = 4;
    mr_batch data = MR_BATCH;
    data.B = 1, data.T = LONG, data.values = values;
    for (int i = 0; i < LONG * INPUTS; i++) values[i] = random_float(&seed);
    for (int m = 0; mixers()[m]; m++) {
        mr_net *net = values_net_with(ctx, mixers()[m]);
        mr_stream *stream = stream_on(net);
        OK(mr_net_forward(net, &data, want, LONG * OUTPUTS, &err));
        for (int p = 0; p < 4; p++) {
            mr_stream_reset(stream);
            for (size_t at = 0; at < LONG; at += pieces[p]) {
                const size_t n = LONG - at < pieces[p] ? LONG - at : pieces[p];
                OK(mr_stream_feed_values(stream, values + at * INPUTS, n, got, OUTPUTS, &err));
                near_floats(mixers()[m], got, want + (at + n - 1) * OUTPUTS, OUTPUTS, 1e-4);
            }
        }
        FAILS(MR_EINVAL, "no tokens", mr_stream_feed_values(stream, values, 0, got, OUTPUTS, &err));
        FAILS(MR_EINVAL, "room for 1 where 2", mr_stream_feed_values(stream, values, 2, got, 1, &err));
        mr_stream_free(stream);
        mr_net_free(net);
    }
    free(want);
    mr_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_of_rows_are_those_by_hand),
        cmocka_unit_test(streams_score_like_batches),
        cmocka_unit_test(many_batches_are_evaluated_as_one),
        cmocka_unit_test(values_in_pieces_score_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
