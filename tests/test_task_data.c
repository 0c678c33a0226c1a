/* The data of tasks stays what it is: hashes of batches that were drawn with a fixed seed (tests/golden/task_data.txt).
 * Other tests check that the data is right; this one, that a run started today sees the same data tomorrow. After a
 * change that is meant, MINRNN_GOLDEN=write writes the file again. */
#include "core/sha256.h"
#include "task_support.h"

#include <stdio.h>

#define GOLDEN MINRNN_SOURCE_DIR "/tests/golden/task_data.txt"

static char got[1 << 14], want[1 << 14];
static size_t used;

static void add_batch(mr_sha256 *sha, const mr_batch *batch)
{
    const size_t tokens = (size_t)batch->B * (size_t)batch->T;
    const int64_t shape[] = {batch->B, batch->T, batch->counted};
    mr_sha256_add(sha, shape, sizeof shape);
    if (batch->ids) mr_sha256_add(sha, batch->ids, tokens * sizeof *batch->ids);
    if (batch->length) mr_sha256_add(sha, batch->length, (size_t)batch->B * sizeof *batch->length);
}

/* Targets of a token head: one a token. */
static void add_targets(mr_sha256 *sha, const mr_task *task, const mr_batch *batch)
{
    const size_t rows = (size_t)batch->B * (task->interface.head == MR_HEAD_TOKEN ? (size_t)batch->T : 1);
    mr_sha256_add(sha, batch->target, rows * sizeof *batch->target);
}

static void note(const char *label, mr_task *task)
{
    mr_batch batch = new_batch(task);
    mr_sha256 sha;
    char text[MR_SHA256_TEXT];
    mr_sha256_begin(&sha);
    for (uint32_t step = 1; step <= 40; step += 13)
        for (uint32_t micro = 0; micro < 2; micro++) {
            task->type->train_batch(task, step, micro, &batch);
            add_batch(&sha, &batch);
            add_targets(&sha, task, &batch);
        }
    const int last = task->eval_batches - 1;
    for (int index = 0; index <= last; index += last > 3 ? last / 3 : 1) {
        const int group = task->type->eval_group ? task->type->eval_group(task, index) : 0;
        task->type->eval_batch(task, index, &batch);
        add_batch(&sha, &batch);
        add_targets(&sha, task, &batch);
        mr_sha256_add(&sha, &group, sizeof group);
    }
    mr_sha256_end(&sha, text);
    used += (size_t)snprintf(got + used, sizeof got - used, "%s %d %d %d %d: %.16s\n", label, task->interface.inputs,
                             task->interface.outputs, task->max_T, task->eval_batches, text);
    mr_batch_free(&batch);
    mr_task_free(task);
}

#define PAPER(name, ...) {#name, "paper"},
#define DEEPMIND(name, ...) {#name, "deepmind"},
static const char *const languages[][2] = {
#include "tasks/chomsky.def"
};

static void note_languages(void)
{
    for (size_t i = 0; i < sizeof languages / sizeof *languages; i++) {
        const setting settings[] = {
            {"task", languages[i][0]}, {"protocol", languages[i][1]}, {"train-length", "12"}, {"eval-from", "13"},
            {"eval-to", "30"},         {"eval-lengths", "5"},         {"eval-samples", "8"},  {NULL, NULL}};
        char label[96];
        snprintf(label, sizeof label, "chomsky %s %s", languages[i][1], languages[i][0]);
        note(label, open_task("chomsky", 4, 0, settings));
    }
}

static void note_copying(void)
{
    static const setting plain[] = {
        {"length", "30"}, {"tokens", "5"}, {"symbols", "7"}, {"eval-batches", "1"}, {NULL, NULL}};
    static const setting growing[] = {{"length", "40"},      {"tokens", "5"},       {"symbols", "7"},
                                      {"eval-batches", "1"}, {"start-length", "6"}, {"grow-steps", "30"},
                                      {NULL, NULL}};
    note("selective-copy", open_task("selective-copy", 6, 0, plain));
    note("selective-copy growing", open_task("selective-copy", 6, 0, growing));
}

static void note_text(const char *vocab, const char *split)
{
    char content[3000], path[MR_TEXT_MAX], label[64];
    for (size_t i = 0; i < sizeof content; i++) content[i] = (char)('a' + (i * i / 7 + i % 5) % 23);
    write_file("text.txt", content, sizeof content, path);
    const setting settings[] = {{"data", path}, {"vocab", vocab}, {"split", split}, {NULL, NULL}};
    snprintf(label, sizeof label, "text %s %s", vocab, split);
    note(label, open_task("text", 4, 24, settings));
}

static void batches_are_as_recorded(void **state)
{
    (void)state;
    const char *mode = getenv("MINRNN_GOLDEN");
    note_languages();
    note_copying();
    note_text("bytes", "0.9");
    note_text("chars", "0.6");
    if (mode && !strcmp(mode, "write")) {
        assert_int_equal(mr_file_replace(GOLDEN, got, used, NULL), 0);
        return;
    }
    FILE *from = fopen(GOLDEN, "r");
    assert_non_null(from);
    want[fread(want, 1, sizeof want - 1, from)] = 0;
    fclose(from);
    assert_string_equal(got, want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(batches_are_as_recorded)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
