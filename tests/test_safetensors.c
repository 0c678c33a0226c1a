/* The container: what is written reads back, and the same content gives the same bytes. */
#include "assert_that.h"
#include "core/file.h"
#include "core/mem.h"
#include "core/safetensors.h"
#include "safetensors_support.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- writing and reading back */

static const float floats[6] = {1, -2, 3.5f, 0, 1e-30f, 7};
static const double doubles[1] = {3.25};
static const uint8_t bytes3[3] = {9, 8, 7};
static const int64_t longs[2] = {-1, INT64_MAX};

static void add_content(mr_st_writer *w, int reversed)
{
    for (int i = 0; i < 7; i++) {
        int which = reversed ? 6 - i : i, rc = -1;
        switch (which) {
        case 0: rc = mr_st_add(w, "b.weight", MR_ST_F32, 2, (int64_t[]){2, 3}, floats); break;
        case 1: rc = mr_st_add(w, "a.bytes", MR_ST_U8, 1, (int64_t[]){3}, bytes3); break;
        case 2: rc = mr_st_add(w, "c \"\\\n\x01 é €", MR_ST_F64, 0, NULL, doubles); break;
        case 3: rc = mr_st_add(w, "empty", MR_ST_BF16, 2, (int64_t[]){5, 0}, NULL); break;
        case 4: rc = mr_st_add(w, "long", MR_ST_I64, 1, (int64_t[]){2}, longs); break;
        case 5: rc = mr_st_add_meta(w, "format", "minrnn"); break;
        case 6: rc = mr_st_add_meta(w, "k \"\\\t", "line\nquote\" back\\ 😀 \x7f"); break;
        }
        assert_int_equal(rc, 0);
    }
}

static void write_content(int reversed, char **data, size_t *size)
{
    mr_error err = {0};
    mr_st_writer *w = mr_st_writer_new();
    add_content(w, reversed);
    if (mr_st_write(w, path, &err)) fail_msg("%s", err.text);
    mr_st_writer_free(w);
    assert_int_equal(mr_file_read(path, 1 << 20, data, size, &err), 0);
}

static void check_tensor(const mr_st *st, const char *name, mr_st_dtype dtype, int ndim, const int64_t *shape,
                         const void *data, size_t bytes)
{
    const mr_st_tensor *tensor = mr_st_find(st, name);
    assert_non_null(tensor);
    assert_string_equal(tensor->name, name);
    assert_int_equal(tensor->dtype, dtype);
    assert_int_equal(tensor->ndim, ndim);
    for (int i = 0; i < ndim; i++) assert_int_equal(tensor->shape[i], shape[i]);
    assert_int_equal(tensor->bytes, bytes);
    char copy[64];
    assert_that(bytes, <=, sizeof copy);
    assert_int_equal(mr_st_read(st, "it", tensor, copy, NULL), 0);
    if (bytes) assert_memory_equal(copy, data, bytes);
}

static void check_content(const mr_st *st)
{
    static const char *const order[] = {"a.bytes", "b.weight", "c \"\\\n\x01 é €", "empty", "long"};
    const char *key, *value;
    assert_int_equal(mr_st_count(st), 5);
    for (int i = 0; i < 5; i++) assert_string_equal(mr_st_at(st, i)->name, order[i]);
    assert_null(mr_st_at(st, 5));
    assert_null(mr_st_at(st, -1));
    assert_null(mr_st_find(st, "a"));
    check_tensor(st, "a.bytes", MR_ST_U8, 1, (int64_t[]){3}, bytes3, 3);
    check_tensor(st, "b.weight", MR_ST_F32, 2, (int64_t[]){2, 3}, floats, 24);
    check_tensor(st, order[2], MR_ST_F64, 0, NULL, doubles, 8);
    check_tensor(st, "empty", MR_ST_BF16, 2, (int64_t[]){5, 0}, NULL, 0);
    check_tensor(st, "long", MR_ST_I64, 1, (int64_t[]){2}, longs, 16);
    assert_int_equal(mr_st_meta_count(st), 2);
    assert_string_equal(mr_st_meta(st, "format"), "minrnn");
    assert_null(mr_st_meta(st, "forma"));
    mr_st_meta_at(st, 1, &key, &value);
    assert_string_equal(key, "k \"\\\t");
    assert_string_equal(value, "line\nquote\" back\\ 😀 \x7f");
}

static void what_is_written_reads_back(void **state)
{
    (void)state;
    char *data;
    size_t size;
    mr_st *st;
    mr_error err = {0};
    write_content(0, &data, &size);
    assert_int_equal(mr_st_open(path, &st, &err), 0);
    check_content(st);
    mr_st_close(st);
    assert_int_equal(mr_st_open_memory(data, size, "memory", &st, &err), 0);
    check_content(st);
    mr_st_close(st);
    mr_free(data);
}

static void the_same_content_gives_the_same_bytes(void **state)
{
    (void)state;
    char *first, *second;
    size_t size, again;
    uint64_t header;
    write_content(0, &first, &size);
    write_content(1, &second, &again);
    assert_int_equal(size, again);
    assert_memory_equal(first, second, size);
    memcpy(&header, first, 8);
    assert_int_equal((8 + header) % 64, 0);
    assert_int_equal(size, 8 + header + 3 + 24 + 8 + 16);
    assert_memory_equal(first + 8, "{\"__metadata__\":{\"format\":\"minrnn\",", 35);
    assert_memory_equal(first + 8 + header, bytes3, 3);
    mr_free(first);
    mr_free(second);
}

/* Every length of a name, so every length of padding. */
static void every_header_is_padded(void **state)
{
    (void)state;
    char name[80] = "", *data;
    size_t size;
    uint64_t header;
    for (size_t length = 0; length < 70; length++) {
        mr_st_writer *w = mr_st_writer_new();
        memset(name, 'n', length);
        assert_int_equal(mr_st_add(w, name, MR_ST_I8, 1, (int64_t[]){3}, bytes3), 0);
        assert_int_equal(mr_st_write(w, path, NULL), 0);
        mr_st_writer_free(w);
        assert_int_equal(mr_file_read(path, 1 << 20, &data, &size, NULL), 0);
        memcpy(&header, data, 8);
        assert_int_equal((8 + header) % 64, 0);
        assert_int_equal(size, 8 + header + 3);
        mr_free(data);
        mr_st *st;
        assert_int_equal(mr_st_open(path, &st, NULL), 0);
        check_tensor(st, name, MR_ST_I8, 1, (int64_t[]){3}, bytes3, 3);
        mr_st_close(st);
    }
}

static void a_file_without_tensors_is_valid(void **state)
{
    (void)state;
    mr_st *st;
    char *data;
    size_t size;
    mr_st_writer *w = mr_st_writer_new();
    assert_int_equal(mr_st_write(w, path, NULL), 0);
    mr_st_writer_free(w);
    assert_int_equal(mr_file_read(path, 1 << 20, &data, &size, NULL), 0);
    assert_int_equal(size, 64);
    assert_memory_equal(data, "\x38\0\0\0\0\0\0\0{}      ", 16);
    mr_free(data);
    assert_int_equal(mr_st_open(path, &st, NULL), 0);
    assert_int_equal(mr_st_count(st), 0);
    assert_int_equal(mr_st_meta_count(st), 0);
    assert_null(mr_st_meta(st, "format"));
    mr_st_close(st);
}

static void many_tensors_are_found(void **state)
{
    (void)state;
    enum { MANY = 1000 };
    static int32_t values[MANY];
    char name[32];
    mr_st *st;
    mr_st_writer *w = mr_st_writer_new();
    for (int i = 0; i < MANY; i++) {
        values[i] = i * 7;
        snprintf(name, sizeof name, "t%d", i);
        assert_int_equal(mr_st_add(w, name, MR_ST_I32, 1, (int64_t[]){1}, &values[i]), 0);
        assert_int_equal(mr_st_add_meta(w, name, name), 0);
    }
    assert_int_equal(mr_st_write(w, path, NULL), 0);
    mr_st_writer_free(w);
    assert_int_equal(mr_st_open(path, &st, NULL), 0);
    assert_int_equal(mr_st_count(st), MANY);
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "t%d", i);
        check_tensor(st, name, MR_ST_I32, 1, (int64_t[]){1}, &values[i], 4);
        assert_string_equal(mr_st_meta(st, name), name);
    }
    mr_st_close(st);
}

static void every_dtype_reads_back(void **state)
{
    (void)state;
    static const char *const names[] = {"F32", "F64", "F16", "BF16", "I64", "I32", "I16", "I8", "U8", "BOOL"};
    static const size_t sizes[] = {4, 8, 2, 2, 8, 4, 2, 1, 1, 1};
    for (int i = 0; i < 10; i++) {
        size_t bytes;
        assert_string_equal(mr_st_dtype_name((mr_st_dtype)i), names[i]);
        assert_int_equal(mr_st_bytes((mr_st_dtype)i, 2, (int64_t[]){3, 5}, &bytes), 0);
        assert_int_equal(bytes, 15 * sizes[i]);
    }
}

static void wrong_sizes_are_refused(void **state)
{
    (void)state;
    size_t bytes;
    int64_t nine[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    assert_int_equal(mr_st_bytes(MR_ST_U8, 8, nine, &bytes), 0);
    assert_int_equal(bytes, 1);
    assert_int_equal(mr_st_bytes(MR_ST_U8, 9, nine, &bytes), MR_EINVAL);
    assert_int_equal(mr_st_bytes(MR_ST_U8, -1, nine, &bytes), MR_EINVAL);
    assert_int_equal(mr_st_bytes((mr_st_dtype)99, 1, nine, &bytes), MR_EINVAL);
    assert_int_equal(mr_st_bytes(MR_ST_U8, 1, (int64_t[]){-1}, &bytes), MR_EINVAL);
    assert_int_equal(mr_st_bytes(MR_ST_U8, 2, (int64_t[]){0, -1}, &bytes), MR_EINVAL);
    assert_int_equal(mr_st_bytes(MR_ST_U8, 2, (int64_t[]){INT64_MAX, 3}, &bytes), MR_EINVAL);
    assert_int_equal(mr_st_bytes(MR_ST_F64, 1, (int64_t[]){INT64_MAX}, &bytes), MR_EINVAL);
    assert_int_equal(mr_st_bytes(MR_ST_U8, 3, (int64_t[]){INT64_MAX, 3, 0}, &bytes), MR_EINVAL);
    assert_int_equal(mr_st_bytes(MR_ST_U8, 3, (int64_t[]){0, INT64_MAX, 3}, &bytes), 0);
    assert_int_equal(bytes, 0);
}

/* ---- what cannot be written */

typedef struct wrong_content {
    const char *name, *key, *value, *expected;
    int ndim;
    int64_t size;
    int twice;
} wrong_content;

static void invalid_content_is_not_written(void **state)
{
    (void)state;
    static const wrong_content wrong[] = {
        {.name = "t\xff", .expected = "UTF-8", .ndim = 1, .size = 3},
        {.name = "t", .key = "k\xc0\x80", .value = "v", .expected = "UTF-8", .ndim = 1, .size = 3},
        {.name = "t", .key = "k", .value = "\xed\xa0\x80", .expected = "UTF-8", .ndim = 1, .size = 3},
        {.name = "t", .expected = "t: given twice", .ndim = 1, .size = 3, .twice = 1},
        {.name = "t", .key = "k", .value = "v", .expected = "k: given twice", .ndim = 1, .size = 3, .twice = 2},
        {.name = "t", .expected = "t: impossible type or shape", .ndim = 1, .size = -1},
        {.name = "t", .expected = "t: impossible type or shape", .ndim = 9, .size = 1},
        {.name = "__metadata__", .expected = "__metadata__: no tensor", .ndim = 1, .size = 3},
    };
    assert_int_equal(mr_file_replace(path, "old", 3, NULL), 0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const wrong_content *c = &wrong[i];
        int64_t shape[9] = {c->size, 1, 1, 1, 1, 1, 1, 1, 1};
        mr_error err = {0};
        char *data;
        size_t size;
        mr_st_writer *w = mr_st_writer_new();
        for (int n = 0; n < 1 + (c->twice == 1); n++) mr_st_add(w, c->name, MR_ST_U8, c->ndim, shape, bytes3);
        for (int n = 0; n < (c->key != NULL) + (c->twice == 2); n++) mr_st_add_meta(w, c->key, c->value);
        mr_st_add(w, "fine", MR_ST_U8, 1, (int64_t[]){3}, bytes3);
        assert_int_equal(mr_st_write(w, path, &err), MR_EINVAL);
        assert_non_null(strstr(err.text, path));
        assert_non_null(strstr(err.text, c->expected));
        mr_st_writer_free(w);
        assert_int_equal(mr_file_read(path, 100, &data, &size, NULL), 0);
        assert_string_equal(data, "old");
        mr_free(data);
    }
    mr_st_writer *w = mr_st_writer_new();
    assert_int_equal(mr_st_add(w, "t", MR_ST_U8, 1, (int64_t[]){3}, NULL), MR_EINVAL);
    mr_st_writer_free(w);
    mr_st_writer_free(NULL);
}

static void a_failed_write_is_reported(void **state)
{
    (void)state;
    mr_error err = {0};
    mr_st_writer *w = mr_st_writer_new();
    add_content(w, 0);
    assert_int_equal(mr_st_write(w, "/no/such/folder/x", &err), MR_EIO);
    assert_non_null(strstr(err.text, "/no/such/folder/x"));
    assert_int_equal(mr_st_write(w, path, &err), 0); /* the writer can still be used */
    mr_st_writer_free(w);
}

static void unreadable_files_are_refused(void **state)
{
    (void)state;
    mr_st *st;
    mr_error err = {0};
    assert_int_equal(mr_st_open("/no/such/file", &st, &err), MR_EIO);
    assert_null(st);
    assert_non_null(strstr(err.text, "/no/such/file"));
    assert_int_equal(mr_st_open(folder, &st, &err), MR_EIO);
    assert_int_equal(mr_st_open("/dev/zero", &st, &err), MR_EIO);
    mr_st_close(NULL);
}

/* ---- floats of 16 bits */

enum { PATTERNS = 1 << 16 };

/* What the bits stand for, by the definition of such formats. */
static double value_of(uint32_t bits, int exponent_bits, int fraction_bits)
{
    const int top = (1 << exponent_bits) - 1, bias = top / 2;
    const int exponent = (int)(bits >> fraction_bits) & top, fraction = (int)bits & ((1 << fraction_bits) - 1);
    const double sign = bits >> (exponent_bits + fraction_bits) ? -1 : 1;
    if (exponent == top) return fraction ? NAN : sign * INFINITY;
    if (!exponent) return sign * ldexp(fraction, 1 - bias - fraction_bits);
    return sign * ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
}

static void check_floats(const float *got, int exponent_bits, int fraction_bits)
{
    for (uint32_t i = 0; i < PATTERNS; i++) {
        const double expected = value_of(i, exponent_bits, fraction_bits);
        const int same = isnan(expected) ? isnan(got[i]) : got[i] == expected && !signbit(got[i]) == !signbit(expected);
        if (!same) fail_msg("pattern %04x is %.9g, not %.9g", (unsigned)i, (double)got[i], expected);
    }
}

static void write_halves(void)
{
    static uint16_t patterns[PATTERNS];
    mr_error err = {0};
    mr_st_writer *w = mr_st_writer_new();
    for (int i = 0; i < PATTERNS; i++) patterns[i] = (uint16_t)i;
    assert_int_equal(mr_st_add(w, "bf16", MR_ST_BF16, 1, (int64_t[]){PATTERNS}, patterns), 0);
    assert_int_equal(mr_st_add(w, "f16", MR_ST_F16, 2, (int64_t[]){256, 256}, patterns), 0);
    assert_int_equal(mr_st_add(w, "i16", MR_ST_I16, 1, (int64_t[]){PATTERNS}, patterns), 0);
    assert_int_equal(mr_st_add(w, "none", MR_ST_F16, 1, (int64_t[]){0}, NULL), 0);
    assert_int_equal(mr_st_write(w, path, &err), 0);
    mr_st_writer_free(w);
}

/* Every pattern there is: zeros, denormals, infinities and NaN among them; from a file and from memory. */
static void every_float_of_16_bits_is_converted(void **state)
{
    (void)state;
    static float got[PATTERNS];
    mr_error err = {0};
    char *data;
    size_t size;
    write_halves();
    assert_int_equal(mr_file_read(path, 1 << 24, &data, &size, &err), 0);
    for (int memory = 0; memory < 2; memory++) {
        mr_st *st;
        assert_int_equal(memory ? mr_st_open_memory(data, size, "x", &st, &err) : mr_st_open(path, &st, &err), 0);
        assert_int_equal(mr_st_read_floats(st, path, mr_st_find(st, "f16"), got, &err), 0);
        check_floats(got, 5, 10);
        assert_int_equal(mr_st_read_floats(st, path, mr_st_find(st, "bf16"), got, &err), 0);
        check_floats(got, 8, 7);
        assert_int_equal(mr_st_read_floats(st, path, mr_st_find(st, "none"), got, &err), 0);
        assert_int_equal(mr_st_elements(mr_st_find(st, "f16")), PATTERNS);
        assert_int_equal(mr_st_read_floats(st, path, mr_st_find(st, "i16"), got, &err), MR_EFORMAT);
        assert_non_null(strstr(err.text, "i16 is I16"));
        mr_st_close(st);
    }
    mr_free(data);
}

/* ---- floats of 64 bits */

enum { DOUBLES = 1300 }; /* more than are converted at a time */

static void write_doubles(double last)
{
    static double numbers[DOUBLES];
    mr_error err = {0};
    mr_st_writer *w = mr_st_writer_new();
    for (int i = 0; i < DOUBLES; i++) numbers[i] = (i % 2 ? -1 : 1) * exp2(i % 276 - 150) * (1 + i / 7919.0);
    numbers[DOUBLES - 1] = last;
    assert_int_equal(mr_st_add(w, "a", MR_ST_F64, 1, (int64_t[]){1}, &last), 0); /* so that "f64" begins elsewhere */
    assert_int_equal(mr_st_add(w, "f64", MR_ST_F64, 2, (int64_t[]){2, DOUBLES / 2}, numbers), 0);
    assert_int_equal(mr_st_write(w, path, &err), 0);
    mr_st_writer_free(w);
}

static int read_doubles(int memory, float got[DOUBLES], mr_error *err)
{
    mr_st *st;
    char *data;
    size_t size;
    assert_int_equal(mr_file_read(path, 1 << 24, &data, &size, err), 0);
    assert_int_equal(memory ? mr_st_open_memory(data, size, "x", &st, err) : mr_st_open(path, &st, err), 0);
    const int status = mr_st_read_floats(st, path, mr_st_find(st, "f64"), got, err);
    mr_st_close(st);
    mr_free(data);
    return status;
}

static void doubles_are_rounded_to_floats(void **state)
{
    (void)state;
    static float got[DOUBLES];
    mr_error err = {0};
    write_doubles(3.4028235e38);
    for (int memory = 0; memory < 2; memory++) {
        memset(got, 0, sizeof got);
        assert_int_equal(read_doubles(memory, got, &err), 0);
        for (int i = 0; i < DOUBLES - 1; i++)
            assert_true(got[i] == (float)((i % 2 ? -1 : 1) * exp2(i % 276 - 150) * (1 + i / 7919.0)));
        assert_true(got[DOUBLES - 1] == 3.4028235e38F);
    }
}

static void a_double_too_large_for_a_float_is_refused(void **state)
{
    (void)state;
    static float got[DOUBLES];
    mr_error err = {0};
    write_doubles(-3.5e38);
    for (int memory = 0; memory < 2; memory++) {
        assert_int_equal(read_doubles(memory, got, &err), MR_EFORMAT);
        assert_non_null(strstr(err.text, "tensor f64: element 1299 is too large for a float"));
    }
    write_doubles(INFINITY); /* not finite: as in the file, for the caller to find */
    assert_int_equal(read_doubles(0, got, &err), 0);
    assert_true(isinf(got[DOUBLES - 1]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(doubles_are_rounded_to_floats),
        cmocka_unit_test(a_double_too_large_for_a_float_is_refused),
        cmocka_unit_test(what_is_written_reads_back),
        cmocka_unit_test(the_same_content_gives_the_same_bytes),
        cmocka_unit_test(every_header_is_padded),
        cmocka_unit_test(a_file_without_tensors_is_valid),
        cmocka_unit_test(many_tensors_are_found),
        cmocka_unit_test(every_dtype_reads_back),
        cmocka_unit_test(wrong_sizes_are_refused),
        cmocka_unit_test(invalid_content_is_not_written),
        cmocka_unit_test(a_failed_write_is_reported),
        cmocka_unit_test(unreadable_files_are_refused),
        cmocka_unit_test(every_float_of_16_bits_is_converted),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
