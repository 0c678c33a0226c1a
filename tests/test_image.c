/* G-Image: CIFAR-10 in grey compared with the published files (or a sample of them), and what batches contain. */
#include "sequence_support.h"

#include "tasks/cifar.h"
#include "tasks/data.h"
#include "skip_because.h"

#include <math.h>

/* ---- the conversion, a second way: exact, in integers. The published data was computed in float: it may be off by one
 * where the exact value is very near a boundary. */

enum { UNIT = 2 * 10000 * 255, NEAR = UNIT / 10000 };

static int is_gray_of(int red, int green, int blue, int gray)
{
    const long exact = 511L * (2989L * red + 5870L * green + 1140L * blue), over = exact % UNIT;
    if (over >= UNIT - NEAR && gray == exact / UNIT + 1) return 1;
    if (over <= NEAR && gray == exact / UNIT - 1) return 1;
    return gray == exact / UNIT;
}

static void grey_is_the_stated_mixture(void **state)
{
    (void)state;
    uint8_t official[MR_CIFAR_OFFICIAL], gray[MR_CIFAR_GRAY];
    for (int round = 0; round < 64; round++) {
        official[0] = (uint8_t)(round % 10);
        for (int i = 0; i < MR_CIFAR_PIXELS; i++) {
            official[1 + i] = (uint8_t)(round * 4 + i % 4);
            official[1 + 1024 + i] = (uint8_t)(i / 4);
            official[1 + 2048 + i] = (uint8_t)(i * 7 + round);
        }
        mr_cifar_to_gray(official, gray);
        assert_int_equal(gray[0], round % 10);
        for (int i = 0; i < MR_CIFAR_PIXELS; i++) {
            if (!is_gray_of(official[1 + i], official[1025 + i], official[2049 + i], gray[1 + i]))
                fail_msg("pixel %d of round %d is %d", i, round, gray[1 + i]);
        }
    }
    memset(official, 255, sizeof official);
    mr_cifar_to_gray(official, gray);
    assert_int_equal(gray[1], 255);
}

/* ---- the published pictures */

static uint8_t *all; /* every record, or NULL where there is no data */

static int load(void **state)
{
    char sha256[MR_SHA256_TEXT];
    mr_error err;
    if (getenv("MINRNN_DATA") && mr_cifar_load(&all, sha256, &err)) fprintf(stderr, "%s\n", err.text);
    return make_folder(state);
}

static int unload(void **state)
{
    mr_free(all);
    return remove_folder(state);
}

static void need_data(void)
{
    if (all) return;
    skip_because("set MINRNN_DATA to the folder that has cifar10");
}

static void records_are_the_published_ones(void **state)
{
    (void)state;
    static const int first[] = {6, 9, 9, 4, 1}, tested[] = {3, 8, 8, 0, 6};
    int counts[2][10] = {{0}};
    need_data();
    for (int i = 0; i < 5; i++) {
        assert_int_equal(all[i * MR_CIFAR_GRAY], first[i]);
        assert_int_equal(all[(50000 + i) * MR_CIFAR_GRAY], tested[i]);
    }
    for (int i = 0; i < MR_CIFAR_ALL; i++) counts[i >= MR_CIFAR_TRAIN][all[i * MR_CIFAR_GRAY]]++;
    for (int c = 0; c < 10; c++) {
        assert_int_equal(counts[0][c], 5000);
        assert_int_equal(counts[1][c], 1000);
    }
}

static void the_official_layout_gives_the_same_grey(void **state)
{
    (void)state;
    char path[MR_TEXT_MAX], *bytes;
    size_t size;
    uint8_t gray[MR_CIFAR_GRAY];
    need_data();
    snprintf(path, sizeof path, "%s/cifar10/official_sample.bin", getenv("MINRNN_DATA"));
    if (!mr_path_exists(path)) {
        skip_because("no %s", path);
    }
    assert_int_equal(mr_file_read(path, 1 << 24, &bytes, &size, NULL), 0);
    assert_int_equal(size, 1000 * MR_CIFAR_OFFICIAL);
    for (int i = 0; i < 1000; i++) {
        mr_cifar_to_gray((uint8_t *)bytes + i * MR_CIFAR_OFFICIAL, gray);
        assert_memory_equal(gray, all + (i < 500 ? i : 50000 + i - 500) * MR_CIFAR_GRAY, MR_CIFAR_GRAY);
    }
    mr_free(bytes);
}

/* Which record a row of token ids is, among from … to − 1; −1: none. */
static int record_of(const int32_t *ids, int label, int from, int to, int mirrored)
{
    for (int r = from; r < to; r++) {
        const uint8_t *gray = all + r * MR_CIFAR_GRAY + 1;
        int same = gray[-1] == label;
        for (int i = 0; same && i < 1024; i++) same = ids[i] == gray[mirrored ? i / 32 * 32 + 31 - i % 32 : i];
        if (same) return r;
    }
    return -1;
}

static void scored_parts_are_whole_and_in_order(void **state)
{
    (void)state;
    need_data();
    for (int test = 0; test < 2; test++) {
        const int first = test ? 50000 : 45000, count = test ? 10000 : 5000;
        mr_task *task = open_task("image", 64, 0, (setting[]){{"split", test ? "test" : "validation"}, {0}});
        mr_batch batch = fresh_batch(task);
        int rows = 0;
        assert_int_equal(task->interface.inputs, 256);
        assert_int_equal(task->interface.outputs, 10);
        assert_int_equal(task->max_T, 1024);
        for (int index = 0; index < task->eval_batches; index++) {
            task->type->eval_batch(task, index, &batch);
            assert_null(batch.length);
            assert_null(batch.reset);
            assert_int_equal(batch.counted, batch.B);
            for (int b = 0; b < batch.B; b++, rows++)
                if (record_of(batch.ids + b * 1024, batch.target[b], first + rows, first + rows + 1, 0) < 0)
                    fail_msg("row %d is another picture", rows);
        }
        assert_int_equal(rows, count);
        mr_batch_free(&batch);
        mr_task_free(task);
    }
}

static void training_shows_the_first_45000_and_mirrors_half(void **state)
{
    (void)state;
    need_data();
    for (int flip = 0; flip < 2; flip++) {
        mr_task *task = open_task("image", 50, 0, (setting[]){{"flip", flip ? "yes" : "no"}, {"pool", "last"}, {0}});
        mr_batch batch = fresh_batch(task);
        int mirrored = 0, repeated = 0;
        uint8_t *met = calloc(MR_CIFAR_ALL, 1);
        assert_int_equal(task->interface.head, MR_HEAD_LAST);
        for (uint32_t step = 0; step < 8; step++) {
            task->type->train_batch(task, step, 0, &batch);
            for (int b = 0; b < 50; b++) {
                int plain = record_of(batch.ids + b * 1024, batch.target[b], 0, 45000, 0), r = plain;
                if (r < 0) r = record_of(batch.ids + b * 1024, batch.target[b], 0, 45000, 1);
                if (r < 0) fail_msg("step %d, row %d is no training picture", (int)step, b);
                mirrored += plain < 0;
                repeated += met[r]++ > 0;
            }
        }
        /* about 200 of 400; six standard deviations are 60 */
        assert_true(flip ? mirrored > 140 && mirrored < 260 : mirrored == 0);
        assert_that(repeated, <=, 1); /* two pictures of CIFAR-10 may be alike */
        check_sequence_places(task);
        free(met);
        mr_batch_free(&batch);
        mr_task_free(task);
    }
}

static int is_moved(const int32_t *moved, const int32_t *from, int dx, int dy)
{
    for (int y = 0; y < 32; y++)
        for (int x = 0; x < 32; x++) {
            int u = x + dx < 0 ? 0 : x + dx > 31 ? 31 : x + dx, v = y + dy < 0 ? 0 : y + dy > 31 ? 31 : y + dy;
            if (moved[y * 32 + x] != from[v * 32 + u]) return 0;
        }
    return 1;
}

/* Training pictures are shifted to one of 5 × 5 places, all of which occur; test pictures are not shifted. */
static void training_moves_pictures(void **state)
{
    (void)state;
    need_data();
    mr_task *still = open_task("image", 50, 0, (setting[]){{0}}),
            *task = open_task("image", 50, 0, (setting[]){{"shift", "2"}, {0}});
    mr_batch from = fresh_batch(still), batch = fresh_batch(task);
    int met[5][5] = {{0}};
    for (uint32_t step = 1; step <= 8; step++) {
        still->type->train_batch(still, step, 0, &from);
        task->type->train_batch(task, step, 0, &batch);
        for (int b = 0; b < 50; b++) {
            int places = 0;
            for (int k = 0; k < 25; k++)
                if (is_moved(batch.ids + b * 1024, from.ids + b * 1024, k % 5 - 2, k / 5 - 2))
                    places++, met[k / 5][k % 5]++;
            assert_that(places, >=, 1);
            assert_int_equal(batch.target[b], from.target[b]);
        }
    }
    for (int k = 0; k < 25; k++) assert_in_range(met[k / 5][k % 5], 1, 50); /* of 400: 16 on average */
    still->type->eval_batch(still, 3, &from);
    task->type->eval_batch(task, 3, &batch);
    assert_memory_equal(batch.ids, from.ids, 50 * 1024 * sizeof *batch.ids);
    mr_batch_free(&from);
    mr_batch_free(&batch);
    mr_task_free(still);
    mr_task_free(task);
}

static void reals_and_small_pictures_are_the_same_pictures(void **state)
{
    (void)state;
    need_data();
    mr_task *task = open_task("image", 7, 0, (setting[]){{"values", "reals"}, {0}});
    mr_task *small = open_task("image", 7, 0, (setting[]){{"side", "8"}, {0}});
    mr_batch batch = fresh_batch(task), little = fresh_batch(small);
    assert_int_equal(task->interface.input, MR_INPUT_REALS);
    assert_int_equal(task->interface.inputs, 1);
    assert_int_equal(small->max_T, 64);
    task->type->eval_batch(task, 0, &batch);
    small->type->eval_batch(small, 0, &little);
    for (int b = 0; b < 7; b++) {
        const uint8_t *gray = all + (45000 + b) * MR_CIFAR_GRAY + 1;
        for (int i = 0; i < 1024; i++)
            if (!(fabs(batch.values[b * 1024 + i] - (gray[i] * 2.0 / 255 - 1)) <= 1e-6))
                fail_msg("value %d of picture %d", i, b);
        for (int i = 0; i < 64; i++) {
            double sum = 0;
            for (int k = 0; k < 16; k++) sum += gray[(i / 8 * 4 + k / 4) * 32 + i % 8 * 4 + k % 4];
            if (!(fabs(little.ids[b * 64 + i] - sum / 16) <= 0.5)) fail_msg("pixel %d of small picture %d", i, b);
        }
    }
    mr_batch_free(&batch);
    mr_batch_free(&little);
    mr_task_free(task);
    mr_task_free(small);
}

/* Must be last: it points MINRNN_DATA elsewhere. */
static void what_is_missing_or_spoiled_is_explained(void **state)
{
    (void)state;
    char path[MR_TEXT_MAX];
    char *old = getenv("MINRNN_DATA") ? mr_strdup(getenv("MINRNN_DATA")) : NULL;
    setenv("MINRNN_DATA", folder, 1);
    setenv("XDG_CACHE_HOME", folder, 1);
    refused(new_task("image", 1, 0, (setting[]){{0}}), MR_ENODATA, "minrnn data get cifar10");
    in_folder("cifar10", path);
    assert_int_equal(mr_make_directory(path, NULL), 0);
    char *zeros = calloc(10000, MR_CIFAR_OFFICIAL);
    write_file("cifar10/data_batch_1.bin", zeros, 10000 * MR_CIFAR_OFFICIAL, path);
    refused(new_task("image", 1, 0, (setting[]){{0}}), MR_EDATA, "data_batch_1.bin is not what was published");
    write_file("cifar10/gray.bin", zeros, 100, path);
    refused(new_task("image", 1, 0, (setting[]){{0}}), MR_EDATA, "gray.bin is not what was published");
    free(zeros);
    if (old) setenv("MINRNN_DATA", old, 1);
    mr_free(old);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grey_is_the_stated_mixture),
        cmocka_unit_test(records_are_the_published_ones),
        cmocka_unit_test(the_official_layout_gives_the_same_grey),
        cmocka_unit_test(scored_parts_are_whole_and_in_order),
        cmocka_unit_test(training_shows_the_first_45000_and_mirrors_half),
        cmocka_unit_test(training_moves_pictures),
        cmocka_unit_test(reals_and_small_pictures_are_the_same_pictures),
        cmocka_unit_test(what_is_missing_or_spoiled_is_explained),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
