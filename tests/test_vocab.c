/* Vocabularies: strict UTF-8, ascending tokens, text to tokens and back in pieces of any size, metadata and back. */
#include "scratch.h"

#include "core/mem.h"
#include "core/utf8.h"
#include "model/vocab.h"

static const char *const sample = "na\xC3\xAFve \xE2\x82\xAC"
                                  "5\n\xF0\x9F\x98\x80 abc"; /* naïve €5 ⏎ 😀 abc */

/* UTF-8 by enumeration: every code point except surrogates has one encoding, and nothing else is valid. */
static int naive_form(uint32_t c, unsigned char out[4])
{
    if (c < 0x80) return out[0] = (unsigned char)c, 1;
    if (c < 0x800) return out[0] = (unsigned char)(192 + c / 64), out[1] = (unsigned char)(128 + c % 64), 2;
    out[2] = (unsigned char)(128 + c % 64);
    if (c < 0x10000) return out[0] = (unsigned char)(224 + c / 4096), out[1] = (unsigned char)(128 + c / 64 % 64), 3;
    out[0] = (unsigned char)(240 + c / 262144);
    out[1] = (unsigned char)(128 + c / 4096 % 64);
    out[2] = (unsigned char)(128 + c / 64 % 64);
    out[3] = (unsigned char)(128 + c % 64);
    return 4;
}

static void every_character_has_its_form(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < 0x110000; c++) {
        unsigned char form[4];
        char written[4];
        uint32_t back = 0;
        int length = naive_form(c, form);
        if (c >= 0xD800 && c < 0xE000) {
            if (mr_utf8_read((char *)form, 3, &back) != MR_UTF8_INVALID)
                fail_msg("the surrogate %X was read", (unsigned)c);
            continue;
        }
        if (mr_utf8_read((char *)form, (size_t)length, &back) != length || back != c)
            fail_msg("U+%04X is not read", (unsigned)c);
        if (mr_utf8_write(c, written) != length || memcmp(written, form, (size_t)length))
            fail_msg("U+%04X is not written", (unsigned)c);
        for (int cut = 1; cut < length; cut++)
            if (mr_utf8_read((char *)form, (size_t)cut, &back) != MR_UTF8_UNFINISHED)
                fail_msg("U+%04X cut at %d", (unsigned)c, cut);
    }
}

static void what_is_not_utf8_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {"\x80",
                                        "\xBF",
                                        "\xC0\x80",
                                        "\xC0\xAF",
                                        "\xC1\xBF",
                                        "\xC3(",
                                        "\xE0\x80\x80",
                                        "\xE0\x9F\xBF",
                                        "\xED\xA0\x80",
                                        "\xED\xBF\xBF",
                                        "\xE2(\xA1",
                                        "\xE2\x82(",
                                        "\xF0\x80\x80\x80",
                                        "\xF0\x8F\xBF\xBF",
                                        "\xF4\x90\x80\x80",
                                        "\xF5\x80\x80\x80",
                                        "\xF8\x88\x80\x80",
                                        "\xFE",
                                        "\xFF",
                                        "\xF0\x9F\x98(",
                                        "\xE0\x80",
                                        "\xED\xA0",
                                        "\xF0\x8F",
                                        "\xF4\x90"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        uint32_t c;
        if (mr_utf8_read(wrong[i], strlen(wrong[i]), &c) != MR_UTF8_INVALID)
            fail_msg("sequence %zu was not refused", i);
    }
}

static void characters_are_ascending_and_distinct(void **state)
{
    (void)state;
    static const uint32_t expected[] = {'\n', ' ', '5', 'a', 'b', 'c', 'e', 'n', 'v', 0xEF, 0x20AC, 0x1F600};
    mr_vocab *v;
    assert_int_equal(mr_vocab_build(MR_VOCAB_CHARS, sample, strlen(sample), &v, NULL), 0);
    assert_int_equal(v->kind, MR_VOCAB_CHARS);
    assert_int_equal(v->size, sizeof expected / sizeof *expected);
    assert_memory_equal(v->codepoints, expected, sizeof expected);
    mr_vocab_free(v);
}

static void bytes_are_all_256(void **state)
{
    (void)state;
    mr_vocab *v;
    int32_t out[3];
    size_t count, used;
    char back[4];
    assert_int_equal(mr_vocab_build(MR_VOCAB_BYTES, "\xFF\x00z", 3, &v, NULL), 0);
    assert_int_equal(v->size, 256);
    assert_int_equal(mr_vocab_encode(v, "\xFF\x00z", 3, 1, 0, out, sizeof out / sizeof *out, &count, &used, NULL), 0);
    assert_int_equal(count, 3);
    assert_int_equal(used, 3);
    assert_int_equal(out[0], 255);
    assert_int_equal(out[1], 0);
    assert_int_equal(out[2], 'z');
    assert_int_equal(mr_vocab_decode(v, 255, back), 1);
    assert_int_equal((unsigned char)back[0], 255);
    assert_int_equal(mr_vocab_decode(v, 256, back), 0);
    assert_int_equal(mr_vocab_decode(v, -1, back), 0);
    mr_vocab_free(v);
}

static void errors_name_line_and_byte(void **state)
{
    (void)state;
    mr_vocab *v;
    mr_error err;
    assert_int_equal(mr_vocab_build(MR_VOCAB_CHARS, "ab\ncd\ne\xFFz", 9, &v, &err), MR_EDATA);
    assert_says(&err, "line 3, byte 8: 0xFF");
    assert_int_equal(mr_vocab_build(MR_VOCAB_CHARS, "ab\n\xE2\x82", 5, &v, &err), MR_EDATA);
    assert_says(&err, "line 2, byte 4: the text ends");
    assert_int_equal(mr_vocab_build(MR_VOCAB_CHARS, "", 0, &v, &err), MR_EDATA);
    assert_null(v);
}

/* Feeds the text in pieces of at most `piece` new bytes, as a caller that streams would. */
static size_t encode_in_pieces(const mr_vocab *v, const char *text, size_t piece, int32_t *out)
{
    size_t size = strlen(text), at = 0, total = 0, window = 0;
    while (at < size) {
        size_t count, used;
        window = window + piece > size - at ? size - at : window + piece;
        int last = at + window == size;
        assert_int_equal(mr_vocab_encode(v, text + at, window, last, at, out + total, 32 - total, &count, &used, NULL),
                         0);
        total += count;
        at += used;
        window -= used;
    }
    return total;
}

static void pieces_of_any_size_give_the_same_tokens(void **state)
{
    (void)state;
    mr_vocab *v;
    int32_t whole[32], pieces[32];
    char back[64];
    size_t length = 0;
    assert_int_equal(mr_vocab_build(MR_VOCAB_CHARS, sample, strlen(sample), &v, NULL), 0);
    size_t n = encode_in_pieces(v, sample, 100, whole);
    assert_int_equal(n, 14);
    for (size_t i = 0; i < n; i++) length += (size_t)mr_vocab_decode(v, whole[i], back + length);
    assert_int_equal(length, strlen(sample));
    assert_memory_equal(back, sample, length);
    for (size_t piece = 1; piece < 8; piece++) {
        assert_int_equal(encode_in_pieces(v, sample, piece, pieces), n);
        assert_memory_equal(pieces, whole, n * sizeof *whole);
    }
    assert_int_equal(mr_vocab_decode(v, v->size, back), 0);
    mr_vocab_free(v);
}

static void encoding_stops_where_the_error_is(void **state)
{
    (void)state;
    mr_vocab *v;
    mr_error err;
    int32_t out[8];
    size_t count, used;
    assert_int_equal(mr_vocab_build(MR_VOCAB_CHARS, "abc", 3, &v, NULL), 0);
    assert_int_equal(mr_vocab_encode(v, "ab\xC3\xA9", 4, 1, 100, out, sizeof out / sizeof *out, &count, &used, &err),
                     MR_EDATA);
    assert_says(&err, "byte 103: the character U+00E9 is not in the vocabulary");
    assert_int_equal(count, 2);
    assert_int_equal(used, 2);
    assert_int_equal(mr_vocab_encode(v, "a\xED\xA0\x80", 4, 0, 0, out, sizeof out / sizeof *out, &count, &used, &err),
                     MR_EDATA);
    assert_says(&err, "byte 2: 0xED");
    assert_int_equal(mr_vocab_encode(v, "a\xC3", 2, 0, 0, out, sizeof out / sizeof *out, &count, &used, &err), 0);
    assert_int_equal(used, 1);
    assert_int_equal(mr_vocab_encode(v, "a\xC3", 2, 1, 0, out, sizeof out / sizeof *out, &count, &used, &err),
                     MR_EDATA);
    assert_says(&err, "byte 2: the text ends");
    mr_vocab_free(v);
}

static void metadata_reads_back(void **state)
{
    (void)state;
    static const char text[] = "\0\x01\"\\/\x7F\n\xC3\xAF\xEF\xBF\xBF\xF4\x8F\xBF\xBF"; /* 0 is a valid character */
    mr_vocab *v, *back;
    assert_int_equal(mr_vocab_build(MR_VOCAB_CHARS, text, sizeof text, &v, NULL), 0);
    char *printed = mr_vocab_text(v);
    assert_non_null(printed);
    assert_int_equal(mr_vocab_parse(printed, &back, NULL), 0);
    assert_int_equal(back->kind, v->kind);
    assert_int_equal(back->size, v->size);
    assert_int_equal(v->size, 10);
    assert_memory_equal(back->codepoints, v->codepoints, (size_t)v->size * sizeof *v->codepoints);
    mr_free(printed);
    mr_vocab_free(v);
    mr_vocab_free(back);
    assert_int_equal(mr_vocab_parse("bytes", &back, NULL), 0);
    assert_int_equal(back->kind, MR_VOCAB_BYTES);
    assert_int_equal(back->size, 256);
    printed = mr_vocab_text(back);
    assert_string_equal(printed, "bytes");
    mr_free(printed);
    mr_vocab_free(back);
}

/* With room for fewer tokens than there are, it stops there and the next call continues;
 * without room it only counts. */
static void encoding_stops_where_the_room_ends(void **state)
{
    (void)state;
    mr_vocab *v;
    int32_t out[5] = {-7, -7, -7, -7, -7};
    size_t count, used;
    assert_int_equal(mr_vocab_build(MR_VOCAB_CHARS, sample, strlen(sample), &v, NULL), 0);
    assert_int_equal(mr_vocab_encode(v, sample, strlen(sample), 1, 0, out, 4, &count, &used, NULL), 0);
    assert_int_equal(count, 4);
    assert_int_equal(used, 5); /* n a ï v */
    assert_int_equal(out[4], -7);
    assert_int_equal(mr_vocab_encode(v, sample, strlen(sample), 1, 0, NULL, 0, &count, &used, NULL), 0);
    assert_int_equal(count, 14);
    assert_int_equal(used, strlen(sample));
    mr_vocab_free(v);
}

static void printing_says_how_much_room_it_needs(void **state)
{
    (void)state;
    mr_vocab *v;
    char text[16] = "unchanged";
    size_t needed = 0;
    assert_int_equal(mr_vocab_build(MR_VOCAB_CHARS, "ab", 2, &v, NULL), 0);
    assert_int_equal(mr_vocab_print(v, text, 9, &needed, NULL), MR_EINVAL);
    assert_int_equal(needed, 10);
    assert_string_equal(text, "unchanged");
    assert_int_equal(mr_vocab_print(v, text, 10, &needed, NULL), 0);
    assert_string_equal(text, "[\"a\",\"b\"]");
    mr_vocab_free(v);
}

static void printed_form_is_what_is_promised(void **state)
{
    (void)state;
    mr_vocab *v;
    assert_int_equal(mr_vocab_build(MR_VOCAB_CHARS, "b\"a\n", 4, &v, NULL), 0);
    char *printed = mr_vocab_text(v);
    assert_string_equal(printed, "[\"\\n\",\"\\\"\",\"a\",\"b\"]");
    mr_free(printed);
    mr_vocab_free(v);
}

static void wrong_metadata_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "",          "byte",          "[]",     "{}",        "[\"ab\"]",   "[\"\"]",        "[1]",  "[\"b\",\"a\"]",
        "\"a\"",     "[\"a\",\"a\"]", "[\"a\"", "[\"a\"] x", "[\"\xFF\"]", "[\"\\ud800\"]", "null", "[\"a\",null]",
        "[[\"a\"]]", "[     ]"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        mr_vocab *v;
        mr_error err;
        if (mr_vocab_parse(wrong[i], &v, &err) != MR_EFORMAT) fail_msg("\"%s\" was not refused", wrong[i]);
        assert_null(v);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_character_has_its_form),
        cmocka_unit_test(what_is_not_utf8_is_refused),
        cmocka_unit_test(characters_are_ascending_and_distinct),
        cmocka_unit_test(bytes_are_all_256),
        cmocka_unit_test(errors_name_line_and_byte),
        cmocka_unit_test(pieces_of_any_size_give_the_same_tokens),
        cmocka_unit_test(encoding_stops_where_the_error_is),
        cmocka_unit_test(encoding_stops_where_the_room_ends),
        cmocka_unit_test(printing_says_how_much_room_it_needs),
        cmocka_unit_test(metadata_reads_back),
        cmocka_unit_test(printed_form_is_what_is_promised),
        cmocka_unit_test(wrong_metadata_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
