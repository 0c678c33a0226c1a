/* JSON: what RFC 8259 allows is read, everything else is refused; the writer gives exactly the expected text. */
#include "assert_that.h"
#include "core/json.h"
#include "core/json_write.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A text in a buffer of exactly its size, so that a sanitizer sees every read beyond the end. */
typedef struct text {
    char *bytes, *room;
    mr_json json;
} text;

static text start(const char *bytes, size_t size)
{
    text t = {.bytes = malloc(size + 1), .room = malloc(size + 1)};
    assert_true(t.bytes);
    assert_true(t.room);
    t.bytes = realloc(t.bytes, size ? size : 1);
    memcpy(t.bytes, bytes, size);
    mr_json_start(&t.json, t.bytes, size, t.room);
    return t;
}

static void end(text *t)
{
    free(t->bytes);
    free(t->room);
}

static void check_string(const char *json, const char *expected, size_t size)
{
    size_t length = 99;
    text t = start(json, strlen(json));
    const char *read = mr_json_string(&t.json, &length);
    if (!read || length != size || memcmp(read, expected, size + 1))
        fail_msg("%s is read as %s", json, read ? read : "nothing");
    assert_true(mr_json_done(&t.json));
    end(&t);
}

static void check_no_string(const char *json)
{
    size_t length;
    text t = start(json, strlen(json));
    if (mr_json_string(&t.json, &length)) fail_msg("%s is read", json);
    assert_false(mr_json_done(&t.json));
    end(&t);
}

static void strings_are_read_or_refused(void **state)
{
    (void)state;
    check_string("\"\"", "", 0);
    check_string(" \t\r\n\"a b\" ", "a b", 3);
    check_string("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t", 8);
    check_string("\"\\u0041\\u00e9\\u00E9\\u20ac\"", "Aéé€", 8);
    check_string("\"\\ud83d\\ude00\\uDBFF\\uDFFF\"", "😀\xf4\x8f\xbf\xbf", 8);
    check_string("\"a\\u0000b\"", "a\0b", 3);
    check_string("\"é€😀\x7f\"", "é€😀\x7f", 10);
    static const char *const wrong[] = {"x",
                                        "1",
                                        "\"",
                                        "\"a",
                                        "\"\\",
                                        "\"\\\"",
                                        "\"\\u",
                                        "\"\\u12",
                                        "\"\\u123g\"",
                                        "\"\\ud800\"",
                                        "\"\\ud800x\"",
                                        "\"\\ud800\\n\"",
                                        "\"\\udc00\\udc00\"",
                                        "\"\\ud800xxdc00\"",
                                        "\"\\ud800\\u0041\"",
                                        "\"\\udc00\"",
                                        "\"\\a\"",
                                        "\"\n\"",
                                        "\"\x01\"",
                                        "\"\xff\"",
                                        "\"\xc3\"",
                                        "\"\xed\xa0\x80\""};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) check_no_string(wrong[i]);
}

static void check_number(const char *json, size_t taken, int64_t whole)
{
    const char *number;
    int64_t value;
    text t = start(json, strlen(json));
    assert_int_equal(mr_json_whole(&t.json, &value), whole >= 0);
    if (whole >= 0) assert_that(value, ==, whole);
    mr_json_start(&t.json, t.bytes, strlen(json), t.room);
    size_t size = mr_json_number(&t.json, &number);
    if (size != taken) fail_msg("%s: %zu bytes are read as a number, not %zu", json, size, taken);
    end(&t);
}

static void numbers_are_read_or_refused(void **state)
{
    (void)state;
    check_number("0", 1, 0);
    check_number(" 10", 2, 10);
    check_number("9223372036854775807", 19, INT64_MAX);
    check_number("9223372036854775808", 19, -1);
    check_number("99999999999999999999", 20, -1);
    check_number("-1", 2, -1);
    check_number("-0", 2, -1);
    check_number("1.5e-3", 6, -1);
    check_number("1E+2", 4, -1);
    check_number("0.1", 3, -1);
    static const char *const wrong[] = {"", "-", "+1", "01", ".5", "1.", "1.e2", "1e", "1e+", "nan", "inf", "-a"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) check_number(wrong[i], 0, -1);
}

/* Reads {"a": [1, 2, …], …}; returns the sum of all numbers, or −1 where it is not that. */
static int64_t sum(const char *json)
{
    int64_t total = 0, value;
    size_t size;
    text t = start(json, strlen(json));
    int good = mr_json_enter(&t.json, '{');
    while (good && mr_json_item(&t.json, '}')) {
        good = mr_json_key(&t.json, &size) && mr_json_enter(&t.json, '[');
        while (good && mr_json_item(&t.json, ']')) {
            good = mr_json_whole(&t.json, &value);
            total += value;
        }
    }
    good = good && mr_json_done(&t.json);
    end(&t);
    return good ? total : -1;
}

static void objects_and_arrays_are_read(void **state)
{
    (void)state;
    assert_true(sum("{}") == 0);
    assert_true(sum(" { \"a\" : [ ] } ") == 0);
    assert_true(sum("{\"a\":[1,2],\"b\":[3]}") == 6);
    static const char *const wrong[] = {"",
                                        "{",
                                        "}",
                                        "[]",
                                        "{\"a\"}",
                                        "{\"a\":}",
                                        "{\"a\":[}",
                                        "{\"a\":[1}",
                                        "{\"a\":[1 2]}",
                                        "{\"a\":[1,]}",
                                        "{\"a\":[,1]}",
                                        "{\"a\":[1]",
                                        "{\"a\":[1],}",
                                        "{,\"a\":[1]}",
                                        "{\"a\":[1]\"b\":[2]}",
                                        "{\"a\" [1]}",
                                        "{a:[1]}",
                                        "{}}",
                                        "{} x",
                                        "{\"a\":[1]]}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (sum(wrong[i]) != -1) fail_msg("%s is read", wrong[i]);
}

static void words_are_matched(void **state)
{
    (void)state;
    text t = start(" null true", 10);
    assert_false(mr_json_word(&t.json, "true"));
    assert_true(mr_json_word(&t.json, "null"));
    assert_false(mr_json_done(&t.json));
    end(&t);
    t = start("tru", 3);
    assert_false(mr_json_word(&t.json, "true"));
    assert_int_equal(mr_json_peek(&t.json), 't');
    end(&t);
}

/* An object with every kind of value, nested and empty brackets. */
static void write_all_kinds(mr_json_writer *w)
{
    mr_json_write_open(w, '{');
    mr_json_write_key(w, "a\"b");
    mr_json_write_open(w, '[');
    mr_json_write_whole(w, INT64_MIN);
    mr_json_write_real(w, 0.1, 0);
    mr_json_write_real(w, 2.0 / 3, 3);
    mr_json_write_real(w, NAN, 0);
    mr_json_write_real(w, -INFINITY, 3);
    mr_json_write_close(w, ']');
    mr_json_write_key(w, "none");
    mr_json_write_open(w, '{');
    mr_json_write_close(w, '}');
    mr_json_write_key(w, "word");
    mr_json_write_word(w, "true");
    mr_json_write_key(w, "text");
    mr_json_write_string(w, "\n\xff", 2);
    mr_json_write_close(w, '}');
}

static void check_written(int spaced, const char *expected)
{
    mr_strbuf written = {0};
    mr_json_writer w = {.text = &written, .spaced = spaced};
    write_all_kinds(&w);
    assert_false(written.failed);
    assert_string_equal(written.data, expected);
    mr_strbuf_free(&written);
}

static void the_writer_starts_lines(void **state)
{
    (void)state;
    mr_strbuf written = {0};
    mr_json_writer w = {.text = &written, .spaced = 1};
    mr_json_write_open(&w, '[');
    for (int i = 0; i < 2; i++) {
        mr_json_write_line(&w);
        mr_json_write_whole(&w, i);
    }
    mr_json_write_whole(&w, 2);
    mr_json_write_close(&w, ']');
    assert_string_equal(written.data, "[\n  0,\n  1, 2]");
    mr_strbuf_free(&written);
}

static void the_writer_gives_valid_json(void **state)
{
    (void)state;
    check_written(0, "{\"a\\\"b\":[-9223372036854775808,0.1,0.667,null,null],\"none\":{},\"word\":true,"
                     "\"text\":\"\\n\\ufffd\"}");
    check_written(1, "{\"a\\\"b\": [-9223372036854775808, 0.1, 0.667, null, null], \"none\": {}, \"word\": true, "
                     "\"text\": \"\\n\\ufffd\"}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings_are_read_or_refused), cmocka_unit_test(numbers_are_read_or_refused),
        cmocka_unit_test(objects_and_arrays_are_read), cmocka_unit_test(words_are_matched),
        cmocka_unit_test(the_writer_starts_lines),     cmocka_unit_test(the_writer_gives_valid_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
