/* Tasks: what their batches must contain, checked independently of how they are made. */
#include "task_support.h"

#include "model/vocab.h"

#include "tasks/data.h"
#include "skip_because.h"

#include <ini.h>

/* ---- the list */

static void tasks_are_found_by_name(void **state)
{
    (void)state;
    static const char *const names[] = {"selective-copy", "shakespeare", "text"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const mr_task_type *type = mr_task_type_find(names[i]);
        assert_non_null(type);
        assert_string_equal(type->name, names[i]);
    }
    assert_null(mr_task_type_find("selective"));
    for (const mr_task_type *const *type = mr_task_types(); *type; type++)
        assert_ptr_equal(mr_task_type_find((*type)->name), *type);
    mr_task_free(NULL);
    refused(new_task("selective-copy", 0, 0, (setting[]){{0}}), MR_ECONFIG, "--batch");
}

/* ---- selective copying */

static const setting small_copy[] = {{"length", "32"}, {"tokens", "5"}, {"symbols", "6"}, {"eval-batches", "3"}, {0}};

/* Checks a row by the definition only: data tokens before `length` are not noise; then markers and targets. */
static void check_copy_row(const int32_t *ids, const int32_t *target, int length, int tokens, int symbols)
{
    int found = 0;
    for (int t = 0; t < length; t++) {
        if (target[t] != -1) fail_msg("position %d has a target", t);
        if (ids[t] == symbols + 1) continue;
        if (ids[t] < 1 || ids[t] > symbols || found == tokens) fail_msg("position %d holds %d", t, (int)ids[t]);
        if (ids[length + found] != 0) fail_msg("no marker at %d", length + found);
        if (target[length + found] != ids[t]) fail_msg("answer %d is not the token at %d", found, t);
        found++;
    }
    assert_int_equal(found, tokens);
}

static void check_copy_batch(const mr_batch *batch, int length, int tokens, int symbols)
{
    assert_int_equal(batch->T, length + tokens);
    assert_int_equal(batch->counted, batch->B * tokens);
    assert_null(batch->reset);
    assert_null(batch->length);
    for (int row = 0; row < batch->B; row++) {
        int at = row * batch->T;
        check_copy_row(batch->ids + at, batch->target + at, length, tokens, symbols);
    }
}

static void copy_has_the_published_shape(void **state)
{
    (void)state;
    mr_task *task = open_task("selective-copy", 2, 0, (setting[]){{0}});
    mr_batch batch = new_batch(task);
    assert_int_equal(task->interface.input, MR_INPUT_TOKENS);
    assert_int_equal(task->interface.inputs, 16);
    assert_int_equal(task->interface.outputs, 16);
    assert_int_equal(task->interface.head, MR_HEAD_TOKEN);
    assert_int_equal(task->interface.loss, MR_LOSS_XENT);
    assert_int_equal(task->type->best_by_accuracy, 1);
    assert_int_equal(task->max_T, 4112);
    assert_int_equal(task->eval_batches, 200 * 64 / 2);
    assert_null(task->vocab);
    task->type->train_batch(task, 0, 0, &batch);
    check_copy_batch(&batch, 4096, 16, 14);
    task->type->eval_batch(task, task->eval_batches - 1, &batch);
    check_copy_batch(&batch, 4096, 16, 14);
    mr_batch_free(&batch);
    mr_task_free(task);
}

static void copy_holds_at_the_edges(void **state)
{
    (void)state;
    static const int sizes[][3] = {{1, 1, 1}, {7, 7, 3}, {8, 7, 1}, {9, 1, 200}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char text[3][16];
        for (int k = 0; k < 3; k++) snprintf(text[k], sizeof text[k], "%d", sizes[i][k]);
        mr_task *task = open_task("selective-copy", 3, 0,
                                  (setting[]){{"length", text[0]}, {"tokens", text[1]}, {"symbols", text[2]}, {0}});
        mr_batch batch = new_batch(task);
        task->type->train_batch(task, 3, 1, &batch);
        assert_int_equal(batch.B, 3);
        check_copy_batch(&batch, sizes[i][0], sizes[i][1], sizes[i][2]);
        mr_batch_free(&batch);
        mr_task_free(task);
    }
    refused(new_task("selective-copy", 1, 0, (setting[]){{"length", "15"}, {0}}), MR_ECONFIG, "--length");
}

/* No sequence is shorter than its data tokens, and three doublings lead from 5 beyond 32: three stages of nine steps in
 * all, then the full length. Test sequences always have the full length. */
static void copy_sequences_grow(void **state)
{
    (void)state;
    static const int lengths[] = {5, 5, 5, 10, 10, 10, 20, 20, 20, 32, 32};
    mr_task *task = open_task(
        "selective-copy", 2, 0,
        (setting[]){
            {"length", "32"}, {"tokens", "5"}, {"symbols", "6"}, {"start-length", "2"}, {"grow-steps", "9"}, {0}});
    mr_batch batch = new_batch(task);
    assert_int_equal(task->max_T, 37);
    task->type->train_batch(task, 0, 0, &batch); /* there is no step 0; it must do no harm */
    check_copy_batch(&batch, 5, 5, 6);
    for (uint32_t step = 1; step <= 11; step++) {
        task->type->train_batch(task, step, 0, &batch);
        check_copy_batch(&batch, lengths[step - 1], 5, 6);
    }
    task->type->eval_batch(task, 0, &batch);
    check_copy_batch(&batch, 32, 5, 6);
    mr_batch_free(&batch);
    mr_task_free(task);
}

/* The bounds are six standard deviations above the mean of chi-square: a wrong sampler exceeds them by far. */
static void copy_draws_are_uniform(void **state)
{
    (void)state;
    enum { LENGTH = 32, TOKENS = 5, SYMBOLS = 6, STEPS = 500, BATCH = 16, ROWS = STEPS * BATCH };
    int places[LENGTH] = {0}, symbols[SYMBOLS] = {0}, pairs[LENGTH * (LENGTH - 1) / 2] = {0};
    mr_task *task = open_task("selective-copy", BATCH, 0, small_copy);
    mr_batch batch = new_batch(task);
    for (uint32_t step = 0; step < STEPS; step++) {
        task->type->train_batch(task, step, 0, &batch);
        check_copy_batch(&batch, LENGTH, TOKENS, SYMBOLS);
        for (int row = 0; row < BATCH; row++) {
            const int32_t *ids = batch.ids + row * batch.T;
            for (int t = 0; t < LENGTH; t++) {
                if (ids[t] > SYMBOLS) continue;
                places[t]++;
                symbols[ids[t] - 1]++;
                for (int u = 0; u < t; u++) pairs[t * (t - 1) / 2 + u] += ids[u] <= SYMBOLS;
            }
        }
    }
    int n_pairs = LENGTH * (LENGTH - 1) / 2;
    double place = chi_square(places, LENGTH, (double)ROWS * TOKENS / LENGTH);
    double symbol = chi_square(symbols, SYMBOLS, (double)ROWS * TOKENS / SYMBOLS);
    double pair = chi_square(pairs, n_pairs, (double)ROWS * TOKENS * (TOKENS - 1) / 2 / n_pairs);
    if (!(place <= 31 + 6 * 7.9)) fail_msg("places are not uniform: chi-square %g", place);
    if (!(symbol <= 5 + 6 * 3.2)) fail_msg("symbols are not uniform: chi-square %g", symbol);
    if (!(pair <= 495 + 6 * 31.5)) fail_msg("pairs of places are not uniform: chi-square %g", pair);
    mr_batch_free(&batch);
    mr_task_free(task);
}

static void copy_is_a_function_of_its_place(void **state)
{
    (void)state;
    mr_task *task = open_task("selective-copy", 4, 0, small_copy);
    check_places(task);
    check_two_threads(task);
    mr_task_free(task);
}

static void copy_test_set_is_the_same_for_every_batch_size(void **state)
{
    (void)state;
    enum { ROWS = 3 * 64, T = 37 };
    static int32_t expected[ROWS * T], got[ROWS * T];
    static const int sizes[] = {64, 1, 50, 192, 1000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        mr_task *task = open_task("selective-copy", sizes[i], 0, small_copy);
        mr_batch batch = new_batch(task);
        int rows = 0;
        for (int index = 0; index < task->eval_batches; index++) {
            task->type->eval_batch(task, index, &batch);
            check_copy_batch(&batch, 32, 5, 6);
            assert_that(batch.B, >=, 1);
            assert_that(rows + batch.B, <=, ROWS);
            memcpy(got + rows * T, batch.ids, (size_t)batch.B * T * sizeof *got);
            rows += batch.B;
        }
        assert_int_equal(rows, ROWS);
        if (i == 0) memcpy(expected, got, sizeof got);
        assert_memory_equal(got, expected, sizeof got);
        mr_batch_free(&batch);
        mr_task_free(task);
    }
}

/* ---- text */

/* Ascending numbers written as letters: every window of three letters occurs only once. */
static size_t letters(char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) text[i] = (char)('a' + (i % 3 == 0 ? i / 3 % 26 : i % 3 == 1 ? i / 78 : 0));
    return n;
}

/* Rebuilds the test text from the targets of all evaluation batches: each token except the first, once, in order. */
static size_t collect_test_text(const mr_task *task, int32_t *out)
{
    mr_batch batch = new_batch(task);
    size_t n = 0;
    for (int index = 0; index < task->eval_batches; index++) {
        size_t before = n;
        task->type->eval_batch(task, index, &batch);
        assert_int_equal(batch.T, task->context);
        assert_that(batch.B, >=, 1);
        assert_that(batch.B, <=, task->batch);
        assert_true(batch.B == task->batch || index == task->eval_batches - 1);
        for (int row = 0; row < batch.B; row++) {
            const int32_t *ids = batch.ids + row * batch.T, *target = batch.target + row * batch.T;
            int length = batch.length ? batch.length[row] : batch.T;
            assert_that(length, >=, 1);
            assert_that(length, <=, batch.T);
            for (int t = 0; t < batch.T; t++) {
                assert_in_range(ids[t], 0, task->interface.inputs - 1);
                if (t >= length) assert_int_equal(target[t], -1);
                else out[n++] = target[t];
                if (t > 0 && t < length) assert_int_equal(ids[t], target[t - 1]);
            }
        }
        assert_int_equal(batch.counted, n - before);
        assert_null(batch.reset);
    }
    mr_batch_free(&batch);
    return n;
}

static void text_scores_every_test_token_once(void **state)
{
    (void)state;
    char text[400], path[MR_TEXT_MAX];
    size_t n = letters(text, sizeof text);
    write_file("letters", text, n, path);
    static const int sizes[][2] = {{1, 1}, {3, 7}, {4, 13}, {2, 39}, {5, 40}, {3, 200}, {100, 1}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int32_t got[400];
        mr_task *task =
            open_task("text", sizes[i][0], sizes[i][1], (setting[]){{"data", path}, {"vocab", "bytes"}, {0}});
        assert_int_equal(collect_test_text(task, got), 39);
        for (size_t k = 0; k < 39; k++) assert_int_equal(got[k], text[361 + k]);
        mr_batch batch = new_batch(task);
        task->type->eval_batch(task, 0, &batch);
        assert_int_equal(batch.ids[0], text[360]);
        mr_batch_free(&batch);
        mr_task_free(task);
    }
}

static int is_window(const char *text, const int32_t *ids, const int32_t *target, int n)
{
    for (int t = 0; t < n; t++)
        if (ids[t] != text[t] || target[t] != text[t + 1]) return 0;
    return 1;
}

static void text_trains_on_windows_of_the_training_text(void **state)
{
    (void)state;
    enum { N = 400, TRAIN = 360, CONTEXT = 9, STARTS = TRAIN - CONTEXT };
    char text[N], path[MR_TEXT_MAX];
    int seen[STARTS] = {0};
    write_file("letters", text, letters(text, N), path);
    mr_task *task = open_task("text", 50, CONTEXT, (setting[]){{"data", path}, {"vocab", "bytes"}, {0}});
    mr_batch batch = new_batch(task);
    assert_int_equal(task->max_T, CONTEXT);
    for (uint32_t step = 0; step < 400; step++) {
        task->type->train_batch(task, step, 0, &batch);
        assert_int_equal(batch.counted, 50 * CONTEXT);
        assert_null(batch.length);
        for (int row = 0; row < 50; row++) {
            const int32_t *ids = batch.ids + row * CONTEXT, *target = batch.target + row * CONTEXT;
            int start = 0;
            while (start < STARTS && !is_window(text + start, ids, target, CONTEXT)) start++;
            if (start == STARTS) fail_msg("step %d, row %d is no window of the training text", (int)step, row);
            seen[start]++;
        }
    }
    for (int start = 0; start < STARTS; start++) assert_that(seen[start], >, 0); /* 57 expected for each */
    double uniform = chi_square(seen, STARTS, 400.0 * 50 / STARTS);
    if (!(uniform <= STARTS - 1 + 6 * 26.5)) fail_msg("starts are not uniform: chi-square %g", uniform);
    mr_batch_free(&batch);
    mr_task_free(task);
    task = open_task("text", 2, CONTEXT, (setting[]){{"data", path}, {"vocab", "bytes"}, {0}});
    check_places(task);
    check_two_threads(task);
    mr_task_free(task);
}

/* 4,096 bytes are encoded at once: tests characters that straddle the boundary, and each width of a stored token. */
static void text_of_characters_is_split_by_characters(void **state)
{
    (void)state;
    static const int alphabets[] = {100, 300, 70000};
    enum { N = 80000 };
    char *text = mr_alloc(N, 4), path[MR_TEXT_MAX];
    int32_t *got = mr_alloc(N, sizeof *got);
    for (int a = 0; a < 3; a++) {
        mr_vocab one = {.kind = MR_VOCAB_CHARS, .size = 1};
        size_t size = 0;
        for (int i = 0; i < N; i++) {
            uint32_t c = 0x10000u + (uint32_t)(i * 11 % alphabets[a]) * 3 % 70000;
            one.codepoints = i == 0 ? (uint32_t[]){'x'} : &c;
            size += (size_t)mr_vocab_decode(&one, 0, text + size);
        }
        write_file("wide", text, size, path);
        mr_task *task = open_task("text", 7, 100, (setting[]){{"data", path}, {"split", "0.3"}, {0}});
        assert_int_equal(collect_test_text(task, got), N - 24000 - 1);
        for (int i = 24001; i < N; i++) {
            uint32_t c = 0x10000u + (uint32_t)(i * 11 % alphabets[a]) * 3 % 70000;
            if (task->vocab->codepoints[got[i - 24001]] != c) fail_msg("character %d of the text is another one", i);
        }
        assert_int_equal(task->interface.inputs, task->vocab->size);
        assert_int_equal(task->vocab->size, (a == 2 ? 70000 : alphabets[a]) + 1);
        mr_task_free(task);
    }
    mr_free(text);
    mr_free(got);
}

static void text_uses_the_vocabulary_that_it_is_given(void **state)
{
    (void)state;
    char path[MR_TEXT_MAX];
    mr_vocab *given;
    const char *good = "cabcabcabcabcabcabcab", *bad = "abcabcabcabc\ncab\xC3\xA9"
                                                       "abc";
    assert_int_equal(mr_vocab_build(MR_VOCAB_CHARS, "\nxyzabc", 7, &given, NULL), 0);
    write_file("given", good, strlen(good), path);
    mr_task *task = new_task("text", 2, 4, (setting[]){{"data", path}, {"vocab", "bytes"}, {0}});
    task->given = given;
    assert_int_equal(mr_task_open(task, NULL), 0);
    assert_ptr_equal(task->vocab, given);
    assert_int_equal(task->interface.inputs, 7);
    mr_batch batch = new_batch(task);
    task->type->eval_batch(task, 0, &batch);
    assert_int_equal(batch.ids[0], 3); /* good[18] is c, the fourth of \n a b c x y z */
    mr_batch_free(&batch);
    mr_task_free(task);
    write_file("given", bad, strlen(bad), path);
    task = new_task("text", 2, 4, (setting[]){{"data", path}, {0}});
    task->given = given;
    refused(task, MR_EDATA, "given, line 2, byte 17: the character U+00E9 (\"é\") is not in the vocabulary");
    char far[6000];
    memset(far, 'a', sizeof far);
    far[100] = far[4999] = '\n';
    far[5500] = 'q';
    write_file("given", far, sizeof far, path);
    task = new_task("text", 2, 4, (setting[]){{"data", path}, {0}});
    task->given = given;
    refused(task, MR_EDATA, "given, line 3, byte 5501: the character U+0071");
    mr_vocab_free(given);
}

static void text_that_cannot_be_used_is_explained(void **state)
{
    (void)state;
    char path[MR_TEXT_MAX], missing[MR_TEXT_MAX];
    const setting data[] = {{"data", path}, {0}};
    in_folder("missing", missing);
    refused(new_task("text", 1, 4, (setting[]){{0}}), MR_ECONFIG, "--data FILE");
    refused(new_task("text", 1, 4, (setting[]){{"data", missing}, {0}}), MR_EIO, missing);
    refused(new_task("text", 1, 4, (setting[]){{"data", folder}, {0}}), MR_EIO, "directory");
    write_file("short", "", 0, path);
    refused(new_task("text", 1, 4, data), MR_EDATA, "short is empty");
    write_file("short", "a\nb\xFF", 4, path);
    refused(new_task("text", 1, 4, data), MR_EDATA, "short, line 2, byte 4: 0xFF is not UTF-8 here; use --vocab bytes");
    write_file("short", "abc", 3, path);
    refused(new_task("text", 1, 1, data), MR_EDATA, "3 tokens, 2 to train on and 1 to test on");
    write_file("short", "abcdefghijklmnopqrst", 20, path);
    refused(new_task("text", 1, 18, data), MR_EDATA,
            "has 20 tokens, 18 of them to train on: too few for a context of 18; lower --context to 17");
    refused(new_task("text", 1, 0, data), MR_ECONFIG, "--context");
    mr_task_free(open_task("text", 1, 17, data));
}

/* ---- Shakespeare */

static void shakespeare_is_the_published_text(void **state)
{
    (void)state;
    if (!getenv("MINRNN_DATA")) {
        skip_because("set MINRNN_DATA to the folder that has tinyshakespeare.txt");
    }
    int32_t *got = mr_alloc(111540, sizeof *got);
    char *path;
    mr_task *task = open_task("shakespeare", 64, 256, (setting[]){{0}});
    assert_int_equal(task->interface.inputs, 65);
    assert_int_equal(task->vocab->size, 65);
    assert_int_equal(task->test_tokens, 111539);
    assert_int_equal(task->eval_batches, 7); /* 111,539 tokens in windows of 256: 436 rows */
    assert_int_equal(collect_test_text(task, got), 111539);
    assert_int_equal(mr_data_find("shakespeare", &path, NULL), 0);
    FILE *file = fopen(path, "rb");
    mr_free(path);
    assert_non_null(file);
    assert_int_equal(fseek(file, 1003854 + 1, SEEK_SET), 0);
    for (int i = 0; i < 111539; i++) {
        int c = fgetc(file);
        if (task->vocab->codepoints[got[i]] != (uint32_t)c) fail_msg("test token %d is another one", i);
    }
    assert_int_equal(fgetc(file), EOF);
    fclose(file);
    mr_task_free(task);
    /* to choose settings by: the last tenth of the training text, which is nine tenths of all */
    task = open_task("shakespeare", 64, 256, (setting[]){{"split", "validation"}, {0}});
    assert_int_equal(task->test_tokens, 1003854 - 903468 - 1);
    mr_task_free(task);
    assert_int_equal(mr_data_get("shakespeare", NULL, NULL, &path, NULL), 0);
    mr_free(path);
    mr_free(got);
}

/* ---- recipes */

/* inih's handler: the [task] section must name a task, and its options must accept the keys and values. */
static int take_recipe_line(void *user, const char *section, const char *key, const char *value)
{
    mr_task **task = user;
    mr_error err;
    if (strcmp(section, "task")) return 1;
    if (!*task) *task = strcmp(key, "name") ? NULL : new_task(value, 1, 1, (setting[]){{0}});
    else {
        const mr_option *option = mr_option_find((*task)->type->options, key);
        if (!option || mr_option_parse(option, (*task)->settings, value, &err)) return 0;
    }
    return *task != NULL;
}

static void recipes_fit_their_tasks(void **state)
{
    (void)state;
    static const char *const names[] = {"selective-copy", "shakespeare", "text"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[MR_TEXT_MAX];
        mr_task *task = NULL;
        snprintf(path, sizeof path, "%s/recipes/%s.ini", MINRNN_SOURCE_DIR, names[i]);
        assert_int_equal(ini_parse(path, take_recipe_line, &task), 0);
        assert_non_null(task);
        assert_string_equal(task->type->name, names[i]);
        mr_task_free(task);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tasks_are_found_by_name),
        cmocka_unit_test(copy_has_the_published_shape),
        cmocka_unit_test(copy_holds_at_the_edges),
        cmocka_unit_test(copy_sequences_grow),
        cmocka_unit_test(copy_draws_are_uniform),
        cmocka_unit_test(copy_is_a_function_of_its_place),
        cmocka_unit_test(copy_test_set_is_the_same_for_every_batch_size),
        cmocka_unit_test(text_scores_every_test_token_once),
        cmocka_unit_test(text_trains_on_windows_of_the_training_text),
        cmocka_unit_test(text_of_characters_is_split_by_characters),
        cmocka_unit_test(text_uses_the_vocabulary_that_it_is_given),
        cmocka_unit_test(text_that_cannot_be_used_is_explained),
        cmocka_unit_test(shakespeare_is_the_published_text),
        cmocka_unit_test(recipes_fit_their_tasks),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
