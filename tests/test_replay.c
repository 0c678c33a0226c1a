/* Keys of repeated work: different work never has the same key, equal work always has, and a full table drops the
 * least recently used recording. */
#include "support.h"

#define MIB ((uintptr_t)1 << 20)

/* ---- forged addresses: pairs that collided when keys were packed into 64 bits */

static uint64_t packed(const mr_replay_key *k)
{
    const uint64_t reset = (k->flags & MR_REPLAY_RESET) != 0, length = (k->flags & MR_REPLAY_LENGTH) != 0;
    const uint64_t draw = (k->flags & MR_REPLAY_DRAW) != 0;
    const uint64_t first = (k->flags & MR_REPLAY_FIRST) != 0, last = (k->flags & MR_REPLAY_LAST) != 0;
    const uint64_t model = (uintptr_t)k->model, state = (uintptr_t)k->state, B = (uint64_t)k->B, T = (uint64_t)k->T;
    if (k->work == MR_REPLAY_STEP)
        return state << 20 ^ model ^ (B << 3 | draw << 2 | reset << 1 | length) << 40 ^ (uint64_t)1 << 63;
    return (T << 32 | B << 4 | reset | length << 1 | first << 2 | last << 3) ^ model << 8;
}

static mr_replay_key step_key(uintptr_t model, uintptr_t state, int B, int reset, int length, int draw)
{
    const mr_batch batch = {
        .B = B, .T = 1, .reset = reset ? (uint8_t *)1 : NULL, .length = length ? (int32_t *)1 : NULL};
    return mr_step_key((const void *)model, (const void *)state, &batch, draw);
}

static mr_replay_key learn_key(uintptr_t model, int B, int T, int reset, int length, int first, int last)
{
    const mr_batch batch = {
        .B = B, .T = T, .reset = reset ? (uint8_t *)1 : NULL, .length = length ? (int32_t *)1 : NULL};
    return mr_learn_key((const void *)model, &batch, NULL, first, last);
}

static void check_forged(const char *what, mr_replay_key a, mr_replay_key b)
{
    if (packed(&a) != packed(&b)) fail_msg("%s: was no collision of the old keys", what);
    if (mr_replay_same(&a, &b) || mr_replay_same(&b, &a)) fail_msg("%s: different work has the same key", what);
    if (!mr_replay_same(&a, &a) || !mr_replay_same(&b, &b)) fail_msg("%s: work has another key than itself", what);
}

static const uintptr_t M = 0x555500001010, R = 0x7f0012000000;

static void keys_of_steps_never_collide(void **unused)
{
    (void)unused;
    const mr_replay_key one = step_key(M, R, 1, 0, 0, 0);
    check_forged("B = 3, 16 MiB away", one, step_key(M, R ^ 16 * MIB, 3, 0, 0, 0));
    for (int n = 2; n < 200; n++) check_forged("B = n", one, step_key(M, R ^ (uintptr_t)(n ^ 1) * 8 * MIB, n, 0, 0, 0));
    check_forged("draw", one, step_key(M, R ^ 4 * MIB, 1, 0, 0, 1));
    check_forged("reset", one, step_key(M, R ^ 2 * MIB, 1, 1, 0, 0));
    check_forged("length", one, step_key(M, R ^ MIB, 1, 0, 1, 0));
    check_forged("draw, reset, length and B", one, step_key(M, R ^ (7 + 8 * (5 ^ 1)) * MIB, 5, 1, 1, 1));
    check_forged("another model, which makes up for the state", one, step_key(M ^ 256 * MIB, R ^ 256, 1, 0, 0, 0));
    check_forged("another model, which makes up for the shape", one, step_key(M ^ (uintptr_t)3 << 43, R, 2, 0, 0, 0));
}

static void keys_of_learning_never_collide(void **unused)
{
    (void)unused;
    const mr_replay_key plain = learn_key(M, 64, 128, 0, 0, 1, 1);
    check_forged("B", plain, learn_key(M ^ 16, 64 ^ 256, 128, 0, 0, 1, 1));
    check_forged("T", plain, learn_key(M ^ 16 * MIB, 64, 129, 0, 0, 1, 1));
    check_forged("B and T", plain, learn_key(M ^ (16 + 4 * 16 * MIB), 64 ^ 256, 132, 0, 0, 1, 1));
    check_forged("B for T", learn_key(M, 64, 129, 0, 0, 1, 1), learn_key(M, 64 ^ 1 << 28, 128, 0, 0, 1, 1));
    /* a micro-batch that collided with a token: the model's address is chosen to make the packed keys equal */
    const mr_replay_key token = step_key(M, R, 1, 0, 0, 0);
    const uintptr_t other = (uintptr_t)(packed(&token) >> 8) ^ (uintptr_t)9 << 24;
    check_forged("a token and a micro-batch", token, learn_key(other, 1, 9, 0, 0, 0, 0));
}

/* Every field distinguishes work. */
static void every_field_is_part_of_the_key(void **unused)
{
    (void)unused;
    const mr_replay_key keys[] = {
        step_key(M, R, 1, 0, 0, 0),     step_key(M + 16, R, 1, 0, 0, 0), step_key(M, R + 256, 1, 0, 0, 0),
        step_key(M, R, 2, 0, 0, 0),     step_key(M, R, 1, 1, 0, 0),      step_key(M, R, 1, 0, 1, 0),
        step_key(M, R, 1, 0, 0, 1),     learn_key(M, 1, 1, 0, 0, 0, 0),  learn_key(M + 16, 1, 1, 0, 0, 0, 0),
        learn_key(M, 2, 1, 0, 0, 0, 0), learn_key(M, 1, 2, 0, 0, 0, 0),  learn_key(M, 1, 1, 1, 0, 0, 0),
        learn_key(M, 1, 1, 0, 1, 0, 0), learn_key(M, 1, 1, 0, 0, 1, 0),  learn_key(M, 1, 1, 0, 0, 0, 1),
        step_key(M, 0, 1, 0, 0, 0),     step_key(R, M, 1, 0, 0, 0)};
    for (int i = 0; i < COUNT(keys); i++)
        for (int j = 0; j < COUNT(keys); j++)
            if (mr_replay_same(&keys[i], &keys[j]) != (i == j)) fail_msg("keys %d and %d", i, j);
    /* padding between the fields is not part of a key */
    mr_replay_key a, b;
    memset(&a, 0, sizeof a);
    memset(&b, 255, sizeof b);
    a.work = b.work = MR_REPLAY_LEARN;
    a.model = b.model = keys;
    a.state = b.state = NULL;
    a.B = b.B = a.T = b.T = 3;
    a.flags = b.flags = MR_REPLAY_FIRST;
    assert_true(mr_replay_same(&a, &b));
}

/* ---- keys that models use */

static mr_replay_key recorded[64];
static int recorded_count;

static void record_key(mr_dev *dev, const mr_replay_key *key, void (*work)(void *arg), void *arg)
{
    (void)dev;
    assert_that(recorded_count, <, COUNT(recorded));
    recorded[recorded_count++] = *key;
    work(arg);
}

static const mr_interface interface = {
    .input = MR_INPUT_TOKENS, .inputs = 11, .head = MR_HEAD_TOKEN, .loss = MR_LOSS_XENT, .outputs = 11};

static void step_once(mr_model *model, mr_state *state, int B, int resets, int ragged)
{
    mr_batch batch = make_batch(&interface, B, 1, resets, ragged, 3);
    mr_state_resume(state);
    mr_model_forward(model, &batch, state, 0);
    mr_batch_free(&batch);
}

static void draw_some(mr_model *model, mr_state *state)
{
    int32_t tokens[2];
    mr_model_draw_from(model, &(mr_sampling){.temperature = 1, .top_p = 1}, 0);
    mr_model_draw(model, state, 1, 2,
                  tokens); /* the first token is drawn from the earlier forward: one piece of work */
}

static void learn_once(mr_model *model, int B, int T, int resets, int ragged, int first, int last)
{
    static const mr_step step = {
        .seed = 1, .step = 1, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .bias1 = 0.1, .bias2 = 0.01};
    mr_batch batch = make_batch(&interface, B, T, resets, ragged, 3);
    mr_model_learn(model, &batch, NULL, &step, 1, first, last);
    mr_batch_free(&batch);
}

/* Does every kind of work once; returns the number of pieces. */
static int all_work(mr_model *const *models, mr_state *const *states)
{
    const int before = recorded_count;
    for (int i = 0; i < 2; i++) {
        step_once(models[i], states[2 * i], 1, 0, 0);
        draw_some(models[i], states[2 * i]);
        for (int how = 0; how < 4; how++) step_once(models[i], states[2 * i + 1], 3, how & 1, how >> 1);
        for (int how = 0; how < 4; how++) learn_once(models[i], 2, 5, how & 1, how >> 1, 1, 1);
        learn_once(models[i], 2, 5, 0, 0, 1, 0);
        learn_once(models[i], 2, 5, 0, 0, 0, 1);
        learn_once(models[i], 2, 4, 0, 0, 1, 1);
        learn_once(models[i], 3, 5, 0, 0, 1, 1);
    }
    return recorded_count - before;
}

static void models_give_equal_keys_to_equal_work_only(void **unused)
{
    (void)unused;
    mr_dev *dev = open_device("cpu", 1, NULL);
    mr_config config = config_of(&forms[0].cell, &interface);
    config.layers = 1;
    config.dim = 8;
    mr_model *models[2];
    mr_state *states[4];
    for (int i = 0; i < 2; i++) models[i] = make_model(&config, dev, 4, 5, 1);
    for (int i = 0; i < 4; i++) states[i] = make_state(models[i / 2], i % 2 ? 3 : 1);
    dev->replay = record_key;
    recorded_count = 0;
    const int n = all_work(models, states);
    assert_int_equal(n, 2 * (1 + 1 + 4 + 8));
    assert_int_equal(all_work(models, states), n);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            if (mr_replay_same(&recorded[i], &recorded[n + j]) != (i == j))
                fail_msg("work %d and work %d of the next round", i, j);
    for (int i = 0; i < 4; i++) mr_state_free(states[i]);
    for (int i = 0; i < 2; i++) mr_model_free(models[i]);
    mr_dev_close(dev);
}

/* ---- the table of recordings */

static int row_of(mr_replays *table, int work, int *fresh)
{
    const mr_replay_key key = step_key(M, R, work + 1, 0, 0, 0);
    return mr_replay_row(table, &key, fresh);
}

static void a_full_table_drops_the_oldest(void **unused)
{
    (void)unused;
    static mr_replays table;
    int fresh;
    for (int i = 0; i < MR_REPLAYS; i++) {
        assert_int_equal(row_of(&table, i, &fresh), i);
        assert_true(fresh);
    }
    for (int i = MR_REPLAYS - 1; i >= 0; i--) {
        assert_int_equal(row_of(&table, i, &fresh), i);
        assert_false(fresh);
    }
    /* the least recently used is now the last row; then the one before it */
    assert_int_equal(row_of(&table, MR_REPLAYS, &fresh), MR_REPLAYS - 1);
    assert_true(fresh);
    assert_int_equal(row_of(&table, MR_REPLAYS - 1, &fresh), MR_REPLAYS - 2);
    assert_true(fresh);
    assert_int_equal(row_of(&table, MR_REPLAYS, &fresh), MR_REPLAYS - 1);
    assert_false(fresh);
    assert_int_equal(table.count, MR_REPLAYS);
    table.count = 0; /* all dropped */
    assert_int_equal(row_of(&table, 3, &fresh), 0);
    assert_true(fresh);
}

/* ---- more work than a device keeps, and memory that comes and goes: results always follow the numbers in memory */

enum { WORKS = MR_REPLAYS + 9, NUMBERS = 50 };

typedef struct summing {
    mr_dev *dev;
    mr_sumsq_args args;
} summing;

static void sum_once(void *arg)
{
    const summing *s = arg;
    s->dev->ops.sumsq(s->dev, &s->args);
}

static void sum_all(mr_dev *dev, mr_real *numbers, double *sums, int first, int works, int round)
{
    for (int i = first; i < first + works; i++) {
        summing s = {dev, {.n = NUMBERS, .g = mr_real_at(dev, numbers, (size_t)i * NUMBERS), .out = sums + i}};
        const mr_replay_key key = {.work = MR_REPLAY_STEP, .model = numbers, .state = s.args.g, .B = 1, .T = 1};
        double values[NUMBERS], sum = -1;
        for (int k = 0; k < NUMBERS; k++) values[k] = i + round;
        put_doubles(dev, mr_real_at(dev, numbers, (size_t)i * NUMBERS), values, NUMBERS);
        dev->replay(dev, &key, sum_once, &s);
        dev->download(dev, &sum, sums + i, sizeof sum);
        if (sum != NUMBERS * (double)(i + round) * (i + round)) fail_msg("round %d, work %d: %.9g", round, i, sum);
    }
}

static void check_many_works(mr_dev *dev)
{
    mr_real *numbers = dev->alloc(dev, WORKS * NUMBERS * dev->real_size);
    double *sums = dev->alloc(dev, WORKS * sizeof *sums);
    void *extra[4];
    assert_non_null(numbers);
    assert_non_null(sums);
    for (int round = 0; round < 4; round++) {
        sum_all(dev, numbers, sums, 0, 5, round);
        extra[round] = dev->alloc(dev, 1 << 20);
    }
    /* more in turn than are kept: none is ever replayed */
    for (int round = 4; round < 8; round++) sum_all(dev, numbers, sums, 0, WORKS, round);
    for (int round = 8; round < 12; round++) {
        for (int again = 0; again < 4; again++) sum_all(dev, numbers, sums, 7 * (round - 8), 9, round + again);
        dev->release(dev, extra[round - 8]);
    }
    dev->release(dev, numbers);
    dev->release(dev, sums);
}

ON_DEVICES(replays_follow_the_numbers_in_memory, check_many_works)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_of_steps_never_collide),    cmocka_unit_test(keys_of_learning_never_collide),
        cmocka_unit_test(every_field_is_part_of_the_key), cmocka_unit_test(models_give_equal_keys_to_equal_work_only),
        cmocka_unit_test(a_full_table_drops_the_oldest),  DEVICE_TESTS(replays_follow_the_numbers_in_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
