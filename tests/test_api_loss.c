/* A loss computed by the caller: the library's losses, recomputed by hand, give the library's steps. */
#include "api_support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { B = 4, T = 9, MOST = B * T * VOCAB, CLASSES = 5 };

/* A batch for any of the nets below, with every optional part. */
typedef struct examples {
    int32_t ids[B * T], target[B * T], length[B];
    float values[B * T * 3], target_values[B * T * 2];
    uint8_t mask[B * T], reset[B * T];
    mr_batch data;
} examples;

static void make_examples(examples *e, const mr_net *net, uint32_t seed)
{
    memset(e, 0, sizeof *e);
    const int rows = (int)mr_net_rows(net, B, T), tokens = mr_net_head(net) == MR_HEAD_TOKEN;
    for (int i = 0; i < B; i++) e->length[i] = T - 2 * i;
    for (int i = 0; i < B * T; i++) e->ids[i] = random_below(&seed, VOCAB), e->reset[i] = random_below(&seed, 6) == 0;
    for (int i = 0; i < B * T * 3; i++) e->values[i] = random_float(&seed);
    for (int i = 0; i < rows * 2; i++) e->target_values[i] = random_float(&seed);
    for (int i = 0; i < rows; i++) {
        const int real = !tokens || i % T < e->length[i / T];
        e->mask[i] = (uint8_t)(real && random_below(&seed, 4));
        e->target[i] = real && random_below(&seed, 4) ? random_below(&seed, mr_net_outputs(net)) : -1;
    }
    e->mask[0] = 1, e->target[0] = 2;
    e->data = (mr_batch)MR_BATCH;
    e->data.B = B, e->data.T = T;
    e->data.length = e->length, e->data.reset = e->reset;
    if (mr_net_input(net) == MR_INPUT_TOKENS) e->data.ids = e->ids;
    else e->data.values = e->values;
    if (mr_net_loss(net) == MR_LOSS_XENT) e->data.target = e->target;
    else e->data.target_values = e->target_values, e->data.mask = e->mask;
}

/* (softmax − one-hot target) / count, for the rows that count. */
static void gradient_of_xent(const float *scores, const int32_t *target, int rows, int classes, double count, float *d)
{
    for (int r = 0; r < rows; r++, scores += classes, d += classes) {
        double top = scores[0], sum = 0;
        for (int c = 1; c < classes; c++) top = fmax(top, scores[c]);
        for (int c = 0; c < classes; c++) sum += exp(scores[c] - top);
        for (int c = 0; c < classes; c++)
            d[c] = target[r] < 0 ? 0 : (float)((exp(scores[c] - top) / sum - (c == target[r])) / count);
    }
}

/* 2·(prediction − target) / count, for the numbers that count. */
static void gradient_of_mse(const float *scores, const examples *e, int rows, int outputs, double count, float *d)
{
    for (int i = 0; i < rows * outputs; i++)
        d[i] = e->mask[i / outputs] ? (float)(2 * ((double)scores[i] - e->target_values[i]) / (count * outputs)) : 0;
}

static void gradient_by_hand(const mr_net *net, const examples *e, const float *scores, float *d)
{
    const int rows = (int)mr_net_rows(net, B, T), outputs = mr_net_outputs(net),
              xent = mr_net_loss(net) == MR_LOSS_XENT;
    double count = 0;
    for (int r = 0; r < rows; r++) count += xent ? e->target[r] >= 0 : e->mask[r];
    if (xent) gradient_of_xent(scores, e->target, rows, outputs, count, d);
    else gradient_of_mse(scores, e, rows, outputs, count, d);
}

static void own_backward(mr_net *net, examples *e, const mr_learn_options *options)
{
    float scores[MOST + 1], d[MOST];
    const size_t count = mr_net_rows(net, B, T) * (size_t)mr_net_outputs(net);
    scores[count] = 77;
    OK(mr_net_keep_forward(net, &e->data, options, scores, count, &err));
    assert_that(scores[count], ==, 77);
    gradient_by_hand(net, e, scores, d);
    OK(mr_net_backward(net, d, count, &err));
}

/* With a small eps, Adam's first step is the gradient's sign; a large eps makes the weights
 * show the gradient itself. */
static mr_net *learner(mr_context *ctx, const char *const *interfaces, const char *mixer)
{
    const char *settings[32] = {"mixer", mixer, "dim",  "16",  "layers",  "2",   "conv",    "4",
                                "eps",   "0.1", "clip", "0.5", "dropout", "0.2", "horizon", "16"};
    int n = 16;
    for (int i = 0; interfaces[i]; i++) settings[n++] = interfaces[i];
    settings[n] = NULL;
    return net_of(ctx, settings);
}

static const char *const interfaces[][12] = {
    {"inputs", "11", "outputs", "11", NULL},
    {"inputs", "11", "outputs", "5", "head", "last", NULL},
    {"inputs", "11", "outputs", "5", "head", "mean", NULL},
    {"inputs", "11", "outputs", "5", "head", "pair-last", NULL},
    {"inputs", "11", "outputs", "5", "head", "pair-mean", NULL},
    {"input", "reals", "inputs", "3", "outputs", "2", "loss", "mse", NULL},
    {"input", "reals", "inputs", "3", "outputs", "2", "loss", "mse", "head", "last", NULL},
    {"input", "reals", "inputs", "3", "outputs", "2", "loss", "mse", "output", "tanh", NULL},
};
enum { INTERFACES = 8 };

static void check_own_steps(mr_context *ctx, const char *const *interface, const char *mixer)
{
    mr_net *plain = learner(ctx, interface, mixer), *own = learner(ctx, interface, mixer);
    examples e;
    for (int step = 0; step < 4; step++) {
        mr_result want = MR_RESULT, got = MR_RESULT;
        make_examples(&e, plain, 7 + (uint32_t)step);
        OK(mr_net_train(plain, &e.data, &want, &err));
        own_backward(own, &e, NULL);
        OK(mr_net_update(own, &got, &err));
        same_vectors("gradients", own, plain, MR_GRADS, 1e-6);
        same_vectors("first moments", own, plain, MR_MOMENT1, 1e-6);
        same_vectors("weights", own, plain, MR_WEIGHTS, 1e-6);
        assert_that(fabs(got.grad_norm - want.grad_norm), <, 1e-5 * want.grad_norm);
        assert_that(got.lr, ==, want.lr);
        assert_that(got.step, ==, step + 1);
        assert_true(isnan(got.loss));
        assert_true(isnan(got.accuracy));
    }
    mr_net_free(plain), mr_net_free(own);
}

static void own_losses_equal_the_librarys(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    for (int f = 0; f < INTERFACES; f++) check_own_steps(ctx, interfaces[f], "mingru");
    for (int m = 1; mixers()[m]; m++) check_own_steps(ctx, interfaces[0], mixers()[m]);
    mr_context_free(ctx);
}

/* Gradients add up until the update, like those of micro-batches. */
static void backwards_add_up(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *parts = learner(ctx, interfaces[0], "mingru"), *own = learner(ctx, interfaces[0], "mingru");
    examples e[2];
    for (int step = 0; step < 2; step++) {
        for (int i = 0; i < 2; i++) {
            mr_learn_options o = MR_LEARN_OPTIONS;
            float scores[MOST];
            make_examples(&e[i], own, 31 + (uint32_t)(2 * step + i));
            int64_t count = 0;
            for (int r = 0; r < B * T; r++) count += e[i].target[r] >= 0;
            o.micro = i, o.micros = 2, o.scale = 1 / (double)count; /* as gradient_by_hand does */
            OK(mr_net_learn(parts, &e[i].data, &o, NULL, &err));
            o.scale = 0;
            OK(mr_net_keep_forward(own, &e[i].data, &o, scores, MOST, &err)); /* a dropped forward adds nothing */
            mr_net_drop(own);
            own_backward(own, &e[i], &o);
        }
        OK(mr_net_update(own, NULL, &err));
        same_vectors("gradients", own, parts, MR_GRADS, 1e-6);
        same_vectors("weights", own, parts, MR_WEIGHTS, 1e-6);
    }
    FAILS(MR_EINVAL, "no gradients", mr_net_update(own, NULL, &err));
    mr_net_free(parts), mr_net_free(own);
    mr_context_free(ctx);
}

/* ---- what a kept forward forbids */

static void every_call_is_refused(mr_net *net, mr_stream *stream, examples *e)
{
    float scores[MOST];
    mr_result result = MR_RESULT;
    int32_t drawn;
    mr_sample_options how = MR_SAMPLE_OPTIONS;
    char blob[8192];
    mr_stream *clone;
    mr_tensor first = MR_TENSOR;
    OK(mr_net_tensor(net, 0, &first, &err));
    float *weights = room(first.count * sizeof *weights);
    memset(weights, 0, first.count * sizeof *weights);
    const char *const word = "keeps a forward";
    assert_that(mr_stream_state_size(stream), <=, sizeof blob);
    FAILS(MR_EINVAL, word, mr_net_keep_forward(net, &e->data, NULL, scores, MOST, &err));
    FAILS(MR_EINVAL, word, mr_net_forward(net, &e->data, scores, MOST, &err));
    FAILS(MR_EINVAL, word, mr_net_train(net, &e->data, &result, &err));
    FAILS(MR_EINVAL, word, mr_net_evaluate(net, &e->data, &result, &err));
    FAILS(MR_EINVAL, word, mr_net_losses(net, &e->data, scores, MOST, &err));
    FAILS(MR_EINVAL, word, mr_net_update(net, &result, &err));
    FAILS(MR_EINVAL, word, mr_net_set(net, "lr", "0.1", &err));
    FAILS(MR_EINVAL, word, mr_net_reserve(net, &(mr_shape){1, 1}, NULL, &err));
    FAILS(MR_EINVAL, word, mr_net_reserve_streams(net, 1000, &err));
    FAILS(MR_EINVAL, word, mr_net_get(net, MR_WEIGHTS, "head.weight", scores, MOST, &err));
    FAILS(MR_EINVAL, word, mr_net_mark_best(net, &err));
    FAILS(MR_EINVAL, word, mr_net_save(net, "/nowhere/at/all", &err));
    FAILS(MR_EINVAL, word, mr_net_save_training(net, "/nowhere/at/all", NULL, &err));
    FAILS(MR_EINVAL, word, mr_stream_step(stream, 1, scores, VOCAB, &err));
    FAILS(MR_EINVAL, word, mr_stream_sample(stream, e->ids, 1, &how, &drawn, 1, &err));
    FAILS(MR_EINVAL, word, mr_stream_save(stream, blob, sizeof blob, &err));
    FAILS(MR_EINVAL, word, mr_net_put(net, MR_WEIGHTS, first.name, weights, first.count, &err));
    FAILS(MR_EINVAL, word, mr_net_save_best(net, "/nowhere/at/all", &err));
    FAILS(MR_EINVAL, word, mr_net_save_int8(net, "/nowhere/at/all", &err));
    FAILS(MR_EINVAL, word, mr_net_set_scaler(net, NULL, NULL, NULL, NULL, &err));
    FAILS(MR_EINVAL, word, mr_net_scaler(net, NULL, NULL, 0, NULL, NULL, 0, &err));
    FAILS(MR_EINVAL, word, mr_net_learn(net, &e->data, NULL, &result, &err));
    FAILS(MR_EINVAL, word, mr_stream_clone(stream, &clone, &err));
    FAILS(MR_EINVAL, word, mr_stream_feed(stream, e->ids, 2, scores, VOCAB, &err));
    FAILS(MR_EINVAL, word, mr_stream_score(stream, e->ids, e->ids, 2, scores, 2, &err));
    FAILS(MR_EINVAL, word, mr_stream_step_many(&stream, 1, e->ids, NULL, scores, VOCAB, &err));
    FAILS(MR_EINVAL, word, mr_stream_sample_many(&stream, 1, e->ids, &how, &drawn, &err));
    free(weights);
}

static void a_kept_forward_holds_its_net(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *net = learner(ctx, interfaces[0], "mingru"), *other = learner(ctx, interfaces[0], "mingru");
    mr_stream *stream = stream_on(net);
    float scores[MOST], d[MOST] = {0};
    examples e;
    make_examples(&e, net, 3);
    FAILS(MR_EINVAL, "call mr_net_keep_forward first", mr_net_backward(net, d, MOST, &err));
    FAILS(MR_EINVAL, "room for 395 where 396", mr_net_keep_forward(net, &e.data, NULL, scores, MOST - 1, &err));
    mr_net_drop(net); /* nothing to drop */
    OK(mr_net_keep_forward(net, &e.data, NULL, scores, MOST, &err));
    every_call_is_refused(net, stream, &e);
    OK(mr_net_forward(other, &e.data, scores, MOST, &err)); /* other nets are free */
    FAILS(MR_EINVAL, "has 395 elements, but the kept forward has 396", mr_net_backward(net, d, MOST - 1, &err));
    FAILS(MR_EINVAL, "dscores", mr_net_backward(net, NULL, MOST, &err));
    d[2] = NAN;
    FAILS(MR_EINVAL, "dscores[2] is NaN", mr_net_backward(net, d, MOST, &err));
    d[2] = 1, d[17] = -INFINITY;
    FAILS(MR_EINVAL, "dscores[17] is infinite", mr_net_backward(net, d, MOST, &err));
    d[17] = 1;
    OK(mr_net_backward(net, d, MOST, &err)); /* it is still kept */
    OK(mr_net_forward(net, &e.data, scores, MOST, &err));
    OK(mr_net_update(net, NULL, &err));
    mr_stream_free(stream);
    mr_net_free(net), mr_net_free(other);
    mr_context_free(ctx);
}

typedef struct visitor {
    mr_net *net;
    examples *e;
    atomic_int done;
    int status;
} visitor;

static void *visit(void *arg)
{
    visitor *v = arg;
    v->status = mr_net_train(v->net, &v->e->data, NULL, NULL);
    atomic_store(&v->done, 1);
    return NULL;
}

static void other_threads_wait_for_a_kept_forward(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *net = learner(ctx, interfaces[0], "mingru");
    float scores[MOST], d[MOST] = {1};
    examples e;
    pthread_t thread;
    make_examples(&e, net, 3);
    for (int drop = 0; drop < 2; drop++) {
        visitor v = {.net = net, .e = &e};
        OK(mr_net_keep_forward(net, &e.data, NULL, scores, MOST, &err));
        assert_int_equal(pthread_create(&thread, NULL, visit, &v), 0);
        usleep(50000);
        assert_int_equal(atomic_load(&v.done), 0);
        assert_int_equal(mr_net_steps(net), drop);
        if (drop) mr_net_drop(net);
        else OK(mr_net_backward(net, d, MOST, &err));
        pthread_join(thread, NULL);
        assert_int_equal(v.status, drop ? 0 : MR_EINVAL); /* a step would discard the gradients */
        if (!drop) OK(mr_net_update(net, NULL, &err));
        assert_int_equal(mr_net_steps(net), drop + 1);
    }
    mr_net_free(net);
    mr_context_free(ctx);
}

static void *keep_and_leave(void *arg)
{
    visitor *v = arg;
    float scores[MOST];
    v->status = mr_net_keep_forward(v->net, &v->e->data, NULL, scores, MOST, NULL);
    return NULL;
}

/* A thread may end, and another thread run the backward of the forward that it kept, or drop it. */
static void a_kept_forward_can_be_handed_on(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *net = learner(ctx, interfaces[0], "mingru");
    float d[MOST] = {1};
    examples e;
    pthread_t thread;
    make_examples(&e, net, 3);
    for (int drop = 0; drop < 2; drop++) {
        visitor v = {.net = net, .e = &e};
        assert_int_equal(pthread_create(&thread, NULL, keep_and_leave, &v), 0);
        pthread_join(thread, NULL);
        assert_int_equal(v.status, 0);
        if (drop) mr_net_drop(net);
        else OK(mr_net_backward(net, d, MOST, &err));
        FAILS(MR_EINVAL, "no forward", mr_net_backward(net, d, MOST, &err));
        if (!drop)
            FAILS(MR_EINVAL, "call mr_net_update or mr_net_drop_gradients", mr_net_train(net, &e.data, NULL, &err));
        if (!drop) mr_net_drop_gradients(net);
        FAILS(MR_EINVAL, "no gradients", mr_net_update(net, NULL, &err));
        OK(mr_net_train(net, &e.data, NULL, &err));
    }
    mr_net_free(net);
    mr_context_free(ctx);
}

/* A gradient that overflows changes nothing; only the error message tells. */
static void a_nonfinite_update_changes_nothing(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *net = learner(ctx, interfaces[0], "mingru");
    float scores[MOST], d[MOST], *before, *after;
    examples e;
    make_examples(&e, net, 3);
    own_backward(net, &e, NULL);
    OK(mr_net_update(net, NULL, &err));
    for (int i = 0; i < MOST; i++) d[i] = 3e38f;
    before = get_all(net, MR_WEIGHTS);
    OK(mr_net_keep_forward(net, &e.data, NULL, scores, MOST, &err));
    OK(mr_net_backward(net, d, MOST, &err));
    FAILS(MR_ENONFINITE, "gradient", mr_net_update(net, NULL, &err));
    after = get_all(net, MR_WEIGHTS);
    assert_memory_equal(before, after, count_all(net) * sizeof *before);
    assert_int_equal(mr_net_steps(net), 1);
    own_backward(net, &e, NULL); /* the next sum starts from 0 */
    OK(mr_net_update(net, NULL, &err));
    free(before), free(after);
    mr_net_free(net);
    mr_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_losses_equal_the_librarys),   cmocka_unit_test(backwards_add_up),
        cmocka_unit_test(a_kept_forward_holds_its_net),    cmocka_unit_test(other_threads_wait_for_a_kept_forward),
        cmocka_unit_test(a_kept_forward_can_be_handed_on), cmocka_unit_test(a_nonfinite_update_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
