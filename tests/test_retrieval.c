/* Retrieval: rows in the format of the AAN files, made here; and extracting files from an archive. */
#include "sequence_support.h"

#include "tasks/aan.h"
#include "tasks/archive.h"
#include "skip_because.h"

static void put_files(const char *train, const char *eval, const char *test)
{
    char path[MR_TEXT_MAX];
    in_folder("retrieval", path);
    assert_int_equal(mr_make_directory(path, NULL), 0);
    write_file("retrieval/new_aan_pairs.train.tsv", train, strlen(train), path);
    write_file("retrieval/new_aan_pairs.eval.tsv", eval, strlen(eval), path);
    write_file("retrieval/new_aan_pairs.test.tsv", test, strlen(test), path);
    setenv("MINRNN_DATA", folder, 1);
}

#define GOOD "1.0\tP1\tP2\tabc\txy\n"

static int row_is(const mr_batch *batch, int row, const char *text)
{
    const int n = (int)strlen(text);
    if (batch->length[row] != n) return 0;
    for (int t = 0; t < batch->T; t++)
        if (batch->ids[row * batch->T + t] != (t < n ? 1 + (unsigned char)text[t] : 0)) return 0;
    return 1;
}

static void pairs_are_rows_side_by_side(void **state)
{
    (void)state;
    put_files("1.0\tP1\tP2\tabc\txy\n0.0\tP3\tP4\tlonger than ten\tabc\n1\tP5\tP6\t\xff\x01\tz\n",
              "0\ta\tb\tone\ttwo\r\n1.0\ta\tb\tthree\tx", "1\ta\tb\tlast\tlast\n");
    mr_task *task = open_task("retrieval", 4, 0, (setting[]){{"length", "10"}, {0}});
    mr_batch batch = fresh_batch(task);
    assert_int_equal(task->interface.inputs, 257);
    assert_int_equal(task->interface.outputs, 2);
    assert_int_equal(task->interface.head, MR_HEAD_PAIR_MEAN);
    assert_int_equal(task->max_T, 10);
    assert_int_equal(task->eval_batches, 1);
    task->type->eval_batch(task, 0, &batch);
    assert_int_equal(batch.B, 4);
    assert_int_equal(batch.counted, 2);
    assert_non_null(batch.length);
    assert_null(batch.reset);
    assert_true(row_is(&batch, 0, "one"));
    assert_true(row_is(&batch, 1, "two"));
    assert_true(row_is(&batch, 2, "three"));
    assert_true(row_is(&batch, 3, "x"));
    assert_int_equal(batch.target[0], 0);
    assert_int_equal(batch.target[1], 1);
    int met[3] = {0};
    for (uint32_t step = 0; step < 3; step++) { /* two passes: six pairs */
        task->type->train_batch(task, step, 0, &batch);
        for (int p = 0; p < 2; p++) {
            int which = row_is(&batch, 2 * p, "abc") && row_is(&batch, 2 * p + 1, "xy")           ? 0
                        : row_is(&batch, 2 * p, "longer tha") && row_is(&batch, 2 * p + 1, "abc") ? 1
                                                                                                  : 2;
            if (which == 2) {
                assert_true(row_is(&batch, 2 * p, "\xff\x01"));
                assert_true(row_is(&batch, 2 * p + 1, "z"));
            }
            assert_int_equal(batch.target[p], which != 1);
            met[which]++;
        }
    }
    assert_int_equal(met[0] + met[1] + met[2], 6);
    mr_batch_free(&batch);
    mr_task_free(task);
    task = open_task("retrieval", 2, 0, (setting[]){{"split", "test"}, {"pool", "last"}, {0}});
    batch = fresh_batch(task);
    assert_int_equal(task->interface.head, MR_HEAD_PAIR_LAST);
    task->type->eval_batch(task, 0, &batch);
    assert_that(batch.B, ==, 2);
    assert_true(row_is(&batch, 0, "last"));
    assert_true(row_is(&batch, 1, "last"));
    assert_that(batch.target[0], ==, 1);
    mr_batch_free(&batch);
    mr_task_free(task);
}

/* Long enough to be read in several pieces, which split lines anywhere. */
static void long_files_are_read_in_pieces(void **state)
{
    (void)state;
    enum { N = 700, LONG = 2500 };
    char *text = calloc(N, 2 * LONG + 64), *at = text;
    for (int i = 0; i < N; i++) {
        at += sprintf(at, "%d\tp\tq\t%d ", i % 2, i);
        memset(at, 'a' + i % 26, LONG);
        at += LONG;
        at += sprintf(at, "\t%d ", i * i);
        memset(at, 'A' + i % 26, LONG);
        at += LONG;
        *at++ = '\n';
    }
    *at = 0;
    put_files(GOOD, text, GOOD);
    mr_task *task = open_task("retrieval", 10, 0, (setting[]){{"length", "100"}, {0}});
    mr_batch batch = fresh_batch(task);
    assert_int_equal(task->eval_batches, N / 5);
    for (int index = 0; index < N / 5; index++) {
        task->type->eval_batch(task, index, &batch);
        for (int p = 0; p < 5; p++)
            for (int k = 0; k < 2; k++) {
                const int i = 5 * index + p;
                char expected[LONG + 64];
                int n = sprintf(expected, "%d ", k ? i * i : i);
                memset(expected + n, (k ? 'A' : 'a') + i % 26, LONG);
                expected[100] = 0;
                if (!row_is(&batch, 2 * p + k, expected) || batch.target[p] != i % 2)
                    fail_msg("pair %d, document %d", i, k);
            }
    }
    free(text);
    mr_batch_free(&batch);
    mr_task_free(task);
}

static void broken_rows_are_explained(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } broken[] = {{"", "train.tsv: has no rows"},
                  {GOOD "1.0\tP1\tP2\tabc\n", "train.tsv, line 2: has 4 columns; there must be five"},
                  {GOOD GOOD "\n", "line 3: has 1 columns"},
                  {"1.0\tP1\tP2\tabc\txy\tz\n", "line 1: has 6 columns"},
                  {GOOD "1.0\tP1\tP2\t\txy\n", "line 2: text1 is empty"},
                  {GOOD "1.0\tP1\tP2\tabc\t\r\n", "line 2: text2 is empty"},
                  {GOOD "2.0\tP1\tP2\tabc\txy\n", "line 2: the label is \"2.0\"; it must be 0 or 1"},
                  {GOOD "\tP1\tP2\tabc\txy\n", "line 2: the label is \"\""},
                  {GOOD "1.00000000000000000000\tP1\tP2\tabc\txy\n", "line 2: the label is \"1.0000000000000\""}};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        put_files(broken[i].text, GOOD, GOOD);
        refused(new_task("retrieval", 2, 0, (setting[]){{0}}), MR_EDATA, broken[i].says);
    }
    put_files(GOOD, GOOD, GOOD);
    refused(new_task("retrieval", 3, 0, (setting[]){{0}}), MR_ECONFIG, "--batch must be even");
    char path[MR_TEXT_MAX];
    in_folder("nothing", path);
    setenv("MINRNN_DATA", path, 1);
    setenv("XDG_CACHE_HOME", path, 1);
    refused(new_task("retrieval", 2, 0, (setting[]){{0}}), MR_ENODATA, "minrnn data get lra");
}

/* Counts are of 32 bits: the arrays refuse to grow long before these overflow. */
static void too_many_rows_are_refused(void **state)
{
    (void)state;
    const uint32_t most = INT32_MAX / 4 + 1;
    char path[MR_TEXT_MAX];
    mr_error err;
    mr_sha256 sha;
    mr_byte_rows documents = {0}, rows = {.count = most, .room = most};
    mr_pairs pairs = {.count = most, .room = most};
    write_file("one.tsv", GOOD, strlen(GOOD), path);
    mr_sha256_begin(&sha);
    assert_int_equal(mr_aan_read(path, 10, &documents, &pairs, &sha, &err), MR_ENOMEM);
    assert_int_equal(mr_byte_rows_append(&rows, (const uint8_t *)"x", 1, 0), MR_ENOMEM);
    assert_int_equal(pairs.count, most);
    assert_int_equal(rows.count, most);
    mr_byte_rows_free(&documents);
    mr_byte_rows_free(&rows);
}

/* ---- archives */

static int shell(const char *command)
{
    char line[2 * MR_TEXT_MAX];
    snprintf(line, sizeof line, "cd '%s' && %s", folder, command);
    return system(line);
}

static void members_come_out_of_an_archive(void **state)
{
    (void)state;
    char archive[MR_TEXT_MAX], out[MR_TEXT_MAX], path[MR_TEXT_MAX], *bytes, sha[MR_SHA256_TEXT];
    size_t size;
    mr_error err;
    in_folder("made.tar.gz", archive);
    in_folder("out", out);
    if (shell("mkdir -p in/some/where/deep && printf one >in/first.bin && seq 30000 >in/some/where/deep/second.tsv && "
              "mkdir in/first.tsv && ln -s first.bin in/third.bin && tar -czf made.tar.gz in")) {
        skip_because("no tar or gzip here");
    }
    mr_sha256_of("one", 3, sha);
    mr_data_member members[] = {{"a/second.tsv", NULL}, {"b/first.bin", sha}, {NULL, NULL}};
    if (mr_unpack(archive, members, out, &err)) fail_msg("%s", err.text);
    in_folder("out/b/first.bin", path);
    assert_int_equal(mr_file_read(path, 100, &bytes, &size, NULL), 0);
    assert_string_equal(bytes, "one");
    mr_free(bytes);
    assert_int_equal(shell("cmp out/a/second.tsv in/some/where/deep/second.tsv"), 0);
    sha[0] ^= 1;
    assert_int_equal(mr_unpack(archive, members, out, &err), MR_EDATA);
    assert_says(&err, "first.bin is not the published one");
    mr_data_member missing[] = {{"third.bin", NULL}, {NULL, NULL}}; /* a link is not a file */
    assert_int_equal(mr_unpack(archive, missing, out, &err), MR_EDATA);
    assert_says(&err, "has no third.bin in it");
    /* truncated within a file; truncated after one, before the blocks that end an archive;
     * complete but without headers */
    assert_int_equal(
        shell(
            "head -c 3000 made.tar.gz >cut.tar.gz && tar -cf - -C in first.bin | head -c 1024 | gzip >short.tar.gz && "
            "(head -c 1024 /dev/zero | tr '\\0' x; head -c 1024 /dev/zero) | gzip >noise.tar.gz"),
        0);
    static const char *const damaged[] = {"cut.tar.gz", "short.tar.gz", "noise.tar.gz"};
    for (int i = 0; i < 3; i++) {
        in_folder(damaged[i], archive);
        assert_int_equal(mr_unpack(archive, (mr_data_member[]){{"last.tsv", NULL}, {NULL, NULL}}, out, &err), MR_EDATA);
        assert_says(&err, "is truncated or damaged");
    }
    assert_int_not_equal(shell("ls out/*/*.tmp* out/*/.*.tmp* 2>/dev/null | grep -q ."), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_are_rows_side_by_side),    cmocka_unit_test(long_files_are_read_in_pieces),
        cmocka_unit_test(broken_rows_are_explained),      cmocka_unit_test(too_many_rows_are_refused),
        cmocka_unit_test(members_come_out_of_an_archive),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
