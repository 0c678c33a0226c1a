/* Writes that take a part, are interrupted or fail: files are whole in the end, or as they were before. */
#include "core/mem.h"
#include "scratch.h"
#include "train/append_file.h"

#include <errno.h>
#include <sys/uio.h>

/* ---- what stands in for the system's calls */

enum { EVERY = -1 };

static size_t most;                                    /* bytes that one write takes; 0: all of them */
static int write_fails, sync_fails, with, interrupted; /* the n-th call, or EVERY one; with this errno */
static int writes, syncs;

static void calm(void)
{
    most = 0;
    write_fails = sync_fails = interrupted = writes = syncs = 0;
}

static int fails(int call, int wanted)
{
    if (interrupted && call % 2) return errno = EINTR, 1;
    if (wanted != EVERY && wanted != call) return 0;
    errno = with;
    return 1;
}

ssize_t write(int fd, const void *bytes, size_t size)
{
    if (fails(++writes, write_fails)) return -1;
    struct iovec part = {(void *)bytes, most && size > most ? most : size};
    return writev(fd, &part, 1);
}

int fsync(int fd)
{
    (void)fd;
    return fails(++syncs, sync_fails) ? -1 : 0;
}

/* ---- */

static void holds(const char *path, const char *text, size_t size)
{
    char *data = NULL;
    size_t got = 0;
    assert_int_equal(mr_file_read(path, 1 << 20, &data, &got, NULL), 0);
    assert_int_equal(got, size);
    assert_memory_equal(data, text, size);
    mr_free(data);
}

static void pieces_make_a_whole(void **state)
{
    (void)state;
    char path[MR_TEXT_MAX];
    mr_error err;
    in_folder("whole", path);
    calm(), most = 3, interrupted = 1;
    assert_int_equal(mr_file_replace(path, "taken in pieces of three", 24, &err), 0);
    assert_int_equal(writes, 16);
    assert_int_equal(syncs, 4); /* the file and its folder */
    holds(path, "taken in pieces of three", 24);
}

static void a_failure_leaves_the_file_as_it_was(void **state)
{
    (void)state;
    char path[MR_TEXT_MAX], temporary[MR_TEXT_MAX];
    mr_error err;
    calm();
    write_file("old", "as it was", 9, path);
    in_folder("old.tmp", temporary);
    with = ENOSPC, most = 4;
    for (write_fails = 1; write_fails <= 3; write_fails++) {
        writes = 0;
        assert_int_equal(mr_file_replace(path, "new and not", 11, &err), MR_EIO);
        assert_says(&err, "old: cannot be written: No space");
        holds(path, "as it was", 9);
        assert_false(mr_path_exists(temporary));
    }
    calm(), sync_fails = 1;
    assert_int_equal(mr_file_replace(path, "new", 3, &err), MR_EIO);
    assert_says(&err, "old: cannot be synced: No space");
    holds(path, "as it was", 9);
    assert_false(mr_path_exists(temporary));
    calm(), sync_fails = 2;
    assert_int_equal(mr_file_replace(path, "new", 3, &err), MR_EIO);
    assert_says(&err, "old: its folder cannot be synced: No space");
    calm(), sync_fails = 2, with = EINVAL; /* a file system that does not sync folders */
    assert_int_equal(mr_file_replace(path, "newer", 5, &err), 0);
    holds(path, "newer", 5);
}

/* ---- files that grow */

enum { LINE = 1000, LINES = 100 };

static void add_lines(mr_append_file *file)
{
    char line[LINE];
    memset(line, 'x', LINE);
    line[LINE - 1] = '\n';
    for (int i = 0; i < LINES; i++) {
        line[0] = (char)('A' + i % 26);
        assert_int_equal(mr_append(file, line, LINE, NULL), 0);
        assert_int_equal(mr_append_offset(file), (i + 1) * LINE);
    }
}

static void has_lines(const char *path)
{
    char *data = NULL;
    size_t size = 0;
    assert_int_equal(mr_file_read(path, 1 << 20, &data, &size, NULL), 0);
    assert_int_equal(size, LINES * LINE);
    for (int i = 0; i < LINES; i++) {
        assert_int_equal(data[i * LINE], 'A' + i % 26);
        assert_int_equal(data[i * LINE + LINE - 1], '\n');
    }
    mr_free(data);
}

static void lines_arrive_in_pieces(void **state)
{
    (void)state;
    char path[MR_TEXT_MAX];
    mr_append_file *file;
    in_folder("grows", path);
    calm();
    assert_int_equal(mr_append_open(path, 0, &file, NULL), 0);
    most = 777, interrupted = 1;
    add_lines(file);
    assert_that(writes, >, 1); /* the buffer was full */
    assert_int_equal(syncs, 0);
    interrupted = 0;
    assert_int_equal(mr_append_flush(file, 0, NULL), 0);
    assert_int_equal(syncs, 0);
    has_lines(path);
    assert_int_equal(mr_append_close(file, NULL), 0);
    assert_int_equal(syncs, 1);
    has_lines(path);
}

/* A failed write loses nothing that can be written later. */
static void lines_wait_for_the_disk(void **state)
{
    (void)state;
    char path[MR_TEXT_MAX], huge[65 * 1024] = "";
    mr_error err;
    mr_append_file *file;
    in_folder("waits", path);
    calm();
    assert_int_equal(mr_append_open(path, 0, &file, NULL), 0);
    add_lines(file);
    assert_int_equal(mr_append(file, huge, sizeof huge, &err), MR_EINVAL);
    assert_says(&err, "waits: a piece of 66560 bytes is too long");
    calm(), with = ENOSPC, most = 500, write_fails = 3;
    assert_int_equal(mr_append_flush(file, 1, &err), MR_EIO);
    assert_says(&err, "waits: cannot be written: No space");
    assert_int_equal(syncs, 0);
    assert_int_equal(mr_append_offset(file), LINES * LINE);
    calm(), sync_fails = EVERY;
    assert_int_equal(mr_append_flush(file, 1, &err), MR_EIO);
    assert_says(&err, "waits: cannot be written to the disk: No space");
    has_lines(path);
    assert_int_equal(mr_append_close(file, &err), MR_EIO);
    has_lines(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_make_a_whole),
        cmocka_unit_test(a_failure_leaves_the_file_as_it_was),
        cmocka_unit_test(lines_arrive_in_pieces),
        cmocka_unit_test(lines_wait_for_the_disk),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
