/* Files: what is read and refused; replacements are complete or do not happen; locks between processes. */
#include "assert_that.h"
#include "core/file.h"
#include "core/mem.h"
#include "scratch.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* A path in the test's folder; two live at a time. */
static const char *at(const char *name)
{
    static char paths[2][256];
    static int next;
    next = !next;
    snprintf(paths[next], sizeof paths[next], "%s/%s", folder, name);
    return paths[next];
}

static void check_content(const char *path, const char *expected)
{
    char *data;
    size_t size;
    assert_int_equal(mr_file_read(path, 1 << 20, &data, &size, NULL), 0);
    assert_int_equal(size, strlen(expected));
    assert_memory_equal(data, expected, size + 1);
    mr_free(data);
}

static void check_no_temporary(const char *path)
{
    char name[300];
    snprintf(name, sizeof name, "%s.tmp", path);
    assert_false(mr_path_exists(name));
}

/* ---- reading */

static void a_file_is_read_whole(void **state)
{
    (void)state;
    mr_error err;
    char *data;
    size_t size;
    assert_int_equal(mr_file_replace(at("r"), "a\0b", 3, &err), 0);
    assert_int_equal(mr_file_read(at("r"), 3, &data, &size, &err), 0);
    assert_int_equal(size, 3);
    assert_memory_equal(data, "a\0b", 4);
    mr_free(data);
    assert_int_equal(mr_file_read(at("r"), 2, &data, &size, &err), MR_EDATA);
    assert_non_null(strstr(err.text, at("r")));
    assert_int_equal(mr_file_replace(at("empty"), NULL, 0, &err), 0);
    check_content(at("empty"), "");
}

static void unreadable_files_are_refused(void **state)
{
    (void)state;
    mr_error err;
    char *data;
    size_t size;
    assert_int_equal(mr_file_read(at("absent"), 9, &data, &size, &err), MR_EIO);
    assert_non_null(strstr(err.text, at("absent")));
    assert_non_null(strstr(err.text, "No such file"));
    assert_int_equal(mr_file_read(folder, 9, &data, &size, &err), MR_EIO);
    assert_non_null(strstr(err.text, "directory"));
    assert_int_equal(mr_file_read("/dev/zero", 9, &data, &size, &err), MR_EIO);
    assert_int_equal(mkfifo(at("fifo"), 0600), 0);
    alarm(10); /* a pipe without a writer must not make it wait */
    assert_int_equal(mr_file_read(at("fifo"), 9, &data, &size, &err), MR_EIO);
    alarm(0);
}

/* Reads in parts. A file that is truncated meanwhile is an error, not a signal as for a mapped file. */
static void parts_of_a_file_are_read(void **state)
{
    (void)state;
    mr_error err;
    char part[4];
    int fd;
    uint64_t size;
    assert_int_equal(mr_file_replace(at("m"), "in parts", 8, &err), 0);
    assert_int_equal(mr_file_open(at("m"), &fd, &size, &err), 0);
    assert_int_equal(size, 8);
    assert_int_equal(mr_file_read_at(fd, "m", 3, part, 4, &err), 0);
    assert_memory_equal(part, "part", 4);
    assert_int_equal(mr_file_read_at(fd, "m", 8, part, 0, &err), 0);
    assert_int_equal(mr_file_read_at(fd, "m", 5, part, 4, &err), MR_EIO);
    assert_int_equal(truncate(at("m"), 2), 0);
    assert_int_equal(mr_file_read_at(fd, "m", 0, part, 4, &err), MR_EIO);
    assert_non_null(strstr(err.text, "became shorter"));
    mr_file_close(fd);
    assert_int_equal(mr_file_read_at(fd, "m", 0, part, 1, &err), MR_EIO);
    mr_file_close(-1);
    assert_int_equal(mr_file_open(folder, &fd, &size, &err), MR_EIO);
    assert_int_equal(fd, -1);
    assert_int_equal(size, 0);
    assert_int_equal(mr_file_open(at("absent"), &fd, &size, &err), MR_EIO);
}

/* ---- replacing */

/* Waits for a child that must end with this status, or by a signal when status is negative. */
static void wait_for(pid_t child, int status)
{
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(status < 0 ? WIFSIGNALED(how) : WIFEXITED(how) && WEXITSTATUS(how) == status);
}

static void a_replacement_is_atomic(void **state)
{
    (void)state;
    mr_error err;
    mr_replace file;
    struct stat st;
    mode_t old = umask(022);
    assert_int_equal(mr_file_replace(at("f"), "old", 3, &err), 0);
    umask(old);
    assert_int_equal(stat(at("f"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0644);
    assert_int_equal(mr_replace_begin(&file, at("f"), &err), 0);
    assert_int_equal(mr_replace_write(&file, "ne", 2, &err), 0);
    check_content(at("f"), "old");
    assert_int_equal(mr_replace_write(&file, "w", 1, &err), 0);
    check_content(at("f"), "old");
    assert_int_equal(mr_replace_commit(&file, &err), 0);
    check_content(at("f"), "new");
    check_no_temporary(at("f"));
    assert_int_equal(mr_replace_begin(&file, at("f"), &err), 0);
    assert_int_equal(mr_replace_write(&file, "x", 1, &err), 0);
    mr_replace_abort(&file);
    mr_replace_abort(&file);
    check_content(at("f"), "new");
    check_no_temporary(at("f"));
}

/* A name without a folder is in the current folder, which must be synced. */
static void a_relative_path_can_be_replaced(void **state)
{
    (void)state;
    char before[4096];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(folder), 0);
    int rc = mr_file_replace("relative", "here", 4, NULL);
    assert_int_equal(chdir(before), 0);
    assert_int_equal(rc, 0);
    check_content(at("relative"), "here");
}

static void impossible_replacements_are_refused(void **state)
{
    (void)state;
    mr_error err;
    assert_int_equal(mr_file_replace(at("no/such/folder"), "x", 1, &err), MR_EIO);
    assert_non_null(strstr(err.text, "no/such/folder"));
    assert_non_null(strstr(err.text, "No such file"));
    assert_int_equal(mr_file_replace("/proc/minrnn-test", "x", 1, &err), MR_EIO);
    assert_non_null(strstr(err.text, "/proc/minrnn-test"));
    assert_int_equal(mr_file_replace(folder, "x", 1, &err), MR_EIO);
    struct stat st; /* a pipe stands in for /dev/null, which a broken check would destroy */
    assert_int_equal(mkfifo(at("pipe"), 0600), 0);
    assert_int_equal(mr_file_replace(at("pipe"), "x", 1, &err), MR_EIO);
    assert_int_equal(stat(at("pipe"), &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
}

/* The disk fills up in the middle: the first write is short, the next one fails. */
static void a_full_disk_keeps_the_old_file(void **state)
{
    (void)state;
    struct rlimit before, small;
    mr_error err;
    static char big[10000];
    assert_int_equal(mr_file_replace(at("d"), "old", 3, &err), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 4096;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    int rc = mr_file_replace(at("d"), big, sizeof big, &err);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, handler);
    assert_int_equal(rc, MR_EIO);
    assert_non_null(strstr(err.text, at("d")));
    assert_non_null(strstr(err.text, "too large"));
    check_content(at("d"), "old");
    check_no_temporary(at("d"));
}

static void on_alarm(int number) { (void)number; }

/* Reads a pipe to its end, but only after its writer has been interrupted a few times. */
static void drain(int fd, size_t size)
{
    struct timespec wait = {.tv_nsec = 100000000};
    size_t seen = 0;
    unsigned char c;
    nanosleep(&wait, NULL);
    for (; read(fd, &c, 1) == 1; seen++)
        if (c != (unsigned char)(seen * 31 / 7)) _exit(1);
    _exit(seen == size ? 0 : 2);
}

/* A full pipe and a timer make every kind of write: short ones, and ones interrupted before the first byte. */
static void short_writes_are_continued(void **state)
{
    (void)state;
    enum { SIZE = 300000 };
    static unsigned char data[SIZE];
    int ends[2];
    mr_error err = {0};
    struct sigaction interrupt = {.sa_handler = on_alarm}, before;
    struct itimerval every = {{0, 10000}, {0, 10000}}, never = {{0, 0}, {0, 0}};
    for (size_t i = 0; i < SIZE; i++) data[i] = (unsigned char)(i * 31 / 7);
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        close(ends[1]);
        drain(ends[0], SIZE);
    }
    close(ends[0]);
    sigaction(SIGALRM, &interrupt, &before);
    setitimer(ITIMER_REAL, &every, NULL);
    mr_replace file = {.fd = ends[1], .path = (char *)"pipe"};
    int rc = mr_replace_write(&file, data, SIZE, &err);
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &before, NULL);
    close(ends[1]);
    wait_for(child, 0);
    assert_int_equal(rc, 0);
}

/* The last step fails: the target has become a folder. */
static void a_failed_commit_keeps_the_old_file(void **state)
{
    (void)state;
    mr_error err;
    mr_replace file;
    assert_int_equal(mr_replace_begin(&file, at("late"), &err), 0);
    assert_int_equal(mr_replace_write(&file, "x", 1, &err), 0);
    assert_int_equal(mkdir(at("late"), 0700), 0);
    assert_int_equal(mr_replace_commit(&file, &err), MR_EIO);
    assert_int_equal(file.fd, -1);
    assert_null(file.path);
    check_no_temporary(at("late"));
}

/* A process killed while it writes leaves the old file and one temporary file, which the next writer takes over. */
static void a_killed_writer_keeps_the_old_file(void **state)
{
    (void)state;
    mr_error err;
    assert_int_equal(mr_file_replace(at("k"), "old", 3, &err), 0);
    pid_t child = fork();
    if (child == 0) {
        mr_replace file;
        if (!mr_replace_begin(&file, at("k"), NULL)) mr_replace_write(&file, "longer than the next one", 24, NULL);
        kill(getpid(), SIGKILL);
    }
    wait_for(child, -1);
    assert_true(mr_path_exists(at("k.tmp")));
    check_content(at("k"), "old");
    assert_int_equal(mr_file_replace(at("k"), "new", 3, &err), 0);
    check_content(at("k"), "new");
    check_no_temporary(at("k"));
}

static void a_second_writer_is_refused(void **state)
{
    (void)state;
    mr_error err;
    mr_replace file;
    assert_int_equal(mr_replace_begin(&file, at("w"), &err), 0);
    assert_int_equal(mr_replace_write(&file, "first", 5, &err), 0);
    pid_t child = fork();
    if (child == 0) _exit(mr_file_replace(at("w"), "second", 6, NULL) == MR_EBUSY ? 0 : 1);
    wait_for(child, 0);
    assert_int_equal(mr_replace_commit(&file, &err), 0);
    check_content(at("w"), "first");
}

/* Writes its letter again and again; being refused because another one is writing is fine. */
static void race(char letter, int rounds)
{
    char block[3000];
    memset(block, letter, sizeof block);
    for (int i = 0; i < rounds; i++) {
        int rc = mr_file_replace(at("race"), block, sizeof block, NULL);
        if (rc && rc != MR_EBUSY) _exit(1);
    }
    _exit(0);
}

/* Racing writers: in any order, each file seen is a complete one of theirs. */
static void racing_writers_leave_whole_files(void **state)
{
    (void)state;
    pid_t children[3];
    int seen = 0;
    for (int c = 0; c < 3; c++) {
        children[c] = fork();
        if (children[c] == 0) race((char)('a' + c), 1000);
    }
    for (int c = 0; c < 3;) {
        char *data;
        size_t size;
        int how;
        if (!mr_file_read(at("race"), 10000, &data, &size, NULL)) {
            assert_int_equal(size, 3000);
            for (size_t i = 1; i < size; i++) assert_int_equal(data[i], data[0]);
            mr_free(data);
            seen++;
        }
        if (waitpid(children[c], &how, WNOHANG) == 0) continue;
        assert_true(WIFEXITED(how));
        assert_that(WEXITSTATUS(how), ==, 0);
        c++;
    }
    assert_that(seen, >, 0);
}

/* ---- directories */

static void directories_are_made(void **state)
{
    (void)state;
    mr_error err;
    assert_int_equal(mr_make_directory(at("p/q//r/"), &err), 0);
    assert_int_equal(mr_make_directory(at("p/q/r"), &err), 0);
    assert_true(mr_path_exists(at("p/q/r")));
    assert_int_equal(mr_make_directory("/", &err), 0);
    assert_int_equal(mr_make_directory("", &err), MR_EIO);
    assert_int_equal(mr_file_replace(at("p/file"), "x", 1, &err), 0);
    assert_int_equal(mr_make_directory(at("p/file"), &err), MR_EIO);
    assert_non_null(strstr(err.text, "not a directory"));
    assert_int_equal(mr_make_directory(at("p/file/s"), &err), MR_EIO);
    assert_non_null(strstr(err.text, at("p/file")));
    assert_int_equal(mr_make_directory("/proc/minrnn-test", &err), MR_EIO);
}

static void a_locked_folder_is_refused(void **state)
{
    (void)state;
    mr_error err;
    int lock, second;
    char expected[400];
    snprintf(expected, sizeof expected, "%s: another minrnn is using this folder; wait for it or choose another --out",
             folder);
    assert_int_equal(mr_lock_directory(folder, &lock, &err), 0);
    assert_true(fcntl(lock, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(mr_lock_directory(folder, &second, &err), MR_EBUSY);
    assert_int_equal(second, -1);
    assert_string_equal(err.text, expected);
    pid_t child = fork();
    if (child == 0) {
        int mine;
        _exit(mr_lock_directory(folder, &mine, NULL) == MR_EBUSY ? 0 : 1);
    }
    wait_for(child, 0);
    mr_unlock(lock);
    mr_unlock(-1);
    assert_int_equal(mr_lock_directory(folder, &lock, &err), 0);
    mr_unlock(lock);
    assert_int_equal(mr_lock_directory(at("absent"), &lock, &err), MR_EIO);
    assert_non_null(strstr(err.text, at("absent/.lock")));
}

/* Empty folders are removed, others stay. Tidying without a lock does nothing. */
static void an_unlocked_folder_is_tidied(void **state)
{
    (void)state;
    mr_error err;
    int lock;
    assert_int_equal(mr_make_directory(at("tidy/runs/name"), &err), 0);
    assert_int_equal(mr_lock_directory(at("tidy/runs/name"), &lock, &err), 0);
    mr_unlock_and_tidy(at("tidy/runs/name"), lock);
    assert_false(mr_path_exists(at("tidy/runs")));
    assert_true(mr_path_exists(at("tidy")));
    assert_int_equal(mr_make_directory(at("tidy/runs/name/kept"), &err), 0);
    assert_int_equal(mr_lock_directory(at("tidy/runs/name"), &lock, &err), 0);
    mr_unlock_and_tidy(at("tidy/runs/name"), lock);
    assert_true(mr_path_exists(at("tidy/runs/name/kept")));
    assert_false(mr_path_exists(at("tidy/runs/name/.lock")));
    mr_unlock_and_tidy(at("tidy/runs/name"), -1);
}

static void check_absolute(const char *path, const char *expected)
{
    char *found = mr_path_absolute(path);
    assert_non_null(found);
    assert_string_equal(found, expected);
    mr_free(found);
}

static void paths_are_made_absolute(void **state)
{
    (void)state;
    char before[1024], here[1024], expected[1100];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(folder), 0);
    assert_non_null(getcwd(here, sizeof here));
    snprintf(expected, sizeof expected, "%s/a/../b", here);
    check_absolute("a/../b", expected);
    check_absolute("./a/../b", expected);
    check_absolute(".//./a/../b", expected);
    check_absolute("/a/./b", "/a/./b");
    assert_int_equal(chdir(before), 0);
}

/* The death of the holder frees the lock. */
static void a_dead_process_holds_no_lock(void **state)
{
    (void)state;
    mr_error err;
    int lock, told[2];
    char byte;
    assert_int_equal(pipe(told), 0);
    pid_t child = fork();
    if (child == 0) {
        int mine;
        byte = mr_lock_directory(folder, &mine, NULL) == 0;
        if (write(told[1], &byte, 1) != 1) _exit(1);
        for (;;) pause();
    }
    assert_int_equal(read(told[0], &byte, 1), 1);
    assert_int_equal(byte, 1);
    assert_int_equal(mr_lock_directory(folder, &lock, &err), MR_EBUSY);
    kill(child, SIGKILL);
    wait_for(child, -1);
    assert_int_equal(mr_lock_directory(folder, &lock, &err), 0);
    mr_unlock(lock);
    close(told[0]);
    close(told[1]);
}

static void check_join(const char *dir, const char *name, const char *expected)
{
    char *path = mr_path_join(dir, name);
    assert_string_equal(path, expected);
    mr_free(path);
}

static void paths_are_joined_and_found(void **state)
{
    (void)state;
    check_join("a", "b", "a/b");
    check_join("a/", "b", "a/b");
    check_join("/", "b", "/b");
    check_join("", "b", "b");
    assert_true(mr_path_exists(folder));
    assert_false(mr_path_exists(at("absent")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_read_whole),
        cmocka_unit_test(unreadable_files_are_refused),
        cmocka_unit_test(parts_of_a_file_are_read),
        cmocka_unit_test(a_replacement_is_atomic),
        cmocka_unit_test(a_relative_path_can_be_replaced),
        cmocka_unit_test(impossible_replacements_are_refused),
        cmocka_unit_test(a_full_disk_keeps_the_old_file),
        cmocka_unit_test(short_writes_are_continued),
        cmocka_unit_test(a_failed_commit_keeps_the_old_file),
        cmocka_unit_test(a_killed_writer_keeps_the_old_file),
        cmocka_unit_test(a_second_writer_is_refused),
        cmocka_unit_test(racing_writers_leave_whole_files),
        cmocka_unit_test(directories_are_made),
        cmocka_unit_test(a_locked_folder_is_refused),
        cmocka_unit_test(an_unlocked_folder_is_tidied),
        cmocka_unit_test(paths_are_made_absolute),
        cmocka_unit_test(a_dead_process_holds_no_lock),
        cmocka_unit_test(paths_are_joined_and_found),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
