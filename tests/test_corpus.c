/* A text of several files as data: errors name the file with its own line and byte, and reading can be stopped. */
#include "task_support.h"

#include "tasks/corpus.h"

/* A task over files of these contents; the names are those of the list. */
static mr_task *over(const char *const *names, const char *const *contents, const mr_vocab *given)
{
    char path[MR_TEXT_MAX], all[MR_TEXT_MAX] = "";
    for (int i = 0; names[i]; i++) {
        const size_t used = strlen(all);
        write_file(names[i], contents[i], strlen(contents[i]), path);
        snprintf(all + used, sizeof all - used, "%s%.300s", i ? "\n" : "", path);
    }
    mr_task *task = new_task("text", 1, 4, (setting[]){{"data", all}, {0}});
    task->given = given;
    return task;
}

static const char *const three[] = {"one", "two", "three", NULL};

static void places_are_those_of_the_file(void **state)
{
    (void)state;
    static const struct {
        const char *contents[3], *utf8, *unknown; /* what is said without a vocabulary, and with one */
    } cases[] = {
        {{"abc\nabc\n", "a\nb\xFF", "abc"},
         "/two, line 2, byte 4: 0xFF is not UTF-8 here",
         "/two, line 2, byte 4: 0xFF"},
        {{"abc\nabc\n", "\xFF", "abc"}, "/two, line 1, byte 1: 0xFF", "/two, line 1, byte 1: 0xFF"},
        {{"abc\nabc\xFF", "a", "abc"}, "/one, line 2, byte 8: 0xFF", "/one, line 2, byte 8: 0xFF"},
        {{"abc\nabc\n", "", "\n\nq\xFF"},
         "/three, line 3, byte 4: 0xFF",
         "/three, line 3, byte 3: the character U+0071"},
        {{"abcabc\n", "abc\n", "a\xC3"},
         "/three, line 1, byte 2: the text ends in the middle of a character",
         "/three, line 1, byte 2: the text ends in the middle"},
    };
    mr_vocab *given;
    assert_int_equal(mr_vocab_build(MR_VOCAB_CHARS, "\nabc", 4, &given, NULL), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        refused(over(three, cases[i].contents, NULL), MR_EDATA, cases[i].utf8);
        refused(over(three, cases[i].contents, given), MR_EDATA, cases[i].unknown);
    }
    mr_vocab_free(given);
}

/* Longer than the pieces in which a text is encoded. */
static void places_in_long_files(void **state)
{
    (void)state;
    enum { LONG = 10000 };
    char text[LONG + 1], last[LONG + 1];
    mr_vocab *given;
    assert_int_equal(mr_vocab_build(MR_VOCAB_CHARS, "\nabc", 4, &given, NULL), 0);
    for (int i = 0; i < LONG; i++) text[i] = last[i] = i % 10 == 9 ? '\n' : 'a';
    text[LONG] = last[LONG] = 0;
    last[8765] = 'q';
    refused(over(three, (const char *const[]){text, text, last}, given), MR_EDATA,
            "/three, line 877, byte 8766: the character U+0071");
    last[8765] = '\xFF';
    refused(over(three, (const char *const[]){text, text, last}, NULL), MR_EDATA, "/three, line 877, byte 8766: 0xFF");
    mr_vocab_free(given);
}

/* The files are one text: a character may begin in one and end in the next. */
static void a_character_may_lie_in_two_files(void **state)
{
    (void)state;
    mr_error err = {0};
    mr_task *task = over(three,
                         (const char *const[]){"abcabcabcabc\xC3",
                                               "\xA9"
                                               "abcabc",
                                               "abc"},
                         NULL);
    if (mr_task_open(task, &err)) fail_msg("%s", err.text);
    assert_int_equal(mr_vocab_size(task->vocab), 4);
    mr_task_free(task);
}

static void a_stopped_task_is_not_opened(void **state)
{
    (void)state;
    mr_stop stop = 2;
    mr_task *task = over(three, (const char *const[]){"abcabcabc", "abcabcabc", "abcabcabc"}, NULL);
    task->stop = &stop;
    refused(task, MR_ESTOPPED, "stopped while");
    /* the bytes are there already: the corpus itself looks */
    mr_error err = {0};
    task = new_task("text", 1, 4, (setting[]){{0}});
    task->stop = &stop;
    mr_corpus_source source = {.name = "a text", .bytes = mr_strdup("abcabcabc"), .size = 9, .split = 0.5};
    assert_int_equal(mr_corpus_open(task, source, &err), MR_ESTOPPED);
    assert_says(&err, "a text");
    stop = 0;
    mr_corpus_close(task);
    source.bytes = mr_strdup("abcabcabcabcabc");
    source.size = 15;
    if (mr_corpus_open(task, source, &err)) fail_msg("%s", err.text);
    mr_task_free(task);
}

/* Which tokens a text of 100 different bytes is trained on and scored on, in windows of 4. */
static void expect_parts(int validation, int first, int end)
{
    enum { SIZE = 100, TRIES = 200 };
    mr_error err = {0};
    mr_task *task = new_task("text", 1, 4, (setting[]){{0}});
    mr_corpus_source source = {.name = "a text",
                               .bytes = mr_alloc(SIZE, 1),
                               .size = SIZE,
                               .split = 0.9,
                               .kind = MR_VOCAB_BYTES,
                               .validation = validation};
    for (int i = 0; i < SIZE; i++) source.bytes[i] = (char)i;
    if (mr_corpus_open(task, source, &err)) fail_msg("%s", err.text);
    mr_batch batch = new_batch(task);
    int next = first, last_trained = 0;
    for (int i = 0; i < task->eval_batches; i++) {
        mr_corpus_eval_batch(task, i, &batch);
        for (int t = 0; t < batch.T && batch.target[t] >= 0; t++, next++) {
            assert_int_equal(batch.ids[t], next);
            assert_int_equal(batch.target[t], next + 1);
        }
    }
    assert_int_equal(next + 1, end);
    assert_int_equal(task->test_tokens, end - first - 1);
    for (uint32_t step = 1; step <= TRIES; step++) {
        mr_corpus_train_batch(task, step, 0, &batch);
        if (batch.target[3] > last_trained) last_trained = batch.target[3];
    }
    assert_int_equal(last_trained, first - 1);
    mr_batch_free(&batch);
    mr_task_free(task);
}

/* The validation text is the end of the training text, and is not trained on; the test text is then in neither. */
static void validation_is_held_out(void **state)
{
    (void)state;
    expect_parts(0, 90, 100);
    expect_parts(1, 81, 90);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_are_those_of_the_file), cmocka_unit_test(places_in_long_files),
        cmocka_unit_test(a_character_may_lie_in_two_files), cmocka_unit_test(a_stopped_task_is_not_opened),
        cmocka_unit_test(validation_is_held_out)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
