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
    mr_source_text text;
    if (mr_source_read(names, 1 << 20, NULL, &text, &err)) fail_msg("%s", err.text);
    assert_int_equal(text.size, strlen(expected));
    assert_string_equal(text.data, expected); /* a zero byte follows */
    mr_free(text.data);
    mr_free(text.ends);
}

static void check_refused(const char *names, uint64_t limit, int status, const char *sentence)
{
    mr_error err = {0};
    mr_source_text text = {0};
    assert_int_equal(mr_source_read(names, limit, NULL, &text, &err), status);
    assert_null(text.data);
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
        mr_source_text text = {0};
        char pipe[600];
        snprintf(pipe, sizeof pipe, "%s", at(copy ? "pipe1" : "pipe0"));
        put("tail", "tail");
        assert_int_equal(mkfifo(pipe, 0600), 0);
        int fd = open(pipe, O_RDWR);
        assert_true(fd >= 0);
        const char *names = list(copy ? "pipe1" : "pipe0", "tail");
        assert_false(mr_source_is_lasting(names));
        assert_int_equal(pthread_create(&writer, NULL, write_pipe, &fd), 0);
        int status =
            copy ? mr_source_copy(names, at("copy"), NULL, &err) : mr_source_read(names, LONG + 4, NULL, &text, &err);
        if (!status && copy) status = mr_file_read(at("copy"), UINT32_MAX, &text.data, &text.size, &err);
        if (status) fail_msg("%s", err.text);
        pthread_join(writer, NULL);
        check_long(text.data, text.size);
        mr_free(text.data);
        mr_free(text.ends);
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
    assert_int_equal(mr_source_copy(list("a", "absent"), at("kept"), NULL, &err), MR_EIO);
    assert_int_equal(mr_source_copy(list("none", NULL), at("kept"), NULL, &err), MR_EDATA);
    if (!strstr(err.text, "is empty")) fail_msg("%s", err.text);
    assert_int_equal(mr_file_read(at("kept"), 100, &data, &size, &err), 0);
    assert_string_equal(data, "before");
    mr_free(data);
    assert_false(mr_path_exists(at("kept.tmp")));
}

/* A reader that waits for a pipe is woken, and leaves nothing. */
static void *stop_reader(void *stop)
{
    *(mr_stop *)stop = 2;
    return NULL;
}

static void a_stopped_reader_leaves_nothing(void **state)
{
    (void)state;
    char pipe[600];
    snprintf(pipe, sizeof pipe, "%s", at("silent"));
    assert_int_equal(mkfifo(pipe, 0600), 0);
    int fd = open(pipe, O_RDWR); /* a writer that writes nothing */
    assert_true(fd >= 0);
    for (int copy = 0; copy < 2; copy++) {
        mr_stop stop = 0;
        pthread_t other;
        mr_error err = {0};
        mr_source_text text = {0};
        assert_int_equal(pthread_create(&other, NULL, stop_reader, &stop), 0);
        assert_int_equal(copy ? mr_source_copy(pipe, at("half"), &stop, &err)
                              : mr_source_read(pipe, 100, &stop, &text, &err),
                         MR_ESTOPPED);
        pthread_join(other, NULL);
        assert_null(text.data);
        assert_false(mr_path_exists(at("half")));
        assert_false(mr_path_exists(at("half.tmp")));
    }
    close(fd);
}

static void a_file_is_itself_by_any_name(void **state)
{
    (void)state;
    put("a", "text");
    put("b", "text");
    assert_int_equal(link(at("a"), at("other-name")), 0);
    assert_true(mr_source_has_file(list("b", "a"), at("other-name")));
    assert_true(mr_source_has_file(list("a", "b"), at("a")));
    assert_false(mr_source_has_file(list("b", "absent"), at("a")));
    assert_false(mr_source_has_file(list("a", "b"), at("absent")));
    assert_false(mr_source_has_file("", at("a")));
}

static void each_has_its_name_and_its_end(void **state)
{
    (void)state;
    char name[MR_SOURCE_LABEL];
    mr_error err = {0};
    mr_source_text text;
    assert_string_equal(mr_source_name("a.txt\n-\nc.txt", 0, name), "a.txt");
    assert_string_equal(mr_source_name("a.txt\n-\nc.txt", 1, name), "standard input");
    assert_string_equal(mr_source_name("a.txt\n-\nc.txt", 2, name), "c.txt");
    put("a", "first ");
    put("none", "");
    if (mr_source_read(list("a", "none"), 100, NULL, &text, &err)) fail_msg("%s", err.text);
    assert_int_equal(text.ends[0], 6);
    assert_int_equal(text.ends[1], 6);
    mr_free(text.data);
    mr_free(text.ends);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(files_are_read_in_order),
                                       cmocka_unit_test(what_cannot_be_read_is_named),
                                       cmocka_unit_test(pipes_of_any_length_are_read_and_copied),
                                       cmocka_unit_test(a_failed_copy_leaves_what_was_there),
                                       cmocka_unit_test(a_stopped_reader_leaves_nothing),
                                       cmocka_unit_test(a_file_is_itself_by_any_name),
                                       cmocka_unit_test(each_has_its_name_and_its_end),
                                       cmocka_unit_test(labels_and_kinds)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
