/* What the batches of G-Image contain. The pictures are made here, so that no data set is needed: this file's
 * mr_cifar_load stands in for the one of app/tasks/cifar.c. */
#include "sequence_support.h"

#include "tasks/cifar.h"

#include <math.h>

enum { BYTES = MR_CIFAR_ALL * MR_CIFAR_GRAY };

static uint8_t *all; /* every record */

int mr_cifar_load(uint8_t **gray, char sha256[MR_SHA256_TEXT], mr_error *err)
{
    (void)err;
    *gray = mr_alloc(BYTES, 1);
    memcpy(*gray, all, BYTES);
    mr_sha256_of(all, BYTES, sha256);
    return 0;
}

static int make_pictures(void **state)
{
    uint64_t word = 88172645463325252u;
    all = malloc(BYTES);
    for (size_t i = 0; i < BYTES; i++) {
        if (i % 4 == 0) word ^= word << 13, word ^= word >> 7, word ^= word << 17;
        all[i] = (uint8_t)(word >> 16 * (i % 4));
    }
    for (size_t r = 0; r < MR_CIFAR_ALL; r++) all[r * MR_CIFAR_GRAY] = (uint8_t)(r * 7 % 10);
    return make_folder(state);
}

static int free_pictures(void **state)
{
    free(all);
    return remove_folder(state);
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
        assert_int_equal(repeated, 0);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scored_parts_are_whole_and_in_order),
        cmocka_unit_test(training_shows_the_first_45000_and_mirrors_half),
        cmocka_unit_test(training_moves_pictures),
        cmocka_unit_test(reals_and_small_pictures_are_the_same_pictures),
    };
    return cmocka_run_group_tests(tests, make_pictures, free_pictures);
}
