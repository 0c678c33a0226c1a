/* Many streams of one net: stepping any of them together, in any order and of any age, gives the
 * same as stepping each alone. */
#include "api_support.h"

#include <pthread.h>
#include <stdatomic.h>

enum { CROWD = 7, INPUTS = 3, OUTPUTS = 2 };

/* 0 … CROWD − 1 in random order. */
static void choose(int *order, uint32_t *seed)
{
    for (int i = 0; i < CROWD; i++) order[i] = i;
    for (int i = CROWD - 1; i > 0; i--) {
        const int j = random_below(seed, i + 1), kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
}

typedef struct crowd {
    mr_net *net;
    int outputs;
    mr_stream *together[CROWD], *alone[CROWD];
} crowd;

static void step_both(crowd *c, const int *order, int n, uint32_t *seed, const char *what)
{
    mr_stream *chosen[CROWD];
    int32_t tokens[CROWD];
    float values[CROWD * INPUTS], got[CROWD * VOCAB + 1], want[VOCAB];
    const int reals = mr_net_input(c->net) == MR_INPUT_REALS;
    const size_t outputs = (size_t)c->outputs, needed = (size_t)n * outputs;
    for (int i = 0; i < n; i++) {
        chosen[i] = c->together[order[i]];
        tokens[i] = random_below(seed, VOCAB);
        for (int k = 0; k < INPUTS; k++) values[i * INPUTS + k] = random_float(seed);
    }
    got[needed] = 77;
    OK(mr_stream_step_many(chosen, n, reals ? NULL : tokens, reals ? values : NULL, got, needed, &err));
    assert_that(got[needed], ==, 77);
    for (int i = 0; i < n; i++) {
        mr_stream *alone = c->alone[order[i]];
        if (reals) OK(mr_stream_step_values(alone, values + i * INPUTS, want, outputs, &err));
        else OK(mr_stream_step(alone, tokens[i], want, outputs, &err));
        near_floats(what, got + (size_t)i * outputs, want, outputs, 1e-4);
    }
}

static void live_together(mr_net *net, const char *what)
{
    static const int sizes[] = {1, 2, 3, CROWD};
    crowd c = {.net = net, .outputs = mr_net_outputs(net)};
    uint32_t seed = 17;
    int order[CROWD];
    for (int i = 0; i < CROWD; i++) c.together[i] = stream_on(net), c.alone[i] = stream_on(net);
    for (int round = 0; round < 40; round++) {
        choose(order, &seed);
        step_both(&c, order, sizes[random_below(&seed, 4)], &seed, what);
        const int starts_anew = random_below(&seed, CROWD);
        if (round % 3) continue;
        mr_stream_reset(c.together[starts_anew]);
        mr_stream_reset(c.alone[starts_anew]);
    }
    for (int i = 0; i < CROWD; i++) mr_stream_free(c.together[i]), mr_stream_free(c.alone[i]);
}

static void any_streams_in_any_order(void **state)
{
    (void)state;
    const char *const devices[] = {"cpu", "ref"};
    for (int d = 0; d < 2; d++) {
        mr_context *ctx = context_on(devices[d]);
        for (int m = 0; mixers()[m]; m++) {
            mr_net *net = net_with(ctx, mixers()[m]), *values = values_net_with(ctx, mixers()[m]);
            live_together(net, mixers()[m]);
            live_together(values, mixers()[m]);
            mr_net_free(net), mr_net_free(values);
        }
        mr_context_free(ctx);
    }
}

/* More streams than memory was planned for, and a net that answers only at the last token. */
static void crowds_of_any_size(void **state)
{
    (void)state;
    enum { MOST = 40 };
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, tiny_values);
    mr_stream *streams[MOST], *alone = stream_on(net);
    float values[MOST * 3], got[MOST * 2], want[2];
    uint32_t seed = 3;
    for (int i = 0; i < MOST; i++) streams[i] = stream_on(net);
    for (int i = 0; i < MOST * 3; i++) values[i] = random_float(&seed);
    for (int n = 1; n <= MOST; n += 13) OK(mr_stream_step_many(streams, n, NULL, values, got, MOST * 2, &err));
    OK(mr_stream_step_many(streams, MOST, NULL, values, got, MOST * 2, &err));
    for (int i = 0; i < 5; i++) OK(mr_stream_step_values(alone, values, want, 2, &err));
    near_floats("the first of forty", got, want, 2, 1e-5);
    OK(mr_stream_step_many(streams, 2, NULL, values, NULL, 0, &err)); /* no scores requested */
    for (int i = 0; i < MOST; i++) mr_stream_free(streams[i]);
    mr_stream_free(alone);
    mr_net_free(net);
    mr_context_free(ctx);
}

static void crowds_that_are_refused(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_with(ctx, "mingru"), *other = net_with(ctx, "mingru"), *values = values_net_with(ctx, "mingru");
    mr_stream *a = stream_on(net), *b = stream_on(net), *stranger = stream_on(other);
    mr_stream *v = stream_on(values), *v2 = stream_on(values);
    float scores[2 * VOCAB + 1] = {0}, want[VOCAB], reals[6] = {0, 0, 0, 0, INFINITY, 0};
    const int32_t tokens[] = {1, 2};
    scores[2 * VOCAB - 1] = 77;
    mr_stream *both[] = {a, b};
    FAILS(MR_EINVAL, "stream 1",
          mr_stream_step_many((mr_stream *[]){a, stranger}, 2, tokens, NULL, scores, 2 * VOCAB, &err));
    FAILS(MR_EINVAL, "room for 21 where 22", mr_stream_step_many(both, 2, tokens, NULL, scores, 2 * VOCAB - 1, &err));
    FAILS(MR_EINVAL, "0 streams", mr_stream_step_many(both, 0, tokens, NULL, scores, 2 * VOCAB, &err));
    FAILS(MR_EINVAL, "the other one NULL", mr_stream_step_many(both, 2, tokens, scores, scores, 2 * VOCAB, &err));
    FAILS(MR_EINVAL, "the other one NULL", mr_stream_step_many(both, 2, NULL, NULL, scores, 2 * VOCAB, &err));
    FAILS(MR_EINVAL, "takes tokens", mr_stream_step_many(both, 2, NULL, reals, scores, 2 * VOCAB, &err));
    FAILS(MR_EINVAL, "token 11", mr_stream_step_many(both, 2, (int32_t[]){1, 11}, NULL, scores, 2 * VOCAB, &err));
    FAILS(MR_EINVAL, "values[4] is infinite",
          mr_stream_step_many((mr_stream *[]){v, v2}, 2, NULL, reals, scores, 4, &err));
    assert_that(scores[2 * VOCAB - 1], ==, 77);
    OK(mr_stream_step(a, 1, want, VOCAB, &err)); /* the refused calls fed nothing */
    OK(mr_stream_step_many(&b, 1, tokens, NULL, scores, VOCAB, &err));
    near_floats("the first token", scores, want, VOCAB, 1e-5);
    mr_stream_free(a), mr_stream_free(b), mr_stream_free(stranger), mr_stream_free(v), mr_stream_free(v2);
    mr_net_free(net), mr_net_free(other), mr_net_free(values);
    mr_context_free(ctx);
}

/* ---- streams that come and go */

static int32_t token_of(int stream, int step) { return (stream * 5 + step * 3 + stream / 11) % VOCAB; }

typedef struct guest {
    mr_stream *stream;
    int number, steps;
} guest;

static void arrive(guest *g, mr_net *net, int number) { *g = (guest){stream_on(net), number, 0}; }

static void leave(guest *g, mr_stream *again)
{
    float got[VOCAB], want[VOCAB];
    OK(mr_stream_step(g->stream, token_of(g->number, g->steps), got, VOCAB, &err));
    mr_stream_reset(again);
    for (int i = 0; i <= g->steps; i++) OK(mr_stream_step(again, token_of(g->number, i), want, VOCAB, &err));
    near_floats("a stream among thousands", got, want, VOCAB, 1e-5);
    mr_stream_free(g->stream);
}

static void thousands_come_and_go(void **state)
{
    (void)state;
    enum { GUESTS = 500, VISITS = 4000 };
    const char *const small[] = {"inputs", "11", "outputs", "11", "dim", "4", "layers", "1", "conv", "4", NULL};
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, small);
    mr_stream *again = stream_on(net);
    guest *guests = room(sizeof *guests * GUESTS);
    uint32_t seed = 5;
    OK(mr_net_reserve_streams(net, 100, &err));
    for (int i = 0; i < GUESTS; i++) arrive(&guests[i], net, i);
    for (int visit = GUESTS; visit < VISITS; visit++) {
        guest *g = &guests[random_below(&seed, GUESTS)], *other = &guests[random_below(&seed, GUESTS)];
        leave(g, again);
        arrive(g, net, visit);
        OK(mr_stream_step(other->stream, token_of(other->number, other->steps), NULL, 0, &err));
        other->steps++;
    }
    for (int i = 0; i < GUESTS; i++) leave(&guests[i], again);
    free(guests);
    mr_stream_free(again);
    mr_net_free(net);
    mr_context_free(ctx);
}

/* A pool that grows keeps the states in it. */
static void states_move_with_their_pool(void **state)
{
    (void)state;
    enum { EARLY = 5, LATE = 300 };
    mr_context *ctx = context_on("cpu");
    for (int m = 0; mixers()[m]; m++) {
        mr_net *net = net_with(ctx, mixers()[m]);
        mr_stream *early[EARLY], *late[LATE], *again = stream_on(net);
        float got[VOCAB], want[VOCAB];
        for (int i = 0; i < EARLY; i++) {
            early[i] = stream_on(net);
            for (int k = 0; k < 4; k++) OK(mr_stream_step(early[i], token_of(i, k), NULL, 0, &err));
        }
        for (int i = 0; i < LATE; i++) late[i] = stream_on(net);
        for (int i = 0; i < EARLY; i++) {
            mr_stream_reset(again);
            for (int k = 0; k < 5; k++) OK(mr_stream_step(again, token_of(i, k), want, VOCAB, &err));
            OK(mr_stream_step(early[i], token_of(i, 4), got, VOCAB, &err));
            near_floats(mixers()[m], got, want, VOCAB, 0);
            mr_stream_free(early[i]);
        }
        for (int i = 0; i < LATE; i++) mr_stream_free(late[i]);
        mr_stream_free(again);
        mr_net_free(net);
    }
    mr_context_free(ctx);
}

/* The memory of all states grows while threads step; they must not notice. */
enum { WALKERS = 3 };

typedef struct walker {
    mr_net *net;
    atomic_int *stop;
    int number, failures, steps;
    float last[VOCAB];
} walker;

static void *walk(void *arg)
{
    walker *w = arg;
    mr_stream *stream;
    mr_error err;
    if (mr_stream_new(w->net, &stream, &err)) return w->failures = 1, NULL;
    while (w->steps < 20 || !atomic_load(w->stop))
        w->failures += mr_stream_step(stream, token_of(w->number, w->steps++), w->last, VOCAB, &err) != 0;
    mr_stream_free(stream);
    return NULL;
}

static void streams_made_while_others_step(void **state)
{
    (void)state;
    enum { MADE = 1500 };
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_with(ctx, "minlstm");
    mr_stream **made = room(sizeof *made * MADE), *again;
    pthread_t threads[WALKERS];
    walker walkers[WALKERS];
    atomic_int stop = 0;
    float want[VOCAB];
    for (int i = 0; i < WALKERS; i++) {
        walkers[i] = (walker){.net = net, .stop = &stop, .number = i};
        assert_int_equal(pthread_create(&threads[i], NULL, walk, &walkers[i]), 0);
    }
    for (int i = 0; i < MADE; i++) made[i] = stream_on(net);
    for (int i = 0; i < MADE; i++) mr_stream_free(made[i]);
    atomic_store(&stop, 1);
    for (int i = 0; i < WALKERS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < WALKERS; i++) {
        assert_int_equal(walkers[i].failures, 0);
        again = stream_on(net);
        for (int k = 0; k < walkers[i].steps; k++) OK(mr_stream_step(again, token_of(i, k), want, VOCAB, &err));
        near_floats("a stream whose memory was moved", walkers[i].last, want, VOCAB, 0);
        mr_stream_free(again);
    }
    free(made);
    mr_net_free(net);
    mr_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_streams_in_any_order),    cmocka_unit_test(crowds_of_any_size),
        cmocka_unit_test(crowds_that_are_refused),     cmocka_unit_test(thousands_come_and_go),
        cmocka_unit_test(states_move_with_their_pool), cmocka_unit_test(streams_made_while_others_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
