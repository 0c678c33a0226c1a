/* The option tables: every type read, printed and refused; defaults; mistyped keys. */
#include "assert_that.h"
#include "core/options.h"
#include "skip_because.h"

#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

typedef struct settings {
    int64_t layers, seed;
    double dropout, rate, any;
    int flag, norm;
    double betas[2];
    char data[MR_TEXT_MAX];
    int64_t inputs;
} settings;

static const char *const norms[] = {"rms", "layer", NULL};

static const mr_option table[] = {
    {"layers", MR_OPT_INT, offsetof(settings, layers), "3", 1, 1000000, NULL, "", 0},
    {"seed", MR_OPT_INT, offsetof(settings, seed), "-1", -0x1p63, 0x1p63, NULL, "", 0},
    {"dropout", MR_OPT_REAL, offsetof(settings, dropout), "0.1", 0, 0.95, NULL, "", 0},
    {"rate", MR_OPT_REAL, offsetof(settings, rate), "3e-4", -1e300, 1e300, NULL, "", 0},
    {"any", MR_OPT_REAL, offsetof(settings, any), "0", -INFINITY, INFINITY, NULL, "", 0},
    {"flag", MR_OPT_BOOL, offsetof(settings, flag), "yes", 0, 0, NULL, "", 0},
    {"norm", MR_OPT_CHOICE, offsetof(settings, norm), "layer", 0, 0, norms, "", 0},
    {"betas", MR_OPT_PAIR, offsetof(settings, betas), "0.9,0.99", 0, 1, NULL, "", 0},
    {"data", MR_OPT_TEXT, offsetof(settings, data), "", 0, 0, NULL, "", 0},
    {"inputs", MR_OPT_INT, offsetof(settings, inputs), NULL, 1, 100, NULL, "", MR_OPT_DERIVED},
    {.key = NULL},
};

static int set(settings *s, const char *key, const char *text, mr_error *err)
{
    return mr_option_parse(mr_option_find(table, key), s, text, err);
}

static void accepts(const char *key, const char *text, const char *printed)
{
    settings s, again;
    mr_error err = {0};
    char out[MR_TEXT_MAX], twice[MR_TEXT_MAX];
    mr_options_default(table, &s);
    assert_int_equal(set(&s, key, text, &err), 0);
    assert_string_equal(mr_option_print(mr_option_find(table, key), &s, out), printed);
    mr_options_default(table, &again);
    assert_int_equal(set(&again, key, out, NULL), 0);
    assert_string_equal(mr_option_print(mr_option_find(table, key), &again, twice), out);
}

static void refuses(const char *key, const char *text, const char *sentence)
{
    settings before, s;
    mr_error err = {0};
    memset(&before, 0, sizeof before);
    mr_options_default(table, &before);
    memcpy(&s, &before, sizeof s);
    assert_int_equal(set(&s, key, text, &err), MR_EINVAL);
    assert_int_equal(err.status, MR_EINVAL);
    if (sentence) assert_string_equal(err.text, sentence);
    assert_memory_equal(&s, &before, sizeof s);
}

static void defaults_are_set(void **state)
{
    (void)state;
    settings s;
    memset(&s, 0x5a, sizeof s);
    mr_options_default(table, &s);
    assert_int_equal(s.layers, 3);
    assert_int_equal(s.seed, -1);
    assert_that(s.dropout, ==, 0.1);
    assert_that(s.rate, ==, 3e-4);
    assert_int_equal(s.flag, 1);
    assert_int_equal(s.norm, 1);
    assert_that(s.betas[0], ==, 0.9);
    assert_that(s.betas[1], ==, 0.99);
    assert_string_equal(s.data, "");
    assert_int_equal(s.inputs, 0);
}

static void whole_numbers_are_read(void **state)
{
    (void)state;
    accepts("layers", "1", "1");
    accepts("layers", "+7", "7");
    accepts("layers", "1000000", "1000000");
    accepts("seed", "-12", "-12");
    accepts("seed", "9223372036854775807", "9223372036854775807");
    accepts("seed", "-9223372036854775808", "-9223372036854775808");
    refuses("layers", "0", "layers = 0: must be a whole number from 1 to 1000000");
    refuses("layers", "1000001", NULL);
    refuses("seed", "9223372036854775808",
            "seed = 9223372036854775808: must be a whole number from -9.223372036854776e+18 to 9.223372036854776e+18");
    refuses("seed", "-9223372036854775809", NULL);
    static const char *const wrong[] = {"",     " 3", "3 ", "3x",  "3.0",   "1e6", "1_000",
                                        "0x10", "+",  "-",  "--3", "three", "3,4"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) refuses("layers", wrong[i], NULL);
}

static void numbers_are_read(void **state)
{
    (void)state;
    accepts("dropout", "0", "0");
    accepts("dropout", ".5", "0.5");
    accepts("dropout", "0.95", "0.95");
    accepts("rate", "3e-4", "0.0003");
    accepts("rate", "1000", "1000");
    accepts("rate", "10000", "10000");
    accepts("rate", "250.0", "250");
    accepts("rate", "1e20", "1e+20");
    accepts("rate", "-0.1", "-0.1");
    accepts("rate", "0.30000000000000004", "0.30000000000000004");
    refuses("dropout", "1.5", "dropout = 1.5: must be a number from 0 to 0.95");
    refuses("dropout", "-0.01", NULL);
    static const char *const wrong[] = {"",      " 0",     "0 ", "0,5", "nan",  "inf", "-inf", "0x1p-3",
                                        "1e999", "-1e999", "e",  ".",   "0.5.", "1e",  "0.5x"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) refuses("any", wrong[i], NULL);
    accepts("any", "1e308", "1e+308");
}

/* Any number that is printed reads back as the same number. */
static void numbers_read_back_exactly(void **state)
{
    (void)state;
    settings s;
    char out[MR_TEXT_MAX];
    const mr_option *rate = mr_option_find(table, "rate");
    uint64_t bits = 88172645463325252u;
    for (int i = 0; i < 20000; i++) {
        double value;
        bits ^= bits << 13, bits ^= bits >> 7, bits ^= bits << 17;
        memcpy(&value, &bits, sizeof value);
        if (!(fabs(value) <= 1e300)) continue;
        s.rate = value;
        mr_option_print(rate, &s, out);
        s.rate = 0;
        assert_int_equal(mr_option_parse(rate, &s, out, NULL), 0);
        assert_memory_equal(&s.rate, &value, sizeof value);
    }
}

/* A host program may have set a locale with a decimal comma; skipped where the system has none. */
static void the_locale_does_not_matter(void **state)
{
    (void)state;
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "fr_FR.utf8"};
    const char *chosen = NULL;
    char half[8];
    for (size_t i = 0; i < sizeof names / sizeof *names && !chosen; i++) chosen = setlocale(LC_NUMERIC, names[i]);
    if (!chosen) skip_because("no locale with a decimal comma is installed");
    snprintf(half, sizeof half, "%.1f", 0.5);
    assert_string_equal(half, "0,5");
    accepts("rate", "0.5", "0.5");
    accepts("betas", "0.5,0.25", "0.5,0.25");
    refuses("rate", "0,5", NULL);
    snprintf(half, sizeof half, "%.1f", 0.5);
    assert_string_equal(half, "0,5");
    setlocale(LC_NUMERIC, "C");
}

static void yes_and_no_are_read(void **state)
{
    (void)state;
    static const char *const yes[] = {"yes", "true", "1", "on"}, *const no[] = {"no", "false", "0", "off"};
    for (int i = 0; i < 4; i++) {
        accepts("flag", yes[i], "yes");
        accepts("flag", no[i], "no");
    }
    refuses("flag", "maybe", "flag = maybe: must be yes or no");
    refuses("flag", "", NULL);
    refuses("flag", "yes ", NULL);
}

static void choices_are_read(void **state)
{
    (void)state;
    accepts("norm", "rms", "rms");
    accepts("norm", "layer", "layer");
    refuses("norm", "rns", "norm = rns: must be one of rms, layer");
    refuses("norm", "", NULL);
    refuses("norm", "rm", NULL);
}

static void pairs_are_read(void **state)
{
    (void)state;
    accepts("betas", "0.8,0.95", "0.8,0.95");
    accepts("betas", "0.8, 0.95", "0.8,0.95");
    accepts("betas", "0.8 ,1", "0.8,1");
    refuses("betas", "0.9", "betas = 0.9: must be two numbers (as in 0.9,0.99), each from 0 to 1");
    static const char *const wrong[] = {"",        ",",        "0.9,",    ",0.9",    "0.9,0.9,0.9",
                                        "0.9,1.1", "-0.1,0.5", "0.9,nan", "0 1,0.5", "0.9,0.5 "};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) refuses("betas", wrong[i], NULL);
}

static void texts_are_read(void **state)
{
    (void)state;
    char text[MR_TEXT_MAX + 1];
    accepts("data", "a file.txt", "a file.txt");
    accepts("data", "", "");
    memset(text, 'x', sizeof text);
    text[MR_TEXT_MAX - 1] = 0;
    accepts("data", text, text);
    memset(text, 'x', sizeof text);
    text[MR_TEXT_MAX] = 0;
    refuses("data", text, NULL);
}

/* However long the value, the message still says what is allowed. */
static void long_values_are_shortened_in_messages(void **state)
{
    (void)state;
    char text[4096];
    settings s;
    mr_error err;
    memset(text, '7', sizeof text);
    text[sizeof text - 1] = 0;
    assert_int_equal(set(&s, "layers", text, &err), MR_EINVAL);
    assert_non_null(strstr(err.text, "...: must be a whole number from 1 to 1000000"));
}

static void keys_are_found(void **state)
{
    (void)state;
    assert_ptr_equal(mr_option_find(table, "norm"), &table[6]);
    assert_ptr_equal(mr_option_find(table, "layers"), &table[0]);
    assert_null(mr_option_find(table, "layer"));
    assert_null(mr_option_find(table, ""));
}

static void mistyped_keys_are_suggested(void **state)
{
    (void)state;
    static const mr_option more[] = {{.key = "conv-place"}, {.key = "conv"}, {.key = "normalize-gates"}, {.key = NULL}};
    const mr_option *const tables[] = {table, more, NULL};
    assert_string_equal(mr_option_nearest(tables, "layesr"), "layers");  /* two neighbours swapped */
    assert_string_equal(mr_option_nearest(tables, "dropot"), "dropout"); /* one missing */
    assert_string_equal(mr_option_nearest(tables, "beatas"), "betas");   /* one too many */
    assert_string_equal(mr_option_nearest(tables, "nirm"), "norm");      /* one wrong */
    assert_string_equal(mr_option_nearest(tables, "nrom"), "norm");      /* a swap counts once, as four letters allow */
    assert_string_equal(mr_option_nearest(tables, "conv_place"), "conv-place");
    assert_string_equal(mr_option_nearest(tables, "normalise_gates"), "normalize-gates");
    assert_string_equal(mr_option_nearest(tables, "conv"), "conv");
    assert_null(mr_option_nearest(tables, "niem"));   /* two wrong of four */
    assert_null(mr_option_nearest(tables, "inputs")); /* derived: users cannot set it */
    assert_null(mr_option_nearest(tables, "temperature"));
    assert_null(mr_option_nearest(tables, ""));
    char long_key[1000];
    memset(long_key, 'a', sizeof long_key);
    long_key[sizeof long_key - 1] = 0;
    assert_null(mr_option_nearest(tables, long_key));
}

/* Values of a row that may be given several times are lines of its field. */
static void keys_may_take_many_values(void **state)
{
    (void)state;
    char text[MR_TEXT_MAX + 1];
    settings s;
    mr_error err;
    const mr_option *data = mr_option_find(table, "data");
    assert_int_equal(mr_option_parse(data, &s, "a.txt", &err), 0);
    assert_int_equal(mr_option_add(data, &s, "b c.txt", &err), 0);
    assert_int_equal(mr_option_add(data, &s, "-", &err), 0);
    assert_string_equal(s.data, "a.txt\nb c.txt\n-");
    memset(text, 'x', sizeof text);
    text[MR_TEXT_MAX] = 0;
    text[MR_TEXT_MAX - 1 - strlen(s.data) - 1] = 0; /* the last that fits */
    settings full = s;
    assert_int_equal(mr_option_add(data, &full, text, &err), 0);
    assert_int_equal(strlen(full.data), MR_TEXT_MAX - 1);
    text[strlen(text)] = 'x';
    assert_int_equal(mr_option_add(data, &s, text, &err), MR_EINVAL);
    assert_non_null(strstr(err.text, "all values together"));
    assert_string_equal(s.data, "a.txt\nb c.txt\n-");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_set),
        cmocka_unit_test(whole_numbers_are_read),
        cmocka_unit_test(numbers_are_read),
        cmocka_unit_test(numbers_read_back_exactly),
        cmocka_unit_test(the_locale_does_not_matter),
        cmocka_unit_test(yes_and_no_are_read),
        cmocka_unit_test(choices_are_read),
        cmocka_unit_test(pairs_are_read),
        cmocka_unit_test(texts_are_read),
        cmocka_unit_test(long_values_are_shortened_in_messages),
        cmocka_unit_test(keys_are_found),
        cmocka_unit_test(mistyped_keys_are_suggested),
        cmocka_unit_test(keys_may_take_many_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
