/* One net in many threads, several contexts at once, and a caller's allocator that may fail at any time. */
#include "api_support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

enum { THREADS = 4, STREAMS = 25, STEPS = 12 };

static mr_net *net_on(mr_context *ctx) { return net_of(ctx, tiny); }

static int32_t token_of(int stream, int step) { return (stream * 5 + step * 3) % VOCAB; }

/* ---- many streams of one net ---- */

typedef struct share {
    mr_net *net;
    int first;
    int failures;
    float scores[STREAMS][VOCAB]; /* after the last step */
} share;

static void *stream_some(void *arg)
{
    share *s = arg;
    mr_stream *streams[STREAMS];
    mr_error err;
    for (int i = 0; i < STREAMS; i++)
        if (mr_stream_new(s->net, &streams[i], &err)) return s->failures = 1, NULL;
    for (int step = 0; step < STEPS; step++)
        for (int i = 0; i < STREAMS; i++)
            s->failures += mr_stream_step(streams[i], token_of(s->first + i, step), s->scores[i], VOCAB, &err) != 0;
    for (int i = 0; i < STREAMS; i++) mr_stream_free(streams[i]);
    return NULL;
}

static void a_hundred_streams_in_four_threads(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_on(ctx);
    pthread_t threads[THREADS];
    share *together = room(sizeof *together * THREADS), *alone = room(sizeof *alone);
    for (int i = 0; i < THREADS; i++) {
        together[i] = (share){.net = net, .first = i * STREAMS};
        assert_int_equal(pthread_create(&threads[i], NULL, stream_some, &together[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) { /* the same bits as alone */
        *alone = (share){.net = net, .first = i * STREAMS};
        stream_some(alone);
        assert_int_equal(together[i].failures + alone->failures, 0);
        assert_memory_equal(together[i].scores, alone->scores, sizeof alone->scores);
    }
    free(together), free(alone);
    mr_net_free(net);
    mr_context_free(ctx);
}

/* ---- training while others stream ---- */

static void *train_some(void *arg)
{
    share *s = arg;
    mr_error err;
    int32_t ids[20], target[20];
    mr_batch data = MR_BATCH;
    for (int i = 0; i < 20; i++) ids[i] = token_of(0, i), target[i] = token_of(0, i + 1);
    data.B = 2, data.T = 10, data.ids = ids, data.target = target;
    for (int i = 0; i < 20; i++) s->failures += mr_net_train(s->net, &data, NULL, &err) != 0;
    return NULL;
}

/* A reserved net is evaluated in the memory of its training. */
static void *evaluate_some(void *arg)
{
    share *s = arg;
    mr_error err;
    int32_t ids[20], target[20];
    mr_batch data = MR_BATCH;
    for (int i = 0; i < 20; i++) ids[i] = token_of(0, i), target[i] = token_of(0, i + 1);
    data.T = 2, data.ids = ids, data.target = target;
    for (int i = 0; i < 20; i++) {
        mr_result result = MR_RESULT;
        data.B = 1 + i % 10;
        if (i == 10) s->failures += mr_net_reserve(s->net, &(mr_shape){2, 10}, &(mr_shape){5, 2}, &err) != 0;
        s->failures += mr_net_evaluate(s->net, &data, &result, &err) != 0;
        s->failures += !isfinite(result.loss) || result.rows != 2 * data.B;
    }
    return NULL;
}

static void training_beside_streams(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    void *(*const work[THREADS])(void *) = {train_some, stream_some, stream_some, evaluate_some};
    mr_net *net = net_on(ctx);
    pthread_t threads[THREADS];
    share *shares = room(sizeof *shares * THREADS);
    for (int i = 0; i < THREADS; i++) {
        shares[i] = (share){.net = net};
        assert_int_equal(pthread_create(&threads[i], NULL, work[i], &shares[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(shares[i].failures, 0);
    }
    assert_int_equal(mr_net_steps(net), 20);
    for (int c = 0; c < VOCAB; c++) assert_true(isfinite(shares[1].scores[0][c]));
    free(shares);
    mr_net_free(net);
    mr_context_free(ctx);
}

/* ---- settings and metadata while others set them ---- */

static void *set_some(void *arg)
{
    share *s = arg;
    mr_error err;
    char key[16];
    for (int i = 0; i < 200; i++) {
        snprintf(key, sizeof key, "many.%d", i);
        s->failures += mr_net_set_meta(s->net, key, key, &err) != 0;
        s->failures += mr_net_set(s->net, "lr", i % 2 ? "0.01" : "0.02", &err) != 0;
    }
    return NULL;
}

static void *ask_some(void *arg)
{
    share *s = arg;
    mr_error err;
    char text[32];
    for (int i = 0; i < 400; i++) {
        const char *key = mr_net_meta_key(s->net, i / 2), *value = mr_net_meta(s->net, "many.3");
        s->failures += mr_net_setting(s->net, "lr", text, sizeof text, &err) != 0;
        s->failures += strcmp(text, "0.01") && strcmp(text, "0.02");
        s->failures += (key && strncmp(key, "many.", 5)) || (value && strcmp(value, "many.3"));
    }
    return NULL;
}

static void asking_while_others_set(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_on(ctx);
    pthread_t threads[THREADS];
    share *shares = room(sizeof *shares * THREADS);
    for (int i = 0; i < THREADS; i++) {
        shares[i] = (share){.net = net};
        assert_int_equal(pthread_create(&threads[i], NULL, i ? ask_some : set_some, &shares[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(shares[i].failures, 0);
    }
    assert_string_equal(mr_net_meta(net, "many.199"), "many.199");
    free(shares);
    mr_net_free(net);
    mr_context_free(ctx);
}

/* ---- several contexts at once ---- */

static void *whole_life(void *arg)
{
    share *s = arg;
    mr_context_options options = MR_CONTEXT_OPTIONS;
    mr_context *ctx;
    mr_error err;
    options.device = "cpu";
    options.threads = 2;
    if (mr_context_new(&options, &ctx, &err)) return s->failures = 1, NULL;
    if (mr_net_create(ctx, tiny, &s->net, &err)) return s->failures = 1, NULL;
    train_some(s);
    stream_some(s);
    mr_net_free(s->net);
    mr_context_free(ctx);
    return NULL;
}

static void contexts_share_nothing(void **state)
{
    (void)state;
    pthread_t threads[2];
    share *both = room(sizeof *both * 3);
    memset(both, 0, sizeof *both * 3);
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, whole_life, &both[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    whole_life(&both[2]);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(both[i].failures, 0);
        assert_memory_equal(both[i].scores, both[2].scores, sizeof both[2].scores);
    }
    free(both);
}

/* ---- a caller's allocator ---- */

typedef struct purse {
    atomic_long left;   /* allocations that may succeed; negative: all further ones fail */
    atomic_long living; /* blocks */
    atomic_long bytes;  /* requested in total */
} purse;

static void *purse_alloc(void *user, size_t bytes)
{
    purse *p = user;
    if (atomic_fetch_sub(&p->left, 1) <= 0) return NULL;
    atomic_fetch_add(&p->living, 1);
    atomic_fetch_add(&p->bytes, (long)bytes);
    char *block = malloc(bytes + 1);
    return block ? block + 1 : NULL; /* any alignment will do */
}

static void purse_release(void *user, void *p)
{
    atomic_fetch_sub(&((purse *)user)->living, 1);
    free((char *)p - 1);
}

static void count_lines(void *user, const char *line)
{
    assert_true(*line);
    assert_true(!strchr(line, '\n'));
    ++*(int *)user;
}

static int one_batch(void *user, const mr_batch **batch)
{
    const mr_batch **left = user;
    *batch = *left;
    *left = NULL;
    return *batch != NULL;
}

/* Trains a net of tokens in every way. */
static int train_on(mr_net *net, const mr_batch *data, mr_error *err)
{
    float scores[6 * VOCAB], d[6 * VOCAB] = {0};
    mr_result result = MR_RESULT;
    mr_learn_options part = MR_LEARN_OPTIONS;
    const mr_batch *left = data;
    const mr_shape shape = {4, 4};
    part.micros = 2, part.carry = 1;
    int status = mr_net_train(net, data, NULL, err);
    if (!status) status = mr_net_learn(net, data, &part, NULL, err);
    part.micro = 1;
    if (!status) status = mr_net_learn(net, data, &part, &result, err);
    if (!status) status = mr_net_keep_forward(net, data, NULL, scores, 6 * VOCAB, err);
    if (!status) status = mr_net_backward(net, d, 6 * VOCAB, err);
    if (!status) status = mr_net_update(net, &result, err);
    if (!status) status = mr_net_mark_best(net, err);
    if (!status) status = mr_net_reserve(net, &shape, &shape, err);
    if (!status) status = mr_net_evaluate_all(net, one_batch, &left, &result, err);
    if (!status) status = mr_net_losses(net, data, scores, 6, err);
    if (!status) status = mr_net_set_meta(net, "mine.author", "me", err);
    return status ? status : mr_net_forward(net, data, scores, 6 * VOCAB, err);
}

static int stream_on_net(mr_net *net, const int32_t *ids, mr_stream **stream, mr_stream **clone, mr_error *err)
{
    float scores[6 * VOCAB];
    int32_t drawn[6];
    char blob[8192];
    const mr_sample_options how[2] = {MR_SAMPLE_OPTIONS, MR_SAMPLE_OPTIONS};
    int status = mr_stream_new(net, stream, err);
    if (!status) status = mr_stream_feed(*stream, ids, 6, scores, VOCAB, err);
    if (!status) status = mr_stream_clone(*stream, clone, err);
    if (!status) status = mr_stream_step_many((mr_stream *[]){*stream, *clone}, 2, ids, NULL, scores, 2 * VOCAB, err);
    if (!status) status = mr_stream_sample(*stream, ids, 6, how, drawn, 6, err);
    if (!status) status = mr_stream_sample_many((mr_stream *[]){*stream, *clone}, 2, ids, how, drawn, err);
    if (!status) status = mr_stream_score(*stream, ids, ids, 6, scores, 6, err);
    if (!status) status = mr_net_reserve_streams(net, 100, err);
    if (!status) assert_that(mr_stream_state_size(*stream), <=, sizeof blob);
    if (!status) status = mr_stream_save(*stream, blob, sizeof blob, err);
    return status ? status : mr_stream_load(*clone, blob, mr_stream_state_size(*stream), err);
}

/* Does everything once; stops at the first failure. */
static int live_on(purse *p, int *lines, mr_error *err)
{
    mr_context_options options = MR_CONTEXT_OPTIONS;
    mr_context *ctx;
    mr_net *net = NULL;
    mr_stream *stream = NULL, *clone = NULL;
    int32_t ids[6] = {1, 2, 3, 4, 5, 6}, target[6] = {2, 3, 4, 5, 6, 0};
    mr_batch data = MR_BATCH;
    mr_allocator by = {sizeof by, purse_alloc, purse_release, p};
    data.B = 2, data.T = 3, data.ids = ids, data.target = target;
    options.device = "cpu", options.threads = 2, options.allocator = &by;
    options.log = count_lines, options.log_user = lines;
    int status = mr_context_new(&options, &ctx, err);
    if (status) return status;
    status = mr_net_create(ctx, tiny, &net, err);
    if (!status) status = train_on(net, &data, err);
    if (!status) status = stream_on_net(net, ids, &stream, &clone, err);
    mr_stream_free(clone);
    mr_stream_free(stream);
    mr_net_free(net);
    mr_context_free(ctx);
    return status;
}

static void the_allocator_serves_everything(void **state)
{
    (void)state;
    purse p = {.left = 1L << 30};
    mr_error err = {0};
    int lines = 0, status = live_on(&p, &lines, &err);
    if (status) fail_msg("%s", err.text);
    assert_int_equal(p.living, 0);
    assert_that(lines, >=, 3);
    const long needed = (1L << 30) - p.left;
    assert_that(needed, >, 40);
    assert_that(p.bytes, >, 4L * 4 * 5000);               /* includes weights, gradients and both moments */
    for (long allowed = 0; allowed < needed; allowed++) { /* each allocation fails once */
        p = (purse){.left = allowed};
        status = live_on(&p, &lines, &err);
        assert_int_equal(p.living, 0);
        if (status && status != MR_ENOMEM && status != MR_EDEVICE)
            fail_msg("allocation %ld: %d: %s", allowed, status, err.text);
        assert_int_not_equal(status, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hundred_streams_in_four_threads), cmocka_unit_test(training_beside_streams),
        cmocka_unit_test(asking_while_others_set),           cmocka_unit_test(contexts_share_nothing),
        cmocka_unit_test(the_allocator_serves_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
