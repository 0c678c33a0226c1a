/* Malformed and damaged containers: each is refused with a message that names the file and the tensor. */
#include "assert_that.h"
#include "core/file.h"
#include "core/mem.h"
#include "core/safetensors.h"
#include "safetensors_support.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

/* Opens a copy of exactly that size, so that a sanitizer sees every read beyond the end. */
static int open_bytes(const void *data, size_t size, mr_error *err)
{
    mr_st *st;
    void *copy = malloc(size ? size : 1);
    assert_non_null(copy);
    memcpy(copy, data, size);
    int rc = mr_st_open_memory(copy, size, "some.file", &st, err);
    assert_int_equal(rc == 0, st != NULL);
    mr_st_close(st);
    free(copy);
    return rc;
}

/* A file of that header, followed by `bytes` bytes of data. */
static int open_parts(const char *header, size_t length, size_t bytes, mr_error *err)
{
    uint64_t prefix = length;
    char *file = calloc(8 + length + bytes, 1);
    assert_non_null(file);
    memcpy(file, &prefix, 8);
    memcpy(file + 8, header, length);
    int rc = open_bytes(file, 8 + length + bytes, err);
    free(file);
    return rc;
}

static void check_refused(const char *header, size_t length, size_t bytes, const char *sentence)
{
    mr_error err = {0};
    int rc = open_parts(header, length, bytes, &err);
    if (rc != MR_EFORMAT || !strstr(err.text, sentence)) print_error("%s\n%s\n", header, err.text);
    assert_int_equal(rc, MR_EFORMAT);
    assert_int_equal(err.status, MR_EFORMAT);
    assert_non_null(strstr(err.text, "some.file: "));
    assert_non_null(strstr(err.text, sentence));
}

static void check_accepted(const char *header, size_t bytes)
{
    mr_error err = {0};
    if (open_parts(header, strlen(header), bytes, &err)) fail_msg("%s\n%s", header, err.text);
}

/* ---- malformed files, one defect each */

#define ENTRY(dtype, shape, offsets) "{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define ONE(dtype, shape, offsets) "{\"ten\":" ENTRY(dtype, shape, offsets) "}"
#define TWO(shape1, offsets1, shape2, offsets2)                                                                        \
    "{\"ten\":" ENTRY("\"U8\"", shape1, offsets1) ",\"two\":" ENTRY("\"U8\"", shape2, offsets2) "}"
#define GOOD ENTRY("\"F32\"", "[2]", "[0,8]")

static void odd_but_valid_headers_are_read(void **state)
{
    (void)state;
    check_accepted("{}", 0);
    check_accepted("{}   \n\t\r ", 0);
    check_accepted("{\"__metadata__\":{}}", 0);
    check_accepted("{\"__metadata__\":{\"a\":\"b [[[[{{{{ -0 \\\" [[[[ \\\\\"}}", 0);
    check_accepted("{\"ten\":" GOOD "}", 8);
    check_accepted("{\"ten\":" GOOD "}        ", 8);
    check_accepted("{ \"ten\" : " GOOD " , \"__metadata__\" : { } }", 8);
    check_accepted(ONE("\"F32\"", "[]", "[0,4]"), 4);
    check_accepted(ONE("\"F32\"", "[1,1,1,1,1,1,1,1]", "[0,4]"), 4);
    check_accepted(ONE("\"F32\"", "[0]", "[0,0]"), 0);
    check_accepted(ONE("\"F32\"", "[0,9223372036854775807]", "[0,0]"), 0);
    check_accepted(TWO("[4]", "[4,8]", "[4]", "[0,4]"), 8);
    check_accepted(TWO("[4]", "[0,4]", "[0]", "[4,4]"), 4);
    check_accepted(TWO("[4]", "[0,4]", "[0]", "[0,0]"), 4);
    check_accepted("{\"\":" GOOD "}", 8);
    check_accepted(ONE("\"F64\"", "[2]", "[0,16]"), 16);
    check_accepted(ONE("\"F16\"", "[2]", "[0,4]"), 4);
    check_accepted(ONE("\"BF16\"", "[2]", "[0,4]"), 4);
    check_accepted(ONE("\"I64\"", "[2]", "[0,16]"), 16);
    check_accepted(ONE("\"I32\"", "[2]", "[0,8]"), 8);
    check_accepted(ONE("\"I16\"", "[2]", "[0,4]"), 4);
    check_accepted(ONE("\"I8\"", "[2]", "[0,2]"), 2);
    check_accepted(ONE("\"BOOL\"", "[2]", "[0,2]"), 2);
}

typedef struct malformed {
    const char *header;
    size_t bytes;
    const char *expected;
} malformed;

static void check_all_refused(const malformed *cases, size_t count)
{
    for (const malformed *c = cases; c < cases + count; c++)
        check_refused(c->header, strlen(c->header), c->bytes, c->expected);
}

static void invalid_json_is_refused(void **state)
{
    (void)state;
    static const malformed cases[] = {
        {"", 0, "does not begin with {"},
        {" {}", 0, "does not begin with {"},
        {"[]", 0, "does not begin with {"},
        {"\xef\xbb\xbf{}", 0, "does not begin with {"},
        {"{", 0, "byte"},
        {"{}}", 0, "byte"},
        {"{}x", 0, "byte"},
        {"{}\x0b", 0, "byte"},
        {"{} {}", 0, "byte"},
        {"{\"a\"}", 0, "byte"},
        {"{\"a\":}", 0, "tensor a: its entry is not an object"},
        {"{'a':1}", 0, "byte"},
        {"{\"ten\":" GOOD ",}", 8, "byte"},
        {"{\"t\xff\":" GOOD "}", 8, "byte"},
        {"{\"t\xc0\xaf\":" GOOD "}", 8, "byte"},
        {"{\"t\xed\xa0\x80\":" GOOD "}", 8, "byte"},
        {"{\"t\xf4\x90\x80\x80\":" GOOD "}", 8, "byte"},
        {"{\"t\\ud800\":" GOOD "}", 8, "byte"},
        {"{\"t\\u0000\":" GOOD "}", 8, "zero byte in a key"},
        {"{\"t\\u12g4\":" GOOD "}", 8, "byte"},
        {"{\"t\\ud83d\\u0041\":" GOOD "}", 8, "byte"},
        {"{\"t\\udc00\":" GOOD "}", 8, "byte"},
        {"{\"__metadata__\":{\"a\":\"\\u0000\"}}", 0, "zero byte"},
        {"{\"__metadata__\":{\"a\" \"b\"}}", 0, "byte"},
        {"{\"__metadata__\":{\"a\":\"b\" \"c\":\"d\"}}", 0, "byte"},
        {"{\"__metadata__\":{,\"a\":\"b\"}}", 0, "byte"},
        {"{\"__metadata__\":{\"a\":\"b\",}}", 0, "byte"},
        {ONE("\"U8\"", "[1,]", "[0,1]"), 1, "tensor ten: shape"},
        {ONE("\"U8\"", "[1 1]", "[0,1]"), 1, "byte"},
        {"{\"t\n\":" GOOD "}", 8, "byte"},
        {"{\"t\\x\":" GOOD "}", 8, "byte"},
        {"{\"ten\":" GOOD ",\"ten\":" GOOD "}", 8, "duplicate"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "duplicate"},
        {"{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, "duplicate"},
        {"{\"ten\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0, "duplicate"},
        {ONE("\"U8\"", "[99999999999999999999]", "[0,1]"), 1, "tensor ten: shape"},
        {ONE("\"U8\"", "[-0]", "[0,0]"), 0, "tensor ten: shape"},
        {ONE("\"U8\"", "[01]", "[0,1]"), 1, "tensor ten: shape"},
        {ONE("\"U8\"", "[0x1]", "[0,1]"), 1, "byte"},
        {ONE("\"U8\"", "[9223372036854775808]", "[0,1]"), 1, "tensor ten: shape"},
        {ONE("\"U8\"", "[NaN]", "[0,1]"), 1, "tensor ten: shape"},
        {"{\"a\":{\"b\":[[]]}}", 0, "tensor a: its entry must have"},
        {"}{}", 0, "does not begin with {"},
        {"{}}}}}]]]]{", 0, "byte"},
        {"{\"a", 0, "byte"},
        {"{\"a\\", 0, "byte"},
        {"{\"a\":-", 0, "tensor a: its entry is not an object"},
    };
    check_all_refused(cases, sizeof cases / sizeof *cases);
#define WITH_ZERO(header, bytes) check_refused(header, sizeof header - 1, bytes, "its header has a zero byte")
    WITH_ZERO("{\0}", 0);
    WITH_ZERO("{}\0", 0);
    WITH_ZERO("{\"a\0b\":" GOOD "}", 8);
    WITH_ZERO(ONE("\"U8\"", "[1\0]", "[0,1]"), 1);
#undef WITH_ZERO
}

static void invalid_entries_are_refused(void **state)
{
    (void)state;
    static const malformed cases[] = {
        {"{\"__metadata__\":null}", 0, "__metadata__ is not an object"},
        {"{\"__metadata__\":[]}", 0, "__metadata__ is not an object"},
        {"{\"__metadata__\":\"x\"}", 0, "__metadata__ is not an object"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__ has a value"},
        {"{\"__metadata__\":{\"a\":\"b\",\"c\":null}}", 0, "__metadata__ has a value"},
        {"{\"__metadata__\":{\"a\":{}}}", 0, "__metadata__ has a value"},
        {"{\"ten\":null}", 0, "tensor ten: its entry is not an object"},
        {"{\"ten\":[\"U8\",[0],[0,0]]}", 0, "tensor ten: its entry is not an object"},
        {"{\"ten\":{}}", 0, "tensor ten: its entry must have"},
        {"{\"ten\":{\"shape\":[0],\"data_offsets\":[0,0]}}", 0, "tensor ten: its entry must have"},
        {"{\"ten\":{\"dtype\":\"U8\",\"data_offsets\":[0,0]}}", 0, "tensor ten: its entry must have"},
        {"{\"ten\":{\"dtype\":\"U8\",\"shape\":[0]}}", 0, "tensor ten: its entry must have"},
        {"{\"ten\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0],\"x\":1}}", 0,
         "tensor ten: its entry must have"},
        {"{\"ten\":{\"dtype\":\"U8\",\"shape\":[0],\"offsets\":[0,0]}}", 0, "tensor ten: its entry must have"},
        {ONE("1", "[0]", "[0,0]"), 0, "tensor ten: dtype is not a string"},
        {ONE("null", "[0]", "[0,0]"), 0, "tensor ten: dtype is not a string"},
        {ONE("\"F8_E4M3\"", "[1]", "[0,1]"), 1, "tensor ten: dtype F8_E4M3 is not supported"},
        {ONE("\"f32\"", "[1]", "[0,4]"), 4, "tensor ten: dtype f32 is not supported"},
        {ONE("\"U64\"", "[1]", "[0,8]"), 8, "tensor ten: dtype U64 is not supported"},
        {ONE("\"\"", "[1]", "[0,8]"), 8, "tensor ten: dtype  is not supported"},
        {ONE("\"U8\"", "0", "[0,0]"), 0, "tensor ten: shape"},
        {ONE("\"U8\"", "null", "[0,0]"), 0, "tensor ten: shape"},
        {ONE("\"U8\"", "{}", "[0,1]"), 1, "tensor ten: shape"},
        {ONE("\"U8\"", "[-1]", "[0,1]"), 1, "tensor ten: shape"},
        {ONE("\"U8\"", "[1.0]", "[0,1]"), 1, "tensor ten: shape"},
        {ONE("\"U8\"", "[1e0]", "[0,1]"), 1, "tensor ten: shape"},
        {ONE("\"U8\"", "[\"1\"]", "[0,1]"), 1, "tensor ten: shape"},
        {ONE("\"U8\"", "[true]", "[0,1]"), 1, "tensor ten: shape"},
        {ONE("\"U8\"", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), 1, "tensor ten: shape"},
        {ONE("\"U8\"", "[4294967296,4294967296]", "[0,0]"), 0, "tensor ten: its shape is too large"},
        {ONE("\"U8\"", "[4294967296,4294967296,0]", "[0,0]"), 0, "tensor ten: its shape is too large"},
        {ONE("\"F64\"", "[2305843009213693952]", "[0,0]"), 0, "tensor ten: its shape is too large"},
    };
    check_all_refused(cases, sizeof cases / sizeof *cases);
}

static void invalid_offsets_are_refused(void **state)
{
    (void)state;
    static const malformed cases[] = {
        {ONE("\"U8\"", "[1]", "[0]"), 1, "tensor ten: data_offsets are not"},
        {ONE("\"U8\"", "[1]", "[0,1,1]"), 1, "tensor ten: data_offsets are not"},
        {ONE("\"U8\"", "[1]", "[]"), 1, "tensor ten: data_offsets are not"},
        {ONE("\"U8\"", "[1]", "1"), 1, "tensor ten: data_offsets are not"},
        {ONE("\"U8\"", "[1]", "[-1,0]"), 1, "tensor ten: data_offsets are not"},
        {ONE("\"U8\"", "[1]", "[0,1.0]"), 1, "tensor ten: data_offsets are not"},
        {ONE("\"U8\"", "[1]", "[\"0\",1]"), 1, "tensor ten: data_offsets are not"},
        {ONE("\"U8\"", "[1]", "[1,0]"), 1, "tensor ten: data_offsets end before"},
        {ONE("\"U8\"", "[2]", "[0,2]"), 1, "tensor ten: its data lies beyond"},
        {ONE("\"U8\"", "[0]", "[2,2]"), 1, "tensor ten: its data lies beyond"},
        {ONE("\"U8\"", "[1]", "[9223372036854775806,9223372036854775807]"), 1, "tensor ten: its data lies beyond"},
        {ONE("\"U8\"", "[1]", "[0,2]"), 2, "tensor ten: its shape and dtype need 1 bytes, its data_offsets hold 2"},
        {ONE("\"F32\"", "[2]", "[0,4]"), 4, "tensor ten: its shape and dtype need 8"},
        {ONE("\"U8\"", "[0]", "[0,1]"), 1, "tensor ten: its shape and dtype need 0"},
        {ONE("\"U8\"", "[]", "[0,0]"), 0, "tensor ten: its shape and dtype need 1"},
        {ONE("\"U8\"", "[1]", "[1,2]"), 2, "tensor ten: unused bytes lie before"},
        {ONE("\"U8\"", "[1]", "[0,1]"), 2, "bytes that belong to no tensor"},
        {TWO("[4]", "[0,4]", "[4]", "[5,9]"), 9, "tensor two: unused bytes lie before"},
        {TWO("[4]", "[0,4]", "[4]", "[3,7]"), 7, "tensor two: its data overlaps"},
        {TWO("[4]", "[0,4]", "[4]", "[0,4]"), 4, "tensor two: its data overlaps"},
        {TWO("[4]", "[0,4]", "[2]", "[1,3]"), 4, "tensor two: its data overlaps"},
        {TWO("[4]", "[0,4]", "[0]", "[2,2]"), 4, "tensor two: its data overlaps"},
        {"{}", 1, "bytes that belong to no tensor"},
    };
    check_all_refused(cases, sizeof cases / sizeof *cases);
}

static void invalid_header_lengths_are_refused(void **state)
{
    (void)state;
    static const struct {
        uint64_t length;
        const char *expected;
    } cases[] = {
        {0, "does not begin with {"},       {11, "longer than the file"},
        {32 << 20, "longer than the file"}, {(32 << 20) + 1, "longer than 32 MiB"},
        {100000000, "longer than 32 MiB"},  {100000001, "not a model file"},
        {UINT64_MAX, "not a model file"},   {UINT64_MAX - 7, "not a model file"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char file[18] = "........{}        ";
        mr_error err = {0};
        memcpy(file, &cases[i].length, 8);
        assert_int_equal(open_bytes(file, sizeof file, &err), MR_EFORMAT);
        assert_non_null(strstr(err.text, cases[i].expected));
    }
    for (size_t size = 0; size < 8; size++) {
        mr_error err = {0};
        assert_int_equal(open_bytes("\2\0\0\0\0\0\0\0", size, &err), MR_EFORMAT);
        assert_non_null(strstr(err.text, "shorter than 8 bytes"));
    }
}

/* Endless nesting and lists are refused at the first byte that is too many. */
static void endless_nesting_is_refused_early(void **state)
{
    (void)state;
    enum { SIZE = 3000000 };
    static const struct {
        const char *start, *expected;
    } cases[] = {{"{\"a\":[", "not an object"}, {"{\"a\":{\"shape\":[", "shape"}, {"{\"a\":{\"shape\":{", "shape"}};
    char *header = malloc(SIZE);
    assert_non_null(header);
    memset(header, '[', SIZE);
    header[0] = '{';
    check_refused(header, SIZE, 0, "a key in quotes is missing");
    for (int c = 0; c < 3; c++) {
        for (int i = 0; i < SIZE; i++) header[i] = i % 2 ? ',' : '0';
        memcpy(header, cases[c].start, strlen(cases[c].start));
        check_refused(header, SIZE, 0, cases[c].expected);
    }
    free(header);
}

/* The densest header of the largest size takes only a few times its size in memory. */
static void large_headers_cost_little_memory(void **state)
{
    (void)state;
    enum { SIZE = 32 << 20 };
    static const char *const starts[] = {"{\"__metadata__\":{", "{"}, *const ends[] = {"}}", "}"};
    static const char *const fillings[] = {"\"%07x\":\"\",", "\"%07x\":" ENTRY("\"U8\"", "[0]", "[0,0]") ","};
    char *header = malloc(SIZE + 1);
    mr_error err = {0};
    struct rusage usage;
    assert_non_null(header);
    for (int f = 0; f < 2; f++) {
        int used = sprintf(header, "%s", starts[f]);
        for (int i = 0; used < SIZE - 80; i++) used += sprintf(header + used, fillings[f], (unsigned)i);
        memset(header + used, ' ', (size_t)(SIZE - used));
        memcpy(header + used - 1, ends[f], strlen(ends[f]));
        if (open_parts(header, SIZE, 0, &err)) fail_msg("%s", err.text);
    }
    free(header);
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* sanitizers use memory themselves */
    assert_that(usage.ru_maxrss, <, 500 * 1024); /* kilobytes, three copies of the header by this test included */
#endif
}

/* Control characters in a name must not reach a terminal. */
static void messages_hold_no_control_characters(void **state)
{
    (void)state;
    mr_error err = {0};
    const char *header = "{\"\\u001b[2J\\u007f\\n\":{}}";
    assert_int_equal(open_parts(header, strlen(header), 0, &err), MR_EFORMAT);
    assert_non_null(strstr(err.text, "tensor ?[2J??: its entry"));
}

/* ---- damage to a whole file */

/* A small valid file with metadata, a text to escape, an empty tensor and an unaligned one. */
static void make_sample(char **data, size_t *size)
{
    mr_st_writer *w = mr_st_writer_new();
    assert_non_null(w);
    mr_st_add_meta(w, "text", "line\nquote\" back\\ 😀");
    mr_st_add(w, "a.bytes", MR_ST_U8, 1, (int64_t[]){3}, "abc");
    mr_st_add(w, "b.weight", MR_ST_F32, 2, (int64_t[]){2, 3}, "four-byte values, six...");
    mr_st_add(w, "c é", MR_ST_F64, 0, NULL, "8 bytes!");
    mr_st_add(w, "empty", MR_ST_BF16, 2, (int64_t[]){5, 0}, NULL);
    assert_int_equal(mr_st_write(w, path, NULL), 0);
    mr_st_writer_free(w);
    assert_int_equal(mr_file_read(path, 1 << 20, data, size, NULL), 0);
}

static void truncated_files_are_refused(void **state)
{
    (void)state;
    char *data;
    size_t size;
    mr_error err;
    make_sample(&data, &size);
    assert_int_equal(open_bytes(data, size, &err), 0);
    for (size_t length = 0; length < size; length++) {
        mr_st *st;
        assert_int_equal(open_bytes(data, length, &err), MR_EFORMAT);
        assert_int_equal(mr_file_replace(path, data, length, &err), 0);
        assert_int_equal(mr_st_open(path, &st, &err), MR_EFORMAT);
        assert_null(st);
        assert_non_null(strstr(err.text, path));
    }
    mr_free(data);
}

/* Whatever is in the file, it is refused with a message, or every tensor lies inside it. */
static void check_survives(const char *file, size_t size)
{
    mr_st *st;
    mr_error err = {0};
    char *copy = malloc(size);
    assert_non_null(copy);
    memcpy(copy, file, size);
    int rc = mr_st_open_memory(copy, size, "damaged", &st, &err);
    if (rc) {
        assert_int_equal(rc, MR_EFORMAT);
        assert_int_equal(err.status, MR_EFORMAT);
        assert_null(st);
    }
    for (int i = 0; !rc && i < mr_st_count(st); i++) {
        const mr_st_tensor *tensor = mr_st_at(st, i);
        const char *begin = tensor->data;
        size_t bytes;
        assert_true(begin >= copy + 8);
        assert_that(tensor->bytes, <=, size);
        assert_true(begin + tensor->bytes <= copy + size);
        assert_int_equal(mr_st_bytes(tensor->dtype, tensor->ndim, tensor->shape, &bytes), 0);
        assert_int_equal(bytes, tensor->bytes);
    }
    mr_st_close(st);
    free(copy);
}

static uint32_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

static void damaged_files_are_survived(void **state)
{
    (void)state;
    char *data;
    size_t size;
    uint64_t rng = 1, header;
    make_sample(&data, &size);
    memcpy(&header, data, 8);
    for (size_t i = 0; i < 8 + header; i++)
        for (int bit = 0; bit < 8; bit++) {
            data[i] ^= (char)(1 << bit);
            check_survives(data, size);
            data[i] ^= (char)(1 << bit);
        }
    static const char likely[] = "{}[]\",:0123456789-+.eE\\ untf\n\0\xff\xc3";
    for (int round = 0; round < 20000; round++) {
        size_t places[4];
        char before[4];
        int count = 1 + (int)(draw(&rng) % 4);
        for (int i = 0; i < count; i++) {
            places[i] = 8 + draw(&rng) % header;
            before[i] = data[places[i]];
            data[places[i]] = likely[draw(&rng) % (sizeof likely - 1)];
        }
        check_survives(data, size);
        while (count--) data[places[count]] = before[count];
    }
    assert_int_equal(open_bytes(data, size, NULL), 0);
    mr_free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(odd_but_valid_headers_are_read),     cmocka_unit_test(invalid_json_is_refused),
        cmocka_unit_test(invalid_entries_are_refused),        cmocka_unit_test(invalid_offsets_are_refused),
        cmocka_unit_test(invalid_header_lengths_are_refused), cmocka_unit_test(endless_nesting_is_refused_early),
        cmocka_unit_test(large_headers_cost_little_memory),   cmocka_unit_test(messages_hold_no_control_characters),
        cmocka_unit_test(truncated_files_are_refused),        cmocka_unit_test(damaged_files_are_survived),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
