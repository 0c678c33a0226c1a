/* What is scored: validation and test are different sequences, whose identity depends on nothing but them. */
#include "task_support.h"

#include "tasks/test_set.h"

#include <math.h>
#include <stddef.h>

static mr_test_set set_of(const char *name, int batch, int context, const setting *settings)
{
    mr_task *task = open_task(name, batch, context, settings);
    mr_test_set set;
    mr_error err = {0};
    if (mr_test_set_of(task, &set, &err)) fail_msg("%s", err.text);
    assert_int_equal(strlen(set.identity), 16);
    mr_task_free(task);
    return set;
}

#define SMALL_CHOMSKY                                                                                                  \
    {"eval-lengths", "9"}, { "eval-samples", "20" }
static const setting copy_validation[] = {{"length", "40"}, {"tokens", "4"}, {"eval-batches", "2"}, {NULL, NULL}},
                     copy_test[] = {{"length", "40"}, {"tokens", "4"}, {"eval-batches", "2"}, {"split", "test"}, {0}},
                     pairs_validation[] = {SMALL_CHOMSKY, {"task", "even_pairs"}, {NULL, NULL}},
                     pairs_test[] = {SMALL_CHOMSKY, {"task", "even_pairs"}, {"split", "test"}, {NULL, NULL}},
                     sort_test[] = {SMALL_CHOMSKY, {"task", "bucket_sort"}, {"split", "test"}, {NULL, NULL}},
                     listops[] = {{"min-length", "10"},      {"max-length", "40"}, {"train-size", "16"},
                                  {"validation-size", "30"}, {"test-size", "30"},  {NULL, NULL}};

static const struct {
    const char *task;
    const setting *settings;
    int64_t sequences;
} sets[] = {{"selective-copy", copy_validation, 128},
            {"selective-copy", copy_test, 128},
            {"chomsky", pairs_validation, 180},
            {"chomsky", pairs_test, 180},
            {"chomsky", sort_test, 180},
            {"listops", listops, 30}};

static void batches_do_not_change_it(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        const mr_test_set one = set_of(sets[i].task, 64, 0, sets[i].settings);
        assert_int_equal(one.sequences, sets[i].sequences);
        for (int batch = 1; batch < 100; batch = 3 * batch + 1) {
            const mr_test_set other = set_of(sets[i].task, batch, 0, sets[i].settings);
            assert_string_equal(one.identity, other.identity);
            assert_int_equal(one.answers, other.answers);
            assert_true(one.constant == other.constant);
        }
    }
}

static void every_set_has_its_own(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(set_of(sets[i].task, 7, 0, sets[i].settings).identity,
                                    set_of(sets[k].task, 7, 0, sets[k].settings).identity);
}

/* One changed token, or one changed answer, is another test set. */
static int spoiled; /* 1: an input, 2: an answer */
static void (*honest)(const mr_task *task, int index, mr_batch *batch);
static void spoil(const mr_task *task, int index, mr_batch *batch)
{
    honest(task, index, batch);
    if (index != 1 || !spoiled) return;
    if (spoiled == 1) batch->ids[3] ^= 1;
    for (int t = 0; spoiled == 2 && t < batch->T; t++)
        if (batch->target[t] >= 0) {
            batch->target[t] ^= 1;
            break;
        }
}

static void one_token_changes_it(void **state)
{
    (void)state;
    char seen[3][MR_TEST_SET_IDENTITY];
    mr_task *task = open_task("chomsky", 20, 0, pairs_test);
    mr_task_type type = *task->type;
    const mr_task_type *real = task->type;
    honest = type.eval_batch;
    type.eval_batch = spoil;
    task->type = &type;
    for (spoiled = 0; spoiled < 3; spoiled++) {
        mr_test_set set;
        assert_int_equal(mr_test_set_of(task, &set, NULL), 0);
        memcpy(seen[spoiled], set.identity, sizeof set.identity);
    }
    assert_string_not_equal(seen[0], seen[1]);
    assert_string_not_equal(seen[0], seen[2]);
    assert_string_not_equal(seen[1], seen[2]);
    task->type = real;
    mr_task_free(task);
}

static void constant_answers_are_counted(void **state)
{
    (void)state;
    int64_t counts[16] = {0}, all = 0, most = 0;
    mr_shape shapes[2];
    mr_batch batch;
    mr_task *task = open_task("chomsky", 20, 0, sort_test);
    mr_task_shapes(task, shapes);
    assert_int_equal(mr_batch_new(&batch, &task->interface, shapes[1].B, shapes[1].T), 0);
    for (int i = 0; i < task->eval_batches; i++) {
        task->type->eval_batch(task, i, &batch);
        for (int at = 0; at < batch.B * batch.T; at++)
            if (batch.target[at] >= 0) counts[batch.target[at]]++, all++;
    }
    for (int i = 0; i < 16; i++) most = counts[i] > most ? counts[i] : most;
    const mr_test_set set = set_of("chomsky", 20, 0, sort_test);
    assert_int_equal(set.answers, all);
    assert_true(set.constant == (double)most / (double)all);
    assert_true(set.chance == 0.1);
    mr_batch_free(&batch);
    mr_task_free(task);
}

/* ---- made-up sequences: all that a batch can hold counts, padding and the cut into batches do not ---- */

enum { MADE = 6, MADE_T = 4, MADE_WIDTH = 2, MADE_CLASSES = 3 };
static struct {
    int32_t ids[MADE][MADE_T], target[MADE][MADE_T], length[MADE];
    float values[MADE][MADE_T][MADE_WIDTH], wanted[MADE][MADE_T][MADE_WIDTH];
    uint8_t reset[MADE][MADE_T], mask[MADE][MADE_T];
} made;

static void make_up(void)
{
    for (int s = 0; s < MADE; s++) {
        made.length[s] = MADE_T;
        for (int t = 0; t < MADE_T; t++) {
            made.ids[s][t] = 8 * s + t;
            made.target[s][t] = s == 1 ? 2 : (s + t) % 2;
            made.reset[s][t] = 0;
            made.mask[s][t] = 1;
            for (int k = 0; k < MADE_WIDTH; k++) made.values[s][t][k] = made.wanted[s][t][k] = (float)(s + 8 * t + k);
        }
    }
}

/* Answers of sequence s: one for each token, one, or of a pair one for both. */
static void put_answers(mr_head head, int s, int b, mr_batch *batch)
{
    if (mr_head_pairs(head) && b % 2) return;
    const int at = head == MR_HEAD_TOKEN ? b * MADE_T : mr_head_pairs(head) ? b / 2 : b;
    for (int t = 0; t < (head == MR_HEAD_TOKEN ? MADE_T : 1); t++) {
        if (batch->target) batch->target[at + t] = made.target[s][t];
        if (batch->mask) batch->mask[at + t] = made.mask[s][t];
        if (batch->target_values)
            memcpy(batch->target_values + (at + t) * MADE_WIDTH, made.wanted[s][t], sizeof made.wanted[s][t]);
    }
}

static void made_batch(const mr_task *task, int index, mr_batch *batch)
{
    const int first = index * task->batch, left = MADE - first;
    batch->B = left < task->batch ? left : task->batch;
    batch->T = MADE_T;
    batch->reset = mr_batch_resets(batch);
    batch->length = mr_batch_lengths(batch);
    for (int b = 0; b < batch->B; b++) {
        const int s = first + b;
        if (batch->ids) memcpy(batch->ids + b * MADE_T, made.ids[s], sizeof made.ids[s]);
        else memcpy(batch->values + b * MADE_T * MADE_WIDTH, made.values[s], sizeof made.values[s]);
        memcpy(batch->reset + b * MADE_T, made.reset[s], sizeof made.reset[s]);
        batch->length[b] = made.length[s];
        put_answers(task->interface.head, s, b, batch);
    }
}

static mr_test_set made_set(mr_input input, mr_head head, mr_loss loss, int batch)
{
    const mr_task_type type = {.name = "made up", .eval_batch = made_batch};
    const mr_interface interface = {input, MADE_WIDTH, head, loss, loss == MR_LOSS_MSE ? MADE_WIDTH : MADE_CLASSES};
    const mr_task task = {.type = &type,
                          .batch = batch,
                          .interface = interface,
                          .max_T = MADE_T,
                          .eval_batches = (MADE + batch - 1) / batch};
    mr_test_set set;
    assert_int_equal(mr_test_set_of(&task, &set, NULL), 0);
    return set;
}

/* Changes one byte, and expects another test set, or the same. */
static void change(mr_input input, mr_head head, mr_loss loss, void *at, int counts)
{
    const mr_test_set before = made_set(input, head, loss, 4);
    *(uint8_t *)at ^= 1;
    const mr_test_set after = made_set(input, head, loss, 4);
    *(uint8_t *)at ^= 1;
    if (strcmp(before.identity, after.identity) ? !counts : counts)
        fail_msg("input %d, head %d, loss %d: byte %td of what was made up", input, head, loss,
                 (char *)at - (char *)&made);
}

static void everything_in_a_batch_counts(void **state)
{
    (void)state;
    for (int input = 0; input < 2; input++)
        for (int head = 0; head <= MR_HEAD_PAIR_MEAN; head++)
            for (int loss = 0; loss < 2; loss++) {
                const int pairs = mr_head_pairs((mr_head)head), mse = loss == MR_LOSS_MSE;
                make_up();
                const mr_test_set set = made_set(input, head, loss, 4);
                assert_int_equal(set.sequences, pairs ? MADE / 2 : MADE);
                assert_int_equal(set.answers, head == MR_HEAD_TOKEN ? MADE * MADE_T : set.sequences);
                if (mse) assert_true(isnan(set.chance) && isnan(set.constant));
                else assert_true(set.chance == 1.0 / MADE_CLASSES);
                assert_string_equal(made_set(input, head, loss, 2).identity, set.identity);
                assert_string_equal(made_set(input, head, loss, 6).identity, set.identity);
                change(input, head, loss, &made.ids[3][3], input == MR_INPUT_TOKENS);
                change(input, head, loss, &made.values[3][3][1], input == MR_INPUT_REALS);
                change(input, head, loss, &made.reset[3][3], 1);
                change(input, head, loss, &made.target[2][0], !mse);
                change(input, head, loss, &made.target[3][0], !mse && !pairs);
                change(input, head, loss, &made.wanted[2][0][1], mse);
                change(input, head, loss, &made.mask[2][0], mse);
                made.mask[2][0] = 0;
                assert_int_equal(made_set(input, head, loss, 4).answers, set.answers - mse);
                made.length[3] = 2; /* the rest is padding */
                made.target[3][2] = made.target[3][3] = -1;
                change(input, head, loss, &made.ids[3][2], 0);
                change(input, head, loss, &made.values[3][2][0], 0);
                change(input, head, loss, &made.reset[3][2], 0);
            }
}

/* Published results name their test set by these digits: when they change, all results are outdated. */
static void identities_do_not_change(void **state)
{
    (void)state;
    static const char *const known[] = {"9af637016fbb8ffd", "780afd4863bc0d9b", "2a13f14674cc22a5", "ef57e0ccffa89d71",
                                        "ff7c1ea1f5090ba6"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        assert_string_equal(set_of(sets[i].task, 64, 0, sets[i].settings).identity, known[i]);
    make_up();
    assert_string_equal(made_set(MR_INPUT_TOKENS, MR_HEAD_PAIR_LAST, MR_LOSS_XENT, 2).identity, "22357838637511ab");
}

/* The test sequences are drawn from a seed of their own, not from the validation sequences' or from training. */
static void no_test_sequence_is_a_validation_sequence(void **state)
{
    (void)state;
    mr_shape shapes[2];
    mr_batch a, b;
    mr_task *left = open_task("selective-copy", 64, 0, copy_validation),
            *right = open_task("selective-copy", 64, 0, copy_test);
    mr_task_shapes(left, shapes);
    assert_int_equal(mr_batch_new(&a, &left->interface, shapes[1].B, shapes[1].T), 0);
    assert_int_equal(mr_batch_new(&b, &left->interface, shapes[1].B, shapes[1].T), 0);
    for (int i = 0; i < left->eval_batches; i++)
        for (int k = 0; k < right->eval_batches; k++) {
            left->type->eval_batch(left, i, &a);
            right->type->eval_batch(right, k, &b);
            for (int row = 0; row < a.B; row++)
                for (int other = 0; other < b.B; other++)
                    if (!memcmp(a.ids + row * a.T, b.ids + other * b.T, (size_t)a.T * sizeof *a.ids))
                        fail_msg("row %d of batch %d is row %d of batch %d", row, i, other, k);
        }
    mr_batch_free(&a);
    mr_batch_free(&b);
    mr_task_free(left);
    mr_task_free(right);
}

/* The reading is stopped when the task is. */
static void it_can_be_stopped(void **state)
{
    (void)state;
    mr_stop stop = 1;
    mr_test_set set;
    mr_error err = {0};
    mr_task *task = open_task("chomsky", 20, 0, sort_test);
    task->stop = &stop;
    assert_int_equal(mr_test_set_of(task, &set, &err), MR_ESTOPPED);
    mr_task_free(task);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(everything_in_a_batch_counts),
                                       cmocka_unit_test(identities_do_not_change),
                                       cmocka_unit_test(batches_do_not_change_it),
                                       cmocka_unit_test(every_set_has_its_own),
                                       cmocka_unit_test(one_token_changes_it),
                                       cmocka_unit_test(constant_answers_are_counted),
                                       cmocka_unit_test(it_can_be_stopped),
                                       cmocka_unit_test(no_test_sequence_is_a_validation_sequence)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
