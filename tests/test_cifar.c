/* CIFAR-10 in grey, compared with the published files (or a sample of them), and what is missing. */
#include "sequence_support.h"

#include "tasks/cifar.h"
#include "tasks/data.h"
#include "skip_because.h"

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
    if (!mr_path_exists(path)) skip_because("no %s", path);
    assert_int_equal(mr_file_read(path, 1 << 24, &bytes, &size, NULL), 0);
    assert_int_equal(size, 1000 * MR_CIFAR_OFFICIAL);
    for (int i = 0; i < 1000; i++) {
        mr_cifar_to_gray((uint8_t *)bytes + i * MR_CIFAR_OFFICIAL, gray);
        assert_memory_equal(gray, all + (i < 500 ? i : 50000 + i - 500) * MR_CIFAR_GRAY, MR_CIFAR_GRAY);
    }
    mr_free(bytes);
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
        cmocka_unit_test(what_is_missing_or_spoiled_is_explained),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
