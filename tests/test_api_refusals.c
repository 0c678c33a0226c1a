/* Everything that the public header refuses: by status, by name, and without harm. */
#include "api_support.h"

static void test_refusals(void **state)
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
    FAILS(MR_EINVAL, "follows from vocab", mr_net_create(ctx, (const char *[]){"vocab", "bytes", "inputs", "4", NULL}, &no_net, &err));
    FAILS(MR_EINVAL, "unknown key recipe", mr_net_create(ctx, (const char *[]){"dim", "4", "recipe", "text", NULL}, &no_net, &err));
    FAILS(MR_EINVAL, "unknown key weights", mr_net_create(ctx, (const char *[]){"weights", "int8", NULL}, &no_net, &err));
    FAILS(MR_ECONFIG, "outputs", mr_net_create(ctx, NULL, &no_net, &err));
    FAILS(MR_EINVAL, "token 11", mr_stream_step(stream, 11, scores, VOCAB, &err));
    FAILS(MR_EINVAL, "token -1", mr_stream_step(stream, -1, scores, VOCAB, &err));
    FAILS(MR_EINVAL, "no tokens", mr_stream_feed(stream, NULL, 0, scores, VOCAB, &err));
    FAILS(MR_EINVAL, "takes tokens", mr_stream_step_values(stream, scores, scores, VOCAB, &err));
    FAILS(MR_EINVAL, "batch", mr_net_set(net, "batch", "3", &err));
    FAILS(MR_EINVAL, "lr", mr_net_set(net, "lr", "-1", &err));
    OK(mr_net_create(ctx, (const char *[]){"head", "mean", "outputs", "3", "inputs", "5", "dim", "4", NULL}, &no_net, &err));
    FAILS(MR_EINVAL, "mean", mr_stream_new(no_net, &no_stream, &err));
    assert_null(no_stream);
    assert_int_equal(mr_stream_step(stream, 99, scores, VOCAB, NULL), MR_EINVAL); /* nobody needs to listen */
    mr_stream_free(stream);
    mr_net_free(net), mr_net_free(no_net);
    mr_context_free(ctx);
    mr_stream_free(NULL), mr_net_free(NULL), mr_context_free(NULL);
}

static void test_batches_are_checked(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, tiny);
    lesson l;
    mr_result result = MR_RESULT;
#define REFUSED(word, change)                                        \
    make_lesson(&l, 1);                                              \
    change;                                                          \
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
    struct { mr_batch known; size_t unknown; } newer = {l.data, 0};
    newer.known.size = sizeof newer;
    OK(mr_net_train(net, &newer.known, &result, &err)); /* a newer header whose new field is not used */
    newer.unknown = 1;
    FAILS(MR_EINVAL, "does not know", mr_net_train(net, &newer.known, &result, &err));
    mr_net_free(net);
    mr_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_batches_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
