/* Training in parts: micro-batches, scales, states carried from one batch to the next, reserved memory. */
#include "api_support.h"

#include <stdatomic.h>

/* With a small eps, Adam's first step is the gradient's sign; a large eps makes the weights
 * show the gradient itself. */
static mr_net *smooth_net(mr_context *ctx, const char *const *settings)
{
    mr_net *net = net_of(ctx, settings);
    OK(mr_net_set(net, "eps", "0.1", &err));
    return net;
}

/* Rows first … first + B − 1 of a lesson. */
static mr_batch rows_of(lesson *l, int first, int B)
{
    mr_batch part = l->data;
    part.B = B;
    part.ids += first * TIME;
    part.target += first * TIME;
    return part;
}

static void learn_part(mr_net *net, const mr_batch *batch, int micro, int micros, double scale, mr_result *result)
{
    mr_learn_options o = MR_LEARN_OPTIONS;
    o.micro = micro, o.micros = micros, o.scale = scale;
    OK(mr_net_learn(net, batch, &o, result, &err));
}

static void same_result(const mr_result *got, const mr_result *want)
{
    assert_that(fabs(got->loss - want->loss), <, 1e-5 * want->loss);
    assert_that(fabs(got->accuracy - want->accuracy), <, 1e-6);
    assert_that(fabs(got->grad_norm - want->grad_norm), <, 1e-4 * want->grad_norm);
    assert_that(got->rows, ==, want->rows);
    assert_that(got->step, ==, want->step);
    assert_that(got->lr, ==, want->lr);
}

static void micro_batches_are_one_batch(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *whole = smooth_net(ctx, tiny), *parts = smooth_net(ctx, tiny), *plain = smooth_net(ctx, tiny);
    lesson l;
    for (int step = 0; step < 3; step++) {
        mr_result want = MR_RESULT, got = MR_RESULT, same = MR_RESULT;
        make_lesson(&l, (uint32_t)step);
        OK(mr_net_train(whole, &l.data, &want, &err));
        for (int micro = 0; micro < 3; micro++) {
            const mr_batch part = rows_of(&l, micro, 1);
            learn_part(parts, &part, micro, 3, 0, &got);
            if (micro < 2) { /* only the last part has a result */
                assert_that(got.rows, ==, 0);
                assert_that(mr_net_steps(parts), ==, step);
            }
        }
        same_result(&got, &want);
        assert_int_equal(mr_net_steps(parts), step + 1);
        learn_part(plain, &l.data, 0, 1, 0, &same);
        assert_memory_equal(&same, &want, sizeof want); /* one part is a step */
        same_vectors("gradients", parts, whole, MR_GRADS, 1e-5);
        same_vectors("weights", parts, whole, MR_WEIGHTS, 1e-5);
    }
    mr_net_free(whole), mr_net_free(parts), mr_net_free(plain);
    mr_context_free(ctx);
}

/* Parts of different sizes: scale 0 gives each part the same weight; an explicit scale gives
 * each row the same weight. */
static void scale_weighs_parts_or_rows(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *whole = smooth_net(ctx, tiny), *rows = smooth_net(ctx, tiny);
    mr_net *means = smooth_net(ctx, tiny), *by_hand = smooth_net(ctx, tiny);
    lesson l;
    mr_result want = MR_RESULT, got = MR_RESULT;
    make_lesson(&l, 2);
    for (int i = 0; i < TIME; i++)
        if (i % 4) l.target[i] = -1; /* 5 targets of the first sequence count, and 34 of the others */
    const mr_batch first = rows_of(&l, 0, 1), rest = rows_of(&l, 1, 2);
    OK(mr_net_train(whole, &l.data, &want, &err));
    learn_part(rows, &first, 0, 2, 1.0 / 39, NULL);
    learn_part(rows, &rest, 1, 2, 1.0 / 39, &got);
    same_result(&got, &want);
    same_vectors("a scale for each row", rows, whole, MR_GRADS, 1e-5);
    learn_part(means, &first, 0, 2, 0, NULL);
    learn_part(means, &rest, 1, 2, 0, NULL);
    learn_part(by_hand, &first, 0, 2, 0.5 / 5, NULL);
    learn_part(by_hand, &rest, 1, 2, 0.5 / 34, NULL);
    same_vectors("a mean of means", means, by_hand, MR_GRADS, 1e-6);
    float *a = get_all(means, MR_GRADS), *b = get_all(whole, MR_GRADS);
    double off = 0;
    for (size_t i = 0; i < count_all(means); i++) off = fmax(off, fabs((double)a[i] - b[i]));
    assert_that(off, >, 1e-3); /* the other scale gives another gradient */
    free(a), free(b);
    mr_net_free(whole), mr_net_free(rows), mr_net_free(means), mr_net_free(by_hand);
    mr_context_free(ctx);
}

/* Memory may grow in the middle of a step without losing its gradients. */
static void memory_may_grow_within_a_step(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *ready = smooth_net(ctx, tiny), *growing = smooth_net(ctx, tiny);
    lesson l;
    mr_result want = MR_RESULT, got = MR_RESULT;
    make_lesson(&l, 2);
    const mr_batch small = rows_of(&l, 0, 1);
    OK(mr_net_reserve(ready, &(mr_shape){BATCH, TIME}, NULL, &err));
    for (int step = 0; step < 2; step++) {
        learn_part(ready, &small, 0, 2, 0, NULL);
        learn_part(ready, &l.data, 1, 2, 0, &want);
        learn_part(growing, &small, 0, 2, 0, NULL);
        learn_part(growing, &l.data, 1, 2, 0, &got);
        assert_int_equal(want.rows, (BATCH + 1) * TIME);
        same_result(&got, &want);
    }
    same_vectors("weights", growing, ready, MR_WEIGHTS, 1e-6);
    mr_net_free(ready), mr_net_free(growing);
    mr_context_free(ctx);
}

static void wrong_micro_batches_are_refused(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, tiny);
    lesson l;
    make_lesson(&l, 2);
    mr_learn_options o;
#define REFUSED(word, change)                                                                                          \
    o = (mr_learn_options)MR_LEARN_OPTIONS, change;                                                                    \
    FAILS(MR_EINVAL, word, mr_net_learn(net, &l.data, &o, NULL, &err))
    REFUSED("micro = -1", o.micro = -1);
    REFUSED("micro = 2, micros = 2", (o.micro = 2, o.micros = 2));
    REFUSED("micros = -3", o.micros = -3);
    REFUSED("scale", o.scale = NAN);
    REFUSED("size", o.size = 0);
    REFUSED("micro = 1", (o.micro = 1, o.micros = 2)); /* before part 0 */
    assert_int_equal(mr_net_steps(net), 0);
    mr_net_free(net);
    mr_context_free(ctx);
}

/* ---- carried states */

enum { CHUNK = 6, LONG = 3 * CHUNK };

typedef struct passage {
    int32_t ids[2 * LONG], target[2 * LONG], chunk_ids[2 * CHUNK], chunk_target[2 * CHUNK];
    float losses[2 * LONG], scores[2 * LONG * VOCAB];
    mr_batch whole, chunk;
} passage;

/* Two sequences of LONG tokens, their losses computed in one piece, and a batch for one of three chunks. */
static void make_passage(passage *p, mr_net *net)
{
    uint32_t seed = 21;
    memset(p, 0, sizeof *p);
    for (int i = 0; i < 2 * LONG; i++)
        p->ids[i] = random_below(&seed, VOCAB), p->target[i] = random_below(&seed, VOCAB);
    p->whole = p->chunk = (mr_batch)MR_BATCH;
    p->whole.B = p->chunk.B = 2, p->whole.T = LONG, p->chunk.T = CHUNK;
    p->whole.ids = p->ids, p->whole.target = p->target;
    p->chunk.ids = p->chunk_ids, p->chunk.target = p->chunk_target;
    OK(mr_net_losses(net, &p->whole, p->losses, 2 * LONG, &err));
    OK(mr_net_forward(net, &p->whole, p->scores, 2 * LONG * VOCAB, &err));
}

static double set_chunk(passage *p, int number)
{
    double sum = 0;
    for (int b = 0; b < 2; b++)
        for (int t = 0; t < CHUNK; t++) {
            const int from = b * LONG + number * CHUNK + t;
            p->chunk_ids[b * CHUNK + t] = p->ids[from];
            p->chunk_target[b * CHUNK + t] = p->target[from];
            sum += p->losses[from];
        }
    return sum / (2 * CHUNK);
}

static double learn_chunk(mr_net *net, const mr_batch *chunk, int carry)
{
    mr_learn_options o = MR_LEARN_OPTIONS;
    mr_result result = MR_RESULT;
    o.carry = carry;
    OK(mr_net_learn(net, chunk, &o, &result, &err));
    return result.loss;
}

static void check_kept_chunk(mr_net *net, passage *p, int number)
{
    mr_learn_options o = MR_LEARN_OPTIONS;
    float scores[2 * CHUNK * VOCAB];
    o.carry = 1;
    set_chunk(p, number);
    OK(mr_net_keep_forward(net, &p->chunk, &o, scores, 2 * CHUNK * VOCAB, &err));
    mr_net_drop(net);
    for (int b = 0; b < 2; b++)
        near_floats("a kept chunk", scores + b * CHUNK * VOCAB, p->scores + (b * LONG + number * CHUNK) * VOCAB,
                    CHUNK * VOCAB, 1e-4);
}

/* At lr 0 the losses of chunks are those of the long sequence if, and only if, the state is carried. */
static void chunks_see_the_state(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    passage *p = room(sizeof *p);
    for (int m = 0; mixers()[m]; m++) {
        mr_net *net = net_with(ctx, mixers()[m]);
        train(net, 0, 20); /* until the state has an effect */
        OK(mr_net_set(net, "lr", "0", &err));
        make_passage(p, net);
        for (int round = 0; round < 2; round++) {
            for (int i = 0; i < 3; i++) {
                const double want = set_chunk(p, i);
                if (!(fabs(learn_chunk(net, &p->chunk, 1) - want) < 1e-5)) fail_msg("%s: chunk %d", mixers()[m], i);
                const double fresh = learn_chunk(net, &p->chunk, 0); /* a batch in between changes nothing */
                if (i ? fabs(fresh - want) < 1e-3 : fabs(fresh - want) > 1e-5)
                    fail_msg("%s: chunk %d: %g where the whole has %g", mixers()[m], i, fresh, want);
            }
            mr_net_forget_carry(net);
        }
        for (int i = 0; i < 3; i++) check_kept_chunk(net, p, i);
        const double first = set_chunk(p, 0); /* another B starts from a fresh state, and so does the next batch */
        p->chunk.B = 1;
        learn_chunk(net, &p->chunk, 1);
        p->chunk.B = 2;
        assert_that(fabs(learn_chunk(net, &p->chunk, 1) - first), <, 1e-5);
        mr_net_free(net);
    }
    free(p);
    mr_context_free(ctx);
}

/* The answer to each chunk is in the previous chunk. */
static void a_carried_state_learns_across_chunks(void **state)
{
    (void)state;
    enum { B = 8, STEPS = 300 };
    mr_context *ctx = context_on("cpu");
    double last[2];
    for (int carry = 0; carry < 2; carry++) {
        mr_net *net = net_of(ctx, tiny);
        uint32_t seed = 6;
        int32_t ids[B], target[B];
        mr_batch data = MR_BATCH;
        data.B = B, data.T = 1, data.ids = ids, data.target = target;
        last[carry] = 0;
        for (int b = 0; b < B; b++) ids[b] = 0;
        for (int i = 0; i < STEPS; i++) {
            for (int b = 0; b < B; b++) target[b] = ids[b], ids[b] = random_below(&seed, 4); /* the previous token */
            const double loss = learn_chunk(net, &data, carry);
            if (i >= STEPS - 20) last[carry] += loss / 20;
        }
        mr_net_free(net);
    }
    assert_that(last[0], >, 1.2); /* log 4 is 1.39: without the state it can only guess */
    assert_that(last[1], <, 0.5);
    mr_context_free(ctx);
}

/* A step that is not finite leaves no state to continue from. */
static void a_failed_step_is_not_carried(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *net = values_net_with(ctx, "mingru");
    float values[6] = {1, 2, 3, 4, 5, 6}, huge[6] = {3e38f, 3e38f, -3e38f, 3e38f, 3e38f, 3e38f}, target[4] = {0};
    mr_batch data = MR_BATCH;
    mr_learn_options o = MR_LEARN_OPTIONS;
    o.carry = 1;
    data.B = 1, data.T = 2, data.values = huge, data.target_values = target;
    OK(mr_net_put(net, MR_WEIGHTS, "embed.bias", (float[16]){3e38f}, 16, &err));
    FAILS(MR_ENONFINITE, "step 1", mr_net_learn(net, &data, &o, NULL, &err));
    OK(mr_net_put(net, MR_WEIGHTS, "embed.bias", (float[16]){0}, 16, &err));
    data.values = values;
    OK(mr_net_learn(net, &data, &o, NULL, &err));
    mr_net_free(net);
    mr_context_free(ctx);
}

/* ---- memory */

typedef struct counter {
    atomic_long blocks, bytes;
} counter;

static void *counted_alloc(void *user, size_t bytes)
{
    counter *c = user;
    size_t *block = malloc(bytes + 64);
    if (!block) return NULL;
    *block = bytes;
    atomic_fetch_add(&c->blocks, 1);
    atomic_fetch_add(&c->bytes, (long)bytes);
    return (char *)block + 64;
}

static void counted_release(void *user, void *p)
{
    counter *c = user;
    size_t *block = (size_t *)(void *)((char *)p - 64);
    atomic_fetch_sub(&c->blocks, 1);
    atomic_fetch_sub(&c->bytes, (long)*block);
    free(block);
}

static mr_context *counted_context(counter *c)
{
    mr_context_options options = MR_CONTEXT_OPTIONS;
    mr_allocator by = {sizeof by, counted_alloc, counted_release, c};
    mr_context *ctx;
    options.device = "cpu", options.threads = 1, options.allocator = &by;
    OK(mr_context_new(&options, &ctx, &err));
    return ctx;
}

static long bytes_for(const mr_shape *training, const mr_shape *scoring)
{
    counter c = {0};
    mr_context *ctx = counted_context(&c);
    mr_net *net = net_of(ctx, tiny);
    OK(mr_net_reserve(net, training, scoring, &err));
    const long bytes = c.bytes;
    mr_net_free(net);
    mr_context_free(ctx);
    assert_int_equal(c.blocks, 0);
    return bytes;
}

static void reserved_memory_is_enough_for_training(void **state)
{
    (void)state;
    counter c = {0};
    mr_context *ctx = counted_context(&c);
    mr_net *net = net_of(ctx, tiny);
    mr_stream *streams[40];
    lesson l;
    mr_result result = MR_RESULT;
    make_lesson(&l, 1);
    const mr_batch small = rows_of(&l, 0, 2);
    const mr_shape training = {2, TIME}, scoring = {BATCH, TIME};
    const size_t untrained = mr_net_memory(net);
    OK(mr_net_reserve(net, &training, &scoring, &err));
    assert_that(mr_net_memory(net), >, untrained + 3 * sizeof(float) * (size_t)mr_net_parameters(net));
    assert_that(mr_net_memory(net), <=, (size_t)c.bytes);
    OK(mr_net_train(net, &small, NULL, &err)); /* the first call allocates the device's own scratch */
    OK(mr_net_evaluate(net, &l.data, &result, &err));
    const long bytes = c.bytes, blocks = c.blocks;
    for (int i = 0; i < 3; i++) {
        OK(mr_net_train(net, &small, NULL, &err));
        OK(mr_net_evaluate(net, &l.data, &result, &err));
    }
    assert_that(c.bytes, ==, bytes);
    assert_that(c.blocks, ==, blocks);
    OK(mr_net_reserve_streams(net, 40, &err));
    const long before = c.blocks;
    for (int i = 0; i < 40; i++) streams[i] = stream_on(net);
    assert_int_equal(c.blocks, before + 40);
    for (int i = 0; i < 40; i++) mr_stream_free(streams[i]);
    assert_int_equal(c.blocks, before);
    OK(mr_net_reserve(net, NULL, NULL, &err));
    FAILS(MR_EINVAL, "B = 0", mr_net_reserve(net, &(mr_shape){0, 3}, NULL, &err));
    FAILS(MR_EINVAL, "T = -1", mr_net_reserve(net, NULL, &(mr_shape){1, -1}, &err));
    mr_net_free(net);
    mr_context_free(ctx);
    assert_int_equal(c.blocks, 0);
}

/* The memory of both shapes overlaps. */
static void reserved_memory_is_shared(void **state)
{
    (void)state;
    const mr_shape wide = {64, 16}, tall = {4, 256}, tiny_shape = {1, 1};
    const long both = bytes_for(&wide, &tall), training = bytes_for(&wide, &tiny_shape),
               scoring = bytes_for(&tiny_shape, &tall);
    const long larger = training > scoring ? training : scoring;
    assert_that(both, >=, larger);
    assert_that((double)both, <, 1.2 * (double)larger);
    assert_that((double)both, <, 0.8 * (double)(training + scoring));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(micro_batches_are_one_batch),   cmocka_unit_test(scale_weighs_parts_or_rows),
        cmocka_unit_test(memory_may_grow_within_a_step), cmocka_unit_test(wrong_micro_batches_are_refused),
        cmocka_unit_test(chunks_see_the_state),          cmocka_unit_test(a_carried_state_learns_across_chunks),
        cmocka_unit_test(a_failed_step_is_not_carried),  cmocka_unit_test(reserved_memory_is_enough_for_training),
        cmocka_unit_test(reserved_memory_is_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
