/* Opening weights of other programs: files, shards with their index, config.json, and what is wrong with hostile ones.
 */
#include "core/mem.h"
#include "scratch.h"
#include "weights/foreign.h"

#include <math.h>
#include <sys/stat.h>

/* ---- files */

static void write_text(const char *name, const char *text)
{
    char path[MR_TEXT_MAX];
    write_file(name, text, strlen(text), path);
}

/* A file with one tensor of each name, [2, 3], that counts from `first`. */
static void write_tensors(const char *file, const char *const *names, float first)
{
    char path[MR_TEXT_MAX];
    float numbers[6];
    mr_error err = {0};
    mr_st_writer *w = mr_st_writer_new();
    for (int i = 0; i < 6; i++) numbers[i] = first + (float)i;
    for (; *names; names++) assert_int_equal(mr_st_add(w, *names, MR_ST_F32, 2, (int64_t[]){2, 3}, numbers), 0);
    mr_st_add_meta(w, "author", "somebody");
    in_folder(file, path);
    assert_int_equal(mr_st_write(w, path, &err), 0);
    mr_st_writer_free(w);
}

static void remove_file(const char *name)
{
    char path[MR_TEXT_MAX];
    in_folder(name, path);
    unlink(path);
}

static int open_at(const char *name, mr_foreign **out, mr_error *err)
{
    char path[MR_TEXT_MAX];
    in_folder(name, path);
    return mr_foreign_open(path, out, err);
}

static void refuse_at(const char *name, const char *part)
{
    mr_foreign *f = NULL;
    mr_error err = {0};
    if (!open_at(name, &f, &err)) fail_msg("it was opened; \"%s\" was expected", part);
    assert_null(f);
    assert_says(&err, part);
    assert_null(strchr(err.text, '\n'));
}

static void clear(void)
{
    static const char *const names[] = {"model.safetensors.index.json", "model.safetensors", "config.json",
                                        "1.safetensors", "2.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) remove_file(names[i]);
}

static const char *const first_names[] = {"a", "c.weight", NULL}, *const second_names[] = {"b", NULL};

#define MAP(entries) "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {" entries "}}"
#define GOOD_MAP "\"a\": \"1.safetensors\", \"b\": \"2.safetensors\", \"c.weight\": \"1.safetensors\""

static void write_shards(const char *index)
{
    write_tensors("1.safetensors", first_names, 10);
    write_tensors("2.safetensors", second_names, 20);
    write_text("model.safetensors.index.json", index);
}

/* ---- what is found */

static void check_numbers(const mr_foreign *f, const char *name, float first)
{
    float numbers[6] = {0};
    mr_error err = {0};
    const mr_foreign_tensor *t = mr_foreign_find(f, name);
    assert_non_null(t);
    assert_int_equal(mr_foreign_read(f, t, numbers, &err), 0);
    for (int i = 0; i < 6; i++) assert_true(numbers[i] == first + (float)i);
}

static void a_file_opens(void **state)
{
    (void)state;
    mr_foreign *f;
    mr_error err = {0};
    clear();
    write_tensors("model.safetensors", first_names, 10);
    for (int folder_given = 0; folder_given < 2; folder_given++) {
        assert_int_equal(open_at(folder_given ? "" : "model.safetensors", &f, &err), 0);
        assert_int_equal(f->count, 2);
        assert_int_equal(f->is_folder, folder_given);
        check_numbers(f, "c.weight", 10);
        assert_false(mr_foreign_has(f, "b"));
        assert_string_equal(mr_foreign_meta(f, "author"), "somebody");
        assert_null(mr_foreign_meta(f, "format"));
        mr_foreign_close(f);
    }
}

static void shards_open(void **state)
{
    (void)state;
    mr_foreign *f;
    mr_error err = {0};
    clear();
    write_shards(MAP(GOOD_MAP));
    for (int folder_given = 0; folder_given < 2; folder_given++) {
        assert_int_equal(open_at(folder_given ? "" : "model.safetensors.index.json", &f, &err), 0);
        assert_int_equal(f->count, 3);
        assert_int_equal(f->shard_count, 2);
        check_numbers(f, "a", 10);
        check_numbers(f, "b", 20);
        mr_foreign_close(f);
    }
}

static void the_only_file_of_a_folder_opens(void **state)
{
    (void)state;
    mr_foreign *f;
    mr_error err = {0};
    clear();
    refuse_at("", "a folder without safetensors files");
    write_tensors("1.safetensors", first_names, 10);
    assert_int_equal(open_at("", &f, &err), 0);
    check_numbers(f, "a", 10);
    mr_foreign_close(f);
    write_tensors("2.safetensors", second_names, 20);
    refuse_at("", "has several safetensors files and no index");
}

static void blocks_are_counted(void **state)
{
    (void)state;
    static const char *const names[] = {"l.0.w", "l.1.w", "l.3.w", NULL};
    mr_foreign *f;
    mr_error err = {0};
    clear();
    write_tensors("model.safetensors", names, 0);
    assert_int_equal(open_at("", &f, &err), 0);
    assert_int_equal(mr_foreign_blocks(f, "l.%d.w"), 2);
    assert_int_equal(mr_foreign_blocks(f, "m.%d.w"), 0);
    assert_non_null(mr_foreign_find_at(f, "l.%d.w", 3));
    mr_foreign_close(f);
}

static void numbers_must_be_finite(void **state)
{
    (void)state;
    char path[MR_TEXT_MAX];
    const float wrong[] = {NAN, INFINITY};
    clear();
    for (int i = 0; i < 2; i++) {
        float numbers[] = {1, 2, wrong[i], 4}, to[4];
        mr_foreign *f;
        mr_error err = {0};
        mr_st_writer *w = mr_st_writer_new();
        mr_st_add(w, "t", MR_ST_F32, 1, (int64_t[]){4}, numbers);
        in_folder("model.safetensors", path);
        assert_int_equal(mr_st_write(w, path, &err), 0);
        mr_st_writer_free(w);
        assert_int_equal(open_at("", &f, &err), 0);
        assert_int_equal(mr_foreign_read(f, mr_foreign_find(f, "t"), to, &err), MR_EFORMAT);
        assert_says(&err, i ? "tensor t: element 2 is infinite" : "tensor t: element 2 is NaN");
        mr_foreign_close(f);
    }
}

/* ---- an index that lies */

static void an_index_that_lies_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *index, *says;
    } cases[] = {
        {MAP("\"a\": \"1.safetensors\", \"b\": \"3.safetensors\", \"c.weight\": \"1.safetensors\""),
         "b is in 3.safetensors, which does not exist"},
        {MAP("\"a\": \"1.safetensors\", \"b\": \"1.safetensors\", \"c.weight\": \"1.safetensors\""),
         "b is not in 1.safetensors"},
        {MAP("\"a\": \"2.safetensors\", \"b\": \"2.safetensors\", \"c.weight\": \"1.safetensors\""),
         "a is not in 2.safetensors"},
        {MAP(GOOD_MAP ", \"d\": \"1.safetensors\""), "d is not in 1.safetensors"},
        {MAP("\"a\": \"1.safetensors\", \"b\": \"2.safetensors\""), "does not name the tensor c.weight"},
        {MAP(GOOD_MAP ", \"b\": \"2.safetensors\""), "the key b is there twice"},
        {MAP("\"a\": \"../1.safetensors\""), "../1.safetensors, which is not a file of the same folder"},
        {MAP("\"a\": \"/etc/passwd\""), "not a file of the same folder"},
        {MAP("\"a\": \"..\""), "not a file of the same folder"},
        {MAP("\"a\": \"sub\\\\1.safetensors\""), "not a file of the same folder"},
        {MAP("\"a\": \"\""), "a has no name of a file"},
        {MAP("\"a\": 7"), "a has no name of a file"},
        {MAP("\"a\": [\"1.safetensors\"]"), "a has no name of a file"},
        {MAP(""), "its weight_map is empty"},
        {"{\"metadata\": {}}", "has no weight_map"},
        {"{\"weight_map\": [1]}", "it does not begin with {"},
        {"{\"weight_map\": {}, \"weight_map\": {}}", "the key weight_map is there twice"},
        {"[]", "it does not begin with {"},
        {"{\"weight_map\": {\"a\": \"1.safetensors\"}", "a comma or } is missing"},
        {MAP("\"a\\u0000\": \"1.safetensors\""), "a zero byte in a key"},
        {MAP("\"a\": \"1\\u0000.safetensors\""), "a zero byte in a text"},
        {MAP(GOOD_MAP) "x", "something follows"},
        {"", "it does not begin with {"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        clear();
        write_shards(cases[i].index);
        refuse_at("model.safetensors.index.json", cases[i].says);
        refuse_at("", cases[i].says);
    }
}

static void a_tensor_in_two_shards_is_refused(void **state)
{
    (void)state;
    clear();
    write_shards(MAP("\"a\": \"1.safetensors\", \"b\": \"2.safetensors\", \"c.weight\": \"1.safetensors\""));
    write_tensors("2.safetensors", (const char *const[]){"b", "a", NULL}, 20);
    refuse_at("", "tensor a is in two shards");
}

static void a_shard_that_is_no_safetensors_file_is_refused(void **state)
{
    (void)state;
    clear();
    write_shards(MAP(GOOD_MAP));
    write_text("2.safetensors", "something else");
    refuse_at("", "2.safetensors: not a");
    refuse_at("gone.safetensors", "gone.safetensors");
}

/* ---- config.json */

static void settings_are_read(void **state)
{
    (void)state;
    mr_sidecar s;
    mr_error err = {0};
    static const char text[] = "{\"a\": 1e-5, \"b\": true, \"c\": null, \"d\": \"t\\u00e9xt\", \"e\": [1, [2], {\"a\": "
                               "3}], \"f\": {\"a\": [], \"b\": {}}, \"g\": -3, \"h\": \"null\", \"i\": []}";
    assert_int_equal(mr_sidecar_read(&s, "x", text, strlen(text), NULL, &err), 0);
    assert_int_equal(s.count, 9);
    assert_string_equal(mr_sidecar_value(&s, "a"), "1e-5");
    assert_string_equal(mr_sidecar_value(&s, "b"), "true");
    assert_null(mr_sidecar_value(&s, "c"));
    assert_string_equal(mr_sidecar_value(&s, "d"), "téxt");
    assert_null(mr_sidecar_value(&s, "e"));
    assert_non_null(mr_sidecar_find(&s, "e"));
    assert_null(mr_sidecar_value(&s, "f"));
    assert_string_equal(mr_sidecar_value(&s, "g"), "-3");
    assert_string_equal(mr_sidecar_value(&s, "h"), "null");
    assert_null(mr_sidecar_find(&s, "j"));
    mr_sidecar_free(&s);
}

static void settings_that_are_no_json_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"{\"a\": }", "a value is missing"},           {"{\"a\": Infinity}", "a value is missing"},
        {"{\"a\": [1 2]}", "a comma or ] is missing"}, {"{\"a\": {\"b\" 1}}", "a colon is missing"},
        {"{\"a\": [1,]}", "a value is missing"},       {"{\"a\": 1, \"a\": 2}", "the key a is there twice"},
        {"{\"a\": [}", "a value is missing"},          {"{\"a\": [[[", "a value is missing"},
        {"{a: 1}", "a key in quotes is missing"},      {"{\"a\": 01}", "a value is missing"},
    };
    mr_sidecar s;
    mr_error err = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(mr_sidecar_read(&s, "x", cases[i].text, strlen(cases[i].text), NULL, &err), MR_EFORMAT);
        assert_says(&err, cases[i].says);
    }
}

static void deep_settings_cost_nothing(void **state)
{
    (void)state;
    enum { DEEP = 100000 };
    char *text = mr_alloc(DEEP + 20, 1);
    mr_sidecar s;
    mr_error err = {0};
    strcpy(text, "{\"a\": ");
    memset(text + 6, '[', DEEP);
    assert_int_equal(mr_sidecar_read(&s, "x", text, strlen(text), NULL, &err), MR_EFORMAT);
    assert_says(&err, "more than 32 deep");
    mr_free(text);
}

static void a_config_beside_the_weights_is_read(void **state)
{
    (void)state;
    mr_foreign *f;
    mr_error err = {0};
    clear();
    write_tensors("model.safetensors", first_names, 10);
    write_text("config.json", "{\"heads\": 4}");
    assert_int_equal(open_at("model.safetensors", &f, &err), 0);
    assert_string_equal(mr_sidecar_value(&f->config, "heads"), "4");
    mr_foreign_close(f);
    write_text("config.json", "{\"heads\": 4");
    refuse_at("model.safetensors", "config.json: byte 11");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_opens),
        cmocka_unit_test(shards_open),
        cmocka_unit_test(the_only_file_of_a_folder_opens),
        cmocka_unit_test(blocks_are_counted),
        cmocka_unit_test(numbers_must_be_finite),
        cmocka_unit_test(an_index_that_lies_is_refused),
        cmocka_unit_test(a_tensor_in_two_shards_is_refused),
        cmocka_unit_test(a_shard_that_is_no_safetensors_file_is_refused),
        cmocka_unit_test(settings_are_read),
        cmocka_unit_test(settings_that_are_no_json_are_refused),
        cmocka_unit_test(deep_settings_cost_nothing),
        cmocka_unit_test(a_config_beside_the_weights_is_read),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
