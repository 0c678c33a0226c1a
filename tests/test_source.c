/* Texts from several files and pipes: read and copied in order, and refused where they cannot be. */
#include "scratch.h"

#include "core/file.h"
#include "core/mem.h"
#include "tasks/source.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *at(const char *name)
{
    static char paths[4][MR_TEXT_MAX];
    static int next;
    char *path = paths[next++ % 4];
    in_folder(name, path);
    return path;
}

static void put(const char *name, const char *text)
{
    mr_error err = {0};
    if (mr_file_replace(at(name), text, strlen(text), &err)) fail_msg("%s", err.text);
}

/* A list of names below the scratch folder, a line each. */
static const char *list(const char *a, const char *b)
{
    static char names[1024];
    size_t used = (size_t)snprintf(names, sizeof names, "%s", at(a));
    if (b) snprintf(names + used, sizeof names - used, "\n%s", strcmp(b, "-") ? at(b) : b);
    return names;
}

static void check_read(const char *names, const char *expected)
{
    mr_error err = {0};
    char *data = NULL;
    size_t size = 0;
    if (mr_source_read(names, 1 << 20, &data, &size, &err)) fail_msg("%s", err.text);
    assert_int_equal(size, strlen(expected));
    assert_string_equal(data, expected); /* a zero byte follows */
    mr_free(data);
}

static void check_refused(const char *names, uint64_t limit, int status, const char *sentence)
{
    mr_error err = {0};
    char *data = NULL;
    size_t size = 0;
    assert_int_equal(mr_source_read(names, limit, &data, &size, &err), status);
    assert_null(data);
    if (!strstr(err.text, sentence)) fail_msg("\"%s\" lacks \"%s\"", err.text, sentence);
}

static void files_are_read_in_order(void **state)
{
    (void)state;
    put("a", "first ");
    put("b", "second");
    put("none", "");
    check_read(list("a", NULL), "first ");
    check_read(list("a", "b"), "first second");
    check_read(list("b", "a"), "secondfirst ");
    check_read(list("none", "a"), "first ");
    check_read(list("none", NULL), "");
    check_read("", "");
}

static void what_cannot_be_read_is_named(void **state)
{
    (void)state;
    put("a", "0123456789");
    check_refused(list("a", "absent"), 100, MR_EIO, "absent: cannot be opened");
    check_refused(folder, 100, MR_EIO, "is a directory");
    check_refused("/dev/zero", 100, MR_EIO, "is a device");
    check_refused(list("a", NULL), 9, MR_EDATA, "has 10 bytes; at most 9");
    check_refused(list("a", "a"), 19, MR_EDATA, "more than 19 bytes in all");
    check_read(list("a", "a"), "01234567890123456789");
}

enum { LONG = 3 << 20 }; /* longer than the first room for a pipe, and than a pipe holds */

/* Open for reading as well, which waits for nobody. */
static void *write_pipe(void *open_pipe)
{
    char piece[4096];
    const int fd = *(int *)open_pipe;
    for (size_t done = 0; done < LONG; done += sizeof piece) {
        for (size_t i = 0; i < sizeof piece; i++) piece[i] = (char)('a' + (done + i) % 23);
        if (write(fd, piece, sizeof piece) != sizeof piece) break;
    }
    close(fd);
    return NULL;
}

static void check_long(const char *data, size_t size)
{
    assert_int_equal(size, LONG + 4);
    for (size_t i = 0; i < LONG; i++)
        if (data[i] != (char)('a' + i % 23)) fail_msg("byte %zu is %d", i, data[i]);
    assert_string_equal(data + LONG, "tail");
}

static void pipes_of_any_length_are_read_and_copied(void **state)
{
    (void)state;
    for (int copy = 0; copy < 2; copy++) {
        pthread_t writer;
        mr_error err = {0};
        char pipe[600], *data = NULL;
        size_t size = 0;
        snprintf(pipe, sizeof pipe, "%s", at(copy ? "pipe1" : "pipe0"));
        put("tail", "tail");
        assert_int_equal(mkfifo(pipe, 0600), 0);
        int fd = open(pipe, O_RDWR);
        assert_true(fd >= 0);
        const char *names = list(copy ? "pipe1" : "pipe0", "tail");
        assert_false(mr_source_is_lasting(names));
        assert_int_equal(pthread_create(&writer, NULL, write_pipe, &fd), 0);
        int status =
            copy ? mr_source_copy(names, at("copy"), &err) : mr_source_read(names, LONG + 4, &data, &size, &err);
        if (!status && copy) status = mr_file_read(at("copy"), UINT32_MAX, &data, &size, &err);
        if (status) fail_msg("%s", err.text);
        pthread_join(writer, NULL);
        check_long(data, size);
        mr_free(data);
    }
}

static void a_failed_copy_leaves_what_was_there(void **state)
{
    (void)state;
    mr_error err = {0};
    char *data = NULL;
    size_t size = 0;
    put("kept", "before");
    put("a", "text");
    put("none", "");
    assert_int_equal(mr_source_copy(list("a", "absent"), at("kept"), &err), MR_EIO);
    assert_int_equal(mr_source_copy(list("none", NULL), at("kept"), &err), MR_EDATA);
    if (!strstr(err.text, "is empty")) fail_msg("%s", err.text);
    assert_int_equal(mr_file_read(at("kept"), 100, &data, &size, &err), 0);
    assert_string_equal(data, "before");
    mr_free(data);
    assert_false(mr_path_exists(at("kept.tmp")));
}

static void labels_and_kinds(void **state)
{
    (void)state;
    char label[MR_SOURCE_LABEL];
    assert_string_equal(mr_source_label("a.txt", label), "a.txt");
    assert_string_equal(mr_source_label("a.txt\nb.txt\nc.txt", label), "a.txt and 2 more");
    assert_string_equal(mr_source_label("-", label), "standard input");
    assert_string_equal(mr_source_label("", label), "");
    assert_true(mr_source_is_lasting("absent"));
    assert_false(mr_source_is_lasting("-"));
    put("a", "text");
    assert_true(mr_source_is_lasting(list("a", "a")));
    assert_false(mr_source_is_lasting(list("a", "-")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_read_in_order), cmocka_unit_test(what_cannot_be_read_is_named),
        cmocka_unit_test(pipes_of_any_length_are_read_and_copied),
        cmocka_unit_test(a_failed_copy_leaves_what_was_there), cmocka_unit_test(labels_and_kinds)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
