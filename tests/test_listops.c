/* ListOps: expressions checked by a second evaluator, which uses a stack, and by their distribution. */
#include "sequence_support.h"

#include "tasks/listops_data.h"

#include "core/rng.h"
#include "tasks/shuffle.h"

#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stdint.h>

/* ---- a second evaluator */

enum { DEEP = 64, WIDE = 64 };

static int by_value(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static int value_of(char operator, int * v, int n)
{
    int sum = 0;
    for (int i = 0; i < n; i++) sum += v[i];
    qsort(v, (size_t)n, sizeof *v, by_value);
    switch (operator) {
    case 'm': return v[0];
    case 'M': return v[n - 1];
    case 'd': return n % 2 ? v[n / 2] : (int)((v[n / 2 - 1] + v[n / 2]) / 2.0);
    default: return sum % 10;
    }
}

typedef struct seen {
    int operators[4], arguments[WIDE + 1], digits[10], depth; /* depth: of the deepest operator, from 1 */
    /* nodes at each depth, and how many of them are operators */
    int nodes[DEEP], inner[DEEP];
    int second[WIDE + 1]; /* arguments of operators at depth 2 */
} seen;

/* The value of the expression, or −1 when it is malformed; counts its parts in `s`. */
static int evaluate(const uint8_t *tokens, uint32_t n, seen *s)
{
    static const char names[] = "mMds";
    int v[DEEP][WIDE], count[DEEP] = {0}, level = 0, done = -1;
    char operator[DEEP] = {0};
    for (uint32_t i = 0; i < n; i++) {
        int token = tokens[i], value = token - 1;
        if (token < 1 || token > 15 || done >= 0) return -1;
        if (token < 15) s->nodes[level + 1]++;
        if (token > 10 && token < 15) {
            if (++level == DEEP) return -1;
            s->inner[level]++;
            if (level > s->depth) s->depth = level;
            s->operators[token - 11]++;
            operator[level] = names[token - 11];
            count[level] = 0;
            continue;
        }
        if (token == 15) {
            if (level == 0 || count[level] < 2) return -1;
            s->arguments[count[level]]++;
            if (level == 2) s->second[count[level]]++;
            value = value_of(operator[level], v[level], count[level]);
            level--;
        } else {
            s->digits[value]++;
        }
        if (level == 0) done = value;
        else if (count[level] == WIDE) return -1;
        else v[level][count[level]++] = value;
    }
    return level ? -1 : done;
}

/* Chi-square of counts that should all be equal. */
static double unevenness(const int *counts, int cells)
{
    double all = 0;
    for (int i = 0; i < cells; i++) all += counts[i];
    return chi_square(counts, cells, all / cells);
}

static void expressions_have_the_published_shape(void **state)
{
    (void)state;
    static const mr_listops_shape shape = {500, 2000, 10, 10};
    enum { N = 3000 };
    mr_byte_rows rows = {0};
    seen s = {0};
    assert_int_equal(mr_listops_generate(&shape, N, &rows, NULL), 0);
    assert_int_equal(rows.count, N);
    int labels[10] = {0}, shortest = 1 << 30, longest = 0;
    for (uint32_t i = 0; i < N; i++) {
        int value = evaluate(rows.bytes + rows.at[i], rows.length[i], &s);
        if (value != rows.label[i]) fail_msg("tree %d has the value %d, not %d", (int)i, value, rows.label[i]);
        labels[value]++;
        if ((int)rows.length[i] < shortest) shortest = (int)rows.length[i];
        if ((int)rows.length[i] > longest) longest = (int)rows.length[i];
    }
    assert_that(shortest, >, 500);
    assert_that(shortest, <, 520);
    assert_that(longest, <, 2000);
    assert_that(longest, >, 1950);
    assert_int_equal(s.depth, 9); /* operators only occur above the tenth level */
    for (int i = 0; i < 10; i++) assert_that(labels[i], >, N / 20);
    /* Selecting trees by length favours many arguments, but no particular operator or digit. */
    if (!(unevenness(s.operators, 4) <= 3 + 6 * 2.5)) fail_msg("operators: chi-square %g", unevenness(s.operators, 4));
    if (!(unevenness(s.digits, 10) <= 9 + 6 * 4.3)) fail_msg("digits: chi-square %g", unevenness(s.digits, 10));
    for (int n = 2; n <= 10; n++) assert_that(s.arguments[n], >, 0);
    assert_int_equal(s.arguments[11], 0);
    mr_byte_rows_free(&rows);
}

/* With almost no limit on the length, every tree is kept except duplicates, so the draws themselves can be seen.
 * Duplicates are small: hardly any has an operator below its first, so depth 2 shows the draws undistorted. */
static void draws_are_as_stated(void **state)
{
    (void)state;
    static const mr_listops_shape shape = {1, 60000, 3, 10};
    enum { N = 20000 };
    mr_byte_rows rows = {0};
    seen s = {0};
    assert_int_equal(mr_listops_generate(&shape, N, &rows, NULL), 0);
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(evaluate(rows.bytes + rows.at[i], rows.length[i], &s), rows.label[i]);
    assert_int_equal(s.nodes[1], N);
    assert_int_equal(s.inner[1], N);
    assert_int_equal(s.inner[3], 0);
    /* expected: a quarter; few of these trees are lost */
    double share = (double)s.inner[2] / s.nodes[2], error = 0.4330 / sqrt(s.nodes[2]);
    if (!(fabs(share - 0.25) <= 6 * error))
        fail_msg("a share of %g of the second level are operators, not a quarter", share);
    double mean = (double)s.nodes[3] / s.inner[2];
    if (!(fabs(mean - 6) <= 6 * 2.582 / sqrt(s.inner[2])))
        fail_msg("an operator has %g arguments in the mean, not 6", mean);
    if (!(unevenness(s.second + 2, 9) <= 8 + 6 * 4))
        fail_msg("numbers of arguments: chi-square %g", unevenness(s.second + 2, 9));
    mr_byte_rows_free(&rows);
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void no_tree_comes_twice(void **state)
{
    (void)state;
    static const mr_listops_shape small = {2, 7, 2, 3}; /* 4 · (100 + 1000) trees */
    mr_byte_rows rows = {0};
    mr_error err;
    seen s = {0};
    char *texts[4400];
    assert_int_equal(mr_listops_generate(&small, 4400, &rows, &err), 0);
    for (uint32_t i = 0; i < 4400; i++) {
        assert_int_equal(evaluate(rows.bytes + rows.at[i], rows.length[i], &s), rows.label[i]);
        texts[i] = calloc(1, 16);
        memcpy(texts[i], rows.bytes + rows.at[i], rows.length[i]);
    }
    qsort(texts, 4400, sizeof *texts, by_text);
    for (int i = 1; i < 4400; i++)
        if (!strcmp(texts[i - 1], texts[i])) fail_msg("a tree comes twice");
    for (int i = 0; i < 4400; i++) free(texts[i]);
    mr_byte_rows_free(&rows);
    assert_int_equal(mr_listops_generate(&small, 4401, &rows, &err), MR_ECONFIG);
    assert_says(&err, "only 4400 different trees");
    mr_byte_rows_free(&rows);
}

/* The set is the same on every machine: these are its first expressions. */
static void the_set_is_a_constant(void **state)
{
    (void)state;
    static const mr_listops_shape shape = {500, 2000, 10, 10};
    mr_byte_rows rows = {0}, more = {0};
    char sha[MR_SHA256_TEXT];
    assert_int_equal(mr_listops_generate(&shape, 100, &rows, NULL), 0);
    assert_int_equal(mr_listops_generate(&shape, 900, &more, NULL), 0);
    assert_memory_equal(rows.bytes, more.bytes, rows.used);
    mr_sha256_of(rows.bytes, rows.used, sha);
    assert_string_equal(sha, "4db691d9022c70a17ea1a8e108e21bb5b3597881e2c5d96b80f2578298479a4e");
    mr_byte_rows_free(&rows);
    mr_byte_rows_free(&more);
}

/* ---- batches */

#define SMALL                                                                                                          \
    {"min-length", "20"}, {"max-length", "100"}, {"depth", "5"}, {"train-size", "500"}, {"validation-size", "60"},     \
    {                                                                                                                  \
        "test-size", "70"                                                                                              \
    }

static void batches_hold_what_they_say(void **state)
{
    (void)state;
    mr_task *task = open_task("listops", 8, 0, (setting[]){SMALL, {0}});
    mr_batch batch = fresh_batch(task);
    int padding = 0, all = 0, shapes[101] = {0}, count = 0;
    assert_int_equal(task->interface.inputs, 16);
    assert_int_equal(task->interface.outputs, 10);
    assert_int_equal(task->interface.head, MR_HEAD_MEAN);
    assert_int_equal(task->eval_batches, 8);
    for (uint32_t step = 1; step <= 125; step++) { /* two passes */
        task->type->train_batch(task, step, 0, &batch);
        assert_non_null(batch.length);
        assert_null(batch.reset);
        assert_int_equal(batch.counted, 8);
        assert_that(batch.T, <=, 100);
        shapes[batch.T] = 1;
        for (int b = 0; b < 8; b++) {
            seen s = {0};
            uint8_t tokens[100];
            assert_in_range(batch.length[b], 21, batch.T);
            for (int t = 0; t < batch.T; t++)
                if (t < batch.length[b]) tokens[t] = (uint8_t)batch.ids[b * batch.T + t];
                else assert_int_equal(batch.ids[b * batch.T + t], 0);
            assert_int_equal(evaluate(tokens, (uint32_t)batch.length[b], &s), batch.target[b]);
            padding += batch.T - batch.length[b];
            all += batch.T;
        }
    }
    for (int T = 0; T <= 100; T++) count += shapes[T];
    assert_that(count, <=, 32);
    if (!(padding <= 0.15 * all)) fail_msg("%d of %d tokens are padding", padding, all);
    check_sequence_places(task);
    mr_batch_free(&batch);
    mr_task_free(task);
}

/* A hash of a row: its label and tokens. */
static uint64_t mark_of(const mr_batch *batch, int b)
{
    uint64_t h = (uint64_t)batch->target[b];
    for (int t = 0; t < batch->length[b]; t++) h = (h ^ (uint64_t)batch->ids[b * batch->T + t]) * 0x100000001b3u;
    return h;
}

/* The sum of the marks of all test rows, so that order does not matter. */
static uint64_t scored(const setting *settings, int rows_a_batch, int *rows)
{
    mr_task *task = open_task("listops", rows_a_batch, 0, settings);
    mr_batch batch = fresh_batch(task);
    uint64_t sum = 0;
    *rows = 0;
    for (int i = 0; i < task->eval_batches; i++) {
        task->type->eval_batch(task, i, &batch);
        for (int b = 0; b < batch.B; b++, ++*rows) sum += mark_of(&batch, b);
    }
    mr_batch_free(&batch);
    mr_task_free(task);
    return sum;
}

static void what_is_scored_depends_on_the_split_alone(void **state)
{
    (void)state;
    int rows;
    uint64_t validation = scored((setting[]){SMALL, {0}}, 8, &rows);
    assert_int_equal(rows, 60);
    assert_true(validation == scored((setting[]){SMALL, {"train-size", "9"}, {0}}, 13, &rows));
    uint64_t test = scored((setting[]){SMALL, {"split", "test"}, {0}}, 8, &rows);
    assert_int_equal(rows, 70);
    assert_that(validation, !=, test);
    assert_true(test ==
                scored((setting[]){SMALL, {"split", "test"}, {"train-size", "9"}, {"pool", "last"}, {0}}, 70, &rows));
}

/* Stages of 16 and 32 tokens, then the training set of 41 to 99; the test sets do not change. */
static void expressions_grow(void **state)
{
    (void)state;
    static const int from[] = {8, 16, 41}, to[] = {16, 32, 99};
    int rows, other;
    mr_task *task = open_task(
        "listops", 8, 0, (setting[]){SMALL, {"min-length", "40"}, {"start-length", "16"}, {"grow-steps", "20"}, {0}});
    mr_batch batch = fresh_batch(task);
    for (uint32_t step = 1; step <= 30; step++) {
        task->type->train_batch(task, step, 0, &batch);
        for (int b = 0; b < 8; b++) {
            seen s = {0};
            uint8_t tokens[100];
            assert_in_range(batch.length[b], from[(step - 1) / 10], to[(step - 1) / 10]);
            for (int t = 0; t < batch.length[b]; t++) tokens[t] = (uint8_t)batch.ids[b * batch.T + t];
            assert_int_equal(evaluate(tokens, (uint32_t)batch.length[b], &s), batch.target[b]);
        }
    }
    mr_batch_free(&batch);
    mr_task_free(task);
    assert_true(scored((setting[]){SMALL, {"min-length", "40"}, {"start-length", "16"}, {0}}, 8, &rows) ==
                scored((setting[]){SMALL, {"min-length", "40"}, {0}}, 8, &other));
    assert_int_equal(rows, other);
    refused(new_task("listops", 8, 0, (setting[]){SMALL, {"start-length", "8"}, {0}}), MR_ECONFIG, "start-length");
}

/* One pass over the training set and both scored sets: 500 + 60 + 70 different expressions. */
static void parts_share_nothing(void **state)
{
    (void)state;
    uint64_t marks[630];
    int count = 0;
    for (int part = 0; part < 3; part++) {
        mr_task *task =
            open_task("listops", 10, 0, (setting[]){SMALL, {"split", part == 1 ? "test" : "validation"}, {0}});
        mr_batch batch = fresh_batch(task);
        for (int i = 0; i < (part < 2 ? task->eval_batches : 50); i++) {
            if (part < 2) task->type->eval_batch(task, i, &batch);
            else task->type->train_batch(task, (uint32_t)i, 0, &batch);
            for (int b = 0; b < batch.B; b++) marks[count++] = mark_of(&batch, b);
        }
        mr_batch_free(&batch);
        mr_task_free(task);
    }
    assert_int_equal(count, 630);
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++)
            if (marks[i] == marks[j]) fail_msg("rows %d and %d of the parts are the same", j, i);
}

static void passes_hold_every_item_once(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {1, 2, 3, 5, 64, 65, 1000, 45000};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        const uint32_t n = sizes[k];
        int moved = 0;
        for (uint64_t pass = 0; pass < 3; pass++) {
            uint8_t *met = calloc(n, 1);
            for (uint32_t i = 0; i < n; i++) {
                uint32_t item = mr_shuffle_at(7, MR_STREAM_TRAIN, n, pass * n + i);
                if (item >= n || met[item]++)
                    fail_msg("pass %d of %d items: %d comes twice or is none", (int)pass, (int)n, (int)item);
                moved += item != mr_shuffle_at(7, MR_STREAM_TRAIN, n, (pass + 1) * n + i);
            }
            free(met);
        }
        assert_true(n < 64 || moved > 0.8 * 3 * n);
    }
}

/* A pool of batches is a contiguous piece of the pass, in any order: 16 pieces of 64 are 1,024 items. */
static void a_pool_of_batches_is_a_piece_of_the_pass(void **state)
{
    (void)state;
    enum { N = 2048, B = 64 };
    uint32_t length[N];
    int32_t items[B];
    uint8_t met[N] = {0};
    mr_task task = {.seed = 3};
    for (uint32_t i = 0; i < N; i++) length[i] = i * 37 % 101;
    for (uint32_t step = 0; step < N / B; step++) {
        mr_shuffle_batch(&task, step, 0, length, N, B, items);
        for (int i = 0; i < B; i++) {
            assert_in_range(items[i], 0, N - 1);
            met[items[i]]++;
            assert_true(i == 0 || length[items[i]] >= length[items[i - 1]]);
        }
        assert_that(length[items[B - 1]] - length[items[0]], <, 20); /* of 101, a sixteenth is 7 */
    }
    for (int i = 0; i < N; i++) assert_int_equal(met[i], 1);
}

/* ---- published files */

static void put_files(const char *train, const char *other)
{
    char path[MR_TEXT_MAX];
    in_folder("listops", path);
    assert_int_equal(mr_make_directory(path, NULL), 0);
    write_file("listops/basic_train.tsv", train, strlen(train), path);
    write_file("listops/basic_val.tsv", other, strlen(other), path);
    write_file("listops/basic_test.tsv", other, strlen(other), path);
    setenv("MINRNN_DATA", folder, 1);
}

#define HEADER "Source\tTarget\n"
#define LRA                                                                                                            \
    {                                                                                                                  \
        "source", "lra"                                                                                                \
    }

static void published_files_are_read(void **state)
{
    (void)state;
    put_files(HEADER "( ( ( [MAX 3 ) 4 ) ] )\t4\n( ( ( ( [MED 1 ) ( ( ( [SM 9 ) 8 ) ] ) ) 2 ) ] )\t2\r\n",
              HEADER "( ( ( [MIN 3 ) 0 ) ] )\t0");
    mr_task *task = open_task("listops", 2, 0, (setting[]){LRA, {0}});
    mr_batch batch = fresh_batch(task);
    task->type->eval_batch(task, 0, &batch);
    assert_int_equal(batch.B, 1);
    assert_int_equal(batch.length[0], 4);
    assert_memory_equal(batch.ids, ((int32_t[]){11, 4, 1, 15}), 16);
    task->type->train_batch(task, 1, 0, &batch);
    int second = batch.length[1] == 8;
    assert_int_equal(batch.length[second], 8);
    assert_int_equal(batch.target[second], 2);
    assert_memory_equal(batch.ids + second * batch.T, ((int32_t[]){13, 2, 14, 10, 9, 15, 3, 15}), 32);
    assert_int_equal(strlen(task->data_sha256), 64);
    mr_batch_free(&batch);
    mr_task_free(task);
    task = open_task("listops", 1, 0, (setting[]){LRA, {"max-length", "5"}, {"min-length", "0"}, {0}});
    batch = fresh_batch(task);
    for (uint32_t step = 0; step < 2; step++) {
        task->type->train_batch(task, step, 0, &batch);
        assert_true(batch.length[0] == 4 || batch.length[0] == 5);
    }
    mr_batch_free(&batch);
    mr_task_free(task);
}

static void broken_files_are_explained(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } broken[] = {{"", "basic_train.tsv: has no rows"},
                  {HEADER, "basic_train.tsv: has no rows"},
                  {"( [MAX 3 4 ] )\t4\n", "line 1: must name the columns"},
                  {"Source\tTargets\n( [MAX 3 4 ] )\t4\n", "line 1: must name the columns"},
                  {"Source\tTargex\n( [MAX 3 4 ] )\t4\n", "line 1: must name the columns"},
                  {HEADER "( [MAX 3 4 ] )\t4\n( [MAX 3 4 ] )\n", "line 3: has no tab"},
                  {HEADER "( [MAX 3 4 ] )\t12\n", "line 2: the column Target is \"12\""},
                  {HEADER "( [MAX 3 4 ] )\t\n", "line 2: the column Target is \"\""},
                  {HEADER "( [MAX 3 44 ] )\t4\n", "line 2: \"44\" is not a token"},
                  {HEADER "( )\t4\n", "line 2: the column Source is empty"}};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        put_files(broken[i].text, HEADER "( [MIN 3 0 ] )\t0\n");
        refused(new_task("listops", 1, 0, (setting[]){LRA, {0}}), MR_EDATA, broken[i].says);
    }
    char path[MR_TEXT_MAX];
    in_folder("empty", path);
    setenv("MINRNN_DATA", path, 1);
    setenv("XDG_CACHE_HOME", path, 1);
    refused(new_task("listops", 1, 0, (setting[]){LRA, {0}}), MR_ENODATA, "minrnn data get lra");
    refused(new_task("listops", 1, 0, (setting[]){{"min-length", "99"}, {"max-length", "100"}, {0}}), MR_ECONFIG,
            "--min-length");
}

/* Instead of the C library's, which mr_alloc calls: the call that makes it 0 fails. */
static atomic_long calls_left = LONG_MAX;

void *aligned_alloc(size_t alignment, size_t size)
{
    void *block;
    if (atomic_fetch_sub(&calls_left, 1) == 1) return NULL;
    return posix_memalign(&block, alignment, size) ? NULL : block;
}

/* Whichever allocation fails, a set is whole or an error. */
static void no_memory_is_an_error(void **state)
{
    (void)state;
    const mr_listops_shape shape = {2, 12, 3, 3};
    long calls = 1000000;
    for (int i = 0; i < 7; i++) { /* none fails; then one does */
        const long left = (long[]){calls, calls + 1, calls, calls - 1, calls - 4, calls / 2, 1}[i];
        mr_byte_rows rows = {0};
        mr_error err;
        atomic_store(&calls_left, left);
        int status = mr_listops_generate(&shape, 600, &rows, &err);
        if (!i) calls -= atomic_load(&calls_left);
        atomic_store(&calls_left, LONG_MAX);
        assert_int_equal(status, i < 2 ? 0 : MR_ENOMEM);
        if (i < 2) assert_int_equal(rows.count, 600);
        mr_byte_rows_free(&rows);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expressions_have_the_published_shape),
        cmocka_unit_test(draws_are_as_stated),
        cmocka_unit_test(no_tree_comes_twice),
        cmocka_unit_test(the_set_is_a_constant),
        cmocka_unit_test(batches_hold_what_they_say),
        cmocka_unit_test(what_is_scored_depends_on_the_split_alone),
        cmocka_unit_test(expressions_grow),
        cmocka_unit_test(parts_share_nothing),
        cmocka_unit_test(passes_hold_every_item_once),
        cmocka_unit_test(a_pool_of_batches_is_a_piece_of_the_pass),
        cmocka_unit_test(no_memory_is_an_error),
        cmocka_unit_test(published_files_are_read),
        cmocka_unit_test(broken_files_are_explained),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
