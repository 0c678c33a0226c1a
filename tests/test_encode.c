/* Unknown characters in a text: refused by name, skipped or replaced, whatever pieces the text comes in. */
#include "scratch.h"

#include "tasks/encode.h"

static mr_vocab *vocab_of(const char *characters)
{
    mr_vocab *vocab = NULL;
    mr_error err = {0};
    if (mr_vocab_build(MR_VOCAB_CHARS, characters, strlen(characters), &vocab, &err)) fail_msg("%s", err.text);
    return vocab;
}

/* Encodes `text` in pieces of `step` bytes (the tail of a cut character is kept for the next), and decodes it again. */
static int encode_in_pieces(mr_encoder *e, const char *text, size_t size, size_t step, char *back, mr_error *err)
{
    size_t at = 0, end = 0, written = 0;
    int status = 0;
    while (!status && at < size) {
        int32_t tokens[64];
        size_t count, used;
        end = end + step < size ? end + step : size;
        status = mr_encode_text(e, text + at, end - at, end == size, tokens, 64, &count, &used, err);
        for (size_t i = 0; i < count; i++) written += (size_t)mr_vocab_decode(e->vocab, tokens[i], back + written);
        at += used;
    }
    back[written] = 0;
    return status;
}

static void check(const char *vocabulary, mr_unknown unknown, const char *text, const char *expected, int64_t changed)
{
    mr_vocab *vocab = vocab_of(vocabulary);
    for (size_t step = 1; step <= strlen(text) + 1; step++) {
        mr_encoder e = {.vocab = vocab, .unknown = unknown};
        mr_error err = {0};
        char back[256];
        if (encode_in_pieces(&e, text, strlen(text), step, back, &err)) fail_msg("step %zu: %s", step, err.text);
        assert_string_equal(back, expected);
        assert_int_equal(e.changed, changed);
        assert_int_equal(e.offset, strlen(text));
    }
    mr_vocab_free(vocab);
}

static void check_refused(const char *vocabulary, mr_unknown unknown, const char *text, const char *sentence)
{
    mr_vocab *vocab = vocab_of(vocabulary);
    for (size_t step = 1; step <= strlen(text) + 1; step++) {
        mr_encoder e = {.vocab = vocab, .unknown = unknown};
        mr_error err = {0};
        char back[256];
        assert_int_equal(encode_in_pieces(&e, text, strlen(text), step, back, &err), MR_EDATA);
        if (!strstr(err.text, sentence)) fail_msg("step %zu: \"%s\" lacks \"%s\"", step, err.text, sentence);
    }
    mr_vocab_free(vocab);
}

static void skipped_characters_leave_no_token(void **state)
{
    (void)state;
    check("abc", MR_UNKNOWN_SKIP, "abc", "abc", 0);
    check("abc", MR_UNKNOWN_SKIP,
          "xaébz\xF0\x9F\x98\x80"
          "c\n",
          "abc", 5);
    check("abc", MR_UNKNOWN_SKIP, "xyz", "", 3);
}

static void the_first_replacement_that_is_known_is_taken(void **state)
{
    (void)state;
    check("ab ?\xEF\xBF\xBD", MR_UNKNOWN_REPLACE, "axéb",
          "a\xEF\xBF\xBD\xEF\xBF\xBD"
          "b",
          2);
    check("ab ?", MR_UNKNOWN_REPLACE, "axéb", "a??b", 2);
    check("ab ", MR_UNKNOWN_REPLACE, "axéb", "a  b", 2);
    check("ab", MR_UNKNOWN_REPLACE, "ab", "ab", 0); /* nothing to replace: nothing is missing */
}

static void errors_name_the_character_and_the_way_out(void **state)
{
    (void)state;
    check_refused("ab", MR_UNKNOWN_ERROR, "abé", "byte 3: the character U+00E9 (\"é\") is not in the vocabulary");
    check_refused("ab", MR_UNKNOWN_ERROR, "ab\n", "byte 3: the character U+000A is not in the vocabulary");
    check_refused("ab", MR_UNKNOWN_ERROR, "abé", "--unknown skip");
    check_refused("ab", MR_UNKNOWN_REPLACE, "aéxb", "byte 2: the character U+00E9");
    check_refused("ab", MR_UNKNOWN_REPLACE, "aéxb", "use --unknown skip");
}

static void bytes_that_are_not_utf8_are_never_skipped(void **state)
{
    (void)state;
    for (int unknown = MR_UNKNOWN_ERROR; unknown <= MR_UNKNOWN_REPLACE; unknown++) {
        check_refused("ab?", (mr_unknown)unknown,
                      "ab\xFF"
                      "a",
                      "byte 3: 0xFF is not UTF-8 here");
        check_refused("ab?", (mr_unknown)unknown, "ab\xC3", "byte 3: the text ends in the middle of a character");
    }
}

/* A full room ends a call without an error, and the next call continues there. */
static void little_room_is_no_error(void **state)
{
    (void)state;
    mr_vocab *vocab = vocab_of("abc?");
    mr_encoder e = {.vocab = vocab, .unknown = MR_UNKNOWN_REPLACE};
    const char *const text = "axbyc";
    int32_t tokens[5];
    size_t count, used, at = 0;
    mr_error err = {0};
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(mr_encode_text(&e, text + at, 5 - at, 1, &tokens[i], 1, &count, &used, &err), 0);
        assert_int_equal(count, 1);
        at += used;
    }
    assert_int_equal(at, 5);
    assert_int_equal(e.changed, 2);
    mr_vocab_free(vocab);
}

static void notes_count(void **state)
{
    (void)state;
    char note[MR_ENCODE_NOTE];
    assert_string_equal(mr_encode_note(MR_UNKNOWN_SKIP, 0, note), "");
    assert_string_equal(mr_encode_note(MR_UNKNOWN_SKIP, 1, note), "1 character that the vocabulary lacks was skipped");
    assert_string_equal(mr_encode_note(MR_UNKNOWN_REPLACE, 12, note),
                        "12 characters that the vocabulary lacks were replaced");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(skipped_characters_leave_no_token),
                                       cmocka_unit_test(the_first_replacement_that_is_known_is_taken),
                                       cmocka_unit_test(errors_name_the_character_and_the_way_out),
                                       cmocka_unit_test(bytes_that_are_not_utf8_are_never_skipped),
                                       cmocka_unit_test(little_room_is_no_error),
                                       cmocka_unit_test(notes_count)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
