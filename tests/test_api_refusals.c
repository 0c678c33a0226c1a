/* Everything that the public API refuses: the status, what the message names, and that nothing is harmed. */
#include "api_support.h"

#include <stddef.h>

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu"), *none = ctx;
    mr_context_options options = MR_CONTEXT_OPTIONS;
    mr_net *net = net_of(ctx, tiny), *no_net = net;
    mr_stream *stream = stream_on(net), *no_stream = stream;
    float scores[VOCAB];
    options.device = "toaster";
    FAILS(MR_EINVAL, "toaster", mr_context_new(&options, &none, &err));
    assert_null(none);
    options.size = 0;
    FAILS(MR_EINVAL, "size", mr_context_new(&options, &none, &err));
    options = (mr_context_options)MR_CONTEXT_OPTIONS;
    mr_allocator half = MR_ALLOCATOR;
    half.alloc = (void *(*)(void *, size_t))(void (*)(void))malloc;
    options.allocator = &half;
    FAILS(MR_EINVAL, "both", mr_context_new(&options, &none, &err));
    FAILS(MR_EINVAL, "did you mean dim", mr_net_create(ctx, (const char *[]){"dimm", "4", NULL}, &no_net, &err));
    assert_null(no_net);
    FAILS(MR_EINVAL, "dim", mr_net_create(ctx, (const char *[]){"dim", "many", NULL}, &no_net, &err));
    FAILS(MR_EINVAL, "ends before", mr_net_create(ctx, (const char *[]){"dim", NULL}, &no_net, &err));
    FAILS(MR_EINVAL, "follows from vocab",
          mr_net_create(ctx, (const char *[]){"vocab", "bytes", "inputs", "4", NULL}, &no_net, &err));
    FAILS(MR_EINVAL, "vocab: the vocabulary is neither",
          mr_net_create(ctx, (const char *[]){"vocab", "letters", NULL}, &no_net, &err));
    FAILS(MR_EINVAL, "unknown key recipe",
          mr_net_create(ctx, (const char *[]){"dim", "4", "recipe", "text", NULL}, &no_net, &err));
    FAILS(MR_EINVAL, "weights = int8: a new model has f32",
          mr_net_create(ctx, (const char *[]){"weights", "int8", NULL}, &no_net, &err));
    FAILS(MR_ECONFIG, "outputs", mr_net_create(ctx, NULL, &no_net, &err));
    FAILS(MR_EINVAL, "token 11", mr_stream_step(stream, 11, scores, VOCAB, &err));
    FAILS(MR_EINVAL, "token -1", mr_stream_step(stream, -1, scores, VOCAB, &err));
    FAILS(MR_EINVAL, "no tokens", mr_stream_feed(stream, NULL, 0, scores, VOCAB, &err));
    FAILS(MR_EINVAL, "takes tokens", mr_stream_step_values(stream, scores, scores, VOCAB, &err));
    FAILS(MR_EINVAL, "batch", mr_net_set(net, "batch", "3", &err));
    FAILS(MR_EINVAL, "lr", mr_net_set(net, "lr", "-1", &err));
    OK(mr_net_create(ctx, (const char *[]){"head", "mean", "outputs", "3", "inputs", "5", "dim", "4", NULL}, &no_net,
                     &err));
    FAILS(MR_EINVAL, "mean", mr_stream_new(no_net, &no_stream, &err));
    assert_null(no_stream);
    assert_int_equal(mr_stream_step(stream, 99, scores, VOCAB, NULL), MR_EINVAL); /* err may be NULL */
    mr_stream_free(stream);
    mr_net_free(net), mr_net_free(no_net);
    mr_context_free(ctx);
    mr_stream_free(NULL), mr_net_free(NULL), mr_context_free(NULL);
}

static void batches_are_checked(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, tiny);
    lesson l;
    mr_result result = MR_RESULT;
#define REFUSED(word, change)                                                                                          \
    make_lesson(&l, 1);                                                                                                \
    change;                                                                                                            \
    FAILS(MR_EINVAL, word, mr_net_train(net, &l.data, &result, &err))
    REFUSED("size", l.data.size = 0);
    REFUSED("B = 0", l.data.B = 0);
    REFUSED("ids is NULL", l.data.ids = NULL);
    REFUSED("target is NULL", l.data.target = NULL);
    REFUSED("ids[7]", l.ids[7] = VOCAB);
    REFUSED("target[8]", l.target[8] = -2);
    REFUSED("length[1]", l.data.length = ((int32_t[]){1, 0, 1}));
    REFUSED("beyond", l.data.length = ((int32_t[]){TIME, TIME, 3}));
    REFUSED("no row", for (int i = 0; i < BATCH * TIME; i++) l.target[i] = -1);
    assert_int_equal(mr_net_steps(net), 0);
    make_lesson(&l, 1);
    struct {
        mr_batch known;
        size_t unknown;
    } newer = {l.data, 0};
    newer.known.size = sizeof newer;
    OK(mr_net_train(net, &newer.known, &result, &err)); /* a newer header whose new field is not used */
    newer.unknown = 1;
    FAILS(MR_EINVAL, "does not know", mr_net_train(net, &newer.known, &result, &err));
    mr_net_free(net);
    mr_context_free(ctx);
}

/* ---- capacities: one too few is refused, one too many is not written */

static void capacities_are_checked_and_kept(void **state)
{
    (void)state;
    enum { GUARD = 77 };
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, tiny);
    mr_stream *stream = stream_on(net);
    float *scores = room(sizeof *scores * (SCORES + 1)), one[VOCAB + 1];
    unsigned char blob[4096];
    const size_t size = mr_stream_state_size(stream);
    lesson l;
    make_lesson(&l, 1);
    for (int i = 0; i <= SCORES; i++) scores[i] = GUARD;
    FAILS(MR_EINVAL, "scores: room for 560 where 561", mr_net_forward(net, &l.data, scores, SCORES - 1, &err));
    FAILS(MR_EINVAL, "scores: room for 0", mr_net_forward(net, &l.data, NULL, SCORES, &err));
    assert_that(scores[0], ==, GUARD);
    assert_that(scores[SCORES - 2], ==, GUARD);
    OK(mr_net_forward(net, &l.data, scores, SCORES, &err));
    assert_that(scores[SCORES - 1], !=, GUARD);
    assert_that(scores[SCORES], ==, GUARD);
    for (int i = 0; i <= VOCAB; i++) one[i] = GUARD;
    FAILS(MR_EINVAL, "scores: room for 10 where 11", mr_stream_step(stream, 1, one, VOCAB - 1, &err));
    FAILS(MR_EINVAL, "scores: room for 10 where 11", mr_stream_feed(stream, l.ids, 3, one, VOCAB - 1, &err));
    assert_that(one[0], ==, GUARD);
    assert_that(one[VOCAB - 1], ==, GUARD);
    OK(mr_stream_step(stream, l.ids[0], one, VOCAB, &err));
    near_floats("nothing was fed before", one, scores, VOCAB, 1e-4);
    assert_that(one[VOCAB], ==, GUARD);
    OK(mr_stream_step(stream, l.ids[1], NULL, 0, &err));        /* no scores requested */
    OK(mr_stream_step(stream, l.ids[2], one, VOCAB + 1, &err)); /* more room than is needed */
    near_floats("the third token", one, scores + 2 * VOCAB, VOCAB, 1e-4);
    assert_that(one[VOCAB], ==, GUARD);
    assert_that(size, <, sizeof blob);
    memset(blob, GUARD, sizeof blob);
    FAILS(MR_EINVAL, "blob", mr_stream_save(stream, blob, size - 1, &err));
    assert_int_equal(blob[0], GUARD);
    OK(mr_stream_save(stream, blob, size, &err));
    assert_int_equal(blob[size], GUARD);
    free(scores);
    mr_stream_free(stream);
    mr_net_free(net);
    mr_context_free(ctx);
}

/* ---- structs of older and of newer headers */

/* A batch without `mask` and `counted`, and a result that ends after `loss`, as programs with
 * an older header have them. */
static void structs_of_older_headers_work(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, tiny);
    lesson l;
    make_lesson(&l, 1);
    mr_result whole = MR_RESULT, old = MR_RESULT;
    mr_batch older = l.data;
    older.size = offsetof(mr_batch, mask);
    older.ids[3] = 99, older.counted = 5; /* beyond its size: not read */
    FAILS(MR_EINVAL, "ids[3] = 99", mr_net_evaluate(net, &older, &whole, &err));
    older.ids[3] = 1;
    OK(mr_net_evaluate(net, &l.data, &whole, &err));
    old.size = offsetof(mr_result, accuracy);
    old.accuracy = old.lr = 77;
    old.rows = old.step = 77;
    OK(mr_net_evaluate(net, &older, &old, &err));
    assert_that(old.loss, ==, whole.loss);
    assert_that(old.accuracy, ==, 77);
    assert_that(old.lr, ==, 77);
    assert_that(old.rows, ==, 77);
    assert_that(old.step, ==, 77);
    assert_int_equal(old.size, offsetof(mr_result, accuracy)); /* the caller's size stays */
    FAILS(MR_EINVAL, "older header", mr_net_check(net, &older, &err));
    mr_learn_options less = MR_LEARN_OPTIONS;
    less.size = offsetof(mr_learn_options, carry), less.carry = 1;
    OK(mr_net_learn(net, &l.data, &less, &old, &err));
    assert_that(old.accuracy, ==, 77);
    assert_that(old.step, ==, 77);
    float scores[SCORES], d[SCORES] = {1};
    OK(mr_net_keep_forward(net, &l.data, NULL, scores, SCORES, &err));
    OK(mr_net_backward(net, d, SCORES, &err));
    OK(mr_net_update(net, &old, &err));
    assert_true(isnan(old.loss));
    assert_that(old.accuracy, ==, 77);
    assert_that(old.step, ==, 77);
    mr_tensor t = MR_TENSOR;
    t.size = offsetof(mr_tensor, count), t.count = 77;
    OK(mr_net_tensor(net, 0, &t, &err));
    assert_int_equal(t.count, 77);
    mr_net_free(net);
    mr_context_free(ctx);
}

/* Fields that a newer header adds are accepted as long as they are zero. */
static void structs_of_newer_headers_work_if_zero(void **state)
{
    (void)state;
    struct {
        mr_context_options known;
        size_t more;
    } options = {MR_CONTEXT_OPTIONS, 0};
    struct {
        mr_allocator known;
        size_t more;
    } by = {MR_ALLOCATOR, 0};
    struct {
        mr_learn_options known;
        size_t more;
    } learn = {MR_LEARN_OPTIONS, 0};
    struct {
        mr_sample_options known;
        size_t more;
    } how = {MR_SAMPLE_OPTIONS, 0};
    struct {
        mr_result known;
        size_t more;
    } result = {MR_RESULT, 77};
    struct {
        mr_tensor known;
        size_t more;
    } tensor = {MR_TENSOR, 77};
    mr_context *ctx;
    lesson l;
    int32_t drawn;
    make_lesson(&l, 1);
    options.known.size = sizeof options, options.known.device = "cpu", options.known.allocator = &by.known;
    by.known.size = sizeof by, learn.known.size = sizeof learn, how.known.size = sizeof how;
    result.known.size = sizeof result, tensor.known.size = sizeof tensor;
    OK(mr_context_new(&options.known, &ctx, &err));
    mr_net *net = net_of(ctx, tiny);
    mr_stream *stream = stream_on(net);
    OK(mr_net_learn(net, &l.data, &learn.known, &result.known, &err));
    OK(mr_net_tensor(net, 0, &tensor.known, &err));
    OK(mr_stream_sample(stream, l.ids, 1, &how.known, &drawn, 1, &err));
    assert_that(result.known.rows, ==, BATCH * TIME);
    assert_that(result.more, ==, 77);
    assert_that(tensor.more, ==, 77);
    options.more = by.more = learn.more = how.more = 1;
    mr_context *none;
    FAILS(MR_EINVAL, "mr_context_options", mr_context_new(&options.known, &none, &err));
    options.more = 0;
    FAILS(MR_EINVAL, "mr_allocator", mr_context_new(&options.known, &none, &err));
    FAILS(MR_EINVAL, "mr_learn_options", mr_net_learn(net, &l.data, &learn.known, NULL, &err));
    FAILS(MR_EINVAL, "mr_sample_options", mr_stream_sample(stream, l.ids, 1, &how.known, &drawn, 1, &err));
    mr_stream_free(stream);
    mr_net_free(net);
    mr_context_free(ctx);
}

/* A result without a size is refused before anything happens. */
static void results_are_checked_first(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, tiny);
    mr_result empty = {0};
    lesson l;
    make_lesson(&l, 1);
    FAILS(MR_EINVAL, "MR_RESULT", mr_net_train(net, &l.data, &empty, &err));
    FAILS(MR_EINVAL, "MR_RESULT", mr_net_evaluate(net, &l.data, &empty, &err));
    FAILS(MR_EINVAL, "MR_RESULT", mr_net_update(net, &empty, &err));
    assert_int_equal(mr_net_steps(net), 0);
    mr_net_free(net);
    mr_context_free(ctx);
}

/* ---- NaN and infinity */

static void nan_and_infinity_are_refused(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *net = values_net_with(ctx, "mingru");
    mr_stream *stream = stream_on(net);
    float values[12] = {0}, target[8] = {0}, scores[8];
    mr_result result = MR_RESULT;
    mr_batch data = MR_BATCH;
    data.B = 2, data.T = 2, data.values = values, data.target_values = target;
    values[3] = NAN;
    FAILS(MR_EINVAL, "values[3] is NaN", mr_net_forward(net, &data, scores, 8, &err));
    FAILS(MR_EINVAL, "values[3] is NaN", mr_net_train(net, &data, &result, &err));
    FAILS(MR_EINVAL, "values[3] is NaN", mr_net_evaluate(net, &data, &result, &err));
    FAILS(MR_EINVAL, "values[3] is NaN", mr_net_losses(net, &data, scores, 8, &err));
    FAILS(MR_EINVAL, "values[3] is NaN", mr_net_keep_forward(net, &data, NULL, scores, 8, &err));
    FAILS(MR_EINVAL, "values[3] is NaN", mr_net_check(net, &data, &err));
    FAILS(MR_EINVAL, "values[3] is NaN", mr_stream_feed_values(stream, values, 2, scores, 8, &err));
    FAILS(MR_EINVAL, "values[0] is NaN", mr_stream_step_values(stream, values + 3, scores, 8, &err));
    values[3] = 0, values[11] = -INFINITY;
    FAILS(MR_EINVAL, "values[11] is infinite", mr_net_train(net, &data, &result, &err));
    values[11] = 0, target[5] = INFINITY;
    FAILS(MR_EINVAL, "target_values[5] is infinite", mr_net_train(net, &data, &result, &err));
    OK(mr_net_forward(net, &data, scores, 8, &err)); /* targets are not read */
    data.mask = (uint8_t[]){1, 1, 0, 1};
    OK(mr_net_train(net, &data, &result, &err)); /* in a row that does not count */
    assert_int_equal(result.rows, 3);
    assert_true(isfinite(result.loss));
    target[7] = NAN;
    FAILS(MR_EINVAL, "target_values[7] is NaN", mr_net_check(net, &data, &err));
    data.length = (int32_t[]){2, 1}, data.mask = (uint8_t[]){1, 1, 1, 1};
    target[5] = target[7] = 0;
    FAILS(MR_EINVAL, "mask[3]", mr_net_train(net, &data, &result, &err));
    data.mask = NULL, target[7] = NAN; /* beyond the length nothing counts */
    OK(mr_net_train(net, &data, &result, &err));
    assert_that(result.rows, ==, 3);
    assert_true(isfinite(result.loss));
    mr_stream_free(stream);
    mr_net_free(net);
    mr_context_free(ctx);
}

/* ---- batches that were checked in advance */

static void batches_checked_ahead(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, tiny), *twin = net_of(ctx, tiny), *values = values_net_with(ctx, "mingru");
    lesson l, plain;
    make_lesson(&l, 1), make_lesson(&plain, 1);
    l.target[3] = plain.target[3] = -1;
    l.ids[7] = 99;
    FAILS(MR_EINVAL, "ids[7] = 99", mr_net_check(net, &l.data, &err));
    assert_int_equal(l.data.counted, 0);
    l.ids[7] = plain.ids[7];
    OK(mr_net_check(net, &l.data, &err));
    assert_int_equal(l.data.counted, BATCH * TIME - 1);
    mr_result got = MR_RESULT, want = MR_RESULT;
    for (int i = 0; i < 3; i++) {
        OK(mr_net_train(net, &l.data, &got, &err));
        OK(mr_net_train(twin, &plain.data, &want, &err));
        assert_memory_equal(&got, &want, sizeof want);
    }
    same_vectors("weights", net, twin, MR_WEIGHTS, 0);
    float reals[12] = {0}, target[8] = {0};
    mr_batch data = MR_BATCH;
    data.B = 2, data.T = 2, data.values = reals, data.target_values = target;
    data.length = (int32_t[]){2, 1};
    OK(mr_net_check(values, &data, &err));
    assert_int_equal(data.counted, 3);
    OK(mr_net_train(values, &data, &got, &err)); /* the mask still follows from the lengths */
    assert_int_equal(got.rows, 3);
    mr_net_free(net), mr_net_free(twin), mr_net_free(values);
    mr_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(batches_are_checked),
        cmocka_unit_test(capacities_are_checked_and_kept),
        cmocka_unit_test(structs_of_older_headers_work),
        cmocka_unit_test(structs_of_newer_headers_work_if_zero),
        cmocka_unit_test(results_are_checked_first),
        cmocka_unit_test(nan_and_infinity_are_refused),
        cmocka_unit_test(batches_checked_ahead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
