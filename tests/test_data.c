/* Data files: SHA-256, where they are searched, and downloads that are complete or change nothing. */
#define _XOPEN_SOURCE 700 /* for posix_openpt */
#include "scratch.h"

#include "commands/args.h"
#include "commands/download_view.h"
#include "core/mem.h"
#include "core/sha256.h"
#include "tasks/data.h"
#include "skip_because.h"

#include <fcntl.h>

static void sha256_knows_its_vectors(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sha;
    } vectors[] = {{"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
                   {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
                   {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                    "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"}};
    char text[MR_SHA256_TEXT];
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        mr_sha256_of(vectors[i].text, strlen(vectors[i].text), text);
        assert_string_equal(text, vectors[i].sha);
    }
    mr_sha256 sha;
    char block[1000];
    memset(block, 'a', sizeof block);
    mr_sha256_begin(&sha);
    for (int left = 1000000, take = 1; left; left -= take, take = 1 + left % 997) {
        if (take > left) take = left;
        mr_sha256_add(&sha, block, (size_t)take);
    }
    mr_sha256_end(&sha, text);
    assert_string_equal(text, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/* Runs a test with its own MINRNN_DATA and XDG_CACHE_HOME; NULL: not set. */
static void with_folders(const char *data, const char *cache, void (*test)(void))
{
    const char *names[] = {"MINRNN_DATA", "XDG_CACHE_HOME"}, *values[] = {data, cache};
    char *old[2];
    for (int i = 0; i < 2; i++) {
        old[i] = getenv(names[i]) ? mr_strdup(getenv(names[i])) : NULL;
        if (values[i]) setenv(names[i], values[i], 1);
        else unsetenv(names[i]);
    }
    test();
    for (int i = 0; i < 2; i++) {
        if (old[i]) setenv(names[i], old[i], 1);
        else unsetenv(names[i]);
        mr_free(old[i]);
    }
}

static void expect_not_found(void)
{
    char *path;
    mr_error err;
    assert_int_equal(mr_data_find("shakespeare", &path, &err), MR_ENODATA);
    assert_says(&err, "minrnn data get shakespeare");
    assert_says(&err, "MINRNN_DATA");
}

static void expect_wrong_file(void)
{
    char *path, *bytes;
    size_t size;
    mr_error err;
    assert_int_equal(mr_data_find("shakespeare", &path, &err), 0);
    assert_non_null(strstr(path, "/data/tinyshakespeare.txt"));
    mr_free(path);
    assert_int_equal(mr_data_load("shakespeare", &bytes, &size, &err), MR_EDATA);
    assert_says(&err, "is not the published shakespeare: it has 1 bytes, not 1115394");
    assert_null(bytes);
    assert_int_equal(mr_data_get("shakespeare", NULL, NULL, &path, &err), MR_EDATA);
    assert_says(&err, "/data/tinyshakespeare.txt is not the published");
}

static void expect_cached(void)
{
    char *path, expected[MR_TEXT_MAX];
    in_folder("cache/minrnn/tinyshakespeare.txt", expected);
    assert_int_equal(mr_data_find("shakespeare", &path, NULL), 0);
    assert_string_equal(path, expected);
    mr_free(path);
}

static void data_is_looked_for_in_two_places(void **state)
{
    (void)state;
    char data[MR_TEXT_MAX], cache[MR_TEXT_MAX], path[MR_TEXT_MAX], *found;
    mr_error err;
    in_folder("data", data);
    in_folder("cache", cache);
    in_folder("cache/minrnn", path);
    assert_int_equal(mr_make_directory(data, NULL), 0);
    assert_int_equal(mr_make_directory(path, NULL), 0);
    with_folders(data, cache, expect_not_found);
    with_folders(NULL, cache, expect_not_found);
    write_file("cache/minrnn/tinyshakespeare.txt", "x", 1, path);
    with_folders(data, cache, expect_cached);
    with_folders(NULL, cache, expect_cached);
    write_file("data/tinyshakespeare.txt", "x", 1, path);
    with_folders(data, cache, expect_wrong_file);
    assert_int_equal(mr_data_find("pushkin", &found, &err), MR_EINVAL);
    assert_says(&err, "pushkin");
}

#ifdef MINRNN_WITH_CURL
static int count_calls(void *arg, uint64_t done, uint64_t total)
{
    ++*(int *)arg;
    assert_that(done, <=, total);
    return 0;
}

static int stop(void *arg, uint64_t done, uint64_t total)
{
    (void)arg, (void)done, (void)total;
    return 1;
}

static void downloads_are_checked(void **state)
{
    (void)state;
    char from[MR_TEXT_MAX], to[MR_TEXT_MAX], url[MR_TEXT_MAX + 8], sha[MR_SHA256_TEXT], *bytes;
    size_t size;
    int calls = 0;
    mr_error err;
    write_file("source", "a text", 6, from);
    write_file("copy", "old", 3, to);
    snprintf(url, sizeof url, "file://%s", from);
    mr_sha256_of("a text", 6, sha);
    mr_data_set set = {.name = "sample", .file = "copy", .url = url, .sha256 = sha, .bytes = 7};
    assert_int_equal(mr_data_download(&set, to, NULL, NULL, &err), MR_EDATA);
    assert_says(&err, "6 bytes, not 7");
    set.bytes = 5;
    assert_int_equal(mr_data_download(&set, to, NULL, NULL, &err), MR_EDATA);
    assert_says(&err, "more than the 5 bytes");
    set.bytes = 6;
    sha[0] ^= 1;
    assert_int_equal(mr_data_download(&set, to, NULL, NULL, &err), MR_EDATA);
    assert_says(&err, "SHA-256");
    sha[0] ^= 1;
    assert_int_equal(mr_data_download(&set, to, stop, NULL, &err), MR_ESTOPPED);
    set.url = "file:///nowhere/at/all";
    assert_int_equal(mr_data_download(&set, to, NULL, NULL, &err), MR_EIO);
    assert_says(&err, "file:///nowhere/at/all");
    assert_int_equal(mr_file_read(to, 100, &bytes, &size, NULL), 0);
    assert_string_equal(bytes, "old");
    mr_free(bytes);
    set.url = url;
    assert_int_equal(mr_data_download(&set, to, count_calls, &calls, &err), 0);
    assert_that(calls, >, 0);
    assert_int_equal(mr_file_read(to, 100, &bytes, &size, NULL), 0);
    assert_string_equal(bytes, "a text");
    mr_free(bytes);
}

/* A broken file in the cache is replaced, a whole one is not fetched again. */
static void fetch_file(void)
{
    char from[MR_TEXT_MAX], to[MR_TEXT_MAX], url[MR_TEXT_MAX + 8], sha[MR_SHA256_TEXT], *found, *bytes;
    size_t size;
    mr_error err;
    write_file("published", "a text", 6, from);
    snprintf(url, sizeof url, "file://%s", from);
    mr_sha256_of("a text", 6, sha);
    mr_data_set set = {.name = "sample", .file = "sample.txt", .url = url, .sha256 = sha, .bytes = 6};
    for (int there = 0; there < 3; there++) { /* nothing, a broken file, a whole one */
        if (there == 1) write_file("files/minrnn/sample.txt", "a test", 6, to);
        if (there == 2) set.url = "file:///nowhere/at/all";
        if (mr_data_get_set(&set, NULL, NULL, &found, &err)) fail_msg("%s", err.text);
        in_folder("files/minrnn/sample.txt", to);
        assert_string_equal(found, to);
        mr_free(found);
        assert_int_equal(mr_file_read(to, 100, &bytes, &size, NULL), 0);
        assert_string_equal(bytes, "a text");
        mr_free(bytes);
    }
    write_file("files/minrnn/sample.txt", "a test", 6, to);
    assert_int_equal(mr_data_get_set(&set, NULL, NULL, &found, &err), MR_EIO);
    assert_null(found);
}

static void files_are_fetched(void **state)
{
    (void)state;
    char cache[MR_TEXT_MAX];
    in_folder("files", cache);
    with_folders(NULL, cache, fetch_file);
}

/* The archive is downloaded, the wanted files are taken out, and it is deleted; files that
 * exist are not fetched again. */
static void fetch_archive(void)
{
    static const mr_data_member members[] = {{"kept/wanted.txt", NULL}, {"kept/also.txt", NULL}, {NULL, NULL}};
    char url[MR_TEXT_MAX + 8], archive[MR_TEXT_MAX], path[MR_TEXT_MAX], command[2 * MR_TEXT_MAX], *found;
    mr_error err;
    snprintf(command, sizeof command,
             "cd '%s' && mkdir -p made && echo one >made/wanted.txt && echo two >made/also.txt && echo no "
             ">made/other.txt && "
             "tar -czf made.tar.gz made",
             folder);
    if (system(command)) skip_because("no tar or gzip here");
    in_folder("made.tar.gz", path);
    snprintf(url, sizeof url, "file://%s", path);
    mr_data_set set = {.name = "sample", .file = "sample.tar.gz", .url = url, .members = members};
    if (mr_data_get_set(&set, NULL, NULL, &found, &err)) fail_msg("%s", err.text);
    in_folder("archives/minrnn/kept/wanted.txt", path);
    assert_string_equal(found, path);
    mr_free(found);
    in_folder("archives/minrnn/sample.tar.gz", archive);
    assert_false(mr_path_exists(archive));
    in_folder("archives/minrnn/kept/also.txt", path);
    assert_true(mr_path_exists(path));
    in_folder("archives/minrnn/kept/other.txt", path);
    assert_false(mr_path_exists(path));
    set.url = "file:///nowhere/at/all";
    assert_int_equal(mr_data_get_set(&set, NULL, NULL, &found, &err), 0);
    mr_free(found);
    in_folder("archives/minrnn/kept/also.txt", path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mr_data_get_set(&set, NULL, NULL, &found, &err), MR_EIO);
}

static void archives_are_fetched(void **state)
{
    (void)state;
    char cache[MR_TEXT_MAX];
    in_folder("archives", cache);
    with_folders(NULL, cache, fetch_archive);
}
#else
static void downloads_are_checked(void **state)
{
    (void)state;
    mr_error err;
    mr_data_set set = {.name = "sample", .file = "copy", .url = "https://example.org/x", .sha256 = "", .bytes = 1};
    assert_int_equal(mr_data_download(&set, "/tmp/place", NULL, NULL, &err), MR_EDATA);
    assert_says(&err, "fetch https://example.org/x and put it at /tmp/place");
}

static void files_are_fetched(void **state)
{
    (void)state;
    skip_because("built without libcurl");
}

static void archives_are_fetched(void **state)
{
    (void)state;
    skip_because("built without libcurl");
}
#endif

/* What a call of mr_download_view prints on stderr, which is a terminal or a file. */
static void downloaded(int terminal, int quiet, uint64_t done, uint64_t total, const char *expected)
{
    char path[MR_TEXT_MAX], got[256] = "";
    mr_common set = {.quiet = quiet};
    int before = dup(STDERR_FILENO), master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) || unlockpt(master)) skip_because("no pseudo-terminal here");
    int shown = open(ptsname(master), O_RDWR | O_NOCTTY);
    if (!terminal) {
        close(shown);
        write_file("shown", "", 0, path);
        shown = open(path, O_RDWR);
    }
    assert_that(dup2(shown, STDERR_FILENO), >=, 0);
    int stopped = mr_download_view(&set, done, total);
    assert_that(write(STDERR_FILENO, "$", 1), ==, 1);
    dup2(before, STDERR_FILENO);
    if (!terminal) assert_that(lseek(shown, 0, SEEK_SET), ==, 0);
    for (size_t n = 0; !strchr(got, '$') && n < sizeof got - 1; n++)
        assert_that(read(terminal ? master : shown, got + n, 1), ==, 1);
    assert_string_equal(got, expected);
    assert_int_equal(stopped, 0);
    close(shown), close(master), close(before);
}

static void downloads_are_shown_on_a_terminal(void **state)
{
    (void)state;
    downloaded(1, 0, 1240000, 0, "\r1.2 MB\033[K$");
    downloaded(1, 0, 1240000, 3000000, "\r1.2 MB of 3.0\033[K$");
    downloaded(1, 0, 3000000, 3000000, "\r3.0 MB of 3.0\033[K\r\033[K$");
    downloaded(1, 1, 1240000, 3000000, "$");
    downloaded(0, 0, 1240000, 3000000, "$");
    downloaded(0, 1, 1240000, 3000000, "$");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sha256_knows_its_vectors),
        cmocka_unit_test(data_is_looked_for_in_two_places),
        cmocka_unit_test(downloads_are_checked),
        cmocka_unit_test(files_are_fetched),
        cmocka_unit_test(downloads_are_shown_on_a_terminal),
        cmocka_unit_test(archives_are_fetched),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
