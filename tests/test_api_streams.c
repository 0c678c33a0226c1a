/* Streams through the public API: the same numbers however the tokens are passed, and states
 * that are saved and loaded. */
#include "api_support.h"

/* Feeds the same tokens in several ways: as a batch, step by step, in one piece, many streams together. */
static void check_streams(mr_net *net)
{
    float *want = room(sizeof *want * SCORES), got[VOCAB], many[BATCH * VOCAB];
    mr_stream *steps[BATCH], *pieces[BATCH], *together[BATCH];
    lesson l;
    make_lesson(&l, 5);
    forward_scores(net, want);
    for (int b = 0; b < BATCH; b++) steps[b] = stream_on(net), pieces[b] = stream_on(net), together[b] = stream_on(net);
    for (int t = 0; t < TIME; t++) {
        int32_t tokens[BATCH];
        for (int b = 0; b < BATCH; b++) {
            tokens[b] = l.ids[b * TIME + t];
            OK(mr_stream_step(steps[b], tokens[b], got, VOCAB, &err));
            near_floats("step", got, want + (b * TIME + t) * VOCAB, VOCAB, 1e-4);
        }
        OK(mr_stream_step_many(together, BATCH, tokens, NULL, many, BATCH * VOCAB, &err));
        for (int b = 0; b < BATCH; b++)
            near_floats("many", many + b * VOCAB, want + (b * TIME + t) * VOCAB, VOCAB, 1e-4);
    }
    for (int b = 0; b < BATCH; b++) { /* each has its own state afterwards */
        OK(mr_stream_step(together[b], 1, many, VOCAB, &err));
        OK(mr_stream_step(steps[b], 1, got, VOCAB, &err));
        near_floats("alone after many", many, got, VOCAB, 1e-4);
    }
    for (int b = 0; b < BATCH; b++) {
        OK(mr_stream_feed(pieces[b], l.ids + b * TIME, 5, got, VOCAB, &err));
        near_floats("first piece", got, want + (b * TIME + 4) * VOCAB, VOCAB, 1e-4);
        OK(mr_stream_feed(pieces[b], l.ids + b * TIME + 5, TIME - 5, got, VOCAB, &err));
        near_floats("second piece", got, want + (b * TIME + TIME - 1) * VOCAB, VOCAB, 1e-4);
        mr_stream_reset(steps[b]);
        OK(mr_stream_step(steps[b], l.ids[b * TIME], got, VOCAB, &err));
        near_floats("after a reset", got, want + b * TIME * VOCAB, VOCAB, 1e-4);
        mr_stream_free(steps[b]), mr_stream_free(pieces[b]), mr_stream_free(together[b]);
    }
    free(want);
}

static void streams_agree_with_batches(void **state)
{
    (void)state;
    const char *const devices[] = {"cpu", "ref"};
    for (int i = 0; i < 2; i++) {
        mr_context *ctx = context_on(devices[i]);
        mr_net *gru = net_of(ctx, tiny), *lstm = net_of(ctx, tiny_lstm);
        check_streams(gru);
        check_streams(lstm);
        mr_net_free(gru);
        mr_net_free(lstm);
        mr_context_free(ctx);
    }
}

/* Streams that started at different times are stepped together; each has its own sequence. */
static void many_streams_may_be_of_any_age(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, tiny_lstm);
    mr_stream *old = stream_on(net), *fresh = stream_on(net), *alone = stream_on(net);
    float scores[2 * VOCAB], want[VOCAB];
    OK(mr_stream_feed(old, (int32_t[]){1, 2, 3}, 3, scores, VOCAB, &err));
    OK(mr_stream_step_many((mr_stream *[]){old, fresh}, 2, (int32_t[]){4, 7}, NULL, scores, BATCH * VOCAB, &err));
    OK(mr_stream_step(alone, 7, want, VOCAB, &err));
    near_floats("the fresh one", scores + VOCAB, want, VOCAB, 1e-5);
    mr_stream_reset(alone);
    OK(mr_stream_feed(alone, (int32_t[]){1, 2, 3, 4}, 4, want, VOCAB, &err));
    near_floats("the old one", scores, want, VOCAB, 1e-5);
    FAILS(MR_EINVAL, "twice",
          mr_stream_step_many((mr_stream *[]){old, old}, 2, (int32_t[]){4, 7}, NULL, scores, BATCH * VOCAB, &err));
    OK(mr_stream_step_many((mr_stream *[]){old, fresh}, 2, (int32_t[]){4, 7}, NULL, scores, BATCH * VOCAB,
                           &err)); /* accepted afterwards */
    mr_stream_free(old), mr_stream_free(fresh), mr_stream_free(alone);
    mr_net_free(net);
    mr_context_free(ctx);
}

static void states_are_saved_and_loaded(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu"), *other = context_on("ref");
    mr_net *net = net_of(ctx, tiny), *twin = net_of(other, tiny), *lstm = net_of(ctx, tiny_lstm);
    mr_stream *a = stream_on(net), *b = stream_on(twin), *c, *wrong = stream_on(lstm);
    float want[VOCAB], got[VOCAB];
    OK(mr_stream_feed(a, (int32_t[]){1, 2, 3, 4, 5}, 5, want, VOCAB, &err));
    size_t size = mr_stream_state_size(a);
    char *blob = (char *)room(size + 1) + 1; /* a blob may lie anywhere */
    OK(mr_stream_save(a, blob, size, &err));
    OK(mr_stream_clone(a, &c, &err));
    OK(mr_stream_load(b, blob, size, &err));
    OK(mr_stream_step(a, 6, want, VOCAB, &err));
    OK(mr_stream_step(c, 6, got, VOCAB, &err));
    near_floats("the clone", got, want, VOCAB, 0);
    OK(mr_stream_step(b, 6, got, VOCAB, &err));
    near_floats("on another device", got, want, VOCAB, 1e-4);
    OK(mr_stream_load(a, blob, size, &err));
    OK(mr_stream_step(a, 6, got, VOCAB, &err));
    near_floats("turned back", got, want, VOCAB, 0);

    FAILS(MR_EINVAL, "another model", mr_stream_load(wrong, blob, size, &err));
    for (int i = 0; i < 4; i++) { /* like tiny, with one difference */
        const char *const keys[] = {"mixer", "layers", "conv", "expansion"}, *const values[] = {"minlstm", "3", "0",
                                                                                                "1"};
        const char *settings[] = {"inputs", "11",   "outputs", "11",    "dim",     "16", "layers",
                                  "2",      "conv", "4",       keys[i], values[i], NULL};
        mr_net *near_miss = net_of(ctx, settings);
        mr_stream *there = stream_on(near_miss);
        FAILS(MR_EINVAL, values[i], mr_stream_load(there, blob, size, &err));
        mr_stream_free(there);
        mr_net_free(near_miss);
    }
    FAILS(MR_EFORMAT, "damaged", mr_stream_load(a, blob, size - 1, &err));
    FAILS(MR_EFORMAT, "not the state", mr_stream_load(a, blob, 3, &err));
    FAILS(MR_EFORMAT, "not the state",
          mr_stream_load(a, "and now for something completely different, in 64 bytes or more", 64, &err));
    memset(blob + size - 4, 0xff, 4);
    FAILS(MR_EFORMAT, "not finite", mr_stream_load(a, blob, size, &err));
    blob[8] = 9;
    FAILS(MR_EFORMAT, "version 9", mr_stream_load(a, blob, size, &err));
    free(blob - 1);

    mr_stream *new_one = stream_on(net); /* a stream before its first token stays so */
    blob = room(size);
    OK(mr_stream_save(new_one, blob, size, &err));
    OK(mr_stream_load(a, blob, size, &err));
    OK(mr_stream_step(a, 6, got, VOCAB, &err));
    OK(mr_stream_step(new_one, 6, want, VOCAB, &err));
    near_floats("a state before the first token", got, want, VOCAB, 0);
    free(blob);
    mr_stream_free(a), mr_stream_free(b), mr_stream_free(c), mr_stream_free(wrong), mr_stream_free(new_one);
    mr_net_free(net), mr_net_free(twin), mr_net_free(lstm);
    mr_context_free(ctx), mr_context_free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_agree_with_batches),
        cmocka_unit_test(many_streams_may_be_of_any_age),
        cmocka_unit_test(states_are_saved_and_loaded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
